"""Grids of one to three sizes, as an integer or a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.launch.grids import MAX_SIZE, Meta, computed_grid, gpu_sizes, sizes_of, three


@pytest.mark.parametrize(
    ("grid", "sizes"),
    [
        (3, (3,)),
        ((3,), (3,)),
        ([2, 3], (2, 3)),
        ((1, 2, 3), (1, 2, 3)),
        ((1, 528, 1, 1), (1, 528, 1)),
        (range(1, 3), (1, 2)),
        (np.array([4, 5]), (4, 5)),
        (np.int64(7), (7,)),
        (0, (0,)),
        (MAX_SIZE, (MAX_SIZE,)),
    ],
)
def test_sizes(grid, sizes):
    actual = sizes_of(grid, "k")
    assert actual == sizes and all(type(size) is int for size in actual)


@pytest.mark.parametrize(
    "grid",
    [
        (), (1, 2, 3, 4), -1, (1, -1), MAX_SIZE + 1, 1.0, (1.0,), "16", ("1",), None, {1: 2}, ((1, 2),), np.float32(1),
        True, (True,), np.bool_(True), {1, 2}, (size for size in (2, 2)), iter((2,)), b"12",
        np.ones((2, 2), int), (10**5000,),
    ],
)  # fmt: skip
def test_other_things_are_no_grids(grid):
    with pytest.raises(zg.LaunchError, match="the grid of 'k' must be one to three sizes, integers from 0 to") as error:
        sizes_of(grid, "k")
    assert error.value.hint == "k[(zg.cdiv(n, BLOCK),)](…)"


def test_a_long_grid_is_shortened_in_the_message():
    with pytest.raises(zg.LaunchError) as error:
        sizes_of(list(range(100)), "k")
    assert len(error.value.summary) < 160 and error.value.summary.endswith("…")


def test_sizes_on_a_gpu():
    assert gpu_sizes((5, np.int64(3)), "k") == (5, 3, 1)
    assert gpu_sizes((MAX_SIZE, 65535, 65535), "k") == (MAX_SIZE, 65535, 65535)
    for grid in ((1, 65536), (1, 1, 65536)):
        with pytest.raises(zg.LaunchError, match="at most 2147483647 × 65535 × 65535 on a GPU; got"):
            gpu_sizes(grid, "k")
    with pytest.raises(zg.LaunchError, match="one to three sizes"):
        gpu_sizes(None, "k")


def test_grids_for_the_driver():
    assert three(4) == (4, 1, 1) and three((4, 5)) == (4, 5, 1) and three((4, 5, 6)) == (4, 5, 6)
    for argument in (None, (), (1, 2, 3, 4), [4], np.int64(4), 4.0):
        with pytest.raises(TypeError):
            three(argument)


def test_arguments_by_name():
    meta = Meta({"BLOCK": 64, "FLAG": True})
    assert meta["BLOCK"] == 64 and dict(meta) == {"BLOCK": 64, "FLAG": True}
    for constants, hint in (({"BLOCK": 64, "FLAG": True}, "it has 'BLOCK', 'FLAG'"), ({}, "it has none")):
        with pytest.raises(zg.LaunchError) as error:
            computed_grid(lambda meta: meta["n"], "k", constants)
        assert error.value.summary == "the grid of 'k' asks for 'n', which is no parameter of it"
        assert error.value.hint == hint


def test_a_function_of_the_grid_may_catch_what_it_does_not_find():
    def grid(meta: dict[str, Any]) -> int:
        try:
            return meta["n"]
        except KeyError:
            return 7

    assert computed_grid(grid, "k", {}) == 7
