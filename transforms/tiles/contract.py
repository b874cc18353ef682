"""Contraction: a sum or difference with a product of floats becomes an fma, which rounds once.

    %2 : f32 = arith.mulf %0 %1;                  %3 : f32 = math.fma %0 %1 %c;
    %3 : f32 = arith.addf %2 %c;

    %3 : f32 = arith.subf %2 %c;                  %n : f32 = arith.negf %c;
                                                  %3 : f32 = math.fma %0 %1 %n;

    %3 : f32 = arith.subf %c %2;                  %n : f32 = arith.negf %0;
                                                  %3 : f32 = math.fma %n %1 %c;

The machine's fma takes its operands negated at no cost. The result differs from that of the two ops by at most the
rounding error of the product, half a unit in its last place. A product of scalars is contracted into a sum of tensors
too, as in Triton, whose tensors are scalars by then: the factors take the place of the product in `tt.splat`. A
product that has other uses stays for them: the fma takes the place of the sum, so that there are as many ops as
before. Functions of the library stay as they are: some count on a product that is rounded. Reductions and scans add
the products that they read by fma, too: that is decided where they are emitted.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.location import LIBRARY
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import scalar_element
from ziggurat.transforms.simplify.dce import dce

_SUMS = (arith.AddF, arith.SubF)


def contract(op: Op) -> Op:
    """The model with products of f16, bf16, f32 and f64 contracted into the sums and differences of their block. Gives
    `op` itself where there are none."""
    if all(_product(inner) is None for inner in op.walk()):
        return op
    return dce(transform(op, _contracted, pass_name="contract"))


def _contracted(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    multiplication = _product(op)
    if multiplication is None:
        return None
    at, product = multiplication
    factor, other, addend = builder[product.lhs], builder[product.rhs], operands[1 - at]
    if product.result.type != op.result.type:
        factor, other = (builder.add(tt.Splat(scalar, op.result.type)) for scalar in (factor, other))
    if isinstance(op, arith.SubF) and at == 0:
        addend = builder.add(arith.NegF(addend))
    is_negated = _before_negation(op.operands[at]) is not op.operands[at]
    if is_negated != (isinstance(op, arith.SubF) and at == 1):
        factor = builder.add(arith.NegF(factor))
    return builder.add(maths.Fma(factor, other, addend))


def _product(op: Op) -> tuple[int, arith.MulF] | None:
    """The operand of a sum or difference that is a product of the same block, maybe negated, and the product: of two,
    the one with fewer uses, which may then be gone."""
    if not isinstance(op, _SUMS) or scalar_element(op.result.type).is_fp8 or is_library(op):
        return None
    products: list[tuple[int, arith.MulF]] = []
    for at, value in enumerate(op.operands):
        value = _before_negation(value)
        inner = value.op.value.op if isinstance(value.op, tt.Splat) else value.op
        if isinstance(inner, arith.MulF) and inner.parent is op.parent and not is_library(inner):
            products.append((at, inner))
    return min(products, key=lambda item: len(op.operands[item[0]].uses), default=None)


def _before_negation(value: Value) -> Value:
    return value.op.operand if isinstance(value.op, arith.NegF) else value


def is_library(op: Op) -> bool:
    """Whether an op is of a function of the library, whose products are rounded."""
    return op.location is not None and op.location.file.startswith(LIBRARY)
