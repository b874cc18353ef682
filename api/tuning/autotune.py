"""Tuning: a kernel with several configurations. The fastest is found by measuring, once for each key.

    @zg.autotune(configs=[zg.Config({"BLOCK": 128}), zg.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
    @zg.kernel
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: zg.constexpr): …

    add[lambda meta: (zg.cdiv(n, meta["BLOCK"]),)](x, y, out, n)

On arrays in memory the configurations are measured as native code. Where the reference interpreter runs the kernel, the
first one is used: it says nothing about speed.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import attrs

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.options import LAUNCH_OPTIONS, checked_option
from ziggurat.codemodel.op import require_argument
from ziggurat.frontends.language.signature import suggest
from ziggurat.kernels.arguments import bind
from ziggurat.kernels.heuristics import ComputedKernel, Heuristic, decorated
from ziggurat.kernels.kernel import Grid, Kernel
from ziggurat.tuning.pruning import check_top_k, fastest

if TYPE_CHECKING:
    from ziggurat.backend.cuda.cache import Record
    from ziggurat.tuning.tuner import Tuner

Hook = Callable[[dict[str, Any]], None]
Measure = Callable[[Callable[[], None]], float]


@attrs.frozen(init=False)
class Config:
    """Values for some of a kernel's parameters, and the options of its compilation; the compiler chooses those of None.

    `pre_hook(arguments)` is called before each launch with this configuration, with all arguments by name.
    """

    values: Mapping[str, Any]
    num_warps: int | None
    num_stages: int | None
    pre_hook: Hook | None = attrs.field(default=None, kw_only=True, eq=False)

    keywords: dict[str, Any] = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(lambda self: _keywords(self), takes_self=True)
    )
    """The keywords that this configuration adds to a launch."""

    def __init__(
        self, values: Mapping[str, Any] | None = None, num_warps: int | None = None,
        num_stages: int | None = None, *, pre_hook: Hook | None = None, **unknown: Any,
    ) -> None:  # fmt: skip
        for name in unknown:
            near = suggest(name, ("num_warps", "num_stages", "pre_hook"))
            raise LaunchError(f"zg.Config has no '{name}'", hint=near or f'zg.Config({{"{name}": …}})')
        init: Callable[..., None] = cast(Any, self).__attrs_init__
        init(values, num_warps, num_stages, pre_hook=pre_hook)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.keywords.items())


def _keywords(config: Config) -> dict[str, Any]:
    if not isinstance(config.values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(
            f"zg.Config: 'values' must be a dict of values by parameter; got {config.values!r}",
            hint='zg.Config({"BLOCK": 128})',
        )
    options = {name: getattr(config, name) for name in ("num_warps", "num_stages")}
    given = {name: checked_option(name, value) for name, value in options.items() if value is not None}
    return {**config.values, **given}


_PRUNING = "it has the keys early_config_prune, perf_model and top_k"


def _listed(configs: Iterable[Config]) -> tuple[Config, ...]:
    require_argument(configs, Iterable, "zg.autotune: 'configs' must be a list", 'configs=[zg.Config({"BLOCK": 128})]')
    return tuple(configs)


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    require_argument(given, Iterable, "zg.autotune: key, reset_to_zero and restore_value must be names of parameters")
    return (given,) if isinstance(given, str) else tuple(given)


def _settings(given: Mapping[str, Any] | None) -> dict[str, Any]:
    require_argument(given, (Mapping, type(None)), "zg.autotune: 'prune_configs_by' must be a dict", _PRUNING)
    return dict(given or {})


@attrs.frozen
class autotune:
    """Decorator, above or below `@zg.kernel`: launch with the fastest of several configurations.

    They are measured at the first launch with new values of the parameters named in `key`, or new dtypes, and
    the choice is kept on disk. Configurations that need more than the GPU has are left out, with a line on standard
    error for each unless `quiet`.

    `prune_configs_by` has, as Triton's: "early_config_prune", called with the configurations, the arguments by name and
    the keyword arguments, to return those to keep; or "perf_model", called with all arguments by keyword to
    estimate a time, and "top_k", how many (or which share) of the best are measured. Arrays in `reset_to_zero` are set
    to zero before each run, those in `restore_value` get back their contents. `measure(run)` gives a time in place of
    `zg.testing.do_bench`, which gets `warmup`, `rep` (in milliseconds) and `use_cuda_graph`. `processes` compile.

    Raises `LaunchError` for settings that do not fit the kernel, and at a launch if no configuration is left.
    """

    configs: tuple[Config, ...] = attrs.field(converter=_listed)
    key: tuple[str, ...] = attrs.field(default=(), converter=_names)
    prune_configs_by: dict[str, Any] = attrs.field(default=None, converter=_settings, kw_only=True)
    reset_to_zero: tuple[str, ...] = attrs.field(default=(), converter=_names, kw_only=True)
    restore_value: tuple[str, ...] = attrs.field(default=(), converter=_names, kw_only=True)
    measure: Measure | None = attrs.field(default=None, kw_only=True)
    warmup: float = attrs.field(default=25.0, kw_only=True)
    rep: float = attrs.field(default=100.0, kw_only=True)
    use_cuda_graph: bool = attrs.field(default=False, kw_only=True)
    cache_results: bool = attrs.field(default=True, kw_only=True)
    quiet: bool = attrs.field(default=False, kw_only=True)
    processes: int | None = attrs.field(default=None, kw_only=True)

    def __call__(self, target: Any) -> Any:
        """The tuned kernel of a kernel, or of a function that `zg.kernel` decorates next."""
        return decorated(target, "zg.autotune", TunedKernel, tuning=self)


class TunedKernel(ComputedKernel):
    """A kernel with configurations. `kernel.choices` has the chosen configuration for each key met so far, and
    `kernel.last` the record of the last tuning: times, and the reasons for configurations that were left out."""

    def __init__(
        self,
        fn: Callable[..., Any],
        do_not_specialize: Iterable[str],
        *,
        tuning: autotune,
        heuristics: Mapping[str, Heuristic] = MappingProxyType({}),
    ) -> None:
        super().__init__(fn, do_not_specialize, heuristics=heuristics)
        self.tuning = tuning
        self.choices: dict[Any, Config] = {}
        self.last: Record | None = None
        self._key: Callable[..., Any] = self._first_key
        _check(self, tuning)

    @property
    def wrap(self) -> functools.partial[Kernel]:
        return functools.partial(TunedKernel, tuning=self.tuning, heuristics=self.heuristics)

    def forget(self) -> None:
        super().forget()
        self.choices = {}

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        def launch(*arguments: Any, **keywords: Any) -> None:
            try:
                config = self.choices[self._key(arguments, keywords)]
            except Exception:  # A new key, or an array of another library that cannot be read.
                config = self._choose(grid, arguments, keywords)
            given = config.keywords
            if not given.keys().isdisjoint(keywords):
                self._choose(grid, arguments, keywords)  # It raises the error.
            if self.heuristics:
                given = {**given, **self.computed(arguments, keywords, given)}
            if config.pre_hook is not None:
                named = dict(zip(self._names, arguments, strict=False))
                config.pre_hook({**self.defaults, **named, **keywords, **given})
            Kernel.__getitem__(self, grid)(*arguments, **keywords, **given)

        return launch

    def known_choice(self, named: Mapping[str, Any]) -> Config:
        """The configuration that was chosen for these arguments by name, or the first where nothing was measured."""
        try:
            return self.choices[self._key((), named)]
        except Exception:  # As in a launch: no choice yet, or an array that cannot be read.
            return self._pruned((), dict(named))[0]

    def _first_key(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The key of the first launch on a GPU, for which the module that makes keys is imported."""
        from ziggurat.tuning.tuner import ChoiceKey

        self._key = ChoiceKey(self, self.tuning.key)
        return self._key(arguments, keywords)

    @public
    def _choose(self, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any]) -> Config:
        """The configuration for a launch whose key has no choice yet."""
        from ziggurat.backend.launch.arrays import on_gpu
        from ziggurat.backend.llvm import has_llvm
        from ziggurat.tuning.measuring import alone

        given = (*self._names[: len(arguments)], *keywords)
        twice = [name for name in given if name in self.tuning.configs[0].keywords]
        if twice:
            raise LaunchError(
                f"'{twice[0]}' of '{self.name}' is chosen by zg.autotune, and the launch gives it as well",
                hint=f"leave it out, or take '{twice[0]}' out of the configurations",
            )
        configs = self._pruned(arguments, keywords)
        bound = self.bound(arguments, keywords, configs[0])
        if not any(map(on_gpu, bound.values())):
            if not self.runs_natively(keywords) or not has_llvm():
                return configs[0]
            from ziggurat.tuning.host import HostTuner

            tuner: Tuner = HostTuner(self, grid, arguments, keywords)
        else:
            from ziggurat.tuning import tuner as on_gpus

            if on_gpus.refused(bound):
                return configs[0]  # The launch says why it takes no such arguments.
            tuner = on_gpus.Tuner(self, grid, arguments, keywords)
        key = self._key(arguments, keywords)
        with alone:
            if key not in self.choices:
                record, config = tuner.choice(configs)
                if record is None:
                    return config  # An empty grid is not measured.
                self.last, self.choices[key] = record, config
            return self.choices[key]

    def _pruned(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Config]:
        """The configurations that the user's pruning keeps."""
        configs, prune = list(self.tuning.configs), self.tuning.prune_configs_by
        named = dict(zip(self._names, arguments, strict=False)) | keywords
        early: Callable[..., Any] | None = prune.get("early_config_prune")
        if early is not None:
            kept = early(configs, named, **keywords)
            given = list(cast("Iterable[Any]", kept)) if isinstance(kept, Iterable) else [kept]
            configs = [config for config in given if isinstance(config, Config)]
            if len(configs) < len(given):
                raise LaunchError(
                    f"early_config_prune of '{self.name}' must give a list of configurations; got {kept!r}"
                )
            if not configs:
                raise LaunchError(f"early_config_prune of '{self.name}' leaves no configuration")
        model: Callable[..., float] | None = prune.get("perf_model")
        top: float = prune.get("top_k", 1.0)
        if model is not None:
            best = fastest(configs, lambda config: model(**named, **config.keywords), top, len(configs))
            configs = [config for config in configs if config in best]
        return configs

    def bound(self, arguments: Sequence[Any], keywords: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """All arguments of a launch by name, with those of a configuration and those that are computed from them.

        Raises `LaunchError` for arguments that the kernel does not take.
        """
        given = {**keywords, **config.keywords, **self.computed(arguments, keywords, config.keywords)}
        return bind(
            self,
            arguments,
            {name: value for name, value in given.items() if name in self._names or name not in LAUNCH_OPTIONS},
        )


def _check(kernel: TunedKernel, tuning: autotune) -> None:
    if not tuning.configs:
        raise LaunchError(
            f"zg.autotune of '{kernel.name}' must have configurations", hint="give configs=[zg.Config({…}), …]"
        )
    for config in tuning.configs:
        if not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(f"a configuration of '{kernel.name}' must be a zg.Config; got {shown(config)}")
        _known(kernel, config.values, "a configuration")
        if set(config.values) != set(tuning.configs[0].values):
            raise LaunchError(
                f"the configurations of '{kernel.name}' give values to different parameters: "
                f"({tuning.configs[0]}) and ({config})"
            )
    given = tuning.configs[0].keywords
    for name in kernel.heuristics:
        if name in given:
            raise LaunchError(
                f"'{name}' of '{kernel.name}' is computed by zg.heuristics, and the configurations give it as well",
                hint="leave it to one of them",
            )
        if name in tuning.key:
            raise LaunchError(
                f"'{name}' of '{kernel.name}' is computed by zg.heuristics; the key must name arguments of launches",
                hint="name the arguments in the key that it is computed from",
            )
    for setting in ("key", "reset_to_zero", "restore_value"):
        _known(kernel, getattr(tuning, setting), setting)
    unknown = set(tuning.prune_configs_by) - {"early_config_prune", "perf_model", "top_k"}
    if unknown:
        raise LaunchError(f"prune_configs_by of '{kernel.name}' has '{min(unknown)}'", hint=_PRUNING)
    counts = {"warmup": tuning.warmup, "rep": tuning.rep, "processes": tuning.processes}
    for name, value in {**counts, "measure": tuning.measure, **tuning.prune_configs_by}.items():
        if name == "top_k":
            check_top_k(value, "zg.autotune")
            continue
        fits = value is None or (isinstance(value, numbers.Real) if name in counts else callable(value))
        require_argument(value, fits, f"zg.autotune: '{name}' must be a {'number' if name in counts else 'function'}")


def _known(kernel: Kernel, used: Iterable[str], where: str) -> None:
    for name in used:
        if name not in kernel.signature.parameters:
            raise LaunchError(f"'{kernel.name}' has no parameter '{name}' (in {where})", hint=kernel.written)
