"""Triton's language, `tl`: its calls, dtypes and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.types import bf16 as bfloat16
from ziggurat.codemodel.types import f16 as float16
from ziggurat.codemodel.types import f32 as float32
from ziggurat.codemodel.types import f64 as float64
from ziggurat.codemodel.types import i1 as int1
from ziggurat.codemodel.types import i8 as int8
from ziggurat.codemodel.types import i16 as int16
from ziggurat.codemodel.types import i32 as int32
from ziggurat.codemodel.types import i64 as int64
from ziggurat.frontends.triton import SPELLED, constexpr

globals().update(SPELLED)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = [
    "bfloat16", "constexpr", "float16", "float32", "float64", "int1", "int8", "int16", "int32", "int64",
]  # fmt: skip
