"""Gradients of kernels: a two-layer network is trained by the gradient of its forward kernel, which `zg.grad` makes.

The forward kernel computes the losses of a block of samples. Its gradient reads the adjoints of the losses, and adds to
the gradients of the weights: the programs read the same weights, so these are sums over all samples.
"""

import numpy as np

import ziggurat as zg


@zg.kernel
def loss_kernel(
    x_ptr, target_ptr, inner_ptr, outer_ptr, loss_ptr, n,
    FEATURES: zg.constexpr, HIDDEN: zg.constexpr, BLOCK: zg.constexpr,
):  # fmt: skip
    """loss = (tanh(x · inner) · outer - target)², for each of n samples."""
    rows = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.less(rows, n)
    features = zg.arange(0, FEATURES)
    hidden = zg.arange(0, HIDDEN)
    x_at = zg.add(zg.expand(zg.mul(rows, FEATURES), 1), zg.expand(features, 0))
    x = zg.load(zg.add(x_ptr, x_at), zg.expand(mask, 1), other=0.0)
    inner_at = zg.add(zg.expand(zg.mul(features, HIDDEN), 1), zg.expand(hidden, 0))
    inner = zg.load(zg.add(inner_ptr, inner_at))
    outer = zg.load(zg.add(outer_ptr, hidden))
    layer = zg.tanh(zg.dot(x, inner, input_precision="ieee"))
    found = zg.sum(zg.mul(layer, zg.expand(outer, 0)), axis=1)
    target = zg.load(zg.add(target_ptr, rows), mask, other=0.0)
    difference = zg.sub(found, target)
    zg.store(zg.add(loss_ptr, rows), zg.mul(difference, difference), mask)


# The weights are `inner_ptr` and `outer_ptr`; the parameters of the gradient are those of the kernel, and d_inner_ptr,
# d_outer_ptr and d_loss_ptr, each after its array.
gradient_kernel = zg.grad(loss_kernel, wrt=("inner_ptr", "outer_ptr"), of="loss_ptr")


def main():
    print(gradient_kernel.written)
    rng = np.random.default_rng(0)
    n, features, hidden, block = 200, 16, 32, 64
    x = rng.standard_normal((n, features)).astype(np.float32)
    target = np.sin(x[:, 0] + x[:, 1]).astype(np.float32)
    inner = (0.3 * rng.standard_normal((features, hidden))).astype(np.float32)
    outer = (0.3 * rng.standard_normal(hidden)).astype(np.float32)
    loss = np.zeros(n, np.float32)
    d_loss = np.full(n, 1 / n, np.float32)  # The gradient of the mean loss with respect to each loss.
    d_inner, d_outer = np.zeros_like(inner), np.zeros_like(outer)
    sizes = {"FEATURES": features, "HIDDEN": hidden, "BLOCK": block}
    grid = (zg.cdiv(n, block),)

    def mean_loss():
        loss_kernel[grid](x, target, inner, outer, loss, n, **sizes)
        return loss.mean()

    # One gradient against a finite difference.
    gradient_kernel[grid](x, target, inner, d_inner, outer, d_outer, loss, d_loss, n, **sizes)
    step = 1e-2
    inner[3, 5] += step
    above = mean_loss()
    inner[3, 5] -= 2 * step
    below = mean_loss()
    inner[3, 5] += step
    print(f"d_inner[3, 5] = {d_inner[3, 5]:.4f}, by a finite difference {(above - below) / (2 * step):.4f}")
    np.testing.assert_allclose(d_inner[3, 5], (above - below) / (2 * step), atol=1e-3)

    first = mean_loss()
    for _ in range(60):
        d_inner[...] = d_outer[...] = 0.0  # The kernel adds to these.
        gradient_kernel[grid](x, target, inner, d_inner, outer, d_outer, loss, d_loss, n, **sizes)
        inner -= 0.2 * d_inner
        outer -= 0.2 * d_outer
    last = mean_loss()
    print(f"The mean loss fell from {first:.3f} to {last:.3f} in 60 steps.")
    assert last < first / 3


if __name__ == "__main__":
    main()
