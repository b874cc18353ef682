"""Arguments of compilations and launches: types and values by parameter."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.types import PtrType, TensorType, f32, i32
from ziggurat.kernels.arguments import Divisible, KernelSignature, bind, constant_of, constexpr_names, signature_of
from ziggurat.transforms.attribution import constant


@zg.kernel
def kernel(x_ptr, n, BLOCK: zg.constexpr, scale=2.0, FLAG: zg.constexpr = True):
    zg.store(x_ptr, scale)


F32 = zg.ptr(f32)


def test_pointers():
    assert zg.ptr(f32) == PtrType(f32)
    for wrong in ("f32", float, F32):
        with pytest.raises(zg.LaunchError, match=r"zg.ptr: the argument must be a dtype such as zg.f32; got"):
            zg.ptr(wrong)


def test_divisibility():
    assert zg.divisible(F32) == Divisible(F32, 16) and zg.divisible(i32, 4) == Divisible(i32, 4)
    assert zg.divisible(i32, 1) == Divisible(i32, 1) and zg.divisible(i32, 1 << 30).by == 1 << 30
    for type_ in (f32, TensorType((4,), i32), 16):
        with pytest.raises(zg.LaunchError, match="must be an integer, a pointer or a descriptor"):
            zg.divisible(type_)
    for by in (0, 3, -16, 1.0, True, 1 << 31):
        with pytest.raises(zg.LaunchError, match=r"must be a power of two, at most 2\^30; got"):
            zg.divisible(i32, by)


def test_the_names_of_constexpr_parameters():
    assert constexpr_names(kernel) == {"BLOCK", "FLAG"}


def test_arguments_are_bound_by_place_by_name_and_by_default():
    everything = {"x_ptr": 1, "n": 2, "BLOCK": 3, "scale": 2.0, "FLAG": True}
    assert bind(kernel, (1, 2, 3), {}) == everything
    bound = bind(kernel, (1,), {"FLAG": False, "BLOCK": 3, "n": 2})
    assert bound == {**everything, "FLAG": False} and list(bound) == list(everything), "in the order of the parameters"


@pytest.mark.parametrize(
    ("arguments", "keywords", "message", "hint"),
    [
        ((1,), {}, "'kernel' needs 'n', 'BLOCK'", "kernel(x_ptr, n, BLOCK: zg.constexpr, scale=2.0"),
        (range(6), {}, "'kernel' takes 5 arguments; got 6", "kernel(x_ptr"),
        ((1, 2), {"BLOCKS": 3}, "'kernel' has no parameter 'BLOCKS'", "did you mean BLOCK?"),
        ((1, 2), {"zzz": 3}, "'kernel' has no parameter 'zzz'", "kernel(x_ptr"),
        ((1, 2), {"n": 3}, "'kernel' got 'n' twice", ""),
    ],
)
def test_arguments_that_do_not_fit(arguments, keywords, message, hint):
    with pytest.raises(zg.LaunchError, match=re.escape(message)) as error:
        bind(kernel, arguments, keywords)
    assert (error.value.hint or "").startswith(hint)


def test_a_signature_has_types_and_the_divisibility_of_run_time_arguments():
    result = signature_of(kernel, (zg.divisible(F32), i32), {"BLOCK": 64})
    assert result.types == (F32, i32, constant(64), constant(2.0), constant(True))
    assert result.divisibility == (16, 1)
    assert result == signature_of(kernel, (zg.divisible(F32), i32, 64), {"scale": 2.0})
    assert hash(result) == hash(KernelSignature(result.types, result.divisibility))
    assert result != signature_of(kernel, (F32, i32, 64), {})


def test_values_may_stand_for_run_time_arguments_and_types_for_constants():
    assert signature_of(kernel, (F32, 5, 64), {}).types[1] == constant(5)
    assert signature_of(kernel, (F32, None, f32), {}).types[1:3] == (constant(None), constant(f32))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (TensorType((4,), f32), 1, 2),
            "'x_ptr' of 'kernel': a parameter must be a scalar, a pointer or a descriptor; got tensor",
        ),
        ((F32, 2**70, 2), "'n' of 'kernel': the integer .* does not fit in 64 bits"),
        ((F32, 1, np.zeros(2)), "'BLOCK' of 'kernel' is compiled in: it must be a number.*got ndarray"),
    ],
)
def test_arguments_that_a_kernel_is_not_compiled_for(arguments, words):
    with pytest.raises(zg.LaunchError, match=words):
        signature_of(kernel, arguments, {})


def test_a_list_is_compiled_in_as_a_tuple():
    assert constant_of(kernel, "BLOCK", [1, 2]) == constant((1, 2)) == constant_of(kernel, "BLOCK", (1, 2))
    assert constant_of(kernel, "BLOCK", [[1, 2], (3, [4])]) == constant(((1, 2), (3, (4,))))


@pytest.mark.parametrize(
    "text",
    ["f32", "ptr<f32>", "descriptor<x16, x16, f16>", "tensor<x4, f32>", "*fp32", "fp16", "float32", "uint8"],
)
def test_the_name_of_a_type_is_a_string(text):
    """A shell has types as text; Python has them as values."""
    with pytest.raises(zg.LaunchError, match=r"must be a type; got the string") as error:
        kernel.triton(text, zg.i32, 16)
    assert "zg.ptr(zg.f32)" in str(error.value)


def test_all_texts_of_types_and_all_missing_arguments_are_named():
    with pytest.raises(zg.LaunchError) as error:
        kernel.compile("*fp32", "i32")
    first, second = list(kernel.signature.parameters)[:2]
    assert f"'{first}' must be a type; got the string \"*fp32\"" in error.value.summary
    assert f"'{second}' must be a type; got the string \"i32\"" in error.value.summary
    assert error.value.summary.endswith("'BLOCK' is missing")


def test_numpy_and_torch_dtypes_are_types():
    assert signature_of(kernel, (F32, np.int32, 64), {}).types[1] == i32
    assert signature_of(kernel, (F32, np.dtype("float32"), 64), {}).types[1] == f32


def scaled_by(factor, array):
    @zg.kernel
    def scale(x_ptr, by):
        zg.store(x_ptr, zg.mul(zg.load(x_ptr), by))

    scale[(1,)](array, factor)
    return array


@pytest.mark.parametrize("factor", [np.float64(2.5), np.float32(2.5), 2.5])
def test_numpy_s_default_numbers_are_python_s(factor):
    """`np.float64(2.5)` is f32 as 2.5 is, so that an f32 array stays one."""
    assert scaled_by(factor, np.full(1, 2, np.float32))[0] == 5


def test_an_integer_of_numpy_is_as_wide_as_it_needs():
    assert scaled_by(np.int64(3), np.full(1, 2, np.int32))[0] == 6
    assert scaled_by(np.prod((2, 3)), np.full(1, 2, np.int32))[0] == 12


def test_none_for_a_pointer_is_known_at_compile_time():
    @zg.kernel
    def add_bias(x_ptr, bias_ptr):
        x = zg.load(x_ptr)
        if bias_ptr is not None:
            x = zg.add(x, zg.load(bias_ptr))
        zg.store(x_ptr, x)

    x = np.ones(1, np.float32)
    add_bias[(1,)](x, None)
    assert x[0] == 1
    add_bias[(1,)](x, x.copy())
    assert x[0] == 2


def test_any_number_of_arguments_is_refused_with_its_place():
    with pytest.raises(zg.KernelSyntaxError, match="any number of arguments") as error:

        @zg.kernel
        def variadic(x_ptr, **options):
            zg.store(x_ptr, 1.0)

        variadic[(1,)](np.ones(1, np.float32), scale=2)

    assert error.value.location is not None


# Tuples of arrays.


@zg.kernel
def total(x_ptrs, scale, out_ptr, B: zg.constexpr):
    at = zg.arange(0, B)
    first, (second, third) = x_ptrs
    x = zg.add(zg.load(zg.add(first, at)), zg.load(zg.add(second, at)))
    if third is not None:
        x = zg.add(x, zg.load(zg.add(third, at)))
    zg.store(zg.add(out_ptr, at), zg.mul(x, scale[1]))


def test_tuples_of_arrays_and_numbers():
    x = np.arange(8, dtype=np.float32)
    out = np.zeros_like(x)
    total[(1,)]((x, (x, x)), (1, 2.0), out, 8)
    np.testing.assert_array_equal(out, 6 * x)
    total[(1,)]([x, (x, None)], (1, 2.0), out, 8)
    np.testing.assert_array_equal(out, 4 * x)


def test_tuples_of_types():
    pointer = zg.divisible(F32)
    model = total.triton((pointer, (pointer, F32)), (1, f32), F32, 8)
    (func,) = model.functions().values()
    assert [str(p.type) for p in func.body.parameters] == ["ptr<f32>"] * 3 + ["f32", "ptr<f32>"]
    assert func.divisibility == (16, 16, 1, 1, 1)
    compiled = total.compile((pointer, (pointer, F32)), (1, f32), F32, 8)
    assert [a.name for a in compiled.arguments] == ["x_ptrs[0]", "x_ptrs[1][0]", "x_ptrs[1][1]", "scale[1]", "out_ptr"]
    x = np.arange(8, dtype=np.float32)
    out = np.zeros_like(x)
    compiled.simulate[(1,)]((x, (x, x)), 2.0, out)
    np.testing.assert_array_equal(out, 6 * x)


def test_a_list_of_numbers_is_no_argument():
    with pytest.raises(zg.LaunchError, match="'scale' of 'total' must be an array or a number; got list"):
        total[(1,)]((np.zeros(8, np.float32),) * 2, [1, 2.0], np.zeros(8, np.float32), 8)


def test_tuples_of_arrays_on_a_gpu(fake):
    fake.parameters = 5
    x, out = zg.empty(8, np.float32), zg.empty(8, np.float32)
    for scale in (2.0, 3.0):
        total[(1,)]((x, (x, x)), (1, scale), out, 8)
    assert len(fake.launches) == 2
    pointers = [int.from_bytes(value[:8], "little") for value in fake.launches[-1]["values"]]
    assert pointers[:3] == [x.pointer] * 3 and pointers[-1] == out.pointer
    fake.parameters = 4
    total[lambda meta: (len(meta["x_ptrs"]),)]((x, (x, None)), (1, 2.0), out, 8)
    assert fake.launches[-1]["grid"] == (2, 1, 1)
