"""The words of explicit calls and of Triton's Python in messages; C has its own in `frontends.triton_c.words`.

See `ziggurat.codemodel.messages`.
"""

from __future__ import annotations

from typing import Final

from ziggurat.codemodel.messages import EXPLICIT_WORDS, NOUNS, Words
from ziggurat.codemodel.types import SCALARS, PtrType, ScalarType, TensorType, Type

EXPLICIT: Final = EXPLICIT_WORDS

# Triton's names of the dtypes by ours, as types of values have them.
TRITON_NAMES: Final[dict[str, str]] = {
    **{name: f"int{scalar.bits}" for name, scalar in SCALARS.items() if scalar.is_int and scalar.signed},
    **{name: f"uint{scalar.bits}" for name, scalar in SCALARS.items() if not scalar.signed},
    "i1": "int1", "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5",
    "void": "void",
}  # fmt: skip


def long_name(name: str) -> str:
    """Triton's name of a dtype as a member of `tl`: `float16` for "fp16"."""
    for short, long in (("fp", "float"), ("bf", "bfloat")):
        if name.startswith(short):
            return long + name[2:]
    return name


def _type(type_: Type) -> str:
    """A type as Triton prints it: `fp32`, `pointer<fp32>`, `<[16, 16], fp32>`."""
    if isinstance(type_, TensorType):
        return f"<{[*type_.shape]}, {_type(type_.element)}>"
    if isinstance(type_, PtrType):
        return f"{'const_' * type_.const}pointer<{_type(type_.pointee)}>"
    return TRITON_NAMES.get(str(type_), str(type_))


def _dtype(dtype: ScalarType | PtrType) -> str:
    if isinstance(dtype, PtrType):
        return f"tl.pointer_type({_dtype(dtype.pointee)})"
    return f"tl.{long_name(TRITON_NAMES.get(dtype.name, dtype.name))}"


TRITON: Final = Words(
    language="tl",
    call="tl.{}".format,
    type=_type,
    dtype=_dtype,
    nouns=NOUNS | {"function": "@triton.jit", "TensorDescriptor": "TensorDescriptor"},
)
