"""Python's operators: what they compute of constants, and the calls of the language that they are on scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ziggurat.codemodel import execute
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects.py_objects import MatMul
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError, reason_of
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.python_operators import OPERATORS
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
PYTHON = execute.FUNCTIONS | _OWN

MAX_TEXT = 1 << 16


# The calls that operators are on run-time scalars.
COMPARISONS: dict[type[Op], str] = {
    py.Eq: "equal", py.Ne: "not_equal", py.Lt: "less", py.Le: "less_equal", py.Gt: "greater", py.Ge: "greater_equal",
}  # fmt: skip
CALLS: dict[type[Op], str] = {
    py.Add: "add", py.Sub: "sub", py.Mul: "mul", py.Div: "div", py.FloorDiv: "floordiv", py.Mod: "mod",
    py.And: "and_", py.Or: "or_", py.Xor: "xor", py.Shl: "shl", py.Shr: "shr", py.Neg: "neg", py.Invert: "invert",
    py.Not: "invert", **COMPARISONS,
}  # fmt: skip


def sign_of(op: Op) -> str:
    """The sign of an operator as its author wrote it: `+=` where an assignment has it."""
    place = op.location
    stores = (user for user in op.result.uses if isinstance(user, core.VarStore))
    return OPERATORS[type(op)].sign + "=" * (place is not None and any(store.location == place for store in stores))


# The methods of objects that the operators of kernels call.
SPECIAL: dict[type[Op], str] = {
    **{cls: f"__{row.stem}__" for cls, row in OPERATORS.items() if cls is not MatMul},
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
