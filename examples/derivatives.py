"""Forward-mode derivatives of plain Python: a transform gives each variable and each value a derivative beside it.

Loops, branches and assignments stay as they are: only the ops on numbers get a rule.
"""

import math

import numpy as np

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py, py_objects
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import pyobject


def number(builder: Rewriter, value: float) -> Value:
    return builder.add(core.ConstantOp(value, pyobject))


class Derivative:
    """The transform. `tangents` maps a value or a variable of the new model to its derivative; one without is 0."""

    def __init__(self, parameter: str) -> None:
        self.parameter = parameter
        self.tangents: dict[Value, Value] = {}

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        tangents = [self.tangents.get(value) for value in operands]
        match op:
            case core.Return():
                return builder.add(core.Return((tangents[0] or number(builder, 0.0),)))
            case core.VarStore():
                builder.add(core.VarStore(tangents[0], tangents[1] or number(builder, 0.0)))
                return None
            case core.Var():
                new = builder.copy(op, operands)
                is_parameter = op.name == self.parameter and op.initial in op.root().bodies[0].parameters
                start = tangents[0] if operands and tangents[0] else number(builder, 1.0 if is_parameter else 0.0)
                self.tangents[new] = builder.add(core.Var(start, name=f"d_{op.name}", type=op.type))
                return new
            case core.VarLoad():
                new = builder.copy(op, operands)
                self.tangents[new] = builder.add(core.VarLoad(tangents[0]))
                return new
        rule = RULES.get(op.callee if isinstance(op, py.Invoke) else type(op))
        if rule is None or not any(tangents):
            return None
        new = builder.copy(op, operands)
        self.tangents[new] = rule(builder, op, operands, [t or number(builder, 0.0) for t in tangents])
        return new


def sum_rule(builder, op, values, tangents):
    is_minus = isinstance(op, py.Sub) or getattr(op, "operator", "") == "-"
    return builder.add((py.Sub if is_minus else py.Add)(*tangents))


def product_rule(builder, op, values, tangents):
    (x, y), (dx, dy) = values, tangents
    return builder.add(py.Add(builder.add(py.Mul(dx, y)), builder.add(py.Mul(x, dy))))


def quotient_rule(builder, op, values, tangents):
    (x, y), (dx, dy) = values, tangents
    change = builder.add(py.Mul(builder.add(py.Div(x, y)), dy))
    return builder.add(py.Div(builder.add(py.Sub(dx, change)), y))


def power_rule(builder, op, values, tangents):
    (x, exponent), (dx, _) = values, tangents
    power = builder.add(py.Pow(x, builder.add(py.Sub(exponent, number(builder, 1)))))
    return builder.add(py.Mul(builder.add(py.Mul(exponent, power)), dx))


def chain_rule(slope):
    """The rule of `math.f(x)`, a method of the module, whose derivative is `slope`."""
    return lambda builder, op, values, tangents: builder.add(py.Mul(slope(builder, values[1]), tangents[1]))


RULES = {
    **dict.fromkeys((py.Add, py.Sub, py_objects.InPlace), sum_rule),
    py.Mul: product_rule,
    py.Div: quotient_rule,
    py.Pow: power_rule,
    py.Neg: lambda builder, op, values, tangents: builder.add(py.Neg(tangents[0])),
    ".sin": chain_rule(lambda builder, x: builder.add(py.Invoke((x,), "math.cos"))),
    ".exp": chain_rule(lambda builder, x: builder.add(py.Invoke((x,), "math.exp"))),
    ".log": chain_rule(lambda builder, x: builder.add(py.Div(number(builder, 1.0), x))),
}


def derivative(f, parameter):
    """The derivative of a function by one of its parameters."""
    model = zg.transform(zg.reflect(f), Derivative(parameter), pass_name="derivative")
    zg.verify(model)
    print(zg.to_python(model), end="\n\n")
    return zg.to_function(model, like=f)


def wave(x, n):
    total = 0.0
    for k in range(1, n):
        if k % 2:
            total += math.sin(k * x) / k
        else:
            total -= x**2 / k
    return total * math.exp(-x)


def main() -> None:
    slope = derivative(wave, "x")
    for x in (0.1, 0.7, 2.0):
        np.testing.assert_allclose(slope(x, 9), (wave(x + 1e-6, 9) - wave(x - 1e-6, 9)) / 2e-6, rtol=1e-6)
    print("slope of wave at 0.7:", slope(0.7, 9))


if __name__ == "__main__":
    main()
