"""Channels become mbarriers, groups of copies, and slot indices and phases that loops carry.

    %c = gpu.channel %a %b;                     gpu.mbarrier_init %full @arrivals=1; gpu.barrier;
    scf.for … (%i, %acc) {                      scf.for … (%i, %acc, %slot, %phase) {
        %s = gpu.channel_wait %c;                   gpu.mbarrier_wait %full[%slot] %phase;
        %d = gpu.wgmma %a[%s] …;                    %d = gpu.wgmma %a[%slot] …;
        …                              becomes      …
        %t = gpu.channel_acquire %c %more;          %before = arith.select (%slot == 0) 2 (%slot - 1);
        gpu.tma_load %A %a[%t] %c %more …;          gpu.mbarrier_expect %full[%before] %more @bytes=…;
        gpu.channel_commit %c;                      gpu.tma_load %A %a[%before] %full[%before] %more …;
        scf.yield %d; }                             scf.yield %d (the next slot and phase); }
    gpu.channel_close %c;                       gpu.barrier; gpu.mbarrier_inval %full;

A channel counts its waits; in the producer's role, which has none, it counts its acquires. The count, by slot index and
phase, is carried by the loops that advance it. All other indices are a constant number of slots apart, which the proof
(`channels`) has found. Channels that advance equally often in the same blocks share one count.

What becomes of the other ops:

* Copies by threads: a commit is `gpu.async_commit`, a wait `gpu.async_wait`.
* Stores: a commit is a `gpu.fence_async`; a wait becomes nothing, as `barriers` orders the accesses.
* In one role, a release becomes nothing: a barrier orders it and the next acquire (`barriers`).
* Between roles, an acquire waits for the mbarrier `empty` of its slot, and a release arrives there, in each role that
  waits for the channel. Threads that store arrive at `full` when they commit.
* Of a channel of a cluster, a release arrives at the `empty` of all CTAs, which count the arrivals of all. The roles
  begin when all CTAs have started, and the one that fills the slots ends when all of them are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import SharedType, i1, i32, i64
from ziggurat.transforms.analysis.memory_flow import read_in_flight
from ziggurat.transforms.analysis.queries import constant, shared_of, unpacked
from ziggurat.transforms.gpu.channels import ChannelProof, proofs_of
from ziggurat.transforms.schedule.schedule import carrying_loop

_Key = tuple[object, ...]


@attrs.frozen
class _Count:
    """The next slot index of a channel and its phase; numbers where they are known."""

    slot: int | Value = 0
    phase: int | Value = 0


def lower_channels(module: gpu.Module) -> Op:
    """The GPU model without channels. Raises `InternalError` if the proof of one of them fails."""
    proofs = proofs_of(module)
    if not proofs:
        return module
    if hazards := [hazard for proof in proofs.values() for hazard in proof.hazards]:
        raise InternalError("; ".join(map(str, hazards)), str(module))
    return transform(module, _Lowering(proofs), pass_name="lower_channels")


class _Lowering:
    """The transformer, with the counts of all channels at the place that is being written."""

    def __init__(self, proofs: dict[Value, ChannelProof]) -> None:
        self.proofs = proofs
        self.keys = {channel: _key(proof) for channel, proof in proofs.items()}
        self.counts: dict[_Key, _Count] = {}  # At the start of the block.
        self.ahead: dict[Value, int] = {}  # How often each channel has advanced since then.
        self.full: dict[Value, Value] = {}  # The mbarriers of filled slots: of TMA, or between roles.
        self.empty: dict[Value, Value] = {}  # Those that tell the producer of free slots.
        self.filled: dict[Value, Value] = {}  # The mbarrier of the acquired slot.

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        match op:
            case gpu.Channel():
                return self._channel(builder, op)
            case gpu.ChannelAcquire():
                return self._acquire(builder, op, operands[1])
            case gpu.ChannelCommit():
                proof = self.proofs[op.channel]
                if not proof.by_tma:
                    builder.add(gpu.AsyncCommit() if proof.by_copies else gpu.FenceAsync())
                    if proof.between_roles:
                        always = constant(builder, True, i1)
                        builder.add(gpu.MbarrierArrive(self.filled[op.channel], always, each_warp=True))
                return DROP
            case gpu.ChannelWait():
                return self._wait(builder, op)
            case gpu.ChannelRelease():
                self._release(builder, op)
                return DROP
            case gpu.ChannelClose():
                self._close(builder, op)
                return DROP
            case gpu.WarpSpecialize():
                if any(proof.op.ctas > 1 for proof in self.proofs.values()):
                    # All CTAs have started, and have initialised their mbarriers.
                    builder.add(gpu.ClusterArrive())
                    builder.add(gpu.ClusterWait())
                return builder.add(rebuilt(op, (), [self._role(builder, role) for role in op.roles]), op.location)
            case scf.Yield() if isinstance(op.parent_op, gpu.WarpSpecialize):
                self._drain(builder, scope_of(op))
                return None
            case scf.For() if keys := self._advancing(op):
                return self._loop(builder, op, keys)
            case scf.If() if keys := self._advancing(op):
                return self._branch(builder, op, operands[0], keys)
            case _:
                return None

    # The ops of channels.

    def _channel(self, builder: Rewriter, op: gpu.Channel) -> Value:
        """Make the mbarriers of a channel. From now on, the channel stands for that of its acquired slot."""
        channel, proof = op.result, self.proofs[op.result]
        self.counts[self.keys[channel]], self.ahead[channel] = _Count(), 0
        if not proof.by_tma and not proof.between_roles:
            return builder[op.rings[0]]  # Nothing needs the channel's counterpart.
        self.full[channel] = _mbarriers(builder, op.stages, 1 if proof.by_tma else scope_of(proof.acquires[0]).warps)
        if proof.between_roles:
            scopes = {scope_of(wait) for wait in proof.waits}
            # Matrix units read for a warp group, and each warp for itself.
            each = (scope.warps if proof.by_threads(scope) else scope.warp_groups for scope in scopes)
            self.empty[channel] = _mbarriers(builder, op.stages, op.ctas * sum(each))
        if not isinstance(next(later for later in op.later() if not isinstance(later, gpu.LocalAlloc)), gpu.Channel):
            builder.add(gpu.Barrier())
        return self.full[channel]

    def _acquire(self, builder: Rewriter, op: gpu.ChannelAcquire, predicate: Value) -> Value:
        channel, proof = op.channel, self.proofs[op.channel]
        if proof.between_roles:
            slot = self._wait_until_free(builder, channel)
            self.ahead[channel] += 1
        else:
            slot, _ = self._at(builder, channel, proof.in_flight[op])
        if channel in self.full:
            builder[channel] = self.filled[channel] = _of_slot(builder, self.full[channel], slot)
        if proof.by_tma:
            size = sum(shared_of(ring).bytes for ring in proof.op.rings) // proof.stages
            builder.add(gpu.MbarrierExpect(self.filled[channel], predicate, bytes=size))
        return slot

    def _drain(self, builder: Builder, scope: WarpScope) -> None:
        """At the end of a role, wait until all CTAs of the cluster have released the slots that it has filled: they
        arrive at mbarriers of this CTA, which must not have ended."""
        mine = [
            channel
            for channel, proof in self.proofs.items()
            if proof.op.ctas > 1 and scope_of(proof.acquires[0]) == scope
        ]
        for key in dict.fromkeys(self.keys[channel] for channel in mine):
            alike = [channel for channel, other in self.keys.items() if other == key]
            for _ in range(_stages(key)):
                for channel in (channel for channel in alike if channel in mine):
                    self._wait_until_free(builder, channel)
                self.ahead.update((channel, self.ahead[channel] + 1) for channel in alike)
                self._fold(builder, key)

    def _wait_until_free(self, builder: Builder, channel: Value) -> Value:
        """Wait until the next slot of a channel between roles is free; its index.

        Before a slot is filled for the first time, its mbarrier is in its first phase: the one before counts as over.
        """
        slot, phase = self._at(builder, channel, 0)
        other = builder.add(arith.XOrI(phase, constant(builder, 1)))
        builder.add(gpu.MbarrierWait(_of_slot(builder, self.empty[channel], slot), other))
        return slot

    def _wait(self, builder: Rewriter, op: gpu.ChannelWait) -> Value:
        channel, proof = op.channel, self.proofs[op.channel]
        slot, phase = self._at(builder, channel, 0)
        if channel in self.full:
            if op.predicate is not None:
                # The phase before has ended.
                zero, unit = constant(builder, 0), constant(builder, 1)
                none = builder.add(arith.Select(builder[op.predicate], zero, unit))
                phase = builder.add(arith.XOrI(phase, none))
            builder.add(gpu.MbarrierWait(_of_slot(builder, self.full[channel], slot), phase))
        elif proof.by_copies:
            builder.add(gpu.AsyncWait(self._later_groups(op.channel, proof.in_flight[op])))
            if any(ring in read_in_flight(reader) for ring in proof.op.rings for reader in proof.readers):
                # wgmma reads what this thread has copied, after the barrier that follows.
                builder.add(gpu.FenceAsync())
        self.ahead[channel] += 1
        return slot

    def _later_groups(self, channel: Value, in_flight: int) -> int:
        """The groups of copies after that of the oldest slot in flight. The channels of a loop commit one by one."""
        close = next(op for op in channel.uses if isinstance(op, gpu.ChannelClose))
        alike = [other for other in close.channels if self.proofs[other].by_copies]
        return in_flight * len(alike) - 1 - alike.index(channel)

    def _release(self, builder: Rewriter, op: gpu.ChannelRelease) -> None:
        """Tell the producer of a free slot. In one role, `barriers` orders its reads and the next load."""
        channel, proof = op.channel, self.proofs[op.channel]
        first, later = proof.frees(op)
        if channel not in self.empty or not (first or later):
            return
        condition = constant(builder, True, i1)
        if not first:
            loop = next(owner for owner in op.path() if isinstance(owner, scf.For))
            index, start = builder[loop.body.parameters[0]], builder[loop.start]
            condition = builder.add(arith.CmpI(index, start, arith.IntPredicate.NE))
        slot, _ = self._at(builder, channel, -op.held - 1)
        mbarrier, each_warp = _of_slot(builder, self.empty[channel], slot), proof.by_threads(scope_of(op))
        if each_warp and proof.by_tma:
            builder.add(gpu.FenceAsync())  # TMA fills the slot after these reads (see `barriers`).
        builder.add(gpu.MbarrierArrive(mbarrier, condition, each_warp=each_warp, ctas=proof.op.ctas))

    def _close(self, builder: Rewriter, op: gpu.ChannelClose) -> None:
        """Wait for the copies that are still in flight, whose iterations did not come, and give the memory of mbarriers
        back after the last wait of every thread."""
        full = [self.full[channel] for channel in op.channels if channel in self.full]
        if any(self.proofs[channel].by_copies for channel in op.channels):
            builder.add(gpu.AsyncWait(0))
        if full:
            builder.add(gpu.Barrier())
        for buffer in full:
            builder.add(gpu.MbarrierInval(buffer))

    # Control flow.

    def _role(self, builder: Rewriter, role: Body) -> Body:
        """A role, which counts for itself."""
        self.counts, self.ahead = dict.fromkeys(self.counts, _Count()), dict.fromkeys(self.ahead, 0)
        return builder.rewrite_body(role)

    def _advancing(self, op: Op) -> list[_Key]:
        """The counts that an op advances of channels from outside."""
        inside = list(op.walk())
        own = {other.result for other in inside if isinstance(other, gpu.Channel)}
        keys = [
            self.keys[other.channel]
            for other in inside
            if isinstance(other, gpu.ChannelWait)
            or (isinstance(other, gpu.ChannelAcquire) and self.proofs[other.channel].between_roles)
            if other.channel not in own
        ]
        return list(dict.fromkeys(keys))

    def _loop(self, builder: Rewriter, op: scf.For, keys: Sequence[_Key]) -> Value:
        """A loop that carries the counts, and the value that stands for its result."""
        count = len(op.initial)

        def body(inner: Rewriter, values: Sequence[Value]) -> Sequence[Value]:
            self._set(keys, values)
            inner.rewrite_ops(op.body.entry.ops[:-1])
            return self._values(inner, keys)

        initial = self._values(builder, keys)
        loop = carrying_loop(builder, op, range(count), initial, body, op.attributes)
        results = unpacked(builder, loop, count + len(initial))
        self._set(keys, results[count:])
        return results[0] if count == 1 else loop

    def _branch(self, builder: Rewriter, op: scf.If, condition: Value, keys: Sequence[_Key]) -> Value:
        """A branch that gives the counts that are used after it, and the value that stands for its result."""
        live = [key for key in keys if self._is_live(op, key)]
        for key in keys:
            self._fold(builder, key)
        before, bodies = dict(self.counts), list[Body]()
        for body in op.bodies:
            self.counts = dict(before)
            values = body.entry.terminator.operands
            inner = builder.inside([], scf.packed([*(value.type for value in values), *[i32] * self._size(live)]))
            inner.rewrite_ops(body.entry.ops[:-1])
            inner.add(scf.Yield([*(inner[value] for value in values), *self._values(inner, live)]))
            bodies.append(inner.finish())
            self.ahead.update((channel, 0) for channel, key in self.keys.items() if key in keys)
        branch = builder.add(scf.If(condition, *bodies), op.location)
        count = len(op.then.entry.terminator.operands)
        results = unpacked(builder, branch, count + self._size(live)) if live else []
        self._set(live, results[count:])
        return results[0] if live and count == 1 else branch

    def _is_live(self, op: Op, key: _Key) -> bool:
        """Whether a count is used after an op, or again in a loop around it."""
        here, channels = op, {channel: self.proofs[channel].op for channel, other in self.keys.items() if other == key}
        block = next(iter(channels.values())).parent
        while True:
            uses = (inner for later in here.later() for inner in later.walk() if isinstance(inner, gpu.ChannelOp))
            if any(inner.channel in channels for inner in uses):
                return True
            if here.parent is block or here.parent_op is None:
                return False
            here = here.parent_op
            if isinstance(here, Loop):
                return True

    # Counts.

    def _size(self, keys: Sequence[_Key]) -> int:
        return sum(2 if self._has_phase(key) else 1 for key in keys)

    def _has_phase(self, key: _Key) -> bool:
        return any(self.keys[channel] == key for channel in self.full)

    def _set(self, keys: Sequence[_Key], values: Sequence[Value]) -> None:
        """Set counts to the values that a loop or a branch gives."""
        rest = iter(values)
        for key in keys:
            self.counts[key] = _Count(*islice(rest, self._size([key])))
            self.ahead.update((channel, 0) for channel, other in self.keys.items() if other == key)

    def _values(self, builder: Builder, keys: Sequence[_Key]) -> list[Value]:
        """The counts as values."""
        values: list[Value] = []
        for key in keys:
            count = self._fold(builder, key)
            values += [_value(builder, number) for number in (count.slot, count.phase)[: self._size([key])]]
        return values

    def _fold(self, builder: Builder, key: _Key) -> _Count:
        """The count after the channels that it counts have advanced, all equally often."""
        channels = [channel for channel, other in self.keys.items() if other == key and channel in self.ahead]
        (ahead,) = {self.ahead[channel] for channel in channels}
        self.counts[key] = self._advanced(builder, key, ahead)
        self.ahead.update(dict.fromkeys(channels, 0))
        return self.counts[key]

    def _advanced(self, builder: Builder, key: _Key, by: int) -> _Count:
        count, stages, add = self.counts[key], _stages(key), builder.add
        if isinstance(count.slot, int) and isinstance(count.phase, int):
            slot = count.slot + by
            return _Count(slot % stages, (count.phase + slot // stages) % 2)
        for _ in range(by):
            assert isinstance(count.slot, Value)
            zero, unit = constant(builder, 0), constant(builder, 1)
            wraps = add(arith.CmpI(count.slot, constant(builder, stages - 1), arith.IntPredicate.EQ))
            slot, phase = add(arith.Select(wraps, zero, add(arith.AddI(count.slot, unit)))), count.phase
            if isinstance(phase, Value):
                phase = add(arith.XOrI(phase, add(arith.Select(wraps, unit, zero))))
            count = _Count(slot, phase)
        return count

    def _at(self, builder: Builder, channel: Value, by: int) -> tuple[Value, Value]:
        """The index of the slot that is `by` slots after the next one to advance to; and its phase, if `by` is 0."""
        key = self.keys[channel]
        count, stages, ahead = self.counts[key], _stages(key), self.ahead[channel]
        steps = by + ahead
        if not by or isinstance(count.slot, int) or steps % stages < 2:
            count = self._advanced(builder, key, steps if not by or isinstance(count.slot, int) else steps % stages)
        else:
            add, back = builder.add, -steps % stages
            if back == 1:
                wraps = add(arith.CmpI(count.slot, constant(builder, 0), arith.IntPredicate.EQ))
                around = constant(builder, stages - 1)
            else:
                wraps = add(arith.CmpI(count.slot, constant(builder, back), arith.IntPredicate.SLT))
                around = add(arith.AddI(count.slot, constant(builder, stages - back)))
            count = _Count(add(arith.Select(wraps, around, add(arith.SubI(count.slot, constant(builder, back))))))
        return _value(builder, count.slot), _value(builder, count.phase)


def _key(proof: ChannelProof) -> _Key:
    """A key that is equal for channels that advance equally often in the same blocks."""
    advancing = [*proof.waits, *(proof.acquires if proof.between_roles else ())]
    return proof.stages, proof.op.parent, *(op.parent for op in advancing)


def _stages(key: _Key) -> int:
    assert isinstance(key[0], int)
    return key[0]


def _mbarriers(builder: Builder, stages: int, arrivals: int) -> Value:
    """A buffer of mbarriers, one for each stage."""
    buffer = builder.add(gpu.LocalAlloc(SharedType((1,), i64, (), stages), alignment=8))
    builder.add(gpu.MbarrierInit(buffer, arrivals=arrivals))
    return buffer


def _value(builder: Builder, number: int | Value) -> Value:
    return constant(builder, number) if isinstance(number, int) else number


def _of_slot(builder: Builder, mbarriers: Value, slot: Value) -> Value:
    """The mbarrier of a slot."""
    return mbarriers if shared_of(mbarriers).count == 1 else builder.add(gpu.LocalView(mbarriers, slot))
