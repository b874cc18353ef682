"""`triton.language.core`: the calls, dtypes and classes of `tl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziggurat.frontends.language import classes, dtypes
from ziggurat.frontends.language.constants import constexpr as constexpr
from ziggurat.frontends.language.languages import Spelling
from ziggurat.frontends.triton.compile_time import TritonFunction as builtin
from ziggurat.frontends.triton.compile_time import (
    aggregate,
    aggregate_replace,
    constexpr_function,
    must_use_result,
)
from ziggurat.frontends.triton.triton_library import SPELLED

globals().update({name: value for name, value in vars(classes).items() if isinstance(value, type)})
globals().update({name: spelling for name, spelling in SPELLED.items() if "." not in name})
globals().update(dtypes.DTYPES)
block_type, dtype, pi32_t, pointer_type = dtypes.block_type, dtypes.dtype, dtypes.pi32_t, dtypes.pointer_type
get_int_dtype, str_to_ty = dtypes.get_int_dtype, dtypes.str_to_ty
_aggregate = aggregate


def _unwrap_if_constexpr(o: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
    """The value of a `tl.constexpr`, also in lists and tuples; any other thing as it is."""
    if isinstance(o, (list, tuple)):
        return type(o)(map(_unwrap_if_constexpr, o))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return o.value if isinstance(o, constexpr) else o


def is_builtin(fn: Any) -> bool:
    """Whether a thing is a call of the language, or a function under `builtin`."""
    return isinstance(fn, (Spelling, builtin))


CONSTEXPR_0 = constexpr(0)
base_value = classes.base_value

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["aggregate_replace", "builtin", "constexpr_function", "must_use_result"]
