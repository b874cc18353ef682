"""`triton.tools.ragged_tma`: descriptors of tensors whose rows are divided into segments of different lengths.

An access to a segment reads padding after its end and writes nothing there, though rows of the next segment follow. A
descriptor knows one size for each axis, so a segment is moved to the end of an axis: with `L` rows as the size, row `r`
of a segment of `n` rows has the index `L - n + r`, which is outside for `r >= n`. Two more axes take the address back.
The stride `2**34 - s` times the index `L = 2**30` is `-L * s`, because addresses have 64 bits; the stride `s` times the
index `offset + n` is added. Together with the row it is `(offset + r) * s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import ziggurat.triton.language as tl
from ziggurat.frontends.language.function import constexpr
from ziggurat.triton.runtime.jit import jit
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor

_ROWS: Any = tl.constexpr(1 << 30)
_ANY_SIZE: Final = 0x7FFF0000


def create_ragged_descriptor(T: Any, block_shape: Sequence[int], ragged_dim: int = 0) -> TensorDescriptor:
    """The descriptor of a tensor of two or three axes, for `load_ragged`, `store_ragged` and `atomic_add_ragged`.

    The rows along `ragged_dim`, at most 2**30, are divided into segments. Raises `AssertionError` for another tensor.
    """
    rank, rows = len(T.shape), _ROWS.value
    ragged_dim += rank if ragged_dim < 0 else 0
    assert rank <= 3, f"a ragged descriptor must have at most 3 axes; got {rank}"
    assert 0 <= ragged_dim < rank - 1, f"the last axis cannot be ragged; got {ragged_dim} of {rank} axes"
    assert len(block_shape) == rank, f"the block must have {rank} sizes; got {list(block_shape)}"
    assert T.shape[ragged_dim] <= rows, f"a ragged axis must have at most 2**30 rows; got {T.shape[ragged_dim]}"
    step = T.stride(ragged_dim)
    shape = [rows if axis == ragged_dim else size for axis, size in enumerate(T.shape)]
    strides = [(1 << 34) - step, step, *(T.stride(axis) for axis in range(rank))]
    return TensorDescriptor(T, [_ANY_SIZE, _ANY_SIZE, *shape], strides, [1, 1, *block_shape])


@jit
def _indices(batch_offset: Any, batch_size: Any, coords: Any, ragged_dim: constexpr) -> Any:
    """The indices of a block for a row of a segment."""
    row = _ROWS - batch_size + coords[ragged_dim]
    after = coords[ragged_dim + 1 :]
    return (_ROWS, batch_offset + batch_size) + coords[:ragged_dim] + (row,) + after  # noqa: RUF005 (a kernel)


@jit
def load_ragged(TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, ragged_dim: constexpr = 0) -> Any:
    """The block at `coords` of the segment that begins at row `batch_offset` and has `batch_size` rows."""
    tl.static_assert(len(TMA.shape) == len(coords) + 2, "the descriptor must be one of create_ragged_descriptor")
    block = TMA.load(_indices(batch_offset, batch_size, coords, ragged_dim))
    return tl.reshape(block, block.shape[2:])


@jit
def store_ragged(
    TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, data: Any, ragged_dim: constexpr = 0
) -> None:
    """Write a block at `coords` of a segment; elements after its end are not written."""
    TMA.store(_indices(batch_offset, batch_size, coords, ragged_dim), tl.expand_dims(data, (0, 1)))


@jit
def atomic_add_ragged(
    TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, data: Any, ragged_dim: constexpr = 0
) -> None:
    """Add a block atomically at `coords` of a segment; elements after its end are not changed."""
    TMA.atomic_add(_indices(batch_offset, batch_size, coords, ragged_dim), tl.expand_dims(data, (0, 1)))
