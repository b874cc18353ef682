"""Asynchronous copies of the simulation: their bytes arrive at the wait.

Importing this module registers cp.async. A copy reads its bytes when it is issued and writes them when its group has
been waited for. No thread may touch the destination before that; after it, up to a barrier, only the thread that issued
the copy may.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ziggurat.backend.simulator.program import UNITS
from ziggurat.backend.simulator.shared import IN_FLIGHT, Array, SimulationError

Copy = tuple[Array, Array, Array]  # Places in shared memory, the threads that write there, and the bytes.


class _Groups:
    """The copies of a program in flight, by group; the oldest comes first, and the last is not committed."""

    def __init__(self, program: Any) -> None:
        self.groups: list[list[Copy]] = [[]]


def _of(program: Any) -> list[list[Copy]]:
    return program.unit(_Groups).groups


def _begin(program: Any, text: str, operands: list[Any]) -> list[Array]:
    match = re.fullmatch(
        r"(?:@\$(\d+) )?cp\.async\.(c[ag])\.shared\.global \[ \$0 \+ (\d+) \], \[ \$1 \+ 0 \], (\d+)(, \$2)?;", text
    )
    assert match is not None, text
    size = int(match[4])
    assert size == 16 or (match[2] == "ca" and size in (4, 8)), text
    program.together("a copy")
    threads = np.flatnonzero(program.active & operands[int(match[1])] if match[1] else program.active)
    targets = (operands[0].astype(np.int64) + int(match[3]))[threads]
    sources = operands[1][threads]
    counts = operands[2][threads] if match[5] else np.full(len(threads), size)
    if (targets % size).any() or not np.isin(counts, (0, size)).all():
        raise SimulationError("a copy must be aligned to its size, and not of a part")
    data = np.zeros((len(threads), size), np.uint8)
    real = np.flatnonzero(counts)
    if len(real):
        if (sources[real] % size).any():
            raise SimulationError("the source of a copy must be aligned to its size")
        data[real] = program.memory.load(sources[real], size, threads[real])
    shared = program.shared
    places = targets[:, None] + np.arange(size)
    if targets.min() < 0 or places.max() >= len(shared.bytes):
        raise SimulationError("a copy must go inside of shared memory")
    who = np.broadcast_to(threads[:, None], places.shape)
    for touched in (shared.writer[places], shared.reader[places]):
        if shared.foreign(touched, who).any() or shared.read_by_wgmma(places, who):
            raise SimulationError(
                "a copy goes where another thread, or a copy in flight, is: a barrier or a wait is missing"
            )
    if len(np.unique(places)) != places.size:
        raise SimulationError("two threads must not copy to the same place")
    shared.in_flight[places] = True
    shared.writer[places] = IN_FLIGHT
    _of(program)[-1].append((places, who, data))
    return [np.zeros(0)]


def _commit(program: Any, text: str, operands: list[Any]) -> list[Array]:
    program.together("a commit")
    _of(program).append([])
    return [np.zeros(0)]


def _wait(program: Any, text: str, operands: list[Any]) -> list[Array]:
    match = re.search(r"wait_group (\d+)", text)
    assert match is not None, text
    program.together("a wait")
    groups, shared = _of(program), program.shared
    while len(groups) - 1 > int(match[1]):
        for places, who, data in groups.pop(0):
            shared.in_flight[places] = False
            shared.writer[places] = shared.unfenced[places] = who
            shared.bytes[places] = data
    return [np.zeros(0)]


_KNOWN = {"cp.async.commit_group": _commit, "cp.async.wait_group": _wait, "cp.async.c": _begin}
UNITS.update(_KNOWN)
