"""Primary layouts: the layout that each tensor is computed in, the ranks, and flexible tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_pass import case, first_fault

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.layout import Layout, blocked
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.analysis.components import groups_of
from ziggurat.transforms.analysis.queries import layout_of
from ziggurat.transforms.layouts.accesses import Accesses
from ziggurat.transforms.layouts.layout_plan import PrimaryLayouts, flexible_components

DOT = Layout((1, 256), (2, 4, 8, 16, 32), (64, 128))  # 16 × 32
INDEX = """%0 : tensor<x1024, i32> = tt.make_range @start=0 @end=1024; %1 : tensor<x1024, ptr<f32>> = tt.splat %p;
    %2 : tensor<x1024, ptr<f32>> = tt.addptr %1 %0; %3 : tensor<x1024, f32> = tt.load %2;"""
COALESCED = blocked((1024,), (0,), 4, 4)


def layouts_of(
    body: str, divisibility: str = "[16, 1, 1]", anchor: Any = lambda op: None
) -> tuple[tt.Func, PrimaryLayouts]:
    func = parse(
        f'tt.func @"f" @divisibility={divisibility} (%p : ptr<f32>, %n : i32, %c : i1)void -> {{ {body} tt.return; }};'
    )
    assert isinstance(func, tt.Func)
    accesses, groups = Accesses(func, analyse(func), 4), groups_of(func)
    return func, PrimaryLayouts(func, groups, flexible_components(func, groups, 4), accesses, anchor)


def result(func: tt.Func, kind: Any) -> Value:
    return next(op for op in func.walk() if isinstance(op, kind)).result


def test_indices_have_no_primary_layout() -> None:
    func, actual = layouts_of(INDEX + "tt.store %2 %3;")
    for kind in (tt.MakeRange, tt.Splat, tt.AddPtr):
        component = (result(func, kind), 0)
        assert component in actual.flexible and actual.of(component) is None
    component = (result(func, tt.Load), 0)
    assert component not in actual.flexible and actual.of(component) == COALESCED
    assert actual.reads(result(func, tt.Load).op) == [(0, COALESCED)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("load", "flexible"), [
    ("tt.load %q", True), ("tt.load %q @volatile=true", False),
])  # fmt: skip
def test_a_small_load_is_flexible(load: str, flexible: bool) -> None:
    """A volatile load is not: it may give something else each time."""
    func, actual = layouts_of(f"""%0 : tensor<x128, i32> = tt.make_range @start=0 @end=128;
        %1 : tensor<x128, ptr<f32>> = tt.splat %p; %q : tensor<x128, ptr<f32>> = tt.addptr %1 %0;
        %x : tensor<x128, f32> = {load};""")
    assert ((result(func, tt.Load), 0) in actual.flexible) is flexible


def test_a_tensor_computed_from_memory_is_not_flexible() -> None:
    func, actual = layouts_of(INDEX + "%4 : tensor<x1024, f32> = arith.addf %3 %3; tt.store %2 %4;")
    component = (result(func, arith.AddF), 0)
    assert component not in actual.flexible and actual.of(component) == COALESCED


def test_a_carried_tensor_is_as_flexible_as_its_sources() -> None:
    func, actual = layouts_of(INDEX + """%z : i32 = arith.constant @0; %o : i32 = arith.constant @1;
        %t : Tuple<tensor<x1024, ptr<f32>>, tensor<x1024, f32>> = scf.for %z %n %o %2 %3
            (%i : i32, %q : tensor<x1024, ptr<f32>>, %a : tensor<x1024, f32>)
            Tuple<tensor<x1024, ptr<f32>>, tensor<x1024, f32>> -> {
                %r : tensor<x1024, ptr<f32>> = tt.addptr %q %0; %b : tensor<x1024, f32> = arith.addf %a %a;
                scf.yield %r %b; };""")  # fmt: skip
    loop = result(func, scf.For)
    assert (loop, 0) in actual.flexible and actual.of((loop, 0)) is None
    assert (loop, 1) not in actual.flexible and actual.of((loop, 1)) == COALESCED


@pytest.mark.parametrize(("axis", "layout"), [(1, blocked((1024,), (0,), 8, 4)), (2, COALESCED)])
def test_each_thread_has_a_contiguous_part_of_what_is_reduced_by_pairs_along_several_axes(axis: int, layout: Layout):
    """A step of a sorting network is such a reduction. Steps along the last axes, the most, stay within a thread."""
    body = "(%c : f32, %d : f32)f32 -> { %e : f32 = arith.addf %c %d; tt.reduce.return %e; }"
    func, actual = layouts_of(INDEX + f"""%4 : tensor<x256, x2, x2, f32> = tt.reshape %3;
        %5 : tensor<x256, x2, f32> = tt.reduce %4 @axis=2 {body};
        %6 : tensor<x256, x2, f32> = tt.reduce %4 @axis={axis} {body};""")  # fmt: skip
    assert actual.of((result(func, tt.Reshape), 0)) == layout
    assert actual.of((result(func, tt.Load), 0)) == COALESCED
    assert actual.of((result(func, tt.Reduce), 0)) == layout.dropped((256, 2, 2), 2)


PRODUCT = """%a : tensor<x16, x16, f16> = tt.splat %h; %b : tensor<x16, x32, f16> = tt.splat %h;
    %z : f32 = arith.constant @0.0; %d0 : tensor<x16, x32, f32> = tt.splat %z;
    %d : tensor<x16, x32, f32> = tt.dot %a %b %d0;"""
HALF = "%h : f16 = arith.sitofp %n;"


def test_a_dot_outranks_memory() -> None:
    func, actual = layouts_of(
        f"""%0 : tensor<x512, i32> = tt.make_range @start=0 @end=512; %1 : tensor<x16, x32, i32> = tt.reshape %0;
        %2 : tensor<x16, x32, ptr<f32>> = tt.splat %p; %3 : tensor<x16, x32, ptr<f32>> = tt.addptr %2 %1;
        %4 : tensor<x16, x32, f32> = tt.load %3; {HALF} {PRODUCT}
        %s : tensor<x16, x32, f32> = arith.addf %4 %d; tt.store %3 %s;""",
        anchor=lambda op, _: DOT if isinstance(op, tt.Dot) else None,
    )
    values, dot, total = (result(func, kind) for kind in (tt.Load, tt.Dot, arith.AddF))
    assert actual.of((dot, 0)) == actual.of((total, 0)) == DOT
    assert actual.of((values, 0)) == blocked((16, 32), (1, 0), 4, 4) != DOT
    # The accumulator has the layout of the result.
    reads = dict(actual.reads(next(op for op in func.walk() if isinstance(op, tt.Dot))))
    assert reads[2] == DOT and set(reads) == {0, 1, 2}


def test_layouts_of_reductions_and_shapes_follow_from_their_operands() -> None:
    func, actual = layouts_of(INDEX + """%4 : tensor<x8, x128, f32> = tt.reshape %3;
        %5 : tensor<x8, f32> = tt.reduce %4 @axis=1 (%a : f32, %b : f32)f32 -> {
            %s : f32 = arith.addf %a %b; tt.reduce.return %s; };
        %6 : tensor<x128, x8, f32> = tt.trans %4 @order=[1, 0];
        %7 : f32 = tt.reduce %5 @axis=0 (%c0 : f32, %d : f32)f32 -> {
            %t : f32 = arith.addf %c0 %d; tt.reduce.return %t; };""")  # fmt: skip
    first, last = (op.result for op in func.walk() if isinstance(op, tt.Reduce))
    assert actual.of((result(func, tt.Reshape), 0)) == COALESCED
    assert actual.of((result(func, tt.Trans), 0)) == COALESCED.transposed((8, 128), (1, 0))
    assert actual.of((first, 0)) == COALESCED.dropped((8, 128), 1)
    assert actual.of((last, 0)) is None  # A scalar.


def test_halves_that_are_not_in_one_thread_are_read_as_neighbours() -> None:
    func, actual = layouts_of(
        INDEX
        + """%4 : tensor<x512, x2, f32> = tt.reshape %3;
        %t : Tuple<tensor<x512, f32>, tensor<x512, f32>> = tt.split %4;""",
        "[1, 1, 1]",
    )
    split = next(op for op in func.walk() if isinstance(op, tt.Split))
    ((position, read),) = actual.reads(split)
    half = read.split()
    assert position == 0 and read == blocked((512, 2), (1, 0), 2, 4) and half is not None
    assert actual.of((split.result, 0)) == actual.of((split.result, 1)) == half


@zg.kernel
def sums_of_channels(x, out, by_row, by_channel):
    """Neighbours lie along the second axis, and the strides of the others are not known."""
    rows, columns, channels = zg.arange(0, 16), zg.arange(0, 16), zg.arange(0, 64)
    at = zg.add(zg.mul(zg.expand(zg.expand(rows, 1), 1), by_row), zg.expand(zg.expand(columns, 1), 0))
    at = zg.add(at, zg.mul(zg.expand(zg.expand(channels, 0), 0), by_channel))
    where = zg.add(zg.mul(zg.expand(rows, 1), 16), zg.expand(columns, 0))
    zg.store(zg.add(out, where), zg.sum(zg.load(zg.add(x, at)), axis=2))


def test_lanes_lie_along_axes_that_are_not_reduced() -> None:
    def arguments() -> list[Any]:
        x = np.random.default_rng(0).integers(-9, 9, 64 * 16 * 16).astype(np.float32)
        return [x, np.zeros(16 * 16, np.float32), 16, 256]

    launch = case(sums_of_channels, arguments, num_warps=4, verify=True)
    passes: list[Snapshot] = []
    assert first_fault(launch, passes) is None
    (load,) = (op for op in passes[-1].model.walk() if isinstance(op, tt.Load))
    assert all(basis >= 64 for basis in layout_of(load.result.type).lanes)
