"""Layouts as linear maps: the place of every element, and layouts of other shapes."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.layout import (
    Layout,
    Span,
    bits_of,
    blocked,
    combine,
    inverse,
    inverted,
    moved,
    parse_layout,
    replicated,
)  # fmt: skip


@st.composite
def layouts(draw: st.DrawFn, bits: int = 8) -> Layout:
    """Layouts of 2^bits elements: the unit bases and some zeros, mixed and dealt to registers, lanes and warps."""
    bases = [1 << bit for bit in range(bits)]
    for _ in range(draw(st.integers(0, 12))):
        a, b = draw(st.tuples(st.integers(0, bits - 1), st.integers(0, bits - 1)))
        if a != b:
            bases[a] ^= bases[b]
    slots = bases + [0] * draw(st.integers(0, 3))
    slots = draw(st.permutations(slots + [0] * max(0, 7 - len(slots))))
    return Layout(tuple(slots[7:]), tuple(slots[:5]), tuple(slots[5:7]))


def places(layout: Layout):
    return itertools.product(range(layout.num_registers), range(32), range(layout.num_warps))


def test_the_example_of_the_module():
    layout = Layout((1, 2), (4, 8, 16, 32, 64), (128, 256))
    assert layout.element(register=3, lane=1, warp=0) == 7
    assert (layout.num_registers, layout.num_warps, layout.numel) == (4, 4, 512)
    assert layout == blocked((512,), (0,), 4, 4)
    assert str(layout) == "1 2 | 4 8 16 32 64 | 128 256" and parse_layout(str(layout)) == layout


@pytest.mark.parametrize("text", ["1 2", "1 | 2 | 4 | 8", "1 | 2 x | 4", "1 | 2 4 | 8", "1 1 | 2 4 8 16 32 | 64"])
def test_malformed_layouts(text):
    with pytest.raises(ValueError):
        parse_layout(text)


def test_small_functions():
    assert [bits_of(n) for n in (1, 2, 64)] == [0, 1, 6]
    assert combine((1, 6, 8), 0b011) == 7 and combine((), 5) == 0
    span = Span([1, 2, 4, 3, 0, 16])
    assert len(span) == 4 and not span.add(7) and not span.add(0) and span.add(25)
    assert span.reduced(11) == (0, 0b11010), "2, 16 and 25 are the second, fourth and fifth that it grew by"


@settings(max_examples=15)
@given(layouts())
def test_every_element_is_held_and_found(layout: Layout):
    assert layout.covers(256) and not layout.covers(512)
    values = {layout.element(*place) for place in places(layout)}
    assert values == set(range(256))
    for element in range(0, 256, 7):
        assert layout.element(*layout.locate(element, 256)) == element
    assert parse_layout(str(layout)) == layout


@settings(max_examples=15)
@given(layouts())
def test_free_bits_tell_copies_apart(layout: Layout):
    registers, lanes, warps = layout.free
    for register, lane, warp in [(registers, lanes, warps), (registers, 0, 0), (0, lanes, warps)]:
        assert layout.element(register, lane, warp) == 0
    assert bin(registers).count("1") + bin(lanes).count("1") + bin(warps).count("1") == len(layout.bases) - 8


@settings(max_examples=15)
@given(layouts(), layouts())
def test_what_a_thread_holds_of_another_layout(source: Layout, target: Layout):
    table = moved(source, target, 256)
    where = {}
    for register, lane, warp in places(source):
        where.setdefault((lane, warp), {}).setdefault(source.element(register, lane, warp), []).append(register)
    if table is None:
        return
    for register, lane, warp in places(target):
        assert table[register] in where[lane, warp][target.element(register, lane, warp)]


def test_a_layout_holds_its_own_elements():
    layout = blocked((16, 16), (1, 0), 2, 4)
    assert moved(layout, layout, 256) == (0, 1)
    assert moved(layout, blocked((16, 16), (0, 1), 2, 4), 256) is None
    assert moved(replicated(8, 1), blocked((8,), (0,), 1, 1), 8) is None, "the register would differ from lane to lane"
    assert moved(blocked((8,), (0,), 1, 1), replicated(8, 1), 8) is None


@settings(max_examples=15)
@given(st.permutations([1, 2, 4, 8, 16]), st.lists(st.integers(0, 4), max_size=6))
def test_the_inverse_of_a_basis(bases, mixes):
    for mix in mixes:
        if mix:
            bases[0] ^= bases[mix]
    back = inverted(tuple(bases))
    for bit in range(5):
        assert combine(bases, back[bit]) == 1 << bit
    with pytest.raises(ValueError, match="not a basis"):
        inverted((*bases[:4], 0))


@settings(max_examples=15)
@given(layouts())
def test_a_basis_after_its_inverse_changes_nothing(layout: Layout):
    bases = tuple(basis for basis in layout.bases if basis)
    back = inverted(bases)
    for bit in range(8):
        assert combine(bases, back[bit]) == combine(back, bases[bit]) == 1 << bit


SHAPE = (4, 8, 8)
NUMBERS = np.arange(256).reshape(SHAPE)


@settings(max_examples=15)
@given(layouts(), st.permutations([0, 1, 2]))
def test_transposing_moves_elements_as_numpy_does(layout: Layout, order):
    transposed = NUMBERS.transpose(order).ravel()
    result = layout.transposed(SHAPE, order)
    for place in itertools.islice(places(layout), 0, None, 37):
        assert transposed[result.element(*place)] == layout.element(*place)


@settings(max_examples=15)
@given(layouts(), st.integers(0, 2))
def test_dropping_and_narrowing_an_axis(layout: Layout, axis: int):
    rest = [SHAPE[a] for a in range(3) if a != axis]
    narrow = [1 if a == axis else SHAPE[a] for a in range(3)]
    try:
        dropped, narrowed = layout.dropped(SHAPE, axis), layout.narrowed(SHAPE, narrow)
    except ValueError:
        return  # Mixed bases need not stay independent.
    for place in itertools.islice(places(layout), 0, None, 41):
        index = np.unravel_index(layout.element(*place), SHAPE)
        copies = [int(i) for a, i in enumerate(index) if a != axis]
        assert dropped.element(*place) == np.ravel_multi_index(copies, rest)
        assert narrowed.element(*place) == dropped.element(*place)


@settings(max_examples=15)
@given(layouts())
def test_joining_and_splitting(layout: Layout):
    type_ = layout.joined()
    assert type_.covers(512) and type_.split() == layout
    assert type_.element(1) == 1 and type_.element(2) == 2 * layout.element(1)
    assert Layout((2,), (1, 4, 8, 16, 32), ()).split() is None, "the halves are in two lanes"


def test_neighbours_in_the_lowest_registers():
    layout = blocked((16, 64), (1, 0), 4, 4)
    assert layout.contiguous((16, 64), 1) == 4 and layout.contiguous((16, 64), 0) == 1


def test_blocked_layouts_with_a_piece_for_each_warp():
    """The registers that are left over come before the warps; where there are too few elements, nothing changes."""
    layout = blocked((1024,), (0,), 4, 4, warps_last=True)
    assert layout == Layout((1, 2, 128), (4, 8, 16, 32, 64), (256, 512))
    for shape, order in (((64,), (0,)), ((16, 16), (0, 1)), ((2, 256), (1, 0)), ((64, 128), (1, 0))):
        some, other = (blocked(shape, order, 2, 8, warps_last=last) for last in (False, True))
        assert other.covers(some.numel) and other.lanes == some.lanes
        assert sorted(other.bases) == sorted(some.bases)
        assert other == some or max(other.registers) < min(other.warps)
    assert blocked((64,), (0,), 2, 8, warps_last=True) == blocked((64,), (0,), 2, 8)


def test_runs_along_an_axis():
    """16 rows of 32: of 4 rows in a thread, 2 in lanes and 2 in warps, those of a thread become neighbours."""
    layout = Layout((1, 2, 256, 128), (4, 8, 16, 64, 0), (32, 0))
    assert layout.in_runs((16, 32), 0) == Layout((1, 2, 32, 64), (4, 8, 16, 128, 0), (256, 0))
    assert layout.in_runs((16, 32), 1) == layout


def test_blocked_layouts_copy_what_is_left():
    small = blocked((8,), (0,), 4, 2)
    assert small.covers(8) and small.registers == (1, 2) and small.lanes == (4, 0, 0, 0, 0) and small.warps == (0,)
    assert blocked((), (), 1, 1) == Layout((), (0,) * 5, ())
    assert replicated(4, 2) == Layout((1, 2), (0,) * 5, (0,))


def test_a_layout_has_five_lane_bits_and_independent_bases():
    with pytest.raises(ValueError, match="must have 5 lane bits; got 2"):
        Layout((), (1, 2), ())
    with pytest.raises(ValueError, match="independent or zero"):
        Layout((3,), (1, 2, 4, 8, 16), ())
    with pytest.raises(ValueError, match="does not cover 128"):
        inverse(blocked((64,), (0,), 1, 1), 128)


def test_a_picture():
    assert blocked((2, 2), (1, 0), 2, 1).picture((2, 2)) == "w0 l0 r0  w0 l0 r1\nw0 l1 r0  w0 l1 r1"
    assert blocked((2,), (0,), 1, 1).picture((2,)) == "w0 l0 r0  w0 l1 r0"
    assert replicated(1, 1).picture(()) == "w0 l0 r0"
    assert replicated(4, 1).picture((2, 1, 2)) == "[0, :, :]\nw0 l0 r0  w0 l0 r1\n[1, :, :]\nw0 l0 r2  w0 l0 r3"


@settings(max_examples=15)
@given(layouts(), st.sampled_from([(256,), (16, 16), (4, 8, 8), (1, 2, 4, 32)]))
def test_a_picture_says_who_holds_what(layout: Layout, shape):
    lines = [line for line in layout.picture(shape).splitlines() if "[" not in line]
    cells = [cell for line in lines for cell in line.split("  ") if cell]
    for element, cell in enumerate(cells):
        warp, lane, register = (int(word[1:]) for word in cell.split())
        assert layout.element(register, lane, warp) == element
    assert element == 255
    html = layout.html(shape)
    assert [cell.strip() for cell in cells] == re.findall(r"<td[^>]*>([^<]*)</td>", html)
    assert len(set(re.findall("hsl[^)]*", html))) == 1 << sum(map(bool, layout.warps))
    drawing = ElementTree.fromstring(layout.svg(shape))
    labels = [text.text or "" for text in drawing.findall(".//{*}text")]
    assert [cell.strip() for cell in cells] == [label for label in labels if "[" not in label]
