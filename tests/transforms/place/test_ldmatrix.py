"""Matrices of 8 rows: the layouts that have them, and buffers without conflicts."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.layout import Layout, blocked, combine, inverted
from ziggurat.transforms.place.swizzle import (
    View,
    buffer_bases,
    conversion_buffer,
    matrix_view,
    stores_matrices,
    vector_bits,
    vector_cost,
    views,
)


def fragments(rows: int, columns: int, num_warps: int) -> Layout:
    """The layout of an accumulator: m16n8 tiles of a row-major tensor; warps have further rows."""
    down = [columns << bit for bit in range((rows - 1).bit_length())]
    across = [1 << bit for bit in range((columns - 1).bit_length())]
    count = num_warps.bit_length() - 1
    warps, rest = down[4 : 4 + count], down[4 + count :]
    return Layout((1, down[3], *across[3:], *rest), (2, 4, *down[:3]), tuple(warps))


def conflicts(view: View, offsets: tuple[int, ...], size: int) -> int:
    """The largest number of rows of a matrix in the same 16 bytes of the banks."""
    places = inverted(offsets)
    rows = [combine(places, view.layout.element(0, lane)) * size for lane in range(8)]
    assert all(row % 16 == 0 for row in rows)
    groups = [row // 16 % 8 for row in rows]
    return max(map(groups.count, groups))


@pytest.mark.parametrize(("rows", "columns", "num_warps"), [(64, 128, 4), (128, 64, 8), (16, 32, 1), (128, 256, 4)])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_accumulators_become_coalesced_as_matrices(
    rows: int, columns: int, num_warps: int, order: tuple[int, int]
) -> None:
    """The epilogue of a dot, and operands from coalesced loads: 16 bytes an instruction on both sides."""
    sums, rows_ = fragments(rows, columns, num_warps), blocked((rows, columns), order, 8, num_warps)
    least = rows * columns // (32 * num_warps) // 8 * 4.5
    for source, target in ((sums, rows_), (rows_, sums)):
        offsets = conversion_buffer(source, target, rows * columns, 2, True)
        for layout in (source, target):
            view = matrix_view(layout, offsets, 2)
            if view is None:
                assert vector_cost(layout, offsets, 2) == least
            else:
                assert view.count == 4 and conflicts(view, offsets, 2) == 1


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_accumulators_in_rows_and_in_columns(order: tuple[int, int]) -> None:
    """Plain matrices for a buffer in rows, transposed ones for a buffer in columns."""
    sums, target = fragments(64, 128, 4), blocked((64, 128), order, 8, 4)
    plain, trans = views(sums, 2)
    wanted = trans if order == (0, 1) else plain
    offsets = buffer_bases(wanted.layout, target, 64 * 128, 2)
    assert matrix_view(sums, offsets, 2) == wanted and conflicts(wanted, offsets, 2) == 1
    assert len(vector_bits(target, offsets, 2)) == 3


@pytest.mark.parametrize(("size", "within"), [(1, 2), (2, 1), (4, 0)])
def test_words_of_any_elements_make_rows(size: int, within: int) -> None:
    registers = tuple(1 << bit for bit in range(within)) + (128, 256)
    layout = Layout(registers, tuple((1 << within) << bit for bit in range(5)), ())
    plain = next(iter(views(layout, size)))
    assert plain.layout.registers[: within + 2] == tuple(1 << bit for bit in range(within + 2))
    assert plain.layout.lanes == (*layout.lanes[2:], 128, 256) and plain.matrices == (within, within + 1)
    assert len(list(views(layout, size))) == (2 if size == 2 else 1)


def test_no_matrices_of_wide_elements_and_of_copies() -> None:
    wide = Layout((1, 2), (4, 8, 16, 32, 64), ())
    assert not list(views(wide, 8))
    copies = Layout((1, 2), (4, 8, 0, 16, 32), ())
    assert not stores_matrices(copies) and [view.trans for view in views(copies, 2)] == [False]


def test_vectors_are_as_good_as_matrices() -> None:
    """If both sides have 16 neighbouring bytes, matrices gain nothing."""
    rows = Layout((1, 2, 4), (8, 16, 32, 64, 128), (256, 512))
    columns = Layout((1, 2, 4), (256, 512, 8, 16, 32), (64, 128))
    offsets = conversion_buffer(rows, columns, 1024, 2, True)
    assert matrix_view(rows, offsets, 2) is None and matrix_view(columns, offsets, 2) is None
