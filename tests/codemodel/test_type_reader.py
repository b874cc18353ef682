"""Reading types: malformed spellings, spellings of others, and readers that dialects add."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.type_reader import LEGACY_NAMES, TypeSyntaxError, read_shape, read_type, register_type
from ziggurat.codemodel.types import TensorType, TypeSyntax, VarType, f16, f32, f64, i1, i32


def leaf(name: str, *arguments: TypeSyntax, quoted: bool = False) -> TypeSyntax:
    return TypeSyntax(name, arguments, quoted)


X4, F32 = leaf("x4"), leaf("f32")


@pytest.mark.parametrize(
    ("syntax", "message"),
    [
        (leaf("vector", X4, F32), "unknown type 'vector<x4, f32>'"),
        (leaf("i33"), "unknown type 'i33'"),
        (leaf("i32", F32), "'i32' takes no arguments"),
        (leaf("i32", quoted=True), 'expected a type, got the string "i32"'),
        (leaf("void", F32), "'void' takes no arguments, in 'void<f32>'"),
        (leaf("ptr"), "'ptr' takes 1 argument(s), in 'ptr'"),
        (leaf("ptr", F32, F32), "'ptr' takes 1 argument(s), in 'ptr<f32, f32>'"),
        (leaf("ptr", leaf("ptr", F32)), "expected a scalar type, got 'ptr<f32>'"),
        (leaf("Var"), "'Var' takes 1 argument(s), in 'Var'"),
        (leaf("func"), "'func' needs a result type"),
        (leaf("tensor"), "'tensor' needs an element type"),
        (leaf("tensor", X4, leaf("void")), "a tensor holds scalars or pointers, not 'void'"),
        (leaf("tensor", leaf("4"), F32), "expected a dimension such as 'x64', got '4'"),
        (leaf("tensor", leaf("x0"), F32), "expected a dimension such as 'x64', got 'x0'"),
        (leaf("tensor", leaf("x-1"), F32), "expected a dimension such as 'x64', got 'x-1'"),
        (leaf("tensor", leaf("x"), F32), "expected a dimension such as 'x64', got 'x'"),
        (leaf("tensor", leaf("x4", F32), F32), "expected a dimension such as 'x64', got 'x4<f32>'"),
        (leaf("tensor", leaf("x4", quoted=True), F32), "expected a dimension such as 'x64', got '\"x4\"'"),
        (leaf("tensor", leaf("x" + "9" * 5000), F32), "expected a dimension such as 'x64'"),
        (leaf("descriptor", X4, leaf("ptr", F32)), "expected a scalar type, got 'ptr<f32>'"),
        (leaf("descriptor", X4, leaf("i32"), leaf("nan")), "only floats are padded with NaN; got 'i32'"),
        (leaf("descriptor", X4, F32, leaf("zero")), "expected a dimension such as 'x64', got 'f32'"),
        (leaf("descriptor", leaf("nan")), "'descriptor' needs an element type"),
        (leaf("constant", F32), "'constant' takes 2 argument(s)"),
        (leaf("constant", F32, leaf("c" + "9" * 5000)), "unknown type"),
    ],
)
def test_malformed_spellings(syntax: TypeSyntax, message: str):
    with pytest.raises(TypeSyntaxError, match=re.escape(message)):
        read_type(syntax)


@given(st.recursive(
    st.builds(TypeSyntax, st.sampled_from(["i32", "tensor", "ptr", "x4", "c1", "func", "Tuple", "Var", "constant"])
              | st.text(string.ascii_letters, max_size=3), st.just(()), st.booleans()),
    lambda inner: st.builds(lambda name, parts: TypeSyntax(name, tuple(parts)),
                            st.sampled_from(["tensor", "ptr", "func", "Tuple", "Var", "constant", "descriptor"]),
                            st.lists(inner, max_size=3)),
    max_leaves=6,
))  # fmt: skip
def test_any_spelling_is_a_type_or_an_error(syntax: TypeSyntax):
    try:
        type_ = read_type(syntax)
    except TypeSyntaxError:
        return
    assert read_type(type_.syntax()) == type_


def test_legacy_names():
    assert read_type(leaf("int")) == i32 and read_type(leaf("float")) == f32 and read_type(leaf("boolean")) == i1
    assert read_type(leaf("oracle.code.triton.Float16")) == f16
    assert read_type(leaf("tensor", X4, leaf("double"))) == TensorType((4,), f64)
    assert read_type(leaf("java.type", leaf("java.lang.Integer", quoted=True))) == i32
    assert all(str(read_type(leaf(name))) == type_.name for name, type_ in LEGACY_NAMES.items())


def test_shape_readers_are_for_dialects_too():
    assert read_shape(leaf("tensor", X4, leaf("x2"), F32)) == ((4, 2), F32)
    register_type("test_types.box", lambda syntax: VarType(read_type(syntax.arguments[0])))
    assert read_type(leaf("test_types.box", F32)) == VarType(f32)
