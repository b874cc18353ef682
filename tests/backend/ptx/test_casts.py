"""Conversions and small floats as emitted for a target without instructions for them, run on this machine."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.simulate import simulate
from ziggurat.backend.ptx.small_floats import _narrow, _to_odd, _widen_e4m3
from ziggurat.backend.reference.arithmetic import INTEGERS, float_binary
from ziggurat.backend.reference.rounding import converted, float_to_int, int_to_float, to_odd_f32
from ziggurat.backend.reference.values import DTYPES
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.types import SCALARS, f8e4m3, f8e5m2, f16, f32, f64

# What overflows or is NaN is compared, too.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FLOATS = {"f8e4m3": np.uint8, "f8e5m2": np.uint8, "f16": np.float16, "f32": np.float32, "f64": np.float64}


def numbers(count: int = 40_000):
    """f32 of all sizes, more of them where 8-bit floats are, and ties."""
    random = np.random.default_rng(5)
    codes = np.arange(256, dtype=np.uint8)
    small = np.concatenate([codes.view(DTYPES[scalar]).astype(np.float32) for scalar in (f8e4m3, f8e5m2)])
    with np.errstate(all="ignore"):
        between = np.concatenate([(small[1:] + small[:-1]) / 2, np.nextafter(small, np.float32(0))])
    bits = random.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    scaled = random.standard_normal(count).astype(np.float32) * np.exp2(random.integers(-20, 18, count))
    return np.concatenate([bits, scaled.astype(np.float32), small, between]).astype(np.float32)


def same(found, true) -> None:
    """Equal to the bit, but that one NaN is as good as another."""
    nan = np.isnan(true.astype(np.float32))
    assert (np.isnan(found.astype(np.float32)) == nan).all()
    kind = f"u{true.dtype.itemsize}"
    wrong = (found.view(kind) != true.view(kind)) & ~nan
    assert not wrong.any(), np.flatnonzero(wrong)[:5]


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("target", [f8e4m3, f8e5m2], ids=str)
def test_narrowing_to_8_bits(target, rounding: Rounding, on_host) -> None:
    x = numbers()
    found = on_host(_narrow("zg.narrow", target, rounding))(x).view(DTYPES[target])
    with np.errstate(all="ignore"):
        same(found, converted(x, f32, target, toward_zero=rounding is Rounding.ZERO))


def test_widening_from_8_bits(on_host) -> None:
    codes = np.arange(256, dtype=np.uint8)
    same(on_host(_widen_e4m3())(codes), codes.view(ml_dtypes.float8_e4m3fn).astype(np.float16))


def test_rounding_to_odd(on_host) -> None:
    random = np.random.default_rng(6)
    bits = random.integers(0, 1 << 64, 50_000, dtype=np.uint64).view(np.float64)
    x = np.concatenate([bits, random.standard_normal(50_000), numbers(1000).astype(np.float64), [np.inf, -np.inf]])
    with np.errstate(all="ignore"):
        same(on_host(_to_odd())(x), to_odd_f32(x))


@pytest.mark.parametrize("target", ["f8e4m3", "f8e5m2", "f16"])
def test_f64_is_rounded_once(target: str, emission_on_host) -> None:
    x = numbers().astype(np.float64) * (1 + 2.0**-40)
    with np.errstate(all="ignore"):
        true = converted(x, f64, SCALARS[target])
    same(emission_on_host("arith.truncf", ["f64"], target)(x).view(true.dtype), true)


@pytest.mark.parametrize("source", ["f8e4m3", "f8e5m2", "f16"])
@pytest.mark.parametrize("target", ["f16", "f32", "f64"])
def test_widening(source: str, target: str, emission_on_host) -> None:
    if source == target:
        return
    dtype = DTYPES[SCALARS[source]]
    x = np.arange(1 << SCALARS[source].bits).astype(f"u{dtype.itemsize}").view(dtype)
    found = emission_on_host("arith.extf", [source], target)(x.view(np.uint8) if dtype.itemsize == 1 else x)
    same(found, x.astype(DTYPES[SCALARS[target]]))


@pytest.mark.parametrize("source", ["i8", "u8", "i32", "u32", "i64", "u64", "i1"])
@pytest.mark.parametrize("target", ["f8e4m3", "f8e5m2", "f16", "f32", "f64"])
def test_integers_to_floats(source: str, target: str, emission_on_host) -> None:
    scalar = SCALARS[source]
    random = np.random.default_rng(7)
    dtype = DTYPES[scalar]
    low, high = scalar.limits
    near = [n + d for n in (0, 1 << 24, 1 << 53, 65504, 448, -(1 << 24), -(1 << 53), low, high) for d in range(-3, 4)]
    x = np.array([n for n in near if low <= n <= high]).astype(dtype)
    spread = random.integers(0, 1 << 64, 5000, dtype=np.uint64) >> random.integers(0, 64, 5000).astype(np.uint64)
    x = np.concatenate([x, spread.astype(f"u{dtype.itemsize}").view(dtype) if source != "i1" else spread > 1])
    name = "arith.sitofp" if scalar.signed else "arith.uitofp"
    with np.errstate(all="ignore"):
        true = int_to_float(x.astype(np.int8) if source == "i1" else x, SCALARS[target])
    found = emission_on_host(name, [source], target)(x if source == "i1" else x.view(f"u{dtype.itemsize}"))
    same(found.view(true.dtype), true)


@pytest.mark.parametrize("source", ["f8e4m3", "f8e5m2", "f16", "f32", "f64"])
@pytest.mark.parametrize("target", ["i1", "i8", "u8", "i16", "i64", "u64"])
def test_floats_to_integers_saturate(source: str, target: str, emission_on_host) -> None:
    scalar = SCALARS[target]
    with np.errstate(all="ignore"):
        x = np.concatenate(
            [numbers(5000), [0.5, -0.5, 1.5, 127.9, -128.9, 255.9, 256, np.nan, np.inf, -np.inf, 2.0**63]]
        )
        x = x.astype(DTYPES[SCALARS[source]])
        true = float_to_int(x, scalar)
    name = "arith.fptosi" if scalar.signed else "arith.fptoui"
    found = emission_on_host(name, [source], target)(x.view(np.uint8) if x.itemsize == 1 else x)
    np.testing.assert_array_equal(found.view(true.dtype), true)


@pytest.mark.parametrize("name", ["shli", "shrsi", "shrui"])
@pytest.mark.parametrize("bits", [8, 32, 64])
def test_wide_shifts_shift_everything_out(name: str, bits: int, emission_on_host) -> None:
    element = f"{'i' if name == 'shrsi' else 'u'}{bits}"
    dtype = DTYPES[SCALARS[element]]
    random = np.random.default_rng(8)
    x = random.integers(0, 1 << 63, 500).astype(f"u{bits // 8}").view(dtype)
    by = np.concatenate([random.integers(0, bits, 250), random.integers(bits, 127, 250)]).astype(dtype)
    cls = {"shli": arith.ShlI, "shrsi": arith.ShrSI, "shrui": arith.ShrUI}[name]
    found = emission_on_host(f"arith.{name}", [element, element], element)(
        x.view(f"u{bits // 8}"), by.view(f"u{bits // 8}")
    )
    np.testing.assert_array_equal(found.view(dtype), INTEGERS[cls](x, by))


@pytest.mark.parametrize("name, cls", [
    ("maximumf", arith.MaximumF), ("minimumf", arith.MinimumF), ("maxnumf", arith.MaxNumF), ("minnumf", arith.MinNumF),
    ("addf", arith.AddF), ("mulf", arith.MulF), ("divf", arith.DivF),
])  # fmt: skip
@pytest.mark.parametrize("element", ["f8e4m3", "f8e5m2"])
def test_arithmetic_of_8_bit_floats(name: str, cls, element: str, emission_on_host) -> None:
    codes = np.arange(256, dtype=np.uint8)
    a, b = (part.ravel() for part in np.meshgrid(codes, codes))
    dtype = DTYPES[SCALARS[element]]
    with np.errstate(all="ignore"):
        true = float_binary(cls, a.view(dtype), b.view(dtype), SCALARS[element])
    found = emission_on_host(f"arith.{name}", [element, element], element)(a, b)
    if name in ("maxnumf", "minnumf"):  # Which of two zeros a host gives is not defined; PTX orders them.
        zero = true.astype(np.float32) == 0
        found, true = found[~zero], true[~zero]
    same(found.view(dtype), true)


@pytest.mark.parametrize("name", ["maximumf", "minimumf"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_the_larger_and_the_smaller_propagate_nan_and_order_zeros(name: str, element: str, emission_on_host) -> None:
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, -1], FLOATS[element])
    a, b = (part.ravel() for part in np.meshgrid(special, special))
    cls = {"maximumf": arith.MaximumF, "minimumf": arith.MinimumF}[name]
    same(emission_on_host(f"arith.{name}", [element] * 2, element)(a, b), float_binary(cls, a, b, SCALARS[element]))


def test_f16_is_not_a_detour(emission_on_host) -> None:
    """An f8e4m3 has its own number as an f32, also where an f16 would be subnormal."""
    found = emission_on_host("arith.extf", ["f8e4m3"], "f32")(np.array([1, 0x81], np.uint8))
    assert found.tolist() == [2.0**-9, -(2.0**-9)]
    assert f16.bits == 16


@zg.kernel
def narrowing(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out_ptr, at), zg.cast(zg.load(zg.add(x_ptr, at)), out_ptr.dtype.element_ty))


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_floats_are_narrowed_in_pairs(element: str, target: str) -> None:
    """The instruction that gives two packed numbers is four times as fast as two of those that give one."""
    types = [zg.divisible(zg.ptr(zg.f32)), zg.divisible(zg.ptr(getattr(zg, element)))]
    compiled = narrowing.compile(*types, 1024, target=target, num_warps=4)
    assert compiled.ptx.count(f"cvt.rn.{element}x2.f32") == 4 and f"cvt.rn.{element}.f32" not in compiled.ptx
    x = numbers(1024)[:1024]
    out = np.zeros(1024, np.dtype(DTYPES[SCALARS[element]]))
    memory = [x.view(np.uint8), out.view(np.uint8)]
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=memory)
    assert same(out, x.astype(out.dtype)) is None
    alone = narrowing.compile(*types, 128, target=target, num_warps=4)
    assert alone.ptx.count(f"cvt.rn.{element}.f32") == 1
