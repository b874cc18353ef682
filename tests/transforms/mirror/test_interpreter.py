"""The builder interpreter has one method for each call of the language, beside those that need none."""

from __future__ import annotations

import inspect

import pytest

from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.mirror.interpreter import BuilderInterpreter

# Calls that leave nothing in the Triton model, or that the driver builds itself.
DONE_WITH = {"range", "static_range", "static_assert", "static_print", "next_power_of_2", *LIBRARY}


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_call_has_its_builder(name: str):
    method = getattr(BuilderInterpreter, name, None)
    assert (method is None) == (name in DONE_WITH)
    if method is not None:
        # Beside the builder itself: the result's type, then the arguments in the order of the signature.
        inspect.signature(method).bind("self", "result", *SIGNATURES[name].parameters)


def test_no_builder_is_hidden_by_another_part():
    seen: dict[str, str] = {}
    for part in BuilderInterpreter.__mro__[1:-1]:
        for name in vars(part):
            if not name.startswith("_"):
                assert name not in seen, f"{name} is in {part.__name__} and in {seen[name]}"
                seen[name] = part.__name__


def test_it_builds_where_it_is_told(emitted, functions):
    def build(emit):
        calls = BuilderInterpreter(emit, functions)
        assert calls.emit is emit and calls.functions is functions
        return calls.program_id(None, 0)

    assert emitted([], build).names == ["tt.get_program_id"]
