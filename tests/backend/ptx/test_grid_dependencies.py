"""Programmatic dependent launches, and the limit of registers, in PTX."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ziggurat as zg

TYPES: tuple[Any, ...] = (*[zg.divisible(zg.ptr(zg.f32))] * 2, zg.i32, 128)


@zg.kernel
def after(x_ptr, y_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    old = zg.load(zg.add(x_ptr, at))
    zg.gdc_wait()
    new = zg.load(zg.add(x_ptr, at))
    zg.gdc_launch_dependents()
    zg.store(zg.add(y_ptr, at), zg.add(old, new))


@zg.kernel
def in_a_loop(x_ptr, y_ptr, n, BLOCK: zg.constexpr):
    """A wait that a pipelined load must not pass."""
    at = zg.arange(0, BLOCK)
    total = zg.zeros((BLOCK,), zg.f32)
    for _ in range(0, n):
        zg.gdc_wait()
        total = zg.add(total, zg.load(zg.add(x_ptr, at)))
    zg.store(zg.add(y_ptr, at), total)


def order(ptx: str) -> list[str]:
    return re.findall(r"griddepcontrol\.\w+|ld\.global|st\.global|cp\.async", ptx)


def test_accesses_stay_where_they_are():
    actual = order(after.compile(*TYPES, target="sm_90a").ptx)
    wait, launch = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
    assert actual == ["ld.global", wait, "ld.global", launch, "st.global"]
    assert order(in_a_loop.compile(*TYPES, target="sm_90a").ptx) == [wait, "ld.global", "st.global"]


def test_older_targets_have_nothing_to_wait_for():
    assert order(after.compile(*TYPES, target="sm_89").ptx) == ["ld.global", "st.global"], "the loads are one"


def test_results_and_assembly(ptxas):
    compiled = after.compile(*TYPES, target="sm_90a", launch_pdl=True, launch_cooperative_grid=True)
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    compiled.simulate[(2,)](x, y, 0)
    assert (y == 2 * x).all()
    after[(2,)](x, y, 0, 128, launch_pdl=True, launch_cooperative_grid=True, num_ctas=1, maxnreg=32)
    assert (y == 2 * x).all()
    ptxas(compiled.ptx, "sm_90a")


@pytest.mark.parametrize("warps", [4, 16])
def test_a_limit_of_registers(warps, ptxas):
    binary = after.compile(*TYPES, target="sm_90a", maxnreg=40, num_warps=warps)
    assert ".maxnreg 40" in binary.ptx and ".minnctapersm" not in binary.ptx
    ptxas(binary.ptx, "sm_90a")
    assert ".maxnreg" not in after.compile(*TYPES, target="sm_90a").ptx
