"""Steps of accurate functions that f32 and f64 share: routines of plain LLVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.ptx.routines import Number, Routine

_INFINITY = float("inf")
Reduce = Callable[[Routine, Number], tuple[Number, ...]]


def exponential(r: Routine, x: Number, log2_e: float, ln_2: Sequence[float], terms: Sequence[float]) -> Number:
    """e^x of a bounded number. `terms` are those of (e^x - 1 - x) / x² for |x| < ln(2)/2."""
    whole, exponent = r.nearest(x, log2_e)
    minus = -whole
    rest = r.fma(minus, ln_2[1], r.fma(minus, ln_2[0], x))
    grown = r.fma(rest * rest, r.poly(rest, terms), rest)
    return r.scaled(grown + 1.0, exponent)


def power_of_two(r: Routine, x: Number, terms: Sequence[float]) -> Number:
    """2^x of a bounded number. `terms` are those of (2^x - 1) / x for |x| < 1/2."""
    whole, exponent = r.nearest(x)
    rest = x - whole
    return r.scaled(r.fma(rest, r.poly(rest, terms), 1.0), exponent)


def mantissa_and_exponent(r: Routine, x: Number, lowest: int) -> tuple[Number, Number]:
    """x as m · 2^e: m - 1, and e as i32. `lowest` has the bits of the smallest m."""
    digits, least, more = (23, -126, 23) if x.kind == "float" else (52, -1022, 54)
    tiny = x.test("olt", 2.0**least)
    bits = tiny.select(x * 2.0**more, x).bits()
    field = bits - lowest & -(1 << digits)
    fraction = (bits - field).to("bitcast", x.kind) - 1.0
    exponent = field.ashr(digits)
    if x.kind == "double":
        exponent = exponent.to("trunc", "i32")
    return fraction, exponent + tiny.select(-more, 0, "i32")


def logarithm(x: Number, result: Number) -> Number:
    """The logarithm of x: `result` for a positive number; -∞, ∞ and NaN for 0, ∞ and negative numbers."""
    result = x.test("oeq", _INFINITY).select(_INFINITY, result)
    result = x.test("ult", 0.0).select(float("nan"), result)
    return x.test("oeq", 0.0).select(-_INFINITY, result)


def in_base_2(r: Routine, exponent: Number, natural: Number, log2_e: Sequence[float]) -> Number:
    """The logarithm to the base 2, from the exponent and the natural logarithm of the mantissa."""
    scaled = natural * log2_e[0]
    lost = r.fma(natural, log2_e[0], -scaled)
    return exponent + (scaled + r.fma(natural, log2_e[1], lost))


def reduced(r: Routine, x: Number, far: float, near_step: Reduce, far_step: Reduce) -> list[Number]:
    """The results of reducing an angle: by `near_step`, or by `far_step` from the magnitude `far` on."""
    is_far = abs(x).test("oge", far)
    near_label, far_label, after = (r.fresh("block") for _ in range(3))
    r.line(f"br i1 {is_far}, label %{far_label}, label %{near_label}")
    ends: list[tuple[tuple[Number, ...], str]] = []
    for label, step in ((near_label, near_step), (far_label, far_step)):
        r.start(label)
        ends.append((step(r, x), label))
        r.line(f"br label %{after}")
    r.start(after)
    kinds = [value.kind for value in ends[0][0]]
    return [
        r.emit(kind, f"phi {kind} " + ", ".join(f"[ {values[index]}, %{label} ]" for values, label in ends))
        for index, kind in enumerate(kinds)
    ]


def sine_of(x: Number, quadrant: Number, sine: Number, cosine: Number, *, exact_zero: bool) -> Number:
    """The sine in a quadrant, from the sine and the cosine of the reduced angle. `exact_zero` keeps the sign of a
    zero."""
    result = quadrant.to("trunc", "i1").select(cosine, sine)
    sign = quadrant & 2
    sign = sign.to("zext", "i64") << 62 if x.kind == "double" else sign << 30
    result = (result.bits() ^ sign).to("bitcast", x.kind)
    return x.test("oeq", 0.0).select(x, result) if exact_zero else result
