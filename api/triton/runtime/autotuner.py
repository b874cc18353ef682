"""`triton.autotune` and `triton.heuristics`: `ziggurat.tuning` with Triton's settings, attributes and errors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ziggurat.codemodel.errors import ResourceError, StaticAssertionError, TargetError, ZigguratError, warn
from ziggurat.frontends.triton.triton_errors import as_triton
from ziggurat.triton import knobs
from ziggurat.triton._C.libtriton import get_cache_invalidating_env_vars
from ziggurat.triton.runtime import triton_options
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.errors import AutotunerError, OutOfResources, PTXASError
from ziggurat.triton.runtime.hooks import NotCompiled
from ziggurat.triton.runtime.interface import KernelInterface
from ziggurat.triton.runtime.tensors import MockTensor
from ziggurat.tuning import config as configurations
from ziggurat.tuning.pruning import check_top_k
from ziggurat.tuning.tuned import Tuned, Tuning

if TYPE_CHECKING:
    from ziggurat.backend.cache.records import Records
    from ziggurat.tuning.tuned import Measure
    from ziggurat.tuning.tuner import Compilation, Tuner

_INFINITE = [float("inf")] * 3
_QUANTILES = (0.5, 0.2, 0.8)


class Config(configurations.Config):
    """Values for parameters of a kernel, and options of its launch. `pre_hook(arguments)` is called before each launch
    with this configuration, with all arguments by name. Options that only earlier releases have, such as
    `num_consumer_groups`, have no effect, of which a warning tells."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        ir_override: str | None = None,
        **earlier: Any,
    ) -> None:
        for name in earlier:
            if name not in triton_options.OF_EARLIER_RELEASES:
                raise TypeError(f"Config.__init__() got an unexpected keyword argument '{name}'")
        triton_options.check(earlier, None)
        super().__init__(kwargs, num_warps, num_stages, num_ctas, maxnreg, pre_hook, ir_override)

    def check(self) -> None:
        """Nothing: a launch checks the options."""

    @property
    def keywords(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.all_kwargs()  # Programs change `kwargs`.

    def __str__(self) -> str:
        # A kept choice names its configuration by this text.
        names = ("num_warps", "num_ctas", "num_stages", "maxnreg", *(("ir_override",) if self.ir_override else ()))
        settings = {**self.kwargs, **{name: getattr(self, name) for name in names}}
        return ", ".join(f"{name}: {value}" for name, value in settings.items())

    __repr__ = __str__


class _Decorated(Tuned, KernelInterface):
    """A kernel under a decorator of Triton's: it is launched by `run` as well."""

    unfit = (ResourceError, StaticAssertionError, TargetError)
    launches_unfit = True
    decorator = "triton.autotune"
    environment = staticmethod(get_cache_invalidating_env_vars)

    def __init__(self, fn: Any, arg_names: Sequence[str], *settings: Any) -> None:
        super().__init__(fn, *settings, names=arg_names)

    @property
    def fn(self) -> Any:
        """The kernel below the decorator."""
        return self.kernel

    @fn.setter
    def fn(self, kernel: Any) -> None:
        self.kernel = kernel
        vars(self).pop("signature", None)

    @property
    def arg_names(self) -> list[str]:
        return self._names

    @arg_names.setter
    def arg_names(self, names: Sequence[str]) -> None:
        self._names = [*names]

    def __getitem__(self, grid: Any, config: Any = None) -> Callable[..., Any]:
        if getattr(self.run, "__func__", None) is not _RUN:  # That of a subclass, or of a tool that looks on.
            return functools.partial(self.run, grid=grid, warmup=False)
        return Tuned.__getitem__(self, grid)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or compile only."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return Tuned.__getitem__(self, grid)(*args, **kwargs)


_RUN: Final = _Decorated.run


def _setting(name: str, doc: str, kind: Callable[[Any], Any] = lambda value: value) -> Any:
    """A property for a setting of the tuning."""

    def get(self: Autotuner) -> Any:
        return kind(getattr(self.tuning, name))

    return property(get, lambda self, value: setattr(self.tuning, name, value), doc=doc)


def _pruning(name: str, default: Any = None) -> Any:
    """A property for a function or a number of `prune_configs_by`."""

    def get(self: Autotuner) -> Any:
        return self.tuning.prune_configs_by.get(name, default)

    return property(get, lambda self, value: self.tuning.prune_configs_by.update({name: value}))


class Autotuner(_Decorated):
    """A kernel with configurations; see `ziggurat.tuning.tuned.Tuned`.

    `cache` has the chosen configuration by key, `best_config` that of the last launch of this thread, `configs_timings`
    the milliseconds of each (median, 20 % and 80 % quantile) at the last measuring. While a thread prunes and measures,
    `nargs` has the positional arguments of its launch by name. Where the interpreter runs the kernel, nothing is
    measured, and the first configuration is chosen.
    """

    tuning: Tuning

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
        settings = Tuning(
            list(configs) or [Config({})],
            key,
            prune_configs_by=prune_configs_by,
            reset_to_zero=reset_to_zero or (),
            restore_value=restore_value or (),
            measure=do_bench,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            cache_results=cache_results or bool(knobs.autotuning.cache),
        )
        super().__init__(fn, arg_names, settings)
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        if pre_hook is not None:
            self.pre_hook = pre_hook
        if post_hook is not None:
            self.post_hook = post_hook
        if self.perf_model is not None:
            try:
                check_top_k(self.configs_top_k, self.decorator)
            except ZigguratError as error:
                raise as_triton(error) from None
        self.configs_timings: dict[Any, Any] = {}
        self.bench_time = 0.0

    configs = _setting("configs", "The configurations.")
    keys = _setting("key", "The parameters whose new values start a tuning.", list)
    reset_to_zero = _setting("reset_to_zero", "The arrays that are set to zero before measured launches.", list)
    restore_value = _setting("restore_value", "The arrays whose contents measured launches leave.", list)
    num_warmups = _setting("warmup", "Milliseconds of calls before those that are timed.")
    num_reps = _setting("rep", "Milliseconds of calls that are timed.")
    use_cuda_graph = _setting("use_cuda_graph", "Whether calls are timed in a CUDA graph.")
    cache_results = _setting("cache_results", "Whether choices are kept on disk.")
    perf_model = _pruning("perf_model")
    early_config_prune = _pruning("early_config_prune")
    configs_top_k = _pruning("top_k", 1.0)

    @property
    def has_hooks(self) -> bool:
        return self.user_defined_pre_hook or self.user_defined_post_hook

    @functools.cached_property
    def do_bench(self) -> Callable[..., Any]:
        """The function that measures a call and gives quantiles of its milliseconds. Programs assign another."""
        if self.tuning.measure is not None:
            return self.tuning.measure
        if self.num_warmups is None and self.num_reps is None and not self.use_cuda_graph:
            return driver.active.get_benchmarker()
        from ziggurat.triton import testing

        rep = 100 if self.num_reps is None else self.num_reps
        if self.use_cuda_graph:
            return functools.partial(testing.do_bench_cudagraph, rep=rep)
        return functools.partial(testing.do_bench, warmup=25 if self.num_warmups is None else self.num_warmups, rep=rep)

    @property
    def nargs(self) -> dict[str, Any] | None:
        return self._thread.nargs

    @nargs.setter
    def nargs(self, arguments: dict[str, Any] | None) -> None:
        self._thread.nargs = arguments

    @contextlib.contextmanager
    def _naming(self, args: Sequence[Any]) -> Generator[None]:
        """Name the positional arguments in `nargs`."""
        before = self.nargs
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        try:
            yield
        finally:
            self.nargs = before

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compile all configurations for arguments."""
        with self._naming(args):
            return [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in self.prune_configs(kwargs)]

    def _first_launch(self, grid: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        with self._naming(arguments):
            return super()._first_launch(grid, arguments, keywords)

    def check_apart(self, arguments: Sequence[Any], keywords: Mapping[str, Any], tuned: Iterable[str]) -> None:
        conflicts = [name for name in keywords if name in {*tuned}]
        if conflicts:
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define auto-tuned "
                "symbols."
            )

    def key_of(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        bound = {**dict(zip(self.arg_names, arguments, strict=False)), **keywords}
        values = {name: value for name, value in bound.items() if name in self.arg_names}
        dtypes = [str(value.dtype) for value in values.values() if hasattr(value, "dtype")]
        return (*(values[name] for name in self.keys if name in values), *dtypes)

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Any]:
        """The configurations that the functions of `prune_configs_by` keep, for the arguments of `nargs`."""
        return self.pruned([*(self.nargs or {}).values()], dict(kwargs))

    def empty(self, configs: Any) -> ZigguratError:
        return AutotunerError(
            "No valid autotuner configs after pruning. `early_config_prune` should return at least one config."
        )

    def _tune(self, tuner: Tuner, configs: list[Any]) -> Any:
        config = super()._tune(tuner, configs)
        if tuner.seconds:
            labels = tuner.labels.items()
            self.configs_timings = {config: tuner.times.get(label, _INFINITE) for label, config in labels}
            self.bench_time = tuner.seconds
            if knobs.autotuning.print:
                print(
                    f"Triton autotuning for function {self.__name__},\n"
                    f"with key as {self.key_of(tuner.arguments, tuner.keywords)},\n"
                    f"finished after {self.bench_time:.2f}s,\nbest config selected: {config};"
                )
        if knobs.autotuning.listener is not None:
            is_kept = not tuner.seconds
            knobs.autotuning.listener(
                fn=self.base,
                key=self.key_of(tuner.arguments, tuner.keywords),
                best_config=config,
                configs_timings={} if is_kept else self.configs_timings,
                duration=None if is_kept else self.bench_time,
                cache_hit=is_kept,
            )
        return config

    def measured(
        self, config: Any, grid: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], measure: Measure
    ) -> Any:
        if knobs.autotuning.print:
            print(f"Autotuning kernel {self.__name__} with config {config}")
        try:
            return super().measured(
                config, grid, arguments, keywords, lambda run: self.do_bench(run, quantiles=_QUANTILES)
            )
        except TargetError as error:
            warn(f"'{self.__name__}' is not launched with {config}: {error}", self.base.place)
            raise

    def _bench(self, *args: Any, config: Config, grid: Any = None, warmup: bool = False, **meta: Any) -> Any:
        """The milliseconds of a configuration; infinite for one that cannot be launched. Subclasses call this."""
        try:
            return self.measured(config, grid, args, meta, self.do_bench)
        except self.unfit as error:
            if knobs.autotuning.print:
                print(f"Autotuning failed with {error}")
            return _INFINITE

    @staticmethod
    def median(times: Any) -> Any:
        return cast("Any", times)[0] if isinstance(times, (list, tuple)) else times

    def compilation(self, config: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Compilation | None:
        if config.pre_hook is not None:
            config.pre_hook(self.named(arguments, {**keywords, **config.all_kwargs()}))
        kernel: Any = self.base
        try:
            return super().compilation(config, arguments, kernel.debugged(keywords))
        except (NotCompiled, TypeError, ValueError):  # The launch says the same.
            return None

    @property
    def is_quiet(self) -> bool:
        return not knobs.autotuning.print

    @property
    def records(self) -> Records:
        """The choices on disk, beside the kernels."""
        from ziggurat.backend.cache.records import Records
        from ziggurat.triton.compiler.compiled_kernel import cache_of_knobs

        return Records(cache_of_knobs().directory / "choices")


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
    settings = locals()

    def decorator(fn: Any) -> Autotuner:
        return Autotuner(fn, fn.arg_names, **settings)

    return decorator


class Heuristics(_Decorated):
    """A kernel that computes some of its parameters at each launch."""

    def __init__(
        self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        super().__init__(fn, arg_names, None, values)

    @property
    def values(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """The functions by parameter."""
        return self.heuristics

    def computed(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any], settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The computed values of a launch, by name; they replace values that the launch gives, as in Triton."""
        bound = {**dict(zip(self.arg_names, arguments, strict=False)), **keywords, **(settings or {})}
        for name, heuristic in self.values.items():
            bound[name] = heuristic(bound)
        return {name: bound[name] for name in self.values}

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile for arguments without a launch."""
        arguments = [*map(MockTensor.wrap_dtype, args)]
        return self.fn.run(*arguments, grid=grid, warmup=True, **{**kwargs, **self.computed(arguments, kwargs)})


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorator of a kernel: compute parameters at each launch, from a dict of the other arguments by name."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)


__all__ = [
    "Autotuner", "AutotunerError", "Config", "Heuristics", "OutOfResources", "PTXASError", "autotune", "driver",
    "heuristics",
]  # fmt: skip
