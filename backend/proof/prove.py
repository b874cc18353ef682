"""Proofs that two models do the same for all inputs, and inputs for which they do not."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.proof import memory_ops, tensor_ops
from ziggurat.backend.proof.machine import SymbolicMachine
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.terms import Bit, NotDecided, Pointer, Sum, Term, bits_of, same
from ziggurat.backend.proof.universe import Universe, coordinates
from ziggurat.backend.reference.run import kernel_of
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu.fragments import GRID, MAP, SCRATCH, STORED
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type

TABLES = (memory_ops, tensor_ops)  # They fill the table of meanings.

BOUND = 4  # Iterations of a loop of unknown length.
EFFORT = 20_000_000  # Units of z3's work on one question: some seconds. Slow machines so come to the same answer.


@attrs.frozen
class Question:
    """Whether two models are the same: formulas of which one holds if they differ, and what is taken for granted."""

    differences: list[Term]
    assumed: list[Term]
    machines: tuple[SymbolicMachine, SymbolicMachine]

    @property
    def assumptions(self) -> list[str]:
        """What the answer is true of, in words."""
        first = self.machines[0]
        words: list[str] = []
        if len(first.arrays) > 1:
            words.append("the arrays of two arguments do not overlap")
        if any(machine.cut for machine in self.machines):
            words.append(f"loops of unknown length have at most {first.bound} iterations")
        if first.universe.combined:
            words.append("a reduction may combine in any order")
        return words


def symbolic_run(model: Op, universe: Universe, *, bound: int) -> SymbolicMachine:
    """Run the kernel of a model on unknown arguments. Raises `NotDecided` for what proofs do not cover."""
    functions, kernel = kernel_of(model)
    machine = SymbolicMachine(functions, universe, bound=bound)
    if isinstance(kernel, tt.Func) and kernel.num_ctas > 1:
        raise NotDecided("a kernel of clusters of CTAs")
    parameters = kernel.bodies[0].parameters
    parts = (kernel.parts if isinstance(kernel, tt.Func) else ()) or tuple(map(str, range(len(parameters))))
    values: list[Any] = []
    for parameter, part in zip(parameters, parts, strict=True):
        values.append(_argument(machine, part, parameter.type, values))
    with np.errstate(all="ignore"):
        machine.call(kernel.bodies[0], values)
    return machine


def _argument(machine: SymbolicMachine, part: str, type_: Type, values: list[Any]) -> Any:
    """The unknown value of a parameter that is a part of an argument; see `reference.kernel_arguments`."""
    word, *rest = part.removesuffix(STORED).split()
    if word == SCRATCH:
        return np.zeros(1, np.int64)
    if word == GRID:
        raise NotDecided("a kernel whose CTAs run several programs each")
    if word == MAP:
        base, *numbers = (_number(machine, int(s[1:]), 64) if s.startswith("=") else values[int(s)] for s in rest)
        rows, columns, pitch = numbers
        return base, _low(rows), _low(columns), memory_ops.as_indices(machine, pitch), _number(machine, 1, 64)
    number, _, field = part.partition(".")
    if isinstance(type_, PtrType) or field == "base":
        return _object(Pointer(int(number), Sum.number(0, 64)))
    if isinstance(type_, DescriptorType):
        rank = range(len(type_.block))
        sizes = [_unknown(f"argument {number}.shape{axis}", 32) for axis in rank]
        strides = [_unknown(f"argument {number}.stride{axis}", 64) for axis in rank[:-1]]
        return _object(Pointer(int(number), Sum.number(0, 64))), *sizes, *strides, _number(machine, 1, 64)
    assert isinstance(type_, ScalarType)
    return _unknown(f"argument {number}{'.' if field else ''}{field}", type_.bits)


def _object(element: Any) -> Any:
    array = np.empty(1, object)
    array[0] = element
    return array


def _number(machine: SymbolicMachine, number: int, bits: int) -> Any:
    return _object(Sum.number(number, bits))


def _unknown(name: str, bits: int) -> Any:
    return _object(Bit(z3.Bool(name)) if bits == 1 else Sum.of(z3.BitVec(name, bits)))


def _low(array: Any) -> Any:
    return _object(Sum.of(z3.simplify(z3.Extract(31, 0, array[0].term))) if array[0].bits == 64 else array[0])


def question(a: SymbolicMachine, b: SymbolicMachine) -> Question:
    """What must hold for two runs in a universe to be the same. Raises `NotDecided` for what proofs do not cover."""
    differences: list[Term] = []
    for origin in sorted(a.arrays.keys() | b.arrays.keys()):
        size = a.sizes.get(origin, b.sizes.get(origin, 0))
        if b.sizes.get(origin, size) != size:
            raise NotDecided("accesses of one array at elements of two sizes")
        initial = a.universe.initial(origin, size)
        first, second = a.arrays.get(origin, initial), b.arrays.get(origin, initial)
        if first is not second:
            differences += first.cells().differences(second.cells())
    differences += _effects(a, b)
    known = {term.get_id() for term in a.defined}
    differences += [z3.Not(term) for term in b.defined if term.get_id() not in known]
    return Question(differences, [*a.assumed, *b.assumed, *a.defined, *coordinates()], (a, b))


def _effects(a: SymbolicMachine, b: SymbolicMachine) -> list[Term]:
    if [effect.name for effect in a.effects] != [effect.name for effect in b.effects]:
        raise NotDecided("prints or assertions that stand in another order")
    differences: list[Term] = []
    for first, second in zip(a.effects, b.effects, strict=True):
        if not first.condition.eq(second.condition):
            differences.append(first.condition != second.condition)
        for x, y in zip(first.values, second.values, strict=True):
            if not same(x, y):
                differences.append(z3.And(first.condition, bits_of(x) != bits_of(y)))
    return differences


def solve(question: Question, further: Iterable[Term] = ()) -> Mapping[str, Any] | str | None:
    """None where the models are the same; else a model of the solver, or the reason why there is no answer."""
    if not question.differences:
        return None
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    solver.add(*question.assumed, *further, functools.reduce(z3.Or, question.differences, z3.BoolVal(False)))
    answer = solver.check()
    if answer == z3.unsat:
        return None
    return solver.model() if answer == z3.sat else f"the solver has no answer: {solver.reason_unknown()}"
