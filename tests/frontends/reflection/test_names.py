"""The meaning of names, and the errors for objects that a kernel cannot use."""

import enum
import math
import types

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel import types as dtypes
from ziggurat.codemodel.declare import constant_enum
from ziggurat.codemodel.errors import KernelNameError, KernelSyntaxError
from ziggurat.frontends.reflection import reflect


class Plain(enum.Enum):
    A = 1


class Number(enum.IntEnum):
    SEVEN = 7


@constant_enum
class ReflectedKind(enum.Enum):
    FIRST = "first"


@pytest.mark.parametrize(
    ("expression", "names", "constant"),
    [
        ("SIZE", {"SIZE": 64}, "64"),
        ("HALF", {"HALF": 0.5}, "0.5"),
        ("FLAG", {"FLAG": True}, "true"),
        ("NOTHING", {"NOTHING": None}, "null"),
        ("MODE", {"MODE": "fast"}, '"fast"'),
        ("PAIR", {"PAIR": (1, (2.0, dtypes.f32))}, "[1, [2.0, f32]]"),
        ("seven", {"seven": Number.SEVEN}, "7"),
        ("wide", {"wide": np.float64(0.25)}, "0.25"),
        ("narrow", {"narrow": np.int8(-3)}, "-3"),
        ("single", {"single": np.float32(0.5)}, "0.5"),
        ("truth", {"truth": np.True_}, "true"),
        ("t.f16", {"t": dtypes}, "f16"),
        ("P", {"P": dtypes.PtrType(dtypes.f32)}, "ptr<f32>"),
        ("math.pi", {"math": math}, "3.141592653589793"),
        ("space.N", {"space": types.SimpleNamespace(N=1)}, "1"),
        ("Number.SEVEN", {"Number": Number}, "7"),
        ("zg.CompareKind.LESS_THAN", {}, "CompareKind.LESS_THAN"),
        ("Kind.FIRST", {"Kind": ReflectedKind}, "ReflectedKind.FIRST"),
        ("first", {"first": ReflectedKind.FIRST}, "ReflectedKind.FIRST"),
        ("min", {"min": 3}, "3"),
    ],
)
def test_constants(lines, expression, names, constant):
    assert lines(f"a = {expression}", **names)[0] == f"%6 : object = constant @{constant};"


def test_module_in_module(lines):
    outer = types.ModuleType("outer")
    outer.inner = types.ModuleType("inner")
    outer.inner.N = 5
    assert "constant @5" in lines("a = outer.inner.N", outer=outer)[0]


def test_alias_of_a_call(lines):
    assert lines("a = ld(x)", ld=zg.load)[1] == '%7 : object = invoke %6 @"zg.load";'


def test_closure(define):
    kernel = define(
        """
        def make(size, f):
            def kernel(x):
                return f(x, size)
            return kernel
        kernel = make(32, helper)
        """,
        helper=zg.function(define("def kernel(a, b): return a")),
    )
    text = str(reflect(kernel))
    assert "constant @32" in text
    assert 'func.call %2 %3 @"kernel"' in text


def test_names_are_read_when_reflecting(define):
    kernel = define("N = 1\ndef kernel(): return N")
    assert "constant @1" in str(reflect(kernel))
    kernel.__globals__["N"] = 2
    assert "constant @2" in str(reflect(kernel))


def test_closure_without_a_value_yet(define):
    kernel = define(
        """
        def make():
            def kernel():
                return later
            yield kernel
            later = 1
        kernel = next(make())
        """
    )
    with pytest.raises(KernelNameError, match="'later' has no value yet"):
        reflect(kernel)


def test_function_as_a_value(lines, define):
    helper = zg.function(define("def kernel(a, b): return a"))
    assert lines("zg.reduce(x, 0, helper)", helper=helper)[2] == '%8 : object = func.ref @"kernel";'


def test_two_functions_of_one_name(lines, define):
    first, second = (zg.function(define("def kernel(): pass")) for _ in range(2))
    text = lines("first()\nsecond()", first=first, second=second)
    assert [line.partition("@")[2] for line in text[:2]] == ['"kernel";', '"kernel.1";']


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("lenght", "did you mean length?"),
        ("BLOK", "did you mean BLOCK?"),
        ("load(x)", "did you mean zg.load?"),
        ("arrange(0, 4)", "did you mean zg.arange?"),
        ("tupel((1, 2))", "did you mean tuple?"),
        ("qqqqqq", ""),
        ("zg.laod(x)", "did you mean zg.load?"),
        ("zg.CompareKind.LES_THAN", "did you mean zg.CompareKind.LESS_THAN?"),
    ],
)
def test_unknown_name(fail, expression, hint):
    (failure,) = fail(f"length = 1\na = {expression}", BLOCK=3)
    assert isinstance(failure.error, KernelNameError)
    assert failure.marked == expression.split("(")[0]
    assert failure.hint == hint


def test_unknown_name_message(fail):
    (failure,) = fail("a = zg.laod(x)")
    assert str(failure.error).splitlines()[0] == "the module 'zg' has no 'laod'"
    assert str(failure.error).splitlines()[2:] == [
        "        a = zg.laod(x)",
        "            ^^^^^^^",
        "  hint: did you mean zg.load?",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "'v' is a list, which may change after the kernel is compiled"),
        ({}, "'v' is a dict, which may change after the kernel is compiled"),
        (np.zeros(3), "'v' is of the type ndarray, which a kernel cannot use"),
        (np.array(3), "'v' is of the type ndarray, which a kernel cannot use"),
        (np.complex64(3), "'v' is of the type complex64, which a kernel cannot use"),
        ((1, [2]), "'v' is a tuple, which may change after the kernel is compiled"),
    ],
)
def test_value_of_another_kind(fail, value, message):
    (failure,) = fail("a = v", v=value)
    assert isinstance(failure.error, KernelSyntaxError)
    assert failure.summary == message
    assert failure.marked == "v"
    assert "numbers, strings, None" in failure.hint or "@zg.function" in failure.hint
