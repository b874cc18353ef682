"""The findings of an attribution: types by scope, parts of symbols, and the model printed with its types."""

from __future__ import annotations

import pytest
from findings import facts

import ziggurat as zg
from ziggurat.codemodel.types import ConstantType, PtrType, TensorType, f32, i32, pyobject
from ziggurat.transforms.attribution import attribute, constant
from ziggurat.transforms.attribution.attribution import Scope
from ziggurat.transforms.calls.constant_arguments import FunctionName, symbol_part


@zg.kernel
def unrolled(p, n, COUNT: zg.constexpr):
    total = 0
    for i in zg.static_range(COUNT):
        total = total + i * n
    zg.store(p, total)


MODEL = unrolled.model


def test_a_scope_knows_what_the_scopes_around_it_know():
    value, other = MODEL.bodies[0].parameters[:2]
    outer = Scope()
    inner = Scope(outer)
    outer.types[value] = f32
    assert inner.type_of(value) == f32
    inner.types[value] = i32
    assert inner.type_of(value) == i32 and outer.type_of(value) == f32
    with pytest.raises(KeyError):
        inner.type_of(other)


def test_each_iteration_of_an_unrolled_loop_has_a_scope():
    attribution = attribute(unrolled, (PtrType(i32), i32, constant(3)))
    ((loop, iterations),) = facts(attribution, "iterations").items()
    assert [item for item, _ in iterations] == [constant(0), constant(1), constant(2)]
    assert all(scope.parent is attribution.scope for _, scope in iterations)
    item = loop.suite.parameters[0]
    assert [scope.type_of(item) for _, scope in iterations] == [item for item, _ in iterations]


@pytest.mark.parametrize(
    ("type_", "part"),
    [
        (i32, "i32"),
        (PtrType(f32), "ptr<f32>"),
        (TensorType((4, 8), f32), "tensor<x4, x8, f32>"),
        (constant(32), "32"),
        (constant(None), "None"),
        (constant(f32), "f32"),
        (ConstantType(FunctionName("combine", MODEL), pyobject), "combine"),
    ],
    ids=str,
)
def test_a_constant_is_its_bare_value_in_a_symbol(type_, part):
    assert symbol_part(type_) == part


def test_the_text_has_the_type_of_each_value_under_its_op():
    text = str(attribute(unrolled, (PtrType(i32), i32, constant(2))))
    lines = [line.strip() for line in text.splitlines()]
    at = next(index for index, line in enumerate(lines) if line.endswith("constant @0;"))
    assert lines[at + 1] == "// -> constant<i32, c0>"
    index_of_store = next(index for index, line in enumerate(lines) if '@"zg.store"' in line)
    assert not lines[index_of_store + 1].startswith("// ->"), "a call that gives nothing has no remark"
    assert not any("Var<" in line for line in lines if line.startswith("// ->"))


def test_the_text_is_still_a_model():
    attribution = attribute(unrolled, (PtrType(i32), i32, constant(2)))
    assert zg.same_model(zg.parse(str(attribution)), attribution.func)
