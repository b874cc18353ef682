"""Tests of codemodel/declare.py: a declaration gives constructor, checks and attributes, and refuses ambiguity."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import ENUMS, OPS, constant_enum, convert_attribute
from ziggurat.codemodel.dialects import arith, cf, core, py, scf, tt
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.fields import Field, attribute, bodies, body, operand, operands, result_type, successor
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    TensorType,
    Type,
    TypeSyntax,
    VarType,
    f32,
    i32,
    i64,
    pyobject,
)


def refused(message: str) -> AbstractContextManager[object]:
    return pytest.raises(BuildError, match=re.escape(message))


@pytest.fixture
def place() -> Builder:
    return Builder.root([i32, PtrType(f32), f32])


@pytest.fixture(autouse=True)
def undeclared_afterwards() -> Iterator[None]:
    ops, enums = dict(OPS), dict(ENUMS)
    yield
    for table, before in ((OPS, ops), (ENUMS, enums)):
        for name in table.keys() - before.keys():
            del table[name]


# Declarations.


def test_the_example_of_the_docstring(place: Builder):
    class Range(Op, Pure, name="test.range"):
        """Numbers."""

        start: int = attribute(int)
        end: int = attribute(int)

        def infer_type(self) -> Type:
            return TensorType((self.end - self.start,), i32)

    op = Range(0, 64)
    assert op.result.type == TensorType((64,), i32)
    assert Range.NAME == "test.range" and OPS["test.range"] is Range
    assert str(op) == "%result : tensor<x64, i32> = test.range @start=0 @end=64;\n"
    assert same_model(parse(str(op)), op)


def test_fields_are_the_constructors_parameters_in_order():
    def parameters(cls: type) -> list[str]:
        return [p.name + ("*" if p.kind is p.KEYWORD_ONLY else "") for p in inspect.signature(cls).parameters.values()]

    assert parameters(arith.CmpI) == ["lhs", "rhs", "predicate"]
    keywords = ["cache*", "eviction*", "volatile*", "width*", "ragged*", "runs*", "ahead*"]
    assert parameters(tt.Load) == ["ptr", "mask", "other", *keywords]
    assert parameters(tt.AtomicRMW) == ["ptr", "value", "mask", "kind*", "sem*", "scope*", "width*"]
    assert parameters(arith.AddI) == ["lhs", "rhs"]  # inherited from a template
    assert [field.name for field in arith.TruncF.FIELDS] == ["operand", "type", "rounding"]


def test_constructors_refuse_arguments_that_do_not_fit(place: Builder):
    x, *_ = place.parameters
    assert arith.AddI(rhs=x, lhs=x).operands == (x, x)
    for arguments, keywords, message in (
        ((x,), {}, "missing a required .*argument: 'rhs'"),
        ((x, x, x), {}, "too many positional arguments"),
        ((x, x), {"lhs": x}, "multiple values for argument 'lhs'"),
        ((x, x), {"width": 3}, "unexpected keyword argument 'width'"),
    ):
        with pytest.raises(TypeError, match=message):
            arith.AddI(*arguments, **keywords)
    with pytest.raises(AttributeError, match="models do not change"):
        arith.AddI(x, x).lhs = x  # pyright: ignore[reportAttributeAccessIssue]


def test_a_template_shares_fields_and_is_no_op(place: Builder):
    class Shared(Op):
        """Not an op."""

        value: Value = operand()

    class Own(Shared, name="test.shared"):
        """An op."""

        factor: int = attribute(int, default=1)

    assert "Shared" not in {cls.__name__ for cls in OPS.values()} and Shared.NAME == ""
    x = place.parameters[0]
    assert Own(x).operands == (x,) and Own(x, factor=3).attributes == {"factor": 3}


def declare(name: str, **fields: Any) -> type[Op]:
    annotations = {field: "object" for field in fields}
    return type("Declared", (Op,), {"__annotations__": annotations, "__doc__": "For a test.", **fields}, name=name)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (lambda: {"a": operands(), "b": operand(default=None)}, "do not go with `operands()`"),
        (lambda: {"a": bodies(), "b": body()}, "`bodies()` does not go with other bodies"),
        (lambda: {"a": bodies(), "b": bodies()}, "`bodies()` does not go with other bodies"),
        (lambda: {"a": attribute(int, unnamed=True), "b": attribute(int, unnamed=True)}, "more than one attribute is"),
        (lambda: {"a": result_type(), "b": result_type()}, "more than one field is the result type"),
        (lambda: {"location": attribute(str)}, "location: every op has a field of this name"),
        (lambda: {"operands": operands()}, "operands: every op has a field of this name"),
        (lambda: {"a": 3}, "fields must have a role (operand(), attribute() …); without one: a"),
    ],
)
def test_declarations_that_cannot_be_told_apart_are_refused(fields: Any, message: str):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        declare("test.bad", **fields())
    assert "in the declaration of Declared" in str(error.value) and "test.bad" not in OPS


def test_operands_that_may_be_absent_come_last():
    with pytest.raises(ValueError, match="an operand that may be absent comes before one that may not"):
        declare("test.bad", a=operand(default=None), b=Field("operand", keyword=True))


def test_a_name_is_declared_once():
    declare("test.once", a=operand())
    with pytest.raises(ValueError, match=r"the op 'test\.once' is declared twice"):
        declare("test.once", a=operand())


# Constructors.


def test_operands_are_values(place: Builder):
    x, pointer, _ = place.parameters
    op = arith.AddI(x, x)
    with refused("arith.addi: an operand must be a Value; got <arith.addi") as warnings:
        arith.AddI(op, x)
    assert warnings.value.hint == "give its result"
    for wrong in (None, 3, i32):
        with refused("arith.addi: an operand must be a Value; got"):
            arith.AddI(x, wrong)
    with refused("an operand must be a Value"):
        core.Return([op])
    with refused("return: 'values' must be a sequence; got <parameter 0 : i32>"):
        core.Return(x)
    with refused("tt.load: an operand must be a Value"):
        tt.Load(pointer, 3)


def test_sequences_of_operands_may_be_iterators(place: Builder):
    op = py.Pack(value for value in place.parameters)
    assert op.components == op.operands == place.parameters


def test_an_operand_may_be_absent_when_those_after_it_are(place: Builder):
    _, pointer, other = place.parameters
    assert tt.Load(pointer).operands == (pointer,)
    with refused("tt.load: operand 'other' is given, but an earlier one is not"):
        tt.Load(pointer, None, other)


def test_groups_of_operands_have_one_length():
    b = Builder.root([PtrType(f32), i32, i64])
    base, size, stride = b.parameters
    type_ = DescriptorType((8, 8), f32)
    op = tt.MakeTensorDescriptor(base, [size, size], [stride, stride], type_)
    again = op.SPEC.make(op.operands, (), dict(op.attributes), (), type_)
    assert same_model(again, op) and again.shape == (size, size) and again.strides == (stride, stride)
    with refused("tt.make_tensor_descriptor: its groups of operands differ in length"):
        tt.MakeTensorDescriptor(base, [size, size], [stride], type_)


def test_the_padding_of_a_descriptor_is_that_of_its_type():
    b = Builder.root([PtrType(f32), i32, i64])
    base, size, stride = b.parameters
    nan = DescriptorType((8,), f32, "nan")
    assert tt.MakeTensorDescriptor(base, [size], [stride], nan, padding=tt.Padding.NAN).result.type == nan
    with refused(
        "tt.make_tensor_descriptor with the padding zero gives descriptor<x8, f32, nan>, whose padding is nan"
    ):
        tt.MakeTensorDescriptor(base, [size], [stride], nan)


def test_bodies_successors_and_types_are_what_they_say(place: Builder):
    with refused("func: a body must be a Body; got 3"):
        core.Func("f", 3)
    with refused("cand: 'parts' must be a sequence; got 3"):
        py.CondAnd(3)
    block = place.new_block()
    assert isinstance(block, Block)
    with refused("branch: 'target' must be a Successor; got <block of 0 ops>"):
        core.Branch(block)
    with refused("constant: the result type must be a Type; got 'i32'"):
        core.ConstantOp(1, "i32")


# Attributes.


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (3, int, 3),
        (True, int, 1),
        (np.int64(3), int, 3),
        ("64", int, 64),
        ("-5", int, -5),
        (1, float, 1.0),
        ("0.5", float, 0.5),
        ("inf", float, float("inf")),
        (np.float32(0.5), float, 0.5),
        ("true", bool, True),
        (False, bool, False),
        ("text", str, "text"),
        (f32, Type, f32),
        (TypeSyntax("f32"), Type, f32),
        ("red", Colour, Colour.RED),
        (TypeSyntax("blue"), Colour, Colour.BLUE),
        (TypeSyntax("Colour.BLUE"), Colour, Colour.BLUE),
        ([1, "2"], [int], (1, 2)),
        ((), [str], ()),
        (None, object, None),
        ([1, [2.0, "x"]], object, (1, (2.0, "x"))),
        (np.float64(0.5), object, 0.5),
        (np.int32(7), object, 7),
        (10**400, int, 10**400),
        (TypeSyntax("f32"), object, f32),
    ],
)
def test_attributes_are_converted(value: object, kind: Any, expected: object):
    actual = convert_attribute(value, kind, "it")
    assert actual == expected and type(actual) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (1.5, int, "it must be of kind int; got 1.5"),
        ("--5", int, "it must be of kind int"),
        ("x", float, "it must be of kind float"),
        (10**400, float, "it must be of kind float"),
        (1, bool, "it must be of kind bool"),
        (1, str, "it must be of kind str"),
        ("i32", Type, "it must be of kind Type"),
        (TypeSyntax("i33"), Type, "it: unknown type 'i33'"),
        ("green", Colour, "it must be one of red, blue; got 'green'"),
        ("12", [int], "it must be a sequence; got '12'"),
        (3, [int], "it must be a sequence; got 3"),
        ([1, "x"], [int], "it must be of kind int; got 'x'"),
        (1j, object, "it must be a number, string, None, type, enum member or tuple of these; got 1j"),
        ((1, {}), object, "it must be a number, string"),
        (Colour.RED, object, "it: Colour is not declared with @constant_enum"),
        (TypeSyntax("Colour.GREEN"), object, "unknown type 'Colour.GREEN'"),
    ],
)
def test_what_is_no_attribute_is_refused(value: object, kind: Any, message: str):
    with refused(message):
        convert_attribute(value, kind, "it")


@pytest.mark.parametrize("values", [{"LOW": 1, "HIGH": 2}, {"LOW": "low", "HIGH": "high"}])
def test_members_of_declared_enums_are_constants(values: dict[str, object]):
    level = constant_enum(enum.Enum("Level", values))
    b = Builder.root()
    b.add(core.ConstantOp(level.HIGH, pyobject))
    b.add(core.ConstantOp((level.LOW, 1), pyobject))
    b.add(core.Return([]))
    model = core.Func("f", b.finish())
    assert "constant @Level.HIGH;" in str(model) and "@[Level.LOW, 1]" in str(model)
    assert same_model(parse(str(model)), model)


def test_attributes_are_converted_by_the_constructor_and_stay_in_order(place: Builder):
    x, pointer, _ = place.parameters
    assert arith.CmpI(x, x, "slt").predicate is arith.IntPredicate.SLT
    with refused("arith.cmpi: attribute 'predicate' must be one of eq, ne, slt"):
        arith.CmpI(x, x, "less")
    op = tt.Load(pointer, volatile=True, cache=tt.CacheModifier.CG)
    assert list(op.attributes) == ["cache", "eviction", "volatile", "width", "ragged", "runs", "ahead"]
    assert str(op) == "%result : f32 = tt.load %free_0 @cache=cg @volatile=true;\n"
    with pytest.raises(TypeError, match="kind"):
        tt.AtomicRMW(pointer, place.parameters[2])


# The generic parts.


def test_make_checks_the_counts(place: Builder):
    x, pointer, _ = place.parameters
    make = arith.AddI.SPEC.make
    with refused("arith.addi takes 2 operand(s), got 1"):
        make([x], [], {}, [], i32)
    with refused("tt.load takes 1 to 3 operand(s), got 4"):
        tt.Load.SPEC.make([pointer] * 4, [], {}, [], f32)
    with refused("scf.for takes at least 3 operand(s), got 2"):
        scf.For.SPEC.make([x, x], [], {}, [], i32)
    with refused("tt.make_tensor_descriptor takes 1 and equal groups operand(s), got 2"):
        tt.MakeTensorDescriptor.SPEC.make([pointer, x], [], {}, [], i32)
    with refused("arith.addi takes 0 successor(s), got 1"):
        make([x, x], [Successor(place.new_block())], {}, [], i32)
    with refused("func takes 1 body(s), got 0"):
        core.Func.SPEC.make([], [], {"sym_name": "f"}, [], i32)
    with refused("arith.cmpi: attribute 'predicate' is missing"):
        arith.CmpI.SPEC.make([x, x], [], {}, [], i32)


def test_make_is_the_constructor_without_type_rules(place: Builder):
    x, pointer, y = place.parameters
    result = tt.Load.SPEC.make([pointer], [], {"volatile": True}, [], f32)
    assert same_model(result, tt.Load(pointer, volatile=True))
    assert isinstance(result, tt.Load) and result.mask is None and result.ptr is pointer
    assert arith.AddI.SPEC.make([x, y], [], {}, [], i64).result.type == i64


def free_op(cls: type[Op]) -> Op:
    """An op of any class with one value a place, from its generic parts."""
    b = Builder.root([pyobject])
    spec = cls.SPEC
    attributes: dict[str, Any] = {}
    for field in spec.attributes:
        kind = field.kind
        samples: dict[Any, Any] = {int: 2, float: 0.5, bool: True, str: 'a "b"', object: (1, None), Type: VarType(f32)}
        inner = kind[0] if isinstance(kind, list) else kind
        sample = samples[inner] if inner in samples else list(inner)[-1]
        attributes[field.name] = (sample, sample) if isinstance(kind, list) else sample

    def part() -> Body:
        inner = b.nested([i32])
        inner.add(core.Yield(inner.parameters))
        return inner.finish()

    successors = [Successor(b.new_block([i32]), []) for _ in spec.successors]
    values = [b.parameters[0]] * (spec.required + spec.optional + 2 * spec.variadic)
    return spec.make(values, successors, attributes, [part() for _ in spec.bodies], i32)


@pytest.mark.parametrize("name", sorted(OPS))
def test_generic_parts_fill_the_fields_of_each_op(name: str):
    op = free_op(OPS[name])
    spec = op.SPEC
    assert not list(spec.count_errors(len(op.operands), len(op.successors), len(op.bodies)))
    gathered: list[object] = []
    for field in spec.operands:
        value = getattr(op, field.name)
        gathered += value if field.role == "operands" else [value]
    assert tuple(gathered) == op.operands
    assert set(op.attributes) == set(spec.by_name)
    again = spec.make(op.operands, op.successors, dict(op.attributes), [], op.result.type) if not op.bodies else op
    assert same_model(again, op) and repr(op).startswith(f"<{name}")
    assert spec.result_type is None or getattr(op, spec.result_type) == op.result.type


def test_ops_of_a_body_read_by_their_fields(place: Builder):
    block = place.new_block([i32])
    op = cf.Br(Successor(block, [place.parameters[0]]))
    assert op.successors == (op.target,) and op.target.arguments == (place.parameters[0],)
    assert successor is not operand
