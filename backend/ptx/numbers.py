"""LLVM's types and constants for our scalar types."""

from __future__ import annotations

import re
from typing import Any

from ziggurat.codemodel.numbers import bits_of_number, rounded_number
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    ScalarType,
    SharedType,
    Type,
    element_of,
    f32,
    f64,
)


def llvm_type(type_: Type) -> str:
    """The LLVM type of a scalar, a pointer, a tensor's element, or a buffer's address. 8-bit floats are their bits."""
    element = element_of(type_)
    if isinstance(element, PtrType):
        return "ptr addrspace(1)"
    if isinstance(element, SharedType):
        return "ptr addrspace(3)"
    if isinstance(element, DescriptorType):
        return "ptr"
    assert isinstance(element, ScalarType), f"{type_} has no LLVM type"
    return element.llvm


def literal(value: Any, scalar: ScalarType) -> str:
    """A number as a constant of LLVM text, rounded to the type; floats by their bits."""
    if not scalar.is_float:
        return ("true" if value else "false") if scalar.bits == 1 else str(int(value))
    if scalar == f32:  # LLVM writes an f32 by the bits of the f64 that equals it.
        return f"0x{bits_of_number(rounded_number(value, f32), f64):016X}"
    bits = bits_of_number(value, scalar)
    if scalar.is_fp8:
        return str(bits)
    prefix = {"f16": "0xH", "bf16": "0xR"}.get(scalar.name, "0x")
    return f"{prefix}{bits:0{scalar.bits // 4}X}"


_SUFFIXES = {scalar.llvm: scalar.name for scalar in SCALARS.values() if scalar.bits >= 16 and scalar.is_float}


def suffix(kind: str) -> str:
    """The name of a type in the names of intrinsics."""
    return _SUFFIXES.get(kind, kind)


def encoded(text: str) -> bytes:
    """Text as UTF-8. Surrogates that stand for bytes of a file name become these bytes."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def escaped(raw: bytes) -> str:
    """Bytes as LLVM quotes them: quotes, backslashes and bytes beyond printable ASCII in hexadecimal."""
    return re.sub(r'[^ -~]|["\\]', lambda found: f"\\{ord(found[0]):02X}", raw.decode("latin-1"))
