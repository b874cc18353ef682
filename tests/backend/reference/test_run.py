"""Running kernels: the function, the grid and the arguments; batches and single programs have the same result."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, MemoryAccessError
from ziggurat.codemodel.text.parser import parse

SCALE = parse("""
tt.func @"scale" (%0 : ptr<f32>, %1 : f32)void -> {
    %2 : i32 = tt.get_program_id @0;
    %3 : ptr<f32> = tt.addptr %0 %2;
    %4 : f32 = tt.load %3;
    %5 : f32 = arith.mulf %4 %1;
    tt.store %3 %5;
    tt.return;
};
""")
# Each program adds what the one before left: the programs depend on each other.
CHAIN = parse("""
tt.func @"chain" (%0 : ptr<i32>)void -> {
    %1 : i32 = tt.get_program_id @0;
    %2 : ptr<i32> = tt.addptr %0 %1;
    %3 : i32 = tt.load %2;
    %4 : i32 = arith.constant @1;
    %5 : ptr<i32> = tt.addptr %2 %4;
    %6 : i32 = tt.load %5;
    %7 : i32 = arith.addi %3 %6;
    tt.store %5 %7;
    tt.return;
};
""")


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("batch", [None, 1, 3, 100])
def test_every_program_runs_once(batch):
    x = np.arange(10, dtype=np.float32)
    run(SCALE, None, (10,), [x, 3.0], batch=batch)
    assert x.tolist() == [3.0 * n for n in range(10)]


@pytest.mark.parametrize("batch", [None, 1, 2, 7])
def test_programs_that_depend_on_each_other_run_in_order(batch):
    x = np.ones(9, np.int32)
    run(CHAIN, None, (8,), [x], batch=batch)
    assert x.tolist() == list(range(1, 10))


def test_programs_before_a_failing_one_have_done_their_work():
    for batch in (None, 1):
        x = np.ones(9, np.float32)
        with pytest.raises(MemoryAccessError, match=r"program \(5, 0, 0\)"):
            run(SCALE, None, (9,), [x[:5], 2.0], batch=batch, names=["x", "by"])
        assert x.tolist() == [2.0] * 5 + [1.0] * 4


def test_grids():
    x = f32(1, 2)
    run(SCALE, None, (0,), [x, 3.0])
    run(SCALE, None, (2, 0, 5), [x, 3.0])
    assert x.tolist() == [1, 2]
    run(SCALE, None, (1, 2, 3), [x, 2.0])
    assert x.tolist() == [64, 2]


MODULE = parse("""
module ()void -> {
    tt.func @"one" (%0 : i32)i32 -> { tt.return %0; };
    tt.func @"sets" (%0 : ptr<i32>)void -> {
        %1 : i32 = arith.constant @5;
        %2 : i32 = tt.call %1 @"one";
        tt.store %0 %2;
        tt.return;
    };
    unreachable;
};
""")


def test_the_kernel_of_a_module_is_the_function_without_calls_of_it():
    x = np.zeros(1, np.int32)
    run(MODULE, None, (1,), [x])
    assert x[0] == 5
    x[0] = 0
    run(MODULE, "sets", (1,), [x])
    assert x[0] == 5


@pytest.mark.parametrize(
    ("model", "symbol", "grid", "arguments", "words"),
    [
        (MODULE, "lost", (1,), [], "the module has no function 'lost'; it has one, sets"),
        (SCALE, None, (), [f32(1), 1.0], "one to three sizes"),
        (SCALE, None, (1, 1, 1, 2), [f32(1), 1.0], "one to three sizes"),
        (SCALE, None, (-1,), [f32(1), 1.0], "one to three sizes"),
        (SCALE, None, (1 << 16, 1 << 16), [f32(1), 1.0], "a grid must have at most 2147483647 programs"),
        (SCALE, None, (1,), [f32(1)], "takes 2 argument(s); got 1"),
        (SCALE, None, (1,), [[1.0], 1.0], "arg0 must be a NumPy array of float32 for ptr<f32>; got list"),
        (SCALE, None, (1,), [np.zeros(1), 1.0], "must be an array of float32 for ptr<f32>; got float64"),
        (SCALE, None, (1,), [f32(1).astype(">f4"), 1.0], "must be an array of float32 for ptr<f32>; got >f4"),
        (SCALE, None, (1,), [f32(1), "2"], "arg1"),
        (SCALE, None, (1,), [f32(1), None], "arg1"),
    ],
)
def test_launch_errors(model, symbol, grid, arguments, words):
    with pytest.raises(LaunchError, match=re.escape(words)):
        run(model, symbol, grid, arguments)


def test_messages_use_the_names_given():
    with pytest.raises(LaunchError, match="x_ptr must be a NumPy array of float32 for ptr<f32>"):
        run(SCALE, None, (1,), [1, 1.0], names=["x_ptr", "by"])
    with pytest.raises(LaunchError, match="has 2 parameters, but 1 names are given"):
        run(SCALE, None, (1,), [f32(1), 1.0], names=["x_ptr"])


def test_a_loop_without_end_is_an_error():
    forever = parse("""
    tt.func @"f" (%0 : i1)void -> {
        scf.while ()void -> { scf.condition %0; } ()void -> { scf.yield; };
        tt.return;
    };""")
    with pytest.raises(KernelRuntimeError):
        run(forever, None, (2,), [True], loop_limit=10)
    run(forever, None, (2,), [False], loop_limit=10)


@pytest.mark.parametrize("batch", [None, 1, 2, 3, 5])
def test_each_program_prints_once(batch, capsys: pytest.CaptureFixture[str]):
    text = 'tt.func @"k" ()void -> { %0 : i32 = tt.get_program_id @0; tt.print %0 @"pid"; tt.return; };'
    run(parse(text), None, (5,), [], batch=batch)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and [line.split()[-1] for line in lines] == list("01234")


@pytest.mark.parametrize(
    ("type_", "low", "high"),
    [
        ("i8", -128, 127), ("u8", 0, 255), ("i32", -(2**31), 2**31 - 1), ("u32", 0, 2**32 - 1),
        ("i64", -(2**63), 2**63 - 1), ("u64", 0, 2**64 - 1),
    ],
)  # fmt: skip
def test_numbers_fit_in_their_types(type_: str, low: int, high: int):
    model = parse(f'tt.func @"k" (%0 : ptr<{type_}>, %1 : {type_})void -> {{ tt.store %0 %1; tt.return; }};')
    for number in (low, high, 1):
        out = np.zeros(1, type_.replace("i", "int").replace("u", "uint"))
        run(model, None, (1,), [out, number])
        assert int(out[0]) == number
    for number in (low - 1, high + 1):
        with pytest.raises(LaunchError, match=f"{type_}"):
            run(model, None, (1,), [out, number])
