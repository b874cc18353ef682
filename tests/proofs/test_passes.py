"""Each pass of the GPU pipeline, on kernels of each kind: the model after it does what the one before it does."""

from __future__ import annotations

import pytest
from pass_cases import CASES

import ziggurat as zg
from ziggurat.backend.proof.prove import Prover, prove_passes
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import place

# Kernels of which not all passes are proved, with what is known of their passes.
LEFT_OUT = {
    "clusters: largest": "all are proved but divide_choices, which finds the place in another way",
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
