"""Clusters: the programs of several CTAs that run at once, their barrier, and stores to each other's shared memory.

A CTA runs until it waits for the others: at the barrier of the cluster, or at an mbarrier that they arrive at. Then
another one runs, in an order by the seed. A store reaches the other CTA as a load by TMA does: as late as it may with
the seed 0, as early as it may with 1. It is an error to store to a CTA that may not have started, or that has ended;
so it is to arrive there, and to load by TMA to its shared memory.

Threads know what orders their accesses and those of the other CTAs: they learn it at mbarriers at which those arrive.

Accesses of global memory by different CTAs are ordered by the barrier of the cluster alone, if its arrival releases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.backend.simulator import tma
from ziggurat.backend.simulator.program import Blocked, Program, unit
from ziggurat.backend.simulator.shared import Array, SimulationError


class Cluster:
    """The CTAs of one cluster by rank, and how often each has arrived at the barrier and waited for it."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        self.arrivals = [0] * len(programs)
        self.waits = [0] * len(programs)
        # By CTA: the knowledge of its threads at each arrival, and the arrivals, from 1 on, that released its accesses.
        self.known: list[list[Array]] = [[] for _ in programs]
        self.released: list[list[int]] = [[0] for _ in programs]
        self.ended = [False] * len(programs)
        self.changes = 0  # Counts what may let a CTA go on.
        for rank, program in enumerate(programs):
            program.cluster, program.rank = self, rank
            program.shared.join_cluster(len(programs))

    def run(self, seed: int) -> None:
        """Run all CTAs. Raises `SimulationError` where each of them waits for another one."""
        random, running = np.random.default_rng(seed), dict(enumerate(program.run() for program in self.programs))
        while running:
            before, blocked = self.changes, None
            for rank in map(int, random.permutation(list(running)) if seed else list(running)):
                event = next(running[rank], None)
                if event is None:
                    del running[rank]
                    self.ended[rank] = True
                    self.changes += 1
                blocked = event or blocked
            if self.changes == before and blocked is not None:
                raise SimulationError(blocked.summary, blocked.location)

    def arrive(self, rank: int, *, releases: bool) -> None:
        if self.arrivals[rank] != self.waits[rank]:
            raise SimulationError("a CTA must wait for the barrier of the cluster before it arrives again")
        program = self.programs[rank]
        self.known[rank].append(program.shared.knowledge(program.numbers))
        self.arrivals[rank] += 1
        program.memory.time += 1
        if releases:
            self.released[rank].append(self.arrivals[rank])
        self.changes += 1

    def wait(self, rank: int) -> None:
        program = self.programs[rank]
        if self.arrivals[rank] == self.waits[rank]:
            raise SimulationError("a CTA must arrive at the barrier of the cluster before it waits")
        # Threads that have ended are not waited for (PTX manual, "barrier.cluster").
        others = [count for count, ended in zip(self.arrivals, self.ended, strict=True) if not ended]
        if min(others) <= self.waits[rank]:
            raise Blocked(program.active, "deadlock: CTAs wait for others of the cluster that do not come")
        for target, (other, clock) in enumerate(zip(self.programs, self.known, strict=True)):
            if len(clock) > self.waits[rank]:
                other.shared.learn(self.row(target, rank, program.numbers), clock[self.waits[rank]])
        program.memory.barrier(program.active)
        self.waits[rank] += 1
        program.memory.seen = [max(time for time in times if time <= self.waits[rank]) for times in self.released]
        self.changes += 1

    # Accesses of other CTAs.

    def row(self, target: int, source: int, thread: Any) -> Any:
        """The number by which the shared memory of one CTA knows a thread, or threads, of another one."""
        ctas = len(self.programs)
        return thread + (source - target) % ctas * self.programs[target].threads

    def told(self, source: int, thread: int) -> list[Array]:
        """The knowledge of a thread of a CTA about the accesses to the shared memory of each CTA."""
        return [
            program.shared.knowledge(np.array([thread]))
            if target == source
            else program.shared.known[self.row(target, source, thread)].copy()
            for target, program in enumerate(self.programs)
        ]

    def learn(self, source: int, threads: Array, knowledge: Sequence[Array]) -> None:
        """Let threads of a CTA know what `told` returned."""
        for target, (program, clock) in enumerate(zip(self.programs, knowledge, strict=True)):
            program.shared.learn(self.row(target, source, threads), clock)

    def reach(self, source: int, target: int, what: str) -> None:
        """Note that a CTA accesses the shared memory of one that has started and has not ended."""
        if not 0 <= target < len(self.programs):
            raise SimulationError(f"a cluster of {len(self.programs)} CTAs has no CTA {target}")
        if len(self.programs) > 1 and not self.waits[source]:
            raise SimulationError(f"a CTA must wait until the others have started before it {what} them")
        if self.ended[target]:
            raise SimulationError(f"a CTA must not end before another one {what} it")
        self.changes += 1

    def store(self, source: int, target: int, address: int, barrier: int, data: Array) -> None:
        """Begin a store of bytes to the shared memory of a CTA, where an mbarrier counts them."""
        self.reach(source, target, "stores to")
        tma.receive(self.programs[target], address, barrier, data, self.known[target][self.waits[source] - 1])


@unit(r"barrier\.cluster\.(arrive|wait)\.(release|relaxed|acquire)\.aligned")
def _barrier(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    program.together("the barrier of the cluster")
    if match[1] == "arrive":
        program.cluster.arrive(program.rank, releases=match[2] == "release")
    else:
        program.cluster.wait(program.rank)


@unit(r"mapa\.shared::cluster\.u32 \$(\d+), \$(\d+), \$(\d+)")
def _map(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    address, cta = (operands[int(match[at])].astype(np.uint32) for at in (2, 3))
    operands[int(match[1])] = np.where(program.mask, tma.in_cta(address, cta), operands[int(match[1])])


@unit(r"fence\.mbarrier_init\.release\.cluster")
def _fence(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """The barrier that follows orders all that the simulation knows of."""


@unit(
    r"\{ \.reg \.b32 far, bar; mapa\.shared::cluster\.u32 far, \$0, \$2; mapa\.shared::cluster\.u32 bar, \$1, \$2; "
    r"(?:@\$(\d+) )?st\.async\.shared::cluster\.mbarrier::complete_tx::bytes\.b(\d+) \[far\], \$3, \[bar\]; \}"
)
def _store(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    mask = program.active & operands[int(match[1])] if match[1] else program.active
    program.use(mask)
    for thread in np.flatnonzero(mask):
        address, barrier, target = (int(operands[at][thread]) for at in range(3))
        data = np.ascontiguousarray(operands[3][thread : thread + 1]).view(np.uint8)
        if data.size != int(match[2]) // 8 or address % data.size:
            raise SimulationError("a store to another CTA must be aligned to its size")
        program.cluster.store(program.rank, target, address, barrier, data)
