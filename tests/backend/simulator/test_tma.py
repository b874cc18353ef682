"""TMA and mbarriers of the simulation, by text written by hand: late and early completion, and faults."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.tma import TensorMap, in_parts
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.text.parser import parse

SEEDS = (0, 1, 2, 3)
PLACE = 1024  # The address of the mbarrier.
MEET = 'call void asm sideeffect "bar.sync 0;", "~{memory}"() #1\n'
FENCE = 'call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"() #1\n'
NUMBERS = np.arange(1, 33 * 16 + 1, dtype=np.int32).reshape(33, 16)


def by_one(*lines: str, operands: str = "", first: str = "%first") -> str:
    """Assembly that the first thread does."""
    count = operands.count("i32") + operands.count("ptr")
    text = " ".join(["{ .reg .pred go;", f"setp.ne.b32 go, ${count}, 0;", *(f"@go {line}" for line in lines), "}"])
    arguments = f"{operands}, i32 {first}" if operands else f"i32 {first}"
    return f'call void asm sideeffect "{text}", "{"r," * (count + 1)}~{{memory}}"({arguments}) #1\n'


ONE = "%is = icmp eq i32 %tid, 0\n%first = zext i1 %is to i32\n"
TOLD = "fence.proxy.async.shared::cta;"


def init(*more: str, arrivals: int = 1, place: int = PLACE) -> str:
    return by_one(f"mbarrier.init.shared::cta.b64 [$0+0], {arrivals};", *more, operands=f"i32 {place}")


def expect(count: int) -> str:
    return by_one(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {count};", operands=f"i32 {PLACE}")


def fetch(row: int = 0, column: int = 0, to: int = 0) -> str:
    name = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    operands = f"i32 {to}, ptr %p0, i32 {PLACE}, i32 {column}, i32 {row}"
    return by_one(f"{name} [$0+0], [$1, {{$3, $4}}], [$2];", operands=operands)


def wait(parity: int = 0) -> str:
    text = "{ .reg .pred over; A_1: mbarrier.try_wait.parity.shared::cta.b64 over, [$0], $1; @!over bra A_1; }"
    return f'call void asm sideeffect "{text}", "r,r,~{{memory}}"(i32 {PLACE}, i32 {parity}) #1\n'


FORGET = by_one("mbarrier.inval.shared::cta.b64 [$0+0];", operands=f"i32 {PLACE}")
READ = """%s = getelementptr i32, ptr addrspace(3) @smem, i32 %tid
    %v = load i32, ptr addrspace(3) %s, align 4
    %q = getelementptr i32, ptr addrspace(1) %p1, i32 %tid
    store i32 %v, ptr addrspace(1) %q, align 4\n"""
BEGUN = ONE + init(TOLD) + MEET
WRITE = "%w = getelementptr i32, ptr addrspace(3) @smem, i32 %tid\nstore i32 %tid, ptr addrspace(3) %w, align 4\n"


def ran(by_hand, text: str, map_: TensorMap | None = None, seed: int = 0) -> np.ndarray:
    out = np.zeros(64, np.int32)
    by_hand(text, map_ or TensorMap(NUMBERS, (4, 16)), out, num_warps=2, shared=2048, seed=seed)
    return out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("row, column", [(0, 0), (5, 0), (5, 8), (31, 4), (-2, -4), (40, 0)])
def test_a_box_is_there_after_its_phase(row: int, column: int, seed: int, by_hand) -> None:
    """With zeros where there is no tensor."""
    around = np.zeros((120, 80), np.int32)
    around[40:73, 32:48] = NUMBERS
    expected = around[40 + row : 44 + row, 32 + column : 48 + column]
    actual = ran(by_hand, BEGUN + expect(256) + fetch(row, column) + wait() + READ, seed=seed)
    np.testing.assert_array_equal(actual.reshape(4, 16), expected)


def test_a_smaller_shape_and_nan_outside(by_hand) -> None:
    map_ = TensorMap(NUMBERS.astype(np.float32), (4, 16), shape=(2, 12), nan=True)
    actual = ran(by_hand, BEGUN + expect(256) + fetch() + wait() + READ, map_).view(np.float32).reshape(4, 16)
    np.testing.assert_array_equal(actual[:2, :12], NUMBERS[:2, :12])
    assert np.isnan(actual[2:]).all() and np.isnan(actual[:, 12:]).all()
    assert map_.extent == (2, 12) and TensorMap(NUMBERS, (1, 1)).extent == (33, 16)


@pytest.mark.parametrize("swizzle, columns", [(32, 8), (64, 16)])
def test_chunks_of_16_bytes_are_swizzled(swizzle: int, columns: int, by_hand) -> None:
    """With the number of the row of 128 bytes, of which a row of the box is a part."""
    rows = 64 // columns
    text = BEGUN + expect(256) + fetch() + wait() + READ
    actual = ran(by_hand, text, TensorMap(NUMBERS, (rows, columns), swizzle))
    plain = np.ascontiguousarray(NUMBERS[:rows, :columns]).reshape(-1, 4)
    transposed = [chunk ^ (chunk // 8 % (swizzle // 16)) for chunk in range(16)]
    np.testing.assert_array_equal(actual.reshape(-1, 4)[transposed], plain)


@pytest.mark.parametrize("seed", SEEDS)
def test_phases_alternate(seed: int, by_hand) -> None:
    """The second load overwrites the first after all threads have read it, and have had a fence."""
    text = BEGUN + expect(256) + fetch() + wait() + READ + FENCE + MEET + expect(256) + fetch(4) + wait(1)
    again = re.sub(r"%([svq])\b", r"%\1\1", READ)
    np.testing.assert_array_equal(ran(by_hand, text + again, seed=seed).reshape(4, 16), NUMBERS[4:8])


LOADED = BEGUN + expect(256) + fetch() + wait()
REFUSED = {
    "nobody waits before reading": (BEGUN + expect(256) + fetch() + READ, "another thread has written|in flight"),
    "a program ends before its fetches": (BEGUN + expect(256) + fetch(), "a TMA load is in flight"),
    "nobody arrives": (BEGUN + wait(), "never ends"),
    "too many bytes are expected": (BEGUN + expect(512) + fetch() + wait(), "never ends"),
    "too few arrive": (ONE + init(TOLD, arrivals=2) + MEET + expect(256) + fetch() + wait(), "never ends"),
    "the engine is not told of the mbarrier": (
        ONE + init() + MEET + expect(256) + fetch(),
        "must be between the initialisation",
    ),
    "no barrier behind the making": (ONE + init(TOLD) + expect(256) + fetch() + wait(), "another has initialised"),
    "it is made twice": (BEGUN + init(), "must not be initialised twice"),
    "there is none": (ONE + expect(256), "must be initialised before"),
    "it is not aligned": (ONE + init(place=PLACE + 4), "must be aligned"),
    "it is outside": (ONE + init(place=2048), "inside of shared"),
    "it is forgotten in a phase": (BEGUN + expect(256) + FORGET, "middle of a phase"),
    "it is forgotten while others wait": (LOADED + FORGET, "where another thread was"),
    "a parity of 2": (BEGUN + wait(2), "a parity must be 0 or 1"),
    "a box in the midst of 128 bytes": (BEGUN + expect(256) + fetch(to=64), "must be aligned to 128 bytes"),
    "a box inside of shared memory": (BEGUN + expect(256) + fetch(to=2048 - 128), "inside of shared memory"),
    "a column that is no multiple of 16 bytes": (BEGUN + expect(256) + fetch(column=1), "a multiple of 16 bytes"),
    "a box over what was read unfenced": (LOADED + READ + MEET + expect(256) + fetch(), "has read without a fence"),
    "a box over what others read": (LOADED + READ + expect(256) + fetch(), "another has touched since"),
    "an instruction of all threads that is not known": (by_one("elect.sync;", first="1"), "does not know elect.sync"),
    "an instruction of a warp for one thread": (ONE + by_one("elect.sync;"), "all lanes of a warp must come"),
    "a box over what was written unfenced": (BEGUN + WRITE + MEET + expect(256) + fetch(), "without a fence since"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_faults_of_loads_and_mbarriers(name: str, by_hand) -> None:
    text, expected = REFUSED[name]
    with pytest.raises((SimulationError, TargetError), match=expected):
        ran(by_hand, text)


def test_an_mbarrier_can_be_invalidated_after_a_barrier(by_hand) -> None:
    """And its memory used again."""
    ran(by_hand, LOADED + READ + MEET + FORGET + MEET + init(TOLD))
    ran(by_hand, BEGUN + WRITE + FENCE + MEET + expect(256) + fetch() + wait())


@pytest.mark.parametrize("box, swizzle", [((4, 16), 32), ((257, 4), 0), ((4, 3), 0)])
def test_boxes_that_tma_cannot_move(box: tuple[int, int], swizzle: int, by_hand) -> None:
    with pytest.raises(SimulationError, match="cannot move boxes"):
        ran(by_hand, BEGUN + expect(256) + fetch(), TensorMap(NUMBERS, box, swizzle))


# Stores.

COMMIT = "cp.async.bulk.commit_group;"


def bring(row: int = 0, column: int = 0, *more: str) -> str:
    name = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    operands = f"ptr %p0, i32 0, i32 {column}, i32 {row}"
    return by_one(f"{name} [$0, {{$2, $3}}], [$1+0];", *more, operands=operands)


def wait_stores(read: str = ".read", pending: int = 0) -> str:
    return f'call void asm sideeffect "cp.async.bulk.wait_group{read} {pending};", "~{{memory}}"() #1\n'


WRITTEN = ONE + WRITE + FENCE + MEET


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("read", ["", ".read"])
@pytest.mark.parametrize("row, column", [(0, 0), (31, 8), (-1, 0)])
def test_a_box_is_stored_where_there_is_a_tensor(row: int, column: int, read: str, seed: int, by_hand) -> None:
    array = np.full((33, 16), -1, np.int32)
    ran(by_hand, WRITTEN + bring(row, column, COMMIT) + wait_stores(read), TensorMap(array, (4, 16)), seed)
    around = np.full((120, 80), -1, np.int32)
    around[40 + row : 44 + row, 32 + column : 48 + column] = np.arange(64).reshape(4, 16)
    np.testing.assert_array_equal(array, around[40:73, 32:48])


@pytest.mark.parametrize("text, expected", [
    (WRITTEN + bring(0, 0, COMMIT), "still reads its shared memory"),
    (WRITTEN + bring() + wait_stores(), "still reads its shared memory"),
    (WRITTEN + bring(0, 0, COMMIT) + wait_stores(pending=1), "still reads its shared memory"),
    (ONE + WRITE + MEET + bring(0, 0, COMMIT) + wait_stores(), "without a fence since"),
    (ONE + WRITE + FENCE + bring(0, 0, COMMIT) + wait_stores(), "another thread has written"),
    (WRITTEN + bring(0, 0, COMMIT) + WRITE.replace("%w", "%w2") + wait_stores(), "in flight reads"),
])  # fmt: skip
def test_stores_that_no_program_may_do(text: str, expected: str, by_hand) -> None:
    with pytest.raises(SimulationError, match=expected):
        ran(by_hand, text)


def test_rows_that_are_not_whole_16_bytes_are_not_stored(by_hand) -> None:
    with pytest.raises(SimulationError, match="must be a multiple of 16 bytes"):
        ran(by_hand, WRITTEN + bring(0, 0, COMMIT), TensorMap(NUMBERS.copy(), (4, 16), shape=(33, 14)))


# Arguments.


def func(parts: str, count: int) -> tt.Func:
    maps = [".map" in part or '"map ' in part for part in parts.split(", ")] if parts else [False] * count
    kinds = ["descriptor<x4, x16, f16, nan>" if is_map else "i64" for is_map in maps]
    parameters = ", ".join(f"%{at} : {kind}" for at, kind in zip(range(count), kinds, strict=True))
    arguments = f" @parts=[{parts}]" if parts else ""
    module = parse(f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
        tt.func @"k"{arguments} ({parameters})void -> {{ tt.return; }}; unreachable; }};""")
    model = module.body.entry.ops[0]
    assert isinstance(model, tt.Func)
    return model


def test_arguments_in_parts() -> None:
    """The kernel's parameters take the array, the numbers and the map of a descriptor."""
    whole = np.zeros((8, 32), np.float16)
    descriptor = zg.TensorDescriptor(whole[:, :20], (4, 16), padding="nan")
    base, rows, columns, step, map_, number = in_parts(
        func('"0.base", "0.shape0", "0.shape1", "0.stride0", "0.map", "1"', 6), [descriptor, 7]
    )
    assert base.base is whole and (rows, columns, step, number) == (8, 20, 32, 7)
    assert isinstance(map_, TensorMap) and map_.array is base and map_.nan and map_.strides == (32,)
    assert (map_.box, map_.swizzle, map_.extent) == ((4, 16), 32, (8, 20))


def test_arguments_without_parts_are_as_they_are() -> None:
    assert in_parts(func("", 2), [3, 4]) == [3, 4]


def test_arguments_of_which_the_launch_makes_a_map() -> None:
    """A matrix without elements is one zero, so that all of a block is outside."""
    array = np.ones((8, 32), np.float16)
    model = func('"0", "1", "2", "3", "map 0 1 2 3", "map 0 =4 2 =64"', 6)
    whole, fixed = in_parts(model, [array, 8, 20, 32])[4:]
    assert whole.array is fixed.array is array
    assert (whole.extent, whole.strides, fixed.extent, fixed.strides) == ((8, 20), (32,), (4, 20), (64,))
    for sizes in ((0, 20), (8, 0), (0, 0), (-1, 20)):
        empty = in_parts(model, [array, *sizes, -32])[4]
        assert not empty.array.any() and (empty.extent, empty.strides) == ((1, 1), (8,))


@pytest.mark.parametrize("numbers, stored, expected", [
    ((8, 20, 0), "", "rows 0 elements apart: the distance must be positive"),
    ((8, 20, -32), " stored", "rows -32 elements apart"),
    ((0, 20, 32), " stored", "0 by 20 elements: there is nothing to store to"),
    ((8, 0, 32), " stored", "8 by 0 elements: there is nothing to store to"),
])  # fmt: skip
def test_matrices_that_have_no_map(numbers: tuple[int, int, int], stored: str, expected: str) -> None:
    model = func(f'"0", "1", "2", "3", "map 0 1 2 3{stored}"', 5)
    with pytest.raises(LaunchError, match=expected):
        in_parts(model, [np.ones((8, 32), np.float16), *numbers])
