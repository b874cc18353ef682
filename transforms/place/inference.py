"""The inference of layouts through an op: of its operands from that of its result, and the other way round."""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.layout import Layout
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
        return [(0, layout.narrowed(op.type.shape, operands[0][2].shape).without_copies())]
    if isinstance(op, tt.ExpandDims | tt.Reshape):
        return [(0, layout)]
    if isinstance(op, tt.Trans):
        back = [op.order.index(axis) for axis in range(len(op.order))]
        shape = [operands[0][2].shape[axis] for axis in op.order]
        return [(0, layout.transposed(shape, back))]
    if is_root(op):
        return []
    raise InternalError(f"{op.NAME} is not computed in any layout", str(op.root()))
