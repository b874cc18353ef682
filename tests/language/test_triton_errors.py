"""Errors of Triton's Python: their classes, words and places, as programs that catch Triton's errors expect them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

LIMIT = 42
CHANGING = tl.constexpr(1)


def out_of(kernel: Any) -> int:
    """The number that a kernel stores to its argument."""
    out = np.zeros(1, np.int32)
    kernel[(1,)](out)
    return out[0]


@triton.jit
def reads_a_global(out):
    tl.store(out, LIMIT)


@triton.jit
def bad_loop(out, n):
    x = 0
    for _ in range(n):
        x = x + 1.5
    tl.store(out, x)


@triton.jit
def bad_branches(out, n):
    if n > 0:
        x = 1
    else:
        x = 1.5
    tl.store(out, x)


@triton.jit
def bad_returns_inner(n):
    if n > 0:
        return tl.arange(0, 4)
    else:
        return tl.arange(0, 8)


@triton.jit
def bad_returns(out, n):
    bad_returns_inner(n)


@triton.jit
def bad_condition(out, n):
    if tl.arange(0, 4) > n:
        tl.store(out, 1)


@triton.jit
def bad_return_in_loop(out, n):
    for _ in range(n):
        if n > 3:
            return


@triton.jit
def bad_text(out, n):
    tl.static_print(f"n is {n}")


@triton.jit
def bad_lambda(out, n):
    f = lambda x: x  # noqa: E731


@triton.jit
def bad_assertion(out, n):
    tl.static_assert(1 == 2, "one is two")


@triton.jit
@triton.must_use_result("Store it.")
def must_be_used(x):
    return x + 1


@triton.jit
def bad_use(out, n):
    must_be_used(n)


@triton.jit
def bad_address(out, n):
    tl.store(n, 1)


@triton.jit
def bad_other(out, n):
    tl.store(out, tl.load(out, other=0))


@triton.jit
def bad_block(out, n):
    tl.store(out, tl.arange(0, 4))


@triton.jit
def bad_dtype(out, n):
    tl.store(out, n.to("float33"))


@triton.jit
def text_for_a_dtype(out, n):
    tl.store(out, n.to("float32"))


@triton.jit
def bad_class(out, n):
    tl.store(out, n.to(float))


@triton.jit
def bad_name(out, n):
    n += undefined_name  # noqa: F821


@pytest.mark.parametrize(
    "kernel, cls, words, line",
    [
        (
            reads_a_global,
            triton.CompilationError,
            "Cannot access global variable LIMIT from within @jit'ed function",
            1,
        ),
        (
            bad_loop,
            triton.CompilationError,
            "Loop-carried variable x has initial type int32 but is re-assigned to fp32",
            2,
        ),
        (
            bad_branches,
            triton.CompilationError,
            "Mismatched type for x between then block (int32) and else block (fp32)",
            1,
        ),
        (bad_returns, triton.CompilationError, "Inconsistent return types", 1),
        (bad_condition, triton.CompilationError, "Boolean value of Tensor with more than one value is ambiguous", 1),
        (
            bad_return_in_loop,
            triton.compiler.errors.UnsupportedLanguageConstruct,
            "Cannot have `return` statements inside `while` or `for` statements in triton",
            3,
        ),
        (bad_text, triton.CompilationError, "Cannot evaluate f-string containing non-constexpr conversion values", 1),
        (bad_lambda, triton.compiler.errors.UnsupportedLanguageConstruct, "unsupported AST node type: Lambda", 1),
        (bad_assertion, triton.compiler.errors.CompileTimeAssertionFailure, "one is two", 1),
        (bad_use, triton.CompilationError, "The result of must_be_used is not being used. Store it.", 1),
        (bad_address, triton.CompilationError, "Unsupported ptr type int32 in `tl.store`: it must be a pointer", 1),
        (bad_other, triton.CompilationError, "`other` cannot be provided without `mask`", 1),
        (
            bad_block,
            triton.CompilationError,
            "Value argument cannot be block type if pointer argument is not a block: it has the shape [4]",
            1,
        ),
        (bad_dtype, triton.CompilationError, "n.to: 'dtype' must be a dtype such as tl.float32; got 'float33'", 1),
        (text_for_a_dtype, triton.CompilationError, "'dtype' must be a dtype such as tl.float32; got 'float32'", 1),
        (bad_class, triton.CompilationError, "n.to: 'dtype' must be a dtype such as tl.float32; got float", 1),
        (bad_name, triton.CompilationError, "name 'undefined_name' is not defined", 1),
    ],
)
def test_errors_are_of_the_classes_of_triton_in_its_words(kernel, cls, words, line):
    types = (zg.ptr(zg.i32),) + (zg.i32,) * (len(kernel.signature.parameters) - 1)
    with pytest.raises(cls) as error_info:
        kernel.triton(*types)
    error: Any = error_info.value
    assert isinstance(error, zg.ZigguratError) and isinstance(error, triton.TritonError)
    assert words in str(error)
    assert str(error).startswith(f"at {line + 1}:")
    assert error.location.source_line() in str(error)


def test_the_error_in_a_called_function_is_the_cause_of_that_of_the_call():
    with pytest.raises(triton.CompilationError) as error_info:
        bad_returns.triton(zg.ptr(zg.i32), zg.i32)
    assert "Inconsistent return types" in str(error_info.value.__cause__)


def test_a_global_that_has_changed_is_an_error_at_the_launch():
    @triton.jit
    def kernel(out):
        tl.store(out, CHANGING)

    assert out_of(kernel) == 1
    globals()["CHANGING"] = tl.constexpr(2)
    try:
        with pytest.raises(RuntimeError, match="Global variable CHANGING has changed since we compiled this kernel"):
            out_of(kernel)
    finally:
        globals()["CHANGING"] = tl.constexpr(1)


@triton.jit
def of_a_wrong_type(p, n, m):
    tl.store(n, 1)


@triton.jit
def of_a_wrong_value(p, n, m):
    tl.store(p + tl.arange(0, 12), 1)


@triton.jit
def of_an_operator(p, n, m):
    tl.store(p, n // m)


@triton.jit
def of_an_assertion(p, n, m):
    tl.static_assert(1 > 2, "never")


@pytest.mark.parametrize(
    ("kernel", "cause"),
    [(of_a_wrong_type, TypeError), (of_a_wrong_value, ValueError), (of_an_operator, None), (of_an_assertion, None)],
)
def test_errors_of_calls_have_the_exception_that_triton_raises_as_their_cause(kernel, cause):
    with pytest.raises(triton.CompilationError) as error_info:
        kernel.triton(zg.ptr(zg.i32), zg.i32, zg.u32)
    actual = error_info.value.__cause__
    assert actual is None if cause is None else type(actual) is cause and str(actual) in str(error_info.value)
