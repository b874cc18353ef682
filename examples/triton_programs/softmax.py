"""A Triton program: the softmax of each row, on NumPy's arrays, and on torch's tensors where torch is installed.

Run it by `python -m ziggurat.triton softmax.py`.
"""

import importlib.util

import numpy as np
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(output_ptr, input_ptr, row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_SIZE)
    mask = columns < n_cols
    x = tl.load(input_ptr + row * row_stride + columns, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))  # no exponent is above 0, so nothing overflows
    tl.store(output_ptr + row * row_stride + columns, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax(x, output):
    rows, columns = x.shape
    softmax_kernel[(rows,)](output, x, columns, columns, BLOCK_SIZE=triton.next_power_of_2(columns))


def reference(x):
    numerator = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return numerator / numerator.sum(axis=1, keepdims=True)


def main():
    x = np.random.default_rng(0).standard_normal((1823, 781), np.float32)
    output = np.empty_like(x)
    softmax(x, output)
    np.testing.assert_allclose(output, reference(x), rtol=1e-5, atol=1e-8)
    print(f"{x.shape[0]} rows of {x.shape[1]} of NumPy: equal to softmax in f64, but for rounding.")
    if importlib.util.find_spec("torch") is not None:
        import torch

        tensor = torch.from_numpy(x).to("cuda" if torch.cuda.is_available() else "cpu")
        result = torch.empty_like(tensor)
        softmax(tensor, result)
        torch.testing.assert_close(result, torch.softmax(tensor, dim=1))
        print("The same of torch: equal to torch.softmax, but for rounding.")


if __name__ == "__main__":
    main()
