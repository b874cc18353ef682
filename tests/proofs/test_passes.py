"""Each pass of the GPU pipeline, on kernels of each kind: the model after it does what the one before it does."""

from __future__ import annotations

import re

import pytest
from pass_cases import CASES

import ziggurat as zg
from ziggurat.backend.proof.elements import NotDecided
from ziggurat.backend.proof.prove import Prover, prove_passes, question, solve, symbolic_run
from ziggurat.backend.proof.terms import Terms
from ziggurat.backend.proof.universe import Universe
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import place


@pytest.mark.parametrize("name", CASES)
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


# In the model after `raise_pointers`, whose products differ from those before it in the rows that are not stored.
FAULTS_OF_BLOCKS = [
    ("%0 %3 %5 %9", "%0 %5 %3 %9"),  # Sizes swapped.
    ("%0 %3 %5 %9", "%0 %3 %3 %9"),  # Products beyond k.
    ("%1 %5 %4 %12", "%1 %4 %4 %12"),
    ("%1 %5 %4 %12", "%1 %5 %4 %9"),  # The stride of the other array.
    ("%2 %3 %4 %14", "%2 %4 %3 %14"),  # Other elements are stored.
    ("descriptor_load %11 %33", "descriptor_load %11 %32"),  # The rows of another block.
    ("tt.dot %38 %39 %36", "tt.dot %38 %39 %25"),  # The accumulator lost.
]


def test_products_that_agree_where_they_are_stored() -> None:
    case, snapshots = CASES["persistent"](), list[Snapshot]()
    place(case.model, case.options, snapshots)
    number = [snapshot.name for snapshot in snapshots].index("raise_pointers")
    before, after = (snapshots[at].model for at in (number - 1, number))
    assert Prover(contracts=True, bound=2, wraps=False).prove(before, after)
    for right, wrong in FAULTS_OF_BLOCKS:
        assert right in str(after)
        model = zg.parse(str(after).replace(right, wrong, 1))
        assert not Prover(contracts=True, bound=2, wraps=False).prove(before, model), (right, wrong)


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
