"""The type interpreter has one method for each call of the language, with the parameters of its signature."""

from __future__ import annotations

import inspect

import pytest

from ziggurat.codemodel.types import TensorType, f32, i32
from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.attribution.interpreter import TypeInterpreter
from ziggurat.transforms.attribution.promotion import constant


class Remembers:
    """A combiner that notes what it is asked."""

    def __init__(self):
        self.asked = []

    def combine(self, function, types, what):
        self.asked.append((function, list(types), what))


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_call_has_its_rule(name: str):
    rules = TypeInterpreter(Remembers())
    if name in LIBRARY:
        assert not hasattr(rules, name), "a call written in the language has a check, not a rule"
        inspect.signature(getattr(rules, f"check_{name}")).bind(*SIGNATURES[name].parameters)
    else:
        inspect.signature(getattr(rules, name)).bind(*SIGNATURES[name].parameters)


def test_no_rule_is_hidden_by_another_part():
    """The parts that it is put together from share no public name."""
    seen: dict[str, str] = {}
    for part in TypeInterpreter.__mro__[1:-1]:
        for name in vars(part):
            if not name.startswith("_"):
                assert name not in seen, f"{name} is in {part.__name__} and in {seen[name]}"
                seen[name] = part.__name__


def test_functions_that_combine_go_to_the_combiner():
    combiner = Remembers()
    assert TypeInterpreter(combiner).sum(TensorType((4, 8), f32), 1, False, None) == TensorType((4,), f32)
    assert combiner.asked == [("sum", [f32], "zg.sum")]


def test_it_computes_with_types():
    rules = TypeInterpreter(Remembers())
    assert rules.add(TensorType((4, 1), i32), TensorType((8,), f32)) == TensorType((4, 8), f32)
    assert rules.add(constant(2), constant(3)) == constant(5)
