"""Claims about all values, decided by z3.

    x = z3.BitVec("x", 32)
    prove((x & -x) & ((x & -x) - 1) == 0)

What z3 may spend on a claim is counted in its own steps instead of seconds, so that slow machines come to the same
verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import z3

STEPS = 5_000_000
TRIES = 3  # Of a proof, each with another seed.


class Refuted(AssertionError):
    """A claim is false; the message has the values for which it is."""


class Undecided(Exception):
    """z3 can't tell whether a claim holds within its steps."""


def prove(claim: Any, given: Iterable[Any] = (), *, steps: int = STEPS, tactics: Sequence[str] = ()) -> None:
    """Prove that a claim holds where all of `given` hold. Raises `Refuted` or `Undecided`."""
    claims = *given, z3.Not(claim)
    for seed in range(TRIES):  # What z3 has done before in the process decides how long it takes.
        solver = z3.Then(*tactics).solver() if tactics and not seed else z3.Solver()
        solver.set("rlimit", steps)
        solver.set("random_seed", seed)
        solver.add(*claims)
        verdict = solver.check()
        if verdict != z3.unknown or seed == TRIES - 1:
            conclude(verdict, solver)
            return


def conclude(verdict: z3.CheckSatResult, solver: z3.Solver, context: str = "") -> None:
    """Raise `Refuted` or `Undecided`, unless there is no counterexample."""
    if verdict == z3.sat:
        raise Refuted(f"{context} {solver.model()}".strip())
    if verdict == z3.unknown:
        raise Undecided(f"{context} {solver.reason_unknown()}".strip())
