"""Simplification: passes from model to model that keep what a model does and leave less of it.

Each is a plain function from op to op, gives the op itself where it has nothing to do, and can be used alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ziggurat.codemodel.op import Op, require_model
from ziggurat.codemodel.passes import Snapshot, run_passes
from ziggurat.transforms.simplify.cse import cse
from ziggurat.transforms.simplify.dce import dce, remove_unused
from ziggurat.transforms.simplify.fold import fold
from ziggurat.transforms.simplify.hoist import hoist
from ziggurat.transforms.simplify.inline import inline, inline_call
from ziggurat.transforms.simplify.lower_structured import lower_structured
from ziggurat.transforms.simplify.lower_waits import lower_waits
from ziggurat.transforms.simplify.normalize_blocks import normalize_blocks

__all__ = [
    "SIMPLIFY",
    "cse",
    "dce",
    "fold",
    "hoist",
    "inline",
    "inline_call",
    "lower_structured",
    "lower_waits",
    "normalize_blocks",
    "remove_unused",
    "simplify",
]

SIMPLIFY: Final[tuple[Callable[[Op], Op], ...]] = (
    inline,  # First: the others do not look through calls.
    fold,  # Before the next: constants decide branches, and bounds say whether a loop runs, which hoist asks.
    normalize_blocks,
    hoist,  # Before cse: what two loops compute alike meets only once it stands outside of both.
    cse,
    dce,  # Last: it removes what the others left without a use.
)


def simplify(op: Op, *, verify: bool = False, snapshots: list[Snapshot] | None = None) -> Op:
    """The model after the passes of `SIMPLIFY`, repeated until none of them finds anything to do.

    `verify` and `snapshots` are those of `run_passes`.
    """
    require_model(op, "simplify")
    while (simplified := run_passes(op, SIMPLIFY, verify=verify, snapshots=snapshots)) is not op:
        op = simplified
    return op
