"""Triton's language, `tl`: its calls, dtypes and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ziggurat.codemodel.types import MAX_ELEMENTS
from ziggurat.frontends.language import classes, dtypes
from ziggurat.frontends.language.constants import constexpr
from ziggurat.frontends.triton.compile_time import aggregate_replace, constexpr_function
from ziggurat.frontends.triton.triton_library import SPELLED
from ziggurat.lazy import listed

TRITON_MAX_TENSOR_NUMEL: Final = MAX_ELEMENTS
_CLASSES: Final = (
    "PropagateNan", "const", "constexpr_type", "slice", "tensor", "tensor_descriptor", "tuple", "tuple_type",
)  # fmt: skip
_TYPES: Final = ("block_type", "dtype", "nv_tma_desc_type", "pi32_t", "pointer_type", "str_to_ty")
_CALLS: Final = {name: spelling for name, spelling in SPELLED.items() if "." not in name}
# Methods of tensors that are no calls, and calls of `tl.extra.cuda`.
_ELSEWHERE: Final = (
    "to", "item", "logical_and", "logical_or", "smid", "globaltimer", "num_threads", "num_warps",
    "gdc_wait", "gdc_launch_dependents", "experimental_device_tensormap_create1d",
    "experimental_device_tensormap_create2d", "experimental_tensormap_fenceproxy_acquire",
)  # fmt: skip
globals().update({name: getattr(classes, name) for name in _CLASSES})
globals().update({name: getattr(dtypes, name) for name in _TYPES} | dtypes.DTYPES)
globals().update({name: spelling for name, spelling in _CALLS.items() if name not in _ELSEWHERE})
_experimental_make_tensor_descriptor = SPELLED["make_tensor_descriptor"]  # The name in Triton 3.2 and 3.3.
float8e4 = dtypes.float8e4nv  # The name in Triton 2.1.
_experimental_tensor_descriptor = classes.tensor_descriptor

from ziggurat.triton.language import core, extra, math, random, standard, target_info  # noqa: E402
from ziggurat.triton.language.extra import libdevice  # noqa: E402

__dir__ = listed(__name__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = [
    "TRITON_MAX_TENSOR_NUMEL", "aggregate_replace", "constexpr", "constexpr_function",
    "core", "extra", "libdevice", "math", "random", "standard", "target_info",
]  # fmt: skip
__all__ += [*_CLASSES, *_TYPES, *dtypes.DTYPES, *(name for name in _CALLS if name not in _ELSEWHERE)]
