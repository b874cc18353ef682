"""A Triton program: causal attention, softmax(Q · Kᵀ / √D) · V, which never stores the n × n scores.

A sum of powers of 2 is scaled when a larger maximum comes: the loop carries the maximum of each row, the sum, and the
weighted values. Run it by `python -m ziggurat.triton attention.py`.
"""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, n, scale, BLOCK: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * n * D
    queries = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, D)
    q = tl.load(q_ptr + head + queries[:, None] * D + lanes[None, :], mask=queries[:, None] < n, other=0.0)
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    weighted = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BLOCK, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        at = head + keys[:, None] * D + lanes[None, :]
        k = tl.load(k_ptr + at, mask=keys[:, None] < n, other=0.0)
        v = tl.load(v_ptr + at, mask=keys[:, None] < n, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)  # e ** x is 2 ** (x · log2 e)
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        powers = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(powers, axis=1)
        weighted = tl.dot(powers.to(tl.float16), v, weighted * shrink[:, None])
        top = higher
    result = (weighted / total[:, None]).to(tl.float16)
    tl.store(out_ptr + head + queries[:, None] * D + lanes[None, :], result, mask=queries[:, None] < n)


def reference(q, k, v):
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def main():
    heads, n, d = 4, 200, 64
    q, k, v = np.random.default_rng(0).standard_normal((3, heads, n, d)).astype(np.float16)
    out = np.empty_like(q)
    attention_kernel[(triton.cdiv(n, 64), heads)](q, k, v, out, n, d**-0.5, BLOCK=64, D=d)
    expected = reference(*(x.astype(np.float64) for x in (q, k, v)))
    np.testing.assert_allclose(out, expected, rtol=1e-2, atol=2e-3)
    print(f"{heads} heads of {n} × {d}: equal to attention in f64, but for rounding.")


if __name__ == "__main__":
    main()
