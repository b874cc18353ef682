"""The claims of an `AxisInfo` about numbers, and proofs that they follow from those about other numbers.

A claim is a tuple: its kind, the elements that it is about, by their numbers, and what it says of them. So the facts
about the results of a rule, for many facts about its operands, make few claims, and z3 decides each of them once:
whether no numbers of which any of those facts hold are against it.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
import z3
from proving import STEPS, conclude

from ziggurat.codemodel.types import ScalarType, Type, element_of, shape_of
from ziggurat.transforms.analysis.axis_info import AxisInfo

Claim = tuple[Any, ...]
Facts = Sequence[AxisInfo]


@attrs.frozen(eq=False)
class Numbers:
    """The elements of a value, as terms of `bits` bits, in the order of memory. Runs wrap around at `wrap` bits, as
    they do where the value was cast from such a type."""

    type: Type
    terms: Sequence[Any]
    wrap: int = 0

    @property
    def bits(self) -> int:
        return self.terms[0].size()

    def claims(self, info: AxisInfo) -> frozenset[Claim]:
        """The claims of facts about these numbers."""
        element, claims = element_of(self.type), set[Claim]()
        shape = shape_of(self.type) or (1,)
        numbers = np.arange(len(self.terms)).reshape(shape)
        signed = not isinstance(element, ScalarType) or element.limits[0] < 0
        largest = (1 << self.bits - signed) - 1
        for x in numbers.flat:
            if info.constant is not None:
                claims.add(("is", x, info.constant))
            if info.magnitude < largest + signed:
                claims.add(("at most", x, info.magnitude, signed))
            if signed and (info.nonnegative or info.magnitude <= largest):
                claims.add(("at least", x, 0 if info.nonnegative else -info.magnitude))
        for axis, size in enumerate(shape):
            run, divisor, aligned = info.contiguity[axis], info.divisibility[axis], info.aligned(axis)
            for line in np.moveaxis(numbers, axis, -1).reshape(-1, size):
                for i, x in enumerate(line):
                    if i % run == 0 and divisor > 1:
                        claims.add(("divided", x, min(divisor, 1 << self.bits)))
                    for length, step, bits in (
                        (run, info.unit, self.wrap or self.bits),
                        (aligned, info.unit, self.bits),
                        (info.constancy[axis], 0, self.bits),
                    ):
                        if i % length:
                            claims.add(("after", x, line[i - i % length], i % length * step, bits))
        return frozenset(claims)

    def term(self, claim: Claim) -> Any:
        """A claim as a condition."""
        kind, at, *values = claim
        x = self.terms[at]
        match kind, *values:
            case "is", number:
                return x == number
            case "at most", limit, signed:
                return x <= limit if signed else z3.ULE(x, limit)
            case "at least", limit:
                return x >= limit
            case "divided", divisor:
                return x & divisor - 1 == 0
            case "after", other, distance, bits:
                return z3.Extract(bits - 1, 0, x - self.terms[other]) == distance % (1 << bits)
            case _:
                raise AssertionError(claim)


def prove_rule(
    rule: Callable[..., AxisInfo],
    operands: Sequence[tuple[Numbers, Facts]],
    result: Numbers,
    given: Iterable[Any] = (),
    *,
    steps: int = STEPS,
) -> int:
    """Prove that the facts that a rule gives hold for the result, for each choice among the facts about the operands;
    the number of choices. Raises `Refuted` or `Undecided`."""
    solver = z3.SolverFor("QF_BV")
    solver.set("rlimit", steps)
    solver.add(*given)
    conditions: list[list[Any]] = []  # By operand: a condition for each of its facts.
    for place, (numbers, facts) in enumerate(operands):
        term = functools.cache(numbers.term)
        conditions.append([z3.Bool(f"operand {place}, facts {at}") for at in range(len(facts))])
        for name, info in zip(conditions[-1], facts, strict=True):
            solver.add(z3.Implies(name, z3.And(*map(term, numbers.claims(info)))))
    claims = functools.cache(result.claims)
    choices = defaultdict[Claim, list[tuple[int, ...]]](list)
    every = list(itertools.product(*(range(len(facts)) for _, facts in operands)))
    for choice in every:
        for claim in claims(rule(*(facts[at] for (_, facts), at in zip(operands, choice, strict=True)))):
            choices[claim].append(choice)

    @functools.cache
    def any_of(choices: tuple[tuple[int, ...], ...], place: int = 0) -> Any:
        """The condition that the facts are those of any of these choices, from an operand on."""
        if place == len(conditions):
            return z3.BoolVal(True)
        rest = defaultdict[int, list[tuple[int, ...]]](list)
        for first, *others in choices:
            rest[first].append(tuple(others))
        return z3.Or(*(z3.And(conditions[place][at], any_of(tuple(others), place + 1)) for at, others in rest.items()))

    for claim, those in sorted(choices.items(), key=str):
        solver.push()
        solver.add(any_of(tuple(those)), z3.Not(result.term(claim)))
        conclude(solver.check(), solver, f"{claim}:")
        solver.pop()
    return len(every)
