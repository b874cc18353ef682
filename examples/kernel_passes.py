"""Passes of one's own on a kernel: `kernel.with_passes(f)` is launched, tuned and differentiated as the kernel is.

Three passes, each a transformer of a few lines: arithmetic in f32 on arrays of bf16, an activation that is fused into
the stores of a kernel, and instrumentation that stops a launch at the first value that is not finite.
"""

import ml_dtypes
import numpy as np

import ziggurat as zg
from ziggurat import kit
from ziggurat.codemodel.dialects import arith, tt


@zg.kernel
def polynomial(x_ptr, y_ptr, n, BLOCK_SIZE: zg.constexpr):
    """y = (x² + 0.25)·x - 1"""
    offsets = zg.add(zg.program_id(0) * BLOCK_SIZE, zg.arange(0, BLOCK_SIZE))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    zg.store(zg.add(y_ptr, offsets), zg.sub(zg.mul(zg.add(zg.mul(x, x), 0.25), x), 1.0), mask)


def computing_in_f32(model):
    """Loads of bf16 are widened, stores are rounded; what is between them follows by its own rules of types."""

    def widen(builder, op, operands):
        if isinstance(op, tt.Load) and kit.element_of(op.result.type) == zg.bf16:
            return kit.cast(builder, builder.copy(op, operands), zg.f32)
        if isinstance(op, arith.ConstantOp) and kit.element_of(op.type) == zg.bf16:
            return builder.add(arith.ConstantOp(op.value, kit.with_element(op.type, zg.f32)))
        if isinstance(op, tt.Store) and kit.element_of(op.value.type) == zg.bf16:
            pointer, value, *mask = operands
            return builder.copy(op, [pointer, kit.cast(builder, value, zg.bf16), *mask])
        return None

    return zg.transform(model, widen)


def with_relu(model):
    """Each float that is stored is at least zero: an epilogue, without a second pass over the memory."""

    def fuse(builder, op, operands):
        if isinstance(op, tt.Store) and kit.element_of(op.value.type).is_float:
            pointer, value, *mask = operands
            zero = builder.add(arith.ConstantOp(0.0, value.type))
            return builder.copy(op, [pointer, builder.add(arith.MaximumF(value, zero)), *mask])
        return None

    return zg.transform(model, fuse)


def asserting_finite(model):
    """A launch that stores an infinity or NaN is an error, which has the line of the store."""

    def check(builder, op, operands):
        if isinstance(op, tt.Store) and kit.element_of(op.value.type).is_float:
            _, value, *mask = operands
            zero = builder.add(arith.ConstantOp(0.0, value.type))
            nothing = builder.add(arith.MulF(value, zero))  # NaN for infinities and for NaN.
            finite = builder.add(arith.CmpF(nothing, zero, arith.FloatPredicate.OEQ))
            if mask:
                unstored = builder.add(arith.XOrI(mask[0], builder.add(arith.ConstantOp(True, mask[0].type))))
                finite = builder.add(arith.OrI(finite, unstored))
            builder.add(tt.Assert(finite, message="a value that is stored must be finite"))
        return None

    return zg.transform(model, check)


def main():
    n = 1000
    grid = (zg.cdiv(n, 128),)
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    exact = (x.astype(np.float64) ** 2 + 0.25) * x - 1
    y = np.zeros_like(x)

    relu = polynomial.with_passes(with_relu)
    relu[grid](x, y, n, 128)
    np.testing.assert_allclose(y, np.maximum(exact, 0), rtol=1e-4, atol=1e-5)
    print(f"{relu.passes[0].name}: {(y == 0).sum()} of {n} values are zero")

    d_relu = zg.grad(relu, wrt="x_ptr", of="y_ptr")
    dx = np.zeros_like(x)
    d_relu[grid](x, dx, y, np.ones_like(x), n, 128)
    np.testing.assert_allclose(dx, (3 * x**2 + 0.25) * (exact > 0), rtol=1e-4)

    checked = polynomial.with_passes(asserting_finite)
    checked[grid](x, y, n, 128)
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-5)
    try:
        checked[grid](np.where(x == x[7], np.float32(np.inf), x), y, n, 128)
    except zg.KernelRuntimeError as error:
        print(f"asserting_finite: {error.summary}")
    else:
        raise AssertionError("an infinity must stop the launch")

    narrow = x.astype(ml_dtypes.bfloat16)
    exact = (narrow.astype(np.float64) ** 2 + 0.25) * narrow.astype(np.float64) - 1
    errors = []
    for kernel in (polynomial, polynomial.with_passes(computing_in_f32)):
        result = np.zeros_like(narrow)
        kernel[grid](narrow, result, n, 128)
        errors.append(np.abs(result.astype(np.float64) - exact).mean())
    print(f"computing_in_f32: mean error {errors[1]:.1e}, without it {errors[0]:.1e}")
    assert errors[1] < 0.8 * errors[0]


if __name__ == "__main__":
    main()
