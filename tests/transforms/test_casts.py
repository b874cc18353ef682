"""Numbers of one element type as another."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.kit import cast

NUMBERS = [zg.f8e4m3, zg.f8e5m2, zg.i8, zg.u8, zg.i32, zg.u32, zg.i64, zg.f16, zg.bf16, zg.f32, zg.f64]


@pytest.mark.parametrize("source", NUMBERS, ids=str)
@pytest.mark.parametrize("target", NUMBERS, ids=str)
def test_a_cast_keeps_small_numbers(source, target):
    builder = Builder.root([zg.ptr(target), zg.ptr(source)])
    into, start = builder.parameters
    builder.add(tt.Store(into, cast(builder, builder.add(tt.Load(start)), target)))
    builder.add(tt.Return([]))
    model = tt.Func("k", builder.finish())
    zg.verify(model)
    out = np.zeros(1, target.dtype)
    zg.run(model, 1, out, np.array([7], source.dtype))
    assert out[0] == 7


def test_a_tensor_keeps_its_shape():
    builder = Builder.root([TensorType((4, 8), zg.f32)])
    assert cast(builder, builder.parameters[0], zg.f16).type == TensorType((4, 8), zg.f16)
    assert cast(builder, builder.parameters[0], zg.f32) is builder.parameters[0]


def test_what_is_no_number():
    builder = Builder.root([zg.ptr(zg.f32), zg.i1])
    pointer, truth = builder.parameters
    for value, element in ((pointer, zg.f32), (pointer, zg.i64), (cast(builder, truth, zg.i32), zg.i1)):
        with pytest.raises(zg.BuildError, match="cast: the types must be of numbers"):
            cast(builder, value, element)


@pytest.mark.parametrize("element", [zg.i8, zg.u64, zg.f8e4m3, zg.f32], ids=str)
def test_a_truth_value_is_zero_or_one(element):
    builder = Builder.root([zg.ptr(element), zg.i1])
    into, truth = builder.parameters
    builder.add(tt.Store(into, cast(builder, truth, element)))
    builder.add(tt.Return([]))
    out = np.zeros(1, element.dtype)
    zg.run(tt.Func("k", builder.finish()), 1, out, True)
    assert float(out[0]) == 1.0


@pytest.mark.parametrize(
    ("source", "number", "target", "expected"),
    [
        (zg.f32, 3e9, zg.u32, 3_000_000_000), (zg.f64, 1.5e19, zg.u64, 15_000_000_000_000_000_000),
        (zg.f32, -3.7, zg.i8, -3), (zg.f32, 200.0, zg.u8, 200), (zg.u32, 3_000_000_000, zg.f64, 3e9),
        (zg.i32, -5, zg.f32, -5.0), (zg.u8, 200, zg.i32, 200), (zg.i8, -56, zg.i32, -56), (zg.u8, 200, zg.u64, 200),
        (zg.i8, -1, zg.u16, 65535), (zg.u32, (1 << 32) - 1, zg.i8, -1), (zg.f8e4m3, -3.5, zg.i32, -3),
        (zg.bf16, 3.0, zg.f16, 3.0), (zg.i32, -1, zg.u32, (1 << 32) - 1),
    ],
)  # fmt: skip
def test_a_cast_counts_as_the_types_do(source, number, target, expected):
    builder = Builder.root([zg.ptr(target), zg.ptr(source)])
    into, start = builder.parameters
    builder.add(tt.Store(into, cast(builder, builder.add(tt.Load(start)), target)))
    builder.add(tt.Return([]))
    out = np.zeros(1, target.dtype)
    zg.run(tt.Func("k", builder.finish()), 1, out, np.array([number]).astype(source.dtype))
    assert out[0] == expected
