"""Arguments of the kit that are not what they must be are errors of the caller, in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ziggurat as zg
from ziggurat.codemodel.op import Op


@zg.kernel
def copy(x_ptr, y_ptr, n):
    zg.store(y_ptr, zg.mul(zg.load(x_ptr), n))


MODEL = copy.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.f32)

MISUSES: dict[str, Callable[[Op], object]] = {
    "specialize: 'values' must map parameters to numbers; got 5": lambda m: zg.kit.specialize(m, 5),
    "unspecialize: 'chosen' must be a function of an arith.constant; got 3": lambda m: zg.kit.unspecialize(m, 3),
    "joined: 'same' must map parameters of the second kernel; got 1": lambda m: zg.kit.joined(m, m, 1),
    "fuse: 'through' must be the numbers of two parameters, such as (1, 0); got 1": lambda m: zg.kit.fuse(m, m, 1),
    "fuse: 'same' must map parameters of the consumer; got 2": lambda m: zg.kit.fuse(m, m, (1, 0), 2),
    "ssa takes a model, an Op; got 3": lambda m: zg.kit.ssa(3),
}


@pytest.mark.parametrize("message", MISUSES)
def test_wrong_arguments(message: str) -> None:
    with pytest.raises(zg.ZigguratError) as caught:
        MISUSES[message](MODEL)
    assert message in str(caught.value)
