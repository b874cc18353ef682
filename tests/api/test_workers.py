"""Compiling in child processes: the same as in one, errors and crashes included."""

import os
import subprocess
import sys

import pytest

import ziggurat as zg
from ziggurat.backend.cuda.binary import Binary
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.compiler import workers
from ziggurat.compiler.workers import Job, compile_all


@zg.kernel
def add(x_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(x_ptr, at), zg.add(zg.load(zg.add(x_ptr, at), mask), 1.0), mask)


def job(block=64, warps=4, target="sm_90a"):
    return Job(add.triton(zg.ptr(zg.f32), zg.i32, block), CompileOptions(target, warps), "add")


def test_processes_give_what_this_one_gives_in_the_order_of_the_jobs():
    jobs = [job(block, warps) for block in (64, 256) for warps in (1, 4)]
    done = []
    here = compile_all(jobs, 1, lambda: done.append("here"))
    there = compile_all(jobs, 2, lambda: done.append("there"))
    assert here == there and all(isinstance(binary, Binary) for binary in here)
    assert [binary.num_warps for binary in here] == [1, 4, 1, 4]
    assert done == ["here"] * 4 + ["there"] * 4
    assert "test_workers.py" in there[0].code  # places go along


def test_processes_wait_for_the_jobs_of_another_call(monkeypatch):
    workers.close_idle()
    compile_all([job(), job(128)], 2)
    first = list(workers._idle)
    compile_all([job(block) for block in (64, 128, 256)])  # As many as are waiting, and not the one for three jobs.
    assert len(first) == 2 and set(workers._idle) == set(first)
    monkeypatch.setattr(workers, "_IDLE_SECONDS", 0.0)
    compile_all([job(), job(128)], 2)
    workers._closing[0].join()
    assert len(workers._idle) == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_is_of_its_class_and_stops_no_other(processes):
    results = compile_all([job(), job(target="sm_12"), job(128)], processes)
    assert [type(result) for result in results] == [Binary, zg.InternalError, Binary]
    assert "sm_12" in str(results[1])


def test_where_no_process_can_be_started_this_one_compiles(monkeypatch):
    workers.close_idle()
    monkeypatch.setattr(workers.sys, "executable", "/nowhere/python")
    with pytest.warns(zg.ZigguratWarning, match="no process could be started to compile"):
        results = compile_all([job(), job(128)], 2)
    assert all(isinstance(binary, Binary) for binary in results)


def test_where_a_process_does_not_start_this_one_compiles(monkeypatch):
    workers.close_idle()
    monkeypatch.setattr(workers, "_COMMAND", ("-m", "ziggurat.there_is_no_such_module"))
    with pytest.warns(zg.ZigguratWarning, match="no process could be started to compile"):
        results = compile_all([job(), job(128)], 2)
    assert all(isinstance(binary, Binary) for binary in results)


CRASH = """
import os, sys
from ziggurat.backend.ptx import assemble
def crash(*given):
    print("Assertion `x' failed.", file=sys.stderr, flush=True)
    os.abort()
assemble.to_ptx = crash
from ziggurat.compiler import workers
workers.serve()
"""


@pytest.fixture
def crashing(monkeypatch):
    """Child processes whose LLVM aborts."""
    workers.close_idle()
    monkeypatch.setattr(workers, "_COMMAND", ("-c", CRASH))
    yield
    workers.close_idle()


def test_a_crash_is_an_error_that_names_kernel_and_stage(crashing):
    (result,) = compile_all([job()])
    assert isinstance(result, zg.InternalError)
    assert "compiling 'add' crashed in the stage LLVM (signal SIGABRT): Assertion `x' failed." in str(result)


def test_isolate_compiles_in_a_child(crashing, monkeypatch):
    types = (zg.ptr(zg.f32), zg.i32, 64)
    with pytest.raises(zg.InternalError, match="compiling 'add' crashed in the stage LLVM"):
        add.compile(*types, isolate=True)
    workers.close_idle()
    monkeypatch.setattr(workers, "_COMMAND", ("-m", workers.__name__))
    assert add.compile(*types, isolate=True).ptx == add.compile(*types).ptx


FORK = """
import os, signal, threading, time, ziggurat as zg, linecache
source = "def k(p, B: zg.constexpr):\\n    zg.store(zg.add(p, zg.arange(0, B)), zg.arange(0, B))\\n"
linecache.cache["<k>"] = (1, None, source.splitlines(True), "<k>")
exec(compile(source, "<k>", "exec"))
k = zg.kernel(k)
stop = []
def compile_all():
    number = 0
    while not stop:
        number += 1
        k.compile(zg.ptr(zg.i32), 16 << number % 5, num_warps=1 << number % 4)
thread = threading.Thread(target=compile_all)
thread.start()
time.sleep(0.5)
codes = []
for _ in range(6):
    if (child := os.fork()) == 0:
        signal.alarm(20)
        k.compile(zg.ptr(zg.i32), 64)
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.append(1)
thread.join()
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_compiles():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "[0, 0, 0, 0, 0, 0]", done.stderr


def test_the_number_of_processes_follows_from_the_jobs(monkeypatch):
    """One for three jobs, or those that wait anyway; and no more than there are processors, or jobs."""
    counts, timers = [], []

    class Pool(workers.ThreadPoolExecutor):
        def __init__(self, count):
            counts.append(count)
            super().__init__(count)

    class Timer:
        def __init__(self, seconds, function, arguments):
            timers.append((seconds, function, arguments))
            self.daemon = False

        def start(self):
            assert self.daemon, "the program's end does not wait for it"

        def cancel(self):
            timers.append("cancelled")

    monkeypatch.setattr(workers, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(workers.threading, "Timer", Timer)
    monkeypatch.setattr(workers, "_in_child", lambda job: job)
    monkeypatch.setattr(workers, "_idle", idle := [])
    monkeypatch.setattr(workers, "_closing", [])
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 5)
    cases = [(1, None, 0, 1), (3, None, 0, 1), (4, None, 0, 2), (7, None, 0, 3), (30, None, 0, 5), (3, None, 2, 2)]
    cases += [(2, None, 4, 2), (4, 3, 0, 3), (2, 3, 0, 2), (30, 9, 0, 9)]
    for jobs, processes, waiting, count in cases:
        idle[:] = [None] * waiting
        assert compile_all([*range(jobs)], processes) == [*range(jobs)] and counts.pop() == count
    assert timers[:3] == [(60.0, workers.close_idle, (1,)), "cancelled", (60.0, workers.close_idle, (1,))]
    assert compile_all([]) == [] and not counts
    monkeypatch.setattr(workers.os, "cpu_count", lambda: None)
    assert compile_all([1] * 30) and counts == [1]


TALKS = """
import os, sys
from ziggurat.backend.ptx import assemble
def crash(*given):
    print("x" * 5000 + "end", file=sys.stderr, flush=True)
    print("of the compiler", flush=True)
    os._exit(0)
assemble.to_ptx = crash
from ziggurat.compiler import workers
workers.serve()
"""


def test_the_end_of_what_a_process_wrote_is_shown(monkeypatch):
    """Lines that the compiler prints are no answer."""
    workers.close_idle()
    monkeypatch.setattr(workers, "_COMMAND", ("-c", TALKS))
    (result,) = compile_all([job()])
    workers.close_idle()
    text = str(result)
    assert "compiling 'add' crashed in the stage LLVM (exit status 0): xxx" in text
    output = text.partition("exit status 0): ")[2]
    assert output.partition("of the compiler")[0].count("x") == 2000 - len("end\nof the compiler\n")
