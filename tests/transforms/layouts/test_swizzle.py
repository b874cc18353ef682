"""Buffers for conversions: a simulation of the 32 banks for random pairs of layouts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.layout import Layout, blocked, combine, inverted
from ziggurat.transforms.layouts.swizzle import (
    MatrixView,
    Moves,
    buffer_bases,
    conversion_buffer,
    matrix_view,
    moves,
    row_major,
    stores_matrices,
    turned_bytes,
    vector_bits,
    vector_moves,
    views,
)


@st.composite
def layouts(draw: st.DrawFn, bits: int, num_warps: int) -> Layout:
    """A layout of 2^bits elements whose bases are the bits in any order, with copies where there are more threads."""
    warp_bits = num_warps.bit_length() - 1
    order = draw(st.permutations(range(bits)))
    bases = [1 << bit for bit in order]
    threads = draw(st.permutations([*bases, *[0] * (5 + warp_bits)]))[: 5 + warp_bits]
    registers = [basis for basis in bases if basis not in threads]
    if draw(st.booleans()) and bits > 1:  # Not all maps are permutations of bits.
        a, b = draw(st.permutations(range(bits)))[:2]
        change = lambda basis: basis ^ (1 << b) if basis >> a & 1 else basis  # noqa: E731
        registers, threads = [change(x) for x in registers], [change(x) for x in threads]
    return Layout(tuple(registers), tuple(threads[:5]), tuple(threads[5:]))


def wavefronts(layout: Layout, offsets: tuple[int, ...], size: int) -> tuple[int, int]:
    """The accesses to the banks of one warp for all of a tensor's vectors, and their least possible number."""
    places = inverted(offsets)
    vector = vector_bits(layout, offsets, size)
    width = size << len(vector)
    together = max(1, 32 // max(1, width // 4))
    requested = least = 0
    for register in range(layout.num_registers):
        if any(register >> bit & 1 for bit in vector):
            continue
        for first in range(0, 32, together):
            words: dict[int, set[int]] = {}
            for lane in range(first, first + together):
                start = combine(places, layout.element(register, lane)) * size
                for byte in range(start, start + width):
                    words.setdefault(byte // 4 % 32, set()).add(byte // 128)
            requested += max(map(len, words.values()))
            least += 1
    return requested, least


@settings(max_examples=150)
@given(st.data())
def test_no_conflicts_between_random_layouts(data: st.DataObject) -> None:
    bits = data.draw(st.integers(1, 12))
    size = data.draw(st.sampled_from([1, 2, 4, 8]))
    num_warps = data.draw(st.sampled_from([1, 4, 8]))
    pair = [data.draw(layouts(bits, num_warps)) for _ in range(2)]
    offsets = buffer_bases(pair[0], pair[1], 1 << bits, size)
    assert sorted(map(combine_all(offsets), range(1 << bits))) == list(range(1 << bits))
    for layout in pair:
        requested, least = wavefronts(layout, offsets, size)
        assert requested == least, (layout, offsets)


def combine_all(offsets: tuple[int, ...]):  # type: ignore[no-untyped-def]
    return lambda place: combine(offsets, place)


def test_neighbours_in_a_thread_on_both_sides_move_as_a_vector() -> None:
    rows = Layout((1, 2, 4), (8, 16, 32, 64, 128), (256, 512))
    columns = Layout((1, 2, 4), (256, 512, 8, 16, 32), (64, 128))
    offsets = buffer_bases(rows, columns, 1024, 2)
    assert [len(vector_bits(layout, offsets, 2)) for layout in (rows, columns)] == [3, 3]


def test_a_transpose_writes_or_reads_vectors() -> None:
    shape = (64, 64)
    rows, columns = blocked(shape, (1, 0), 4, 4), blocked(shape, (0, 1), 4, 4)
    for size, widest in ((2, 3), (4, 2), (8, 1)):
        offsets = buffer_bases(rows, columns, 4096, size)
        widths = [len(vector_bits(layout, offsets, size)) for layout in (rows, columns)]
        assert max(widths) == widest, (size, widths)


def test_rows_in_order_conflict() -> None:
    """Columns of a buffer without a swizzle conflict in the simulation."""
    columns = Layout((1, 2), (64, 128, 256, 512, 1024), ())
    requested, least = wavefronts(Layout((1, 2, 4, 8, 16, 32), columns.lanes, ()), row_major(2048), 4)
    assert requested == 8 * least


def test_a_buffer_smaller_than_a_line() -> None:
    one = Layout((), (0, 0, 0, 0, 0), (0, 0))
    assert buffer_bases(one, one, 1, 4) == ()
    few = Layout((), (0, 0, 0, 0, 0), (1, 2))
    assert sorted(buffer_bases(few, Layout((), (1, 2, 0, 0, 0), (0, 0)), 4, 4)) == [1, 2]


# Matrices of 8 rows: the layouts that have them, and buffers without conflicts.


def fragments(rows: int, columns: int, num_warps: int) -> Layout:
    """The layout of an accumulator: m16n8 tiles of a row-major tensor; warps have further rows."""
    down = [columns << bit for bit in range((rows - 1).bit_length())]
    across = [1 << bit for bit in range((columns - 1).bit_length())]
    count = num_warps.bit_length() - 1
    warps, rest = down[4 : 4 + count], down[4 + count :]
    return Layout((1, down[3], *across[3:], *rest), (2, 4, *down[:3]), tuple(warps))


def conflicts(view: MatrixView, offsets: tuple[int, ...], size: int) -> int:
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
                assert vector_moves(layout, offsets, 2).cost == least
            else:
                assert view.count == 4 and conflicts(view, offsets, 2) == 1


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_accumulators_in_rows_and_in_columns(order: tuple[int, int]) -> None:
    """Plain matrices for a buffer in rows, transposed ones for a buffer in columns."""
    sums, target = fragments(64, 128, 4), blocked((64, 128), order, 8, 4)
    plain, trans = views(sums, 2)
    expected = trans if order == (0, 1) else plain
    offsets = buffer_bases(expected.layout, target, 64 * 128, 2)
    assert matrix_view(sums, offsets, 2) == expected and conflicts(expected, offsets, 2) == 1
    assert len(vector_bits(target, offsets, 2)) == 3


@pytest.mark.parametrize(("size", "within"), [(1, 2), (2, 1), (4, 0)])
def test_words_of_any_elements_make_rows(size: int, within: int) -> None:
    registers = tuple(1 << bit for bit in range(within)) + (128, 256)
    layout = Layout(registers, tuple((1 << within) << bit for bit in range(5)), ())
    plain = next(iter(views(layout, size)))
    assert plain.layout.registers[: within + 2] == tuple(1 << bit for bit in range(within + 2))
    assert plain.layout.lanes == (*layout.lanes[2:], 128, 256) and plain.matrices == (within, within + 1)
    assert [view.trans for view in views(layout, size)] == [False] + [True] * {1: 2, 2: 1, 4: 0}[size]


def test_pairs_of_bytes_are_transposed() -> None:
    """A word of two bytes of two rows: from 8 rows of 16 bytes, each lane gets its two columns of two rows."""
    n = 64
    layout = Layout((n, 1, 16, 8 * n), (2 * n, 4 * n, 2, 4, 8), ())
    _, _, trans = views(layout, 1)
    assert trans.word == (1, 0) and trans.matrices == (2, 3)
    assert trans.layout == Layout((1, 2, 4, 8), (n, 2 * n, 4 * n, 16, 8 * n), ())


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


def test_bytes_whose_neighbours_in_memory_lie_along_m() -> None:
    """A tile of 64 by 32 bytes for a wgmma of 4 warps: one ldmatrix moves the 16 bytes of a thread."""
    lanes, warps = (256, 512, 2, 4, 8 | 1), (16, 32)
    offsets = (1, 2, 4, 8, 16, 32, 64, 128 | 16, 256 | 32, 512, 1024)
    tile = Layout((64, 128, 1, 1024), lanes, warps)
    assert turned_bytes(tile, offsets, 1) == (64, 288, 656, 144, 1024, 16, 32)
    assert moves(tile, offsets, 1, matrices=True) == Moves(1, 16, 4)
    assert moves(tile, offsets, 1, matrices=False) == vector_moves(tile, offsets, 1) != Moves(1, 16, 4)
    assert turned_bytes(tile, offsets, 2) is None, "words of two bytes have a transposing ldmatrix of their own"
    assert turned_bytes(Layout((64, 128, 1), lanes, warps), offsets, 1) is None, "not the four depths of two rows"
    assert turned_bytes(Layout((64, 128, 1, 0), lanes, warps), offsets, 1) is None, "copies of half of them"
    assert turned_bytes(Layout((64, 128, 1, 1024), lanes, (16 | 2, 32)), offsets, 1) is None, "warps begin within a row"
    assert turned_bytes(tile, tuple(1 << bit for bit in range(11)), 1) is not None, "without a swizzle as well"
    assert turned_bytes(tile, (2, 1, *offsets[2:]), 1) is None, "other neighbours in the buffer"
