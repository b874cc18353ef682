"""Options of compilation: what each may be, and one spelling for what is the same."""

import numpy as np
import pytest

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import DEFAULTS, checked_option, compile_options
from ziggurat.codemodel.gpu.targets import TARGETS


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_warps", 8, 8),
        ("num_warps", np.int64(8), 8),
        ("num_stages", np.uint8(2), 2),
        ("exact_math", 1, True),
        ("exact_math", np.bool_(False), False),
        ("check", 0, False),
        ("target", "sm_80", "sm_80"),
        ("stream", "anything", "anything"),
        ("unknown", [], []),
    ],
)
def test_one_spelling(name, value, expected):
    found = checked_option(name, value)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(
            ("num_warps", value, "num_warps is an integer, a power of two from 1 to 32")
            for value in (0, 3, 64, -4, "4", 4.0, True, [4])
        ),
        *(("num_stages", value, "num_stages is an integer from 1 to") for value in (0, -1, 2.0, False, None, 10**9)),
        *(("exact_math", value, "exact_math is True or False") for value in ("no", 2, 1.0, None)),
        *((name, "x", f"{name} is True or False, got 'x'") for name in ("check", "strict")),
        *(("target", value, "the target is one of sm_80") for value in ("sm_99", 90, None, ["sm_80"])),
    ],
)
def test_what_an_option_cannot_be(name, value, words):
    with pytest.raises(LaunchError, match=words):
        checked_option(name, value)


def test_the_nearest_target_is_named():
    with pytest.raises(LaunchError) as caught:
        checked_option("target", "SM_90A")
    assert caught.value.hint == "did you mean 'sm_90a'?"
    assert DEFAULTS["target"] in TARGETS


def test_what_is_not_given_has_its_default():
    assert compile_options({"num_warps": None, "num_stages": 2}) == {"num_stages": 2}
    assert compile_options({"num_stages": np.int32(2)}, complete=True) == {**DEFAULTS, "num_stages": 2}


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("sm_75", "the oldest that there is code for is 'sm_80'"),
        (70, "the oldest that there is code for is 'sm_80'"),
        (90, "did you mean 'sm_90a'?"),
        ("86", "did you mean 'sm_86'?"),
        ("sm90a", "did you mean 'sm_90a'?"),
        (["sm_80"], "did you mean 'sm_80'?"),
        ("gfx942", None),
    ],
)
def test_what_a_target_may_have_meant(given, hint):
    with pytest.raises(LaunchError, match="the target is one of") as caught:
        checked_option("target", given)
    assert caught.value.hint == hint
