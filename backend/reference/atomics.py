"""Atomic accesses, in the order of the programs and of the elements of each.

Accesses to one address are done in rounds: the addresses of a round differ. Sums of integers, which often go to one
counter, are done at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ziggurat.backend.reference.access import left_out, pointee
from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.marks import explained, marks
from ziggurat.backend.reference.sharing import WRITE
from ziggurat.backend.reference.values import Array, marked
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.interpret import Meaning
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.scalars import bits_of, maxnum, minnum, rounded, widened
from ziggurat.codemodel.types import ScalarType, shape_of

Operands = tuple[Any, ...]

_UPDATES: dict[AtomicKind, Callable[[Array, Array], Array]] = {
    AtomicKind.ADD: np.add, AtomicKind.FADD: np.add, AtomicKind.MAX: np.maximum, AtomicKind.MIN: np.minimum,
    AtomicKind.UMAX: np.maximum, AtomicKind.UMIN: np.minimum, AtomicKind.FMAX: maxnum, AtomicKind.FMIN: minnum,
    AtomicKind.AND: np.bitwise_and, AtomicKind.OR: np.bitwise_or, AtomicKind.XOR: np.bitwise_xor,
    AtomicKind.XCHG: lambda old, new: new,
}  # fmt: skip
_ORDERED = (AtomicKind.FADD, AtomicKind.XCHG)  # They do not commute: a sum of floats depends on the order.


def _update(kind: AtomicKind, scalar: ScalarType, old: Array, value: Array) -> Array:
    if old.dtype == np.bool_:
        return (_UPDATES[kind](old.view(np.uint8), value.view(np.uint8)) & np.uint8(1)).astype(np.bool_)
    if scalar.is_float and kind is not AtomicKind.XCHG:
        return rounded(_UPDATES[kind](widened(old), widened(value)), scalar)
    return _UPDATES[kind](old, value)


def _rounds(index: Array) -> list[Array]:
    """The places of the first access to each address, then those of the second, and so on."""
    order = np.argsort(index, kind="stable")
    by_address = index[order]
    starts = np.flatnonzero(np.r_[True, by_address[1:] != by_address[:-1]])
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(index)]))
    return np.split(order[np.argsort(rank, kind="stable")], np.cumsum(np.bincount(rank))[:-1])


def _sums_before(place: Array, values: Array, dtype: np.dtype[Any]) -> Array:
    """For each access, the sum of the values of the accesses before it to its address."""
    order = np.argsort(place, kind="stable")
    before = np.cumsum(values[order], dtype=dtype) - values[order]
    sums = np.empty_like(values)
    sums[order] = before - before[np.searchsorted(place[order], place[order])]
    return sums


def _update_in_order(
    machine: Machine, op: Op, view: Array, index: Array, update: Callable[..., Array], operands: list[Array]
) -> Array:
    """Update the elements at these indices one after the other. Returns the old element of each access."""
    addresses, place = np.unique(index, return_inverse=True)
    state = view[addresses]
    old = state[place]
    if len(addresses) == len(index):
        state[place] = update(old, *operands)
    elif isinstance(op, tt.AtomicRMW) and op.kind is AtomicKind.ADD and view.dtype != np.bool_:
        old += _sums_before(place, operands[0], view.dtype)
        np.add.at(state, place, operands[0])
    else:
        for lanes in _rounds(place):
            old[lanes] = state[place[lanes]]
            state[place[lanes]] = update(old[lanes], *(operand[lanes] for operand in operands))
    if (bits_of(state) != bits_of(view[addresses])).any():
        machine.memory.write(view, addresses, state)
    return old


def _swap(old: Array, expected: Array, new: Array) -> Array:
    return np.where(bits_of(old) == bits_of(expected), new, old)


@triton.of(tt.AtomicRMW, tt.AtomicCAS)
def _atomic(machine: Machine, op: tt.AtomicRMW | tt.AtomicCAS, operands: Operands) -> Array:
    scalar = pointee(op.ptr)
    shape = (len(machine.frame), *shape_of(op.ptr.type))  # One access for each program and element.
    pointers, *values = (np.broadcast_to(operand, shape) for operand in operands)
    mask: Array | None = None
    update: Callable[..., Array] = _swap
    use = WRITE
    if isinstance(op, tt.AtomicRMW):
        mask = values.pop() if op.mask is not None else None
        update = functools.partial(_update, op.kind, scalar)
        use = op.kind.value if op.kind not in _ORDERED and not op.result.uses else WRITE
    access = machine.access("updates", op, op.result.type)
    result = np.zeros(shape, scalar.dtype)
    for target in machine.memory.locate(pointers, None if mask is None or mask.all() else mask, access):
        machine.sharing.touch(target, access, use)
        lanes = np.ones(shape, np.bool_) if target.lanes is None else target.lanes
        given = [value[lanes] for value in values]
        result[lanes] = _update_in_order(
            machine, op, target.region.view(scalar.dtype), target.index[lanes], update, given
        )
    return result


@marks.of(tt.AtomicRMW, tt.AtomicCAS)
def _marks_of_atomic(meaning: Meaning, machine: Machine, op: tt.AtomicRMW | tt.AtomicCAS, operands: Operands) -> Any:
    count = 2 if isinstance(op, tt.AtomicRMW) else 3
    masks = [machine.known(op, mask, "masks an atomic by") for mask in operands[count:]]
    mask = masks[0] if masks else None
    address = machine.known(op, operands[0], "updates memory at", mask)
    values = [machine.known(op, value, "updates memory with", mask) for value in operands[1:count]]
    with explained(machine, operands[0], mask):
        result = meaning(machine, op, (address, *values, *masks))
    return marked(result, left_out(machine, op, address, mask, "the mask of this atomic", "and it has no result there"))
