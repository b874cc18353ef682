"""Triton's dtypes on the host, and in kernels at compile time."""

import copy
import pickle

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.types import PtrType, TensorType, TupleType, f16, i1, u8
from ziggurat.frontends.language.dtypes import type_of


def test_scalars() -> None:
    assert tl.float16.value == f16 and tl.float16 == f16 and tl.float16 == tl.dtype("fp16") != tl.bfloat16
    assert (str(tl.float16), repr(tl.uint8), tl.bfloat16.name) == ("fp16", "triton.language.uint8", "bf16")
    assert tl.float16.is_fp16() and tl.float16.is_floating() and not tl.float16.is_fp8() and tl.float8e5.is_fp8()
    assert (tl.int1.primitive_bitwidth, tl.int1.itemsize, tl.float64.itemsize) == (1, 0, 8)
    assert tl.int1.is_int_unsigned() and tl.int1.value == i1 and tl.uint8.value == u8 and tl.int64.is_int_signed()
    assert (tl.int8.get_int_min_value(), tl.uint32.get_int_max_value()) == (-128, 2**32 - 1)
    assert (tl.bfloat16.fp_mantissa_width, tl.float8e4b8.exponent_bias) == (7, 8)
    assert tl.int8.kind().value < tl.float16.kind().value
    assert len({tl.int32, tl.dtype("int32"), tl.uint32}) == 2
    with pytest.raises(AssertionError):
        tl.dtype("fp12")


INTEGERS = [(8, "i8"), (16, "i16"), (32, "i32"), (64, "i64")]
# The name in `tl`, the bits, the bits of the mantissa, and the bias.
FLOATS = [
    ("float8e5", "fp8e5", 8, 2, 15), ("float8e4nv", "fp8e4nv", 8, 3, 7), ("float8e4b15", "fp8e4b15", 8, 3, 15),
    ("float8e4b8", "fp8e4b8", 8, 3, 8), ("float8e5b16", "fp8e5b16", 8, 2, 16), ("float16", "fp16", 16, 10, 15),
    ("bfloat16", "bf16", 16, 7, 127), ("float32", "fp32", 32, 23, 127), ("float64", "fp64", 64, 52, 1023),
]  # fmt: skip


@pytest.mark.parametrize(("bits", "name"), INTEGERS)
def test_integers(bits: int, name: str) -> None:
    signed, unsigned = getattr(tl, f"int{bits}"), getattr(tl, f"uint{bits}")
    assert (str(signed.value), signed.name, signed.mangle(), signed.codegen_name()) == (
        name,
        f"int{bits}",
        name,
        f"int{bits}",
    )
    assert (str(unsigned.value), unsigned.name, unsigned.mangle()) == (f"u{bits}", f"uint{bits}", f"u{bits}")
    for dtype, low, high in ((signed, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), (unsigned, 0, 2**bits - 1)):
        assert (dtype.get_int_min_value(), dtype.get_int_max_value()) == (low, high)
        assert (dtype.primitive_bitwidth, dtype.int_bitwidth, dtype.itemsize) == (bits, bits, bits // 8)
        assert dtype.is_int() and not dtype.is_floating() and not dtype.is_fp8() and not dtype.is_bool()
        assert dtype.is_int_signed() == (dtype is signed) and dtype.is_int_unsigned() == (dtype is unsigned)
        assert dtype.int_signedness.name == ("SIGNED" if dtype is signed else "UNSIGNED")
        assert dtype.kind() is tl.dtype.KIND.INTEGRAL and not dtype.is_standard_floating() and not dtype.is_void()
        assert tl.str_to_ty(dtype.mangle()) is not None and tl.str_to_ty(dtype.mangle()) == dtype
        for attribute in ("fp_mantissa_width", "exponent_bias"):
            with pytest.raises(AttributeError, match="is not a floating-point type"):
                getattr(dtype, attribute)


@pytest.mark.parametrize(("long", "name", "bits", "mantissa", "bias"), FLOATS)
def test_floats(long: str, name: str, bits: int, mantissa: int, bias: int) -> None:
    dtype = getattr(tl, long)
    assert (dtype.name, dtype.mangle(), dtype.codegen_name(), repr(dtype)) == (
        name,
        name,
        long,
        f"triton.language.{long}",
    )
    assert (dtype.primitive_bitwidth, dtype.fp_mantissa_width, dtype.exponent_bias) == (bits, mantissa, bias)
    assert dtype.is_floating() and dtype.is_fp8() == (bits == 8) and dtype.is_standard_floating() == (bits > 8)
    assert not dtype.is_int() and not dtype.is_int_signed() and not dtype.is_int_unsigned() and not dtype.is_bool()
    assert dtype.kind() is tl.dtype.KIND.FLOATING and getattr(dtype, f"is_{name}")() and not dtype.is_int8()
    assert tl.str_to_ty(name) == dtype and tl.str_to_ty(f"*{name}") == tl.pointer_type(dtype)
    for ask in (
        dtype.get_int_max_value,
        dtype.get_int_min_value,
        lambda: dtype.int_bitwidth,
        lambda: dtype.int_signedness,
    ):
        with pytest.raises(AttributeError, match="is not an integer type"):
            ask()


def test_dtypes_that_are_no_numbers() -> None:
    pointer, block = tl.pointer_type(tl.uint8), tl.block_type(tl.uint16, [4, 8])
    assert (
        tl.int1.is_bool() and tl.int1.kind() is tl.dtype.KIND.BOOLEAN and tl.int1.is_int() and tl.int1.mangle() == "u1"
    )
    assert tl.int1.int_signedness.name == "UNSIGNED" and tl.void.is_void() and tl.void.primitive_bitwidth == 0
    assert (pointer.primitive_bitwidth, pointer.itemsize, pointer.mangle(), repr(pointer)) == (
        64,
        8,
        "Pu8",
        "pointer<uint8>",
    )
    assert (block.mangle(), block.numel, block.shape, block.get_block_shapes()) == ("u16S4_8S", 32, (4, 8), (4, 8))
    assert (block.nbytes, repr(block), block.primitive_bitwidth) == (64, "<(4, 8), uint16>", 16)
    assert (
        block.with_element_ty(tl.int8) == tl.block_type(tl.int8, (4, 8)) and tl.int8.with_element_ty(tl.int1) == tl.int1
    )
    assert not pointer.is_const() and tl.pointer_type(tl.int8, const=True).is_const() and not tl.int8.is_const()
    assert not tl.int8.is_ptr() and not tl.int8.is_block() and not pointer.is_block() and not block.is_ptr()
    assert not tl.int8.is_tuple() and tl.int8.scalar is tl.int8 and tl.int8.cache_key_part == "int8"
    assert str(tl.pointer_type(tl.int8, const=True)) == "const_pointer<int8>" and pointer.address_space == 1
    assert tl.pointer_type(u8) == pointer and tl.str_to_ty("B") == tl.int1 and tl.str_to_ty("i1") == tl.int1
    with pytest.raises(TypeError, match=r"element_ty has type `int`; expected `dtype`\."):
        tl.pointer_type(3)
    with pytest.raises(TypeError, match="0d block_type is forbidden"):
        tl.block_type(tl.int8, [])
    with pytest.raises(AttributeError, match="is not an integer type"):
        _ = pointer.int_bitwidth
    with pytest.raises(AssertionError):
        tl.str_to_ty("i7")
    with pytest.raises(TypeError, match="is not a type of Triton's language"):
        type_of(TupleType(()))


@pytest.mark.parametrize(
    ("operator", "value", "reflected"),
    [
        ("+", 9, 9), ("-", 5, -5), ("*", 14, 14), ("/", 3.5, 2 / 7), ("//", 3, 0), ("%", 1, 2), ("**", 49, 128),
        ("&", 2, 2), ("|", 7, 7), ("^", 5, 5), ("<<", 28, 256), (">>", 1, 0), ("==", False, False), ("!=", True, True),
        ("<", False, True), ("<=", False, True), (">", True, False), (">=", True, False),
    ],
)  # fmt: skip
def test_operators_of_constants(operator: str, value: object, reflected: object) -> None:
    seven = tl.constexpr(7)
    for text, expected in (("c", value), ("2", None)):
        names = {"c": seven, "d": tl.constexpr(2)}
        results = [eval(f"c {operator} {other}", names) for other in ("2", "d")] if text == "c" else [
            eval(f"{other} {operator} c", names) for other in ("2", "d")
        ]  # fmt: skip
        for result in results:
            assert isinstance(result, tl.constexpr) and result.value == (expected if text == "c" else reflected)


def test_constants_stand_for_their_values() -> None:
    assert (-tl.constexpr(3)).value == -3 and (+tl.constexpr(3)).value == 3 and (~tl.constexpr(3)).value == -4
    assert int(tl.constexpr(2.5)) == 2 and float(tl.constexpr(2)) == 2.0 and [5, 6][tl.constexpr(1)] == 6
    assert not tl.constexpr(0) and tl.constexpr(1) and hash(tl.constexpr("a")) == hash("a")
    assert repr(tl.constexpr(tl.constexpr(4))) == "constexpr[4]" and tl.constexpr(max)(1, 2) == 2


def test_pointers_and_blocks() -> None:
    pointer, block = tl.pointer_type(tl.float16), tl.block_type(tl.float16, [4, 8])
    assert pointer.value == PtrType(f16) and pointer.is_ptr() and pointer.element_ty == tl.float16
    assert block.value == TensorType((4, 8), f16) and block.is_block() and block.scalar == tl.float16
    assert (str(pointer), str(block), block.nbytes) == ("pointer<fp16>", "<(4, 8), fp16>", 64)
    assert tl.str_to_ty("*fp16") == pointer and tl.str_to_ty("*kfp16") == tl.pointer_type(tl.float16, const=True)
    assert tl.str_to_ty("*kfp16") != pointer and tl.str_to_ty("u8") == tl.uint8 and tl.str_to_ty("u1") == tl.int1


@pytest.mark.parametrize("dtype", [tl.int1, tl.pi32_t, tl.block_type(tl.float32, [16])])
def test_copies(dtype: tl.dtype) -> None:
    assert pickle.loads(pickle.dumps(dtype)) == dtype == copy.deepcopy(dtype)


@triton.jit
def asks(x_ptr, out_ptr, DTYPE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.static_assert(x.dtype == DTYPE and x.dtype.is_fp32() and x.type.element_ty == x.type.scalar)
    tl.static_assert(x_ptr.dtype.element_ty == tl.float32 and x_ptr.dtype.is_ptr() and x.dtype.primitive_bitwidth == 32)
    tl.static_assert(x.numel == 8 and x.shape[0] == 8 and x.sum().dtype == tl.float32)
    tl.static_assert(tl.pointer_type(x.dtype) == x_ptr.dtype and tl.dtype("fp32") == x.dtype)
    if x.dtype.is_floating():
        tl.store(out_ptr + tl.arange(0, 8), x.to(x_ptr.type.element_ty) + 1)


def test_in_a_kernel() -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    asks[(1,)](x, out, tl.float32)
    np.testing.assert_array_equal(out, x + 1)
