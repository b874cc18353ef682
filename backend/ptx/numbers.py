"""LLVM's types and constants for our scalar types."""

from __future__ import annotations

import math
import struct
from typing import Any

from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, element_of

_FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def llvm_type(type_: Type) -> str:
    """The LLVM type of a scalar, of a pointer, or of an element of a tensor. 8-bit floats are their bits."""
    element = element_of(type_)
    if isinstance(element, PtrType):
        return "ptr addrspace(1)"
    if isinstance(element, DescriptorType):
        return "ptr"
    assert isinstance(element, ScalarType), f"{type_} has no LLVM type"
    return _FLOATS.get(element.name) or f"i{element.bits}"


def literal(value: Any, scalar: ScalarType) -> str:
    """A number as a constant of LLVM text, rounded to the type; floats by their bits."""
    if not scalar.is_float:
        return ("true" if value else "false") if scalar.bits == 1 else str(int(value))
    number = float(value)
    if scalar.name == "f64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if scalar.name == "f32":
        # LLVM writes a float by the bits of the double that equals it.
        return f"0x{struct.unpack('<Q', struct.pack('<d', _as_f32(number)))[0]:016X}"
    if scalar.name == "f16":
        return f"0xH{_bits(number, 'float16'):04X}"
    if scalar.name == "bf16":
        return f"0xR{_bits(number, 'bfloat16'):04X}"
    return str(_bits(number, {"f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}[scalar.name]))


def _as_f32(number: float) -> float:
    if math.isnan(number) or math.isinf(number):
        return number
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def _bits(number: float, dtype: str) -> int:
    import ml_dtypes
    import numpy as np

    kind = np.dtype(np.float16) if dtype == "float16" else np.dtype(getattr(ml_dtypes, dtype))
    with np.errstate(all="ignore"):
        return int(np.array(number).astype(kind).view(f"u{kind.itemsize}"))


def zero(type_: Type) -> str:
    """The constant zero of a type."""
    element = element_of(type_)
    return literal(0, element) if isinstance(element, ScalarType) else "null"


def scalar_of(type_: Type) -> ScalarType:
    """The scalar type of a number or of a tensor's elements."""
    element = element_of(type_)
    assert isinstance(element, ScalarType)
    return element


def suffix(kind: str) -> str:
    """How an intrinsic names a type."""
    return {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(kind, kind)


def encoded(text: str) -> bytes:
    """Text as bytes: UTF-8, and surrogates that stand for bytes of a file's name as these bytes."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def escaped(raw: bytes) -> str:
    """Bytes as LLVM quotes them: quotes, backslashes and what is not printable ASCII as hexadecimal numbers."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in raw)
