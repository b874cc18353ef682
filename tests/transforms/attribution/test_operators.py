"""Python's operators, the calls that they stand for, and their errors on tensors."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.python_operators import OPERATORS
from ziggurat.codemodel.types import TensorType, i32, pyobject
from ziggurat.frontends.language import SIGNATURES, CompareKind
from ziggurat.frontends.language.comparison import NAMED
from ziggurat.transforms.attribution.operators import CALLS, COMPARISONS, SPECIAL, folded
from ziggurat.transforms.calls.promotion import constant

TENSOR = TensorType((4,), i32)


def made(cls):
    """The op on as many operands as it takes."""
    number: Value = core.ConstantOp(1, pyobject).result
    unary = cls in (py.Neg, py.Pos, py.Invert, py.Not)
    return cls(number) if unary else cls(number, number)


def test_each_operator_is_a_call_of_the_language():
    assert SPECIAL.keys() - CALLS.keys() == {py.Pow, py.Pos, py.Is, py.IsNot, py.In, py.NotIn}
    assert {*CALLS.values()} <= SIGNATURES.keys() and list(COMPARISONS.values()) == list(NAMED)
    assert all(NAMED[call] is CompareKind(OPERATORS[cls].sign) for cls, call in COMPARISONS.items())


@pytest.mark.parametrize(
    ("cls", "values", "expected"),
    [
        (py.Add, (2, 3), 5),
        (py.FloorDiv, (-7, 2), -4),
        (py.Mod, (-7, 2), 1),
        (py.Div, (1, 4), 0.25),
        (py.Pow, (2, -1), 0.5),
        (py.Shl, (0, 1000), 0),
        (py.Pow, (1, 10**9), 1),
        (py.Pow, (10, 30), 10**30),
        (py.Shl, (1, 13_999), 1 << 13_999),
        (py.Invert, (True,), -2),
        (py.Neg, (True,), -1),
        (py.Pos, (True,), 1),
        (py.Lt, (1, 2), True),
        (py.Add, ((1,), (2,)), (1, 2)),
    ],
)
def test_constants_are_computed_by_python(cls, values, expected):
    assert folded(cls, *values) == constant(expected)
    assert type(folded(cls, *values).value) is type(expected)


@pytest.mark.parametrize(
    ("cls", "values", "error", "words"),
    [
        (py.Div, (1, 0), KernelValueError, "cannot compute 1 / 0: division by zero"),
        (py.Mod, (1, 0), KernelValueError, "cannot compute 1 % 0"),
        (py.Shl, (1, -1), KernelValueError, r"cannot compute 1 << \(-1\): negative shift count"),
        (
            py.Mul,
            ((1, 2), 100000),
            KernelValueError,
            r"cannot compute \(1, 2\) \* 100000: .* more than 65536 characters",
        ),
        (py.Shl, (1, 10**9), KernelValueError, "a constant integer must have at most 14000 bits"),
        (
            py.Pow,
            (10, 10**9),
            KernelValueError,
            r"cannot compute 10 \*\* 1000000000: a constant integer must have at most",
        ),
        (py.Pow, (10, 5000), KernelValueError, "must have at most 14000 bits"),
        (py.Mul, (1 << 9000, 1 << 9000), KernelValueError, "must have at most 14000 bits; got one of 18001 bits"),
        (py.Pow, (-2, 0.5), KernelValueError, "complex"),
        (py.Pow, (10.0, 400), KernelValueError, r"cannot compute 10.0 \*\* 400"),
        (py.Add, (1, "a"), KernelTypeError, r"'\+' does not work on the constant 1 and the constant 'a'"),
        (py.Lt, (1, None), KernelTypeError, "'<' does not work on"),
        (py.Invert, (0.5,), KernelTypeError, "'~' does not work on the constant 0.5"),
        (py.And, (1.0, 1), KernelTypeError, "'&' does not work on"),
    ],
)
def test_what_python_cannot_compute(cls, values, error, words):
    with pytest.raises(error, match=words):
        folded(cls, *values)


@pytest.mark.parametrize(
    ("cls", "values"), [(py.Mul, ("ab", 10**9)), (py.Mul, (10**9, (1, 2))), (py.Add, ("a" * 40_000, "b" * 40_000))]
)
def test_constant_strings_and_tuples_are_limited(cls, values):
    with pytest.raises(KernelValueError, match="cannot compute"):
        folded(cls, *values)
