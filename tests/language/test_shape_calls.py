"""Making and reshaping tensors, and dot."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg

ALL = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2")


@pytest.mark.parametrize("name", ALL)
def test_zeros_and_full(name, compute, dtypes):
    dtype = dtypes[name]
    number = {"i1": True, "u64": 2**64 - 1}.get(name, 3)
    compute(
        f"""
        zeros = zg.zeros((2, 4), zg.{name})
        full = zg.full((8,), {number}, zg.{name})
        cast = zg.full((1, 2), x, zg.{name})
        none = zg.full((), 1, zg.{name})
        """,
        {"x": np.array([1, 0], np.int16)},
        {
            "zeros": np.zeros((2, 2, 4), dtype), "full": np.full((2, 8), number, np.uint64).astype(dtype),
            "cast": np.array([[[1, 1]], [[0, 0]]]).astype(dtype), "none": np.ones(2).astype(dtype),
        },
    )  # fmt: skip


def test_special_fills(compute, dtypes):
    compute(
        """
        low = zg.full((4,), NEG, zg.f32)
        nan = zg.full((2,), NAN, zg.bf16)
        tenth = zg.full((2,), 0.1, zg.f64)
        negative = zg.full((2,), -0.0, zg.f16)
        """,
        {},
        {
            "low": np.full((1, 4), -np.inf, np.float32), "nan": np.full((1, 2), np.nan).astype(dtypes["bf16"]),
            "tenth": np.full((1, 2), 0.1), "negative": np.full((1, 2), -0.0, np.float16),
        },
        NEG=float("-inf"), NAN=float("nan"),
    )  # fmt: skip


def test_arange(compute):
    for start, end in ((0, 1), (0, 64), (3, 7), (-8, 8), (2**31 - 9, 2**31 - 1), (-(2**31), 2 - 2**31)):
        compute(f"y = zg.arange({start}, {end})", {}, {"y": np.arange(start, end, dtype=np.int32)[None]})


@pytest.mark.parametrize("name", ["i1", "i8", "u64", "bf16", "f32", "f8e4m3"])
def test_shapes(name, compute, dtypes):
    x = np.random.default_rng(3).integers(0, 2 if name == "i1" else 100, (2, 4, 2, 8)).astype(dtypes[name])
    y = x[:, ::-1].copy()
    even, odd = x[..., 0], x[..., 1]
    compute(
        """
        expanded = zg.expand(x, 1)
        last = zg.expand(x, -1)
        wide = zg.broadcast(zg.expand(x, 0), (4, 4, 2, 8))
        like = zg.broadcast(zg.reshape(zg.ravel(zg.sort(zg.arange(0, 8))), (2, 4, 1)), zg.reshape(x, (2, 4, 8)))
        flat = zg.ravel(x)
        shaped = zg.reshape(x, (8, 8))
        lines = zg.reshape(x, (64, 1))
        swapped = zg.trans(x)
        turned = zg.trans(x, 2, 0, 1)
        permuted = zg.permute(x, (1, 2, 0))
        also = zg.permute(x, 1, 2, 0)
        joined = zg.join(x, y)
        a, b = zg.split(zg.reshape(x, (4, 8, 2)))
        p, q = zg.split(zg.join(x, y))
        both = zg.cat(x, y)
        """,
        {"x": x, "y": y},
        {
            "expanded": x[:, :, None], "last": x[..., None], "wide": np.broadcast_to(x[:, None], (2, 4, 4, 2, 8)),
            "like": np.broadcast_to(np.arange(8, dtype=np.int32).reshape(1, 2, 4, 1), (2, 2, 4, 8)),
            "flat": x.reshape(2, 64), "shaped": x.reshape(2, 8, 8), "lines": x.reshape(2, 64, 1),
            "swapped": x.transpose(0, 1, 3, 2), "turned": x.transpose(0, 3, 1, 2), "permuted": x.transpose(0, 2, 3, 1),
            "also": x.transpose(0, 2, 3, 1), "joined": np.stack([x, y], -1), "a": x.reshape(2, 4, 8, 2)[..., 0],
            "b": x.reshape(2, 4, 8, 2)[..., 1], "p": x, "q": y, "both": np.concatenate([x, y], 1),
        },
    )  # fmt: skip


def test_shapes_of_splats_and_broadcasts(compute):
    """Splats and broadcasts are not written out by the interpreter: every call has to see the whole shape."""
    x = np.array([3, 5], np.int32)
    full = np.broadcast_to(x[:, None, None], (2, 4, 2))
    row = np.broadcast_to(np.arange(4, dtype=np.int32)[:, None], (2, 4, 2))
    compute(
        """
        base = zg.broadcast(x, (4, 2))
        rows = zg.broadcast(zg.expand(zg.arange(0, 4), 1), (4, 2))
        flat = zg.ravel(rows)
        shaped = zg.reshape(rows, (2, 4))
        turned = zg.trans(rows)
        joined = zg.join(base, rows)
        left, right = zg.split(rows)
        both = zg.cat(base, rows)
        total = zg.sum(rows, 1)
        all = zg.sum(base)
        most = zg.argmax(base, 0)
        running = zg.cumsum(base, 1)
        ordered = zg.sort(base)
        first = zg.topk(rows, 1)
        picked = zg.gather(base, rows, 0)
        counts = zg.histogram(zg.ravel(rows), 4)
        products = zg.dot(zg.cast(rows, zg.f32), zg.cast(zg.trans(base), zg.f32))
        """,
        {"x": x},
        {
            "flat": row.reshape(2, 8), "shaped": row.reshape(2, 2, 4), "turned": row.transpose(0, 2, 1),
            "joined": np.stack([full, row], -1), "left": row[..., 0], "right": row[..., 1],
            "both": np.concatenate([full, row], 1), "total": row.sum(2, dtype=np.int32), "all": x * 8,
            "most": np.zeros((2, 2), np.int32), "running": np.cumsum(full, 2, dtype=np.int32), "ordered": full,
            "first": row[..., :1], "picked": full, "counts": np.full((2, 4), 2, np.int32),
            "products": (row.astype(np.float32) @ full.transpose(0, 2, 1).astype(np.float32)),
        },
    )  # fmt: skip


def test_join_and_cat_promote_their_operands(compute, dtypes):
    a, b = np.array([[1, 2]], np.int8), np.array([[0.5, 4]], np.float32)
    compute(
        """
        joined = zg.join(a, b)
        wide = zg.join(a, 1)
        pair = zg.join(zg.sum(b), 2)
        both = zg.cat(a, b)
        first, second = zg.split(pair)
        """,
        {"a": a, "b": b},
        {
            "joined": np.stack([a.astype(np.float32), b], -1), "wide": np.stack([a, np.ones_like(a)], -1),
            "pair": np.array([[4.5, 2]], np.float32), "both": np.concatenate([a.astype(np.float32), b], 1),
            "first": np.array([4.5], np.float32), "second": np.array([2], np.float32),
        },
    )  # fmt: skip


def test_pointers_are_reshaped_too(kernel, launch):
    turn = kernel("""
    def turn(x_ptr, y_ptr):
        at = zg.add(zg.mul(zg.expand(zg.arange(0, 4), 1), 8), zg.expand(zg.arange(0, 8), 0))
        sources = zg.add(x_ptr, at)
        zg.store(zg.trans(zg.add(y_ptr, at)), zg.load(zg.trans(sources)))
        cube = zg.load(zg.permute(zg.reshape(sources, (8, 2, 2)), 2, 0, 1))
        zg.store(zg.add(zg.add(y_ptr, 32), zg.arange(0, 32)), zg.ravel(cube))
    """)
    x, y = np.arange(32, dtype=np.float64), np.zeros(64)
    launch(turn, 1, [x, y])
    assert (y[:32] == x).all() and (y[32:] == x.reshape(8, 2, 2).transpose(2, 0, 1).ravel()).all()


def tf32(x):
    """10 digits after the point, to nearest, ties away from zero."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("shape", [
    (16, 8, 4), (1, 1, 1), (1, 16, 1), (2, 4, 1, 8), (4, 16, 16, 2),
    (32, 16, 16), (16, 4, 8), (2, 16, 32, 16), (4, 32, 16, 8), (8, 16, 64, 16),
])  # fmt: skip
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "i8", "u8", "f8e4m3", "f8e5m2"])
def test_dot(name, shape, compute, dtypes):
    *batch, m, k, n = shape
    rng = np.random.default_rng(7)
    if name in ("i8", "u8"):
        a, b = (
            rng.integers(*((-128, 128) if name == "i8" else (0, 256)), s)
            for s in ((2, *batch, m, k), (2, *batch, k, n))
        )
        result = np.int32
    else:
        # Small whole numbers over 4, so that every order of summation gives the same.
        a, b = (rng.integers(-8, 9, s) / 4 for s in ((2, *batch, m, k), (2, *batch, k, n)))
        result = np.float64 if name == "f64" else np.float32
    a, b = a.astype(dtypes[name]), b.astype(dtypes[name])
    c = rng.integers(-50, 50, (2, *batch, m, n)).astype(result)
    wide = np.int64 if result == np.int32 else np.float64
    product = a.astype(wide) @ b.astype(wide)
    body, inputs = "y = zg.dot(a, b)\nz = zg.dot(a, b, c)", {"a": a, "b": b, "c": c}
    expected = {"y": product.astype(result), "z": (product + c).astype(result)}
    if name in ("f16", "bf16", "f8e4m3", "f8e5m2"):
        inputs["h"] = c.astype(np.float16)
        body += "\nw = zg.dot(a, b, acc=h)"
        expected["w"] = (product + c).astype(np.float16)
    if name == "f32":
        for precision in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"):
            body += f"\n{precision} = zg.dot(a, b, input_precision='{precision}')"
            expected[precision] = product.astype(result)
    compute(body, inputs, expected)


@pytest.mark.parametrize("pair", [("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e4m3"), ("i8", "u8"), ("u8", "i8")])
def test_dot_of_two_types(pair, compute, dtypes):
    rng = np.random.default_rng(8)
    a, b = (
        rng.integers(0 if name == "u8" else -8, 9, shape).astype(dtypes[name])
        for name, shape in zip(pair, ((2, 32, 64), (2, 64, 16)), strict=True)
    )
    product = a.astype(np.float64) @ b.astype(np.float64)
    expected = product.astype(np.int32 if "u8" in pair else np.float32)
    compute("y = zg.dot(a, b, max_num_imprecise_acc=32)", {"a": a, "b": b}, {"y": expected})


@pytest.mark.parametrize("batch", [(2, 4), (2, 1, 2)])
def test_dot_of_batches_of_several_axes(batch, compute):
    rng = np.random.default_rng(9)
    a, b, c = (rng.integers(-8, 9, (2, *batch, *s)).astype(np.float32) for s in ((8, 16), (16, 4), (8, 4)))
    sums = (a @ b + c, (a @ b).astype(np.float16))
    body = "y = zg.dot(a, b, c)\nz = zg.dot(zg.cast(a, zg.f16), zg.cast(b, zg.f16), out_dtype=zg.f16)"
    compute(body, {"a": a, "b": b, "c": c}, {"y": sums[0], "z": sums[1]})


def test_precision_of_dot(compute):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 1, 16, 32)).astype(np.float32)
    b = np.ascontiguousarray(b.transpose(0, 2, 1))
    true = a.astype(np.float64) @ b.astype(np.float64)
    rough = tf32(a).astype(np.float64) @ tf32(b).astype(np.float64)
    assert np.abs(rough - true).max() > 1e-4
    compute(
        "y = zg.dot(a, b, input_precision='tf32')", {"a": a, "b": b}, {"y": rough.astype(np.float32)}, tolerance=1e-5
    )
    halves = [a.astype(ml_dtypes.bfloat16).astype(np.float32), b.astype(ml_dtypes.bfloat16).astype(np.float32)]
    rest = [(x - half).astype(ml_dtypes.bfloat16).astype(np.float64) for x, half in zip((a, b), halves, strict=True)]
    three = true - rest[0] @ rest[1]
    compute("y = zg.dot(a, b, None, 'bf16x3')", {"a": a, "b": b}, {"y": three.astype(np.float32)}, tolerance=2e-4)
    for precision in ("'ieee'", "'tf32x3'", "'bf16x6'", "None"):
        compute(
            f"y = zg.dot(a, b, None, {precision})", {"a": a, "b": b}, {"y": true.astype(np.float32)}, tolerance=2e-5
        )


def test_integer_dots_wrap(compute):
    a = np.full((1, 2, 16), 255, np.uint8)
    c = np.full((1, 2, 2), 2**31 - 1, np.int32)
    compute("y = zg.dot(a, zg.trans(a), c)", {"a": a, "c": c}, {"y": (c + np.int32(255 * 255 * 16)).astype(np.int32)})


@pytest.mark.parametrize("index", ["i32", "i64", "u8"])
def test_gather(index, compute, dtypes):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 8)).astype(np.float32)
    i, j = rng.integers(0, 4, (2, 2, 8)), rng.integers(0, 8, (2, 4, 16))
    compute(
        "y = zg.gather(x, i, 0)\nz = zg.gather(x, j, -1)\nw = zg.gather(zg.reshape(x, (32,)), k, 0)",
        {"x": x, "i": i.astype(dtypes[index]), "j": j.astype(dtypes[index]), "k": j[:, 0].astype(dtypes[index])},
        {
            "y": np.take_along_axis(x, i, 1), "z": np.take_along_axis(x, j, 2),
            "w": np.take_along_axis(x.reshape(2, 32), j[:, 0], 1),
        },
    )  # fmt: skip


def test_gather_out_of_range_names_the_index(kernel):
    wrong = kernel("""
    def wrong(i_ptr, y_ptr):
        at = zg.arange(0, 4)
        zg.store(zg.add(y_ptr, at), zg.gather(at, zg.load(zg.add(i_ptr, at)), 0))
    """)
    with pytest.raises(zg.KernelRuntimeError, match="gathers at index 4; it must be from 0 to 3"):
        wrong[(1,)](np.array([0, 1, 4, 2], np.int32), np.zeros(4, np.int32))


@pytest.mark.parametrize("name", ["i1", "i8", "i16", "i32", "i64", "u8", "u32", "u64"])
def test_histogram(name, compute, values, rows, dtypes):
    x = np.concatenate(
        [values(name), np.random.default_rng(1).integers(0, 2 if name == "i1" else 20, 100).astype(dtypes[name])]
    )
    (x,) = rows(x)
    mask = np.arange(x.size).reshape(x.shape) % 3 > 0
    lists = [row.tolist() for row in x.astype(np.int64 if name == "i1" else x.dtype)]
    masked = [[n for n, m in zip(row, keep, strict=True) if m] for row, keep in zip(lists, mask, strict=True)]

    def counts(rows_, bins):
        return np.array([[row.count(n) for n in range(bins)] for row in rows_], np.int32)

    compute(
        "y = zg.histogram(x, 16)\nz = zg.histogram(x, 16, mask)\nw = zg.histogram(x, 1)",
        {"x": x, "mask": mask},
        {"y": counts(lists, 16), "z": counts(masked, 16), "w": counts(lists, 1)},
    )


@pytest.mark.parametrize("name", ALL)
def test_flip_and_interleave(name, compute, dtypes):
    x = np.random.default_rng(5).integers(0, 2 if name == "i1" else 100, (2, 4, 1, 8)).astype(dtypes[name])
    y = x[:, ::-1].copy()
    turns = np.stack([x, y], -1).reshape(2, 4, 1, 16)
    compute(
        """
        last = zg.flip(x)
        first = zg.flip(x, 0)
        one = zg.flip(x, dim=-2)
        turns = zg.interleave(x, y)
        row = zg.interleave(zg.reshape(x, (4, 8)), zg.zeros((8,), x.dtype))
        """,
        {"x": x, "y": y},
        {
            "last": x[..., ::-1], "first": x[:, ::-1], "one": x, "turns": turns,
            "row": np.stack([x.reshape(2, 4, 8), np.zeros_like(x).reshape(2, 4, 8)], -1).reshape(2, 4, 16),
        },
    )  # fmt: skip


def test_scalars_and_literals_are_interleaved(compute):
    x = np.array([3, -4], np.int16)
    pairs = np.stack([x, np.ones_like(x)], -1)
    compute("y = zg.interleave(x, 1)\nz = zg.flip(zg.interleave(1, x))", {"x": x}, {"y": pairs, "z": pairs})


def test_axes_of_size_1_come_and_go(compute):
    x = np.arange(2 * 4 * 8, dtype=np.int32).reshape(2, 4, 8)
    body = """
    wide = zg.unsqueeze(x, 1)
    last = zg.unsqueeze(x, -1)
    back = zg.squeeze(wide, 1)
    one = zg.squeeze(zg.unsqueeze(zg.sum(x), 0), 0)
    """
    expected = {"wide": x[:, :, None], "last": x[..., None], "back": x, "one": x.sum((1, 2), dtype=np.int32)}
    compute(body, {"x": x}, expected)


def test_the_last_axis_is_flipped_by_default(compute):
    x = np.arange(2 * 4 * 8, dtype=np.int32).reshape(2, 4, 8)
    compute(
        "y = zg.flip(x)\nz = zg.cat(x, x, can_reorder=True)",
        {"x": x},
        {"y": x[..., ::-1], "z": np.concatenate([x, x], 1)},
    )
