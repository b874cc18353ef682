"""Meanings in terms of the ops on shared memory, and of copies to it and from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np

from ziggurat.backend.proof.clusters import beside, buffers
from ziggurat.backend.proof.elements import TRUE, Bit, NotDecided
from ziggurat.backend.proof.frames import Literal, SymbolicFrame, condition_of, is_known, joined, replaced
from ziggurat.backend.proof.machine import SymbolicMachine, meanings
from ziggurat.backend.proof.memory_ops import (
    all_of,
    as_decided,
    block_of,
    load,
    load_block,
    reshaped,
    store,
    undefined,
    update,
    updated,
)  # fmt: skip
from ziggurat.backend.proof.tensors import Tensor, forced, key_of, objects, objects_of
from ziggurat.backend.reference.gpu_ops import by_block
from ziggurat.backend.reference.machine import triton
from ziggurat.backend.reference.roles import arrive, complete_bytes
from ziggurat.backend.reference.shared_memory import SharedBuffer, shared
from ziggurat.backend.reference.values import Array, over
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.types import (
    DescriptorType,
    TensorType,
    i1,
    shape_of,
)  # fmt: skip

Operands = tuple[Any, ...]


# Shared memory: each slot of a buffer holds a tensor.


@attrs.define(eq=False)
class Slots:
    """What was written to each slot of an allocation, the last write first, in which runs: the tensor, or None for what
    another allocation's write has left. Slots are of `bytes` each and begin at `offset` of `memory`, or anywhere."""

    writes: list[list[tuple[tuple[Literal, ...], Any]]]
    nothing: Any
    bytes: int
    offset: int
    memory: list[Slots]  # The allocations in it.
    mbarriers: Any = None
    elements: Array = attrs.field(factory=lambda: np.zeros((1, 1)))  # Of mbarriers, the axes.

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor in a slot."""
        return self.elements.shape[2:]


def _slot(buffer: SharedBuffer) -> tuple[Slots, int]:
    if not is_known(buffer.slots):
        raise NotDecided("a slot of a buffer that is not known")
    return cast(Any, buffer.allocation), int(buffer.slots[0])


@meanings.of(gpu.MbarrierArrive, gpu.MbarrierExpect)
def _arrive(machine: SymbolicMachine, op: Op, operands: Operands) -> None:
    """What is not known to happen happens: an arrival, as its wait. One at an unknown slot is left out: then no role
    goes on because of it."""
    barrier: Any = operands[0]
    if is_known(barrier.slots):
        holds = [as_decided(machine, forced(value)) for value in operands[1:] if value is not None]
        predicates = [value if is_known(value) else np.ones(1, np.bool_) for value in holds]
        if isinstance(op, gpu.MbarrierArrive) and op.ctas > 1:
            arrive(machine, op, buffers(machine, barrier), predicates[0])
        else:
            triton[op](machine, op, (barrier, *predicates))


@meanings.of(gpu.LocalAlloc)
def _alloc(machine: SymbolicMachine, op: gpu.LocalAlloc, operands: Operands) -> SharedBuffer:
    type_ = shared(op.result)
    tensor = TensorType(type_.shape, type_.element)
    buffer = allocated(machine, tensor, type_.count, type_.bytes // type_.count, op.offset)
    if machine.cta is not None:
        machine.cta.enter(op, _slot(buffer)[0])
    return buffer


def allocated(machine: SymbolicMachine, type_: TensorType, count: int, size: int, offset: int) -> SharedBuffer:
    """A buffer for as many tensors of a type, of so many bytes each, at an offset in memory, or anywhere if that is
    negative."""
    elements = np.zeros((1, count, *type_.shape), np.int8)
    writes: Any = [[] for _ in range(count)]
    slots = Slots(writes, undefined(machine, type_), size, offset, machine.allocations, elements=elements)
    if offset >= 0:
        machine.allocations.append(slots)
    return SharedBuffer(cast(Any, slots), np.zeros(1, np.int32), tuple(range(len(type_.shape))))


@meanings.of(gpu.LocalView)
def _view(machine: SymbolicMachine, op: gpu.LocalView, operands: Operands) -> SharedBuffer:
    return attrs.evolve(operands[0], slots=forced(operands[1]))


def put(machine: SymbolicMachine, buffer: SharedBuffer, value: Any, condition: Bit = TRUE) -> None:
    """Write a tensor to a buffer where a condition holds. What other buffers have at these addresses is undefined."""
    frame = machine.frame
    assert isinstance(frame, SymbolicFrame)
    slots, at = _slot(buffer)
    condition = frame.settled(objects_of(condition))[0]
    if condition.known == 0:
        return
    shape = [slots.shape[axis] for axis in buffer.order]
    value = _transposed(machine, value, shape, np.argsort(buffer.order).tolist())
    path = frame.path if condition.known else (*frame.path, (np.array([condition], object), True))
    slots.writes[at] = [(path, value), *slots.writes[at]]
    start = slots.offset + at * slots.bytes
    for other in slots.memory if slots.offset >= 0 else ():
        for place in range(len(other.writes)):
            begin = other.offset + place * other.bytes
            if other is not slots and begin < start + slots.bytes and start < begin + other.bytes:
                other.writes[place] = [((), None)]


def held(machine: SymbolicMachine, buffer: SharedBuffer) -> Any:
    """The tensor in a buffer. Raises `NotDecided` where another buffer at its addresses was written since."""
    slots, at = _slot(buffer)
    frame = machine.frame
    assert isinstance(frame, SymbolicFrame)
    return _transposed(machine, _seen(machine, frame, slots, slots.writes[at]), slots.shape, buffer.order)


def content_of(machine: SymbolicMachine, buffer: SharedBuffer) -> Any:
    """The tensor in a buffer, of which a part is written; undefined where another buffer was written since."""
    try:
        return held(machine, buffer)
    except NotDecided:
        return _slot(buffer)[0].nothing


def _seen(machine: SymbolicMachine, frame: SymbolicFrame, slots: Slots, writes: list[Any]) -> Any:
    """The last write to a slot that the runs of a frame have done."""
    if not writes:
        return slots.nothing
    (path, value), *earlier = writes
    if frame.excludes(path):
        return _seen(machine, frame, slots, earlier)
    if value is None:
        raise NotDecided("a read of shared memory that another buffer has overwritten")
    if frame.implies(path):
        return frame.resolved(value)
    condition = condition_of(path)
    further = [literal for literal in path if key_of(literal[0]) not in frame.sides]
    others = frame
    if len(further) == 1:  # Runs that have not done this write are those in which the literal does not hold.
        ((literal, holds),) = further
        others = frame.within((*frame.path, (literal, not holds)))
    return joined(machine.universe, condition, value, _seen(machine, others, slots, earlier))


def _transposed(machine: SymbolicMachine, value: Any, shape: Sequence[int], order: Sequence[int]) -> Any:
    if not isinstance(value, Tensor):
        return value.transpose(0, *(int(axis) + 1 for axis in order))
    if value.type is not None and value.type.shape == tuple(shape) and list(order) == sorted(order):
        return value
    places = np.arange(math.prod(shape)).reshape(shape).transpose(order)
    return machine.universe.moved(value, tuple(shape), places, places.shape)


@meanings.of(tt.Trans)
def _trans(machine: SymbolicMachine, op: tt.Trans, operands: Operands) -> Any:
    return _transposed(machine, operands[0], shape_of(op.value.type), op.order)


@meanings.of(tt.Reshape)
def _reshape(machine: SymbolicMachine, op: tt.Reshape, operands: Operands) -> Any:
    return _in_shape(machine, op, op.value, operands[0])


@meanings.of(tt.ExpandDims)
def _expand_dims(machine: SymbolicMachine, op: tt.ExpandDims, operands: Operands) -> Any:
    return _in_shape(machine, op, op.value, operands[0])


def _in_shape(machine: SymbolicMachine, op: Op, source: Value, value: Any) -> Any:
    shape = shape_of(op.result.type)
    if isinstance(value, Tensor):
        return reshaped(machine, value, shape_of(source.type), shape)
    return triton[op](machine, op, (value,))


@meanings.of(gpu.LocalTrans)
def _local_trans(machine: SymbolicMachine, op: gpu.LocalTrans, operands: Operands) -> SharedBuffer:
    return attrs.evolve(operands[0], order=tuple(operands[0].order[axis] for axis in op.order))


@meanings.of(gpu.LocalLoad)
def _local_load(machine: SymbolicMachine, op: gpu.LocalLoad, operands: Operands) -> Any:
    return held(machine, operands[0])


@meanings.of(gpu.LocalStore)
def _local_store(machine: SymbolicMachine, op: gpu.LocalStore, operands: Operands) -> None:
    put(machine, operands[0], operands[1])


@meanings.of(gpu.AsyncCopy)
def _async_copy(machine: SymbolicMachine, op: gpu.AsyncCopy, operands: Operands) -> None:
    pointers, buffer, *mask = operands
    element, shape = shared(op.buffer).element, shape_of(op.ptr.type)
    zero = np.zeros((1,) * (len(shape) + 1), element.dtype)
    put(machine, buffer, load(machine, pointers, mask[0] if mask else all_of(shape), zero, TensorType(shape, element)))


def ordered(machine: SymbolicMachine, value: Any, shape: Sequence[int], places: Array, target: Sequence[int]) -> Any:
    """The tensor of another shape that has the elements of one at some places."""
    if isinstance(value, Tensor):
        return machine.universe.moved(value, tuple(shape), places, tuple(target))
    return np.broadcast_to(value, (1, *shape)).reshape(1, -1)[:, places].reshape(1, *target)


@meanings.of(gpu.TmaLoad)
def _tma_load(machine: SymbolicMachine, op: gpu.TmaLoad, operands: Operands) -> None:
    descriptor, buffer, barrier, predicate, *offsets = operands
    type_, target = expect(op.descriptor.type, DescriptorType), shared(op.buffer)
    block, numbers = load_block(machine, descriptor, offsets, type_), by_block(type_, target)
    block = ordered(machine, block, type_.block, numbers, target.shape)
    holds = TRUE if predicate is None else objects(as_decided(machine, forced(predicate)), i1)[0]
    if holds.known == 0:
        return
    if op.ctas == 1:
        put(machine, buffer, block, holds)
        complete_bytes(machine, barrier, machine.frame, target.bytes)
        return
    places = np.flatnonzero(numbers // (numbers.size // op.ctas) == machine.cta.rank)
    barriers = buffers(machine, barrier) if isinstance(barrier, SharedBuffer) else [None] * op.ctas
    for buffer_, barrier_ in zip(buffers(machine, buffer), barriers, strict=True):
        whole = TensorType(target.shape, target.element)
        put(machine, buffer_, replaced(machine.universe, content_of(machine, buffer_), block, places, whole), holds)
        complete_bytes(machine, barrier_, machine.frame, target.bytes // op.ctas)


@meanings.of(gpu.ClusterStore)
def _cluster_store(machine: SymbolicMachine, op: gpu.ClusterStore, operands: Operands) -> None:
    buffer, barrier, value = operands
    cta, target = machine.cta, shared(op.buffer)
    ctas = len(cta.cluster)
    for buffer_, barrier_ in zip(buffers(machine, buffer), buffers(machine, barrier), strict=True):
        put(machine, buffer_, beside(machine, op.value, content_of(machine, buffer_), value, cta.rank, ctas))
        complete_bytes(machine, barrier_, machine.frame, target.bytes // ctas)


@meanings.of(gpu.TmaStore)
def _tma_store(machine: SymbolicMachine, op: gpu.TmaStore, operands: Operands) -> None:
    descriptor, buffer, *offsets = operands
    type_, source = expect(op.descriptor.type, DescriptorType), shared(op.buffer)
    places = np.argsort(by_block(type_, source))
    block = ordered(machine, held(machine, buffer), source.shape, places, type_.block)
    pointers, inside = block_of(machine, descriptor, offsets, type_)
    whole = TensorType(type_.block, type_.element)
    if op.adds:
        kind = AtomicKind.FADD if type_.element.is_float else AtomicKind.ADD
        update(machine, kind.value, pointers, (block,), inside, whole, updated(machine, kind, type_.element))
    else:
        store(machine, pointers, block, inside, whole)


# Values that stay as they are.


@meanings.of(tt.Splat)
def _splat(machine: SymbolicMachine, op: tt.Splat, operands: Operands) -> Any:
    value, rank = operands[0], len(shape_of(op.type))
    if not isinstance(value, Tensor):
        return over(value, rank)
    universe, type_ = machine.universe, TensorType((1,) * rank, expect(op.type, TensorType).element)
    tensor = universe.tensor(
        ("splat", rank, value.number), lambda: over(value.value, rank), value.origins, type_=type_,
        at=lambda index: universe.element(value, op.value.type, ()),
    )  # fmt: skip
    tensor.place_in(*value.origin(()))
    return tensor


@meanings.of(core.TupleLoad)
def _component(machine: SymbolicMachine, op: core.TupleLoad, operands: Operands) -> Any:
    value, index = operands[0], op.index
    if not isinstance(value, Tensor):
        return value[index]
    key, type_ = ("component", index, value.number), op.result.type
    return machine.universe.tensor(key, lambda: value.value[index], value.origins, type_=type_)
