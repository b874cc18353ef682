"""`triton.language.core`: the calls, dtypes and classes of `tl`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.types import MAX_ELEMENTS
from ziggurat.frontends.language import classes, dtypes
from ziggurat.frontends.language.constants import constexpr as constexpr
from ziggurat.frontends.language.function import Function
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
nv_tma_desc_type, TRITON_MAX_TENSOR_NUMEL = dtypes.nv_tma_desc_type, MAX_ELEMENTS
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


def extern(fn: Callable[..., Any]) -> Function:
    """Decorator of a function of a library of bitcode, such as those of NVSHMEM in PyTorch. A kernel that calls it is
    refused: ziggurat has the functions of libdevice itself, and links no other library."""

    def refused(function: Function) -> NoReturn:
        raise TargetError(
            f"'{fn.__name__}' is a function of a library of bitcode, which ziggurat does not link",
            hint="write it in Triton's Python, or run kernels that call it on Triton",
        )

    return Function(fn, refused)


def extern_elementwise(*arguments: Any, **keywords: Any) -> NoReturn:
    """The call of a function of a library of bitcode, inside of one under `extern`."""
    raise TargetError("ziggurat links no library of bitcode", hint="call the functions of tl.extra.libdevice")


CONSTEXPR_0 = constexpr(0)
base_value = classes.base_value

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = [
    "aggregate_replace", "builtin", "constexpr_function", "extern", "extern_elementwise", "must_use_result",
]  # fmt: skip
