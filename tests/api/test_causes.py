"""Errors of the types of a kernel at a launch: they say which arguments they come from."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl


@zg.kernel
def copies(x, y, n, BLOCK: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    mask = zg.less(at, n)
    pointers = zg.add(x, at)
    zg.store(zg.add(y, at), zg.load(pointers, mask), mask)


@triton.jit
def copies_in_triton(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x += at
    tl.store(y + at, tl.load(x, mask), mask)


@zg.function
def doubled(pointer):
    zg.store(pointer, zg.mul(zg.load(pointer), 2))


@zg.kernel
def through_a_function(x, n):
    doubled(zg.add(x, n))


def array() -> np.ndarray[Any, Any]:
    return np.zeros(8, np.float32)


CASES: list[tuple[Any, Any, Any, str]] = [
    (10, None, 8, "'x' is 10"),
    (2.5, None, 8, "'x' is 2.5"),
    (np.float16(2.5), None, 8, "'x' is np.float16(2.5)"),
    ((array(), 1), None, 8, "'x' is a tuple"),
    ("array", 10, 8, "'y' is 10"),
    ("array", "array", None, "'n' is None"),
    ("array", "array", "array", "'n' is an array of f32"),
]


@pytest.mark.parametrize("kernel", [copies, copies_in_triton], ids=["explicit", "triton"])
@pytest.mark.parametrize("options", [{}, {"interpret": True}, {"strict": True}], ids=str)
@pytest.mark.parametrize(("x", "y", "n", "note"), CASES, ids=[case[-1] for case in CASES])
def test_the_arguments_that_an_op_computes_with(kernel: zg.Kernel, options: Any, x: Any, y: Any, n: Any, note: str):
    arguments = [array() if value == "array" else value for value in (x, "array" if y is None else y, n)]
    with pytest.raises((zg.KernelTypeError, zg.KernelErrors)) as excinfo:
        kernel[1,](*arguments, 8, **options)
    place = kernel.place
    for error in excinfo.value.parts:
        assert error.related == ((f"in this launch {note}", place),)
        assert f"  in this launch {note}\n{place.excerpt()}" in str(error)


def test_a_warm_launch_and_one_by_name():
    for _ in range(2):
        copies[1,](array(), array(), 8, 8)
    for launch in (lambda: copies[1,](10, array(), 8, 8), lambda: copies[1,](y=array(), BLOCK=8, n=8, x=10)):
        with pytest.raises(zg.KernelTypeError) as error:
            launch()
        assert [text for text, _ in error.value.related] == ["in this launch 'x' is 10"]


def test_the_whole_text():
    with pytest.raises(zg.KernelTypeError) as error:
        through_a_function[1,](10, 2)
    helper, kernel = (inspect.getsourcelines(kernel.fn)[1] for kernel in (doubled, through_a_function))
    assert (
        str(error.value)
        == f"""\
zg.load: 'ptr' must be a pointer or a tensor of pointers; got i32
  at {__file__}:{helper + 2}:30
        zg.store(pointer, zg.mul(zg.load(pointer), 2))
                                 ^^^^^^^^^^^^^^^^
  called from
  at {__file__}:{kernel + 2}:5
        doubled(zg.add(x, n))
        ^^^^^^^^^^^^^^^^^^^^^
  in this launch 'x' is 10, 'n' is 2
  at {__file__}:{kernel + 1}:1
    def through_a_function(x, n):
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  hint: make the pointers to the elements: zg.add(pointer, offsets)"""
    )


def test_errors_that_no_argument_has_a_part_in():
    @zg.kernel
    def wrong(x):
        zg.store(x, zg.load(zg.arange(0, 8)))

    with pytest.raises(zg.KernelTypeError) as error:
        wrong[1,](array())
    assert error.value.related == ()


@pytest.mark.parametrize(("x", "note"), [(10, "of type i32"), (None, "None"), (2.5, "of type f32")])
def test_a_launch_on_a_gpu(gpu: Any, x: Any, note: str):
    """It is compiled for the types of numbers."""
    y = zg.to_device(array())
    with pytest.raises(zg.KernelTypeError) as error:
        copies[1,](x, y, 8, 8)
    assert [text for text, _ in error.value.related] == [f"in this launch 'x' is {note}"]


def test_models_for_types_are_of_no_launch():
    with pytest.raises(zg.KernelTypeError) as error:
        copies.triton(zg.i32, zg.ptr(zg.f32), zg.i32, 8)
    assert error.value.related == ()


@triton.jit
def shifted(x, y):
    at = tl.arange(0, 8)
    tl.store(y + at, tl.load(x + at))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        *(("s", "'s'"), (None, "None"), ([1, 2], "a list"), ((1, 2), "a tuple"), (b"", "a bytes")),
        *((5j, "5j"), ({}, "a dict"), (object(), "an object")),
    ],
)
def test_what_is_no_number_is_named_as_the_launch_gave_it(x: Any, words: str):
    for mode in ({}, {"interpret": True}):
        with pytest.raises(zg.KernelTypeError) as error:
            shifted[(1,)](x, np.zeros(8, np.float32), **mode)
        assert f"in this launch 'x' is {words}\n" in str(error.value)


def test_a_tuned_launch():
    tuned = zg.autotune([zg.Config({"BLOCK": 8}), zg.Config({"BLOCK": 16})], key=["n"])(copies)
    with pytest.raises(zg.KernelTypeError) as error:
        tuned[1,](None, array(), 8)
    assert [text for text, _ in error.value.related] == ["in this launch 'x' is None"]
