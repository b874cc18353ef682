"""Proofs that two models do the same for all inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import InternalError, LaunchError, warn
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot

if TYPE_CHECKING:
    from ziggurat.backend.proof.prove import Proof


@public
def prove(model_a: Op, model_b: Op, *, bounds: int | None = None, exact_floats: bool = False) -> Proof:
    """Whether two Triton models do the same for all inputs; and GPU and CPU models down to the last pass.

        proof = zg.prove(model, transformed)
        assert proof, proof

    The result is true where the models are proved equal. Its `verdict` is "proved"; or "refuted", with a
    `counterexample`: arguments on which `zg.run` of the models gives unlike results; or "unknown", with the `reasons`.
    `print(proof)` shows it with its `assumptions`:

    * The arrays of two arguments do not overlap.
    * A loop whose length depends on the arguments has at most `bounds` iterations, by default 4.
    * A reduction may combine in any order, as it may in every model.

    Functions of floats are known by name only: models that compute the same of the same floats are equal, whichever
    floats these are. With `exact_floats` the floats are computed, in the theory of IEEE 754, which decides more for
    few elements of narrow types and takes long for others. Blocks should be small, some thousand elements at most.

    Needs z3: pip install 'ziggurat[prove]'. Raises `LaunchError` for models that have no kernel, and for kernels of
    unlike parameters.
    """
    prover = _solver()
    for model in (model_a, model_b):
        if not isinstance(model, Op):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(f"prove takes two models; got {type(model).__name__}")
    if bounds is not None and (not isinstance(bounds, int) or bounds < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"bounds must be a number of iterations, at least 1; got {bounds!r}")
    with no_faults("proving", lambda: model_b, "the models"):
        return prover.prove(model_a, model_b, bounds=bounds, exact_floats=exact_floats)


def require_proofs(
    model: Op, snapshots: Sequence[Snapshot], name: str, *, contracts: bool, wraps: bool = False
) -> None:
    """Prove each pass of a compilation, which may contract products; indices of pointers may wrap around if `wraps`.
    Raises `InternalError` for one that changes what the model does, and warns of those that are not decided."""
    proofs = _solver().prove_passes(model, snapshots, contracts=contracts, wraps=wraps)
    for step, proof in proofs:
        if proof.verdict == "refuted":
            raise InternalError(f"the pass '{step}' changes what '{name}' does: {proof.counterexample}", str(model))
    if undecided := [f"{step}: {'; '.join(proof.reasons)}" for step, proof in proofs if not proof]:
        warn(f"not all passes of '{name}' are proved: {', '.join(undecided)}", model.location)


def _solver() -> Any:
    try:
        from ziggurat.backend.proof import prove
    except ModuleNotFoundError as error:
        if error.name != "z3":
            raise
        raise LaunchError("proofs need z3, which is not installed", hint="pip install 'ziggurat[prove]'") from None
    return prove
