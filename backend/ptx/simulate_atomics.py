"""The atomic additions of the simulation: `red` and `atom` of global memory, one thread after the other.

Importing this module teaches `simulate` their instructions, vectors and packed pairs included.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

from ziggurat.backend.ptx.simulate import UNITS
from ziggurat.backend.ptx.simulate_shared import Array, SimulationError

_ELEMENTS: dict[str, Any] = {
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16,
}  # fmt: skip


def _add(program: Any, text: str, operands: list[Any]) -> list[Array]:
    match = re.fullmatch(
        r"(?:@\$(\d+) )?(atom|red)\.\w+\.\w+\.global\.add(?:\.noftz)?(?:\.v([24]))?\.(\w+)"
        r"(?: [^\[]*,)? \[ \$(\d+) \+ 0 \], (.*);",
        text,
    )
    if match is None:
        raise NotImplementedError(text)
    element, pointer = np.dtype(_ELEMENTS[match[4]]), int(match[5])
    sources = [int(number) for number in re.findall(r"\$(\d+)", match[6])]
    assert len(sources) == int(match[3] or 1), text
    values = [np.ascontiguousarray(operands[source]) for source in sources]
    mask = program.active & operands[int(match[1])] if match[1] else program.active
    olds = [np.zeros_like(value) for value in values]
    size = sum(value.dtype.itemsize for value in values)
    for thread in np.flatnonzero(mask):
        where = operands[pointer][thread : thread + 1]
        if (where % size).any():
            raise SimulationError(f"an atomic access of {size} bytes is not aligned")
        for number, _, places in program._global(where, size):  # pyright: ignore[reportPrivateUsage]
            memory = program.memory[number]
            old = memory[places[0]].copy()
            given = np.concatenate([value[thread : thread + 1].view(np.uint8) for value in values])
            memory[places[0]] = (old.view(element) + given.view(element)).view(np.uint8)
            for at, value in enumerate(olds):
                step = value.dtype.itemsize
                value.view(np.uint8).reshape(len(value), step)[thread] = old[at * step : (at + 1) * step]
    return olds if match[2] == "atom" else [np.zeros(0)]


_KNOWN = {".global.add": _add}
UNITS.update(_KNOWN)
