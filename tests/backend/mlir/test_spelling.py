"""Numbers, strings, symbols and locations in MLIR's spelling."""

from __future__ import annotations

import math

import pytest

from ziggurat.backend.mlir.emitter import location, number, quoted, symbol
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import bf16, f8e4m3, f8e5m2, f16, f32, f64, i1, i8, i32, u8, u64


@pytest.mark.parametrize(
    ("value", "scalar", "text"),
    [
        (1.0, f32, "1.0"), (0.1, f64, "0.1"), (1e-05, f64, "1.0e-05"), (-0.0, f32, "-0.0"), (1e300, f64, "1.0e+300"),
        (0.1, f16, "0.1"), (1.005, bf16, "1.005"), (math.inf, f32, "0x7F800000"),
        (-math.inf, f16, "0xFC00"), (math.nan, f32, "0x7FC00000"), (1e10, f16, "0x7C00"),
        (1e6, f8e4m3, "448.0"), (math.inf, f8e5m2, "57344.0"),
        (True, i1, "true"), (False, i1, "false"), (0, i1, "false"), (-5, i32, "-5"), (255, u8, "-1"), (127, u8, "127"),
        (2**64 - 1, u64, "-1"), (-128, i8, "-128"),
    ],
)  # fmt: skip
def test_numbers(value, scalar, text):
    assert number(value, scalar) == text


def test_strings_and_symbols():
    assert quoted('a"b\\c\n·') == '"a\\22b\\5Cc\\0A\\C2\\B7"'
    assert symbol("f_1.x$") == "@f_1.x$" and symbol("f<i32>") == '@"f<i32>"' and symbol("1f") == '@"1f"'


def test_places():
    assert location(None) == "" and location(Location("a b.py", 3, 4)) == ' loc("a b.py":3:4)'
