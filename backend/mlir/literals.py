"""Numbers, strings, symbols and locations in MLIR's spelling."""

from __future__ import annotations

import math
import re

from ziggurat.codemodel.location import Location
from ziggurat.codemodel.numbers import bits_of_number, rounded_number
from ziggurat.codemodel.types import ScalarType

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
