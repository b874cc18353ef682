"""TMA, the bulk copies of tensors: which accesses through descriptors it does, and how.

    %9 : tensor<x128, x64, f16, L> =          %9 : shared<x128, x64, f16, …> = gpu.local_alloc @alignment=1024;
        tt.descriptor_load %0 %7 %8;          %10 : channel = gpu.channel %9;
    %10 : shared<…> = gpu.local_alloc;        gpu.channel_acquire %10 %true;
    gpu.local_store %10 %9;            becomes gpu.tma_load %0 %9 %10 %true %7 %8;
    %11 : tensor<…> = gpu.wgmma %10 …;        gpu.channel_commit %10; gpu.channel_wait %10;
                                              gpu.channel_close %10;
                                              %11 : tensor<…> = gpu.wgmma %9 …;

A store, or a block that is added to memory, goes through a buffer as well, which TMA then reads. `copies` does
loads in loops.

TMA moves blocks of two to five axes between tensors and buffers, which are matrices in its own swizzled form: of more
than two axes, those that a reshape joins but for the last (`by_rows`). wgmma and ldmatrix read that form: so it
does stores, loads that only feed matrix units, and loads of other loops that ask for stages (`latency`). It writes
16 bytes at a time: the first column of a store must be a multiple of 16 bytes, and so must a row of the tensor. (For
rows that are not, an H200 wrote zeros after them; for other columns it reported an illegal instruction.) All other
accesses through descriptors are done with pointers (`descriptors`).

TMA reads and writes global memory by a proxy of its own. What other threads have released to an acquire of this kernel,
or what it has written before a barrier, TMA reads after a fence; and its stores are written before a release or a
barrier (PTX manual, "Async proxy": "accessing the same memory location across multiple proxies needs a cross-proxy
fence"; the completion of a store has one, without .read):

    %7 = tt.atomic_rmw %flag …;                        gpu.fence_global; %7 = tt.atomic_rmw %flag …;
    %8 = tt.descriptor_load …;                         gpu.barrier; gpu.fence_global;
                                            becomes    … gpu.tma_load …
    tt.descriptor_store …;                             … gpu.tma_store …; gpu.tma_store_wait @0;
    tt.atomic_rmw %flag … @sem=release;                gpu.tma_store_wait @0 @written=true; tt.atomic_rmw %flag …;

The descriptor is a parameter of the kernel, one that the launch makes (`raise_pointers`), or one that the kernel makes
(`tensor_maps`). Making a tensor map takes about as long as a load, so TMA does only accesses in loops that the
descriptor is made before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import UnionType

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import BlockParameter, Op, Value, expect
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import bf16, f16, f32, i1, shape_of
from ziggurat.transforms.analysis.axis_info import AxisInfo, analyse
from ziggurat.transforms.analysis.components import Component, component_of
from ziggurat.transforms.analysis.memory_order import ATOMICS, MemoryOrder, Origins, acquires, may_order, releases
from ziggurat.transforms.analysis.obstacle import Obstacle, warn_of
from ziggurat.transforms.analysis.queries import (
    constant,
    descriptor_of,
    feeds_dot,
    function_of,
    is_contiguous,
    loops_around,
    shared_of,
    tensor_of,
)
from ziggurat.transforms.gpu.dots import MmaChoice, MmaSync, Wgmma, is_chained, mma_of
from ziggurat.transforms.gpu.store_order import store_order
from ziggurat.transforms.layouts.tma_blocks import (
    before_transposition,
    block_axis,
    buffer_for,
    is_filled_by_tma,
    panels_of_block,
)
from ziggurat.transforms.simplify import dce

_UNIT = 16  # Bytes that TMA writes at once.

Access = tt.DescriptorLoad | tt.DescriptorStore | tt.DescriptorReduce
_Stored = tt.DescriptorStore | tt.DescriptorReduce
_Read = tt.DescriptorLoad | tt.DescriptorGather
_Write = tt.DescriptorStore | tt.DescriptorScatter | tt.DescriptorReduce


# The accesses that TMA does.


def by_rows(module: core.Module) -> core.Module:
    """The module in which blocks of more than two axes are loaded and stored as the matrices to which reshapes join
    them, all axes but the last."""

    def is_matrix(op: Op | None, descriptor: Value) -> bool:
        type_ = descriptor_of(descriptor)
        if not isinstance(op, tt.Reshape) or op.allow_reorder or len(type_.block) <= 2:
            return False
        return {shape_of(op.value.type), shape_of(op.result.type)} == {type_.block, type_.rows}

    def loads(op: Op) -> bool:
        uses = op.result.uses if isinstance(op, tt.DescriptorLoad) else ()
        return bool(uses) and all(is_matrix(user, op.operands[0]) for user in uses)

    def joined(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.DescriptorLoad) and loads(op):
            return builder.add(
                tt.DescriptorLoad(operands[0], operands[1:], cache=op.cache, eviction=op.eviction, by_rows=True)
            )
        if isinstance(op, tt.Reshape) and op.value.op is not None and loads(op.value.op):
            return operands[0]
        if isinstance(op, tt.DescriptorStore) and is_matrix(reshape := op.value.op, op.descriptor):
            return builder.add(
                tt.DescriptorStore(operands[0], builder[expect(reshape, tt.Reshape).value], operands[2:])
            )
        return None

    if not module.holds(tt.Reshape):
        return module
    return expect(dce(transform(module, joined, pass_name="descriptors")), core.Module)


def tma_accesses(
    module: core.Module, target: str, num_warps: int, launch_pdl: bool = False, roles: bool = False
) -> dict[Value, bool]:
    """The results of the loads and stores of a prepared module that TMA does.

    The value is true for a store that TMA does only where the rows of the tensor turn out to be multiples of 16 bytes.
    A warning says why TMA does not do a store, a sum in memory, or a load for a dot. With `launch_pdl` the memory for
    tensor maps may still be in use by the launch before, so that the kernel makes none. With `roles`, loads may be in
    another one than what orders them.
    """
    decisions: dict[Value, bool] = {}
    for op, decision in tma_decisions(module, target, num_warps, launch_pdl, roles).items():
        if isinstance(decision, bool):
            decisions[op] = decision
        elif isinstance(decision[0], _Stored) or feeds_dot(op):
            warn_of("the block is moved through pointers, not by TMA", *decision)
    return decisions


def tma_decisions(
    module: core.Module, target: str, num_warps: int, launch_pdl: bool = False, roles: bool = False
) -> dict[Value, bool | tuple[Access, Obstacle]]:
    """The accesses as in `tma_accesses`, and those that TMA does not do, with the obstacle."""
    func = function_of(module)
    ops = [op for op in func.walk() if isinstance(op, _Read | _Write)]
    accesses = [op for op in ops if isinstance(op, Access)]
    if not accesses or not TARGETS[target].has_tma:
        return {}
    order: dict[Op, int] = {op: at for at, op in enumerate(func.walk())}
    # A load that has to see a store through pointers comes after a barrier as well.
    ordering = [op for op in module.walk() if may_order(op)]
    memory = MemoryOrder(func)
    roles = roles or any(isinstance(op, scf.For) and op.warp_specialize for op in func.walk())

    def origins(kind: type[Op] | UnionType) -> Origins:
        return frozenset[Component]().union(*(own[op] for op in ops if isinstance(op, kind)))

    own = {op: memory.origins(op.descriptor) for op in ops}
    both = origins(tt.DescriptorLoad) & origins(tt.DescriptorStore)
    # Sums need no order among themselves.
    rows = origins(tt.DescriptorGather | tt.DescriptorScatter)
    others = {True: rows | origins(tt.DescriptorLoad | tt.DescriptorStore), False: rows | origins(tt.DescriptorReduce)}
    infos: Mapping[Component, AxisInfo] = {}
    choice = partial(mma_of, target=target, num_warps=num_warps, rows_first=is_chained(module), inner=block_axis)
    decisions: dict[Value, bool | tuple[Access, Obstacle]] = {}
    for op in accesses:
        obstacle: Obstacle | None = None
        loads = isinstance(op, _Read)
        between = (op_ for op_ in ordering if memory.keeps_order(op_, [op.descriptor], before=not loads, after=loads))
        between = (op_ for op_ in between if _is_ordered(op, op_, order))
        between = next((op_ for op_ in between if roles or not _may_fence(op, op_)), None)
        if (without := _no_map(op, func, target)) is not None:
            obstacle = without
        elif between is not None:
            does, when = ("loads", "before") if loads else ("stores", "after")
            why = f"an atomic or a debug_barrier may run {when} it, and orders no {does} of TMA"
            if isinstance(between, ATOMICS) and between.order is not tt.MemSemantic.RELAXED:
                why += '; with sem="relaxed", an atomic in other memory orders nothing'
            obstacle = Obstacle(why, between)
        elif own[op] & both:
            obstacle = Obstacle("the kernel loads and stores through the same descriptor, or the same base", op)
        elif own[op] & others[isinstance(op, tt.DescriptorReduce)]:
            why = "the kernel moves rows or combines blocks through the same descriptor, or the same base"
            obstacle = Obstacle(why, op)
        elif launch_pdl and made_by(op.descriptor) is not None:
            obstacle = Obstacle("with launch_pdl, the launch before may still use the memory of the tensor map", op)
        elif isinstance(op, tt.DescriptorReduce) and not _adds(op):
            obstacle = Obstacle("TMA adds f16, bf16, f32 and integers of 32 bits only", op)
        elif not _is_movable(op):
            why = "a block must have two axes, or be joined to rows by a reshape, and 8 rows or more"
            obstacle = Obstacle(f"{why}, each of 32, 64, or a multiple of 128 bytes, and padding of floats", op)
        elif (
            isinstance(op, tt.DescriptorLoad)
            and not _begins_ahead(op)
            and not _feeds_mma(op, op.result, (0, 1), choice)
        ):
            obstacle = Obstacle("the block is not read by matrix units alone, in the form that TMA gives it", op)
        else:
            infos = infos or analyse(func)
            obstacle = _uneven(op, func, infos)
        if obstacle is not None:
            decisions[op.result] = op, obstacle
        else:
            decisions[op.result] = isinstance(op, tt.DescriptorStore) and not _has_whole_rows(op, func, infos)
    return decisions


def _no_map(op: Access, func: tt.Func, target: str) -> Obstacle | None:
    """The obstacle if there is no tensor map for an access: it needs a parameter, a descriptor that the launch
    makes, or one that is made before a loop around it."""
    if op.descriptor in func.body.parameters:
        return None
    maker = made_by(op.descriptor)
    if maker is None:
        return Obstacle("control flow chooses the descriptor, and one of several is a parameter, or jumps do", op)
    if maker.at_launch:
        return None
    if func.num_ctas > 1:
        return Obstacle("the CTAs of a cluster make no tensor maps: they have the memory for them together", maker)
    if not TARGETS[target].makes_tensor_maps:
        return Obstacle(f"kernels for {target} make no tensor maps, as those for {target}a do", maker)
    if not loops_around(op) - loops_around(maker):
        why = "making a tensor map takes as long as an access, so the descriptor must be made before a loop around it"
        return Obstacle(why, maker)
    return None


def _is_ordered(op: Op, ordering: Op, order: Mapping[Op, int]) -> bool:
    """Whether an atomic or a barrier may order an access: it runs before a load, or after a store.

    A CTA that sees the atomic of another one may load what that has stored.
    """
    if ordering not in order or loops_around(op) & loops_around(ordering):
        return True
    first, second = (ordering, op) if isinstance(op, _Read | gpu.TmaLoad) else (op, ordering)
    return order[first] < order[second]


def _may_fence(op: Access, ordering: Op) -> bool:
    """Whether a fence, or a wait, puts an access in the order that an atomic or a barrier asks for.

    In a loop with loads that would be one in each iteration, and no load begins ahead. An atomic that acquires nothing
    orders only accesses of its own memory, which a fence after it lets TMA read.
    """
    if not isinstance(op, _Read):
        return releases(ordering)
    loop = next((owner for owner in op.path() if isinstance(owner, Loop)), None)
    return (acquires(ordering) or isinstance(ordering, ATOMICS)) and (loop is None or loop not in ordering.path())


def made_by(descriptor: Value) -> tt.MakeTensorDescriptor | None:
    """The op of the kernel that makes a descriptor; None for one that is a parameter, or that control flow passes."""
    op = descriptor.op
    return op if isinstance(op, tt.MakeTensorDescriptor) else None


def aliasing(module: core.Module, by_tma: Collection[Value]) -> tuple[int, ...]:
    """The pairs of descriptor parameters, one after the other, that must not describe the same memory.

    The kernel stores through the first of a pair and may load through the second afterwards, and TMA does one of the
    two: nothing orders them.
    """
    func = function_of(module)
    parameters = func.body.parameters
    ops = [op for op in func.walk() if isinstance(op, _Read | _Write) and op.descriptor in parameters]
    pairs: dict[tuple[int, int], None] = {}
    for at, store in enumerate(ops):
        for after, load in enumerate(ops):
            if not isinstance(store, _Write) or not isinstance(load, _Read):
                continue
            assert isinstance(store.descriptor, BlockParameter) and isinstance(load.descriptor, BlockParameter)
            if store.descriptor is load.descriptor or not (store.result in by_tma or load.result in by_tma):
                continue
            if at < after or loops_around(store) & loops_around(load):
                pairs[store.descriptor.index, load.descriptor.index] = None
    return tuple(number for pair in pairs for number in pair)


def _uneven(op: Access, func: tt.Func, infos: Mapping[Component, AxisInfo]) -> Obstacle | None:
    """The obstacle if the first column of a block is no multiple of 16 bytes, or a row of a stored tensor that is a
    parameter. (For a tensor that the kernel describes, the kernel can find out.)"""
    has_maker = isinstance(op, tt.DescriptorStore) and made_by(op.descriptor) is not None and len(op.offsets) == 2
    if isinstance(op, _Stored) and not has_maker and not _has_whole_rows(op, func, infos):
        return Obstacle("the rows of the tensor are not known to be multiples of 16 bytes", op)
    if _divisor(op.offsets[-1], infos) * descriptor_of(op.descriptor).element.bytes % _UNIT:
        return Obstacle("the first column is not known to be a multiple of 16 bytes", op)
    return None


def _adds(op: tt.DescriptorReduce) -> bool:
    """Whether TMA can combine a block with what is there."""
    element = descriptor_of(op.descriptor).element
    kinds = (tt.AtomicKind.FADD, tt.AtomicKind.ADD)
    return op.kind in kinds and (element in (f16, bf16, f32) or (element.is_int and element.bits == 32))


def _has_whole_rows(op: Access, func: tt.Func, infos: Mapping[Component, AxisInfo]) -> bool:
    """Whether the rows of the tensor are known to be multiples of 16 bytes."""
    maker, size = made_by(op.descriptor), descriptor_of(op.descriptor).element.bytes
    if maker is None:
        divisors: dict[Value, int] = dict(zip(func.body.parameters, func.divisibility, strict=False))
        return divisors.get(op.descriptor, 1) % _UNIT == 0
    return is_contiguous(maker) or _divisor(maker.shape[-1], infos) * size % _UNIT == 0


def _divisor(value: Value, infos: Mapping[Component, AxisInfo]) -> int:
    """A number that is known to divide an integer."""
    info = infos.get(component_of(value))
    return 1 if info is None else info.everywhere


def _is_movable(op: Access) -> bool:
    """Whether a block is a matrix that lies in shared memory swizzled, and TMA can fill its padding."""
    type_ = descriptor_of(op.descriptor)
    # TMA takes elements of 8 bits for bytes, and fills with NaN only elements that it knows as floats.
    fillable = type_.padding == "zero" or type_.element.bits > 8
    matrix = op.value if isinstance(op, _Stored) else op.result
    # Of more axes, a box has all rows.
    is_matrix = tensor_of(matrix).rank == 2 and (len(type_.block) == 2 or max(type_.block[:-1]) <= 256)
    return type_.element != i1 and fillable and is_matrix and panels_of_block(type_) is not None


def _begins_ahead(load: tt.DescriptorLoad) -> bool:
    """Whether a load is in a loop without dots that asks for stages: threads read what TMA copies (`latency`)."""
    loop = load.parent_op
    if not isinstance(loop, scf.For) or (loop.num_stages or 0) < 2:
        return False
    return not loop.holds(tt.Dot)


def _feeds_mma(
    load: tt.DescriptorLoad, value: Value, order: tuple[int, int], choice: Callable[[tt.Dot], MmaChoice]
) -> bool:
    """Whether only matrix units read a block, in the form in which TMA loads it.

    `value` is the block of `load`, or that block transposed; `order` has the axis of the block for each of its axes.
    """
    type_ = descriptor_of(load.descriptor)
    for user in value.uses:
        if isinstance(user, tt.Trans):
            transposed = (order[user.order[0]], order[user.order[1]])
            if not _feeds_mma(load, user.result, transposed, choice):
                return False
            continue
        if not isinstance(user, tt.Dot) or value is user.c or user.a is user.b:
            return False
        mma = choice(user)
        if not isinstance(mma, MmaSync) or not mma.by_rows:
            return False
        if mma.elements[0 if value is user.a else 1] != type_.element:
            return False
        # Neighbours in memory go along k; or along m or n, for elements of 16 bits and an operand that threads read.
        k_axis = 1 if value is user.a else 0
        k_major, read = order[k_axis] == 1, False
        if isinstance(mma, Wgmma) and mma.warps.paired:
            other = block_axis(user.b if value is user.a else user.a)
            # Of 8 bits, both may: threads read one of them, and turn the other.
            of_bytes = type_.element.bytes == 1 and other is not None
            read = of_bytes or (mma.warps.swapped == (value is user.b) and other == 1 - k_axis)
        shape = (type_.rows[order[0]], type_.rows[order[1]])
        panels = panels_of_block(type_)
        assert panels is not None
        lines = shape[1 - k_axis]
        wide = shape[k_axis] if k_major else lines if read else mma.lines(lines, k_axis)
        if not (k_major or read or type_.element.bytes == 2) or wide * type_.element.bytes < panels.width:
            return False
    return bool(value.uses)


# The lowering of accesses that are in no pipelined loop.


def lower_tma(module: Op) -> Op:
    """The GPU model in which TMA does the loads and stores through descriptors that are left."""
    module = _fenced(module)
    if not module.holds(Access):
        return module
    direct = _direct(module)
    allocs = {store.buffer for store, _ in direct.values()}
    removed = {op for store, steps in direct.values() for op in (store, *steps)}

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in removed:
            # Up to that store, the value of a load or a transposition is mapped to the buffer that TMA fills.
            return DROP if isinstance(op, gpu.LocalStore) else operands[0]
        if isinstance(op, gpu.LocalAlloc) and op.result in allocs:
            return builder[op.result]
        if isinstance(op, tt.DescriptorLoad):
            if op.result not in direct:
                buffer = _buffer(builder, operands[0])
                _fetch(builder, operands[0], operands[1:], buffer)
                return builder.add(gpu.LocalLoad(buffer, op.result.type))
            old = direct[op.result][0].buffer
            assert isinstance(old.op, gpu.LocalAlloc)
            buffer = builder.add(gpu.LocalAlloc(old.type, alignment=old.op.alignment), op.location)
            builder[old] = buffer
            _fetch(builder, operands[0], operands[1:], buffer)
            return buffer
        if isinstance(op, _Stored):
            buffer = _buffer(builder, operands[0])
            builder.add(gpu.LocalStore(buffer, operands[1]))
            builder.add(gpu.TmaStore(operands[0], buffer, operands[2:], adds=isinstance(op, tt.DescriptorReduce)))
            builder.add(gpu.TmaStoreWait(0))
            return DROP
        return None

    return transform(module, lowered, pass_name="tma")


def _fenced(module: Op) -> Op:
    """The model with fences where accesses of TMA follow an acquire or a barrier, or its stores a write of the same
    memory, and with waits for what it stores before a release, a barrier or another write."""
    ops = list(module.walk())
    order = {op: at for at, op in enumerate(ops)}
    loads = [op for op in ops if isinstance(op, tt.DescriptorLoad | gpu.TmaLoad)]
    stores = [op for op in ops if isinstance(op, _Stored)]
    if not loads and not stores:
        return module
    ordering = [op for op in ops if may_order(op)]
    memory = MemoryOrder(function_of(expect(module, gpu.Module)))
    writes = store_order(ops, memory)

    def is_before(op: Op, load: Op) -> bool:
        return _is_ordered(load, op, order) and memory.keeps_order(op, load.operands[:1], before=False)

    acquiring = {op for op in ordering if any(is_before(op, load) for load in loads)}
    releasing = {op for op in ordering if releases(op) and any(_is_ordered(store, op, order) for store in stores)}

    changed = {*acquiring, *releasing, *writes.after, *writes.before}

    def fenced(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op not in changed:
            return None
        if op in releasing or op in writes.after:
            builder.add(gpu.TmaStoreWait(0, written=True))
        # The emission of a releasing atomic has a barrier, and one thread does all stores by TMA.
        if (op in releasing and isinstance(op, tt.InlineAsm)) or (op in writes.after and not isinstance(op, _Stored)):
            builder.add(gpu.Barrier())
        if op in acquiring and releases(op):
            builder.add(gpu.FenceGlobal())  # For what other CTAs load by TMA after an acquire.
        copy = builder.copy(op, operands)
        if op in acquiring or op in writes.before:
            if not isinstance(op, tt.Barrier | gpu.ClusterBarrier):
                builder.add(gpu.Barrier())
            builder.add(gpu.FenceGlobal())
        return copy

    return transform(module, fenced, pass_name="tma") if changed else module


def _direct(module: Op) -> dict[Value, tuple[gpu.LocalStore, tuple[tt.Trans, ...]]]:
    """For loads of blocks, the stores to buffers that TMA can fill itself, and the transpositions in between."""
    stores: dict[Value, tuple[gpu.LocalStore, tuple[tt.Trans, ...]]] = {}
    for op in module.walk():
        if isinstance(op, gpu.LocalStore) and is_filled_by_tma(op.value, shared_of(op.buffer)):
            load, steps = before_transposition(op.value)
            alone = all(len(value.uses) == 1 for value in (load, *(step.result for step in steps)))
            if alone and sum(isinstance(user, gpu.LocalStore) for user in op.buffer.uses) == 1:
                stores[load] = op, steps
    return stores


def _buffer(builder: Builder, descriptor: Value) -> Value:
    """A new buffer for a block."""
    type_, alignment = buffer_for(descriptor_of(descriptor))
    return builder.add(gpu.LocalAlloc(type_, alignment=alignment))


def _fetch(builder: Builder, descriptor: Value, offsets: Sequence[Value], buffer: Value) -> None:
    """Fill a buffer and wait for it."""
    always = constant(builder, True, i1)
    channel = builder.add(gpu.Channel([buffer]))
    builder.add(gpu.ChannelAcquire(channel, always))
    builder.add(gpu.TmaLoad(descriptor, buffer, channel, always, offsets))
    builder.add(gpu.ChannelCommit(channel))
    builder.add(gpu.ChannelWait(channel))
    builder.add(gpu.ChannelClose([channel]))
