"""Conversions and small floats as emitted for a target without instructions for them, run on this machine."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.scalars import converted, float_to_int, int_to_float
from ziggurat.codemodel.types import SCALARS, f16, f64

# Overflows and NaN are compared as well.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("target", ["f8e4m3", "f8e5m2", "f16"])
def test_f64_is_rounded_once(target: str, emission_on_host, numbers, same) -> None:
    x = numbers().astype(np.float64) * (1 + 2.0**-40)
    with np.errstate(all="ignore"):
        true = converted(x, f64, SCALARS[target])
    same(emission_on_host("arith.truncf", ["f64"], target)(x).view(true.dtype), true)


@pytest.mark.parametrize("source", ["f8e4m3", "f8e5m2", "f16"])
@pytest.mark.parametrize("target", ["f16", "f32", "f64"])
def test_widening(source: str, target: str, emission_on_host, same) -> None:
    if source == target:
        return
    dtype = SCALARS[source].dtype
    x = np.arange(1 << SCALARS[source].bits).astype(f"u{dtype.itemsize}").view(dtype)
    actual = emission_on_host("arith.extf", [source], target)(x.view(np.uint8) if dtype.itemsize == 1 else x)
    same(actual, x.astype(SCALARS[target].dtype))


@pytest.mark.parametrize("source", ["i8", "u8", "i32", "u32", "i64", "u64", "i1"])
@pytest.mark.parametrize("target", ["f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"])
def test_integers_to_floats(source: str, target: str, emission_on_host, same) -> None:
    scalar = SCALARS[source]
    random = np.random.default_rng(7)
    dtype = scalar.dtype
    low, high = scalar.limits
    # The numbers midway between two of bf16 are those to which rounding to f32 or f64 first would lead.
    midway = ((1 << 24) + (1 << 16), (1 << 53) + (1 << 45), -(1 << 24) - (1 << 16), -(1 << 53) - (1 << 45))
    near = [
        n + d
        for n in (*midway, 0, 1 << 24, 1 << 53, 65504, 448, -(1 << 24), -(1 << 53), low, high)
        for d in range(-3, 4)
    ]
    x = np.array([n for n in near if low <= n <= high]).astype(dtype)
    spread = random.integers(0, 1 << 64, 5000, dtype=np.uint64) >> random.integers(0, 64, 5000).astype(np.uint64)
    x = np.concatenate([x, spread.astype(f"u{dtype.itemsize}").view(dtype) if source != "i1" else spread > 1])
    name = "arith.sitofp" if scalar.signed else "arith.uitofp"
    with np.errstate(all="ignore"):
        true = int_to_float(x.astype(np.int8) if source == "i1" else x, SCALARS[target])
    actual = emission_on_host(name, [source], target)(x if source == "i1" else x.view(f"u{dtype.itemsize}"))
    same(actual.view(true.dtype), true)


@pytest.mark.parametrize("source", ["f8e4m3", "f8e5m2", "f16", "f32", "f64"])
@pytest.mark.parametrize("target", ["i1", "i8", "u8", "i16", "i64", "u64"])
def test_floats_to_integers_saturate(source: str, target: str, emission_on_host, numbers) -> None:
    scalar = SCALARS[target]
    with np.errstate(all="ignore"):
        x = np.concatenate(
            [numbers(5000), [0.5, -0.5, 1.5, 127.9, -128.9, 255.9, 256, np.nan, np.inf, -np.inf, 2.0**63]]
        )
        x = x.astype(SCALARS[source].dtype)
        true = float_to_int(x, scalar)
    name = "arith.fptosi" if scalar.signed else "arith.fptoui"
    actual = emission_on_host(name, [source], target)(x.view(np.uint8) if x.itemsize == 1 else x)
    np.testing.assert_array_equal(actual.view(true.dtype), true)


def test_f16_is_not_a_detour(emission_on_host) -> None:
    """An f8e4m3 has its own number as an f32, also where an f16 would be subnormal."""
    actual = emission_on_host("arith.extf", ["f8e4m3"], "f32")(np.array([1, 0x81], np.uint8))
    assert actual.tolist() == [2.0**-9, -(2.0**-9)]
    assert f16.bits == 16


@zg.kernel
def narrowing(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out_ptr, at), zg.cast(zg.load(zg.add(x_ptr, at)), out_ptr.dtype.element_ty))


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_floats_are_narrowed_in_pairs(element: str, target: str, numbers, same) -> None:
    """The instruction that gives two packed numbers is four times as fast as two of those that give one."""
    types = [zg.divisible(zg.ptr(zg.f32)), zg.divisible(zg.ptr(getattr(zg, element)))]
    compiled = narrowing.compile(*types, 1024, target=target, num_warps=4)
    assert compiled.ptx.count(f"cvt.rn.{element}x2.f32") == 4 and f"cvt.rn.{element}.f32" not in compiled.ptx
    x = numbers(1024)[:1024]
    out = np.zeros(1024, np.dtype(SCALARS[element].dtype))
    memory = [x.view(np.uint8), out.view(np.uint8)]
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=memory)
    assert same(out, x.astype(out.dtype)) is None
    alone = narrowing.compile(*types, 128, target=target, num_warps=4)
    assert alone.ptx.count(f"cvt.rn.{element}.f32") == 1
