"""Loads, stores, pointers and descriptors in the memory of a launch."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.reference.access import pointee
from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.errors import KernelRuntimeError, MemoryAccessError, VerifyError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import PtrType, TensorType, f32, i8
from ziggurat.codemodel.verify import verify

COPY = """
tt.func @"f" (%p : ptr<T>, %q : ptr<T>)void -> {
    %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %bound : tensor<x8, i32> = arith.constant @LIMIT;
    %m : tensor<x8, i1> = arith.cmpi %r %bound @"slt";
    %ps : tensor<x8, ptr<T>> = tt.splat %p;
    %pa : tensor<x8, ptr<T>> = tt.addptr %ps %r;
    %qs : tensor<x8, ptr<T>> = tt.splat %q;
    %qa : tensor<x8, ptr<T>> = tt.addptr %qs %r;
    BODY
    tt.return;
};
"""


def copied(body, array, out, limit=5, type_="f32", strict=False):
    text = COPY.replace("BODY", body).replace("LIMIT", str(limit)).replace("<T>", f"<{type_}>")
    run(parse(text.replace("x8, T", f"x8, {type_}")), None, (1,), [array, out], strict=strict)
    return out.tolist()


LOAD = "%x : tensor<x8, T> = tt.load %pa"


def test_pointees():
    pointer, tensor = Builder.root([PtrType(f32), TensorType((4,), PtrType(i8))]).parameters
    assert pointee(pointer) == f32 and pointee(tensor) == i8


def test_a_mask_selects_the_elements_read_and_written():
    x = np.arange(1, 9, dtype=np.float32)
    assert copied(f"{LOAD}; tt.store %qa %x;", x, np.zeros(8, np.float32)) == x.tolist()
    assert copied(f"{LOAD}; tt.store %qa %x %m;", x, np.zeros(8, np.float32)) == [1, 2, 3, 4, 5, 0, 0, 0]
    other = "%o : tensor<x8, T> = arith.constant @9.0;"
    assert copied(f"{other} {LOAD} %m %o; tt.store %qa %x;", x, np.zeros(8, np.float32)) == [1, 2, 3, 4, 5, 9, 9, 9]


def test_masked_off_elements_are_not_accessed():
    short = np.arange(1, 6, dtype=np.float32)
    assert copied(f"{LOAD} %m; tt.store %qa %x;", short, np.ones(8, np.float32)) == [1, 2, 3, 4, 5, 0, 0, 0]
    with pytest.raises(MemoryAccessError):
        copied(f"{LOAD}; tt.store %qa %x;", short, np.ones(8, np.float32))
    with pytest.raises(MemoryAccessError):
        copied(f"{LOAD} %m; tt.store %qa %x;", short, np.ones(7, np.float32))
    with pytest.raises(KernelRuntimeError, match="stores an undefined element"):
        copied(f"{LOAD} %m; tt.store %qa %x;", short, np.ones(8, np.float32), strict=True)
    actual = copied(f"{LOAD} %m; tt.store %qa %x %m;", short, np.ones(8, np.float32), strict=True)
    assert actual == [1, 2, 3, 4, 5, 1, 1, 1]


def test_a_mask_of_all_false_accesses_nothing():
    empty = np.zeros(0, np.float32)
    assert copied(f"{LOAD} %m; tt.store %qa %x %m;", empty, np.ones(8, np.float32), limit=0) == [1] * 8


def test_any_byte_but_zero_is_true():
    x = np.array([0, 1, 2, 255, 0, 128, 1, 0], np.uint8).view(np.bool_)
    actual = copied(f"{LOAD}; tt.store %qa %x;", x, np.zeros(8, np.bool_), type_="i1")
    assert actual == [False, True, True, True, False, True, True, False]


def test_pointers_count_elements():
    x = np.arange(8, dtype=np.int64)
    assert copied(f"{LOAD}; tt.store %qa %x;", x, np.zeros(8, np.int64), type_="i64") == list(range(8))


def test_views_are_read_and_written_in_place():
    whole = np.arange(16, dtype=np.float32)
    out = np.zeros(16, np.float32)
    copied(f"{LOAD}; tt.store %qa %x;", whole[4:12], out[8:])
    assert out.tolist() == [0] * 8 + list(range(4, 12))


BLOCK = """
tt.func @"f" (%p : ptr<f32>, %q : ptr<f32>, %i : i32, %j : i32)void -> {
    %rows : i32 = arith.constant @3;
    %columns : i32 = arith.constant @5;
    %stride : i64 = arith.constant @8;
    %step : i64 = arith.constant @1;
    %d : TYPE = tt.make_tensor_descriptor %p %rows %columns %stride %step @padding="PADDING";
    %e : TYPE = tt.make_tensor_descriptor %q %rows %columns %stride %step @padding="PADDING";
    %x : tensor<x2, x4, f32> = tt.descriptor_load %d %i %j;
    tt.descriptor_store %e %x %i %j;
    tt.return;
};
"""


def blocks(i, j, padding="zero"):
    from ziggurat.codemodel.types import DescriptorType

    type_ = str(DescriptorType((2, 4), f32, padding))
    source, out = np.arange(24, dtype=np.float32).reshape(3, 8) + 1, np.zeros((3, 8), np.float32)
    run(parse(BLOCK.replace("TYPE", type_).replace("PADDING", padding)), None, (1,), [source, out, i, j])
    return source, out


@pytest.mark.parametrize(("i", "j"), [(0, 0), (1, 1), (2, 3), (-1, -2), (3, 0), (0, 5)])
def test_blocks_end_at_the_edges_of_the_tensor(i, j):
    source, out = blocks(i, j)
    inside = np.zeros((3, 8), np.bool_)
    inside[max(i, 0) : max(0, min(i + 2, 3)), max(j, 0) : max(0, min(j + 4, 5))] = True
    np.testing.assert_array_equal(out, np.where(inside, source, 0))


REDUCE = """
tt.func @"f" (%d : descriptor<x2, x4, f32>, %p : ptr<f32>, %n : i32)void -> {
    %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %s : tensor<x8, ptr<f32>> = tt.splat %p;
    %t : tensor<x8, ptr<f32>> = tt.addptr %s %r;
    %b : tensor<x8, i32> = tt.splat %n;
    %m : tensor<x8, i1> = arith.cmpi %r %b @slt;
    %v : tensor<x8, f32> = tt.load %t %m;
    %w : tensor<x2, x4, f32> = tt.reshape %v;
    %i : i32 = arith.constant @2;
    tt.descriptor_reduce %d %w %i %i @KIND;
    tt.return;
};
"""


@pytest.mark.parametrize(("kind", "combined"), [("fadd", np.add), ("fmax", np.maximum), ("fmin", np.minimum)])
def test_a_block_is_combined_with_memory_inside_of_the_tensor(kind, combined):
    values = np.arange(8, dtype=np.float32)
    array = np.full((3, 8), 2.5, np.float32)[:, :5]
    expected = array.copy()
    for _ in range(3):  # Each program.
        expected[2, 2:] = combined(expected[2, 2:], values[:3])
    run(parse(REDUCE.replace("KIND", kind)), None, (3,), [TensorDescriptor(array, (2, 4)), values, 8], strict=True)
    np.testing.assert_array_equal(array, expected)


def test_only_the_elements_inside_must_be_defined():
    array = np.zeros((3, 8), np.float32)[:, :5]
    arguments = [TensorDescriptor(array, (2, 4)), np.ones(8, np.float32)]
    run(parse(REDUCE.replace("KIND", "fadd")), None, (1,), [*arguments, 3], strict=True)
    assert array.sum() == 3
    with pytest.raises(KernelRuntimeError, match="the mask of this load"):
        run(parse(REDUCE.replace("KIND", "fadd")), None, (1,), [*arguments, 2], strict=True)


def test_the_kind_must_fit_the_elements():
    with pytest.raises(VerifyError, match=r"the operands of and must be integers; got tensor<x2, x4, f32>"):
        verify(parse(REDUCE.replace("KIND", "and")))


@zg.kernel
def described(x_ptr, out_ptr, at, pitch):
    source = zg.make_tensor_descriptor(x_ptr + at, (2, 4), (pitch, 1), (2, 4))
    out = zg.make_tensor_descriptor(out_ptr, (2, 4), (4, 1), (2, 4))
    out.store((0, 0), source.load((0, 0)))


@pytest.mark.parametrize(("at", "pitch", "good"), [(0, 4, True), (8, 12, True), (0, 6, False), (2, 4, False)])
def test_bases_and_strides_are_multiples_of_16_bytes_in_strict_mode(at: int, pitch: int, good: bool) -> None:
    """As TMA needs them; others have a meaning without strict mode."""
    x, out = np.arange(40, dtype=np.float32), np.zeros((2, 4), np.float32)
    with contextlib.nullcontext() if good else pytest.raises(KernelRuntimeError, match="must be multiples of 16 bytes"):
        described[(1,)](x, out, at, pitch, strict=True)
    described[(1,)](x, out, at, pitch)
    np.testing.assert_array_equal(out, [x[at : at + 4], x[at + pitch : at + pitch + 4]])
