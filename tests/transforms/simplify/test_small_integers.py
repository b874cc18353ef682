"""Identities of integers with constants and differences, proved over all integers of 8 bits, and all pairs of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.op import Op, Value, constant_of
from ziggurat.codemodel.scalars import MEANINGS
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SCALARS
from ziggurat.transforms.simplify import simplify

CONSTANTS = {"i8": (-128, -3, -1, 0, 1, 5, 127), "u8": (0, 1, 5, 128, 255)}
# Ops on a number x and two constants, c and d; `y` is the result of the op before. One op is left, or none.
WITH_CONSTANTS = (
    "addi x c, addi y d", "addi x c, subi y d", "subi x c, addi d y", "subi x c, subi y d", "subi c x, addi y d",
    "subi c x, subi y d", "subi c x, subi d y", "addi c x, subi d y", "muli x c, muli d y", "andi x c, andi y d",
    "ori x c, ori y d", "xori x c, xori y d", "addi x c, addi y d, subi y c", "addi c d, subi y x",
)  # fmt: skip
# Ops on two numbers, x and z. None is left.
CANCELLED = (
    "addi x z, subi y z", "addi x z, subi y x", "subi x z, addi y z", "subi x z, addi z y", "subi x z, subi x y",
)  # fmt: skip
LIMITED = {
    "i8": ("maxsi x -128", "maxsi x 127", "minsi x -128", "minsi 127 x"),
    "u8": ("maxui x 0", "maxui 255 x", "minui x 0", "minui x 255"),
}


def after(steps: str, type_: str, **constants: int) -> tuple[Op, Op]:
    """The function of x and z that computes some steps, before and after simplification."""
    lines, last = [], ""
    for at, step in enumerate(steps.split(", ")):
        op, *operands = step.split()
        for side, operand in enumerate(operands):
            if operand in constants or operand.lstrip("-").isdigit():
                lines.append(f"%c{at}{side} : {type_} = arith.constant @{constants.get(operand, operand)};")
                operands[side] = f"c{at}{side}"
        names = [f"%{last}" if operand == "y" else f"%{operand}" for operand in operands]
        last = f"y{at}"
        lines.append(f"%{last} : {type_} = arith.{op} {' '.join(names)};")
    text = f'tt.func @"f" (%x : {type_}, %z : {type_}){type_} -> {{ {" ".join(lines)} tt.return %{last}; }};'
    model = parse(f"module ()void -> {{ {text} unreachable; }};")
    return model, simplify(model)


def value_of(model: Op, *arguments: Any) -> Any:
    """The result of the function of a model on arrays."""
    (func,) = (op for op in model.bodies[0].entry.ops if op.bodies)
    results: dict[Value, Any] = dict(zip(func.bodies[0].parameters, arguments, strict=True))
    for op in func.bodies[0].entry.ops[:-1]:
        if isinstance(op, arith.ConstantOp):
            results[op.result] = np.full_like(arguments[0], op.value)
        else:
            with np.errstate(over="ignore"):
                results[op.result] = MEANINGS[op](op, *(results[value] for value in op.operands))
    return results[func.bodies[0].entry.ops[-1].operands[0]]


def computed(model: Op) -> int:
    """The number of ops of a model that compute."""
    return sum(isinstance(op, arith.Elementwise) for op in model.walk())


@pytest.mark.parametrize("type_", ["i8", "u8"])
@pytest.mark.parametrize("steps", WITH_CONSTANTS)
def test_constants_are_joined(steps: str, type_: str) -> None:
    x = np.arange(256).astype(np.uint8).view(SCALARS[type_].dtype)
    for c, d in product(CONSTANTS[type_], CONSTANTS[type_]):
        model, simplified = after(steps, type_, c=c, d=d)
        assert computed(simplified) <= 1
        np.testing.assert_array_equal(value_of(simplified, x, x), value_of(model, x, x), err_msg=f"{c} {d}")


@pytest.mark.parametrize("type_", ["i8", "u8"])
def test_differences_cancel_and_limits_go(type_: str) -> None:
    numbers = np.arange(256).astype(np.uint8).view(SCALARS[type_].dtype)
    x, z = (part.ravel() for part in np.meshgrid(numbers, numbers))
    for steps in (*CANCELLED, *LIMITED[type_]):
        model, simplified = after(steps, type_)
        assert computed(simplified) == 0
        np.testing.assert_array_equal(value_of(simplified, x, z), value_of(model, x, z), err_msg=steps)


def test_sums_and_differences_that_do_not_cancel() -> None:
    for steps in ("addi x z, addi y z", "subi x z, subi y z", "subi x z, subi z y", "addi x z, subi x y"):
        model, simplified = after(steps, "i8")
        assert computed(simplified) == computed(model) == 2


def test_blocks_of_one_element_are_counted_by_their_elements() -> None:
    """`cdiv(n, 1)` is n, and a mask with it is one with n."""
    _, simplified = after("addi x 1, subi y 1, divsi y 1, minsi y 127", "i8")
    (func,) = (op for op in simplified.bodies[0].entry.ops if op.bodies)
    (returned,) = func.bodies[0].entry.ops[-1].operands
    assert returned is func.bodies[0].parameters[0] and constant_of(returned) is None
