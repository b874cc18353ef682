"""Meanings in terms of the ops of the CPU model: buffers, which hold tensors as shared memory does, and accesses.

A region runs its ops on whole tensors, in their order. An access claims addresses and a mask where its guard holds: for
a proof, that is one more thing that the model says of itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.proof.elements import TRUE, Bit, NotDecided, Pointer, Sum, Term, factors_of, signed_number
from ziggurat.backend.proof.frames import replaced
from ziggurat.backend.proof.machine import SymbolicMachine, meanings
from ziggurat.backend.proof.memory_ops import all_of, load, store, undefined
from ziggurat.backend.proof.shared_ops import allocated, content_of, held, ordered, put
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensor_ops import counted, matrix_product
from ziggurat.backend.proof.tensors import FEW, Index, forced, objects, origins_of
from ziggurat.backend.proof.terms import Terms
from ziggurat.backend.reference.shared_memory import SharedBuffer
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.types import PtrType, TensorType, Type, i1, i32, i64, scalar_element, shape_of

Operands = tuple[Any, ...]


def _tensor_of(op: Op, buffer: Value) -> TensorType:
    """The type of the tensor in a buffer."""
    type_ = cpu.buffer_of(op, buffer)
    return TensorType(type_.shape, type_.element)


def _stand_in(type_: Type) -> Value:
    """A value of a type, for an op whose operands are the contents of buffers."""
    return tt.Poison(type_).result


@meanings.of(cpu.Alloc)
def _alloc(machine: SymbolicMachine, op: cpu.Alloc, operands: Operands) -> SharedBuffer:
    return allocated(machine, _tensor_of(op, op.result), 1, cpu.buffer_of(op, op.result).bytes, op.offset)


def _places(op: cpu.Get | cpu.Put, shape: Sequence[int]) -> Array:
    """The numbers in the buffer of the elements of a view."""
    steps = zip(np.indices(shape), op.strides or cpu.row_major(shape), strict=True)
    return np.asarray(op.start + sum(index * step for index, step in steps), np.int64).ravel()


@meanings.of(cpu.Get)
def _get(machine: SymbolicMachine, op: cpu.Get, operands: Operands) -> Any:
    shape, whole = shape_of(op.type), _tensor_of(op, op.buffer).shape
    return ordered(machine, held(machine, operands[0]), whole, _places(op, shape), shape)


@meanings.of(cpu.Put)
def _put(machine: SymbolicMachine, op: cpu.Put, operands: Operands) -> None:
    buffer, value = operands
    shape, whole = shape_of(op.value.type), _tensor_of(op, op.buffer)
    places, numbers = _places(op, shape), np.zeros(whole.shape, np.int64).ravel()
    numbers[places] = np.arange(places.size)
    value, places = ordered(machine, value, shape, numbers, whole.shape), np.unique(places)
    if places.size < numbers.size:
        value = replaced(machine.universe, content_of(machine, buffer), value, places, whole)
    put(machine, buffer, value)


@meanings.of(cpu.Copy)
def _copy(machine: SymbolicMachine, op: cpu.Copy, operands: Operands) -> None:
    put(machine, operands[1], held(machine, operands[0]))


@meanings.of(cpu.Count)
def _count(machine: SymbolicMachine, op: cpu.Count, operands: Operands) -> None:
    buffer, *others = operands
    put(machine, buffer, counted(machine, op.value, others, held(machine, buffer), _tensor_of(op, op.buffer).shape))


@meanings.of(cpu.Dot)
def _dot(machine: SymbolicMachine, op: cpu.Dot, operands: Operands) -> None:
    a, b, c = (held(machine, buffer) for buffer in operands)
    types = [_tensor_of(op, buffer) for buffer in (op.a, op.b, op.c)]
    if op.zero:
        c = np.zeros((1,) * (len(types[2].shape) + 1), scalar_element(types[2]).dtype)
    if op.transposed:
        shape, order = types[1].shape, (*range(len(types[1].shape) - 2), -1, -2)
        places = np.arange(np.prod(shape)).reshape(shape).transpose(order)
        b, types[1] = (
            ordered(machine, b, shape, places.ravel(), places.shape),
            TensorType(places.shape, types[1].element),
        )
    precision = op.input_precision.value if scalar_element(types[0]).bits == 32 else ""
    put(machine, operands[2], matrix_product(machine, list(map(_stand_in, types)), (a, b, c), precision))


@meanings.of(cpu.Scan)
def _scan(machine: SymbolicMachine, op: cpu.Scan, operands: Operands) -> None:
    raise NotDecided("a scan of buffers")


@meanings.of(cpu.Sort)
def _sort(machine: SymbolicMachine, op: cpu.Sort, operands: Operands) -> None:
    raise NotDecided("a sort of integers")


@attrs.frozen(eq=False)
class _Access:
    """The addresses and the mask that an access claims where its guard holds."""

    op: cpu.Access
    base: Pointer
    guard: Bit
    strides: list[Sum]
    counts: list[Sum]

    def require(self, machine: SymbolicMachine, pointers: Any, mask: Any) -> None:
        """Say that the claims must hold of the pointers and the mask of a load or a store. Raises `NotDecided` for
        pointers to another array."""
        type_, universe = expect(self.op.type, cpu.AccessType), machine.universe
        if origins_of(pointers) != frozenset((self.base.origin,)):
            raise NotDecided("an access to another array than its pointers")
        shape = type_.shape
        columns = (pointers, PtrType(type_.element)), (mask, i1)
        if math.prod(shape) > FEW:
            index = universe.index(shape)
            self._require(machine, index, *(universe.element(x, TensorType(shape, of), index) for x, of in columns))
            return
        arrays = [np.broadcast_to(objects(forced(x), of), (1, *shape))[0] for x, of in columns]
        for place in np.ndindex(*shape):
            self._require(machine, tuple(Sum.number(at, 32) for at in place), *(array[place] for array in arrays))

    def _require(self, machine: SymbolicMachine, index: Index, pointer: Pointer, active: Bit) -> None:
        domain, type_ = machine.domain, expect(self.op.type, cpu.AccessType)
        facts, offset, inside = list[Term](), self.base.offset, TRUE
        for place, length, stride, count in zip(index, type_.shape, self.strides, self.counts, strict=True):
            wide = domain.exactly(place, 64)
            step = wide * stride
            if step.known is None and stride.known is None:
                facts += _between(step.term, stride.term, length - 1)
            offset = offset + step.scaled(type_.element.bytes)
            inside = inside & domain.compare("lt", wide, count, signed=True)
        facts += _extensions(domain, pointer.offset, offset)
        same_place = domain.compare("eq", pointer.offset, offset, signed=False)
        for claim in (same_place | ~active, inside | ~active if self.op.part else ~(inside ^ active)):
            machine.require(Bit(z3.Implies(z3.And(*facts), (~self.guard | claim).term)), much=True)


def _between(product: Term, stride: Term, last: int) -> list[Term]:
    """A product of a stride of so many bits that it does not wrap around, and a number from 0 to `last`, lies between 0
    and the product with `last`."""
    low, high = z3.BitVecVal(-1 << 40, 64), z3.BitVecVal(1 << 40, 64)
    return [
        z3.Implies(z3.And(stride >= 0, stride <= high), z3.And(product >= 0, product <= last * stride)),
        z3.Implies(z3.And(stride <= 0, stride >= low), z3.And(product <= 0, product >= last * stride)),
    ]


def _extensions(domain: Terms, offset: Sum, exact: Sum) -> list[Term]:
    """For each integer of 32 bits that is extended in an offset: if the sum of those parts of another offset of which
    it has the low bits fits 32 bits, it is that sum. And bounds of the products of two such integers."""
    facts: list[Term] = []
    for number, (factor, atom) in offset.atoms.items():
        inner, signed, _ = domain.extended.get(number, (None, False, None))
        if inner is None or not signed or inner.bits != 32:
            continue
        total = Sum.number(signed_number(inner.constant, 32), 64)
        for multiple, part in exact.atoms.values():
            piece = Sum.of(part).scaled(signed_number(multiple, 64) // factor)
            if (
                not signed_number(multiple, 64) % factor
                and domain.resize(piece, i64, i32, signed=True).atoms.keys() <= inner.atoms.keys()
            ):
                total = total + piece
        if domain.resize(total, i64, i32, signed=True).identity == inner.identity:
            fits = z3.And(total.term >= -1 << 31, total.term < 1 << 31)
            facts.append(z3.Implies(fits, atom == total.term))
    for _, product in exact.atoms.values():
        factors = [domain.extended.get(factor.get_id()) for factor in factors_of(product)]
        if len(factors) == 2 and all(extended is not None and extended[0].bits <= 32 for extended in factors):
            facts.append(z3.And(product >= -(1 << 62), product <= 1 << 62))
    return facts


@meanings.of(cpu.Access)
def _access(machine: SymbolicMachine, op: cpu.Access, operands: Operands) -> _Access:
    base, guard, *rest = operands
    numbers = [objects(number, i64).flat[0] for number in rest]
    rank = len(op.strides)
    return _Access(op, base.flat[0], objects(guard, i1).flat[0], numbers[:rank], numbers[rank:])


@meanings.of(cpu.Load)
def _load(machine: SymbolicMachine, op: cpu.Load, operands: Operands) -> Any:
    access, pointers, *rest = operands
    type_ = op.result.type
    mask = all_of(shape_of(type_)) if op.mask is None else rest[0]
    access.require(machine, pointers, mask)
    return load(machine, pointers, mask, undefined(machine, type_) if op.other is None else rest[-1], type_)


@meanings.of(cpu.Store)
def _store(machine: SymbolicMachine, op: cpu.Store, operands: Operands) -> None:
    access, pointers, value, *rest = operands
    mask = rest[0] if rest else all_of(shape_of(op.value.type))
    access.require(machine, pointers, mask)
    store(machine, pointers, value, mask, op.value.type)
