"""Objects that the function of a grid captures, read without running code of the program.

A launch that is recorded happens as it does without: a property, a method or a `__getitem__` that a program defines is
not called. Data of objects is read, and of the arrays of libraries what describes them.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from ziggurat.codemodel.errors import BuildError

# Packages whose properties and methods change nothing: those of arrays, and ours.
_LIBRARIES: Final = frozenset({"cupy", "jax", "jaxlib", "numpy", "torch", "triton", "ziggurat"})
_METHODS: Final = frozenset({"dim", "element_size", "ndimension", "nelement", "numel", "size", "stride"})


def attribute(owner: Any, name: str) -> Any:
    """`owner.name`. Raises `BuildError` for an attribute that there is not, or that code of the program computes."""
    if isinstance(owner, types.ModuleType):
        if name in vars(owner):
            return vars(owner)[name]
        if not _is_known(owner.__name__):
            raise _unread(owner, f".{name}")
        return _outcome(owner, f".{name}", lambda: getattr(owner, name))  # Some names are imported at their first use.
    try:
        value: Any = inspect.getattr_static(owner, name)
    except AttributeError:
        raise _unread(owner, f".{name}") from None
    if not hasattr(cast("type[Any]", type(value)), "__get__"):
        return value
    get = cast(Any, type(value)).__get__
    is_slot = isinstance(value, types.MemberDescriptorType)
    if not is_slot and not (_is_of_library(owner) and isinstance(value, types.GetSetDescriptorType | property)):
        raise _unread(owner, f".{name}")
    return _outcome(owner, f".{name}", lambda: get(value, owner, None))


def item(owner: Any, index: Any) -> Any:
    """`owner[index]` of a tuple, a list or a dictionary. Raises `BuildError` for others, and where there is no item."""
    get: Any = getattr(cast("type[Any]", type(owner)), "__getitem__", None)
    is_sequence = isinstance(owner, tuple | list) and isinstance(index, int)
    has_item = is_sequence or (isinstance(owner, dict) and dict[Any, Any].__contains__(cast(Any, owner), index))
    if isinstance(get, types.FunctionType) or not has_item:  # A dictionary with defaults would add the item.
        raise _unread(owner, f"[{index!r}]")
    return _outcome(owner, f"[{index!r}]", lambda: get(owner, index))


def method(owner: Any, name: str, arguments: Sequence[Any]) -> Any:
    """`owner.name(arguments…)` of an array of a library, where the method only describes it; and `len(owner)` of a
    tuple, a list or a dictionary. Raises `BuildError` for all others."""
    if name == "__len__" and type(owner) in (tuple, list, dict):
        return len(owner)
    if name not in _METHODS or not _is_of_library(owner) or not all(type(value) is int for value in arguments):
        raise _unread(owner, f".{name}(…)")
    return _outcome(owner, f".{name}(…)", lambda: getattr(owner, name)(*arguments))


def _is_of_library(owner: Any) -> bool:
    return _is_known(type(owner).__module__)


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


def _outcome(owner: Any, what: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # The launch itself says what is wrong.
        raise _unread(owner, what) from None


def _unread(owner: Any, what: str) -> BuildError:
    return BuildError(
        f"the grid's function asks a captured {type(owner).__name__} for '{what}', which is not read without a launch",
        hint="compute the number before, and let the function capture it",
    )
