"""Messages of the compiler in the words of C."""

from pathlib import Path

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.reference.memory import MASK_HINT
from ziggurat.frontends.triton_c.words import WHOLE, in_words_of_c

TRANSFORMS = Path(__file__).parents[3] / "transforms"


@pytest.mark.parametrize("text", WHOLE)
def test_each_text_that_is_replaced_as_a_whole_is_one_of_the_compiler(text):
    assert text == MASK_HINT or any(f'"{text}"' in file.read_text("utf-8") for file in TRANSFORMS.rglob("*.py"))


def test_a_launch_reports_errors_in_the_words_of_c():
    kernel = zg.triton_c("__global__ void f(float *x) { *(x + 9) = 1; }")
    with pytest.raises(zg.MemoryAccessError, match=r"writes x\[9\]") as found:
        kernel[1](np.zeros(4, np.float32))
    assert "*?(offsets < n) p" in str(found.value) and "zg." not in str(found.value)


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
    ("text", "expected"),
    [
        ("got tensor<x16, x8, f32>", "got float[16, 8]"),
        ("got tensor<x4, ptr<f16>>", "got half*[4]"),
        ("got ptr<u8>", "got unsigned char*"),
        ("zg.floordiv(7, 0)", "7 / 0"),
        ("zg.less takes numbers", "the operator '<' takes numbers"),
        ("zg.program_id takes an axis", "get_program_id takes an axis"),
    ],
)
def test_types_and_operators(text, expected):
    assert in_words_of_c(text) == expected
