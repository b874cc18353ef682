"""The passes from a Triton model to a CPU model that can be emitted, as one visible tuple."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.passes import Snapshot, run_passes
from ziggurat.transforms.cpu.accesses import raise_accesses
from ziggurat.transforms.cpu.allocate import allocate
from ziggurat.transforms.cpu.carried import raise_carried
from ziggurat.transforms.cpu.orient import orient, turn
from ziggurat.transforms.cpu.regions import make_regions
from ziggurat.transforms.cpu.sorts import find_sorts
from ziggurat.transforms.cpu.vectorize import vectorize
from ziggurat.transforms.cpu.waiting import mark_waiting
from ziggurat.transforms.simplify import cse, dce, fold, hoist, lower_waits, simplify
from ziggurat.transforms.tiles.descriptors import lower_descriptors
from ziggurat.transforms.tiles.prepare import prepare

Step = Callable[[Any, int], Op]  # Takes a `core.Module` or, after `regions`, a `cpu.Module`, and the bytes of a vector.

LOWER: tuple[tuple[str, Step], ...] = (
    # Before inlining, which hides what a function is.
    ("sorts", lambda op, _: find_sorts(op)),
    ("prepare", lambda op, _: prepare(op)),
    ("waits", lambda op, _: lower_waits(op)),
    # Before a loop's loads are in regions.
    ("waiting", lambda op, _: mark_waiting(op)),
    # After inlining, which shows the descriptor of each access.
    ("descriptors", lambda op, _: lower_descriptors(op)),
    ("simplify", lambda op, _: simplify(op)),
    ("orient", lambda op, _: orient(op)),
    ("carried", lambda op, _: raise_carried(op)),
    # After pointers that loops move are those of the first iteration and a number.
    ("turn", lambda op, _: turn(op)),
    ("accesses", lambda op, _: raise_accesses(op)),
    # Accesses compute the same scalars, many of which do not change in a loop. Once is enough.
    ("fold", lambda op, _: fold(op)),
    ("hoist", lambda op, _: hoist(op)),
    ("cse", lambda op, _: cse(op)),
    ("dce", lambda op, _: dce(op)),
    ("regions", make_regions),
    ("vectorize", lambda op, _: vectorize(op)),
    ("allocate", lambda op, _: allocate(op)),
)


def lower(model: Op, vector: int, *, verify: bool = False, snapshots: list[Snapshot] | None = None) -> cpu.Module:
    """The CPU model of a Triton model, for vectors of `vector` bytes. See `run_passes` for `verify` and `snapshots`."""
    passes = [(name, partial(_run, step, vector)) for name, step in LOWER]
    return expect(run_passes(model, passes, verify=verify, snapshots=snapshots), cpu.Module)


def _run(step: Step, vector: int, model: Op) -> Op:
    return step(model, vector)
