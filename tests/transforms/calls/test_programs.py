"""Type rules of program ids, ranges, hints, debugging, inline assembly, builtins and properties."""

from __future__ import annotations

import pytest
from call_types import Types

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    TensorType,
    TupleType,
    f16,
    f32,
    f64,
    i1,
    i32,
    i64,
    u8,
)  # fmt: skip
from ziggurat.transforms.calls.builtins import property_of
from ziggurat.transforms.calls.lattice import RangeType
from ziggurat.transforms.calls.promotion import NONE, constant

R = Types()
T = TensorType((4, 16), i32)
P = PtrType(f32)
NO_OPTIONS = (None, None, False, False, False, False)


def test_ranges():
    zero, unit, n = constant(0), constant(1), i64
    assert R.builtin_range(n) == RangeType(zero, n, unit)
    assert R.builtin_range(unit, n) == RangeType(unit, n, unit)
    assert R.builtin_range(n, zero, constant(-2)) == RangeType(n, zero, constant(-2))
    assert R.static_range(2, None, None) == RangeType(zero, constant(2), unit, static=True)
    assert R.range(n, None, None, *NO_OPTIONS) == RangeType(zero, n, unit)
    range_ = R.range(n, None, None, 3, None, True, False, False, False)
    assert range_.options == (("num_stages", 3), ("disallow_acc_multi_buffer", True))


@pytest.mark.parametrize(
    ("bounds", "error", "words"),
    [
        ((), KernelTypeError, "range takes one to three bounds; got 0"),
        ((i32,) * 4, KernelTypeError, "got 4"),
        ((f32,), KernelTypeError, "range counts with integers; got f32"),
        ((constant(1.0),), KernelTypeError, "counts with integers"),
        ((i1,), KernelTypeError, "counts with integers"),
        ((T,), KernelTypeError, "counts with integers"),
        ((i32, i32, constant(0)), KernelValueError, "the step is zero"),
    ],
)
def test_ranges_that_are_none(bounds, error, words):
    with pytest.raises(error, match=words):
        R.builtin_range(*bounds)


def test_options_of_a_range():
    for place, value in ((0, -1), (1, 1 << 31)):
        options = [*NO_OPTIONS]
        options[place] = value
        with pytest.raises(KernelValueError, match="must be zero or more"):
            R.range(i32, None, None, *options)
    for value in (0, 1, (1 << 31) - 1):
        R.range(i32, None, None, value, *NO_OPTIONS[1:])


def test_static_assertions():
    assert R.static_assert(True) == R.static_assert(1, "fine") == NONE
    with pytest.raises(KernelValueError, match=r"^static assertion failed: too big"):
        R.static_assert(False, "too big")
    with pytest.raises(KernelTypeError, match="must be True or False") as error_info:
        R.static_assert((False, "too big"))
    assert "without a tuple" in error_info.value.hint


def test_printing(capsys):
    assert R.static_print([constant(3), T, constant("a")]) == NONE
    assert capsys.readouterr().out == "3 tensor<x4, x16, i32> a\n"
    assert R.device_print("x", [T, P, constant(1)], False) == NONE
    with pytest.raises(KernelTypeError, match="prints numbers and pointers; got the constant 'a'"):
        R.device_print("x", [constant("a")])


def test_builtins():
    assert R.builtin_len(constant("abc")) == R.builtin_len(constant((1, 2, 3))) == constant(3)
    assert R.builtin_len(TupleType((i32, f32))) == constant(2) and R.builtin_len(T) == constant(4)
    assert R.builtin_int(constant(2.7)) == constant(2) and R.builtin_int(u8) == u8
    assert R.builtin_int(f32) == R.builtin_int(i1) == i32
    assert R.builtin_float(constant("0.5")) == constant(0.5) and R.builtin_float(f16) == f16
    assert R.builtin_float(i64) == f32 and R.builtin_bool(f64) == i1 and R.builtin_bool(constant("")) == constant(False)
    for rule in (R.builtin_int, R.builtin_float, R.builtin_bool):
        for bad in (T, P):
            with pytest.raises(KernelTypeError, match="the operand must be a scalar"):
                rule(bad)
    with pytest.raises(KernelTypeError, match="i32 has no length"):
        R.builtin_len(i32)
    with pytest.raises(KernelTypeError, match=r"int\(\): the operand must be a number; got the tuple"):
        R.builtin_int(constant((1,)))
    with pytest.raises(KernelValueError, match=r"cannot compute int\('x'\)"):
        R.builtin_int(constant("x"))
    with pytest.raises(KernelValueError, match=r"cannot compute int\(inf\)"):
        R.builtin_int(constant(float("inf")))


def test_isinstance_of_constants():
    number, text = constant("builtins.int"), constant(("builtins.str", "builtins.tuple"))
    assert R.builtin_isinstance(constant(3), number) == constant(True)
    assert R.builtin_isinstance(constant(3), text) == constant(False)
    assert R.builtin_isinstance(constant((1,)), text) == constant(True)
    assert R.builtin_isinstance(i32, number) == constant(False)


@pytest.mark.parametrize(
    ("type_", "name", "value"),
    [
        (T, "shape", (4, 16)),
        (f32, "shape", ()),
        (constant(3), "shape", ()),
        (T, "dtype", i32),
        (TensorType((4,), P), "dtype", P),
        (constant(0.5), "dtype", f32),
        (DescriptorType((8, 16), f16), "dtype", f16),
        (constant(P), "element_ty", f32),
        (T, "numel", 64),
        (f32, "numel", 1),
        (constant(f16), "primitive_bitwidth", 16),
        (constant(f16), "bits", 16),
        (constant(u8), "signed", False),
        (constant(u8), "is_float", False),
        (constant(f16), "name", "f16"),
    ],
)
def test_properties(type_, name, value):
    assert property_of(type_, name) == constant(value)


@pytest.mark.parametrize(
    ("type_", "name"),
    [(T, "T"), (P, "shape"), (constant(f32), "element_ty"), (constant(3), "bits"),
     (TupleType((i32, i32)), "dtype"), (constant(f32), "limits")],
)  # fmt: skip
def test_properties_that_are_not_there(type_, name):
    with pytest.raises(KernelTypeError, match=f"has no property '{name}' in a kernel"):
        property_of(type_, name)


@triton.jit
def told(x_ptr, N: tl.constexpr):
    tl.static_print("types", tl.load(x_ptr + tl.arange(0, N)), x_ptr, tl.float16, N)


def test_types_at_compile_time_are_named_as_in_triton(capsys):
    told.triton(zg.ptr(zg.i32), 64)
    assert capsys.readouterr().out == "types int32[constexpr[64]] pointer<int32>[] fp16 64\n"
