"""Proofs that two models do the same for all inputs, and inputs for which they do not."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal

import attrs
import numpy as np

from ziggurat.backend.proof import buffers, memory_ops, shared_ops, tensor_ops
from ziggurat.backend.proof.clusters import run_cluster
from ziggurat.backend.proof.elements import (
    FALSE,
    TRUE,
    Bit,
    NotDecided,
    Pointer,
    Sum,
    Term,
    bits_of,
    facts_of_divisions,
    same,
)
from ziggurat.backend.proof.fingerprints import Fingerprints
from ziggurat.backend.proof.frames import SymbolicFrame
from ziggurat.backend.proof.machine import SymbolicMachine, Undecided
from ziggurat.backend.proof.memory_ops import Store
from ziggurat.backend.proof.outlines import Outlines
from ziggurat.backend.proof.samples import Counterexample, difference, draws, has_floats
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensors import Version, objects_of
from ziggurat.backend.proof.terms import Terms, float_answer
from ziggurat.backend.proof.universe import Universe, coordinates
from ziggurat.backend.reference.run import kernel_of
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import GRID, MAP, SCRATCH, STORED
from ziggurat.codemodel.numbers import number_of_bits, wrapped
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.recursion import deep_recursion
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, i32, i64
from ziggurat.transforms.analysis.queries import is_persistent
from ziggurat.transforms.gpu.hazards import hazards

TABLES = (buffers, memory_ops, shared_ops, tensor_ops)  # They fill the table of meanings.

_MOST_RUNS, _FEW_RUNS = 64, 10
BOUND = 4  # Iterations of a loop of unknown length.
EFFORT = 2_000_000  # Units of the solver's work on a question, so that slow machines come to the same answer.
Verdict = Literal["proved", "refuted", "unknown"]


@attrs.frozen(eq=False)
class Proof:
    """The answer to whether two models do the same: "proved", "refuted" with a counterexample, or "unknown".

    It is true where the models are proved equal. `assumptions` are what a proof takes for granted; `reasons` are what
    was not decided.
    """

    verdict: Verdict
    assumptions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    counterexample: Counterexample | None = None

    def __bool__(self) -> bool:
        return self.verdict == "proved"

    def __str__(self) -> str:
        details = [
            *(f"assumed: {text}" for text in self.assumptions),
            *(f"not decided: {text}" for text in self.reasons),
        ]
        if self.counterexample is not None:
            details.append(str(self.counterexample))
        return "\n".join((self.verdict, *details))


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
        if any(isinstance(value, tuple) for value in first.parameters):
            words.append("sizes of descriptors are not negative")
        if any(machine.cut for machine in self.machines):
            words.append(f"loops of unknown length have at most {first.bound} iterations")
        words += dict.fromkeys(text for machine in self.machines for text in machine.presumptions)
        if first.universe.contracts:
            words.append("a product that is added to something may be rounded, or not")
        if not first.domain.wraps:
            words.append("32-bit indices of pointers and masks do not wrap around")
        if first.universe.chooses or first.domain.exact:
            words.append("all NaNs are alike")
        if first.universe.combined or first.universe.reductions:
            words.append("a reduction may combine in any order")
        return words


def symbolic_run(
    model: Op, universe: Universe, *, bound: int, premise: Bit = TRUE, in_turn: bool = False
) -> SymbolicMachine:
    """Run the kernel of a model on unknown arguments of which a premise holds: for one program, or for all that a CTA
    runs `in_turn`. Raises `NotDecided` for what proofs do not cover."""
    functions, kernel = _kernel_of(model)
    machine = SymbolicMachine(functions, universe, premise, bound=bound)
    ctas = kernel.num_ctas if isinstance(kernel, tt.Func) else 1
    parameters = kernel.bodies[0].parameters
    parts = (kernel.parts if isinstance(kernel, tt.Func) else ()) or tuple(map(str, range(len(parameters))))
    values: list[Any] = []
    for parameter, part in zip(parameters, parts, strict=True):
        values.append(_argument(machine, part, parameter.type, values))
    machine.parameters = [value[0] if isinstance(value, np.ndarray) else value for value in values]
    zero, programs = Sum.number(0, 32), [machine.coordinates]
    if in_turn and runs_in_turn(model):
        programs, machine.sizes_of_grid = [[_cta(machine), zero, zero]], [_ctas(machine), zero, zero]
    with np.errstate(all="ignore"):
        for coordinates in programs if not in_turn or runs_in_turn(model) else _programs_in_turn(machine):
            machine.coordinates = coordinates
            if ctas > 1:
                run_cluster(machine, kernel, ctas, values)
            else:
                machine.call(kernel.bodies[0], values)
    return machine


_kernel_of = functools.lru_cache(4)(kernel_of)  # It looks at all ops.


def runs_in_turn(model: Op) -> bool:
    """Whether the CTAs of a model run several programs each."""
    _, kernel = _kernel_of(model)
    return isinstance(kernel, tt.Func) and is_persistent(kernel)


def _cta(machine: SymbolicMachine) -> Sum:
    return machine.unknown("number of the CTA")


def _ctas(machine: SymbolicMachine) -> Sum:
    return machine.unknown("number of CTAs")


def _programs_in_turn(machine: SymbolicMachine) -> Iterator[list[Sum]]:
    """The coordinates of the programs of a CTA: of that of its own number, and of each so many further as there are
    CTAs."""
    domain, (rows, columns, planes) = machine.domain, machine.sizes_of_grid
    number, step, total = _cta(machine), _ctas(machine), rows * columns * planes
    machine.assumed.append(domain.compare("gt", step, Sum.number(0, 32), signed=True).term)  # A launch has a CTA.
    frame, visits = machine.frame, 0
    assert isinstance(frame, SymbolicFrame)
    while machine.goes_on(frame, objects_of(domain.compare("lt", number, total, signed=True)), visits):
        rest = domain.quotient(number, rows, signed=True)
        row, column = domain.remainder(number, rows, signed=True), domain.remainder(rest, columns, signed=True)
        yield [row, column, domain.quotient(rest, columns, signed=True)]
        number, visits = number + step, visits + 1


def _argument(machine: SymbolicMachine, part: str, type_: Type, values: list[Any]) -> Any:
    """The unknown value of a parameter that is a part of an argument; see `reference.kernel_arguments`."""
    word, *rest = part.removesuffix(STORED).split()
    if word == SCRATCH:  # Only maps are there, which are values here.
        return objects_of(Pointer(-1, Sum.number(0, 64)))
    if word == GRID:
        return objects_of(machine.sizes_of_grid[int(rest[0])])
    if word == MAP:
        base, *numbers = (_number(machine, int(s[1:]), 64) if s.startswith("=") else values[int(s)] for s in rest)
        rows, columns, pitch = numbers
        return base, _low(rows), _low(columns), memory_ops.as_indices(machine, pitch), _number(machine, 1, 64)
    number, _, field = part.partition(".")
    if isinstance(type_, PtrType) or field == "base":
        return objects_of(Pointer(int(number), Sum.number(0, 64)))
    if isinstance(type_, DescriptorType):
        rank = range(len(type_.block))
        sizes = [_unknown(machine, f"argument {number}.shape{axis}", i32) for axis in rank]
        strides = [_unknown(machine, f"argument {number}.stride{axis}", i64) for axis in rank[:-1]]
        return objects_of(Pointer(int(number), Sum.number(0, 64))), *sizes, *strides, _number(machine, 1, 64)
    assert isinstance(type_, ScalarType)
    return _unknown(machine, f"argument {number}{'.' if field else ''}{field}", type_)


def _number(machine: SymbolicMachine, number: int, bits: int) -> Any:
    return objects_of(Sum.number(number, bits))


def _unknown(machine: SymbolicMachine, name: str, scalar: ScalarType) -> Any:
    return objects_of(machine.domain.unknown(name, scalar))


def _low(array: Any) -> Any:
    return objects_of(Sum.of(z3.simplify(z3.Extract(31, 0, array[0].term))) if array[0].bits == 64 else array[0])


# What is compared of arrays: whether the writes are alike; for writes to the same places, the values; or the elements.
Look = Literal["writes", "values", "elements"]


def question(a: SymbolicMachine, b: SymbolicMachine, compared: Look = "elements") -> Question:
    """What must hold for two runs in a universe to be the same. Raises `NotDecided` for what proofs do not cover."""
    differences: list[Term] = []
    for origin in sorted(a.arrays.keys() | b.arrays.keys()):
        size = a.sizes.get(origin, b.sizes.get(origin, 0))
        if b.sizes.get(origin, size) != size:
            raise NotDecided("accesses of one array at elements of two sizes")
        initial = a.universe.initial(origin, size)
        first, second = a.arrays.get(origin, initial), b.arrays.get(origin, initial)
        if first is second:
            continue
        if compared == "writes":
            raise NotDecided("arrays that are written in other ways")
        if compared == "values":
            differences += _values(a.universe, first, second)
        else:
            differences += first.cells().differences(second.cells())
    differences += _effects(a, b)
    earlier = {term.get_id() for term in a.defined}
    differences += [z3.Not(term) for term in b.defined if term.get_id() not in earlier]
    facts = [*a.assumed, *b.assumed, *a.defined, *coordinates(), *a.universe.definitions]
    return Question(differences, [a.premise.term, *facts], (a, b))


def _values(universe: Universe, first: Version, second: Version) -> list[Term]:
    """Formulas of which one holds if two arrays differ that are written at the same places. Raises `NotDecided` if they
    are not."""
    differences: list[Term] = []
    writes = first.since(first.first), second.since(second.first)
    if len(writes[0]) != len(writes[1]):
        raise NotDecided("arrays that are written in other ways")
    for write, other in zip(*writes, strict=True):
        if write.key != other.key:
            if not isinstance(write.content, Store) or not isinstance(other.content, Store):
                raise NotDecided("arrays that are written in other ways")
            differences += write.content.differences(other.content, universe)
    return differences


def _effects(a: SymbolicMachine, b: SymbolicMachine) -> list[Term]:
    if [effect.name for effect in a.effects] != [effect.name for effect in b.effects]:
        raise NotDecided("prints or assertions that stand in another order")
    differences: list[Term] = []
    for first, second in zip(a.effects, b.effects, strict=True):
        if not first.condition.eq(second.condition):
            differences.append(first.condition != second.condition)
        for x, y in zip(first.values, second.values, strict=True):
            if not same(x, y):
                if isinstance(x, Pointer):
                    raise NotDecided("prints of pointers")
                differences.append(z3.And(first.condition, bits_of(x) != bits_of(y)))
    return differences


def solve(question: Question, further: Iterable[Term] = ()) -> Any:
    """None where the models are the same; else a model of the solver, or the reason why there is no answer."""
    if not question.differences:
        return None
    formulas = [*question.assumed, *further, functools.reduce(z3.Or, question.differences, z3.BoolVal(False))]
    universe = question.machines[0].universe
    if universe.domain.exact:
        answer, solver = float_answer(formulas, 10 * EFFORT)
        if answer != z3.unknown:
            return solver.model() if answer == z3.sat else None
    facts = facts_of_divisions(z3.And(*formulas))
    if facts is not None:
        formulas += facts
        if not further and universe.holds(Bit(z3.And(*formulas)), FALSE, much=False):  # Whatever the products are.
            return None
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    solver.add(*formulas)
    answer = solver.check()
    if answer == z3.unsat:
        return None
    return solver.model() if answer == z3.sat else f"the solver gave up: {solver.reason_unknown()}"


def _looks(prover: Prover) -> list[Universe]:
    exact, contracts = prover.exact, prover.contracts
    universes = [Universe(Terms(exact=exact), contracts=contracts, places=places) for places in (False, True)]
    if not prover.wraps:
        universes.append(Universe(Terms(exact=exact, wraps=False), contracts=contracts, places=True))
    return universes


_Tries = dict[Hashable, tuple[SymbolicMachine | Undecided, Op, Bit]]


@attrs.frozen(eq=False)
class Prover:
    """Proves models equal, one after the other: what it has found of one it knows when it comes to the next."""

    exact: bool = False
    contracts: bool = False
    bound: int = BOUND
    wraps: bool = True  # Whether 32-bit indices of pointers and masks may wrap around: passes take them not to.
    # The first does not look at places. In the last, integers do not wrap around, if they may be taken not to.
    universes: list[Universe] = attrs.field(default=attrs.Factory(_looks, takes_self=True))
    # Of kernels that look for the place of the largest element and the like.
    winners: Universe = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: Universe(Terms(exact=True, wraps=self.wraps), places=True, chooses=True), takes_self=True
        ),
    )
    # Runs by model and premise, or where they end; with the model and the formula, whose numbers no other ones get.
    _tries: _Tries = attrs.field(factory=dict[Hashable, tuple[SymbolicMachine | Undecided, Op, Bit]])
    _runs: dict[Hashable, list[SymbolicMachine]] = attrs.field(
        init=False, factory=dict[Hashable, list[SymbolicMachine]]
    )
    _outlines: Outlines = attrs.field(init=False, factory=Outlines)
    _models: dict[Hashable, Op] = attrs.field(init=False, factory=dict[Hashable, Op])  # By outline, the first one.
    # Formulas of which one holds of any inputs, unless one is cut: each decides how long the loops are of the models
    # that were proved.
    _cases: list[tuple[Bit, bool]] = attrs.field(init=False, factory=lambda: [(TRUE, False)])

    def runs(
        self, model: Op, premise: Bit, universe: Universe, in_turn: bool, most: int = _MOST_RUNS
    ) -> list[SymbolicMachine]:
        """Runs of a model on unknown inputs, that are together all in which a formula holds."""
        key = universe, id(model), premise.identity, in_turn
        if key not in self._runs:
            runs: list[SymbolicMachine] = []
            cases = [(premise, False)]
            while cases:
                if len(runs) + len(cases) > most:
                    raise NotDecided(f"loops whose lengths go together in more than {most} ways")
                case, cut = cases.pop(0)
                run = self._try(model, case, universe, in_turn)
                if isinstance(run, Undecided):
                    last = run.visits >= self.bound
                    cases += [(case & side, cut or last) for side in run.sides[: 1 if last else 2]]
                else:
                    run.cut |= cut
                    runs.append(run)
                    self._runs[universe, id(model), case.identity, in_turn] = [run]
            self._runs[key] = runs
        return self._runs[key]

    def _try(self, model: Op, premise: Bit, universe: Universe, in_turn: bool) -> SymbolicMachine | Undecided:
        """A run of a model on inputs of which a formula holds, or the loop whose length that does not decide."""
        key = universe, id(model), premise.identity, in_turn
        if key not in self._tries:
            try:
                run = symbolic_run(model, universe, bound=self.bound, premise=premise, in_turn=in_turn)
            except Undecided as decision:
                self._tries[key] = decision.with_traceback(None), model, premise
            else:
                if run.cut:  # It depends on the bound.
                    return run
                self._tries[key] = run, model, premise
        run, _, _ = self._tries[key]
        return copy.copy(run) if isinstance(run, SymbolicMachine) else run

    def number_of_runs(self, model: Op, *, in_turn: bool) -> int:
        """In how many ways the loops of a model go together; one more than `_FEW_RUNS` if there are more."""
        try:
            with deep_recursion():
                return len(self.runs(model, TRUE, self.universes[0], in_turn, most=_FEW_RUNS))
        except (NotDecided, RecursionError):
            return _FEW_RUNS + 1

    def _first(self, model: Op) -> Op:
        """The first of the models with the same outline as one of them."""
        return self._models.setdefault(self._outlines.of(model), model)

    def prove(self, model_a: Op, model_b: Op) -> Proof:
        """Whether two models do the same, without running them on samples."""
        cases: list[tuple[Bit, bool]] = []
        assumptions: dict[str, None] = {}
        try:
            with deep_recursion():
                model_a, model_b = map(self._first, (model_a, model_b))
                if model_a is model_b:
                    return Proof("proved")
                universe, in_turn = self.universes[0], runs_in_turn(model_a) or runs_in_turn(model_b)
                looks: list[tuple[Universe, Look]] = [(each, "writes") for each in self.universes]
                if any(isinstance(op, tt.Reduce) and len(op.values) > 1 for op in model_a.walk()):
                    looks.append((self.winners, "elements"))
                for each in self.universes[1:]:
                    looks.extend(((each, "values"), (each, "elements")))
                for premise, cut in self._cases:
                    for first in self.runs(model_a, premise, universe, in_turn):
                        for second in self.runs(model_b, first.premise, universe, in_turn):
                            second.cut |= first.cut or cut
                            cases.append((second.premise, second.cut))
                            problem, answer = self._answer(model_a, model_b, second.premise, looks, cut=second.cut)
                            assumptions |= dict.fromkeys(problem.assumptions)
                            if isinstance(answer, str):
                                return Proof("unknown", tuple(assumptions), (answer,))
                            if answer is not None:
                                return self._refuted(model_a, model_b, problem)
        except (NotDecided, RecursionError) as error:
            return Proof("unknown", reasons=(str(error),))
        self._cases[:] = cases
        return Proof("proved", tuple(assumptions))

    def _answer(
        self, model_a: Op, model_b: Op, premise: Bit, looks: list[tuple[Universe, Look]], *, cut: bool
    ) -> tuple[Question, Any]:
        """The question whether two models do the same where a formula holds that decides the lengths of loops, and what
        `solve` answers. The premise may be `cut`, in the first look or in that of an earlier model."""
        answers: list[tuple[Question, Any]] = []
        reasons: list[NotDecided] = []
        for look in looks:
            universe, compared = look
            try:
                problem = self._question(model_a, model_b, premise, universe, cut=cut, compared=compared)
                answer = solve(problem)
                if answer is not None and compared != "elements":
                    raise NotDecided("arrays that are written in other ways")
                answers.append((problem, answer))
            except NotDecided as reason:
                reasons.append(reason)
            if answers and answers[-1][1] is None:
                looks.sort(key=lambda other: other != look)  # It comes first from now on.
                return answers[-1]
        if not answers:
            raise reasons[-1]
        # A difference, if there is one, rather than the reason why none was found.
        return min(answers, key=lambda answer: isinstance(answer[1], str))

    def _question(
        self, model_a: Op, model_b: Op, premise: Bit, universe: Universe, *, cut: bool, compared: Look
    ) -> Question:
        universe.computed = 0
        in_turn = runs_in_turn(model_a) or runs_in_turn(model_b)
        (a, *others), (b, *also) = (self.runs(model, premise, universe, in_turn) for model in (model_a, model_b))
        if others or also:  # Integers that do not wrap around are other ones than those of the premise.
            raise NotDecided("loops whose lengths depend on whether integers wrap around")
        b.cut |= cut
        return question(a, b, compared)

    def _refuted(self, model_a: Op, model_b: Op, problem: Question) -> Proof:
        """The answer where the solver has found a difference, which may be one of unknown functions only."""
        numbers, where = _scalars(problem), ""
        for programs, small in itertools.product((1, _PROGRAMS), (True, False)):
            answer = solve(problem, list(_limits(numbers, programs, small=small)))
            if answer is None or isinstance(answer, str):
                continue
            example = _example(model_a, model_b, answer, problem)
            if example is not None:
                return Proof("refuted", (), (), example)
            where = ", ".join(f"argument {at} is {_integer_in(answer, value.term)}" for at, value in numbers)
        if not has_floats(model_a) and not has_floats(model_b):
            reason = f"the models differ{where and ' where ' + where}, and no launch was found that shows it"
            return Proof("unknown", tuple(problem.assumptions), (reason,))
        reasons = ["the models differ if functions of floats may be any, and no inputs were found that show it"]
        if same_in_reals(model_a, model_b, bound=self.bound):
            reasons.append("they compute the same real numbers, and may round them in other places")
        if not self.exact:
            reasons.append("with exact_floats=True floats are computed")
        return Proof("unknown", tuple(problem.assumptions), tuple(reasons))


def prove(model_a: Op, model_b: Op, *, bounds: int | None = None, exact_floats: bool = False) -> Proof:
    """Whether two models do the same for all inputs; see `ziggurat.prove`."""
    a, b = (_kinds(model) for model in (model_a, model_b))
    if a != b and a and b:
        raise LaunchError(f"the kernels must have the same parameters; got ({', '.join(a)}) and ({', '.join(b)})")
    for grid, arguments in draws(model_a):
        example = difference(model_a, model_b, grid, arguments)
        if example is not None:
            return Proof("refuted", counterexample=example)
    proof = Prover(exact=exact_floats, bound=BOUND if bounds is None else bounds).prove(model_a, model_b)
    faults = _missing(model_b) if proof else ()
    return Proof("unknown", proof.assumptions, faults) if faults else proof


def _missing(model: Op) -> tuple[str, ...]:
    """The barriers and waits that a model lacks, in words, if shared memory has its addresses: a proof runs one op
    after the other without them."""
    allocations = [op for op in model.walk() if isinstance(op, gpu.LocalAlloc)]
    if not isinstance(model, gpu.Module) or not allocations or any(op.offset < 0 for op in allocations):
        return ()
    return tuple(map(str, hazards(model)))


def _kinds(model: Op) -> list[str]:
    """The types of the parameters; none where they are parts of arguments."""
    _, kernel = kernel_of(model)
    parts = kernel.parts if isinstance(kernel, tt.Func) else ()
    return [] if parts else [str(parameter.type) for parameter in kernel.bodies[0].parameters]


_SEEDS = 2


def same_in_reals(model_a: Op, model_b: Op, *, bound: int = BOUND) -> bool:
    """Whether two models write the same real numbers, for some arguments. Models for which it holds differ for others
    with next to no chance if their control flow does not."""
    try:
        for seed in range(_SEEDS):
            universe = Universe(Fingerprints(seed))
            a, b = (symbolic_run(model, universe, bound=bound) for model in (model_a, model_b))
            if question(a, b).differences:
                return False
    except NotDecided:
        return False
    return True


def prove_passes(
    model: Op, snapshots: Sequence[Snapshot], *, contracts: bool, wraps: bool = False
) -> list[tuple[str, Proof]]:
    """For each pass that changed a model, by its name: whether the model after it does what the one before it does.
    Where loops go together in many ways, fewer iterations of each are looked at."""
    in_turn = any(runs_in_turn(snapshot.model) for snapshot in snapshots[-1:])
    prover, proofs, before = _prover_of_passes(model, contracts, wraps, in_turn), list[tuple[str, Proof]](), model
    for snapshot in snapshots:
        if snapshot.model is not before:
            proofs.append((snapshot.name, prover.prove(before, snapshot.model)))
        before = snapshot.model
    return proofs


def _prover_of_passes(model: Op, contracts: bool, wraps: bool, in_turn: bool) -> Prover:
    """The prover with the largest bound of which the runs of a model are few."""
    prover = Prover(contracts=contracts, wraps=wraps, bound=1)
    runs, rise = prover.number_of_runs(model, in_turn=in_turn), 1
    # With each iteration, the runs are more by at least as many as before.
    while prover.bound < BOUND and runs + rise <= _FEW_RUNS:
        further = attrs.evolve(prover, bound=prover.bound + 1)
        number = further.number_of_runs(model, in_turn=in_turn)
        if number > _FEW_RUNS:
            break
        prover, runs, rise = further, number, number - runs
    return prover


# Inputs from a model of the solver.

_LARGEST = 1 << 12  # Of numbers in the first search, so that a launch with them is small.
_PROGRAMS = 4
_BYTES = 1 << 22  # Of an array at most.


def _limits(numbers: Iterable[tuple[int, Sum]], programs: int, *, small: bool) -> Iterable[Term]:
    """That an axis of the grid has so many programs at most; and that numbers are small."""
    for axis in range(3):
        number, count = z3.BitVec(f"program {axis}", 32), z3.BitVec(f"programs {axis}", 32)
        yield z3.And(number < programs, count == number + 1)
    for _, parameter in numbers if small else ():
        if parameter.bits > 8:
            yield z3.And(parameter.term >= 1 - programs, parameter.term <= _LARGEST)


def _integer_in(answer: Any, term: Term) -> int:
    return answer.eval(term, model_completion=True).as_signed_long()


def _scalars(problem: Question) -> list[tuple[int, Sum]]:
    return [(at, value) for at, value in enumerate(problem.machines[0].parameters) if isinstance(value, Sum)]


def _example(model_a: Op, model_b: Op, answer: Any, problem: Question) -> Counterexample | None:
    """The inputs of a solver's model, if the models differ on them."""

    def number(term: Term) -> int:
        return answer.eval(term, model_completion=True).as_long()

    a, b = problem.machines
    _, kernel = kernel_of(model_a)
    arguments: list[Any] = []
    for at, (parameter, value) in enumerate(zip(kernel.bodies[0].parameters, a.parameters, strict=True)):
        type_ = parameter.type
        if isinstance(type_, PtrType):
            scalar, versions = type_.pointee, [m.arrays[at].cells() for m in (a, b) if at in m.arrays]
            places = {number(offset.term) for cells in versions for offset in cells.accessed}
            inside = sorted(place for place in places if place < _BYTES and not place % scalar.bytes)
            array = np.zeros(max(inside, default=0) // scalar.bytes + 1, scalar.dtype)
            bits = array.view(f"u{scalar.bytes}")
            initial = versions[0].before if versions else None
            for place in inside:
                bits[place // scalar.bytes] = number(z3.Select(initial, z3.BitVecVal(place, 64)))
            arguments.append(array)
        elif isinstance(type_, ScalarType) and isinstance(value, Sum | Bit):
            code = number(bits_of(value))
            arguments.append(number_of_bits(code, type_) if type_.is_float else wrapped(code, type_))
        else:
            return None
    grid = tuple(number(z3.BitVec(f"programs {axis}", 32)) for axis in range(3))
    if max(grid) > _PROGRAMS:
        return None
    return difference(model_a, model_b, grid, arguments)
