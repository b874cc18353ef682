"""`@zg.function`: a Python function that Python can still call."""

import copy
import inspect
import pickle

import pytest

import ziggurat as zg
import ziggurat.triton as triton
from ziggurat.frontends.language import Function, constexpr
from ziggurat.frontends.language.function import usable
from ziggurat.frontends.reflection import function, reader


@function
def scaled(x: int, factor: constexpr = 2) -> int:
    """Multiply."""
    return x * factor  # pyright: ignore


def test_what_a_kernel_can_use_from_outside():
    assert usable(1) and usable(scaled) and usable((1, (2.0, scaled)))
    assert not usable(object()) and not usable((1, object())) and not usable((1, (scaled, object())))


def test_calls_of_a_function_are_inlined_unless_it_says_otherwise():
    assert not scaled.noinline
    assert triton.jit(scaled.fn, noinline=True).noinline and not triton.jit(scaled.fn).noinline


def test_a_call_from_python_runs_as_python():
    assert scaled(3) == 6 and scaled(3, factor=5) == 15


def test_a_function_is_launched_over_no_grid():
    with pytest.raises(zg.LaunchError, match="'scaled' is a function for kernels to call; only a kernel is launched"):
        scaled[1]


def test_attributes_of_the_wrapped_function():
    assert isinstance(scaled, Function)
    assert (scaled.name, scaled.__name__, scaled.__doc__) == ("scaled", "scaled", "Multiply.")
    assert list(scaled.signature.parameters) == ["x", "factor"]
    assert inspect.unwrap(scaled) is scaled.fn
    assert repr(scaled).startswith("<Function scaled(x, factor: zg.constexpr")


def test_a_name_of_its_own():
    def _sum(a: int, b: int) -> int:
        return a + b

    function = Function(_sum, reader(_sum), "sum")
    assert function.name == function.__qualname__ == function.fn.__qualname__ == "sum"
    assert function.fn.__name__ == "_sum"
    assert function(1, 2) == 3


def test_a_kernel_can_be_made_of_a_helper():
    @zg.function
    def twice(p):
        zg.store(p, 2.0)

    kernel = zg.kernel(twice)
    assert kernel.fn is twice.fn and zg.same_model(kernel.model, twice.model) and kernel is not twice


def test_constexpr_marks_a_value_of_a_module():
    size = constexpr(16)
    assert type(size) is int and size == 16 and constexpr(("relu", None)) == ("relu", None)


@zg.function
def at_the_top(x):
    return zg.add(x, 1)


@zg.kernel
def kernel_at_the_top(p):
    zg.store(p, at_the_top(1.0))


def test_a_copy_is_the_function_itself():
    def local(x):
        return x

    for original in (at_the_top, kernel_at_the_top, zg.function(local), zg.kernel(local)):
        assert copy.deepcopy(original) is original and copy.copy(original) is original
        assert copy.deepcopy({"of": [original]})["of"][0] is original


def test_a_pickle_holds_the_qualified_name():
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top
    assert pickle.loads(pickle.dumps(kernel_at_the_top)) is kernel_at_the_top
    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(zg.function(_local()))


def _local():
    def local(x):
        return x

    return local
