"""Writes of one program to the same memory, some of them by TMA: the last one wins, and blocks that are apart wait for
nothing."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.transform import DROP, transform
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards

pytestmark = pytest.mark.filterwarnings("ignore::ziggurat.ZigguratWarning")
POINTER = zg.divisible(zg.ptr(zg.f32))
ROWS, COLUMNS = 16, 32
AT = np.arange(ROWS * COLUMNS)


@zg.kernel
def same_block(out, n):
    """One block in all iterations, and once more after the loop, through pointers."""
    descriptor = zg.make_tensor_descriptor(out, (16, 32), (32, 1), (16, 32))
    for i in range(n):
        zg.store_tensor_descriptor(descriptor, (0, 0), zg.zeros((16, 32), zg.f32) + zg.cast(i, zg.f32))
    at = zg.arange(0, 16)
    zg.store(out + at * 32, zg.cast(at, zg.f32))


@zg.kernel
def two_in_turn(out, n):
    """Two stores of an iteration to rows that are its own, of which the second has half of the columns."""
    descriptor = zg.make_tensor_descriptor(out, (n * 16, 32), (32, 1), (16, 32))
    half = zg.make_tensor_descriptor(out, (n * 16, 32), (32, 1), (16, 16))
    for i in range(n):
        zg.store_tensor_descriptor(descriptor, (i * 16, 0), zg.zeros((16, 32), zg.f32) + 1.0)
        zg.store_tensor_descriptor(half, (i * 16, 16), zg.zeros((16, 16), zg.f32) + 2.0)


@zg.kernel
def pointers_first(out, n):
    zg.store(out + zg.arange(0, 512), 5.0)
    descriptor = zg.make_tensor_descriptor(out, (16, 32), (32, 1), (16, 16))
    for i in range(n):
        zg.store_tensor_descriptor(descriptor, (0, i * 16), zg.zeros((16, 16), zg.f32) + 2.0)


@zg.kernel
def parts_of_tiles(out, counter, n):
    """Two halves of a tile in each iteration, whose number a loop counts, or an atomic."""
    descriptor = zg.make_tensor_descriptor(out, (n * 16, 32), (32, 1), (16, 16))
    for i in range(n):
        for column in zg.static_range(2):
            zg.store_tensor_descriptor(descriptor, (i * 16, column * 16), zg.zeros((16, 16), zg.f32) + 1.0)
    for i in range(n):
        tile = zg.atomic_add(counter, 1, sem="relaxed")
        zg.store_tensor_descriptor(descriptor, (tile * 16, 0), zg.zeros((16, 16), zg.f32) + 2.0)


def simulated(kernel, size: int, *numbers: object) -> list[np.ndarray]:
    """The array that a kernel has written, by stores that are in memory late, early, and at some time."""
    types = [POINTER, *(zg.ptr(zg.i32) if isinstance(number, np.ndarray) else zg.i32 for number in numbers)]
    compiled = kernel.compile(*types, target="sm_90a", num_warps=1, verify=True)
    assert "gpu.tma_store" in str(compiled.stages["gpu"])
    outs = [np.zeros(size, np.float32) for _ in range(3)]
    for seed, out in enumerate(outs):
        compiled.simulate[1,](out, *numbers, seed=seed)
    return outs


def test_the_last_iteration_and_a_store_after_the_loop_win() -> None:
    expected = np.where(AT % COLUMNS == 0, AT // COLUMNS, 2)
    for out in simulated(same_block, AT.size, 3):
        assert (out == expected).all()


def test_a_part_of_a_block_is_stored_again() -> None:
    for out in simulated(two_in_turn, 2 * AT.size, 2):
        assert (out.reshape(-1, COLUMNS) == np.where(np.arange(COLUMNS) < 16, 1, 2)).all()


def test_stores_through_pointers_before_those_of_tma() -> None:
    for out in simulated(pointers_first, AT.size, 1):
        assert (out.reshape(-1, COLUMNS) == np.where(np.arange(COLUMNS) < 16, 2, 5)).all()
    gpu = pointers_first.compile(POINTER, zg.i32, target="sm_90a", num_warps=1).stages["gpu"]
    names = [op.NAME for op in gpu.walk() if op.NAME in ("tt.store", "gpu.fence_global", "gpu.tma_store")]
    assert names[-3:] == ["tt.store", "gpu.fence_global", "gpu.tma_store"]


def test_blocks_that_are_apart_wait_for_nothing() -> None:
    """Halves of a tile differ by a constant, and tiles by what the loop counts."""

    def waits(kernel, *types: object) -> int:
        model = kernel.compile(POINTER, *types, target="sm_90a", num_warps=1).stages["gpu"]
        return str(model).count("@written=true")

    # One: before the stores of the second loop, which may overwrite those of the first.
    assert waits(parts_of_tiles, zg.ptr(zg.i32), zg.i32) == 1
    assert waits(two_in_turn, zg.i32) == 1


@pytest.mark.parametrize(
    ("kernel", "kinds", "counts"),
    [
        # The waits in the loop and after it; the barrier for the store through pointers, which all threads do.
        (same_block, (gpu.TmaStoreWait, gpu.Barrier), {"wait for what is written": 2, "barrier": 3}),
        (two_in_turn, (gpu.TmaStoreWait,), {"wait for what is written": 1}),
        (pointers_first, (gpu.FenceGlobal, gpu.Barrier), {"fence": 2, "barrier": 2}),
    ],
)
def test_hazards_finds_each_missing_wait_and_fence(
    kernel: zg.Kernel, kinds: tuple[type, ...], counts: dict[str, int]
) -> None:
    module = place(kernel.triton(POINTER, zg.i32), CompileOptions("sm_90a"))
    assert hazards(module) == []
    ops = [op for op in module.walk() if isinstance(op, kinds) and getattr(op, "written", True)]
    missing = [
        {
            hazard.missing
            for hazard in hazards(transform(module, lambda _, op, __, old=old: DROP if op is old else None))
        }
        for old in ops
    ]
    assert {name: missing.count({name}) for name in counts} == counts and sum(counts.values()) == len(ops)


def test_hazards_finds_nothing_in_blocks_that_are_apart() -> None:
    types = POINTER, zg.ptr(zg.i32), zg.i32
    assert hazards(place(parts_of_tiles.triton(*types), CompileOptions("sm_90a"))) == []
