"""Pointers, loads, stores, descriptors and atomics in the memory of a launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ziggurat.backend.reference.argument_memory import (
    READ,
    WRITE,
    ArgumentRegion,
    ElementAccess,
    order_of,
    real_addresses,
)
from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.marks import elementwise, explained, marks
from ziggurat.backend.reference.tensors import full, require
from ziggurat.backend.reference.values import Array, marked, marks_of, over, plain, undefined
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.interpret import Meaning
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.scalars import bits_of, float_binary, int_binary
from ziggurat.codemodel.types import DescriptorType, ScalarType, TensorType, Type, pointee_of, scalar_element, shape_of

FARTHEST = 1 << 55  # Bytes of an offset: more lead out of the addresses of any process.
Operands = tuple[Any, ...]
_Read = tt.DescriptorLoad | tt.DescriptorGather
_Written = tt.DescriptorStore | tt.DescriptorScatter | tt.DescriptorReduce


def pointee(value: Value) -> ScalarType:
    """The type that a pointer, or each of a tensor of pointers, points to."""
    return pointee_of(value.type)


@triton.of(tt.AddPtr)
def _addptr(machine: Machine, op: tt.AddPtr, operands: Operands) -> Array:
    ptr, offset = operands
    size = pointee(op.ptr).bytes
    offset = offset.astype(np.int64, copy=False)
    return ptr + (offset * size if size > 1 else offset)


@marks.of(tt.AddPtr)
def _marks_of_offset(meaning: Meaning, machine: Machine, op: tt.AddPtr, operands: Operands) -> Any:
    """In search of overflows, offsets that lead out of all memory are marked as well: the address hides them."""
    result, offset = elementwise(meaning, machine, op, operands), plain(operands[1])
    most = FARTHEST // pointee(op.ptr).bytes
    if not machine.overflows or not ((offset > most) | (offset < -most)).any():
        return result
    values, places = np.unique(offset, return_inverse=True)
    far = [
        -machine.sources.number(op, f"its offset, {v}, overflows an address") if abs(v) > most else 0
        for v in values.tolist()
    ]
    here = np.array(far, np.int32)[places].reshape(offset.shape)
    return marked(plain(result), np.where(marks_of(result) != 0, marks_of(result), here))


@triton.of(tt.Bitcast, tt.IntToPtr)
def _same_pointer(machine: Machine, op: Op, operands: Operands) -> Array:
    return operands[0]


@triton.of(tt.PtrToInt)
def _address(machine: Machine, op: tt.PtrToInt, operands: Operands) -> Array:
    return real_addresses(operands[0])


def _fetch(region: ArgumentRegion, index: Array, dtype: np.dtype[Any]) -> Array:
    """The elements of a region with these numbers."""
    # Any byte other than 0 is a true i1.
    view = region.view(np.dtype(np.uint8) if dtype == np.bool_ else dtype)
    values = view.take(index) if len(view) else np.zeros(index.shape, view.dtype)
    return values != 0 if dtype == np.bool_ else values


def load_elements(
    machine: Machine, addresses: Array, mask: Array | None, fallback: Any, access: ElementAccess
) -> Array:
    """Read memory. Elements that the mask leaves out are those of `fallback`, an array or a number."""
    if mask is not None:
        if mask.all():
            mask = None
        else:
            addresses, mask = np.broadcast_arrays(addresses, mask)
    result: Array | None = None
    for target in machine.memory.locate(addresses, mask, access):
        machine.sharing.touch(target, access, READ)
        if target.lanes is None:
            return _fetch(target.region, target.index, access.dtype)
        if result is None:
            result = _filled(addresses, fallback, access.dtype)
        lanes, index = (np.broadcast_to(array, result.shape) for array in (target.lanes, target.index))
        result[lanes] = _fetch(target.region, index[lanes], access.dtype)
    return _filled(addresses, fallback, access.dtype) if result is None else result


def _filled(addresses: Array, fallback: Any, dtype: np.dtype[Any]) -> Array:
    result = np.empty(np.broadcast_shapes(addresses.shape, np.shape(fallback)), dtype)
    result[...] = fallback
    return result


def store_elements(
    machine: Machine, addresses: Array, values: Array, mask: Array | None, access: ElementAccess
) -> None:
    """Write memory within the mask, in the order of the programs and of their elements."""
    if mask is not None and mask.all():
        mask = None
    shape = np.broadcast_shapes(addresses.shape, values.shape, () if mask is None else mask.shape)
    addresses, values = np.broadcast_to(addresses, shape), np.broadcast_to(values, shape)
    mask = None if mask is None else np.broadcast_to(mask, shape)
    for target in machine.memory.locate(addresses, mask, access):
        machine.sharing.touch(target, access, WRITE, values)
        view = target.region.view(access.dtype)
        if target.lanes is None:
            machine.memory.write(view, target.index, values)
        else:
            machine.memory.write(view, target.index[target.lanes], values[target.lanes])


@triton.of(tt.Load)
def _load(machine: Machine, op: tt.Load, operands: Operands) -> Array:
    mask = operands[1] if op.mask is not None else None
    fallback = operands[2] if op.other is not None else 0
    access = machine.access("reads", op, op.result.type, operands[0])
    return load_elements(machine, operands[0], mask, fallback, access)


@triton.of(tt.Store)
def _store(machine: Machine, op: tt.Store, operands: Operands) -> None:
    mask = operands[2] if op.mask is not None else None
    access = machine.access("writes", op, op.value.type, operands[0])
    store_elements(machine, operands[0], operands[1], mask, access)
    if machine.strict:
        _require_one_value(machine, operands[0], operands[1], mask, access)


def _require_one_value(
    machine: Machine, addresses: Array, values: Array, mask: Array | None, access: ElementAccess
) -> None:
    """Raise `KernelRuntimeError` for an element to which a store has written two values: on a GPU the two positions may
    be two threads, of which any comes last."""
    shape = np.broadcast_shapes(addresses.shape, values.shape, () if mask is None else mask.shape)
    addresses, values = np.broadcast_to(addresses, shape), np.broadcast_to(values, shape)
    for target in machine.memory.locate(addresses, None if mask is None else np.broadcast_to(mask, shape), access):
        lanes = np.bool_(True) if target.lanes is None else target.lanes
        contents = _fetch(target.region, np.where(lanes, target.index, 0), access.dtype)
        require(
            machine, (contents == values) | (values != values) | ~lanes,
            "a store writes two values to one place in memory, of which any may come last: the first",
        )  # fmt: skip


@marks.of(tt.Load)
def _marks_of_load(meaning: Meaning, machine: Machine, op: tt.Load, operands: Operands) -> Any:
    mask = machine.known(op, operands[1], "masks a load by") if op.mask is not None else None
    address = machine.known(op, operands[0], "reads at", mask)
    with explained(machine, operands[0], mask):
        result = meaning(machine, op, (address, mask, *map(plain, operands[2:])) if op.mask is not None else (address,))
    if mask is not None and op.other is not None:
        return marked(result, np.where(mask, 0, marks_of(operands[2])))
    return marked(result, left_out(machine, op, address, mask, "the mask of this load", "and there is no other="))


def left_out(machine: Machine, op: Op, pointers: Array, mask: Array | None, what: str, why: str) -> Array | None:
    """The marks, in strict mode, of elements that the mask of an access leaves undefined."""
    if mask is None or not machine.marks_undefined or mask.all():
        return None
    argument = machine.memory.argument_of(int(pointers.flat[0]))
    of = f" of {argument.name}" if argument is not None else ""
    return np.where(mask, 0, np.int32(machine.sources.number(op, f"{what}{of} leaves it out, {why}")))


@marks.of(tt.Wait)
def _marks_of_wait(meaning: Meaning, machine: Machine, op: tt.Wait, operands: Operands) -> Any:
    return meaning(machine, op, tuple(machine.known(op, operand, "waits by") for operand in operands))


@marks.of(tt.Store, tt.AtomicRMW, tt.AtomicCAS)
def _marks_of_writing(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    what, verb, use = "an atomic", "updates memory at", "updates memory with"
    if isinstance(op, tt.Store):
        what, verb, use = "a store", "writes at", "stores"
    count = 3 if isinstance(op, tt.AtomicCAS) else 2
    masks = [machine.known(op, mask, f"masks {what} by") for mask in operands[count:]]
    mask = masks[0] if masks else None
    address = machine.known(op, operands[0], verb, mask)
    values = [machine.known(op, value, use, mask) for value in operands[1:count]]
    with explained(machine, operands[0], mask):
        result = meaning(machine, op, (address, *values, *masks))
    if isinstance(op, tt.Store):
        return result
    return marked(result, left_out(machine, op, address, mask, "the mask of this atomic", "and it has no result there"))


# Descriptors.


@triton.of(tt.MakeTensorDescriptor)
def _descriptor(machine: Machine, op: tt.MakeTensorDescriptor, operands: Operands) -> Operands:
    if machine.strict:
        # On a GPU the first element of an array is at a multiple of 16 bytes.
        base, *rest = map(plain, operands)
        arguments = map(machine.memory.argument_of, base.tolist())
        good = (base - np.array([argument.pointer if argument else 0 for argument in arguments])) % 16 == 0
        for stride in rest[len(op.shape) : -1]:
            good = good & (stride * pointee(op.base).bytes % 16 == 0)
        require(machine, good, "the base and the strides of a descriptor must be multiples of 16 bytes")
    return operands


@triton.of(tt.DescriptorPadding)
def _descriptor_padding(machine: Machine, op: tt.DescriptorPadding, operands: Operands) -> Operands:
    return (*operands[0][: 1 + 2 * len(_descriptor_type(op).block)], operands[1])


@triton.of(tt.DescriptorSize)
def _descriptor_size(machine: Machine, op: tt.DescriptorSize, operands: Operands) -> Array:
    return operands[0][1 + op.axis]


@triton.of(tt.DescriptorStride)
def _descriptor_stride(machine: Machine, op: tt.DescriptorStride, operands: Operands) -> Array:
    return operands[0][1 + len(_descriptor_type(op).block) + op.axis]


def block_of(descriptor: Operands, offsets: Sequence[Array], type_: DescriptorType) -> tuple[Array, Array]:
    """The pointers to the elements of a block, and whether each element is inside of the tensor.

    `offsets` has the first index along each axis; or, with an axis besides that of the programs, all indices.
    """
    base, *rest = descriptor
    rank = len(type_.block)
    pointers: Array = over(base, rank)
    inside: Array = np.ones((1,) * (rank + 1), np.bool_)
    for axis, (size, offset) in enumerate(zip(type_.block, offsets, strict=True)):
        after = (1,) * (rank - 1 - axis)
        if offset.ndim > 1:
            index = offset.astype(np.int64).reshape(len(offset), *(1,) * axis, -1, *after)
        else:
            index = over(offset, rank).astype(np.int64) + np.arange(size, dtype=np.int64).reshape(-1, *after)
        inside = inside & (index >= 0) & (index < over(rest[axis], rank))
        pointers = pointers + index * over(rest[rank + axis], rank) * type_.element.bytes
    return pointers, inside


def _descriptor_type(op: _Read | _Written | tt.DescriptorFact | tt.DescriptorPadding) -> DescriptorType:
    return expect(op.descriptor.type, DescriptorType)


@triton.of(tt.DescriptorLoad, tt.DescriptorGather)
def _descriptor_load(machine: Machine, op: _Read, operands: Operands) -> Array:
    type_, result = _descriptor_type(op), op.result.type
    if not (isinstance(op, tt.DescriptorLoad) and op.by_rows):
        return load_block(machine, op, type_, operands[0], operands[1:], result)
    block = load_block(machine, op, type_, operands[0], operands[1:], TensorType(type_.block, type_.element))
    return block.reshape(len(block), *shape_of(result))


def load_block(
    machine: Machine, op: Op, type_: DescriptorType, descriptor: Operands, offsets: Sequence[Array], result: Type
) -> Array:
    """The block of a described tensor at these offsets, with padding outside of the tensor."""
    pointers, inside = block_of(descriptor, offsets, type_)
    padding: Any = np.nan if type_.padding == "nan" else 0
    if type_.padding == "either":
        padding = over(np.where(descriptor[-1], np.nan, 0), len(shape_of(result)))
    return load_elements(machine, pointers, inside, padding, machine.access("reads", op, result, pointers))


@triton.of(tt.DescriptorStore, tt.DescriptorScatter)
def _descriptor_store(machine: Machine, op: tt.DescriptorStore | tt.DescriptorScatter, operands: Operands) -> None:
    type_ = _descriptor_type(op)
    pointers, inside = block_of(operands[0], operands[2:], type_)
    value = full(op.value, operands[1])
    if isinstance(op, tt.DescriptorStore):
        value = value.reshape(len(value), *type_.block)
    store_elements(machine, pointers, value, inside, machine.access("writes", op, op.value.type, pointers))


@marks.of(tt.DescriptorStore, tt.DescriptorReduce, tt.DescriptorScatter)
def _marks_of_descriptor_store(meaning: Meaning, machine: Machine, op: _Written, operands: Operands) -> None:
    descriptor, value, *offsets = operands
    descriptor, *offsets = (machine.known(op, operand, "writes at") for operand in (descriptor, *offsets))
    _, inside = block_of(descriptor, tuple(offsets), _descriptor_type(op))
    meaning(machine, op, (descriptor, machine.known(op, value, "stores", inside), *offsets))


@triton.of(tt.Poison)
def _poison(machine: Machine, op: tt.Poison, operands: Operands) -> Any:
    return undefined(op.type)


# Atomics, in the order of the programs and of the elements of each. Accesses to one address are done in rounds: the
# addresses of a round differ. Sums of integers, which often go to one counter, are done at once.


_ORDERED = (AtomicKind.FADD, AtomicKind.XCHG)  # They do not commute: a sum of floats depends on the order.


def _update(kind: AtomicKind, scalar: ScalarType, old: Array, value: Array) -> Array:
    if kind is AtomicKind.XCHG:
        return value
    cls = tt.ATOMIC_OPS[kind]
    return float_binary(cls, old, value, scalar) if scalar.is_float else int_binary(cls, old, value)


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
    machine: Machine, kind: AtomicKind | None, view: Array, index: Array, update: Callable[..., Array],
    operands: list[Array],
) -> Array:  # fmt: skip
    """Update the elements at these indices one after the other. Returns the old element of each access."""
    addresses, place = np.unique(index, return_inverse=True)
    state = view[addresses]
    old = state[place]
    if len(addresses) == len(index):
        state[place] = update(old, *operands)
    elif kind is AtomicKind.ADD and view.dtype != np.bool_:
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


@triton.of(tt.DescriptorReduce)
def _descriptor_reduce(machine: Machine, op: tt.DescriptorReduce, operands: Operands) -> None:
    type_ = _descriptor_type(op)
    pointers, inside = block_of(operands[0], operands[2:], type_)
    update_elements(machine, op, op.kind, op.value.type, pointers, [full(op.value, operands[1])], inside)


@triton.of(tt.AtomicRMW, tt.AtomicCAS)
def _atomic(machine: Machine, op: tt.AtomicRMW | tt.AtomicCAS, operands: Operands) -> Array:
    """`operands` are the pointers, the values, and the mask if there is one."""
    pointers, *values = operands
    if isinstance(op, tt.AtomicCAS):
        return update_elements(machine, op, None, op.value.type, pointers, values, None)
    mask = values[1] if len(values) > 1 else None
    return update_elements(machine, op, op.kind, op.value.type, pointers, values[:1], mask)


def update_elements(
    machine: Machine, op: Op, kind: AtomicKind | None, type_: Type, pointers: Array, values: Sequence[Array],
    mask: Array | None,
) -> Array:  # fmt: skip
    """Update elements by an atomic of a kind, or, without one, by a comparison and a swap. Returns the old elements.

    `type_` is that of the value.
    """
    scalar = scalar_element(type_)
    shape = (len(machine.frame), *shape_of(type_))  # One access for each program and element.
    pointers, *values = (np.broadcast_to(operand, shape) for operand in (pointers, *values))
    mask = None if mask is None else np.broadcast_to(mask, shape)
    update: Callable[..., Array] = _swap
    use = WRITE
    if kind is not None:
        update = functools.partial(_update, kind, scalar)
        use = kind.value if kind not in _ORDERED and not op.result.uses else WRITE
    if order_of(op).releases:
        machine.sharing.barrier(machine.frame.programs)
    access = machine.access("updates", op, type_, pointers)
    result = np.zeros(shape, scalar.dtype)
    for target in machine.memory.locate(pointers, None if mask is None or mask.all() else mask, access):
        machine.sharing.touch(target, access, use, values[0] if kind is None else None)
        lanes = np.ones(shape, np.bool_) if target.lanes is None else target.lanes
        arguments = [value[lanes] for value in values]
        result[lanes] = _update_in_order(
            machine, kind, target.region.view(scalar.dtype), target.index[lanes], update, arguments
        )
    return result
