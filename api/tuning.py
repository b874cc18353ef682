"""Tuning: a kernel with several configurations, of which the fastest is found by measuring, once for each key.

    @zg.autotune(configs=[zg.Config({"BLOCK": 128}), zg.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
    @zg.kernel
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: zg.constexpr): …

    add[lambda meta: (zg.cdiv(n, meta["BLOCK"]),)](x, y, out, n)

On arrays in memory the first configuration is taken: the reference interpreter is no measure of speed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.arguments import bind
from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.kernels import Grid, Kernel

if TYPE_CHECKING:
    from ziggurat.backend.cuda.records import Record

Measure = Callable[[Callable[[], None]], float]

# Configurations whose times differ by less than this are as fast: the first of them is taken.
NOISE = 0.02


@attrs.frozen
class Config:
    """Values for some of a kernel's parameters, and the options of its compilation.

    `pre_hook(arguments)` is called before each launch with this configuration, with all arguments by name.
    """

    values: Mapping[str, Any]
    num_warps: int = attrs.field(default=4, kw_only=True)
    num_stages: int = attrs.field(default=3, kw_only=True)
    pre_hook: Callable[[dict[str, Any]], None] | None = attrs.field(default=None, kw_only=True, eq=False)

    keywords: dict[str, Any] = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(lambda self: _keywords(self), takes_self=True)
    )
    """What a launch with this configuration is given."""

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.keywords.items())


def _keywords(config: Config) -> dict[str, Any]:
    return {**config.values, "num_warps": config.num_warps, "num_stages": config.num_stages}


@attrs.frozen
class Tuning:
    """How a kernel is tuned; the parameters of `autotune`."""

    configs: tuple[Config, ...]
    key: tuple[str, ...]
    prune: Mapping[str, Any]
    reset_to_zero: tuple[str, ...]
    restore_value: tuple[str, ...]
    measure: Measure | None
    warmup: float
    rep: float
    use_cuda_graph: bool
    cache_results: bool
    quiet: bool
    processes: int | None


class TunedKernel(Kernel):
    """A kernel with configurations. `kernel.choices` has the chosen configuration for each key met so far, and
    `kernel.last` the record of the last tuning: times, and why configurations were left out."""

    def __init__(self, fn: Callable[..., Any], do_not_specialize: Iterable[str], tuning: Tuning) -> None:
        super().__init__(fn, do_not_specialize)
        self.tuning = tuning
        self.choices: dict[Any, Config] = {}
        self.last: Record | None = None
        self._names = list(self.signature.parameters)
        _demand(self, tuning)

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        return functools.partial(self._tuned, grid)

    def _tuned(self, grid: Grid, *arguments: Any, **keywords: Any) -> None:
        given = dict(zip(self._names, arguments, strict=False))
        given.update(keywords)
        arrays = [value for value in given.values() if type(value) not in _NUMBERS and hasattr(value, "dtype")]
        where = (*map(given.get, self.tuning.key), *map(_element, arrays), *map(type, arrays[:1]))
        try:
            config = self.choices.get(where)
        except TypeError:  # A list among the values of the key, for one.
            where = repr(where)
            config = self.choices.get(where)
        config = config or self._choose(where, grid, arguments, keywords, arrays)
        if config.pre_hook is not None:
            config.pre_hook({**given, **config.values})
        Kernel.__getitem__(self, grid)(*arguments, **keywords, **config.keywords)

    @public
    def _choose(
        self, where: Any, grid: Grid, arguments: Sequence[Any], keywords: dict[str, Any], arrays: Sequence[Any]
    ) -> Config:
        twice = [
            name for name in (*self._names[: len(arguments)], *keywords) if name in self.tuning.configs[0].keywords
        ]
        if twice:
            raise LaunchError(
                f"'{twice[0]}' of '{self.name}' is chosen by zg.autotune, and the launch gives it as well",
                hint=f"leave it out, or take '{twice[0]}' out of the configurations",
            )
        from ziggurat.backend.launch.arrays import on_gpu

        configs = self._pruned(arguments, keywords)
        if not any(map(on_gpu, arrays)):
            return configs[0]
        from ziggurat.tuner import Tuner

        tuner = Tuner(self, grid, arguments, keywords)
        self.last, config = tuner.choice(configs)
        self.choices[where] = config
        return config

    def _pruned(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Config]:
        """The configurations that the user's own pruning leaves."""
        configs, prune = list(self.tuning.configs), self.tuning.prune
        named = dict(zip(self._names, arguments, strict=False)) | keywords
        early: Callable[..., Iterable[Config]] | None = prune.get("early_config_prune")
        if early is not None:
            configs = list(early(configs, named, **keywords))
            if not configs:
                raise LaunchError(f"early_config_prune of '{self.name}' leaves no configuration")
        model: Callable[..., float] | None = prune.get("perf_model")
        top: float = prune.get("top_k", 1.0)
        if model is not None:
            count = int(len(configs) * top) if isinstance(top, float) and top <= 1.0 else int(top)
            if count < len(configs):
                estimated = sorted(configs, key=lambda config: model(**named, **config.keywords))
                kept = estimated[: max(1, count)]
                configs = [config for config in configs if config in kept]
        return configs

    def bound(self, arguments: Sequence[Any], keywords: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """All arguments of a launch by name, with those of a configuration."""
        own = {name: value for name, value in keywords.items() if name in self._names}
        return bind(self, arguments, {**own, **config.values})

    def say(self, text: str) -> None:
        """Tell the user, unless that is not wanted."""
        if not self.tuning.quiet:
            print(f"{self.name}: {text}", file=sys.stderr)


_NUMBERS = frozenset({int, float, bool, str, type(None)})


def _element(array: Any) -> Any:
    """What tells the element types of arrays of a library apart; of our own, a text, which is quicker than a dtype."""
    try:
        return array.element.name
    except AttributeError:
        return array.dtype


def autotune(
    configs: Iterable[Config],
    key: Iterable[str] = (),
    *,
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Iterable[str] = (),
    restore_value: Iterable[str] = (),
    measure: Measure | None = None,
    warmup: float = 25.0,
    rep: float = 100.0,
    use_cuda_graph: bool = False,
    cache_results: bool = True,
    quiet: bool = False,
    processes: int | None = None,
) -> Callable[[Any], Any]:
    """Decorator, above or below `@zg.kernel`: take the fastest of several configurations.

    They are measured at the first launch on a GPU with new values of the parameters named in `key`, or new dtypes, and
    the choice is kept on disk. Configurations that need more than the GPU has are left out, which is said on standard
    error unless `quiet`.

    `prune_configs_by` has, as Triton's: "early_config_prune", called with the configurations, the arguments by name and
    the keyword arguments, to give those that are to be kept; or "perf_model", called with all arguments by keyword to
    estimate a time, and "top_k", how many (or which share) of the best are measured. Arrays in `reset_to_zero` are set
    to zero before each run, those in `restore_value` get back their contents. `measure(run)` gives a time in place of
    `zg.testing.do_bench`, which gets `warmup`, `rep` (in milliseconds) and `use_cuda_graph`. `processes` compile.

    Raises `LaunchError` for what does not fit the kernel; at the launch, where no configuration is left.
    """
    tuning = Tuning(
        tuple(configs),
        tuple([key] if isinstance(key, str) else key),
        dict(prune_configs_by or {}),
        tuple(reset_to_zero),
        tuple(restore_value),
        measure,
        warmup,
        rep,
        use_cuda_graph,
        cache_results,
        quiet,
        processes,
    )

    def decorate(target: Any) -> Any:
        if isinstance(target, Kernel):
            return TunedKernel(target.fn, target.do_not_specialize, tuning)
        target.ziggurat_wrap = functools.partial(TunedKernel, tuning=tuning)  # `kernel` takes it from there.
        return target

    return decorate


def _demand(kernel: TunedKernel, tuning: Tuning) -> None:
    names = set(kernel.signature.parameters)
    if not tuning.configs:
        raise LaunchError(f"zg.autotune of '{kernel.name}' has no configurations", hint="configs=[zg.Config({…}), …]")
    for config in tuning.configs:
        if not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(f"a configuration of '{kernel.name}' is a zg.Config, got {config!r}")
        _known(kernel, names, config.values, "a configuration")
        if set(config.values) != set(tuning.configs[0].values):
            raise LaunchError(
                f"the configurations of '{kernel.name}' give values to different parameters: "
                f"({tuning.configs[0]}) and ({config})"
            )
    _known(kernel, names, tuning.key, "key")
    _known(kernel, names, tuning.reset_to_zero, "reset_to_zero")
    _known(kernel, names, tuning.restore_value, "restore_value")
    unknown = set(tuning.prune) - {"early_config_prune", "perf_model", "top_k"}
    if unknown:
        raise LaunchError(
            f"prune_configs_by of '{kernel.name}' has '{min(unknown)}'",
            hint="it takes early_config_prune, perf_model and top_k",
        )


def _known(kernel: Kernel, names: set[str], used: Iterable[str], where: str) -> None:
    for name in used:
        if name not in names:
            raise LaunchError(f"'{kernel.name}' has no parameter '{name}' (in {where})", hint=kernel.written)
