"""The rebuilding with layouts: conversions just before their use, and control flow that carries each needed layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import blocked
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, TensorType, TupleType, f32, i32
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.queries import with_layout
from ziggurat.transforms.gpu.assign import assign
from ziggurat.transforms.tiles.prepare import prepare

F32 = zg.ptr(zg.f32)


def aligned(*types: Any) -> list[Any]:
    """Pointers and integers that are divisible by 16."""
    return [zg.divisible(type_) for type_ in types]


def placed(kernel: Any, types: Sequence[Any], num_warps: int = 4) -> gpu.Module:
    module = assign(prepare(kernel.triton(*types)), CompileOptions(num_warps=num_warps))
    verify(module)
    return module


def ops_of(module: gpu.Module, kind: type[Any]) -> list[Any]:
    return [op for op in module.walk() if isinstance(op, kind)]


def test_types_with_layouts() -> None:
    layout = blocked((8,), (0,), 1, 1)
    assert with_layout(TensorType((8,), f32), layout) == TensorType((8,), f32, layout)
    assert with_layout(TensorType((8,), f32, layout), None) == TensorType((8,), f32)
    assert with_layout(i32, layout) == i32 and with_layout(PtrType(f32), None) == PtrType(f32)
    several = TupleType((i32, i32))
    assert with_layout(several, layout) is several


def test_the_module_keeps_the_attributes_of_the_kernel() -> None:
    text = """tt.func @"f" @divisibility=[16, 1] (%p : ptr<f32>, %n : i32)void -> {
        %0 : tensor<x256, i32> = tt.make_range @start=0 @end=256; %1 : tensor<x256, ptr<f32>> = tt.splat %p;
        %2 : tensor<x256, ptr<f32>> = tt.addptr %1 %0; %3 : tensor<x256, f32> = tt.load %2;
        tt.store %2 %3; tt.return; };"""
    model = zg.parse(f"module ()void -> {{ {text} unreachable; }};")
    assert isinstance(model, core.Module)
    module = assign(model, CompileOptions("sm_80", num_warps=2))
    verify(module)
    assert (module.target, module.num_warps) == ("sm_80", 2)
    (result,) = ops_of(module, tt.Func)
    assert result.sym_name == "f" and tuple(result.divisibility) == (16, 1)
    assert all(v.type.layout is not None for op in result.walk() for v in op.operands if isinstance(v.type, TensorType))
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == [4, 4]


def test_a_conversion_is_just_before_its_use() -> None:
    """There is one for all uses of the same block."""
    text = """module ()void -> { tt.func @"f" @divisibility=[16, 16] (%p : ptr<f32>, %n : i32)void -> {
        %r : tensor<x1024, i32> = tt.make_range @start=0 @end=1024; %m : tensor<x32, x32, i32> = tt.reshape %r;
        %b : tensor<x32, x32, ptr<f32>> = tt.splat %p; %at : tensor<x32, x32, ptr<f32>> = tt.addptr %b %m;
        %x : tensor<x32, x32, f32> = tt.load %at;
        tt.print %n @"between";
        %t : tensor<x32, x32, f32> = tt.trans %x @order=[1, 0];
        tt.store %at %t; tt.store %at %t; tt.return; }; unreachable; };"""
    model = zg.parse(text)
    assert isinstance(model, core.Module)
    module = assign(model, CompileOptions(num_warps=4))
    verify(module)
    (converted,) = ops_of(module, gpu.ConvertLayout)
    (func,) = ops_of(module, tt.Func)
    ops = list(func.body.entry.ops)
    stores = [at for at, op in enumerate(ops) if isinstance(op, tt.Store)]
    (message,) = [at for at, op in enumerate(ops) if isinstance(op, tt.Print)]
    assert message < ops.index(converted) < stores[0] and len(stores) == 2


@zg.kernel
def chosen(x_ptr, y_ptr, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, at), mask)
    zg.store(zg.add(y_ptr, at), zg.where(mask, x, 1.0))


@pytest.mark.parametrize(("hint", "comparisons"), [(zg.divisible, 2), (lambda type_: type_, 8)])
def test_a_mask_is_compared_once_for_a_run(hint: Any, comparisons: int) -> None:
    """Four neighbours of 8 elements in a thread have one mask, if that is known."""
    types = [*aligned(F32, F32), hint(zg.i32), 1024]
    hints = ops_of(placed(chosen, types), tt.MaxConstancy)
    assert [op.values for op in hints] == ([(16,)] if comparisons == 2 else [])
    ptx = chosen.compile(*types, num_warps=4).ptx
    assert ptx.count("setp.lt.s32") + ptx.count("setp.gt.s32") == comparisons


def test_a_kernel_without_tensors_and_one_of_blocks() -> None:
    text = """module ()void -> { tt.func @"f" (%p : ptr<i32>, %c : i1)void -> {
        %0 : tensor<x64, i32> = tt.make_range @start=0 @end=64;
        %1 : tensor<x64, ptr<i32>> = tt.splat %p;
        %2 : tensor<x64, ptr<i32>> = tt.addptr %1 %0;
        cf.cond_br %c ^block_1(%0) ^block_2;
      ^block_1(%3 : tensor<x64, i32>):
        tt.store %2 %3;
        tt.return;
      ^block_2:
        %4 : tensor<x64, i32> = tt.load %2;
        %5 : i32 = tt.reduce %4 @axis=0 (%6 : i32, %7 : i32)i32 -> {
            %8 : i32 = arith.addi %6 %7; tt.reduce.return %8; };
        tt.store %p %5;
        tt.return; }; unreachable; };"""
    model = zg.parse(text)
    assert isinstance(model, core.Module)
    module = assign(model, CompileOptions(num_warps=1))
    verify(module)
    assert not ops_of(module, gpu.ConvertLayout)


ONE_RESULT_IN_TWO_LAYOUTS = {
    "if": """%v : tensor<x2, x4, i32> = scf.if %c
            ()tensor<x2, x4, i32> -> { scf.yield %m; }
            ()tensor<x2, x4, i32> -> { %s : tensor<x2, x4, i32> = tt.splat %n; scf.yield %s; };""",
    "for": """%v : tensor<x2, x4, i32> = scf.for %zero %n %one %m
            (%i : i32, %x : tensor<x2, x4, i32>)tensor<x2, x4, i32> -> {
                %y : tensor<x2, x4, i32> = arith.addi %x %m; scf.yield %y; };""",
    "while": """%v : tensor<x2, x4, i32> = scf.while %m
            (%x : tensor<x2, x4, i32>)tensor<x2, x4, i32> -> { scf.condition %c %x; }
            (%x : tensor<x2, x4, i32>)tensor<x2, x4, i32> -> {
                %y : tensor<x2, x4, i32> = arith.addi %x %m; scf.yield %y; };""",
}  # fmt: skip


@pytest.mark.parametrize("kind", ONE_RESULT_IN_TWO_LAYOUTS)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_one_result_of_control_flow_is_used_in_two_layouts(kind: str, num_warps: int) -> None:
    """It is computed in both: the result of the op becomes a Tuple."""
    text = f"""module ()void -> {{ tt.func @"f" (%p : ptr<i32>, %c : i1, %n : i32)void -> {{
        %zero : i32 = arith.constant @0;
        %one : i32 = arith.constant @1;
        %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
        %m : tensor<x2, x4, i32> = tt.reshape %r;
        %p0 : tensor<x2, x4, ptr<i32>> = tt.splat %p;
        %p1 : tensor<x2, x4, ptr<i32>> = tt.addptr %p0 %m;
        {ONE_RESULT_IN_TWO_LAYOUTS[kind]}
        tt.store %p1 %v;
        %t : tensor<x4, x2, i32> = tt.trans %v @order=[1, 0];
        %w : tensor<x2, x4, i32> = tt.reshape %t;
        tt.store %p1 %w;
        tt.return; }}; unreachable; }};"""
    model = zg.parse(text)
    assert isinstance(model, core.Module)
    module = assign(model, CompileOptions(num_warps=num_warps))
    verify(module)
    assert not ops_of(module, gpu.ConvertLayout)
    (result,) = ops_of(module, {"if": scf.If, "for": scf.For, "while": scf.While}[kind])
    parts = result.result.type.components
    assert len(parts) == len({part.layout for part in parts}) == 2


def test_nested_control_flow_is_walked_once_for_all_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Op.walk
    visited = 0

    def counted(op: Op) -> Iterator[Op]:
        nonlocal visited
        for inner in walk(op):
            visited += 1
            yield inner

    def visits(depth: int) -> int:
        nonlocal visited
        body = "tt.store %p %x;"
        for _ in range(depth):
            body = f"scf.if %c ()void -> {{ {body} scf.yield; }} ()void -> {{ scf.yield; }};"
        text = f"""module ()void -> {{ tt.func @"f" (%p : ptr<f32>, %x : f32, %c : i1)void -> {{
            {body} tt.return; }}; unreachable; }};"""
        model = zg.parse(text)
        assert isinstance(model, core.Module)
        visited = 0
        assign(model, CompileOptions(num_warps=1))
        return visited

    monkeypatch.setattr(Op, "walk", counted)
    assert visits(40) < 3 * visits(20)
