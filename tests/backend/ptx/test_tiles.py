"""Plans of matrix instructions, interpreted as data: fragments as in the simulation, and each product once."""

from __future__ import annotations

import math
from itertools import product

import pytest

from ziggurat.backend.ptx.tiles import (
    Tiles,
    mma_tiles,
    places_a,
    places_b,
    places_c,
    registers_of,
    unit_of,
    wgmma_group,
)
from ziggurat.backend.simulator.matrix_units import fragment_a, fragment_b, fragment_c
from ziggurat.codemodel.gpu.fragments import (
    UNITS,
    Panels,
    WarpGrid,
    accumulator,
    byte_of,
    operand_a,
    operand_b,
    unit_for,
)
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.types import SCALARS, SharedType, TensorType, f16, f32

K16 = UNITS["m16n8k16"]
TARGET = "sm_80"


def tensor(shape: tuple[int, ...], layout: Layout, element: str = "f16") -> TensorType:
    return TensorType(shape, SCALARS[element], layout)


def buffer(
    shape: tuple[int, ...], k_axis: int, width: int, *, k_major: bool = True, element: str = "f16"
) -> SharedType:
    scalar = SCALARS[element]
    return SharedType(shape, scalar, Panels(width, k_major).offsets(shape, k_axis, scalar.bytes))


@pytest.mark.parametrize("element, name", [
    ("f8e4m3", "m16n8k32"), ("i8", "m16n8k32"), ("u8", "m16n8k32"), ("f16", "m16n8k16"), ("bf16", "m16n8k16"),
    ("f32", "m16n8k8"), ("f64", "m8n8k4"),
])  # fmt: skip
def test_the_unit_goes_by_the_size_of_elements(element: str, name: str) -> None:
    assert unit_of(SCALARS[element]).name == name


def test_copies_use_the_first_register() -> None:
    assert registers_of(Layout((4, 0, 1), (2, 8, 16, 32, 64), ())) == {0: 0, 4: 1, 1: 4, 5: 5}


def first_lane(rows, columns) -> tuple[int, int]:
    return int(rows[0]), int(columns[0])


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_fragments_are_those_of_the_manual(unit) -> None:
    """Elements of thread 0 are in the order of an instruction's operands."""
    lanes = 32
    assert places_a(unit) == [first_lane(*fragment_a(i, unit.pack, unit.m)) for i in range(unit.m * unit.k // lanes)]
    assert places_b(unit) == [first_lane(*fragment_b(i, unit.pack)) for i in range(unit.k * unit.n // lanes)]
    if unit.m == 16:
        assert places_c(unit, 8) == [first_lane(*fragment_c(i)) for i in range(4)]
        assert places_c(unit, 32) == [first_lane(*fragment_c(i)) for i in range(16)]
    else:
        assert places_c(unit, 8) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("element", ["f16", "f32", "i8", "f64"])
@pytest.mark.parametrize("rows, columns", [(4, 1), (2, 2), (1, 4)])
def test_tiles_of_operands_in_registers(element: str, rows: int, columns: int) -> None:
    unit, warps = unit_of(SCALARS[element]), WarpGrid(rows, columns, 4)
    m, n, k = 128, 64, 2 * unit.k
    c = tensor((m, n), accumulator(unit, (m, n), warps), "f32")
    a = tensor((m, k), operand_a(unit, (m, k), warps), element)
    b = tensor((k, n), operand_b(unit, (k, n), warps), element)
    actual = mma_tiles(a, b, c, TARGET)
    assert actual == Tiles(unit, warps, m, n, k)
    assert list(actual.depths) == [0, unit.k]
    assert list(actual.columns) == list(range(0, n // columns, 8))
    # All instructions of all warps make the whole tile.
    assert len(actual.rows) * len(actual.columns) * warps.rows * warps.columns * unit.m * unit.n == m * n
    assert actual.rows[0] == 0 and actual.rows.step == unit.m * rows
    assert list(actual.matrices) == [0]


@pytest.mark.parametrize("element", ["bf16", "f32", "u8", "f64"])
@pytest.mark.parametrize("count, batches, warps", [
    (8, 4, WarpGrid(1, 1, 4, 4)), (2, 2, WarpGrid(1, 2, 4, 2)), (4, 2, WarpGrid(2, 1, 8, 2)), (1, 1, WarpGrid(2, 2, 4)),
])  # fmt: skip
@pytest.mark.parametrize("in_shared", [False, True])
def test_tiles_of_a_batch(element: str, count: int, batches: int, warps: WarpGrid, in_shared: bool) -> None:
    """The matrices are distributed over the warps, and all instructions of all warps make all of them."""
    unit = unit_of(SCALARS[element])
    m, n, k = 32, 32, 2 * unit.k
    c = tensor((count, m, n), accumulator(unit, (count, m, n), warps), "f32")
    a = tensor((count, m, k), operand_a(unit, (count, m, k), warps), element)
    of_b = (count, k, n)
    b = tensor(of_b, operand_b(unit, of_b, warps), element)
    if in_shared and element != "f64":
        a, b = buffer((count, m, k), 1, 32, element=element), buffer(of_b, 0, 64, element=element)
    actual = mma_tiles(a, b, c, TARGET)
    assert actual == Tiles(unit, warps, m, n, k, count)
    assert list(actual.matrices) == list(range(0, count, batches))
    values = {c.layout.element(register) for register in range(c.layout.num_registers)}
    starts = product(actual.matrices, actual.rows, actual.columns)
    results = [
        (batch * m + row + y) * n + column + x for batch, row, column in starts for y, x in places_c(unit, unit.n)
    ]
    assert len(results) == len(set(results)) and set(results) == values
    # An operand of another batch, or of none.
    assert mma_tiles(a, buffer((2 * count, k, n), 0, 64), c, TARGET) is None
    assert mma_tiles(a, buffer((k, n), 0, 64), c, TARGET) is None


@pytest.mark.parametrize("element, shape, target, name", [
    ("i8", (32, 16, 16), "sm_80", "m16n8k16.s8"), ("u8", (32, 16, 64), "sm_80", "m16n8k32"),
    ("f64", (32, 16, 32), "sm_90", "m16n8k16.f64"), ("f64", (16, 8, 8), "sm_90a", "m16n8k8.f64"),
    ("f64", (16, 8, 4), "sm_100a", "m16n8k4.f64"), ("f64", (8, 8, 32), "sm_90a", "m8n8k4"),
    ("f64", (16, 8, 4), "sm_89", "m8n8k4"), ("f64", (32, 16, 32), "sm_80", "m8n8k4"),
    ("f16", (16, 8, 8), "sm_90a", None), ("f8e4m3", (32, 16, 16), "sm_90a", None), ("f64", (16, 8, 2), "sm_90a", None),
])  # fmt: skip
def test_the_unit_goes_by_shape_and_target(
    element: str, shape: tuple[int, int, int], target: str, name: str | None
) -> None:
    """Two units may share fragments: f64 MMAs of 16 rows exist since Hopper."""
    unit = unit_for(SCALARS[element], shape, target)
    assert unit == (None if name is None else UNITS[name])
    if unit is None:
        return
    (m, n, k), warps = shape, WarpGrid(1, 1, 1)
    c = tensor((m, n), accumulator(unit, (m, n), warps), "f32")
    a = tensor((m, k), operand_a(unit, (m, k), warps), element)
    b = tensor((k, n), operand_b(unit, (k, n), warps), element)
    assert mma_tiles(a, b, c, target) == Tiles(unit, warps, m, n, k)


def test_operands_that_no_mma_takes() -> None:
    """Layouts that are not the fragments', a k that is too short, a buffer that lies in no panels."""
    warps, m, n, k = WarpGrid(4, 1, 4), 64, 32, 32
    c = tensor((m, n), accumulator(K16, (m, n), warps), "f32")
    a, b = tensor((m, k), operand_a(K16, (m, k), warps)), tensor((k, n), operand_b(K16, (k, n), warps))
    assert mma_tiles(a, b, c, TARGET) is not None
    other = WarpGrid(2, 2, 4)
    assert mma_tiles(tensor((m, k), operand_a(K16, (m, k), other)), b, c, TARGET) is None
    assert mma_tiles(a, tensor((k, n), operand_b(K16, (k, n), other)), c, TARGET) is None
    plain = Layout(tuple(1 << bit for bit in range(4)), tuple(1 << bit for bit in range(4, 9)), (512, 1024))
    assert mma_tiles(a, b, tensor((m, n), plain, "f32"), TARGET) is None
    short = 8
    of_a, of_b = buffer((m, short), 1, 32, k_major=False), buffer((short, n), 0, 32, k_major=False)
    assert mma_tiles(of_a, of_b, c, TARGET) is None
    of_bytes, unit = buffer((m, 16), 1, 32, k_major=False, element="i8"), UNITS["m16n8k16.s8"]
    right = tensor((16, n), operand_b(unit, (16, n), warps), "i8")
    assert mma_tiles(of_bytes, right, c, TARGET) is None, "ldmatrix would take 32 bytes of each row"
    unswizzled = SharedType((m, k), f16, tuple(1 << bit for bit in range(11)))
    assert mma_tiles(unswizzled, b, c, TARGET) is None
    assert mma_tiles(buffer((m, k), 1, 64), b, c, TARGET) is not None


CASES = [
    # m, n, k, warps, the widths of a's and b's panels, and whether they go along k.
    (64, 32, 32, WarpGrid(4, 1, 4), (64, True), (64, True)),
    (128, 64, 64, WarpGrid(4, 1, 4), (128, True), (128, False)),
    (128, 128, 32, WarpGrid(8, 1, 8), (128, False), (64, True)),
    (64, 128, 64, WarpGrid(4, 2, 8), (128, True), (128, False)),
    (64, 512, 16, WarpGrid(4, 1, 4), (32, True), (32, True)),
]


@pytest.mark.parametrize("m, n, k, warps, of_a, of_b", CASES)
@pytest.mark.parametrize("in_registers", [False, True])
def test_a_group_multiplies_everything_once(
    m: int, n: int, k: int, warps: WarpGrid, of_a: tuple[int, bool], of_b: tuple[int, bool], in_registers: bool
) -> None:
    """The wgmmas are identified by their places in the accumulator and in the operands."""
    layout_c, layout_a = accumulator(K16, (m, n), warps), operand_a(K16, (m, k), warps)
    a = tensor((m, k), layout_a) if in_registers else buffer((m, k), 1, of_a[0], k_major=of_a[1])
    b = buffer((k, n), 0, of_b[0], k_major=of_b[1])
    group = wgmma_group(a, b, tensor((m, n), layout_c, "f32"))
    assert group is not None and group.k == 16
    assert group.b == Panels(*of_b) and group.a == (None if in_registers else Panels(*of_a))
    starts_b = {byte_of(b, at, column): (at, column) for at, column in product(range(0, k, 16), range(0, n, 8))}
    done: list[tuple[int, int, int]] = []
    text: list[int] = []
    for step in group.steps:
        row, column = divmod(layout_c.element(step.c[0]), n)
        at, of_column = starts_b[step.b]
        assert of_column == column and step.first == (at == 0)
        if isinstance(step.a, int):
            assert isinstance(a, SharedType) and step.a == byte_of(a, row, at)
        else:
            assert [divmod(layout_a.element(item), k) for item in step.a] == [
                (row + more, at + deep) for more, deep in places_a(K16)
            ]
        assert [divmod(layout_c.element(item), n) for item in step.c] == [
            (row + more, column + right) for more, right in places_c(K16, group.columns)
        ]
        done.append((row, column, at))
        text += step.c if step.first else ()
    own = n // warps.columns
    expected = product(range(0, m, 16 * warps.rows), range(0, own, group.columns), range(0, k, 16))
    assert done == list(expected)
    assert sorted(text) == list(range(layout_c.num_registers))
    # The bits of a warp group's number move rows of a and columns of b.
    bits = int(math.log2(warps.rows * warps.columns // 4))
    assert len(group.a_bases) == len(group.b_bases) == bits
    if bits:
        down = warps.rows == 8
        moves_a = byte_of(a, 64, 0) if down and isinstance(a, SharedType) else 0
        assert group.a_bases == (moves_a,) and group.b_bases == (0 if down else byte_of(b, 0, own),)


def test_operands_that_no_wgmma_takes() -> None:
    """Warps of a group side by side, buffers without panels, operand a in other registers, a k that is too short."""
    m, n, k, warps = 64, 32, 32, WarpGrid(4, 1, 4)
    a, b = buffer((m, k), 1, 64), buffer((k, n), 0, 64)
    c = tensor((m, n), accumulator(K16, (m, n), warps), "f32")
    assert wgmma_group(a, b, c) is not None
    beside = tensor((m, n), accumulator(K16, (m, n), WarpGrid(2, 2, 4)), "f32")
    assert wgmma_group(a, b, beside) is None
    plain = tuple(1 << bit for bit in range(10))
    assert wgmma_group(a, SharedType((k, n), f16, plain), c) is None
    assert wgmma_group(SharedType((m, k), f16, (*plain, 1024)), b, c) is None
    assert wgmma_group(tensor((m, k), operand_a(K16, (m, k), WarpGrid(2, 2, 4))), b, c) is None
    assert wgmma_group(buffer((m, 8), 1, 64, k_major=False), buffer((8, n), 0, 64, k_major=False), c) is None
    wide = SharedType((m, k), f32, Panels(128, True).offsets((m, k), 1, 4))
    of_b = SharedType((k, n), f32, Panels(128, True).offsets((k, n), 0, 4))
    assert wgmma_group(wide, of_b, tensor((m, n), accumulator(UNITS["m16n8k8"], (m, n), warps), "f32")) is not None
