"""Half precision compiled for this machine, and for one of its kind that has no instructions for it."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from host_jit import compiled, each

# The baseline of x86-64 has no half precision at all. That of AArch64 converts; nothing is missing there.
TARGETS: dict[str, dict[str, Any]] = {"this machine": {}}
if platform.machine() == "x86_64":
    TARGETS["the baseline"] = {"cpu": "x86-64", "features": "-avx512fp16,-f16c"}

KINDS = {"half": np.float16, "float": np.float32, "double": np.float64, "i64": np.int64, "i32": np.int32}


def converted(instruction: str, source: str, target: str, numbers: np.ndarray[Any, Any], **machine: Any) -> Any:
    text = f"define {target} @convert({source} %x) {{ %y = {instruction} {source} %x to {target} ret {target} %y }}\n"
    function = compiled(text + each("convert", [source], target), "each", 2, **machine)
    out = np.empty(numbers.shape, KINDS[target])
    function(numbers.ctypes.data, out.ctypes.data, out.size)
    return out


@pytest.mark.parametrize("machine", TARGETS.values(), ids=TARGETS.keys())
def test_every_half_is_widened_and_narrowed(machine: dict[str, Any]):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for wide in ("float", "double"):
        actual = converted("fpext", "half", wide, halves, **machine)
        np.testing.assert_array_equal(actual, halves.astype(KINDS[wide]))
        np.testing.assert_array_equal(converted("fptrunc", wide, "half", actual, **machine), halves)


@pytest.mark.parametrize("machine", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("wide", ["float", "double"])
def test_narrowing_rounds_to_nearest_once(machine: dict[str, Any], wide: str):
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(KINDS[wide])
    middle = (halves[1:] + halves[:-1]) / 2
    numbers = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), [65520.0, 1e30]])
    numbers = np.concatenate([numbers, -numbers]).astype(KINDS[wide])
    with np.errstate(all="ignore"):
        expected = numbers.astype(np.float16)
    np.testing.assert_array_equal(converted("fptrunc", wide, "half", numbers, **machine), expected)


@pytest.mark.parametrize("machine", TARGETS.values(), ids=TARGETS.keys())
def test_integers_as_halves(machine: dict[str, Any]):
    numbers = np.array([0, 1, -1, 2047, 2049, 2051, 65519, 65520, -70000], np.int64)
    with np.errstate(all="ignore"):
        expected = numbers.astype(np.float16)
    np.testing.assert_array_equal(converted("sitofp", "i64", "half", numbers, **machine), expected)
