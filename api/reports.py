"""Benchmarks over a range of sizes, as tables, CSV files and, where matplotlib is there, plots.

@zg.testing.perf_report(
    zg.testing.Benchmark(
        x_names=["n"], x_vals=[2**i for i in range(12, 28)], x_log=True,
        line_arg="provider", line_vals=["ours", "numpy"], line_names=["ours", "NumPy"],
        ylabel="GB/s", plot_name="vector-add", args={},
    )
)
def benchmark(n, provider): …

benchmark.run(print_data=True)
"""

from __future__ import annotations

import csv
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from ziggurat.codemodel.errors import LaunchError


@attrs.frozen(kw_only=True)
class Benchmark:
    """What is measured: a line for each of `line_vals` of the argument `line_arg`, over `x_vals` of the arguments
    `x_names` (all get the value; or each its own, where the values are tuples). `args` are further arguments.

    `plot_name` names the files; `line_names` the lines. `styles` are pairs of colour and line style of matplotlib.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None

    def __attrs_post_init__(self) -> None:
        if len(self.line_vals) != len(self.line_names):
            raise LaunchError(
                f"the benchmark '{self.plot_name}' has {len(self.line_vals)} line_vals and {len(self.line_names)} "
                "line_names"
            )
        for value in self.x_vals:
            if isinstance(value, tuple) and len(value) != len(self.x_names):  # pyright: ignore[reportUnknownArgumentType]
                raise LaunchError(f"the benchmark '{self.plot_name}': {value!r} is to be values of {self.x_names}")

    def arguments(self, x: Any, line: Any) -> dict[str, Any]:
        """What the function is called with for a point of a line."""
        values = _each(x, len(self.x_names))
        return {**dict(zip(self.x_names, values, strict=True)), self.line_arg: line, **self.args}


@attrs.frozen
class Table:
    """What came out: for each x, a (median, low, high) for each line; low and high are the median where the function
    gives one number."""

    benchmark: Benchmark
    rows: tuple[tuple[Any, tuple[tuple[float, float, float], ...]], ...]

    def __str__(self) -> str:
        """The medians, in columns."""
        bench = self.benchmark
        head = [*bench.x_names, *(f"{name} ({bench.ylabel})" if bench.ylabel else name for name in bench.line_names)]
        lines = [head, *([*self._x(x), *(f"{value:.6g}" for value, _, _ in values)] for x, values in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        table = ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return f"{bench.plot_name}:\n" + "\n".join(table)

    def write_csv(self, path: Path) -> None:
        """All numbers, as comma-separated values."""
        bench = self.benchmark
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            columns = [f"{name} {which}".strip() for name in bench.line_names for which in ("", "low", "high")]
            writer.writerow([*bench.x_names, *columns])
            for x, values in self.rows:
                writer.writerow([*self._x(x), *(number for triple in values for number in triple)])

    def plot(self, path: Path | None, show: bool) -> str | None:
        """Draw the lines into a file, or on the screen. The reason where that cannot be done, as matplotlib is not
        there."""
        try:
            plt: Any = importlib.import_module("matplotlib.pyplot")
        except ImportError:
            return f"no plot of '{self.benchmark.plot_name}': matplotlib is not installed (pip install matplotlib)"
        bench = self.benchmark
        figure, axes = plt.subplots()
        positions = [_each(x, 1)[0] for x, _ in self.rows]
        for number, name in enumerate(bench.line_names):
            triples = [values[number] for _, values in self.rows]
            style = {} if bench.styles is None else dict(zip(("color", "linestyle"), bench.styles[number], strict=True))
            (line,) = axes.plot(positions, [middle for middle, _, _ in triples], label=name, **style)
            lows, highs = [low for _, low, _ in triples], [high for _, _, high in triples]
            if lows != highs:
                axes.fill_between(positions, lows, highs, alpha=0.15, color=line.get_color())
        axes.set_xlabel(bench.xlabel or ", ".join(bench.x_names))
        axes.set_ylabel(bench.ylabel)
        axes.set_title(bench.plot_name)
        axes.set_xscale("log" if bench.x_log else "linear")
        axes.set_yscale("log" if bench.y_log else "linear")
        axes.legend()
        if path is not None:
            figure.savefig(path)
        if show:
            plt.show()
        plt.close(figure)
        return None

    def _x(self, x: Any) -> list[str]:
        return [str(value) for value in _each(x, len(self.benchmark.x_names))]


class Report:
    """A function with its benchmarks; `run` measures. Called, it is the function."""

    def __init__(self, function: Callable[..., Any], benchmarks: Sequence[Benchmark]) -> None:
        self.function = function
        self.benchmarks = tuple(benchmarks)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)

    def run(
        self, *, print_data: bool = False, show_plots: bool = False, save_path: str | os.PathLike[str] | None = None
    ) -> list[Table]:
        """Measure everything; a table for each benchmark.

        With `save_path`, a folder, each is written there as CSV and plotted. Where there is no matplotlib, that is
        said.
        """
        folder = None if save_path is None else Path(save_path)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        tables: list[Table] = []
        for benchmark in self.benchmarks:
            rows = tuple(
                (x, tuple(_triple(self.function(**benchmark.arguments(x, line))) for line in benchmark.line_vals))
                for x in benchmark.x_vals
            )
            table = Table(benchmark, rows)
            tables.append(table)
            if print_data:
                print(table)
            if folder is not None:
                table.write_csv(folder / f"{benchmark.plot_name}.csv")
            if folder is not None or show_plots:
                picture = None if folder is None else folder / f"{benchmark.plot_name}.png"
                excuse = table.plot(picture, show_plots)
                if excuse is not None:
                    print(excuse)
        return tables


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Report]:
    """Decorator of a function that gives a figure, or a median with a low and a high one, for arguments by name."""
    listed = [benchmarks] if isinstance(benchmarks, Benchmark) else list(benchmarks)
    return lambda function: Report(function, listed)


def _triple(result: Any) -> tuple[float, float, float]:
    if isinstance(result, (tuple, list)):
        middle, low, high = map(float, result)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return middle, low, high
    return float(result), float(result), float(result)


def _each(x: Any, count: int) -> tuple[Any, ...]:
    """The values of a point: its own, or the same for each name."""
    return cast("tuple[Any, ...]", x) if isinstance(x, tuple) else (x,) * count
