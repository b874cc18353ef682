"""Each pass of the GPU pipeline, on kernels of each kind: the model after it does what the one before it does."""

from __future__ import annotations

import re

import pytest
from pass_cases import CASES

import ziggurat as zg
from ziggurat.backend.proof.prove import Prover, prove_passes, question, solve, symbolic_run
from ziggurat.backend.proof.terms import NotDecided, Terms
from ziggurat.backend.proof.universe import Universe
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import place

# Kernels of which not all passes are proved, with what is known of their passes.
LEFT_OUT = {
    "persistent": "all are proved but raise_pointers, whose loads differ in rows that are not stored",
}


@pytest.mark.parametrize("name", [name for name in CASES if name not in LEFT_OUT])
def test_each_pass_is_proved(name: str) -> None:
    case, snapshots = CASES[name](), list[Snapshot]()
    place(case.model, case.options, snapshots)
    proofs = prove_passes(case.model, snapshots, contracts=True)
    assert len(proofs) > 2
    assert {after: str(proof) for after, proof in proofs if not proof} == {}


def test_programs_in_turn() -> None:
    """A CTA that runs several programs does what these do, one after the other."""
    case, snapshots = CASES["persistent"](), list[Snapshot]()
    place(case.model, case.options, snapshots)
    models = [snapshot.model for snapshot in snapshots]
    number = next(at for at, snapshot in enumerate(snapshots) if snapshot.name == "persist")
    prover = Prover(contracts=True, bound=1)
    assert prover.prove(*models[number - 1 : number + 1])
    text = str(models[number])
    for right, wrong in (("arith.remsi", "arith.divsi"), ("tt.get_program_id @0", "tt.get_num_programs @0")):
        assert right in text
        assert not prover.prove(models[number - 1], zg.parse(text.replace(right, wrong, 1)))


FAULTS = [
    ("arith.minsi", "arith.maxsi"),  # The last place.
    ("arith.maxnumf", "arith.minnumf"),  # The place of the smallest number.
    ("@-0.0", "@0.0"),  # The sign of a zero.
    ("arith.shrsi", "arith.addi"),  # Another place.
    (r"(%44 : i32 = arith.select %42) %41 %43", r"\1 %41 %41"),  # Another place if all are NaN.
    ("arith.constant @2147483647", "arith.constant @5"),  # A place where the largest number need not be.
    ("@oeq", "@ole"),  # The first place of all.
]


def test_the_place_of_the_largest_number() -> None:
    """A reduction of pairs by which one is chosen is two, one after the other: of numbers, and of places."""
    case, snapshots = CASES["clusters: largest"](), list[Snapshot]()
    place(case.model, case.options, snapshots)
    models = [snapshot.model for snapshot in snapshots]
    number = next(at for at, snapshot in enumerate(snapshots) if snapshot.name == "divide_choices")
    universe, text = Universe(Terms(exact=True), places=True, chooses=True), str(models[number])
    before = symbolic_run(models[number - 1], universe, bound=1)
    assert solve(question(before, symbolic_run(models[number], universe, bound=1))) is None
    for right, wrong in FAULTS:
        model = zg.parse(re.sub(right, wrong, text, count=1))
        assert str(model) != text
        assert solve(question(before, symbolic_run(model, universe, bound=1))) is not None


def test_sums_choose_nothing() -> None:
    """Sums, differences and products are none of the numbers, though sums and products have no order."""
    reduction = "tt.reduce %4 @axis=0 (%6 : i32, %7 : i32)i32 -> { %8 : i32 = OP %6 %7; tt.reduce.return %8; }"
    head = "%2 : tensor<x8, i32> = tt.make_range @start=0 @end=8; %3 : tensor<x8, i32> = tt.splat %1;"
    for name in ("arith.addi", "arith.subi", "arith.muli"):
        body = f"{head} %4 : tensor<x8, i32> = arith.muli %2 %3; %5 : i32 = {reduction.replace('OP', name)};"
        body += " tt.store %0 %5; tt.return;"
        model = zg.parse(
            f'module ()void -> {{ tt.func @"f" (%0 : ptr<i32>, %1 : i32)void -> {{ {body} }}; unreachable; }};'
        )
        with pytest.raises(NotDecided, match="choose"):
            symbolic_run(model, Universe(Terms(exact=True), places=True, chooses=True), bound=1)
