"""The copy engine (TMA): which accesses through descriptors it does, and how.

    %9 : tensor<x128, x64, f16, L> =          %9 : shared<x128, x64, f16, …> = gpu.local_alloc @alignment=1024;
        tt.descriptor_load %0 %7 %8;          %10 : shared<x1, i64, ""> = gpu.local_alloc;
    %10 : shared<…> = gpu.local_alloc;        gpu.mbarrier_init %10 @arrivals=1;
    gpu.local_store %10 %9;            becomes gpu.barrier;
    %11 : tensor<…> = gpu.wgmma %10 …;        gpu.mbarrier_expect %10 %true @bytes=16384;
                                              gpu.tma_load %0 %9 %10 %true %7 %8;
                                              gpu.mbarrier_wait %10 %zero;
                                              …
                                              %11 : tensor<…> = gpu.wgmma %9 …;

and a store goes through a buffer as well, which the engine then reads. A load in a loop is `pipeline_loads`' affair.
The engine moves blocks of two axes between descriptors that the kernel was given and buffers in its own swizzled form,
which is also wgmma's: so it does the loads that only feed wgmma, and stores. It writes 16 bytes at a time: a store's
first column is at a multiple of them, and a row of the tensor is some of them (an H200 wrote zeros behind rows that are
not, and took other columns for an illegal instruction). Whatever else goes through a descriptor is done with pointers
(`descriptors.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import Panels, box_and_swizzle
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import DescriptorType, SharedType, i1, i32, i64
from ziggurat.transforms.place.axis_info import AxisInfo, analyse
from ziggurat.transforms.place.components import Component, component_of
from ziggurat.transforms.place.dots import block_axis, is_chained, way_of

# Targets whose copy engine understands descriptors.
_TARGETS = ("sm_90", "sm_90a")
_UNIT = 16  # Bytes that the engine writes at once.


# Which accesses the engine does.


def engine_accesses(module: core.Module, target: str, num_warps: int) -> set[Value]:
    """The results of the loads and stores of a prepared module that the copy engine does.

    None where threads tell each other of what they have written to global memory: the engine would have to be told.
    """
    if target not in _TARGETS or any(isinstance(op, tt.Barrier | tt.AtomicRMW | tt.AtomicCAS) for op in module.walk()):
        return set()
    rows_first = is_chained(module)
    loads = [op for op in module.walk() if isinstance(op, tt.DescriptorLoad)]
    stores = [op for op in module.walk() if isinstance(op, tt.DescriptorStore)]
    # The engine may still be storing a block when it, or a thread, loads it again.
    both = {op.descriptor for op in loads} & {op.descriptor for op in stores}
    found = [op for op in (*loads, *stores) if op.descriptor not in both and _is_movable(op.descriptor)]
    found = [
        op
        for op in found
        if isinstance(op, tt.DescriptorStore) or _feeds_wgmma(op, op.result, (0, 1), target, num_warps, rows_first)
    ]
    if not found:
        return set()
    (func,) = (op for op in module.functions().values() if isinstance(op, tt.Func))
    infos = analyse(func)
    return {op.result for op in found if _is_even(op, infos)}


def _is_even(op: tt.DescriptorLoad | tt.DescriptorStore, infos: Mapping[Component, AxisInfo]) -> bool:
    """Whether the first column of the blocks is at a multiple of 16 bytes; and, of a store, whether the rows are."""
    type_, descriptor = op.descriptor.type, op.descriptor
    assert isinstance(type_, DescriptorType) and isinstance(descriptor, BlockParameter)
    func = descriptor.block.parent.parent
    assert isinstance(func, tt.Func)
    if isinstance(op, tt.DescriptorStore):
        known = dict(zip(func.body.parameters, func.divisibility, strict=False))
        if known.get(descriptor, 1) % _UNIT:
            return False
    first = infos.get(component_of(op.offsets[-1]))
    return first is not None and first.everywhere * type_.element.bytes % _UNIT == 0


def _is_movable(descriptor: Value) -> bool:
    """Whether a descriptor is one of the kernel's own, with blocks of a form that lies in shared memory swizzled."""
    type_ = descriptor.type
    if not isinstance(type_, DescriptorType) or not isinstance(descriptor, BlockParameter):
        return False
    owner = descriptor.block.parent.parent
    # The engine takes elements of 8 bits for bytes, and fills with NaN only what it knows to be floats.
    fillable = type_.padding == "zero" or type_.element.bits > 8
    swizzled = len(type_.block) == 2 and _panels(type_) is not None
    return isinstance(owner, tt.Func) and type_.element != i1 and fillable and swizzled


def _panels(type_: DescriptorType) -> Panels | None:
    """How the engine lays out a block; None where a row is too short to be swizzled, or the rows are too few."""
    _, swizzle = box_and_swizzle(type_.block, type_.element)
    return Panels(swizzle, k_major=True) if swizzle and type_.block[0] >= 8 else None


def _feeds_wgmma(
    load: tt.DescriptorLoad, value: Value, order: tuple[int, int], target: str, num_warps: int, rows_first: bool
) -> bool:
    """Whether a loaded block, with its axes in this order, goes only to products that read it as the engine lays it."""
    uses = value.uses
    for user in uses:
        if isinstance(user, tt.Trans):
            turned = (order[user.order[0]], order[user.order[1]])
            if not _feeds_wgmma(load, user.result, turned, target, num_warps, rows_first):
                return False
            continue
        if not isinstance(user, tt.Dot) or value is user.c or user.a is user.b:
            return False
        way = way_of(user, target, num_warps, rows_first=rows_first)
        type_ = load.descriptor.type
        assert isinstance(type_, DescriptorType)
        if way.kind != "wgmma" or way.element != type_.element or way.warps is None:
            return False
        # Neighbours in memory go along k; or along m or n, of elements of 16 bits only.
        k_axis = 1 if value is user.a else 0
        k_major = order[k_axis] == 1
        shape = (type_.block[order[0]], type_.block[order[1]])
        at_once = 64 if value is user.a else min(256, shape[1] // way.warps.columns)
        panels = _panels(type_)
        assert panels is not None
        wide = shape[k_axis] if k_major else at_once
        if (not k_major and type_.element.bytes != 2) or wide * type_.element.bytes < panels.width:
            return False
    return bool(uses)


# Buffers as the engine fills them.


def buffer_for(type_: DescriptorType) -> tuple[SharedType, int]:
    """The type of a buffer for a block, in the axes' own order, and its alignment in bytes."""
    panels = _panels(type_)
    assert panels is not None
    shape = (type_.block[0], type_.block[1])
    return SharedType(shape, type_.element, panels.offsets(shape, 1, type_.element.bytes)), panels.alignment


def is_filled_by_engine(value: Value, buffer: SharedType) -> bool:
    """Whether a buffer has its elements where the engine puts those of a block, which `value` is, maybe transposed."""
    inner = block_axis(value)
    load = _load_of(value)
    if inner is None or load is None:
        return False
    type_ = load.descriptor.type
    assert isinstance(type_, DescriptorType)
    panels = _panels(type_)
    shape = (buffer.shape[0], buffer.shape[1])
    return panels is not None and panels.offsets(shape, inner, type_.element.bytes) == buffer.offsets


def _load_of(value: Value) -> tt.DescriptorLoad | None:
    while isinstance(value, OpResult) and isinstance(value.op, tt.Trans):
        value = value.op.value
    return value.op if isinstance(value, OpResult) and isinstance(value.op, tt.DescriptorLoad) else None


# The lowering of what is not in a pipelined loop.


def lower_engine(module: Op) -> Op:
    """The GPU model in which the copy engine does what is left of loads and stores through descriptors."""
    if not any(isinstance(op, tt.DescriptorLoad | tt.DescriptorStore) for op in module.walk()):
        return module
    direct = _direct(module)
    by_load = {load.result: store for store, load, _ in direct}
    allocs = {store.buffer for store in by_load.values()}
    gone = {op.result for store, _, steps in direct for op in (store, *steps)}

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op.result in gone:
            # What stands for the block until then is the buffer.
            return DROP if isinstance(op, gpu.LocalStore) else operands[0]
        if isinstance(op, gpu.LocalAlloc) and op.result in allocs:
            return builder[op.result]
        if isinstance(op, tt.DescriptorLoad):
            store = by_load.get(op.result)
            if store is None:
                type_ = operands[0].type
                assert isinstance(type_, DescriptorType)
                buffer = _allocated(builder, *buffer_for(type_))
                _fetch(builder, operands[0], operands[1:], buffer)
                return builder.add(gpu.LocalLoad(buffer, op.result.type))
            assert isinstance(store.buffer, OpResult) and isinstance(store.buffer.op, gpu.LocalAlloc)
            alloc = store.buffer.op
            buffer = builder.add(gpu.LocalAlloc(alloc.type, alignment=alloc.alignment), op.location)
            builder[store.buffer] = buffer
            _fetch(builder, operands[0], operands[1:], buffer)
            return buffer
        if isinstance(op, tt.DescriptorStore):
            type_ = operands[0].type
            assert isinstance(type_, DescriptorType)
            buffer = _allocated(builder, *buffer_for(type_))
            builder.add(gpu.LocalStore(buffer, operands[1]))
            builder.add(gpu.TmaStore(operands[0], buffer, operands[2:]))
            builder.add(gpu.TmaStoreWait(0))
            return DROP
        return None

    return transform(module, lowered, pass_name="tma")


def _direct(module: Op) -> list[tuple[gpu.LocalStore, tt.DescriptorLoad, list[tt.Trans]]]:
    """The stores to buffers that the engine can fill itself, with the loads and transpositions that they replace."""
    found: list[tuple[gpu.LocalStore, tt.DescriptorLoad, list[tt.Trans]]] = []
    for op in module.walk():
        if not isinstance(op, gpu.LocalStore) or (load := _load_of(op.value)) is None:
            continue
        assert isinstance(op.buffer.type, SharedType)
        steps: list[tt.Trans] = []
        value = op.value
        while value is not load.result:
            assert isinstance(value, OpResult) and isinstance(value.op, tt.Trans)
            steps.append(value.op)
            value = value.op.value
        alone = all(len(value.uses) == 1 for value in (load.result, *(step.result for step in steps)))
        filled_once = sum(isinstance(user, gpu.LocalStore) for user in op.buffer.uses) == 1
        if alone and filled_once and is_filled_by_engine(op.value, op.buffer.type):
            found.append((op, load, steps))
    return found


def _allocated(builder: Builder, type_: SharedType, alignment: int) -> Value:
    return builder.add(gpu.LocalAlloc(type_, alignment=alignment))


def _fetch(builder: Builder, descriptor: Value, offsets: Sequence[Value], buffer: Value) -> None:
    """Fill a buffer and wait for it."""
    assert isinstance(buffer.type, SharedType)
    always = builder.add(arith.ConstantOp(True, i1))
    (barrier,) = mbarriers(builder, 1, 1)
    builder.add(gpu.MbarrierExpect(barrier, always, bytes=buffer.type.bytes))
    builder.add(gpu.TmaLoad(descriptor, buffer, barrier, always, offsets))
    builder.add(gpu.MbarrierWait(barrier, builder.add(arith.ConstantOp(0, i32))))
    forget_mbarriers(builder, [barrier])


def mbarrier_buffer(builder: Builder, stages: int) -> Value:
    """A buffer for `stages` mbarriers."""
    return builder.add(gpu.LocalAlloc(SharedType((1,), i64, (), stages), alignment=8))


def mbarriers(builder: Builder, groups: int, stages: int) -> list[Value]:
    """`groups` buffers of `stages` mbarriers each, made and seen by all threads."""
    made = [mbarrier_buffer(builder, stages) for _ in range(groups)]
    for buffer in made:
        builder.add(gpu.MbarrierInit(buffer, arrivals=1))
    builder.add(gpu.Barrier())
    return made


def forget_mbarriers(builder: Builder, made: Collection[Value]) -> None:
    """Give the memory of mbarriers back, behind the last wait of every thread."""
    builder.add(gpu.Barrier())
    for buffer in made:
        builder.add(gpu.MbarrierInval(buffer))
