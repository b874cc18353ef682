"""Reading arrays of other libraries, with objects that answer as theirs do."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda.arrays import View, reader_of, view
from ziggurat.backend.cuda.memory import DeviceArray
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import bf16, f8e4m3, f16, f32, i1, u8


class Protocol:
    def __init__(self, typestr, address=0x1000, stream=None, dtype=None):
        self.__cuda_array_interface__ = {"typestr": typestr, "data": (address, False), "version": 3, "stream": stream}
        if dtype is not None:
            self.dtype = dtype


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (Protocol("<f4"), View(0x1000, f32)),
        (Protocol("|u1", stream=7), View(0x1000, u8, None, 7)),
        (Protocol("<V2", dtype=np.dtype(ml_dtypes.bfloat16)), View(0x1000, bf16)),
        (Protocol("<f4", address=None), View(0, f32)),
        (SimpleNamespace(data_ptr=lambda: 5, dtype="torch.float8_e4m3fn", is_cuda=True), View(5, f8e4m3)),
        (SimpleNamespace(data_ptr=lambda: 5, dtype="torch.bool", device="cuda:0"), View(5, i1)),
        (DeviceArray(0x4000, (2, 3), f16, 1), View(0x4000, f16, 1)),
    ],
)
def test_views(array, expected):
    assert view(array, "x") == expected


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3),
        [1, 2],
        3,
        None,
        SimpleNamespace(data_ptr=lambda: 5, dtype="torch.float32", is_cuda=False, device="cpu"),
    ],
)
def test_what_is_not_on_a_gpu(array):
    assert reader_of(array) is None
    with pytest.raises(LaunchError, match="'x' must be an array on a GPU"):
        view(array, "x")


@pytest.mark.parametrize("array", [SimpleNamespace(data_ptr=lambda: 5, dtype="torch.complex64", is_cuda=True)])
def test_elements_that_kernels_lack(array):
    with pytest.raises(LaunchError, match=r"'x' is an array of .*, which kernels do not have"):
        view(array, "x")
