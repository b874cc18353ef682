"""The decisions of `vectorize` stand in the CPU model: other ones are compiled, with the same results, or refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from native_models import F32, MODELS
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu, to_llvm
from ziggurat.codemodel.errors import TargetError, VerifyError
from ziggurat.transforms.cpu.cpu_passes import lower

VECTOR = 16  # Any processor has these.


@zg.kernel
def row_sums(out_ptr, x_ptr, ROWS: zg.constexpr, SIZE: zg.constexpr):
    at = zg.add(zg.expand(zg.mul(zg.arange(0, ROWS), SIZE), 1), zg.expand(zg.arange(0, SIZE), 0))
    zg.store(zg.add(out_ptr, zg.arange(0, ROWS)), zg.sum(zg.load(zg.add(x_ptr, at)), axis=1))


DRAWN = np.random.default_rng(0).standard_normal((3, 64, 64)).astype(np.float32)


def arguments_of(name: str):
    x, y, out = DRAWN.copy()
    if name == "add":
        return (4,), [x.ravel(), y.ravel(), out.ravel(), 4000]
    if name == "softmax":
        return (4,), [out.ravel(), x.ravel(), 1024, 1000]
    if name == "rows":
        return (1,), [out.ravel(), x.ravel()]
    return (1, 1), [x.ravel(), y.ravel(), out.ravel(), 64]


TEXTS = {name: str(lower(make(), VECTOR)) for name, make in MODELS.items()}
TEXTS["rows"] = str(lower(row_sums.triton(F32, F32, 32, 64), VECTOR))

# The models, and what is written otherwise.
CHANGES = [
    (name, {f"@{attribute}=": f"@{attribute}={number}"})
    for name, attribute, numbers in (
        ("add", "lanes", (1, 2, 4)),
        ("softmax", "lanes", (1, 2)),
        ("softmax", "unroll", (1, 2, 8)),
        ("matmul", "lanes", (1, 4)),
        ("matmul", "unroll", (1, 4)),
        ("rows", "lanes", (1, 2)),
        ("rows", "unroll", (1, 2)),
    )
    for number in numbers
]
CHANGES += [
    ("softmax", {" @in_place=": ""}),
    ("softmax", {"cpu.prefetch": "cpu.prefetch %18 @cache=2;"}),
    ("softmax", {"cpu.prefetch": ""}),
    ("matmul", {"%4 @unroll=": "%4 @unroll=1"}),
    ("matmul", {" @keep=": ""}),
    ("matmul", {" @in_place=": ""}),
    ("rows", {" @rows=": ""}),
]


def changed(text: str, change: dict[str, str]) -> str:
    """The text with attributes, or whole prefetches, replaced."""
    for before, after in change.items():
        pattern = r"cpu\.prefetch [^;]*;" if before == "cpu.prefetch" else re.escape(before) + r"\w+"
        assert re.search(pattern, text), f"the model has no {before}"
        text = re.sub(pattern, after, text)
    return text


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=str)
def test_another_decision_has_the_same_results(name: str, change: dict[str, str]):
    text = TEXTS[name]
    if any(key.startswith("@lanes") for key in change) and " @rows=" in text:
        text = changed(text, {" @rows=": ""})
    results, codes = [], []
    for model in (zg.parse(text), zg.parse(changed(text, change))):
        zg.verify(model)
        grid, arguments = arguments_of(name)
        codes.append(run_cpu(model, grid, arguments))
        results.append([array.tobytes() for array in arguments if isinstance(array, np.ndarray)])
    assert results[0] == results[1]
    assert codes[0].llvm != codes[1].llvm


def test_the_size_from_which_an_array_streams():
    model = str(lower(MODELS["add"](), 32))
    text = changed(model, {"@stream=": "@stream=4096"})
    options = CpuOptions("haswell", "+avx,+avx2,+fma,+f16c")
    assert re.search(r"icmp uge i64 %\w+, 4096\b", to_llvm(zg.parse(text), options)[1])
    assert "nontemporal" not in to_llvm(zg.parse(changed(model, {" @stream=": ""})), options)[1]


BAD = [
    ("add", {"@lanes=": "@lanes=3"}, "lanes must be a power of two that divides 1024; got 3"),
    ("add", {"@lanes=": "@lanes=0"}, "lanes must be a power of two that divides 1024; got 0"),
    ("add", {"@lanes=": "@lanes=2048"}, "lanes must be a power of two that divides 1024; got 2048"),
    ("add", {"@lanes=": "@lanes=16"}, "a vector has 8 lanes at most here; got 16"),
    ("add", {"@unroll=": "@unroll=256"}, "unroll must be a power of two that divides 128; got 256"),
    ("softmax", {"@unroll=": "@unroll=-1"}, "unroll must be a power of two that divides 128; got -1"),
    ("softmax", {"@lanes=": "@rows=8 @lanes=8"}, "8 rows of (1024,) cannot be reduced at once"),
    ("matmul", {"%4 @unroll=": "%4 @unroll=3"}, "unroll must be a number that divides 64; got 3"),
    ("matmul", {"@keep=": "@keep=-1"}, "keep must be a number of matrices, or 0; got -1"),
    ("rows", {"@rows=": "@rows=4"}, "rows must be 1, or the 8 lanes; got 4"),
    ("softmax", {"cpu.prefetch": "cpu.prefetch %18 @cache=3;"}, "the cache must be 1 or 2; got 3"),
    ("softmax", {"cpu.prefetch": "cpu.prefetch %1;"}, "cpu.prefetch takes an access; got ptr<f32>"),
]


@pytest.mark.parametrize(("name", "change", "message"), BAD, ids=str)
def test_a_decision_that_no_op_can_have(name: str, change: dict[str, str], message: str):
    with pytest.raises(VerifyError, match=re.escape(message)):
        zg.verify(zg.parse(changed(TEXTS[name], change)))


OUT_OF_PLACE = [
    ("add", r"(cpu\.store [^;]*);", r"\1 @stream=64;", "cannot stream: its vectors must be whole cache lines"),
    ("matmul", r"(cpu\.store [^;]*);", r"\1 @stream=64;", "cannot stream: only a region over a row"),
    ("softmax", r"(cpu\.put %5 %\d+);", r"\1 @in_place=true;", "cannot be read in place: only what an affine load"),
]


@pytest.mark.parametrize(("name", "pattern", "text", "message"), OUT_OF_PLACE, ids=str)
def test_a_decision_that_cannot_be_taken_there(name: str, pattern: str, text: str, message: str):
    model = zg.parse(re.sub(pattern, text, TEXTS[name]))
    zg.verify(model)
    with pytest.raises(TargetError, match=re.escape(message)):
        compile_cpu(model)


def test_a_matrix_that_programs_write_is_not_kept():
    @zg.kernel
    def squares(x_ptr, out_ptr):
        at = zg.add(zg.expand(zg.mul(zg.arange(0, 32), 32), 1), zg.expand(zg.arange(0, 32), 0))
        x = zg.load(zg.add(x_ptr, at))
        zg.store(zg.add(out_ptr, at), zg.dot(x, x))

    text = str(lower(squares.triton(F32, F32), VECTOR))
    assert " @keep=" in text
    text = text.replace("tt.splat %1", "tt.splat %0")
    with pytest.raises(TargetError, match="cannot keep b: the kernel must not write to the array"):
        compile_cpu(zg.parse(text))


def test_a_row_that_is_overwritten_before_its_last_use_is_not_read_in_place():
    @zg.kernel
    def shifted(x_ptr):
        at = zg.arange(0, 64)
        x = zg.load(zg.add(x_ptr, at))
        zg.store(x_ptr, zg.max(x, axis=0))
        zg.store(zg.add(x_ptr, zg.add(at, 64)), x)

    text = str(lower(shifted.triton(F32), VECTOR))
    assert "in_place" not in text
    model = zg.parse(re.sub(r"(cpu\.put %\d+ %\d+);", r"\1 @in_place=true;", text, count=1))
    with pytest.raises(TargetError, match="what it reads may be overwritten before its last use"):
        compile_cpu(model)
