"""Simplification keeps what integers are: each op on numbers, constants and itself, pairs of ops, casts and choices.

One model holds the results of all expressions of a type, each in a place of its own. The rewritten model is proved to
store the same, place by place, for all numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs
import pytest

import ziggurat as zg
from ziggurat.backend.proof import prove as proofs
from ziggurat.backend.proof.prove import question, solve, symbolic_run
from ziggurat.backend.proof.universe import Universe
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import SCALARS, ScalarType

TYPES = [scalar for scalar in SCALARS.values() if scalar.kind == "int"]
SIGNED = "divsi remsi maxsi minsi shrsi".split()
UNSIGNED = "divui remui maxui minui shrui".split()
BOTH = "addi subi muli andi ori xori shli".split()
DIVISIONS = ("divsi", "remsi", "divui", "remui")
PREDICATES = {True: "eq ne slt sle sgt sge".split(), False: "eq ne ult ule ugt uge".split()}


def constants(scalar: ScalarType) -> list[int]:
    low, high = scalar.limits
    return sorted(n for n in {low, low + 1, -2, -1, 0, 1, 2, 3, 7, 8, 10, high - 1, high} if low <= n <= high)


class Expressions:
    """The text of a function that stores expressions of two numbers, %1 and %2, of a type."""

    def __init__(self, scalar: ScalarType) -> None:
        self.scalar = scalar
        self.lines: list[str] = []
        self.count = 2
        self.names: list[str] = []

    def value(self, op: str, type_: object) -> str:
        self.count += 1
        self.lines.append(f"%{self.count} : {type_} = {op};")
        return f"%{self.count}"

    def number(self, value: int) -> str:
        return self.value(f"arith.constant @{value}", self.scalar)

    def binary(self, op: str, a: str, b: str) -> str:
        return self.value(f"arith.{op} {a} {b}", self.scalar)

    def keep(self, name: str, value: str) -> None:
        """Store a value, in the next place."""
        place = self.value(f"arith.constant @{len(self.names)}", "i32")
        pointer = self.value(f"tt.addptr %0 {place}", f"ptr<{self.scalar}>")
        self.lines.append(f"tt.store {pointer} {value};")
        self.names.append(name)

    def model(self) -> Op:
        body = "\n".join(self.lines)
        kinds = f"%0 : ptr<{self.scalar}>, %1 : {self.scalar}, %2 : {self.scalar}"
        return zg.parse(f'module ()void -> {{ tt.func @"f" ({kinds})void -> {{ {body} tt.return; }}; unreachable; }};')


def ops(scalar: ScalarType) -> list[str]:
    return BOTH + (SIGNED if scalar.signed else UNSIGNED)


def one_op(scalar: ScalarType) -> Iterator[Expressions]:
    """Each op on numbers and constants."""
    for op in ops(scalar):
        text = Expressions(scalar)
        text.keep("x x", text.binary(op, "%1", "%1"))
        text.keep("x y", text.binary(op, "%1", "%2"))
        for c in constants(scalar):
            if c or op not in DIVISIONS:
                text.keep(f"x {c}", text.binary(op, "%1", text.number(c)))
            text.keep(f"{c} x", text.binary(op, text.number(c), "%1"))
        yield text


def comparisons(scalar: ScalarType) -> Iterator[Expressions]:
    """Each comparison, which then chooses."""
    text = Expressions(scalar)
    for predicate in PREDICATES[scalar.signed]:
        pairs = [("%1", "%1"), ("%1", "%2"), *(("%1", text.number(c)) for c in constants(scalar))]
        for a, b in pairs:
            condition = text.value(f"arith.cmpi {a} {b} @{predicate}", "i1")
            text.keep(f"{a} {predicate} {b}", text.value(f"arith.select {condition} %1 %2", scalar))
            text.keep("alike", text.value(f"arith.select {condition} %1 %1", scalar))
            opposite = text.value(f"arith.xori {condition} {text.value('arith.constant @true', 'i1')}", "i1")
            text.keep("opposite", text.value(f"arith.select {opposite} %1 %2", scalar))
    yield text


def two_ops(scalar: ScalarType) -> Iterator[Expressions]:
    """An op on a constant and the result of an op on a constant, in all orders."""
    small = [3, -1 if scalar.signed else scalar.limits[1]]
    for inner, outer in itertools.product(BOTH, BOTH):
        text = Expressions(scalar)
        for c, d in itertools.product(small, small):
            first = text.binary(inner, "%1", text.number(c))
            text.keep(f"{c} {d}", text.binary(outer, first, text.number(d)))
            text.keep(f"{c} {d} turned", text.binary(outer, text.number(d), text.binary(inner, text.number(c), "%1")))
        first = text.binary(inner, "%1", "%2")
        for name, a, b in (("z x", first, "%1"), ("x z", "%1", first), ("z y", first, "%2"), ("z z", first, first)):
            text.keep(name, text.binary(outer, a, b))
        yield text


def casts(scalar: ScalarType) -> Iterator[Expressions]:
    """Casts to each type and back."""
    text = Expressions(scalar)
    for other in TYPES:
        if other.bits == scalar.bits and other != scalar:
            there, back = "bitcast", "bitcast"
        elif other.bits > scalar.bits:
            there, back = "extsi" if scalar.signed else "extui", "trunci"
        elif other.bits < scalar.bits:
            there, back = "trunci", "extsi" if other.signed else "extui"
        else:
            continue
        wide = text.value(f"arith.{there} %1", other)
        text.keep(f"{other}", text.value(f"arith.{back} {wide}", scalar))
        text.keep(
            f"{other} twice", text.value(f"arith.{back} {text.value(f'arith.addi {wide} {wide}', other)}", scalar)
        )
    yield text


EFFORT = 400_000
# Rewritten results of which z3 has no answer, by type and kind of expression.
UNKNOWN: dict[tuple[str, str], int] = {}


def undecided(text: Expressions) -> int:
    """How many results are not decided. Fails for one that differs."""
    model = text.model()
    changed = zg.simplify(model)
    universe = Universe()
    problem = question(*(symbolic_run(version, universe, bound=1) for version in (model, changed)))
    count = 0
    for term in problem.differences:
        answer = solve(attrs.evolve(problem, differences=[term]))
        assert answer is None or isinstance(answer, str), f"{model}\n{changed}\n{answer}"
        count += answer is not None
    return count


KINDS = {"one op": one_op, "comparisons": comparisons, "two ops": two_ops, "casts": casts}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scalar", TYPES, ids=str)
def test_integers(scalar: ScalarType, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "EFFORT", EFFORT)
    assert sum(map(undecided, KINDS[kind](scalar))) == UNKNOWN.get((str(scalar), kind), 0)
