"""The layout plan: wanted layouts, lazy ops, and conversions."""

from __future__ import annotations

from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects import math as functions
from ziggurat.codemodel.layout import blocked
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.layouts.accesses import Accesses
from ziggurat.transforms.layouts.layout_plan import LayoutPlan
from ziggurat.transforms.tiles.prepare import prepare

INDEX = """%0 : tensor<x1024, i32> = tt.make_range @start=0 @end=1024; %1 : tensor<x1024, ptr<f32>> = tt.splat %p;
    %2 : tensor<x1024, ptr<f32>> = tt.addptr %1 %0; %3 : tensor<x1024, f32> = tt.load %2;"""
ROWS = blocked((1024,), (0,), 4, 4)
TRANSPOSED = """%4 : tensor<x32, x32, f32> = tt.reshape %3; %5 : tensor<x32, x32, f32> = tt.trans %4 @order=[1, 0];
    %6 : tensor<x1024, f32> = tt.reshape %5; tt.store %2 %6;"""


def plan(body: str) -> tuple[tt.Func, LayoutPlan]:
    parameters = "%p : ptr<f32>, %n : i32, %half : ptr<f16>"
    func = parse(f'tt.func @"f" @divisibility=[16, 16, 16] ({parameters})void -> {{ {body} tt.return; }};')
    assert isinstance(func, tt.Func)
    return func, LayoutPlan(func, 4, lambda op, _: None)


def ops(func: tt.Func, kind: Any) -> list[Any]:
    return [op for op in func.walk() if isinstance(op, kind)]


def test_indices_are_wanted_where_they_are_used() -> None:
    func, result = plan(INDEX + "tt.store %2 %3;")
    (ramp,), (load,), (store,) = ops(func, tt.MakeRange), ops(func, tt.Load), ops(func, tt.Store)
    assert result.is_lazy(ramp) and not result.is_lazy(load) and not result.is_lazy(store)
    assert result.wanted((ramp.result, 0)) == [ROWS] == result.wanted((load.result, 0))
    assert result.reads(store) == [(0, ROWS), (1, ROWS)] and result.reads(ramp, ROWS) == []
    assert not result.is_late((ramp.result, 0), ROWS) and not result.is_late((load.result, 0), ROWS)
    assert result.needs[store.result] == [((ops(func, tt.AddPtr)[0].result, 0), ROWS), ((load.result, 0), ROWS)]
    assert result.wanted((store.result, 0)) == []


def test_a_layout_other_than_the_primary_one_is_late_also_through_shapes() -> None:
    """Shapes cost nothing: they are computed from a converted tensor, not converted themselves."""
    func, result = plan(INDEX + TRANSPOSED)
    (load,), (transposed,), (store,) = ops(func, tt.Load), ops(func, tt.Trans), ops(func, tt.Store)
    assert all(result.is_lazy(op) for op in (*ops(func, tt.Reshape), transposed))
    assert dict(result.reads(store))[1] == ROWS
    (expected,) = result.wanted((load.result, 0))
    assert expected == ROWS.transposed((32, 32), (1, 0)) != ROWS
    assert result.is_late((load.result, 0), expected) and not result.is_late((load.result, 0), ROWS)
    assert result.is_late((transposed.result, 0), ROWS)


def test_a_widening_cast_is_after_the_conversion_and_other_arithmetic_before() -> None:
    func, result = plan(f"""{INDEX} %h : tensor<x1024, f16> = arith.truncf %3; %w : tensor<x1024, f32> = arith.extf %h;
        {TRANSPOSED.replace("%3", "%w")}""")
    (narrowed,), (widened,) = ops(func, arith.TruncF), ops(func, arith.ExtF)
    assert result.is_lazy(widened) and not result.is_lazy(narrowed)
    (expected,) = result.wanted((narrowed.result, 0))
    assert result.is_late((narrowed.result, 0), expected) and result.is_late((widened.result, 0), expected)


def test_a_tensor_in_the_right_threads_is_broadcast_without_a_conversion() -> None:
    """The sum of a row is in the threads that hold the row; the register numbers do not matter."""
    func, result = plan(INDEX + """%4 : tensor<x8, x128, f32> = tt.reshape %3;
        %5 : tensor<x8, f32> = tt.reduce %4 @axis=1 (%a : f32, %b : f32)f32 -> {
            %s : f32 = arith.addf %a %b; tt.reduce.return %s; };
        %6 : tensor<x8, x1, f32> = tt.expand_dims %5 @axis=1; %7 : tensor<x8, x128, f32> = tt.broadcast %6;
        %8 : tensor<x8, x128, f32> = arith.subf %4 %7;
        %9 : tensor<x1024, f32> = tt.reshape %8; tt.store %2 %9;""")  # fmt: skip
    (sums,), (repeated,) = ops(func, tt.Reduce), ops(func, tt.Broadcast)
    home = result.primary.of((sums.result, 0))
    assert home == ROWS.dropped((8, 128), 1)
    assert result.wanted((sums.result, 0)) == [home] and not result.is_late((repeated.result, 0), ROWS)


LOOP = """%z : i32 = arith.constant @0; %o : i32 = arith.constant @1; %f : f32 = arith.constant @0.0;
    %t : Tuple<tensor<x1024, ptr<f32>>, tensor<x1024, f32>, i32> = scf.for %z %n %o %2 %3 %z
        (%i : i32, %q : tensor<x1024, ptr<f32>>, %a : tensor<x1024, f32>, %k : i32)
        Tuple<tensor<x1024, ptr<f32>>, tensor<x1024, f32>, i32> -> {
            %x : tensor<x1024, f32> = tt.load %q; %b : tensor<x1024, f32> = arith.addf %a %x;
            %r : tensor<x1024, ptr<f32>> = tt.addptr %q %0; scf.yield %r %b %i; };
    %y : tensor<x1024, f32> = tuple.load %t @1;"""


def test_control_flow_carries_each_layout_that_is_used() -> None:
    func, result = plan(f"{INDEX} {LOOP} tt.store %2 %y;")
    (loop,) = ops(func, scf.For)
    pointers, total, number = (result.carried((loop.result, index)) for index in range(3))
    assert pointers == [ROWS] and total == [ROWS] and number == [None]
    _, q, _, k = loop.body.parameters
    assert result.carried((q, 0)) == pointers and result.carried((k, 0)) == [None]
    # Ops that pass on groups read no layouts of their own.
    ends: list[Op] = [loop, *ops(func, scf.Yield)]
    assert all(result.reads(op) == [] for op in ends)


def test_an_unused_value_is_not_carried() -> None:
    func, result = plan(f"""{INDEX} %z : i32 = arith.constant @0; %o : i32 = arith.constant @1;
        %t : tensor<x1024, i32> = scf.for %z %n %o %0 (%i : i32, %a : tensor<x1024, i32>)tensor<x1024, i32> -> {{
            %b : tensor<x1024, i32> = arith.addi %a %a; scf.yield %b; }}; tt.store %2 %3;""")
    (loop,) = ops(func, scf.For)
    assert result.carried((loop.result, 0)) == []


def test_few_elements_are_loaded_again_unless_a_thread_would_load_many() -> None:
    """A thread has `size` / 4 rows of the stored tensor: of 16 they are loaded once, and converted. None is aligned."""
    for size, again in ((16, True), (64, False)):
        wide = f"tensor<x{size}, x128, ptr<f32>>"
        func, result = plan(f"""%r : tensor<x{size}, i32> = tt.make_range @start=1 @end={size + 1};
            %a : tensor<x{size}, ptr<f32>> = tt.splat %p; %b : tensor<x{size}, ptr<f32>> = tt.addptr %a %r;
            %v : tensor<x{size}, f32> = tt.load %b; %w : tensor<x{size}, x1, f32> = tt.expand_dims %v @1;
            %x : tensor<x{size}, x128, f32> = tt.broadcast %w;
            %c : tensor<x128, i32> = tt.make_range @start=0 @end=128;
            %d : tensor<x1, x128, i32> = tt.expand_dims %c @0;
            %e : tensor<x{size}, x128, i32> = tt.broadcast %d; %f : {wide} = tt.splat %p;
            %g : {wide} = tt.addptr %f %e; tt.store %g %x;""")
        (load,) = ops(func, tt.Load)
        layouts = result.wanted((load.result, 0))
        assert len(layouts) == 2 - again
        assert result.is_lazy(load) and result.computed(load, layouts[0]) == layouts[-1]
        assert again or layouts[1] == result.accesses.coalesced(load)


def test_a_load_of_narrower_elements_has_the_layout_in_which_a_store_is_wide() -> None:
    """Eight neighbours of f16 are 16 bytes, but the four in f32 are those that a thread stores at once."""
    load = """%l : tensor<x4096, i32> = tt.make_range @start=0 @end=4096;
        %i : tensor<x4096, ptr<f16>> = tt.splat %half; %j : tensor<x4096, ptr<f16>> = tt.addptr %i %l;
        {} %v : tensor<x4096, f16> = tt.load %j; %w : tensor<x4096, f32> = arith.extf %v;"""
    store = """%a : tensor<x4096, ptr<f32>> = tt.splat %p; %b : tensor<x4096, ptr<f32>> = tt.addptr %a %l;
        tt.store %b {};"""
    wide = "tensor<x4096, f32>"
    sums = f"""%z : tensor<x4096, f32> = arith.constant @0.0; %o : i32 = arith.constant @1;
        {load.format(f"%s : {wide} = scf.for %o %n %o %z (%k : i32, %y : {wide}){wide} -> {{")}
        %x : tensor<x4096, f32> = arith.addf %y %w; scf.yield %x; }}; {store.format("%s")}"""
    for body, vector in ((load.format("") + store.format("%w"), 4), (sums, 8)):
        func, result = plan(body)
        (load_op,), (store_op,) = ops(func, tt.Load), ops(func, tt.Store)
        assert result.accesses.coalesced(load_op) == blocked((4096,), (0,), vector, 4)
        assert dict(result.reads(store_op))[1] == blocked((4096,), (0,), 4, 4)


@zg.kernel
def product_from(a_ptr, b_ptr, out_ptr, start_ptr, K: zg.constexpr):
    """a · b of 64×K and K×64, along k from a number in memory on."""
    lines, deep = zg.arange(0, 64), zg.add(zg.load(start_ptr), zg.arange(0, K))
    a = zg.load(zg.add(a_ptr, zg.add(zg.mul(zg.expand(lines, 1), 4096), zg.expand(deep, 0))))
    b = zg.load(zg.add(b_ptr, zg.add(zg.mul(zg.expand(deep, 1), 64), zg.expand(lines, 0))))
    zg.store(zg.add(out_ptr, zg.add(zg.mul(zg.expand(lines, 1), 64), zg.expand(lines, 0))), zg.dot(a, b))


@pytest.mark.parametrize("name", ["f16", "f32"])
def test_loads_for_dots_are_of_runs_that_threads_store_together(name: str) -> None:
    """Nothing is known of where the runs of `a` begin. Elements of 32 bits are copied to shared memory one by one."""
    pointer = zg.divisible(zg.ptr(getattr(zg, name)))
    model = product_from.triton(pointer, pointer, zg.divisible(zg.ptr(zg.f32)), zg.ptr(zg.i32), 32)
    func = next(op for op in prepare(model).walk() if isinstance(op, tt.Func))
    accesses = Accesses(func, analyse(func), 4)
    of_a, of_b = (op for op in func.walk() if isinstance(op, tt.Load) and op.result.type.rank == 2)
    size = 2 if name == "f16" else 4
    assert accesses.width(of_a, accesses.coalesced(of_a)) == 1
    assert accesses.coalesced(of_a) == blocked((64, 32), (1, 0), 8 if size == 2 else 1, 4)
    assert accesses.coalesced(of_b) == blocked((32, 64), (1, 0), 16 // size, 4)


@zg.kernel
def decayed(x_ptr, decay_ptr, out_ptr, N):
    """A state of 64×32, step by step, whose rows decay at their own rates."""
    rows, columns = zg.arange(0, 64), zg.arange(0, 32)
    state = zg.zeros((64, 32), zg.f32)
    for at in range(N):
        decay = zg.load(zg.add(decay_ptr, zg.add(zg.mul(at, 64), rows)))
        x = zg.load(zg.add(x_ptr, zg.add(zg.mul(at, 32), columns)))
        state = zg.add(zg.mul(state, zg.expand(decay, 1)), zg.expand(x, 0))
        zg.store(zg.add(out_ptr, zg.add(zg.mul(at, 32), columns)), zg.sum(state, 0))


def test_threads_hold_runs_of_rows_whose_numbers_they_load_together() -> None:
    pointer = zg.divisible(zg.ptr(zg.f16))
    model = decayed.triton(pointer, pointer, zg.divisible(zg.ptr(zg.f32)), zg.i32)
    func = next(op for op in prepare(model).walk() if isinstance(op, tt.Func))
    accesses = Accesses(func, analyse(func), 2)
    assert accesses.default((64, 32)) == blocked((64, 32), (1, 0), 4, 2).in_runs((64, 32), 0)
    layout = accesses.default((64, 32)).dropped((64, 32), 1).without_copies()
    assert accesses.width(ops(func, tt.Load)[0], layout) == 8


def test_scalars_that_rows_are_computed_from_are_no_runs() -> None:
    body = """%c : f32 = tt.load %p; %s : tensor<x32, f32> = tt.splat %c; %t : i1 = arith.cmpf %c %c @oeq;
        %r : tensor<x32, i32> = tt.make_range @start=0 @end=32;
        %a : tensor<x32, ptr<f32>> = tt.splat %p; %b : tensor<x32, ptr<f32>> = tt.addptr %a %r;
        %v : tensor<x32, f32> = tt.load %b; %x : tensor<x32, f32> = arith.select %t %v %s;
        %w : tensor<x32, x1, f32> = tt.expand_dims %x @1; %y : tensor<x32, x32, f32> = tt.broadcast %w;"""
    _, result = plan(body)
    assert result.accesses.widened == {(32, 32): {0}}


def block(rows: int, along: tuple[int, int], before: str = "") -> tuple[list[Any], LayoutPlan]:
    """The load and two powers of [8, 1, 64] elements by which a block [8, `rows`, 64] is multiplied, and the plan. The
    elements are `along` apart along the first and the last axis."""
    narrow, wide = "tensor<x8, x1, x64, {}>", f"tensor<x8, x{rows}, x64, {{}}>"
    i, j = narrow.format("i32"), wide.format("i32")
    p, q = narrow.format("ptr<f32>"), wide.format("ptr<f32>")
    f, g = narrow.format("f32"), wide.format("f32")
    func, result = plan(f"""{before} %0 : tensor<x8, i32> = tt.make_range @start=0 @end=8;
        %1 : tensor<x64, i32> = tt.make_range @start=0 @end=64; %2 : tensor<x8, x1, i32> = tt.expand_dims %0 @1;
        %3 : tensor<x8, x1, x1, i32> = tt.expand_dims %2 @2; %4 : tensor<x1, x64, i32> = tt.expand_dims %1 @0;
        %5 : tensor<x1, x1, x64, i32> = tt.expand_dims %4 @0; %6 : {i} = tt.broadcast %3; %7 : {i} = tt.broadcast %5;
        %8 : i32 = arith.constant @{along[0]}; %9 : i32 = arith.constant @{along[1]}; %10 : {i} = tt.splat %8;
        %11 : {i} = tt.splat %9; %12 : {i} = arith.muli %6 %10; %13 : {i} = arith.muli %7 %11;
        %14 : {i} = arith.addi %12 %13; %15 : {p} = tt.splat %p; %16 : {p} = tt.addptr %15 %14;
        %17 : {f} = tt.load %16; %18 : {f} = math.exp %17; %19 : {f} = math.exp %18; %20 : {g} = tt.broadcast %19;
        %21 : tensor<x{rows}, i32> = tt.make_range @start=0 @end={rows};
        %22 : tensor<x1, x{rows}, i32> = tt.expand_dims %21 @0;
        %23 : tensor<x1, x{rows}, x1, i32> = tt.expand_dims %22 @2; %24 : {j} = tt.broadcast %23;
        %25 : {j} = tt.broadcast %5; %26 : i32 = arith.constant @512; %27 : {j} = tt.splat %26;
        %28 : {j} = arith.muli %24 %27; %29 : {j} = arith.addi %28 %25; %30 : {q} = tt.splat %p;
        %31 : {q} = tt.addptr %30 %29; %32 : {g} = tt.load %31; %33 : {g} = arith.mulf %20 %32; tt.store %31 %33;""")
    return [ops(func, tt.Load)[0], *ops(func, functions.Exp)], result


def test_narrow_tensors_are_computed_once_where_threads_would_compute_many_again() -> None:
    """Threads along x have the same elements. To load them again, from a line each, costs more than to convert the last
    power; no power is converted before."""
    (load, power, last), result = block(8, (1, 512))
    once = result.accesses.coalesced(load)
    again, *others = result.wanted((last.result, 0))
    assert others == [once] != [again] and result.computed(last, again) == once == result.computed(last, once)
    assert result.sources((last.result, 0), again) == [((last.result, 0), once)]
    assert result.wanted((power.result, 0)) == [once] == result.wanted((load.result, 0))
    # Other loads begin before the threads meet for the conversion.
    assert result.is_late((last.result, 0), again) and not result.is_late((last.result, 0), once)
    # Eight elements to a line, where a thread does not load four neighbours along y.
    assert result.accesses.lookups(load, again) == (4 * 32, 4 * 32 * 16)
    assert result.accesses.lookups(load, once) == (4, 4 * 16)


def test_narrow_tensors_are_computed_again_beside_dots() -> None:
    (load, _, last), result = block(8, (1, 512), DOT)
    (layout,) = result.wanted((last.result, 0))
    assert result.wanted((load.result, 0)) == [layout] != [result.accesses.coalesced(load)]


DOT = """%d : tensor<x16, x16, f16> = arith.constant @0.0; %e : tensor<x16, x16, f32> = arith.constant @0.0;
    %c : tensor<x16, x16, f32> = tt.dot %d %d %e;"""  # Beside it, loads begin ahead.
