"""Python's operators, the calls that they stand for, and what is said of them on tensors."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import TensorType, i32, pyobject
from ziggurat.frontends.language import SIGNATURES, CompareKind
from ziggurat.transforms.attribution.elementwise import ElementwiseTypes
from ziggurat.transforms.attribution.operators import COMPARISONS, OPERATORS, operator_error

TENSOR = TensorType((4,), i32)


def made(cls):
    """The op on as many operands as it takes."""
    one: Value = core.ConstantOp(1, pyobject).result
    unary = cls in (py.Neg, py.Pos, py.Invert, py.Not)
    return cls(one) if unary else cls(one, one)


def test_each_operator_is_a_call_of_the_language():
    assert {name for name in OPERATORS.values()} - SIGNATURES.keys() == {"pow"}
    assert all(hasattr(ElementwiseTypes, name) for name in OPERATORS.values() if name != "pow")
    assert sorted(COMPARISONS.values()) == sorted(kind.value for kind in CompareKind)


@pytest.mark.parametrize("cls", [*OPERATORS, *COMPARISONS], ids=lambda cls: cls.NAME)
def test_the_hint_names_the_call(cls):
    error = operator_error(made(cls), TENSOR)
    assert error.summary.endswith(f"does not work on tensors, here {TENSOR}")
    call = OPERATORS.get(cls)
    if cls in COMPARISONS:
        kind = CompareKind(COMPARISONS[cls])
        assert error.hint == f"use zg.compare(a, b, zg.CompareKind.{kind.name})"
    elif call == "pow":
        assert "zg.exp2" in error.hint
    else:
        arguments = "x" if call in ("neg", "invert") else "a, b"
        assert error.hint == f"use zg.{call}({arguments})"


@pytest.mark.parametrize(
    ("cls", "sign", "hint"),
    [
        (py.Not, "not", "use zg.invert(x)"),
        (py.Pos, "+", "leave it out"),
        (py.Is, "is", "it is for what is known at compile time; use zg.compare"),
        (py.IsNot, "is not", "it is for what is known at compile time; use zg.compare"),
        (py.In, "in", "it is for what is known at compile time; use zg.compare"),
        (py.NotIn, "not in", "it is for what is known at compile time; use zg.compare"),
    ],
)
def test_operators_that_are_no_calls(cls, sign, hint):
    error = operator_error(made(cls), TENSOR)
    assert error.summary.startswith(f"the operator '{sign}' ") and error.hint == hint
