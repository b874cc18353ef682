"""Arguments that are known at compile time: each is of the kind that the signature of the call says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.types import PtrType, ScalarType
from ziggurat.frontends.language import CompareKind
from ziggurat.frontends.language.signature import Parameter
from ziggurat.transforms.calls.function_name import FunctionName
from ziggurat.transforms.calls.wording import show


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_ints(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, tuple) and all(map(_is_int, value)))  # pyright: ignore[reportUnknownArgumentType]


def _is_dtype(value: Any) -> bool:
    return isinstance(value, ScalarType | PtrType)


def _is_dtypes(value: Any) -> bool:
    return _is_dtype(value) or (isinstance(value, tuple) and value != () and all(map(_is_dtype, value)))  # pyright: ignore[reportUnknownArgumentType]


# Kinds of parameters by annotation: the words for what a value must be, a test, and a hint.
_KINDS: dict[str, tuple[str, Callable[[Any], bool], str | None]] = {
    "ConstInt": ("an integer", _is_int, None),
    "ConstInts": ("an integer or a tuple of integers", _is_ints, None),
    "ConstBool": ("True or False", lambda value: isinstance(value, bool), None),
    "ConstStr": ("a string", lambda value: isinstance(value, str), None),
    "ConstShape": ("a shape, a tuple of integers such as (16, 16)", _is_ints, None),
    "ConstDtype": ("a dtype such as zg.f32", _is_dtype, None),
    "ConstDtypes": ("a dtype such as zg.f32, or a tuple of dtypes", _is_dtypes, None),
    "ConstFunction": (
        "a function of the language",
        lambda value: isinstance(value, FunctionName),
        "decorate the function with @zg.function, and give it by its name",
    ),
    "ConstCompareKind": (
        "a member of zg.CompareKind, or a sign such as '<'",
        lambda value: isinstance(value, CompareKind),
        f"zg.CompareKind has {', '.join(kind.name for kind in CompareKind)}",
    ),
}


def held(call: str, parameter: Parameter, value: Any) -> Any:
    """A constant as what the parameter holds. Raises `KernelTypeError` when it is not of the parameter's kind."""
    value = parameter.held(value)
    found = _KINDS.get(parameter.kind)
    if found is None or (value is None and parameter.optional):
        return value
    words, fits, hint = found
    if not fits(value):
        words = f"{words}, or None" if parameter.optional else words
        raise KernelTypeError(f"zg.{call}: '{parameter.name}' must be {words}; got {show(value)}", hint=hint)
    return value
