"""`triton.tools.tensor_descriptor`: descriptors of tensors, made on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.backend.launch import descriptors
from ziggurat.codemodel.errors import warn
from ziggurat.codemodel.types import find_scalar


class TensorDescriptor(descriptors.TensorDescriptor):
    """A tensor as an argument of a kernel, which loads and stores it in blocks of `block_shape`.

    `base` is a tensor whose first element has an address that is a multiple of 16. `strides` count elements; the last
    is 1, and each other a multiple of 16 bytes. `padding`, "zero" or "nan", is the value outside of the tensor. The
    fields may be assigned between launches, as hooks of configurations do with `block_shape`: what a launch needs is
    made at the first launch after that. `round_f32_to_tf32` has no effect, of which a warning tells.

    Raises `AssertionError` for a tensor that TMA cannot address, `ValueError` for a block size that is no power of 2.
    """

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        values = (base, shape, strides, block_shape, padding, round_f32_to_tf32)
        vars(self).update(zip(_FIELDS, values, strict=True))
        self._demand()

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """The descriptor of a whole tensor, or of an array of NumPy, whose strides are in bytes."""
        strides = tensor.stride() if hasattr(tensor, "stride") else [s // tensor.itemsize for s in tensor.strides]
        return TensorDescriptor(tensor, tensor.shape, strides, block_shape, padding, round_f32_to_tf32)

    def _demand(self) -> None:
        rank = len(self.shape)
        assert len(self.strides) == rank, f"rank mismatch: {self}"
        assert len(self.block_shape) == rank, f"rank mismatch: {self}"
        assert 0 < rank <= 5, "rank must be from 1 to 5"
        for place, size in enumerate(self.block_shape):
            if size <= 0 or size & (size - 1):
                raise ValueError(f"Shape element {place} must be a power of 2; got {self.block_shape}")
        width = self.base.dtype.itemsize
        if hasattr(self.base, "data_ptr") and getattr(self.base, "is_cuda", False):
            assert self.base.data_ptr() % 16 == 0, "base must be 16-byte aligned"
        for stride in self.strides[:-1]:
            assert stride * width % 16 == 0, "strides must be 16-byte aligned"
        for size in self.shape:
            assert size > 0, "shape must be positive"
        assert self.strides[-1] == 1, "Last dimension must be contiguous"
        assert self.padding in ("zero", "nan"), "Illegal value for padding"
        scalar = find_scalar(self.base.dtype)
        if self.padding == "nan":
            assert scalar is not None and scalar.is_float, (
                "Padding option `nan` is only supported for floating point tensors"
            )
        if self.round_f32_to_tf32:
            assert scalar is not None and scalar.name == "f32", (
                "round_f32_to_tf32 is only supported for float32 tensors"
            )
            warn("round_f32_to_tf32 has no effect: blocks are loaded as f32", None)

    def __setattr__(self, name: str, value: Any) -> None:
        own = vars(self)
        if name in _FIELDS:
            fields = {field: own[field] for field in _FIELDS}
            own.clear()
            own.update(fields)
        own[name] = value

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if name not in _MADE or "base" not in own:
            raise AttributeError(name)
        block, shape, strides = map(tuple, (self.block_shape, self.shape, self.strides))
        plain = object.__new__(descriptors.TensorDescriptor)
        try:
            plain.__init__(self.base, block, shape=shape, strides=strides, padding=self.padding)
        finally:  # The array is known even where the block does not fit.
            own.update({**vars(plain), **{field: own[field] for field in _FIELDS}})
        return own[name]

    def __repr__(self) -> str:
        return f"TensorDescriptor({', '.join(f'{field}={getattr(self, field)!r}' for field in _FIELDS[1:])})"


_FIELDS = ("base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32")
# Attributes that are made of the fields once one of them is asked for: until a hook has set the block, it may not
# fit.
_MADE = frozenset({
    "array", "element", "address", "device", "host", "is_cuda", "type", "block", "row_bytes", "key", "numbers", "maps",
})  # fmt: skip
