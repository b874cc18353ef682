"""Segments of rows through descriptors, interpreted and as compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.tools.ragged_tma import atomic_add_ragged, create_ragged_descriptor, load_ragged, store_ragged

torch = require("torch")


@triton.jit
def move(x_desc, y_desc, x_offset, y_offset, x_rows, y_rows, ADDS: tl.constexpr):
    block = load_ragged(x_desc, x_offset, x_rows, [0, 8])
    if ADDS:
        atomic_add_ragged(y_desc, y_offset, y_rows, [0, 8], block)
    else:
        store_ragged(y_desc, y_offset, y_rows, [0, 8], block)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_segments(adds: bool, is_compiled: bool):
    x, y = torch.arange(20 * 16).float().reshape(20, 16), torch.full((30, 16), -1.0)
    x_desc, y_desc = (create_ragged_descriptor(tensor, [8, 16]) for tensor in (x, y))
    launch = move[(1,)]
    if is_compiled:
        types = (x_desc.type, y_desc.type, zg.i32, zg.i32, zg.i32, zg.i32, adds)
        launch = move.compile(*types, target="sm_90a").simulate[(1,)]
    launch(x_desc, y_desc, 7, 11, 3, 6, *(() if is_compiled else (adds,)))
    # 3 rows of x are read, from row 7 on, and 6 rows of y are written, from row 11 on; the block begins at column 8.
    expected = np.full((30, 16), -1.0, np.float32)
    if not adds:
        expected[11:17, 8:] = 0
    expected[11:14, 8:] = x[7:10, 8:] + (-1 if adds else 0)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_tensors_that_are_not_ragged():
    with pytest.raises(AssertionError, match="the last axis cannot be ragged"):
        create_ragged_descriptor(torch.zeros(4, 16), [4, 16], ragged_dim=-1)
    with pytest.raises(AssertionError, match="at most 3 axes; got 4"):
        create_ragged_descriptor(torch.zeros(2, 2, 4, 16), [1, 1, 4, 16])
    with pytest.raises(ValueError, match="Shape element 2 must be a power of 2"):
        create_ragged_descriptor(torch.zeros(4, 16), [3, 16])


@pytest.mark.parametrize("dim", [1, -2])
def test_addresses_of_a_ragged_axis(dim):
    """The index 2**30 of the first axis takes back what the end of the ragged axis adds, in 64 bits."""
    x = torch.zeros(4, 6, 16)
    descriptor = create_ragged_descriptor(x, [1, 2, 16], ragged_dim=dim)
    assert descriptor.shape == [0x7FFF0000, 0x7FFF0000, 4, 1 << 30, 16] and descriptor.block_shape == [1, 1, 1, 2, 16]
    assert descriptor.strides == [(1 << 34) - 16, 16, 96, 16, 1]
    step, back = descriptor.strides[1], descriptor.strides[0]
    assert ((1 << 30) * (back + step)) % (1 << 64) == 0
    first = create_ragged_descriptor(x, [1, 2, 16])
    assert first.shape[2:] == [1 << 30, 6, 16] and first.strides[:2] == [(1 << 34) - 96, 96]


def test_axes_that_cannot_be_ragged():
    for dim in (2, -1, -4, 3):
        with pytest.raises(AssertionError, match="the last axis cannot be ragged; got"):
            create_ragged_descriptor(torch.zeros(4, 6, 16), [1, 2, 16], ragged_dim=dim)
    with pytest.raises(AssertionError, match=r"the block must have 2 sizes; got \[4\]"):
        create_ragged_descriptor(torch.zeros(4, 16), [4])
    for rows, fits in ((1 << 30, True), ((1 << 30) + 1, False)):
        try:
            create_ragged_descriptor(Rows(rows), [4, 16])
        except AssertionError as error:
            assert not fits and f"at most 2**30 rows; got {rows}" in str(error)
        else:
            assert fits


class Rows:
    """A tensor of many rows without memory."""

    def __init__(self, rows):
        self.shape, self.dtype = (rows, 16), torch.float32

    def stride(self, axis):
        return (16, 1)[axis]
