"""Registers of warp groups in the simulation: `setmaxnreg`, as in the PTX manual.

Importing this module registers the instruction. Threads that reach it together are a role from then on (`roles` of the
program). A warp group that asks for more registers waits until others have released enough.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ziggurat.backend.simulator.program import UNITS, Blocked
from ziggurat.backend.simulator.shared import Array, SimulationError


def _setmaxnreg(program: Any, text: str, operands: list[Any]) -> list[Array]:
    match = re.fullmatch(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32 (\d+);", text)
    assert match is not None, text
    count, active = int(match[2]), program.active
    registers: Array | None = program.registers
    if registers is None:
        raise SimulationError("a kernel with setmaxnreg must say how many registers a thread has at its launch")
    if count % 8 or not 24 <= count <= 256:
        raise SimulationError(f"setmaxnreg must be to a multiple of 8 from 24 to 256; got {count}")
    groups = active.reshape(-1, 128)
    if (groups.any(1) != groups.all(1)).any():
        raise SimulationError("all threads of a warp group must come to setmaxnreg together")
    more = match[1] == "inc"
    if (registers[active] > count if more else registers[active] < count).any():
        raise SimulationError(f"setmaxnreg.{match[1]} to {count} from {sorted(set(registers[active].tolist()))}")
    total = int(registers[~active].sum()) + count * int(active.sum())
    if total > program.pool:
        raise Blocked(active, "deadlock: threads wait for registers that nobody gives back")
    registers[active] = count
    program.roles[active] = program.roles.max() + 1
    return [np.zeros(0)]


UNITS["setmaxnreg"] = _setmaxnreg
