"""Grids: one to three sizes, however they are given."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.grids import MOST, Constants, sizes_of


@pytest.mark.parametrize(
    ("grid", "sizes"),
    [
        (3, (3,)),
        ((3,), (3,)),
        ([2, 3], (2, 3)),
        ((1, 2, 3), (1, 2, 3)),
        (range(1, 3), (1, 2)),
        (np.array([4, 5]), (4, 5)),
        (np.int64(7), (7,)),
        (0, (0,)),
        (True, (1,)),
        (MOST, (MOST,)),
        ((size for size in (2, 2)), (2, 2)),
    ],
)
def test_sizes(grid, sizes):
    found = sizes_of(grid, "k")
    assert found == sizes and all(type(size) is int for size in found)


@pytest.mark.parametrize(
    "grid", [(), (1, 2, 3, 4), -1, (1, -1), MOST + 1, 1.0, (1.0,), "16", ("1",), None, {1: 2}, ((1, 2),), np.float32(1)]
)
def test_what_is_no_grid(grid):
    with pytest.raises(zg.LaunchError, match="the grid of 'k' has one to three sizes, integers from 0 to") as caught:
        sizes_of(grid, "k")
    assert caught.value.hint == "k[(zg.cdiv(n, BLOCK),)](…)"


def test_a_long_grid_is_cut_short():
    with pytest.raises(zg.LaunchError) as caught:
        sizes_of(list(range(100)), "k")
    assert len(caught.value.summary) < 160 and caught.value.summary.endswith("…")


def test_constants_by_name():
    meta = Constants("k", {"BLOCK": 64, "FLAG": True})
    assert meta["BLOCK"] == 64 and dict(meta) == {"BLOCK": 64, "FLAG": True}
    with pytest.raises(zg.LaunchError, match="the grid of 'k' asks for 'n', which is no constexpr parameter") as caught:
        meta["n"]
    assert caught.value.hint == "it has 'BLOCK', 'FLAG'"
    with pytest.raises(zg.LaunchError) as caught:
        Constants("k", {})["n"]
    assert caught.value.hint == "it has none"
