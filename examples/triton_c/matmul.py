"""Multiplying matrices in Triton-C, with both operands stored as they are or transposed; and tuning by lists."""

from pathlib import Path

import numpy as np

import ziggurat as zg

SOURCE = Path(__file__).with_suffix(".tc")


def main():
    m, n, k = 64, 128, 96
    random = np.random.default_rng(0)
    for transpose_a in (False, True):
        for transpose_b in (False, True):
            a = random.standard_normal((k, m) if transpose_a else (m, k)).astype(np.float16)
            b = random.standard_normal((n, k) if transpose_b else (k, n)).astype(np.float16)
            c = np.zeros((m, n), np.float16)
            # On a GPU the fastest of the tiles is found at the first launch with these sizes; here the first is used.
            matmul = zg.triton_c(
                SOURCE, TYPE=a.dtype, AT=transpose_a, BT=transpose_b, TM=[32, 64], TN=[64, 128], TK=[32]
            )
            grid = lambda meta: (m // meta["TM"], n // meta["TN"])  # noqa: E731
            matmul[grid](a, b, c, m, n, k, a.shape[1], b.shape[1], n)
            left, right = (a.T if transpose_a else a), (b.T if transpose_b else b)
            np.testing.assert_allclose(c, left.astype(np.float64) @ right.astype(np.float64), rtol=2e-2, atol=2e-2)
            print(f"A{'ᵀ' if transpose_a else ' '} @ B{'ᵀ' if transpose_b else ' '}: close to NumPy's product.")


if __name__ == "__main__":
    main()
