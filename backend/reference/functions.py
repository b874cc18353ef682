"""What the math dialect means in NumPy.

Functions of floats of up to 32 bits are computed in f64 and rounded to their type, which gives the float next to the
true value almost always; f64 ones are as good as the platform's. A target's own functions differ in the last digits.
"""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ziggurat.backend.reference.arithmetic import scalar_type
from ziggurat.backend.reference.machine import Machine
from ziggurat.backend.reference.meanings import triton
from ziggurat.backend.reference.rounding import bits_of, rounded, widened
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.dialects import math as dialect
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.op import Op

Operands = tuple[Any, ...]


def erf(array: Array) -> Array:
    """The error function of f64."""
    return np.array(list(map(math.erf, array.ravel().tolist())), np.float64).reshape(array.shape)


_FUNCTIONS: dict[type[Op], Callable[[Array], Array]] = {
    dialect.Exp: np.exp, dialect.Exp2: np.exp2, dialect.Log: np.log, dialect.Log2: np.log2, dialect.Sqrt: np.sqrt,
    dialect.Rsqrt: lambda x: 1.0 / np.sqrt(x), dialect.Sin: np.sin, dialect.Cos: np.cos, dialect.Tanh: np.tanh,
    dialect.Erf: erf, tt.PreciseSqrt: np.sqrt,
}  # fmt: skip


@triton.of(*_FUNCTIONS)
def _function(machine: Machine, op: Op, operands: Operands) -> Array:
    array = operands[0].astype(np.float64)
    return rounded(_FUNCTIONS[type(op)](array), scalar_type(op.result.type))


@triton.of(dialect.Floor, dialect.Ceil)
def _whole(machine: Machine, op: Op, operands: Operands) -> Array:
    function = np.floor if isinstance(op, dialect.Floor) else np.ceil
    return function(widened(operands[0])).astype(operands[0].dtype)  # Exact: these never need more digits.


@triton.of(dialect.AbsF)
def _magnitude(machine: Machine, op: Op, operands: Operands) -> Array:
    bits = bits_of(operands[0])
    sign = bits.dtype.type(1 << (bits.dtype.itemsize * 8 - 1))
    return (bits & ~sign).view(operands[0].dtype)


@triton.of(dialect.AbsI)
def _integer_magnitude(machine: Machine, op: Op, operands: Operands) -> Array:
    return np.abs(operands[0])


@triton.of(dialect.Fma)
def _fma(machine: Machine, op: Op, operands: Operands) -> Array:
    a, b, c = np.broadcast_arrays(*operands)
    scalar = scalar_type(op.result.type)
    if scalar.bits == 64:
        return fma_f64(a, b, c)
    wide = [array.astype(np.float64) for array in (a, b, c)]
    # The product of two floats of at most 24 digits is exact in f64; the sum is rounded to odd, so that the final
    # rounding is the only one.
    return rounded(sum_to_odd(wide[0] * wide[1], wide[2]), scalar)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The sum rounded to nearest, and what it lacks (Knuth)."""
    near = a + b
    other = near - a
    return near, (a - (near - other)) + (b - other)


def sum_to_odd(a: Array, b: Array) -> Array:
    """The sum; where it is not exact, the neighbour with an odd last bit."""
    near, rest = _two_sum(a, b)
    fix = np.isfinite(near) & (rest != 0) & ((near.view(np.int64) & 1) == 0)
    toward = np.where(rest > 0, np.inf, -np.inf)
    return np.where(fix, np.nextafter(near, toward), near)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product rounded to nearest, and what it lacks (Dekker)."""

    def split(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        return high, x - high

    near = a * b
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    return near, ((a_high * b_high - near) + a_high * b_low + a_low * b_high) + a_low * b_low


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a · b + c in f64, rounded once (Boldo and Melquiond, 2008); near the ends of the range by way of fractions."""
    high, low = _two_product(a, b)
    t_high, t_low = _two_sum(c, low)
    v_high, v_low = _two_sum(high, t_high)
    result = np.asarray(v_high + sum_to_odd(t_low, v_low))
    size = np.abs(np.stack([a, b, high, c]))
    ordinary = ((size < 1e290) & ((size > 1e-250) | (size == 0))).all(0) & (high != 0) & (result != 0)
    special = ~np.isfinite(np.stack([a, b, c])).all(0)
    finite_product = np.isfinite(a) & np.isfinite(b)  # It may still overflow, but then only on the way.
    result = np.where(special, np.where(finite_product, c, a * b + c), result)
    for place in np.argwhere(~ordinary & ~special):
        at = tuple(place)
        result[at] = _exact_fma(float(a[at]), float(b[at]), float(c[at]))
    return result


def _exact_fma(a: float, b: float, c: float) -> float:
    exact = fractions.Fraction(a) * fractions.Fraction(b) + fractions.Fraction(c)
    if exact == 0:
        return a * b + c  # The sign of a zero. A product that underflows to zero has its sign as well.
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
