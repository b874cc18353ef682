"""Descriptors made on the host: their fields, the arrays they can describe, and shared memory."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.launch.descriptors import NO_TILE, TensorDescriptor, check_disjoint, descriptor_type, field_of
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import DescriptorType, bf16, f8e4m3, f16, f32, f64, i1, i32


def test_the_facts_of_an_array():
    x = np.zeros((50, 72), np.float16)[:, :70]
    descriptor = TensorDescriptor(x, (16, 32))
    assert (descriptor.shape, descriptor.strides, descriptor.block) == ((50, 70), (72, 1), (16, 32))
    assert descriptor.type == DescriptorType((16, 32), f16) and descriptor.element == f16
    assert descriptor.array is x and descriptor.host is x and descriptor.device is None
    assert descriptor.address == x.ctypes.data
    assert repr(descriptor) == "<TensorDescriptor of f16 [50, 70] in blocks of [16, 32]>"


def test_shape_and_strides_may_be_given():
    x = np.zeros(1024, np.float32)
    descriptor = TensorDescriptor(x, [4, 8], shape=(np.int64(16), 30), strides=[32, 1], padding="nan")
    assert (descriptor.shape, descriptor.strides) == ((16, 30), (32, 1))
    assert descriptor.type == DescriptorType((4, 8), f32, "nan") == zg.descriptor((4, 8), zg.f32, "nan")


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_elements(dtype):
    x = np.zeros((4, 32), dtype)
    assert TensorDescriptor(x, (4, 16)).element.bytes == x.itemsize


def test_the_memory_of_other_libraries_is_seen_and_kept():
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    other = SimpleNamespace(__array_interface__=x.__array_interface__)
    descriptor = TensorDescriptor(other, (4, 16))
    assert descriptor.host is not None and descriptor.address == x.ctypes.data
    assert np.shares_memory(descriptor.host, x)


def test_axes_of_size_one_have_a_stride_that_tma_can_use():
    """No step is taken along such an axis, so a matrix of one row of any length can be described."""
    assert TensorDescriptor(np.zeros((1, 7), np.float32), (4, 4)).strides == (8, 1)
    assert TensorDescriptor(np.zeros((1, 3, 8), np.float32), (1, 4, 4)).strides == (24, 8, 1)
    assert TensorDescriptor(np.zeros((3, 8), np.float32)[:, ::8], (4, 4)).strides == (8, 1)
    # One that TMA can use stays.
    assert TensorDescriptor(np.zeros((2, 3, 8), np.float32)[:1, :1], (1, 4, 4)).strides == (24, 8, 1)
    assert TensorDescriptor(np.zeros((4, 64), np.float32)[:1, :8], (4, 4)).strides == (64, 1)
    assert TensorDescriptor(np.zeros((4, 8), np.float32)[::-1][:1], (4, 4)).strides == (8, 1)
    with pytest.raises(LaunchError, match="stride 0 of a descriptor must be a multiple of 16 bytes"):
        TensorDescriptor(np.zeros((2, 7), np.float32), (4, 4))


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (
            np.zeros((8, 7), np.float16),
            {},
            "stride 0 of a descriptor must be a multiple of 16 bytes; got 7 elements of 2",
        ),
        (np.zeros((8, 8), np.float32)[::-1], {}, "stride 0 of a descriptor must be a multiple of 16 bytes; got -8"),
        (np.zeros((8, 8), np.float32).T, {}, "the last stride of a descriptor must be 1; got 8"),
        (np.zeros((8, 8, 8), np.float32), {}, "1 to 5 axes, and a size, a stride and a block size for each"),
        (np.zeros((), np.float32), {}, "1 to 5 axes"),
        (np.zeros((8, 8), np.float32), {"shape": (8,)}, "1 to 5 axes"),
        (np.zeros((8, 8), np.float32), {"strides": (16, 8, 1)}, "1 to 5 axes"),
        (np.zeros((0, 8), np.float32), {}, r"sizes of a descriptor must be from 1 to 2\^31 - 1; got \(0, 8\)"),
        (np.zeros((8, 8), np.float32), {"shape": (8, 1 << 31)}, r"from 1 to 2\^31 - 1"),
        (
            np.zeros((8, 8), np.int32),
            {"padding": "nan"},
            'padding must be "zero", or "nan" for floats; got \'nan\' for i32',
        ),
        (np.zeros((8, 8), np.float32), {"padding": "one"}, "got 'one' for f32"),
        (np.zeros((8, 8), np.complex64), {}, "an array of complex64, which kernels do not have"),
        (np.zeros((8, 8), [("a", "f4"), ("b", "i2")])["a"], {}, "whole elements; got"),
        ([[1.0]], {}, "the first argument of a descriptor must be an array; got list"),
        (3.0, {}, "the first argument of a descriptor must be an array; got float"),
    ],
)
def test_arrays_that_cannot_be_described(array, options, message):
    with pytest.raises(LaunchError, match=message):
        TensorDescriptor(array, (8, 8), **options)


def test_the_largest_size_of_a_descriptor():
    size = (1 << 31) - 1
    assert TensorDescriptor(np.zeros((8, 8), np.float32), (8, 8), shape=(8, size)).shape == (8, size)


def test_the_address_must_be_aligned_on_a_gpu_only():
    x = np.zeros((8, 16), np.float32)
    assert TensorDescriptor(x[:, 1:], (8, 8)).address == x.ctypes.data + 4
    interface = {"typestr": "<f4", "data": (0x1004, False), "version": 3, "strides": None, "shape": (8, 16)}
    there = SimpleNamespace(__cuda_array_interface__=interface, shape=(8, 16))
    with pytest.raises(LaunchError, match="must be a multiple of 16; got 0x1004"):
        TensorDescriptor(there, (8, 8))


def test_arrays_in_memory_are_not_passed_to_a_gpu():
    """Such a descriptor has no parts for a GPU, and a key of its own."""
    x = np.zeros((8, 8), np.float32)
    descriptor = TensorDescriptor(x, (8, 8))
    interface = {"typestr": "<f4", "data": (0x1000, False), "version": 3, "strides": None, "shape": (8, 8)}
    there = TensorDescriptor(SimpleNamespace(__cuda_array_interface__=interface, shape=(8, 8)), (8, 8))
    assert (descriptor.is_cuda, there.is_cuda) == (False, True) and there.host is None
    assert descriptor.key != there.key == f"{there.type} in whole rows"
    assert there.part("base", NO_TILE) == 0x1000
    for part in ("map", "base", "shape0"):
        with pytest.raises(LaunchError, match="must describe an array on a GPU"):
            descriptor.part(part, NO_TILE)


@pytest.mark.parametrize(
    "options",
    [
        {"shape": "xx"}, {"shape": (None, 3)}, {"shape": (7.9, "32")}, {"shape": (8, True)}, {"shape": 8},
        {"shape": ()}, {"shape": (10**5000, 8)}, {"strides": (None, 1)}, {"strides": 5}, {"strides": (1.0, 1)},
        {"strides": ("8", 1)},
    ],
    ids=range(11),
)  # fmt: skip
def test_shapes_and_strides_are_integers(options):
    (name,) = options
    with pytest.raises(LaunchError, match=f"the {name} of a descriptor must be 1 to 5 integers; got"):
        TensorDescriptor(np.zeros((8, 8), np.float32), (8, 8), **options)


def test_shapes_and_strides_of_any_library():
    descriptor = TensorDescriptor(
        np.zeros((8, 8), np.float32), (8, 8), shape=np.array([4, 8]), strides=[np.int64(8), 1]
    )
    assert descriptor.shape == (4, 8) and descriptor.strides == (8, 1)


MATRIX = np.zeros((16, 64), np.float32)


# Its outer step, 96, is no multiple of its rows' step, 64.
CUBE = np.lib.stride_tricks.as_strided(MATRIX, (3, 2, 64), (96 * 4, 64 * 4, 4))


@pytest.mark.parametrize(
    ("store", "values", "shared"),
    [
        (MATRIX, MATRIX, True),
        (MATRIX, MATRIX.copy(), False),
        (MATRIX[:8], MATRIX[8:], False),
        (MATRIX[:9], MATRIX[8:], True),
        (MATRIX[:, :32], MATRIX[:, 32:], False),
        (MATRIX[:, 32:], MATRIX[:, :32], False),
        (MATRIX[1:, :32], MATRIX[:-1, 32:], False),
        (MATRIX[:, :36], MATRIX[:, 32:], True),
        (MATRIX[:, :32], MATRIX[::2, 32:], True),  # Strides differ: the bytes overlap, and that is refused.
        (MATRIX.ravel(), MATRIX, True),
        (CUBE[:, :, :32], CUBE[:, :, 32:], True),  # One step of the rows alone is whole rows of the other's columns.
        (MATRIX.reshape(4, 4, 64)[:, :, :32], MATRIX.reshape(4, 4, 64)[:, :, 32:], False),
        (MATRIX.reshape(4, 4, 64)[:, :2], MATRIX.reshape(4, 4, 64)[:, 2:], True),
    ],
)
def test_memory_that_two_descriptors_share(store, values, shared):
    arguments = [1.0, TensorDescriptor(values, (8,) * values.ndim), TensorDescriptor(store, (8,) * store.ndim)]
    names = ["scale", "a", "c"]
    check_disjoint((), arguments, names, "k")
    if not shared:
        check_disjoint(((2, 1),), arguments, names, "k")
        return
    with pytest.raises(LaunchError, match="'c' and 'a' of 'k' must not share memory: a loop stores through one"):
        check_disjoint(((2, 1),), arguments, names, "k")


@pytest.mark.parametrize(
    ("part", "field"),
    [("map", 0), ("", 0), ("base", 1), ("shape0", 2), ("shape2", 4), ("stride0", 5), ("stride2", 7)],
)
def test_the_fields_of_a_descriptor_of_three_axes(part, field):
    assert field_of(part, 3) == field


@pytest.mark.parametrize(
    ("block", "element", "padding", "text"),
    [
        ((64, 64), f16, "zero", "descriptor<x64, x64, f16>"),
        ([4], f32, "nan", "descriptor<x4, f32, nan>"),
        (16, i1, "zero", "descriptor<x16, i1>"),
        ((1, 1, 2, 1, 2), f64, "nan", "descriptor<x1, x1, x2, x1, x2, f64, nan>"),
        ((256, 16), f8e4m3, "zero", "descriptor<x256, x16, f8e4m3>"),
    ],
)
def test_types(block, element, padding, text):
    assert str(descriptor_type(block, element, padding)) == text


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (((64, 48), f16), "the sizes of a block must be powers of two; got 48 in [64, 48]", "use 64"),
        (((64, 0), f16), "the sizes of a block must be powers of two; got 0 in [64, 0]", None),
        (
            ((64, 4), f16),
            "a row of a block must have at least 16 bytes; a row of [64, 4] of f16 has 8",
            "make the last size 8 or more",
        ),
        (((8, True), f16), "the block of a descriptor must be a tuple of 1 to 5 integers; got (8, True)", None),
        (((), f16), "the block of a descriptor must be a tuple of 1 to 5 integers; got ()", None),
        (((2,) * 6, f64), "the block of a descriptor must be a tuple of 1 to 5 integers", None),
        (("ab", f16), "the block of a descriptor must be a tuple of 1 to 5 integers; got 'ab'", None),
        (((2048, 1024), f16), "a block must have at most 1048576 elements; got [2048, 1024]", None),
        (((64, 64), "f16"), "the elements of a descriptor must have a dtype such as zg.f32; got 'f16'", None),
        (((64, 64), i32, "nan"), 'padding must be "zero", or "nan" for floats; got \'nan\' for i32', None),
        (((64, 64), bf16, None), 'padding must be "zero", or "nan" for floats; got None for bf16', None),
    ],
)
def test_types_that_no_kernel_takes(arguments, message, hint):
    with pytest.raises(LaunchError) as error:
        zg.descriptor(*arguments)
    assert message in error.value.summary
    assert (hint is None and error.value.hint is None) or (hint is not None and hint in str(error.value.hint))


def test_descriptors_have_up_to_five_axes():
    for rank in range(1, 6):
        x = np.zeros((2,) * (rank - 1) + (8,), np.float32)
        assert TensorDescriptor(x, x.shape).shape == x.shape
        assert TensorDescriptor(x, x.shape, shape=x.shape, strides=[s // 4 for s in x.strides]).strides[-1] == 1
    with pytest.raises(LaunchError, match="1 to 5"):
        TensorDescriptor(np.zeros((2,) * 5 + (8,), np.float32), (2,) * 5 + (8,))
