"""Configurations of a tuned kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, checked_option

# The first of the configurations within this share of the fastest time is chosen, so that noise does not change it.
NOISE = 0.02


@attrs.frozen
class Config:
    """Values for some of a kernel's parameters, and the options of its compilation.

    `pre_hook(arguments)` is called before each launch with this configuration, with all arguments by name.
    """

    values: Mapping[str, Any]
    num_warps: int = DEFAULT_OPTIONS.num_warps
    num_stages: int = DEFAULT_OPTIONS.num_stages
    pre_hook: Callable[[dict[str, Any]], None] | None = attrs.field(default=None, kw_only=True, eq=False)

    keywords: dict[str, Any] = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(lambda self: _keywords(self), takes_self=True)
    )
    """The keywords that this configuration adds to a launch."""

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.keywords.items())


def _keywords(config: Config) -> dict[str, Any]:
    if not isinstance(config.values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(
            f"zg.Config takes a dict of values by parameter; got {config.values!r}", hint='zg.Config({"BLOCK": 128})'
        )
    options = {name: checked_option(name, getattr(config, name)) for name in ("num_warps", "num_stages")}
    return {**config.values, **options}
