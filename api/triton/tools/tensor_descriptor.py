"""`triton.tools.tensor_descriptor`: descriptors of tensors, made on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs


@attrs.define
class TensorDescriptor:
    """A tensor as an argument of a kernel, which loads and stores it in blocks of `block_shape`.

    `base` is a tensor whose first element has an address that is a multiple of 16. `strides` count elements; the last
    is 1, and each other a multiple of 16 bytes. `padding`, "zero" or "nan", is the value outside of the tensor. The
    fields may be assigned between launches, as hooks of configurations do with `block_shape`.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a whole tensor."""
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape, padding)
