"""Builder methods of loads, stores, atomics and descriptors."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.types import DescriptorType, PtrType, TensorType, TupleType, f32, i1, i32, i64, u32
from ziggurat.transforms.calls.emit import Operand
from ziggurat.transforms.calls.promotion import NONE, constant

PT = TensorType((4, 16), PtrType(f32))
FT = TensorType((4, 16), f32)


def last(built):
    return built.func.bodies[0].entry.ops[-2]


def test_a_load(emitted, calls):
    def build(emit, p, m):
        mask = Operand(m.type, m)
        return calls(emit).load(FT, Operand(PT, p), mask, Operand(constant(0), None), ".cg", "evict_first", True)

    built = emitted([PT, TensorType((16,), i1)], build)
    assert built.names == ["tt.expand_dims", "tt.broadcast", "arith.constant", "tt.load"]
    assert built.result.type == FT
    attributes = last(built).attributes
    assert attributes["cache"] is tt.CacheModifier.CG and attributes["volatile"] is True
    assert attributes["eviction"] is tt.EvictionPolicy("evict_first")


def test_a_plain_load_is_one_op(emitted, calls):
    built = emitted([PtrType(i64)], lambda emit, p: calls(emit).load(
        i64, Operand(p.type, p), None, None, "", "", False))  # fmt: skip
    assert built.names == ["tt.load"] and len(last(built).operands) == 1


def test_a_store_brings_the_value_to_the_pointee_and_the_shape(emitted, calls):
    built = emitted([PT], lambda emit, p: calls(emit).store(
        NONE, Operand(PT, p), Operand(constant(1), None), Operand(constant(True), None), "", ""))  # fmt: skip
    assert built.names == ["arith.constant", "arith.constant", "tt.store"]
    pointers, value, mask = last(built).operands
    assert (pointers.type, value.type, mask.type) == (PT, FT, TensorType((4, 16), i1))


@pytest.mark.parametrize(
    ("name", "element", "kind"),
    [
        ("atomic_add", i32, "ADD"),
        ("atomic_add", f32, "FADD"),
        ("atomic_max", i32, "MAX"),
        ("atomic_max", u32, "UMAX"),
        ("atomic_max", f32, "FMAX"),
        ("atomic_min", i64, "MIN"),
        ("atomic_min", u32, "UMIN"),
        ("atomic_min", f32, "FMIN"),
        ("atomic_and", i32, "AND"),
        ("atomic_or", i32, "OR"),
        ("atomic_xor", u32, "XOR"),
        ("atomic_xchg", f32, "XCHG"),
    ],
)
def test_kinds_of_atomics(emitted, calls, name, element, kind):
    def build(emit, p, x):
        method = getattr(calls(emit), name)
        return method(element, Operand(p.type, p), Operand(x.type, x), None, "relaxed", None)

    built = emitted([PtrType(element), element], build)
    attributes = last(built).attributes
    assert built.names == ["tt.atomic_rmw"] and built.result.type == element
    assert attributes["kind"] is tt.AtomicKind[kind]
    assert (attributes["sem"], attributes["scope"]) == (tt.MemSemantic.RELAXED, tt.MemScope.GPU)


def test_compare_and_swap(emitted, calls):
    built = emitted([PtrType(i32)], lambda emit, p: calls(emit).atomic_cas(
        i32, Operand(p.type, p), Operand(constant(0), None), Operand(constant(1), None), None, "cta"))  # fmt: skip
    assert built.names == ["arith.constant", "arith.constant", "tt.atomic_cas"]
    values = [op.attributes["value"] for op in built.func.bodies[0].entry.ops[:2]]
    assert values == [0, 1], "what is compared with comes first"
    assert last(built).attributes["scope"] is tt.MemScope.CTA


def test_descriptors(emitted, calls):
    block = DescriptorType((8, 16), f32, "nan")
    pair = TupleType((i32, i64))
    tile = TensorType((8, 16), f32)

    def build(emit, base, m, n):
        builders = calls(emit)
        shape = Operand(pair, (m, n))
        strides = Operand(TupleType((i64, constant(1))), (n, None))
        made = builders.make_tensor_descriptor(block, Operand(base.type, base), shape, strides, (8, 16), "nan")
        at = Operand(constant((0, 16)), None)
        loaded = builders.load_tensor_descriptor(tile, Operand(block, made), at)
        builders.store_tensor_descriptor(NONE, Operand(block, made), at, Operand(tile, loaded))
        return made, loaded

    built = emitted([PtrType(f32), i32, i64], build)
    assert [value.type for value in built.result] == [block, tile]
    made = built.result[0].op
    assert [value.type for value in made.operands[1:]] == [i32, i32, i64, i64], "sizes in i32, strides in i64"
    assert made.attributes["padding"] is tt.Padding.NAN
    assert built.names[-1] == "tt.descriptor_store" and "tt.descriptor_load" in built.names
