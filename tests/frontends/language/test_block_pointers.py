"""Blocks of a tensor in memory that a pointer moves over."""

from __future__ import annotations

import pytest

MADE = "zg.make_block_ptr(p, (n, 8), (n, 1), (0, n), (4, 16), (1, 0))"

CASES = {
    MADE: "block_ptr<x4, x16, f32>",
    "zg.make_block_ptr(p, (n,), (1,), (0,), 16, 0)": "block_ptr<x16, f32>",
    f"zg.advance({MADE}, (0, 16))": "block_ptr<x4, x16, f32>",
    f"zg.load({MADE})": "tensor<x4, x16, f32>",
    f"zg.load({MADE}, boundary_check=(1, 0), padding_option='nan')": "tensor<x4, x16, f32>",
    f"zg.load({MADE}, boundary_check=1)": "tensor<x4, x16, f32>",
    f"zg.store({MADE}, m, boundary_check=(0, 1))": 'constant<object, "None">',
    f"zg.store({MADE}, 1)": 'constant<object, "None">',
    f"{MADE}.dtype.element_ty": "constant<object, tensor<x4, x16, f32>>",
    f"zg.cast(h, {MADE}.dtype.element_ty)": "tensor<x16, f32>",
    f"{MADE} if n > 0 else zg.advance({MADE}, (1, 1))": "block_ptr<x4, x16, f32>",
    "zg.make_block_ptr(ps, (n,), (1,), (0,), (16,), (0,))": "error: 'base' must be the pointer to the tensor; got",
    "zg.make_block_ptr(p, (), (), (), (), ())": "error: 'block_shape' must have an axis",
    "zg.make_block_ptr(p, (n, n), (1,), (0,), (16,), (0,))": "error: the sizes must be a tuple of 1",
    "zg.make_block_ptr(p, (n,), (x,), (0,), (16,), (0,))": "error: the strides must be integers; got f32",
    "zg.make_block_ptr(p, (n,), (1,), (t,), (16,), (0,))": "error: the offsets must be integers; got tensor",
    "zg.make_block_ptr(p, (n,), (1,), (0,), (12,), (0,))": "error: the size 12 in the shape [12] is not a power",
    "zg.make_block_ptr(p, (n,), (1,), (0,), (16,), (1,))": "error: 'order' must be a permutation of the 1 axes",
    "zg.advance(ps, (1,))": "error: 'base' must be a block pointer; got tensor",
    f"zg.advance({MADE}, (1,))": "error: the offsets must be a tuple of 2",
    f"zg.load({MADE}, b)": "error: 'mask' must be left out for a block pointer",
    f"zg.load({MADE}, boundary_check=(2,))": "error: 'boundary_check' must name axes of the block, each once; got (2,)",
    f"zg.load({MADE}, boundary_check=(1, 1))": "error: 'boundary_check' must name axes of the block, each once",
    f"zg.load({MADE}, boundary_check=(1,), padding_option='one')": "error: padding_option must be one of",
    "zg.load(zg.make_block_ptr(q, (n,), (1,), (0,), (16,), (0,)), padding_option='nan')": "error: must be for floats",
    f"zg.store({MADE}, h)": 'constant<object, "None">',
    f"zg.store({MADE}, w)": "error: the shapes of the value and the pointers do not match",
    f"zg.store({MADE}, zg.zeros((8, 16), zg.f32))": "error: the shapes of the value and the pointers do not match",
    f"zg.store({MADE}, 1, b)": "error: 'mask' must be left out for a block pointer",
    "zg.load(ps, boundary_check=(0,))": "error: 'boundary_check' and 'padding_option' must be left out for tensor",
    "zg.store(ps, f, boundary_check=(0,))": "error: 'boundary_check' and 'padding_option' must be left out for tensor",
    f"zg.load({MADE}[0])": "error: block_ptr<x4, x16, f32> cannot be indexed",
    f"len({MADE})": "error: block_ptr<x4, x16, f32> has no length",
    f"zg.add({MADE}, 1)": "error: got block_ptr<x4, x16, f32>",
    f"{MADE} if n > 0 else p": "error: the values of 'if … else' must have one type; got block_ptr",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
