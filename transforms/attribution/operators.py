"""Python's operators: what they compute of constants, and the calls of the language that they are on scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs

from ziggurat.codemodel import execute
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError, reason_of
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ConstantType
from ziggurat.frontends.language.host import MAX_BITS
from ziggurat.transforms.calls.constant_arguments import HostObject, describe_all, show
from ziggurat.transforms.calls.promotion import constant


def _inverted(x: Any) -> Any:
    return ~int(x) if isinstance(x, bool) else ~x  # Python 3.12 warns of `~True`.


def _different(a: Any, b: Any) -> bool:
    return not _identical(a, b)


def _identical(a: Any, b: Any) -> bool:
    return constant(a) == constant(b)


# The operators that are not quite Python's: constants have no identity.
_OWN: dict[type[Op], Callable[..., Any]] = {py.Invert: _inverted, py.Is: _identical, py.IsNot: _different}
PYTHON = execute.OPERATORS | _OWN

MAX_TEXT = 1 << 16


@attrs.frozen
class Operator:
    """An operator: its sign, and the call that it is on run-time scalars, if there is one."""

    sign: str
    call: str | None = None


COMPARISONS: dict[type[Op], Operator] = {
    py.Eq: Operator("==", "equal"),
    py.Ne: Operator("!=", "not_equal"),
    py.Lt: Operator("<", "less"),
    py.Le: Operator("<=", "less_equal"),
    py.Gt: Operator(">", "greater"),
    py.Ge: Operator(">=", "greater_equal"),
}
OPERATORS: dict[type[Op], Operator] = {
    py.Add: Operator("+", "add"),
    py.Sub: Operator("-", "sub"),
    py.Mul: Operator("*", "mul"),
    py.Div: Operator("/", "div"),
    py.FloorDiv: Operator("//", "floordiv"),
    py.Mod: Operator("%", "mod"),
    py.Pow: Operator("**"),
    py.And: Operator("&", "and_"),
    py.Or: Operator("|", "or_"),
    py.Xor: Operator("^", "xor"),
    py.Shl: Operator("<<", "shl"),
    py.Shr: Operator(">>", "shr"),
    py.Neg: Operator("-", "neg"),
    py.Invert: Operator("~", "invert"),
    py.Not: Operator("not", "invert"),
    py.Pos: Operator("+"),
    py.Is: Operator("is"),
    py.IsNot: Operator("is not"),
    py.In: Operator("in"),
    py.NotIn: Operator("not in"),
    **COMPARISONS,
}


def sign_of(op: Op) -> str:
    """The sign of an operator as its author wrote it: `+=` where an assignment has it."""
    place = op.location
    stores = (user for user in op.result.uses if isinstance(user, core.VarStore))
    return OPERATORS[type(op)].sign + "=" * (place is not None and any(store.location == place for store in stores))


# The methods of objects that the operators call.
SPECIAL: dict[type[Op], str] = {
    **{cls: f"__{function.__name__.rstrip('_')}__" for cls, function in execute.OPERATORS.items()},
    **dict.fromkeys((py.In, py.NotIn), "__contains__"),
}


def folded(cls: type[Op], *values: Any, written: str = "") -> ConstantType:
    """The constant that Python computes. Raises `KernelTypeError` or `KernelValueError` where Python raises.

    `written` is the sign in messages, by default that of the operator.
    """
    sign = OPERATORS[cls].sign
    values = tuple(value.value if isinstance(value, HostObject) else value for value in values)
    texts = [f"({text})" if text.startswith("-") else text for text in map(show, values)]
    text = f" {sign} ".join(texts) if len(values) == 2 else f"{sign}({texts[0]})"
    too_many = f"cannot compute {text}: the result has more than {MAX_TEXT} characters or items"
    if _is_too_large(cls, *values):
        too_large = f"cannot compute {text}: a constant integer must have at most {MAX_BITS} bits"
        raise KernelValueError(too_many if cls is py.Mul else too_large)
    try:
        result = PYTHON[cls](*values)
    except TypeError:
        kinds = describe_all(map(constant, values))
        raise KernelTypeError(say("'{}' does not work on {}", written or sign, kinds)) from None
    except (ValueError, ZeroDivisionError, OverflowError, MemoryError) as error:
        raise KernelValueError(say("cannot compute {}: {}", text, reason_of(error))) from None
    if isinstance(result, complex):
        raise KernelValueError(
            say("cannot compute {}: the result is a complex number, which kernels do not have", text)
        )
    if isinstance(result, str | tuple) and len(result) > MAX_TEXT:  # pyright: ignore[reportUnknownArgumentType]
        raise KernelValueError(too_many)
    try:
        return constant(result)
    except KernelValueError as error:
        raise KernelValueError(say("cannot compute {}: {}", text, error.summary)) from None


def _is_too_large(cls: type[Op], *values: Any) -> bool:
    """True of a result that is too large to be computed."""
    if len(values) != 2:
        return False
    left, right = values
    if cls is py.Mul:
        text, count = cast(tuple[Any, Any], (left, right) if isinstance(left, str | tuple) else (right, left))
        return isinstance(text, str | tuple) and isinstance(count, int) and count * len(cast(Any, text)) > MAX_TEXT
    if cls not in (py.Pow, py.Shl) or not all(isinstance(value, int) for value in values):
        return False
    bits = left.bit_length()
    return (bits - 1) * right >= MAX_BITS if cls is py.Pow else left != 0 and bits + right > MAX_BITS
