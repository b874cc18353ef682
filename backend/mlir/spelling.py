"""Types, numbers, strings, symbols and locations in MLIR's spelling.

A Tuple is several values in MLIR, with the components of nested Tuples in order. MLIR's integers have no sign: `u32`
and `i32` are one type there.
"""

from __future__ import annotations

import functools
import math
import re

from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.numbers import bits_of_number, rounded_number
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, TensorType, TupleType, Type, void

_BARE_SYMBOL = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)


def number(value: object, scalar: ScalarType) -> str:
    """A constant of a scalar type, without the type. Integers are signed, as MLIR prints them.

    A float is rounded to the type and written exactly in decimal; NaN and the infinities are written by their bits.
    """
    if scalar.is_float:
        assert isinstance(value, float)
        return _float(value, scalar)
    if scalar.bits == 1:
        return "true" if value else "false"
    assert isinstance(value, int)
    return str(value - (1 << scalar.bits) if value >> (scalar.bits - 1) == 1 else value)


def _float(value: float, scalar: ScalarType) -> str:
    exact = rounded_number(value, scalar)
    if not math.isfinite(exact):
        return f"0x{bits_of_number(value, scalar):0{scalar.bits // 4}X}"
    mantissa, mark, exponent = repr(exact).partition("e")
    if "." not in mantissa:  # MLIR reads 1e-05 as the integer 1 and an identifier.
        mantissa += ".0"
    return mantissa + mark + exponent


def quoted(text: str) -> str:
    """A string literal. Characters other than printable ASCII are written as the bytes of their UTF-8."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode())
    return f'"{"".join(plain)}"'


def symbol(name: str) -> str:
    """A reference to a symbol, quoted if it is no identifier."""
    return f"@{name}" if _BARE_SYMBOL.fullmatch(name) else f"@{quoted(name)}"


def location(place: Location | None) -> str:
    """The source location that follows an op; empty if it is not known."""
    return "" if place is None else f" loc({quoted(place.file)}:{place.line}:{place.column + 1})"


@functools.cache
def mlir_type(type_: Type) -> str:
    """The spelling of a type of one value. Raises `TargetError` for a type that Triton's MLIR lacks."""
    if isinstance(type_, ScalarType):
        return type_.mlir
    if isinstance(type_, PtrType):
        return f"!tt.ptr<{mlir_type(type_.pointee)}>"
    if isinstance(type_, TensorType):
        return f"tensor<{_dimensions(type_.shape)}{mlir_type(type_.element)}>"
    if isinstance(type_, DescriptorType):
        return f"!tt.tensordesc<{_dimensions(type_.block)}{mlir_type(type_.element)}>"
    raise TargetError(f"a value of type {type_} has no form in Triton's MLIR")


@functools.cache
def mlir_types(type_: Type) -> tuple[str, ...]:
    """The spellings of the MLIR values for a value of this type: none for `void`, several for a Tuple."""
    return tuple(mlir_type(leaf) for leaf in leaves(type_))


@functools.cache
def leaves(type_: Type) -> tuple[Type, ...]:
    """The types of the MLIR values for a value of this type."""
    if type_ == void:
        return ()
    if isinstance(type_, TupleType):
        return tuple(leaf for component in type_.components for leaf in leaves(component))
    return (type_,)


def _dimensions(shape: tuple[int, ...]) -> str:
    return "".join(f"{size}x" for size in shape)


def result_list(types: tuple[str, ...]) -> str:
    """The result types after an arrow: `t` for one, `(t, u)` for several, `()` for none."""
    return types[0] if len(types) == 1 else f"({', '.join(types)})"
