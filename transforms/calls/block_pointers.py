"""Block pointers: a base pointer, the sizes and strides of a tensor, and the offsets of a block in it.

A block pointer is a value of attribution only. The Triton model has its parts in its place: the base, and three
integers for each axis. Offsets of 32 bits stay so, also where a loop advances them: blocks by TMA begin at an i32.
A load or store of the block is one of a tensor of pointers, with a mask along the axes that are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import KernelValueError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import PtrType, Type, i32, i64, shape_of, shaped
from ziggurat.frontends.language.phrases import BLOCK_POINTER, CHECK_BY_MASK
from ziggurat.transforms.calls.constant_arguments import show
from ziggurat.transforms.calls.emit import Built, Emitter, Operand
from ziggurat.transforms.calls.lattice import BlockPtrType
from ziggurat.transforms.calls.promotion import promote_types, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, choice, scalar_integers, shape

PADDING = {"": 0.0, "zero": 0.0, "nan": float("nan")}


@attrs.frozen
class BlockPointerParts:
    """The parts of a block pointer: its type, the base, and for each axis the size, the stride and the offset."""

    type: BlockPtrType
    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]

    @classmethod
    def of(cls, operand: Operand) -> BlockPointerParts:
        """The parts of an operand that is a block pointer."""
        assert isinstance(operand.type, BlockPtrType)
        base, *rest = operand.value
        rank = len(operand.type.block)
        return cls(operand.type, base, *(tuple(rest[at : at + rank]) for at in range(0, 3 * rank, rank)))

    def values(self) -> tuple[Value, ...]:
        """The parts in the order of the type's components."""
        return (self.base, *self.sizes, *self.strides, *self.offsets)

    def index(self, emit: Emitter, axis: int) -> Value:
        """The place in the block along an axis, i64; the other axes have size 1."""
        return emit.cast(emit.indices(self.type.block, axis), i64)

    def pointers(self, emit: Emitter) -> Value:
        """The pointers to the elements of the block.

        The offsets go into the base, a scalar, so that what remains does not change in a loop that advances the block.
        """
        base = self.base
        for offset, stride in zip(self.offsets, self.strides, strict=True):
            base = emit.add(tt.AddPtr(base, emit.add(arith.MulI(emit.cast(offset, i64), stride))))
        steps: Value | None = None
        for axis, stride in enumerate(self.strides):
            index = self.index(emit, axis)
            step = emit.add(arith.MulI(index, emit.spread(stride, shape_of(index.type))))
            step = emit.spread(step, self.type.block)
            steps = step if steps is None else emit.add(arith.AddI(steps, step))
        assert steps is not None
        return emit.add(tt.AddPtr(emit.spread(base, self.type.block), steps))

    def mask(self, emit: Emitter, axes: tuple[int, ...]) -> Value | None:
        """Whether the elements are inside the tensor along these axes; None where no axis is checked."""
        mask: Value | None = None
        for axis in axes:
            index, offset = self.index(emit, axis), emit.cast(self.offsets[axis], i64)
            first = emit.add(arith.SubI(emit.constant(0, i64), offset))
            last = emit.add(arith.SubI(self.sizes[axis], offset))
            shape = shape_of(index.type)
            after = emit.add(arith.CmpI(index, emit.spread(first, shape), arith.IntPredicate.SGE))
            before = emit.add(arith.CmpI(index, emit.spread(last, shape), arith.IntPredicate.SLT))
            within = emit.spread(emit.add(arith.AndI(after, before)), self.type.block)
            mask = within if mask is None else emit.add(arith.AndI(mask, within))
        return mask


def _made(
    call: Typing, base: Type, sizes: Type, strides: Type, offsets: Type, block_shape: Any, order: Any
) -> BlockPtrType:
    if not isinstance(base, PtrType):
        raise call.error("'base' must be the pointer to the tensor; got {}", base)
    block = shape(call, block_shape)
    if not block:
        raise KernelValueError(f"{call}: 'block_shape' must have an axis; got ()")
    for name, numbers in (("sizes", sizes), ("strides", strides)):
        scalar_integers(call, f"the {name}", numbers, len(block))
    offset = i32 if _are_narrow(scalar_integers(call, "the offsets", offsets, len(block))) else i64
    axes = axes_of(order)
    if sorted(axes) != list(range(len(block))):
        raise call.value_error("'order' must be a permutation of the {} axes; got {}", len(block), show(order))
    return BlockPtrType(block, base.pointee, offset)


def _are_narrow(numbers: Sequence[Type]) -> bool:
    """Whether i32 has room for integers of these types."""
    return all(promote_types(i32, scalar_type(number)) == i32 for number in numbers)


def _make(
    emit: Emitter, result: Type, base: Operand, sizes: Operand, strides: Operand, offsets: Operand, *_: Any
) -> Built:
    assert isinstance(result, BlockPtrType)
    parts = zip((sizes, strides, offsets), (i64, i64, result.offset), strict=True)
    return (base.value, *(value for part, type_ in parts for value in emit.convert_parts(part, type_)))


def _advanced(call: Typing, base: Type, offsets: Type) -> Type:
    if not isinstance(base, BlockPtrType):
        raise call.error("'base' must be a block pointer; got {}", base, hint=BLOCK_POINTER())
    if not _are_narrow(scalar_integers(call, "the offsets", offsets, len(base.block))) and base.offset == i32:
        raise call.error("the offsets must be of 32 bits, as those of the block pointer; got {}", offsets)
    return base


def _advance(emit: Emitter, result: Type, base: Operand, offsets: Operand) -> Built:
    block = BlockPointerParts.of(base)
    steps = zip(block.offsets, emit.convert_parts(offsets, block.type.offset), strict=True)
    return attrs.evolve(block, offsets=tuple(emit.add(arith.AddI(at, step)) for at, step in steps)).values()


def axes_of(axes: Any) -> tuple[int, ...]:
    """A constant that names one axis or several, as a tuple."""
    return (axes,) if isinstance(axes, int) else tuple(axes)


def check_access(call: Typing, ptr: Type, boundary_check: Any, padding: Any, **forbidden: Type | None) -> None:
    """The options of an access for a block pointer, and for a plain pointer, which has none of them."""
    axes = axes_of(boundary_check)
    if not isinstance(ptr, BlockPtrType):
        if axes or padding:
            raise call.value_error(
                "'boundary_check' and 'padding_option' must be left out for {}", ptr, hint=CHECK_BY_MASK()
            )
        return
    for name, argument in forbidden.items():
        if argument is not None:
            raise call.error(
                "'{}' must be left out for a block pointer; got {}",
                name,
                argument,
                hint="use boundary_check=(…) to leave out what is outside of the tensor",
            )
    if len(set(axes)) != len(axes) or not set(axes) <= set(range(len(ptr.block))):
        raise call.value_error("'boundary_check' must name axes of the block, each once; got {}", show(boundary_check))
    choice("padding_option", padding, PADDING)
    if padding == "nan" and not ptr.element.is_float:
        raise call.value_error(
            'padding_option="nan" must be for floats; got {}', ptr.element, hint='padding_option="zero"'
        )


def access(
    emit: Emitter, ptr: Operand, boundary_check: Any, padding: str | None = None
) -> tuple[Value, Value | None, Value | None]:
    """The pointers to the elements of the block, their mask, and for a load what stands where the mask is false."""
    block = BlockPointerParts.of(ptr)
    mask = block.mask(emit, axes_of(boundary_check))
    other = None
    if mask is not None and padding is not None:
        other = emit.constant(PADDING[padding], shaped(block.type.block, block.type.element))
    return block.pointers(emit), mask, other


RULES = {"make_block_ptr": Rule(_made, _make), "advance": Rule(_advanced, _advance)}
