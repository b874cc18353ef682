"""Blocks of descriptors in shared memory, in the form in which TMA moves them."""

from __future__ import annotations

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu.fragments import Panels, box_and_swizzle
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import DescriptorType, SharedType
from ziggurat.transforms.analysis.queries import descriptor_of, tensor_of
from ziggurat.transforms.layouts.accesses import Accesses


def panels_of_block(type_: DescriptorType) -> Panels | None:
    """The form of a block in shared memory; None if a row is too short to be swizzled, or there are too few rows."""
    _, swizzle = box_and_swizzle(type_)
    return Panels(swizzle, k_major=True) if swizzle and type_.rows[0] >= 8 else None


def buffer_for(type_: DescriptorType) -> tuple[SharedType, int]:
    """The type of a buffer for a block, its axes in order, and its alignment in bytes."""
    panels = panels_of_block(type_)
    assert panels is not None
    offsets = panels.offsets(type_.rows, 1, type_.element.bytes)
    return SharedType(type_.rows, type_.element, offsets), panels.alignment


def is_filled_by_tma(value: Value, buffer: SharedType) -> bool:
    """Whether TMA can fill a buffer for `value` itself.

    It can if `value` is a loaded block, or such a block transposed, and if the buffer has the elements in the places
    where TMA puts them.
    """
    inner = block_axis(value)
    load, _ = before_transposition(value)
    if inner is None or not isinstance(load.op, tt.DescriptorLoad):
        return False
    type_ = descriptor_of(load.op.descriptor)
    panels = panels_of_block(type_)
    return panels is not None and panels.offsets(buffer.shape, inner, type_.element.bytes) == buffer.offsets


def before_transposition(value: Value) -> tuple[Value, tuple[tt.Trans, ...]]:
    """The value that was transposed, and the transpositions in order."""
    steps: list[tt.Trans] = []
    while isinstance(value.op, tt.Trans):
        steps.insert(0, value.op)
        value = value.op.value
    return value, tuple(steps)


def block_axis(value: Value, accesses: Accesses | None = None) -> int | None:
    """The axis along which a block of a descriptor has its neighbours in memory; None for other tensors.

    With `accesses`, also that of a tensor that is loaded in vectors.
    """
    if isinstance(value.op, tt.Trans):
        inner = block_axis(value.op.value, accesses)
        return None if inner is None else list(value.op.order).index(inner)
    if isinstance(value.op, tt.Load) and accesses is not None and accesses.vector(value.op) > 1:
        return accesses.order(value.op)[0]
    return tensor_of(value).rank - 1 if isinstance(value.op, tt.DescriptorLoad) else None
