"""Messages of the compiler in the words of C."""

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.types import PtrType, TensorType, f16, f32, u8
from ziggurat.frontends.triton_c.c_words import WORDS


def test_a_launch_reports_errors_in_the_words_of_c():
    kernel = zg.triton_c("__global__ void f(float *x) { *(x + 9) = 1; }")
    with pytest.raises(zg.MemoryAccessError, match=r"writes x\[9\]") as error:
        kernel[1](np.zeros(4, np.float32))
    assert "*?(offsets < n) p" in str(error.value) and "zg." not in str(error.value)


@zg.kernel
def explicit(x, out):
    at = zg.arange(0, 16)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at)))


@triton.jit
def in_triton(x, out):
    at = tl.arange(0, 16)
    tl.store(out + at, tl.load(x + at))


@pytest.mark.parametrize("options", [{"strict": True}, {"interpret": True, "strict": True}], ids=["native", "here"])
@pytest.mark.parametrize(
    ("kernel", "mask"),
    [
        (explicit, "mask=zg.less(offsets, n),"),
        (in_triton, "mask=offsets < n,"),
        (
            zg.triton_c("__global__ void f(float *x, float *o) { int i[16] = 0...16; *(o+i) = *(x+i); }"),
            "*?(offsets < n) p,",
        ),
    ],
    ids=["explicit", "triton", "c"],
)
def test_the_hint_about_a_mask_is_in_the_words_of_each_language(kernel, mask, options):
    with pytest.raises(zg.MemoryAccessError, match=r"reads x\[10\], but x has 10 elements") as error:
        kernel[1](np.ones(10, np.float32), np.ones(16, np.float32), **options)
    assert mask in error.value.hint and "CompareKind" not in error.value.hint


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (TensorType((16, 8), f32), "float[16, 8]"),
        (TensorType((4,), PtrType(f16)), "half*[4]"),
        (PtrType(u8), "unsigned char*"),
    ],
)
def test_types(type_, expected):
    assert WORDS.type(type_) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("less", "the operator '<'"), ("floordiv", "the operator '/'"), ("program_id", "get_program_id"), ("exp", "exp")],
)
def test_calls(name, expected):
    assert WORDS.call(name) == expected
