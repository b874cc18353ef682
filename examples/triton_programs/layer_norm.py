"""A Triton program: layer normalisation of rows that are longer than a block.

Run it by `python -m ziggurat.triton layer_norm.py`.
"""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, y_ptr, weight_ptr, bias_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    x_ptr += tl.program_id(0) * n_cols
    y_ptr += tl.program_id(0) * n_cols
    total = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        columns = start + tl.arange(0, BLOCK_SIZE)
        total += tl.load(x_ptr + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols

    squares = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        columns = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
        centred = tl.where(columns < n_cols, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for start in range(0, n_cols, BLOCK_SIZE):
        columns = start + tl.arange(0, BLOCK_SIZE)
        mask = columns < n_cols
        weight, bias = tl.load(weight_ptr + columns, mask=mask), tl.load(bias_ptr + columns, mask=mask)
        x = tl.load(x_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + columns, (x - mean) * rstd * weight + bias, mask=mask)


def main():
    rows, columns, eps = 64, 1000, 1e-5
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns)).astype(np.float16)
    weight, bias = rng.standard_normal((2, columns), np.float32)
    y = np.empty_like(x)
    layer_norm_kernel[(rows,)](x, y, weight, bias, columns, eps, BLOCK_SIZE=256)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt(wide.var(axis=1, keepdims=True) + eps) * weight + bias
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)
    print(f"{rows} rows of {columns} in f16: equal to layer normalisation in f64, but for rounding.")


if __name__ == "__main__":
    main()
