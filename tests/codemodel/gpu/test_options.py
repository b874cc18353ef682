"""Options of compilation: the allowed values, and one spelling for equal values."""

import numpy as np
import pytest

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import (
    DEFAULT_OPTIONS,
    LAUNCH_OPTIONS,
    SHARED_OPTIONS,
    CompileOptions,
    checked_option,
)
from ziggurat.codemodel.gpu.targets import TARGETS


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_warps", 8, 8),
        ("num_warps", np.int64(8), 8),
        ("num_stages", np.uint8(2), 2),
        ("num_stages", 0, 0),
        ("exact_math", 1, True),
        ("exact_math", np.bool_(False), False),
        ("check", 0, False),
        ("target", "sm_80", "sm_80"),
        ("stream", 7, 7),
        ("maxnreg", np.int32(128), 128),
        ("num_ctas", np.int64(4), 4),
        ("launch_pdl", 1, True),
        ("unknown", [], []),
    ],
)
def test_one_spelling(name, value, expected):
    actual = checked_option(name, value)
    assert actual == expected and type(actual) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(
            ("num_warps", value, "num_warps must be an integer, a power of two from 1 to 32")
            for value in (0, 3, 64, -4, "4", 4.0, True, [4])
        ),
        *(("num_stages", value, "num_stages must be an integer from 0 to") for value in (-1, 2.0, False, None, 10**9)),
        *(("maxnreg", value, "maxnreg must be an integer from 1 to 255") for value in (0, 256, 64.0, None, True)),
        *(
            ("num_ctas", value, "num_ctas must be an integer, a power of two from 1 to 16; got")
            for value in (0, 3, 32, "1", True)
        ),
        *(("exact_math", value, "exact_math must be True or False") for value in ("no", 2, 1.0, None)),
        *((name, "x", f"{name} must be True or False; got 'x'") for name in ("check", "strict")),
        *(("stream", value, "stream must be an address, or a stream") for value in ("x", -1, True, 1.5)),
        *(("target", value, "target must be one of sm_80") for value in ("sm_99", 90, None, ["sm_80"])),
    ],
)
def test_what_an_option_cannot_be(name, value, words):
    with pytest.raises(LaunchError, match=words):
        checked_option(name, value)


def test_the_nearest_target_is_named():
    with pytest.raises(LaunchError) as error:
        checked_option("target", "SM_90A")
    assert error.value.hint == "did you mean 'sm_90a'?"
    assert DEFAULT_OPTIONS.target in TARGETS


def test_what_is_not_given_has_its_default():
    assert CompileOptions.of({"num_warps": None, "num_stages": np.int32(2)}) == CompileOptions(num_stages=2)
    assert CompileOptions.of({"num_warps": 8}, CompileOptions(num_stages=2)) == CompileOptions("sm_90a", 8, 2)


def test_lists_of_options_follow_from_the_fields():
    assert SHARED_OPTIONS == ("num_warps", "num_stages", "exact_math", "num_ctas")
    assert "target" not in LAUNCH_OPTIONS and {"num_warps", "strict", "stream", "check"} < set(LAUNCH_OPTIONS)


def test_the_key_has_the_options_that_code_depends_on():
    assert CompileOptions(verify=True, isolate=True).key == CompileOptions().key
    assert CompileOptions(maxnreg=64).key != CompileOptions(launch_pdl=True).key != CompileOptions().key
    assert CompileOptions(num_warps=8).key != CompileOptions().key


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("sm_75", "the oldest supported target is 'sm_80'"),
        (70, "the oldest supported target is 'sm_80'"),
        (90, "did you mean 'sm_90a'?"),
        ("86", "did you mean 'sm_86'?"),
        ("sm90a", "did you mean 'sm_90a'?"),
        (["sm_80"], "did you mean 'sm_80'?"),
        ("gfx942", None),
    ],
)
def test_what_a_target_may_have_meant(argument, hint):
    with pytest.raises(LaunchError, match="target must be one of") as error:
        checked_option("target", argument)
    assert error.value.hint == hint
