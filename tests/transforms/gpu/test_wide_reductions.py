"""Reductions whose partial results are many: each warp combines those of some columns, and not all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_pass import case, first_fault

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.analysis.queries import layout_of


@zg.kernel
def columns_of(x, sums, largest, places, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    columns = zg.arange(0, COLUMNS)
    at = zg.add(zg.mul(zg.expand(zg.arange(0, ROWS), 1), COLUMNS), zg.expand(columns, 0))
    value = zg.load(zg.add(x, at))
    zg.store(zg.add(sums, columns), zg.sum(value, axis=0))
    top, place = zg.max(value, axis=0, return_indices=True)
    zg.store(zg.add(largest, columns), top)
    zg.store(zg.add(places, columns), place)


@pytest.mark.parametrize(("rows", "columns", "warps"), [(64, 128, 32), (32, 256, 16), (64, 64, 8)])
def test_results_stay_as_they_are(rows: int, columns: int, warps: int) -> None:
    def arguments() -> list[Any]:
        x = np.random.default_rng(0).integers(-99, 100, (rows, columns)).astype(np.float32)
        return [x, np.zeros(columns, np.float32), np.zeros(columns, np.float32), np.zeros(columns, np.int32)]

    passes: list[Snapshot] = []
    launch = case(columns_of, arguments, (rows, columns), num_warps=warps, verify=True)
    assert first_fault(launch, passes) is None
    # The elements of a thread that a reduction combines: at most one for each warp.
    sizes = [
        layout_of(op.values[0].type).num_registers
        for op in passes[-1].model.walk()
        if isinstance(op, tt.Reduce) and isinstance(op.values[0].type, TensorType)
    ]
    assert max(sizes) <= 32
