"""Python objects that a kernel can use as constants."""

from __future__ import annotations

import enum
from types import ModuleType
from typing import Any

from ziggurat.codemodel.declare import ENUMS
from ziggurat.codemodel.types import Type, find_scalar


def as_constant(value: Any) -> tuple[bool, Any]:
    """Whether an object can be a constant of a model, and the constant.

    Numbers of NumPy become Python's, and dtypes of NumPy and torch ours.
    """
    value = unwrapped(value)
    if value is None or isinstance(value, Type):
        return True, value
    if isinstance(value, enum.Enum) and is_enum(type(value)):
        return True, value
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return True, value if type(value) is kind else kind(value)
    if isinstance(value, tuple):
        items = [as_constant(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return all(good for good, _ in items), tuple(item for _, item in items)
    dtype = None if isinstance(value, str) else find_scalar(value)
    if dtype is not None:
        return True, dtype
    # A number of NumPy; an array has items, and a class of numbers is none.
    if hasattr(value, "dtype") and not hasattr(value, "__setitem__") and not isinstance(value, type | ModuleType):
        number: Any = getattr(value, "item", lambda: None)()  # pyright: ignore[reportUnknownArgumentType]
        return type(number) in (bool, int, float), number
    return False, None


def is_enum(value: Any) -> bool:
    """True of the enums of the language."""
    return isinstance(value, type) and ENUMS.get(value.__name__) is value


def unwrapped(value: Any) -> Any:
    """The value in a `tl.constexpr(…)` or a dtype of Triton's; any other object itself."""
    while getattr(value, "ziggurat_constant", False) is True and not isinstance(value, type):
        value = value.value
    return value
