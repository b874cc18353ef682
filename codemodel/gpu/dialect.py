"""The GPU dialect: the ops of a Triton model after placement, when every tensor has a layout.

Tensors carry the layout in their type (`layout.py`), and the ops of arith, math, scf and tt work on them unchanged.
This dialect adds the machine: conversions between layouts, buffers in shared memory, asynchronous copies,
barriers, and the matrix units. Names of instructions are those of the PTX manual.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects.core import Unreachable
from ziggurat.codemodel.dialects.scf import Yield, packed
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.fields import attribute, bodies, body, operand, operands, result_type
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.gpu.scope import Scope, Scoped, check_roles, scopes_of_roles
from ziggurat.codemodel.layout import transposition
from ziggurat.codemodel.op import Body, Op, OpResult, Value, require
from ziggurat.codemodel.traits import Isolated, MemoryRead, MemoryWrite, Pure, SymbolTable
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    SharedType,
    TensorType,
    Type,
    channel,
    element_of,
    f32,
    i1,
    i32,
    i64,
    shape_of,
)


def laid_out(op: Op, type_: Type) -> TensorType:
    """A tensor type with a layout."""
    if not isinstance(type_, TensorType) or type_.layout is None:
        raise BuildError(f"{op.NAME}: the operand must be a tensor with a layout; got {type_}")
    return type_


def buffer_of(op: Op, value: Value) -> SharedType:
    """The type of a buffer in shared memory."""
    if not isinstance(value.type, SharedType):
        raise BuildError(f"{op.NAME}: the operand must be a buffer in shared memory; got {value.type}")
    return value.type


def _require_types(op: Op, **types: Type) -> None:
    """Check that the named operands have these types."""
    for name, type_ in types.items():
        found = getattr(op, name).type
        require(found == type_, f"operand '{name}' of {op.NAME} must be {type_}; got {found}")


def _require_mbarriers(op: Op, value: Value) -> None:
    require(buffer_of(op, value).element == i64, f"the mbarriers of {op.NAME} must be i64; got {value.type}")


class Module(Scoped, Isolated, SymbolTable, name="gpu.module"):
    """A kernel for a target such as "sm_90a", with `num_warps` warps a CTA and `shared` bytes of shared memory.

    If `scratch` is not 0, the last parameter of the kernel is a pointer to so many bytes of global memory for each
    program of the grid, which a launch provides. They are aligned to 128 bytes.
    """

    target: str = attribute(str)
    num_warps: int = attribute(int)
    body: Body = body(ends=Unreachable)
    shared: int = attribute(int, default=0)
    scratch: int = attribute(int, default=0)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return (Scope(0, self.num_warps),)

    def check_bodies(self) -> None:
        super().check_bodies()
        totals = [sum(op.warps) for op in self.walk() if isinstance(op, WarpSpecialize)]
        good = totals in ([], [self.num_warps])
        require(good, f"a kernel is split into roles once, with {self.num_warps} warps together; got {totals}")


# Layouts.


class ConvertLayout(Op, Pure, name="gpu.convert_layout"):
    """The same tensor held by other threads."""

    value: Value = operand()
    type: Type = result_type(follows="value")

    def check(self) -> None:
        source, target = laid_out(self, self.value.type), laid_out(self, self.type)
        require(source.without_layout() == target.without_layout(), f"gpu.convert_layout of {source} to {target}")


# Shared memory.


class LocalAlloc(Op, name="gpu.local_alloc"):
    """A buffer in shared memory, alive until its last use; `offset` is its place in bytes, -1 until allocation."""

    type: Type = result_type()
    offset: int = attribute(int, default=-1)
    alignment: int = attribute(int, default=16)

    def check(self) -> None:
        require(isinstance(self.type, SharedType), f"gpu.local_alloc gives a buffer; got {self.type}")


class LocalView(Op, Pure, name="gpu.local_view"):
    """One of the buffers of an allocation."""

    buffer: Value = operand()
    index: Value = operand()

    def infer_type(self) -> Type:
        type_ = buffer_of(self, self.buffer)
        _require_types(self, index=i32)
        return SharedType(type_.shape, type_.element, type_.offsets)


class LocalTrans(Op, Pure, name="gpu.local_trans"):
    """A buffer with its axes in another order: axis i is axis `order[i]` of `buffer`. No element moves."""

    buffer: Value = operand()
    order: Sequence[int] = attribute([int])

    def infer_type(self) -> Type:
        type_ = buffer_of(self, self.buffer)
        require(sorted(self.order) == list(range(len(type_.shape))), f"{self.order} is not an order of the axes")
        return transposed(type_, self.order)


def transposed(type_: SharedType, order: Sequence[int]) -> SharedType:
    """The type of a buffer whose axis i is axis `order[i]` of a buffer of `type_`, with the same memory."""
    renumbered = transposition(type_.shape, order)
    shape = tuple(type_.shape[axis] for axis in order)
    return SharedType(shape, type_.element, tuple(map(renumbered, type_.offsets)), type_.count)


class LocalLoad(Op, name="gpu.local_load"):
    """The tensor in a buffer, in the given layout."""

    buffer: Value = operand()
    type: Type = result_type(follows="buffer")

    def check(self) -> None:
        source, target = buffer_of(self, self.buffer), laid_out(self, self.type)
        require(source.shape == target.shape, f"gpu.local_load of {source} as {target}")


class LocalStore(Op, name="gpu.local_store"):
    """Write a tensor to a buffer."""

    buffer: Value = operand()
    value: Value = operand()

    def check(self) -> None:
        target, source = buffer_of(self, self.buffer), laid_out(self, self.value.type)
        require(source.shape == target.shape, f"gpu.local_store of {source} to {target}")


class LocalAtomicAdd(Op, name="gpu.local_atomic_add"):
    """Increment the counters of a buffer at the indices, where the mask holds: a histogram."""

    buffer: Value = operand()
    index: Value = operand()
    mask: Value | None = operand(default=None)

    def check(self) -> None:
        buffer_of(self, self.buffer)
        laid_out(self, self.index.type)


class LocalGather(Op, name="gpu.local_gather"):
    """For each element of `index`, the element at that index along `axis` of the tensor in a buffer."""

    buffer: Value = operand()
    index: Value = operand()
    axis: int = attribute(int)

    def infer_type(self) -> Type:
        index = laid_out(self, self.index.type)
        return TensorType(index.shape, buffer_of(self, self.buffer).element, index.layout)

    def check(self) -> None:
        source, index = buffer_of(self, self.buffer).shape, laid_out(self, self.index.type).shape
        others = all(a == b for i, (a, b) in enumerate(zip(source, index, strict=False)) if i != self.axis)
        good = len(source) == len(index) and 0 <= self.axis < len(index) and others
        require(good, f"gpu.local_gather from {self.buffer.type} by {self.index.type} along axis {self.axis}")


# Barriers.


class Barrier(Op, name="gpu.barrier"):
    """bar.sync: a barrier of all threads of the scope, after which they see each other's writes to shared memory."""


class FenceAsync(Op, name="gpu.fence_async"):
    """fence.proxy.async: TMA and the matrix units see this thread's earlier writes to shared memory."""


# Clusters of CTAs: a program whose function has `num_ctas` (docs/design/010-clusters.md).


class ClusterRank(Op, Pure, name="gpu.cluster_rank"):
    """The number of this CTA in its cluster: PTX's `%cluster_ctarank`, an i32."""

    def infer_type(self) -> Type:
        return i32


class ClusterGather(Op, name="gpu.cluster_gather"):
    """The values that the CTAs of the cluster have, each along a new last axis: that of rank r is at r, in all of them.
    The result is packed."""

    values: Sequence[Value] = operands()
    ctas: int = attribute(int, unnamed=True)

    def infer_type(self) -> Type:
        require(bool(self.values), f"{self.NAME} takes at least one value")
        return packed([self._gathered(value.type) for value in self.values])

    def _gathered(self, type_: Type) -> Type:
        element = element_of(type_)
        require(isinstance(element, ScalarType), f"{self.NAME} takes numbers; got {type_}")
        assert isinstance(element, ScalarType)
        return TensorType((*shape_of(type_), self.ctas), element)


class ClusterStore(Op, name="gpu.cluster_store"):
    """st.async: begin to write a value to its place along the last axis of a buffer, in every CTA of the cluster.

    All CTAs must have started. The mbarrier of each CTA counts the bytes that its buffer gets.
    """

    buffer: Value = operand()
    barrier: Value = operand()
    value: Value = operand()

    def check(self) -> None:
        _require_mbarriers(self, self.barrier)
        target, value = buffer_of(self, self.buffer), self.value.type
        good = target.shape[:-1] == shape_of(value) and target.element == element_of(value)
        require(good, f"{self.NAME} of {value} to {target}")


class ClusterBarrier(Op, MemoryRead, MemoryWrite, name="gpu.cluster_barrier"):
    """barrier.cluster: a barrier of all threads of the cluster, after which they see each other's writes."""


class ClusterArrive(Op, name="gpu.cluster_arrive"):
    """barrier.cluster.arrive: this CTA has started, and initialised its mbarriers; other CTAs may arrive at these."""


class ClusterWait(Op, name="gpu.cluster_wait"):
    """barrier.cluster.wait: wait until all CTAs of the cluster have arrived at `gpu.cluster_arrive`."""


# Asynchronous copies.


class AsyncCopy(Op, MemoryRead, MemoryWrite, name="gpu.async_copy"):
    """cp.async: begin to copy what the pointers point to into a buffer; where the mask is false, zeros.

    `width` is the number of consecutive registers whose pointers are adjacent, aligned and masked together, and whose
    elements are adjacent in the buffer: 4, 8 or 16 bytes.
    """

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
            _require_types(self, mask=TensorType(pointers.shape, i1, pointers.layout))


class AsyncCommit(Op, name="gpu.async_commit"):
    """cp.async.commit_group: the copies begun since the last commit form a group."""


class AsyncWait(Op, name="gpu.async_wait"):
    """cp.async.wait_group: wait until at most `pending` of this thread's groups are in flight."""

    pending: int = attribute(int, unnamed=True)


# Channels: rings of slots that loads fill ahead of their readers (docs/design/009-channels-schedules-scopes.md).


class Channel(Op, name="gpu.channel"):
    """A channel whose slots are those of these rings, which all have the same number of buffers: its stages.

    The slots are acquired, filled, committed, waited for and released in the order of the ring, from the first on.
    """

    rings: Sequence[Value] = operands()

    def infer_type(self) -> Type:
        return channel

    def check(self) -> None:
        stages = {buffer_of(self, ring).count for ring in self.rings}
        require(len(stages) == 1, f"the rings of {self.NAME} must have one number of slots; got {sorted(stages)}")

    @property
    def stages(self) -> int:
        """The number of slots."""
        return buffer_of(self, self.rings[0]).count


class ChannelOp(Op):
    """An op on the next slot of a channel."""

    channel: Value = operand()

    def check(self) -> None:
        _require_types(self, channel=channel)


class ChannelAcquire(ChannelOp, name="gpu.channel_acquire"):
    """The index of the next slot, once it is free. Where the predicate is false, no load fills it."""

    predicate: Value = operand()

    def infer_type(self) -> Type:
        return i32

    def check(self) -> None:
        _require_types(self, channel=channel, predicate=i1)


class ChannelCommit(ChannelOp, name="gpu.channel_commit"):
    """All loads of the acquired slot have begun: one into each ring."""


class ChannelWait(ChannelOp, name="gpu.channel_wait"):
    """The index of the next committed slot, once its loads are complete. The slot is held from then on.

    The predicate is that of the slot's acquire, where a stage waits that runs ahead: there may be no such loads.
    """

    predicate: Value | None = operand(default=None)

    def infer_type(self) -> Type:
        return i32


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

    def infer_type(self) -> Type:
        return i1


# Mbarriers: objects in shared memory that count arrivals and bytes, phase by phase.


class MbarrierInit(Op, name="gpu.mbarrier_init"):
    """mbarrier.init of all mbarriers of a buffer of i64, each for this number of arrivals a phase. One thread runs it.

    TMA sees them from then on; other threads do after a barrier.
    """

    buffer: Value = operand()
    arrivals: int = attribute(int)

    def check(self) -> None:
        _require_mbarriers(self, self.buffer)


class MbarrierInval(Op, name="gpu.mbarrier_inval"):
    """mbarrier.inval of all mbarriers of a buffer, which is ordinary memory from then on. One thread runs it."""

    buffer: Value = operand()

    def check(self) -> None:
        _require_mbarriers(self, self.buffer)


class MbarrierExpect(Op, name="gpu.mbarrier_expect"):
    """mbarrier.arrive.expect_tx: arrive, and end the phase only after so many bytes. One thread runs it."""

    barrier: Value = operand()
    predicate: Value | None = operand(default=None)
    bytes: int = attribute(int, kw_only=True)


class MbarrierArrive(Op, name="gpu.mbarrier_arrive"):
    """mbarrier.arrive by one thread of each warp group of the scope, or of each warp after the others, where the
    condition holds."""

    barrier: Value = operand()
    predicate: Value = operand()
    each_warp: bool = attribute(bool, default=False)

    def check(self) -> None:
        _require_types(self, predicate=i1)


class MbarrierWait(Op, name="gpu.mbarrier_wait"):
    """mbarrier.try_wait.parity until the phase of this parity has ended."""

    barrier: Value = operand()
    parity: Value = operand()

    def check(self) -> None:
        _require_types(self, parity=i32)


class TmaLoad(Op, MemoryRead, MemoryWrite, name="gpu.tma_load"):
    """cp.async.bulk.tensor: where the condition holds, begin to copy a block of a tensor into a buffer, in boxes.

    The mbarrier counts the bytes. One thread runs it. Before `lower_channels`, `barrier` is the channel of the buffer.
    """

    descriptor: Value = operand()
    buffer: Value = operand()
    barrier: Value = operand()
    predicate: Value = operand()
    offsets: Sequence[Value] = operands()

    def check(self) -> None:
        _boxed(self, self.descriptor, self.buffer)
        if self.barrier.type != channel:
            _require_mbarriers(self, self.barrier)
        _require_types(self, predicate=i1)


class TmaStore(Op, MemoryRead, MemoryWrite, name="gpu.tma_store"):
    """cp.async.bulk.tensor: begin to copy a buffer to a block of a described tensor, in boxes; one thread.

    If it `adds`, each element is added to what is there, atomically (cp.reduce.async.bulk.tensor).
    """

    descriptor: Value = operand()
    buffer: Value = operand()
    offsets: Sequence[Value] = operands()
    adds: bool = attribute(bool, default=False)

    def check(self) -> None:
        _boxed(self, self.descriptor, self.buffer)


def _boxed(op: Op, descriptor: Value, buffer: Value) -> None:
    """Check that a buffer fits the blocks of a descriptor; its axes may be in another order."""
    type_, shared = descriptor.type, buffer_of(op, buffer)
    good = (
        isinstance(type_, DescriptorType)
        and (shared.element, shared.count) == (type_.element, 1)
        and sorted(shared.shape) == sorted(type_.block)
    )
    require(good, f"{op.NAME} moves blocks of a descriptor to a buffer of their size; got {type_} and {shared}")


class TmaStoreWait(Op, name="gpu.tma_store_wait"):
    """cp.async.bulk.wait_group.read: wait until at most `pending` stores still read their buffers."""

    pending: int = attribute(int, unnamed=True)


class MakeTensorMap(Op, MemoryRead, MemoryWrite, name="gpu.make_tensor_map"):
    """tensormap.replace, tensormap.cp_fenceproxy: make map number `index` of this program.

    Warp `warp` fills `buffer`, and copies that to the map's 128 bytes of `scratch`, the memory that the launch provides
    for this program. `gpu.acquire_tensor_maps` must come before its use. Nothing in flight may read the map that was
    there before. `shape` is i32; `strides`, in elements, are i64, and the last of them is 1.
    """

    buffer: Value = operand()
    scratch: Value = operand()
    base: Value = operand()
    shape: Sequence[Value] = operands()
    strides: Sequence[Value] = operands()
    type: Type = result_type()
    index: int = attribute(int, kw_only=True)
    warp: int = attribute(int, default=0)

    def check(self) -> None:
        type_, rank = self.type, len(self.shape)
        good = isinstance(type_, DescriptorType) and self.base.type == PtrType(type_.element)
        require(good, f"{self.NAME} of {self.base.type} gives {type_}")
        good = isinstance(type_, DescriptorType) and rank == len(self.strides) == len(type_.block)
        require(good, f"{self.NAME} of {type_} takes a size and a stride for each axis")
        good = all(value.type == i32 for value in self.shape) and all(value.type == i64 for value in self.strides)
        require(good, f"the sizes of {self.NAME} must be i32, and its strides i64")
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
        for made in self.maps:
            good = isinstance(made, OpResult) and isinstance(made.op, MakeTensorMap)
            require(good, f"{self.NAME} takes results of {MakeTensorMap.NAME}; got a {made.type}")


# Matrix units.


class MatrixProduct(Op):
    """a · b + c, in the layout of c."""

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()

    def infer_type(self) -> Type:
        return laid_out(self, self.c.type)

    def check(self) -> None:
        buffer_of(self, self.b)


class Wgmma(MatrixProduct, name="gpu.wgmma"):
    """wgmma.mma_async: begin a · b + c. `a` is a buffer or a tensor in the layout of an operand; `b` is a buffer.

    The layout of c may say that the transposed product is computed, and that threads read its first operand from the
    buffer, whose neighbours are not along k (`Warps`). Before that, they wait for all groups but the last one.

    The result is complete after a `gpu.wgmma_wait` of it; until then only another wgmma may use it, as its c.
    `within` is the part along k that is multiplied, its start and end; all of it where there is none.
    """

    accumulate: bool = attribute(bool, default=True)
    within: Sequence[int] = attribute([int], default=())


class WgmmaWait(Op, name="gpu.wgmma_wait"):
    """wgmma.wait_group: the value, after at most `pending` groups are in flight."""

    value: Value = operand()
    pending: int = attribute(int, unnamed=True)

    def infer_type(self) -> Type:
        return self.value.type


class Rescale(Op, Pure, name="gpu.rescale"):
    """The product of a tensor of f32 and factors that are often 1: a thread skips multiplications by 1."""

    value: Value = operand()
    factor: Value = operand()

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        require(
            laid_out(self, self.value.type).element == f32 and self.factor.type == self.value.type,
            f"gpu.rescale: both must be f32, of one type; got {self.value.type} and {self.factor.type}",
        )


class Keep(Op, name="gpu.keep"):
    """Nothing, but the registers of a tensor are read here: no assembler gives them to other values before."""

    value: Value = operand()


class RoundTf32(Op, Pure, name="gpu.round_tf32"):
    """cvt.rna.tf32: f32 rounded to the 10 mantissa bits that the matrix units read."""

    value: Value = operand()

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        require(
            laid_out(self, self.value.type).element == f32,
            f"gpu.round_tf32: the operand must be f32; got {self.value.type}",
        )


class Mma(MatrixProduct, name="gpu.mma"):
    """mma.sync: a · b + c, also of batches. `a` is a buffer, or a tensor laid out as an operand; `b` is a buffer."""


class DotFma(MatrixProduct, name="gpu.dot_fma"):
    """a · b + c without matrix units, for matrices or batches: `a` and `b` are buffers of elements of the type of c."""

    def check(self) -> None:
        a, b, c = buffer_of(self, self.a), buffer_of(self, self.b), laid_out(self, self.c.type)
        good = (
            a.element == b.element == c.element
            and len(a.shape) == len(b.shape) == c.rank >= 2
            and a.shape[:-2] == b.shape[:-2] == c.shape[:-2]
            and a.shape[-1] == b.shape[-2]
            and c.shape[-2:] == (a.shape[-2], b.shape[-1])
        )
        require(good, f"gpu.dot_fma of {a} and {b} to {c}")


class WarpSpecialize(Scoped, name="gpu.warp_specialize"):
    """Run the bodies side by side, each on its own warps, which follow each other.

    Role i has `warps[i]` warps, which are whole warp groups, with `registers[i]` registers a thread, and the named
    barrier `barriers[i]`. A role whose barrier is 0 has none: only its first warp runs the body, and the others give
    back their registers. A kernel has at most one such op, before its return.
    """

    roles: Sequence[Body] = bodies(ends=Yield)
    warps: Sequence[int] = attribute([int])
    registers: Sequence[int] = attribute([int])
    barriers: Sequence[int] = attribute([int])

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return scopes_of_roles(self.warps, self.registers, self.barriers)

    def check(self) -> None:
        check_roles(self.warps, self.registers, self.barriers, len(self.roles))

    def check_bodies(self) -> None:
        super().check_bodies()
        for role, barrier in zip(self.roles, self.barriers, strict=True):
            met = any(isinstance(inner, Barrier) for op in role.entry.ops for inner in op.walk())
            require(barrier > 0 or not met, "a role with barrier 0 has one running warp, and no barrier")
