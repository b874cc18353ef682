"""Microscaling formats against tables of all their codes."""

import pytest

torch = pytest.importorskip("torch")

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
    assert torch.equal(codes.unpack_packed_tensor(packed, dim, codes.data.shape), codes.data)


def test_scales_are_powers_of_two():
    scales = MXScaleTensor(data=torch.tensor([1.0, 1.99, 0.5, 2.0**-130, 0.0, -1.0, torch.inf]))
    assert scales.data.tolist() == [127, 127, 126, 0, 255, 255, 255]
    assert scales.to(torch.float32)[:3].tolist() == [1.0, 1.0, 0.5] and scales.to(torch.float32)[4].isnan()
    drawn = MXScaleTensor(size=(64,)).random(low=0.25, high=4.0)
    assert 125 <= int(drawn.data.min()) <= int(drawn.data.max()) <= 129
