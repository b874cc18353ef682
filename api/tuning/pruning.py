"""Pruning of configurations by functions of the user: `prune_configs_by`."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from ziggurat.codemodel.op import require_argument
from ziggurat.tuning.config import Config


def check_top_k(top_k: Any, owner: str) -> None:
    """Raise `KernelTypeError` for a `top_k` that is neither a number of configurations nor a share of them."""
    fits = False
    if not isinstance(top_k, bool) and isinstance(top_k, numbers.Real):
        fits = int(top_k) >= 1 if isinstance(top_k, numbers.Integral) else 0 < float(top_k) <= 1
    meaning = "a number of configurations, 1 or more, or a share of them, above 0.0 and at most 1.0"
    require_argument(top_k, fits, f"{owner}: 'top_k' must be {meaning}")


def pruned(
    configs: Sequence[Config],
    prune: Mapping[str, Any],
    arguments: Mapping[str, Any],
    keywords: Mapping[str, Any],
    error: Callable[[Any], Exception],
) -> list[Config]:
    """The configurations that the functions of `prune` keep for a launch with these arguments: "early_config_prune"
    gives a list, and of "perf_model", which estimates times, the least are kept: "top_k" of them, or this share of all
    configurations, but one at least.

    Raises `error(result)` where the first function gives another thing than configurations.
    """
    early: Callable[..., Any] | None = prune.get("early_config_prune")
    choices = list(configs)
    if early is not None:
        result = early(configs, dict(arguments), **keywords)  # It may hand both on: `f(**arguments, **keywords)`.
        choices = list(cast("Iterable[Any]", result)) if isinstance(result, Iterable) else [result]
        if not choices or not all(isinstance(config, Config) for config in choices):
            raise error(choices if isinstance(result, Iterable) and not choices else result)
    model: Callable[..., float] | None = prune.get("perf_model")
    top_k: Any = prune.get("top_k", 1.0)
    count = int(top_k) if isinstance(top_k, numbers.Integral) else max(1, int(len(configs) * top_k))
    if model is None or len(choices) <= count:
        return choices
    estimates = [model(**{**arguments, **keywords}, **config.keywords) for config in choices]
    best = sorted(range(len(choices)), key=estimates.__getitem__)[:count]
    return [choices[place] for place in sorted(best)]
