"""What is known of integers and pointers: runs of neighbours, of equal values, and what divides them. (First version.)"""

from __future__ import annotations

import attrs

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, TensorType, element_of
from ziggurat.transforms.place.slots import Slot, component_types, slots_of


@attrs.frozen
class AxisInfo:
    """For each axis: the length of aligned runs of consecutive numbers (of pointers: to neighbours), what divides the
    first of each such run (of pointers: the address in bytes), and the length of aligned runs of equal values. All are
    powers of two. A scalar has one axis of size 1."""

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None


def unknown(slot: Slot) -> AxisInfo:
    """What holds of any value of the slot's type."""
    value, index = slot
    type_ = component_types(value.type)[index]
    rank = type_.rank if isinstance(type_, TensorType) else 1
    element = element_of(type_)
    aligned = element.pointee.bytes if isinstance(element, PtrType) else 1
    return AxisInfo((1,) * rank, (aligned,) * rank, (1,) * rank)


def analyse(func: Op) -> dict[Slot, AxisInfo]:
    """What is known of each slot of a function."""
    found = {}
    for op in func.walk():
        for slot in slots_of(op.result):
            found[slot] = unknown(slot)
        for body in op.bodies:
            for block in body.blocks:
                for parameter in block.parameters:
                    found[(parameter, 0)] = unknown((parameter, 0))
    return found
