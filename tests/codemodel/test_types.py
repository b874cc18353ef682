"""Types are values; their text is a tree that reads back; each dtype has one record."""

from __future__ import annotations

import copy
import enum
import math
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.layout import parse_layout
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.type_reader import read_type
from ziggurat.codemodel.types import (
    SCALARS,
    ConstantType,
    DescriptorType,
    FunctionType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    TypeSyntax,
    VarType,
    admits,
    bf16,
    constant_key,
    constexpr_type,
    element_of,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    find_scalar,
    i1,
    i8,
    i32,
    i64,
    pyobject,
    shape_of,
    shaped,
    u8,
    u32,
    void,
    with_element,
)

scalars = st.sampled_from(list(SCALARS.values()))
pointers = scalars.map(PtrType)
shapes = st.lists(st.integers(1, 4096), max_size=4).map(tuple)
# Values that a ConstantType reads back.
atoms = (
    st.integers() | st.booleans() | st.none() | st.text(max_size=8) | st.floats(allow_infinity=False, allow_nan=False)
)
values = (
    st.integers()
    | st.booleans()
    | st.none()
    | st.floats()
    | st.text()
    | st.text(alphabet="'\"\\0123456789()[]{},.- +infaeNoTru\n")
    | scalars
    | st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
)
types = st.recursive(
    scalars
    | pointers
    | st.sampled_from([void, pyobject, constexpr_type])
    | st.builds(TensorType, shapes, scalars | pointers)
    | st.builds(DescriptorType, shapes, scalars)
    | st.builds(DescriptorType, shapes, st.sampled_from([f16, f32]), st.just("nan")),
    lambda inner: (
        st.builds(VarType, inner)
        | st.lists(inner, max_size=3).map(lambda parts: TupleType(tuple(parts)))
        | st.builds(lambda result, parts: FunctionType(result, tuple(parts)), inner, st.lists(inner, max_size=3))
        | st.builds(ConstantType, values, inner)
    ),
    max_leaves=8,
)


@given(types)
def test_types_read_back_from_their_syntax(type_: Type):
    assert read_type(type_.syntax()) == type_


@given(types)
def test_types_read_back_from_the_text_of_a_model(type_: Type):
    text = f"module ()void -> {{\n    %0 : {type_} = constant @1;\n    unreachable;\n}};\n"
    if type_ is not void:
        model = parse(text)
        assert model.bodies[0].entry.ops[0].result.type == type_
        assert str(model) == text


@given(types, types)
def test_types_are_equal_when_their_text_is(left: Type, right: Type):
    assert (left == right) == (str(left) == str(right))
    if left == right:
        assert hash(left) == hash(right)


@given(types)
def test_types_copy_and_pickle(type_: Type):
    str(type_)
    assert copy.deepcopy(type_) == type_
    again = pickle.loads(pickle.dumps(type_))
    assert again == type_ and hash(again) == hash(type_) and str(again) == str(type_)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (void, "void"),
        (i1, "i1"),
        (f8e4m3, "f8e4m3"),
        (pyobject, "object"),
        (constexpr_type, "constexpr"),
        (PtrType(f32), "ptr<f32>"),
        (PtrType(f32, const=True), "ptr<f32, const>"),
        (TensorType((32, 64), f32), "tensor<x32, x64, f32>"),
        (TensorType((8,), PtrType(i8)), "tensor<x8, ptr<i8>>"),
        (TensorType((), f32), "tensor<f32>"),
        (DescriptorType((64, 64), f16), "descriptor<x64, x64, f16>"),
        (DescriptorType((64,), f32, "nan"), "descriptor<x64, f32, nan>"),
        (TupleType((i32, TensorType((4,), f32))), "Tuple<i32, tensor<x4, f32>>"),
        (TupleType(), "Tuple"),
        (VarType(pyobject), "Var<object>"),
        (FunctionType(void, (i32, f32)), "func<void, i32, f32>"),
        (ConstantType(64, i32), "constant<i32, c64>"),
        (ConstantType(-1, i32), 'constant<i32, "-1">'),
        (ConstantType(True, i1), 'constant<i1, "True">'),
        (ConstantType(0.5, f32), 'constant<f32, "0.5">'),
        (ConstantType(f16, pyobject), "constant<object, f16>"),
        (ConstantType("ieee", pyobject), 'constant<object, "ieee">'),
        (ConstantType("64", pyobject), "constant<object, \"'64'\">"),
        (ConstantType((2, 4), pyobject), 'constant<object, "(2, 4)">'),
    ],
)
def test_the_spelling(type_: Type, text: str):
    assert str(type_) == f"{type_}" == text
    assert str(type_) == text  # the second time from what is remembered


@pytest.mark.parametrize("type_", [void, i32, PtrType(f32), TensorType((4,), f32), ConstantType(1, i32)])
def test_types_cannot_be_changed(type_: Type):
    for name in ("name", "shape", "value", "anything"):
        with pytest.raises(AttributeError):
            setattr(type_, name, 1)


# Constants.


def test_constants_differ_by_python_type():
    distinct = [1, True, 1.0, 0, 0.0, -0.0, False, math.nan, "1", None, (1,), (True,), (), f32, [1]]
    constants = [ConstantType(value, pyobject) for value in distinct]
    assert len(set(constants)) == len(distinct)
    assert ConstantType(math.nan, f32) == ConstantType(float("nan"), f32)
    assert ConstantType(1, i32) != ConstantType(1, i64)
    assert ConstantType(1, i32) != i32


def test_what_has_no_literal_is_shown_only():
    class Mode(enum.Enum):
        FAST = 1

    assert "FAST" in str(ConstantType(Mode.FAST, pyobject))
    assert read_type(ConstantType(Mode.FAST, pyobject).syntax()) != ConstantType(Mode.FAST, pyobject)


@given(values, values)
def test_constant_keys(left: object, right: object):
    same = type(left) is type(right) and repr(left) == repr(right)
    assert (constant_key(left) == constant_key(right)) == same
    hash(constant_key(left))


# Scalars.


def test_scalars():
    assert [t.rank for t in (i1, i32, f32)] == [0, 1, 2]
    assert [t.is_int for t in (i1, u8, f16)] == [True, True, False]
    assert [t.signed for t in (i8, i32, f32, u8, u32, i1)] == [True] * 3 + [False] * 3
    assert f8e4m3.is_fp8 and f8e5m2.is_fp8 and not f16.is_fp8 and not i8.is_fp8
    assert [t.bytes for t in (i1, i8, bf16, f64)] == [1, 1, 2, 8]
    assert i8.limits == (-128, 127) and u8.limits == (0, 255) and i1.limits == (0, 1) and u32.limits[1] == 2**32 - 1
    with pytest.raises(ValueError, match="f32 is not an integer type"):
        f32.limits
    assert all(name == type_.name for name, type_ in SCALARS.items())


def test_shapes():
    tensor = TensorType((32, 64), f32)
    assert (tensor.rank, tensor.numel) == (2, 2048)
    assert element_of(tensor) == f32 and element_of(f32) == f32 and element_of(void) == void
    assert shape_of(tensor) == (32, 64) and shape_of(PtrType(f32)) == ()
    assert with_element(tensor, i1) == TensorType((32, 64), i1) and with_element(f32, i1) == i1
    assert shaped((), f32) == f32 and shaped((4,), f32) == TensorType((4,), f32)


def test_strings_in_spellings_are_escaped():
    assert str(TypeSyntax('a"b\\c', (), True)) == '"a\\"b\\\\c"'
    assert isinstance(core.Module, type) and isinstance(pyobject, Type) and isinstance(i32, ScalarType)


# One record a dtype.


@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
def test_a_dtype_has_its_names_and_limits_elsewhere(scalar: ScalarType):
    assert scalar.dtype.name == scalar.numpy
    assert scalar.dtype.itemsize == scalar.bytes
    names = (scalar, scalar.name, scalar.numpy, f"torch.{scalar.numpy}", scalar.dtype, scalar.dtype.type)
    assert all(find_scalar(name) is scalar for name in names)
    if scalar.kind == "int":
        info = np.iinfo(scalar.dtype)
        assert scalar.limits == (info.min, info.max)
    if scalar.is_float:
        about, form = ml_dtypes.finfo(scalar.dtype), scalar.format
        assert form.largest == float(about.max)
        assert form.smallest_normal == float(about.tiny)
        assert math.ldexp(form.epsilon, form.smallest_exponent) == float(about.smallest_subnormal)
        assert form.epsilon == float(about.eps)
        assert 1 + form.exponent_bits + form.mantissa_bits == scalar.bits
        with np.errstate(all="ignore"):
            assert form.has_infinity == bool(np.isinf(np.array(np.inf).astype(scalar.dtype).astype(np.float64)))


@pytest.mark.parametrize(
    "thing",
    ["float", "foo.float32", float, int, np.ndarray, np.float32(1), np.dtype(">f4"), np.dtype("i4,i4"), None],
)
def test_what_is_no_dtype_is_not_found(thing: object):
    assert find_scalar(thing) is None


def test_types_that_fit():
    plain, other = TensorType((4,), f32), TensorType((4,), i32)
    placed = TensorType((4,), f32, parse_layout("1 2 | 0 0 0 0 0 | "))
    pairs = {(plain, plain): True, (plain, placed): True, (placed, plain): False, (plain, other): False}
    for (expected, actual), fits in pairs.items():
        assert admits(expected, actual) == fits
        for before in ((), (i32,), (plain,)):
            assert admits(TupleType((*before, expected, i32)), TupleType((*before, actual, i32))) == fits
    assert not admits(TupleType((plain, i32)), TupleType((plain,)))
    assert not admits(TupleType((plain,)), TupleType((plain, i32)))
    assert not admits(TupleType((plain, i32)), TupleType((placed, f32)))
