"""Matrices that a dot keeps packed for the next programs of a thread: results are those of a dot that keeps none."""

from __future__ import annotations

import re

import numpy as np
import pytest
from native_machines import MACHINES
from run_cpu import run_cpu

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import to_llvm, vector_bytes
from ziggurat.backend.jit.loading import host
from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.op import expect
from ziggurat.transforms.cpu.cpu_passes import lower


@triton.jit
def product(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    KIND: tl.constexpr = tl.float32,
):
    row, column = tl.program_id(0), tl.program_id(1)
    if COLUMNS_FIRST:
        column, row = row, column
    rows, columns = row * M + tl.arange(0, M), column * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    acc = tl.zeros((M, N), KIND)
    for start in range(0, k, K):
        a_mask = (rows[:, None] < m) & (inner[None, :] + start < k)
        b_mask = (inner[:, None] + start < k) & (columns[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + (inner[None, :] + start), a_mask, other=0.0)
        if TRANSPOSED:  # In memory.
            mask = (columns[:, None] < n) & (inner[None, :] + start < k)
            b = tl.load(b_ptr + columns[:, None] * k + (inner[None, :] + start), mask, other=0.0).T
        else:
            b = tl.load(b_ptr + (inner[:, None] + start) * n + columns[None, :], b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=KIND)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], acc, (rows[:, None] < m) & (columns[None, :] < n))


@pytest.fixture(autouse=True)
def one_thread():
    """All programs of a launch run in one call."""
    threads = zg.get_num_threads()
    zg.set_num_threads(1)
    yield
    zg.set_num_threads(threads)


def models(
    block: tuple[int, int, int],
    columns_first: bool,
    keep: int | None,
    transposed: bool = False,
    types: tuple[zg.ScalarType, zg.ScalarType] = (zg.f32, zg.f32),
):
    """The CPU model, with another number of matrices to keep, and one that keeps none."""
    element, total = map(zg.ptr, types)
    triton_model = product.triton(
        element, element, total, zg.i32, zg.i32, zg.i32, *block, columns_first, transposed, types[1]
    )
    text = str(lower(triton_model, vector_bytes(host()[1])))
    assert " @keep=" in text
    none = re.sub(r" @keep=\d+", "", text)
    return zg.parse(text if keep is None else re.sub(r"@keep=\d+", f"@keep={keep}", text)), zg.parse(none)


SIZES = [(96, 160, 80), (61, 47, 53), (33, 128, 200), (16, 16, 16)]


@pytest.mark.parametrize(
    ("columns_first", "keep", "transposed"),
    [(False, None, False), (False, 2, False), (True, 1, False), (False, 2, True)],
)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_kept_matrices_change_no_bit(
    sizes: tuple[int, int, int], keep: int | None, columns_first: bool, transposed: bool
):
    m, n, k = sizes
    block = 32, 32, 16
    rng = np.random.default_rng(m * n * k)
    grid = -(-m // block[0]), -(-n // block[1])
    for _ in range(2):  # The second launch has other numbers at the same addresses.
        a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
        results = []
        for model in models(block, columns_first, keep, transposed):
            c = np.full((m, n), np.nan, np.float32)
            operand = np.ascontiguousarray(b.T) if transposed else b
            run_cpu(model, grid[::-1] if columns_first else grid, [a, operand, c, m, n, k])
            results.append(c)
        assert results[0].tobytes() == results[1].tobytes()
        np.testing.assert_allclose(results[0], a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", [np.float16, np.int8])
@pytest.mark.parametrize("depth", [32, 64])
def test_matrices_are_kept_as_they_are_converted(depth: int, kind: type, transposed: bool):
    m, n, k = 70, 96, 130
    types = (zg.f16, zg.f32) if kind is np.float16 else (zg.i8, zg.i32)
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(-100, 100, shape).astype(kind) for shape in ((m, k), (k, n)))
    for model in models((32, 32, depth), False, None, transposed, types):
        c = np.full((m, n), -1, np.float32 if kind is np.float16 else np.int32)
        run_cpu(model, (-(-m // 32), n // 32), [a, np.ascontiguousarray(b.T) if transposed else b, c, m, n, k])
        np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))


@triton.jit
def narrower(a_ptr, b_ptr, c_ptr, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Each program leaves out more of the rows and the columns of one second operand."""
    row, inner, columns = tl.program_id(0), tl.arange(0, K), tl.arange(0, N)
    rows, acc = row * M + tl.arange(0, M), tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        at = inner + start
        a = tl.load(a_ptr + rows[:, None] * k + at[None, :])
        mask = (at[:, None] < k - 3 * row) & (columns[None, :] < n - 5 * row)
        acc = tl.dot(
            a, tl.load(b_ptr + at[:, None] * n + columns[None, :], mask, other=0.0), acc, input_precision="ieee"
        )
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


@pytest.mark.parametrize("machine", MACHINES)
def test_programs_that_mask_more_of_a_matrix_pack_it_again(machine: CpuOptions):
    m, n, k = 4 * 32, 60, 48
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    model = narrower.triton(*3 * [zg.ptr(zg.f32)], zg.i32, zg.i32, 32, 64, 16)
    c = np.full((m, 64), np.nan, np.float32)
    run_cpu(model, (4,), [a, b, c, n, k], options=machine)
    for row in range(4):
        masked = np.zeros((k, 64), np.float32)
        masked[: k - 3 * row, : n - 5 * row] = b[: k - 3 * row, : n - 5 * row]
        np.testing.assert_allclose(c[32 * row :][:32], a[32 * row :][:32] @ masked, rtol=1e-4, atol=1e-4)


def test_a_matrix_that_shares_memory_with_a_result_is_not_kept():
    """Each program of a column changes the matrix that the next one reads."""
    m, n, k = 96, 32, 32
    rng = np.random.default_rng(0)
    a, memory = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (m, n)))
    results = []
    for model in models((32, 32, 16), False, None):
        shared = memory.copy()
        run_cpu(model, (m // 32, 1), [a, shared[:k], shared, m, n, k])
        results.append(shared)
    assert results[0].tobytes() == results[1].tobytes()
    np.testing.assert_allclose(results[0][32:64], a[32:64] @ results[0][:32], rtol=1e-4, atol=1e-4)


DOTS = [
    (zg.f32, "ieee", 64, True),
    (zg.f64, "ieee", 64, True),
    (zg.f32, "tf32", 64, False),
    (zg.f16, "ieee", 64, True),
    (zg.i8, "ieee", 64, True),
    (zg.f32, "ieee", 4, False),
    (zg.f16, "ieee", 4, True),
]


@pytest.mark.parametrize(("type_", "precision", "rows", "keeps"), DOTS, ids=str)
@pytest.mark.parametrize("machine", MACHINES)
def test_dots_that_keep_nothing_do_not_say_so(
    machine: CpuOptions, type_: zg.ScalarType, precision: str, rows: int, keeps: bool
):
    """Operands of which parts are multiplied, or that are not packed, are not kept."""
    pointer, options = zg.ptr(type_), machine.resolved()
    accumulator = zg.i32 if type_ == zg.i8 else zg.f64 if type_ == zg.f64 else zg.f32
    out = zg.ptr(accumulator)
    text = str(lower(dots.triton(pointer, pointer, out, zg.i32, rows, precision), vector_bytes(options.features)))
    assert (" @keep=" in text) == keeps
    module = expect(zg.parse(text), cpu.Module)
    assert ("%zeros" in to_llvm(module, options)[1]) == keeps


@triton.jit
def dots(a_ptr, b_ptr, c_ptr, n, M: tl.constexpr, PRECISION: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, 128)
    columns = tl.program_id(0) * 128 + tl.arange(0, 128)
    a = tl.load(a_ptr + rows[:, None] * 128 + inner[None, :])
    b = tl.load(b_ptr + inner[:, None] * n + columns[None, :])
    c = tl.dot(a, b, input_precision=PRECISION, out_dtype=c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], c)
