"""Kernels built by programs: `zg.trace` and `zg.build`. (What is recorded is tested with the tracing frontend.)"""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.building import KernelBuilder

F32 = zg.ptr(zg.f32)


def fill(x_ptr, value, size):
    zg.store(zg.add(x_ptr, zg.arange(0, size)), value)


def test_types_become_parameters_and_values_are_what_they_are():
    model = zg.trace(fill, zg.divisible(F32, 16), zg.f32, 8)
    (func,) = model.functions().values()
    assert [parameter.type for parameter in func.bodies[0].parameters] == [F32, zg.f32]
    assert func.attributes["divisibility"] == (16, 1)
    x = np.zeros(8, np.float32)
    zg.run(model, 1, x, 2.5)
    assert x.tolist() == [2.5] * 8


def test_any_python_value_may_be_handed_to_a_traced_function():
    sizes = {"n": 4}

    def kernel(x_ptr, options, write):
        write(x_ptr, options["n"])

    model = zg.trace(kernel, F32, sizes, lambda p, n: zg.store(zg.add(p, zg.arange(0, n)), 1.0))
    x = np.zeros(6, np.float32)
    zg.run(model, 1, x)
    assert x.tolist() == [1, 1, 1, 1, 0, 0]


def test_a_builder_has_its_models_when_it_is_done():
    with zg.build("twice", F32, zg.i32, 4) as kernel:
        assert isinstance(kernel, KernelBuilder) and kernel.name == "twice"
        pointer, n, size = kernel.arguments
        assert size == 4
        at = zg.add(pointer, zg.arange(0, size))
        zg.store(at, zg.mul(zg.load(at), n))
        for stage in ("python", "triton"):
            with pytest.raises(zg.BuildError, match="'twice' is not finished") as error:
                getattr(kernel, stage)
            assert "after the 'with' block" in error.value.hint
    assert kernel.python.attributes["sym_name"] == "twice"
    zg.verify(kernel.python)
    x = np.arange(4, dtype=np.float32)
    zg.run(kernel.triton, 1, x, 3)
    assert x.tolist() == [0, 3, 6, 9]


def test_an_error_in_the_block_leaves_no_kernel():
    with pytest.raises(RuntimeError, match="stop"), zg.build("k", F32) as kernel:
        zg.store(kernel.arguments[0], 1.0)
        raise RuntimeError("stop")
    with pytest.raises(zg.BuildError):
        _ = kernel.python
    with pytest.raises(zg.KernelTypeError, match="outside of a kernel"):
        zg.arange(0, 4)


def test_the_errors_of_a_built_kernel_come_with_its_model():
    with zg.build("k", F32) as kernel:
        zg.store(kernel.arguments[0], zg.arange(0, 4))
    with pytest.raises(zg.KernelTypeError, match=r"zg.store: the value must be a scalar") as error:
        _ = kernel.triton
    assert error.value.location.file == __file__


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: zg.trace(fill, F32), "'fill' cannot be traced with 1 arguments: missing"),
        (lambda: zg.trace(3), "zg.trace must get a function; got 3"),
    ],
)
def test_what_cannot_be_traced(call, words):
    with pytest.raises(zg.LaunchError, match=words):
        call()
