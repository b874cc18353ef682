"""The softmax of each row of a matrix, read once and written once.

A program takes one row. A row of any length fits in a block of the next power of two: the lanes beyond its end load
-inf, which changes neither the maximum nor, as exp(-inf) is 0, the sum.
"""

import numpy as np

import ziggurat as zg


@zg.kernel
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: zg.constexpr):
    row = zg.program_id(0)
    columns = zg.arange(0, BLOCK_SIZE)
    mask = zg.compare(columns, n_cols, zg.CompareKind.LESS_THAN)
    pointers = zg.add(input_ptr + row * input_row_stride, columns)
    x = zg.load(pointers, mask, other=-float("inf"))
    numerator = zg.exp(zg.sub(x, zg.max(x, axis=0)))  # no exponent is above 0, so nothing overflows
    denominator = zg.sum(numerator, axis=0)
    result = zg.div(numerator, denominator)
    zg.store(zg.add(output_ptr + row * output_row_stride, columns), result, mask)


def softmax(x):
    rows, columns = x.shape
    output = np.empty_like(x)
    strides = [array.strides[0] // array.itemsize for array in (x, output)]
    softmax_kernel[(rows,)](output, x, *strides, columns, BLOCK_SIZE=zg.next_power_of_2(columns))
    return output


def reference(x):
    x = x.astype(np.float64)
    numerator = np.exp(x - x.max(axis=1, keepdims=True))
    return numerator / numerator.sum(axis=1, keepdims=True)


def main():
    rng = np.random.default_rng(0)
    for shape in [(4, 8), (37, 100), (64, 781), (2, 1)]:
        x = rng.standard_normal(shape, np.float32) * 10
        error = np.abs(softmax(x) - reference(x)).max()
        assert error < 1e-6, error
        block = zg.next_power_of_2(shape[1])
        print(f"{shape[0]:3} rows of {shape[1]:3} in blocks of {block:4}: off by at most {error:.1e}")

    wide = rng.standard_normal((16, 256), np.float32)
    part = wide[:, 50:150]  # a view: its rows are 256 elements apart
    assert np.abs(softmax(part) - reference(part)).max() < 1e-6
    print("A view of 100 columns of a wider matrix works as well: the row strides are arguments.")


if __name__ == "__main__":
    main()
