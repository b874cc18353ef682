"""`triton.language.standard`: the calls that Triton writes in its own language."""

from __future__ import annotations

from ziggurat.frontends.triton.library import SPELLED

_NAMES = (
    "argmax", "argmin", "bitonic_merge", "cdiv", "cumprod", "cumsum", "flip", "interleave", "max", "min", "ravel",
    "reduce_or", "sigmoid", "softmax", "sort", "sum", "swizzle2d", "topk", "xor_sum", "zeros", "zeros_like",
)  # fmt: skip
globals().update({name: SPELLED[name] for name in _NAMES})
