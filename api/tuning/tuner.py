"""One tuning: compile the configurations, leave out those that do not fit, measure the rest, and record the choice."""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs

from ziggurat.backend.cache.keys import compiler_version
from ziggurat.backend.cache.records import TuningRecord, chosen
from ziggurat.backend.cuda import gpu_timing
from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.launch import devices_of, stream_of
from ziggurat.backend.cuda.loaded import DriverCode
from ziggurat.backend.cuda.specialize import RunTime
from ziggurat.backend.devices.driver import current_device, on_device, stream_address
from ziggurat.backend.launch.grids import padded
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, ZigguratError
from ziggurat.codemodel.gpu.options import LAUNCH_ONLY, LAUNCH_OPTIONS
from ziggurat.compiler.workers import LEAST, Job, compile_all
from ziggurat.kernels.kernel import Grid, Kernel
from ziggurat.launches.gpu import GpuKernel, numbers_of
from ziggurat.transforms.cost.grid_cost import Launch
from ziggurat.tuning.config import Config, labelled
from ziggurat.tuning.keys import types_of
from ziggurat.tuning.measuring import Progress, arrays_of, zeroing
from ziggurat.tuning.ranks import Ranks

if TYPE_CHECKING:
    from ziggurat.tuning.tuned import Tuned

# The first of the configurations within this share of the fastest time is chosen, so that noise does not change it.
NOISE = 0.02
# A configuration is not measured if it takes longer than the fastest one by this share at the highest clock.
MARGIN = 0.1
# Options of the launch that a measured launch does not repeat: all of them run on one stream, which is waited for.
_NOT_MEASURED = ("stream", "check")


@attrs.frozen
class Compilation:
    """A kernel to be compiled for a launch. `keep` takes the result, `values` are the run-time arguments."""

    job: Job
    keep: Callable[[Binary], None]
    values: Sequence[Any]


class Tuner:
    """The choice of a configuration for one launch: a kernel, its grid and its arguments."""

    is_host = False  # Whether this machine's clock measures.
    also_unfit: tuple[type[ZigguratError], ...] = ()  # Errors for which it leaves a configuration out, besides `unfit`.

    def __init__(self, tuned: Tuned, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any]) -> None:
        assert tuned.tuning is not None
        self.tuned, self.tuning, self.kernel, self.grid = tuned, tuned.tuning, tuned.base, grid
        self.arguments, self.keywords = arguments, keywords
        self.ranks = Ranks(tuned.tuning.group)
        self.unfit = (*tuned.unfit, *self.also_unfit)
        names = self.kernel.signature.parameters  # A parameter that has the name of an option is no option.
        options = {name: value for name, value in keywords.items() if name in LAUNCH_OPTIONS and name not in names}
        self.stream = options.get("stream")
        self.options = {name: value for name, value in options.items() if name not in LAUNCH_ONLY}
        self.measured = {
            name: value for name, value in keywords.items() if name not in options or name not in _NOT_MEASURED
        }
        self.labels: dict[str, Config] = {}
        self.bounds: dict[str, dict[str, Any]] = {}  # All arguments by name, for each configuration.
        self.left_out: dict[str, ZigguratError] = {}
        self.least: dict[str, float] = {}  # Milliseconds, for configurations that were compiled now for a GPU.
        self.times: dict[str, Any] = {}  # As the function that measures gave them.
        self.seconds = 0.0  # Of compiling and measuring.

    def choice(self, configs: Sequence[Config]) -> tuple[TuningRecord | None, Config]:
        """The record of the choice, from disk or made now, and the configuration that it names. There is no record if
        the grid is empty with every configuration.

        Raises `LaunchError` with the reason of each configuration if none can be launched.
        """
        fitting = self._agreed(self.fitting(configs))
        if not fitting:
            return None, configs[0]
        bound = next(iter(self.bounds.values()))
        with self._measuring(bound):
            about = self.about(bound)
            record = self.tuned.records.get(about) if self.keeps else None
            label = self.ranks.all(record and record.config)[0]
            if label not in fitting:
                record = self._record(about, fitting, bound)
            elif record is None or record.config != label:
                record = TuningRecord(about, label, {})
            config = fitting[record.config]
            if self.tuned.has_hooks or self.tuning.reset_to_zero:
                arguments = self.tuned.named(self.arguments, {**self.keywords, **config.keywords})
                self.tuned.pre_hook(arguments, reset_only=True)
        return record, config

    def fitting(self, configs: Sequence[Config]) -> dict[str, Config]:
        """The configurations whose grids are not empty, by their labels."""
        self.labels = labelled(list(configs))
        for label, config in self.labels.items():
            self.bounds[label] = bound = self.tuned.bound(self.arguments, self.keywords, config)
            sizes = self.kernel.sizes(self.grid, bound)
            if 0 in sizes:
                self.left_out[label] = LaunchError(f"its grid {sizes} is empty")
        return {label: config for label, config in self.labels.items() if label not in self.left_out}

    def _agreed(self, configs: Mapping[str, Config]) -> dict[str, Config]:
        """The configurations that no rank leaves out."""
        for rank, reasons in enumerate(self.ranks.all({label: reason_of(e) for label, e in self.left_out.items()})):
            for label, reason in reasons.items():
                self.left_out.setdefault(label, LaunchError(f"rank {rank} leaves it out: {reason}"))
        return {label: config for label, config in configs.items() if label not in self.left_out}

    @contextmanager
    def _measuring(self, bound: Mapping[str, Any]) -> Generator[None]:
        """Make the device and the stream of the launch current."""
        with on_device(next(iter(devices_of(bound.items())), None)), gpu_timing.on_stream(self._stream(bound)):
            yield

    def _device(self) -> str:
        """The name of the device, for records."""
        return current_device().name

    def _stream(self, bound: Mapping[str, Any]) -> int:
        """The stream of the launch: the one that it names, or the current one of the arrays' library."""
        if self.stream is not None:
            return stream_address(self.stream)
        return stream_of(bound.values(), current_device().number)

    @property
    def keeps(self) -> bool:
        """Whether the choice is kept on disk: it is not for a kernel that nothing tells from others."""
        return self.tuning.cache_results and self.kernel.identity is not None

    def about(self, bound: dict[str, Any]) -> dict[str, Any]:
        """What a choice is made for."""
        types = types_of(bound)
        about: dict[str, Any] = {
            "kernel": self.kernel.name,
            "structure": self.kernel.identity,
            # The types and devices of arrays are part of the record anyway; their addresses do not count.
            "key": {name: repr(bound[name]) for name in self.tuning.key if name in bound and name not in types},
            "types": types,
            "options": {name: repr(value) for name, value in {**self.options, **self.tuned.environment()}.items()},
            "configs": list(self.bounds),
            "device": self._device(),
            "compiler": compiler_version(by_contents=True),
        }
        heuristics = self.tuned.heuristics
        if heuristics:
            about["computed"] = [{name: repr(b.get(name)) for name in heuristics} for b in self.bounds.values()]
        return about

    def _record(self, about: dict[str, Any], fitting: Mapping[str, Config], bound: dict[str, Any]) -> TuningRecord:
        if len(fitting) == 1:
            return TuningRecord(about, next(iter(fitting)), {})
        start = time.perf_counter()
        times = self._times(self._agreed(self._compiled(fitting)), bound)
        self.seconds = time.perf_counter() - start
        reasons = {label: reason_of(error) for label, error in self.left_out.items()}
        for label, reason in reasons.items() if not self.tuned.is_quiet else ():
            print(f"{self.kernel.name}: without {label}: {reason}", file=sys.stderr)
        if not times:
            if self.tuned.launches_unfit:
                return TuningRecord(about, next(iter(fitting)), {}, reasons)
            raise self._nothing_left()
        record = TuningRecord(about, chosen(times, NOISE), times, reasons)
        if self.keeps:
            self.tuned.records.put(record)
        return record

    def _compiled(self, fitting: Mapping[str, Config]) -> dict[str, Config]:
        """The configurations that could be compiled. Those that are on disk are not compiled again."""
        compilations: dict[str, Compilation] = {}
        for label, config in fitting.items():
            try:
                compilation = self.tuned.compilation(config, self.arguments, self.keywords)
            except ZigguratError as error:
                self.left_out[label] = error
            else:
                if compilation is not None:
                    compilations[label] = compilation
        jobs = [self._job(label, compilation) for label, compilation in compilations.items()]
        with closing(Progress(f"{self.kernel.name}: compiling", len(jobs))) as progress:
            results = compile_all(jobs, self.tuning.processes, progress.advance)
        for (label, compilation), result in zip(compilations.items(), results, strict=True):
            if isinstance(result, Binary):
                metadata = dict(result.metadata)
                cycles = metadata.pop(LEAST, 0.0)  # Of this launch: it is not kept with the binary.
                self.least[label] = cycles / current_device().attribute("CLOCK_RATE")
                compilation.keep(attrs.evolve(result, metadata=metadata))
            else:
                self.left_out[label] = result
        return self._ready(fitting)

    def _ready(self, fitting: Mapping[str, Config]) -> dict[str, Config]:
        """The configurations that are not left out. Hooks see the errors of all: a launch raises them."""
        if self.tuned.has_hooks:
            self.left_out = {label: error for label, error in self.left_out.items() if label not in fitting}
        return {label: config for label, config in fitting.items() if label not in self.left_out}

    def _job(self, label: str, compilation: Compilation) -> Job:
        """The job of a compilation, which computes the lower bound of the launch's time where times are comparable."""
        if self.tuning.measure is not None:
            return compilation.job  # A measure need not be in milliseconds.
        sizes = self.kernel.sizes(self.grid, self.bounds[label])
        return attrs.evolve(
            compilation.job,
            launch=Launch(padded(sizes), numbers_of(compilation.values)),
            multiprocessors=current_device().attribute("MULTIPROCESSOR_COUNT"),
        )

    def _times(self, configs: Mapping[str, Config], bound: dict[str, Any]) -> dict[str, float]:
        """Milliseconds of each configuration that can be launched."""
        tuned, tuning = self.tuned, self.tuning
        if not tuned.has_hooks:  # Arguments that cannot be reset are errors of the launch, not of a configuration.
            zeroing(bound, tuning.reset_to_zero)
            _ = list(arrays_of(bound, tuning.restore_value))
        times: dict[str, float] = {}
        self.least = self.ranks.most(self.least)
        with closing(Progress(f"{self.kernel.name}: measuring", len(configs))) as progress:
            # Those come first that can be the fastest.
            for label, config in sorted(configs.items(), key=lambda item: self.least.get(item[0], 0.0)):
                if not self._is_left_out(label, min(times.values(), default=math.inf)):
                    time = self._measured(label, config)
                    if self._agreed({label: config}):
                        times[label] = max(self.ranks.all(time))
                progress.advance()
        return {label: times[label] for label in configs if label in times}

    def _measured(self, label: str, config: Config) -> float:
        """The milliseconds of a configuration, or one that is left out."""
        measure = self.tuning.measure or self._bench
        try:
            result = self.tuned.measured(config, self.grid, self.arguments, self.measured, measure)
        except self.unfit as error:
            self.left_out[label] = error
        except KernelRuntimeError as error:
            error.summary += f" (tuning, with {label})"
            raise
        else:
            self.times[label] = result
            time = self._milliseconds(self.tuned.median(result), label)
            if math.isfinite(time):
                return time
            self.left_out[label] = LaunchError(
                f"its time must be finite; measure gave {result!r}", hint="let measure give milliseconds"
            )
        return math.inf

    def _is_left_out(self, label: str, fastest: float) -> bool:
        """Leave a configuration out if its bound is above these milliseconds, and tell whether it is."""
        least = self.least.get(label, 0.0)
        if least <= fastest * (1 + MARGIN):
            return False
        self.left_out[label] = LaunchError(f"it takes {least:.3g} ms at least, and another {fastest:.3g} ms")
        return True

    def _bench(self, run: Callable[[], None]) -> float:
        """The milliseconds of a call."""
        tuning = self.tuning
        bench = functools.partial(gpu_timing.do_bench, graph=tuning.use_cuda_graph, host=self.is_host)
        if tuning.group is not None:  # Without times to fill, it makes as many calls on each rank.
            return self.ranks.bench(run, tuning.rep or 0.0, lambda run: bench(run, 0.0, 0.0))
        return bench(run, tuning.warmup or 0.0, tuning.rep or 0.0)

    def _milliseconds(self, result: Any, label: str) -> float:
        """The time that `measure` gave, which may be infinite or NaN. Raises `LaunchError` for anything else."""
        try:
            time = -1.0 if result is None or isinstance(result, str) else float(result)
        except (TypeError, ValueError):
            time = -1.0
        if time < 0:
            raise LaunchError(
                f"measure of {self.tuned.decorator} of '{self.kernel.name}' must give a time, a number of zero or "
                f"more; got {result!r} with {label}",
                hint="return the time: measure=lambda run: zg.testing.do_bench(run)" if result is None else None,
            )
        return time

    def _nothing_left(self) -> ZigguratError:
        errors = list(self.left_out.values())
        # Not those of the host's tuner: an access outside of the arrays on every configuration is the kernel's fault.
        if len({str(error) for error in errors}) == 1 and not isinstance(errors[0], self.tuned.unfit):
            return errors[0]  # The kernel itself is wrong.
        listing = "".join(f"\n  {label}: {reason_of(error)}" for label, error in self.left_out.items())
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        return LaunchError(
            f"no configuration of '{self.kernel.name}' can be launched:{listing}",
            hint="; ".join(hints) or "add a configuration with smaller blocks",
        )


def compilation_of(kernel: Kernel, bound: Mapping[str, Any], options: dict[str, Any]) -> Compilation | None:
    """The compilation of a kernel for a launch with these arguments and options; None if it is on disk, or no worker
    can compile it."""
    launched, values, spec = kernel.dispatcher.specialization(tuple(bound.values()), options)
    build = cast("GpuKernel", launched).build(spec)
    if build.is_compiled or not build.is_own:
        return None

    def keep(binary: Binary) -> None:
        build.keep(binary)
        launched.compiled.setdefault(spec, DriverCode(binary))

    parts = zip(values, spec.arguments, strict=True)
    return Compilation(
        Job(build.model, build.options, build.title),
        keep,
        [value for value, argument in parts if isinstance(argument, RunTime)],
    )


def reason_of(error: ZigguratError) -> str:
    """The reason of an error, in one line."""
    inner: Sequence[ZigguratError] = getattr(error, "errors", ())
    return (inner[0] if inner else error).summary.strip().partition("\n")[0]
