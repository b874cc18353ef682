"""The inference of layouts through an op: of its operands from that of its result, and the other way round."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.layout import Layout, bits_of
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.place.components import tensor_operands

# Ops without tensor operands: they can be computed in any layout.
_ROOTS = (tt.MakeRange, tt.Splat, tt.Poison, arith.ConstantOp)
_SHAPING = (tt.Broadcast, tt.ExpandDims, tt.Reshape, tt.Trans)
_EACH = (tt.AddPtr, tt.Bitcast, tt.IntToPtr, tt.PtrToInt, tt.MulHiUI, tt.PreciseDivF, tt.PreciseSqrt, tt.Hint)
_WIDENING = (arith.ExtF, arith.ExtSI, arith.ExtUI)


def is_root(op: Op) -> bool:
    """Whether an op gives a tensor from scalars."""
    return isinstance(op, _ROOTS)


def is_elementwise(op: Op) -> bool:
    """Whether an op is pure and gives one tensor, each element from the elements at the same place."""
    if isinstance(op, _EACH):
        return True
    return isinstance(op, Pure) and op.NAME.startswith(("arith.", "math.")) and not isinstance(op, arith.ConstantOp)


def is_computable(op: Op) -> bool:
    """Whether an op gives a tensor in any layout if its operands have the layouts that `operand_layouts` says."""
    return isinstance(op, (*_ROOTS, *_SHAPING)) or is_elementwise(op)


def is_shaping(op: Op) -> bool:
    """Whether an op only renumbers elements, or repeats them, which is free in each thread."""
    return isinstance(op, _SHAPING)


def is_widening(op: Op) -> bool:
    """Whether an op casts to a wider type: a layout is better converted before it."""
    return isinstance(op, _WIDENING)


def operand_layouts(op: Op, layout: Layout) -> list[tuple[int, Layout]]:
    """The layouts of the tensor operands, by position, from which a computable op gives its result in `layout`."""
    operands = tensor_operands(op)
    if is_elementwise(op):
        return [(position, layout) for position, _, _ in operands]
    if isinstance(op, tt.Broadcast):
        assert isinstance(op.type, TensorType)
        return [(0, narrowed(layout, op.type.shape, operands[0][2].shape))]
    if isinstance(op, tt.ExpandDims | tt.Reshape):
        return [(0, layout)]
    if isinstance(op, tt.Trans):
        back = [op.order.index(axis) for axis in range(len(op.order))]
        shape = [operands[0][2].shape[axis] for axis in op.order]
        return [(0, layout.transposed(shape, back))]
    if is_root(op):
        return []
    raise InternalError(f"{op.NAME} is not computed in any layout", str(op.root()))


def narrowed(layout: Layout, wide: Sequence[int], narrow: Sequence[int]) -> Layout:
    """The layout, without copies in one thread, of a tensor that is broadcast to one of shape `wide` in `layout`."""
    shape = list(wide)
    for axis, size in enumerate(narrow):
        if size != shape[axis]:
            layout = layout.narrowed(shape, axis)
            shape[axis] = 1
    return without_copies(layout)


def without_copies(layout: Layout) -> Layout:
    """The layout without registers that hold copies of others."""
    return Layout(tuple(basis for basis in layout.registers if basis), layout.lanes, layout.warps)


def widened(layout: Layout, narrow: Sequence[int], wide: Sequence[int]) -> Layout:
    """A layout of a broadcast tensor, from that of its narrow form: lanes and warps with copies take the new axes."""
    free: list[int] = []
    for axis in reversed(range(len(wide))):
        if narrow[axis] != wide[axis]:
            offset = bits_of(math.prod(wide[axis + 1 :]))
            free += [1 << (offset + bit) for bit in range(bits_of(wide[axis]))]

    def moved(basis: int) -> int:
        result = 0
        offset = 0
        for axis in reversed(range(len(narrow))):
            bits = bits_of(narrow[axis])
            part = basis >> offset & ((1 << bits) - 1)
            offset += bits
            result |= part << bits_of(math.prod(wide[axis + 1 :]))
        return result

    layout = without_copies(layout).map(moved)
    lanes = [basis or (free.pop(0) if free else 0) for basis in layout.lanes]
    warps = [basis or (free.pop(0) if free else 0) for basis in layout.warps]
    return Layout((*free, *layout.registers), tuple(lanes), tuple(warps))


def within_threads(source: Layout, target: Layout, numel: int) -> bool:
    """Whether each thread holds the same elements in both layouts, so that converting is free."""
    _, free_lanes, free_warps = source.free

    def thread(element: int) -> tuple[int, int, int]:
        register, lane, warp = source.locate(element, numel)
        return register, lane & ~free_lanes, warp & ~free_warps

    lanes = [(0, 1 << bit & ~free_lanes, 0) for bit in range(len(target.lanes))]
    warps = [(0, 0, 1 << bit & ~free_warps) for bit in range(len(target.warps))]
    if [thread(basis) for basis in (*target.lanes, *target.warps)] != [*lanes, *warps]:
        return False
    return all(thread(basis)[1:] == (0, 0) for basis in target.registers)
