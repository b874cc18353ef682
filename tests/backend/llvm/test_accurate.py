"""The remainder of floats, run on this machine, against C's fmod."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ziggurat.backend.llvm.accurate import ROUTINES
from ziggurat.codemodel.types import SCALARS

# Overflows and NaN are compared as well.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]


@pytest.mark.parametrize("kind, dtype, bits", [("float", np.float32, np.uint32), ("double", np.float64, np.uint64)])
def test_the_remainder_is_exact(kind: str, dtype, bits, on_host) -> None:
    random = np.random.default_rng(3)
    anything = random.integers(0, 1 << 64, (2, 60_000), dtype=np.uint64).astype(bits).view(dtype)
    small = random.integers(-40, 40, (2, 20_000)).astype(dtype)
    subnormal = (random.integers(0, 1 << 64, (2, 20_000), dtype=np.uint64).astype(bits) >> bits(10)).view(dtype)
    special = np.array([*SPECIAL, 3, 0.1, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal], dtype)
    x, y = np.concatenate([anything, small, subnormal, np.stack(np.meshgrid(special, special)).reshape(2, -1)], axis=1)
    with np.errstate(all="ignore"):
        true = np.fmod(x, y)
    actual = on_host(ROUTINES[kind]["fmod"]())(x, y)
    np.testing.assert_array_equal(actual, true)
    is_defined = ~np.isnan(true)
    assert (np.signbit(actual) == np.signbit(true))[is_defined].all()


@pytest.mark.parametrize("element", ["f8e4m3", "f8e5m2", "f16"])
def test_small_floats_have_exact_remainders(element: str, emission_on_host, same) -> None:
    dtype = np.dtype(SCALARS[element].dtype)
    codes = np.arange(256, dtype=np.uint8)
    x, y = (np.ascontiguousarray(part).ravel() for part in np.meshgrid(codes, codes))
    if dtype.itemsize == 2:
        x, y = x.astype(np.uint16) << np.uint16(8) | np.uint16(0x5A), y.astype(np.uint16) << np.uint16(8)
    with np.errstate(all="ignore"):
        true = np.fmod(x.view(dtype).astype(np.float64), y.view(dtype).astype(np.float64)).astype(dtype)
    arguments = (x, y) if dtype.itemsize == 1 else (x.view(dtype), y.view(dtype))
    same(emission_on_host("arith.remf", [element, element], element)(*arguments).view(dtype), true)


def test_all_remainders_of_a_kernel_call_one_routine(emission) -> None:
    f32 = "%a : f32 = arith.remf %x %y; %b : f32 = arith.remf %a %y; "
    emitter, code = emission(f32 + "%c : f64 = arith.remf %z %z;", "%x : f32, %y : f32, %z : f64")
    assert list(emitter.definitions) == ["zg.fmod.f32", "zg.fmod.f64"] and len(code) == 3 == len(emitter.lines)
    assert "noinline" in emitter.definitions["zg.fmod.f32"]
