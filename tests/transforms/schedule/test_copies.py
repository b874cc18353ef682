"""Pipelined loads: the copies that loads become have the same results, simulated and assembled.

The simulation keeps what a copy writes back until it has been waited for, so a copy that is waited for too late, or
that begins too early, is an error or a wrong sum. Inputs are small integers, of which all sums are exact.
"""

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.transform import DROP, transform
from ziggurat.codemodel.types import SharedType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards

PTXAS = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/ptxas"
F16, F32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))
LESS = zg.CompareKind.LESS_THAN


@zg.kernel
def product(
    a_ptr, b_ptr, out_ptr, k_size,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, masked: zg.constexpr, transposed: zg.constexpr,
):  # fmt: skip
    """a · b, K columns of a at a time; b is transposed on request."""
    rows = zg.expand(zg.arange(0, M), 1)
    columns = zg.expand(zg.arange(0, N), 0)
    along = zg.arange(0, K)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(rows, k_size), zg.expand(along, 0)))
    if transposed:
        b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(zg.arange(0, N), 1), k_size), zg.expand(along, 0)))
    else:
        b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(along, 1), N), columns))
    total = zg.zeros((M, N), zg.f32)
    for at in zg.range(0, k_size, K):
        rest = zg.sub(k_size, at)
        if masked:
            a = zg.load(a_ptrs, zg.compare(zg.expand(along, 0), rest, LESS), 0.0)
        else:
            a = zg.load(a_ptrs)
        if transposed:
            b = zg.trans(zg.load(b_ptrs, zg.compare(zg.expand(along, 0), rest, LESS), 0.0))
        else:
            b = zg.load(b_ptrs, zg.compare(zg.expand(along, 1), rest, LESS), 0.0)
        total = zg.dot(a, b, total)
        a_ptrs = zg.add(a_ptrs, K)
        b_ptrs = zg.add(b_ptrs, K if transposed else K * N)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, N), columns)), total)


def placed(model: Op, target: str, num_warps: int, stages: int) -> gpu.Module:
    return place(model, CompileOptions(target, num_warps, stages, raise_pointers=False))


def model_of(m: int, n: int, k: int, *, masked: bool = True, transposed: bool = False, dtype: Any = F16) -> Op:
    return product.triton(dtype, dtype, F32, zg.divisible(zg.i32), m, n, k, masked, transposed)


def kinds(module: Op, cls: type[Op]) -> list[Op]:
    return [op for op in module.walk() if isinstance(op, cls)]


CASES: list[tuple[Any, ...]] = [
    (16, 16, 16, "sm_80", 1, False, 64),
    (32, 64, 32, "sm_80", 4, False, 80),
    (32, 32, 32, "sm_80", 2, True, 16),
    (64, 32, 32, "sm_90a", 4, False, 144),
    (64, 16, 64, "sm_90a", 4, True, 128),
    (64, 64, 32, "sm_90a", 8, True, 0),
]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize(("m", "n", "k", "target", "num_warps", "transposed", "length"), CASES)
def test_pipelined_dots(
    m: int, n: int, k: int, target: str, num_warps: int, transposed: bool, length: int, stages: int
) -> None:
    """The results are those of NumPy, also if the loop is shorter than the pipeline, or does not run."""
    module = placed(model_of(m, n, k, transposed=transposed), target, num_warps, stages)
    verify(module)
    assert hazards(module) == []
    assert len(kinds(module, gpu.AsyncCopy)) == 2 * stages
    (loop,) = kinds(module, scf.For)
    assert isinstance(loop, scf.For)
    assert not kinds(loop, tt.Load) and not kinds(loop, gpu.LocalStore)
    # A wgmma that stays in flight needs a second barrier, or one slot more.
    in_flight = [wait for wait in kinds(loop, gpu.WgmmaWait) if isinstance(wait, gpu.WgmmaWait) and wait.pending]
    rings = {op.type.count for op in kinds(module, gpu.LocalAlloc) if isinstance(op.type, SharedType)} - {1}
    assert bool(in_flight) == (target == "sm_90a" and (stages > 2 or rings == {3}))
    assert rings == {stages} or (in_flight and rings == {stages + 1})
    assert len(kinds(loop, gpu.Barrier)) == (2 if in_flight and rings == {stages} else 1)
    assert len(kinds(loop, gpu.FenceAsync)) == (1 if target == "sm_90a" else 0)
    rng = np.random.default_rng(length)
    a, b = rng.integers(-3, 4, (m, length)), rng.integers(-3, 4, (length, n))
    inputs = np.ascontiguousarray(b.T if transposed else b).astype(np.float16)
    actual = np.full((m, n), 7, np.float32)
    arguments = [a.astype(np.float16), inputs, actual, length]
    simulate(to_llvm(module), num_warps=num_warps, shared=module.shared, arguments=arguments)
    np.testing.assert_array_equal(actual, a @ b)


def test_a_slot_less_for_a_third_cta() -> None:
    """The slot that an iteration has read is filled at its end, where rings with one more leave room for 2 CTAs."""
    module = placed(model_of(16, 64, 128), "sm_90a", 4, 4)
    (loop,) = kinds(module, scf.For)
    assert hazards(module) == [] and module.shared == 3 * (16 + 64) * 128 * 2
    assert [len(kinds(loop, kind)) for kind in (gpu.Barrier, gpu.AsyncCopy)] == [2, 2]
    assert len(kinds(module, gpu.AsyncCopy)) == 2 * (3 + 1)
    rng = np.random.default_rng(0)
    a, b, actual = rng.integers(-3, 4, (16, 720)), rng.integers(-3, 4, (720, 64)), np.full((16, 64), 7, np.float32)
    arguments = [a.astype(np.float16), b.astype(np.float16), actual, 720]
    simulate(to_llvm(module), num_warps=4, shared=module.shared, arguments=arguments)
    np.testing.assert_array_equal(actual, a @ b)


@zg.kernel
def scaled(a_ptr, b_ptr, s_ptr, out_ptr, k_size):
    """a · (b · s), with other scales for each block of 64 rows of b."""
    rows, columns, along = zg.expand(zg.arange(0, 128), 1), zg.expand(zg.arange(0, 128), 0), zg.arange(0, 64)
    total, first = zg.zeros((128, 128), zg.f32), zg.mul(zg.program_id(0), 128)
    for start in zg.range(0, k_size, 64):
        a = zg.load(zg.add(a_ptr, zg.add(zg.mul(rows, k_size), zg.expand(zg.add(along, start), 0))))
        at = zg.add(zg.mul(zg.expand(zg.add(along, start), 1), 128), zg.add(columns, first))
        scales = zg.load(zg.add(s_ptr, zg.add(zg.add(first, zg.mul(start, 2)), zg.arange(0, 128))))
        b = zg.mul(zg.cast(zg.load(zg.add(b_ptr, at)), zg.f32), zg.expand(scales, 0))
        total = zg.dot(a, zg.cast(b, zg.f16), total)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, 128), columns)), total)


def test_scales_that_many_threads_need_are_copied_ahead() -> None:
    i8 = zg.divisible(zg.ptr(zg.i8))
    compiled = scaled.compile(F16, i8, F32, F32, zg.divisible(zg.i32), target="sm_90a", num_warps=8)
    module = compiled.passes[-1].model
    assert isinstance(module, gpu.Module) and hazards(module) == []
    (loop,) = kinds(module, scf.For)
    assert not kinds(loop, tt.Load) and len(kinds(loop, gpu.Barrier)) == 2
    rng = np.random.default_rng(0)
    a, b, s = (rng.integers(-3, 4, shape) for shape in ((128, 256), (256, 128), (4, 128)))
    actual = np.full((128, 128), 7, np.float32)
    compiled.simulate[(1,)](a.astype(np.float16), b.astype(np.int8), s.astype(np.float32), actual, 256)
    np.testing.assert_array_equal(actual, a @ (b * np.repeat(s, 64, 0)))


@zg.kernel
def unpacked(a_ptr, w_ptr, out_ptr, k_size):
    """The product of a and numbers of 4 bits, eight rows of which are in one word."""
    rows, columns, along = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 128), 0), zg.arange(0, 64)
    total = zg.zeros((64, 128), zg.f32)
    for start in zg.range(0, k_size, 64):
        depth = zg.add(along, start)
        a = zg.load(zg.add(a_ptr, zg.add(zg.mul(rows, k_size), zg.expand(depth, 0))))
        words = zg.load(zg.add(w_ptr, zg.add(zg.mul(zg.expand(zg.floordiv(depth, 8), 1), 128), columns)))
        shift = zg.mul(zg.expand(zg.mod(along, 8), 1), 4)
        total = zg.dot(a, zg.cast((words >> shift) & 15, zg.f16), total)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, 128), columns)), total)


def test_words_of_several_rows_are_loaded_once() -> None:
    compiled = unpacked.compile(F16, zg.divisible(zg.ptr(zg.i32)), F32, zg.divisible(zg.i32), target="sm_90a")
    module = compiled.passes[-1].model
    assert isinstance(module, gpu.Module) and hazards(module) == []
    assert len(re.findall(r"ld.global.v4", compiled.ptx)) == 2 * 2  # Before the loop, and in it.
    rng = np.random.default_rng(0)
    a, w = rng.integers(-3, 4, (64, 256)), rng.integers(0, 16, (256, 128))
    words = (w.reshape(32, 8, 128) << 4 * np.arange(8).reshape(1, 8, 1)).sum(1).astype(np.uint32).view(np.int32)
    actual = np.full((64, 128), 7, np.float32)
    compiled.simulate[(1,)](a.astype(np.float16), words, actual, 256)
    np.testing.assert_array_equal(actual, a @ w)


def test_a_wait_too_few_is_found() -> None:
    """Both the simulation and the check report a loop that waits for too little."""
    module = placed(model_of(32, 32, 32), "sm_80", 4, 3)
    text = to_llvm(module).replace("cp.async.wait_group 1;", "cp.async.wait_group 2;")
    arguments = [np.ones((32, 96), np.float16), np.ones((96, 32), np.float16), np.zeros((32, 32), np.float32), 96]
    with pytest.raises(SimulationError):
        simulate(text, num_warps=4, shared=module.shared, arguments=arguments)


@pytest.mark.parametrize(("cls", "missing"), [(gpu.FenceAsync, "fence"), (gpu.Barrier, "barrier")])
def test_the_fence_and_the_barrier_are_needed(cls: type[Op], missing: str) -> None:
    """The check reports either; the simulation reports the barrier as well."""
    module = placed(model_of(64, 32, 32), "sm_90a", 4, 3)
    less = transform(module, lambda _builder, op, _operands: DROP if isinstance(op, cls) else None)
    assert missing in {hazard.missing for hazard in hazards(less)}
    if missing == "barrier":
        assert isinstance(less, gpu.Module)
        arguments = [np.ones((64, 96), np.float16), np.ones((96, 32), np.float16), np.zeros((64, 32), np.float32), 96]
        with pytest.raises(SimulationError):
            simulate(to_llvm(less), num_warps=4, shared=module.shared, arguments=arguments)


def test_no_more_stages_than_there_is_memory() -> None:
    """Two tiles of 32 kB each: 227 kB hold three stages, and something is left."""
    module = placed(model_of(128, 128, 128), "sm_90a", 4, 7)
    assert len(kinds(module, gpu.AsyncCopy)) == 6
    assert module.shared == 3 * 65536


def test_one_stage_changes_nothing() -> None:
    assert not kinds(placed(model_of(32, 32, 32), "sm_80", 4, 1), gpu.AsyncCopy)


@zg.kernel
def counting_down(a_ptr, b_ptr, out_ptr, start, N: zg.constexpr):
    """Dots of tiles whose addresses follow from the index, the last first; a loop with 2 stages."""
    at = zg.add(zg.mul(zg.expand(zg.arange(0, N), 1), N), zg.expand(zg.arange(0, N), 0))
    total = zg.zeros((N, N), zg.f32)
    for i in zg.range(start, -1, -2, num_stages=2):
        a = zg.load(zg.add(zg.add(a_ptr, zg.mul(i, N * N)), at))
        total = zg.dot(a, zg.load(zg.add(zg.add(b_ptr, zg.mul(i, N * N)), at)), total)
    zg.store(zg.add(out_ptr, at), total)


@pytest.mark.parametrize("start", [-1, 0, 1, 5])
def test_downwards_from_the_index(start: int) -> None:
    module = placed(counting_down.triton(F16, F16, F32, zg.i32, 16), "sm_80", 2, 4)
    verify(module)
    assert hazards(module) == []
    assert len(kinds(module, gpu.AsyncCopy)) == 4
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (max(start, 0) + 1, 16, 16)).astype(np.float16) for _ in range(2))
    actual = np.zeros((16, 16), np.float32)
    simulate(to_llvm(module), num_warps=2, shared=module.shared, arguments=[a, b, actual, start])
    expected = np.zeros((16, 16))
    for i in range(start, -1, -2):
        expected += a[i].astype(np.float64) @ b[i]
    np.testing.assert_array_equal(actual, expected)


@zg.kernel
def tile_by_tile(a_ptr, b_ptr, out_ptr, rounds, steps, N: zg.constexpr):
    """For each round, the sum of a[step] · b[round]: the inner loop begins again while its slots may still be read."""
    at = zg.add(zg.mul(zg.expand(zg.arange(0, N), 1), N), zg.expand(zg.arange(0, N), 0))
    whole = zg.zeros((N, N), zg.f32)
    for i in zg.range(0, rounds, num_stages=1):
        total = zg.zeros((N, N), zg.f32)
        for j in zg.range(0, steps):
            a = zg.load(zg.add(zg.add(a_ptr, zg.mul(j, N * N)), at))
            total = zg.dot(a, zg.load(zg.add(zg.add(b_ptr, zg.mul(i, N * N)), at)), total, input_precision="ieee")
        whole = zg.add(zg.mul(whole, 2.0), total)
    zg.store(zg.add(out_ptr, at), whole)


@pytest.mark.parametrize(("n", "dtype", "target", "num_warps"), [
    (16, np.float16, "sm_80", 2), (64, np.float16, "sm_90a", 4), (16, np.float32, "sm_80", 4),
])  # fmt: skip
def test_a_loop_in_a_loop(n: int, dtype: Any, target: str, num_warps: int) -> None:
    """Loops of mma.sync, wgmma, and multiply-adds on elements of f32."""
    pointer = F16 if dtype is np.float16 else F32
    module = placed(tile_by_tile.triton(pointer, pointer, F32, zg.i32, zg.i32, n), target, num_warps, 3)
    verify(module)
    assert hazards(module) == []
    assert len(kinds(module, gpu.AsyncCopy)) == 6
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-2, 3, (3, n, n)).astype(dtype) for _ in range(2))
    actual = np.zeros((n, n), np.float32)
    arguments = [a, b, actual, 2, 3]
    simulate(to_llvm(module), num_warps=num_warps, shared=module.shared, arguments=arguments)
    sums = [sum(a[j].astype(np.float64) @ b[i] for j in range(3)) for i in range(2)]
    np.testing.assert_array_equal(actual, 2 * sums[0] + sums[1])


@zg.kernel
def attention(q_ptr, k_ptr, v_ptr, out_ptr, length, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    """Softmax(q · kᵀ) · v over blocks of N keys: two dots, the second of which reads the result of the first."""
    rows, wide = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, D), 0)
    q = zg.load(zg.add(q_ptr, zg.add(zg.mul(rows, D), wide)))
    keys = zg.expand(zg.arange(0, N), 1)
    best = zg.full((M,), -1e30, zg.f32)
    weight = zg.zeros((M,), zg.f32)
    total = zg.zeros((M, D), zg.f32)
    for start in zg.range(0, length, N):
        at = zg.add(zg.mul(zg.add(start, keys), D), wide)
        mask = zg.compare(zg.add(start, keys), length, LESS)
        scores = zg.dot(q, zg.trans(zg.load(zg.add(k_ptr, at), mask, 0.0)), zg.zeros((M, N), zg.f32))
        inside = zg.compare(zg.add(start, zg.expand(zg.arange(0, N), 0)), length, LESS)
        scores = zg.where(inside, scores, -1e30)
        higher = zg.maximum(best, zg.max(scores, 1))
        p = zg.exp2(zg.sub(scores, zg.expand(higher, 1)))
        scale = zg.exp2(zg.sub(best, higher))
        weight = zg.add(zg.mul(weight, scale), zg.sum(p, 1))
        total = zg.mul(total, zg.expand(scale, 1))
        total = zg.dot(zg.cast(p, zg.f16), zg.load(zg.add(v_ptr, at), mask, 0.0), total)
        best = higher
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, D), wide)), zg.div(total, zg.expand(weight, 1)))


@pytest.mark.parametrize(("m", "target", "num_warps"), [(32, "sm_80", 2), (64, "sm_90a", 4)])
@pytest.mark.parametrize("stages", [2, 3])
def test_attention(m: int, target: str, num_warps: int, stages: int) -> None:
    length, n, d = 80, 32, 16
    module = placed(attention.triton(F16, F16, F16, F32, zg.i32, m, n, d), target, num_warps, stages)
    verify(module)
    assert hazards(module) == []
    assert len(kinds(module, gpu.AsyncCopy)) == 2 * stages
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((size, d)).astype(np.float16) for size in (m, length, length))
    actual = np.zeros((m, d), np.float32)
    simulate(to_llvm(module), num_warps=num_warps, shared=module.shared, arguments=[q, k, v, actual, length])
    scores = np.exp2(q.astype(np.float64) @ k.T.astype(np.float64))
    np.testing.assert_allclose(actual, scores @ v / scores.sum(1, keepdims=True), rtol=2e-3, atol=2e-3)


@zg.kernel
def in_place(a_ptr, b_ptr, out_ptr, steps, N: zg.constexpr):
    at = zg.add(zg.mul(zg.expand(zg.arange(0, N), 1), N), zg.expand(zg.arange(0, N), 0))
    for i in zg.range(0, steps):
        places = zg.add(zg.add(a_ptr, zg.mul(i, N * N)), at)
        product = zg.dot(zg.load(places), zg.load(zg.add(b_ptr, at)), zg.zeros((N, N), zg.f32))
        zg.store(places, zg.cast(product, zg.f16))
        zg.store(zg.add(b_ptr, at), zg.cast(product, zg.f16))


@zg.kernel
def other_than_zero(a_ptr, b_ptr, out_ptr, steps, N: zg.constexpr):
    at = zg.add(zg.mul(zg.expand(zg.arange(0, N), 1), N), zg.expand(zg.arange(0, N), 0))
    total = zg.zeros((N, N), zg.f32)
    for i in zg.range(0, steps):
        mask = zg.compare(at, zg.sub(1000, i), LESS)
        a = zg.load(zg.add(zg.add(a_ptr, zg.mul(i, N * N)), at), mask, 1.0)
        total = zg.dot(zg.add(a, a), a, total)
    zg.store(zg.add(out_ptr, at), total)


@pytest.mark.parametrize("kernel", [in_place, other_than_zero])
def test_loops_that_are_not_pipelined(kernel: Any) -> None:
    """A loop that writes what it loads, and loads with values for false masks or with other uses."""
    module = placed(kernel.triton(F16, F16, F32, zg.i32, 32), "sm_80", 4, 3)
    assert not kinds(module, gpu.AsyncCopy)


@zg.kernel
def biased(q_ptr, k_ptr, v_ptr, bias_ptr, out_ptr, n, BIAS: zg.constexpr):
    """Attention's two dots; the first one starts from what threads have loaded."""
    i, j = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0)
    at = zg.add(zg.mul(i, 64), j)
    q, total = zg.load(zg.add(q_ptr, at)), zg.zeros((64, 64), zg.f32)
    for first in range(0, n, 64):
        k, v = zg.load(zg.add(k_ptr, zg.add(at, first * 64))), zg.load(zg.add(v_ptr, zg.add(at, first * 64)))
        scores = zg.dot(q, zg.trans(k))
        if BIAS:
            scores = zg.add(scores, zg.expand(zg.load(zg.add(bias_ptr, zg.add(first, zg.arange(0, 64)))), 0))
        total = zg.dot(zg.cast(scores, zg.f16), v, zg.mul(total, 0.5))
    zg.store(zg.add(out_ptr, at), total)


@pytest.mark.parametrize("bias", [False, True])
def test_no_wgmma_is_in_flight_where_threads_write_an_accumulator(bias: bool, tmp_path: Path) -> None:
    module = placed(biased.triton(F16, F16, F16, F32, F32, zg.divisible(zg.i32), bias), "sm_90a", 4, 3)
    assert hazards(module) == []
    (loop,) = kinds(module, scf.For)
    order = [type(op) for op in loop.walk() if isinstance(op, gpu.Wgmma | gpu.WgmmaWait)]
    dot, wait = gpu.Wgmma, gpu.WgmmaWait
    assert order == ([wait, dot, wait, dot] if bias else [dot, wait, wait, dot])
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    (tmp_path / "kernel.ptx").write_text(assemble(module).ptx)
    command = [str(PTXAS), "-v", "-arch=sm_90a", str(tmp_path / "kernel.ptx"), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "C75" not in done.stderr, done.stderr


# TMA. The results of such loops are tested with emission (tests/backend/ptx/test_tma.py).


@zg.kernel
def two_loops(a_desc, b_desc, c_desc, middle, last, N: zg.constexpr):
    """One accumulator in two loops in sequence."""
    total = zg.zeros((N, N), zg.f32)
    for at in range(0, middle, N):
        total = zg.dot(a_desc.load((0, at)), b_desc.load((at, 0)), total)
    for at in range(middle, last, N):
        total = zg.dot(a_desc.load((0, at)), b_desc.load((at, 0)), total)
    c_desc.store((0, 0), zg.cast(total, zg.f16))


@pytest.mark.parametrize(("n", "stages", "expected"), [(64, 2, 2), (64, 4, 4), (128, 3, 3), (128, 8, 3)])
def test_loops_in_sequence_have_the_same_memory(n: int, stages: int, expected: int) -> None:
    """Each loop has as many slots as if it were alone, and its own mbarriers."""
    block = zg.descriptor((n, n), zg.f16)
    module = placed(two_loops.triton(block, block, block, zg.divisible(zg.i32), zg.i32, n), "sm_90a", 4, stages)
    verify(module)
    assert hazards(module) == []
    loops = kinds(module, scf.For)
    assert len(loops) == 2 and all(len(kinds(loop, gpu.TmaLoad)) == 2 for loop in loops)
    assert len(kinds(module, gpu.TmaLoad)) == 2 * 2 * expected
    assert len(kinds(module, gpu.MbarrierInit)) == len(kinds(module, gpu.MbarrierInval)) == 2
    # The second loop's mbarriers may not overlap the first's, which are still in use, but the blocks may.
    assert expected * 2 * 2 * n * n <= module.shared <= expected * 2 * 2 * n * n + 1024


@pytest.mark.parametrize(("stages", "expected"), [(2, 2), (3, 3), (6, 6)])
def test_one_mbarrier_for_each_stage(stages: int, expected: int) -> None:
    """It counts the bytes of both blocks; the loop carries the slot index and the phase."""
    block = zg.descriptor((64, 64), zg.f16)
    module = placed(two_loops.triton(block, block, block, zg.divisible(zg.i32), zg.i32, 64), "sm_90a", 4, stages)
    for op in kinds(module, gpu.MbarrierInit):
        assert isinstance(op, gpu.MbarrierInit)
        assert isinstance(op.buffer.type, SharedType) and op.buffer.type.count == expected and op.arrivals == 1
    for op in kinds(module, gpu.MbarrierExpect):
        assert isinstance(op, gpu.MbarrierExpect) and op.bytes == 2 * 64 * 64 * 2
    for loop in kinds(module, scf.For):
        # One barrier an iteration, between the wgmma of the one before and the fetch into its slot.
        assert len(kinds(loop, gpu.Barrier)) == len(kinds(loop, gpu.MbarrierWait)) == 1
        assert not kinds(loop, gpu.FenceAsync) and not kinds(loop, gpu.LocalStore)
        waits = kinds(loop, gpu.WgmmaWait)
        assert [op.pending for op in waits if isinstance(op, gpu.WgmmaWait)] == [1]


@pytest.mark.parametrize(
    ("m", "n", "k", "target", "num_warps", "transposed"),
    [(128, 128, 32, "sm_80", 8, False), (128, 128, 64, "sm_90a", 4, False), (128, 256, 64, "sm_90a", 8, True)],
)
def test_assembled(m: int, n: int, k: int, target: str, num_warps: int, transposed: bool, tmp_path: Path) -> None:
    """ptxas needs no local memory, and sees no reason to wait after each wgmma (its warning C7510)."""
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    text = assemble(placed(model_of(m, n, k, masked=False, transposed=transposed), target, num_warps, 3)).ptx
    assert re.search(r"cp\.async\.cg\.shared\.global \[ %r\d+ \+ \d+ \], \[ %rd\d+ \+ 0 \], 16, %p\d+;", text)
    (tmp_path / "kernel.ptx").write_text(text)
    command = [str(PTXAS), "-v", f"-arch={target}", str(tmp_path / "kernel.ptx"), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr
    assert "C7510" not in done.stderr
