"""Traits: those of each op do not contradict each other."""

from __future__ import annotations

import inspect

from ziggurat.codemodel import dialects, traits  # noqa: F401
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.traits import (
    BlockTerminator,
    BodyTerminator,
    Commutative,
    Constant,
    MayTrap,
    MemoryRead,
    MemoryWrite,
    Pure,
    Returns,
    Symbol,
    Terminator,
)  # fmt: skip

TRAITS = [cls for _, cls in inspect.getmembers(traits, inspect.isclass) if cls.__module__ == traits.__name__]


def having(trait) -> set[str]:
    return {name for name, cls in OPS.items() if issubclass(cls, trait)}


def test_each_trait_is_a_sentence_and_some_op_has_it():
    for trait in TRAITS:
        assert inspect.cleandoc(trait.__doc__).endswith("."), trait
        assert having(trait), f"no op is {trait.__name__}"


def test_what_is_pure_touches_no_memory_and_ends_nothing():
    assert not having(Pure) & (having(MemoryRead) | having(MemoryWrite) | having(Terminator))
    assert having(MayTrap) <= having(Pure), "undefined for some operands, but pure where it is defined"


def test_terminators():
    assert having(Terminator) >= having(BodyTerminator) | having(BlockTerminator)
    assert not having(BodyTerminator) & having(BlockTerminator) and having(Returns) <= having(BodyTerminator)
    with_successors = {name for name, cls in OPS.items() if cls.SPEC.successors}
    assert with_successors <= having(BlockTerminator)


def test_attributes_that_traits_speak_of():
    for name in having(Constant):
        assert any(field.name == "value" for field in OPS[name].SPEC.attributes), name
    for name in having(Symbol):
        assert any(field.name == "sym_name" for field in OPS[name].SPEC.attributes), name
    for name in having(Commutative):
        assert len(OPS[name].SPEC.operands) >= 2, name
