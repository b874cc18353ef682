"""One tuning: compile the configurations, leave out what does not fit, measure the rest, and write the choice down."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.backend.cuda.arrays import reader_of, view
from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.cache import Cache
from ziggurat.backend.cuda.driver import current_device, on_device
from ziggurat.backend.cuda.keys import compiler_contents, key, structure
from ziggurat.backend.cuda.records import Record, Records, chosen
from ziggurat.backend.cuda.saved import Region, Saved
from ziggurat.backend.cuda.specialize import Specialization
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, ResourceError, ZigguratError
from ziggurat.kernels import OPTIONS, Grid, Kernel
from ziggurat.launching import model_of
from ziggurat.progress import Progress
from ziggurat.workers import Job, compile_all

if TYPE_CHECKING:
    from ziggurat.tuning import Config, TunedKernel

# Options of a launch that kernels are not compiled for.
_NOT_COMPILED = ("stream", "check", "strict")


class Tuner:
    """A launch for which a configuration is to be chosen: a kernel, its grid and its arguments."""

    def __init__(self, kernel: TunedKernel, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any]) -> None:
        self.kernel, self.grid = kernel, grid
        self.arguments, self.keywords = arguments, keywords
        self.options = {
            name: value
            for name, value in keywords.items()
            if name in OPTIONS and name not in (*_NOT_COMPILED, *kernel.signature.parameters)
        }
        self.left_out: dict[str, ZigguratError] = {}

    def choice(self, configs: Sequence[Config]) -> tuple[Record, Config]:
        """The record of the choice, from disk or made now, and the configuration that it names.

        Raises `LaunchError` where none can be launched, naming the reason of each.
        """
        bound = self.kernel.bound(self.arguments, self.keywords, configs[0])
        arrays = {name: value for name, value in bound.items() if value is not None and reader_of(value) is not None}
        elements = {name: str(view(value, name).element) for name, value in arrays.items()}
        device = next((view(value, name).device for name, value in arrays.items()), None)
        by_name = {str(config): config for config in configs}
        with on_device(device):
            about = self._about(bound, elements, list(by_name))
            record = Records().get(about) if self.kernel.tuning.cache_results else None
            if record is None or record.config not in by_name:
                record = self._record(about, configs, arrays)
        return record, by_name[record.config]

    def _about(self, bound: dict[str, Any], elements: dict[str, str], configs: list[str]) -> dict[str, Any]:
        return {
            "kernel": self.kernel.name,
            "structure": structure(self.kernel.module),
            "key": {name: repr(bound[name]) for name in self.kernel.tuning.key},
            "types": elements,
            "options": {name: repr(value) for name, value in self.options.items()},
            "configs": configs,
            "device": current_device().name,
            "compiler": compiler_contents(),
        }

    def _record(self, about: dict[str, Any], configs: Sequence[Config], arrays: dict[str, Any]) -> Record:
        if len(configs) == 1:
            return Record(about, str(configs[0]), {})
        ready = self._compiled(configs)
        times = self._times(ready, arrays)
        for name, error in self.left_out.items():
            self.kernel.say(f"without {name}: {_reason(error)}")
        if not times:
            raise self._nothing_left()
        reasons = {name: _reason(error) for name, error in self.left_out.items()}
        from ziggurat.tuning import NOISE

        record = Record(about, chosen(times, NOISE), times, reasons)
        if self.kernel.tuning.cache_results:
            Records().put(record)
        return record

    def _compiled(self, configs: Sequence[Config]) -> list[Config]:
        """The configurations that could be compiled; the kernels are given to the dispatcher."""
        dispatcher, cache = self.kernel.dispatcher, Cache()
        jobs: list[tuple[Config, Specialization, str, Job]] = []
        failed: set[str] = set()
        for config in configs:
            bound = self.kernel.bound(self.arguments, self.keywords, config)
            options = {**self.options, "num_warps": config.num_warps, "num_stages": config.num_stages}
            try:
                spec = dispatcher.specialization(tuple(bound.values()), options)
                model = model_of(self.kernel, spec)
            except ZigguratError as error:
                self._leave_out(config, error)
                failed.add(str(config))
                continue
            digest = key(model, spec.target, options)
            binary = cache.get(digest)
            if binary is not None:
                dispatcher.offer(spec, binary)
            else:
                jobs.append((config, spec, digest, Job(model, spec.target, options, self.kernel.name)))
        progress = Progress(f"{self.kernel.name}: compiling", len(jobs))
        try:
            results = compile_all([job for *_, job in jobs], self.kernel.tuning.processes, progress.advance)
        finally:
            progress.close()
        for (config, spec, digest, _), result in zip(jobs, results, strict=True):
            if isinstance(result, Binary):
                cache.put(digest, result)
                dispatcher.offer(spec, result)
            else:
                self._leave_out(config, result)
                failed.add(str(config))
        return [config for config in configs if str(config) not in failed]

    def _times(self, configs: Sequence[Config], arrays: dict[str, Any]) -> dict[str, float]:
        """Milliseconds of each configuration that can be launched."""
        tuning = self.kernel.tuning
        measure = tuning.measure or self._do_bench
        saved = [Saved(arrays[name], name) for name in tuning.restore_value if name in arrays]
        zeroed = [Region(arrays[name], name) for name in tuning.reset_to_zero if name in arrays]

        def reset() -> None:
            for region in zeroed:
                region.zero()
            for region in saved:
                region.restore()

        times: dict[str, float] = {}
        progress = Progress(f"{self.kernel.name}: measuring", len(configs))
        try:
            for config in configs:
                try:
                    times[str(config)] = measure(functools.partial(self._run, config, reset))
                except (LaunchError, ResourceError) as error:
                    self._leave_out(config, error)
                except KernelRuntimeError as error:
                    error.summary += f" (tuning, with {config})"
                    raise
                progress.advance()
            reset()
        finally:
            progress.close()
        return times

    def _run(self, config: Config, reset: Callable[[], None]) -> None:
        reset()
        if config.pre_hook is not None:
            config.pre_hook(self.kernel.bound(self.arguments, self.keywords, config))
        Kernel.__getitem__(self.kernel, self.grid)(*self.arguments, **self.keywords, **config.keywords)

    def _do_bench(self, run: Callable[[], None]) -> float:
        from ziggurat.backend.cuda.testing import do_bench

        tuning = self.kernel.tuning
        return do_bench(run, warmup=tuning.warmup, rep=tuning.rep, graph=tuning.use_cuda_graph)

    def _leave_out(self, config: Config, error: ZigguratError) -> None:
        self.left_out[str(config)] = error

    def _nothing_left(self) -> ZigguratError:
        errors = list(self.left_out.values())
        if len({str(error) for error in errors}) == 1 and not isinstance(errors[0], LaunchError | ResourceError):
            return errors[0]  # It is not the configurations that are wrong.
        listed = "".join(f"\n  {name}: {_reason(error)}" for name, error in self.left_out.items())
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        return LaunchError(
            f"no configuration of '{self.kernel.name}' can be launched:{listed}",
            hint="; ".join(hints) or "add a configuration with smaller blocks",
        )


def _reason(error: ZigguratError) -> str:
    """What is wrong, in a line."""
    inner: Sequence[ZigguratError] = getattr(error, "errors", ())
    return (inner[0] if inner else error).summary.strip().partition("\n")[0]
