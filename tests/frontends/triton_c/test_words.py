"""Messages of the compiler in the words of C."""

from pathlib import Path

import numpy as np
import pytest

import ziggurat as zg
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
