"""Benchmarks as tables, files and plots; the figures here are made up."""

import csv
import importlib
import sys
import types

import numpy as np
import pytest
from libraries import require

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
    calls = []
    report = perf_report([sizes(x_names=["m", "n"], x_vals=[(1, 2), 3], args={}), sizes(plot_name="more")])
    tables = report(lambda **arguments: calls.append(arguments) or 1.0).run()
    assert calls[0] == {"m": 1, "n": 2, "provider": "ours"} and calls[2] == {"m": 3, "n": 3, "provider": "ours"}
    assert [table.benchmark.plot_name for table in tables] == ["add", "more"]


def test_the_function_is_still_a_function():
    assert perf_report(sizes())(figure)(2, "ours", scale=4) == 8


def test_without_matplotlib_there_are_numbers_and_a_word(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it fails
    perf_report(sizes())(figure).run(save_path=tmp_path / "out")
    output = capsys.readouterr()
    assert "no plot of 'add': matplotlib is not installed" in output.err and "matplotlib" not in output.out
    with (tmp_path / "out" / "add.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["n", "Ours", "Ours low", "Ours high", "Theirs", "Theirs low", "Theirs high"]
    assert rows[1][:2] == ["1024", "10240.0"] and len(rows) == 3
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["add.csv"]


class Axes:
    """Records the calls that draw."""

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
    assert [call[2]["color"] for call in drawn] == ["red", "blue"]
    assert drawn[0] == ("plot", ([1024, 2048], [10240.0, 20480.0]), {"label": "Ours", "color": "red", "linestyle": "-"})
    assert [call[0] for call in axes.calls].count("fill_between") == 1  # of the line that has a low and a high
    scales = [call for call in axes.calls if call[0] in ("set_xscale", "set_yscale")]
    assert scales == [("set_xscale", ("log",), {}), ("set_yscale", ("linear",), {})]
    axes.calls.clear()
    perf_report(sizes(y_log=True, ylabel=""))(figure).run(show_plots=True)
    assert ("set_xscale", ("linear",), {}) in axes.calls and ("set_yscale", ("log",), {}) in axes.calls
    assert ("set_xlabel", ("n",), {}) in axes.calls and ("set_title", ("add",), {}) in axes.calls
    figure_.calls[1:] = []
    assert figure_.calls == [("savefig", (tmp_path / "add.png",), {})]


def matplotlib_itself():
    require("matplotlib").use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def test_a_picture_by_matplotlib_itself(tmp_path):
    matplotlib_itself()
    perf_report(sizes())(figure).run(save_path=tmp_path)
    assert (tmp_path / "add.png").read_bytes().startswith(b"\x89PNG")


def test_text_is_no_formula(tmp_path, monkeypatch):
    plt = matplotlib_itself()
    texts = {}

    def closed(figure):
        (axes,) = figure.axes
        labels = {
            "title": axes.title,
            "x": axes.xaxis.label,
            "y": axes.yaxis.label,
            "line": axes.legend_.get_texts()[0],
        }
        # The texts that it will draw, and whether they are read as formulas.
        texts.update({name: text._preprocess_math(text.get_text()) for name, text in labels.items()})

    monkeypatch.setattr(plt, "close", closed)
    bad = sizes(plot_name="$x^$", xlabel="$$", ylabel="$\\frac$", line_names=["a$b$", "c"])
    perf_report(bad)(figure).run(save_path=tmp_path)
    assert (tmp_path / "$x^$.png").exists()
    assert texts == {"title": ("$x^$", False), "x": ("$$", False), "y": ("$\\frac$", False), "line": ("a$b$", False)}


def test_styles_begin_again_and_bad_ones_leave_the_numbers(tmp_path, capsys):
    matplotlib_itself()
    three = {"line_vals": [1, 2, 3], "line_names": ["a", "b", "c"]}
    constant = lambda n, provider, scale: 1.0  # noqa: E731
    perf_report(sizes(**three, styles=[("red", "-"), ("blue", "--")]))(constant).run(save_path=tmp_path)
    assert (tmp_path / "add.png").exists() and capsys.readouterr().out == ""
    (table,) = perf_report(sizes(**three, styles=[("red", "zz")], plot_name="bad"))(constant).run(save_path=tmp_path)
    assert "no plot of 'bad': matplotlib says: 'zz'" in capsys.readouterr().err
    assert (tmp_path / "bad.csv").exists() and not (tmp_path / "bad.png").exists() and len(table.rows) == 2


def test_what_does_not_fit():
    with pytest.raises(zg.LaunchError, match="2 line_vals and 1 line_names"):
        sizes(line_names=["Ours"])
    for point in ((1, 2), [1, 2], ()):
        with pytest.raises(zg.LaunchError, match="among x_vals, which must have a value for each of 'n'"):
            sizes(x_vals=[point])
    for empty in ({"x_names": []}, {"x_vals": iter(())}, {"line_vals": [], "line_names": []}):
        with pytest.raises(zg.LaunchError, match=f"the benchmark 'add' has no {next(iter(empty))}"):
            sizes(**empty)
    for clash in ({"args": {"n": 3}}, {"line_arg": "n"}, {"args": {"provider": "ours"}}):
        with pytest.raises(zg.LaunchError, match=r"the benchmark 'add' gives '(n|provider)' twice"):
            sizes(**clash)
    for style in ("red", ("red",), 3):
        with pytest.raises(zg.LaunchError, match="has the style") as error:
            sizes(styles=[style])
        assert error.value.hint == 'a pair of colour and line style: ("blue", "-")'


def test_arguments_stand_in_triton_s_order():
    bench = Benchmark(["n"], [1], "provider", ["a"], ["A"], "p", {"k": 2}, "x", "y", True, False, [("red", "-")])
    assert bench == Benchmark(
        x_names=["n"], x_vals=[1], line_arg="provider", line_vals=["a"], line_names=["A"], plot_name="p",
        args={"k": 2}, xlabel="x", ylabel="y", x_log=True, y_log=False, styles=[("red", "-")],
    )  # fmt: skip


@pytest.mark.parametrize("make", [list, tuple, np.array, iter, lambda sizes: (size for size in sizes)])
def test_sizes_come_from_anything_that_has_some(make):
    report = perf_report(sizes(x_vals=make([1, 2, 4])))(figure)
    for _ in range(2):  # A generator gives its values once, and the report has kept them.
        (table,) = report.run()
        xs = [x for x, _ in table.rows]
        assert xs == [1, 2, 4] and all(type(x) is int for x in xs)


def test_a_string_is_one_name():
    assert sizes(x_names="size").x_names == ("size",)


def test_lists_are_spread_over_the_names_as_tuples_are():
    calls = []
    points = [[1, 2], (3, 4), 5]
    report = perf_report(sizes(x_names=["m", "n"], x_vals=points, line_vals=[0], line_names=["z"], args={}))
    (table,) = report(lambda m, n, provider: calls.append((m, n)) or m * n).run()
    assert calls == [(1, 2), (3, 4), (5, 5)]
    assert str(table).splitlines()[2].split() == ["1", "2", "2"]


def test_records_are_rows_by_name():
    (table,) = perf_report(sizes())(figure).run()
    assert table.records() == [
        {"n": 1024, "Ours": 10240.0, "Theirs": 10240 / 3},
        {"n": 2048, "Ours": 20480.0, "Theirs": 20480 / 3},
    ]


@pytest.mark.parametrize(
    ("name", "file"),
    [("a/b", "a-b"), ("//x//y", "x-y"), ("../up", "up"), ("v1.0", "v1.0"), ('c:\\d "e"', "c-d -e"), ("$x^$", "$x^$")],
)
def test_any_name_names_files_in_the_folder(tmp_path, monkeypatch, name, file):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    (table,) = perf_report(sizes(plot_name=name))(figure).run(save_path=tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*.*")] == [f"{file}.csv"]
    assert str(table).startswith(f"{name}:\n")


def not_to_be_called(n, provider, scale):
    raise AssertionError("measured, though it cannot be written")


@pytest.mark.parametrize("name", ["", ".", "..", "///"])
def test_a_name_without_anything_for_files_is_refused_before_measuring(tmp_path, name):
    with pytest.raises(zg.LaunchError, match="has no name for its files"):
        perf_report(sizes(plot_name=name))(not_to_be_called).run(save_path=tmp_path)
    assert len(perf_report(sizes(plot_name=name))(figure).run(save_path="")) == 1  # The same without files.


def test_what_cannot_be_written_is_refused_before_measuring(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(zg.LaunchError, match="cannot be written to"):
            perf_report(sizes())(not_to_be_called).run(save_path=folder)
    with pytest.raises(zg.LaunchError, match="cannot be written to"):
        perf_report(sizes(plot_name="x" * 300))(not_to_be_called).run(save_path=tmp_path)
    with pytest.raises(zg.LaunchError, match=r"two benchmarks would be written to 'a-b\.csv'"):
        perf_report([sizes(plot_name="a/b"), sizes(plot_name="a-b")])(not_to_be_called).run(save_path=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_function_without_the_parameters_is_refused_before_measuring():
    with pytest.raises(zg.LaunchError, match=r"does not fit alone\(n\): got an unexpected keyword argument") as error:

        def alone(n):
            raise AssertionError("called")

        perf_report(sizes())(alone).run()
    assert error.value.hint == "x_names, line_arg and args name its parameters"


@pytest.mark.parametrize("result", [None, (1, 2), (1, 2, 3, 4), [], "fast", (1, None, 3), object()])
def test_results_that_are_no_figures_say_where(result):
    with pytest.raises(zg.LaunchError, match="takes a number, or three") as error:
        perf_report(sizes())(lambda n, provider, scale: result).run()
    assert f"for n=1024, provider='ours', scale=10 it got {result!r}" in str(error.value)
    assert (error.value.hint is not None) == (result is None)


def test_numbers_of_numpy_are_figures():
    (table,) = perf_report(sizes())(lambda n, provider, scale: [np.float32(1), np.int64(0), 2]).run()
    assert table.rows[0][1][0] == (1.0, 0.0, 2.0)
