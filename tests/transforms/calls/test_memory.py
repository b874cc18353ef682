"""Type rules of loads, stores, atomics and tensor descriptors."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    TensorType,
    TupleType,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    u8,
)  # fmt: skip
from ziggurat.transforms.calls.memory import ATOMICS, CACHE, EVICTION, PADDING, SCOPES, SEMANTICS
from ziggurat.transforms.calls.promotion import NONE, constant

R = Types()
P = PtrType(f32)
PT = TensorType((4, 16), P)
MASK = TensorType((16,), i1)


def load(ptr, mask=None, other=None, cache="", eviction="", volatile=False):
    return R.load(ptr, mask, other, cache, eviction, volatile)


def test_a_load_has_the_shape_of_the_pointers():
    assert load(P) == f32 and load(PT) == TensorType((4, 16), f32)
    assert load(PT, MASK) == load(PT, i1) == load(PT, TensorType((4, 1), i1), constant(0)) == TensorType((4, 16), f32)
    for cache in CACHE:
        for eviction in EVICTION:
            assert load(P, cache=cache, eviction=eviction) == f32


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((i64,), KernelTypeError, "zg.load: 'ptr' must be a pointer or a tensor of pointers; got i64"),
        ((constant(0),), KernelTypeError, "zg.load: 'ptr' must be a pointer"),
        ((PT, TensorType((8,), i1)), KernelTypeError, r"shapes of the mask and the pointers do not match: \[8\]"),
        ((P, MASK), KernelTypeError, r"the mask must be a scalar for a single pointer; got the shape \[16\]"),
        ((PT, i32), KernelTypeError, "the mask must be i1"),
        ((PT, P), KernelTypeError, "the mask must be i1"),
        ((PT, None, constant(0)), KernelTypeError, "there is no mask"),
        ((P, None, None, ".xx"), KernelValueError, "cache_modifier must be one of"),
        ((P, None, None, "", "evict_never"), KernelValueError, "eviction_policy must be one of"),
    ],
)
def test_loads_that_are_none(arguments, error, words):
    with pytest.raises(error, match=words):
        load(*arguments)


def test_a_store_gives_nothing_and_takes_numbers():
    tensors = (TensorType((16,), f32), TensorType((4, 1), f32), TensorType((16,), f16))
    for value in (f32, f64, i32, *tensors, constant(1), constant(0.5), constant(True)):
        assert R.store(PT, value, None, "", "") == NONE
    assert R.store(TensorType((4,), PtrType(u8)), constant(255), i1, ".cs", "evict_last") == NONE


@pytest.mark.parametrize(
    ("ptr", "value", "error", "words"),
    [
        (f32, f32, KernelTypeError, "zg.store: 'ptr' must be a pointer"),
        (P, P, KernelTypeError, "the value must be a number"),
        (P, constant("x"), KernelTypeError, "the value must be a number"),
        (P, TensorType((16,), f32), KernelTypeError, "must be a scalar for a single pointer"),
        (PT, TensorType((16, 4), f32), KernelTypeError, "do not match"),
        (TensorType((16,), P), TensorType((4, 16), f32), KernelTypeError, "do not match"),
    ],
)
def test_stores_that_are_none(ptr, value, error, words):
    with pytest.raises(error, match=words):
        R.store(ptr, value, None, "", "")


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_of_every_dtype(name):
    rule = getattr(R, name)
    for dtype in SCALARS.values():
        pointers = TensorType((16,), PtrType(dtype))
        if dtype.name in ATOMICS[name][1]:
            assert rule(pointers, dtype, MASK, None, None) == TensorType((16,), dtype)
            assert rule(PtrType(dtype), constant(1), None, "relaxed", "cta") == dtype
        else:
            with pytest.raises(KernelTypeError, match=f"zg.{name}: 'ptr' must point to .*; got {dtype}"):
                rule(pointers, dtype, MASK, None, None)


def test_what_atomics_take_besides():
    for sem in SEMANTICS:
        for scope in SCOPES:
            assert R.atomic_add(PtrType(i32), i32, None, sem, scope) == i32
    with pytest.raises(KernelValueError, match=r"sem must be one of .*; got 'seq_cst'"):
        R.atomic_add(PtrType(i32), i32, None, "seq_cst", None)
    with pytest.raises(KernelValueError, match=r"scope must be one of .*; got 'warp'"):
        R.atomic_add(PtrType(i32), i32, None, None, "warp")
    with pytest.raises(KernelTypeError, match="the mask must be i1"):
        R.atomic_or(PtrType(i32), i32, i32, None, None)


def test_compare_and_swap_checks_both_values():
    assert R.atomic_cas(PtrType(bf16), bf16, constant(1.0), None, None) == bf16
    with pytest.raises(KernelTypeError, match=r"the value compared with must be a number; got ptr"):
        R.atomic_cas(PtrType(i32), P, i32, None, None)
    with pytest.raises(KernelTypeError, match=r"the value must be a number; got ptr"):
        R.atomic_cas(PtrType(i32), i32, P, None, None)
    with pytest.raises(KernelTypeError, match=r"must point to .*; got i8"):
        R.atomic_cas(PtrType(i8), i8, i8, None, None)


PAIR = TupleType((i32, i32))
STEPS = TupleType((i32, constant(1)))
BLOCK = DescriptorType((8, 16), f32)


def test_a_descriptor_has_its_block():
    assert R.make_tensor_descriptor(P, PAIR, STEPS, (8, 16), "zero") == BLOCK
    for given, padding in PADDING.items():
        made = R.make_tensor_descriptor(P, constant((4, 4)), TupleType((i64, i64)), (8, 16), given)
        assert made == DescriptorType((8, 16), f32, padding.value)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((i64, PAIR, STEPS, (8, 16), "zero"), KernelTypeError, "'base' must be the pointer to the tensor; got i64"),
        ((PT, PAIR, STEPS, (8, 16), "zero"), KernelTypeError, "'base' must be the pointer to the tensor"),
        (
            (P, i32, STEPS, (8, 16), "zero"),
            KernelTypeError,
            "the sizes must be a tuple of 2, one for each axis",
        ),
        ((P, PAIR, constant((1,)), (8, 16), "zero"), KernelTypeError, "the strides must be a tuple of 2"),
        ((P, TupleType((i32, f32)), STEPS, (8, 16), "zero"), KernelTypeError, "the sizes must be integers; got f32"),
        ((P, PAIR, constant((16, 2)), (8, 16), "zero"), KernelValueError, "the last stride must be 1; got 2"),
        ((P, PAIR, STEPS, (8, 2), "zero"), KernelValueError, "a row of the block has 8 bytes; it needs 16"),
        ((P, PAIR, STEPS, (8, 12), "zero"), KernelValueError, "not a power of two"),
        ((PtrType(i32), PAIR, STEPS, (8, 16), "nan"), KernelValueError, "only floats are padded with NaN; got i32"),
        ((P, PAIR, STEPS, (8, 16), "one"), KernelValueError, "padding_option must be one of"),
    ],
)
def test_descriptors_that_are_none(arguments, error, words):
    with pytest.raises(error, match=words):
        R.make_tensor_descriptor(*arguments)


def test_blocks_are_loaded_and_stored():
    block = TensorType((8, 16), f32)
    assert R.load_tensor_descriptor(BLOCK, PAIR) == R.load_tensor_descriptor(BLOCK, constant((0, 0))) == block
    assert R.store_tensor_descriptor(BLOCK, PAIR, block) == NONE
    with pytest.raises(KernelTypeError, match="'desc' must be a tensor descriptor; got ptr<f32>"):
        R.load_tensor_descriptor(P, PAIR)
    with pytest.raises(KernelTypeError, match=r"the offsets must be a tuple of 2, .*; got i32"):
        R.load_tensor_descriptor(BLOCK, i32)
    with pytest.raises(KernelTypeError, match="the offsets must be integers; got tensor<x4, i32>"):
        R.load_tensor_descriptor(BLOCK, TupleType((i32, TensorType((4,), i32))))
    assert R.store_tensor_descriptor(BLOCK, PAIR, TensorType((8, 16), f16)) == NONE
    for value in (f32, TensorType((16, 8), f32), constant(0.0)):
        with pytest.raises(
            KernelTypeError,
            match=r"writes tensor<x8, x16, f32>; got|the operand must be a tensor|must be f32, the type of",
        ):
            R.store_tensor_descriptor(BLOCK, PAIR, value)


DESCRIBED = DescriptorType((16,), f32)


@pytest.mark.parametrize(
    "use",
    [
        lambda: load(DESCRIBED),
        lambda: R.store(DESCRIBED, f32, None, "", ""),
        lambda: R.atomic_add(DESCRIBED, f32, None, None, None),
        lambda: R.add(DESCRIBED, i32),
        lambda: R.mul(i32, DESCRIBED),
    ],
    ids=["load", "store", "atomic", "add", "mul"],
)
def test_a_descriptor_in_the_place_of_a_pointer(use):
    with pytest.raises(KernelTypeError, match=r"got descriptor<x16, f32>") as error:
        use()
    assert "d.load([...])" in error.value.hint
