"""Ops that make, reshape and move tensors within a thread: the source register of each register of a result."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.ptx.tensors import moved
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.text.parser import parse

# Four registers, a thread's elements beside each other, or 32 apart.
BESIDE = '"1 2 | 4 8 16 32 64 | "'
APART = '"32 64 | 1 2 4 8 16 | "'


def values(*numbers: int, of: int = 0) -> list[str]:
    """The names of a parameter's registers."""
    return [f"%p{of}.{number}" for number in numbers]


def stored(layout: str, numel: int, start: int = 0, warps: int = 1) -> np.ndarray:
    """The numbers of a range in a layout: each thread stores its registers to places of its own."""
    module = parse(f"""gpu.module @target="sm_80" @num_warps={warps} ()void -> {{ tt.func @"k" (%p : ptr<i32>)void -> {{
        %i : tensor<x{numel}, i32, {layout}> = tt.make_range @start={start} @end={start + numel};
        %z : tensor<x{numel}, i32, {layout}> = tt.make_range @start=0 @end={numel};
        %s : tensor<x{numel}, ptr<i32>, {layout}> = tt.splat %p;
        %q : tensor<x{numel}, ptr<i32>, {layout}> = tt.addptr %s %z; tt.store %q %i; tt.return; }}; unreachable; }};""")
    assert isinstance(module, gpu.Module)
    out = np.full(numel, -1, np.int32)
    simulate(to_llvm(module), num_warps=warps, shared=0, arguments=[out])
    return out


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("layout", [BESIDE, APART, '"1 2 | 4 8 16 32 67 | "', '"0 33 64 | 2 4 8 16 1 | "'])
def test_ranges(layout: str, start: int) -> None:
    """In any layout: also where registers and threads move the same bit of a number."""
    assert stored(layout, 128, start).tolist() == list(range(start, start + 128))


def test_a_range_is_the_thread_s_part_and_the_register_s(emission) -> None:
    emitter, (code,) = emission(f"%i : tensor<x128, i32, {APART}> = tt.make_range @start=0 @end=128;", "")
    assert [line.split(" = ")[1] for line in emitter.lines] == [
        f"add nuw nsw i32 {code[0]}, {more}" for more in (32, 64, 96)
    ]


def test_the_place_in_the_grid_is_read_once(emission) -> None:
    text = "%a : i32 = tt.get_program_id @1; %b : i32 = tt.get_program_id @1; %c : i32 = tt.get_num_programs @2;"
    emitter, (a, b, c) = emission(text, "")
    assert a == b != c and not emitter.lines
    assert [line.split("@")[1] for line in emitter.preamble] == [
        "llvm.nvvm.read.ptx.sreg.ctaid.y()",
        "llvm.nvvm.read.ptx.sreg.nctaid.z()",
    ]


def test_a_scalar_is_in_every_register(emission) -> None:
    _, (code,) = emission(f"%y : tensor<x128, f32, {BESIDE}> = tt.splat %x;", "%x : f32")
    assert code == ["%p0"] * 4


def test_registers_are_found_by_the_element() -> None:
    one, two = Layout((1, 2), (4, 8, 16, 32, 64), ()), Layout((2, 1), (4, 8, 16, 32, 64), ())
    names = ["a", "b", "c", "d"]
    assert moved(names, one, one, 128) == names
    assert moved(names, one, two, 128) == ["a", "c", "b", "d"]
    assert moved(names, one, Layout((1, 0, 2), (4, 8, 16, 32, 64), ()), 128) == ["a", "b", "a", "b", "c", "d", "c", "d"]
    assert moved(names, one, Layout((32, 64), (1, 2, 4, 8, 16), ()), 128) is None


def test_registers_that_are_no_copies() -> None:
    assert Layout((1, 0, 2), (4, 8, 16, 32, 64), ()).unique_registers == [0, 1, 4, 5]
    assert Layout((), (1, 2, 4, 8, 16), ()).unique_registers == [0]


def test_broadcasts_repeat_registers(emission) -> None:
    """A broadcast of 32 × 1 to 32 × 4 with a row in each thread needs no instruction."""
    text = """%y : tensor<x32, x4, f32, "1 2 | 4 8 16 32 64 | "> = tt.broadcast %x;"""
    emitter, (code,) = emission(text, '%x : tensor<x32, x1, f32, " | 1 2 4 8 16 | ">')
    assert code == ["%p0.0"] * 4 and not emitter.lines


@pytest.mark.parametrize("line", [
    'tensor<x32, x4, f32, "32 64 | 1 2 4 8 16 | "> = tt.broadcast %x;',
    'tensor<x1, x32, f32, " | 2 1 4 8 16 | "> = tt.reshape %x;',
])  # fmt: skip
def test_moves_between_threads_are_internal_errors(line: str, emission) -> None:
    with pytest.raises(InternalError, match="between threads is left"):
        emission(f"%y : {line}", '%x : tensor<x32, x1, f32, " | 1 2 4 8 16 | ">')


def test_reshapes_and_transposes_give_the_same_registers(emission) -> None:
    text = f"""%a : tensor<x4, x32, f32, {APART}> = tt.reshape %x;
        %b : tensor<x32, x4, f32, "1 2 | 4 8 16 32 64 | "> = tt.trans %a @order=[1, 0];
        %c : tensor<x32, x1, x4, f32, "1 2 | 4 8 16 32 64 | "> = tt.expand_dims %b @1;
        %d : tensor<x128, f32, "2 1 | 4 8 16 32 64 | "> = tt.reshape %c;"""
    emitter, (a, b, c, d) = emission(text, f"%x : tensor<x128, f32, {APART}>")
    assert a == b == c == values(0, 1, 2, 3) and d == values(0, 2, 1, 3) and not emitter.lines


def test_joins_alternate_and_splits_undo_them(emission) -> None:
    type_, half = 'tensor<x64, x2, f32, "1 64 | 2 4 8 16 32 | ">', 'tensor<x64, f32, "32 | 1 2 4 8 16 | ">'
    text = f"%j : {type_} = tt.join %x %y; %s : Tuple<{half}, {half}> = tt.split %j;"
    _, (code, halves) = emission(text, f"%x : {half}, %y : {half}")
    assert code == ["%p0.0", "%p1.0", "%p0.1", "%p1.1"]
    assert halves == (values(0, 1), values(0, 1, of=1))


def test_a_split_finds_the_bit_of_the_last_axis(emission) -> None:
    half = 'tensor<x64, f32, "32 | 1 2 4 8 16 | ">'
    text = f"%s : Tuple<{half}, {half}> = tt.split %x;"
    _, (halves,) = emission(text, '%x : tensor<x64, x2, f32, "64 1 | 2 4 8 16 32 | ">')
    assert halves == (values(0, 1), values(2, 3))


def test_one_tensor_after_the_other(emission) -> None:
    half = 'tensor<x64, f32, "32 | 1 2 4 8 16 | ">'
    text = f"%c : tensor<x128, f32, {APART}> = tt.cat %x %y;"
    _, (code,) = emission(text, f"%x : {half}, %y : {half}")
    assert code == values(0, 1) + values(0, 1, of=1)


def test_hints_are_nothing(emission) -> None:
    kind = f"tensor<x128, i32, {BESIDE}>"
    text = f"%a : {kind} = tt.multiple_of %x @[4]; %b : {kind} = tt.max_contiguous %a @[4];"
    emitter, (a, b) = emission(text, f"%x : {kind}")
    assert a == b == values(0, 1, 2, 3) and not emitter.lines


@pytest.mark.parametrize("run, copies", [(1, (0, 1, 2, 3)), (2, (0, 0, 2, 2)), (4, (0, 0, 0, 0)), (6, (0, 0, 2, 2))])
def test_equal_elements_use_the_first_register(run: int, copies: tuple[int, ...], emission) -> None:
    """Runs of 6 have aligned runs of 2."""
    kind = f"tensor<x128, i32, {BESIDE}>"
    _, (code,) = emission(f"%a : {kind} = tt.max_constancy %x @[{run}];", f"%x : {kind}")
    assert code == values(*copies)


def test_runs_in_other_threads_are_left_alone(emission) -> None:
    kind = f"tensor<x128, i32, {APART}>"
    _, (code, one) = emission(
        f"%a : {kind} = tt.max_constancy %x @[32]; %b : i32 = tt.max_constancy %n @[8];", f"%x : {kind}, %n : i32"
    )
    assert code == values(0, 1, 2, 3) and one == "%p1"


def test_runs_along_the_first_axis(emission) -> None:
    kind = f"tensor<x32, x4, i32, {APART}>"
    _, (code,) = emission(f"%a : {kind} = tt.max_constancy %x @[16, 1];", f"%x : {kind}")
    assert code == values(0, 0, 2, 2)


def test_assumptions_poison_and_barriers(emission) -> None:
    kind = f"tensor<x128, f32, {BESIDE}>"
    emitter, code = emission(f"tt.assume %c; %a : {kind} = tt.poison; %b : f32 = tt.poison; gpu.barrier;", "%c : i1")
    assert code[1] == ["poison"] * 4 and code[2] == "poison"
    assert emitter.lines[0].strip() == "call void @llvm.assume(i1 %p0)"
    assert "bar.warp.sync -1;" in emitter.lines[1] and len(emitter.lines) == 2  # It is one warp.
