"""The memory of arrays: strides that are numbers of a launch, gaps, and the elements at an address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ziggurat.backend.launch.regions import NO_AXIS, Region, grouped, known_stride

WIDE = np.zeros((4, 6), np.float32)


@pytest.mark.parametrize(
    ("array", "numbers", "stride"),
    [
        (WIDE, [6], (0, 6)), (WIDE, [5, 6], (0, 6)), (WIDE, [5], None), (WIDE, [24], None),
        (WIDE.T, [6], (1, 6)), (WIDE[:, ::2], [2], (1, 2)), (WIDE[:, ::2], [2, 6], (0, 6)),
        # 1 tells nothing unless all strides are 1, and there are as many such numbers.
        (WIDE, [1], None), (WIDE[0], [1], (NO_AXIS, 1)), (WIDE[0], [], None), (WIDE[0], [3], None),
        (WIDE[:1, :], [1], (NO_AXIS, 1)), (WIDE[:1, :1], [1], None),
        (np.broadcast_to(WIDE[0], (3, 6)), [1], (NO_AXIS, 1)),
        (np.broadcast_to(WIDE[0, 0], (3,)), [1], None), (np.float32(1).reshape(()), [1], None),
    ],
)  # fmt: skip
def test_strides_that_are_numbers_of_a_launch(array: Any, numbers: list[int], stride: tuple[int, int] | None) -> None:
    """`numbers` tells where each of them is among the arguments."""
    places = {number: [at for at, other in enumerate(numbers) if other == number] for number in numbers}
    assert known_stride(array, places) == stride


@pytest.mark.parametrize(
    ("arrays", "size", "has_gaps"),
    [
        ([WIDE], 96, False), ([WIDE[:, ::2]], 92, True), ([WIDE[::2]], 72, True), ([WIDE[:2], WIDE[2:]], 96, True),
        ([WIDE, WIDE[:, ::2]], 96, False), ([WIDE[1:3]], 48, False), ([WIDE.T], 96, False), ([WIDE[::-1]], 96, False),
        ([WIDE[0, :0]], 0, False),
    ],
)  # fmt: skip
def test_gaps_between_elements(arrays: list[Any], size: int, has_gaps: bool) -> None:
    region = Region(arrays)
    assert (region.high - region.low, len(region.bytes), region.has_gaps) == (size, size, has_gaps)


def test_the_elements_at_an_address() -> None:
    region = Region([WIDE[:, ::2], WIDE[1]])
    region.names = ["x", "y"]
    start = WIDE.ctypes.data
    assert region.elements(start) == ["x[0]"]
    assert region.elements(start + 24) == ["x[6]", "y[0]"]
    assert region.elements(start + 24 + 7) == ["x[7]", "y[1]"]
    assert region.elements(start + 47) == ["x[11]", "y[5]"] and region.elements(start + 48) == ["x[12]"]
    assert region.elements(start + 92) == []


@pytest.mark.parametrize("views", [False, True])
def test_arrays_that_overlap_are_one_group(views: bool) -> None:
    other = np.zeros(3, np.float32)
    groups = [sorted(group) for group in grouped([WIDE[2:], other, WIDE[:1], WIDE[1:3]], views=views)]
    assert sorted(groups) == ([[0, 2, 3], [1]] if views else [[0, 3], [1], [2]])
