"""A custom operation with a gradient, written once with PyTriton: for PyTorch, JAX and NumPy, whichever is installed.

The kernel is in Triton-C. The tensors of a call decide the library, and a library that is not installed is left out.
"""

import importlib.util

import numpy as np

import ziggurat.pytriton as triton

SOURCE = """
__global__ void gelu(TYPE *x, TYPE *y, int n) {
  int at[SIZE] = get_program_id(0) * SIZE + 0 ... SIZE;
  bool inside[SIZE] = at < n;
  float v[SIZE] = *?(inside)(x + at);
  *?(inside)(y + at) = v / (1 + exp(-1.702f * v));
}

__global__ void d_gelu(TYPE *x, TYPE *dy, TYPE *dx, int n) {
  int at[SIZE] = get_program_id(0) * SIZE + 0 ... SIZE;
  bool inside[SIZE] = at < n;
  float v[SIZE] = *?(inside)(x + at);
  float s[SIZE] = 1 / (1 + exp(-1.702f * v));
  *?(inside)(dx + at) = *?(inside)(dy + at) * (s + 1.702f * v * s * (1 - s));
}
"""


class Gelu(triton.function):
    """The sigmoid approximation of GELU."""

    kernel = triton.kernel(SOURCE, ["y"], name="gelu")
    gradient = triton.kernel(SOURCE, ["dx"], name="d_gelu")

    @staticmethod
    def launched(kernel, *tensors):
        (n,) = triton.shape(tensors[0])
        result = triton.empty([n], dtype=tensors[0].dtype)
        grid = lambda opt: [triton.cdiv(n, opt.d("SIZE"))]  # noqa: E731
        return kernel(*tensors, result, n, grid, TYPE=tensors[0].dtype, SIZE=256)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Gelu.launched(Gelu.kernel, x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return Gelu.launched(Gelu.gradient, x, dy)


gelu = Gelu.apply


def expected(x):
    s = 1 / (1 + np.exp(-1.702 * x))
    return x * s, s + 1.702 * x * s * (1 - s)


def main():
    x = np.random.default_rng(0).standard_normal(1000, np.float32)
    y, dx = expected(x)
    np.testing.assert_allclose(gelu(x), y, rtol=1e-4, atol=1e-6)
    print("NumPy: the result agrees.")
    if importlib.util.find_spec("torch"):
        import torch

        tensor = torch.tensor(x, requires_grad=True)
        gelu(tensor).sum().backward()
        np.testing.assert_allclose(tensor.grad.numpy(), dx, rtol=1e-4, atol=1e-6)
        print("PyTorch: the gradient agrees.")
    if importlib.util.find_spec("jax"):
        import jax

        gradient = jax.jit(jax.grad(lambda x: gelu(x).sum()))
        np.testing.assert_allclose(gradient(x), dx, rtol=1e-4, atol=1e-6)
        print("JAX: the gradient agrees.")


if __name__ == "__main__":
    main()
