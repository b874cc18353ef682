"""Pruning of configurations by estimated times: `top_k` of `prune_configs_by`."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ziggurat.codemodel.op import require_argument

C = TypeVar("C")


def check_top_k(top_k: Any, owner: str) -> None:
    """Raise `KernelTypeError` for a `top_k` that is neither a number of configurations nor a share of them."""
    fits = False
    if not isinstance(top_k, bool) and isinstance(top_k, numbers.Real):
        fits = int(top_k) >= 1 if isinstance(top_k, numbers.Integral) else 0 < float(top_k) <= 1
    meaning = "a number of configurations, 1 or more, or a share of them, above 0.0 and at most 1.0"
    require_argument(top_k, fits, f"{owner}: 'top_k' must be {meaning}")


def fastest(configs: Sequence[C], estimate: Callable[[C], float], top_k: float, total: int) -> list[C]:
    """The configurations with the least estimated times, the least first: `top_k` of them, or this share of `total`,
    but one at least. Estimates nothing, and keeps the order, where that is all of them."""
    count = int(top_k) if isinstance(top_k, numbers.Integral) else max(1, int(total * top_k))
    return list(configs) if len(configs) <= count else sorted(configs, key=estimate)[:count]
