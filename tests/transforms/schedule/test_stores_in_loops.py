"""Loops with dots and stores: which loads begin before the stores of earlier iterations, and with which results."""

from __future__ import annotations

import functools
import re
import warnings
from random import Random
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.transforms.gpu.gpu_passes import place

F16, F32, I32 = (zg.divisible(zg.ptr(type_)) for type_ in (zg.f16, zg.f32, zg.i32))
POINTER = zg.ptr(zg.f16)
LESS, EQUAL = zg.CompareKind.LESS_THAN, zg.CompareKind.EQUAL


@zg.kernel
def summed(a, b, log, count, pointers, out, steps, kind: zg.constexpr):
    """Σ a[t] · b[t], 32×32 by 32×32, and a store or another op of a `kind` in each iteration."""
    i = zg.arange(0, 32)
    at = zg.add(zg.mul(zg.expand(i, 1), 32), zg.expand(i, 0))
    total = zg.zeros((32, 32), zg.f32)
    for t in zg.range(0, steps, num_stages=3):
        from_ = a
        if kind == "loads of a selected pointer":
            from_ = zg.where(zg.compare(steps, 7, LESS), a, log)
        x = zg.load(zg.add(from_, zg.add(at, zg.mul(t, 1024))))
        total = zg.dot(x, zg.load(zg.add(b, zg.add(at, zg.mul(t, 1024)))), total)
        row = zg.cast(zg.sum(total, 1), zg.f16)
        if kind == "another argument" or kind == "loads of a selected pointer":
            zg.store(zg.add(log, zg.add(i, zg.mul(t, 32))), row)
        elif kind == "masked":
            zg.store(zg.add(log, zg.add(i, zg.mul(t, 32))), row, zg.compare(i, t, LESS))
        elif kind == "in a branch":
            if zg.compare(zg.mod(t, 2), 0, EQUAL):
                zg.store(zg.add(log, zg.add(i, zg.mul(t, 32))), row)
        elif kind == "in a loop":
            for _ in zg.range(0, t):
                zg.store(zg.add(log, zg.add(i, zg.mul(t, 32))), row)
        elif kind == "relaxed atomic":
            zg.atomic_add(zg.add(count, t), 1, sem="relaxed")
        elif kind == "the same argument":
            zg.store(zg.add(a, zg.add(i, zg.mul(zg.add(t, 1), 1024))), row)
        elif kind == "both arguments":
            zg.store(zg.add(a, i), row)
            zg.store(zg.add(b, i), row)
        elif kind == "a selected pointer":
            zg.store(zg.add(zg.where(zg.compare(t, 7, LESS), a, log), i), row)
        elif kind == "a loaded pointer":
            zg.store(zg.add(zg.cast(zg.load(pointers), POINTER), i), row)
        elif kind == "atomic that acquires":
            before = zg.atomic_add(zg.add(count, t), 1, sem="acquire")
            total = zg.add(total, zg.cast(before, zg.f32))
        elif kind == "relaxed atomic in the same argument":
            zg.atomic_add(zg.add(a, t), zg.cast(1.0, zg.f16), sem="relaxed")
        elif kind == "barrier":
            zg.store(zg.add(log, i), row)
            zg.debug_barrier()
        elif kind == "volatile load":
            total = zg.add(total, zg.cast(zg.load(zg.add(log, t), volatile=True), zg.f32))
    zg.store(zg.add(out, at), total)


TYPES = (F16, F16, F16, I32, zg.divisible(zg.ptr(zg.i64)), F32, zg.i32)
APART = ("none", "another argument", "masked", "in a branch", "in a loop", "relaxed atomic")
ONE_SIDE = (
    "the same argument",
    "a selected pointer",
    "relaxed atomic in the same argument",
    "loads of a selected pointer",
)
BOTH = ("both arguments", "a loaded pointer", "atomic that acquires", "barrier", "volatile load")


def placed(kernel: Any, *types: Any, target: str = "sm_90a", **options: Any) -> tuple[gpu.Module, list[str]]:
    """The GPU model, and the warnings."""
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        options = {"num_warps": 4, "num_stages": 3, "raise_pointers": False, **options}
        model = place(kernel.triton(*types), CompileOptions(target, verify=True, **options))
    return model, [str(warning.message) for warning in issued]


def copies(model: Op) -> int:
    """The copies in the loop."""
    loop = next(op for op in model.walk() if isinstance(op, scf.For))
    return sum(isinstance(op, gpu.AsyncCopy) for op in loop.body.entry.ops)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("kind", "count"),
    [*((kind, 2) for kind in APART), *((kind, 1) for kind in ONE_SIDE), *((kind, 0) for kind in BOTH)],
)
def test_which_stores_keep_loads_in_place(kind: str, count: int, target: str) -> None:
    """The loop stores to memory of none, one or both of its operands, or orders all accesses."""
    model, issued = placed(summed, *TYPES, kind, target=target)
    assert copies(model) == count
    saved = [text for text in issued if text.startswith("the load is not pipelined: an op in its loop writes")]
    assert len(saved) == 2 - count + (kind in ("volatile load", "a loaded pointer")), issued


@zg.kernel
def counted(a, b, row, out, steps):
    """Σ a[t] · b[t] + row, where each iteration adds 1 to the row and reads it for the next iteration."""
    i = zg.arange(0, 32)
    at = zg.add(zg.mul(zg.expand(i, 1), 32), zg.expand(i, 0))
    total, offset = zg.zeros((32, 32), zg.f32), zg.load(zg.add(row, i))
    for t in zg.range(0, steps):
        place = zg.add(at, zg.mul(t, 1024))
        total = zg.add(zg.dot(zg.load(zg.add(a, place)), zg.load(zg.add(b, place)), total), zg.expand(offset, 0))
        zg.store(zg.add(row, i), zg.add(offset, 1.0))
        offset = zg.load(zg.add(row, i))
    zg.store(zg.add(out, at), total)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_load_for_the_next_iteration_stays_after_a_store_to_its_memory(target: str) -> None:
    model, _ = placed(counted, F16, F16, F32, F32, zg.i32, target=target)
    assert copies(model) == 2
    random, steps = np.random.default_rng(0), 4
    a, b = (random.integers(-2, 3, (steps, 32, 32)).astype(np.float16) for _ in range(2))
    row, out = np.zeros(32, np.float32), np.zeros((32, 32), np.float32)
    zg.run(model, 1, a, b, row, out, steps)
    np.testing.assert_array_equal(out, (a.astype(np.float32) @ b).sum(0) + sum(range(steps)))
    np.testing.assert_array_equal(row, steps)


@functools.cache
def compiled_once(kind: str) -> zg.Compiled:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zg.ZigguratWarning)
        return summed.compile(*TYPES, kind, num_warps=4, raise_pointers=False, verify=True)


@pytest.mark.parametrize("kind", ["another argument", "in a branch", "relaxed atomic", "barrier"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_results_with_stores(kind: str, steps: int) -> None:
    random = np.random.default_rng(steps)
    a, b = (random.integers(-2, 3, 1024 * (steps + 1)).astype(np.float16) for _ in range(2))
    arrays = [a, b, np.zeros(32 * (steps + 1), np.float16), np.zeros(8, np.int32), np.zeros(1, np.int64)]
    arrays.append(np.zeros(1024, np.float32))
    simulated, expected = ([array.copy() for array in arrays] for _ in range(2))
    compiled_once(kind).simulate[(1,)](*simulated, steps, seed=steps)
    summed[(1,)](*expected, steps, kind, interpret=True)
    for array, other in zip(simulated, expected, strict=True):
        np.testing.assert_array_equal(array, other)


@zg.kernel
def row_sums(a, b, log, c, k, stores: zg.constexpr):
    """a · b, and the row sums after each step."""
    i, total = zg.arange(0, 64), zg.zeros((64, 64), zg.f32)
    for j in range(0, k, 64):
        x = zg.load(zg.add(a, zg.add(zg.mul(zg.expand(i, 1), k), zg.expand(zg.add(i, j), 0))))
        y = zg.load(zg.add(b, zg.add(zg.mul(zg.expand(zg.add(i, j), 1), 64), zg.expand(i, 0))))
        total = zg.dot(x, y, total)
        if stores:
            zg.store(zg.add(log, zg.add(i, j)), zg.sum(total, 1))
    zg.store(zg.add(c, zg.add(zg.mul(zg.expand(i, 1), 64), zg.expand(i, 0))), total)


def test_a_store_costs_no_copy_and_no_buffer() -> None:
    types, options = (F16, F16, F32, F32, zg.divisible(zg.i32)), {"num_stages": 3, "raise_pointers": False}
    plain, values = (row_sums.compile(*types, stores, num_warps=4, **options) for stores in (False, True))
    assert [len(re.findall(r"cp\.async\.c[ag]\b", item.ptx)) for item in (plain, values)] == [24, 24]
    assert plain.shared == values.shared == 49152


@zg.kernel
def mixed(a, b, v, log, count, out, steps, case: zg.constexpr):
    """Dots of blocks and another load, chosen by `case`, with a store in each iteration."""
    m, k, n = case[0]
    stages, store, extra, result, computed = case[1], case[2], case[3], case[4], case[5]
    i, along, j = zg.arange(0, m), zg.arange(0, k), zg.arange(0, n)
    at_a = zg.add(zg.mul(zg.expand(i, 1), k), zg.expand(along, 0))
    at_b = zg.add(zg.mul(zg.expand(along, 1), n), zg.expand(j, 0))
    at_c = zg.add(zg.mul(zg.expand(i, 1), n), zg.expand(j, 0))
    first = zg.mul(zg.program_id(0), steps)
    total = zg.zeros((m, n), zg.f32)
    pointers = zg.add(b, zg.add(at_b, zg.mul(first, k * n)))
    for t in zg.range(0, steps, num_stages=stages):
        step = zg.add(first, t)
        if store == "state":
            zg.store(zg.add(log, zg.add(at_c, zg.mul(step, m * n))), zg.cast(total, zg.f16))
        x = zg.load(zg.add(a, zg.add(at_a, zg.mul(step, m * k))))
        if result:
            y = zg.load(pointers)
            pointers = zg.add(pointers, k * n)
        else:
            y = zg.load(zg.add(b, zg.add(at_b, zg.mul(step, k * n))))
        if computed:
            x = zg.cast(zg.mul(zg.cast(x, zg.f32), 0.5), zg.f16)
        product = zg.dot(x, y)
        if extra == "row":
            product = zg.mul(product, zg.expand(zg.load(zg.add(v, zg.add(zg.mul(step, n), j))), 0))
        elif extra == "column":
            product = zg.add(product, zg.expand(zg.load(zg.add(v, zg.add(zg.mul(step, m), i))), 1))
        elif extra == "tile":
            mask = zg.compare(at_c, zg.sub(m * n, t), LESS)
            product = zg.add(product, zg.load(zg.add(v, zg.add(zg.mul(step, m * n), at_c)), mask, 1.0))
        elif extra == "gathered":
            place_ = zg.load(zg.add(count, zg.add(8, step)))
            product = zg.add(product, zg.expand(zg.load(zg.add(v, zg.add(zg.mul(place_, m), i))), 1))
        total = zg.add(total, product)
        if store == "rows":
            zg.store(zg.add(log, zg.add(zg.mul(step, m), i)), zg.cast(zg.sum(product, 1), zg.f16))
        elif store == "same":
            zg.store(zg.add(v, zg.add(zg.mul(zg.add(step, 1), n), j)), zg.cast(j, zg.f32))
        elif store == "atomic":
            zg.atomic_add(zg.add(count, zg.program_id(0)), 1)
    zg.store(zg.add(out, zg.add(at_c, zg.mul(zg.program_id(0), m * n))), total)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.filterwarnings("ignore::ziggurat.ZigguratWarning")
def test_random_loops(seed: int) -> None:
    """The interpreter runs the placed model, whose waits `verify` checks; one in four runs in the simulation."""
    random = Random(seed)
    m, k, n = shape = random.choice(((64, 32, 16), (64, 64, 64), (64, 16, 32), (128, 32, 32), (32, 32, 16)))
    store = random.choice(("none", "state", "rows", "same", "atomic"))
    extra = random.choice(("none", "row", "column", "tile", "gathered"))
    case = (shape, random.choice((None, 1, 2, 3, 4)), store, extra, random.random() < 0.5, random.random() < 0.5)
    target, warps = random.choice(("sm_80", "sm_90a")), random.choice((2, 4, 8))
    compiled = mixed.compile(F16, F16, F32, F16, I32, F32, zg.i32, case, num_warps=warps, target=target, verify=True)
    steps, programs, values = random.choice((0, 1, 2, 4)), 1 if store == "same" else 2, np.random.default_rng(seed)
    blocks = max(steps, 1) * programs + 1
    a, b, v = (values.integers(-2, 3, blocks * size) for size in (m * k, k * n, m * n))
    count = np.append(np.zeros(8), values.integers(0, blocks, blocks)).astype(np.int32)
    arrays = [a.astype(np.float16), b.astype(np.float16), v.astype(np.float32), np.zeros(blocks * m * n, np.float16)]
    arrays += [count, np.zeros(programs * m * n, np.float32)]
    actual, expected = ([array.copy() for array in arrays] for _ in range(2))
    if seed % 4 == 0:
        compiled.simulate[(programs,)](*actual, steps, seed=seed // 4)
    else:
        zg.run(compiled.stages["gpu"], programs, *actual, steps)
    mixed[(programs,)](*expected, steps, case, interpret=True)
    for array, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(array, other)


@zg.kernel
def two_vectors(q, d, k, lse, delta, out, n, BLOCK: zg.constexpr):
    """As the gradient of attention's keys: each step needs two vectors in the layout of the dot's columns."""
    i, columns, j = zg.arange(0, BLOCK), zg.arange(0, 64), zg.arange(0, 64)
    keys = zg.load(zg.add(k, zg.add(zg.mul(zg.expand(i, 1), 64), zg.expand(columns, 0))))
    total = zg.zeros((BLOCK, 64), zg.f32)
    offset = zg.mul(zg.program_id(0), n)
    for start in range(0, n, 64):
        at = zg.add(zg.mul(zg.expand(zg.add(zg.add(j, start), offset), 1), 64), zg.expand(columns, 0))
        rows, others = zg.load(zg.add(q, at)), zg.load(zg.add(d, at))
        places = zg.add(zg.add(j, start), offset)
        p = zg.exp2(zg.sub(zg.dot(keys, zg.trans(rows)), zg.expand(zg.load(zg.add(lse, places)), 0)))
        p = zg.mul(p, zg.expand(zg.load(zg.add(delta, places)), 0))
        total = zg.dot(zg.cast(p, zg.f16), others, total)
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(i, 1), 64), zg.expand(columns, 0))), total)


def test_vectors_of_an_epilogue_are_copied_with_the_operands() -> None:
    """They have a slot of the same ring of copies, so that the loop needs no barrier more."""
    types = (F16, F16, F16, F32, F32, F32, zg.divisible(zg.i32))
    model, _ = placed(two_vectors, *types, 128, num_warps=8)
    loop = next(op for op in model.walk() if isinstance(op, scf.For))
    ops = list(loop.body.entry.ops)
    assert copies(model) == 4 and not any(isinstance(op, tt.Load) for op in ops)
    assert sum(isinstance(op, gpu.Barrier) for op in ops) == sum(isinstance(op, gpu.AsyncCommit) for op in ops) == 1


def test_an_operand_that_threads_compute_is_copied_ahead() -> None:
    case = ((64, 64, 64), None, "none", "none", False, True)
    model, _ = placed(mixed, F16, F16, F32, F16, I32, F32, zg.i32, case)
    assert copies(model) == 2


def test_pages_begin_after_their_numbers() -> None:
    """The blocks of both operands are gathered: no address is known an iteration ahead without a load."""
    model, issued = placed(gathered_dots, F16, F16, I32, F32, zg.i32)
    assert copies(model) == 2 and not issued


@zg.kernel
def gathered_dots(k, v, pages, out, n):
    i = zg.arange(0, 64)
    at = zg.add(zg.mul(zg.expand(i, 1), 64), zg.expand(i, 0))
    total = zg.zeros((64, 64), zg.f32)
    for t in zg.range(0, n, num_stages=3):
        page = zg.mul(zg.load(zg.add(pages, zg.add(zg.mul(zg.program_id(0), n), t))), 4096)
        total = zg.dot(zg.load(zg.add(k, zg.add(at, page))), zg.load(zg.add(v, zg.add(at, page))), total)
    zg.store(zg.add(out, at), total)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_results_of_pages(steps: int) -> None:
    compiled = gathered_dots.compile(F16, F16, I32, F32, zg.i32, num_warps=4, num_stages=3, verify=True)
    random = np.random.default_rng(steps)
    k, v = (random.integers(-2, 3, (4, 64, 64)).astype(np.float16) for _ in range(2))
    pages, out = random.integers(0, 4, max(steps, 1)).astype(np.int32), np.full((64, 64), np.nan, np.float32)
    compiled.simulate[(1,)](k, v, pages, out, steps)
    selection = pages[:steps]
    assert np.array_equal(out, (k[selection].astype(np.float32) @ v[selection].astype(np.float32)).sum(0))


@zg.kernel
def gathered_rows(q, k, rows, out, n, N: zg.constexpr):
    """Each row of a block of keys has a place of its own, which the loop loads."""
    i, j = zg.arange(0, 64), zg.arange(0, N)
    queries = zg.load(zg.add(q, zg.add(zg.mul(zg.expand(i, 1), 64), zg.expand(i, 0))))
    total = zg.zeros((64, N), zg.f32)
    for t in zg.range(0, n, num_stages=3):
        row = zg.mul(zg.load(zg.add(rows, zg.add(zg.mul(t, N), j))), 64)
        total = zg.dot(queries, zg.trans(zg.load(zg.add(k, zg.add(zg.expand(row, 1), zg.expand(i, 0))))), total)
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(i, 1), N), zg.expand(j, 0))), total)


@pytest.mark.parametrize(("size", "registers"), [(64, 4), (128, 4)])
def test_rows_begin_after_their_numbers(size: int, registers: int) -> None:
    """A thread copies from 4 or 8 rows. Of 8, each warp loads all numbers once, and its lanes exchange them."""
    compiled = gathered_rows.compile(F16, F16, I32, F32, zg.i32, size, num_warps=4, verify=True)
    (loop,) = (op for op in compiled.stages["gpu"].walk() if isinstance(op, scf.For))
    assert any(isinstance(op, gpu.AsyncCopy) for op in loop.walk())
    loads = [op for op in loop.walk() if isinstance(op, tt.Load)]
    assert [len(op.result.type.layout.unique_registers) for op in loads] == [registers]  # type: ignore[attr-defined]
    random = np.random.default_rng(size)
    q, k = (random.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 64), (4 * size, 64)))
    rows, out = random.integers(0, 4 * size, (3, size)).astype(np.int32), np.zeros((64, size), np.float32)
    compiled.simulate[(1,)](q, k, rows, out, 3)
    assert np.array_equal(out, sum(q.astype(np.float32) @ k[numbers].astype(np.float32).T for numbers in rows))
