"""Long kernels as several functions: results, errors, types of values, and the length of each function."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu import outline
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu
from ziggurat.backend.jit.loading import llvm
from ziggurat.backend.reference.run import run

F32 = zg.ptr(zg.f32)


@zg.kernel
def mixed(x_ptr, out_ptr, n, R: zg.constexpr):
    """Rows, reductions, scalars that later rows need, branches and loops around rows."""
    at = zg.arange(0, 32)
    total = 0.0
    rows = zg.zeros((32,), zg.f32)
    for a in zg.static_range(R):
        x = zg.load(zg.add(x_ptr, zg.add(at, a * 32)), zg.less(at, n), other=1.0)
        rows = zg.fma(x, 0.5, rows)
        total = total + zg.sum(x, 0)
        if total > 10.0:
            zg.store(zg.add(out_ptr, zg.add(at, a * 32)), zg.mul(rows, total), zg.less(at, n + a))
        for b in range(n):
            zg.store(zg.add(out_ptr, a * 32 + b), zg.load(zg.add(out_ptr, a * 32 + b)) + b)
        while total > 20.0:
            total = total - zg.load(zg.add(x_ptr, a)) - 1.0
    zg.store(out_ptr, total)


@zg.kernel
def unrolled(x_ptr, out_ptr, n, R: zg.constexpr):
    at = zg.arange(0, 64)
    for a in zg.static_range(R):
        place = zg.add(at, a * 64)
        zg.store(
            zg.add(out_ptr, place),
            zg.add(zg.load(zg.add(x_ptr, place), zg.less(place, n), 0.0), 1.0),
            zg.less(place, n),
        )


@zg.kernel
def sums(x_ptr, out_ptr, R: zg.constexpr):
    at = zg.arange(0, 64)
    total = zg.zeros((64,), zg.f32)
    for a in zg.static_range(R):
        total = zg.fma(zg.load(zg.add(x_ptr, zg.add(at, a * 64))), 2.0, total)
    zg.store(zg.add(out_ptr, at), total)


def functions(text: str) -> list[str]:
    return re.findall(r"^define .*?^}", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("long", "n"), ((1, 0), (1, 32), (40, 5), (400, 0), (400, 5)))
def test_a_divided_kernel_gives_the_same_results(monkeypatch, long, n):
    monkeypatch.setattr(outline, "LONG", long)
    model = mixed.triton(F32, F32, zg.i32, 6)
    x = np.random.default_rng(n).standard_normal(6 * 32).astype(np.float32) + 1
    mine, theirs = np.zeros(6 * 32, np.float32), np.zeros(6 * 32, np.float32)
    assert len(functions(compile_cpu(model, CpuOptions()).llvm)) > 2
    run_cpu(model, (2,), [x, mine, n])
    run(model, None, (2,), [x, theirs, n])
    np.testing.assert_array_equal(mine, theirs)


def test_an_error_in_a_function_is_that_of_the_kernel(monkeypatch):
    monkeypatch.setattr(outline, "LONG", 1)
    x, out = np.zeros(300, np.float32), np.zeros(640, np.float32)
    with pytest.raises(zg.MemoryAccessError, match=r"program \(0, 0, 0\) reads x_ptr\[300\]") as native:
        unrolled[(1,)](x, out, 640, R=10)
    with pytest.raises(zg.MemoryAccessError) as interpreted:
        unrolled[(1,)](x, out, 640, R=10, interpret=True)
    places = [error.value.location for error in (native, interpreted)]
    assert {(place.line, place.column) for place in places} == {(places[0].line, places[0].column)}
    assert (out[:256] == 1).all()


@pytest.mark.parametrize("line_info", (False, True))
def test_the_type_of_each_value_is_that_of_llvm(line_info):
    """`type_of` reads it from the text."""
    for model in (mixed.triton(F32, F32, zg.i32, 3), unrolled.triton(zg.ptr(zg.bf16), zg.ptr(zg.bf16), zg.i32, 2)):
        text = compile_cpu(model, CpuOptions(line_info=line_info)).llvm
        module = llvm().parse_assembly(text)
        types = {
            value.name: str(value.type)
            for function in module.functions
            for block in function.blocks
            for value in block.instructions
            if value.name
        }
        definitions = dict(re.findall(r"^  %([\w.]+) = (.*)", text, re.MULTILINE))
        assert {name: outline.type_of(instruction) for name, instruction in definitions.items()} == {
            name: types[name] for name in definitions
        }


@pytest.mark.parametrize("kernel", (unrolled, sums))
def test_no_function_of_an_unrolled_loop_is_long(monkeypatch, kernel):
    monkeypatch.setattr(outline, "LONG", 500)
    types = (F32, F32, zg.i32) if kernel is unrolled else (F32, F32)
    text = compile_cpu(kernel.triton(*types, 80), CpuOptions()).llvm
    lengths = [function.count("\n") for function in functions(text)]
    assert len(lengths) > 5 and max(lengths) < 3 * outline.LONG


def test_the_time_of_compilation_is_proportional_to_the_length():
    seconds = {}
    for count in (16, 128):
        model = unrolled.triton(F32, F32, zg.i32, count)
        begun = time.process_time()
        compile_cpu(model, CpuOptions())
        seconds[count] = time.process_time() - begun
    assert seconds[128] < 14 * seconds[16]  # With one function it was 20 times and more.
