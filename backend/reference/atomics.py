"""Atomic accesses, in the order of the programs and of the elements of each.

Accesses to one address are done in rounds: the addresses of a round differ. Sums of integers and exchanges, which often
go to one counter, are done at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ziggurat.backend.reference.access import left_out, pointee
from ziggurat.backend.reference.machine import Machine
from ziggurat.backend.reference.marks import explained, marks
from ziggurat.backend.reference.meanings import triton
from ziggurat.backend.reference.memory import Target
from ziggurat.backend.reference.sharing import WRITE
from ziggurat.backend.reference.values import Array, element_dtype, marked
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


def _update(kind: AtomicKind, old: Array, value: Array, scalar: ScalarType) -> Array:
    if old.dtype == np.bool_:
        return (_UPDATES[kind](old.view(np.uint8), value.view(np.uint8)) & np.uint8(1)).astype(np.bool_)
    if scalar.is_float and kind is not AtomicKind.XCHG:
        return rounded(_UPDATES[kind](widened(old), widened(value)), scalar)
    return _UPDATES[kind](old, value)


class _ByAddress:
    """The places of accesses, sorted by address. The accesses to one address stay in order."""

    def __init__(self, index: Array) -> None:
        self.order = np.argsort(index, kind="stable")
        by_address = index[self.order]
        self.starts = np.flatnonzero(np.r_[True, by_address[1:] != by_address[:-1]])
        self.sizes = np.diff(np.r_[self.starts, len(index)])

    def rounds(self) -> list[Array]:
        """The places of the first access to each address, then those of the second, and so on."""
        rank = np.arange(len(self.order)) - np.repeat(self.starts, self.sizes)
        by_rank = np.argsort(rank, kind="stable")
        borders = np.cumsum(np.bincount(rank))[:-1]
        return np.split(self.order[by_rank], borders)


def _sum_at_once(view: Array, index: Array, values: Array, sorted_: _ByAddress) -> tuple[Array, Array]:
    """Sums of integers: the old and the new element of each access."""
    sorted_values = values[sorted_.order]
    after = np.cumsum(sorted_values, dtype=view.dtype)
    before_group = np.repeat((after - sorted_values)[sorted_.starts], sorted_.sizes)
    base = view[index[sorted_.order]]
    old, new = np.empty_like(values), np.empty_like(values)
    new[sorted_.order] = base + (after - before_group)
    old[sorted_.order] = base + (after - sorted_values - before_group)
    return old, new


def _exchange_at_once(view: Array, index: Array, values: Array, sorted_: _ByAddress) -> tuple[Array, Array]:
    """Exchanges: the old and the new element of each access."""
    sorted_values = values[sorted_.order]
    found = np.concatenate([sorted_values[:1], sorted_values[:-1]])
    found[sorted_.starts] = view[index[sorted_.order[sorted_.starts]]]
    old = np.empty_like(values)
    old[sorted_.order] = found
    return old, values


def _update_in_order(
    machine: Machine, view: Array, index: Array, values: Array, kind: AtomicKind, scalar: ScalarType
) -> Array:
    """Update the elements at these indices one after the other. Returns the old element of each access."""
    sorted_ = _ByAddress(index)
    if len(sorted_.starts) == len(index):
        old = view[index]
        new = _update(kind, old, values, scalar)
    elif kind is AtomicKind.XCHG:
        old, new = _exchange_at_once(view, index, values, sorted_)
    elif kind is AtomicKind.ADD and view.dtype != np.bool_:
        old, new = _sum_at_once(view, index, values, sorted_)
    else:
        old, new = np.empty_like(values), np.empty_like(values)
        state = view[index]
        first = np.arange(len(index))
        first[sorted_.order] = np.repeat(sorted_.order[sorted_.starts], sorted_.sizes)
        for places in sorted_.rounds():
            holder = first[places]
            old[places] = state[holder]
            new[places] = state[holder] = _update(kind, old[places], values[places], scalar)
    if (bits_of(old) != bits_of(new)).any():
        machine.memory.write(view, index, new)
    return old


def _spread(machine: Machine, op: Op, arrays: list[Array]) -> list[Array]:
    """The operands at full size: one access for each program and element."""
    shape = (len(machine.frame), *shape_of(op.operands[0].type))
    return [np.broadcast_to(array, shape) for array in arrays]


def _lanes(target: Target, values: Array) -> tuple[Array, Array]:
    if target.lanes is None:
        return target.index.reshape(-1), values.reshape(-1)
    return target.index[target.lanes], values[target.lanes]


@triton.of(tt.AtomicRMW)
def _atomic(machine: Machine, op: tt.AtomicRMW, operands: Operands) -> Array:
    scalar = pointee(op.ptr)
    dtype = element_dtype(scalar)
    addresses, values, *rest = _spread(machine, op, list(operands))
    mask = rest[0] if rest and not rest[0].all() else None
    result = np.zeros(addresses.shape, dtype)
    commutes = op.kind not in _ORDERED and not op.result.uses
    access = machine.access("updates", op, dtype)
    for target in machine.memory.locate(addresses, mask, access):
        machine.sharing.touch(target, access, op.kind.value if commutes else WRITE)
        index, given = _lanes(target, values)
        old = _update_in_order(machine, target.region.view(dtype), index, given, op.kind, scalar)
        if target.lanes is None:
            result = old.reshape(addresses.shape)
        else:
            result[target.lanes] = old
    return result


@triton.of(tt.AtomicCAS)
def _compare_and_swap(machine: Machine, op: tt.AtomicCAS, operands: Operands) -> Array:
    dtype = element_dtype(pointee(op.ptr))
    addresses, expected, values = _spread(machine, op, list(operands))
    result = np.empty(addresses.shape, dtype)
    access = machine.access("updates", op, dtype)
    for target in machine.memory.locate(addresses, None, access):
        machine.sharing.touch(target, access, WRITE)
        index, new = _lanes(target, values)
        _, compare = _lanes(target, expected)
        view = target.region.view(dtype)
        found = np.empty_like(new)
        for places in _ByAddress(index).rounds():
            old = view[index[places]]
            swap = places[bits_of(old) == bits_of(compare[places])]
            found[places] = old
            if len(swap):
                machine.memory.write(view, index[swap], new[swap])
        if target.lanes is None:
            result = found.reshape(addresses.shape)
        else:
            result[target.lanes] = found
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
