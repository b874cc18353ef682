"""Segments of rows through descriptors, interpreted and as compiled code."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.tools.ragged_tma import atomic_add_ragged, create_ragged_descriptor, load_ragged, store_ragged

torch = pytest.importorskip("torch")


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
