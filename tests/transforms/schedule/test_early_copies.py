"""Operands of later dots that are copied to shared memory during the dots before, in loops of one stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_pass import case, first_fault

import ziggurat as zg
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import place

N, D = 64, 64


@zg.kernel
def attention(q, k, v, out, counts, n, EARLY: zg.constexpr, STORE: zg.constexpr, D: zg.constexpr):
    """Softmax without a maximum: the exponents are small."""
    rows, columns = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, D), 0)
    at = zg.add(zg.mul(rows, D), columns)
    queries, acc, total = zg.load(zg.add(q, at)), zg.zeros((64, D), zg.f32), zg.zeros((64,), zg.f32)
    for start in range(0, n, 64):
        inside = zg.less(zg.add(start, rows), n)
        keys = zg.load(zg.add(zg.add(k, zg.mul(start, D)), at), inside, 0.0)
        if EARLY:
            values = zg.load(zg.add(zg.add(v, zg.mul(start, D)), at), inside, 0.0)
        scores = zg.exp2(zg.dot(queries, zg.trans(keys)))
        total = zg.add(total, zg.sum(scores, axis=1))
        if STORE:
            zg.store(v, zg.load(counts))
        if not EARLY:
            values = zg.load(zg.add(zg.add(v, zg.mul(start, D)), at), inside, 0.0)
        acc = zg.dot(zg.cast(scores, zg.f16), values, acc)
    zg.store(zg.add(out, at), zg.div(acc, zg.expand(total, 1)))


def arguments(n: int = 100, d: int = D) -> list[Any]:
    rng = np.random.default_rng(3)
    q, k, v = (rng.integers(-1, 2, (rows, d)).astype(np.float16) / 8 for rows in (64, n, n))
    return [q, k, v, np.zeros((64, d), np.float32), np.zeros(1, np.float16), n]


def model_of(early: bool, store: bool = False, **options: Any) -> Op:
    at, of = zg.divisible(zg.ptr(zg.f16), 16), zg.divisible(zg.ptr(zg.f32), 16)
    model = attention.triton(at, at, at, of, at, zg.i32, early, store, options.pop("d", D))
    return place(model, CompileOptions("sm_90a", **{"num_warps": 4, "num_stages": 1, **options}))


def copies(model: Op) -> list[Op]:
    return [op for op in model.walk() if isinstance(op, gpu.AsyncCopy)]


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("early", [True, False])
def test_results_stay_as_they_are(early: bool, target: str) -> None:
    launch = case(
        attention, arguments, (early, False, D), target=target, num_warps=4, num_stages=1, tolerance=1e-6, verify=True
    )
    assert first_fault(launch) is None


@pytest.mark.parametrize("early", [True, False])
def test_values_are_copied_during_the_dot_of_the_keys(early: bool) -> None:
    """The copy begins before the first dot, also where the load comes after it, and the keys go through registers."""
    model = model_of(early)
    (copy,) = copies(model)
    block = copy.parent
    assert block is not None
    kinds = [type(op) for op in block.ops if isinstance(op, gpu.AsyncCopy | gpu.AsyncWait | gpu.Wgmma)]
    assert kinds == [gpu.AsyncCopy, gpu.Wgmma, gpu.AsyncWait, gpu.Wgmma]
    assert sum(isinstance(op, tt.Load) for op in block.ops) == 1


def test_a_copy_does_not_begin_before_a_store_that_it_may_read() -> None:
    assert not copies(model_of(early=False, store=True))
    assert not copies(model_of(early=True, store=True))


@zg.kernel
def chosen_blocks(q, k, v, blocks, out, count, D: zg.constexpr):
    """Blocks of keys and values whose numbers are loaded; those of negative numbers are left out."""
    rows, columns = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, D), 0)
    few = zg.add(zg.mul(zg.expand(zg.arange(0, 16), 1), D), columns)
    queries, acc = zg.load(zg.add(q, few)), zg.zeros((16, D), zg.f32)
    for number in range(0, count):
        block = zg.load(zg.add(blocks, number))
        if block >= 0:
            at = zg.add(zg.mul(zg.add(zg.mul(block, 64), rows), D), columns)
            scores = zg.dot(queries, zg.trans(zg.load(zg.add(k, at))))
            acc = zg.dot(zg.cast(scores, zg.f16), zg.load(zg.add(v, at)), acc)
    zg.store(zg.add(out, few), acc)


def test_large_operands_are_copied_and_queries_are_stored_before_the_loop() -> None:
    """One warp has 128 registers of a thread for 64×128 keys. The dots are in a branch."""

    def launch_arguments() -> list[Any]:
        rng = np.random.default_rng(5)
        q, k, v = (rng.integers(-2, 3, (rows, 128)).astype(np.float16) for rows in (16, 256, 256))
        return [q, k, v, np.array([2, -1, 0, 3], np.int32), np.zeros((16, 128), np.float32), 4]

    passes: list[Snapshot] = []
    launch = case(chosen_blocks, launch_arguments, (128,), num_warps=1, num_stages=1, verify=True)
    assert first_fault(launch, passes) is None
    model = passes[-1].model
    (loop,) = (op for op in model.walk() if isinstance(op, scf.For))
    assert len(copies(model)) == 2 and len(copies(loop)) == 2
    assert not any(isinstance(op, gpu.LocalStore) for op in loop.walk())


def test_loops_with_stages_keep_theirs() -> None:
    """With two stages all loads are ahead of their iteration."""
    assert all(
        op.parent is not None and isinstance(op.buffer.op, gpu.LocalView) for op in copies(model_of(True, num_stages=2))
    )  # type: ignore[attr-defined]
