"""The facts and rules of mbarriers: what they count, and the slots between roles that they tell of.

gpu.mbarrier_expect %full[%slot] %more @bytes=16384;        the phase ends after this arrival and so many bytes,
gpu.tma_load %A %a[%slot] %full[%slot] %more …;             which are those of the loads that follow
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile

import attrs

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import Asynchronous
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.transforms.analysis.memory_flow import allocation, slot_index, users_of
from ziggurat.transforms.analysis.queries import shared_of
from ziggurat.transforms.gpu.barriers import Hazard


@attrs.frozen(eq=False)
class RingsBetweenRoles:
    """The rings that one role fills and others read.

    `mbarriers_of` has the mbarriers that tell of filled slots, by the ring; `released_at` has those at which the
    readers of these slots arrive, by the former.
    """

    mbarriers_of: dict[Value, Value] = attrs.field(factory=dict[Value, Value])
    released_at: dict[Value, Value] = attrs.field(factory=dict[Value, Value])

    @property
    def mbarriers(self) -> Collection[Value]:
        """The mbarriers that tell of filled slots."""
        return self.mbarriers_of.values()


def rings_between_roles(func: Op) -> RingsBetweenRoles:
    """The rings between the roles of a function.

    The role that fills a slot waits for an mbarrier, and then loads with another one that has the same index, or stores
    and arrives at it.
    """
    rings = RingsBetweenRoles()
    for role in (role for op in func.walk() if isinstance(op, gpu.WarpSpecialize) for role in op.roles):
        inside = {op.result for op in role.walk()}
        for block in dict.fromkeys(op.parent for op in role.walk() if op.parent is not None):
            _rings_of_block(block, inside, rings)
    return rings


def _rings_of_block(block: Block, inside: Collection[Value], rings: RingsBetweenRoles) -> None:
    waits: dict[Value | None, Value] = {}  # The mbarrier of the last wait, by the index of the slot.
    stored: dict[Value | None, list[Value]] = {}  # The rings that threads have written, by the index of the slot.

    def fill(buffers: Iterable[Value], mbarrier: Value) -> None:
        index, mbarriers = slot_index(mbarrier), allocation(mbarrier)
        for ring in (ring for ring in buffers if ring not in inside):
            rings.mbarriers_of[ring] = mbarriers
            if index in waits and waits[index] is not mbarriers:
                rings.released_at.setdefault(mbarriers, waits[index])

    for op in block.ops:
        match op:
            case gpu.MbarrierWait():
                waits[slot_index(op.barrier)] = allocation(op.barrier)
            case gpu.LocalStore():
                stored.setdefault(slot_index(op.buffer), []).append(allocation(op.buffer))
            case gpu.MbarrierArrive():
                fill(stored.get(slot_index(op.barrier), ()), op.barrier)
            case Asynchronous() if op.mbarrier is not None and not isinstance(op, gpu.ClusterStore):
                fill(map(allocation, op.writes), op.mbarrier)
            case _:
                pass


# The rules.


def wrong_mbarriers(module: gpu.Module) -> Iterator[Hazard]:
    """The arrivals and bytes that mbarriers miss, and the waits that are missing for arrivals of other CTAs."""
    for init in (op for op in module.walk() if isinstance(op, gpu.MbarrierInit)):
        users = list(users_of(init.buffer))
        yield from _wrong_arrivals(init, users)
        yield from _wrong_bytes(init, users)
        yield from _left_arrivals(init, users)
    yield from _loads_too_early(module)


def _wrong_arrivals(init: gpu.MbarrierInit, users: Sequence[Op]) -> Iterator[Hazard]:
    """The mbarrier if it counts other arrivals than there are. A scope arrives once in a phase, by some of its ops."""
    arrivals: dict[WarpScope, int] = {}
    for op in users:
        if isinstance(op, gpu.MbarrierExpect | gpu.MbarrierArrive):
            scope, count = scope_of(op), 1
            if isinstance(op, gpu.MbarrierArrive):
                count = op.ctas * (scope.warps if op.each_warp else scope.warp_groups)
            if arrivals.setdefault(scope, count) != count:
                yield Hazard(init, op, "equal arrivals in all phases")
    waits = [op for op in users if isinstance(op, gpu.MbarrierWait)]
    if arrivals and not waits:
        yield Hazard(init, init, "wait for its phases")
    if waits and sum(arrivals.values()) != init.arrivals:
        yield Hazard(init, init, f"count of {sum(arrivals.values())} arrivals")


def _wrong_bytes(init: gpu.MbarrierInit, users: Sequence[Op]) -> Iterator[Hazard]:
    """The loads of TMA, and stores to other CTAs, whose bytes no phase of the mbarrier expects.

    The loads of a phase follow the op that expects their bytes, in its block. An mbarrier of stores has one phase.
    """
    expects = [op for op in users if isinstance(op, gpu.MbarrierExpect)]
    stores = [op for op in users if isinstance(op, gpu.ClusterStore)]
    for store in stores[:1]:
        if sum(op.bytes for op in expects) != sum(shared_of(op.buffer).bytes for op in stores):
            yield Hazard(init, store, "count of bytes")
    for block in dict.fromkeys(op.parent for op in users if isinstance(op, gpu.TmaLoad | gpu.MbarrierExpect)):
        assert block is not None
        open_: dict[Value | None, tuple[Op, int]] = {}  # The bytes that are expected still, by the slot's index.
        for op in (op for op in block.ops if op in users and isinstance(op, gpu.TmaLoad | gpu.MbarrierExpect)):
            index = slot_index(op.barrier)
            last, size = open_.get(index, (op, 0))
            if isinstance(op, gpu.MbarrierExpect):
                if size:
                    yield Hazard(last, op, "count of bytes")
                open_[index] = op, op.bytes
            else:
                open_[index] = op, size - shared_of(op.buffer).bytes
        for last, size in open_.values():
            if size and not stores:
                yield Hazard(last, last, "count of bytes")


def _left_arrivals(init: gpu.MbarrierInit, users: Sequence[Op]) -> Iterator[Hazard]:
    """The mbarrier if other CTAs may arrive at it when this one has ended: no role ends with a wait for each."""
    if not any(isinstance(op, gpu.MbarrierArrive) and op.ctas > 1 for op in users):
        return
    waits = [op for op in users if isinstance(op, gpu.MbarrierWait)]
    roles = [op.parent for op in waits[-1:] if op.parent and isinstance(op.parent_op, gpu.WarpSpecialize)]
    last = [op for block in roles for op in takewhile(lambda op: not op.bodies, reversed(block.ops))]
    if sum(op in waits for op in last) < shared_of(init.buffer).count:
        yield Hazard(init, init, "wait for the last arrivals of other CTAs")


def _loads_too_early(module: gpu.Module) -> Iterator[Hazard]:
    """The loads to the shared memory of all CTAs without a wait in their block, for an mbarrier at which all arrive."""
    for op in (op for op in module.walk() if isinstance(op, gpu.TmaLoad) and op.ctas > 1):
        assert op.parent is not None
        before = op.parent.ops[: op.parent.ops.index(op)]
        waited = {allocation(other.barrier) for other in before if isinstance(other, gpu.MbarrierWait)}
        arrivals = (user for buffer in waited for user in users_of(buffer) if isinstance(user, gpu.MbarrierArrive))
        if not any(user.ctas == op.ctas for user in arrivals):
            yield Hazard(op, op, "wait for the releases of all CTAs")
