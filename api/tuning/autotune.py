"""Tuning: a kernel with several configurations. The fastest is found by measuring, once for each key.

    @zg.autotune(configs=[zg.Config({"BLOCK": 128}), zg.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
    @zg.kernel
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: zg.constexpr): …

    add[lambda meta: (zg.cdiv(n, meta["BLOCK"]),)](x, y, out, n)

On arrays in memory the configurations are measured as native code. Where the reference interpreter runs the kernel, the
first one is used: it says nothing about speed. `zg.heuristics` computes parameters that follow from others:

    @zg.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @zg.kernel
    def add(x_ptr, out_ptr, n, BLOCK: zg.constexpr, EVEN: zg.constexpr): …

    add[grid](x, out, n, BLOCK=1024)  # EVEN is computed
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.options import SHARED_OPTIONS
from ziggurat.codemodel.op import require_argument
from ziggurat.frontends.language import Function
from ziggurat.kernels.arguments import require_parameters
from ziggurat.kernels.kernel import Kernel
from ziggurat.tuning.config import Config
from ziggurat.tuning.pruning import check_top_k
from ziggurat.tuning.tuned import PRUNING, Heuristic, Tuned, Tuning


class autotune(Tuning):
    """Decorator, above or below `@zg.kernel`: launch with the fastest of several configurations.

    They are measured at the first launch with new values of the parameters named in `key`, or new dtypes, and
    the choice is kept on disk. Configurations that need more than the GPU has are left out, with a line on standard
    error for each unless `quiet`.

    `prune_configs_by` has, as Triton's: "early_config_prune", called with the configurations, the arguments by name and
    the keyword arguments, to return those to keep; or "perf_model", called with all arguments by keyword to
    estimate a time, and "top_k", how many (or which share) of the best are measured. Arrays in `reset_to_zero` are set
    to zero before each run and before the first launch, those in `restore_value` get back their contents.
    `measure(run)` gives a time in place of `zg.testing.do_bench`, which gets `warmup`, `rep` (in milliseconds) and
    `use_cuda_graph`. `processes` compile. With a `group`, a process group of PyTorch, all its ranks launch together:
    they measure in step, so that their kernels may wait for each other, and the slowest rank counts.

    Raises `LaunchError` for settings that do not fit the kernel, and at a launch if no configuration is left.
    """

    def __call__(self, target: Any) -> Any:
        """The tuned kernel of a kernel, or of a function that `zg.kernel` decorates next."""
        return _decorated(target, "zg.autotune", self, {})


def heuristics(values: Mapping[str, Heuristic]) -> Callable[[Any], Any]:
    """Decorator, above or below `@zg.kernel` and `@zg.autotune`: compute parameters at each launch.

    `values` has a function for each, which gets a dict of the arguments by name: those of the launch, defaults, those
    of the chosen configuration, and those computed before it, in the order of `values`. A launch leaves these
    parameters out. The options num_warps, num_stages and exact_math can be computed as well.

    Raises `LaunchError` for names that are no parameters, and for parameters that the configurations give.
    """

    def decorate(target: Any) -> Any:
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(
                f"zg.heuristics: 'values' must be a dict of functions by parameter; got {values!r}",
                hint='zg.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})',
            )
        return _decorated(target, "zg.heuristics", None, values)

    return decorate


class TunedKernel(Tuned):
    """A kernel under `zg.autotune` or `zg.heuristics`, with the attributes of the kernel: `model`, `compile` …

    `tuning` has the configurations, `choices` the chosen one for each key so far, `heuristics` the functions that
    compute parameters, and `last` the record of the last tuning: times, and the reasons for configurations that were
    left out.
    """

    def __init__(self, kernel: Kernel, tuning: Tuning | None, heuristics: Mapping[str, Heuristic]) -> None:
        super().__init__(kernel, tuning, heuristics)
        _check_heuristics(self)
        if tuning is not None:
            _check(self, tuning)

    @property
    def choices(self) -> dict[Any, Config]:
        return self.cache

    def forget(self) -> None:
        """Forget the choices, and what the kernel was compiled to."""
        self.kernel.forget()
        self.cache.clear()

    def __getattr__(self, name: str) -> Any:
        if name == "kernel":  # There is none yet.
            raise AttributeError(name)
        return getattr(self.kernel, name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.kernel(*arguments, **keywords)

    def __repr__(self) -> str:
        return repr(self.kernel)


class Undecorated:
    """A function under `zg.autotune` or `zg.heuristics` that becomes a kernel by a `zg.kernel` above them."""

    def __init__(self, fn: Callable[..., Any], tuning: Tuning | None, heuristics: Mapping[str, Heuristic]) -> None:
        self.fn, self.tuning, self.heuristics = fn, tuning, heuristics
        functools.update_wrapper(self, fn)

    def ziggurat_wrap(self, fn: Any, do_not_specialize: Iterable[str]) -> TunedKernel:
        """The kernel. `zg.kernel` calls this method of the object that it decorates."""
        return TunedKernel(Kernel(self.fn, do_not_specialize), self.tuning, self.heuristics)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.fn(*arguments, **keywords)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        raise LaunchError(
            f"'{self.fn.__name__}' must be a kernel to be launched", hint="put @zg.kernel above or below its decorators"
        )


def _decorated(target: Any, by: str, tuning: Tuning | None, heuristics: Mapping[str, Heuristic]) -> Any:
    """The kernel of `target`, a kernel or a function, with this tuning and these heuristics, and with those of the
    decorators below. `by` is the decorator's name, for messages."""
    if not callable(target) or (isinstance(target, Function) and not isinstance(target, Kernel)):
        got = f"'{target.name}' is a zg.function" if isinstance(target, Function) else f"got {target!r}"
        raise LaunchError(f"{by} must decorate a kernel; {got}", hint=f"@{by}(…) above @zg.kernel")
    if isinstance(target, TunedKernel | Undecorated):
        # The outer decorator's values are computed first, as Triton's are.
        heuristics = {**heuristics, **target.heuristics}
        tuning = tuning or target.tuning
        target = target.kernel if isinstance(target, TunedKernel) else target.fn
    if isinstance(target, Kernel):
        return TunedKernel(target, tuning, heuristics)
    return Undecorated(target, tuning, heuristics)


def _check_heuristics(kernel: TunedKernel) -> None:
    for name, heuristic in kernel.heuristics.items():
        if name not in SHARED_OPTIONS:
            require_parameters(kernel.base, [name], "zg.heuristics")
        if not callable(heuristic):
            raise LaunchError(
                f"zg.heuristics of '{kernel.name}': '{name}' must be a function of the arguments; got {heuristic!r}",
                hint=f'{{"{name}": lambda args: …}}',
            )


def _check(kernel: TunedKernel, tuning: Tuning) -> None:
    if not tuning.configs:
        raise LaunchError(
            f"zg.autotune of '{kernel.name}' must have configurations", hint="give configs=[zg.Config({…}), …]"
        )
    for config in tuning.configs:
        if not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(f"a configuration of '{kernel.name}' must be a zg.Config; got {shown(config)}")
        require_parameters(kernel.base, config.kwargs, "a configuration")
        if set(config.kwargs) != set(tuning.configs[0].kwargs):
            raise LaunchError(
                f"the configurations of '{kernel.name}' give values to different parameters: "
                f"({tuning.configs[0]}) and ({config})"
            )
    keywords = tuning.configs[0].keywords
    for name in kernel.heuristics:
        if name in keywords:
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
        require_parameters(kernel.base, getattr(tuning, setting), setting)
    unknown = set(tuning.prune_configs_by) - {"early_config_prune", "perf_model", "top_k"}
    if unknown:
        raise LaunchError(f"prune_configs_by of '{kernel.name}' has '{min(unknown)}'", hint=PRUNING)
    counts = {"warmup": tuning.warmup, "rep": tuning.rep, "processes": tuning.processes}
    for name, value in {**counts, "measure": tuning.measure, **tuning.prune_configs_by}.items():
        if name == "top_k":
            check_top_k(value, "zg.autotune")
            continue
        fits = value is None or (isinstance(value, numbers.Real) if name in counts else callable(value))
        require_argument(value, fits, f"zg.autotune: '{name}' must be a {'number' if name in counts else 'function'}")
