"""Warp roles in the interpreter: they wait for each other, and an op that is wrong is an error or another result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from role_kernels import doubled, products

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, transform
from ziggurat.transforms.gpu.gpu_passes import PLACE

NAMES = [name for name, _ in PLACE]
FIRST, AT = NAMES.index("specialize") + 1, NAMES.index("lower_channels")


def described(array: Any, *block: int) -> Any:
    return zg.TensorDescriptor(array, block)


def integers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(np.float16)


def lowered(model: Op, last: int = len(PLACE)) -> list[Op]:
    """The models after `specialize`, up to a pass."""
    models = [model]
    for _, step in PLACE[FIRST:last]:
        models.append(step(models[-1], CompileOptions("sm_90a", 4, 3)))
    return models


def result_of_doubled(model: Op, k: int = 320) -> np.ndarray:
    a, b, c = integers(64, k), integers(k, 64), np.zeros((64, 64), np.float16)
    run(model, None, (1,), [described(a, 64, 64), described(b, 64, 64), described(c, 64, 64), k])
    return c


def product(k: int = 320) -> np.ndarray:
    return (2 * integers(64, k).astype(np.float32) @ integers(k, 64).astype(np.float32)).astype(np.float16)


def test_three_roles_and_each_pass_after_them() -> None:
    """TMA fills slots, threads of a second role store to slots of their own, and a third role multiplies."""
    for model in lowered(parse(doubled(4, 4))):
        np.testing.assert_array_equal(result_of_doubled(model), product())


def test_two_consumers_of_one_channel() -> None:
    """A slot is free when both have released it."""
    a, b = integers(128, 448), integers(448, 64)
    for model in lowered(parse(products([4, 4]))):
        c = np.zeros((128, 64), np.float16)
        whole = [described(array, 64, 64) for array in (a, a, b, c, c)]
        run(model, None, (1,), [*whole, 448])
        np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def without(model: Op, kind: type[Op], number: int = 0) -> Op:
    """The model without the op of a class with this number."""
    op = [op for op in model.walk() if isinstance(op, kind)][number]
    return transform(model, lambda _, other, __: DROP if other is op else None)


@pytest.mark.parametrize(
    ("kind", "last", "message"),
    [
        (gpu.ChannelCommit, AT, "roles wait for each other"),
        (gpu.ChannelRelease, AT, "roles wait for each other: gpu.channel_acquire never ends"),
        (gpu.MbarrierArrive, None, "roles wait for each other: gpu.mbarrier_wait never ends"),
        (gpu.MbarrierExpect, None, "roles wait for each other: gpu.mbarrier_wait never ends"),
        (gpu.MbarrierInit, None, "the mbarrier is used before its initialisation"),
    ],
)
def test_what_a_role_waits_for_must_come(kind: type[Op], last: int | None, message: str) -> None:
    model = lowered(parse(doubled(4, 4)), len(PLACE) if last is None else last)[-1]
    with pytest.raises(KernelRuntimeError, match=message):
        result_of_doubled(without(model, kind))


def test_a_slot_that_is_released_too_early_is_overwritten() -> None:
    """The producer fills a slot as early as it may."""

    def early(builder: Any, op: Op, operands: tuple[Any, ...]) -> Any:
        if op is not waits[0]:
            return None
        slot = builder.copy(op, operands)
        builder.add(gpu.ChannelRelease(operands[0]))
        return slot

    model = lowered(parse(doubled(4, 4)), AT)[-1]
    waits = [op for op in model.walk() if isinstance(op, gpu.ChannelWait)]
    assert not np.array_equal(result_of_doubled(transform(model, early)), product())


def test_more_arrivals_than_an_mbarrier_counts() -> None:
    model = lowered(parse(doubled(4, 4)))[-1]
    arrive = next(op for op in model.walk() if isinstance(op, gpu.MbarrierExpect))

    def again(builder: Any, op: Op, operands: tuple[Any, ...]) -> Any:
        if op is arrive:
            builder.copy(op, operands)
        return None

    with pytest.raises(KernelRuntimeError, match="an mbarrier for 1 arrivals a phase has more of them"):
        result_of_doubled(transform(model, again))
