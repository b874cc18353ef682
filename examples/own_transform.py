"""A transform: a function that is called for each op of a Triton model.

This one fuses a multiplication and the addition of its product into `math.fma`, which rounds once. The model before and
the model after are run on the same arrays, and held against float64.
"""

import numpy as np

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, math
from ziggurat.transforms.simplify.dce import dce


@zg.kernel
def polynomial_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: zg.constexpr):
    """y = ((0.5·x + 0.25)·x + 3)·x - 1"""
    offsets = zg.add(zg.program_id(0) * BLOCK_SIZE, zg.arange(0, BLOCK_SIZE))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    y = zg.add(zg.mul(x, 0.5), 0.25)
    y = zg.add(zg.mul(y, x), 3.0)
    y = zg.sub(zg.mul(y, x), 1.0)
    zg.store(zg.add(y_ptr, offsets), y, mask)


def fuse_multiply_add(builder, op, operands):
    """Replace a·b + c by fma(a, b, c). For any other op it returns None, and the op is copied."""
    if isinstance(op, arith.AddF):
        for product, addend in (operands, operands[::-1]):
            if isinstance(product, zg.OpResult) and isinstance(product.op, arith.MulF):
                return builder.add(math.Fma(*product.op.operands, addend))
    return None


def main():
    before = polynomial_kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 128)
    after = dce(zg.transform(before, fuse_multiply_add, pass_name="fuse_multiply_add"))
    zg.verify(after)

    def count(model, op_class):
        return sum(isinstance(op, op_class) for op in model.walk())

    for name, model in (("before", before), ("after", after)):
        print(f"{name}: {count(model, arith.MulF)} mulf, {count(model, arith.AddF)} addf, {count(model, math.Fma)} fma")
    assert count(before, arith.AddF) == 2 and count(after, math.Fma) == 2
    assert count(before, math.Fma) == 0, "the old model is what it was"
    print(f"\n{after}")

    n = 10_000
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    wide = x.astype(np.float64)
    exact = ((0.5 * wide + 0.25) * wide + 3) * wide - 1
    for name, model in (("before", before), ("after", after)):
        y = np.zeros_like(x)
        zg.run(model, (zg.cdiv(n, 128),), x, y, n)
        np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-6)
        print(f"{name}: mean error {np.abs(y - exact).mean():.3e}")


if __name__ == "__main__":
    main()
