"""Clusters: CTAs that run side by side, each on a machine of its own, and what passes between them.

The CTAs are processes of one schedule, and their roles as well; see `reference.roles`. A CTA reaches the shared memory
of another one by the place: an allocation or a channel is the one that the same op has made, run as often, in the other
CTA. A CTA sees global memory as it has left it itself. At a barrier of the cluster, the writes of all CTAs since the
last one are put together in the order of ranks. So no result depends on the order in which the CTAs run.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.proof.elements import NotDecided
from ziggurat.backend.proof.frames import SymbolicFrame, replaced
from ziggurat.backend.proof.machine import SymbolicMachine, meanings
from ziggurat.backend.proof.memory_ops import Store
from ziggurat.backend.proof.tensors import Tensor, Version, key_of
from ziggurat.backend.reference.machine import triton
from ziggurat.backend.reference.roles import ChannelSlots, Schedule, wait
from ziggurat.backend.reference.shared_memory import SharedBuffer
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import TensorType, scalar_element, shape_of

Operands = tuple[Any, ...]
Arrays = dict[int, Version]


@attrs.define(eq=False)
class Cta:
    """A CTA of a cluster: its number, and what the other ones may see of it."""

    rank: int
    cluster: Sequence[Cta]  # All CTAs of the cluster, by their ranks.
    things: dict[Hashable, Any] = attrs.field(factory=dict[Hashable, Any])  # By the op that made it, and how often.
    visits: Counter[Op] = attrs.field(factory=Counter[Op])
    arrivals: int = 0
    waits: int = 0
    meetings: list[tuple[Hashable, Any]] = attrs.field(factory=list[tuple[Hashable, Any]])
    ended: bool = False

    def enter(self, op: Op, thing: Any) -> None:
        """Let other CTAs reach what an op has made here."""
        self.visits[op] += 1
        self.things[op, self.visits[op]] = thing

    def place_of(self, thing: Any) -> Hashable:
        """The op that has made something here, and how often it had run then."""
        return next(place for place, other in self.things.items() if other is thing)

    def together(self, thing: Any) -> list[Any]:
        """What the CTAs of the cluster have in the place of something of this CTA, by their ranks. Raises `NotDecided`
        if a CTA has not made it yet, or has ended."""
        place = self.place_of(thing)
        if any(cta.ended or place not in cta.things for cta in self.cluster):
            raise NotDecided("an access of a CTA that may not have started, or may have ended")
        return [cta.things[place] for cta in self.cluster]


def run_cluster(machine: SymbolicMachine, op: Op, ctas: int, arguments: Sequence[Any]) -> None:
    """Call a kernel for a program that is a cluster: memory is then as all CTAs have left it."""
    cluster: list[Cta] = []
    cluster += (Cta(rank, cluster) for rank in range(ctas))
    machines = [_machine(machine, cta) for cta in cluster]
    schedule = Schedule()
    for each in machines:
        each.schedule = schedule
    machine.universe.divide(ctas)
    machine.universe.divided = True
    try:
        schedule.run(machine, op, [partial(_run, each, op.bodies[0], arguments) for each in machines])
    except KernelRuntimeError as error:
        raise NotDecided(f"in a cluster: {error}") from error
    finally:
        machine.universe.divided = False
    machine.arrays = _together(machine, [cta.meetings.pop()[1] for cta in cluster])
    machine.cut = machine.cut or any(each.cut for each in machines)


def _machine(machine: SymbolicMachine, cta: Cta) -> SymbolicMachine:
    """The machine of a CTA: what it finds out is known to the one of the cluster."""
    result = copy.copy(machine)
    result.cta = cta
    result.start()
    result.before, result.arrays = dict(machine.arrays), dict(machine.arrays)
    return result


def _run(machine: SymbolicMachine, body: Body, arguments: Sequence[Any]) -> None:
    machine.call(body, arguments)
    machine.cta.ended = True
    machine.cta.meetings.append(((), (machine.before, machine.arrays)))


def _meet(machine: SymbolicMachine, op: Op, content: Any) -> list[Any]:
    """What all CTAs bring to an op that they run together, by their ranks."""
    cta, frame = machine.cta, machine.frame
    assert isinstance(frame, SymbolicFrame)
    number, where = len(cta.meetings), tuple((key_of(condition), holds) for condition, holds in frame.path)
    cta.meetings.append(((op, where), content))
    wait(machine, op, lambda: all(len(other.meetings) > number for other in cta.cluster))
    meetings = [other.meetings[number] for other in cta.cluster]
    if any(place != (op, where) for place, _ in meetings):
        raise NotDecided(f"{op.NAME} is not run by all CTAs of the cluster")
    return [content for _, content in meetings]


def _together(machine: SymbolicMachine, views: Sequence[tuple[Arrays, Arrays]]) -> Arrays:
    """Global memory after the writes of all CTAs, from how each has found and left it: after the first writes of all of
    them come the second ones, and so on."""
    result: Arrays = {}
    for origin in sorted({origin for _, after in views for origin in after}):
        versions = [(before, after[origin]) for before, after in views if origin in after]
        whole = versions[0][0].get(origin, versions[0][1].first)
        writes = [version.since(before.get(origin, version.first)) for before, version in versions]
        for row in itertools.zip_longest(*writes):
            whole = _written(machine, whole, origin, [version for version in row if version is not None])
        result[origin] = whole
    return result


def _written(machine: SymbolicMachine, before: Version, origin: int, versions: Sequence[Version]) -> Version:
    """An array after the writes of several CTAs: after one store, if they store the parts of a tensor."""
    stores = [version.content for version in versions]
    store = Store.together(stores) if len(stores) > 1 and all(isinstance(each, Store) for each in stores) else None
    if store is not None:
        return machine.universe.written(before, store.key, partial(store.write, machine, origin), store)
    for version in versions:
        before = machine.universe.written(before, version.key, version.write, version.content)
    return before


@meanings.of(gpu.ClusterBarrier)
def _barrier(machine: SymbolicMachine, op: gpu.ClusterBarrier, operands: Operands) -> None:
    frame = machine.frame
    assert isinstance(frame, SymbolicFrame)
    if frame.path:
        raise NotDecided("a barrier of the cluster in a branch")
    views = _meet(machine, op, (machine.before, dict(machine.arrays)))
    machine.arrays = _together(machine, views)
    machine.before = dict(machine.arrays)


@meanings.of(gpu.ClusterArrive)
def _arrive(machine: SymbolicMachine, op: gpu.ClusterArrive, operands: Operands) -> None:
    machine.cta.arrivals += 1


@meanings.of(gpu.ClusterWait)
def _wait(machine: SymbolicMachine, op: gpu.ClusterWait, operands: Operands) -> None:
    cta = machine.cta
    cta.waits += 1
    number = cta.waits
    wait(machine, op, lambda: all(other.arrivals >= number for other in cta.cluster))


@meanings.of(gpu.ClusterRank)
def _rank(machine: SymbolicMachine, op: gpu.ClusterRank, operands: Operands) -> Array:
    return np.full(1, machine.cta.rank, np.int32)


@meanings.of(gpu.ClusterGather)
def _gather(machine: SymbolicMachine, op: gpu.ClusterGather, operands: Operands) -> Any:
    contents = _meet(machine, op, operands)
    columns = zip(op.values, zip(*contents, strict=True), strict=True)
    return packed_values(tuple(_side_by_side(machine, value, column) for value, column in columns))


def _side_by_side(machine: SymbolicMachine, value: Value, contents: Sequence[Any]) -> Any:
    """Values along a new last axis."""
    result: Any = np.zeros((1,) * (len(shape_of(value.type)) + 2), scalar_element(value.type).dtype)
    for rank, content in enumerate(contents):
        result = beside(machine, value, result, content, rank, len(contents))
    return result


def beside(machine: SymbolicMachine, value: Value, whole: Any, content: Any, rank: int, ctas: int) -> Any:
    """A tensor with a value in its place along the last axis."""
    shape = shape_of(value.type)
    numbers = np.arange(int(np.prod(shape)))
    if isinstance(content, Tensor):
        copies: Any = machine.universe.moved(content, shape, np.repeat(numbers, ctas), (*shape, ctas))
    else:
        copies = content[..., None]
    type_ = TensorType((*shape, ctas), scalar_element(value.type))
    return replaced(machine.universe, whole, copies, numbers * ctas + rank, type_)


# Channels and mbarriers of a cluster.


@meanings.of(gpu.Channel)
def _channel(machine: SymbolicMachine, op: gpu.Channel, operands: Operands) -> ChannelSlots:
    channel = triton[op](machine, op, operands)
    if machine.cta is not None:
        machine.cta.enter(op, channel)
        # It is there once all CTAs have started.
        wait(machine, op, lambda: all((op, machine.cta.visits[op]) in cta.things for cta in machine.cta.cluster))
    return channel


def _channels(machine: SymbolicMachine, channel: ChannelSlots) -> list[ChannelSlots]:
    """The channels of the CTAs that fill the slots of a channel together."""
    if channel.ctas == 1:
        return [channel]
    place = machine.cta.place_of(channel)
    return [cta.things[place] for cta in machine.cta.cluster]


@meanings.of(gpu.ChannelAcquire)
def _acquire(machine: SymbolicMachine, op: gpu.ChannelAcquire, operands: Operands) -> Array:
    rows, channels = machine.frame.keys, _channels(machine, operands[0])
    number = operands[0].acquired[rows]
    wait(machine, op, lambda: all(channel.is_free(rows, number) for channel in channels))
    return triton[op](machine, op, operands)


@meanings.of(gpu.ChannelWait)
def _await(machine: SymbolicMachine, op: gpu.ChannelWait, operands: Operands) -> Array:
    rows, channels = machine.frame.keys, _channels(machine, operands[0])
    number = operands[0].next_slot(op)[rows]
    wait(machine, op, lambda: all((channel.committed[rows] > number).all() for channel in channels))
    return triton[op](machine, op, operands)


def buffers(machine: SymbolicMachine, buffer: SharedBuffer) -> list[SharedBuffer]:
    """The buffers, or the mbarriers, in the same place of all CTAs."""
    return [attrs.evolve(buffer, allocation=other) for other in machine.cta.together(buffer.allocation)]
