"""Adding two vectors in Triton-C, in float and in half, on NumPy arrays."""

from pathlib import Path

import numpy as np

import ziggurat as zg

SOURCE = Path(__file__).with_suffix(".tc")


def main():
    add = zg.triton_c(SOURCE, SIZE=128)
    random = np.random.default_rng(0)
    n = 1000
    for type_, dtype in (("float", np.float32), ("half", np.float16)):
        a, b = random.standard_normal(n).astype(dtype), random.standard_normal(n).astype(dtype)
        c = np.zeros(n, dtype)
        add[lambda meta: (zg.cdiv(n, meta["SIZE"]),)](n, a, b, c, TYPE=type_)
        np.testing.assert_array_equal(c, a + b)
        print(f"{n} elements of {type_}: equal to NumPy's a + b.")


if __name__ == "__main__":
    main()
