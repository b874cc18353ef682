"""The forms that `cpu/affine` gives of indices and masks are what these are, wherever their guards hold.

Kernels are generated: an index of four elements by ranges, two arguments, extreme constants, sums, products and
remainders, which wrap around. The model says the claims itself, as assertions: no input may break one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3
from generated_indices import N, generated, kernel
from planted import edit, must_find
from proving import Undecided, prove

import ziggurat as zg
from ziggurat.backend.proof.elements import NotDecided
from ziggurat.backend.proof.prove import symbolic_run
from ziggurat.backend.proof.universe import Universe
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import TensorType, i1, i64
from ziggurat.transforms.cpu.affine import Affine

STEPS = 100_000
COUNT = 40
REMAINDER = ["arith.addi %3 %4", "arith.constant @64", "arith.remsi %6 %7"]
PRODUCTS = ["arith.addi %3 %4", "arith.muli %6 %5", "arith.muli %7 %5"]


def claims(model: Op) -> tuple[Op, list[str]]:
    """The model with assertions that the forms are right where their guards hold, and the kinds of these."""
    kinds: list[str] = []

    def visit(builder: Any, op: Op, operands: tuple[Value, ...]) -> None:
        if not isinstance(op, tt.Store):
            return
        wide = TensorType((N,), i64)
        number = builder.add(arith.ExtSI(builder.add(tt.MakeRange(0, N)), wide))

        def tensor(value: Value) -> Value:
            return builder.add(tt.Splat(value, TensorType((N,), value.type)))

        def claim(kind: str, affine: Affine, holds: Value) -> None:
            unguarded = builder.add(arith.XOrI(affine.guard(), builder.add(arith.ConstantOp(True, i1))))
            builder.add(tt.Assert(builder.add(arith.OrI(holds, tensor(unguarded))), message=kind))
            kinds.append(kind)

        _, index, mask = operands
        affine = Affine(builder)
        form = affine.exact(index)
        if form is not None:
            steps = builder.add(arith.MulI(number, tensor(affine.value(form.strides[0]))))
            element = builder.add(arith.AddI(tensor(affine.value(form.base)), steps))
            equal = arith.CmpI(element, builder.add(arith.ExtSI(index, wide)), IntPredicate.EQ)
            claim("form", affine, builder.add(equal))
        affine = Affine(builder)
        (count,), exact = affine.counts(mask)
        if exact:
            inside = builder.add(arith.CmpI(number, tensor(affine.value(count)), IntPredicate.SLT))
            claim("count", affine, builder.add(arith.CmpI(inside, mask, IntPredicate.EQ)))

    return zg.transform(model, visit), kinds


def answers(before: Op, facts: Sequence[Any] = ()) -> list[str]:
    """For each claim on a kernel: its kind, or "undecided". Raises `Refuted` for a false one."""
    model, kinds = claims(before)
    try:
        run = symbolic_run(model, Universe(), bound=1)
    except NotDecided:  # It divides by zero.
        return []
    results: list[str] = []
    for kind in kinds:
        broken = [effect.condition for effect in run.effects if kind in effect.name]
        try:
            prove(z3.Not(z3.Or(*broken)), [*run.assumed, *run.defined, *facts], steps=STEPS)
            results.append(kind)
        except Undecided:
            results.append("undecided")
    return results


MODELS = [kernel(REMAINDER), *map(generated, range(2 * COUNT))]


def test_forms_and_counts() -> None:
    results = [answer for model in MODELS[: COUNT + 1] for answer in answers(model)]
    assert results.count("form") > COUNT // 3 and results.count("count") > COUNT // 6
    assert results.count("undecided") < len(results) // 5, results


def test_extremes_of_a_form_do_not_wrap_around() -> None:
    """Products of three numbers exceed 64 bits: the smallest element is then above the largest one."""
    numbers = [z3.BitVec(f"argument {at}", 32) == number for at, number in ((1, 2**31 - 1), (2, 1 << 16))]
    assert "form" in answers(kernel(PRODUCTS), numbers)


FAULTS = [
    (Affine._require_range, ">= 1 << 63", ">= 1 << 999"),
    (Affine.exact, "self.require(high, IntPredicate.SLE, largest)", "pass"),
    (Affine.exact, "self.require(low, IntPredicate.SGE, smallest)", "pass"),
    (Affine._remainder, "self.require(low, IntPredicate.SGE, 0)", "pass"),
    (Affine._remainder, "IntPredicate.SLT", "IntPredicate.SLE"),
    (Affine._compared, "self.sub(first.base, second.base)", "self.sub(second.base, first.base)"),
    (Affine.range, "size - 1", "size - 2"),
    (Affine.form, "not (a.uniform or b.uniform)", "False"),
]


def prove_claims() -> None:
    test_extremes_of_a_form_do_not_wrap_around()
    for model in MODELS:
        answers(model)


test_planted_faults = must_find((edit(*fault), prove_claims) for fault in FAULTS)
