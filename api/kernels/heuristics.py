"""Parameters that follow from the other arguments of a launch: `zg.heuristics`.

@zg.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@zg.kernel
def add(x_ptr, out_ptr, n, BLOCK: zg.constexpr, EVEN: zg.constexpr): …

add[grid](x, out, n, BLOCK=1024)  # EVEN is computed
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import SHARED_OPTIONS
from ziggurat.frontends.language import Function
from ziggurat.kernels.kernel import Grid, Kernel

Heuristic = Callable[[dict[str, Any]], Any]


class ComputedKernel(Kernel):
    """A kernel that computes some of its parameters at each launch; `kernel.heuristics` has the functions by name."""

    def __init__(
        self, fn: Callable[..., Any], do_not_specialize: Iterable[str], *, heuristics: Mapping[str, Heuristic]
    ) -> None:
        super().__init__(fn, do_not_specialize)
        self.heuristics = dict(heuristics)
        self.defaults = {
            name: parameter.default
            for name, parameter in self.signature.parameters.items()
            if parameter.default is not parameter.empty
        }
        self._names = list(self.signature.parameters)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._not_computed = {name: value for name, value in self.defaults.items() if name not in self.heuristics}
        for name, heuristic in self.heuristics.items():
            if name not in self._names and name not in SHARED_OPTIONS:
                raise LaunchError(f"'{self.name}' has no parameter '{name}' (in zg.heuristics)", hint=self.written)
            if not callable(heuristic):
                raise LaunchError(
                    f"zg.heuristics of '{self.name}': '{name}' must be a function of the arguments; got {heuristic!r}",
                    hint=f'{{"{name}": lambda args: …}}',
                )

    @property
    def wrap(self) -> functools.partial[Kernel]:
        """The constructor of such a kernel from a function, for a decorator above."""
        return functools.partial(ComputedKernel, heuristics=self.heuristics)

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        if not self.heuristics:
            return super().__getitem__(grid)

        def launch(*arguments: Any, **keywords: Any) -> None:
            Kernel.__getitem__(self, grid)(*arguments, **keywords, **self.computed(arguments, keywords))

        return launch

    @public
    def computed(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any], chosen: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The computed values of a launch by name. `chosen` has the keywords that tuning adds.

        Each function gets the arguments by name, with those that were computed before. Raises `LaunchError` if one
        reads an argument that is missing, and if the launch gives a computed one.
        """
        values: dict[str, Any] = {}
        count = len(arguments)
        if not self.heuristics or count > len(self._names):
            return values  # The launch raises the error for too many arguments.
        seen = _Arguments(self._not_computed)
        seen.kernel = self
        seen.update(zip(self._names, arguments, strict=False))
        seen.update(keywords)
        if chosen:
            seen.update(chosen)
        for name, heuristic in self.heuristics.items():
            if name in keywords or self._places.get(name, count) < count:
                raise LaunchError(
                    f"'{name}' of '{self.name}' is computed by zg.heuristics, and the launch gives it as well",
                    hint=f"leave it out, or take '{name}' out of zg.heuristics",
                )
            seen.computing = name
            values[name] = seen[name] = heuristic(seen)
        return values


class _Arguments(dict[str, Any]):
    """The arguments of a launch by name, for heuristics."""

    kernel: ComputedKernel
    computing: str  # the parameter that is computed

    def __missing__(self, name: object) -> Any:
        kernel = self.kernel
        if name in kernel.heuristics:
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


class Undecorated:
    """A function under `zg.autotune` or `zg.heuristics` that becomes a kernel by a `zg.kernel` above them."""

    def __init__(self, fn: Callable[..., Any], wrap: functools.partial[Kernel]) -> None:
        self.fn, self.wrap = fn, wrap
        functools.update_wrapper(self, fn)

    def ziggurat_wrap(self, fn: Any, do_not_specialize: Iterable[str]) -> Kernel:
        """The kernel. `zg.kernel` calls this method of the object that it decorates."""
        return self.wrap(self.fn, do_not_specialize)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.fn(*arguments, **keywords)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        raise LaunchError(
            f"'{self.fn.__name__}' must be a kernel to be launched", hint="put @zg.kernel above or below its decorators"
        )


def decorated(target: Any, by: str, kind: type[ComputedKernel], **settings: Any) -> Any:
    """A kernel of `kind` from `target`, a kernel or a function, with these settings and those of the decorators below.
    `by` is the decorator's name, for messages."""
    if not callable(target) or (isinstance(target, Function) and not isinstance(target, Kernel)):
        got = f"'{target.name}' is a zg.function" if isinstance(target, Function) else f"got {target!r}"
        raise LaunchError(f"{by} must decorate a kernel; {got}", hint=f"@{by}(…) above @zg.kernel")
    if isinstance(target, ComputedKernel | Undecorated):
        before: Any = target.wrap
        kind = kind if issubclass(kind, before.func) else before.func
        # The outer decorator's values are computed first, as Triton's are.
        both = {**settings.get("heuristics", {}), **before.keywords.get("heuristics", {})}
        settings = {**before.keywords, **settings, "heuristics": both}
    wrap: functools.partial[Kernel] = functools.partial(kind, **settings)
    if isinstance(target, Kernel):
        return wrap(target.fn, target.do_not_specialize)
    return Undecorated(target.fn if isinstance(target, Undecorated) else target, wrap)


def heuristics(values: Mapping[str, Heuristic]) -> Callable[[Any], Any]:
    """Decorator, above or below `@zg.kernel` and `@zg.autotune`: compute parameters at each launch.

    `values` has a function for each, which gets a dict of the arguments by name: those of the launch, defaults, those
    of the chosen configuration, and those computed before it, in the order of `values`. A launch leaves these
    parameters out. The options num_warps, num_stages and exact_math can be computed as well.

    Raises `LaunchError` for names that are no parameters, and for parameters that the configurations give.
    """
    return functools.partial(_computed, values=values)


def _computed(target: Any, values: Mapping[str, Heuristic]) -> Any:
    if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(
            f"zg.heuristics: 'values' must be a dict of functions by parameter; got {values!r}",
            hint='zg.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})',
        )
    return decorated(target, "zg.heuristics", ComputedKernel, heuristics=values)
