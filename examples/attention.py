"""softmax(Q · Kᵀ / √D) · V in one kernel, which never stores the n × n scores.

A program keeps a block of queries and walks over the keys. Softmax seems to need all scores of a row before it knows
the first weight. But a sum of powers can be told of a larger maximum later: it is multiplied by 2 ** (old - new). So
the loop carries three things for each row: the maximum so far, the sum of the powers, and the sum of weighted values.

With a causal mask a query sees the keys up to its own. That is mostly a matter of whole blocks: those left of the
diagonal need no mask, those on it do, and those right of it are never fetched.

All heads lie one below the other in matrices of D columns, so a head is an offset and the descriptors have two axes.
"""

import re

import numpy as np

import ziggurat as zg


@zg.function
def step(weighted, total, top, q, k_desc, v_desc, head, at, queries, scale, MASKED: zg.constexpr):
    """Add the block of keys and values at `at`. If MASKED, a query attends to no key after its own."""
    scores = zg.dot(q, zg.trans(k_desc.load([head + at, 0])))
    if MASKED:
        keys = zg.add(at, zg.arange(0, scores.shape[1]))
        seen = zg.compare(zg.expand(queries, 1), zg.expand(keys, 0), zg.CompareKind.GREATER_THAN_OR_EQUAL)
        scores = zg.where(seen, scores, -float("inf"))
    # Scaling the maximum, not the scores, leaves one multiply-add for each score.
    higher = zg.maximum(top, zg.mul(zg.max(scores, axis=1), scale))
    powers = zg.exp2(zg.sub(zg.mul(scores, scale), zg.expand(higher, 1)))
    shrink = zg.exp2(zg.sub(top, higher))  # 0 at first, when top is -inf, and 1 where the maximum stays
    weighted = zg.mul(weighted, zg.expand(shrink, 1))
    weighted = zg.dot(zg.cast(powers, zg.f16), v_desc.load([head + at, 0]), weighted)
    return weighted, zg.add(zg.mul(total, shrink), zg.sum(powers, axis=1)), higher


@zg.kernel
def attention_kernel(
    q_desc, k_desc, v_desc, out_desc, n, scale,
    CAUSAL: zg.constexpr, BLOCK_M: zg.constexpr, BLOCK_N: zg.constexpr, D: zg.constexpr,
    WARP_SPECIALIZE: zg.constexpr = False,
):  # fmt: skip
    zg.static_assert(BLOCK_M % BLOCK_N == 0, "the diagonal has to begin with a block of keys")
    first = zg.program_id(0) * BLOCK_M
    head = zg.program_id(1) * n
    queries = zg.add(first, zg.arange(0, BLOCK_M))
    q = q_desc.load([head + first, 0])
    scale = scale * 1.4426950408889634  # e ** x is 2 ** (x · log2 e), and 2 ** x is one instruction

    weighted = zg.zeros([BLOCK_M, D], zg.f32)
    total = zg.zeros([BLOCK_M], zg.f32)
    top = zg.full([BLOCK_M], -float("inf"), zg.f32)
    for at in zg.range(0, first if CAUSAL else n, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        weighted, total, top = step(weighted, total, top, q, k_desc, v_desc, head, at, queries, scale, False)
    if CAUSAL:  # the blocks on the diagonal remain
        for at in zg.range(first, first + BLOCK_M, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
            weighted, total, top = step(weighted, total, top, q, k_desc, v_desc, head, at, queries, scale, True)

    out_desc.store([head + first, 0], zg.cast(zg.div(weighted, zg.expand(total, 1)), zg.f16))


def attention(q, k, v, out, n, causal, block_m=32, block_n=32, **options):
    """Write to out. All four have D columns, and n rows for each head; n is a multiple of block_m."""
    rows, d = q.shape
    if rows % n or n % block_m:
        raise ValueError(f"{rows} rows are not whole heads of {n}, or these not whole blocks of {block_m}")
    attention_kernel[(n // block_m, rows // n)](
        zg.TensorDescriptor(q, [block_m, d]),
        zg.TensorDescriptor(k, [block_n, d]),
        zg.TensorDescriptor(v, [block_n, d]),
        zg.TensorDescriptor(out, [block_m, d]),
        n, d**-0.5, CAUSAL=causal, BLOCK_M=block_m, BLOCK_N=block_n, D=d, **options,
    )  # fmt: skip


def reference(q, k, v, n, causal):
    """The same in float64, with all scores at once."""
    q, k, v = (x.astype(np.float64).reshape(-1, n, x.shape[1]) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
    if causal:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return (weights / weights.sum(axis=2, keepdims=True) @ v).reshape(-1, v.shape[2])


def has_gpu():
    """Whether launches on a GPU work here: there is a driver, and a device."""
    try:
        zg.empty(1)
    except zg.ZigguratError:
        return False
    return True


def show_loop():
    """Print the instructions of one iteration of the loop for sm_90a.

    TMA loads the blocks of later iterations. The second dot, of weights and values, stays in flight across the back
    edge: the matrix units work on it while the next iteration begins its scores, and one wait covers both.
    """
    blocks = [zg.divisible(zg.descriptor((rows, 64), zg.f16)) for rows in (128, 64, 64, 128)]
    kernel = attention_kernel.compile(*blocks, zg.divisible(zg.i32, 16), zg.f32, False, 128, 64, 64, num_warps=8)
    (loop,) = (op for op in kernel.stages["gpu"].walk() if op.NAME == "scf.for")
    print(f"What {kernel.target} does in an iteration, without the arithmetic:")
    for line in str(loop).splitlines():
        if re.search(r"gpu\.(mbarrier_wait|tma_load|wgmma|barrier)|scf\.yield", line):
            print(re.sub(r" : .*? = ", " = ", line))


def main():
    rng = np.random.default_rng(0)
    heads, n, d = 2, 128, 64
    print(f"{heads} heads, n = {n}, D = {d}")
    q, k, v = rng.standard_normal((3, heads * n, d)).astype(np.float16)
    there = has_gpu()
    for causal in (False, True):
        expected = reference(q, k, v, n, causal)
        name = "causal" if causal else "every query sees every key"
        out = np.zeros_like(q)
        attention(q, k, v, out, n, causal)
        np.testing.assert_allclose(out, expected, rtol=2e-3, atol=2e-3)
        print(f"{name}, in memory: off by at most {np.abs(out - expected).max():.5f}")
        if there:
            given, found = [zg.to_device(x) for x in (q, k, v)], zg.to_device(np.zeros_like(q))
            attention(*given, found, n, causal, 128, 64, num_warps=8)
            np.testing.assert_allclose(zg.to_host(found), expected, rtol=2e-3, atol=2e-3)
            print(f"{name}, on the GPU: off by at most {np.abs(zg.to_host(found) - expected).max():.5f}")
    if not there:
        print("there is no GPU here")

    show_loop()


if __name__ == "__main__":
    main()
