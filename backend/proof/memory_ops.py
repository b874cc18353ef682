"""Meanings in terms of the ops on global memory, and of program ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.proof.agreement import agree
from ziggurat.backend.proof.cells import Cells
from ziggurat.backend.proof.elements import TRUE, Bit, Element, NotDecided, Pointer, Sum, Term, bits_of, same
from ziggurat.backend.proof.frames import SymbolicFrame, is_known, joined, lifted
from ziggurat.backend.proof.machine import Effect, SymbolicMachine, meanings
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensors import Index, Tensor, Version, forced, key_of, objects, objects_of, origins_of
from ziggurat.backend.proof.universe import Universe
from ziggurat.backend.reference.values import Array, over
from ziggurat.codemodel import elementwise
from ziggurat.codemodel.dialects import cf, tt
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    i1,
    i32,
    i64,
    pointee_of,
    scalar_element,
    shape_of,
)  # fmt: skip

Operands = tuple[Any, ...]


@meanings.of(tt.GetProgramId, tt.GetNumPrograms)
def _program(machine: SymbolicMachine, op: tt.Grid, operands: Operands) -> Array:
    return objects_of((machine.coordinates if isinstance(op, tt.GetProgramId) else machine.sizes_of_grid)[op.axis])


@meanings.of(tt.SmId)
def _smid(machine: SymbolicMachine, op: tt.SmId, operands: Operands) -> Array:
    return objects_of(machine.unknown("number of the SM"))


@meanings.of(tt.GlobalTimer)
def _globaltimer(machine: SymbolicMachine, op: tt.GlobalTimer, operands: Operands) -> Array:
    """An unknown time at each call: in both models, calls come in the same order and under the same conditions."""
    time = machine.domain.unknown(f"time {len(machine.effects)}", i64)
    machine.effects.append(Effect("time", machine.path.term))
    return objects_of(time)


@meanings.of(tt.Poison)
def _poison(machine: SymbolicMachine, op: tt.Poison, operands: Operands) -> Any:
    return undefined(machine, op.type)


def undefined(machine: SymbolicMachine, type_: Type, name: str = "undefined") -> Any:
    """An undefined value: the same unknown number wherever one of a type and a name is undefined."""
    if isinstance(type_, TupleType):
        return tuple(undefined(machine, component, name) for component in type_.components)
    scalar = scalar_element(type_)
    element = machine.domain.unknown(f"{name} {scalar}", scalar)
    result = np.empty((1,) * (len(shape_of(type_)) + 1), object)
    result[...] = element
    return result


# Pointers, loads and stores.


@meanings.of(tt.AddPtr)
def _addptr(machine: SymbolicMachine, op: tt.AddPtr, operands: Operands) -> Array:
    size, scalar = pointee_of(op.ptr.type).bytes, scalar_element(op.offset.type)

    def moved(pointer: Pointer, offset: Sum) -> Pointer:
        wide = offset if scalar.bits == 64 else machine.domain.resize(offset, scalar, i64, signed=scalar.signed)
        return Pointer(pointer.origin, pointer.offset + machine.domain.offset(wide).scaled(size))

    return lifted(moved, op.result.type, operands[0], objects(operands[1], op.offset.type))


@meanings.of(tt.Bitcast)
def _bitcast(machine: SymbolicMachine, op: tt.Bitcast, operands: Operands) -> Array:
    return operands[0]


@meanings.of(tt.PtrToInt, tt.IntToPtr, tt.InlineAsm)
def _not_covered(machine: SymbolicMachine, op: Op, operands: Operands) -> Any:
    raise NotDecided(f"{op.NAME} is not covered by proofs")


def all_of(shape: Sequence[int]) -> Array:
    return np.ones((1,) * (len(shape) + 1), np.bool_)


def as_decided(machine: SymbolicMachine, mask: Any) -> Any:
    """A mask that is one condition, as it is in these runs."""
    if isinstance(mask, Tensor) or mask.size > 1 or is_known(mask):
        return mask
    assert isinstance(machine.frame, SymbolicFrame)
    holds = machine.frame.decided(mask.flat[0]).known
    return mask if holds is None else np.full(mask.shape, holds == 1)


def load(machine: SymbolicMachine, pointers: Any, mask: Any, fallback: Any, type_: Type) -> Any:
    """The elements of global memory where the mask holds, and those of `fallback` elsewhere."""
    if isinstance(mask, Tensor) and mask.choice is not None and not forced(mask.choice[2]).any():
        condition, within, _ = mask.choice
        whole = load(machine, pointers, within, fallback, type_)
        return joined(machine.universe, condition, whole, fallback)
    pointers, mask = machine.universe.place(pointers), machine.universe.place(as_decided(machine, mask))
    scalar = scalar_element(type_)
    if not isinstance(mask, Tensor) and is_known(mask) and mask.all():
        fallback = np.zeros((1,) * (len(shape_of(type_)) + 1), scalar.dtype)
    versions = {origin: machine.version(origin, scalar) for origin in sorted(origins_of(pointers))}

    def make() -> Array:
        cells = {origin: version.cells() for origin, version in versions.items()}

        def one(pointer: Pointer, holds: Bit, other: Element) -> Element:
            if holds.known == 0:
                return other
            there = machine.read(cells[pointer.origin], pointer.offset, scalar)
            return machine.domain.choose(holds, there, other)

        return lifted(one, scalar, forced(pointers), objects(forced(mask), i1), objects(forced(fallback), scalar))

    if math.prod(shape_of(type_)) == 1:
        return make()
    numbers = tuple(version.number for version in versions.values())
    universe, of = machine.universe, TensorType(shape_of(type_), scalar)

    def at(index: Index) -> Element:
        pointer = universe.element(pointers, TensorType(of.shape, PtrType(scalar)), index)
        name = f"contents {versions[pointer.origin].number} of {universe.name}"
        content = machine.domain.function(name, [pointer.offset.term], scalar)
        if isinstance(content, Sum):
            universe.leaves[content.term.get_id()] = versions[pointer.origin], pointer.offset
        there = machine.domain.loaded(content, scalar)
        holds = machine.domain.unwrapped(universe.element(mask, TensorType(of.shape, i1), index))
        return machine.domain.choose(holds, there, universe.element(fallback, of, index))

    key = "load", shape_of(type_), str(scalar), *map(key_of, (pointers, mask, fallback)), numbers
    return universe.tensor(key, make, type_=of, at=at)


def change(
    machine: SymbolicMachine, key: Hashable, pointers: Any, scalar: ScalarType,
    write: Callable[[Cells, Callable[[Pointer], bool]], Any],
) -> list[Version]:  # fmt: skip
    """Write the arrays to which pointers point. `write` gets the contents of one, and which pointers are to it."""
    versions: list[Version] = []
    for origin in sorted(origins_of(pointers)):

        def write_one(cells: Cells, origin: int = origin) -> Any:
            return write(cells, lambda pointer: pointer.origin == origin)

        version = machine.universe.written(machine.version(origin, scalar), key, write_one)
        machine.arrays[origin] = version
        versions.append(version)
    return versions


@attrs.frozen(eq=False)
class Store:
    """Elements of a type that are written where the mask holds, one after the other, in runs in which `path` does."""

    pointers: Any
    values: Any
    mask: Any
    type: Type
    path: Bit

    @property
    def key(self) -> Hashable:
        """Stores with equal keys are equal."""
        operands = map(key_of, (self.pointers, self.values, self.mask))
        return "store", (1, *shape_of(self.type)), str(scalar_element(self.type)), *operands, self.path.identity

    def write(self, machine: SymbolicMachine, origin: int, cells: Cells) -> None:
        """Write those elements that are of an array."""
        scalar = scalar_element(self.type)
        content = np.broadcast_to(objects(forced(self.values), scalar), (1, *shape_of(self.type)))
        for pointer, value, holds in np.broadcast(forced(self.pointers), content, objects(forced(self.mask), i1)):
            if pointer.origin == origin:
                machine.write(cells, pointer.offset, value, scalar, holds & self.path)

    def differences(self, other: Store, universe: Universe) -> list[Term]:
        """Formulas of which one holds if another store of the same elements stores other values. Raises `NotDecided` if
        it is of other elements."""
        if attrs.evolve(other, values=self.values).key != self.key:
            raise NotDecided("arrays that are written in other ways")
        scalar, shape = scalar_element(self.type), shape_of(self.type)
        columns, index = ((self.values, scalar), (other.values, scalar), (self.mask, i1)), universe.index(shape)
        where = universe.domain.unwrapped(universe.element(self.mask, TensorType(shape, i1), index)) & self.path
        if agree(universe, where, self.values, other.values, TensorType(shape, scalar), index):
            return []
        rows = np.broadcast(*(np.broadcast_to(objects(forced(value), of), (1, *shape)) for value, of in columns))
        return [z3.And((holds & self.path).term, bits_of(x) != bits_of(y)) for x, y, holds in rows if not same(x, y)]

    @staticmethod
    def together(stores: Sequence[Store]) -> Store | None:
        """One store that does what those of several CTAs do, if each of them stores a part of some tensors."""
        first, columns = (
            stores[0],
            [[getattr(store, name) for store in stores] for name in ("pointers", "values", "mask")],
        )
        shape = shape_of(first.type)
        if not isinstance(first.pointers, Tensor) or len({store.path.identity for store in stores}) > 1:
            return None
        _, whole, _ = first.pointers.origin(shape)
        places = [store.pointers.origin(shape)[2] for store in stores if isinstance(store.pointers, Tensor)]
        if not np.array_equal(np.sort(np.concatenate(places)), np.arange(math.prod(whole))):
            return None
        operands = [_of_parts(column, shape, whole, places) for column in columns]
        if any(operand is None for operand in operands):
            return None
        return attrs.evolve(
            first, pointers=operands[0], values=operands[1], mask=operands[2],
            type=TensorType(whole, scalar_element(first.type)),
        )  # fmt: skip


def _of_parts(values: Sequence[Any], shape: tuple[int, ...], whole: tuple[int, ...], places: Sequence[Array]) -> Any:
    """The tensor of a shape of which some values are the parts at these places, or their only element; else None."""
    if not any(isinstance(value, Tensor) for value in values):
        alike = len({key_of(value) for value in values}) == 1 and values[0].size == 1
        return values[0].reshape((1,) * (len(whole) + 1)) if alike else None
    if not all(isinstance(value, Tensor) for value in values):
        return None
    origins = [value.origin(shape) for value in values]
    source, of, _ = origins[0]
    if len(of) != len(whole) or any(own not in (1, size) for own, size in zip(of, whole, strict=True)):
        return None
    _, _, numbers = source.origin(whole)
    alike = all(other is source for other, _, _ in origins)
    alike = alike and all(np.array_equal(own, numbers[at]) for (_, _, own), at in zip(origins, places, strict=True))
    return source if alike else None


def store(machine: SymbolicMachine, pointers: Any, values: Any, mask: Any, type_: Type) -> None:
    """Write elements of global memory where the mask holds, one after the other."""
    pointers, mask = machine.universe.place(pointers), machine.universe.place(as_decided(machine, mask))
    nothing = not isinstance(mask, Tensor) and is_known(mask) and not mask.any()
    if machine.path.known == 0 or nothing:
        return
    content = Store(pointers, values, mask, type_, machine.path)
    for origin in sorted(origins_of(pointers)):
        version = machine.version(origin, scalar_element(type_))
        write = partial(content.write, machine, origin)
        machine.arrays[origin] = machine.universe.written(version, content.key, write, content)


@meanings.of(tt.Load)
def _load(machine: SymbolicMachine, op: tt.Load, operands: Operands) -> Any:
    type_ = op.result.type
    mask = all_of(shape_of(type_)) if op.mask is None else operands[1]
    other = undefined(machine, type_) if op.other is None else operands[2]
    return load(machine, operands[0], mask, other, type_)


@meanings.of(tt.Store)
def _store(machine: SymbolicMachine, op: tt.Store, operands: Operands) -> None:
    type_ = op.value.type
    store(machine, operands[0], operands[1], all_of(shape_of(type_)) if op.mask is None else operands[2], type_)


# Descriptors.


def block_of(
    machine: SymbolicMachine, descriptor: Any, offsets: Sequence[Any], type_: DescriptorType
) -> tuple[Any, Any]:
    """The pointers to the elements of a block, and whether each is inside of the tensor; see `access.block_of`."""
    key = "block", type_.block, type_.element.bytes, key_of(descriptor), *map(key_of, offsets)

    universe, descriptor = machine.universe, forced(descriptor)

    def whole() -> tuple[Array, Array]:
        indices = [_along(machine, forced(offset), size) for offset, size in zip(offsets, type_.block, strict=True)]
        return _block_of(machine, descriptor, indices, type_)

    single: dict[Hashable, tuple[Index, tuple[Array, Array]]] = {}

    def one(index: Index) -> tuple[Array, Array]:
        key = tuple(place.identity for place in index)
        if key not in single:
            single[key] = index, made(index)
        return single[key][1]

    def made(index: Index) -> tuple[Array, Array]:
        indices: list[Array] = []
        for offset, place in zip(offsets, index, strict=True):
            rank = 1 if isinstance(offset, Tensor) or offset.ndim > 1 else 0
            here = machine.domain.exactly(place, 64)
            start = objects_of(universe.element(offset, TensorType((1,) * rank, i32), (place,) * rank))
            indices.append(as_indices(machine, start) if rank else as_indices(machine, start) + here)
        return _block_of(machine, descriptor, indices, type_)

    both = universe.tensor(key, whole)
    pointers = universe.tensor(
        (key, "pointers"), lambda: both.value[0], origins_of(descriptor),
        type_=TensorType(type_.block, PtrType(type_.element)), at=lambda index: one(index)[0].flat[0],
    )  # fmt: skip
    inside = universe.tensor(
        (key, "inside"),
        lambda: both.value[1],
        type_=TensorType(type_.block, i1),
        at=lambda index: one(index)[1].flat[0],
    )
    return pointers, inside


def _along(machine: SymbolicMachine, offset: Array, size: int) -> Array:
    """The indices of a block along an axis, from the first one or from all of them."""
    indices = as_indices(machine, offset)
    if indices.ndim > 1:
        return indices
    return np.array([[start + Sum.number(place, 64) for start in indices for place in range(size)]], object)


def _block_of(
    machine: SymbolicMachine, descriptor: Operands, places: Sequence[Array], type_: DescriptorType
) -> tuple[Array, Array]:
    """The pointers of a block and whether they are inside, from the indices along each axis."""
    base, *rest = (objects(part, i32 if 0 < at <= len(type_.block) else i64) for at, part in enumerate(descriptor))
    rank, domain, zero = len(type_.block), machine.domain, Sum.number(0, 64)
    pointers, inside = over(base, rank), np.full((1,) * (rank + 1), TRUE, object)
    for axis, first in enumerate(places):
        size = rest[axis][0].term
        if z3.is_const(size) and ".shape" in str(size):  # An axis of an argument has no negative size.
            machine.assumed.append(machine.domain.facts.setdefault(size.get_id(), size >= 0))
        limit = domain.resize(rest[axis][0], i32, i64, signed=True)
        stride = rest[rank + axis][0]

        def fits(index: Sum, limit: Sum = limit) -> Bit:
            return domain.compare("ge", index, zero, signed=True) & domain.compare("lt", index, limit, signed=True)

        def moved(pointer: Pointer, index: Sum, stride: Sum = stride) -> Pointer:
            return Pointer(pointer.origin, pointer.offset + (index * stride).scaled(type_.element.bytes))

        indices = first.reshape(1, *(1,) * axis, -1, *(1,) * (rank - 1 - axis))
        pointers = np.asarray(np.frompyfunc(moved, 2, 1)(pointers, indices), object)
        inside = inside & np.asarray(np.frompyfunc(fits, 1, 1)(indices), object)
    return pointers, inside


def as_indices(machine: SymbolicMachine, array: Array) -> Array:
    """Indices of 32 bits as elements of 64."""

    def wide(element: Sum) -> Sum:
        wide = element if element.bits == 64 else machine.domain.resize(element, i32, i64, signed=True)
        return machine.domain.offset(wide)

    result: Any = np.frompyfunc(wide, 1, 1)(objects(array, i32))
    return np.asarray(result, object)


def load_block(machine: SymbolicMachine, descriptor: Any, offsets: Sequence[Any], type_: DescriptorType) -> Any:
    """The block of a described tensor at these offsets, with padding outside of the tensor."""
    if type_.padding == "either":
        raise NotDecided("a descriptor whose padding is chosen at run time")
    padding = np.full((1,) * (len(type_.block) + 1), np.nan if type_.padding == "nan" else 0, type_.element.dtype)
    pointers, inside = block_of(machine, descriptor, offsets, type_)
    return load(machine, pointers, inside, padding, TensorType(type_.block, type_.element))


def reshaped(machine: SymbolicMachine, value: Any, before: Sequence[int], shape: Sequence[int]) -> Any:
    """A tensor in another shape."""
    places = np.arange(math.prod(shape))
    if isinstance(value, Tensor):
        return machine.universe.moved(value, tuple(before), places, tuple(shape))
    return np.broadcast_to(value, (1, *before)).reshape(1, *shape)


@meanings.of(tt.DescriptorLoad, tt.DescriptorGather)
def _descriptor_load(machine: SymbolicMachine, op: Any, operands: Operands) -> Any:
    type_ = expect(op.descriptor.type, DescriptorType)
    block, shape = load_block(machine, operands[0], operands[1:], type_), shape_of(op.result.type)
    return block if shape == type_.block else reshaped(machine, block, type_.block, shape)


@meanings.of(tt.DescriptorStore, tt.DescriptorScatter)
def _descriptor_store(machine: SymbolicMachine, op: Any, operands: Operands) -> None:
    type_, shape = expect(op.descriptor.type, DescriptorType), shape_of(op.value.type)
    pointers, inside = block_of(machine, operands[0], operands[2:], type_)
    value = operands[1] if shape == type_.block else reshaped(machine, operands[1], shape, type_.block)
    store(machine, pointers, value, inside, TensorType(type_.block, type_.element))


# Atomics.


def update(
    machine: SymbolicMachine,
    key: Hashable,
    pointers: Any,
    values: Sequence[Any],
    mask: Any,
    type_: Type,
    new: Callable[..., tuple[Element, Bit]],
) -> Any:
    """Update elements one after the other. Returns what was there, which is undefined where the mask does not hold.
    `new` gives the new element and whether it is written, from the old one and the values."""
    scalar, path, shape = scalar_element(type_), machine.path, (1, *shape_of(type_))
    nothing = undefined(machine, scalar)[0]

    def write(cells: Cells, is_here: Callable[[Pointer], bool]) -> Array:
        def one(pointer: Pointer, holds: Bit, *operands: Element) -> Element:
            old = machine.read(cells, pointer.offset, scalar)
            content, condition = new(old, *operands)
            machine.write(cells, pointer.offset, content, scalar, holds & path & condition)
            return machine.domain.choose(holds, old, nothing)

        arrays = (np.broadcast_to(objects(forced(value), scalar), shape) for value in values)
        return lifted(one, scalar, forced(pointers), objects(forced(mask), i1), *arrays)

    key = "update", key, shape, str(scalar), *map(key_of, (pointers, *values, mask)), path.identity
    versions = change(machine, key, pointers, scalar, write)
    if len(versions) != 1:
        raise NotDecided("an atomic on two arrays")

    def result() -> Array:
        versions[0].cells()
        return versions[0].result

    return machine.universe.tensor(("old", versions[0].number), result, type_=type_)


def updated(machine: SymbolicMachine, kind: AtomicKind, scalar: ScalarType) -> Callable[..., tuple[Element, Bit]]:
    def new(old: Element, value: Element) -> tuple[Element, Bit]:
        if kind is AtomicKind.XCHG:
            return value, TRUE
        if scalar.is_float:
            return machine.domain.function(f"atomic {kind.value}", [bits_of(old), bits_of(value)], scalar), TRUE
        return elementwise.INTEGERS[tt.ATOMIC_OPS[kind]](machine.domain, old, value), TRUE

    return new


def _require_one(machine: SymbolicMachine, op: Op) -> None:
    """Check that no other CTA of the program may come before an atomic that says what was there."""
    if machine.cta is not None and op.result.uses:
        raise NotDecided("an atomic of a CTA in a cluster whose result is used")


@meanings.of(tt.AtomicRMW)
def _atomic(machine: SymbolicMachine, op: tt.AtomicRMW, operands: Operands) -> Any:
    _require_one(machine, op)
    type_ = op.value.type
    pointers, *values = operands
    mask = values[1] if len(values) > 1 else all_of(shape_of(type_))
    new = updated(machine, op.kind, scalar_element(type_))
    return update(machine, op.kind.value, pointers, values[:1], mask, type_, new)


@meanings.of(tt.Wait)
def _wait(machine: SymbolicMachine, op: tt.Wait, operands: Operands) -> Any:
    raise NotDecided("a wait for another program")


@meanings.of(tt.AtomicCAS)
def _compare_and_swap(machine: SymbolicMachine, op: tt.AtomicCAS, operands: Operands) -> Any:
    def new(old: Element, expected: Element, value: Element) -> tuple[Element, Bit]:
        return value, machine.domain.compare("eq", old, expected, signed=False)

    _require_one(machine, op)
    type_ = op.value.type
    return update(machine, "swap", operands[0], operands[1:], all_of(shape_of(type_)), type_, new)


@meanings.of(tt.DescriptorReduce)
def _descriptor_reduce(machine: SymbolicMachine, op: tt.DescriptorReduce, operands: Operands) -> None:
    type_ = expect(op.descriptor.type, DescriptorType)
    pointers, inside = block_of(machine, operands[0], operands[2:], type_)
    new, block = updated(machine, op.kind, type_.element), TensorType(type_.block, type_.element)
    update(machine, op.kind.value, pointers, operands[1:2], inside, block, new)


# Effects.


@meanings.of(tt.Assume)
def _assume(machine: SymbolicMachine, op: tt.Assume, operands: Operands) -> None:
    machine.defined += [machine.under(element) for element in objects(forced(operands[0]), i1).flat]


@meanings.of(tt.Assert, cf.AssertOp)
def _assert(machine: SymbolicMachine, op: Any, operands: Operands) -> None:
    for element in objects(forced(operands[0]), i1).flat:
        machine.effects.append(Effect(f"assert {op.message}", (machine.path & ~element).term))


@meanings.of(tt.Print)
def _print(machine: SymbolicMachine, op: tt.Print, operands: Operands) -> None:
    values: list[Element] = []
    for value, array in zip(op.values, operands, strict=True):
        values += list(np.broadcast_to(objects(forced(array), value.type), (1, *shape_of(value.type))).flat)
    types = ", ".join(f"{shape_of(value.type)} {element_of(value.type)}" for value in op.values)
    name = f"print {op.prefix} {types} {op.hex} {op.c_form} {op.whole}"
    machine.effects.append(Effect(name, machine.path.term, tuple(values)))


@meanings.of(tt.Barrier, tt.GridDependencyWait, tt.GridDependencyLaunch)
def _nothing(machine: SymbolicMachine, op: Op, operands: Operands) -> None:
    """One program runs, and each op ends before the next."""


@meanings.of(tt.Hint)
def _hint(machine: SymbolicMachine, op: tt.Hint, operands: Operands) -> Array:
    return operands[0]
