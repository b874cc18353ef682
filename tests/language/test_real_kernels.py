"""Whole kernels of neural networks against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg

LESS = zg.CompareKind.LESS_THAN
AT_LEAST = zg.CompareKind.GREATER_THAN_OR_EQUAL
EQUAL = zg.CompareKind.EQUAL

bf16 = ml_dtypes.bfloat16


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def close(actual, expected, rtol=1e-5, atol=1e-5):
    np.testing.assert_allclose(np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol, atol)


@zg.function
def tile(start, rows: zg.constexpr, columns: zg.constexpr, stride):
    """The offsets of a tile of a row-major matrix whose rows start at `start`."""
    r = zg.expand(zg.add(start, zg.arange(0, rows)), 1)
    return zg.add(zg.mul(r, stride), zg.expand(zg.arange(0, columns), 0))


@zg.kernel
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    n,
    scale,
    CAUSAL: zg.constexpr,
    M: zg.constexpr,
    N: zg.constexpr,
    D: zg.constexpr,
):
    block = zg.program_id(0)
    head = zg.program_id(1)
    at = head * n * D
    rows = zg.add(block * M, zg.arange(0, M))
    row_mask = zg.expand(zg.compare(rows, n, LESS), 1)
    q = zg.load(zg.add(q_ptr + at, tile(block * M, M, D, D)), row_mask, other=0.0)
    top = zg.full((M,), float("-inf"), zg.f32)
    total = zg.zeros((M,), zg.f32)
    acc = zg.zeros((M, D), zg.f32)
    end = min((block + 1) * M, n) if CAUSAL else n
    for start in range(0, end, N):
        columns = zg.add(start, zg.arange(0, N))
        column_mask = zg.compare(columns, n, LESS)
        k = zg.load(zg.add(k_ptr + at, tile(start, N, D, D)), zg.expand(column_mask, 1), other=0.0)
        v = zg.load(zg.add(v_ptr + at, tile(start, N, D, D)), zg.expand(column_mask, 1), other=0.0)
        scores = zg.mul(zg.dot(q, zg.trans(k)), scale * 1.4426950408889634)
        scores = zg.where(zg.expand(column_mask, 0), scores, float("-inf"))
        if CAUSAL:
            visible = zg.compare(zg.expand(rows, 1), zg.expand(columns, 0), AT_LEAST)
            scores = zg.where(visible, scores, float("-inf"))
        higher = zg.maximum(top, zg.max(scores, axis=1))
        p = zg.exp2(zg.sub(scores, zg.expand(higher, 1)))
        shrink = zg.exp2(zg.sub(top, higher))
        total = zg.fma(total, shrink, zg.sum(p, axis=1))
        acc = zg.dot(zg.cast(p, v.dtype), v, acc=zg.mul(acc, zg.expand(shrink, 1)))
        top = higher
    acc = zg.div(acc, zg.expand(total, 1))
    zg.store(zg.add(out_ptr + at, tile(block * M, M, D, D)), zg.cast(acc, out_ptr.dtype.element_ty), row_mask)
    zg.store(zg.add(lse_ptr + head * n, rows), zg.add(top, zg.log2(total)), zg.compare(rows, n, LESS))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, bf16])
def test_attention(causal, dtype, rng, launch):
    heads, n, d = 2, 52, 16
    q, k, v = rng.standard_normal((3, heads, n, d)).astype(dtype)
    out, lse = np.zeros((heads, n, d), dtype), np.zeros((heads, n), np.float32)
    launch(attention, (zg.cdiv(n, 16), heads), [q, k, v, out, lse, n, 0.25], CAUSAL=causal, M=16, N=32, D=d)
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * 0.25
    if causal:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    sums = weights.sum(-1, keepdims=True)
    close(out, weights / sums @ v.astype(np.float64), *((1e-5, 1e-5) if dtype == np.float32 else (0.02, 0.02)))
    close(lse, (scores.max(-1) + np.log(sums[..., 0])) / np.log(2), 1e-3, 1e-3)


@zg.kernel
def layer_norm_backward(
    dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, n, SIZE: zg.constexpr
):
    row = zg.program_id(0)
    columns = zg.arange(0, SIZE)
    mask = zg.compare(columns, n, LESS)
    x = zg.cast(zg.load(zg.add(x_ptr + row * n, columns), mask, other=0), zg.f32)
    dy = zg.cast(zg.load(zg.add(dy_ptr + row * n, columns), mask, other=0), zg.f32)
    w = zg.cast(zg.load(zg.add(w_ptr, columns), mask), zg.f32)
    rstd = zg.load(rstd_ptr + row)
    normal = zg.where(mask, zg.mul(zg.sub(x, zg.load(mean_ptr + row)), rstd), 0.0)
    wdy = zg.where(mask, zg.mul(w, dy), 0.0)
    c1 = zg.sum(zg.mul(normal, wdy), axis=0) / n
    c2 = zg.sum(wdy, axis=0) / n
    dx = zg.mul(zg.sub(wdy, zg.add(zg.mul(normal, c1), c2)), rstd)
    zg.store(zg.add(dx_ptr + row * n, columns), zg.cast(dx, zg.f16), mask)
    while zg.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    at = zg.add(dw_ptr, columns)
    zg.store(at, zg.add(zg.load(at, mask), zg.mul(dy, normal)), mask)
    at = zg.add(db_ptr, columns)
    zg.store(at, zg.add(zg.load(at, mask), dy), mask)
    zg.debug_barrier()
    zg.atomic_xchg(lock_ptr, 0)


def test_layer_norm_backward(rng, launch):
    rows, n = 5, 27
    x, dy = rng.standard_normal((2, rows, n)).astype(np.float16)
    w = rng.standard_normal(n).astype(np.float16)
    mean = x.mean(1, dtype=np.float32)
    rstd = 1 / np.sqrt(x.var(1, dtype=np.float32) + 1e-5)
    dx, dw, db = np.zeros((rows, n), np.float16), np.zeros(n, np.float32), np.zeros(n, np.float32)
    launch(layer_norm_backward, rows, [dx, dy, dw, db, x, w, mean, rstd, np.zeros(1, np.int32), n], SIZE=32)
    x, dy, w = (array.astype(np.float64) for array in (x, dy, w))
    normal = (x - mean[:, None]) * rstd[:, None]
    wdy = w * dy
    means = (normal * wdy).mean(1, keepdims=True), wdy.mean(1, keepdims=True)
    close(dx, (wdy - normal * means[0] - means[1]) * rstd[:, None], 0.01, 0.01)
    close(dw, (dy * normal).sum(0))
    close(db, dy.sum(0))


@zg.kernel
def cross_entropy(logits_ptr, stride: zg.i64, target_ptr, loss_ptr, n, IGNORED: zg.constexpr, SIZE: zg.constexpr):
    row = zg.cast(zg.program_id(0), zg.i64)
    logits_ptr += row * stride
    target = zg.load(target_ptr + row)
    if target == IGNORED:
        for start in range(0, n, SIZE):
            columns = zg.add(start, zg.arange(0, SIZE))
            zg.store(zg.add(logits_ptr, columns), 0.0, zg.compare(columns, n, LESS))
        zg.store(loss_ptr + row, 0.0)
        return
    top = float("-inf")
    total = 0.0
    for start in range(0, n, SIZE):
        columns = zg.add(start, zg.arange(0, SIZE))
        mask = zg.compare(columns, n, LESS)
        logits = zg.cast(zg.load(zg.add(logits_ptr, columns), mask, other=float("-inf")), zg.f32)
        higher = max(top, zg.max(logits, axis=0))
        total = total * zg.exp(top - higher) + zg.sum(zg.exp(zg.sub(logits, higher)), axis=0)
        top = higher
    zg.store(loss_ptr + row, top + zg.log(total) - zg.cast(zg.load(logits_ptr + target), zg.f32))
    for start in range(0, n, SIZE):
        columns = zg.add(start, zg.arange(0, SIZE))
        mask = zg.compare(columns, n, LESS)
        logits = zg.cast(zg.load(zg.add(logits_ptr, columns), mask, other=float("-inf")), zg.f32)
        gradient = zg.div(zg.exp(zg.sub(logits, top)), total)
        gradient = zg.sub(gradient, zg.cast(zg.compare(columns, target, EQUAL), zg.f32))
        zg.store(zg.add(logits_ptr, columns), zg.cast(gradient, zg.bf16), mask)


def test_cross_entropy(rng, launch):
    rows, n = 6, 45
    logits = rng.standard_normal((rows, n)).astype(bf16)
    target = np.array([3, -100, 44, 0, 17, -100])
    expected = logits.astype(np.float64)
    logs = np.log(np.exp(expected).sum(1))
    ignored = target == -100
    losses = np.where(ignored, 0, logs - expected[np.arange(rows), target.clip(0)])
    gradient = np.exp(expected - logs[:, None]) - np.eye(n)[target.clip(0)]
    gradient[ignored] = 0
    loss = np.full(rows, 7.0, np.float32)
    launch(cross_entropy, rows, [logits, n, target, loss, n], IGNORED=-100, SIZE=16)
    close(loss, losses)
    close(logits, gradient, 0.01, 0.01)


@zg.kernel
def route(scores_ptr, weight_ptr, expert_ptr, count_ptr, E: zg.constexpr, K: zg.constexpr, ROWS: zg.constexpr):
    """The K best of E experts for each token: packed as key and index into one integer, so that one topk does both."""
    rows = zg.add(zg.program_id(0) * ROWS, zg.arange(0, ROWS))
    columns = zg.arange(0, E)
    scores = zg.load(zg.add(scores_ptr, zg.add(zg.mul(zg.expand(rows, 1), E), zg.expand(columns, 0))))
    bits = zg.bitcast(scores, zg.i32)
    key = zg.xor(bits, zg.and_(zg.shr(bits, 31), 0x7FFFFFFF))
    packed = zg.or_(zg.shl(zg.cast(key, zg.i64), 32), zg.cast(zg.expand(zg.sub(E - 1, columns), 0), zg.i64))
    best = zg.topk(packed, K)
    expert = zg.sub(E - 1, zg.cast(best, zg.i32))
    weight = zg.softmax(zg.gather(scores, expert, 1), 1)
    out = zg.add(zg.mul(zg.expand(rows, 1), K), zg.expand(zg.arange(0, K), 0))
    zg.store(zg.add(weight_ptr, out), weight)
    zg.store(zg.add(expert_ptr, out), expert)
    zg.atomic_add(zg.add(count_ptr, columns), zg.histogram(zg.ravel(expert), E), sem="relaxed")


def test_top_k_routing(rng, launch):
    tokens, e, k = 16, 8, 2
    scores = rng.standard_normal((tokens, e)).astype(np.float32)
    weight, expert, count = np.zeros((tokens, k), np.float32), np.zeros((tokens, k), np.int32), np.zeros(e, np.int32)
    launch(route, 4, [scores, weight, expert, count], E=e, K=k, ROWS=4)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    weights = np.exp(np.take_along_axis(scores, order, 1))
    assert (expert == order).all()
    close(weight, weights / weights.sum(1, keepdims=True))
    assert (count == np.bincount(order.ravel(), minlength=e)).all()


@zg.kernel
def rotate(x_ptr, cos_ptr, sin_ptr, BACKWARD: zg.constexpr, INTERLEAVED: zg.constexpr, D: zg.constexpr):
    x_ptr += zg.program_id(0) * D
    half = zg.arange(0, D // 2)
    cos = zg.load(zg.add(cos_ptr + zg.program_id(0) * (D // 2), half))
    sin = zg.load(zg.add(sin_ptr + zg.program_id(0) * (D // 2), half))
    if BACKWARD:
        sin = zg.neg(sin)
    if INTERLEAVED:
        all = zg.add(x_ptr, zg.arange(0, D))
        a, b = zg.split(zg.reshape(zg.load(all), (D // 2, 2)))
    else:
        all = zg.add(x_ptr, zg.reshape(zg.trans(zg.reshape(zg.arange(0, D), (2, D // 2))), (D,)))
        a, b = zg.split(zg.trans(zg.reshape(zg.load(zg.add(x_ptr, zg.arange(0, D))), (2, D // 2))))
    first = zg.sub(zg.mul(a, cos), zg.mul(b, sin))
    second = zg.add(zg.mul(b, cos), zg.mul(a, sin))
    zg.store(all, zg.ravel(zg.join(first, second)))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_rotary_embedding(interleaved, backward, rng, launch):
    n, d = 3, 16
    x = rng.standard_normal((n, d)).astype(np.float32)
    angle = np.outer(np.arange(n), 10000.0 ** (-np.arange(d // 2) / (d // 2))).astype(np.float32)
    pairs = x[:, 0::2] + 1j * x[:, 1::2] if interleaved else x[:, : d // 2] + 1j * x[:, d // 2 :]
    rotation = pairs * np.exp((-1j if backward else 1j) * angle)
    launch(rotate, n, [x, np.cos(angle), np.sin(angle)], BACKWARD=backward, INTERLEAVED=interleaved, D=d)
    got = x[:, 0::2] + 1j * x[:, 1::2] if interleaved else x[:, : d // 2] + 1j * x[:, d // 2 :]
    np.testing.assert_allclose(got, rotation, rtol=1e-5, atol=1e-6)


@zg.kernel
def dropout(x_ptr, out_ptr, mask_ptr, n, p, seed, SIZE: zg.constexpr):
    offsets = zg.add(zg.program_id(0) * SIZE, zg.arange(0, SIZE))
    mask = zg.compare(offsets, n, LESS)
    keep = zg.compare(zg.rand(seed, offsets), p, zg.CompareKind.GREATER_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    zg.store(zg.add(out_ptr, offsets), zg.where(keep, zg.div(x, 1 - p), 0.0), mask)
    zg.store(zg.add(mask_ptr, offsets), keep, mask)


def test_dropout(rng, launch):
    n = 5000
    x, out, keep = rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32), np.zeros(n, np.bool_)
    launch(dropout, zg.cdiv(n, 1024), [x, out, keep, n, 0.25, 1234567890123], SIZE=1024)
    assert 0.72 < keep.mean() < 0.78
    close(out, np.where(keep, x / 0.75, 0))
    again, mask = np.zeros(n, np.float32), np.zeros(n, np.bool_)
    dropout[zg.cdiv(n, 64),](x, again, mask, n, 0.25, 1234567890123, SIZE=64)  # no matter how it is cut
    assert (out == again).all()


@zg.kernel
def persistent_matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, GROUP: zg.constexpr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr
):
    rows, columns = zg.cdiv(m, M), zg.cdiv(n, N)
    index = zg.program_id(0)
    while index < rows * columns:
        in_group = GROUP * columns
        first = index // in_group * GROUP
        height = min(rows - first, GROUP)
        row = first + index % in_group % height
        column = index % in_group // height
        at_m = zg.mod(zg.add(row * M, zg.arange(0, M)), m)
        at_n = zg.mod(zg.add(column * N, zg.arange(0, N)), n)
        at_k = zg.arange(0, K)
        a_at = zg.add(a_ptr, zg.add(zg.mul(zg.expand(at_m, 1), k), zg.expand(at_k, 0)))
        b_at = zg.add(b_ptr, zg.add(zg.mul(zg.expand(at_k, 1), n), zg.expand(at_n, 0)))
        acc = zg.zeros((M, N), zg.f32)
        for step in zg.range(0, zg.cdiv(k, K), num_stages=2):
            rest = k - step * K
            a = zg.load(a_at, zg.compare(zg.expand(at_k, 0), rest, LESS), other=0.0)
            b = zg.load(b_at, zg.compare(zg.expand(at_k, 1), rest, LESS), other=0.0)
            acc = zg.dot(a, b, acc)
            a_at = zg.add(a_at, K)
            b_at = zg.add(b_at, K * n)
        out_m = zg.expand(zg.add(row * M, zg.arange(0, M)), 1)
        out_n = zg.expand(zg.add(column * N, zg.arange(0, N)), 0)
        inside = zg.and_(zg.compare(out_m, m, LESS), zg.compare(out_n, n, LESS))
        zg.store(zg.add(c_ptr, zg.add(zg.mul(out_m, n), out_n)), zg.cast(acc, zg.f16), inside)
        index += zg.num_programs(0)


def test_persistent_matmul(rng, launch):
    m, n, k = 50, 37, 45
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    launch(persistent_matmul, 3, [a, b, c, m, n, k], GROUP=2, M=16, N=16, K=16)
    close(c, a.astype(np.float64) @ b.astype(np.float64), 2e-3, 2e-3)


@zg.kernel
def split_matmul(a_ptr, b_ptr, c_ptr, m, n, k, SPLIT: zg.constexpr, TILE: zg.constexpr):
    a = zg.make_tensor_descriptor(a_ptr, (m, k), (k, 1), (TILE, TILE))
    b = zg.make_tensor_descriptor(b_ptr, (k, n), (n, 1), (TILE, TILE))
    row, column = zg.program_id(0) * TILE, zg.program_id(1) * TILE
    acc = zg.zeros((TILE, TILE), zg.f32)
    for at in range(zg.program_id(2) * TILE, k, SPLIT * TILE):
        acc = zg.dot(a.load((row, at)), b.load((at, column)), acc)
    at_m, at_n = zg.expand(zg.add(row, zg.arange(0, TILE)), 1), zg.expand(zg.add(column, zg.arange(0, TILE)), 0)
    inside = zg.and_(zg.compare(at_m, m, LESS), zg.compare(at_n, n, LESS))
    at_c = zg.add(c_ptr, zg.add(zg.mul(at_m, n), at_n))
    if SPLIT == 1:
        zg.store(at_c, acc, inside)
    else:
        zg.atomic_add(at_c, acc, inside, sem="relaxed")


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("dtype", [bf16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float32])
def test_split_matmul_of_descriptors(split, dtype, rng, launch):
    m, n, k = 24, 40, 72
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    c = np.zeros((m, n), np.float32)
    launch(split_matmul, (2, 3, split), [a, b, c, m, n, k], SPLIT=split, TILE=16)
    close(c, a.astype(np.float64) @ b.astype(np.float64), 1e-4, 1e-4)


@zg.kernel
def group_norm(x_ptr, w_ptr, b_ptr, out_ptr, groups, each, eps, ACTIVATION: zg.constexpr, SIZE: zg.constexpr):
    group = zg.program_id(0)
    if group >= groups:
        return
    at = zg.arange(0, SIZE)
    mask = zg.compare(at, each, LESS)
    x = zg.load(zg.add(x_ptr + group * each, at), mask, 0.0)
    mean = zg.sum(x) / each
    off = zg.where(mask, zg.sub(x, mean), 0.0)
    variance = zg.sum(zg.mul(off, off)) / each
    y = zg.mul(off, zg.rsqrt(variance + eps))
    y = zg.mul(y, zg.load(w_ptr + group)) if w_ptr is not None else y
    if b_ptr is not None:
        y = zg.add(y, zg.load(b_ptr + group))
    if ACTIVATION == "silu":
        y = silu(y)
    elif ACTIVATION is not None:
        y = leaky(silu(silu(y)), slope=0.25)
    zg.store(zg.add(out_ptr + group * each, at), y, mask)


@zg.function
def silu(x):
    return zg.mul(x, zg.sigmoid(x))


@zg.function
def leaky(x, slope=0.5):
    return zg.where(zg.compare(x, 0, LESS), zg.mul(x, slope), x)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("activation", [None, "silu", "both"])
def test_group_norm(weights, activation, rng, launch):
    groups, each = 3, 13
    x = rng.standard_normal((groups, each)).astype(np.float32)
    w, b = rng.standard_normal((2, groups)).astype(np.float32)
    out = np.zeros_like(x)
    parameters = [w, b] if weights else [None, None]
    launch(group_norm, 4, [x, *parameters, out, groups, each, 1e-5], ACTIVATION=activation, SIZE=16)
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    y = y * w[:, None] + b[:, None] if weights else y

    def smooth(y):
        return y / (1 + np.exp(-y))

    if activation == "silu":
        y = smooth(y)
    elif activation == "both":
        y = smooth(smooth(y))
        y = np.where(y < 0, y * 0.25, y)
    close(out, y)


@zg.kernel
def quantise(x_ptr, q_ptr, scale_ptr, n, SIZE: zg.constexpr):
    row = zg.program_id(0)
    at = zg.arange(0, SIZE)
    mask = zg.compare(at, n, LESS)
    x = zg.load(zg.add(x_ptr + row * n, at), mask, other=0.0)
    scale = zg.maximum(zg.max(zg.abs(x), axis=0), 1e-8) / 127
    q = zg.floor(zg.add(zg.div(x, scale), 0.5))
    zg.store(zg.add(q_ptr + row * n, at), zg.cast(zg.clamp(q, -128, 127), zg.i8), mask)
    zg.store(scale_ptr + row, scale)


@zg.kernel
def dequantised_matmul(q_ptr, scale_ptr, packed_ptr, out_ptr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """i8 (M, K) by 4-bit numbers, two in a byte, the even rows of (K, N) in the low halves."""
    q = zg.load(zg.add(q_ptr, tile(0, M, K, K)))
    packed = zg.load(zg.add(packed_ptr, tile(0, K // 2, N, N)))
    low = zg.shr(zg.shl(packed, 4), 4)
    high = zg.shr(packed, 4)
    b = zg.reshape(zg.permute(zg.join(low, high), 0, 2, 1), (K, N))
    acc = zg.dot(q, b)
    scale = zg.expand(zg.load(zg.add(scale_ptr, zg.arange(0, M))), 1)
    zg.store(zg.add(out_ptr, tile(0, M, N, N)), zg.mul(acc, scale))


def test_quantisation(rng, launch):
    m, n, k = 16, 32, 64
    x = rng.standard_normal((m, k)).astype(np.float32)
    q, scale = np.zeros((m, k), np.int8), np.zeros(m, np.float32)
    launch(quantise, m, [x, q, scale, k], SIZE=64)
    scales = np.abs(x).max(1) / np.float32(127)
    close(scale, scales)
    assert (q == np.floor(x / scales[:, None] + np.float32(0.5)).clip(-128, 127)).all()
    b = rng.integers(-8, 8, (k, n))
    packed = ((b[0::2] & 15) | (b[1::2] << 4)).astype(np.int8)
    out = np.zeros((m, n), np.float32)
    launch(dequantised_matmul, 1, [q, scale, packed, out], M=m, N=n, K=k)
    close(out, q.astype(np.int64) @ b * scale[:, None].astype(np.float64))


@zg.kernel
def running_bf16(x_ptr, narrow_ptr, wide_ptr, n, SIZE: zg.constexpr):
    narrow, wide = zg.zeros((SIZE,), zg.bf16), zg.zeros((SIZE,), zg.f32)
    for i in range(n):
        x = zg.load(zg.add(x_ptr + i * SIZE, zg.arange(0, SIZE)))
        narrow = zg.add(narrow, x)
        wide = zg.add(wide, x)
    zg.store(zg.add(narrow_ptr, zg.arange(0, SIZE)), narrow)
    zg.store(zg.add(wide_ptr, zg.arange(0, SIZE)), wide)


def test_accumulation_in_bf16(rng, launch):
    x = rng.standard_normal((40, 8)).astype(bf16)
    narrow, wide = np.zeros(8, bf16), np.zeros(8, np.float32)
    launch(running_bf16, 1, [x, narrow, wide, len(x)], SIZE=8)
    expected, expected_wide = np.zeros(8, bf16), np.zeros(8, np.float32)
    for row in x:
        expected = (expected + row).astype(bf16)
        expected_wide += row.astype(np.float32)
    assert (narrow == expected).all() and (wide == expected_wide).all()
