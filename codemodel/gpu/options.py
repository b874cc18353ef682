"""The options that a kernel is compiled with: their names, defaults, and what each may be.

A launch takes them too, but for the target, which is the device's. A constexpr parameter of a kernel that is named as
one of `SHARED_OPTIONS` is that option, as in Triton: its value is what the kernel is compiled with, and what is given
to the option is what the kernel sees.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.targets import TARGETS

DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"target": "sm_90a", "num_warps": 4, "num_stages": 3, "exact_math": False}
)
SHARED_OPTIONS: Final = ("num_warps", "num_stages", "exact_math")
_WARPS: Final = (1, 2, 4, 8, 16, 32)
_MOST_STAGES: Final = 1 << 16  # No loop has as many buffers; what is more is a slip of the hand.


def compile_options(given: Mapping[str, Any], *, complete: bool = False) -> dict[str, Any]:
    """Options of compilation, checked, in one spelling: `np.int64(8)` is 8, `exact_math=1` is True.

    What is None counts as not given. With `complete`, the defaults of the others are filled in. Names that are no
    option of compilation are handed on as they are. Raises `LaunchError` for a value that an option cannot have.
    """
    checked = {name: checked_option(name, value) for name, value in given.items() if value is not None}
    return {**DEFAULTS, **checked} if complete else checked


def checked_option(name: str, value: Any) -> Any:
    """The value of an option of compilation or of a launch, in one spelling; see `compile_options`.

    `stream` and names that are no option are handed on as they are.
    """
    check = _CHECKS.get(name)
    return value if check is None else check(name, value)


def _is_boolean(value: Any) -> bool:
    """Of Python's or NumPy's, which is not imported for it."""
    if isinstance(value, bool):
        return True
    kind = cast("type[Any]", type(value))
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


def _integer(value: Any) -> int | None:
    """A Python or NumPy integer as an int; None of anything else, booleans included."""
    if _is_boolean(value):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _num_warps(name: str, value: Any) -> int:
    number = _integer(value)
    if number not in _WARPS:
        raise LaunchError(f"{name} is an integer, a power of two from 1 to 32, got {shown(value)}")
    return number


def _num_stages(name: str, value: Any) -> int:
    number = _integer(value)
    if number is None or not 1 <= number <= _MOST_STAGES:
        raise LaunchError(f"{name} is an integer from 1 to {_MOST_STAGES}, got {shown(value)}")
    return number


def _boolean(name: str, value: Any) -> bool:
    if _is_boolean(value) or _integer(value) in (0, 1):
        return bool(value)
    raise LaunchError(f"{name} is True or False, got {shown(value)}")


def _target(name: str, value: Any) -> str:
    if isinstance(value, str) and value in TARGETS:
        return value
    from difflib import get_close_matches

    text = str(value).lower().removeprefix("sm_").removeprefix("sm")
    oldest = min(TARGETS.values(), key=lambda target: target.capability)
    if text.isdecimal() and int(text) < oldest.capability:
        hint = f"the oldest that there is code for is '{oldest.name}'"
    else:
        near = [known for known in (f"sm_{text}a", f"sm_{text}") if known in TARGETS]
        near = near or get_close_matches(str(value).lower(), TARGETS, 1)
        hint = f"did you mean '{near[0]}'?" if near else None
    raise LaunchError(f"the {name} is one of {', '.join(TARGETS)}; got {shown(value)}", hint=hint)


_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = MappingProxyType(
    {
        "target": _target,
        "num_warps": _num_warps,
        "num_stages": _num_stages,
        "exact_math": _boolean,
        "check": _boolean,
        "strict": _boolean,
    }
)
