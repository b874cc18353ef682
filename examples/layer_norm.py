"""Layer normalisation, forward: each row to mean 0 and variance 1, then scaled and shifted; rows longer than a block.

A program takes one row and goes over it three times: for the mean, for the variance around that mean, and to
normalise. A backward pass would want the mean and the reciprocal standard deviation of each row, so they are stored.
"""

import numpy as np

import ziggurat as zg


@zg.kernel
def layer_norm_kernel(
    x_ptr, y_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, stride, n_cols, eps, BLOCK_SIZE: zg.constexpr
):
    row = zg.program_id(0)
    x_row = x_ptr + row * stride
    y_row = y_ptr + row * stride

    total = zg.zeros((BLOCK_SIZE,), zg.f32)
    for start in range(0, n_cols, BLOCK_SIZE):
        columns = zg.add(start, zg.arange(0, BLOCK_SIZE))
        mask = zg.compare(columns, n_cols, zg.CompareKind.LESS_THAN)
        total = zg.add(total, zg.cast(zg.load(zg.add(x_row, columns), mask, other=0.0), zg.f32))
    mean = zg.sum(total, axis=0) / n_cols

    squares = zg.zeros((BLOCK_SIZE,), zg.f32)
    for start in range(0, n_cols, BLOCK_SIZE):
        columns = zg.add(start, zg.arange(0, BLOCK_SIZE))
        mask = zg.compare(columns, n_cols, zg.CompareKind.LESS_THAN)
        x = zg.cast(zg.load(zg.add(x_row, columns), mask, other=0.0), zg.f32)
        centred = zg.where(mask, zg.sub(x, mean), 0.0)  # lanes beyond the row would count as -mean otherwise
        squares = zg.add(squares, zg.mul(centred, centred))
    variance = zg.sum(squares, axis=0) / n_cols
    rstd = zg.rsqrt(variance + eps)

    zg.store(mean_ptr + row, mean)
    zg.store(rstd_ptr + row, rstd)

    for start in range(0, n_cols, BLOCK_SIZE):
        columns = zg.add(start, zg.arange(0, BLOCK_SIZE))
        mask = zg.compare(columns, n_cols, zg.CompareKind.LESS_THAN)
        loaded = zg.load(zg.add(x_row, columns), mask, other=0.0)
        x = zg.cast(loaded, zg.f32)
        weight = zg.load(zg.add(weight_ptr, columns), mask)
        bias = zg.load(zg.add(bias_ptr, columns), mask)
        y = zg.fma(zg.mul(zg.sub(x, mean), rstd), weight, bias)
        zg.store(zg.add(y_row, columns), zg.cast(y, loaded.dtype), mask)


def layer_norm(x, weight, bias, eps=1e-5):
    rows, columns = x.shape
    y = np.empty_like(x)
    mean = np.empty(rows, np.float32)
    rstd = np.empty(rows, np.float32)
    layer_norm_kernel[(rows,)](x, y, weight, bias, mean, rstd, columns, columns, eps, BLOCK_SIZE=128)
    return y, mean, rstd


def main():
    rng = np.random.default_rng(0)
    for dtype, tolerance in [(np.float32, 1e-5), (np.float16, 4e-3)]:
        x = (rng.standard_normal((48, 500)) * 3 + 1).astype(dtype)
        weight = rng.standard_normal(500, np.float32)
        bias = rng.standard_normal(500, np.float32)
        y, mean, rstd = layer_norm(x, weight, bias)

        wide = x.astype(np.float64)
        expected_mean = wide.mean(axis=1)
        expected_rstd = 1 / np.sqrt(wide.var(axis=1) + 1e-5)
        expected = (wide - expected_mean[:, None]) * expected_rstd[:, None] * weight + bias
        np.testing.assert_allclose(mean, expected_mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rstd, expected_rstd, rtol=1e-5)
        error = np.abs(y - expected).max()
        assert error < tolerance, error
        print(f"48 rows of 500 in {np.dtype(dtype).name}: y is off by at most {error:.1e}")
    print("Each row was read in four blocks of 128, the last with 12 lanes masked off.")


if __name__ == "__main__":
    main()
