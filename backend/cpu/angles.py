"""sin and cos of vectors of f32, rounded once from f64.

The nearest multiple of π/2 is subtracted in two steps, of which the first is exact. Vectors with an angle of 2^17 or
more are computed lane by lane, with the digits of 2/π that matter.
"""

from __future__ import annotations

from functools import cache

from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.llvm.accurate import F64, accurate
from ziggurat.backend.llvm.routines import Number, Routine, by_lane

_FAR = 2.0**17


def sine(emitter: CpuEmitter, name: str, x: Number) -> Number:
    """The sine or, by its name, the cosine of a vector of f32."""
    near = emitter.routine(_near(name, x.lanes), x)
    slow = _far(name, x.lanes)
    is_far = abs(x).test("uge", _FAR).any()
    before, values, end = emitter.aside(is_far, lambda: emitter.effect(emitter.call_of(slow, x)), rare=True)
    phi = f"phi {x.type} [ {near}, %{before} ], [ {values}, %{end} ]"
    return emitter.number("float", emitter.effect(phi), x.lanes)


@cache
def _near(name: str, lanes: int) -> Routine:
    r = Routine(f"zg.{name}.near", "float", ["float"], lanes)
    x = r.argument()
    wide, anchor = x.to("fpext", "double"), 1.5 * 2.0**52
    anchored = r.fma(wide, F64.TWO_OVER_PI, anchor)
    minus, quadrant = anchor - anchored, anchored.bits() + (1 if name == "cos" else 0)
    rest = r.fma(minus, F64.PI_2[1], r.fma(minus, F64.PI_2[0], wide))
    square = rest * rest
    sine = r.fma(rest * square, r.poly(square, F64.SIN), rest)
    cosine = r.fma(square * square, r.poly(square, F64.COS), r.fma(square, -0.5, 1.0))
    size = (quadrant & 1).test("eq", 0).select(sine, cosine)
    result = (size.bits() ^ ((quadrant & 2) << 62)).to("bitcast", "double").to("fptrunc", "float")
    return r.done(result if name == "cos" else x.test("oeq", 0.0).select(x, result))


@cache
def _far(name: str, lanes: int) -> Routine:
    r = Routine(f"zg.{name}.far", "float", ["float"], lanes)
    routine = accurate(name, "double")

    def of_number(x: Number) -> Number:
        return r.routine(routine, x.to("fpext", "double")).to("fptrunc", "float")

    return r.done(by_lane(of_number, r.argument()), inline=False)
