"""Microscaling formats against tables of all their codes."""

from types import SimpleNamespace

import pytest
from libraries import require

torch = require("torch")

from ziggurat.triton.tools.mxfp import MXFP4Tensor, MXScaleTensor  # noqa: E402


def test_numbers_of_four_bits():
    codes = MXFP4Tensor(size=(2, 3)).random()
    assert codes.data.dtype == torch.uint8 and int(codes.data.max()) < 16
    codes.data = torch.arange(16, dtype=torch.uint8)
    numbers = codes.to(torch.float32)
    assert numbers.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert MXFP4Tensor(data=numbers).data.tolist() == list(range(16))


def test_rounding_goes_to_the_nearest_and_ties_to_even():
    values = torch.tensor([0.24, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.1, 7.0, torch.inf, torch.nan, -2.6])
    expected = [0, 0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 6.0, 6.0, -3.0]
    assert MXFP4Tensor(data=values).to(torch.float32).tolist() == expected


@pytest.mark.parametrize("dim", [0, 1])
def test_packing_is_undone(dim: int):
    codes = MXFP4Tensor(size=(3, 5)).random()
    packed = codes.to_packed_tensor(dim)
    assert packed.shape == ((2, 5), (3, 3))[dim]
    unpacked = codes.unpack_packed_tensor(packed, dim, codes.data.shape)
    assert torch.equal(unpacked, codes.data) and unpacked.dtype == packed.dtype == torch.uint8
    wide = codes.unpack_packed_tensor(packed.int(), dim, codes.data.shape)
    assert wide.dtype == torch.uint8


def test_scales_are_powers_of_two():
    scales = MXScaleTensor(data=torch.tensor([1.0, 1.99, 0.5, 2.0**-130, 0.0, -1.0, torch.inf]))
    assert scales.data.tolist() == [127, 127, 126, 0, 255, 255, 255]
    assert scales.to(torch.float32)[:3].tolist() == [1.0, 1.0, 0.5] and scales.to(torch.float32)[4].isnan()
    assert scales.data.dtype == MXFP4Tensor(data=torch.ones(1)).data.dtype == torch.uint8
    everything = MXScaleTensor(size=(4096,)).random().data
    assert everything.dtype == torch.uint8 and int(everything.max()) <= 254 and int(everything.min()) < 8
    for power, code in ((-140, 0), (-127, 0), (-126, 1), (0, 127), (127, 254)):
        assert MXScaleTensor(size=3).random(low=2.0**power, high=2.0**power).data.tolist() == [code] * 3
    assert MXScaleTensor(data=torch.tensor([2.0**127, 2.0**-127])).data.tolist() == [254, 0]
    with pytest.raises(AssertionError, match="Low must be less than or equal to high"):
        MXScaleTensor(size=3).random(low=2.0, high=1.0)
    drawn = MXScaleTensor(size=(64,)).random(low=0.25, high=4.0)
    assert 125 <= int(drawn.data.min()) <= int(drawn.data.max()) <= 129


def test_tensors_that_are_refused():
    with pytest.raises(ValueError, match="Either parameter data or size must be provided"):
        MXFP4Tensor()
    with pytest.raises(AssertionError, match="must be a torch tensor"):
        MXFP4Tensor(data=SimpleNamespace(device="cpu"))
    codes = MXFP4Tensor(size=(2, 4), device="cpu").random()
    assert codes.data.device.type == "cpu" and codes.data.shape == (2, 4)
    for wrong in (codes, MXScaleTensor(size=3).random()):
        with pytest.raises(AssertionError, match="Currently only float32 is supported"):
            wrong.to(torch.float16)
    for dim in (-1, 2):
        with pytest.raises(AssertionError, match="is not within the range of tensor dimensions"):
            codes.to_packed_tensor(dim)
    codes.data = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 15]], dtype=torch.uint8)
    assert codes.to_packed_tensor(1).tolist() == [[0x21, 0x43], [0x65, 0xF7]]
    assert codes.to_packed_tensor(0).tolist() == [[0x51, 0x62, 0x73, 0xF4]]
    codes.data = codes.data[:, :3]
    assert codes.to_packed_tensor(1).tolist() == [[0x21, 0x03], [0x65, 0x07]]
