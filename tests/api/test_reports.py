"""Benchmarks as tables, files and plots; the figures here are made up."""

import csv
import importlib
import sys
import types

import pytest

import ziggurat as zg

Benchmark, perf_report = zg.testing.Benchmark, zg.testing.perf_report


def sizes(**changes):
    settings = dict(
        x_names=["n"],
        x_vals=[1024, 2048],
        line_arg="provider",
        line_vals=["ours", "theirs"],
        line_names=["Ours", "Theirs"],
        plot_name="add",
        ylabel="GB/s",
        args={"scale": 10},
    )
    return Benchmark(**(settings | changes))


def figure(n, provider, scale):
    value = n * scale / (1 if provider == "ours" else 3)
    return value if provider == "ours" else (value, value / 2, value * 2)


def test_a_table(capsys):
    (table,) = perf_report(sizes())(figure).run(print_data=True)
    assert capsys.readouterr().out == (
        "add:\n   n  Ours (GB/s)  Theirs (GB/s)\n1024        10240        3413.33\n2048        20480        6826.67\n"
    )
    assert table.rows[0] == (1024, ((10240.0, 10240.0, 10240.0), (10240 / 3, 10240 / 6, 20480 / 3)))


def test_several_sizes_at_once():
    seen = []
    report = perf_report([sizes(x_names=["m", "n"], x_vals=[(1, 2), 3], args={}), sizes(plot_name="more")])
    tables = report(lambda **given: seen.append(given) or 1.0).run()
    assert seen[0] == {"m": 1, "n": 2, "provider": "ours"} and seen[2] == {"m": 3, "n": 3, "provider": "ours"}
    assert [table.benchmark.plot_name for table in tables] == ["add", "more"]


def test_the_function_is_still_a_function():
    assert perf_report(sizes())(figure)(2, "ours", scale=4) == 8


def test_without_matplotlib_there_are_numbers_and_a_word(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it fails
    perf_report(sizes())(figure).run(save_path=tmp_path / "out")
    assert "no plot of 'add': matplotlib is not installed" in capsys.readouterr().out
    with (tmp_path / "out" / "add.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["n", "Ours", "Ours low", "Ours high", "Theirs", "Theirs low", "Theirs high"]
    assert rows[1][:2] == ["1024", "10240.0"] and len(rows) == 3
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["add.csv"]


class Axes:
    """Writes down what is drawn."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments, **keywords):
            self.calls.append((name, arguments, keywords))
            return [types.SimpleNamespace(get_color=lambda: "C0")]

        return call


def test_a_plot(tmp_path, monkeypatch):
    axes, figure_ = Axes(), Axes()
    pyplot = types.ModuleType("matplotlib.pyplot")
    pyplot.subplots = lambda: (figure_, axes)
    pyplot.close = pyplot.show = lambda *_: None
    monkeypatch.setitem(sys.modules, "matplotlib", types.ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    perf_report(sizes(x_log=True, styles=[("red", "-"), ("blue", "--")]))(figure).run(save_path=tmp_path)
    drawn = [call for call in axes.calls if call[0] == "plot"]
    assert drawn[0] == ("plot", ([1024, 2048], [10240.0, 20480.0]), {"label": "Ours", "color": "red", "linestyle": "-"})
    assert [call[0] for call in axes.calls].count("fill_between") == 1  # of the line that has a low and a high
    assert ("set_xscale", ("log",), {}) in axes.calls
    assert figure_.calls == [("savefig", (tmp_path / "add.png",), {})]


def test_a_picture_by_matplotlib_itself(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    importlib.import_module("matplotlib.pyplot")
    perf_report(sizes())(figure).run(save_path=tmp_path)
    assert (tmp_path / "add.png").read_bytes().startswith(b"\x89PNG")


def test_what_does_not_fit():
    with pytest.raises(zg.LaunchError, match="2 line_vals and 1 line_names"):
        sizes(line_names=["Ours"])
    with pytest.raises(zg.LaunchError, match=r"\(1, 2\) is to be values of"):
        sizes(x_vals=[(1, 2)])
