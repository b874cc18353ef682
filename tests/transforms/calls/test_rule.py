"""Every call of the language has a rule, whose halves take the arguments of its signature."""

from __future__ import annotations

import inspect

import pytest
from call_types import Types

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.types import TensorType, f16, f32, i32
from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.library import LIBRARY
from ziggurat.frontends.reflection.names import BUILTINS as KNOWN
from ziggurat.transforms.calls import _FAMILIES, RULES, Typing
from ziggurat.transforms.calls.builtins import BUILTINS
from ziggurat.transforms.calls.promotion import constant

# Calls that leave no op, or that the mirror builds itself.
NOT_BUILT = {"range", "static_range", "static_assert", "static_print", "next_power_of_2"}


def test_the_rules_are_those_of_the_language():
    assert RULES.keys() == SIGNATURES.keys()
    assert sum(len(family.RULES) for family in _FAMILIES) == len(RULES), "a call has a rule in two families"
    # Reflection itself reads the first two, and writes the last one for a slice of a tuple.
    assert BUILTINS.keys() == KNOWN.keys() - {"getattr", "hasattr"} | {"slice"}


@pytest.mark.parametrize("name", SIGNATURES)
def test_both_halves_take_the_arguments_of_the_signature(name: str):
    rule, parameters = RULES[name], SIGNATURES[name].parameters
    inspect.signature(rule.type).bind("typing", *parameters)
    assert (rule.body is LIBRARY[name]) if name in LIBRARY else rule.body is None
    assert (rule.build is None) == (name in NOT_BUILT or name in LIBRARY)
    if rule.build is not None:
        inspect.signature(rule.build).bind("emit", "result", *parameters)


def test_functions_that_combine_go_to_the_combiner():
    types = Types()
    assert types.sum(TensorType((4, 8), f32), 1, False, None) == TensorType((4,), f32)
    assert types.combinations == [("sum", [f32], "zg.sum")]


def test_it_computes_with_types():
    types = Types()
    assert types.add(TensorType((4, 1), i32), TensorType((8,), f32)) == TensorType((4, 8), f32)
    assert types.add(constant(2), constant(3)) == constant(5)


def test_an_op_is_asked_for_the_type_of_a_call():
    matrix = TensorType((16, 16), f16)
    assert Typing("dot").op_type(lambda values: tt.Dot(*values), matrix, matrix, matrix) == matrix
    with pytest.raises(KernelTypeError, match=r"^zg.dot of f16 accumulates in f32 or f16; got i32") as error_info:
        Typing("dot").op_type(lambda values: tt.Dot(*values), matrix, matrix, TensorType((16, 16), i32), hint="try")
    assert error_info.value.hint == "try"
