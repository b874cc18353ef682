"""The GPU dialect: ops refuse operands of wrong types, and name them."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import blocked
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import SharedType, TensorType, Type, f32, i32, i64

BITS = tuple(1 << bit for bit in range(6))
BUFFER = SharedType((64,), f32, BITS)
MBARRIERS = SharedType((1,), i64, ())
PAIR = SharedType((1,), i64, (), 2)


def value(type_: Type) -> Value:
    """A value of a type: a buffer or a constant."""
    return (gpu.LocalAlloc(type_) if isinstance(type_, SharedType) else arith.ConstantOp(0, type_)).result


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
