"""Properties of values, types and ops that many passes read, and the ops that many passes add."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import GRID
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import Layout, axis_bases, bits_of
from ziggurat.codemodel.op import Block, BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.traits import Loop, SymbolTable
from ziggurat.codemodel.types import (
    DescriptorType,
    SharedType,
    TensorType,
    Type,
    element_bytes,
    i32,
    scalar_element,
    shape_of,
    u32,
)
from ziggurat.transforms.analysis.components import component_of, tensor_operands

_REDUX: Mapping[type[Op], str] = {
    arith.AddI: "add", arith.AndI: "and", arith.OrI: "or", arith.XOrI: "xor",
    arith.MinSI: "min", arith.MaxSI: "max", arith.MinUI: "umin", arith.MaxUI: "umax",
}  # fmt: skip


def function_of(module: SymbolTable) -> tt.Func:
    """The one function of a prepared module, or of a GPU model."""
    functions = [op for op in module.functions().values() if isinstance(op, tt.Func)]
    if len(functions) != 1:
        raise InternalError(f"a prepared module has one function, this one has {len(functions)}")
    return functions[0]


def is_persistent(func: tt.Func) -> bool:
    """Whether the CTAs of a kernel run several programs each."""
    return any(part.startswith(GRID) for part in func.parts)


def function_around(op: Op) -> tt.Func:
    """The function that an op is in."""
    return next(owner for owner in op.path() if isinstance(owner, tt.Func))


def loops_around(op: Op) -> set[Op]:
    """The loops around an op; an op with jumps in its bodies counts as one."""
    return {owner for owner in op.path() if isinstance(owner, Loop) or owner.jumps}


def depends_on_program(op: Op) -> bool:
    """Whether the number of the program decides about the operands of an op, such as what a load reads."""
    return any(isinstance(source.op, tt.GetProgramId) for source in reached([*op.operands], _sources))


def _sources(value: Value) -> Sequence[Value]:
    """The values that one is computed from; of a loop's parameters, what they begin with, and what follows."""
    if isinstance(value, OpResult):
        ends = [body.entry.terminator.operands for body in value.op.bodies]
        return [*value.op.operands, *(operand for operands in ends for operand in operands)]
    owner = value.owner if isinstance(value, BlockParameter) else None
    if not isinstance(owner, scf.For) or not isinstance(value, BlockParameter):
        return ()
    number = value.index - 1
    return (owner.start,) if number < 0 else (owner.initial[number], owner.body.entry.terminator.operands[number])


def bytes_of(value: Value) -> int:
    """The bytes of a number or a tensor; a pointer has 8."""
    return math.prod(shape_of(value.type)) * element_bytes(value.type)


def tensor_of(value: Value) -> TensorType:
    """The type of a value that is a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type


def descriptor_of(value: Value) -> DescriptorType:
    """The type of a value that is a tensor descriptor."""
    assert isinstance(value.type, DescriptorType)
    return value.type


def is_contiguous(maker: tt.MakeTensorDescriptor) -> bool:
    """Whether rows of a described tensor are as long as they are apart: a multiple of 16 bytes, as all strides are."""
    if len(maker.shape) < 2:
        return False
    pitch = maker.strides[-2]
    while isinstance(pitch.op, arith.ExtSI):
        (pitch,) = pitch.op.operands
    return component_of(pitch) == component_of(maker.shape[-1])


def layout_of(type_: Type) -> Layout:
    """The layout of a tensor type of a GPU model."""
    assert isinstance(type_, TensorType) and type_.layout is not None, f"{type_} has no layout"
    return type_.layout


def registers_alike(type_: TensorType, runs: Sequence[int]) -> int:
    """The bits of a register's number that choose an element of a run; along each axis, runs have these lengths."""
    inside = 0
    for axis, (run, size) in enumerate(zip(runs, type_.shape, strict=True)):
        # Runs begin at multiples of the largest power of two in them.
        inside |= (min(run & -run, size) - 1) << bits_of(math.prod(type_.shape[axis + 1 :]))
    return sum(1 << bit for bit, basis in enumerate(layout_of(type_).registers) if not basis & ~inside)


def with_layout(type_: Type, layout: Layout | None) -> Type:
    """The type with another layout, if it is a tensor."""
    return TensorType(type_.shape, type_.element, layout) if isinstance(type_, TensorType) else type_


def converted(builder: Builder, value: Value, layout: Layout) -> Value:
    """The tensor in a layout, converted where it has another one."""
    if layout_of(value.type) == layout:
        return value
    return builder.add(gpu.ConvertLayout(value, with_layout(value.type, layout)))


def stored(builder: Builder, value: Value, offsets: tuple[int, ...], alignment: int = 16) -> Value:
    """A new buffer that holds the tensor."""
    type_ = tensor_of(value)
    shared = SharedType(type_.shape, scalar_element(type_), offsets)
    buffer = builder.add(gpu.LocalAlloc(shared, alignment=alignment))
    builder.add(gpu.LocalStore(buffer, value))
    return buffer


def shared_of(buffer: Value) -> SharedType:
    """The type of a buffer in shared memory."""
    assert isinstance(buffer.type, SharedType)
    return buffer.type


def unpacked(builder: Builder, value: Value, count: int) -> list[Value]:
    """The components of a packed value."""
    return [value] if count == 1 else [builder.add(core.TupleLoad(value, index)) for index in range(count)]


def repacked(builder: Builder, values: Sequence[Value]) -> Value:
    """Several values as one: a single value itself, more as a Tuple."""
    return values[0] if len(values) == 1 else builder.add(core.MakeTuple(values))


def constant(builder: Builder, value: int | bool, type_: Type = i32) -> Value:
    """A new constant."""
    return builder.add(arith.ConstantOp(value, type_))


def constant_of(value: Value) -> object:
    """The value of a constant, also of one that was splatted, broadcast or converted; None for other values."""
    while isinstance(value.op, tt.Splat | tt.Broadcast | gpu.ConvertLayout):
        value = value.op.value
    return value.op.value if isinstance(value.op, arith.ConstantOp) else None


def range_along(value: Value, axis: int) -> tt.MakeRange | None:
    """The range whose numbers a tensor has along an axis; None if it has other ones."""
    op = value.op
    match op:
        case tt.MakeRange() if axis == 0:
            return op
        case tt.Broadcast() if shape_of(value.type)[axis] == shape_of(op.value.type)[axis]:
            return range_along(op.value, axis)
        case tt.ExpandDims() if op.axis != axis:
            return range_along(op.value, axis - (op.axis < axis))
        case _:
            return None


def warp_reduction(op: tt.Reduce) -> str | None:
    """The name in PTX of the `redux` that reduces a whole warp: of integers of 32 bits, along all bits of the lanes."""
    type_, (combiner, *others) = tensor_of(op.values[0]), op.combine.entry.ops
    name = _REDUX.get(type(combiner))
    is_whole = all(basis & sum(axis_bases(type_.shape, op.axis)) for basis in layout_of(type_).lanes)
    if name is None or type_.element not in (i32, u32) or not is_whole or len(op.combine.blocks) != 1:
        return None
    is_plain = set(combiner.operands) == set(op.combine.parameters) and len(op.combine.parameters) == 2
    return name if is_plain and [other.operands for other in others] == [(combiner.result,)] else None


def owners_of(value: Value) -> list[Op]:
    """The ops in whose bodies a value is declared."""
    owner = None if value.block is None else value.block.parent.parent
    return [] if owner is None else [*owner.path()]


def op_in(op: Op, block: Block) -> Op:
    """The op of a block that contains an op, or is it."""
    return next(inner for inner in op.path() if inner.parent is block)


def role_split(module: Op) -> gpu.WarpSpecialize | None:
    """The op that splits a kernel into roles, if it has one."""
    return next((op for op in module.walk() if isinstance(op, gpu.WarpSpecialize)), None)


def feeds_dot(value: Value) -> bool:
    """Whether a dot reads a block, maybe transposed."""
    users = value.uses
    return any(isinstance(user, tt.Dot) or (isinstance(user, tt.Trans) and feeds_dot(user.result)) for user in users)


# Ops without tensor operands: they can be computed in any layout.
_ROOTS = (tt.MakeRange, tt.Splat, tt.Poison, arith.ConstantOp)
_SHAPING = (tt.Broadcast, tt.ExpandDims, tt.Reshape, tt.Trans)
_EACH = (
    tt.AddPtr, tt.Bitcast, tt.IntToPtr, tt.PtrToInt, tt.Hint, arith.Elementwise, arith.Cast, arith.CmpI, arith.CmpF,
    arith.Select,
)  # fmt: skip
_WIDENING = (arith.ExtF, arith.ExtSI, arith.ExtUI)


def is_root(op: Op) -> bool:
    """Whether an op gives a tensor from scalars."""
    return isinstance(op, _ROOTS)


def is_elementwise(op: Op) -> bool:
    """Whether an op is pure and gives one tensor, each element from the elements at the same place."""
    return isinstance(op, _EACH)


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
