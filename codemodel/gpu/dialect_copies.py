"""The ops of the GPU dialect that copy while a kernel computes: cp.async, TMA, and their channels and mbarriers.

Programs take them from the module of the dialect, `gpu.TmaLoad`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.fields import attribute, operand, operands, result_type
from ziggurat.codemodel.gpu.asynchronous import Asynchronous, BufferOp, GroupWait
from ziggurat.codemodel.gpu.dialect_shared import buffer_of, laid_out, require_mbarriers
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite
from ziggurat.codemodel.types import DescriptorType, PtrType, TensorType, Type, channel, i1, i32, i64

__all__ = [
    "AcquireTensorMaps", "AsyncCommit", "AsyncCopy", "AsyncWait", "Channel", "ChannelAcquire", "ChannelClose",
    "ChannelCommit", "ChannelOp", "ChannelRelease", "ChannelWait", "MakeTensorMap", "MbarrierArrive", "MbarrierExpect",
    "MbarrierInit", "MbarrierInval", "MbarrierOp", "MbarrierWait", "Stage", "TmaCopy", "TmaLoad", "TmaStore",
    "TmaStoreWait"
]  # fmt: skip


# Asynchronous copies.


class AsyncCommit(Op, name="gpu.async_commit"):
    """cp.async.commit_group: the copies begun since the last commit form a group."""


class AsyncWait(Op, GroupWait, name="gpu.async_wait"):
    """cp.async.wait_group: wait until at most `pending` of this thread's groups are in flight."""

    pending: int = attribute(int, unnamed=True)


class AsyncCopy(Asynchronous, MemoryRead, MemoryWrite, name="gpu.async_copy"):
    """cp.async: begin to copy what the pointers point to into a buffer; where the mask is false, zeros.

    `width` is the number of consecutive registers whose pointers are adjacent, aligned and masked together, and whose
    elements are adjacent in the buffer: 4, 8 or 16 bytes.
    """

    WRITES, WAIT, COMMIT = ("buffer",), AsyncWait, AsyncCommit

    ptr: Value = operand()
    buffer: Value = operand()
    mask: Value | None = operand(default=None)
    width: int = attribute(int, default=1)

    def check(self) -> None:
        target = buffer_of(self, self.buffer)
        pointers = laid_out(self, self.ptr.type)
        good = isinstance(pointers.element, PtrType) and pointers.element.pointee == target.element
        require(good and pointers.shape == target.shape, f"gpu.async_copy of {pointers} to {target}")
        if self.mask is not None:
            expected = TensorType(pointers.shape, i1, pointers.layout)
            require(self.mask.type == expected, f"the mask of {self.NAME} must be {expected}; got {self.mask.type}")


# Channels: rings of slots that loads fill ahead of their readers (docs/design/009-channels-schedules-scopes.md).


class Channel(Op, name="gpu.channel"):
    """A channel whose slots are those of these rings, which all have the same number of buffers: its stages.

    The slots are acquired, filled, committed, waited for and released in the order of the ring, from the first on.

    Its scope is a CTA, or, with `ctas`, a cluster of so many: each of them has such rings, loads a part of some blocks
    into those of all, and fills a slot once all of them have released it.
    """

    rings: Sequence[Value] = operands()
    ctas: int = attribute(int, default=1)

    RESULT = channel

    def check(self) -> None:
        stages = {buffer_of(self, ring).count for ring in self.rings}
        require(len(stages) == 1, f"the rings of {self.NAME} must have one number of slots; got {sorted(stages)}")

    @property
    def stages(self) -> int:
        """The number of slots."""
        return buffer_of(self, self.rings[0]).count


class ChannelOp(Op):
    """An op on the next slot of a channel."""

    channel: Value = operand(type=channel)


class ChannelAcquire(ChannelOp, name="gpu.channel_acquire"):
    """The index of the next slot, once it is free. Where the predicate is false, no load fills it."""

    predicate: Value = operand(type=i1)

    RESULT = i32


class ChannelCommit(ChannelOp, name="gpu.channel_commit"):
    """All loads of the acquired slot have begun: one into each ring."""


class ChannelWait(ChannelOp, name="gpu.channel_wait"):
    """The index of the next committed slot, once its loads are complete. The slot is held from then on.

    The predicate is that of the slot's acquire, where a stage waits that runs ahead: there may be no such loads.
    """

    predicate: Value | None = operand(default=None)

    RESULT = i32


class ChannelRelease(ChannelOp, name="gpu.channel_release"):
    """All reads of the slots that are held are complete, except of the last `held`: the others are free."""

    held: int = attribute(int, default=0)


class ChannelClose(Op, name="gpu.channel_close"):
    """No slot of the channels is acquired any more. Those that are held can still be read."""

    channels: Sequence[Value] = operands()

    def check(self) -> None:
        require(all(value.type == channel for value in self.channels), f"{self.NAME} closes channels")


# Schedules.


class Stage(Op, name="gpu.stage"):
    """The ops of a loop's body from here to the next `gpu.stage`, or to the end, belong to this stage.

    The body means its iterations one after the other. `expand` lets them overlap: in each step of the new loop, the ops
    of stage s run for the iteration s steps before, stage by stage in the order of `order`. The loop counts the
    iterations of the stage of its `scf.yield`. The result says whether there is the iteration for which the ops run.
    """

    stage: int = attribute(int, unnamed=True)
    order: int = attribute(int, default=0)

    RESULT = i1


# Mbarriers: objects in shared memory that count arrivals and bytes, phase by phase.


class MbarrierOp(Op):
    """An op on mbarriers, which are its first operand."""


class MbarrierInit(MbarrierOp, name="gpu.mbarrier_init"):
    """mbarrier.init of all mbarriers of a buffer of i64, each for this number of arrivals a phase. One thread runs it.

    TMA sees them from then on; other threads do after a barrier.
    """

    buffer: Value = operand()
    arrivals: int = attribute(int)

    def check(self) -> None:
        require_mbarriers(self, self.buffer)


class MbarrierInval(MbarrierOp, name="gpu.mbarrier_inval"):
    """mbarrier.inval of all mbarriers of a buffer, which is ordinary memory from then on. One thread runs it."""

    buffer: Value = operand()

    def check(self) -> None:
        require_mbarriers(self, self.buffer)


class MbarrierExpect(MbarrierOp, name="gpu.mbarrier_expect"):
    """mbarrier.arrive.expect_tx: arrive, and end the phase only after so many bytes. One thread runs it."""

    barrier: Value = operand()
    predicate: Value | None = operand(default=None)
    bytes: int = attribute(int, kw_only=True)


class MbarrierArrive(MbarrierOp, name="gpu.mbarrier_arrive"):
    """mbarrier.arrive by one thread of each warp group of the scope, or of each warp after the others, where the
    condition holds: at this mbarrier, or at those in the same place of the `ctas` CTAs of the cluster."""

    barrier: Value = operand()
    predicate: Value = operand(type=i1)
    each_warp: bool = attribute(bool, default=False)
    ctas: int = attribute(int, default=1)


class MbarrierWait(MbarrierOp, name="gpu.mbarrier_wait"):
    """mbarrier.try_wait.parity until the phase of this parity has ended."""

    barrier: Value = operand()
    parity: Value = operand(type=i32)


class TmaCopy(Asynchronous, MemoryRead, MemoryWrite):
    """The op copies between a buffer and a block of a described tensor, in boxes; one thread begins it."""

    descriptor: Value = operand()
    buffer: Value = operand()

    @property
    def own_bytes(self) -> int:
        """The bytes of the block that this CTA copies."""
        return buffer_of(self, self.buffer).bytes

    def check(self) -> None:
        type_, shared = self.descriptor.type, buffer_of(self, self.buffer)
        good = (
            isinstance(type_, DescriptorType)
            and (shared.element, shared.count) == (type_.element, 1)
            and sorted(shared.shape) == sorted(type_.rows)
        )
        require(good, f"{self.NAME} moves blocks of a descriptor to a buffer of their size; got {type_} and {shared}")


class TmaLoad(TmaCopy, name="gpu.tma_load"):
    """cp.async.bulk.tensor: where the condition holds, begin to copy a block of a tensor into a buffer, in boxes.

    The mbarrier counts the bytes. One thread runs it. Before `lower_channels`, `barrier` is the channel of the buffer.

    With several `ctas`, those of the cluster load the same block together: the one of rank r loads part r of it, into
    the buffers in the same place of all of them, whose mbarriers count the bytes (`.multicast::cluster`).
    """

    WRITES, WAIT, MBARRIER, BY_PROXY = ("buffer",), MbarrierWait, "barrier", True

    barrier: Value = operand()
    predicate: Value = operand(type=i1)
    offsets: Sequence[Value] = operands()
    ctas: int = attribute(int, default=1)

    @property
    def own_bytes(self) -> int:
        return super().own_bytes // self.ctas  # The others of the cluster load the rest.

    @property
    def crosses_ctas(self) -> bool:
        return self.ctas > 1

    def check(self) -> None:
        super().check()
        assert isinstance(self.descriptor.type, DescriptorType)
        good = self.ctas in (1, self.descriptor.type.parts)
        require(good, f"{self.ctas} CTAs load blocks of so many parts together; got {self.descriptor.type}")
        if self.barrier.type != channel:
            require_mbarriers(self, self.barrier)


class TmaStoreWait(Op, GroupWait, name="gpu.tma_store_wait"):
    """cp.async.bulk.wait_group.read: wait until at most `pending` stores still read their buffers; or, without .read,
    until their blocks are `written` to memory."""

    pending: int = attribute(int, unnamed=True)
    written: bool = attribute(bool, default=False)


class TmaStore(TmaCopy, name="gpu.tma_store"):
    """cp.async.bulk.tensor: begin to copy a buffer to a block of a described tensor, in boxes; one thread.

    If it `adds`, each element is added to what is there, atomically (cp.reduce.async.bulk.tensor).
    """

    READS, WAIT, BY_PROXY = ("buffer",), TmaStoreWait, True

    offsets: Sequence[Value] = operands()
    adds: bool = attribute(bool, default=False)


class MakeTensorMap(BufferOp, MemoryRead, MemoryWrite, name="gpu.make_tensor_map"):
    """tensormap.replace, tensormap.cp_fenceproxy: make map number `index` of this program.

    Warp `warp` fills `buffer`, and copies that to the map's 128 bytes of `scratch`, the memory that the launch provides
    for this program. `gpu.acquire_tensor_maps` must come before its use. Nothing in flight may read the map that was
    there before. `shape` is i32; `strides`, in elements, are i64, and the last of them is 1.
    """

    WRITES = ("buffer",)

    buffer: Value = operand()
    scratch: Value = operand()
    base: Value = operand()
    shape: Sequence[Value] = operands(i32)
    strides: Sequence[Value] = operands(i64)
    type: Type = result_type()
    index: int = attribute(int, kw_only=True)
    warp: int = attribute(int, default=0)

    def check(self) -> None:
        type_ = self.type
        good = isinstance(type_, DescriptorType) and self.base.type == PtrType(type_.element)
        require(good, f"{self.NAME} of {self.base.type} gives {type_}")
        good = isinstance(type_, DescriptorType) and len(self.shape) == len(type_.block)
        require(good, f"{self.NAME} of {type_} takes a size and a stride for each axis")
        shared = buffer_of(self, self.buffer)
        require(shared.bytes == MAP_BYTES, f"the buffer of {self.NAME} must have {MAP_BYTES} bytes; got {shared}")
        require(isinstance(self.scratch.type, PtrType), f"the scratch of {self.NAME} must be a pointer")
        require(self.index >= 0, f"the index of {self.NAME} must not be negative")
        require(self.warp >= 0, f"the warp of {self.NAME} must not be negative")


class AcquireTensorMaps(Op, MemoryRead, MemoryWrite, name="gpu.acquire_tensor_maps"):
    """fence.proxy.tensormap: the elected thread may use these maps, which the kernel has made.

    A barrier must come before it for maps that another warp than that of the elected thread has made.
    """

    maps: Sequence[Value] = operands()

    def check(self) -> None:
        for map_ in self.maps:
            good = isinstance(map_.op, MakeTensorMap)
            require(good, f"{self.NAME} takes results of {MakeTensorMap.NAME}; got a {map_.type}")
