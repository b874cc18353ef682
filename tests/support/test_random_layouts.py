"""Random layouts: they cover their tensors, depend only on the seed, and keep the model valid for lowering."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_layouts import random_layout, scatter

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.types import TensorType

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.integers(0, 9), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_a_layout_covers_its_tensor(seed: int, bits: int, num_warps: int, mixed: bool) -> None:
    layout = random_layout(Random(seed), 1 << bits, num_warps, mixed=mixed)
    assert layout.covers(1 << bits) and layout.num_warps == num_warps
    assert layout == random_layout(Random(seed), 1 << bits, num_warps, mixed=mixed)
    if not mixed:
        assert all(basis & basis - 1 == 0 for basis in layout.bases)


def test_layouts_of_all_kinds_are_drawn() -> None:
    drawn = [random_layout(Random(seed), 256, 4) for seed in range(100)]
    assert len(set(drawn)) == 100
    assert any(0 in layout.registers for layout in drawn)
    assert any(0 in layout.lanes for layout in drawn) and any(0 in layout.warps for layout in drawn)
    assert any(basis & basis - 1 for layout in drawn for basis in layout.bases)
    # As few registers as can be, or up to four times as many, and copies of them.
    assert {layout.num_registers for layout in drawn} == {2, 4, 8, 16}


def model(text: str) -> gpu.Module:
    model = zg.parse(f'gpu.module @target="sm_90a" @num_warps=1 ()void -> {{ {text} unreachable; }};')
    assert isinstance(model, gpu.Module)
    zg.verify(model)
    return model


HOME = '"1 | 2 4 8 16 32 | "'
SUM = f"""tt.func @"k" (%0 : tensor<x64, f32, {HOME}>)void -> {{
    %1 : tensor<x64, f32, {HOME}> = arith.addf %0 %0;
    tt.return;
}};"""


def test_before_and_after() -> None:
    """As in the docstring: an elementwise op is done in the random layout."""
    result = scatter(model(SUM), seed=3, share=1)
    zg.verify(result)
    first, second, add, back = list(result.body.entry.ops[0].bodies[0].entry.ops)[:-1]
    assert isinstance(first, gpu.ConvertLayout) and isinstance(second, gpu.ConvertLayout)
    assert isinstance(add, arith.AddF) and add.operands == (first.result, second.result)
    assert isinstance(back, gpu.ConvertLayout) and back.operands == (add.result,)
    drawn, home = add.result.type, back.result.type
    assert isinstance(drawn, TensorType) and isinstance(drawn.layout, Layout) and drawn.layout.covers(64)
    assert str(home) == f"tensor<x64, f32, {HOME}>" and drawn != home


def test_no_share_is_no_change() -> None:
    assert zg.same_model(scatter(model(SUM), seed=3, share=0), model(SUM))


def test_a_seed_draws_the_same() -> None:
    assert zg.same_model(scatter(model(SUM), seed=3, share=1), scatter(model(SUM), seed=3, share=1))
    assert len({str(scatter(model(SUM), seed=seed, share=1)) for seed in range(10)}) > 5


def test_accesses_are_of_single_elements() -> None:
    """Neighbouring registers need not point to neighbours any more."""
    pointers = f"tensor<x64, ptr<f32>, {HOME}>"
    text = f"""tt.func @"k" (%0 : {pointers})void -> {{
        %1 : tensor<x64, f32, {HOME}> = tt.load %0 @width=2;
        tt.store %0 %1 @width=2;
        tt.return;
    }};"""
    accesses = [op for op in scatter(model(text), seed=1, share=1).walk() if isinstance(op, tt.Load | tt.Store)]
    assert [op.width for op in accesses] == [1, 1]
    assert [op.width for op in model(text).walk() if isinstance(op, tt.Load | tt.Store)] == [2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_reductions_start_from_bits_in_another_order(seed: int) -> None:
    two = 'tensor<x8, x8, f32, "1 | 2 4 8 16 32 | ">'
    text = f"""tt.func @"k" (%0 : {two})void -> {{
        %1 : tensor<x8, f32, "0 | 0 0 1 2 4 | "> = tt.reduce %0 @axis=1 (%2 : f32, %3 : f32)f32 -> {{
            %4 : f32 = arith.addf %2 %3;
            tt.reduce.return %4;
        }};
        tt.return;
    }};"""
    (reduction,) = [op for op in scatter(model(text), seed, share=1).walk() if isinstance(op, tt.Reduce)]
    type_ = reduction.operands[0].type
    assert isinstance(type_, TensorType) and type_.layout is not None
    assert sorted(filter(None, type_.layout.bases)) == [1, 2, 4, 8, 16, 32]
    assert str(reduction.result.type) == 'tensor<x8, f32, "0 | 0 0 1 2 4 | ">'
