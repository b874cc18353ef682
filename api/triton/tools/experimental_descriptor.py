"""`triton.tools.experimental_descriptor`: the descriptors of Triton 3.2 and 3.3, made on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.triton.backends.driver import torch_module
from ziggurat.triton.runtime import descriptor_memory


class TmaDescKernelParam:
    """A tensor of one or two axes without gaps as an argument of a kernel, which loads and stores it in blocks.

    `ptr` is its address, `dims` its sizes, `block_dims` those of a block, `element_size` the bytes of an element.
    `desc` has the descriptor, a tensor of 128 bytes. Raises `LaunchError` for a tensor that TMA cannot address.
    """

    TMA_DESC_SIZE = descriptor_memory.BYTES

    def __init__(self, ptr: int, dims: Sequence[int], block_dims: Sequence[int], element_size: int) -> None:
        torch = torch_module()
        self.desc: Any = torch.empty(self.TMA_DESC_SIZE, dtype=torch.uint8, device="cpu")
        assert len(dims) == len(block_dims) and 1 <= len(dims) <= 2, "a descriptor must have one or two axes"
        descriptor_memory.fill(ptr, dims, block_dims, element_size, self.tma_desc_cpu_ptr())

    def tma_desc_cpu_ptr(self) -> int:
        """The address of the descriptor in this machine's memory."""
        return self.desc.data_ptr()


def create_1d_tma_descriptor(ptr: int, dim: int, block_dim: int, element_size: int) -> TmaDescKernelParam:
    """The descriptor of `dim` elements in blocks of `block_dim`."""
    return TmaDescKernelParam(ptr, [dim], [block_dim], element_size)


def create_2d_tma_descriptor(
    ptr: int, dim1: int, dim0: int, block_dim1: int, block_dim0: int, element_size: int
) -> TmaDescKernelParam:
    """The descriptor of `dim1` rows of `dim0` elements, in blocks of `block_dim1` rows."""
    return TmaDescKernelParam(ptr, [dim1, dim0], [block_dim1, block_dim0], element_size)
