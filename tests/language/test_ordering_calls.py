"""Sorting and top-k."""

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


@pytest.mark.parametrize("shape", [(512,), (1024,), (16, 64), (4, 256)], ids=str)
def test_a_long_sort(shape, compute):
    x = np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)
    x.ravel()[::50] = np.nan
    y = np.sort(x, -1)
    compute("y = zg.sort(x)\nz = zg.topk(x, 8)", {"x": x}, {"y": y, "z": y[..., ::-1][..., :8]})


SORTED = ("i1", "i8", "u8", "i32", "u32", "i64", "u64", "f16", "bf16", "f8e4m3", "f32", "f64")


@pytest.mark.parametrize(
    ("name", "size"), [*((name, 16) for name in SORTED), *((name, 512) for name in ("u8", "i32", "u64", "bf16"))]
)
def test_argsort_is_stable(name, size, compute, values):
    """Test values, most of them twice or more often; -0.0 before 0.0, NaN last."""
    some = np.resize(values(name), 2 * size)
    x = np.stack([np.random.default_rng(seed).permutation(some) for seed in range(2)]).reshape(2, 2, size)

    def keys(array):
        """Numbers that are in the order of the values, as Python's, with the sign of zero."""
        return [(e != e, 0.0 if e != e else e, 0 if e != e else -int(np.signbit(float(e)))) for e in array.tolist()]

    def order(array, descending):
        ranks = {key: rank for rank, key in enumerate(sorted(set(keys(array))))}
        numbers = np.array([ranks[key] for key in keys(array)])
        return np.argsort(-numbers if descending else numbers, kind="stable").astype(np.int32)

    up = np.array([[order(row, False) for row in program] for program in x])
    down = np.array([[order(row, True) for row in program] for program in x])
    compute(
        "up = zg.argsort(x)\ndown = zg.argsort(x, -1, descending=True)\ny = zg.gather(x, up, -1)\nz = zg.sort(x)",
        {"x": x},
        {"up": up, "down": down, "y": np.take_along_axis(x, up, -1), "z": np.take_along_axis(x, up, -1)},
    )


def test_argsort_of_one_element_and_of_equal_ones(compute):
    x = np.full((2, 16), 7, np.int64)
    compute(
        "a = zg.argsort(x)\nb = zg.argsort(x, descending=True)\nc = zg.argsort(zg.topk(x, 1))",
        {"x": x},
        {"a": np.arange(16, dtype=np.int32)[None].repeat(2, 0), "b": np.arange(16, dtype=np.int32)[None].repeat(2, 0),
         "c": np.zeros((2, 1), np.int32)},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["i64", "u64"])
def test_argsort_of_keys_of_both_halves(name, compute, dtypes):
    """Lower halves on both sides of 2^31, where a sign would be, below equal and different upper halves."""
    lower = [0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
    upper = [0, 1, (1 << 31) - 1] + ([-1, -(1 << 31)] if name == "i64" else [1 << 31, (1 << 32) - 1])
    keys = [(high << 32) + low for high in upper for low in lower]
    x = np.random.default_rng(0).permutation(np.array(keys + keys[:7], dtypes[name]))[None]
    order = np.argsort(x, -1, kind="stable").astype(np.int32)
    compute(
        "up = zg.argsort(x)\nmost = zg.topk(x, 4)",
        {"x": x},
        {"up": order, "most": np.sort(x, -1)[:, ::-1][:, :4]},
    )
