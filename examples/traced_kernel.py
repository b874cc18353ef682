"""Programs that make kernels: the calls of a function that runs on symbols become the kernel.

Python's own control flow runs while the kernel is made: it chooses and repeats. Loops of the kernel itself are built by
`zg.for_`.
"""

import numpy as np

import ziggurat as zg

BLOCK = 128


def fused(steps):
    """The model of a kernel that applies a list of functions of tensors to every element of an array."""

    def kernel(x_ptr, y_ptr, n):
        offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
        value = zg.load(zg.add(x_ptr, offsets), mask)
        for step in steps:  # a loop of Python: all steps in one kernel
            value = step(value)
        zg.store(zg.add(y_ptr, offsets), value, mask)

    return zg.trace(kernel, zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32)


def power_series(x_ptr, y_ptr, n, terms):
    """Compute exp(x) as the sum of xⁱ/i!, in a loop of the kernel whose length is an argument."""
    offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask, other=0.0)
    one = zg.full((BLOCK,), 1.0, zg.f32)

    def add_term(i, total, term):
        term = zg.div(zg.mul(term, x), i)
        return zg.add(total, term), term

    total, _ = zg.for_(1, terms, 1, (one, one), add_term)
    zg.store(zg.add(y_ptr, offsets), total, mask)


def main():
    n = 1000
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    grid = (zg.cdiv(n, BLOCK),)

    chain = [
        lambda v: zg.mul(v, 2.0),
        lambda v: zg.add(v, 1.0),
        zg.sigmoid,
        lambda v: zg.mul(v, v),
    ]
    model = fused(chain)
    zg.verify(model)
    y = np.zeros_like(x)
    zg.run(model, grid, x, y, n)
    expected = (1 / (1 + np.exp(-(2.0 * x.astype(np.float64) + 1)))) ** 2
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    print(f"A list of {len(chain)} functions became one kernel:\n\n{model}")

    series = zg.trace(power_series, zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32)
    zg.verify(series)
    for terms in (8, 16, 24):
        zg.run(series, grid, x, y, n, terms)
        error = np.abs(y / np.exp(x.astype(np.float64)) - 1).max()
        print(f"exp from a series of {terms:2} terms: relative error {error:.1e}")
    assert error < 1e-4


if __name__ == "__main__":
    main()
