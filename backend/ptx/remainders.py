"""Emission of the remainder of floats, exactly as C's fmod: by long division of the mantissas."""

from __future__ import annotations

from ziggurat.backend.ptx.elementwise import in_f32
from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.numbers import llvm_type, scalar_of, suffix
from ziggurat.backend.ptx.routines import Real, Routine
from ziggurat.codemodel.dialects import arith


def remainder(kind: str) -> Routine:
    """`zg.fmod.f32` or `zg.fmod.f64`: x less the multiple of y next to it toward zero; NaN of an infinite x, or by 0.

    With x = m · 2^e and y = n · 2^f as integers, m · 2^(e - f) modulo n, as many digits at a time as fit in 64 bits.
    """
    r = Real(f"zg.fmod.{suffix(kind)}", kind, 2)
    bits, digits, largest = (32, 23, 0xFF) if kind == "float" else (64, 52, 0x7FF)
    whole = f"i{bits}"
    chunk, infinity = 63 - digits, largest << digits

    def parts(value: str) -> tuple[str, str, str]:
        """The magnitude's bits, the mantissa with its leading digit as an i64, and the exponent."""
        magnitude = r.emit(f"and {whole} {r.to_bits(value)}, {(1 << bits - 1) - 1}")
        field = r.emit(f"lshr {whole} {magnitude}, {digits}")
        normal = r.emit(f"icmp ne {whole} {field}, 0")
        mantissa = r.emit(f"and {whole} {magnitude}, {(1 << digits) - 1}")
        lead = r.select(normal, 1 << digits, 0, whole)
        mantissa = r.emit(f"or {whole} {mantissa}, {lead}")
        exponent = r.select(normal, field, 1, whole)
        if bits == 32:
            mantissa = r.emit(f"zext i32 {mantissa} to i64")
        return magnitude, mantissa, exponent

    x, m, e = parts("%a0")
    y, n, f = parts("%a1")
    finite = r.emit(f"icmp ult {whole} {x}, {infinity}")
    known = r.emit(f"icmp ule {whole} {y}, {infinity}")
    nonzero = r.emit(f"icmp ne {whole} {y}, 0")
    defined = r.emit(f"and i1 {finite}, {known}")
    defined = r.emit(f"and i1 {defined}, {nonzero}")
    larger = r.emit(f"icmp uge {whole} {x}, {y}")
    divides = r.emit(f"and i1 {defined}, {larger}")

    def divided() -> str:
        head, body, after = (r.fresh("block") for _ in range(3))
        rest = r.emit(f"urem i64 {m}, {n}")
        left = r.emit(f"sub {whole} {e}, {f}")
        before = r.label
        names = [f"%{r.fresh()}" for _ in range(4)]
        r.line(f"br label %{head}")
        r.start(head)
        r.line(f"{names[0]} = phi i64 [ {rest}, %{before} ], [ {names[2]}, %{body} ]")
        r.line(f"{names[1]} = phi {whole} [ {left}, %{before} ], [ {names[3]}, %{body} ]")
        more = r.emit(f"icmp sgt {whole} {names[1]}, 0")
        r.line(f"br i1 {more}, label %{body}, label %{after}")
        r.start(body)
        step = r.call(whole, f"llvm.smin.{whole}", (whole, names[1]), (whole, str(chunk)))
        amount = step if bits == 64 else r.emit(f"zext i32 {step} to i64")
        moved = r.emit(f"shl i64 {names[0]}, {amount}")
        r.line(f"{names[2]} = urem i64 {moved}, {n}")
        r.line(f"{names[3]} = sub {whole} {names[1]}, {step}")
        r.line(f"br label %{head}")
        r.start(after)
        number = r.emit(f"uitofp i64 {names[0]} to {kind}")
        exponent = r.emit(f"sub {whole} {f}, {largest // 2 + digits}")
        return r.scaled(number, exponent)

    def undivided() -> str:
        return r.select(defined, r.magnitude("%a0"), float("nan"))

    return r.done(r.signed_as(r.branch(divides, divided, undivided), "%a0"), inline=False)


@emits(arith.RemF)
def _remf(emitter: Emitter, op: arith.RemF) -> Emitted:
    scalar = scalar_of(op.lhs.type)
    kind = "float" if scalar.bits < 32 else llvm_type(scalar)
    symbol = f"zg.fmod.{suffix(kind)}"
    emitter.define(symbol, lambda: remainder(kind))

    def apply(a: str, b: str) -> str:
        return emitter.emit(f"call {kind} @{symbol}({kind} {a}, {kind} {b})")

    def exact(a: str, b: str) -> str:
        # The remainder of smaller floats is one of them.
        return in_f32(emitter, scalar, (a, b), apply) if scalar.bits < 32 else apply(a, b)

    return emitter.each(op.result.type, op.operands, exact)
