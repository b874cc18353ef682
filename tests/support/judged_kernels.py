"""The kernels of the judge of `zg.bisect`: those of `pass_cases`, and one for each pass that changes none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pass_cases
from every_pass import Case, case

import ziggurat as zg


@zg.kernel
def large_block(x, y, BLOCK: zg.constexpr):
    """`divide_blocks` makes a loop of it."""
    at = zg.program_id(0) * BLOCK + zg.arange(0, BLOCK)
    v = zg.load(x + at)
    zg.store(y + at, v * v + 3)


@zg.kernel
def two_dots(q, k, v, out, n, BLOCK: zg.constexpr):
    """Of one stage, so that `early_copies` loads the second operand during the first dot."""
    rows, columns = zg.expand(zg.arange(0, BLOCK), 1), zg.expand(zg.arange(0, BLOCK), 0)
    at = rows * BLOCK + columns
    left = zg.load(q + at)
    total = zg.zeros((BLOCK, BLOCK), zg.f32)
    for start in range(0, n):
        scores = zg.dot(left, zg.trans(zg.load(k + (start * BLOCK * BLOCK + at))))
        total = zg.dot(zg.cast(scores, zg.f16), zg.load(v + (start * BLOCK * BLOCK + at)), total)
    zg.store(out + at, total)


@zg.kernel
def in_order(flag, x, y, BLOCK: zg.constexpr):
    """A program waits for the one before it: `cpu waiting` marks the loop."""
    at = zg.arange(0, BLOCK)
    while zg.atomic_add(flag, 0) < zg.program_id(0):
        pass
    zg.store(y + at, zg.load(y + at) * 2 + zg.load(x + at + zg.program_id(0)))
    zg.debug_barrier()
    zg.atomic_add(flag, 1)


@zg.kernel
def of_floats(x, y, n, FORM: zg.constexpr, ROWS: zg.constexpr, BLOCK: zg.constexpr):
    """Rows of numbers that each op rounds, and in other ways where a product and a sum are one op."""
    rows, columns = zg.expand(zg.program_id(0) * ROWS + zg.arange(0, ROWS), 1), zg.expand(zg.arange(0, BLOCK), 0)
    at, mask = rows * n + columns, zg.broadcast(columns < n, (ROWS, BLOCK))
    v = zg.load(x + at, mask, other=0.0)
    if FORM == "softmax":
        powers = zg.where(mask, zg.exp(v - zg.max(v, axis=1, keep_dims=True)), 0.0)
        v = powers / zg.sum(powers, axis=1, keep_dims=True)
    elif FORM == "norm":
        centred = zg.where(mask, v - zg.sum(v, axis=1, keep_dims=True) / zg.cast(n, zg.f32), 0.0)
        v = centred * zg.rsqrt(zg.sum(centred * centred, axis=1, keep_dims=True) / zg.cast(n, zg.f32) + 1e-5)
    elif FORM == "gelu":
        v = 0.5 * v * (1.0 + zg.erf(v * 0.7071067811865476))
    elif FORM == "scan":
        v = zg.cumsum(v * v, axis=1)
    else:
        v = v / (1.0 + zg.exp(-v)) + zg.sin(v) * v
    zg.store(y + at, v, mask)


def floats(seed: int) -> Case:
    """A kernel of floats, of a form, sizes and options that the seed chooses."""
    random = Random(seed)
    block, rows = random.choice([32, 128, 256, 1024]), random.choice([1, 2, 8])
    columns, form = random.randint(block // 2 + 1, block), random.choice(["softmax", "norm", "gelu", "scan", "swish"])
    dtype = random.choice([np.float16, np.float32, np.float32])

    def arguments() -> Sequence[Any]:
        x = pass_cases.normal(3 * rows, columns, dtype=dtype, seed=seed)
        return [x, np.zeros((3 * rows, columns), np.float32), columns]

    options = {"target": random.choice(["sm_80", "sm_90a", "sm_120a"]), "num_warps": random.choice([1, 2, 4, 8])}
    return case(of_floats, arguments, [form, rows, block], (3,), **options)


def _large_block() -> Case:
    def arguments() -> Sequence[Any]:
        return [pass_cases.integers(2 * 32768, dtype=np.int32), np.zeros(2 * 32768, np.int32)]

    return case(large_block, arguments, [32768], (2,), num_warps=4)


def _two_dots() -> Case:
    def arguments() -> Sequence[Any]:
        q, k, v = pass_cases.integers(64, 64), pass_cases.integers(3, 64, 64), pass_cases.integers(3, 64, 64, seed=1)
        return [q, k, v, np.zeros((64, 64), np.float32), 3]

    return case(two_dots, arguments, [64], num_warps=4, num_stages=1)


def _in_order() -> Case:
    def arguments() -> Sequence[Any]:
        x = pass_cases.integers(80, dtype=np.int32)
        return [np.zeros(1, np.int32), x, np.zeros(64, np.int32)]

    return case(in_order, arguments, [64], (4,), target="sm_80", num_warps=1)


KERNELS: dict[str, Callable[[], Case]] = {
    **pass_cases.CASES, "large block": _large_block, "two dots": _two_dots, "in order": _in_order,
}  # fmt: skip
