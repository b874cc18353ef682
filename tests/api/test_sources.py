"""Kernels whose source is in no file: of `python -c`, of standard input, and of texts for `exec`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ziggurat as zg

EXPLICIT = """\
import numpy as np
import ziggurat as zg
@zg.kernel
def store_two(x):
    zg.store(x, 2.0)
x = np.zeros(1, np.float32)
store_two[1](x)
print(x[0])
"""
TRITON = EXPLICIT.replace("import ziggurat as", "import triton, triton.language as").replace("zg.kernel", "triton.jit")
PROGRAMS = {"explicit": EXPLICIT, "triton": f"import ziggurat.triton\nziggurat.triton.install()\n{TRITON}"}


def python(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("arguments", [("-c",), ("-W", "error", "-c"), ("-Ic",)], ids=" ".join)
def test_a_kernel_of_a_command(program: str, arguments: tuple[str, ...]):
    run = python(*arguments, program, "argument", "-c")
    assert run.stdout == "2.0\n", run.stderr


def test_a_command_in_the_word_of_its_option():
    assert python(f"-c{EXPLICIT}").stdout == "2.0\n"


def test_an_error_in_a_command_shows_its_line():
    run = python("-c", EXPLICIT.replace("2.0)", "number)"))
    assert "  at <string>:5:17\n        zg.store(x, number)\n                    ^^^^^^\n" in run.stderr


def test_the_source_of_a_triton_kernel_of_a_command():
    run = python("-c", PROGRAMS["triton"] + "print(store_two.src)")
    assert run.stdout == "2.0\ndef store_two(x):\n    zg.store(x, 2.0)\n\n", run.stderr


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_standard_input_is_not_kept(program: str):
    run = python("-", text=program)
    assert "there is no text for '<stdin>'\n  hint: write the program to a file: Python" in run.stderr


@pytest.mark.parametrize("number", ["3.0", "2.0"], ids=["another", "equal"])
def test_a_text_inside_a_command_is_not_taken_for_it(number: str):
    """The two kernels stand in the same line of `<string>`."""
    inner = "\n\n@zg.kernel\ndef store_two(x):\n    zg.store(x + 0, " + number + ")\n"
    run = python("-c", EXPLICIT + f"exec({inner!r})\nstore_two[1](x)")
    assert run.stdout == "2.0\n" and "there is no text for '<string>'" in run.stderr
    assert "zg.kernel(source=text)" in run.stderr


@pytest.mark.parametrize("decorator", ["", "@zg.kernel\n", "@zg.kernel(do_not_specialize=['n'])\n"])
def test_a_kernel_of_a_text(decorator: str):
    kernel = zg.kernel(source=f"{decorator}def add(x, n):\n    zg.store(x, zg.load(x) + n)\n")
    x = np.ones(1, np.int32)
    kernel[1](x, 4)
    assert x[0] == 5 and kernel.name == "add"


def test_a_text_with_helpers_and_names_from_outside():
    text = "@zg.function\ndef twice(x):\n    return x * factor\n\ndef double(x):\n    zg.store(x, twice(zg.load(x)))\n"
    with pytest.raises(zg.LaunchError, match="the source defines several kernels"):
        zg.kernel(source=text + text.replace("double", "again"))
    x = np.ones(1)
    zg.kernel(source=text, namespace={"factor": 7.0})[1](x)
    assert x[0] == 7
    zg.kernel(source=text + text.replace("double", "again"), name="again", namespace={"factor": 2.0})[1](x)
    assert x[0] == 14


def test_a_text_of_triton(tmp_path: Path):
    text = (
        "import ziggurat.triton as triton, ziggurat.triton.language as tl\n"
        "@triton.jit\ndef scale(x, N: tl.constexpr):\n    at = x + tl.arange(0, N)\n    tl.store(at, tl.load(at) * 2)\n"
    )
    kernel = zg.kernel(source=text)
    x = np.ones(4, np.float32)
    kernel[(1,)](x, N=4)
    assert (x == 2).all() and type(kernel).__name__ == "JITFunction"


def test_an_error_in_a_text_shows_its_line():
    kernel = zg.kernel(source="\ndef wrong(x):\n    zg.store(x, nothing)\n")
    with pytest.raises(zg.KernelNameError) as error:
        kernel.triton(zg.ptr(zg.f32))
    assert error.value.location.source_line() == "    zg.store(x, nothing)"
    assert error.value.location.line == 3


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("x = 1", None, "the source defines no kernels"),
        ("def f(x): pass", "g", "the source defines no kernel 'g'"),
        (3, None, "the source must be a text; got 3"),
    ],
)
def test_a_text_without_the_kernel(text: str, name: str | None, message: str):
    with pytest.raises(zg.LaunchError, match=message):
        zg.kernel(source=text, name=name)


def test_a_text_that_is_not_python():
    with pytest.raises(zg.KernelSyntaxError, match="the source is not Python") as error:
        zg.kernel(source="def f(x)\n    pass")
    assert (error.value.location.line, error.value.location.column) == (1, 8)


def test_the_place_of_what_is_not_python():
    for text, line, column in (("x = 1\n\ny = )\n", 3, 4), ("x = 1\nx = \0", 1, 0), ("x =", 1, 3)):
        with pytest.raises(zg.KernelSyntaxError) as error:
            zg.kernel(source=text)
        assert (error.value.location.line, error.value.location.column) == (line, column)
