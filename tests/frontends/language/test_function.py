"""`@zg.function`: a Python function that stays one."""

import inspect

from ziggurat.frontends.language import Function, constexpr, function


@function
def scaled(x: int, factor: constexpr = 2) -> int:
    """Multiply."""
    return x * factor  # pyright: ignore


def test_called_from_python_it_runs_as_python():
    assert scaled(3) == 6 and scaled(3, factor=5) == 15


def test_it_shows_what_it_wraps():
    assert isinstance(scaled, Function)
    assert (scaled.name, scaled.__name__, scaled.__doc__) == ("scaled", "scaled", "Multiply.")
    assert list(scaled.signature.parameters) == ["x", "factor"]
    assert inspect.unwrap(scaled) is scaled.fn
    assert repr(scaled).startswith("<Function scaled(x, factor: zg.constexpr")


def test_it_may_have_a_name_of_its_own():
    def _sum(a: int, b: int) -> int:
        return a + b

    named = Function(_sum, "sum")
    assert named.name == named.__qualname__ == named.fn.__qualname__ == "sum"
    assert named.fn.__name__ == "_sum"
    assert named(1, 2) == 3


def test_constexpr_marks_a_value_of_a_module():
    size = constexpr(16)
    assert type(size) is int and size == 16 and constexpr(("relu", None)) == ("relu", None)
