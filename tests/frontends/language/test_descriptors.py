"""Tensors in memory that are moved in blocks."""

from __future__ import annotations

import pytest

from ziggurat.frontends.language import METHODS, SIGNATURES

CASES = {
    "d.load((0, n))": "tensor<x8, x16, f32>",
    "zg.load_tensor_descriptor(d, (0, 0))": "tensor<x8, x16, f32>",
    "zg.load_tensor_descriptor(d, (0,))": "error: the offsets must be a tuple of 2",
    "d.load((0, x))": "error: the offsets must be integers",
    "d.store((0, 0), zg.zeros((8, 16), zg.f32))": 'constant<object, "None">',
    "zg.store_tensor_descriptor(d, (0, 0), m)": "error: writes tensor<x8, x16, f32>; got",
    "d.store((0, 0), zg.zeros((8, 16), zg.f16))": 'constant<object, "None">',
    "zg.load_tensor_descriptor(p, (0, 0))": "error: 'desc' must be a tensor descriptor",
    "zg.make_tensor_descriptor(ps, (n,), (1,), (16,))": "error: 'base' must be the pointer",
    "zg.make_tensor_descriptor(p, (n, n), (n,), (8, 16))": "error: the strides must be a tuple of 2",
    "zg.make_tensor_descriptor(p, (n,), (2,), (16,))": "error: the last stride must be 1",
    "zg.make_tensor_descriptor(p, (n,), (1,), (2,))": "error: it needs 16",
    "zg.make_tensor_descriptor(p, (n,), (1,), (16,), padding_option='one')": "error: padding_option must be one of",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])


def test_methods_are_calls_of_the_language():
    assert {SIGNATURES[meant.call].group for meant in METHODS.values()} == {"Tensor descriptors"}
    assert {"load", "store", "gather", "scatter", "atomic_add", "atomic_xor"} < {*METHODS}
