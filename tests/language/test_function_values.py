"""Functions that parameters, variables and tuples hold, and loops over tuples: against Python, and their misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelErrors
from ziggurat.codemodel.execute import execute

P = zg.ptr(zg.i32)


@zg.function
def double(x, by=2):
    return x * by


@zg.function
def add(x, *, by):
    return x + by


@zg.function
def twice(x, f: zg.constexpr):
    return f(f(x, by=3), by=4)


@zg.function
def through(x, f: zg.constexpr = double, also: zg.constexpr = (add, double)):
    for g in also:
        x = g(f(x), by=5)
    return x


ALL = (double, (add, 7))
NAMES: dict[str, Any] = {"double": double, "add": add, "twice": twice, "through": through, "ALL": ALL}


def failures(kernel: Any, *types: Any) -> list[zg.ZigguratError]:
    with pytest.raises(zg.ZigguratError) as error_info:
        kernel.triton(*types)
    return list(error_info.value.errors) if isinstance(error_info.value, KernelErrors) else [error_info.value]


def marked(error: zg.ZigguratError) -> str:
    """The text that the carets mark."""
    assert error.location is not None
    _, line, carets = error.location.excerpt().splitlines()[:3]
    return line[carets.index("^") : len(carets)]


@pytest.fixture
def number(kernel, launch):
    """Runs a function of a number and constants by Python, by its linked Python models, and in a kernel."""

    def check(source: str, constants: tuple[Any, ...] = (), **names: Any) -> None:
        parameters = [f"c{index}" for index in range(len(constants))]
        function = kernel(source, zg.function, **NAMES, **names)
        caller = kernel(
            f"""
            def caller(p, out{"".join(f", {name}: zg.constexpr" for name in parameters)}):
                pid = zg.program_id(0)
                zg.store(out + pid, f({", ".join(["zg.load(p + pid)", *parameters])}))
            """,
            f=function,
        )
        inputs = np.array([-3, 0, 1, 8], np.int32)
        out = np.zeros_like(inputs)
        launch(caller, len(inputs), [inputs, out], **dict(zip(parameters, constants, strict=True)))
        assert out.tolist() == [function.fn(int(a), *constants) for a in inputs]

    return check


def test_a_function_in_a_variable(number):
    for flag in (True, False):
        number(
            """
            def f(x, FLAG):
                g = double if FLAG else add
                h = g
                if FLAG:
                    h = add
                return g(x, by=3) + h(x, by=1) + (double if FLAG else add)(x, by=9)
            """.replace("FLAG)", "FLAG: zg.constexpr)"),
            (flag,),
        )


def test_a_function_in_a_parameter(number):
    source = """
    def f(x, g: zg.constexpr, gs: zg.constexpr):
        for h in gs:
            x = h(x=x, by=3) + g(x, by=2)
        return x + gs[0](x, by=4) + twice(x, g)
    """
    number(source, (double, (add, double)))
    number(source, (add, (add,)))


def test_defaults_that_are_functions(number):
    number("def f(x):\n    return through(x) + through(x, add2)", add2=zg.function(lambda_like))
    number("def f(x):\n    g = through\n    return g(x) + g(x, also=(double,))")


def lambda_like(x, by: zg.constexpr = 100):
    return x + by


def test_a_tuple_of_functions_and_numbers(number):
    number(
        """
        def f(x):
            for g in (double, through):
                x = g(x)
            for g, by in ((double, 3), (add, 4), ALL[1]):
                x = g(x, by=by)
            return x + ALL[0](x)
        """
    )


def test_loops_over_tuples(number):
    number(
        """
        def f(x, SIZES: zg.constexpr):
            total = x
            for size in SIZES:
                total = total * size + 1
            for size in (1, 2, 4):
                zg.static_assert(size in (1, 2, 4))
                total += size * x
            for i, (j, scale) in ((0, (1, 5)), (2, (3, 7))):
                total += (i + j) * scale
            for name in NAMES:
                total += 1 if name == "b" else x
            for none in ():
                total = none.wrong
            for run_time in (x, total, 3):
                total = total - run_time
            return total + size
        """,
        ((3, 5),),
        NAMES=("a", "b"),
    )


def test_a_tuple_that_is_a_run_time_value(number):
    number(
        """
        def f(x):
            pair = x, x * 2
            total = 0
            for one in pair:
                for other in pair:
                    total += one * other
            return total
        """
    )


def test_a_model_with_calls_of_values_runs_in_python():
    @zg.function
    def whole(x, flag):
        g = double if flag else add
        for h, by in ((double, 3), (add, 4)):
            x = h(x, by=by)
        return g(x, by=7)

    module = zg.parse(str(zg.kernel(whole.fn).module))
    for flag in (0, 1):
        symbol = "test_a_model_with_calls_of_values_runs_in_python.<locals>.whole"
        assert execute(module, (5, flag), symbol=symbol) == whole.fn(5, flag)


def test_a_reduction_by_a_function_from_a_parameter(kernel, launch):
    test_kernel = kernel("""
    def made(p, out, combine: zg.constexpr):
        zg.store(out, zg.reduce(zg.load(zg.add(p, zg.arange(0, 4))), 0, combine))
    """)

    @zg.function
    def by_helper(a, b):
        return add(a, by=b)

    p, out = np.array([1, 2, 3, 4], np.int32), np.zeros(1, np.int32)
    launch(test_kernel, 1, [p, out], combine=by_helper)
    assert out[0] == 10


def test_kernels_with_different_function_arguments_differ(kernel):
    test_kernel = kernel("def made(p, g: zg.constexpr):\n    zg.store(p, g(3))")
    assert test_kernel.triton(P, double) is test_kernel.triton(P, double)
    assert not zg.same_model(test_kernel.triton(P, double), test_kernel.triton(P, zg.function(lambda_like)))
    assert str(test_kernel.triton(P, (double))).count('tt.func @"made_ptr<i32>_double_void"') == 1


def test_a_function_that_is_not_known_at_compile_time(kernel):
    test_kernel = kernel(
        """
        def made(p, n):
            f = double if n > 0 else add
            zg.store(p, f(n))
            if n > 0:
                g = double
            else:
                g = add
            zg.store(p, g(n))
            zg.store(p, n(3))
            zg.store(p, ALL(3))
            zg.store(p, ALL[1](3))
        """.replace("ALL(3)", "ALL[1][1](3)"),
        **NAMES,
    )
    errors = failures(test_kernel, P, zg.i32)
    assert [error.summary for error in errors] == [
        "the values of 'if … else' must have one type; got the function 'double' and the function 'add'",
        "'g' must have one type on both paths; got the function 'double' on one and the function 'add' on the other",
        "'n' must be a function to be called; got i32",
        "this must be a function to be called; got the constant 7",
        "this must be a function to be called; got the tuple (the function 'add', 7)",
    ]
    assert [marked(error) for error in errors] == ["double if n > 0 else add", "g", "n", "ALL[1][1]", "ALL[1]"]
    assert {error.hint for error in errors[:2]} == {
        "call each function in a branch of its own: the called function must be known at compile time"
    }
    assert "rename the variable if another 'n' is meant" in (errors[2].hint or "")
    assert errors[3].hint == "call a function under @zg.function that is known at compile time"
    assert all(isinstance(error, zg.KernelTypeError) for error in errors)


@pytest.mark.parametrize(
    ("call", "message", "where"),
    [
        ("g(1, 2, 3)", "double takes at most 2 positional arguments; got 3", "g(1, 2, 3)"),
        ("g()", "double needs its argument 'x'", "g()"),
        ("g(1, bye=2)", "double has no parameter 'bye'", "2"),
        ("g(1, x=2)", "double got 'x' twice", "2"),
    ],
)
def test_arguments_that_do_not_fit(kernel, call, message, where):
    test_kernel = kernel(f"def made(p, g: zg.constexpr):\n    zg.store(p, {call})")
    (error,) = failures(test_kernel, P, double)
    assert (error.summary, marked(error)) == (message, where)
    assert (error.hint or "").endswith("double(x, by=2)")


def test_an_error_in_a_helper_shows_the_calls(kernel):
    test_kernel = kernel("def made(p, g: zg.constexpr):\n    zg.store(p, twice(p, g))", **NAMES)
    (error,) = failures(test_kernel, P, double)
    assert error.summary.startswith("the operator '*'")
    assert str(error).count("called from") == 2


@pytest.mark.parametrize(
    ("loop", "message", "where"),
    [
        ("for i in n:", "'for' must run over a range or a tuple; got i32", "n"),
        ("for i in 3:", "'for' must run over a range or a tuple; got the constant 3", "3"),
        ("for i in 'ab':", "'for' must run over a range or a tuple; got the constant 'ab'", "'ab'"),
        ("for i in zg.arange(0, 4):", "'for' must run over a range or a tuple; got tensor<x4, i32>", "zg.arange(0, 4)"),
        ("for i, j in ((1, 2, 3),):", "a tuple of 3 cannot be unpacked into 2 names", "i"),
        ("for i, j in range(3):", "i32 is not a tuple; it cannot be unpacked into 2 names", "i"),
    ],
)
def test_iterables_that_a_loop_refuses(kernel, loop, message, where):
    test_kernel = kernel(f"def made(p, n):\n    {loop}\n        zg.store(p, i)")
    (error,) = failures(test_kernel, P, zg.i32)
    assert (error.summary, marked(error)) == (message, where)
    assert isinstance(error, zg.KernelTypeError)
    if "runs over" in message:
        assert "a tuple of constants to run over its items" in (error.hint or "")


def test_a_function_of_the_host_given_at_a_launch():
    @zg.kernel
    def made(p, n, g: zg.constexpr, x: zg.constexpr):
        zg.store(p, g(n if x else 3))

    out = np.zeros(1, np.float32)
    made[(1,)](out, 5, lambda x: x + 1, False)  # It is called with constants.
    assert out.tolist() == [4.0]
    with pytest.raises(zg.KernelTypeError, match="is a function of the host, which must be called with constants"):
        made[(1,)](out, 5, lambda x: x + 1, True)


@zg.function
def biased(x, bias):
    if bias is not None:
        x = zg.add(x, bias)
    return x if bias is not None else zg.neg(x)


@zg.kernel
def with_and_without(x_ptr, y_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(y_ptr, at), zg.add(biased(x, None), biased(x, zg.cast(at, zg.f32))))


def test_none_in_place_of_a_tensor(launch):
    """`is None` is known at compile time of what is computed, too."""
    x = np.arange(8, dtype=np.float32) ** 2
    y = np.zeros(8, np.float32)
    launch(with_and_without, (1,), [x, y], N=8)
    np.testing.assert_array_equal(y, np.arange(8))
