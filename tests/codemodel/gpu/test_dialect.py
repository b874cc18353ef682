"""The GPU dialect: ops refuse operands of wrong types, and name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import blocked
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import DescriptorType, PtrType, SharedType, TensorType, Type, f16, f32, i32, i64

BITS = tuple(1 << bit for bit in range(6))
BUFFER = SharedType((64,), f32, BITS)
MBARRIERS = SharedType((1,), i64, ())
PAIR = SharedType((1,), i64, (), 2)


def value(type_: Type) -> Value:
    """A value of a type: a buffer, a pointer or a constant."""
    if isinstance(type_, SharedType):
        return gpu.LocalAlloc(type_).result
    return (tt.Poison(type_) if isinstance(type_, PtrType) else arith.ConstantOp(0, type_)).result


WRONG: dict[str, tuple[type[Op], tuple[Type, ...], str]] = {
    "index": (gpu.LocalView, (BUFFER, i64), "operand 'index' of gpu.local_view must be i32; got i64"),
    "parity": (gpu.MbarrierWait, (MBARRIERS, i64), "operand 'parity' of gpu.mbarrier_wait must be i32; got i64"),
    "predicate": (
        gpu.MbarrierArrive,
        (MBARRIERS, i32),
        "'predicate' of gpu.mbarrier_arrive must be i1; got i32",
    ),
    "mbarriers": (gpu.MbarrierInval, (BUFFER,), "the mbarriers of gpu.mbarrier_inval must be i64; got shared<x64, f32"),
    "rings": (
        gpu.Channel,
        (MBARRIERS, PAIR),
        "the rings of gpu.channel must have one number of slots; got [1, 2]",
    ),
    "channel": (gpu.ChannelWait, (i32,), "operand 'channel' of gpu.channel_wait must be channel; got i32"),
    "closed": (gpu.ChannelClose, (i32,), "gpu.channel_close closes channels"),
    "no buffer": (
        gpu.MbarrierInval,
        (i64,),
        "gpu.mbarrier_inval: the operand must be a buffer in shared memory; got i64",
    ),
    "no layout": (
        gpu.LocalStore,
        (BUFFER, TensorType((64,), i32)),
        "gpu.local_store: the operand must be a tensor with a layout",
    ),
    "b": (
        gpu.Mma,
        (BUFFER, i32, TensorType((64,), i32, blocked((64,), (0,), 1, 1))),
        "gpu.mma: the operand must be a buffer in shared memory; got i32",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_operand_of_a_wrong_type_is_refused(case: str) -> None:
    op, types, message = WRONG[case]
    with pytest.raises(BuildError) as error:
        values = [*map(value, types)]
        op(values) if op in (gpu.Channel, gpu.ChannelClose) else op(*values)
    assert message in str(error.value)


MAP = SharedType((16,), i64, (1, 2, 4, 8))
BLOCK = DescriptorType((16, 64), f16)
POINTER = PtrType(f16)


def tensor_map(
    *, buffer: Type = MAP, scratch: Type = POINTER, base: Type = POINTER, shape: Sequence[Type] = (i32, i32),
    strides: Sequence[Type] = (i64, i64), type_: Type = BLOCK, index: int = 0, warp: int = 0,
) -> Op:  # fmt: skip
    numbers = [[*map(value, types)] for types in (shape, strides)]
    return gpu.MakeTensorMap(
        value(buffer), value(scratch), value(base), *numbers, type_, index=index, warp=warp
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"type_": POINTER}, "gpu.make_tensor_map of ptr<f16> gives ptr<f16>"),
        ({"base": PtrType(f32)}, "gpu.make_tensor_map of ptr<f32> gives descriptor<x16, x64, f16>"),
        ({"shape": (i32,)}, "gpu.make_tensor_map: its groups of operands differ in length"),
        ({"shape": (i32,), "strides": (i64,)}, "takes a size and a stride for each axis"),
        ({"shape": (i32, i64)}, "operand 'shape' of gpu.make_tensor_map must be i32; got i64"),
        ({"strides": (i32, i64)}, "operand 'strides' of gpu.make_tensor_map must be i64; got i32"),
        ({"buffer": BUFFER}, "the buffer of gpu.make_tensor_map must have 128 bytes; got shared<x64, f32"),
        ({"scratch": i64}, "the scratch of gpu.make_tensor_map must be a pointer"),
        ({"index": -1}, "the index of gpu.make_tensor_map must not be negative"),
        ({"warp": -1}, "the warp of gpu.make_tensor_map must not be negative"),
    ],
)
def test_tensor_maps_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    assert tensor_map(index=1, warp=1).result.type == tensor_map().result.type == BLOCK
    with pytest.raises(BuildError, match=re.escape(message)):
        tensor_map(**arguments)
