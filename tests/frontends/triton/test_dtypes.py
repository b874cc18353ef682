"""Triton's dtypes on the host, and in kernels at compile time."""

import copy
import pickle

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.types import PtrType, TensorType, f16, i1, u8


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
