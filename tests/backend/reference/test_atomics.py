"""Atomic accesses happen in the order of the programs and of the elements of each."""

import operator

import numpy as np
import pytest

from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.text.parser import parse

MEANING = {
    "add": operator.add, "max": max, "min": min, "umax": max, "umin": min, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "xchg": lambda old, new: new, "fadd": operator.add, "fmax": max, "fmin": min,
}  # fmt: skip


def kernel(kind, type_, keep, masked=False):
    """A kernel whose programs update 8 elements each, at indices from an array, and may store the old elements."""
    return parse(f"""
tt.func @"k" (%m : ptr<{type_}>, %at : ptr<i32>, %v : ptr<{type_}>, %out : ptr<{type_}>)void -> {{
    %pid : i32 = tt.get_program_id @0;
    %n : i32 = arith.constant @8;
    %o : i32 = arith.muli %pid %n;
    %os : tensor<x8, i32> = tt.splat %o;
    %r0 : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %r : tensor<x8, i32> = arith.addi %os %r0;
    %as : tensor<x8, ptr<i32>> = tt.splat %at;
    %ap : tensor<x8, ptr<i32>> = tt.addptr %as %r;
    %i : tensor<x8, i32> = tt.load %ap;
    %vs : tensor<x8, ptr<{type_}>> = tt.splat %v;
    %vp : tensor<x8, ptr<{type_}>> = tt.addptr %vs %r;
    %x : tensor<x8, {type_}> = tt.load %vp;
    %ms : tensor<x8, ptr<{type_}>> = tt.splat %m;
    %mp : tensor<x8, ptr<{type_}>> = tt.addptr %ms %i;
    %three : tensor<x8, i32> = arith.constant @3;
    %mask : tensor<x8, i1> = arith.cmpi %i %three @slt;
    %old : tensor<x8, {type_}> = tt.atomic_rmw %mp %x {"%mask" if masked else ""} @{kind};
    {
        f'''%qs : tensor<x8, ptr<{type_}>> = tt.splat %out;
    %qp : tensor<x8, ptr<{type_}>> = tt.addptr %qs %r;
    tt.store %qp %old;'''
        if keep
        else ""
    }
    tt.return;
}};""")


def one_by_one(kind, memory, at, values, masked):
    actual = np.zeros_like(values)
    for place, (index, value) in enumerate(zip(at, values, strict=True)):
        if not masked or index < 3:
            actual[place] = memory[index]
            memory[index] = np.array(MEANING[kind](memory[index], value)).astype(memory.dtype)
    return actual


CASES = [(kind, "i32") for kind in ("add", "max", "min", "and", "or", "xor", "xchg")]
CASES += [("umax", "u64"), ("umin", "u32"), ("add", "i64"), ("add", "u64"), ("fadd", "f32"), ("fadd", "f64")]
CASES += [("fadd", "f16"), ("fadd", "bf16"), ("fmax", "f32"), ("fmin", "f32"), ("xchg", "f32")]


@pytest.mark.parametrize(("kind", "type_"), CASES)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("batch", [1, None])
def test_atomics_happen_in_order(values, kind, type_, keep, masked, batch):
    dtype = values(type_).dtype
    rng = np.random.default_rng(5)
    at = rng.integers(0, 5, 40).astype(np.int32)
    wild = rng.integers(0, 1 << 30, 40) if kind in ("add", "and", "or", "xor") else rng.normal(size=40) * 100
    x = (np.abs(wild) if type_[0] == "u" else wild).astype(dtype)
    memory = x[:5].copy()
    expected = memory.copy()
    out = np.zeros(40, dtype)
    with np.errstate(all="ignore"):
        actual = one_by_one(kind, expected, at, x, masked)
    run(kernel(kind, type_, keep, masked), None, (5,), [memory, at, x, out], batch=batch)
    assert memory.tobytes() == expected.tobytes()
    if keep:
        assert out.tobytes() == actual.tobytes()


def test_the_result_of_a_masked_lane_is_undefined():
    at, x, out = np.full(8, 4, np.int32), np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(KernelRuntimeError, match="stores an undefined element: the mask of this atomic of arg0"):
        run(kernel("fadd", "f32", True, True), None, (1,), [np.zeros(5, np.float32), at, x, out], strict=True)
    run(kernel("fadd", "f32", False, True), None, (1,), [np.zeros(5, np.float32), at, x, out], strict=True)


def test_many_programs_update_one_counter():
    text = """
tt.func @"k" (%c : ptr<i32>, %out : ptr<i32>)void -> {
    %one : i32 = arith.constant @1;
    %old : i32 = tt.atomic_rmw %c %one @add;
    %pid : i32 = tt.get_program_id @0;
    %p : ptr<i32> = tt.addptr %out %pid;
    tt.store %p %old;
    tt.return;
};"""
    c, out = np.zeros(1, np.int32), np.zeros(5000, np.int32)
    run(parse(text), None, (5000,), [c, out])
    assert c[0] == 5000
    assert (out == np.arange(5000)).all()


def test_sums_of_bools_are_modulo_2():
    memory, at, x, out = np.zeros(5, np.bool_), np.zeros(8, np.int32), np.ones(8, np.bool_), np.zeros(8, np.bool_)
    at[5:] = 1
    run(kernel("add", "i1", True), None, (1,), [memory, at, x, out])
    assert memory.tolist() == [True, True, False, False, False]
    assert out.tolist() == [False, True, False, True, False, False, True, False]


def test_integer_sums_wrap_around():
    text = """
tt.func @"k" (%c : ptr<i8>, %x : i8)void -> {
    %old : i8 = tt.atomic_rmw %c %x @add;
    tt.return;
};"""
    c = np.zeros(1, np.int8)
    run(parse(text), None, (3,), [c, 100])
    assert c[0] == 300 - 256


def test_compare_and_swap():
    text = """
tt.func @"k" (%c : ptr<i32>, %out : ptr<i32>)void -> {
    %pid : i32 = tt.get_program_id @0;
    %one : i32 = arith.constant @1;
    %next : i32 = arith.addi %pid %one;
    %old : i32 = tt.atomic_cas %c %pid %next;
    %p : ptr<i32> = tt.addptr %out %pid;
    tt.store %p %old;
    tt.return;
};"""
    c, out = np.zeros(1, np.int32), np.full(6, -1, np.int32)
    run(parse(text), None, (6,), [c, out])
    assert c[0] == 6
    assert out.tolist() == list(range(6))


def test_compare_and_swap_compares_bits():
    text = """
tt.func @"k" (%c : ptr<f32>)void -> {
    %z : f32 = arith.constant @0.0;
    %w : f32 = arith.constant @5.0;
    %old : f32 = tt.atomic_cas %c %z %w;
    tt.return;
};"""
    c = np.float32([-0.0])
    run(parse(text), None, (1,), [c])
    assert c[0] == 0
