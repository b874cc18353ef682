"""LLVM's types and constants: floats by their bits, rounded as the type is."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.backend.llvm.routines import literal, llvm_type, suffix
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    scalar_element,
    u8,
    u64,
    void,
)


def test_types() -> None:
    names = {name: llvm_type(scalar) for name, scalar in SCALARS.items()}
    assert names == {
        "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u8": "i8", "u16": "i16", "u32": "i32",
        "u64": "i64", "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "f8e4m3": "i8", "f8e5m2": "i8",
    }  # fmt: skip
    assert llvm_type(TensorType((4, 8), f16)) == "half"
    assert llvm_type(PtrType(f32)) == llvm_type(TensorType((4,), PtrType(i8))) == "ptr addrspace(1)"
    assert llvm_type(DescriptorType((16, 16), f16)) == "ptr"


def test_a_buffer_has_no_llvm_type() -> None:
    with pytest.raises(AssertionError, match="no LLVM type"):
        llvm_type(void)


@pytest.mark.parametrize(("value", "scalar", "text"), [
    (True, i1, "true"), (0, i1, "false"), (-3, i32, "-3"), (255, u8, "255"), (2**64 - 1, u64, str(2**64 - 1)),
    (True, i32, "1"), (1.0, f64, "0x3FF0000000000000"), (1.0, f32, "0x3FF0000000000000"), (1.0, f16, "0xH3C00"),
    (1.0, bf16, "0xR3F80"), (-2.0, f8e4m3, "192"), (1.0, f8e5m2, "60"), (0.1, f32, "0x3FB99999A0000000"),
    (-0.0, f32, "0x8000000000000000"), (-0.0, f16, "0xH8000"), (3, f16, "0xH4200"),
])  # fmt: skip
def test_literals(value: float, scalar: ScalarType, text: str) -> None:
    assert literal(value, scalar) == text


@pytest.mark.parametrize(("scalar", "largest", "infinite"), [
    (f32, 1e39, "0x7FF0000000000000"), (f16, 65520.0, "0xH7C00"), (bf16, 3.4e38, "0xR7F80"), (f8e5m2, 1e6, "123"),
    (f8e4m3, 1e6, "126"),
])  # fmt: skip
def test_too_large_numbers_are_infinite_or_saturate(scalar: ScalarType, largest: float, infinite: str) -> None:
    assert literal(largest, scalar) == literal(math.inf, scalar) == infinite
    assert literal(-math.inf, scalar) == literal(-largest, scalar) != infinite


@pytest.mark.parametrize("scalar", [f64, f32, f16, bf16, f8e4m3, f8e5m2], ids=str)
def test_nan_stays_nan(scalar: ScalarType) -> None:
    text = literal(math.nan, scalar)
    if scalar.is_fp8:
        dtype = ml_dtypes.float8_e4m3fn if scalar == f8e4m3 else ml_dtypes.float8_e5m2
        assert math.isnan(np.array(int(text), np.uint8).view(dtype))
        return
    bits = int(text.removeprefix("0x").lstrip("HR"), 16)
    form, size = {"0xH": ("<e", 2), "0xR": ("<f", 4)}.get(text[:3], ("<d", 8))
    assert math.isnan(struct.unpack(form, (bits << (16 if form == "<f" else 0)).to_bytes(size, "little"))[0])


@given(st.floats(width=32, allow_nan=False))
def test_a_float_is_written_by_the_bits_of_the_double_that_equals_it(number: float) -> None:
    assert struct.unpack("<d", int(literal(number, f32), 16).to_bytes(8, "little"))[0] == number


@given(st.floats(allow_nan=False))
def test_a_double_is_rounded_to_nearest(number: float) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float32(number))
    assert struct.unpack("<d", int(literal(number, f32), 16).to_bytes(8, "little"))[0] == expected


def test_scalars_of_tensors() -> None:
    assert scalar_element(f32) == scalar_element(TensorType((2, 2), f32)) == f32
    with pytest.raises(AssertionError):
        scalar_element(PtrType(f32))


def test_intrinsics_name_types_by_their_bits() -> None:
    assert [suffix(kind) for kind in ("half", "bfloat", "float", "double", "i32")] == [
        "f16",
        "bf16",
        "f32",
        "f64",
        "i32",
    ]
