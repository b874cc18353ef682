"""Errors in code that is not run are not reported; the same errors in code that is run are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelErrors

P = zg.ptr(zg.i32)

# Statements that are wrong, each in its own way; `wrong` is a function whose source is in error.
WRONG = {
    "an unknown name": "x = unknown + 1",
    "an unknown call": "x = zg.nosuch(n)",
    "a wrong argument count": "x = zg.cast(n)",
    "a wrong argument count of a function": "x = right(n, n)",
    "an operator on unlike tensors": "x = zg.arange(0, 4) + zg.arange(0, 8)",
    "a type error": "x = zg.load(n)",
    "a function in error": "x = wrong(n)",
    "a plain function": "x = sorted(n)",
    "a statement": "with n as x:\n    pass",
    "a loop": "while n:\n    pass\nelse:\n    pass",
    "an import": "import math\nx = math.pi",
    "a return of something unknown": "return unknown",
    "a set": "x = {n}",
    "a static assertion": "zg.static_assert(False)",
}


@zg.function
def right(a):
    return a


@zg.function
def wrong(a):
    return a + nowhere  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@zg.function
def half_wrong(a, flag: zg.constexpr):
    if flag:
        return a + nowhere  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    return a


NAMES: dict[str, Any] = {"right": right, "wrong": wrong, "half_wrong": half_wrong}


def indented(text: str, by: int) -> str:
    return "\n".join("    " * by + line for line in text.splitlines())


def errors_of(kernel: Any, *types: Any) -> list[zg.ZigguratError]:
    with pytest.raises(zg.ZigguratError) as error_info:
        kernel.triton(*types)
    return list(error_info.value.errors) if isinstance(error_info.value, KernelErrors) else [error_info.value]


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("head", ["if FLAG:", "if not FLAG:\n    pass\nelse:", "while FLAG:"])
def test_an_error_in_a_statement_that_is_not_run(kernel, launch, what, head):
    if what.startswith("a return") and "while" in head:
        pytest.skip("a return in a loop is another error")
    source = (
        f"def made(out, n, FLAG: zg.constexpr):\n{indented(head, 1)}\n{indented(WRONG[what], 2)}\n    zg.store(out, n)"
    )
    test_kernel = kernel(source, **NAMES)
    out = np.zeros(1, np.int32)
    launch(test_kernel, 1, [out, 7], FLAG=False)
    assert out[0] == 7
    zg.verify(test_kernel.model)
    assert zg.same_model(zg.parse(str(test_kernel.model)), test_kernel.model)
    assert errors_of(test_kernel, P, zg.i32, True)


@pytest.mark.parametrize("part", ["n if not FLAG else {}", "{} if FLAG else n", "n > 0 and (not FLAG or {})"])
@pytest.mark.parametrize("wrong_part", ["unknown", "zg.nosuch(n)", "zg.cast(n)", "wrong(n)", "[n]", "zg.load(n)"])
def test_an_error_in_an_expression_that_is_not_run(kernel, launch, part, wrong_part):
    test_kernel = kernel(
        f"def made(out, n, FLAG: zg.constexpr):\n    zg.store(out, zg.cast({part.format(wrong_part)}, zg.i32))", **NAMES
    )
    out = np.zeros(1, np.int32)
    launch(test_kernel, 1, [out, 1], FLAG=False)
    assert out[0] == 1
    assert len(errors_of(test_kernel, P, zg.i32, True)) == 1


def test_errors_under_a_run_time_if_come_with_the_others_in_order(kernel):
    test_kernel = kernel(
        """
        def made(p, n):
            a = zg.load(n)
            if n > 0:
                b = unknown
                zg.store(p, b)
                c = b + zg.load(n + 1)
            else:
                c = missing if n else 1
            zg.store(p, c)
            zg.store(n, 1)
        """
    )
    assert "error @" in str(test_kernel.model)  # Reading it is no error: it may be compiled with a constant for n.
    assert [error.summary for error in errors_of(test_kernel, P, zg.i32)] == [
        "zg.load: 'ptr' must be a pointer or a tensor of pointers; got i32",
        "name 'unknown' is not defined",
        "zg.load: 'ptr' must be a pointer or a tensor of pointers; got i32",
        "name 'missing' is not defined",
        "zg.store: 'ptr' must be a pointer or a tensor of pointers; got i32",
    ]
    assert [error.location.line for error in errors_of(test_kernel, P, zg.i32) if error.location] == [2, 4, 6, 8, 10]


def test_an_error_in_a_branch_of_a_helper_names_the_call(kernel):
    test_kernel = kernel(
        "def made(p, n):\n    zg.store(p, half_wrong(n, False))\n    zg.store(p, half_wrong(n, True))", **NAMES
    )
    (error,) = errors_of(test_kernel, P, zg.i32)
    assert isinstance(error, zg.KernelNameError)
    assert error.location is not None and error.location.caller is not None and error.location.caller.line == 3
    assert "return a + nowhere" in str(error) and "half_wrong(n, True)" in str(error)


def test_statements_that_are_not_run_assign_nothing(kernel):
    test_kernel = kernel(
        """
        def made(p, FLAG: zg.constexpr):
            if FLAG:
                import math
                value = math.pi
            zg.store(p, math)
            zg.store(p, value)
        """
    )
    first, second = errors_of(test_kernel, P, False)
    assert first.summary == "'math' is used before it is assigned"
    assert second.summary == "'value' is used before it is assigned"
    # An import that is run is the error; errors that follow from it are not reported.
    (error,) = errors_of(test_kernel, P, True)
    assert error.summary == "a kernel cannot use an import inside of a kernel"


def test_a_return_with_an_error_ends_the_path(kernel):
    test_kernel = kernel(
        """
        def made(p, n):
            zg.store(p, f(n) + 1)
        """,
        f=kernel(
            """
            def f(n):
                if n > 0:
                    return unknown
                with n:
                    return 3
            """,
            zg.function,
        ),
    )
    assert [error.summary for error in errors_of(test_kernel, P, zg.i32)] == [
        "name 'unknown' is not defined",
        "a kernel cannot use with",
    ]
    deeper = kernel(
        """
        def f(n, FLAG: zg.constexpr):
            if FLAG:
                with n:
                    return 3
            else:
                return n
        """,
        zg.function,
    )
    uses = kernel("def uses(p, n, FLAG: zg.constexpr):\n    zg.store(p, f(n, FLAG) + 1)", f=deeper)
    assert uses.triton(P, zg.i32, False)
    (error,) = errors_of(uses, P, zg.i32, True)
    assert error.summary == "a kernel cannot use with"
