"""Emission of the remainder of floats, exactly as C's fmod: by long division of the mantissas."""

from __future__ import annotations

from ziggurat.backend.ptx.elementwise import in_f32
from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.numbers import llvm_type, suffix
from ziggurat.backend.ptx.routines import Number, Routine
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.types import scalar_element


def remainder(kind: str) -> Routine:
    """The routine `zg.fmod.f32` or `zg.fmod.f64`: C's fmod; NaN for an infinite x or a zero y.

    With x = m · 2^e and y = n · 2^f as integers, it is m · 2^(e - f) modulo n, with as many digits at a time as fit in
    64 bits.
    """
    r = Routine(f"zg.fmod.{suffix(kind)}", kind, [kind, kind])
    digits, largest = (23, 0xFF) if kind == "float" else (52, 0x7FF)
    bits = digits + largest.bit_length() + 1
    whole = f"i{bits}"
    chunk, infinity = 63 - digits, largest << digits
    sign = r.argument()

    def parts(value: Number) -> tuple[Number, Number, Number]:
        """The magnitude's bits, the mantissa with its leading digit as an i64, and the exponent."""
        magnitude = value.bits() & (1 << bits - 1) - 1
        field = magnitude >> digits
        normal = field.test("ne", 0)
        mantissa = magnitude & (1 << digits) - 1
        mantissa = mantissa | normal.select(1 << digits, 0, whole)
        exponent = normal.select(field, 1)
        return magnitude, mantissa.to("zext", "i64") if bits == 32 else mantissa, exponent

    x, m, e = parts(sign)
    y, n, f = parts(r.argument(1))
    finite = x.test("ult", infinity)
    known = y.test("ule", infinity)
    nonzero = y.test("ne", 0)
    defined = finite & known & nonzero
    larger = x.test("uge", y)
    divides = defined & larger

    def divided() -> Number:
        head, body, after = (r.fresh("block") for _ in range(3))
        rest = m % n
        left = e - f
        before = r.label
        names = [f"%{r.fresh()}" for _ in range(4)]
        kept, more = Number(r, "i64", names[0]), Number(r, whole, names[1])
        r.line(f"br label %{head}")
        r.start(head)
        r.line(f"{kept} = phi i64 [ {rest}, %{before} ], [ {names[2]}, %{body} ]")
        r.line(f"{more} = phi {whole} [ {left}, %{before} ], [ {names[3]}, %{body} ]")
        r.line(f"br i1 {more.test('sgt', 0)}, label %{body}, label %{after}")
        r.start(body)
        step = r.call("llvm.smin", more, more.like(chunk))
        moved = kept << (step if bits == 64 else step.to("zext", "i64"))
        r.line(f"{names[2]} = urem i64 {moved}, {n}")
        r.line(f"{names[3]} = sub {whole} {more}, {step}")
        r.line(f"br label %{head}")
        r.start(after)
        number = kept.to("uitofp", kind)
        return r.scaled(number, f - (largest // 2 + digits))

    def undivided() -> Number:
        return defined.select(abs(sign), float("nan"))

    return r.done(r.branch(divides, divided, undivided).signed_as(sign), inline=False)


@emits(arith.RemF)
def _remf(emitter: Emitter, op: arith.RemF) -> Emitted:
    scalar = scalar_element(op.lhs.type)
    kind = "float" if scalar.bits < 32 else llvm_type(scalar)
    symbol = f"zg.fmod.{suffix(kind)}"
    emitter.define(symbol, lambda: remainder(kind))

    def apply(a: str, b: str) -> str:
        return emitter.emit(f"call {kind} @{symbol}({kind} {a}, {kind} {b})")

    def exact(a: str, b: str) -> str:
        # The remainder of two small floats is a float of their type: computing it in f32 is exact.
        return in_f32(emitter, scalar, (a, b), apply) if scalar.bits < 32 else apply(a, b)

    return emitter.each(op.result.type, op.operands, exact)
