"""`Tuned`: a kernel whose launches lack parameters, which are measured or computed.

Every language has this one tuner. A configuration is chosen by measuring, once for each key; heuristics compute further
parameters from the arguments of each launch. `zg.autotune` and `zg.heuristics` make a `TunedKernel`, `triton.autotune`
and `triton.heuristics` an `Autotuner` and a `Heuristics`: views with the attributes and the errors of their language.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import attrs

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, ResourceError, TargetError, ZigguratError
from ziggurat.codemodel.gpu.options import LAUNCH_ONLY
from ziggurat.codemodel.op import require_argument
from ziggurat.codemodel.passes import Pass
from ziggurat.kernels.arguments import bind, leaves
from ziggurat.kernels.kernel import Grid, Kernel
from ziggurat.tuning.config import Config
from ziggurat.tuning.measuring import alone, measuring, restoring, zeroing
from ziggurat.tuning.pruning import pruned

if TYPE_CHECKING:
    from ziggurat.backend.cache.records import Records, TuningRecord
    from ziggurat.tuning.tuner import Compilation, Tuner

Heuristic = Callable[[dict[str, Any]], Any]
Measure = Callable[[Callable[[], None]], Any]

PRUNING = "it has the keys early_config_prune, perf_model and top_k"


def _config_list(configs: Iterable[Config]) -> list[Config]:
    require_argument(configs, Iterable, "zg.autotune: 'configs' must be a list", 'configs=[zg.Config({"BLOCK": 128})]')
    return list(configs)


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    require_argument(names, Iterable, "zg.autotune: key, reset_to_zero and restore_value must be names of parameters")
    return (names,) if isinstance(names, str) else tuple(names)


def _settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    require_argument(settings, (Mapping, type(None)), "zg.autotune: 'prune_configs_by' must be a dict", PRUNING)
    return dict(settings or {})


@attrs.define(eq=False)
class Tuning:
    """The configurations of a kernel and the settings of their choice; see `zg.autotune`."""

    configs: list[Config] = attrs.field(converter=_config_list)
    key: tuple[str, ...] = attrs.field(default=(), converter=_names)
    prune_configs_by: dict[str, Any] = attrs.field(default=None, converter=_settings, kw_only=True)
    reset_to_zero: tuple[str, ...] = attrs.field(default=(), converter=_names, kw_only=True)
    restore_value: tuple[str, ...] = attrs.field(default=(), converter=_names, kw_only=True)
    measure: Measure | None = attrs.field(default=None, kw_only=True)
    warmup: float | None = attrs.field(default=25.0, kw_only=True)
    rep: float | None = attrs.field(default=100.0, kw_only=True)
    use_cuda_graph: bool = attrs.field(default=False, kw_only=True)
    cache_results: bool = attrs.field(default=True, kw_only=True)
    quiet: bool = attrs.field(default=False, kw_only=True)
    processes: int | None = attrs.field(default=None, kw_only=True)
    group: Any = attrs.field(default=None, kw_only=True)


class _OfThread(threading.local):
    """The state of a tuner's launches by one thread."""

    config: Config | None = None
    nargs: dict[str, Any] | None = None
    contents: Sequence[Callable[[], Any]] | None = None  # Give arrays the contents before the measured launches.


class Tuned:
    """A kernel with configurations, with parameters that are computed, or both. `tuned[grid](…)` launches it.

    `cache` has the chosen configuration for each key, `last` the record of the last tuning: the milliseconds of each
    configuration, and the reason for each that was left out. Threads may launch it: they tune one after another.
    """

    # A configuration whose launch raises one of these is left out.
    unfit: tuple[type[ZigguratError], ...] = (LaunchError, ResourceError, TargetError)
    # With no configuration left, launch the first, which raises its own error; the reasons are raised otherwise.
    launches_unfit = False
    decorator = "zg.autotune"
    # The settings of the process that compiled code depends on.
    environment: Callable[[], dict[str, str]] = staticmethod(dict[str, str])
    __name__: str
    __qualname__: str

    def __init__(
        self,
        kernel: Any,
        tuning: Tuning | None = None,
        heuristics: Mapping[str, Heuristic] = MappingProxyType({}),
        names: Iterable[str] | None = None,
    ) -> None:
        self.kernel = kernel
        self.tuning = tuning
        self.heuristics = dict(heuristics)
        self.cache: dict[Any, Config] = {}
        self.last: TuningRecord | None = None
        self._names = [*(kernel.signature.parameters if names is None else names)]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._thread = _OfThread()
        self._latest: Config | None = None
        self._plain: Self | None = None  # The kernel without passes, of one that has some.
        # The keys of `cache` by keys that are quick to make.
        self._keys: dict[Any, Any] = {}
        self._key: Callable[..., Any] = self._first_key
        function = kernel
        while hasattr(function, "fn"):
            function = function.fn
        self.base_fn: Any = function  # The Python function under all decorators.
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(self, name, getattr(function, name, None))

    @property
    def base(self) -> Kernel:
        """The kernel under all decorators."""
        kernel = self.kernel
        while not isinstance(kernel, Kernel):
            kernel = kernel.fn
        return kernel

    @property
    def layers(self) -> Iterator[Tuned]:
        """The decorators of the kernel, the outermost first."""
        kernel = self
        while isinstance(kernel, Tuned):
            yield kernel
            kernel = kernel.kernel

    @public
    def with_passes(self, *passes: Pass | tuple[str, Pass], at: str = "triton") -> Self:
        """This kernel with passes of one's own, and with its own choices; see `Kernel.with_passes`."""
        tuned = object.__new__(type(self))
        vars(tuned).update(vars(self), kernel=self.kernel.with_passes(*passes, at=at), _plain=self._plain or self)
        tuned.cache, tuned._keys, tuned._key = {}, {}, tuned._first_key
        tuned.last = tuned._latest = None
        tuned._thread = _OfThread()
        return tuned

    def __reduce__(self) -> Any:
        if self._plain is None:
            return self.__qualname__
        from ziggurat.kernels.own_passes import derived

        return derived, (self._plain, self.base.passes)

    @functools.cached_property
    def signature(self) -> Any:
        return self.base.signature

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the parameters."""
        parameters = self.signature.parameters.items()
        return {name: parameter.default for name, parameter in parameters if parameter.default is not parameter.empty}

    @property
    def best_config(self) -> Config | None:
        """The configuration of the last launch by this thread; where it made none, of the last launch by any."""
        return self._thread.config or self._latest

    @best_config.setter
    def best_config(self, config: Config | None) -> None:
        self._thread.config = self._latest = config

    # Launches.

    def __getitem__(self, grid: Grid, choice: Config | None = None) -> Callable[..., Any]:
        """The launcher over a grid, with this configuration if there is one."""
        tuning = self.tuning
        if tuning is None:
            return lambda *arguments, **keywords: self.kernel[grid](
                *arguments, **{**keywords, **self.computed(arguments, keywords)}
            )

        if choice is None and len(tuning.configs) == 1:
            choice = tuning.configs[0]

        def launch(*arguments: Any, **keywords: Any) -> Any:
            config = choice
            if config is None:
                try:
                    config = self.cache[self._keys[self._key(arguments, keywords)]]
                except Exception:  # A new key, or an array of another library that cannot be read.
                    return self._first_launch(grid, arguments, keywords)
            settings = config.keywords
            if not settings.keys().isdisjoint(keywords):
                self.check_apart((), keywords, settings)
            self._latest = self._thread.config = config
            if self.heuristics:
                settings = {**settings, **self.computed(arguments, keywords, settings)}
            if config.pre_hook is not None:
                config.pre_hook(self.named(arguments, {**keywords, **settings}))
            return self.kernel[grid](*arguments, **keywords, **settings)

        return launch

    @public
    def _first_launch(self, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Launch where the configuration of the key is not known, or the key cannot be made quickly."""
        tuning = self.tuning
        assert tuning is not None
        self.check_apart(arguments, keywords, {name: None for config in tuning.configs for name in config.keywords})
        config = self._choice(arguments, keywords)
        if config is not None:
            return self._launch(config, grid, arguments, keywords)
        with alone:
            config = self._choice(arguments, keywords)
            if config is None:
                configs = self.pruned(arguments, keywords)
                tuner, config = self._tuner(grid, arguments, keywords, configs[0]), configs[0]
                if tuner is not None:
                    # The launch too: a tuning in another thread would give an array that both use its former contents.
                    return self._launch(self._tune(tuner, configs), grid, arguments, keywords)
        return self._launch(config, grid, arguments, keywords)

    def _launch(self, config: Config, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        return Tuned.__getitem__(self, grid, config)(*arguments, **keywords)

    def named(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a launch by name, defaults included."""
        return {**self.defaults, **dict(zip(self._names, arguments, strict=False)), **keywords}

    def check_apart(self, arguments: Sequence[Any], keywords: Mapping[str, Any], tuned: Iterable[str]) -> None:
        """Raise an error where a launch gives what a configuration decides."""
        for name in tuned:
            if name in keywords or self._places.get(name, len(arguments)) < len(arguments):
                raise LaunchError(
                    f"'{name}' of '{self.base.name}' is chosen by {self.decorator}, and the launch gives it as well",
                    hint=f"leave it out, or take '{name}' out of the configurations",
                )

    @public
    def computed(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any], settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The computed values of a launch by name. `settings` has the keywords that tuning adds.

        Each function gets the arguments by name, with those that were computed before. Raises `LaunchError` if one
        reads an argument that is missing, and if the launch gives a computed one.
        """
        values: dict[str, Any] = {}
        count = len(arguments)
        if not self.heuristics or count > len(self._names):
            return values  # The launch raises the error for too many arguments.
        bound = _Arguments({name: value for name, value in self.defaults.items() if name not in self.heuristics})
        bound.tuned = self
        bound.update(zip(self._names, arguments, strict=False))
        bound.update(keywords)
        if settings:
            bound.update(settings)
        for name, heuristic in self.heuristics.items():
            if name in keywords or self._places.get(name, count) < count:
                raise LaunchError(
                    f"'{name}' of '{self.base.name}' is computed by zg.heuristics, and the launch gives it as well",
                    hint=f"leave it out, or take '{name}' out of zg.heuristics",
                )
            bound.computing = name
            values[name] = bound[name] = heuristic(bound)
        return values

    def added(self, arguments: Sequence[Any], keywords: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """The keywords that a configuration and the heuristics add to a launch."""
        settings = dict(config.keywords)
        for layer in self.layers:
            settings |= layer.computed(arguments, keywords, settings)
        return settings

    def bound(self, arguments: Sequence[Any], keywords: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """All arguments of the kernel by name. Raises `LaunchError` for arguments that the kernel does not take."""
        kernel, names = self.base, self.signature.parameters
        all_keywords = {**keywords, **self.added(arguments, keywords, config)}
        try:
            kernel.rules.check_options(kernel, {name: value for name, value in keywords.items() if name not in names})
            values = {name: value for name, value in all_keywords.items() if name in names}
            return bind(kernel, arguments, values, at_launch=True)
        except ZigguratError as error:
            raise kernel.rules.explained(kernel, error) from None

    # Choices.

    def _first_key(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The key of the first launch, for which the module that makes keys is imported."""
        from ziggurat.tuning.keys import ChoiceKey

        assert self.tuning is not None
        self._key = ChoiceKey(self, self.tuning.key)
        return self._key(arguments, keywords)

    def key_of(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The key of a launch in `cache`. Raises the error of an array that cannot be read."""
        return self._key(arguments, keywords)

    def _choice(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Config | None:
        """The configuration that was chosen for the key of a launch."""
        try:
            config = self.cache.get(self.key_of(arguments, keywords))
        except Exception:  # As in a launch.
            return None
        if config is not None:
            self._remember(arguments, keywords)
        return config

    def _remember(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Keep the key of a launch under one that is quick to make."""
        with contextlib.suppress(Exception):  # Tensors in this machine's memory may have no such key.
            self._keys[self._key(arguments, keywords)] = self.key_of(arguments, keywords)

    def known_settings(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords that a launch with these arguments by name lacks: those of the configuration that was chosen
        for them, or of the first where nothing was measured, and those that are computed. A launch that gives a tuned
        parameter has no configuration."""
        settings: dict[str, Any] = {}
        for layer in self.layers:
            tuning = layer.tuning
            if tuning is not None and not arguments.keys() & tuning.configs[0].kwargs:
                config = layer._choice((), arguments)
                if config is None:  # No launch says which arguments are keywords.
                    by = tuning.prune_configs_by
                    config = pruned(tuning.configs, by, arguments, arguments, layer.empty)[0]
                settings |= config.keywords
            if not layer.heuristics.keys() <= arguments.keys():
                others = {name: value for name, value in arguments.items() if name not in layer.heuristics}
                settings |= layer.computed((), others, settings)
        return {name: value for name, value in settings.items() if name not in arguments}

    def pruned(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Config]:
        """The configurations that the user's pruning keeps."""
        assert self.tuning is not None
        bound = dict(zip(self._names, arguments, strict=False))
        return pruned(self.tuning.configs, self.tuning.prune_configs_by, bound, keywords, self.empty)

    def empty(self, configs: Any) -> ZigguratError:
        """The error of a pruning that gives these in the place of configurations."""
        if isinstance(configs, list) and not configs:
            return LaunchError(f"early_config_prune of '{self.base.name}' leaves no configuration")
        return LaunchError(
            f"early_config_prune of '{self.base.name}' must give a list of configurations; got {configs!r}"
        )

    def _tuner(self, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any], config: Config) -> Tuner | None:
        """The tuner of a launch on a GPU or here; None where nothing is measured: by the interpreter, and for
        arguments that the launch refuses."""
        from ziggurat.backend.llvm.binding import has_llvm

        bound, kernel = self.bound(arguments, keywords, config), self.base
        if kernel.rules.runs_here(kernel, leaves(bound.values())):
            if not kernel.runs_natively(keywords) or not has_llvm():
                return None
            from ziggurat.tuning.host import HostTuner

            return HostTuner(self, grid, arguments, keywords)
        from ziggurat.tuning import tuner
        from ziggurat.tuning.keys import refused

        return None if refused(bound) else tuner.Tuner(self, grid, arguments, keywords)

    def _tune(self, tuner: Tuner, configs: list[Config]) -> Config:
        """The fastest configuration, from disk or measured now. That of an empty grid is not kept."""
        arguments, keywords = tuner.arguments, tuner.keywords
        with measuring():
            record, config = tuner.choice(configs)
        if record is not None:
            self.last = record
            self.cache[self.key_of(arguments, keywords)] = config
            self._remember(arguments, keywords)
        return config

    # Measured launches.

    has_hooks = False

    def pre_hook(self, arguments: Mapping[str, Any], reset_only: bool = False) -> Any:
        """Set arrays to zero before a measured launch, and keep the contents of others; or set to zero alone."""
        assert self.tuning is not None
        bound = {**dict.fromkeys(self._names), **arguments}
        for zero in zeroing(bound, self.tuning.reset_to_zero):
            zero()
        if not reset_only:
            self._keep(bound)

    def _keep(self, bound: Mapping[str, Any]) -> None:
        """Keep the contents of arrays for `post_hook`, before the first measured launch."""
        assert self.tuning is not None
        if self._thread.contents is None:
            self._thread.contents = restoring(bound, self.tuning.restore_value)

    def post_hook(self, arguments: Mapping[str, Any], exception: Exception | None) -> Any:
        """Give arrays their contents back after a measured launch."""
        for restore in self._thread.contents or ():
            restore()

    def measured(
        self, config: Config, grid: Grid, arguments: Sequence[Any], keywords: Mapping[str, Any], measure: Measure
    ) -> Any:
        """The time that `measure` gives for launches with a configuration. Raises the errors of the launch."""
        current = {**keywords, **config.keywords, **self.computed(arguments, keywords, config.keywords)}
        bound = self.named(arguments, current)

        def run() -> None:
            if config.pre_hook is not None:
                config.pre_hook(bound)
            self.pre_hook(bound)
            self._keep({**dict.fromkeys(self._names), **bound})  # Where a program has its own hook.
            try:
                self.kernel[grid](*arguments, **current)
            except Exception as error:
                self.post_hook(bound, exception=error)
                raise
            self.post_hook(bound, exception=None)

        before, self._thread.contents = self._thread.contents, None  # A hook may launch this kernel itself.
        try:
            return measure(run)
        finally:
            self._thread.contents = before

    def compilation(self, config: Config, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Compilation | None:
        """The compilation of a configuration for a GPU in another process; None where there is nothing to compile."""
        from ziggurat.tuning.tuner import compilation_of

        bound = self.bound(arguments, keywords, config)
        all_keywords = {**keywords, **self.added(arguments, keywords, config)}
        options = {name: value for name, value in all_keywords.items() if name not in bound and name not in LAUNCH_ONLY}
        return compilation_of(self.base, bound, options)

    @staticmethod
    def median(times: Any) -> Any:
        """The milliseconds among the result of a function that measures."""
        return times

    # Records on disk.

    @property
    def is_quiet(self) -> bool:
        """Whether the reasons of configurations that are left out are not written to standard error."""
        return self.tuning is None or self.tuning.quiet

    @property
    def records(self) -> Records:
        from ziggurat.backend.cache.records import Records

        return Records()


class _Arguments(dict[str, Any]):
    """The arguments of a launch by name, for heuristics."""

    tuned: Tuned
    computing: str  # the parameter that is computed

    def __missing__(self, name: object) -> Any:
        kernel = self.tuned.base
        if name in self.tuned.heuristics:
            raise LaunchError(
                f"the heuristic of '{self.computing}' of '{kernel.name}' reads '{name}', which is not computed yet",
                hint=f"write '{name}' before '{self.computing}'",
            )
        if name in kernel.signature.parameters:
            raise LaunchError(f"'{kernel.name}' needs '{name}'", hint=kernel.written)
        raise LaunchError(
            f"the heuristic of '{self.computing}' of '{kernel.name}' reads {name!r}, which is no argument of it",
            hint=f"it has {', '.join(map(repr, self))}",
        )
