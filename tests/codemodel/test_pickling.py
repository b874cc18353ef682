"""Models are values: they can be pickled and copied."""

import copy
import pickle

import pytest

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import i32, void
from ziggurat.codemodel.verify import verify

MODEL = parse(
    """module ()void -> {
        func @"f" (%0 : i32, %1 : i1)i32 -> {
            %2 : i32 = arith.constant @2 @loc="3:4:k.py";
            %3 : i32 = scf.if %1 ()i32 -> { scf.yield %2; } ()i32 -> { scf.yield %0; };
            cbranch %1 ^a ^b(%3);
          ^a: return %2;
          ^b(%4 : i32): return %4; };
        unreachable; };"""
)


def again(part: object) -> object:
    return pickle.loads(pickle.dumps(part))


def test_a_pickled_model_is_equal_and_well_formed():
    model = again(MODEL)
    assert isinstance(model, Op) and model is not MODEL
    assert same_model(model, MODEL)
    verify(model)
    assert [op.location for op in model.walk()] == [op.location for op in MODEL.walk()]
    assert model.bodies[0].yield_type is void


def test_locations_keep_their_pass_and_their_caller():
    model = parse(str(MODEL))
    place = Location("k.py", 1, 2, 3, 4, by="fold", caller=Location("m.py", 9))
    model.bodies[0].entry.ops[0].__dict__["location"] = place
    result = again(model)
    assert isinstance(result, Op)
    assert result.bodies[0].entry.ops[0].location == place


def test_the_parts_of_a_model_keep_their_places():
    function = MODEL.bodies[0].entry.ops[0]
    body = function.bodies[0]
    parts = (MODEL, function, body, body.blocks[2], body.parameters[1], body.entry.ops[1].result)
    model, op, inner, block, parameter, result = again(parts)  # type: ignore[misc]
    assert op is model.bodies[0].entry.ops[0]
    assert inner is op.bodies[0] and block is inner.blocks[2]
    assert parameter is inner.parameters[1] and result is inner.entry.ops[1].result


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_value_is_the_value(copied):
    assert copied(MODEL) is MODEL
    assert copied(MODEL.bodies[0]) is MODEL.bodies[0]
    assert copied({"model": MODEL})["model"] is MODEL


def test_what_is_part_of_no_model_cannot_be_pickled():
    builder = Builder.root([i32])
    with pytest.raises(TypeError, match="part of no model"):
        pickle.dumps(arith.AddI(*2 * builder.parameters))
    with pytest.raises(TypeError, match="part of no op"):
        pickle.dumps(builder.body)
    builder.add(core.Return([]))
