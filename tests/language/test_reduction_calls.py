"""Reductions and scans: every dtype, axis and form, and functions of the user's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ziggurat as zg

INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
SHAPES = [(1,), (16,), (4, 8), (2, 1, 4), (2, 4, 8)]


def summed(name):
    """The dtype that sums are given in."""
    if name == "i1":
        return "i32"
    if name in INTS and int(name[1:]) < 32:
        return f"{name[0]}32"
    return name


def sample(name, shape, dtypes, seed=0):
    """Small whole numbers, so that sums and products are exact in every order; of integers, all there are."""
    rng = np.random.default_rng(seed)
    dtype = dtypes[name]
    if name == "i1":
        return rng.integers(0, 2, (2, *shape)).astype(dtype)
    if name in INTS:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, (2, *shape), dtype, endpoint=True)
    return rng.integers(-4, 5, (2, *shape)).astype(dtype)


def axes(rank):
    return [None, *range(rank), -1]


@pytest.mark.parametrize("name", ("i1", *INTS, *FLOATS))
def test_sums(name, compute, dtypes):
    for shape in SHAPES:
        x = sample(name, shape, dtypes)
        result = dtypes[summed(name)]
        wide = x.astype(np.float64) if name in FLOATS else x.astype(object).astype(int) if name == "i1" else x
        lines, expected = [], {}
        for number, (axis, keep) in enumerate(itertools.product(axes(len(shape)), (False, True))):
            over = tuple(range(1, x.ndim)) if axis is None else axis + 1 if axis >= 0 else axis
            lines.append(f"s{number} = zg.sum(x, {axis}, keep_dims={keep})")
            if name in FLOATS:
                expected[f"s{number}"] = wide.sum(over, keepdims=keep).astype(result)
            else:
                expected[f"s{number}"] = x.astype(result).sum(over, keepdims=keep, dtype=result)
            if name in INTS or name == "i1":
                lines.append(f"x{number} = zg.xor_sum(x, {axis}, {keep})")
                expected[f"x{number}"] = np.bitwise_xor.reduce(x, axis=over, keepdims=keep)
        lines.append("wide = zg.sum(zg.cast(x, zg.f32), -1, dtype=zg.f64)")
        expected["wide"] = x.astype(np.float32).astype(np.float64).sum(-1)
        compute("\n".join(lines), {"x": x}, expected, thorough=shape == (2, 4, 8))


def test_small_floats_are_summed_in_f32(compute, dtypes):
    """2049 ones: in f16 the sum would stay at 2048, in bf16 at 256."""
    for name in ("f16", "bf16", "f8e5m2"):
        x = np.ones((1, 4096), dtypes[name])
        compute(
            "y = zg.sum(x)\nz = zg.cumsum(x)",
            {"x": x},
            {
                "y": np.full(1, 4096).astype(dtypes[name]),
                "z": np.arange(1, 4097)[None].astype(np.float32).astype(dtypes[name]),
            },
        )


@pytest.mark.parametrize("name", ("i1", *INTS, *FLOATS))
def test_extremes(name, compute, values, dtypes):
    """Ties go to the left; NaNs are ignored unless all elements are NaN."""
    # With three axes for some dtypes only: the rest of the way is the same for all.
    for shape in SHAPES if name in ("i32", "f32", "bf16") else SHAPES[1:3]:
        rng = np.random.default_rng(1)
        pool = values(name)
        if name in FLOATS:
            # An infinite f8e5m2 saturates: 8-bit floats are compared in f32 and cast back.
            ends = [448, -448] if name == "f8e5m2" else [np.inf, -np.inf]
            plain = pool[np.isfinite(pool.astype(np.float64))]
            pool = np.concatenate(
                [rng.choice(plain, 6), np.array([np.nan, np.nan, *ends, 0.0, -0.0]).astype(pool.dtype)]
            )
        else:
            pool = rng.choice(pool, 6)
        x = rng.choice(pool, (6, *shape))
        if name in FLOATS:
            x[4] = np.array(np.nan, x.dtype)
        lines, expected = [], {}
        for number, (axis, keep) in enumerate(itertools.product(axes(len(shape)), (False, True))):
            flat = x.reshape(6, -1) if axis is None else x
            along = 1 if axis is None else axis + 1 if axis >= 0 else x.ndim - 1
            for call in ("max", "min"):
                values_, places = extreme(flat, along, call)
                if keep:
                    shape_ = (6, *(1,) * len(shape)) if axis is None else None
                    values_, places = (
                        v.reshape(shape_) if shape_ else np.expand_dims(v, along) for v in (values_, places)
                    )
                tag = f"{call}{number}"
                lines += [
                    f"{tag} = zg.{call}(x, {axis}, keep_dims={keep})",
                    f"v{tag}, i{tag} = zg.{call}(x, {axis}, return_indices=True, keep_dims={keep})",
                    f"a{tag} = zg.arg{call}(x, {axis}, keep_dims={keep})",
                ]
                expected[tag] = values_
                expected[f"v{tag}"] = pick(flat, places, along, keep, axis)
                expected[f"i{tag}"] = expected[f"a{tag}"] = places
        compute(
            "\n".join(lines), {"x": x}, expected, thorough=shape == (4, 8) and name in ("i1", "u32", "f64", "f8e4m3")
        )


@pytest.mark.parametrize("name", ("u16", "i32", "f16", "f32"))
def test_index_of_any_extreme(name, compute, dtypes):
    x = np.random.default_rng(0).permutation(64).reshape(2, 4, 8).astype(dtypes[name])
    compute(
        """
        v, i = zg.max(x, 1, return_indices=True, return_indices_tie_break_left=False)
        w, j = zg.min(x, None, True, False, True)
        k = zg.argmin(x, 0, tie_break_left=False)
        """,
        {"x": x},
        {
            "v": x.max(2), "i": x.argmax(2).astype(np.int32), "w": x.min((1, 2), keepdims=True),
            "j": x.reshape(2, 32).argmin(1).astype(np.int32).reshape(2, 1, 1), "k": x.argmin(1).astype(np.int32),
        },
    )  # fmt: skip


def wide(array):
    return array.astype(np.float64) if array.dtype.kind not in "iub" else array


def extreme(x, axis, call):
    """Values and places, one row at a time, in Python."""
    lines = np.moveaxis(x, axis, -1)
    out = lines.shape[:-1]
    extremes, places = [], []
    for row in lines.reshape(-1, lines.shape[-1]):
        keys = wide(row).tolist()
        numbers = [k for k in keys if k == k]
        if not numbers:
            extremes.append(row[0])
            places.append(0)
            continue
        best = max(numbers) if call == "max" else min(numbers)
        place = keys.index(best)
        value = row[place]
        if best == 0 and row.dtype.kind not in "iub":
            # 0.0 is larger than -0.0.
            signs = [np.signbit(wide(row)[i]) for i, k in enumerate(keys) if k == 0]
            negative = all(signs) if call == "max" else any(signs)
            value = np.array(-0.0 if negative else 0.0).astype(row.dtype)
        extremes.append(value)
        places.append(place)
    return np.array(extremes, x.dtype).reshape(out), np.array(places, np.int32).reshape(out)


def pick(x, places, axis, keep, index):
    """The elements at the places: of equal ones the left one, with its sign."""
    if index is None:
        return np.take_along_axis(x, places.reshape(-1, 1).astype(int), 1).reshape(places.shape)
    at = places if keep else np.expand_dims(places, axis)
    values = np.take_along_axis(x, at.astype(int), axis)
    return values if keep else np.squeeze(values, axis)


@zg.function
def welford(mean, square, count, mean2, square2, count2):
    """Two means, sums of squared differences, and counts, as one."""
    delta = mean2 - mean
    total = count + count2
    ratio = count2 / total
    return mean + delta * ratio, square + square2 + delta * delta * count * ratio, total


def test_a_mean_and_a_variance_in_one_pass(compute):
    x = np.random.default_rng(2).standard_normal((2, 4, 64)).astype(np.float32)
    wide = x.astype(np.float64)
    compute(
        """
        ones = zg.full((4, 64), 1.0, zg.f32)
        mean, square, count = zg.reduce((x, zg.zeros((4, 64), zg.f32), ones), 1, welford)
        all_mean, all_square, all_count = zg.reduce((x, zg.zeros((4, 64), zg.f32), ones), None, welford, keep_dims=True)
        variance = zg.div(square, count)
        """,
        {"x": x},
        {
            "mean": wide.mean(2).astype(np.float32), "variance": wide.var(2).astype(np.float32),
            "count": np.full((2, 4), 64, np.float32), "all_mean": wide.mean((1, 2), keepdims=True).astype(np.float32),
            "all_square": (wide.var((1, 2), keepdims=True) * 256).astype(np.float32),
            "all_count": np.full((2, 1, 1), 256, np.float32),
        },
        welford=welford, tolerance=2e-4,
    )  # fmt: skip


@zg.function
def first(a, b):
    return a


@zg.function
def last(a, b):
    return b


@zg.function
def larger(a, b):
    return a if a > b else b


@zg.function
def linear(a, b, c, d):
    """Two steps x -> a * x + b, one after the other."""
    return a * c, b * c + d


def test_reductions_keep_the_order(compute):
    x = np.random.default_rng(2).integers(-99, 99, (3, 2, 8, 4)).astype(np.int32)
    compute(
        """
        a = zg.reduce(x, 1, first)
        b = zg.reduce(x, -1, last, True)
        c = zg.reduce(x, None, larger)
        d = zg.associative_scan(x, 0, last)
        e = zg.associative_scan(x, 1, first, reverse=True)
        f = zg.associative_scan(x, 2, larger)
        """,
        {"x": x},
        {
            "a": x[:, :, 0], "b": x[..., -1:], "c": x.max((1, 2, 3)), "d": x,
            "e": np.broadcast_to(x[:, :, -1:], x.shape), "f": np.maximum.accumulate(x, 3),
        },
        first=first, last=last, larger=larger,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 8), (16, 128), (128, 32)])
def test_scans_of_tuples(shape, compute):
    """Along one axis, and back along the other. Overflowing results are the same in any order, too."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-2, 3, (2, 2, *shape)).astype(np.int64)
    results = {}
    for tag, reverse, axis in (("", False, 1), ("back", True, 0)):
        p, q = (np.moveaxis(v, axis + 1, -1) for v in (a, b))
        if reverse:
            p, q = p[..., ::-1], q[..., ::-1]
        c, d = p.copy(), q.copy()
        for i in range(1, p.shape[-1]):
            c[..., i], d[..., i] = c[..., i - 1] * p[..., i], d[..., i - 1] * p[..., i] + q[..., i]
        if reverse:
            c, d = c[..., ::-1], d[..., ::-1]
        results[f"c{tag}"], results[f"d{tag}"] = (np.moveaxis(v, -1, axis + 1) for v in (c, d))
    compute(
        """
        c, d = zg.associative_scan((a, b), 1, linear)
        cback, dback = zg.associative_scan((a, b), axis=0, combine_fn=linear, reverse=True)
        """,
        {"a": a, "b": b}, results, linear=linear,
    )  # fmt: skip


def summing(number):
    @zg.function
    def combine(a, b):
        return a + b + number

    @zg.function
    def summed(x):
        return zg.reduce(x, 0, combine), zg.associative_scan(x, 0, combine)

    return summed


def test_functions_of_one_name_get_different_symbols(compute):
    """Two closures share their name and their argument types, and others are called as functions of the library."""

    @zg.function
    def sum(a, b):
        return zg.maximum(a, b)

    @zg.function
    def reduce_sum(x, axis: zg.constexpr):
        return zg.max(x)

    by_one, ten = summing(1), summing(10)

    @zg.function
    def first(x):
        return by_one(x)

    @zg.function
    def second(x):
        return ten(x)

    x = np.arange(16, dtype=np.int32).reshape(2, 8)
    running = np.cumsum(x, 1, np.int32)
    compute(
        """
        a, e = first(x)
        b, f = second(x)
        c = zg.sum(x)
        d = zg.reduce(x, 0, mine)
        g = zg.associative_scan(x, 0, mine)
        h = zg.cumsum(x)
        i = reduce_sum(x, 0)
        """,
        {"x": x},
        {
            "a": running[:, -1] + 7, "b": running[:, -1] + 70, "c": running[:, -1], "d": x.max(1),
            "e": running + np.arange(8, dtype=np.int32), "f": running + 10 * np.arange(8, dtype=np.int32), "g": x,
            "h": running, "i": x.max(1),
        },
        first=first, second=second, mine=sum, reduce_sum=reduce_sum,
    )  # fmt: skip


@pytest.mark.parametrize("name", ("i1", *INTS, *FLOATS))
def test_cumulative_sums_and_products(name, compute, dtypes):
    for shape in SHAPES:
        x = sample(name, shape, dtypes)
        if name in FLOATS:
            # Products of ones and twos stay exact, and inside of the dtype, whose overflow saturates.
            x = np.where(np.abs(x.astype(np.float64)) > 3, 2, np.where(x.astype(np.float64) < 0, -1, 1)).astype(x.dtype)
        result = dtypes[summed(name)]
        computing = result if name not in FLOATS else np.dtype(np.float64)
        lines, expected = [], {}
        for number, (axis, back) in enumerate(itertools.product([*range(len(shape)), -1], (False, True))):
            along = axis + 1 if axis >= 0 else x.ndim - 1
            for call, function in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
                y = np.flip(x, along) if back else x
                y = function(y.astype(computing), along, computing)
                y = np.flip(y, along) if back else y
                lines.append(f"{call}{number} = zg.{call}(x, {axis}, reverse={back})")
                expected[f"{call}{number}"] = y.astype(result)
        compute("\n".join(lines), {"x": x}, expected, thorough=shape == (2, 4, 8))
    compute("y = zg.cumsum(x)", {"x": x}, {"y": np.cumsum(x.astype(computing), 1, computing).astype(result)})


@pytest.mark.parametrize("shape", [(2048,), (8, 256), (128, 16)])
@pytest.mark.parametrize("name", ["i1", "i8", "u64", "f16", "f32", "f64"])
def test_long_cumulative_sums(name, shape, compute, dtypes):
    """More elements than the threads of a warp; numbers whose sums are exact in any order."""
    rng = np.random.default_rng(9)
    x = rng.integers(-2 if name[0] == "f" else 0, 2, (2, *shape)).astype(dtypes[name])
    lines, expected = [], {}
    for axis, back in itertools.product(range(len(shape)), (False, True)):
        y = np.flip(x, axis + 1) if back else x
        y = np.cumsum(y.astype(np.int64), axis + 1)
        lines.append(f"y{axis}{back} = zg.cumsum(x, {axis}, reverse={back})")
        expected[f"y{axis}{back}"] = (np.flip(y, axis + 1) if back else y).astype(dtypes[summed(name)])
    compute("\n".join(lines), {"x": x}, expected)


@zg.function
def odd_one(a, b):
    return zg.xor(a, b)


@pytest.mark.parametrize("shape", [(1024,), (16, 64)])
@pytest.mark.parametrize("name", ["i1", "i16", "u8"])
def test_long_scans_by_functions(name, shape, compute, dtypes):
    """A commutative function, and one that takes the later operand, so that the scan gives each element itself."""
    x = np.random.default_rng(0).integers(0, 2 if name == "i1" else 100, (2, *shape)).astype(dtypes[name])
    compute(
        """
        y = zg.associative_scan(x, 0, odd_one)
        z = zg.associative_scan(x, 0, last, reverse=True)
        w = zg.reduce(x, 0, last)
        """,
        {"x": x}, {"y": np.bitwise_xor.accumulate(x, 1), "z": x, "w": x[:, -1]}, odd_one=odd_one, last=last,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["i1", "i8", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f8e5m2", "f32", "f64"])
def test_products_any_and_all(name, compute, dtypes):
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2 if name == "i1" else 3, (4, 4, 8)).astype(dtypes[name])
    x[1], x[2, 1] = 1, 0
    wide = {"i1": np.int32, "i8": np.int32, "u16": np.uint32}.get(name, dtypes[name])
    large = x.astype(np.float64).prod(2)
    compute(
        """
        rows = zg.prod(x, 1)
        whole = zg.prod(x, dtype=zg.f64)
        some = zg.any(x, 1)
        every = zg.all(x, axis=0)
        kept = zg.all(x, 1, keep_dims=True)
        one = zg.any(x)
        """,
        {"x": x},
        {
            "rows": large.astype(wide), "whole": x.astype(np.float64).reshape(4, -1).prod(1),
            "some": x.astype(bool).any(2), "every": x.astype(bool).all(1), "kept": x.astype(bool).all(2, keepdims=True),
            "one": x.astype(bool).reshape(4, -1).any(1),
        },
    )  # fmt: skip


def test_a_nan_is_not_zero(compute):
    x = np.array([[np.nan, np.nan], [0.0, -0.0]], np.float32)
    compute("a = zg.any(x)\nb = zg.all(x)", {"x": x}, {"a": np.array([True, False]), "b": np.array([True, False])})


@pytest.mark.parametrize("name", ["i1", "u8", "i16", "i32", "u64"])
def test_bitwise_or(name, compute, dtypes):
    x = np.random.default_rng(6).integers(0, 2 if name == "i1" else 100, (2, 4, 8)).astype(dtypes[name])
    compute(
        "a = zg.reduce_or(x, 1)\nb = zg.reduce_or(x)\nc = zg.reduce_or(x, 0, keep_dims=True)",
        {"x": x},
        {
            "a": np.bitwise_or.reduce(x, 2), "b": np.bitwise_or.reduce(x.reshape(2, -1), 1),
            "c": np.bitwise_or.reduce(x, 1, keepdims=True),
        },
    )  # fmt: skip


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "u64", "f16", "bf16", "f8e4m3", "f32", "f64"])
def test_running_extremes(name, compute, dtypes):
    x = np.random.default_rng(8).integers(0, 100, (2, 4, 16)).astype(dtypes[name])
    if name in ("f32", "f16"):
        x[0, :, :2], x[1, 2, 5], x[1, 3] = np.nan, np.nan, np.nan
    wide = x.astype(np.float64) if name != "u64" else x
    compute(
        """
        up = zg.cummax(x, 1)
        down = zg.cummin(x)
        back = zg.cummax(x, axis=-1, reverse=True)
        """,
        {"x": x},
        {
            "up": np.fmax.accumulate(wide, 2).astype(x.dtype), "down": np.fmin.accumulate(wide, 1).astype(x.dtype),
            "back": np.fmax.accumulate(wide[..., ::-1], 2)[..., ::-1].astype(x.dtype),
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "target"), [("i8", "i64"), ("f16", "f32"), ("f16", "f64"), ("i32", "f32"), ("i1", "i8")]
)
def test_running_sums_of_another_dtype(name, target, compute, dtypes):
    x = sample(name, (4, 8), dtypes)
    expected = x.astype(dtypes[target]).cumsum(2, dtype=dtypes[target])
    compute(f"y = zg.cumsum(x, 1, dtype=zg.{target})", {"x": x}, {"y": expected})
