"""Launches on several devices at once, by the simulator.

The CTAs of all devices take turns: after blocks of code with strong accesses, in an order by a seed, and where a loop
waits for a change of memory. Each CTA notes the accesses of its threads as those of one launch do; the accesses of
different CTAs go through one `Clocks`, in which a CTA is one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from ziggurat.backend.launch import races
from ziggurat.backend.launch.clocks import Clocks, Shadow, Shadows, Wait, require_few
from ziggurat.backend.launch.turns import Turns, deadlock
from ziggurat.backend.simulator.clusters import Cluster
from ziggurat.backend.simulator.program import TURN, Blocked
from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.backend.simulator.simulate import Simulated, launch_of
from ziggurat.backend.simulator.simulated_memory import SHIFT, SimulatedMemory, SimulatedRegion
from ziggurat.codemodel.dialects.tt import MemScope, MemSemantic
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.location import Location


@attrs.frozen(eq=False)
class QueuedSimulation:
    """A call of `simulate` that a device is to make. The device fills in its own number."""

    title: str
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    device: int = 0


class NamedArray(Protocol):
    """An array of a device, and its name for messages."""

    @property
    def array(self) -> Array: ...

    @property
    def title(self) -> str: ...


def simulate_together(launches: Sequence[QueuedSimulation], arrays: Sequence[NamedArray], seed: int) -> None:
    """Simulate the launches of several devices at once, those of each device one after the other.

    The CTAs of all launches reach the arrays of all launches, and `arrays`, by address. Raises `SimulationError` for a
    race and for a deadlock, and the errors of `simulate`; `LaunchError` for clusters of several CTAs.
    """
    _Simulation(launches, arrays, seed).run()


class _Cta:
    """A CTA of a launch, and the state in which it waits."""

    def __init__(self, number: int, device: int, at: tuple[int, ...], launch: Simulated) -> None:
        self.number, self.device, self.at, self.launch = number, device, at, launch
        self.memory: _DeviceMemory | None = None
        self.events: Iterator[Blocked] | None = None
        self.waits_since = -1  # The number of changes of memory at which it has begun to wait.

    @property
    def title(self) -> str:
        return f"device {self.device}, program {self.at}"


class _DeviceMemory(SimulatedMemory):
    """The memory of a CTA on a device, with the arrays of all others."""

    def __init__(self, simulation: _Simulation, cta: _Cta) -> None:
        self._simulation, self._cta = simulation, cta
        launch = cta.launch
        others = [other for other in simulation.arrays if not any(other[0] is array for array in launch.arrays)]
        super().__init__(
            [*launch.arrays, *(array for array, _ in others)], [*launch.titles, *(title for _, title in others)]
        )
        self.last_strong: tuple[Shadow, int, tuple[_Cta, int | None]] | None = None
        self.is_waiting = self._has_turn = False

    @property
    def changes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._simulation.turns.changes

    @changes.setter
    def changes(self, count: int) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The CTAs of all devices count together, from 0 on."""
        turns = self._simulation.turns
        turns.changes = max(turns.changes, count)

    def resolved(self, addresses: Array) -> Array:
        numbers = addresses >> SHIFT
        if ((numbers >= 1) & (numbers <= len(self.regions))).all():
            return addresses
        resolved = addresses.copy()
        for region in self.regions:
            inside = (addresses >= region.low) & (addresses < region.high)
            resolved[inside] += region.start - region.low
        return resolved

    def takes_turns(self) -> bool:
        has_turn, self._has_turn = self._has_turn, False
        return has_turn

    def waits(self) -> bool:
        self.is_waiting = True
        return True

    def fence(self, threads: Array, scope: str) -> None:
        super().fence(threads, scope)
        if scope != "cta":
            self._simulation.clocks.fence(self._cta.number, MemScope(scope))

    def note(
        self, region: SimulatedRegion, places: Array, kind: int, *bits: Array, is_load: bool = False, **orders: bool
    ) -> None:
        if not region.names:
            return
        clocks, place = self._simulation.clocks, (self._cta, self.line)
        shadow, offset = self._simulation.shadows.of(region)
        units = shadow.units(places.reshape(-1) + offset, 1)
        same: Callable[[], Array] | None = (lambda: (bits[0] == bits[1]).reshape(-1)) if bits else None
        order, scope = MemSemantic.RELAXED, None
        if kind in (races.UPDATE, races.POLL):
            words = self.order or ("relaxed", "gpu")  # A reduction by TMA.
            order, scope = MemSemantic(words[0]), MemScope(words[1])
            kind = races.POLL if is_load else kind
            self.last_strong, self._has_turn = (shadow, int(units[0]), place), True
        clocks.note(shadow, units, self._cta.number, kind, place, order=order, scope=scope, same_bits=same)


class _Simulation:
    """The CTAs of all devices."""

    def __init__(self, launches: Sequence[QueuedSimulation], arrays: Sequence[NamedArray], seed: int) -> None:
        self.turns: Turns[_Cta] = Turns(seed, [queued.device for queued in launches])
        self._chance = self.turns.random.choice((0.1, 0.5, 1.0))
        self.arrays = [(array.array, array.title) for array in arrays]
        for queued in launches:
            launch = self._launch(queued)
            for array, name in zip(launch.arrays, launch.titles, strict=True):
                if not any(array is other for other, _ in self.arrays):
                    self.arrays.append((array, f"device {queued.device}'s {name}"))
            first = len(self.turns.programs)
            numbers = np.ndindex(launch.programs[::-1])
            self.turns.add([_Cta(first + n, queued.device, at[::-1], launch) for n, at in enumerate(numbers)])
        self.shadows = Shadows([array for array, _ in self.arrays], [title for _, title in self.arrays])
        ctas = self.turns.programs
        self.clocks = Clocks([cta.device for cta in ctas], lambda n: ctas[n].title, _location, SimulationError)

    def _launch(self, queued: QueuedSimulation) -> Simulated:
        launch = launch_of(*queued.arguments, **queued.keywords)
        if launch.ctas > 1:
            raise LaunchError(
                f"the programs of '{queued.title}' must be single CTAs on several devices; got {launch.ctas} each",
                hint="compile it with num_ctas=1",
            )
        require_few(len(self.turns.programs) + math.prod(launch.programs), queued.title)
        return launch

    @np.errstate(all="ignore")
    def run(self) -> None:
        """Run all CTAs in turns."""
        turns, current = self.turns, None
        while turns.active:
            ready = turns.ready()
            if not ready:
                waits = [wait for cta in turns.active if (wait := _wait_of(cta)) is not None]
                raise deadlock(self.clocks, waits or [None], SimulationError)
            if current not in ready or turns.random.random() < self._chance:
                current = turns.draw(ready)
            cta = current
            assert cta is not None
            if cta.events is None:
                cta.memory = _DeviceMemory(self, cta)
                program = cta.launch.cta(cta.at, cta.memory)
                Cluster([program])
                cta.events = program.run()
            assert cta.memory is not None
            event = next(cta.events, None)
            if event is None:
                turns.end(cta, self.clocks)
            elif cta.memory.is_waiting:
                cta.memory.is_waiting, cta.waits_since = False, turns.changes
            elif event.summary != TURN:
                raise SimulationError(event.summary, event.location)


def _wait_of(cta: _Cta) -> Wait | None:
    """What a CTA waits for: its last strong access."""
    if cta.memory is None or cta.memory.last_strong is None:
        return None
    shadow, unit, place = cta.memory.last_strong
    return Wait(cta.number, shadow, unit, place)


def _location(place: tuple[_Cta, int | None]) -> Location | None:
    cta, line = place
    return cta.launch.places.of(line)
