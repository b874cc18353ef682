"""Waits for stores by TMA in the next iteration: how many buffers blocks of one type share, and the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op
from ziggurat.transforms.gpu.hazards import hazards

M, N, K = 64, 128, 64


@zg.kernel
def halves(a_desc, b_desc, c_desc, d_desc, tiles, k, TYPE: zg.constexpr, ALSO: zg.constexpr):
    """Products whose columns are stored in two parts; with `ALSO` a copy of the second, too, perhaps in a loop."""
    for tile in zg.range(zg.program_id(0), tiles, zg.num_programs(0)):
        acc = zg.zeros((64, 128), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=True):
            acc = zg.dot(a_desc.load((zg.mul(tile, 64), start)), zg.trans(b_desc.load((0, start))), acc)
        left, right = zg.split(zg.permute(zg.reshape(acc, (64, 2, 64)), (0, 2, 1)))
        c_desc.store((zg.mul(tile, 64), 0), zg.cast(left, TYPE))
        c_desc.store((zg.mul(tile, 64), 64), zg.cast(right, TYPE))
        if ALSO == "copy":
            d_desc.store((zg.mul(tile, 64), 0), zg.cast(right, zg.f32))
        if ALSO == "copies":
            for part in range(2):
                d_desc.store((zg.mul(tile, 64), zg.mul(part, 32)), zg.cast(right, zg.f32))


def compiled(type_: Any, stages: int, also: str = "") -> Any:
    shapes = ((M, K, zg.f16), (N, K, zg.f16), (M, N // 2, type_), (M, N // 2, zg.f32))
    blocks = [zg.divisible(zg.descriptor((rows, columns), each), 16) for rows, columns, each in shapes]
    options: dict[str, Any] = {"target": "sm_90a", "num_warps": 4, "num_stages": stages, "verify": True}
    binary = halves.compile(*blocks, zg.i32, zg.divisible(zg.i32, K), type_, also, **options)
    assert not hazards(binary.stages["gpu"])
    return binary


def buffers_and_waits(module: Op) -> tuple[int, list[int]]:
    """The buffers that TMA stores from, and what each wait leaves in flight."""
    ops = list(module.walk())
    buffers = {op.buffer for op in ops if isinstance(op, gpu.TmaStore)}
    return len(buffers), [op.pending for op in ops if isinstance(op, gpu.TmaStoreWait)]


CASES = [
    # Each part has a buffer: the other part may be in flight.
    (zg.f16, 4, "", (2, [1, 1, 0])),
    # Three blocks have shared memory for two of them: the first and the third share a buffer.
    (zg.f32, 8, "copy", (2, [0, 2, 1, 0])),
    # A block of another type has its own; two stores begin after the last one from each buffer.
    (zg.f16, 3, "copy", (3, [2, 2, 2, 0])),
    # A loop stores an unknown number of times in between.
    (zg.f16, 3, "copies", (3, [0, 0, 0, 0])),
    # A second CTA an SM is worth more.
    (zg.f16, 4, "copy", (3, [0, 0, 0])),
]
SIMULATED = [case[:3] for case in CASES[:3]]


@pytest.mark.parametrize(("type_", "stages", "also", "expected"), CASES)
def test_as_many_buffers_as_there_is_memory_for(type_: Any, stages: int, also: str, expected: Any) -> None:
    binary = compiled(type_, stages, also)
    assert buffers_and_waits(binary.stages["gpu"]) == expected
    assert binary.shared <= 227 << 10


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("type_", "stages", "also"), SIMULATED)
def test_simulated(type_: Any, stages: int, also: str, seed: int) -> None:
    result, numbers = compiled(type_, stages, also), np.random.default_rng(seed)
    tiles, k = 3, 2 * K
    results: list[list[np.ndarray]] = []
    a, b = (numbers.integers(-4, 5, (rows, k)).astype(np.float16) for rows in (tiles * M, N))
    for simulated in (True, False):
        c = np.zeros((tiles * M, N), np.float16 if type_ is zg.f16 else np.float32)
        d = np.zeros((tiles * M, N // 2), np.float32)
        pairs = ((a, (M, K)), (b, (N, K)), (c, (M, N // 2)), (d, (M, N // 2)))
        arguments = [*(zg.TensorDescriptor(array, list(block)) for array, block in pairs), tiles, k]
        if simulated:
            result.simulate[1,](*arguments, seed=seed)
        else:
            halves[1,](*arguments, type_, also, interpret=True)
        results.append([c, d])
    for ours, true in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, true)
    assert results[0][0].any()
