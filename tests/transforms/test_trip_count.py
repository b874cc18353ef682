"""The number of iterations of a loop, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.reference.run import run
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.types import PtrType, ScalarType, i32, i64, u32, u64
from ziggurat.transforms.trip_count import trip_count


def model(type_: ScalarType, step: int | None) -> tt.Func:
    """A kernel that stores the number for start and stop, and for the step if it is not known."""
    builder = Builder.root([PtrType(type_), *[type_] * (3 if step is None else 2)])
    out, start, stop, *given = builder.parameters
    by = given[0] if step is None else builder.add(arith.ConstantOp(step, type_))
    builder.add(tt.Store(out, trip_count(builder.add, start, stop, by)))
    builder.add(tt.Return([]))
    return tt.Func("count", builder.finish())


@pytest.mark.parametrize(("type_", "selects"), [(i32, 4), (u32, 1)])
def test_an_unsigned_step_is_not_tested_for_its_sign(type_: ScalarType, selects: int):
    assert sum(isinstance(op, arith.Select) for op in model(type_, None).walk()) == selects


@pytest.mark.parametrize("type_", [i32, i64, u32, u64])
@pytest.mark.parametrize("known", [False, True])
def test_counts_wherever_they_fit_the_type(type_: ScalarType, known: bool):
    low, high = type_.limits
    ends = [end for end in (low, low + 1, -7, 0, 5, high // 2 + 3, high - 1, high) if low <= end]
    steps = [step for step in (1, 3, high // 2 + 1, high, -1, -5, low // 2, low) if low <= step <= high and step]
    out = np.zeros(1, type_.dtype)
    checked = 0
    for step in steps:
        made = model(type_, step if known else None)
        for start in ends:
            for stop in ends:
                expected = max(0, -((start - stop) // step))
                if expected <= high:
                    run(made, None, (1,), [out, start, stop, *([] if known else [step])])
                    assert out[0] == expected, (start, stop, step)
                    checked += 1
    assert checked > 100
