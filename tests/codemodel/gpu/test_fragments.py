"""Fragments against the formulas of the PTX manual, written here as it has them: for every register and lane."""

from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.gpu.fragments import (
    UNITS,
    Panels,
    WarpGrid,
    accumulator,
    byte_of,
    fragment_of,
    operand_a,
    operand_b,
    panels_of,
    warps_of,
)
from ziggurat.codemodel.types import SharedType, f8e4m3, f16, f32

Formula = Callable[[int, int, int], tuple[int, int]]  # (i, groupID, threadID_in_group) -> (row, col)

# "Matrix fragments for mma.m8n8k4 with .f64", "… mma.m16n8k8" (.tf32), "… mma.m16n8k16 with floating point type",
# "… mma.m16n8k32" of the PTX manual: of a, of b, of c.
MANUAL: dict[str, tuple[Formula, Formula, Formula]] = {
    "m8n8k4": (
        lambda i, g, t: (g, t),
        lambda i, g, t: (t, g),
        lambda i, g, t: (g, t * 2 + (i & 1)),
    ),
    "m16n8k8": (
        lambda i, g, t: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda i, g, t: (t if i == 0 else t + 4, g),
        lambda i, g, t: (g if i in (0, 1) else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k16": (
        lambda i, g, t: (g if 0 <= i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)),
        lambda i, g, t: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
        lambda i, g, t: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    # "… mma.m16n8k16 with integer type", and "… with .f64 floating point type" of the three shapes.
    "m16n8k16.s8": (
        lambda i, g, t: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        lambda i, g, t: (t * 4 + i, g),
        lambda i, g, t: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k4.f64": (
        lambda i, g, t: (g if i == 0 else g + 8, t),
        lambda i, g, t: (t, g),
        lambda i, g, t: (g if i in (0, 1) else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k8.f64": (
        lambda i, g, t: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda i, g, t: (t if i == 0 else t + 4, g),
        lambda i, g, t: (g if i in (0, 1) else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k16.f64": (
        lambda i, g, t: (g if i % 2 == 0 else g + 8, (i * 2 if i % 2 == 0 else i * 2 - 2) + t),
        lambda i, g, t: (t + i * 4, g),
        lambda i, g, t: (g if i in (0, 1) else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k32": (
        lambda i, g, t: (g if 0 <= i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)),
        lambda i, g, t: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
        lambda i, g, t: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
}


@pytest.mark.parametrize("name", MANUAL)
def test_fragments_of_mma_sync(name: str) -> None:
    """In a tile of one instruction, register i is the manual's element i."""
    unit = UNITS[name]
    alone = WarpGrid(1, 1, 1)
    shapes = ((unit.m, unit.k), (unit.k, unit.n), (unit.m, unit.n))
    layouts = [make(unit, s, alone) for make, s in zip((operand_a, operand_b, accumulator), shapes, strict=True)]
    for layout, (rows, columns), formula in zip(layouts, shapes, MANUAL[name], strict=True):
        assert layout.num_registers * 32 == rows * columns
        for lane in range(32):
            for i in range(layout.num_registers):
                row, column = formula(i, lane >> 2, lane % 4)
                assert layout.element(i, lane) == row * columns + column, (name, i, lane)


@pytest.mark.parametrize("n", [8, 16, 64, 256])
def test_sums_of_wgmma(n: int) -> None:
    """ "Register fragments and shared memory matrix layouts": the accumulator of wgmma.m64nNk*."""
    layout = accumulator(UNITS["m16n8k16"], (64, n), WarpGrid(4, 1, 4))
    assert layout.num_registers == n // 2
    for thread in range(128):
        for i in range(n // 2):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
            column = 8 * (i // 4) + 2 * (thread % 4) + i % 2
            assert layout.element(i, thread % 32, thread // 32) == row * n + column


@pytest.mark.parametrize(("name", "k"), [("m16n8k16", 16), ("m16n8k8", 8), ("m16n8k32", 32)])
def test_operand_of_wgmma_in_registers(name: str, k: int) -> None:
    """Operand a of wgmma.m64nNk*: each warp has the fragment of mma.sync for its 16 rows."""
    layout = operand_a(UNITS[name], (64, k), WarpGrid(4, 1, 4))
    for thread in range(128):
        for i in range(layout.num_registers):
            row, column = MANUAL[name][0](i, thread % 32 >> 2, thread % 4)
            assert layout.element(i, thread % 32, thread // 32) == (16 * (thread // 32) + row) * k + column


def test_a_sum_is_an_operand() -> None:
    """An accumulator of 16 columns, in 16 bits, is operand a of the next dot without a move: attention's P."""
    warps = WarpGrid(4, 1, 4)
    unit = UNITS["m16n8k16"]
    assert accumulator(unit, (128, 64), warps) == operand_a(unit, (128, 64), warps)


sizes = st.sampled_from([16, 32, 64, 128])
counts = st.sampled_from([1, 2, 4])


@given(st.sampled_from(sorted(UNITS)), sizes, sizes, sizes, counts, counts, counts)
def test_tiles(name: str, m: int, n: int, k: int, rows: int, columns: int, spare: int) -> None:
    """Layouts cover their tiles; warps in a row share a, warps in a column share b."""
    unit = UNITS[name]
    if m < unit.m * rows or n < unit.n * columns or k < unit.k:
        return
    warps = WarpGrid(rows, columns, rows * columns * spare)
    a, b = operand_a(unit, (m, k), warps), operand_b(unit, (k, n), warps)
    c = accumulator(unit, (m, n), warps)
    assert a.covers(m * k) and b.covers(k * n) and c.covers(m * n)
    assert a.num_warps == b.num_warps == c.num_warps == warps.count
    assert warps_of(c, unit, (m, n)) == warps
    for warp in range(warps.count):
        row, column = divmod(c.element(0, 0, warp), n)
        assert a.element(0, 0, warp) == row * k
        assert b.element(0, 0, warp) == column


@pytest.mark.parametrize(("rows", "columns"), [(4, 1), (2, 2), (1, 1)])
@pytest.mark.parametrize("run", [2, 4, 8])
@pytest.mark.parametrize("paired", [False, True])
def test_transposed_products_with_runs(rows: int, columns: int, run: int, paired: bool) -> None:
    """The fragments of a · b are those of bᵀ · aᵀ; a thread has runs along k, and rows in pairs."""
    (m, n, k), unit = (32, 64, 64), attrs.evolve(UNITS["m16n8k16"], run=run)
    warps = WarpGrid(rows, columns, 4, paired=paired, swapped=True)
    a, b, c = fragment_of(unit, (m, k), warps, 1), fragment_of(unit, (k, n), warps, 0), accumulator(unit, (m, n), warps)
    assert a.covers(m * k) and b.covers(k * n) and c.covers(m * n)
    assert warps_of(c, unit, (m, n)) == warps
    straight = WarpGrid(rows, columns, 4, paired=paired)
    assert a.transposed((m, k), (1, 0)) == operand_b(unit, (k, m), straight)
    assert b.transposed((k, n), (1, 0)) == fragment_of(unit, (n, k), straight, 1)
    assert [a.element(register) for register in range(run)] == list(range(run))
    assert (1 in b.registers) == paired, "the neighbours along n"


@given(st.sampled_from(sorted(UNITS)), st.data(), counts, counts, st.sampled_from([1, 2, 4, 8]), counts)
def test_batches_of_tiles(name: str, data: st.DataObject, rows: int, columns: int, batches: int, spare: int) -> None:
    """Each matrix of a batch is shared as a single one would be; the warps, and further registers, go through them."""
    unit = UNITS[name]
    m, n, k = (size * data.draw(counts) for size in (unit.m * rows, unit.n * columns, unit.k))
    count = batches * data.draw(counts)
    alone, warps = (
        WarpGrid(rows, columns, rows * columns),
        WarpGrid(rows, columns, rows * columns * batches * spare, batches),
    )
    for make, (height, width) in ((operand_a, (m, k)), (operand_b, (k, n)), (accumulator, (m, n))):
        single, batch = make(unit, (height, width), alone), make(unit, (count, height, width), warps)
        assert batch.covers(count * height * width) and batch.num_warps == warps.count
        assert batch.num_registers == single.num_registers * count // batches
        for warp in range(warps.count):
            own, first = warp % (rows * columns), warp // (rows * columns) % batches
            for register in (0, 1, single.num_registers - 1, batch.num_registers - 1):
                register %= batch.num_registers
                turn, inside = divmod(register, single.num_registers)
                start = (turn * batches + first) * height * width
                assert batch.element(register, 7, warp) == start + single.element(inside, 7, own)
    assert warps_of(accumulator(unit, (count, m, n), warps), unit, (count, m, n)) == warps
    assert accumulator(unit, (1, m, n), alone) == accumulator(unit, (m, n), alone)


@pytest.mark.parametrize("k_axis", [0, 1])
def test_panels_of_a_batch(k_axis: int) -> None:
    """The tiles of a batch follow each other, each laid out as a single tile."""
    result, shape = Panels(64, k_major=False), (4, 32, 64)
    shared = SharedType(shape, f16, result.offsets(shape, k_axis, 2))
    alone = SharedType(shape[1:], f16, result.offsets(shape[1:], k_axis, 2))
    for batch, row, column in ((0, 3, 5), (1, 0, 0), (2, 17, 40), (3, 31, 63)):
        assert byte_of(shared, row, column, batch) == batch * alone.bytes + byte_of(alone, row, column)
    assert panels_of(shared, k_axis) == panels_of(alone, k_axis) == result
    assert panels_of(SharedType(shape, f16, tuple(1 << bit for bit in range(13))), k_axis) is None
    mixed = (*shared.offsets[:-2], *shared.offsets[:-3:-1])
    assert panels_of(SharedType(shape, f16, mixed), k_axis) is None
    assert panels_of(SharedType((64,), f16, tuple(1 << bit for bit in range(6))), k_axis) is None


@pytest.mark.parametrize("element", [f8e4m3, f16, f32], ids=str)
@pytest.mark.parametrize("width", [128, 64, 32])
@pytest.mark.parametrize("panels", [1, 2, 4])
@pytest.mark.parametrize("major_axis", [0, 1])
def test_panels(element: object, width: int, panels: int, major_axis: int) -> None:
    """The place of each byte of a tile: panels of `width` bytes side by side, chunks of 16 bytes swizzled within."""
    assert element in (f8e4m3, f16, f32)
    size = element.bytes  # type: ignore[attr-defined]
    rows, columns = 32, panels * width // size
    shape = (rows, columns) if major_axis == 1 else (columns, rows)
    result = Panels(width, k_major=True)
    shared = SharedType(shape, element, result.offsets(shape, major_axis, size))  # type: ignore[arg-type]
    for row in range(rows):
        for column in range(columns):
            panel, byte = divmod(column * size, width)
            inside = row * width + (byte ^ row * width // 128 % (width // 16) * 16)
            place = (row, column) if major_axis == 1 else (column, row)
            assert byte_of(shared, *place) == panel * rows * width + inside
    assert panels_of(shared, major_axis) == result


def test_widest_panels() -> None:
    """As wide as the major axis allows; none where not even 32 bytes are along it."""
    assert Panels.widest(64 * 2, k_major=True) == Panels(128, True)
    assert Panels.widest(32 * 2, k_major=True) == Panels(64, True)
    assert Panels.widest(16 * 2, k_major=False) == Panels(32, False)
    assert Panels.widest(8 * 2, k_major=False) is None


def test_descriptors() -> None:
    """The constants that Triton's kernels have for 128 bytes, and the manual's fields for the others."""
    assert Panels(128, True).descriptor((128, 64), 1) == 0x4000004000000000
    assert Panels(128, False).descriptor((64, 128), 0) == 0x4000004002000000
    assert Panels(64, True).descriptor((128, 32), 1) == 2 << 62 | 32 << 32
    assert Panels(32, True).descriptor((128, 16), 1) == 3 << 62 | 16 << 32
