"""Gathers of the values of a cluster's CTAs: the models, memory of their own, and what is missing without a wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cluster_kernels import arguments, types_of

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.transforms.analysis.intervals import intervals_of
from ziggurat.transforms.analysis.queries import shared_of
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards


def placed(name: str, snapshots: list[Snapshot] | None = None) -> gpu.Module:
    kernel, inputs, constants = arguments(name, 1, 8, 1024)
    model = kernel.triton(*types_of(inputs), *constants)
    return place(model, CompileOptions(num_ctas=2, num_warps=2, verify=True), snapshots)


def test_the_model_after_each_pass(golden: Any) -> None:
    snapshots: list[Snapshot] = []
    placed("normalised", snapshots)
    by_name = {snapshot.name: snapshot.model for snapshot in snapshots}
    for name in ("prepare", "spread", "assign", "clusters", "barriers"):
        golden(f"clusters.{name}", by_name[name])


@pytest.mark.parametrize("name", ["normalised", "largest", "rows"])
def test_what_other_ctas_write_is_memory_of_nothing_else(name: str) -> None:
    model = placed(name)
    intervals = intervals_of(model)
    (func,) = model.functions().values()
    values = {store.buffer for store in func.walk() if isinstance(store, gpu.ClusterStore)}
    mbarriers = {store.barrier for store in func.walk() if isinstance(store, gpu.ClusterStore)}
    for interval in intervals:
        size = shared_of(interval.op.result).bytes
        start = interval.op.offset
        for other in intervals:
            apart = other.op.offset >= start + size or start >= other.op.offset + shared_of(other.op.result).bytes
            assert apart or other is interval or not {interval.op.result, other.op.result} & (values | mbarriers)
    assert len(values) == sum(isinstance(op, gpu.ClusterStore) for op in func.walk()) > 0
    # The values that a reduction of several tensors exchanges arrive at one mbarrier.
    assert len(mbarriers) == sum(isinstance(op, gpu.MbarrierWait) for op in func.walk())


def without(kind: type[Op]) -> Callable[[Rewriter, Op, tuple[Value, ...]], Outcome]:
    return lambda builder, op, operands: DROP if isinstance(op, kind) else None


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (gpu.ClusterWait, {"wait for the other CTAs"}),
        (gpu.MbarrierWait, {"wait", "wait for its phases"}),
        (gpu.Barrier, {"barrier"}),
    ],
)
def test_hazards(kind: type[Op], missing: set[str]) -> None:
    model = placed("normalised")
    assert not hazards(model)
    changed = transform(model, without(kind))
    assert isinstance(changed, gpu.Module)
    assert {hazard.missing for hazard in hazards(changed)} == missing
