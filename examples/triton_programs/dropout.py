"""A Triton program: dropout whose mask is computed from a seed, and so need not be stored for the backward pass.

Run it by `python -m ziggurat.triton dropout.py`.
"""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def dropout_kernel(x_ptr, output_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(output_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def main():
    n, p = 100_000, 0.3
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    outputs = [np.empty_like(x) for _ in range(3)]
    for output, seed in zip(outputs, (123, 123, 512), strict=True):
        dropout_kernel[(triton.cdiv(n, 1024),)](x, output, n, p, seed, BLOCK_SIZE=1024)
    first, again, other = outputs
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    keep = first != 0
    np.testing.assert_allclose(first[keep], x[keep] / np.float32(1 - p), rtol=1e-6)
    assert abs(keep.mean() - (1 - p)) < 0.01
    print(f"{keep.mean():.1%} of {n} elements are kept and scaled; the same seed keeps the same.")


if __name__ == "__main__":
    main()
