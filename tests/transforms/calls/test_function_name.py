"""Functions as constants: equal when they are the same model, whatever they are called."""

from __future__ import annotations

import ziggurat as zg
from ziggurat.codemodel.types import ConstantType, pyobject
from ziggurat.transforms.calls.constant_arguments import FunctionName

MODEL = zg.parse('func @"f" (%0 : object)object -> { return %0; };')
AGAIN = zg.parse(str(MODEL))


def test_one_name_of_two_models_is_two_functions():
    assert zg.same_model(MODEL, AGAIN) and MODEL is not AGAIN
    assert FunctionName("f", MODEL) == FunctionName("f", MODEL)
    assert FunctionName("f", MODEL) != FunctionName("f", AGAIN)
    assert FunctionName("f", MODEL) != FunctionName("g", MODEL)


def test_it_tells_attributions_apart():
    keys = {ConstantType(FunctionName("f", model), pyobject) for model in (MODEL, AGAIN, MODEL)}
    assert len(keys) == 2


def test_its_text_is_its_symbol():
    assert str(FunctionName("a.b", MODEL)) == 'function<"a.b">'
    assert "identity" not in str(FunctionName("f", MODEL))
