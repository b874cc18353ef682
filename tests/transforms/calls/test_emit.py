"""Constants, conversions and broadcasts: which ops they are, and what stands for tuples."""

from __future__ import annotations

import math

import pytest

from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.types import (
    PtrType,
    TensorType,
    TupleType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    u8,
    u32,
    u64,
    void,
    with_element,
)  # fmt: skip
from ziggurat.transforms.calls.emit import (
    Operand,
    flatten_types,
    number_as,
    packed_type,
    rebuild,
    split_operand,
)  # fmt: skip
from ziggurat.transforms.calls.promotion import constant

T = TensorType((4, 16), i32)
P = PtrType(f32)


@pytest.mark.parametrize(
    ("value", "scalar", "expected"),
    [
        (3, f32, 3.0),
        (True, f16, 1.0),
        (2, i1, True),
        (0.0, i1, False),
        (3.9, i32, 3),
        (-3.9, i32, -3),
        (255, i8, -1),
        (-1, u8, 255),
        (-1, u64, 2**64 - 1),
        (2**31, i32, -(2**31)),
        (True, i32, 1),
        (math.inf, i32, 2**31 - 1),
        (math.nan, u8, 0),
    ],
)
def test_numbers_are_cast_as_at_run_time(value, scalar, expected):
    number = number_as(value, scalar)
    assert number == expected and type(number) is type(expected)


def test_a_literal_is_a_constant_where_it_is_used(emit_ops):
    emission = emit_ops([], lambda emit: [emit.convert(Operand(constant(3), None), f32) for _ in range(2)])
    assert emission.names == ["arith.constant"] * 2, "each user has its own"
    assert emission.result[0] is not emission.result[1]


def test_a_literal_of_a_tensor_type_is_splatted_or_dense(emit_ops):
    splat = emit_ops([], lambda emit: emit.convert(Operand(constant(3), None), T))
    dense = emit_ops([], lambda emit: emit.convert(Operand(constant(3), None), T, dense=True))
    assert (splat.names, dense.names) == (["arith.constant", "tt.splat"], ["arith.constant"])
    assert splat.result.type == dense.result.type == T


def test_a_constant_that_has_a_value_already_is_not_made_again(emit_ops):
    emission = emit_ops([i32], lambda emit, x: emit.convert(Operand(constant(3), x), i32))
    assert emission.names == [] and emission.result is emission.func.bodies[0].parameters[0]
    other = emit_ops([i32], lambda emit, x: emit.convert(Operand(constant(3), x), f32))
    assert other.names == ["arith.constant"] and other.result.type == f32


@pytest.mark.parametrize(
    ("source", "shape", "names"),
    [
        (i32, (), []),
        (P, (4,), ["tt.splat"]),
        (T, (4, 16), []),
        (TensorType((1, 16), i32), (4, 16), ["tt.broadcast"]),
        (TensorType((16,), i32), (4, 16), ["tt.expand_dims", "tt.broadcast"]),
        (TensorType((16,), i32), (1, 16), ["tt.expand_dims"]),
        (TensorType((16,), i32), (2, 4, 16), ["tt.expand_dims", "tt.expand_dims", "tt.broadcast"]),
    ],
)
def test_a_value_is_spread_to_a_shape(emit_ops, source, shape, names):
    emission = emit_ops([source], lambda emit, x: emit.spread(x, shape))
    assert emission.names == names
    assert emission.result.type == (TensorType(shape, getattr(source, "element", source)) if shape else source)


@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        (i32, i32, []),
        (i32, i64, ["arith.extsi"]),
        (u32, i64, ["arith.extui"]),
        (i1, i32, ["arith.extui"]),
        (i64, i8, ["arith.trunci"]),
        (i32, u32, ["arith.bitcast"]),
        (i32, f32, ["arith.sitofp"]),
        (u8, f64, ["arith.uitofp"]),
        (i32, f8e4m3, ["arith.sitofp", "arith.truncf"]),
        (f32, i8, ["arith.fptosi"]),
        (f64, u32, ["arith.fptoui"]),
        (f8e5m2, i32, ["arith.extf", "arith.fptosi"]),
        (f16, f32, ["arith.extf"]),
        (f64, f16, ["arith.truncf"]),
        (f16, bf16, ["arith.extf", "arith.truncf"]),
        (f8e4m3, f8e5m2, ["arith.extf", "arith.truncf"]),
        (f32, i1, ["arith.constant", "arith.cmpf"]),
        (i32, i1, ["arith.constant", "arith.cmpi"]),
        (f8e4m3, i1, ["arith.extf", "arith.constant", "arith.cmpf"]),
    ],
)
@pytest.mark.parametrize("shape", [(), (4,)])
def test_casts(emit_ops, source, target, names, shape):
    type_ = TensorType(shape, source) if shape else source
    emission = emit_ops([type_], lambda emit, x: emit.cast(x, target))
    assert emission.names == names and emission.result.type == with_element(type_, target)


def test_a_rounding_is_of_the_last_step(emit_ops):
    emission = emit_ops([i32], lambda emit, x: emit.cast(x, f8e4m3, Rounding.ZERO))
    assert emission.func.bodies[0].entry.ops[1].attributes["rounding"] is Rounding.ZERO


def test_truth(emit_ops):
    emission = emit_ops([f32, P, i1], lambda emit, x, p, b: [emit.nonzero(x), emit.nonzero(p), emit.nonzero(b)])
    assert emission.names == ["arith.constant", "arith.cmpf", "tt.ptr_to_int", "arith.constant", "arith.cmpi"]
    assert [value.type for value in emission.result] == [i1] * 3
    of_constants = emit_ops([], lambda emit: [emit.truth(Operand(constant(value), None)) for value in ("", "a", 0, 2)])
    assert [op.attributes["value"] for op in of_constants.func.bodies[0].entry.ops[:-1]] == [False, True, False, True]


NESTED = TupleType((i32, TupleType((constant(3), f32)), constant("x")))


def test_tuples_are_flattened_and_put_together_again(emit_ops):
    assert flatten_types(NESTED) == [i32, f32] and flatten_types(constant(1)) == [] and flatten_types(T) == [T]
    assert packed_type(NESTED) == TupleType((i32, f32))
    assert packed_type(TupleType((T, constant(1)))) == T and packed_type(TupleType((constant(1),))) == void

    def both(emit, a, b):
        values = [a, b]
        return rebuild(NESTED, values), values, a, b

    emission, rest, a, b = emit_ops([i32, f32], both).result
    assert emission == (a, (None, b), None) and rest == []


def test_a_tuple_is_brought_to_its_type_part_by_part(emit_ops):
    target = TupleType((i64, TupleType((f32, f32)), constant("x")))
    emission = emit_ops([i32, f32], lambda emit, a, b: emit.repack(Operand(NESTED, (a, (None, b), None)), target))
    assert emission.names == ["arith.extsi", "arith.constant"]
    assert [value.type for value in emission.result] == [i64, f32, f32]


def test_what_comes_out_of_an_op_is_taken_apart(emit_ops):
    single = TupleType((i32, constant(1)))
    pair = TupleType((i32, f32))

    def build(emit, x, packed):
        return emit.unpack(x, single), emit.unpack(packed, pair), emit.unpack(x, i32), emit.unpack(x, constant(1)), x

    emission = emit_ops([i32, pair], build)
    alone, parts, same, nothing, x = emission.result
    assert alone == (x, None) and same is x and nothing is None
    assert emission.names == ["tuple.load"] * 2 and [part.type for part in parts] == [i32, f32]


def test_operands_of_tuples():
    assert split_operand(Operand(constant((1, "a")), None)) == [
        Operand(constant(1), None),
        Operand(constant("a"), None),
    ]
    parts = split_operand(Operand(TupleType((i32, constant(2))), ("value", None)))
    assert [(part.type, part.value) for part in parts] == [(i32, "value"), (constant(2), None)]
    with pytest.raises(AssertionError):
        split_operand(Operand(i32, "value"))


def test_calls_give_their_result_as_the_mirror_keeps_it(emit_ops):
    emission = emit_ops([i32], lambda emit, x: [emit.call("g", [x], type_) for type_ in (i32, NESTED, constant(None))])
    single, several, nothing = emission.result
    assert single.type == i32 and nothing is None
    assert several[0].type == i32 and several[1][0] is None and several[1][1].type == f32 and several[2] is None
    calls = [op for op in emission.func.bodies[0].entry.ops if op.NAME == "tt.call"]
    assert [op.result.type for op in calls] == [i32, TupleType((i32, f32)), void]
