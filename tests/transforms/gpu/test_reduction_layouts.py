"""Reductions and scans within warps: the stages combine each element once, in layouts in which they can run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.layout import Layout, bits_of, blocked
from ziggurat.transforms.gpu.lower import (
    ReductionStage,
    in_lanes,
    reduction_stages,
    run_of_warps,
    scan_layout,
    scans_within_warps,
)


def along(layout_bases: Sequence[int], shape: Sequence[int], axis: int) -> list[int]:
    """The bases that have bits of the axis."""
    low = math.prod(shape[axis + 1 :])
    return [basis for basis in layout_bases if basis // low % shape[axis]]


@st.composite
def layouts(draw: Any, apart: bool = False) -> tuple[Layout, tuple[int, ...], int]:
    """A layout of a tensor, with some copies, and one of the tensor's axes."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    warp_bits = draw(st.integers(0, 3))
    bases = draw(st.permutations([1 << bit for bit in range(bits_of(math.prod(shape)))]))
    if not apart and len(bases) > 1 and draw(st.booleans()):
        bases[0] ^= bases[1]  # Bits of two axes, or two of one, move together.
    places = [draw(st.integers(0, 2)) for _ in bases]
    values: list[list[int]] = [[b for b, p in zip(bases, places, strict=True) if p == place] for place in range(3)]
    for place, room in ((1, 5), (2, warp_bits)):
        values[0] += values[place][room:]
        values[place] = draw(st.permutations(values[place][:room] + [0] * (room - len(values[place]))))
    return Layout(tuple(values[0]), tuple(values[1]), tuple(values[2])), shape, axis


def reduced(values: Any, stages: Sequence[ReductionStage]) -> Any:
    """The result of the stages for an array."""
    for stage in stages:
        for shape, order in stage.moves:
            values = values.reshape(shape).transpose(order)
        values = values.reshape(stage.shape).sum(axis=stage.axis)
    return values


@settings(max_examples=50)
@given(layouts())
def test_reductions_combine_all_of_the_axis_within_warps(case: tuple[Layout, tuple[int, ...], int]) -> None:
    layout, shape, axis = case
    began, stages = reduction_stages(layout, shape, axis)
    assert began.covers(math.prod(shape)) and began.num_warps == layout.num_warps
    values = np.random.default_rng(0).integers(0, 1 << 40, shape)
    np.testing.assert_array_equal(reduced(values, stages), values.sum(axis=axis))
    current = began
    for stage in stages:
        for argument, order in stage.moves:
            current = current.transposed(argument, order)
        current = stage.layout or current
        assert current.covers(math.prod(stage.shape))
        assert not along(current.warps, stage.shape, stage.axis)
        current = current.dropped(stage.shape, stage.axis)
    # Each lane and warp has the same elements as after a reduction in one step.
    expected = began.dropped(shape, axis)
    assert (current.lanes, current.warps) == (expected.lanes, expected.warps)


def test_a_reduction_within_warps_keeps_its_layout() -> None:
    layout = blocked((8, 64), (1, 0), 2, 4)
    assert reduction_stages(layout, (8, 64), 1) == (layout, (ReductionStage((), (8, 64), 1),))


def test_a_reduction_across_warps_has_two_stages() -> None:
    """The first is within each warp, the second of one number of each warp."""
    layout = blocked((1024,), (0,), 4, 4)
    began, (first, last) = reduction_stages(layout, (1024,), 0)
    assert began == layout
    assert (first.shape, first.axis, first.layout) == ((4, 256), 1, None)
    # Bits 7 and 8 are those of the warps; bit 9 is held in registers.
    assert first.moves == (((2, 4, 128), (1, 0, 2)),)
    assert (last.shape, last.axis, last.moves) == ((4,), 0, ())
    assert last.layout is not None and not any(last.layout.registers)
    assert (last.layout.lanes, last.layout.warps) == ((1, 2, 0, 0, 0), (0, 0))


def test_an_axis_that_only_warps_hold_has_one_stage() -> None:
    layout = Layout((), (4, 8, 16, 32, 64), (1, 2))
    _, (only,) = reduction_stages(layout, (32, 4), 1)
    assert (only.shape, only.axis, only.moves) == ((32, 4), 1, ())
    assert only.layout is not None and only.layout.warps == (0, 0)


def test_bases_of_two_axes_are_separated_first() -> None:
    layout = Layout((), (1 | 32, 2, 4, 8, 16), (32,))  # Lane 1 is in the next row, and in the next column.
    began, (only,) = reduction_stages(layout, (2, 32), 1)
    assert began == Layout((), (1, 2, 4, 8, 16), (32,)) and only.layout is None


@settings(max_examples=50)
@given(layouts())
def test_scans_can_run_in_their_layout(case: tuple[Layout, tuple[int, ...], int]) -> None:
    layout, shape, axis = case
    actual = scan_layout(layout, shape, axis)
    assert scans_within_warps(actual, shape, axis)
    assert actual.covers(math.prod(shape)) and actual.num_warps == layout.num_warps
    if scans_within_warps(layout, shape, axis):
        assert actual == layout


@settings(max_examples=50)
@given(layouts())
def test_runs_of_a_warp(case: tuple[Layout, tuple[int, ...], int]) -> None:
    """Each warp holds whole runs, and none that are longer."""
    layout, shape, axis = case
    run, low = run_of_warps(layout, shape, axis), math.prod(shape[axis + 1 :])
    assert shape[axis] % run == 0
    if run == 1:
        return
    owners: dict[int, set[int]] = {}
    for warp in range(layout.num_warps):
        for register in range(layout.num_registers):
            for lane in range(32):
                owners.setdefault(layout.element(register, lane, warp), set()).add(warp)
    numbers = np.arange(math.prod(shape)).reshape(-1, shape[axis] // run, run, low)
    for outer, turn, inner in np.ndindex(numbers.shape[0], numbers.shape[1], low):
        assert len({frozenset(owners[int(n)]) for n in numbers[outer, turn, :, inner]}) == 1
    first, after = (numbers[0, turn, 0, 0] for turn in (0, 1))
    assert owners[int(first)] != owners[int(after)], "a run ends where another warp goes on"
    short = in_lanes(shape, axis, layout.num_warps)
    assert scans_within_warps(short, shape, axis) and short.covers(math.prod(shape))
    assert short.num_warps == layout.num_warps


@settings(max_examples=50)
@given(layouts(apart=True))
def test_an_axis_within_a_warp_stays_in_it(case: tuple[Layout, tuple[int, ...], int]) -> None:
    """If each warp has the whole axis, nothing goes to another warp."""
    layout, shape, axis = case
    if along(layout.warps, shape, axis):
        return
    actual = scan_layout(layout, shape, axis)
    assert actual.warps == layout.warps
    assert sorted((*actual.registers, *actual.lanes)) == sorted((*layout.registers, *layout.lanes))


def test_runs_of_the_layouts_of_loads() -> None:
    assert run_of_warps(blocked((1024,), (0,), 4, 4), (1024,), 0) == 128
    assert run_of_warps(blocked((128, 64), (1, 0), 4, 4), (128, 64), 0) == 2
    assert run_of_warps(blocked((128, 64), (1, 0), 4, 4), (128, 64), 1) == 1  # No warp lacks anything.
    assert run_of_warps(Layout((), (2, 4, 8, 16, 32), (1,)), (64,), 0) == 1
    assert run_of_warps(Layout((), (1 | 32, 2, 4, 8, 16), (32,)), (64,), 0) == 1  # Not apart.


@pytest.mark.parametrize(("layout", "runs"), [
    (Layout((1,), (2, 4, 8, 16, 32), (64, 128)), True),  # Rows of 64: registers, then lanes; warps by rows.
    (Layout((1, 64, 32), (2, 4, 8, 16, 128), (0, 0)), True),  # The highest bit of a row in registers again.
    (Layout((1, 4), (2, 8, 16, 32, 64), (128, 0)), False),  # A register between two lanes.
    (Layout((1,), (2, 8, 4, 16, 32), (64, 128)), False),  # Lanes out of order.
    (Layout((1,), (2, 4, 8, 16, 64), (32, 128)), False),  # Warps hold parts of a row.
    (Layout((1 | 2,), (2, 4, 8, 16, 32), (64, 128)), False),  # Two bits of the row move together.
    (Layout((128, 64, 1), (2, 4, 8, 16, 32), (0, 0)), True),  # Copies in warps, other rows in registers.
])  # fmt: skip
def test_where_a_scan_runs(layout: Layout, runs: bool) -> None:
    assert layout.covers(256)
    assert scans_within_warps(layout, (4, 64), 1) is runs


def test_the_layout_of_a_scan_is_close_to_that_of_its_operand() -> None:
    """Warps that hold parts of a row exchange them for registers of other rows; lanes do not change."""
    layout = Layout((1, 64, 128), (2, 4, 8, 16, 0), (32, 256))
    assert scan_layout(layout, (8, 64), 1) == Layout((1, 64, 32), (2, 4, 8, 16, 0), (128, 256))
    alone = Layout((1,), (2, 4, 8, 16, 0), (32,))
    assert scan_layout(alone, (64,), 0) == Layout((1, 32), (2, 4, 8, 16, 0), (0,))
