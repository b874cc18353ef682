"""Random numbers: the published words of Philox, and the moments of the distributions."""

from __future__ import annotations

import numpy as np
import pytest

# Known-answer tests of Salmon et al., published with Random123: counter, key, words.
KNOWN = [
    ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox(counter, key, words, compute):
    seed = np.array([key[0] | key[1] << 32], np.uint64)
    inputs = {f"c{i}": np.full((1, 4), word, np.uint32) for i, word in enumerate(counter)}
    expected = {f"w{i}": np.full((1, 4), word, np.uint32) for i, word in enumerate(words)}
    compute("w0, w1, w2, w3 = zg.philox(seed, c0, c1, c2, c3)", {"seed": seed, **inputs}, expected)


def philox(offset, seed, rounds=10):
    """The same in Python's integers."""
    c, k = [offset & 0xFFFFFFFF, offset >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(rounds):
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [q >> 32 ^ c[1] ^ k[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_words_for_offsets(dtype, compute):
    offset = np.array([[0, 1, 5, 2**31 - 1], [7, 100, 2**20, 3]], dtype)
    if dtype is np.int64:
        offset[0, 0] = 5 + (3 << 32)
    words = np.array([[philox(int(o), 42) for o in row] for row in offset], np.uint32)
    seven = np.array([[philox(int(o), 42, 7)[0] for o in row] for row in offset], np.uint32)
    compute(
        "one = zg.randint(42, offset)\nfew = zg.randint(42, offset, n_rounds=7)\na, b, c, d = zg.randint4x(42, offset)",
        {"offset": offset},
        {"one": words[..., 0], "few": seven, **{n: words[..., i] for i, n in enumerate("abcd")}},
    )


def test_distributions(kernel, launch):
    draw = kernel("""
    def draw(seed, u_ptr, n_ptr, u4_ptr, n4_ptr, N: zg.constexpr):
        at = zg.add(zg.program_id(0) * N, zg.arange(0, N))
        zg.store(zg.add(u_ptr, at), zg.rand(seed, at))
        zg.store(zg.add(n_ptr, at), zg.randn(seed, at))
        a, b, c, d = zg.rand4x(seed, at)
        p, q, r, s = zg.randn4x(seed, at)
        zg.store(zg.add(u4_ptr, at), zg.where(zg.compare(a, b, K.LESS_THAN), c, d))
        zg.store(zg.add(n4_ptr, at), zg.add(zg.add(p, q), zg.add(r, s)))
    """)
    n = 1 << 15
    u, z, u4, z4 = (np.zeros(n, np.float32) for _ in range(4))
    launch(draw, (16,), [7, u, z, u4, z4], N=n // 16)
    for uniform in (u, u4):
        assert uniform.min() >= 0 and uniform.max() < 1
        counts, _ = np.histogram(uniform, 32, (0, 1))
        assert ((counts - n / 32) ** 2 / (n / 32)).sum() < 70  # chi-squared with 31 degrees of freedom
    for normal, deviation in ((z, 1), (z4, 2)):
        assert abs(normal.mean()) < 5 * deviation / n**0.5 and abs(normal.std() / deviation - 1) < 0.03
        assert abs((np.abs(normal) < deviation).mean() - 0.6827) < 0.02
    again = np.zeros(n, np.float32)
    launch(draw, (16,), [8, again, z, u4, z4], N=n // 16)
    assert (again != u).mean() > 0.99


def test_one_number(compute):
    compute(
        "y = zg.rand(3, zg.program_id(0))\nz = zg.randint(3, zg.program_id(0))",
        {"x": np.zeros(2)},
        {
            "z": np.array([philox(i, 3)[0] for i in range(2)], np.uint32),
            "y": np.array([min(w, w ^ 0xFFFFFFFF) for w in (philox(i, 3)[0] for i in range(2))]).astype(np.float32)
            * np.float32(4.6566127342e-10),
        },
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_seeds_that_are_tensors(dtype, compute):
    seed = np.array([[0, 1, 42, 2**31 - 1], [5, 5, 5, 6]], dtype)
    if dtype is not np.int32:
        seed[0, 0] = 7 + (9 << 32)
    offset = np.array([[3, 4, 5 + (1 << 40), 6]] * 2, np.int64)
    words = np.array(
        [[philox(int(o), int(k)) for k, o in zip(*row, strict=True)] for row in zip(seed, offset, strict=True)]
    )
    scalar = np.array([[philox(9, int(k))[0] for k in row] for row in seed], np.uint32)
    compute(
        "a, b, c, d = zg.randint4x(seed, offset)\ne = zg.randint(seed, 9)",
        {"seed": seed, "offset": offset},
        {**{n: words[..., i].astype(np.uint32) for i, n in enumerate("abcd")}, "e": scalar},
    )


def test_words_of_64_bits(compute):
    """Against NumPy's generator, which is Philox 4x64 with ten rounds."""
    key, counter = 0x0123456789ABCDEF, 2**40 + 1
    bits = np.random.Philox(key=key, counter=counter)
    expected = {f"w{i}": np.full((1, 4), word, np.uint64) for i, word in enumerate(bits.random_raw(4))}
    # NumPy counts up before it draws.
    inputs = {"seed": np.array([key], np.int64), "c": np.full((1, 4), counter + 1, np.int64)}
    compute("w0, w1, w2, w3 = zg.philox(seed, c, 0, 0, 0)", inputs, expected)
