"""`triton.autotune` and `triton.heuristics`: parameters that are measured, and parameters that are computed."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs

from ziggurat.codemodel.errors import ResourceError, TargetError, ZigguratError, warn
from ziggurat.frontends.triton.errors import as_triton
from ziggurat.triton import knobs
from ziggurat.triton.compiler.errors import CompileTimeAssertionFailure
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.errors import AutotunerError, OutOfResources, PTXASError
from ziggurat.triton.runtime.jit import JITFunction, KernelInterface
from ziggurat.tuning.pruning import check_top_k, fastest

if TYPE_CHECKING:
    from ziggurat.backend.cuda.cache import Record
    from ziggurat.triton.compiler.compiled import CompiledKernel
    from ziggurat.tuning.tuner import ChoiceKey

_INFINITE = [float("inf")] * 3
_QUANTILES = (0.5, 0.2, 0.8)


@attrs.define(eq=False, repr=False, slots=False)
class Config:
    """Values for parameters of a kernel, and options of its launch. `pre_hook(arguments)` is called before each launch
    with this configuration, with all arguments by name."""

    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    pre_hook: Callable[[dict[str, Any]], Any] | None = None
    ir_override: str | None = None

    def all_kwargs(self) -> dict[str, Any]:
        """The keywords that this configuration adds to a launch."""
        names = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
        options = {name: getattr(self, name) for name in names}
        return {**self.kwargs, **{name: value for name, value in options.items() if value is not None}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the attributes of a pickle, which may lack some, and have others that a program set."""
        self.__init__({})
        vars(self).update(state)

    def _identity(self) -> tuple[Any, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        names = ("num_warps", "num_ctas", "num_stages", "maxnreg")
        shown = {**self.kwargs, **{name: getattr(self, name) for name in names}}
        return ", ".join(f"{name}: {value}" for name, value in shown.items())

    __repr__ = __str__


class _Decorated(KernelInterface):
    """A kernel under a decorator. It has the names of the Python function, and a pickle holds its qualified name."""

    __name__: str
    __qualname__: str

    def __init__(self, fn: Any, arg_names: Sequence[str]) -> None:
        self.fn = fn
        self.arg_names = arg_names
        self.base_fn = _function_of(fn)
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(self, name, getattr(self.base_fn, name, ""))

    def __reduce__(self) -> str:
        return self.__qualname__


class _Launching(threading.local):
    """The state of a tuner's launches by one thread."""

    nargs: dict[str, Any] | None = None
    restore_steps: Sequence[Callable[[], Any]] = ()


class Autotuner(_Decorated):
    """A kernel with configurations. The fastest is found by measuring, once for each key, by one thread at a time.

    `cache` has the chosen configuration by key, `best_config` that of the last launch, `configs_timings` the
    milliseconds of each (median, 20 % and 80 % quantile) at the last measuring. While a thread prunes and measures,
    `nargs` has the positional arguments of its launch by name. Where the interpreter runs the kernel, nothing is
    measured, and the first configuration is chosen, unless a `do_bench` is given.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        super().__init__(fn, arg_names)
        self.configs = list(configs) or [Config({})]
        self.keys = [key] if isinstance(key, str) else list(key)
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        self.pre_hook: Callable[..., Any] = pre_hook or self._reset
        self.post_hook: Callable[..., Any] = post_hook or self._restore
        prune = dict(prune_configs_by or {})
        self.perf_model: Callable[..., float] | None = prune.get("perf_model")
        self.configs_top_k: float = prune.get("top_k", 1.0)
        if self.perf_model is not None:
            self._check_top_k()
        self.early_config_prune: Callable[..., Any] | None = prune.get("early_config_prune")
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self.cache_results = cache_results or bool(knobs.autotuning.cache)
        self.configs_timings: dict[Config, Any] = {}
        self.bench_time = 0.0
        self._launching = _Launching()
        self.best_config: Config | None = None
        self._do_bench = do_bench
        self._chosen: dict[Any, Config] = {}
        self._key: ChoiceKey | None = None

    @property
    def do_bench(self) -> Callable[..., Any]:
        """The function that measures a call and gives quantiles of its milliseconds."""
        if self._do_bench is not None:
            return self._do_bench
        if self.num_warmups is None and self.num_reps is None and not self.use_cuda_graph:
            return driver.active.get_benchmarker()
        from ziggurat.triton import testing

        rep = 100 if self.num_reps is None else self.num_reps
        if self.use_cuda_graph:
            return functools.partial(testing.do_bench_cudagraph, rep=rep)
        return functools.partial(testing.do_bench, warmup=25 if self.num_warmups is None else self.num_warmups, rep=rep)

    @property
    def nargs(self) -> dict[str, Any] | None:
        return self._launching.nargs

    @nargs.setter
    def nargs(self, named: dict[str, Any] | None) -> None:
        self._launching.nargs = named

    @contextlib.contextmanager
    def _naming(self, args: Sequence[Any]) -> Generator[dict[str, Any]]:
        """Name the positional arguments in `nargs`."""
        before = self.nargs
        self.nargs = named = dict(zip(self.arg_names, args, strict=False))
        try:
            yield named
        finally:
            self.nargs = before

    def _reset(self, kwargs: Mapping[str, Any], reset_only: bool = False) -> None:
        from ziggurat.tuning.measuring import restoring, zeroing

        # A parameter that no argument names has its default, which is no array.
        arguments = {**dict.fromkeys(self.arg_names), **kwargs}
        for zero in zeroing(arguments, self.reset_to_zero):
            zero()
        if not reset_only:
            self._launching.restore_steps = restoring(arguments, self.restore_value)

    def _restore(self, kwargs: Mapping[str, Any], exception: Exception | None) -> None:
        steps, self._launching.restore_steps = self._launching.restore_steps, ()
        for restore in steps:
            restore()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the fastest configuration for these arguments, or compile only with `warmup`."""
        if len(self.configs) == 1:
            return self._launch(self.configs[0], args, kwargs)
        try:
            assert self._key is not None
            config = self._chosen[self._key(args, kwargs)]
        except Exception:  # A new key, or arguments that only the launch can read.
            config = None
        if config is not None:
            return self._launch(config, args, kwargs)
        key = self._cache_key(args, kwargs)
        from ziggurat.tuning.measuring import alone

        # The launch too: a tuning in another thread would give an array that both use its former contents.
        with contextlib.nullcontext() if key in self.cache else alone:
            return self._launch(self._choose(key, args, kwargs), args, kwargs)

    def _launch(self, config: Config, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        self.best_config = config
        given = config.all_kwargs()
        _require_apart(kwargs, given)
        if config.pre_hook is not None:
            config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **given})
        return self.fn.run(*args, **kwargs, **given)

    def _cache_key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        arguments = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        named = {name: value for name, value in arguments.items() if name in self.arg_names}
        dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
        return (*(named[name] for name in self.keys if name in named), *dtypes)

    def _choose(self, key: tuple[Any, ...], args: Sequence[Any], kwargs: dict[str, Any]) -> Config:
        """The configuration for a key, which is measured where the key is new."""
        if key not in self.cache:
            with self._naming(args) as named:
                self.cache[key] = self._measured(key, args, kwargs)
                if self.user_defined_pre_hook or self.reset_to_zero:
                    self.pre_hook({**named, **kwargs, **self.cache[key].all_kwargs()}, reset_only=True)
        config = self.cache[key]
        self._remember(args, kwargs, config)
        return config

    def _remember(self, args: Sequence[Any], kwargs: dict[str, Any], config: Config) -> None:
        """Keep the choice under a key that is quick to make."""
        from ziggurat.tuning.tuner import ChoiceKey

        if self._key is None:
            self._key = ChoiceKey(_kernel_of(self.fn), self.keys)
        try:
            self._chosen[self._key(args, kwargs)] = config
        except Exception:  # Tensors in this machine's memory have no such key.
            return

    def _measured(self, key: tuple[Any, ...], args: Sequence[Any], kwargs: dict[str, Any]) -> Config:
        """The fastest configuration, from disk or measured now."""
        _require_apart(kwargs, {name for config in self.configs for name in config.kwargs})
        configs = self.prune_configs(kwargs)
        here = driver.active.get_current_target().backend == "cpu"
        if self._do_bench is None and here and not _kernel_of(self.fn).runs_natively(kwargs):
            return configs[0]
        start = time.time()
        kept = self._kept(key, configs) if self.cache_results else None
        if kept is not None:
            return kept
        self._compile_ahead(configs, args, kwargs)
        timings = {config: self._bench(*args, config=config, **kwargs) for config in configs}
        self.configs_timings, self.bench_time = timings, time.time() - start
        best = min(timings, key=timings.__getitem__)
        if knobs.autotuning.print:
            print(
                f"Triton autotuning for function {self.__name__},\nwith key as {key},\n"
                f"finished after {self.bench_time:.2f}s,\nbest config selected: {best};"
            )
        if self.cache_results:
            self._keep(key, configs, best)
        return best

    def _compile_ahead(self, configs: Sequence[Config], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compile the configurations in several processes. One that fails says so when it is measured."""
        from ziggurat.triton.compiler.compiled import compile_ahead

        if driver.active.get_current_target().backend == "cpu" or not hasattr(self.fn, "prepared"):
            return
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        prepared: list[CompiledKernel] = []
        for config in configs:
            chosen = config.all_kwargs()
            if config.pre_hook is not None:
                config.pre_hook({**(self.nargs or {}), **given, **chosen})
            with contextlib.suppress(ZigguratError, TypeError, ValueError):
                prepared.append(self.fn.prepared(*args, **given, **chosen))
        compile_ahead(prepared)

    def _bench(self, *args: Any, config: Config, **meta: Any) -> Any:
        """The milliseconds of a configuration; infinite for one that the GPU cannot run. A warning has the words of an
        assembler that rejects its code."""
        if knobs.autotuning.print:
            print(f"Autotuning kernel {self.__name__} with config {config}")
        current = {**meta, **config.all_kwargs()}
        named = {**dict(zip(self.arg_names, args, strict=False)), **current}

        def call() -> None:
            if config.pre_hook is not None:
                config.pre_hook(named)
            self.pre_hook(named)
            try:
                self.fn.run(*args, **current)
            except Exception as error:
                self.post_hook(named, exception=error)
                raise
            self.post_hook(named, exception=None)

        try:
            return self.do_bench(call, quantiles=_QUANTILES)
        except (ResourceError, CompileTimeAssertionFailure, TargetError) as error:
            if isinstance(error, TargetError):
                warn(f"'{self.__name__}' is not launched with {config}: {error}", _kernel_of(self.fn).place)
            if knobs.autotuning.print:
                print(f"Autotuning failed with {error}")
            return _INFINITE

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """The configurations that the functions of `prune_configs_by` keep."""
        named, configs = self.nargs or {}, list(self.configs)
        if self.early_config_prune is not None:
            configs = self.early_config_prune(self.configs, named, **kwargs)
            if not configs:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return at least one config."
                )
        if self.perf_model is None:
            return configs
        self._check_top_k()
        model = self.perf_model
        return fastest(
            configs,
            lambda config: model(**named, **kwargs, **config.all_kwargs()),
            self.configs_top_k,
            len(self.configs),
        )

    def _check_top_k(self) -> None:
        try:
            check_top_k(self.configs_top_k, "triton.autotune")
        except ZigguratError as error:
            raise as_triton(error) from None

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compile all configurations for arguments."""
        with self._naming(args):
            return [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in self.prune_configs(kwargs)]

    # The choices on disk.

    def _about(self, key: tuple[Any, ...], configs: Sequence[Config]) -> dict[str, Any]:
        from ziggurat.backend.cuda.keys import compiler_version
        from ziggurat.triton._C.libtriton import get_cache_invalidating_env_vars

        base = _kernel_of(self.fn)
        return {
            "kernel": base.name,
            "structure": base.cache_key,
            "key": {str(place): repr(value) for place, value in enumerate(key)},
            "types": {},
            "options": get_cache_invalidating_env_vars(),
            "configs": list(map(str, configs)),
            "device": str(driver.active.get_current_target()),
            "compiler": compiler_version(by_contents=True),
        }

    def _kept(self, key: tuple[Any, ...], configs: Sequence[Config]) -> Config | None:
        """The choice on disk. Hooks cannot be written, so that configurations with hooks are measured each time."""
        if any(config.pre_hook is not None for config in configs):
            return None
        record = _records().get(self._about(key, configs))
        return None if record is None else next((one for one in configs if str(one) == record.config), None)

    def _keep(self, key: tuple[Any, ...], configs: Sequence[Config], best: Config) -> None:
        from ziggurat.backend.cuda.cache import Record

        if any(config.pre_hook is not None for config in configs):
            return
        medians = {str(one): _median(given) for one, given in self.configs_timings.items()}
        times = {name: median for name, median in medians.items() if median < float("inf")}
        record: Record = Record(self._about(key, configs), str(best), times)
        _records().put(record)


def _median(given: Any) -> float:
    return float(cast("Sequence[Any]", given)[0] if isinstance(given, (list, tuple)) else given)


def _records() -> Any:
    """The choices on disk, beside the kernels."""
    from ziggurat.backend.cuda.cache import Records
    from ziggurat.triton.compiler.compiled import cache_of_knobs

    return Records(cache_of_knobs().directory / "choices")


def _function_of(fn: Any) -> Any:
    """The Python function under decorators."""
    while hasattr(fn, "fn"):
        fn = fn.fn
    return fn


def _require_apart(given: Mapping[str, Any], tuned: Collection[str]) -> None:
    """Raise `ValueError`, in Triton's words, where a launch gives what a configuration decides."""
    conflicts = [name for name in given if name in tuned]
    if conflicts:
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define auto-tuned "
            "symbols."
        )


def _kernel_of(fn: Any) -> JITFunction:
    """The kernel under decorators."""
    while not isinstance(fn, JITFunction):
        fn = fn.fn
    return fn


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Decorator of a kernel: launch with the fastest of several configurations, measured for each value of the
    parameters that `key` names and each dtype of tensors.

    `prune_configs_by` may have "early_config_prune", "perf_model" and "top_k". Tensors in `reset_to_zero` are set to
    zero before each measured launch, those in `restore_value` get back their contents after it. `pre_hook` and
    `post_hook` are called around each. `do_bench(call, quantiles)` measures. `cache_results` keeps choices on disk.
    """
    given = locals()

    def decorator(fn: Any) -> Autotuner:
        return Autotuner(fn, fn.arg_names, **given)

    return decorator


class Heuristics(_Decorated):
    """A kernel that computes some of its parameters at each launch."""

    def __init__(
        self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        super().__init__(fn, arg_names)
        self.values = values

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the computed parameters."""
        return self.fn.run(*args, **self._computed(args, kwargs))

    def prepared(self, *args: Any, **kwargs: Any) -> CompiledKernel:
        """The kernel for arguments, to be compiled; see `JITFunction.prepared`."""
        return self.fn.prepared(*args, **self._computed(args, kwargs))

    def _computed(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = dict(zip(self.arg_names, args, strict=False))
        for name, heuristic in self.values.items():
            kwargs[name] = heuristic({**named, **kwargs})
        return kwargs


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorator of a kernel: compute parameters at each launch, from a dict of the other arguments by name."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)


__all__ = [
    "Autotuner", "AutotunerError", "Config", "Heuristics", "OutOfResources", "PTXASError", "autotune", "driver",
    "heuristics",
]  # fmt: skip
