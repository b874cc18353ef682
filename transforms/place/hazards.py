"""The check of a placed model: asynchronous ops are not used, or overwritten, too early.

It derives the order of accesses anew from the finished model, so that it judges all passes before it. `barriers` finds
missing barriers, `in_flight` missing waits; the mbarriers are checked here:

    gpu.mbarrier_init %full @arrivals=1;
    …
    %f = gpu.local_view %full %slot;
    gpu.mbarrier_expect %f %more @bytes=16384;        the arrival, and the bytes of all loads that name this mbarrier
    gpu.tma_load %A %a[%slot] %f %more …;             128 × 32 of f16
    gpu.tma_load %B %b[%slot] %f %more …;             32 × 128 of f16

The loads of a phase stand in the block of its `gpu.mbarrier_expect`, with the same slot index and the same predicate.
A phase with too few expected bytes ends before the data is there; one with too many, or without a
`gpu.mbarrier_expect`, never ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.transforms.place.barriers import missing_barriers
from ziggurat.transforms.place.in_flight import used_too_early
from ziggurat.transforms.place.queries import WARP_GROUP, shared_of
from ziggurat.transforms.place.rings import Hazard, allocation, slot_index

__all__ = ["Hazard", "hazards"]

# A phase: the block, the mbarriers, the slot index, the predicate.
_Phase = tuple[object, Value, Value | None, Value | None]


def hazards(module: Op) -> list[Hazard]:
    """The pairs of ops of a GPU model between which something is missing; none of a model that `place` has made.

    * a barrier or a fence between two accesses of shared memory (`barriers`);
    * a wait, a commit or an arrival for asynchronous ops: copies of cp.async, wgmma, loads and stores of TMA
      (`in_flight`);
    * the bytes and arrivals that an mbarrier expects.
    """
    assert isinstance(module, gpu.Module)
    return [*missing_barriers(module), *used_too_early(module), *_wrong_phases(module)]


def _wrong_phases(module: gpu.Module) -> Iterator[Hazard]:
    """The loads and mbarriers of a module whose phases end too early, or never."""
    expected: dict[_Phase, list[gpu.MbarrierExpect]] = {}
    loads: dict[_Phase, list[gpu.TmaLoad]] = {}
    inits: dict[Value, gpu.MbarrierInit] = {}
    counted: dict[Value, tuple[Op, int]] = {}  # An op that arrives, and how often it does in a phase.
    for op in module.walk():
        if isinstance(op, gpu.MbarrierInit):
            inits[op.buffer] = op
        elif isinstance(op, gpu.MbarrierArrive):
            counted[allocation(op.barrier)] = op, module.num_warps // WARP_GROUP
        elif isinstance(op, gpu.MbarrierExpect):
            counted[allocation(op.barrier)] = op, 1
            expected.setdefault(_phase(op, op.barrier, op.predicate), []).append(op)
        elif isinstance(op, gpu.TmaLoad):
            phase = _phase(op, op.barrier, op.predicate)
            loads.setdefault(phase, []).append(op)
            if phase not in expected:
                yield Hazard(op, op, "expectation")
            if slot_index(op.buffer) is not slot_index(op.barrier):
                yield Hazard(op, op, "match of slots")
    for phase, expects in expected.items():
        brought = loads.get(phase, [])
        if len(expects) > 1:
            yield Hazard(expects[0], expects[1], "load")
        elif sum(shared_of(load.buffer).bytes for load in brought) != expects[0].bytes:
            yield Hazard(expects[0], brought[-1] if brought else expects[0], "match of bytes")
    for mbarrier, (op, arrivals) in counted.items():
        init = inits.get(mbarrier)
        if init is None or init.arrivals != arrivals:
            yield Hazard(op if init is None else init, op, "initialisation")


def _phase(op: Op, mbarrier: Value, predicate: Value | None) -> _Phase:
    return op.parent, allocation(mbarrier), slot_index(mbarrier), predicate
