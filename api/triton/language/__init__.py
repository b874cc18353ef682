"""Triton's language, `tl`: its calls, dtypes and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ziggurat.codemodel.types import MAX_ELEMENTS
from ziggurat.frontends.language import classes, dtypes
from ziggurat.frontends.language.constants import constexpr
from ziggurat.frontends.triton.triton_library import SPELLED
from ziggurat.lazy import listed

TRITON_MAX_TENSOR_NUMEL: Final = MAX_ELEMENTS
PropagateNan = classes.PropagateNan
const, constexpr_type, slice = classes.const, classes.constexpr_type, classes.slice
tensor, tensor_descriptor, tuple = classes.tensor, classes.tensor_descriptor, classes.tuple
tuple_type = classes.tuple_type
block_type, dtype, pi32_t, pointer_type = dtypes.block_type, dtypes.dtype, dtypes.pi32_t, dtypes.pointer_type
str_to_ty = dtypes.str_to_ty

_CALLS: Final = {name: spelling for name, spelling in SPELLED.items() if "." not in name}
# Methods of tensors that are no calls, and calls of `tl.extra.cuda`.
_ELSEWHERE: Final = (
    "to", "to_tensor", "item", "logical_and", "logical_or", "smid", "globaltimer", "num_threads", "num_warps",
    "gdc_wait", "gdc_launch_dependents",
)  # fmt: skip
globals().update(dtypes.DTYPES)
globals().update({name: spelling for name, spelling in _CALLS.items() if name not in _ELSEWHERE})

from ziggurat.triton.language import core, extra, math, random, standard, target_info  # noqa: E402
from ziggurat.triton.language.extra import libdevice  # noqa: E402

__dir__ = listed(__name__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = [
    "TRITON_MAX_TENSOR_NUMEL",
    "PropagateNan",
    "block_type",
    "const",
    "constexpr",
    "constexpr_type",
    "core",
    "dtype",
    "extra",
    "libdevice",
    "math",
    "pi32_t",
    "pointer_type",
    "random",
    "slice",
    "standard",
    "str_to_ty",
    "target_info",
    "tensor",
    "tensor_descriptor",
    "tuple",
    "tuple_type",
]  # fmt: skip
__all__ += [*dtypes.DTYPES, *(name for name in _CALLS if name not in _ELSEWHERE)]
