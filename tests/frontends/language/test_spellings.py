"""Names of Triton that the language lacks: each is an error whose hint has the name to write."""

from __future__ import annotations

import re

import pytest

import ziggurat as zg
from ziggurat.frontends.language import spellings
from ziggurat.frontends.language.spellings import of_attribute, of_member

MEMBERS = sorted(spellings._MEMBERS)
ATTRIBUTES = sorted([*spellings._ATTRIBUTES, "primitive_bitwidth"])


@pytest.mark.parametrize("name", MEMBERS)
def test_members_are_triton_s_alone_and_lead_to_ours(name, type_of):
    assert not hasattr(zg, name)
    hint = of_member(name)
    assert hint is not None
    for ours in re.findall(r"zg\.(\w+)", hint):
        assert hasattr(zg, ours)
    with pytest.raises(zg.KernelNameError, match=f"the module 'zg' has no '{name}'") as error_info:
        type_of(f"zg.{name}")
    assert error_info.value.hint == hint


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_lead_to_ours(name, type_of):
    hint = of_attribute(name)
    assert hint is not None
    for ours in re.findall(r"zg\.(\w+)", hint):
        assert hasattr(zg, ours)
    for text in (f"t.{name}", f"t.{name}(0)"):
        with pytest.raises(zg.KernelTypeError, match=rf"has no (property|method) '{name}'") as error_info:
            type_of(text)
        assert error_info.value.hint == hint
    with pytest.raises(zg.KernelTypeError, match=f"has no '{name}'") as error_info:
        zg.trace(lambda p: getattr(zg.arange(0, 16), name), zg.ptr(zg.f32))
    assert error_info.value.hint == hint


def test_a_module_may_have_another_name():
    assert of_member("expand_dims", "ziggurat") == "write ziggurat.expand(x, axis)"
    assert of_member("nothing_like_this") is None and of_attribute("nothing_like_this") is None


def test_only_public_names_are_suggested(type_of):
    with pytest.raises(zg.KernelNameError) as error_info:
        type_of("zg.Anny")
    assert "zg.Any" not in (error_info.value.hint or "")


def test_an_enum_lists_its_members(type_of):
    with pytest.raises(zg.KernelNameError, match=r"the enum 'K' has no 'LT'") as error_info:
        type_of("K.LT")
    assert error_info.value.hint is not None and error_info.value.hint.startswith(
        "it has EQUAL, NOT_EQUAL, LESS_THAN, "
    )
    with pytest.raises(zg.KernelNameError) as error_info:
        type_of("K.LES_THAN")
    assert error_info.value.hint == "did you mean K.LESS_THAN?"


def test_an_anonymous_function_is_to_be_a_def(type_of):
    with pytest.raises(zg.KernelSyntaxError) as error_info:
        type_of("twice(1)", twice=lambda x: 2 * x)
    assert error_info.value.hint == "decorate what it does as a def with @zg.function"
