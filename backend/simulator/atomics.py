"""Atomics of the simulation: `red` and `atom` of global memory, one thread after the other.

Importing this module registers their instructions, vectors and packed pairs included. A piece of assembly may have
several, each under a predicate of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ziggurat.backend.simulator.program import UNITS
from ziggurat.backend.simulator.shared import Array, SimulationError

_ELEMENTS: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"uint{bits}") for kind in "ub" for bits in (16, 32, 64)},
    "s32": np.int32, "s64": np.int64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16,
}  # fmt: skip
# The new value from the old one and the operands; compare-and-swap has two operands: see `_done`.
_NEW: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda old, given: old + given, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda old, given: given,
    "cas": lambda old, given: np.where(old == given[: len(given) // 2], given[len(given) // 2 :], old),
}  # fmt: skip
_FORM = re.compile(
    rf"(?:@\$(\d+) )?(atom|red)\.\w+\.\w+\.global\.({'|'.join(_NEW)})(?:\.noftz)?(?:\.v([24]))?\.(\w+)"
    r"(?: [^\[]*,)? \[ \$(\d+) \+ 0 \], (.*)"
)


def _atomics(program: Any, text: str, operands: list[Any]) -> list[Array]:
    olds: list[Array] = []
    for instruction in filter(None, map(str.strip, text.split(";"))):
        _done(program, instruction, operands, olds)
    return olds or [np.zeros(0)]


def _done(program: Any, instruction: str, operands: list[Any], olds: list[Array]) -> None:
    """Run one instruction; an `atom` puts the old values into `olds`."""
    match = _FORM.fullmatch(instruction)
    if match is None:
        raise NotImplementedError(instruction)
    guard, form, name, vector, kind, pointer, given = match.groups()
    element, count = np.dtype(_ELEMENTS[kind]), int(vector or 1)
    values = [np.ascontiguousarray(operands[int(number)]) for number in re.findall(r"\$(\d+)", given)]
    assert len(values) == (2 if name == "cas" else count), instruction
    if form == "atom" and not olds:
        olds += [np.zeros_like(value) for value in values[:count]]
    mask = program.active & operands[int(guard)] if guard else program.active
    size = sum(value.dtype.itemsize for value in values[:count])
    for thread in np.flatnonzero(mask):
        where = operands[int(pointer)][thread : thread + 1]
        if (where % size).any():
            raise SimulationError(f"an atomic access of {size} bytes must be aligned; that of thread {thread} is not")
        for region, _, places in program.memory.places(where, size, np.array([thread]), "updates"):
            memory = region.bytes
            old = memory[places[0]].copy()
            new = np.concatenate([value[thread : thread + 1].view(np.uint8) for value in values])
            memory[places[0]] = _NEW[name](old.view(element), new.view(element)).view(np.uint8)
            for at, value in enumerate(olds):
                step = value.dtype.itemsize
                value.view(np.uint8).reshape(len(value), step)[thread] = old[at * step : (at + 1) * step]


_KNOWN = {f".global.{name}": _atomics for name in _NEW}
UNITS.update(_KNOWN)
