"""The check of a placed model: nothing that orders accesses is missing.

    %d = gpu.wgmma %a %b %acc;
    %e = gpu.wgmma_wait %d @0;                      before another op has the accumulator, or writes %a or %b
    gpu.tma_store %C %c …;
    gpu.tma_store_wait @0;                          before an op writes %c

It derives the order of accesses anew from the finished model, so that it checks all passes before it. `barriers` finds
missing barriers, `in_flight` missing waits, and `mbarriers` wrong counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType
from ziggurat.transforms.analysis.memory_flow import allocation, interval
from ziggurat.transforms.analysis.queries import role_split, shared_of
from ziggurat.transforms.gpu.barriers import Hazard, missing_barriers
from ziggurat.transforms.gpu.in_flight import used_too_early
from ziggurat.transforms.gpu.mbarriers import wrong_mbarriers

__all__ = ["Hazard", "hazards", "hazards_so_far"]


def hazards(module: gpu.Module) -> list[Hazard]:
    """The pairs of ops of a GPU model between which something is missing; none of a model that `place` has made.

    * a barrier or a fence between two accesses of shared memory (`barriers`);
    * a wait or a commit for asynchronous ops: copies of cp.async, wgmma, stores of TMA;
    * a wait for what other CTAs of the cluster store;
    * an initialisation of an mbarrier, and its end before other uses of its memory;
    * the bytes that a phase of an mbarrier expects, which are those of the loads that follow;
    * memory of its own for what other roles use, or other CTAs write, as nothing orders these uses;
    * a wait for a slot that another role fills, or releases, and a release of each slot that was waited for;
    * a fence between what acquires and a load of TMA, and a wait for what it has stored before what releases;
    * a wait for what TMA has stored before another write of that memory, and a fence after one before a store of TMA;
    * memory of its own for each tensor map that the kernel makes, and barriers and an acquire before its use;
    * as many arrivals in a phase of an mbarrier as it counts, from the scopes that arrive, in all CTAs of the cluster;
    * a wait at the end for arrivals of other CTAs, and one for them before a load to the memory of all CTAs.
    """
    overlaps = (*_overlapping_in_roles(module), *_overlapping_in_clusters(module))
    early, counts = used_too_early(module), wrong_mbarriers(module)
    return [*missing_barriers(module), *early, *_wrong_maps(module), *counts, *overlaps]


def hazards_so_far(module: gpu.Module) -> list[Hazard]:
    """The hazards of a model on its way, in which passes that follow put buffers in their places and add barriers: what
    is missing between asynchronous ops and their waits, where each buffer has memory of its own. None where channels
    are still to be lowered, which stand for such waits."""
    channels = (gpu.Channel, gpu.ChannelOp, gpu.ChannelClose, gpu.ClusterGather)
    if module.holds(channels):
        return []
    end = max((interval(op.result)[1] for op in module.walk() if isinstance(op, gpu.LocalAlloc)), default=0)

    def apart(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        nonlocal end
        if not isinstance(op, gpu.LocalAlloc) or op.offset >= 0:
            return None
        offset = -(-end // op.alignment) * op.alignment
        end = offset + shared_of(op.result).bytes
        return builder.add(op.evolve(offset=offset), op.location)

    module = expect(transform(module, apart), gpu.Module)
    return [*used_too_early(module), *wrong_mbarriers(module)]


def _overlapping_in_roles(module: gpu.Module) -> Iterator[Hazard]:
    """The allocations that have bytes in common, though one role uses one of them, and another role the other."""
    split = role_split(module)
    if split is None:
        return
    roles: dict[gpu.LocalAlloc, set[int]] = {}
    for number, role in enumerate(split.roles):
        for value in (value for op in role.walk() for value in op.operands if isinstance(value.type, SharedType)):
            if isinstance(alloc := allocation(value).op, gpu.LocalAlloc):
                roles.setdefault(alloc, set()).add(number)
    for (first, users), (second, others) in combinations(roles.items(), 2):
        if _have_common_bytes(first.result, second.result) and len(users | others) > 1:
            yield Hazard(first, second, "memory of its own")


def _overlapping_in_clusters(module: gpu.Module) -> Iterator[Hazard]:
    """The allocations that have bytes in common with one that other CTAs write: one of these may be ahead."""
    written = {allocation(op.buffer) for op in module.walk() if isinstance(op, gpu.ClusterStore)}
    others = [op for op in module.walk() if isinstance(op, gpu.LocalAlloc)] if written else []
    for buffer in written:
        for other in (other for other in others if other.result is not buffer):
            if _have_common_bytes(buffer, other.result):
                yield Hazard(next(op for op in others if op.result is buffer), other, "memory of its own")


def _have_common_bytes(first: Value, second: Value) -> bool:
    (start, end), (other_start, other_end) = interval(first), interval(second)
    return start < other_end and other_start < end


def _wrong_maps(module: gpu.Module) -> Iterator[Hazard]:
    """The tensor maps whose memory is another map's as well, or is not provided."""
    makers: dict[int, gpu.MakeTensorMap] = {}
    for op in module.walk():
        if isinstance(op, gpu.MakeTensorMap):
            first = makers.setdefault(op.index, op)
            if first is not op or (op.index + 1) * MAP_BYTES > module.scratch:
                yield Hazard(first, op, "memory for a tensor map")
