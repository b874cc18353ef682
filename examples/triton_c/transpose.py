"""Transposing a matrix whose sizes are no multiples of the tile, in Triton-C; and the widths of its accesses."""

import re
from pathlib import Path

import numpy as np

import ziggurat as zg

SOURCE = Path(__file__).with_suffix(".tc")


def main():
    transpose = zg.triton_c(SOURCE, TYPE="float", TM=32, TN=32)
    m, n = 104, 88
    x = np.random.default_rng(0).standard_normal((n, m)).astype(np.float32)
    y = np.zeros((m, n), np.float32)
    transpose[zg.cdiv(m, 32), zg.cdiv(n, 32)](x, y, m, n, m, n)
    np.testing.assert_array_equal(y, x.T)
    print(f"{n} x {m} elements: equal to NumPy's x.T.")

    pointer = zg.divisible(zg.ptr(zg.f32), 16)
    ptx = transpose.compile(pointer, pointer, zg.divisible(zg.i32, 8), zg.divisible(zg.i32, 8)).ptx
    print("Accesses:", ", ".join(sorted(set(re.findall(r"(?:ld|st)\.global\.\S+", ptx)))))


if __name__ == "__main__":
    main()
