"""The parts of block pointers, and the ops of their loads and stores."""

from __future__ import annotations

from ziggurat.codemodel.types import PtrType, TensorType, f32, i32, i64
from ziggurat.transforms.calls.emit import Operand, flatten_types
from ziggurat.transforms.calls.lattice import BlockPtrType
from ziggurat.transforms.calls.promotion import NONE, constant

BLOCK = BlockPtrType((4, 16), f32)
PARTS = flatten_types(BLOCK)


def test_the_parts_are_a_pointer_and_three_numbers_for_each_axis(emit_ops, calls):
    assert PARTS == [PtrType(f32), *[i64] * 4, i32, i32]

    def build(emit, base, n):
        two = Operand(constant((1, 2)), None)
        return calls(emit).make_block_ptr(
            BLOCK, Operand(base.type, base), two, two, Operand(constant((0, 5)), None), (4, 16), (1, 0)
        )

    emission = emit_ops([PtrType(f32), i32], build)
    assert emission.names == ["arith.constant"] * 6 and [part.type for part in emission.result] == PARTS
    values = [op.attributes["value"] for op in emission.func.bodies[0].entry.ops[:6]]
    assert values == [1, 2, 1, 2, 0, 5], "sizes, strides, offsets"


def test_only_the_offsets_advance(emit_ops, calls):
    def build(emit, *parts):
        return calls(emit).advance(BLOCK, Operand(BLOCK, parts), Operand(constant((3, 4)), None)), parts

    emission = emit_ops(PARTS, build)
    after, before = emission.result
    assert emission.names == ["arith.constant", "arith.constant", "arith.addi", "arith.addi"]
    assert after[:5] == before[:5] and [value.op.operands[0] for value in after[5:]] == list(before[5:])


def test_a_load_without_checks_has_no_mask(emit_ops, calls):
    emission = emit_ops(PARTS, lambda emit, *parts: calls(emit).load(
        TensorType((4, 16), f32), Operand(BLOCK, parts), None, None, "", "", False))  # fmt: skip
    assert "arith.cmpi" not in emission.names and len(emission.result.op.operands) == 1


def test_each_checked_axis_is_compared_on_its_own(emit_ops, calls):
    def build(emit, *parts):
        calls(emit).store(NONE, Operand(BLOCK, parts), Operand(constant(0), None), None, "", "", (1,))

    emission = emit_ops(PARTS, build)
    compared = [op for op in emission.func.bodies[0].entry.ops if op.NAME == "arith.cmpi"]
    assert [op.operands[0].type.shape for op in compared] == [(1, 16)] * 2
    assert emission.names[-1] == "tt.store"
