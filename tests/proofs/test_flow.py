"""Passes of `simplify` on generated kernels with branches, loops and memory: each rewritten kernel is proved to do the
same, and to divide by zero no more often. Early exits are proved on kernels of Python, against ones that have no loops
and repeat what comes after an `if` in both of its branches.
"""

from __future__ import annotations

import functools
import itertools
import linecache
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

import pytest
from generated_flow import Exits, Flow
from planted import edit, must_find
from proving import Refuted

import ziggurat as zg
from ziggurat.backend.proof import prove as proofs
from ziggurat.backend.proof.prove import Prover
from ziggurat.codemodel.op import Op

EFFORT = 300_000
cse, dce, demand, effects, folds, hoist, lower = (
    import_module(f"ziggurat.transforms.simplify.{name}")
    for name in ("cse", "dce", "demand", "effects", "fold", "hoist", "lower_structured")
)
early_exits = import_module("ziggurat.transforms.early_exits")
PASSES: dict[str, Callable[[Op], Op]] = {
    "simplify": zg.simplify, "fold": folds.fold, "cse": cse.cse, "dce": dce.dce, "hoist": hoist.hoist,
    "lower_structured": lower.lower_structured,
}  # fmt: skip
COUNT = 200
EXITS = [seed for seed in range(28) if seed not in (19, 20)]  # z3 (nearly) gives up on these two.
# A constant expression that divides by zero is not covered by proofs.
UNKNOWN = "a division by zero"


@pytest.fixture
def effort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "EFFORT", EFFORT)


def unproved(name: str, seed: int) -> list[str] | None:
    """Why a pass is not proved on a generated kernel; None where it changes nothing."""
    model = Flow(Random(seed)).model()
    changed = PASSES[name](model)
    if changed is model:
        return None
    proof = Prover().prove(model, changed)
    return [] if proof else [proof.verdict, *proof.reasons]


@pytest.mark.parametrize("name", PASSES)
def test_passes(name: str, effort: None) -> None:
    answers = [unproved(name, seed) for seed in range(COUNT)]
    wrong = {seed: reasons for seed, reasons in enumerate(answers) if reasons and reasons[-1] != UNKNOWN}
    assert not wrong
    assert sum(reasons == [] for reasons in answers) > COUNT // 4


# Early exits.


def triton(source: str) -> Op:
    """The model of a kernel of Python, which has early exits as flags."""
    name = f"<generated {next(_NAMES)}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    names: dict[str, Any] = {"zg": zg}
    exec(compile(source, name, "exec"), names)
    return names["kernel"].triton(zg.ptr(zg.i32), zg.i32)


_NAMES = itertools.count()


def proved_exits(seed: int) -> bool:
    exits = Exits(Random(seed))
    return bool(Prover(bound=6).prove(triton(exits.repeated()), triton(exits.source())))


def test_early_exits() -> None:
    for seed in EXITS:
        assert proved_exits(seed), Exits(Random(seed)).source()


# Faults: for each, one of the proofs above is none.


def answer(module: Any, name: str, value: bool) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(module, name, lambda *arguments: value)


FAULTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("fold", edit(folds._fold_if, "op.then if condition else op.otherwise", "op.otherwise if condition else op.then")),
    ("fold", edit(folds._never_runs, "first >= last if by > 0", "first + 1 >= last if by > 0")),
    ("fold", answer(folds, "_is_unchanged", True)),
    ("fold", edit(folds._same_in_both_branches, "value is first or (", "value is first or not (")),
    ("fold", edit(folds._component, "op.components[index]", "op.components[0]")),
    ("cse", answer(cse, "may_write", False)),
    ("cse", edit(cse._Sharing._key, "isinstance(op, Commutative)", "len(operands) == 2")),
    (
        "cse",
        edit(cse._Sharing._key, "op.NAME, op.result.type, operands, attributes", "op.NAME, op.result.type, operands"),
    ),
    ("dce", edit(demand._always, "return True", "return not isinstance(op, traits.MemoryWrite)")),
    ("dce", edit(demand.Demand._need, "terminator.handed[index] for", "terminator.handed[0] for")),
    ("dce", edit(demand.Demand._settle, "value.index - owner.LEADING", "0")),
    ("hoist", answer(hoist, "may_trap", False)),
    ("hoist", answer(hoist, "may_write", False)),
    ("hoist", answer(hoist, "_is_outside", True)),
    (
        "lower_structured",
        edit(lower._if, "Successor(then), Successor(otherwise)", "Successor(otherwise), Successor(then)"),
    ),
    ("lower_structured", edit(lower._for, "less(index, stop) if sign > 0", "less(stop, index) if sign > 0")),
    (
        "lower_structured",
        edit(lower._for, "less(index, stop) if sign > 0 else greater(index, stop)", "less(index, stop)"),
    ),
    ("lower_structured", edit(lower._for, "(start, *initial)", "(step, *initial)")),
]


def prove_rewrites(name: str) -> None:
    """Raise `Refuted` where a pass makes a kernel that does something else."""
    for seed in range(5 * COUNT):
        reasons = unproved(name, seed)
        if reasons and reasons[-1] != UNKNOWN:
            raise Refuted(reasons)


# A model may no longer verify, too.
test_planted_faults = pytest.mark.usefixtures("effort")(
    must_find(((fault, functools.partial(prove_rewrites, name)) for name, fault in FAULTS), Exception)
)


EXIT_FAULTS = [
    (early_exits._exit, "(frame.leaves, True)", "(frame.leaves, False)"),
    (early_exits._sequence, '"leaves", False', '"leaves", True'),
    (early_exits._statement, '"goes_on", True', '"goes_on", False'),
]


def prove_exits() -> None:
    if not all(map(proved_exits, EXITS)):
        raise Refuted


test_faults_planted_in_early_exits = must_find((edit(*fault), prove_exits) for fault in EXIT_FAULTS)
