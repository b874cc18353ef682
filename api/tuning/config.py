"""Configurations: values for parameters of a kernel, and options of its compilation."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import checked_option
from ziggurat.frontends.language.signature import suggest

Hook = Callable[[dict[str, Any]], Any]
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")


class Config:
    """Values for some of a kernel's parameters, `kwargs`, and options of its compilation; the compiler chooses those of
    None.

    `pre_hook(arguments)` is called before each launch with this configuration, with all arguments by name.
    """

    def __init__(
        self, kwargs: Mapping[str, Any] | None = None, num_warps: int | None = None, num_stages: int | None = None,
        num_ctas: int | None = None, maxnreg: int | None = None, pre_hook: Hook | None = None,
        ir_override: str | None = None, **unknown: Any,
    ) -> None:  # fmt: skip
        if "values" in unknown:
            kwargs = unknown.pop("values")
            _warn_of_values()
        for name in unknown:
            hint = suggest(name, (*_OPTIONS, "pre_hook")) or f'zg.Config({{"{name}": …}})'
            raise LaunchError(f"zg.Config has no '{name}'", hint=hint)
        if not isinstance(kwargs, Mapping):
            raise LaunchError(
                f"zg.Config: 'kwargs' must be a dict of values by parameter; got {kwargs!r}",
                hint='zg.Config({"BLOCK": 128})',
            )
        self.kwargs, self.pre_hook = dict(kwargs), pre_hook
        self.num_warps, self.num_stages, self.num_ctas = num_warps, num_stages, num_ctas
        self.maxnreg, self.ir_override = maxnreg, ir_override
        self.check()

    def check(self) -> None:
        """Bring the options into one spelling. Raises `LaunchError` for values that they cannot have."""
        for name in _OPTIONS:
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, checked_option(name, value))

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.pop("keywords", None)
        super().__setattr__(name, value)

    def all_kwargs(self) -> dict[str, Any]:
        """The keywords that this configuration adds to a launch."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        return {**self.kwargs, **{name: value for name, value in options.items() if value is not None}}

    @functools.cached_property
    def keywords(self) -> dict[str, Any]:
        """`all_kwargs`, which each launch reads."""
        return self.all_kwargs()

    @property
    def values(self) -> dict[str, Any]:
        """The former name of `kwargs`."""
        _warn_of_values()
        return self.kwargs

    def _identity(self) -> tuple[Any, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the attributes of a pickle, which may lack some, and have others that a program set."""
        self.__init__({})
        vars(self).update(state)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.all_kwargs().items())

    def __repr__(self) -> str:
        return f"Config({self})"


def _warn_of_values() -> None:
    warnings.warn("'values' of zg.Config is now called 'kwargs', as in Triton", DeprecationWarning, stacklevel=3)


def labelled(configs: list[Any]) -> dict[str, Any]:
    """The configurations by their text, which gets a number where it occurs again: hooks are not part of it."""
    labels: dict[str, Any] = {}
    for config in configs:
        label = text = str(config)
        number = 1
        while label in labels:
            number += 1
            label = f"{text} (number {number})"
        labels[label] = config
    return labels
