"""Types in MLIR's spelling."""

from __future__ import annotations

import pytest

from ziggurat.backend.mlir.emitter import leaves, mlir_type, mlir_types, result_list
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    TensorType,
    TupleType,
    VarType,
    bf16,
    f8e4m3,
    f8e5m2,
    f32,
    i1,
    i32,
    pyobject,
    u8,
    u32,
    void,
)  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (i1, "i1"), (i32, "i32"), (u32, "i32"), (u8, "i8"), (f32, "f32"), (bf16, "bf16"), (f8e4m3, "f8E4M3FN"),
        (f8e5m2, "f8E5M2"), (PtrType(f32), "!tt.ptr<f32>"), (TensorType((4, 8), f32), "tensor<4x8xf32>"),
        (TensorType((4,), PtrType(u8)), "tensor<4x!tt.ptr<i8>>"),
        (DescriptorType((8, 16), f32), "!tt.tensordesc<8x16xf32>"),
    ],
)  # fmt: skip
def test_types_of_one_value(type_, text):
    assert mlir_type(type_) == text and mlir_types(type_) == (text,)


def test_a_tuple_is_several_values():
    nested = TupleType((i32, TupleType((f32, PtrType(f32))), u32))
    assert leaves(nested) == (i32, f32, PtrType(f32), u32)
    assert mlir_types(nested) == ("i32", "f32", "!tt.ptr<f32>", "i32") and mlir_types(void) == ()


@pytest.mark.parametrize("type_", [pyobject, VarType(i32), TupleType((i32,)), void])
def test_types_that_mlir_lacks(type_):
    with pytest.raises(TargetError, match="has no form in Triton's MLIR"):
        mlir_type(type_)


def test_result_types_after_an_arrow():
    assert [result_list(types) for types in ((), ("i32",), ("i32", "f32"))] == ["()", "i32", "(i32, f32)"]
