"""Builder methods of program ids, hints, debugging and inline assembly."""

from __future__ import annotations

from ziggurat.codemodel.types import PtrType, TensorType, TupleType, f32, i1, i32, u8
from ziggurat.transforms.calls.emit import Operand
from ziggurat.transforms.calls.promotion import NONE, constant

T = TensorType((16,), i32)


def first(built):
    return built.func.bodies[0].entry.ops[0]


def test_axes_of_the_grid(emitted, calls):
    built = emitted([], lambda emit: [calls(emit).program_id(i32, 1), calls(emit).num_programs(i32, 2)])
    assert built.names == ["tt.get_program_id", "tt.get_num_programs"]
    assert [value.op.attributes["axis"] for value in built.result] == [1, 2]


def test_a_hint_is_an_op_that_gives_its_operand(emitted, calls):
    for name in ("multiple_of", "max_contiguous", "max_constancy"):
        for type_, values, kept in ((T, 8, (8,)), (TensorType((4, 4), PtrType(f32)), (2, 4), (2, 4))):
            built = emitted([type_], lambda emit, x: getattr(calls(emit), name)(type_, Operand(type_, x), values))  # noqa: B023
            assert built.result.type == type_ and kept in first(built).attributes.values()


def test_an_assumption_that_is_known_is_no_op(emitted, calls):
    known = emitted([], lambda emit: calls(emit).assume(NONE, Operand(constant(True), None)))
    assert known.names == [] and known.result is None
    built = emitted([i32], lambda emit, x: calls(emit).assume(NONE, Operand(i32, x)))
    assert built.names == ["arith.constant", "arith.cmpi", "tt.assume"]


def test_printing_makes_constants_of_literals(emitted, calls):
    built = emitted([T], lambda emit, x: calls(emit).device_print(
        NONE, "x =", [Operand(T, x), Operand(constant(1.5), None)], True))  # fmt: skip
    assert built.names == ["arith.constant", "tt.print"]
    op = built.func.bodies[0].entry.ops[1]
    assert [value.type for value in op.operands] == [T, f32]
    assert op.attributes["prefix"] == "x =" and op.attributes["hex"] is True


def test_assertions_and_barriers(emitted, calls):
    mask = TensorType((16,), i1)
    built = emitted([mask, T], lambda emit, m, x: [
        calls(emit).device_assert(NONE, Operand(mask, m), "in range"),
        calls(emit).device_assert(NONE, Operand(T, x)),
        calls(emit).debug_barrier(NONE),
    ])  # fmt: skip
    assert built.names == ["tt.assert", "arith.constant", "arith.cmpi", "tt.assert", "tt.barrier"]
    assert first(built).attributes["message"] == "in range"


def test_assembly_takes_operands_of_one_shape(emitted, calls):
    wide = TensorType((16,), f32)
    args = TupleType((T, i32, constant(2)))

    def build(emit, x, n):
        builders = calls(emit)
        one = builders.inline_asm_elementwise(wide, "a", "=r,r", Operand(T, x), f32, True, 2)
        two = builders.inline_asm_elementwise(
            TupleType((wide, TensorType((16,), u8))), "b", "=r,=r,r,r,r", Operand(args, (x, n, None)), None, False, 1
        )
        return one, two

    built = emitted([T, i32], build)
    one, two = built.result
    assert one.type == wide and [part.type for part in two] == [wide, TensorType((16,), u8)]
    several = next(op for op in built.func.bodies[0].entry.ops if op.attributes.get("asm") == "b")
    assert [value.type for value in several.operands] == [T, T, T]
    assert one.op.attributes["pack"] == 2 and one.op.attributes["is_pure"] and not several.attributes["is_pure"]
