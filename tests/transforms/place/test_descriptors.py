"""Descriptors become pointers: the same numbers, whatever carries them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.dialects.tt import Padding
from ziggurat.codemodel.errors import VerifyError
from ziggurat.codemodel.types import DescriptorType, f32
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place.descriptors import lower_descriptors
from ziggurat.transforms.place.prepare import prepare


def both(kernel: Any, types: list[Any], *arrays: np.ndarray, grid: tuple[int, ...] = (1,)) -> core.Module:
    """The lowered model, after both models have given the same."""
    model = prepare(kernel.triton(*types))
    made = lower_descriptors(model)
    verify(made)
    assert "descriptor" not in str(made)
    results: list[list[np.ndarray]] = []
    for each in (model, made):
        given = [array.copy() if isinstance(array, np.ndarray) else array for array in arrays]
        run(each, None, grid, given)
        results.append(given)
    for expected, found in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)
    return made


@zg.kernel
def copying(x_ptr, y_ptr, rows, columns, r, c, PAD: zg.constexpr):
    source = zg.make_tensor_descriptor(x_ptr, (rows, columns), (columns, 1), (4, 8), PAD)
    target = zg.make_tensor_descriptor(y_ptr, (rows, columns), (columns, 1), (4, 8))
    block = zg.load_tensor_descriptor(source, (r, c))
    zg.store_tensor_descriptor(target, (r, c), zg.add(block, 1.0))
    zg.store_tensor_descriptor(target, (0, 0), block)


@pytest.mark.parametrize("at", [(0, 0), (2, 3), (-1, -5), (5, 10), (7, 7), (2**31 - 2, 0), (-(2**31), 2**31 - 1)])
@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_blocks_at_the_edges(at: tuple[int, int], pad: str) -> None:
    x = np.arange(7 * 13, dtype=np.float32).reshape(7, 13)
    types = [zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32, zg.i32, zg.i32, pad]
    both(copying, types, x, np.zeros_like(x), 7, 13, *at)


@zg.kernel
def carrying(x_ptr, y_ptr, n, steps):
    source = zg.make_tensor_descriptor(x_ptr, (n,), (1,), (8,))
    other = zg.make_tensor_descriptor(y_ptr, (n,), (1,), (8,))
    for i in range(0, steps):
        block = zg.load_tensor_descriptor(source, (i * 8,))
        zg.store_tensor_descriptor(other, (i * 4,), zg.add(block, 1))
        if zg.compare(i, 1, zg.CompareKind.EQUAL):
            keep = source
            source = other
            other = keep
    left = steps
    while zg.compare(left, 0, zg.CompareKind.GREATER_THAN):
        zg.store_tensor_descriptor(source, (left,), zg.load_tensor_descriptor(other, (left * 2,)))
        source, other = other, source
        left = left - 1


def test_loops_and_branches_carry_descriptors() -> None:
    x = np.arange(40, dtype=np.int32)
    made = both(carrying, [zg.ptr(zg.i32), zg.ptr(zg.i32), zg.i32, zg.i32], x, x[::-1].copy(), 40, 4)
    assert {"scf.for", "scf.if", "scf.while"} <= {op.NAME for op in made.walk()}


BLOCKS = """module ()void -> { tt.func @"f" (%p : ptr<i32>, %q : ptr<i32>, %n : i32, %c : i1)void -> {
    %s : i64 = arith.constant @1; %z : i32 = arith.constant @0;
    %a : descriptor<x4, i32> = tt.make_tensor_descriptor %p %n %s;
    %b : descriptor<x4, i32> = tt.make_tensor_descriptor %q %n %s @padding=PADDING;
    cf.cond_br %c ^block_1(%a, %b) ^block_1(%b, %a);
  ^block_1(%x : descriptor<x4, i32>, %y : descriptor<x4, i32>):
    %v : tensor<x4, i32> = tt.descriptor_load %x %z; tt.descriptor_store %y %v %z; tt.return; }; unreachable; };"""


@pytest.mark.parametrize("choice", [False, True])
def test_blocks_take_descriptors(choice: bool) -> None:
    made = lower_descriptors(zg.parse(BLOCKS.replace("PADDING", "zero")))
    verify(made)
    x, y = np.arange(4, dtype=np.int32), np.arange(10, 14, dtype=np.int32)
    run(made, None, (1,), [x, y, 3, choice])
    assert (y if choice else x).tolist() == ([0, 1, 2, 13] if choice else [10, 11, 12, 3])


def test_unlike_paddings_do_not_meet() -> None:
    """The padding is in the type."""
    text = BLOCKS.replace("i32>", "f32>").replace("%b : descriptor<x4, f32>", "%b : descriptor<x4, f32, nan>")
    with pytest.raises(VerifyError, match=r"it is given .descriptor<x4, f32>, descriptor<x4, f32, nan>"):
        verify(zg.parse(text.replace("PADDING", "nan")))


TAKING = """module ()void -> { tt.func @"f" @divisibility=[1, 16, 1]
    (%n : i32, %d : descriptor<x2, x4, f32>, %p : ptr<f32>)void -> {
    %v : tensor<x2, x4, f32> = tt.descriptor_load %d %n %n;
    %w : tensor<x8, f32> = tt.reshape %v;
    %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %s : tensor<x8, ptr<f32>> = tt.splat %p; %t : tensor<x8, ptr<f32>> = tt.addptr %s %r;
    tt.store %t %w; tt.return; }; unreachable; };"""


@pytest.mark.parametrize("padding", Padding)
def test_a_kernel_takes_the_parts_of_a_descriptor(padding: Padding) -> None:
    text = TAKING.replace("descriptor<x2, x4, f32>", str(DescriptorType((2, 4), f32, padding.value)))
    made = lower_descriptors(zg.parse(text))
    verify(made)
    (func,) = made.functions().values()
    assert isinstance(func, tt.Func)
    assert [str(p.type) for p in func.body.parameters] == ["i32", "ptr<f32>", "i32", "i32", "i64", "ptr<f32>"]
    assert func.divisibility == (1, 16, 1, 1, 4, 1)
    assert func.parts == ("0", "1.base", "1.shape0", "1.shape1", "1.stride0", "2")
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(8, np.float32)
    run(made, None, (1,), [2, x, 3, 4, 4, y])
    outside = np.nan if padding is Padding.NAN else 0
    np.testing.assert_array_equal(y, [10, 11, outside, outside, *[outside] * 4])


def test_an_access_that_is_kept_goes_through_the_tensor_map() -> None:
    model = zg.parse(TAKING)
    (load,) = (op for op in model.walk() if isinstance(op, tt.DescriptorLoad))
    made = lower_descriptors(model, {load.result})
    verify(made)
    (func,) = made.functions().values()
    assert isinstance(func, tt.Func)
    assert func.parts == ("0", "1.map", "2") and func.divisibility == ()
    (kept,) = (op for op in made.walk() if isinstance(op, tt.DescriptorLoad))
    assert kept.descriptor is func.body.parameters[1]


def test_a_descriptor_that_is_used_in_both_ways_is_passed_in_both() -> None:
    twice = TAKING.replace("tt.return", "tt.descriptor_store %d %v %n %n; tt.return")
    model = zg.parse(twice)
    (store,) = (op for op in model.walk() if isinstance(op, tt.DescriptorStore))
    made = lower_descriptors(model, {store.result})
    verify(made)
    (func,) = made.functions().values()
    assert isinstance(func, tt.Func)
    assert func.parts == ("0", "1.map", "1.base", "1.shape0", "1.shape1", "1.stride0", "2")
    assert func.divisibility == (1, 1, 16, 1, 1, 4, 1)


def test_a_model_without_descriptors_is_left_alone() -> None:
    model = zg.parse('module ()void -> { tt.func @"f" ()void -> { tt.return; }; unreachable; };')
    assert lower_descriptors(model) is model
