"""A kernel built call by call: a program reads a formula in postfix notation and builds the kernel that computes it.

`zg.build` collects the calls of its block. No function is read: loops and tests of Python decide what is kernel.
"""

import operator

import numpy as np

import ziggurat as zg

BLOCK = 128
CALLS = {"+": zg.add, "-": zg.sub, "*": zg.mul, "/": zg.div, "max": zg.maximum, "exp": zg.exp, "sqrt": zg.sqrt}
NUMPY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "max": np.maximum, "exp": np.exp,
    "sqrt": np.sqrt,
}  # fmt: skip
UNARY = {"exp", "sqrt"}


def evaluate(formula, variables, calls):
    """The value of a formula: its words are variables, numbers, and calls of the values before them."""
    stack = []
    for word in formula.split():
        if word in calls:
            operands = [stack.pop() for _ in range(1 if word in UNARY else 2)]
            stack.append(calls[word](*reversed(operands)))
        else:
            stack.append(variables[word] if word in variables else float(word))
    (value,) = stack
    return value


def kernel_of(formula, names):
    """The Triton model of a kernel that stores the formula's value for each element of the arrays of these names."""
    with zg.build("formula", *[zg.ptr(zg.f32)] * (len(names) + 1), zg.i32) as kernel:
        *inputs, output, n = kernel.arguments
        offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        mask = zg.less(offsets, n)
        values = {name: zg.load(zg.add(x, offsets), mask) for name, x in zip(names, inputs, strict=True)}
        zg.store(zg.add(output, offsets), evaluate(formula, values, CALLS), mask)
    return kernel.triton


def main():
    formula = "x 2 * y max exp x x * 1 + sqrt /"
    model = kernel_of(formula, "xy")
    zg.verify(model)
    print(model)

    n = 1000
    x, y = np.random.default_rng(0).standard_normal((2, n), np.float32)
    output = np.empty_like(x)
    zg.run(model, (zg.cdiv(n, BLOCK),), x, y, output, n)
    np.testing.assert_allclose(output, evaluate(formula, {"x": x, "y": y}, NUMPY), rtol=1e-5)
    print(f"{formula!r} for {n} elements: equal to NumPy's, but for rounding.")


if __name__ == "__main__":
    main()
