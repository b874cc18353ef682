"""A tuning farm: configurations compiled and measured by the machines of a Ray cluster (docs/design/025)."""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

import attrs
import numpy as np

from ziggurat.backend.cache.keys import compiler_version
from ziggurat.backend.cache.records import TuningRecord, chosen
from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, ZigguratError, shown
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS
from ziggurat.codemodel.text.writer import to_text
from ziggurat.kernels.kernel import Grid
from ziggurat.tuning.tuned import Measure, Tuned
from ziggurat.tuning.tuner import NOISE, Tuner, reason_of

_TICK = 1.0  # Seconds between two looks at the machines of the cluster.
_PATIENCE = 60.0  # Seconds in which a worker must begin.
Array = np.ndarray[Any, np.dtype[Any]]


@attrs.frozen
class DeviceKind:
    """A kind of device: its name in records, and the target that code is compiled for."""

    name: str
    target: str


@attrs.frozen
class Measurement:
    """A configuration to compile and to measure: the text of its Triton model, options of the compilation, the grid,
    and for each run-time argument its name and a number, or None for an array."""

    label: str
    model: str
    options: Mapping[str, Any]
    grid: tuple[int, ...]
    arguments: tuple[tuple[str, Any], ...]
    reset: tuple[str, ...]
    restored: tuple[str, ...]
    measure: Measure | None
    warmup: float
    rep: float

    def compiled(self, target: str) -> Any:
        """The kernel, compiled in this process."""
        import ziggurat as zg

        return zg.compile(zg.parse(self.model), target=target, **(self.options if target != "cpu" else {}))

    def milliseconds(self, kernel: Any, arrays: Mapping[str, Array], has_gpu: bool) -> float:
        """The time of a launch on this machine's device, on copies of the arrays."""
        import ziggurat as zg
        from ziggurat.tuning.measuring import restoring, zeroing

        own: dict[str, Any] = {
            name: zg.device.array(array) if has_gpu else array.copy() for name, array in arrays.items()
        }
        values = [own.get(name, value) for name, value in self.arguments]
        before = [*zeroing(own, self.reset), *restoring(own, self.restored)]

        def run() -> None:
            for prepare in before:
                prepare()
            kernel[self.grid](*values)

        def bench(run: Callable[[], None]) -> Any:
            return zg.testing.do_bench(run, self.warmup, self.rep, host=not has_gpu)

        run()
        return float((self.measure or bench)(run))


def compile_there(job: Measurement, target: str) -> Any:
    """The compiled kernel, or its error: in a task of Ray."""
    try:
        return job.compiled(target)
    except ZigguratError as error:
        return error


class Worker:
    """One device of a machine: an actor of Ray."""

    def __init__(self, has_gpu: bool) -> None:
        self.has_gpu = has_gpu

    def describe(self) -> tuple[DeviceKind, str]:
        """The kind of the device, and the version of the compiler here."""
        if self.has_gpu:
            from ziggurat.backend.devices.driver import current_device

            return DeviceKind(current_device().name, current_device().target), compiler_version(by_contents=True)
        from ziggurat.tuning.host import host_device

        return DeviceKind(host_device(), "cpu"), compiler_version(by_contents=True)

    def measure(self, job: Measurement, kernel: Any, arrays: Mapping[str, Array]) -> float | str:
        """Milliseconds, or the reason why there are none."""
        if isinstance(kernel, ZigguratError):
            return reason_of(kernel)
        try:
            return job.milliseconds(kernel, arrays, self.has_gpu)
        except ZigguratError as error:
            return reason_of(error)


@attrs.define(eq=False)
class _Launch:
    """A launch to be tuned: its tuner, its jobs by label, and its arrays in Ray's store."""

    tuner: _FarmTuner
    jobs: dict[str, Measurement]
    arrays: Any


@attrs.define(eq=False)
class _Task:
    """A job of a launch for a kind of device. `losses` are workers that ended during it."""

    launch: _Launch
    label: str
    kind: DeviceKind
    kernel: Any
    losses: int = 0


@attrs.define(eq=False)
class _Place:
    """A worker, the kind of its device, the task that it has, and since when."""

    actor: Any
    kind: DeviceKind | None = None
    task: _Task | None = None
    since: float = 0.0


class _FarmTuner(Tuner):
    """The settings of one launch, and what a choice for a kind of device is made for."""

    kind: DeviceKind

    def _device(self) -> str:
        return self.kind.name


class Farm:
    """The machines of a Ray cluster, which tune. `address` is Ray's: "auto" for the cluster of this machine, None to
    start one here. A configuration that takes more than `timeout` seconds to measure, or ends its worker `losses`
    times, is left out.

        with Farm("auto") as farm:
            farm.add(matmul, grid, a, b, c, n)
            records = farm.run()

    Raises `LaunchError` where Ray is not installed.
    """

    def __init__(self, address: str | None = None, *, timeout: float = 300.0, losses: int = 3) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError:
            raise LaunchError("a farm needs Ray, which is not installed", hint="pip install 'ziggurat[farm]'") from None
        self._timeout, self._losses = timeout, losses
        self._launches: list[_Launch] = []
        self._places: dict[tuple[str, int], _Place] = {}  # By the node's id and the number of the worker on it.
        self._ends = not self._ray.is_initialized()
        if self._ends:
            self._ray.init(address, log_to_driver=False, include_dashboard=False if address is None else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, and the connection to Ray if this object made it."""
        for place in self._places.values():
            self._ray.kill(place.actor)
        self._places.clear()
        if self._ends:
            self._ray.shutdown()

    @public
    def add(self, kernel: Tuned, grid: Grid, /, *arguments: Any, **keywords: Any) -> None:
        """Add a launch of a tuned kernel, on arrays in memory. Raises `LaunchError` for a kernel without
        configurations, and for configurations with a `pre_hook`, a function that workers do not have."""
        from ziggurat.backend.launch.arrays import is_array

        if not isinstance(kernel, Tuned) or kernel.tuning is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(f"a farm tunes kernels under zg.autotune; got {shown(kernel)}")
        tuning = kernel.tuning
        if any(config.pre_hook is not None for config in tuning.configs):
            raise LaunchError(f"a configuration of '{kernel.base.name}' has a pre_hook, which cannot travel")
        tuner = _FarmTuner(kernel, grid, arguments, keywords)
        fitting = tuner.fitting(kernel.pruned(arguments, keywords))
        arrays: dict[str, Array] = {}
        jobs: dict[str, Measurement] = {}
        base = kernel.base
        for label, config in fitting.items():
            bound = tuner.bounds[label]
            options = {**tuner.options, **kernel.added(arguments, keywords, config)}
            signature, names, values = base.specialized(bound)
            arrays |= {name: value for name, value in zip(names, values, strict=True) if is_array(value)}
            jobs[label] = Measurement(
                label=label,
                model=to_text(base.rules.model(base, signature, options), locations=True),
                options={name: value for name, value in options.items() if name in COMPILE_OPTIONS},
                grid=base.sizes(grid, bound),
                arguments=tuple((n, None if n in arrays else v) for n, v in zip(names, values, strict=True)),
                reset=tuning.reset_to_zero,
                restored=tuning.restore_value,
                measure=tuning.measure,
                warmup=tuning.warmup or 0.0,
                rep=tuning.rep or 0.0,
            )
        self._launches.append(_Launch(tuner, jobs, self._ray.put(arrays)))

    @public
    def run(self) -> list[TuningRecord]:
        """Tune the launches that were added, on each kind of device in the cluster. The records are kept on disk here.

        Raises `LaunchError` where no worker begins within a minute.
        """
        return _Run(self._ray, self._launches, self._places, self._timeout, self._losses).records()


class _Run:
    """One run of a farm."""

    def __init__(
        self, ray: Any, launches: list[_Launch], places: dict[tuple[str, int], _Place], timeout: float, losses: int
    ) -> None:
        self._ray, self._places, self._timeout, self._losses = ray, places, timeout, losses
        self._launches = [*launches]
        launches.clear()
        self._queues: dict[DeviceKind, deque[_Task]] = {}
        self._refs: dict[Any, tuple[str, int]] = {}  # What is not there yet, by the place that it comes from.
        self._times: dict[tuple[DeviceKind, int], dict[str, float]] = {}
        self._reasons: dict[tuple[DeviceKind, int], dict[str, str]] = {}
        self._compile = ray.remote(num_cpus=1, max_retries=losses)(compile_there)
        for key, place in places.items():
            self._ask(key, place)

    def records(self) -> list[TuningRecord]:
        """Run everything; the records of all launches for each kind of device."""
        self._look()
        looked = time.monotonic()
        while self._goes_on(time.monotonic()):
            for ref in self._ray.wait([*self._refs], timeout=_TICK)[0]:
                self._take(ref)
            if time.monotonic() - looked > _TICK:
                looked = time.monotonic()
                self._look()
                self._end_late(looked)
        if not self._queues:
            raise LaunchError("the Ray cluster has no machine that measures", hint="ray start --address=…")
        for task in (task for queue in self._queues.values() for task in queue):
            self._note(task, "no machine of its kind is left")
        return [record for kind in self._queues for record in self._recorded(kind)]

    def _goes_on(self, now: float) -> bool:
        """Whether a worker measures, or one begins that may have something to measure."""
        if any(place.task is not None for place in self._places.values()):
            return True
        return any(place.kind is None and now - place.since < _PATIENCE for place in self._places.values())

    def _look(self) -> None:
        """Make a worker for each device of machines that have joined, and forget those of machines that are lost."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        for key in [key for key in self._places if key[0] not in nodes]:
            self._lose(key, is_gone=True)
        for node, facts in nodes.items():
            gpus = int(facts["Resources"].get("GPU", 0))
            for number in range(max(gpus, 1)):
                if (node, number) in self._places:
                    continue
                affinity = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
                options = {"num_cpus": 0, "num_gpus": min(gpus, 1), "max_restarts": -1, "scheduling_strategy": affinity}
                actor = self._ray.remote(Worker).options(**options).remote(gpus > 0)
                self._places[node, number] = place = _Place(actor)
                self._ask((node, number), place)

    def _ask(self, key: tuple[str, int], place: _Place) -> None:
        """Ask a worker for its kind of device."""
        place.kind = place.task = None
        self._refs[place.actor.describe.remote()] = key
        place.since = time.monotonic()

    def _take(self, ref: Any) -> None:
        """Take an answer of a worker, and give it the next task."""
        key = self._refs.pop(ref)
        place = self._places[key]
        try:
            answer = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise LaunchError(f"a worker failed: {error.cause!r}") from error
        except self._ray.exceptions.RayError as error:  # It has ended, or its machine has.
            self._lose(key, str(error).partition("\n")[0])
            return
        if place.task is None:
            kind, version = answer
            if version != compiler_version(by_contents=True):
                raise LaunchError(f"a machine of the Ray cluster has another version of ziggurat: {kind.name}")
            place.kind = kind
            if kind not in self._queues:
                self._queues[kind] = self._tasks(kind)
        else:
            task, place.task = place.task, None
            self._note(task, answer)
        self._give(key, place)

    def _tasks(self, kind: DeviceKind) -> deque[_Task]:
        """All jobs for a kind of device. Their compilations begin now."""
        self._times |= {(kind, number): {} for number in range(len(self._launches))}
        self._reasons |= {(kind, number): {} for number in range(len(self._launches))}
        return deque(
            _Task(launch, label, kind, self._compile.remote(job, kind.target))
            for launch in self._launches
            for label, job in launch.jobs.items()
        )

    def _give(self, key: tuple[str, int], place: _Place) -> None:
        """Give a worker the next task of its kind."""
        queue = self._queues.get(place.kind) if place.kind is not None else None
        if queue:
            task = place.task = queue.popleft()
            job = task.launch.jobs[task.label]
            self._refs[place.actor.measure.remote(job, task.kernel, task.launch.arrays)] = key
            place.since = time.monotonic()

    def _note(self, task: _Task, answer: float | str) -> None:
        """Keep the time of a configuration, or the reason why there is none."""
        place = task.kind, self._launches.index(task.launch)
        if isinstance(answer, str):
            self._reasons[place][task.label] = answer
        else:
            self._times[place][task.label] = answer

    def _lose(self, key: tuple[str, int], reason: str = "its machine was lost", *, is_gone: bool = False) -> None:
        """Give the task of a worker that has ended back to the queue, or leave its configuration out."""
        place = self._places[key]
        task = place.task
        if task is not None:
            task.losses += 1
            if task.losses >= self._losses:
                self._note(task, f"it ended its worker {task.losses} times: {reason}")
            else:
                self._queues[task.kind].append(task)
        if is_gone:
            del self._places[key]
            self._refs = {ref: other for ref, other in self._refs.items() if other != key}
            for other, idle in self._places.items():
                if idle.task is None:
                    self._give(other, idle)
        else:
            self._ask(key, place)

    def _end_late(self, now: float) -> None:
        """End the workers whose measurement takes too long. Ray starts them again."""
        for place in self._places.values():
            if place.task is not None and now - place.since > self._timeout:
                place.since = now
                self._ray.kill(place.actor, no_restart=False)

    def _recorded(self, kind: DeviceKind) -> list[TuningRecord]:
        """The records of all launches for a kind of device, which are kept on disk."""
        records: list[TuningRecord] = []
        for number, launch in enumerate(self._launches):
            tuner, times, reasons = launch.tuner, self._times[kind, number], self._reasons[kind, number]
            if not times:
                listing = "".join(f"\n  {label}: {reason}" for label, reason in reasons.items())
                raise LaunchError(f"no configuration of '{tuner.kernel.name}' could be measured:{listing}")
            tuner.kind = kind
            ordered = {label: times[label] for label in launch.jobs if label in times}
            about = tuner.about(next(iter(tuner.bounds.values())))
            record = TuningRecord(about, chosen(ordered, NOISE), ordered, reasons)
            if tuner.keeps:
                tuner.tuned.records.put(record)
            records.append(record)
        return records
