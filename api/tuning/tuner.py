"""One tuning: compile the configurations, leave out those that do not fit, measure the rest, and record the choice."""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import attrs

from ziggurat.backend.cuda import testing
from ziggurat.backend.cuda.arrays import device_of, place_of, reader_of, view
from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.cache import Cache, Record, Records, chosen
from ziggurat.backend.cuda.driver import current_device, on_device, stream_address
from ziggurat.backend.cuda.keys import compiler_version, key
from ziggurat.backend.cuda.launch import devices_of, stream_of
from ziggurat.backend.cuda.specialize import RunTime, Specialization
from ziggurat.backend.launch.arrays import as_array, is_array, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.grids import padded
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, ResourceError, TargetError, ZigguratError
from ziggurat.codemodel.gpu.options import LAUNCH_ONLY, LAUNCH_OPTIONS
from ziggurat.codemodel.types import is_hashable
from ziggurat.compiler.workers import LEAST, Job, compile_all
from ziggurat.kernels.kernel import Grid, Kernel
from ziggurat.launches.gpu import model_of, numbers_of, options_of
from ziggurat.transforms.place.grid_cost import Launch
from ziggurat.tuning.measuring import restoring, zeroing

if TYPE_CHECKING:
    from ziggurat.tuning.autotune import Config, TunedKernel

# The first of the configurations within this share of the fastest time is chosen, so that noise does not change it.
NOISE = 0.02
# A configuration is not measured if it takes longer than the fastest one by this share at the highest clock.
MARGIN = 0.1
# Options of the launch that a measured launch does not repeat: all of them run on one stream, which is waited for.
_NOT_MEASURED = ("stream", "check")
_WIDTH = 30  # of the progress bar


class Tuner:
    """The choice of a configuration for one launch: a kernel, its grid and its arguments.

    A configuration that raises one of the errors `unfit` is left out.
    """

    unfit: tuple[type[ZigguratError], ...] = (LaunchError, ResourceError, TargetError)

    def __init__(self, kernel: TunedKernel, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any]) -> None:
        self.kernel, self.grid = kernel, grid
        self.arguments, self.keywords = arguments, keywords
        names = kernel.signature.parameters  # A parameter that has the name of an option is no option.
        options = {name: value for name, value in keywords.items() if name in LAUNCH_OPTIONS and name not in names}
        self.stream = options.get("stream")
        self.options = {name: value for name, value in options.items() if name not in LAUNCH_ONLY}
        self.measured = {
            name: value for name, value in keywords.items() if name not in options or name not in _NOT_MEASURED
        }
        self.left_out: dict[str, ZigguratError] = {}
        self.least: dict[str, float] = {}  # Milliseconds, for configurations that were compiled now for a GPU.

    def choice(self, configs: Sequence[Config]) -> tuple[Record | None, Config]:
        """The record of the choice, from disk or made now, and the configuration that it names. There is no record if
        the grid is empty with every configuration.

        Raises `LaunchError` with the reason of each configuration if none can be launched.
        """
        bounds = [self.kernel.bound(self.arguments, self.keywords, config) for config in configs]
        by_name: dict[str, Config] = {}
        for config, bound in zip(configs, bounds, strict=True):
            sizes = self.kernel.sizes(self.grid, bound)
            if 0 in sizes:
                self.left_out[str(config)] = LaunchError(f"its grid {sizes} is empty")
            else:
                by_name[str(config)] = config
        if not by_name:
            return None, configs[0]
        bound = bounds[0]
        with self._measuring(bound):
            about = self._about(bound, configs, bounds)
            record = Records().get(about) if self.kernel.tuning.cache_results else None
            if record is None or record.config not in by_name:
                record = self._record(about, list(by_name.values()), bound)
        return record, by_name[record.config]

    @contextmanager
    def _measuring(self, bound: Mapping[str, Any]) -> Generator[None]:
        """Make the device and the stream of the launch current."""
        with on_device(next(iter(devices_of(bound.items())), None)), testing.on_stream(self._stream(bound)):
            yield

    def _types(self, bound: Mapping[str, Any]) -> dict[str, str]:
        """The types of the arrays and descriptors among the arguments, by name."""
        return types_of(bound)

    def _device(self) -> str:
        """The name of the device, for records."""
        return current_device().name

    def _stream(self, bound: Mapping[str, Any]) -> int:
        """The stream of the launch: the one that it names, or the current one of the arrays' library."""
        if self.stream is not None:
            return stream_address(self.stream)
        return stream_of(bound.values(), current_device().number)

    def _about(
        self, bound: dict[str, Any], configs: Sequence[Config], bounds: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        kernel, types = self.kernel, self._types(bound)
        about: dict[str, Any] = {
            "kernel": kernel.name,
            "structure": kernel.models.identity(kernel),
            # The types and devices of arrays are part of the record anyway; their addresses do not count.
            "key": {name: repr(bound[name]) for name in kernel.tuning.key if name not in types},
            "types": types,
            "options": {name: repr(value) for name, value in self.options.items()},
            "configs": list(map(str, configs)),
            "device": self._device(),
            "compiler": compiler_version(by_contents=True),
        }
        if kernel.heuristics:
            about["computed"] = [{name: repr(each.get(name)) for name in kernel.heuristics} for each in bounds]
        return about

    def _record(self, about: dict[str, Any], configs: Sequence[Config], bound: dict[str, Any]) -> Record:
        if len(configs) == 1:
            return Record(about, str(configs[0]), {})
        ready = self._compiled(configs)
        times = self._times(ready, bound)
        reasons = {name: _reason(error) for name, error in self.left_out.items()}
        for name, reason in reasons.items() if not self.kernel.tuning.quiet else ():
            print(f"{self.kernel.name}: without {name}: {reason}", file=sys.stderr)
        if not times:
            raise self._nothing_left()
        record = Record(about, chosen(times, NOISE), times, reasons)
        if self.kernel.tuning.cache_results:
            Records().put(record)
        return record

    def _compiled(self, configs: Sequence[Config]) -> list[Config]:
        """The configurations that could be compiled. Kernels that are not on disk are given to the dispatcher."""
        dispatcher, cache = self.kernel.dispatcher, Cache()
        jobs: list[tuple[Config, Specialization, str, Job]] = []
        for config in configs:
            try:
                spec, job = self._job(config)
            except ZigguratError as error:
                self.left_out[str(config)] = error
                continue
            digest = key(job.model, job.options)
            if cache.get(digest) is None:
                jobs.append((config, spec, digest, job))
        with closing(Progress(f"{self.kernel.name}: compiling", len(jobs))) as progress:
            results = compile_all([job for *_, job in jobs], self.kernel.tuning.processes, progress.advance)
        for (config, spec, digest, _), result in zip(jobs, results, strict=True):
            if isinstance(result, Binary):
                metadata = dict(result.metadata)
                cycles = metadata.pop(LEAST, 0.0)  # Of this launch: it is not kept with the binary.
                self.least[str(config)] = cycles / current_device().attribute("CLOCK_RATE")
                result = attrs.evolve(result, metadata=metadata)
                cache.put(digest, result)
                dispatcher.offer(spec, result)
            else:
                self.left_out[str(config)] = result
        return [config for config in configs if str(config) not in self.left_out]

    def _job(self, config: Config) -> tuple[Specialization, Job]:
        """The specialization of a launch with a configuration, and the job that compiles it."""
        kernel = self.kernel
        bound = kernel.bound(self.arguments, self.keywords, config)
        chosen = {**config.keywords, **kernel.computed(self.arguments, self.keywords, config.keywords)}
        options = {**self.options, **{name: value for name, value in chosen.items() if name not in bound}}
        spec = kernel.dispatcher.specialization(tuple(bound.values()), options)
        job = Job(model_of(kernel, spec), options_of(kernel, spec), kernel.name)
        if self.kernel.tuning.measure is not None or len(spec.arguments) != len(bound):
            return spec, job  # A measure need not be in milliseconds, and a tuple has several arguments.
        given = [value for value, one in zip(bound.values(), spec.arguments, strict=True) if isinstance(one, RunTime)]
        launch = Launch(padded(kernel.sizes(self.grid, bound)), numbers_of(given))
        return spec, attrs.evolve(
            job, launch=launch, multiprocessors=current_device().attribute("MULTIPROCESSOR_COUNT")
        )

    def _times(self, configs: Sequence[Config], bound: dict[str, Any]) -> dict[str, float]:
        """Milliseconds of each configuration that can be launched."""
        tuning = self.kernel.tuning
        measure = tuning.measure or self._bench
        steps = [*zeroing(bound, tuning.reset_to_zero), *restoring(bound, tuning.restore_value)]

        def reset() -> None:
            for step in steps:
                step()

        times: dict[str, float] = {}
        with closing(Progress(f"{self.kernel.name}: measuring", len(configs))) as progress:
            # Those come first that can be the fastest.
            for config in sorted(configs, key=lambda config: self.least.get(str(config), 0.0)):
                if self._is_left_out(config, min(times.values(), default=math.inf)):
                    progress.advance()
                    continue
                try:
                    given: Any = measure(functools.partial(self._run, config, reset))
                except self.unfit as error:
                    self.left_out[str(config)] = error
                except KernelRuntimeError as error:
                    error.summary += f" (tuning, with {config})"
                    raise
                else:
                    time = self._milliseconds(given, config)
                    if math.isfinite(time):
                        times[str(config)] = time
                    else:
                        self.left_out[str(config)] = LaunchError(
                            f"its time must be finite; measure gave {given!r}", hint="let measure give milliseconds"
                        )
                progress.advance()
            reset()
        return {str(config): times[str(config)] for config in configs if str(config) in times}

    def _is_left_out(self, config: Config, fastest: float) -> bool:
        """Leave a configuration out if its bound is above these milliseconds, and tell whether it is."""
        least = self.least.get(str(config), 0.0)
        if least <= fastest * (1 + MARGIN):
            return False
        self.left_out[str(config)] = LaunchError(f"it takes {least:.3g} ms at least, and another {fastest:.3g} ms")
        return True

    def _bench(self, run: Callable[[], None]) -> float:
        """The milliseconds of a call."""
        tuning = self.kernel.tuning
        return testing.do_bench(run, tuning.warmup, tuning.rep, graph=tuning.use_cuda_graph)

    def _run(self, config: Config, reset: Callable[[], None]) -> None:
        reset()
        if config.pre_hook is not None:
            config.pre_hook(self.kernel.bound(self.arguments, self.keywords, config))
        computed = self.kernel.computed(self.arguments, self.keywords, config.keywords)
        Kernel.__getitem__(self.kernel, self.grid)(*self.arguments, **self.measured, **config.keywords, **computed)

    def _milliseconds(self, given: Any, config: Config) -> float:
        """The time that `measure` gave, which may be infinite or NaN. Raises `LaunchError` for anything else."""
        try:
            time = -1.0 if given is None or isinstance(given, str) else float(given)
        except (TypeError, ValueError):
            time = -1.0
        if time < 0:
            raise LaunchError(
                f"measure of zg.autotune of '{self.kernel.name}' must give a time, a number of zero or more; "
                f"got {given!r} with {config}",
                hint="return the time: measure=lambda run: zg.testing.do_bench(run)" if given is None else None,
            )
        return time

    def _nothing_left(self) -> ZigguratError:
        errors = list(self.left_out.values())
        # Not `self.unfit`: an access outside of the arrays on every configuration is the kernel's fault.
        if len({str(error) for error in errors}) == 1 and not isinstance(errors[0], Tuner.unfit):
            return errors[0]  # The kernel itself is wrong.
        listed = "".join(f"\n  {name}: {_reason(error)}" for name, error in self.left_out.items())
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        return LaunchError(
            f"no configuration of '{self.kernel.name}' can be launched:{listed}",
            hint="; ".join(hints) or "add a configuration with smaller blocks",
        )


class Progress:
    """A progress bar, shown on terminals only: `advance` moves it towards `total`, `close` removes it."""

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self.title, self.total, self.done = title, total, 0
        self._stream = sys.stderr if stream is None else stream
        self._shown = total > 1 and self._stream.isatty()
        self._lock = threading.Lock()
        self._draw()

    def advance(self) -> None:
        """Count one more. Threads may call this."""
        with self._lock:
            self.done += 1
            self._draw()

    def close(self) -> None:
        """Remove the bar."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        if self._shown:
            full = _WIDTH * self.done // self.total
            self._stream.write(f"\r{self.title} [{'#' * full}{'.' * (_WIDTH - full)}] {self.done}/{self.total}\x1b[K")
            self._stream.flush()


def _reason(error: ZigguratError) -> str:
    """The reason of an error, in one line."""
    inner: Sequence[ZigguratError] = getattr(error, "errors", ())
    return (inner[0] if inner else error).summary.strip().partition("\n")[0]


# Reads one part of a key from an argument; None takes the argument itself.
Read = Callable[[Any], Any]
# The text that all keys of some argument types begin with, and for each other part its argument's number.
_Parts = tuple[str, list[tuple[Read | None, int]]]


class HasDefaults(Protocol):
    """A kernel that tells the defaults of its parameters."""

    signature: Any
    defaults: dict[str, Any]


class ChoiceKey:
    """The function from the arguments of a launch to the key that a choice is kept for.

    A key has the values of the parameters in `names`, the element types and devices of the arrays, and the options of
    compilation. The arguments with these values are looked up once for each combination of argument types.
    """

    def __init__(self, kernel: HasDefaults, names: Sequence[str]) -> None:
        self.kernel, self.names = kernel, names
        self._parts: dict[tuple[Any, ...], _Parts] = {}

    def __call__(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """The key. Raises the error of an array that cannot be read."""
        kinds: tuple[Any, ...] = tuple(map(type, arguments))
        given = arguments
        if keywords:
            kinds += (*keywords, *map(type, keywords.values()))
            given = (*arguments, *keywords.values())
        found = self._parts.get(kinds)
        if found is None:
            found = self._parts[kinds] = self._found(arguments, keywords)
        key: list[Any] = [found[0]]
        for read, place in found[1]:  # Each launch makes a key: a comprehension would be one more call.
            key.append(given[place] if read is None else read(given[place]))
        return tuple(key)

    def _found(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> _Parts:
        """The common text of all keys of these argument types, and the reading of the other parts."""
        parameters = list(self.kernel.signature.parameters)
        given = {**dict(zip(parameters, arguments, strict=False)), **keywords}
        places = {name: place for place, name in enumerate(given)}
        label: list[str] = []
        parts: list[tuple[Read | None, int]] = []
        for name in parameters:
            if name not in given:
                if name in self.names:
                    parts.append((_constant(self.kernel.defaults.get(name)), 0))
            elif is_array(given[name]) or on_gpu(given[name]):
                label.append(name)
                parts.append((_reading(given[name]), places[name]))
            elif name in self.names:
                parts.append((None if is_hashable(given[name]) else repr, places[name]))
        for name in sorted(keywords):
            if name in LAUNCH_OPTIONS and name not in (*LAUNCH_ONLY, *parameters):
                label.append(f"option {name}")
                parts.append((None, places[name]))
        return " ".join(label), parts


def _reading(array: Any) -> Read:
    """Reads the element type and the device of arrays of this type."""
    if isinstance(array, TensorDescriptor):
        return attrgetter("key", "device")
    reader = reader_of(array)
    if reader is None:
        return attrgetter("dtype") if hasattr(array, "dtype") else _element_in_memory
    return _element_and_device if reader.key is None else reader.key


def _element_and_device(array: Any) -> str:
    seen = view(array, "array")
    return place_of(seen.element, device_of(seen))


def _element_in_memory(array: Any) -> str:
    return str(as_array(array, "array").dtype)


def _constant(value: Any) -> Read:
    """Gives the default of a parameter that no argument has: the key is that of a launch that gives this value."""
    known = value if is_hashable(value) else repr(value)
    return lambda argument: known


def refused(bound: Mapping[str, Any]) -> bool:
    """Whether a launch rejects these arrays: some are on a GPU and others are not, or they are on several GPUs."""
    for value in bound.values():
        described = isinstance(value, TensorDescriptor)
        if value.host is not None if described else is_array(value) and reader_of(value) is None:
            return True
    return len(devices_of(bound.items())) > 1


def types_of(bound: Mapping[str, Any]) -> dict[str, str]:
    """The types of the arrays and descriptors among the arguments, by name."""
    types: dict[str, str] = {}
    for name, value in bound.items():
        if isinstance(value, TensorDescriptor):
            types[name] = str(value.type)
        elif value is not None and reader_of(value) is not None:
            types[name] = str(view(value, name).element)
    return types
