"""The article's spelling is read as ours."""

from __future__ import annotations

import pytest

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.dialects.tt import Dot
from ziggurat.codemodel.op import same_model
from ziggurat.codemodel.text.legacy import upgrade_attributes
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import TensorType, f32, i1, i32, void


@pytest.mark.parametrize(
    ("op", "attributes", "type_", "expected"),
    [
        ("arith.constant", {"value": "64"}, i32, 64),
        ("arith.constant", {"value": "64l"}, i32, 64),
        ("arith.constant", {"value": "0.5f"}, f32, 0.5),
        ("arith.constant", {"value": "1.0D"}, TensorType((4,), f32), 1.0),
        ("arith.constant", {"value": "true"}, i1, True),
        ("constant", {"value": "-3"}, i32, -3),
        ("arith.constant", {"value": "not a number"}, i32, "not a number"),
        ("arith.constant", {"value": 7}, i32, 7),
    ],
)
def test_numbers_in_quotes(op, attributes, type_, expected):
    upgrade_attributes(op, attributes, type_)
    assert attributes["value"] == expected and type(attributes["value"]) is type(expected)


def test_symbols_spell_old_type_names():
    for op, key in (("tt.func", "sym_name"), ("tt.call", "callee")):
        attributes = {key: "cdiv_int_64_int"}
        upgrade_attributes(op, attributes, void)
        assert attributes == {key: "cdiv_i32_64_i32"}
    attributes = {"callee": "reduce_tensor<x64, float>_0"}
    upgrade_attributes("tt.call", attributes, void)
    assert attributes["callee"] == "reduce_tensor<x64, f32>_0"
    untouched = {"sym_name": "f<float>"}
    upgrade_attributes("func", untouched, void)
    assert untouched == {"sym_name": "f<float>"}


def test_masks_typed_as_integers_are_ours():
    model = parse(
        """tt.func @"f" (%0 : tensor<x4, int>, %1 : int)void -> {
            %2 : tensor<x4, int> = tt.splat %1;
            %3 : tensor<x4, int> = arith.cmpi %0 %2 @"slt";
            tt.return;
        };"""
    )
    splat, compared, _ = model.bodies[0].entry.ops
    assert splat.result.type == TensorType((4,), i32) and compared.result.type == TensorType((4,), i1)


def test_a_product_of_two_operands_has_an_accumulator_of_zeros():
    model = parse(
        """tt.func @"f" (%0 : tensor<x16, x16, float>, %1 : tensor<x16, x16, float>)void -> {
            %2 : tensor<x16, x16, float> = tt.dot %0 %1;
            tt.return;
        };"""
    )
    zero, dot, _ = model.bodies[0].entry.ops
    assert isinstance(dot, Dot) and dot.operands[2] is zero.result and zero.attributes["value"] == 0.0
    assert same_model(parse(str(model)), model)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [("f32", "0.5", "0.5"), ("f32", "2.0f", "2.0"), ("i64", "7L", "7"), ("i1", "true", "true"), ("i32", "-3", "-3")],
)
def test_a_constant_may_be_written_as_a_string_in_any_model(type_: str, text: str, value: str):
    model = parse(f'tt.func @"f" ()void -> {{ %0 : {type_} = arith.constant @"{text}"; tt.return; }};')
    assert f"%0 : {type_} = arith.constant @{value};" in str(model)
