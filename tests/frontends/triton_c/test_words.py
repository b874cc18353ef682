"""Messages of the compiler in the words of C."""

from pathlib import Path

import pytest

from ziggurat.frontends.triton_c.words import WHOLE, in_words_of_c

TRANSFORMS = Path(__file__).parents[3] / "transforms"


@pytest.mark.parametrize("text", WHOLE)
def test_each_text_that_is_replaced_as_a_whole_is_one_of_the_compiler(text):
    assert any(f'"{text}"' in file.read_text("utf-8") for file in TRANSFORMS.rglob("*.py"))


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
