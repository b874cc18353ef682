"""Contraction: a product of floats that is only added or subtracted becomes part of an fma, which rounds once.

    %2 : f32 = arith.mulf %0 %1;                  %3 : f32 = math.fma %0 %1 %c;
    %3 : f32 = arith.addf %2 %c;

    %3 : f32 = arith.subf %2 %c;                  %n : f32 = arith.negf %c;
                                                  %3 : f32 = math.fma %0 %1 %n;

    %3 : f32 = arith.subf %c %2;                  %n : f32 = arith.negf %0;
                                                  %3 : f32 = math.fma %n %1 %c;

The machine's fma takes its operands negated at no cost. The result differs from that of the two ops by at most the
rounding error of the product, half a unit in its last place. Functions of the library stay as they are: some count on
a product that is rounded.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import scalar_element
from ziggurat.transforms.place.obstacle import LIBRARY
from ziggurat.transforms.simplify.dce import dce

_SUMS = (arith.AddF, arith.SubF)


def contract(op: Op) -> Op:
    """The model with products of f16, bf16, f32 and f64 contracted, each into the sums or differences of its block that
    alone use it. Gives `op` itself where there are none."""
    if not any(isinstance(inner, arith.MulF) for inner in op.walk()):
        return op
    return dce(transform(op, _contracted, pass_name="contract"))


def _contracted(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    if not isinstance(op, _SUMS):
        return None
    lhs, rhs = op.operands
    if (product := _product(lhs, op)) is not None:
        addend = operands[1] if isinstance(op, arith.AddF) else builder.add(arith.NegF(operands[1]))
        return builder.add(maths.Fma(builder[product.lhs], builder[product.rhs], addend))
    if (product := _product(rhs, op)) is not None:
        factor = builder[product.lhs]
        if isinstance(op, arith.SubF):
            factor = builder.add(arith.NegF(factor))
        return builder.add(maths.Fma(factor, builder[product.rhs], operands[0]))
    return None


def _product(value: Value, user: Op) -> arith.MulF | None:
    """The product that an operand of a sum is, if only sums of its block use it."""
    op = value.op if isinstance(value, OpResult) else None
    if not isinstance(op, arith.MulF) or scalar_element(value.type).is_fp8 or _is_library(op) or _is_library(user):
        return None
    return op if all(isinstance(one, _SUMS) and one.parent is op.parent for one in value.uses) else None


def _is_library(op: Op) -> bool:
    return op.location is not None and op.location.file.startswith(LIBRARY)
