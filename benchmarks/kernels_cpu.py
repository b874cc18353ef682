"""The kernels that `cpu_kernels.py` measures on CPUs, in Triton's Python."""

import ziggurat.triton as triton
import ziggurat.triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask) + tl.load(y_ptr + at, mask), mask)


@triton.jit
def chain(out_ptr, x_ptr, n, seed, NAME: tl.constexpr, BLOCK: tl.constexpr):
    """Elementwise functions in turn, those that NAME says."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask, other=1.0)
    if NAME == "exp":
        x = tl.exp(x)
    elif NAME == "log":
        x = tl.log(tl.abs(x))
    elif NAME == "tanh exp":
        x = tl.extra.libdevice.tanh(tl.exp(x))
    elif NAME != "rand":
        x = tl.log(1 + tl.exp(x))
    if NAME == "rand" or NAME == "log exp rand":
        x += tl.rand(seed, at)
    tl.store(out_ptr + at, x, mask)


@triton.jit
def softmax(out_ptr, x_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + row * stride + at, mask, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + at, powers / tl.sum(powers, axis=0), mask)


@triton.jit
def layer_norm(out_ptr, x_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + row * stride + at, mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    off = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(off * off, axis=0) / n + eps)
    y = off * rstd * tl.load(w_ptr + at, mask) + tl.load(b_ptr + at, mask)
    tl.store(out_ptr + row * stride + at, y, mask)


@triton.jit
def rms_norm(out_ptr, x_ptr, w_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + row * stride + at, mask, other=0.0)
    rstd = 1 / tl.sqrt(tl.sum(x * x, axis=0) / n + eps)
    tl.store(out_ptr + row * stride + at, x * rstd * tl.load(w_ptr + at, mask), mask)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a_at = a_ptr + rows[:, None] * k + inner[None, :]
    b_at = b_ptr + inner[:, None] * n + columns[None, :]
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_at, (rows[:, None] < m) & (inner[None, :] + start < k), other=0.0)
        b = tl.load(b_at, (inner[:, None] + start < k) & (columns[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += K
        b_at += K * n
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], acc.to(c_ptr.dtype.element_ty), mask)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * n * D
    rows = tl.program_id(0) * M + tl.arange(0, M)
    depth = tl.arange(0, D)
    q = tl.load(q_ptr + base + rows[:, None] * D + depth[None, :])
    top = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, n, N):
        columns = start + tl.arange(0, N)
        k = tl.load(k_ptr + base + columns[:, None] * D + depth[None, :])
        v = tl.load(v_ptr + base + columns[:, None] * D + depth[None, :])
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        higher = tl.maximum(top, tl.max(scores, axis=1))
        powers = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        acc = tl.dot(powers, v, acc * shrink[:, None], input_precision="ieee")
        total = total * shrink + tl.sum(powers, axis=1)
        top = higher
    tl.store(out_ptr + base + rows[:, None] * D + depth[None, :], acc / total[:, None])
