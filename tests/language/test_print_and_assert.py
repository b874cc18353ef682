"""Python's `print` and `assert` in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

MODES = [{}, {"interpret": True}]
LINES = """
def f(out, s, v, NAME: {0}.constexpr):
    print("s", s, "v", v)
    print(s, "then", "text:", v, NAME)
    print("x", {0}.arange(0, 2), "y", s)
    {0}.store(out, 1)
"""
PRINTED = """\
pid (0, 0, 0) idx () s: 3
pid (0, 0, 0) idx () v: {0}
pid (0, 0, 0) idx (): 3
pid (0, 0, 0) idx () then text: {0}
pid (0, 0, 0) end
pid (0, 0, 0) idx (0) x: 0
pid (0, 0, 0) idx (1) x: 1
pid (0, 0, 0) idx () y: 3
"""


@pytest.mark.parametrize(("decorate", "prefix", "form"), [(zg.kernel, "zg", "2.5"), (triton.jit, "tl", "2.500000")])
@pytest.mark.parametrize("mode", MODES)
def test_strings_stand_anywhere_in_a_print(kernel, capsys, decorate: Any, prefix: str, form: str, mode: Any):
    made = kernel(LINES.format(prefix), decorate, tl=tl)
    made[(1,)](np.zeros(1, np.int32), 3, 2.5, "end", **mode)
    assert capsys.readouterr().out == PRINTED.format(form)


def test_a_print_survives_mlir(kernel, capsys):
    made = kernel(LINES.format("tl"), triton.jit, tl=tl)
    model = zg.from_mlir(zg.to_mlir(made.triton(zg.ptr(zg.i32), zg.i32, zg.f32, "end")))
    zg.run(model, 1, np.zeros(1, np.int32), 3, 2.5)
    assert capsys.readouterr().out == PRINTED.format("2.500000")


@pytest.mark.parametrize("prefix", ["zg", "tl"])
def test_a_print_takes_no_tuple(kernel, prefix: str):
    made = kernel("def f(out, n):\n    print('a', (n, n))", zg.kernel if prefix == "zg" else triton.jit, tl=tl)
    with pytest.raises(zg.KernelTypeError, match="must take strings, numbers and pointers; got the tuple"):
        made[(1,)](np.zeros(1), 1)


@triton.jit
def of_triton(out, n, x):
    assert n * 1.0
    assert n, "message"
    assert out
    tl.device_assert(x, "a float")
    assert tl.arange(0, 4) * n + 1.0
    tl.store(out, 1)


@zg.kernel
def explicit(out, n, x):
    assert n * 1.0
    assert n, "message"
    assert x
    assert 1.5
    zg.store(out, 1)


@pytest.mark.parametrize(("launcher", "options"), [(of_triton, {"debug": True}), (explicit, {})])
@pytest.mark.parametrize("mode", MODES)
def test_a_condition_may_be_a_float(launcher: Any, options: Any, mode: Any):
    out = np.zeros(1, np.int32)
    launcher[(1,)](out, 2, float("nan"), **options, **mode)
    assert out[0] == 1
    for n, x in ((0, 1.0), (1, 0.0), (1, -0.0)):
        with pytest.raises(zg.KernelRuntimeError, match="device-side assertion failed"):
            launcher[(1,)](out, n, x, **options, **mode)


def test_conditions_and_messages_that_are_none(kernel):
    for line, words in (
        ("assert out", "the condition of 'assert' must be a number"),
        ("assert n, 5", "must be a constant string"),
    ):
        with pytest.raises(zg.KernelTypeError, match=words):
            kernel(f"def f(out, n):\n    {line}")[(1,)](np.zeros(1), 1)


def test_a_kernel_does_not_take_any_number_of_arguments():
    @triton.jit
    def many(out, *rest):
        tl.store(out, 1)

    for arguments in ((), (1,), (1, 2)):
        with pytest.raises(zg.KernelSyntaxError, match=r"cannot take any number of arguments, as many\(out"):
            many[(1,)](np.zeros(1), *arguments)
