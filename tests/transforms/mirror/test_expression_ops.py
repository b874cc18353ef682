"""Building variables, operators, tuples and calls: the ops of a kernel's expressions in the Triton model."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.types import PtrType, TupleType, f32, i1, i32, i64
from ziggurat.transforms.attribution import attribute, constant
from ziggurat.transforms.attribution.attribute import Attributor
from ziggurat.transforms.calls.constant_arguments import FunctionName
from ziggurat.transforms.calls.emit import flatten_types, packed_type
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.mirror.mirror import FunctionMirror, ModuleMirror


def ops_of(ops: str, *types, functions=None):
    """The ops, without the return, of the mirror of a function of parameters %0, %1 …; and the values it returns."""
    parameters = ", ".join(f"%{index} : object" for index in range(len(types)))
    model = zg.parse(f'func @"f" ({parameters})object -> {{ {ops} }};')
    attributor = Attributor(functions)
    attribution = attributor.function(FunctionName("f", model), types, None)
    assert not attributor.errors
    builder = Builder.root(flatten_types(TupleType(types)), packed_type(attribution.result))
    FunctionMirror(ModuleMirror(frozenset(), checks_overflow=False), attribution, builder).step(model)
    *result_ops, return_ = builder.finish().entry.ops
    return result_ops, return_.operands


def names(ops: str, *types, **options):
    return [op.NAME for op in ops_of(ops, *types, **options)[0]]


def test_variables_are_no_ops():
    ops = '%2 : Var<object> = var %0 @"v"; var.store %2 %1; %3 : object = var.load %2; return %3;'
    result_ops, (value,) = ops_of(ops, i32, f32)
    assert result_ops == [] and value.type == f32


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("add", i32, i32, ["arith.addi"]),
        ("add", i32, f32, ["arith.sitofp", "arith.addf"]),
        ("lt", i32, i32, ["arith.cmpi"]),
        ("mul", i32, i64, ["arith.extsi", "arith.muli"]),
        ("is", i32, i32, []),
        ("floordiv", i32, i32, ["arith.divsi"]),
    ],
)
def test_operators_are_the_ops_of_their_calls(op, a, b, expected):
    assert names(f"%2 : object = {op} %0 %1; return %2;", a, b) == expected


def test_literals_are_made_for_each_user():
    ops = "%1 : object = constant @3; %2 : object = add %0 %1; %3 : object = mul %2 %1; return %3;"
    result_ops, _ = ops_of(ops, i32)
    assert [op.NAME for op in result_ops] == ["arith.constant", "arith.addi", "arith.constant", "arith.muli"]


def test_not_and_plus():
    result_ops, (value,) = ops_of("%1 : object = not %0; return %1;", i32)
    assert [op.NAME for op in result_ops] == ["arith.constant", "arith.cmpi", "arith.constant", "arith.xori"]
    assert value.type == i1
    result_ops, (value,) = ops_of("%1 : object = pos %0; return %1;", i32)
    assert result_ops == [] and value.type == i32


def test_tuples_are_taken_apart_without_ops():
    pair = "%2 : object = pack %0 %1;"
    result_ops, (value,) = ops_of(f"{pair} %3 : object = unpack %2 @index=1 @count=2; return %3;", i32, f32)
    assert result_ops == [] and value.type == f32
    minus_one = "%3 : object = constant @-1; %4 : object = subscript %2 %3; return %4;"
    result_ops, (value,) = ops_of(f"{pair} {minus_one}", i32, i64)
    assert result_ops == [] and value.type == i64
    result_ops, values = ops_of(f"{pair} return %2;", i32, f32)
    assert result_ops == [] and [value.type for value in values] == [i32, f32], "the return puts them into one Tuple"


def test_what_is_constant_leaves_nothing():
    ops = "%1 : object = constant @2; %2 : object = add %1 %1; %3 : object = pack %2 %1; return %3;"
    result_ops, values = ops_of(ops, i32)
    assert result_ops == [] and len(values) == 0


@pytest.mark.parametrize(
    ("call", "types", "expected"),
    [
        ('invoke %0 %1 @"builtins.min"', (i32, i32), ["arith.minsi"]),
        ('invoke %0 %1 %0 @"builtins.max"', (f32, f32), ["arith.maxnumf", "arith.maxnumf"]),
        ('invoke %0 @"builtins.abs"', (f32,), ["math.absf"]),
        ('invoke %0 @"builtins.int"', (f32,), ["arith.fptosi"]),
        ('invoke %0 @"builtins.float"', (i32,), ["arith.sitofp"]),
        ('invoke %0 @"builtins.bool"', (i1,), []),
        ('invoke %0 %1 @"zg.add"', (i32, i32), ["arith.addi"]),
        ('invoke %1 %0 @"zg.sub" @keywords=["b", "a"]', (i32, i32), ["arith.subi"]),
        ('invoke %0 %1 @"zg.cdiv"', (i32, i32), ["tt.call"]),
        ('invoke %0 @"zg.assume"', (constant(True),), ["arith.constant"]),
    ],
)
def test_calls(call, types, expected):
    count = len(types)
    assert names(f"%{count} : object = {call}; return;", *types) == expected


def test_keywords_stand_in_the_order_of_the_signature():
    result_ops, _ = ops_of('%2 : object = invoke %1 %0 @"zg.sub" @keywords=["b", "a"]; return %2;', i32, i32)
    parameters = result_ops[0].operands[0].block.parameters
    assert [parameters.index(value) for value in result_ops[0].operands] == [0, 1]


def test_a_call_hands_on_the_run_time_parts_of_tuples():
    helper = zg.parse('func @"g" (%0 : object, %1 : object)object -> { return %0; };')
    ops = '%2 : object = constant @5; %3 : object = pack %0 %2; %4 : object = func.call %3 %1 @"g"; return %4;'
    result_ops, values = ops_of(ops, i32, f32, functions={"g": helper})
    (call,) = result_ops
    assert [value.type for value in call.operands] == [i32, f32], "the constant in the tuple is no argument"
    assert [value.type for value in values] == [i32]


@zg.kernel
def uses_descriptor(p, n):
    block = zg.make_tensor_descriptor(p, (n, n), (n, 1), (8, 16))
    block.store((0, 0), block.load((0, 16)))


def test_methods_are_calls():
    model = mirror(attribute(uses_descriptor, (PtrType(f32), i32)))
    zg.verify(model)
    names = [op.NAME for op in model.walk()]
    assert names.count("tt.descriptor_load") == names.count("tt.descriptor_store") == 1
