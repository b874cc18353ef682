"""Attribution of calls: arguments by parameter, constants where the signature wants them, and whose error it is."""

from __future__ import annotations

import math  # noqa: F401
from typing import NamedTuple

import numpy as np  # noqa: F401
import pytest
from findings import callees, facts

import ziggurat as zg
from ziggurat.codemodel.errors import KernelErrors, KernelTypeError, ZigguratError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import PtrType, TensorType, f32, i32, i64
from ziggurat.transforms.attribution import attribute, constant
from ziggurat.transforms.attribution.attribute import Attributor, FunctionAttributor
from ziggurat.transforms.attribution.functions import bind
from ziggurat.transforms.calls.constant_arguments import FunctionName

P = PtrType(f32)


def calls(attribution, name):
    """The calls of a name in an attributed kernel: result and arguments by parameter."""
    arguments = facts(attribution, "arguments")
    return [(attribution.scope.type_of(op.result), arguments[op]) for op in arguments if op.callee == name]


@zg.kernel
def binds(p, n, BLOCK: zg.constexpr):
    at = zg.add(p, zg.arange(end=BLOCK, start=0))
    x = zg.load(at, other=0.0, mask=zg.compare(zg.arange(0, BLOCK), n, zg.CompareKind.LESS_THAN))
    zg.store(at, x)


def test_arguments_are_kept_by_parameter_with_the_defaults():
    attribution = attribute(binds, (P, i32, constant(16)))
    ranges = calls(attribution, "zg.arange")
    assert [bound for _, bound in ranges] == [{"start": 0, "end": 16}] * 2
    ((type_, bound),) = calls(attribution, "zg.load")
    assert type_ == TensorType((16,), f32)
    policy = ["cache_modifier", "eviction_policy", "volatile", "boundary_check", "padding_option", "sem", "scope"]
    assert list(bound) == ["ptr", "mask", "other", *policy]
    assert isinstance(bound["mask"], Value) and attribution.scope.type_of(bound["other"]) == constant(0.0)
    assert (bound["cache_modifier"], bound["volatile"]) == ("", False)


@zg.function
def larger(a, b):
    return zg.maximum(a, b)


@zg.kernel
def reduces(p):
    x = zg.load(zg.add(p, zg.arange(0, 16)))
    zg.store(p, zg.reduce(x, 0, larger) + zg.sum(x))


def test_a_reduction_has_the_function_that_combines_as_its_callee():
    attribution = attribute(reduces, (P,))
    assert sorted(callee.symbol for callee in callees(attribution)) == [
        "larger_f32_f32_f32",
        "sum_f32_f32_f32",
    ]


@zg.kernel
def scalars(p, n, x):
    zg.store(p, min(n, 3, x) + max(1, 2) + abs(x) + int(x) + float(n) + bool(n) + len((1, 2)))


def test_builtins():
    attribution = attribute(scalars, (P, i32, f32))
    types = {op.callee: attribution.scope.type_of(op.result) for op in scalars.model.walk() if hasattr(op, "callee")}
    assert types["builtins.min"] == f32 and types["builtins.max"] == constant(2)
    assert types["builtins.int"] == i32 and types["builtins.len"] == constant(2)


@zg.function
def wants_constant(x, N: zg.constexpr):
    return zg.add(x, zg.arange(0, N))


@zg.function
def three(a, b, c):
    return a


@zg.function
def wrong_type(a, b):
    return zg.cast(a, zg.f64)


@zg.function
def with_constant(a, b: zg.constexpr):
    return a


@zg.function
def nothing(a, b):
    zg.debug_barrier()


class Pair(NamedTuple):
    first: int
    second: int = 2


# By the body of the kernel, over a pointer, an integer and a tensor: what is said, and the hint.
ERRORS = {
    "zg.arange(0, n)": ("zg.arange: 'end' must be known at compile time; got i32, a run-time value", "pass a literal"),
    "zg.load(None)": ("zg.load: 'ptr' must be a value; got None", "zg.load(ptr"),
    "zg.load()": ("zg.load needs its argument 'ptr'", "zg.load(ptr"),
    "zg.load(p, blocks=None)": ("zg.load has no parameter 'blocks'", "zg.load(ptr"),
    "zg.cdiv(p, 2)": ("zg.cdiv: 'x' must be an integer or a tensor of integers; got ptr<f32>", "write zg.load(p + i)"),
    "min(n)": ("min() takes two scalars or more", "use zg.min to reduce a tensor"),
    "print(n, zg.f32)": ("print() must take strings, numbers, pointers and tuples of them", "use zg.static_print"),
    "t.load()": ("tensor<x16, i32> has no method 'load'", "call zg.load(…) instead"),
    "math.exp(t)": ("'exp' is a function of the host, which must be called with constants; got tensor", "write zg.exp"),
    "sum(t)": ("'sum' is a function of the host, which must be called with constants; got tensor", "write zg.sum"),
    "np.sum(t)": ("'sum' is a function of the host, which must be called with constants; got tensor", "write zg.sum"),
    "np.cumsum(p)": ("'cumsum' is a function of the host, which must be called with constants; got ptr", "write zg."),
    "t.frobnicate()": ("tensor<x16, i32> has no method 'frobnicate'", None),
    "[n, 1].append(2)": (
        "the tuple (i32, 1) has no method 'append'",
        "make another one: tuples and lists in a kernel do not change",
    ),
    "p.load((0,))": (
        "ptr<f32> has no method 'load'",
        "call zg.load(…) instead; for blocks of a descriptor, launch with zg.TensorDescriptor(array, block)",
    ),
    "zg.reduce(t, 0, three)": ("zg.reduce: 'three' must have 2 parameters, two for each tensor; got 3", None),
    "zg.reduce(t, 0, wrong_type)": ("zg.reduce: 'wrong_type' must give i32, as the elements; got f64", None),
    "zg.reduce(t, 0, nothing)": ("zg.reduce: 'nothing' must give i32, as the elements; got nothing", None),
    "zg.reduce(t, 0, with_constant)": ("zg.reduce: the parameters of 'with_constant' must be run-time values", None),
    "Pair()": ("'Pair' takes first, second; got 0 arguments", None),
    "Pair(n, 1, 2)": ("'Pair' takes first, second; got 3 arguments", None),
    "Pair(n, third=2)": ("'Pair' takes first, second; got 2 arguments", None),
    "Pair(second=2)": ("'Pair' takes first, second; got 1 arguments", None),
    "zg.store(p, [i for i in range(5000)][0])": ("an unrolled loop must have at most 4096 iterations; got more", "use"),
    "zg.store(p, [i for i in range(n)][0])": ("only tuple comprehensions are supported", None),
    "zg.store(p, [i for i in p][0])": ("only tuple comprehensions are supported", None),
    "zg.store(p, [i for i in (1, 2) if n][0])": ("the condition of a comprehension must be known", None),
    "zg.reduce(t, 0, 3)": ("zg.reduce: 'combine_fn' must be a function of the language; got 3", "decorate the"),
}  # fmt: skip


def error_of(text: str, tmp_path) -> ZigguratError:
    """The error of a kernel that makes a call, read from a file as every kernel is."""
    names = dict(globals())
    file = tmp_path / "kernels.py"
    file.write_text(f"@zg.kernel\ndef kernel(p, n):\n    t = zg.arange(0, 16)\n    {text}\n")
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(ZigguratError) as error_info:
        attribute(names["kernel"], (P, i32))
    return error_info.value


@pytest.mark.parametrize("text", ERRORS)
def test_calls_that_are_none(text: str, tmp_path):
    summary, hint = ERRORS[text]
    error = error_of(text, tmp_path)
    assert error.summary.startswith(summary)
    assert (error.hint or "").startswith(hint) if hint else error.hint is None
    assert error.location is not None and error.location.line == 4


FIRST = zg.parse('func @"first" (%0 : object, %1 : object)object -> { return %0; };')


@pytest.mark.parametrize(
    ("positional", "keywords", "is_right"),
    [
        ([0, 1], {}, True),
        ([0], {"1": 1}, True),
        ([], {"0": 0, "1": 1}, True),
        ([0], {}, False),
        ([0, 1], {"1": 1}, False),
        ([0], {"0": 1, "1": 1}, False),
        ([0, 1], {"2": 1}, False),
    ],
)
def test_a_model_without_its_function_takes_each_parameter_once(positional, keywords, is_right):
    context = FunctionAttributor(Attributor(), FunctionName("f", FIRST), (i32, f32), None)
    values = FIRST.bodies[0].parameters
    arguments = [values[index] for index in positional], {name: values[index] for name, index in keywords.items()}
    if is_right:
        assert list(bind(context, FunctionName("first", FIRST), *arguments).values()) == list(values)
        return
    with pytest.raises(KernelTypeError, match="'first' takes 2 arguments: 0, 1"):
        bind(context, FunctionName("first", FIRST), *arguments)


@zg.kernel
def hides_the_language(p, n):
    zg = n
    zg.store(p, n)


def test_a_variable_that_hides_the_language_is_named():
    with pytest.raises(KernelTypeError, match="i32 has no method 'store'") as error_info:
        hides_the_language.triton(zg.ptr(zg.i32), zg.i32)
    assert error_info.value.hint == "'zg' is a variable of the kernel here; give the variable another name"


def test_an_error_within_the_library_is_one_of_the_call(tmp_path):
    error = error_of("zg.cumsum(zg.cast(t, zg.ptr(zg.f32)))", tmp_path)
    assert not isinstance(error, KernelErrors) and error.location.line == 4 and error.location.caller is None


def test_an_error_of_a_helper_has_the_call_that_led_there(tmp_path):
    error = error_of("wants_constant(p, 3)", tmp_path)
    assert "power of two" in error.summary
    assert error.location.file == __file__ and error.location.caller.line == 4


@zg.kernel
def methods(p, n):
    block = zg.make_tensor_descriptor(p, (n, n), (n, 1), (8, 16))
    block.store((0, 8), block.load((0, n)))


def test_methods_of_descriptors_are_calls():
    attribution = attribute(methods, (P, i32))
    types = {op.callee: attribution.scope.type_of(op.result) for op in methods.model.walk() if hasattr(op, "callee")}
    assert types[".load"] == TensorType((8, 16), f32) and types[".store"] == constant(None)
    bound = [list(names) for names in facts(attribution, "arguments").values()]
    assert ["desc", "offsets"] in bound and ["desc", "offsets", "value"] in bound


@zg.kernel
def calls_helper(p, n, m):
    zg.store(p, larger(n, m))


def test_a_function_gives_what_it_gives_for_the_types_of_the_call():
    attribution = attribute(calls_helper, (PtrType(i64), i32, i64))
    (callee,) = callees(attribution)
    assert callee.result == i64 and callee.parameter_types == (i32, i64)
