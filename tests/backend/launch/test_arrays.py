"""Arguments of a launch: arrays of any library in the memory of this machine, and numbers."""

from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
from libraries import require

import ziggurat as zg
from ziggurat.backend.launch.arrays import (
    address,
    as_array,
    elements,
    is_array,
    number_type,
    on_gpu,
    tensor_at,
    whole,
)  # fmt: skip


@zg.kernel
def double(x_ptr, n, B: zg.constexpr):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, at), mask)
    zg.store(zg.add(x_ptr, at), zg.add(x, x), mask)


@zg.kernel
def reverse(x_ptr, B: zg.constexpr):
    at = zg.add(x_ptr, zg.arange(0, B))
    x = zg.load(at)
    zero = zg.compare(x, 0, zg.CompareKind.EQUAL)
    zg.store(at, zg.cast(zero, x.dtype))


class Interface:
    """An array of a library that has only NumPy's protocol."""

    def __init__(self, array):
        self.kept = array
        self.__array_interface__ = array.__array_interface__


class DLPack:
    """An array of a library that has only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [lambda a: a, Interface, DLPack], ids=["numpy", "interface", "dlpack"])
def test_arrays_of_any_library_are_changed_in_place(wrap):
    x = np.arange(10, dtype=np.float32)
    double[(2,)](wrap(x), 9, B=8)
    assert x.tolist() == [*range(0, 18, 2), 9]


@pytest.mark.parametrize("dtype", list(elements()), ids=str)
def test_every_element_type(dtype):
    x = np.array([0, 1, 1, 0], dtype=dtype)
    reverse[1](x, B=4)
    assert x.astype(np.float32).tolist() == [1, 0, 0, 1]


@pytest.fixture
def torch():
    return require("torch")


TORCH_DTYPES = """
    float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8_e4m3fn float8_e5m2
""".split()


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_torch_tensors_of_every_dtype_are_changed_in_place(torch, dtype):
    x = torch.tensor([0, 1, 2, 3]).to(getattr(torch, dtype))
    double[1](x, 3, B=4)
    assert x.to(torch.float64).tolist() == [0, 2, 4, 3]


def test_torch_tensors_of_bools(torch):
    x = torch.tensor([True, False, False, True])
    reverse[1](x, B=4)
    assert x.tolist() == [False, True, True, False]


@zg.kernel
def add_ten_to_every_second(x_ptr, B: zg.constexpr):
    at = zg.add(x_ptr, zg.mul(zg.arange(0, B), 2))
    zg.store(at, zg.add(zg.load(at), 10))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_strided_torch_tensor_is_its_memory(torch, dtype):
    whole = torch.arange(8).to(getattr(torch, dtype))
    add_ten_to_every_second[1](whole[1::2], B=4)
    assert whole.tolist() == [0, 11, 2, 13, 4, 15, 6, 17]
    double[1](whole[4:], 2, B=4)
    assert whole.tolist() == [0, 11, 2, 13, 8, 30, 6, 17]
    table = torch.arange(8).to(getattr(torch, dtype)).reshape(2, 4)
    double[1](table.T, 4, B=8)
    assert table.tolist() == [[0, 2, 4, 6], [4, 5, 6, 7]], "memory has its order, whatever the view's"


def test_a_torch_tensor_that_requires_grad_is_its_memory_too(torch):
    for x in (torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True, dtype=torch.bfloat16)):
        double[1](x, 3, B=4)
        assert x.detach().tolist() == [2, 2, 2, 1] and x.requires_grad
    x = torch.ones(4, requires_grad=True)
    result = x * 3
    double[1](result, 4, B=4)
    result.sum().backward()
    assert result.detach().tolist() == [6] * 4 and x.grad.tolist() == [3] * 4, "the kernel is no part of the graph"


TORCH_REFUSED = {
    "meta": (lambda torch: torch.empty(4, device="meta"), "cannot be seen as a NumPy array: .*meta"),
    "meta bf16": (lambda torch: torch.empty(4, device="meta", dtype=torch.bfloat16), "cannot be seen as a NumPy array"),
    "sparse": (lambda torch: torch.eye(4).to_sparse(), "cannot be seen as a NumPy array: .*Sparse"),
    "negated": (lambda torch: torch.zeros(4, dtype=torch.complex64).conj().imag, "negative bit"),
    "conjugate": (lambda torch: torch.zeros(4, dtype=torch.complex64).conj(), "conjugate bit"),
    "complex": (
        lambda torch: torch.zeros(4, dtype=torch.complex64),
        "an array of complex64, which kernels do not have",
    ),
    "fp8 of another kind": (lambda torch: torch.zeros(4, dtype=torch.float8_e4m3fnuz), "Float8_e4m3fnuz"),
}


class Pointer:
    """An address of an array, as programs of PyTorch pass it."""

    def __init__(self, place, dtype):
        self.place, self.dtype = place, dtype

    def data_ptr(self):
        return self.place


def test_a_pointer_is_the_rest_of_the_tensor_that_has_it(torch):
    """To the last whole element, whatever tensors without memory there are."""
    others = [torch.zeros(4, device="meta"), torch.zeros(4).to_sparse(), torch.zeros(0)]
    x = torch.arange(8, dtype=torch.float32)
    rest = as_array(Pointer(x.data_ptr() + 8, torch.float32), "x")
    assert rest.dtype == np.float32 and rest.tolist() == [2, 3, 4, 5, 6, 7]
    rest[0] = 9
    assert x[2] == 9
    wide = as_array(Pointer(x[1:].data_ptr(), torch.float64), "x")
    assert wide.dtype == np.float64 and wide.ctypes.data == x.data_ptr() + 4 and len(wide) == 3
    assert len(as_array(Pointer(x.data_ptr(), torch.float32), "x")) == 8
    after = tensor_at(x.data_ptr() + 32)
    assert after is None or after.ctypes.data != x.data_ptr()
    before = tensor_at(x.data_ptr() - 1)
    assert before is None or before.ctypes.data != x.data_ptr()
    assert len(others) == 3


def test_tensors_whose_memory_cannot_be_asked_for_are_passed_over(torch, monkeypatch):
    """A functional tensor of a tracer raises an error."""
    x = torch.arange(4, dtype=torch.uint8)
    traced = torch._to_functional_tensor(torch.zeros(64))
    with pytest.raises(RuntimeError):
        traced.untyped_storage().data_ptr()
    for others in ([traced, x], [torch.zeros(0), traced, x], [None, x, traced]):
        monkeypatch.setattr("gc.get_objects", lambda others=others: others)
        assert tensor_at(x.data_ptr() + 3).tolist() == [0, 1, 2, 3]
    monkeypatch.setattr("gc.get_objects", lambda: [torch.zeros(1), traced])
    assert tensor_at(x.data_ptr()) is None


def test_a_pointer_that_no_tensor_has(torch):
    x, array = torch.zeros(8), np.zeros(8, np.float32)
    message = "'x' cannot be seen as a NumPy array: no tensor of PyTorch has its address"
    for pointer in (Pointer(array.ctypes.data, torch.float32), Pointer(x.data_ptr(), torch.complex64)):
        with pytest.raises(zg.LaunchError, match=message):
            as_array(pointer, "x")


@pytest.mark.parametrize("kind", TORCH_REFUSED)
def test_torch_tensors_that_kernels_cannot_see(torch, kind):
    make, words = TORCH_REFUSED[kind]
    with pytest.raises(zg.LaunchError, match=f"'x_ptr' .*{words}"):
        double[1](make(torch), 4, B=4)


class OnDevice:
    """An object that tells its device in the way of one library."""

    def __init__(self, **text):
        self.__dict__.update(text)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ({"__cuda_array_interface__": {}}, True),
        ({"is_cuda": True}, True),
        ({"is_cuda": False, "device": "cuda:0"}, True),
        ({"device": "cuda:0"}, True),
        ({"device": "cpu"}, False),
        ({"__dlpack_device__": lambda: (2, 0)}, True),
        ({"__dlpack_device__": lambda: (13, 0)}, True),
        ({"__dlpack_device__": lambda: (1, 0)}, False),
        ({"__dlpack_device__": lambda: (3, 0)}, False),
        ({"__dlpack_device__": lambda: (8, 0)}, False),
        ({"__dlpack_device__": lambda: 1 / 0}, False),
        ({}, False),
    ],
)
def test_arrays_on_a_gpu(text, there):
    assert on_gpu(OnDevice(**text)) is there


def test_arrays_in_memory_are_not_on_a_gpu():
    class Subclass(np.ndarray):
        """An array whose attributes must not be read."""

        @property
        def is_cuda(self):
            raise AssertionError

    for thing in (np.zeros(3), np.zeros(3).view(Subclass), np.float32(1), 3, 2.5, True, None, "cuda", (1, 2)):
        assert on_gpu(thing) is False


def test_an_array_of_a_library_that_fails_is_refused_with_its_reason():
    class Broken:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise ZeroDivisionError("no memory left\nand more")

    with pytest.raises(zg.LaunchError, match=r"'x_ptr' cannot be seen as a NumPy array: no memory left$"):
        double[1](Broken(), 4, B=4)


def test_an_array_on_a_gpu_is_refused_by_name():
    class Device:
        __cuda_array_interface__: ClassVar[Any] = {"shape": (4,), "typestr": "<f4", "data": (16, False), "version": 3}

    with pytest.raises(zg.LaunchError, match=r"'x_ptr' must be an array in memory.*\n.*\.cpu\(\)"):
        as_array(Device(), "x_ptr")


def test_element_types_that_kernels_lack():
    with pytest.raises(zg.LaunchError, match="'x_ptr' is an array of complex64"):
        double[1](np.zeros(4, np.complex64), 4, B=4)


def test_numbers_are_no_arrays():
    assert not is_array(np.float32(1)) and not is_array(3)
    assert is_array(np.zeros(())) and as_array(np.zeros(2), "x").shape == (2,)


@pytest.mark.parametrize(
    ("number", "type_"),
    [
        (True, zg.i1), (np.bool_(False), zg.i1), (5, zg.i32), (-(2**31), zg.i32), (2**31, zg.i64), (2**63, zg.u64),
        (1.5, zg.f32), (np.int8(3), zg.i8), (np.float64(2), zg.f32),
        (np.int64(2), zg.i32), (np.int64(2**40), zg.i64), (np.int16(2), zg.i16),
        (ml_dtypes.bfloat16(1), zg.bf16), ("x", None),
    ],
)  # fmt: skip
def test_types_of_numbers(number, type_):
    assert number_type(number) == type_


def test_an_int_beyond_64_bits():
    with pytest.raises(zg.LaunchError, match="must fit in 64 bits"):
        number_type(2**64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_a_storage_can_be_resized_after_a_view(dtype):
    """FSDP frees the storage of a parameter after each use, and makes it again."""
    torch = require("torch")
    x = torch.ones(3, 4, dtype=getattr(torch, dtype))[:, 1:]
    seen = as_array(x, "x")
    assert seen.shape == (3, 3) and whole(seen).size == 12 and seen.astype(float).sum() == 9
    assert np.shares_memory(tensor_at(x.data_ptr()), seen) and address(seen) == x.data_ptr()
    assert x.untyped_storage().resizable()
