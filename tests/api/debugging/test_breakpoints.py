"""`breakpoint()` in a kernel: Python's own debugger under the interpreter, a warning in compiled code."""

import bdb
import contextlib
import io
import os
import pdb
import subprocess
import sys
from pathlib import Path

import debugged_kernels as kernels
import numpy as np
import pytest
from debugged_kernels import line_of

import ziggurat as zg

F32 = np.float32


def launch(kernel=kernels.stops, programs=2):
    x, out = np.arange(8, dtype=F32), np.zeros(8, F32)
    kernel[(programs,)](out, x, B=8, interpret=True)
    return out, x


def in_pdb(monkeypatch, *commands, run=launch):
    """What Python's debugger writes for these commands, and the result of the run."""
    output = io.StringIO()
    if sys.version_info >= (3, 13):  # It stops at `breakpoint()` itself, and no more at the line after it.
        commands = ("n", *commands)

    def hook():
        debugger = pdb.Pdb(stdin=io.StringIO("\n".join(commands) + "\n"), stdout=output)
        debugger.set_trace(sys._getframe().f_back)

    monkeypatch.setattr(sys, "breakpointhook", hook)
    try:
        return run(), output.getvalue()
    finally:
        sys.settrace(None)


def test_it_stops_in_pdb_with_the_variables(monkeypatch):
    (out, x), text = in_pdb(monkeypatch, "p v.sum()", "p type(v).__name__", "w", "c")
    np.testing.assert_array_equal(out, x * 3 + 1)
    at = line_of("after")
    assert f"kernels.py({at})stops()" in text and "w = scaled(v, 3.0)" in text
    assert "28.0" in text and "ndarray" in text


def test_pdb_steps_over_the_lines_of_the_kernel(monkeypatch):
    commands = ("s", "s", "p t", "w", "r", "n", "n", "p w", "c")
    (out, x), text = in_pdb(monkeypatch, *commands)
    np.testing.assert_array_equal(out, x * 3 + 1)
    scale, after, last = line_of("scale"), line_of("after"), line_of("last")
    assert f"kernels.py({scale})scaled()" in text
    stack = text[text.index(f"({after})stops()", text.index("scaled()")) :]
    assert f"({scale})scaled()" in stack
    assert f"({last})stops()" in text and "array([ 1.,  4.,  7., 10.," in text


def test_pdb_goes_on_after_the_launch(monkeypatch):
    _, text = in_pdb(monkeypatch, *("n",) * 3, "c")
    stops = [line for line in text.splitlines() if line.startswith(("> ", "(Pdb) > "))]
    assert "test_breakpoints.py" in stops[-1] and "launch()" in stops[-1] and "-> return out, x" in text
    assert all("kernels.py" in stop for stop in stops[:-1])


def test_a_breakpoint_of_pdb_holds_for_the_programs_after_it(monkeypatch):
    commands = (f"b {line_of('last')}, B == 8", "c", "p 'second', v[0]", "c", "p 'third', v[1]", "c", "c")
    _, text = in_pdb(monkeypatch, *commands, run=lambda: launch(kernels.stops, 3))
    assert text.count(f"({line_of('last')})stops()") == 2 and "('third', np.float32(1.0))" in text


def test_only_the_programs_that_come_there_stop(monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_locals.copy()))
    launch(kernels.stops, 4)
    assert len(stops) == 1 and stops[0]["B"] == 8
    np.testing.assert_array_equal(stops[0]["v"], np.arange(8))


@zg.function
def inner(v):
    breakpoint()
    return v + 1


@zg.function
def outer(v):
    return inner(v) * 2


def test_a_function_of_a_function_stops(monkeypatch):
    @zg.kernel
    def nested(x):
        zg.store(x, outer(zg.load(x)))

    x = np.ones(1, F32)
    _, text = in_pdb(monkeypatch, "p v", "w", "c", run=lambda: nested[(1,)](x, interpret=True))
    assert "1.0" in text and text.index(")nested()") < text.index(")outer()") < text.rindex(")inner()")
    assert x[0] == 4


def test_the_environment_decides(monkeypatch):
    program = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(kernels.__file__).parent)]}\n"
        "from test_breakpoints import launch\nprint(launch()[0].sum())"
    )
    environment = {**os.environ, "PYTHONBREAKPOINT": "0"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert ended.stdout.split() == ["92.0"], ended.stderr


def test_quitting_ends_the_launch(monkeypatch):
    with pytest.raises(bdb.BdbQuit):
        in_pdb(monkeypatch, "q")


def test_a_triton_program_stops_too(monkeypatch):
    (out, x), text = in_pdb(monkeypatch, "p v[3]", "c", "c", run=lambda: launch(kernels.stops_t))
    np.testing.assert_array_equal(out, x * 2)
    assert f"({line_of('t after')})stops_t()" in text and "3.0" in text


def test_prints_come_before_the_stop(monkeypatch):
    @zg.kernel
    def speaks(x):
        print("one")
        breakpoint()
        zg.store(x, 1.0)
        print("two")

    output = io.StringIO()
    monkeypatch.setattr(sys, "breakpointhook", lambda: print("stop"))
    with contextlib.redirect_stdout(output):
        speaks[(1,)](np.zeros(1, F32), interpret=True)
    assert output.getvalue().split() == ["one", "stop", "two"]


def test_an_error_is_that_of_a_launch_without_a_stop(monkeypatch):
    @zg.kernel
    def fails(x):
        breakpoint()
        zg.store(x + 5, 1.0)

    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(1))
    with pytest.raises(zg.MemoryAccessError, match="writes x\\[5\\]"):
        fails[(1,)](np.zeros(1, F32), interpret=True)
    assert stops == [1]


@pytest.mark.parametrize("options", [{}, {"strict": True}], ids=["compiled", "strict"])
def test_other_runs_warn_and_go_on(options):
    x, out = np.arange(8, dtype=F32), np.zeros(8, F32)

    @zg.kernel
    def passes(out, x, B: zg.constexpr):
        v = zg.load(x + zg.arange(0, B))
        breakpoint()
        zg.store(out + zg.arange(0, B), v)

    with pytest.warns(zg.ZigguratWarning, match="breakpoint\\(\\) is passed over: only the interpreter stops there"):
        passes[(1,)](out, x, B=8, **options)
    np.testing.assert_array_equal(out, x)


def test_compiled_for_a_gpu_it_is_nothing():
    with pytest.warns(zg.ZigguratWarning, match="passed over"):
        compiled = kernels.stops.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), 8, target="sm_90a")
    assert ".entry" in compiled.ptx
