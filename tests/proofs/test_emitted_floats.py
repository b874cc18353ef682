"""The LLVM text of ops on floats that round at most to an integer, for GPUs and for CPUs: comparisons, extremes, signs.

Sums, products, quotients and roots of 16 bits are computed in f32 and rounded once more, which gives the same for 24
digits and twice 11, and 2 (Figueroa, "When is double rounding innocuous?", 1995); z3 does not decide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import z3
from conversions import INSTRUCTIONS, alike, number_of
from emission import Operation
from emitted_terms import Emitted, on_cpu, on_gpu
from llvm_text import Execution
from meanings import meaning
from planted import edit, entry, must_find
from proving import prove

from ziggurat.backend.llvm import elementwise
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32, f64, i1

FLOATS = (bf16, f16, f32, f64)
EXTREMES = (arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF)
UNARY = (arith.NegF, maths.AbsF, maths.Floor, maths.Ceil, maths.Trunc, maths.RoundEven)


def operations() -> Iterator[Operation]:
    for scalar in FLOATS:
        yield from (Operation(cls.NAME, (scalar, scalar), scalar) for cls in EXTREMES)
        yield from (Operation(cls.NAME, (scalar,), scalar) for cls in UNARY)
        yield Operation(arith.Select.NAME, (i1, scalar, scalar), scalar)
        for predicate in arith.FloatPredicate:
            yield Operation(arith.CmpF.NAME, (scalar, scalar), i1, f"@{predicate.value}")


def forms(operation: Operation) -> Iterator[Emitted]:
    yield on_gpu(operation, Execution(INSTRUCTIONS))
    yield on_cpu(operation, Execution(INSTRUCTIONS))
    if operation.operands[-1] == bf16:  # In pairs, where the target has instructions for these.
        yield on_gpu(operation, Execution(INSTRUCTIONS), tensors=True, target="sm_90")


def prove_emission(operation: Operation) -> None:
    op, scalar = operation.op(), operation.result
    for text in forms(operation):
        row, result = text.rows[0], text.results[0]
        pairs = zip(row, operation.operands, strict=True)
        values = [
            number_of(value.term, of) if isinstance(of, ScalarType) and of.is_float else value.term
            for value, of in pairs
        ]
        expected = meaning(op, *values)
        same = alike(result.term, expected, scalar) if scalar.is_float else result.term == expected
        prove(z3.And(same, z3.Not(z3.Or(result.poison, *text.undefined))))


NAMES = list(dict.fromkeys(operation.name for operation in operations()))


@pytest.mark.parametrize("name", NAMES)
def test_the_text_means_the_op(name: str) -> None:
    for operation in operations():
        if operation.name == name:
            prove_emission(operation)


def prove_op(cls: type[Op], scalar: ScalarType) -> None:
    prove_emission(next(o for o in reversed([*operations()]) if o.name == cls.NAME and o.operands[-1] == scalar))


instruction = partial(entry, elementwise.INSTRUCTIONS)
FAULTS = [
    (edit(elementwise._negate, "int(a.kind[1:]) - 1", "int(a.kind[1:]) - 2"), arith.NegF, bf16),
    (edit(elementwise._magnitude, "- 1) - 1 if", "- 1) if"), maths.AbsF, bf16),
    (edit(elementwise.in_f32, "return rule(*wide)", "return rule(*reversed(wide))"), arith.CmpF, f16),
    (instruction(arith.MaximumF, "llvm.maxnum"), arith.MaximumF, f32),
    (instruction(arith.MinNumF, "llvm.minimum"), arith.MinNumF, f64),
    (instruction(maths.RoundEven, "llvm.trunc"), maths.RoundEven, f32),
]


test_planted_faults = must_find((fault, partial(prove_op, cls, scalar)) for fault, cls, scalar in FAULTS)
