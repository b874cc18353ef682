"""Attribution of whole programs: which functions are attributed, how often, under which names, and their errors."""

from __future__ import annotations

import pytest
from findings import callees

import ziggurat as zg
from ziggurat.codemodel.errors import KernelErrors, KernelNameError, KernelSyntaxError, KernelTypeError
from ziggurat.codemodel.types import f32, i32, i64
from ziggurat.transforms.attribution import attribute, constant, function_name
from ziggurat.transforms.attribution.attribute import HANDLERS, Attributor

F32 = zg.ptr(zg.f32)


@zg.function
def twice(x):
    return x + x


@zg.kernel
def calls_thrice(p, q, n, m):
    zg.store(p, twice(n))
    zg.store(p, twice(n + 1))
    zg.store(q, twice(m))


def test_a_function_is_attributed_once_for_a_list_of_types():
    types = (zg.ptr(i32), zg.ptr(i64), i32, i64)
    attribution = attribute(calls_thrice, types)
    first, second, third = callees(attribution)
    assert first is second and first is not third
    assert (first.parameter_types, first.result) == ((i32,), i32)
    assert (third.parameter_types, third.result) == ((i64,), i64)
    assert [a.symbol for a in (first, third)] == ["twice_i32_i32", "twice_i64_i64"]
    assert attribution.symbol.startswith("calls_thrice_") and attribution.symbol.endswith("_void")


def test_callees_are_finished_before_their_callers():
    attributor = Attributor()
    attributor.function(function_name(calls_thrice), (zg.ptr(i32), zg.ptr(i64), i32, i64), None)
    names = [attribution.symbol.split("_")[0] for attribution in attributor.instances.values()]
    assert names == ["twice", "twice", "calls"]


def test_functions_of_one_name_have_symbols_of_their_own():
    attributor = Attributor()

    def made():
        @zg.function
        def same(x):
            return x

        return same

    first, second = made(), made()
    symbols = [attributor.function(function_name(f), (i32,), None).symbol for f in (first, second, first)]
    assert symbols == ["same_i32_i32", "same_i32_i32_1", "same_i32_i32"]


def test_a_lone_model_calls_the_functions_that_it_is_given():
    kernel = zg.parse('func @"k" (%0 : object)object -> { %1 : object = func.call %0 @"helper"; return; };')
    helper = zg.parse('func @"helper" (%0 : object)object -> { %1 : object = add %0 %0; return %1; };')
    attribution = attribute(kernel, (f32,), {"helper": helper})
    (callee,) = callees(attribution)
    assert callee.func is helper and callee.result == f32
    with pytest.raises(KernelNameError, match="no function 'helper' in the module"):
        attribute(kernel, (f32,))


@zg.function
def even(n):
    return odd(n)


@zg.function
def odd(n):
    return even(n)


@zg.kernel
def recursive(p, n):
    zg.store(p, even(n))


def test_recursion_is_an_error_that_shows_the_way_round():
    with pytest.raises(KernelSyntaxError, match="recursion: even → odd → even"):
        attribute(recursive, (zg.ptr(i32), i32))


@zg.kernel
def gives_a_value(p):
    return zg.load(p)


@zg.kernel
def wrong_in_two_places(p, n):
    a = zg.load(n)
    b = zg.arange(0, 3)
    zg.store(p, a)


def test_a_kernel_returns_nothing():
    with pytest.raises(KernelTypeError, match="the kernel 'gives_a_value' returns f32: a kernel returns nothing") as e:
        attribute(gives_a_value, (F32,))
    assert e.value.hint == "store results with zg.store" and "return zg.load(p)" in str(e.value)


def test_all_errors_are_raised_together_in_the_order_of_the_source():
    with pytest.raises(KernelErrors) as error_info:
        attribute(wrong_in_two_places, (F32, i32))
    assert [type(error).__name__ for error in error_info.value.errors] == ["KernelTypeError", "KernelValueError"]
    lines = [error.location.line for error in error_info.value.errors]
    assert lines == sorted(lines) and len(set(lines)) == 2


def test_a_constant_is_another_type_than_its_value():
    attributor = Attributor()
    function = function_name(twice)
    run_time = attributor.function(function, (i32,), None)
    of_constant = attributor.function(function, (constant(21),), None)
    assert run_time.result == i32 and of_constant.result == constant(42)
    assert of_constant.symbol == "twice_21_42"


def test_every_op_of_the_python_model_is_attributed():
    from ziggurat.codemodel.dialects import core, py

    ops = {op for op in vars(py).values() if isinstance(op, type) and getattr(op, "SPEC", None) is not None}
    assert ops and HANDLERS.missing(ops) == ["advance", "break", "continue", "exhausted", "iterate", "python"], (
        "kernels have none of these after early_exits, lower_structured of their ranges, and `checked`"
    )
    assert not HANDLERS.missing([core.Var, core.VarLoad, core.VarStore, core.Return, core.FuncCall])


def test_an_op_of_another_tier_is_refused():
    model = zg.parse('func @"k" (%0 : object)object -> { %1 : i32 = tt.get_program_id @0; return; };')
    with pytest.raises(KernelSyntaxError, match=r"the op tt.get_program_id is not of the Python model"):
        attribute(model, (i32,))


@zg.kernel
def fails_and_returns(p):
    zg.load(3)
    return 5


def test_what_a_kernel_with_errors_returns_is_not_one_more():
    with pytest.raises(KernelTypeError) as error_info:
        attribute(fails_and_returns, (F32,))
    assert not isinstance(error_info.value, KernelErrors) and "zg.load" in error_info.value.summary
