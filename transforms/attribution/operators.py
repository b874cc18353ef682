"""Python's operators: what they compute of constants, and the calls of the language that they are on scalars."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import attrs

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ConstantType, TensorType
from ziggurat.transforms.calls.promotion import constant
from ziggurat.transforms.calls.wording import describe, show

_PYTHON: Any = operator  # The stubs of `operator` leave types unknown.


def _inverted(x: Any) -> Any:
    return not x if isinstance(x, bool) else ~x


def _contains(item: Any, items: Any) -> bool:
    return item in items


def _negated(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: not test(a, b)


def _identical(a: Any, b: Any) -> bool:
    return constant(a) == constant(b)


MAX_BITS = 64
MAX_TEXT = 1 << 16


@attrs.frozen
class Operator:
    """An operator: its sign, its meaning in Python, and the call that it is on run-time scalars, if there is one."""

    sign: str
    python: Callable[..., Any]
    call: str | None = None


COMPARISONS: dict[type[Op], Operator] = {
    py.Eq: Operator("==", _PYTHON.eq, "equal"),
    py.Ne: Operator("!=", _PYTHON.ne, "not_equal"),
    py.Lt: Operator("<", _PYTHON.lt, "less"),
    py.Le: Operator("<=", _PYTHON.le, "less_equal"),
    py.Gt: Operator(">", _PYTHON.gt, "greater"),
    py.Ge: Operator(">=", _PYTHON.ge, "greater_equal"),
}
OPERATORS: dict[type[Op], Operator] = {
    py.Add: Operator("+", _PYTHON.add, "add"),
    py.Sub: Operator("-", _PYTHON.sub, "sub"),
    py.Mul: Operator("*", _PYTHON.mul, "mul"),
    py.Div: Operator("/", _PYTHON.truediv, "div"),
    py.FloorDiv: Operator("//", _PYTHON.floordiv, "floordiv"),
    py.Mod: Operator("%", _PYTHON.mod, "mod"),
    py.Pow: Operator("**", _PYTHON.pow),
    py.And: Operator("&", _PYTHON.and_, "and_"),
    py.Or: Operator("|", _PYTHON.or_, "or_"),
    py.Xor: Operator("^", _PYTHON.xor, "xor"),
    py.Shl: Operator("<<", _PYTHON.lshift, "shl"),
    py.Shr: Operator(">>", _PYTHON.rshift, "shr"),
    py.Neg: Operator("-", _PYTHON.neg, "neg"),
    py.Invert: Operator("~", _inverted, "invert"),
    py.Not: Operator("not", _PYTHON.not_, "invert"),
    py.Pos: Operator("+", _PYTHON.pos),
    py.Is: Operator("is", _identical),
    py.IsNot: Operator("is not", _negated(_identical)),
    py.In: Operator("in", _contains),
    py.NotIn: Operator("not in", _negated(_contains)),
    **COMPARISONS,
}


def folded(cls: type[Op], *values: Any) -> ConstantType:
    """The constant that Python computes. Raises `KernelTypeError` or `KernelValueError` where Python raises."""
    sign = OPERATORS[cls].sign
    shown = [f"({text})" if text.startswith("-") else text for text in map(show, values)]
    text = f" {sign} ".join(shown) if len(values) == 2 else f"{sign}({shown[0]})"
    if _is_too_large(cls, *values):
        raise KernelValueError(f"cannot compute {text}: the integer does not fit in {MAX_BITS} bits")
    try:
        result = OPERATORS[cls].python(*values)
    except TypeError:
        kinds = " and ".join(describe(constant(value)) for value in values)
        raise KernelTypeError(f"'{sign}' does not work on {kinds}") from None
    except (ValueError, ZeroDivisionError, OverflowError, MemoryError) as error:
        raise KernelValueError(f"cannot compute {text}: {error}") from None
    if isinstance(result, complex):
        raise KernelValueError(f"cannot compute {text}: the result is a complex number, which kernels do not have")
    if isinstance(result, str | tuple) and len(result) > MAX_TEXT:  # pyright: ignore[reportUnknownArgumentType]
        raise KernelValueError(f"cannot compute {text}: the result has more than {MAX_TEXT} characters or items")
    try:
        return constant(result)
    except KernelValueError as error:
        raise KernelValueError(f"cannot compute {text}: {error.summary}") from None


def _is_too_large(cls: type[Op], *values: Any) -> bool:
    """True of results that Python should not even try to compute."""
    if len(values) != 2:
        return False
    left, right = values
    if cls is py.Mul and isinstance(left, str | tuple) != isinstance(right, str | tuple):
        text, count = (left, right) if isinstance(left, str | tuple) else (right, left)
        return isinstance(count, int) and count * len(text) > MAX_TEXT  # pyright: ignore[reportUnknownArgumentType]
    if cls not in (py.Pow, py.Shl) or not all(isinstance(value, int) for value in values):
        return False
    return right > MAX_BITS and (abs(left) > 1 if cls is py.Pow else left != 0)


def operator_error(op: Op, type_: TensorType) -> KernelTypeError:
    """The error of an operator on a tensor; its hint names the call to use."""
    found = OPERATORS[type(op)]
    if isinstance(op, py.Pow):
        hint = "use zg.mul, or zg.exp2(zg.mul(b, zg.log2(a)))"
    elif found.call is not None:
        hint = f"use zg.{found.call}({'x' if len(op.operands) == 1 else 'a, b'})"
    elif isinstance(op, py.Pos):
        hint = "leave it out"
    else:
        hint = "it is for what is known at compile time; use zg.equal"
    return KernelTypeError(f"the operator '{found.sign}' does not work on tensors, here {type_}", hint=hint)
