"""Sorting, and the first of what is sorted."""

from __future__ import annotations

import numpy as np
import pytest

ALL = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2")


def ordered(x, descending=False):
    """Each row in order: -0.0 before 0.0, and a NaN above all numbers."""

    def key(element):
        number = element.item() if element.dtype.kind in "iub" else float(element)
        if number != number:
            return (1, 0.0, False)
        return (0, number, not np.signbit(number) if number == 0 and isinstance(number, float) else False)

    rows = x.reshape(-1, x.shape[-1])
    result = [sorted(row, key=key, reverse=descending) for row in rows]
    return np.array(result, x.dtype).reshape(x.shape)


@pytest.mark.parametrize("name", ALL)
def test_sort_and_topk(name, compute, values, rows, dtypes):
    rng = np.random.default_rng(0)
    (x,) = rows(values(name))
    x = rng.permutation(x.ravel())[:64].reshape(2, -1)
    grid = rng.choice(x.ravel(), (2, 2, 4, 8))
    tiny = rng.choice(x.ravel(), (2, 4, 1))
    half = max(1, x.shape[1] // 2)
    compute(
        f"""
        up = zg.sort(x)
        down = zg.sort(x, descending=True)
        grid_up = zg.sort(grid, -1)
        grid_down = zg.sort(grid, dim=2, descending=True)
        same = zg.sort(tiny)
        most = zg.topk(x, {half})
        least = zg.topk(x, {half}, descending=False)
        one = zg.topk(grid, 1)
        two = zg.topk(grid, 2, -1, False)
        all = zg.topk(grid, 8)
        only = zg.topk(tiny, 1)
        """,
        {"x": x, "grid": grid, "tiny": tiny},
        {
            "up": ordered(x), "down": ordered(x, True), "grid_up": ordered(grid), "grid_down": ordered(grid, True),
            "same": tiny,
            "most": ordered(x, True)[:, :half], "least": ordered(x)[:, :half],
            "one": ordered(grid, True)[..., :1], "two": ordered(grid)[..., :2], "all": ordered(grid, True),
            "only": tiny,
        },
        thorough=name in ("i1", "u8", "i32", "bf16", "f64"),
    )  # fmt: skip


def test_a_long_sort(compute):
    x = np.random.default_rng(1).standard_normal((2, 512)).astype(np.float32)
    compute("y = zg.sort(x)\nz = zg.topk(x, 8)", {"x": x}, {"y": np.sort(x), "z": np.sort(x)[:, ::-1][:, :8]})
