"""Python objects that a kernel can use as constants, and `tl.constexpr`, which marks one."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator
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


def is_array(value: Any) -> bool:
    """True of arrays and tensors of libraries, whose elements may change, and of descriptors of such."""
    if isinstance(value, type):
        return False
    if hasattr(value, "block") and is_array(getattr(value, "array", None)):
        return True
    return (hasattr(value, "__array__") or hasattr(value, "__dlpack__")) and not as_constant(value)[0]


def is_enum(value: Any) -> bool:
    """True of the enums of the language."""
    return isinstance(value, type) and ENUMS.get(value.__name__) is value


def unwrapped(value: Any) -> Any:
    """The value in a `tl.constexpr(…)` or a dtype of Triton's; any other object itself."""
    while getattr(value, "ziggurat_constant", False) is True and not isinstance(value, type):
        value = value.value
    return value


class constexpr:
    """A value known at compile time; also the annotation of a parameter or a variable that holds one.

    Operators give another one. Where its truth, its index or its text is asked, it is the value.
    """

    # Dtypes and enums of Triton's have this attribute as well; see `unwrapped`.
    ziggurat_constant = True

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return self.value

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __getitem__(self, item: Any) -> Any:
        return self.value[constexpr_value(item)]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.value(*arguments, **keywords)

    def logical_and(self, other: Any) -> constexpr:
        """The other value if this one is true, else this one."""
        return constexpr(self.value and constexpr_value(other))

    def logical_or(self, other: Any) -> constexpr:
        """This value if it is true, else the other one."""
        return constexpr(self.value or constexpr_value(other))


def constexpr_value(value: Any) -> Any:
    """The value in a `tl.constexpr`; any other object itself. A dtype of Triton's stays one: see `unwrapped`."""
    return value.value if isinstance(value, constexpr) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _binary(apply: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    return lambda self, other: constexpr(apply(self.value, constexpr_value(other)))


def _reflected(apply: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], constexpr]:
    return lambda self, other: constexpr(apply(constexpr_value(other), self.value))


def _unary(apply: Callable[[Any], Any]) -> Callable[[constexpr], constexpr]:
    return lambda self: constexpr(apply(self.value))


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift")
for _name in _OPERATORS:
    _stem = _name.rstrip("_")
    setattr(constexpr, f"__{_stem}__", _binary(getattr(operator, _name)))
    setattr(constexpr, f"__r{_stem}__", _reflected(getattr(operator, _name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(constexpr, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("neg", "pos", "invert"):
    setattr(constexpr, f"__{_name}__", _unary(getattr(operator, _name)))
