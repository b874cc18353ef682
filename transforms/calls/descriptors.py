"""Rules of tensor descriptors."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import Padding
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import (
    SCALARS,
    ConstantType,
    DescriptorType,
    PtrType,
    Type,
    i32,
    i64,
    shape_of,
    with_element,
)
from ziggurat.frontends.language.phrases import (
    ATOMIC_ON_POINTERS,
    DESCRIPTOR_DTYPE,
    DESCRIPTOR_ROW,
    GET_DESCRIPTOR,
)
from ziggurat.transforms.calls.constant_arguments import one_of
from ziggurat.transforms.calls.emit import Emitter, Operand
from ziggurat.transforms.calls.memory import PADDING, kind_of
from ziggurat.transforms.calls.promotion import NONE, is_number, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, choice, integers, scalar_integers, shape, tensor


def _described(call: Typing, base: Type, sizes: Type, strides: Type, block: Any, padding: Any) -> Type:
    if not isinstance(base, PtrType):
        raise call.error("'base' must be the pointer to the tensor; got {}", base)
    dims = shape(call, block)
    scalar_integers(call, "the sizes", sizes, len(dims))
    last = scalar_integers(call, "the strides", strides, len(dims))[-1:]
    if last and isinstance(last[0], ConstantType) and last[0].value != 1:
        raise call.value_error(
            "the last stride must be 1; got {}",
            last[0].value,
            hint="make the last axis of the tensor contiguous in memory",
        )
    if dims[-1] * base.pointee.bytes < 16:
        row = dims[-1] * base.pointee.bytes
        raise KernelValueError(DESCRIPTOR_ROW(call=str(call), row=row, size=dims[-1], bytes=base.pointee.bytes))
    choice("padding_option", padding, PADDING)
    if PADDING[padding] is Padding.NAN and not base.pointee.is_float:
        raise call.value_error("only floats are padded with NaN; got {}", base.pointee, hint='padding_option="zero"')
    return DescriptorType(dims, base.pointee, PADDING[padding].value)


def _describe(
    emit: Emitter, result: Type, base: Operand, sizes: Operand, strides: Operand, block: Any, padding: Any
) -> Value:
    shape_, steps = emit.convert_parts(sizes, i32), emit.convert_parts(strides, i64)
    return emit.add(tt.MakeTensorDescriptor(base.value, shape_, steps, result, padding=PADDING[padding]))


def _descriptor(call: Typing, descriptor: Type) -> DescriptorType:
    """The type of an argument that is a descriptor."""
    if not isinstance(descriptor, DescriptorType):
        raise call.error(
            "'desc' must be a tensor descriptor; got {}",
            descriptor,
            hint=GET_DESCRIPTOR() if isinstance(descriptor, PtrType) else None,
        )
    return descriptor


def _at(call: Typing, descriptor: Type, offsets: Type) -> list[Type]:
    """The operands of an access to a block of a descriptor: the descriptor and the offsets."""
    type_ = _descriptor(call, descriptor)
    return [type_, *(i32 for _ in scalar_integers(call, "the offsets", offsets, len(type_.block)))]


def _block_read(call: Typing, descriptor: Type, offsets: Type) -> Type:
    operands = _at(call, descriptor, offsets)
    return call.op_type(lambda values: tt.DescriptorLoad(values[0], values[1:]), *operands)


def _in_blocks(call: Typing, descriptor: Type, value: Type) -> Type:
    """The type of a value that is written through a descriptor, as its elements."""
    element, type_ = _descriptor(call, descriptor).element, tensor(call, value)
    return with_element(type_, element) if is_number(value) else type_


def _block_written(call: Typing, descriptor: Type, offsets: Type, value: Type) -> Type:
    operands = _at(call, descriptor, offsets)
    block = _in_blocks(call, descriptor, value)
    call.op_type(lambda values: tt.DescriptorStore(values[1], values[0], values[2:]), block, *operands)
    return NONE


def _read_block(emit: Emitter, result: Type, descriptor: Operand, offsets: Operand) -> Value:
    return emit.add(tt.DescriptorLoad(descriptor.value, emit.convert_parts(offsets, i32)))


def _write_block(emit: Emitter, result: Type, descriptor: Operand, offsets: Operand, value: Operand) -> Value:
    block = _as_element(emit, descriptor, value)
    return emit.add(tt.DescriptorStore(descriptor.value, block, emit.convert_parts(offsets, i32)))


def _as_element(emit: Emitter, descriptor: Operand, value: Operand) -> Value:
    """A value that is written through a descriptor, as its elements."""
    return emit.cast(value.value, expect(descriptor.type, DescriptorType).element)


def _rows(call: Typing, descriptor: Type, x_offsets: Type, y_offset: Type) -> list[Type]:
    """The operands of an access to rows of a descriptor: the descriptor, the rows, the column."""
    type_ = _descriptor(call, descriptor)
    integers(call, x_offsets=x_offsets, y_offset=y_offset)
    if shape_of(y_offset):
        raise call.error("'y_offset' must be a scalar; got {}", y_offset)
    return [type_, with_element(tensor(call, x_offsets), i32), i32]


def _gathered(call: Typing, descriptor: Type, x_offsets: Type, y_offset: Type) -> Type:
    return call.op_type(lambda values: tt.DescriptorGather(*values), *_rows(call, descriptor, x_offsets, y_offset))


def _gather(emit: Emitter, result: Type, descriptor: Operand, x_offsets: Operand, y_offset: Operand) -> Value:
    return emit.add(tt.DescriptorGather(descriptor.value, emit.cast(x_offsets.value, i32), emit.convert(y_offset, i32)))


def _scattered(call: Typing, descriptor: Type, value: Type, x_offsets: Type, y_offset: Type) -> Type:
    first, *rest = _rows(call, descriptor, x_offsets, y_offset)
    call.op_type(lambda values: tt.DescriptorScatter(*values), first, _in_blocks(call, descriptor, value), *rest)
    return NONE


def _scatter(
    emit: Emitter, result: Type, descriptor: Operand, value: Operand, x_offsets: Operand, y_offset: Operand
) -> Value:
    rows, column = emit.cast(x_offsets.value, i32), emit.convert(y_offset, i32)
    return emit.add(tt.DescriptorScatter(descriptor.value, _as_element(emit, descriptor, value), rows, column))


# The combinations that TMA has an instruction for, by their kind: the types of elements (PTX ISA,
# "cp.reduce.async.bulk.tensor").
_WORDS = ("u32", "i32", "u64", "i64")
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": ("u32", "i32", "u64", "f32", "f16", "bf16"),
    **dict.fromkeys(("min", "max"), (*_WORDS, "f16", "bf16")),
    **dict.fromkeys(("and", "or", "xor"), _WORDS),
}


def _block_combined(call: Typing, descriptor: Type, offsets: Type, value: Type, kind: Any) -> Type:
    choice("kind", kind, REDUCTIONS)
    _block_written(call, descriptor, offsets, value)
    element = _descriptor(call, descriptor).element
    if element.name not in REDUCTIONS[kind]:
        dtypes = one_of(SCALARS[name] for name in REDUCTIONS[kind])
        summary = DESCRIPTOR_DTYPE(call=str(call), kind=kind, dtypes=dtypes, dtype=say("{}", element))
        raise KernelTypeError(summary, hint=ATOMIC_ON_POINTERS())
    return NONE


def _combine_block(
    emit: Emitter, result: Type, descriptor: Operand, offsets: Operand, value: Operand, kind: str
) -> Value:
    block = _as_element(emit, descriptor, value)
    atomic_kind = kind_of(f"atomic_{kind}", scalar_type(block.type))
    return emit.add(tt.DescriptorReduce(descriptor.value, block, emit.convert_parts(offsets, i32), kind=atomic_kind))


RULES = {
    "make_tensor_descriptor": Rule(_described, _describe),
    "load_tensor_descriptor": Rule(_block_read, _read_block),
    "store_tensor_descriptor": Rule(_block_written, _write_block),
    "gather_tensor_descriptor": Rule(_gathered, _gather),
    "scatter_tensor_descriptor": Rule(_scattered, _scatter),
    "reduce_tensor_descriptor": Rule(_block_combined, _combine_block),
}
