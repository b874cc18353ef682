"""Ranks of a process group that tune together: all of them make one choice, and their launches are in step."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from ziggurat.codemodel.errors import LaunchError, shown

_MAX_REPEATS = 50


class Ranks:
    """The ranks of a process group of PyTorch; this process alone where there is none. All ranks call each method in
    the same order."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        if group is not None and not isinstance(group, _distributed().ProcessGroup):
            raise LaunchError(
                f"'group' of zg.autotune must be a process group of PyTorch; got {shown(group)}",
                hint="group=torch.distributed.group.WORLD, after init_process_group",
            )

    def all(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank. They must be pickled."""
        if self._group is None:
            return [value]
        dist = _distributed()
        values: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(values, value, group=self._group)
        return values

    def most(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The highest number of all ranks for each name."""
        most: dict[str, float] = {}
        for rank in self.all(dict(numbers)):
            most |= {name: max(number, most.get(name, number)) for name, number in rank.items()}
        return most

    def bench(self, run: Callable[[], None], rep: float, once: Callable[[Callable[[], None]], float]) -> float:
        """The milliseconds of a call, by as many calls on each rank, for about `rep` milliseconds. `once` measures a
        fixed number of calls."""
        times = [once(run)]
        each = max(self.all(times[0]))
        times += [once(run) for _ in range(min(_MAX_REPEATS, int(rep / max(5 * each, 1e-3))))]
        return statistics.median(times)


def _distributed() -> Any:
    return importlib.import_module("torch.distributed")
