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
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from ziggurat.codemodel.errors import LaunchError

# Characters that file systems, or shells without quotes, do not allow in a name.
_NOT_IN_FILES = re.compile(r'[/\\:*?"<>|\x00-\x1f]+')


def _as_tuple(values: Any) -> tuple[Any, ...]:
    """The values of a sequence, an array or a generator, which is read once; a string is one value, None is none."""
    if values is None:
        return ()
    if isinstance(values, str) or not isinstance(values, Iterable):
        return (values,)
    items = cast("Any", values)
    return tuple(items.tolist() if hasattr(items, "tolist") else items)


@attrs.frozen
class Benchmark:
    """A measurement: a line for each of `line_vals` of the argument `line_arg`, over `x_vals` of the arguments
    `x_names` (all get the value; or each its own, where the values are tuples or lists). `args` are further arguments.

    `plot_name` names the files; `line_names` the lines. `styles` are pairs of colour and line style of matplotlib, and
    begin again where there are more lines. Raises `LaunchError` for settings that contradict each other.
    """

    x_names: Sequence[str] = attrs.field(converter=_as_tuple)
    x_vals: Sequence[Any] = attrs.field(converter=_as_tuple)
    line_arg: str
    line_vals: Sequence[Any] = attrs.field(converter=_as_tuple)
    line_names: Sequence[str] = attrs.field(converter=_as_tuple)
    plot_name: str
    args: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] = attrs.field(default=None, converter=_as_tuple)

    def __attrs_post_init__(self) -> None:
        if len(self.line_vals) != len(self.line_names):
            raise self._wrong(f"has {len(self.line_vals)} line_vals and {len(self.line_names)} line_names")
        for name in ("x_names", "x_vals", "line_vals"):
            if not getattr(self, name):
                raise self._wrong(f"has no {name}")
        for value in self.x_vals:
            if len(self.point(value)) != len(self.x_names):
                names = ", ".join(f"'{name}'" for name in self.x_names)
                raise self._wrong(f"has {value!r} among x_vals, which must have a value for each of {names}")
        twice = [name for name in (self.line_arg, *self.args) if name in self.x_names]
        twice += [self.line_arg] if self.line_arg in self.args else []
        if twice:
            raise self._wrong(f"gives '{twice[0]}' twice: x_names, line_arg and args name different arguments")
        for style in self.styles:
            if not isinstance(style, (tuple, list)) or len(style) != 2:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise self._wrong(f"has the style {style!r}", 'a pair of colour and line style: ("blue", "-")')

    def point(self, x: Any) -> tuple[Any, ...]:
        """The value of each of `x_names` at a point: its own, or the same for all."""
        return tuple(x) if isinstance(x, (tuple, list)) else (x,) * len(self.x_names)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    def arguments(self, x: Any, line: Any) -> dict[str, Any]:
        """The arguments of the function for a point of a line."""
        return {**dict(zip(self.x_names, self.point(x), strict=True)), self.line_arg: line, **self.args}

    @property
    def file_name(self) -> str:
        """The name of its files, without an ending: `plot_name`, with hyphens for characters that files cannot have."""
        name = _NOT_IN_FILES.sub("-", self.plot_name).strip("-. ")
        if not name:
            raise self._wrong("has no name for its files", 'plot_name="vector-add"')
        return name

    def _wrong(self, what: str, hint: str | None = None) -> LaunchError:
        return LaunchError(f"the benchmark '{self.plot_name}' {what}", hint=hint)


@attrs.frozen
class Table:
    """The results: for each x, a (median, low, high) for each line; low and high are the median if the function gives
    one number."""

    benchmark: Benchmark
    rows: tuple[tuple[Any, tuple[tuple[float, float, float], ...]], ...]

    def __str__(self) -> str:
        """The medians, in columns."""
        bench = self.benchmark
        head = [*bench.x_names, *(f"{name} ({bench.ylabel})" if bench.ylabel else name for name in bench.line_names)]
        lines = [head]
        lines += [[*map(str, bench.point(x)), *(f"{middle:.6g}" for middle, _, _ in values)] for x, values in self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        table = ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return f"{bench.plot_name}:\n" + "\n".join(table)

    def records(self) -> list[dict[str, Any]]:
        """A dict for each row: the arguments by name, and the median of each line. `pandas.DataFrame` takes
        these."""
        bench = self.benchmark
        names = (*bench.x_names, *bench.line_names)
        return [
            dict(zip(names, (*bench.point(x), *(middle for middle, _, _ in values)), strict=True))
            for x, values in self.rows
        ]

    def write_csv(self, path: Path) -> None:
        """All numbers, as comma-separated values."""
        bench = self.benchmark
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            columns = [f"{name} {which}".strip() for name in bench.line_names for which in ("", "low", "high")]
            writer.writerow([*bench.x_names, *columns])
            for x, values in self.rows:
                writer.writerow([*map(str, bench.point(x)), *(number for triple in values for number in triple)])

    def plot(self, path: Path | None, show: bool) -> None:
        """Draw the lines into a file, or on the screen. Print why that cannot be done to standard error."""
        no_plot = f"no plot of '{self.benchmark.plot_name}': matplotlib"
        try:
            plt: Any = importlib.import_module("matplotlib.pyplot")
        except ImportError:
            return print(f"{no_plot} is not installed (pip install matplotlib)", file=sys.stderr)
        figure, axes = plt.subplots()
        try:
            self._draw(axes)
            if path is not None:
                figure.savefig(path)
            if show:
                plt.show()
        except (ValueError, OSError) as error:  # The numbers are measured by now, and must not be lost.
            print(f"{no_plot} says: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        finally:
            plt.close(figure)

    def _draw(self, axes: Any) -> None:
        bench = self.benchmark
        positions = [bench.point(x)[0] for x, _ in self.rows]
        for number, name in enumerate(bench.line_names):
            triples = [values[number] for _, values in self.rows]
            pair = bench.styles[number % len(bench.styles)] if bench.styles else ()
            style: dict[str, Any] = dict(zip(("color", "linestyle"), pair, strict=False))
            (line,) = axes.plot(positions, [middle for middle, _, _ in triples], label=_as_written(name), **style)
            lows, highs = [low for _, low, _ in triples], [high for _, _, high in triples]
            if lows != highs:
                axes.fill_between(positions, lows, highs, alpha=0.15, color=line.get_color())
        axes.set_xlabel(_as_written(bench.xlabel or ", ".join(bench.x_names)))
        axes.set_ylabel(_as_written(bench.ylabel))
        axes.set_title(_as_written(bench.plot_name))
        axes.set_xscale("log" if bench.x_log else "linear")
        axes.set_yscale("log" if bench.y_log else "linear")
        axes.legend()


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
        said. Raises `LaunchError`, before anything is measured, where the function does not take the arguments or the
        files cannot be written; and for results that are neither a number nor three.
        """
        for benchmark in self.benchmarks:
            self._demand_parameters(benchmark)
        folder = Path(save_path) if save_path else None  # "" is Triton's word for none
        if folder is not None:
            self._demand_files(folder)
        tables: list[Table] = []
        for benchmark in self.benchmarks:
            rows = tuple(
                (x, tuple(self._point(benchmark, x, line) for line in benchmark.line_vals)) for x in benchmark.x_vals
            )
            table = Table(benchmark, rows)
            tables.append(table)
            if print_data:
                print(table)
            if folder is not None:
                table.write_csv(folder / f"{benchmark.file_name}.csv")
            if folder is not None or show_plots:
                table.plot(None if folder is None else folder / f"{benchmark.file_name}.png", show_plots)
        return tables

    def _point(self, benchmark: Benchmark, x: Any, line: Any) -> tuple[float, float, float]:
        """The median, low and high of a point. Raises `LaunchError` for a result that is neither a number nor three."""
        arguments = benchmark.arguments(x, line)
        result: Any = self.function(**arguments)
        try:
            triple = cast("Sequence[Any]", result) if isinstance(result, (tuple, list)) else (result,) * 3
            middle, low, high = map(float, triple)
            return middle, low, high
        except (TypeError, ValueError):
            where = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            raise LaunchError(
                f"the benchmark '{benchmark.plot_name}' takes a number, or three (median, low, high); for {where} it "
                f"got {result!r}",
                hint='return float("nan") for what cannot be measured' if result is None else None,
            ) from None

    def _demand_parameters(self, benchmark: Benchmark) -> None:
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return  # Python knows no parameters of some callables.
        try:
            signature.bind(**benchmark.arguments(benchmark.x_vals[0], benchmark.line_vals[0]))
        except TypeError as error:
            name = getattr(self.function, "__name__", "function")
            raise LaunchError(
                f"the benchmark '{benchmark.plot_name}' does not fit {name}{signature}: {error}",
                hint="x_names, line_arg and args name its parameters",
            ) from None

    def _demand_files(self, folder: Path) -> None:
        names = [benchmark.file_name for benchmark in self.benchmarks]
        for name in names:
            if names.count(name) > 1:
                raise LaunchError(f"two benchmarks would be written to '{name}.csv'", hint="give them other plot_names")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                path = folder / f"{name}.csv"
                new = not path.exists()
                path.open("a").close()
                if new:
                    path.unlink()
        except OSError as error:
            raise LaunchError(f"save_path='{folder}' cannot be written to: {error}") from None


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Report]:
    """Decorator of a function that gives a figure, or a median with a low and a high one, for arguments by name."""
    benchmark_list = [benchmarks] if isinstance(benchmarks, Benchmark) else list(benchmarks)
    return lambda function: Report(function, benchmark_list)


def _as_written(text: str) -> str:
    """A text that matplotlib shows as it is, and not as a formula."""
    return text.replace("$", r"\$")
