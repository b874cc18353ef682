"""A loop nest over NumPy's arrays, quoted and made a kernel: the outermost loop becomes the grid, items become loads.

The kernel is source text that one may commit: `zg.to_python` of the transformed model.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py, py_objects
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import pyobject

BLOCK = 64
IN_PLACE = {"+": py.Add, "-": py.Sub, "*": py.Mul, "/": py.Div}


class ToKernel:
    """The transform. `index` is the variable of the outermost loop; `mask` says which of its iterations there are."""

    def __init__(self) -> None:
        self.index: Value | None = None
        self.mask: Value | None = None

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Any:
        match op:
            case py.For() if self.mask is None:
                return self.grid(builder, op)
            case py.Subscript():
                place = builder.add(py.Add(*operands))
                if not self.varies(op.index):
                    return builder.add(py.Invoke((place,), "zg.load"))
                return self.call(builder, "zg.load", place)
            case py_objects.StoreItem():
                array, index, value = operands
                self.call(builder, "zg.store", builder.add(py.Add(array, index)), value)
                return zg.DROP
            case py_objects.InPlace():  # Numbers do not change in place.
                return builder.add(IN_PLACE[op.operator](*operands))
            case _:
                return None

    def varies(self, value: Value) -> bool:
        """Whether a value of the old model is one for each iteration of the outermost loop."""
        op = value.op
        if isinstance(op, core.VarLoad):
            return op.var is self.index
        return op is not None and any(map(self.varies, op.operands))

    def call(self, builder: Rewriter, name: str, *operands: Value) -> Value:
        """A call under the mask."""
        assert self.mask is not None, "an item stands outside of the loop"
        return builder.add(py.Invoke((*operands, builder.add(core.VarLoad(self.mask))), name, keywords=("mask",)))

    def grid(self, builder: Rewriter, loop: py.For) -> Any:
        """The suite of the outermost loop, for a block of its iterations at once."""
        (count,) = loop.iterable.entry.terminator.operands[0].op.operands  # range(count)
        zero, size = (builder.add(core.ConstantOp(number, pyobject)) for number in (0, BLOCK))
        start = builder.add(py.Mul(builder.add(py.Invoke((zero,), "zg.program_id")), size))
        zero, size = (builder.add(core.ConstantOp(number, pyobject)) for number in (0, BLOCK))
        items = builder.add(py.Add(start, builder.add(py.Invoke((zero, size), "zg.arange"))))
        builder[loop.suite.parameters[0]] = items
        first, *others = loop.suite.entry.ops
        builder.rewrite(first)  # It gives the item to the loop's variable.
        self.index = first.operands[0] if isinstance(first, core.VarStore) else first.result
        sides = [builder.add(core.VarLoad(builder[variable])) for variable in (self.index, count.op.var)]
        self.mask = builder.add(core.Var(builder.add(py.Lt(*sides)), name="mask", type=self.index.type))
        builder.rewrite_ops(others[:-1])
        return zg.DROP


def kernel_of(f: Callable[..., None]) -> zg.Kernel:
    """The kernel of a loop nest, whose program computes `BLOCK` iterations of the outermost loop."""
    q = zg.quote(f)
    model = zg.transform(q.model, ToKernel(), pass_name="to_kernel")
    zg.verify(model)
    text = zg.to_python(model)
    print(text, end="\n\n")
    return zg.kernel(source=f"import ziggurat as zg\n\n{text}\n")


def smooth(x, weights, out, n):
    for i in range(n):
        total = x[i] * weights[0]
        for k in range(1, 5):
            total += x[i + k] * weights[k]
        out[i] = total


def main() -> None:
    kernel = kernel_of(smooth)
    n = 1000
    rng = np.random.default_rng(0)
    x, weights = (rng.standard_normal(size, dtype=np.float32) for size in (n + 4, 5))
    expected, out = np.zeros(n, np.float32), np.zeros(n, np.float32)
    smooth(x, weights, expected, n)
    kernel[-(-n // BLOCK)](x, weights, out, n)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    print(f"{n} numbers, as the loops compute them")


if __name__ == "__main__":
    main()
