"""`triton.tools.mxfp`: tensors of the microscaling formats, 4-bit E2M1 numbers and 8-bit E8M0 scales.

Source: OCP Microscaling Formats (MX) Specification, version 1.0, sections 5.3.3 and 5.4.1.
"""

from __future__ import annotations

import importlib
from typing import Any, Self

# The magnitudes of E2M1 by their codes.
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BIAS, _NAN = 127, 255


def _torch() -> Any:
    return importlib.import_module("torch")


class _Coded:
    """A tensor of codes, `data`: of the numbers of a tensor of float32, or of a size, to be filled by `random`."""

    data: Any

    def __init__(self, data: Any = None, size: Any = None, device: Any = None) -> None:
        if data is None and size is None:
            raise ValueError("Either parameter data or size must be provided")
        self.device = device if data is None else data.device
        if data is not None:
            assert isinstance(data, _torch().Tensor), "Parameter data must be a torch tensor"
            self.data = self._from_float(data)
        else:
            self.size: Any = size if isinstance(size, tuple) else (size,)

    def _from_float(self, values: Any) -> Any:
        raise NotImplementedError


class MXFP4Tensor(_Coded):
    """Numbers of E2M1 as codes in a tensor of uint8: a sign, two bits of exponent, one of mantissa."""

    def random(self) -> Self:
        """Fill the tensor with random codes."""
        torch = _torch()
        self.data = torch.randint(0, 16, size=self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: Any) -> Any:
        """The numbers as a tensor of float32."""
        torch = _torch()
        assert dtype == torch.float32, "Currently only float32 is supported for fp4e2m1 to float conversion"
        magnitudes = torch.tensor(_MAGNITUDES, dtype=dtype, device=self.data.device)[(self.data & 7).long()]
        return torch.where(self.data & 8 != 0, -magnitudes, magnitudes)

    def _from_float(self, values: Any) -> Any:
        """The codes of the nearest numbers, the even code of two that are as near; the largest for infinity and NaN."""
        torch = _torch()
        magnitudes = torch.tensor(_MAGNITUDES, device=values.device)
        magnitude = values.abs().float()
        magnitude = torch.where(torch.isfinite(magnitude), magnitude, magnitudes[-1]).clamp(max=_MAGNITUDES[-1])
        above = torch.searchsorted(magnitudes, magnitude).clamp(max=len(_MAGNITUDES) - 1)
        below = (above - 1).clamp(min=0)
        up, down = magnitudes[above] - magnitude, magnitude - magnitudes[below]
        code = torch.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
        return (code | torch.signbit(values).long() << 3).to(torch.uint8)

    def to_packed_tensor(self, dim: int) -> Any:
        """Two neighbours along an axis in each byte, the first in the low bits; an odd size gets a zero."""
        data = self.data
        assert 0 <= dim < data.ndim, "The dimension to pack along is not within the range of tensor dimensions"
        if data.shape[dim] % 2:
            more = data.new_zeros([1 if axis == dim else size for axis, size in enumerate(data.shape)])
            data = _torch().cat([data, more], dim)
        pairs = data.unflatten(dim, (-1, 2))
        return pairs.select(dim + 1, 1) << 4 | pairs.select(dim + 1, 0)

    def unpack_packed_tensor(self, packed_tensor: Any, dim: int, original_shape: Any) -> Any:
        """The codes that `to_packed_tensor` packed, for the shape that they had."""
        torch = _torch()
        pairs = torch.stack((packed_tensor & 15, packed_tensor >> 4 & 15), dim=dim + 1)
        return pairs.flatten(dim, dim + 1).narrow(dim, 0, original_shape[dim]).to(torch.uint8)


class MXScaleTensor(_Coded):
    """Scales of E8M0 as codes in a tensor of uint8: powers of two with an exponent biased by 127; 255 is NaN."""

    def random(self, low: float | None = None, high: float | None = None) -> Self:
        """Fill the tensor with random powers of two, from `low` to `high`."""
        torch = _torch()
        first = 0 if low is None else max(0, self._exponent(low))
        last = _NAN - 1 if high is None else min(_NAN - 1, max(0, self._exponent(high)))
        assert first <= last, "Low must be less than or equal to high"
        self.data = torch.randint(first, last + 1, size=self.size, dtype=torch.uint8, device=self.device)
        return self

    @staticmethod
    def _exponent(number: float) -> int:
        return int(_torch().log2(_torch().tensor(float(number)))) + _BIAS

    def to(self, dtype: Any) -> Any:
        """The scales as a tensor of float32."""
        torch = _torch()
        assert dtype == torch.float32, "Currently only float32 is supported for f8e8m0 to float conversion"
        powers = torch.pow(2.0, self.data.to(dtype) - _BIAS)
        return torch.where(self.data == _NAN, torch.nan, powers).to(dtype)

    def _from_float(self, values: Any) -> Any:
        """The codes of the largest powers of two that are not greater; NaN for numbers that are not positive."""
        torch = _torch()
        valid = torch.isfinite(values) & (values > 0)
        exponent = torch.floor(torch.log2(torch.where(valid, values, 1.0))) + _BIAS
        return torch.where(valid, exponent.clamp(0, _NAN - 1), _NAN).to(torch.uint8)
