"""What atomic accesses mean: programs, and the elements of each, take their turns in order.

Elements that meet at one address are taken in rounds, so that in each round all addresses differ; sums of integers and
exchanges, of which many meet at one counter, are done at once.
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
_ORDERED = (AtomicKind.FADD, AtomicKind.XCHG)  # Those that do not commute: a sum of floats depends on its order.


def _update(kind: AtomicKind, old: Array, value: Array, scalar: ScalarType) -> Array:
    if old.dtype == np.bool_:
        return (_UPDATES[kind](old.view(np.uint8), value.view(np.uint8)) & np.uint8(1)).astype(np.bool_)
    if scalar.is_float and kind is not AtomicKind.XCHG:
        return rounded(_UPDATES[kind](widened(old), widened(value)), scalar)
    return _UPDATES[kind](old, value)


class _Turns:
    """Indices in the order of their turns, grouped by address."""

    def __init__(self, index: Array) -> None:
        self.order = np.argsort(index, kind="stable")
        by_address = index[self.order]
        self.starts = np.flatnonzero(np.r_[True, by_address[1:] != by_address[:-1]])
        self.sizes = np.diff(np.r_[self.starts, len(index)])

    def rounds(self) -> list[Array]:
        """Lists of places in the indices: first of all that come first at their address, then the second ones, …"""
        rank = np.arange(len(self.order)) - np.repeat(self.starts, self.sizes)
        by_rank = np.argsort(rank, kind="stable")
        borders = np.cumsum(np.bincount(rank))[:-1]
        return np.split(self.order[by_rank], borders)


def _sum_at_once(view: Array, index: Array, values: Array, turns: _Turns) -> tuple[Array, Array]:
    """Integer sums: what each turn finds and leaves, wrapping around."""
    sorted_values = values[turns.order]
    after = np.cumsum(sorted_values, dtype=view.dtype)
    before_group = np.repeat((after - sorted_values)[turns.starts], turns.sizes)
    base = view[index[turns.order]]
    old, new = np.empty_like(values), np.empty_like(values)
    new[turns.order] = base + (after - before_group)
    old[turns.order] = base + (after - sorted_values - before_group)
    return old, new


def _exchange_at_once(view: Array, index: Array, values: Array, turns: _Turns) -> tuple[Array, Array]:
    """Exchanges: each turn finds what the one before left."""
    sorted_values = values[turns.order]
    found = np.concatenate([sorted_values[:1], sorted_values[:-1]])
    found[turns.starts] = view[index[turns.order[turns.starts]]]
    old = np.empty_like(values)
    old[turns.order] = found
    return old, values


def _take_turns(
    machine: Machine, view: Array, index: Array, values: Array, kind: AtomicKind, scalar: ScalarType
) -> Array:
    """Update the elements at these indices one after the other. Gives what each turn found."""
    turns = _Turns(index)
    if len(turns.starts) == len(index):
        old = view[index]
        new = _update(kind, old, values, scalar)
    elif kind is AtomicKind.XCHG:
        old, new = _exchange_at_once(view, index, values, turns)
    elif kind is AtomicKind.ADD and view.dtype != np.bool_:
        old, new = _sum_at_once(view, index, values, turns)
    else:
        old, new = np.empty_like(values), np.empty_like(values)
        state = view[index]
        first = np.arange(len(index))
        first[turns.order] = np.repeat(turns.order[turns.starts], turns.sizes)
        for places in turns.rounds():
            holder = first[places]
            old[places] = state[holder]
            new[places] = state[holder] = _update(kind, old[places], values[places], scalar)
    if (bits_of(old) != bits_of(new)).any():
        machine.memory.write(view, index, new)
    return old


def _spread(machine: Machine, op: Op, arrays: list[Array]) -> list[Array]:
    """The operands at full size: every program and every element takes its turn."""
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
        old = _take_turns(machine, target.region.view(dtype), index, given, op.kind, scalar)
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
        for places in _Turns(index).rounds():
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
