"""Compiling in processes: the same as in one, errors included."""

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


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_is_of_its_class_and_stops_no_other(processes):
    results = compile_all([job(), job(target="sm_12"), job(128)], processes)
    assert [type(result) for result in results] == [Binary, zg.InternalError, Binary]
    assert "sm_12" in str(results[1])


def test_where_no_process_can_be_started_this_one_compiles(monkeypatch):
    monkeypatch.setattr(workers.sys, "executable", "/nowhere/python")
    results = compile_all([job(), job(128)], 2)
    assert all(isinstance(binary, Binary) for binary in results)


def test_a_process_that_dies_costs_one_attempt(monkeypatch):
    monkeypatch.setattr(workers, "__name__", "ziggurat.there_is_no_such_module")
    results = compile_all([job(), job(128)], 2)
    assert all(isinstance(binary, Binary) for binary in results)
