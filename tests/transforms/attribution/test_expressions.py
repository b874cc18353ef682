"""Attribution of variables, operators and tuples, on Python models written as text."""

from __future__ import annotations

import pytest
from findings import callees

import ziggurat as zg
from ziggurat.codemodel.errors import KernelNameError, KernelTypeError, KernelValueError
from ziggurat.codemodel.types import DescriptorType, PtrType, TensorType, TupleType, f32, i1, i32, i64, with_element
from ziggurat.transforms.attribution import attribute, constant

T = TensorType((4,), i32)


def result_of(ops: str, *types):
    """The findings about a function of parameters %0, %1 …; `ops` end in its return."""
    parameters = ", ".join(f"%{index} : object" for index in range(len(types)))
    function = zg.parse(f'func @"f" ({parameters})object -> {{ {ops} }};')
    values = " ".join(f"%{index}" for index in range(len(types)))
    call = f'%{len(types)} : object = func.call {values} @"f";'
    kernel = zg.parse(f'func @"k" ({parameters})object -> {{ {call} return; }};')
    (callee,) = callees(attribute(kernel, types, {"f": function}))
    return callee.result


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("add", i32, i64, i64),
        ("add", constant(1), constant(2), constant(3)),
        ("div", i32, i32, f32),
        ("pow", constant(2), constant(10), constant(1024)),
        ("shl", i32, constant(2), i32),
        ("lt", i32, f32, i1),
        ("eq", constant("a"), constant("a"), constant(True)),
        ("add", constant((1,)), constant((2,)), constant((1, 2))),
        ("is", constant(None), constant(None), constant(True)),
        ("is", i32, constant(None), constant(False)),
        ("is_not", i32, constant(None), constant(True)),
        ("in", constant(2), constant((1, 2)), constant(True)),
        ("not_in", constant("x"), constant("text"), constant(False)),
    ],
)
def test_operators(op, a, b, expected):
    assert result_of(f"%2 : object = {op} %0 %1; return %2;", a, b) == expected


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [("not", i32, i1), ("not", f32, i1), ("not", constant(()), constant(True)), ("pos", i64, i64),
     ("neg", constant(3), constant(-3)), ("invert", i32, i32)],
)  # fmt: skip
def test_operators_of_one_operand(op, x, expected):
    assert result_of(f"%1 : object = {op} %0; return %1;", x) == expected


@pytest.mark.parametrize(
    ("op", "a", "b", "error", "words"),
    [
        ("pow", i32, constant(2), KernelTypeError, r"'\*\*' is for constants"),
        ("in", i32, constant((1, 2)), KernelTypeError, "'in' is for constants"),
        ("in", constant(1), constant(2), KernelTypeError, "'in' does not work on the constant 1 and the constant 2"),
        ("div", constant(1), constant(0), KernelValueError, "division by zero"),
        ("add", PtrType(f32), PtrType(f32), KernelTypeError, "one operand must be an integer; got two pointers"),
        ("add", constant(None), i32, KernelTypeError, "the operands must be numbers; got None"),
        ("lt", constant(None), constant(1), KernelTypeError, "'<' does not work on"),
    ],
)
def test_operators_that_do_not_work(op, a, b, error, words):
    with pytest.raises(error, match=words):
        result_of(f"%2 : object = {op} %0 %1; return %2;", a, b)


def test_conditions():
    assert result_of("%1 : object = not %0; return %1;", T) == with_element(T, i1)
    assert result_of("%1 : object = not %0; return %1;", PtrType(f32)) == i1
    with pytest.raises(KernelTypeError, match="must be a number; got descriptor<x8, x16, f32>"):
        result_of("%1 : object = not %0; return %1;", DescriptorType((8, 16), f32))


def test_tuples():
    assert result_of("%2 : object = pack %0 %1; return %2;", constant(1), constant(2)) == constant((1, 2))
    assert result_of("%2 : object = pack %0 %1; return %2;", i32, constant(2)) == TupleType((i32, constant(2)))
    second = "%1 : object = unpack %0 @index=1 @count=2; return %1;"
    assert result_of(second, TupleType((i32, f32))) == f32 and result_of(second, constant((1, 2))) == constant(2)


@pytest.mark.parametrize(
    ("type_", "words"),
    [(constant((1, 2, 3)), "a tuple of 3 cannot be unpacked into 2 names"), (i32, "i32 is not a tuple"),
     (T, "is not a tuple"), (constant("ab"), "is not a tuple")],
)  # fmt: skip
def test_what_does_not_unpack_is_said_once(type_, words):
    both = "%1 : object = unpack %0 @index=0 @count=2; %2 : object = unpack %0 @index=1 @count=2; return %2;"
    with pytest.raises(KernelTypeError, match=words):
        result_of(both, type_)


def test_subscripts():
    at = "%2 : object = subscript %0 %1; return %2;"
    assert result_of(at, TupleType((i32, f32)), constant(-1)) == f32
    assert result_of(at, constant((5, 6)), constant(0)) == constant(5)
    for value, index, error, words in (
        (constant((5, 6)), constant(2), KernelValueError, "index 2 is outside a tuple of 2"),
        (constant((5, 6)), constant(-3), KernelValueError, "index -3 is outside"),
        (constant((5, 6)), i32, KernelTypeError, "a tuple must be indexed by a constant integer; got i32"),
        (T, constant(0), KernelTypeError, "unsupported tensor index"),
        (PtrType(f32), constant(0), KernelTypeError, "unsupported tensor index"),
    ):
        with pytest.raises(error, match=words) as error_info:
            result_of(at, value, index)
    assert error_info.value.hint == "write zg.load(p + i) to read an element, zg.store(p + i, x) to write one"


def test_variables_hold_what_was_stored_last():
    ops = '%2 : Var<object> = var %0 @"v"; var.store %2 %1; %3 : object = var.load %2; return %3;'
    assert result_of(ops, i32, f32) == f32 and result_of(ops, T, constant(1)) == constant(1)
    assert result_of(ops, T, TensorType((8,), i32)) == TensorType((8,), i32)
    with pytest.raises(KernelNameError, match="'v' is used before it is assigned"):
        result_of('%1 : Var<object> = var @"v"; %2 : object = var.load %1; return %2;', i32)
