"""Errors and warnings of Triton programs: words and causes that such programs read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.compiler.errors import CompileTimeAssertionFailure


def failure(kernel: Any, *types: Any) -> Any:
    with pytest.raises(triton.CompilationError) as caught:
        kernel.triton(*types)
    return caught.value


@triton.jit
def uneven_range(out):
    tl.store(out + tl.arange(1, 6), 0)


@triton.jit
def backward_range(out):
    tl.store(out + tl.arange(4, 4), 0)


@triton.jit
def uneven_shape(out):
    tl.full((4, 20), 0, tl.int32)


@triton.jit
def imprecise(out):
    x = tl.full((32, 32), 0.0, tl.float8e4nv)
    tl.dot(x, x, max_num_imprecise_acc=64)


@triton.jit
def shallow(out):
    x = tl.full((32, 8), 0.0, tl.float16)
    tl.dot(x, x.T)


@triton.jit
def shallow_bytes(out):
    x = tl.full((32, 16), 0, tl.int8)
    tl.dot(x, x.T)


@triton.jit
def few_scales(out):
    x = tl.full((16, 64), 0, tl.uint8)
    scale = tl.full((16, 1), 0, tl.uint8)
    tl.dot_scaled(x, scale, "e4m3", x.T, None, "e4m3")


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (uneven_range, "arange's range must be a power of 2"),
        (backward_range, "arange's end argument must be greater than the start argument"),
        (uneven_shape, "Shape element 1 must be a power of 2"),
        (imprecise, "max_num_imprecise_acc (64) must be <= K (32)"),
        (shallow, "Input shapes should have M >= 1, N >= 1 and K >= 16"),
        (shallow_bytes, "Input shapes should have M >= 1, N >= 1 and K >= 32"),
        (few_scales, "lhs_scale must be a tensor of shape [..., 16, 2]. Got ['16', '1']"),
    ],
)
def test_the_cause_of_an_error_has_the_words_of_triton(kernel: Any, words: str):
    error = failure(kernel, zg.ptr(zg.i32))
    assert str(error.__cause__) == words
    assert words in str(error).splitlines()


def test_a_static_assertion_has_no_cause():
    @triton.jit
    def kernel(out):
        tl.static_assert(1 > 2, "one is small")

    error = failure(kernel, zg.ptr(zg.i32))
    assert isinstance(error, CompileTimeAssertionFailure) and error.__cause__ is None


def test_the_message_follows_the_source():
    @triton.jit
    @triton.must_use_result("Keep it.")
    def made(x):
        return x + 1

    @triton.jit
    def kernel(out):
        made(3)

    lines = str(failure(kernel, zg.ptr(zg.i32))).splitlines()
    assert lines[0] == "at 2:4:" and lines[-2].strip() == "^" * len("made(3)")
    assert lines[-1] == "The result of made is not being used. Keep it."


@triton.jit
def unlike(n):
    if n > 0:
        return tl.arange(0, 4)
    return tl.arange(0, 8)


def test_unlike_results_are_an_error_of_the_function():
    @triton.jit
    def kernel(out, n):
        tl.store(out, tl.sum(unlike(n)))

    error = failure(kernel, zg.ptr(zg.i32), zg.i32)
    assert str(error).startswith("at 2:25:") and str(error.__cause__).startswith("at 1:0:")
    assert "Return type mismatch" in error.summary and "return tl.arange(0, 4)" in str(error)


def test_a_condition_that_is_not_boolean_is_warned_of():
    @triton.jit
    def kernel(out, x, y):
        for _ in range(2):
            tl.store(out, tl.where(x, 1, 2))
        tl.store(out + 1, tl.where(y > 3, 1, 2))

    out = np.zeros(2, np.int32)
    with pytest.warns(zg.ZigguratWarning, match=r"non-boolean condition is deprecated .* Got int32") as warned:
        kernel[(1,)](out, 6, 3)
    assert out.tolist() == [1, 2] and len(warned) == 1


@triton.jit
def shapes_that_differ(out):
    tl.store(out, tl.sum(tl.zeros((4,), tl.float32) + tl.zeros((8,), tl.float32)))


@triton.jit
def load_of_a_number(out):
    tl.store(out, tl.load(3))


@triton.jit
def unknown_name(out):
    tl.store(out, foo)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@triton.jit
def run_time_range(out, n):
    tl.store(out + tl.arange(0, n), 0)


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        (shapes_that_differ, "make the sizes equal, or one of them 1; add an axis of size 1 with x[:, None]"),
        (load_of_a_number, "make the pointers to the elements: pointer + offsets"),
        (unknown_name, "did you mean tl.floor?"),
        (run_time_range, "pass a literal, or make it a tl.constexpr parameter"),
    ],
)
def test_hints_are_in_the_words_of_triton(kernel, hint):
    types = (zg.ptr(zg.f32), zg.i32)[: len(kernel.arg_names)]
    assert failure(kernel, *types).hint == hint


def test_tracebacks_of_compiling_end_at_the_program():
    target = triton.runtime.driver.active.get_current_target()
    source = triton.compiler.ASTSource(unknown_name, {"out": "*fp32"})
    for call in (
        lambda: unknown_name.warmup(np.zeros(4, np.float32), grid=(1,)),
        lambda: triton.compile(source, target=target),
    ):
        with pytest.raises(triton.CompilationError) as caught:
            call()
        files = [str(entry.path) for entry in caught.traceback]
        assert len([file for file in files if file.endswith(".py") and file != __file__]) == 1, files


@triton.jit
def labelled(x):
    tl.device_print("x: ", tl.load(x))
    tl.device_print("done: ")


def test_a_label_that_ends_in_a_colon_has_one(capsys):
    labelled[(1,)](np.ones(1, np.float32))
    assert capsys.readouterr().out == "pid (0, 0, 0) idx () x: 1.000000\npid (0, 0, 0) done: \n"


@triton.jit
def foreign_function(out):
    at = tl.arange(0, 16)
    tl.store(out + at, np.exp(at.to(tl.float32)))


@triton.jit
def foreign_constant(out):
    tl.store(out, np.sqrt("a"))


def test_functions_of_the_host_take_constants():
    error = failure(foreign_function, zg.ptr(zg.f32))
    assert "'exp' is a function of the host, which must be called with constants; got tensor<x16, f32>" in str(error)
    assert "hint: write tl.exp" in str(error)
    assert "'sqrt' raised" in str(failure(foreign_constant, zg.ptr(zg.f32)))
