"""Tensors that stand for others: with another element type, and without memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.types import find_scalar

if TYPE_CHECKING:
    import numpy as np


class TensorWrapper:
    """A tensor of PyTorch whose elements kernels read as another dtype of the same width."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.data = base.data
        self.device = base.device
        self.shape = base.shape
        self.is_cuda: bool = base.is_cuda

    def data_ptr(self) -> int:
        return self.base.data_ptr()

    def stride(self, *axis: int) -> Any:
        return self.base.stride(*axis)

    def element_size(self) -> int:
        return self.base.element_size()

    def get_device(self) -> int:
        return self.base.get_device()

    def __host_array__(self) -> np.ndarray[Any, Any]:
        """The elements in this machine's memory, as an array of the other dtype."""
        from ziggurat.backend.launch.arrays import as_array

        scalar = find_scalar(self.dtype)
        if scalar is None:
            raise TypeError(f"kernels do not have the dtype {self.dtype}")
        return as_array(self.base, "base").view(scalar.dtype)

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone(), self.dtype)

    def new_empty(self, sizes: Sequence[int]) -> TensorWrapper:
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def copy_(self, other: Any) -> None:
        self.base.copy_(other.base if isinstance(other, TensorWrapper) else other)

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """A tensor whose elements are read as `dtype`: the tensor itself where that is its own dtype.

    Raises `TypeError` for a thing that is no tensor.
    """
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if base is not tensor and dtype == base.dtype:
        return base
    if not hasattr(base, "data_ptr"):
        raise TypeError(f"Cannot reinterpret a {type(tensor)}.")
    return TensorWrapper(base, dtype)


def is_host_tensor(thing: Any) -> bool:
    """Whether a thing is a tensor of PyTorch in host memory that a GPU cannot read: not pinned, and not empty."""
    torch = sys.modules.get("torch")
    base = thing.base if isinstance(thing, TensorWrapper) else thing
    if torch is None or not isinstance(base, torch.Tensor) or base.device.type != "cpu":
        return False
    return base.numel() > 0 and not base.is_pinned()


class MockTensor:
    """A tensor without memory, for `kernel.warmup`: a dtype of PyTorch stands for one as well."""

    def __init__(self, dtype: Any, shape: Sequence[int] | None = None) -> None:
        self.dtype = dtype
        self.shape = [1] if shape is None else shape

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        """The mock tensor for a dtype of PyTorch; any other thing as it is."""
        torch = sys.modules.get("torch")
        return MockTensor(arg) if torch is not None and isinstance(arg, torch.dtype) else arg

    def stride(self) -> tuple[int, ...]:
        """The strides of rows without gaps, in elements."""
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.append(strides[-1] * size)
        return tuple(reversed(strides))

    @staticmethod
    def data_ptr() -> int:
        return 0  # A multiple of 16, as addresses of allocations are.
