"""Arguments as bytes: their offsets, and the bytes that are written."""

import ctypes
import math
import struct

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda.binary import KINDS
from ziggurat.backend.cuda.packing import FIELDS, Packing, fitted, new_slot
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import SCALARS


def test_each_kind_has_a_field_of_whole_words():
    assert set(FIELDS) == set(KINDS)
    assert {struct.calcsize(field) for kind, field in FIELDS.items() if kind != "tensormap"} == {8}
    assert struct.calcsize(FIELDS["tensormap"]) == 128


def test_values_lie_one_after_another():
    packing = Packing.of(["ptr", "i8", "f32", "i1"])
    assert packing.offsets == (0, 8, 16, 24) and packing.size == 32 == struct.calcsize(packing.format)
    assert Packing.of([]) == Packing((), "", (), 0)


@pytest.mark.parametrize("before", [0, 1, 7, 8, 9])
def test_a_tensor_map_lies_at_a_multiple_of_64(before):
    packing = Packing.of(["i64"] * before + ["tensormap", "ptr"])
    at = packing.offsets[before]
    assert at % 64 == 0 and 0 <= at - 8 * before < 64
    assert packing.offsets[-1] == at + 128 and packing.size == at + 136 == struct.calcsize(packing.format)
    buffer = bytearray(packing.size)
    packing.write(buffer, [*range(before), bytes(range(128)), 0x1234])
    assert buffer[at : at + 128] == bytes(range(128)) and buffer[-8:] == struct.pack("=Q", 0x1234)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("i1", True, b"\1"),
        ("i8", -3, b"\xfd"),
        ("u8", 255, b"\xff"),
        ("i16", np.int16(-2), b"\xfe\xff"),
        ("i32", -(2**31), struct.pack("=i", -(2**31))),
        ("u32", 2**32 - 1, b"\xff" * 4),
        ("i64", -1, b"\xff" * 8),
        ("u64", 2**64 - 1, b"\xff" * 8),
        ("f16", 0.5, struct.pack("=e", 0.5)),
        ("f32", 1, struct.pack("=f", 1.0)),
        ("f64", 0.1, struct.pack("=d", 0.1)),
        ("bf16", 1.5, b"\xc0\x3f"),
        ("bf16", ml_dtypes.bfloat16(-2), b"\0\xc0"),
        ("f8e4m3", 1.0, b"\x38"),
        ("f8e5m2", 1.0, b"\x3c"),
        ("ptr", 2**64 - 16, struct.pack("=Q", 2**64 - 16)),
    ],
)
def test_the_machine_reads_the_value_in_its_own_width(kind, value, expected):
    packing = Packing.of(["i64", kind])
    buffer = bytearray(packing.size)
    packing.write(buffer, [0, value])
    assert buffer[8 : 8 + len(expected)] == expected


@pytest.mark.parametrize("kind", [name for name, scalar in SCALARS.items() if scalar.is_int])
def test_integers_that_do_not_fit(kind):
    low, high = SCALARS[kind].limits
    assert (fitted(kind, low), fitted(kind, high)) == (low, high)
    for value in (low - 1, high + 1):
        with pytest.raises(LaunchError, match=f"the argument {value} does not fit a parameter of type {kind}"):
            fitted(kind, value)


@pytest.mark.parametrize(("kind", "letter"), [("f16", "e"), ("f32", "f"), ("f64", "d")])
def test_floats_out_of_range_are_written_as_infinities(kind, letter):
    def written(value):
        buffer = bytearray(8)
        Packing.of([kind]).write(buffer, [value])
        return struct.unpack_from(letter, buffer)[0]

    infinity = 1e300 if kind == "f64" else math.inf
    assert written(1e300) == infinity and written(-1e300) == -infinity
    assert written(-math.inf) == -math.inf and math.isnan(written(math.nan))
    assert math.copysign(1, written(-0.0)) == -1


def test_a_value_of_a_kind_without_a_number_is_as_it_is():
    block = bytes(128)
    assert fitted("tensormap", block) is block and fitted("ptr", 5) == 5


@pytest.mark.parametrize("size", [0, 8, 20, 256])
def test_a_slot_points_to_its_values(size):
    order = [0, 16, 8][: 1 + size // 10]
    slots = [new_slot(size, order) for _ in range(3)]
    for number, (buffer, _) in enumerate(slots):
        assert len(buffer) == size + -size % 8
        struct.pack_into(f"{len(buffer)}s", buffer, 0, bytes([number]) * len(buffer))
    for number, (buffer, at) in enumerate(slots):
        assert set(bytes(buffer)) <= {number}
        pointers = (ctypes.c_uint64 * len(order)).from_address(at)
        base = pointers[0]
        assert base % 64 == 0 and [pointer - base for pointer in pointers] == order
        assert ctypes.string_at(base, len(buffer)) == bytes(buffer)
