"""8-bit floats by integer arithmetic, and rounding to odd, run on this machine."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.llvm.elementwise import narrow_to_8_bits, to_odd, widen_e4m3
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.scalars import converted, to_odd_f32
from ziggurat.codemodel.types import f8e4m3, f8e5m2, f32

# Overflows and NaN are compared as well.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("target", [f8e4m3, f8e5m2], ids=str)
def test_narrowing_to_8_bits(target, rounding: Rounding, on_host, numbers, same) -> None:
    x = numbers()
    actual = on_host(narrow_to_8_bits(target, rounding))(x).view(target.dtype)
    with np.errstate(all="ignore"):
        same(actual, converted(x, f32, target, toward_zero=rounding is Rounding.ZERO))


def test_widening_from_8_bits(on_host, same) -> None:
    codes = np.arange(256, dtype=np.uint8)
    same(on_host(widen_e4m3())(codes), codes.view(ml_dtypes.float8_e4m3fn).astype(np.float16))


def test_rounding_to_odd(on_host, numbers, same) -> None:
    random = np.random.default_rng(6)
    bits = random.integers(0, 1 << 64, 50_000, dtype=np.uint64).view(np.float64)
    x = np.concatenate([bits, random.standard_normal(50_000), numbers(1000).astype(np.float64), [np.inf, -np.inf]])
    with np.errstate(all="ignore"):
        same(on_host(to_odd())(x), to_odd_f32(x))


def test_a_kernel_has_each_routine_once(emission) -> None:
    """However often it is called; one for each type and rounding."""
    emitter, _ = emission("", "")
    x, y, z = (emitter.of(kind, f"%{name}") for kind, name in (("float", "x"), ("i8", "y"), ("double", "z")))
    calls = [emitter.routine(narrow_to_8_bits(f8e4m3, Rounding.NEAREST), x) for _ in range(2)]
    calls += [emitter.routine(narrow_to_8_bits(f8e4m3, Rounding.ZERO), x)]
    calls += [emitter.routine(narrow_to_8_bits(f8e5m2, Rounding.NEAREST), x)]
    calls += [emitter.routine(widen_e4m3(), y), emitter.routine(to_odd(), z)]
    assert len({call.name for call in calls}) == 6 == len(emitter.lines)
    assert list(emitter.definitions) == [
        *(f"zg.f32.to.{name}" for name in ("f8e4m3.rtne", "f8e4m3.rtz", "f8e5m2.rtne")),
        "zg.f8e4m3.to.f16",
        "zg.f64.to.odd",
    ]
    assert [line.split(" = ")[1].split("@")[0] for line in emitter.lines[-2:]] == ["call half ", "call float "]
