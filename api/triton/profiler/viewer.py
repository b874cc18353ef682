"""`triton.profiler.viewer`: the files of the profiler as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_PREFIXES: Final = {"t": 1e-12, "g": 1e-9}


def parse(metrics: Sequence[str], filename: str, **settings: Any) -> tuple[dict[str, Any], list[str]]:
    """The tree of a file, with the asked metrics of each node under "shown", and their names.

    The metrics are "time/ms" (also s, us, ns), "avg_time/ms", "count", rates of what was counted: "tflop16/s",
    "gflop8/s", "gbyte/s", "tbyte/s"; and counted numbers themselves, such as "bytes".
    """
    tree: dict[str, Any] = json.loads(Path(filename).read_text())[0]
    _show(tree, metrics)
    return tree, list(metrics)


def _show(node: dict[str, Any], metrics: Sequence[str]) -> None:
    node["shown"] = {name: _value(node["metrics"], name) for name in metrics}
    for child in node["children"]:
        _show(child, metrics)


def _value(numbers: dict[str, float], name: str) -> float | None:
    """A metric of a node; None where it was not counted."""
    seconds = numbers.get("time (ns)", 0.0) * 1e-9
    what, _, unit = name.partition("/")
    if what in ("time", "avg_time"):
        calls = numbers.get("count", 0) if what == "avg_time" else 1
        return seconds * _SECONDS[unit] / calls if numbers and calls else None
    if unit != "s":
        return numbers.get(name)
    key = "bytes" if what[1:] == "byte" else what[1:].replace("flop", "flops")
    return numbers[key] * _PREFIXES[what[0]] / seconds if key in numbers and seconds else None


def print_tree(tree: dict[str, Any], metrics: Sequence[str], **settings: Any) -> None:
    """Print a line for each node, with its metrics before its name, under a head."""
    print(" ".join(f"{name:>12}" for name in metrics))
    _print(tree, 0)


def _print(node: dict[str, Any], depth: int) -> None:
    columns = (f"{'' if value is None else format(value, '.3f'):>12}" for value in node["shown"].values())
    print(" ".join(columns), "  " * depth + node["frame"]["name"])
    for child in sorted(node["children"], key=lambda child: -child["metrics"].get("time (ns)", 0.0)):
        _print(child, depth + 1)
