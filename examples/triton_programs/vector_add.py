"""A Triton program: the sum of two vectors. Run it by `python -m ziggurat.triton vector_add.py`."""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


def main():
    n = 98432
    x, y = np.random.default_rng(0).random((2, n), np.float32)
    output = np.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, output, n, BLOCK_SIZE=1024)
    np.testing.assert_array_equal(output, x + y)
    print(f"{n} elements: equal to NumPy's x + y.")


if __name__ == "__main__":
    main()
