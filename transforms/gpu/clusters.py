"""Gathers of the values of a cluster's CTAs, through the shared memory of all of them.

    %m : shared<x1, i64, ""> = gpu.local_alloc;               at the start of the kernel
    gpu.mbarrier_init %m @arrivals=1;
    gpu.mbarrier_expect %m @bytes=16;
    …
    gpu.cluster_arrive;                                       before the first load of a tensor
    …
    gpu.cluster_wait;                                         before the first gather: all CTAs have started
    %b : shared<x4, f32, "1 2"> = gpu.local_alloc;
    gpu.cluster_store %b %m %value;                           to the place of this CTA's rank, in every CTA
    gpu.mbarrier_wait %m 0;                                   all values have arrived here
    %g : tensor<x4, f32, "…"> = gpu.local_load %b;

The stores are asynchronous, and the mbarrier of the CTA that they reach counts their bytes: so no CTA waits longer than
for the values, and none needs a fence. A gather of several values has a buffer for each, and one mbarrier. These belong
to one gather, and are no other tensor's memory at any time (`allocate`): another CTA may be ahead, and store to it. A
CTA waits for all values that are stored to it, so none stores to one that has ended.

A store is of 32 or 64 bits: narrower numbers are stored as the lowest bits of a u32.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    ScalarType,
    SharedType,
    TensorType,
    component_types,
    i64,
    scalar_element,
    u8,
    u16,
    u32,
    with_element,
)
from ziggurat.transforms.analysis.queries import constant, function_of, repacked, shared_of
from ziggurat.transforms.layouts.swizzle import row_major

_BITS = {8: u8, 16: u16}
_MEETING = (gpu.ClusterGather, gpu.ClusterBarrier)


def lower_clusters(module: gpu.Module) -> Op:
    """The GPU model whose CTAs exchange values by stores to each other's shared memory."""
    func = function_of(module)
    gathers = [op for op in func.walk() if isinstance(op, gpu.ClusterGather)]
    if not gathers:
        return module
    ops = func.body.entry.ops
    first = next(op for op in ops if op.holds(_MEETING))
    # ptxas moves no load over the barrier: loads of scalars that stand before it are begun first.
    begins = next(op for op in ops if op is first or op.bodies or _reads_tensor(op))
    parts: dict[Op, tuple[Sequence[Value], Value]] = {}  # The buffers and the mbarrier of each gather.

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is ops[0]:
            parts.update({gather: _prepared(builder, gather) for gather in gathers})
        if op is begins:
            builder.add(gpu.ClusterArrive())
        if op is first:
            builder.add(gpu.ClusterWait())
        return _gathered(builder, op, operands, *parts[op]) if isinstance(op, gpu.ClusterGather) else None

    return transform(module, lowered, pass_name="clusters")


def _reads_tensor(op: Op) -> bool:
    return isinstance(op, tt.Load) and isinstance(op.result.type, TensorType)


def _prepared(builder: Builder, gather: gpu.ClusterGather) -> tuple[Sequence[Value], Value]:
    """A buffer for each value of all CTAs, and the mbarrier that counts their bytes."""
    types = [type_ for type_ in component_types(gather.result.type) if isinstance(type_, TensorType)]
    shared = [SharedType(type_.shape, _wide(scalar_element(type_)), row_major(type_.numel)) for type_ in types]
    buffers = [builder.add(gpu.LocalAlloc(value), gather.location) for value in shared]
    mbarrier = builder.add(gpu.LocalAlloc(SharedType((1,), i64, ()), alignment=8))
    builder.add(gpu.MbarrierInit(mbarrier, arrivals=1))
    builder.add(gpu.MbarrierExpect(mbarrier, bytes=sum(value.bytes for value in shared)))
    return buffers, mbarrier


def _gathered(
    builder: Rewriter, op: gpu.ClusterGather, values: Sequence[Value], buffers: Sequence[Value], mbarrier: Value
) -> Value:
    for buffer, value in zip(buffers, values, strict=True):
        builder.add(gpu.ClusterStore(buffer, mbarrier, _widened(builder, value)))
    builder.add(gpu.MbarrierWait(mbarrier, constant(builder, 0)))
    parts: list[Value] = []
    for buffer, type_ in zip(buffers, component_types(op.result.type), strict=True):
        wide = builder.add(gpu.LocalLoad(buffer, with_element(type_, shared_of(buffer).element)))
        parts.append(_narrowed(builder, wide, scalar_element(type_)))
    return repacked(builder, parts)


def _wide(scalar: ScalarType) -> ScalarType:
    """The type in which numbers of a type are stored."""
    return scalar if scalar.bits >= 32 else u32


def _widened(builder: Builder, value: Value) -> Value:
    """The bits of narrow numbers as u32; others unchanged."""
    scalar = scalar_element(value.type)
    if scalar.bits >= 32:
        return value
    if scalar.is_float:
        value = builder.add(arith.Bitcast(value, with_element(value.type, _BITS[scalar.bits])))
    return builder.add(arith.ExtUI(value, with_element(value.type, u32)))


def _narrowed(builder: Builder, value: Value, scalar: ScalarType) -> Value:
    """The inverse of `_widened`."""
    if scalar.bits >= 32:
        return value
    bits = _BITS[scalar.bits] if scalar.is_float else scalar
    value = builder.add(arith.TruncI(value, with_element(value.type, bits)))
    return builder.add(arith.Bitcast(value, with_element(value.type, scalar))) if scalar.is_float else value
