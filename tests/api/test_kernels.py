"""Kernels: models for types, made once; launches on arrays in memory; and the errors of launches that do not fit."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu.options import LAUNCH_OPTIONS
from ziggurat.kernels.kernel import Kernel

F32 = zg.ptr(zg.f32)


@zg.function
def doubled(x):
    return zg.add(x, x)


def make(**options):
    @zg.kernel(**options)
    def double(x_ptr, n, B: zg.constexpr):
        """Each element twice."""
        at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
        mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
        zg.store(zg.add(x_ptr, at), doubled(zg.load(zg.add(x_ptr, at), mask)), mask)

    return double


@pytest.fixture
def double() -> Kernel:
    return make()


def test_a_kernel_is_the_function_it_was_made_of(double):
    assert isinstance(double, Kernel) and double.name == "double" and double.__doc__ == "Each element twice."
    assert repr(double) == "<kernel double(x_ptr, n, B: zg.constexpr)>"
    with pytest.raises(zg.LaunchError, match="'double' is a kernel, which must be launched over a grid") as error:
        double(1, 2, 3)
    assert error.value.hint == "double[grid](…)"


def test_models_are_kept_by_signature(double):
    first = double.triton(F32, zg.i32, 8)
    assert double.triton(F32, n=zg.i32, B=8) is first and double.triton(zg.ptr(zg.f32), zg.i32, 8) is first
    others = [double.triton(F32, zg.i32, 16), double.triton(zg.divisible(F32), zg.i32, 8), double.triton(F32, 8, 8)]
    assert all(other != first for other in others) and len(double._models) == 4


def test_the_module_and_the_attribution(double):
    assert [f.attributes["sym_name"] for f in double.module.functions().values()] == ["doubled", double.__qualname__]
    attribution = double.attribution(F32, zg.i32, 8)
    assert attribution.parameter_types[:2] == (F32, zg.i32) and "tensor<x8, f32>" in str(attribution)


def test_a_launch_runs_every_program(double):
    x = np.arange(10, dtype=np.float32)
    double[(2,)](x, 9, B=8)
    assert x.tolist() == [*range(0, 18, 2), 9]
    double[lambda meta: (zg.cdiv(10, meta["B"]),)](x, n=10, B=4)
    assert x.tolist() == [*range(0, 36, 4), 18]
    double[0](x, 10, B=8)
    double[(4, 0)](x, 10, B=8)
    assert x[9] == 18, "an empty grid runs nothing"


def test_divisibility_comes_from_the_arguments(double):
    buffer = np.zeros(64, np.float32)
    start = (-buffer.ctypes.data // 4) % 4  # The first element at an address divisible by 16.
    for offset, n in ((0, 16), (1, 16), (0, 17), (0, 48)):
        double[1](buffer[start + offset :], n, B=8)
    assert sorted(signature.divisibility for signature in double._models) == [(1, 16), (16, 1), (16, 16)]


def test_one_launch_is_like_another_of_its_types(double):
    x = np.zeros(8, np.float64)
    for n in (5, 3, 7):
        double[1](x, n, B=8)
    assert len(double._models) == 1
    double[1](x, 2**40, B=8)
    assert {signature.types[1] for signature in double._models} == {zg.i32, zg.i64}


def test_opting_out_of_specialisation():
    once = make(do_not_specialize=["n", "x_ptr"])
    x = np.zeros(64, np.int32)
    for n in (16, 3, 48):
        once[1](x[n % 2 :], n, B=8)
    assert [signature.divisibility for signature in once._models] == [(1, 1)]
    assert make(do_not_specialize="n").do_not_specialize == {"n"}
    with pytest.raises(zg.LaunchError, match="'double' has no parameter 'm'"):
        make(do_not_specialize=["m"])


def test_an_argument_that_is_none_is_compiled_in():
    @zg.kernel
    def writes(x_ptr, y_ptr):
        if y_ptr is not None:
            zg.store(y_ptr, 1.0)
        zg.store(x_ptr, 2.0)

    x, y = np.zeros(1, np.float32), np.zeros(1, np.float32)
    writes[1](x, None)
    assert (x[0], y[0]) == (2, 0)
    writes[1](x, y)
    assert (x[0], y[0]) == (2, 1)


def test_options_of_a_launch_are_no_arguments(double):
    x = np.ones(8, np.float32)
    double[1](x, 8, B=8, num_warps=8, num_stages=2, exact_math=True, stream=None, check=True)
    assert (x == 2).all()
    assert {"strict", "num_warps", "stream"} <= set(LAUNCH_OPTIONS)


def test_a_parameter_may_have_the_name_of_an_option():
    @zg.kernel
    def named(x_ptr, strict):
        zg.store(x_ptr, strict)

    x = np.zeros(1, np.int32)
    named[1](x, strict=7)
    assert x[0] == 7


def test_strict_finds_a_store_of_an_undefined_element():
    @zg.kernel
    def reads_masked(x_ptr, out_ptr):
        at = zg.arange(0, 4)
        x = zg.load(zg.add(x_ptr, at), zg.compare(at, 2, zg.CompareKind.LESS_THAN))
        zg.store(zg.add(out_ptr, at), x)

    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(zg.KernelRuntimeError, match="stores an undefined element"):
        reads_masked[1](x, out, strict=True)
    reads_masked[1](x, out)
    assert out.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            ([1, 2], 2),
            "'x_ptr' of 'double' must be an array or a number; got list",
            "pass an array of the element type: np.array(x_ptr, np.float32)",
        ),
        (({"a": 1}, 2), "got dict", "pass the arrays and numbers in it as arguments of their own"),
        ((iter([1.0]), 2), "got list_iterator", "pass an array of the element type: np.array(list(x_ptr), np.float32)"),
        (("text", 2), "'x_ptr' of 'double' must be an array or a number; got str", "annotate it as zg.constexpr"),
        ((np.zeros(4, complex), 2), "'x_ptr' is an array of complex128", "they have bool"),
        ((np.zeros(4, np.float32), 2**64), "'n' of 'double': an integer must fit in 64 bits; got", None),
        ((np.zeros(4, np.float32),), "'double' needs 'n'", "double[grid](x_ptr, n"),
        ((np.zeros(4, np.float32), 1, 8), "'double' got 'B' twice", None),
    ],
)
def test_arguments_that_do_not_fit(double, arguments, message, hint):
    with pytest.raises(zg.LaunchError, match=message) as error:
        double[1](*arguments, B=8)
    assert (error.value.hint or "").startswith(hint) if hint else error.value.hint is None
    assert double._models == {}


def test_grids_that_do_not_fit(double):
    x = np.zeros(4, np.float32)
    for grid in (1.5, (1, 2, 3, 4), lambda _: -1):
        with pytest.raises(zg.LaunchError, match="the grid of 'double' must be one to three sizes"):
            double[grid](x, 4, B=8)
    with pytest.raises(zg.LaunchError, match=re.escape("asks for 'BLOCK'")):
        double[lambda meta: meta["BLOCK"]](x, 4, B=8)


def test_a_failing_program_is_an_error_at_the_kernels_line(double):
    with pytest.raises(zg.MemoryAccessError) as error:
        double[1](np.zeros(4, np.float32), 8, B=8)
    assert error.value.location.file == __file__


def test_a_kernel_is_compiled_without_a_gpu(double):
    compiled = double.compile(F32, zg.i32, 32, target="sm_80", num_warps=1)
    assert compiled.stages["python"] is double.model and compiled.stages["triton"] is double.triton(F32, zg.i32, 32)
    assert ".target sm_80" in compiled.ptx


def test_only_functions_become_kernels():
    with pytest.raises(zg.KernelSyntaxError, match="'3' is an int, not a function defined by def"):
        zg.kernel(3)


def test_a_misspelled_keyword_is_answered_before_what_is_missing():
    for keywords, hint in (
        ({"BLOK": 64}, "BLOCK"),
        ({"BLOCK": 64, "num_warp": 4}, "num_warps"),
        ({"strct": True}, "strict"),
    ):
        x = np.zeros(64, np.float32)
        with pytest.raises(zg.LaunchError, match="nor is there such an option") as error:
            masked[1](x, 64, **keywords)
        assert error.value.hint == f"did you mean {hint}?"


@zg.kernel
def masked(x_ptr, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(x_ptr, at), 1.0, zg.compare(at, n, zg.CompareKind.LESS_THAN))


def test_kernels_are_no_sequences(double):
    # Python would ask for the items 0, 1, … without an end: each is a launch.
    compiled = double.compile(zg.ptr(zg.f32), zg.i32, 16)
    for thing in (double, compiled, compiled.simulate):
        with pytest.raises(TypeError, match="iterable"):
            list(thing)
        with pytest.raises(TypeError, match="iterable"):
            assert 3 in thing


def test_attributes_of_compiled_kernels_say_how_to_get_them(double):
    with pytest.raises(AttributeError, match=r"'double' must be compiled: double\.compile\(types…\)\.simulate"):
        double.simulate
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        double.simulat


def test_models_that_gave_way_are_collected(monkeypatch):
    """After as many models as a kernel keeps, unless the program has paused the collector."""
    from ziggurat.kernels import kernel as module

    collections, enabled = [], [True]
    monkeypatch.setattr(module.gc, "collect", lambda: collections.append(1))
    monkeypatch.setattr(module.gc, "isenabled", lambda: enabled[0])

    @zg.kernel
    def filled(x, VALUE: zg.constexpr):
        zg.store(x, VALUE)

    filled._since_collection = module.MAX_SPECIALIZATIONS - 2
    for value, count in ((1, 0), (2, 1), (2, 1), (3, 1)):
        filled.triton(zg.ptr(zg.i32), value)
        assert len(collections) == count
    assert filled._since_collection == 1
    filled._since_collection, enabled[0] = module.MAX_SPECIALIZATIONS, False
    filled.triton(zg.ptr(zg.i32), 4)
    assert len(collections) == 1
