"""The loops of regions: how many lanes a vector has, how many vectors an iteration computes, and how rows travel.

    cpu.region @shape=[1024] {                     cpu.region @shape=[1024] @lanes=16 @unroll=4 {
                                                       cpu.prefetch %9;
        %12 : tensor<x1024, f32> = cpu.load %9 …;      %12 : tensor<x1024, f32> = cpu.load %9 …;
        cpu.put %20 %12;                               cpu.put %20 %12 @in_place=true;
        %13 : f32 = tt.reduce %12 @axis=0 {…};         %13 : f32 = tt.reduce %12 @axis=0 {…};
        cpu.end %13;                                   cpu.end %13;
    };                                             };

All that is chosen stands in the model, where it may be changed. Results do not depend on it.
"""

from __future__ import annotations

import math

from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import element_bytes
from ziggurat.transforms.cpu.plan import EXPENSIVE
from ziggurat.transforms.cpu.traffic import (
    STREAMED,
    fetches_own_row,
    in_place_obstacle,
    keep_obstacle,
    rows_ahead,
    stream_obstacle,
)

MAX_UNROLLED = 2  # Vectors of an iteration, where nothing is reduced.
MAX_REDUCED = 4  # Vectors of an iteration that reduces; half as many if it takes long to compute them.
MAX_OPS = 24  # Those of a region of which an iteration computes more than one vector, where nothing is reduced.
# Numbers of k of an iteration of a dot, by the bytes of a vector: processors mispredict the end of a loop of 64
# iterations. With AVX-512, one has 24 multiply-adds, and that costs nothing measurable.
UNROLLED_K = {64: 1, 32: 4, 16: 4}
# Bytes of the packed matrices that a dot keeps, and their number: 1 MB is the second cache of the first Xeons with
# AVX-512. No measurement of other numbers is recorded.
KEPT_BYTES, MAX_KEPT = 1 << 20, 64


def vectorize(module: cpu.Module) -> Op:
    """The module with the decisions in its regions."""
    vector = module.vector

    def decide(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        region = op.parent_op
        match op:
            case cpu.Region():
                return _region(builder, op, vector)
            case cpu.Dot():
                a, b, c = operands
                depth = expect(op.a.type, cpu.BufferType).shape[-1]
                return builder.add(
                    op.evolve(a=a, b=b, c=c, unroll=math.gcd(UNROLLED_K[vector], depth), keep=_keep(op, vector))
                )
            case cpu.Load() | cpu.Store() if isinstance(region, cpu.Region) and lanes_of(region, vector) > 1:
                if _stream(region, vector):
                    if isinstance(op, cpu.Store):
                        builder.add(cpu.Store(*operands, stream=STREAMED))
                        return DROP
                elif fetches_own_row(op):
                    builder.add(cpu.Prefetch(operands[0]))
            case cpu.Put() if isinstance(region, cpu.Region) and in_place_obstacle(op) is None:
                if len(region.shape) > 1 or lanes_of(region, vector) > 1:
                    return builder.add(cpu.Put(operands[0], operands[1], in_place=True))
            case _:
                pass
        return None

    return transform(module, decide, pass_name="vectorize")


def _region(builder: Rewriter, op: cpu.Region, vector: int) -> Value:
    lanes = lanes_of(op, vector)
    inner = builder.inside([], op.body.yield_type)
    if lanes > 1:
        for access, cache in rows_ahead(op):
            inner.add(cpu.Prefetch(builder[access.result], cache=cache), access.location)
    inner.rewrite_ops(op.body.entry.ops)
    rows, unroll = (lanes if _is_square(op, lanes) else 1), _unroll_of(op, lanes, vector)
    return builder.add(
        cpu.Region(op.shape, inner.finish(), axis=op.axis, lanes=lanes, unroll=unroll, rows=rows), op.location
    )


def _keep(op: cpu.Dot, vector: int) -> int:
    """The number of matrices that a dot keeps for the next programs. A packed number has as many bytes as one of the
    accumulation, or fewer."""
    b, c = (expect(value.type, cpu.BufferType) for value in (op.b, op.c))
    size = b.numel * max(4, element_bytes(c.element))
    return min(KEPT_BYTES // size, MAX_KEPT) if keep_obstacle(op, vector) is None else 0


def lanes_of(op: cpu.Region, vector: int) -> int:
    """The lanes of a vector: two registers, whose instructions alternate, which hides latency that the machine's
    reordering does not. 1 where elements are computed one by one."""
    ops = op.body.entry.ops
    if not all(cpu.is_straight(body) for inner in ops for body in inner.bodies):
        return 1
    types = [inner.result.type for inner in ops if isinstance(inner, tt.Load | cpu.Load | cpu.Get)]
    types += [inner.value.type for inner in ops if isinstance(inner, cpu.Put)]
    return math.gcd(2 * vector // max([4, *map(element_bytes, types)]), op.shape[op.lane_axis])


def _reduces(op: cpu.Region) -> bool:
    return any(isinstance(inner, tt.Reduce) for inner in op.body.entry.ops)


def _unroll_of(op: cpu.Region, lanes: int, vector: int) -> int:
    ops = op.body.entry.ops
    count = op.shape[op.inner_axis] // (lanes if op.inner_axis == op.lane_axis else 1)
    if _reduces(op):
        most = MAX_REDUCED // 2 if any(isinstance(inner, EXPENSIVE) for inner in ops) else MAX_REDUCED
    else:
        most = MAX_UNROLLED if len(ops) <= MAX_OPS and not _stream(op, vector) else 1
    return math.gcd(count, most)


def _is_square(op: cpu.Region, lanes: int) -> bool:
    """Whether as many rows as a vector has lanes are reduced together. Along the lanes of one row, the last steps would
    wait for each other."""
    outer = op.outer_axes
    along = _reduces(op) and op.axis == op.lane_axis and len(outer) == 1 and lanes > 1
    return along and op.shape[outer[0]] % lanes == 0


def _stream(op: cpu.Region, vector: int) -> bool:
    """Whether a region stores its row around the caches, if the array is large."""
    stores = [inner for inner in op.body.entry.ops if isinstance(inner, cpu.Store)]
    return bool(stores) and stream_obstacle(stores[0], lanes_of(op, vector), vector) is None
