"""The exact meaning of each elementwise op on NumPy arrays: `elementwise.py` over a domain of arrays, and floats.

The functions take and return arrays in the dtypes of the scalar types (`ScalarType.dtype`). The reference
interpreter applies them to whole tensors. Constant folding, calls on constants and calls from Python apply them to
arrays of one number, unless `numbers.py` computes the op on Python numbers.

Floats of 16 and 8 bits are computed with in f32 and rounded after each op. f32 has more than twice their digits, and
two more, so rounding twice gives what rounding once would, for + - * / and the square root (Figueroa, "When is double
rounding innocuous?", 1995). Rounding to an 8-bit float saturates: numbers that are too large become the largest one,
and so do infinities, as in PTX's `cvt.rn.satfinite` (PTX ISA, "cvt"). NaN stays NaN. An op that selects one of its
operands (maximum, minimum, where) does not round.

Where an op is undefined, it does what the GPU does: shifts by the width or more shift everything out; the smallest
integer divided by -1 is itself; floats that do not fit an integer saturate, and NaN becomes 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ziggurat.codemodel import elementwise
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.numbers import COMPARISONS, ELEMENTWISE, Binary, Number, quotient, remainder
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import SCALARS, ScalarType, f16, f32, f64, i1, scalar_element

Array = np.ndarray[Any, np.dtype[Any]]


# Integers.


def high_product(a: Array, b: Array) -> Array:
    """The upper half of the product of two unsigned integers."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        return ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(bits)).astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & low)
    return a_high * b_high + (middle >> half) + (other >> half)


def ones(array: Array) -> Array:
    """The number of bits that are set in each unsigned integer."""
    return elementwise.of_bits(ARRAYS, maths.CtPop, _unsigned(array), array)


def leading_zeros(array: Array) -> Array:
    """The number of zero bits above the highest bit that is set, in each unsigned integer."""
    return elementwise.of_bits(ARRAYS, maths.CtLz, _unsigned(array), array)


def reversed_bits(array: Array) -> Array:
    """The bits of each unsigned integer in the opposite order."""
    return elementwise.of_bits(ARRAYS, maths.BitReverse, _unsigned(array), array)


def _unsigned(array: Array) -> ScalarType:
    return SCALARS[f"u{8 * array.dtype.itemsize}"]


# Floats.


def _extreme(choose: Binary, larger: bool) -> Binary:
    """The larger or smaller of two floats, with -0.0 below 0.0. NumPy leaves open which zero it chooses."""

    def select(a: Array, b: Array) -> Array:
        result = choose(a, b)
        zeros = result == 0
        if zeros.any():
            signed = a + b if larger else -(-a + -b)
            result = np.where(zeros & (a == b), signed, result)
        return result

    return select


# With a NaN, maximum and minimum are NaN; maxnum and minnum are the other operand.
maximum, minimum = _extreme(np.maximum, True), _extreme(np.minimum, False)
maxnum, minnum = _extreme(np.fmax, True), _extreme(np.fmin, False)

FLOATS: dict[type[Op], Binary] = {
    arith.AddF: np.add, arith.SubF: np.subtract, arith.MulF: np.multiply, arith.DivF: np.divide, arith.RemF: np.fmod,
    arith.MaximumF: maximum, arith.MinimumF: minimum, arith.MaxNumF: maxnum, arith.MinNumF: minnum,
    tt.PreciseDivF: np.divide,
}  # fmt: skip
_SELECTING = (maximum, minimum, maxnum, minnum)


def float_binary(cls: type[Op], a: Array, b: Array, scalar: ScalarType) -> Array:
    """Two floats of a type combined, and rounded to it."""
    function = FLOATS[cls]
    if scalar.bits >= 32:
        return function(a, b)
    result = function(widened(a), widened(b))
    return result.astype(a.dtype) if function in _SELECTING else rounded(result, scalar)


def erf(array: Array) -> Array:
    """The error function of f64."""
    return np.array(list(map(math.erf, array.ravel().tolist())), np.float64).reshape(array.shape)


def rsqrt(array: Array) -> Array:
    """1 / √x."""
    return 1.0 / np.sqrt(array)


# Functions computed in f64 and rounded to the type, which is the float nearest to the true value almost always. For f64
# they are as accurate as those of the platform. The functions of a GPU differ in the last digits.
FUNCTIONS: dict[type[Op], Callable[[Array], Array]] = {
    maths.Exp: np.exp, maths.Exp2: np.exp2, maths.Log: np.log, maths.Log2: np.log2, maths.Sqrt: np.sqrt,
    maths.Rsqrt: rsqrt, maths.Sin: np.sin, maths.Cos: np.cos, maths.Tanh: np.tanh, maths.Erf: erf,
    tt.PreciseSqrt: np.sqrt, maths.Floor: np.floor, maths.Ceil: np.ceil, maths.Trunc: np.trunc,
    maths.RoundEven: np.rint,
}  # fmt: skip


def _sign_bit(bits: Array) -> Any:
    return bits.dtype.type(1 << (bits.dtype.itemsize * 8 - 1))


# Fused multiply-add.


def fma(a: Array, b: Array, c: Array, scalar: ScalarType) -> Array:
    """a · b + c, rounded once to a float type."""
    if scalar == f64:
        return fma_f64(*np.broadcast_arrays(a, b, c))
    # The product of two floats of at most 24 digits is exact in f64; the sum is rounded. A second rounding is wrong
    # only if the first one gave a number midway between two of the type. For subnormal results those lie elsewhere, so
    # all of them count as doubtful. There the sum is rounded to odd, so that only the final rounding counts.
    product, addend = np.multiply(a, b, dtype=np.float64, casting="unsafe"), c.astype(np.float64)
    near = np.atleast_1d(product + addend)
    dropped = 52 - scalar.format.mantissa_bits
    tail = near.view(np.int64) & ((1 << dropped) - 1)
    doubtful = (tail == 1 << (dropped - 1)) | (np.abs(near) < scalar.format.smallest_normal)
    if doubtful.any():
        product, addend = np.broadcast_arrays(product, addend)
        near[doubtful] = sum_to_odd(product[doubtful], addend[doubtful])
    return rounded(near, scalar)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The sum rounded to nearest, and its error (Knuth)."""
    near = a + b
    other = near - a
    return near, (a - (near - other)) + (b - other)


def sum_to_odd(a: Array, b: Array) -> Array:
    """The sum; where it is not exact, the neighbour with an odd last bit (Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums", 2008)."""
    near, rest = _two_sum(a, b)
    fix = np.isfinite(near) & (rest != 0) & ((near.view(np.int64) & 1) == 0)
    toward = np.where(rest > 0, np.inf, -np.inf)
    return np.where(fix, np.nextafter(near, toward), near)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product rounded to nearest, and its error (Dekker)."""

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
    from fractions import Fraction  # Few results need it; the import is slow.

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # The sign of a zero. A product that underflows to zero has its sign as well.
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


# Operations rounded in one direction.


def _error_sign(operation: maths.Operation, near: float, values: Sequence[float]) -> int:
    """The sign of the exact result less the one rounded to nearest; both are finite, or that overflowed."""
    from fractions import Fraction  # The import is slow.

    a, *others = map(Fraction, values)
    if math.isinf(near):
        return -1 if near > 0 else 1
    value = Fraction(near)
    match operation:
        case maths.Operation.ADD:
            error = a + others[0] - value
        case maths.Operation.MUL:
            error = a * others[0] - value
        case maths.Operation.DIV:
            error = a / others[0] - value
        case maths.Operation.SQRT:
            error = a - value * value
        case maths.Operation.FMA:
            error = a * others[0] + others[1] - value
    return (error > 0) - (error < 0)


def directed(op: maths.Directed, *values: Array) -> Array:
    """The result rounded to nearest, or its neighbour in the direction of the exact one."""
    functions: dict[maths.Operation, Callable[..., Array]] = {
        maths.Operation.ADD: np.add, maths.Operation.MUL: np.multiply, maths.Operation.DIV: np.divide,
        maths.Operation.SQRT: np.sqrt,
        maths.Operation.FMA: partial(fma, scalar=scalar_element(op.result.type)),
    }  # fmt: skip
    values = tuple(np.broadcast_arrays(*values))
    near = np.array(functions[op.operation](*values))
    finite = np.isfinite(np.stack(values)).all(0) & ~np.isnan(near)
    if op.operation is maths.Operation.DIV:
        finite &= values[1] != 0
    signs = np.zeros(near.shape, np.int8)
    for place in zip(*np.nonzero(finite), strict=True):
        signs[place] = _error_sign(op.operation, float(near[place]), [float(value[place]) for value in values])
    end = {maths.Direction.UP: np.inf, maths.Direction.DOWN: -np.inf}.get(op.direction)
    if end is None:  # Toward zero the result has moved too far if the error has the other sign.
        return np.where(signs * np.sign(near) < 0, np.nextafter(near, near.dtype.type(0)), near)
    neighbour = np.where(signs * np.sign(end) > 0, np.nextafter(near, near.dtype.type(end)), near)
    if op.direction is maths.Direction.DOWN and op.operation in (maths.Operation.ADD, maths.Operation.FMA):
        # An exact sum of zero is negative, unless both operands are positive zeros.
        first, last = values[0] if len(values) == 2 else values[0] * values[1], values[-1]
        positive = (first == 0) & (last == 0) & ~np.signbit(first) & ~np.signbit(last)
        neighbour = np.where((near == 0) & (signs == 0) & finite & ~positive, -np.abs(neighbour), neighbour)
    return neighbour


# Conversions of floats.


def widened(array: Array) -> Array:
    """Floats of fewer than 32 bits as f32, exactly; others as they are."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


def to_odd_f32(array: Array) -> Array:
    """f64 to f32 such that rounding the result to fewer digits gives what rounding the operand would.

    A number that f32 does not have becomes the neighbour with an odd last bit (Boldo and Melquiond, 2008).
    """
    near = array.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32).copy()
    bits -= np.abs(back) > np.abs(array)
    bits |= (back != array) & np.isfinite(array)
    return bits.view(np.float32)


def rounded(array: Array, scalar: ScalarType) -> Array:
    """Floats in f32 or f64 as this type, to nearest, ties to even."""
    if scalar in (f16, f32, f64):  # The others are types of ml_dtypes, which rounds rightly from f32 only.
        return array.astype(scalar.dtype, copy=False)
    if array.dtype == np.float64:
        array = to_odd_f32(array)
    if scalar.saturates:
        limit = np.float32(scalar.format.largest)
        array = np.clip(array, -limit, limit)  # NaN stays NaN.
    return array.astype(scalar.dtype)


def truncated(array: Array, scalar: ScalarType) -> Array:
    """Floats in f32 or f64 as this narrower type, toward zero. What is too large for the type becomes its largest
    number; an infinity stays one where the type does not saturate."""
    near = rounded(array, scalar)
    bits = bits_of(near).copy()
    bits -= np.abs(near.astype(array.dtype)) > np.abs(array)  # The code below is that of the neighbour toward zero.
    return bits.view(near.dtype)


def converted(array: Array, source: ScalarType, target: ScalarType, *, toward_zero: bool = False) -> Array:
    """Floats of one type as floats of another."""
    array = np.ascontiguousarray(widened(array))
    if toward_zero and target.bits < source.bits:
        return truncated(array, target)
    return rounded(array, target)


def tf32(array: Array, *, ties_away: bool = False) -> Array:
    """f32 with 10 digits after the point: to nearest, ties to even, as PTX's `cvt.rn.tf32.f32`; or ties away from zero,
    as `cvt.rna.tf32.f32`."""
    array = np.ascontiguousarray(array)
    bits = array.view(np.uint32)
    half = np.uint32(0x1000) if ties_away else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    bits = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(array), bits.view(np.float32), array)


# Conversions of integers, and of bits.


def int_to_float(array: Array, target: ScalarType, *, signed: bool | None = None) -> Array:
    """Integers as floats, rounded once. `signed` says how their bits are read; None as their dtype says."""
    if array.dtype == np.bool_:
        array = array.view(np.int8)
        array = -array if signed else array
    elif signed is not None:
        array = array.view(f"{'i' if signed else 'u'}{array.dtype.itemsize}")
    if target in (f32, f64):
        return array.astype(target.dtype)
    if array.dtype.itemsize == 8:
        # f64 is exact below 2**53 in magnitude. Above, the bits that do not fit are replaced by one sticky bit.
        low = array & array.dtype.type(0x7FF)
        sticky = (array - low) | ((low != 0).astype(array.dtype) << array.dtype.type(11))
        large = (array >= 1 << 53) | (array <= -(1 << 53)) if array.dtype.kind == "i" else array >= 1 << 53
        array = np.where(large, sticky, array)
    return rounded(array.astype(np.float64), target)


def float_to_int(array: Array, target: ScalarType) -> Array:
    """Floats as integers, rounded toward zero; the nearest integer of the type where they do not fit, and 0 for NaN.

    PTX's `cvt.rzi` does the same.
    """
    wide = np.trunc(widened(array).astype(np.float64))
    low, high = target.limits
    dtype = target.dtype
    above, below = wide >= float(high + 1), wide < float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(np.uint64 if low == 0 else np.int64)
    result = np.where(above, dtype.type(high), inside.astype(dtype))
    return np.where(below, dtype.type(low), result)


def bits_of(array: Array) -> Array:
    """The bits of numbers or addresses, as unsigned integers."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}")


# The domain of arrays.


class Arrays(elementwise.Domain):
    """NumPy arrays in the dtypes of the scalar types, which broadcast. The dtype says how integers are read; i1 is
    computed in bytes, of which only the lowest bit counts.

    The caller silences NumPy's warnings, and refuses integers divided by zero where that is an error.
    """

    def integers(self, function: Callable[..., Any], scalar: ScalarType, *values: Any) -> Array:
        if scalar.bits > 1:
            return function(*values)
        result: Any = function(*(value.view(np.uint8) for value in values))
        return np.equal(result & np.uint8(1), 1)

    def constant(self, number: int, scalar: ScalarType) -> Any:
        return scalar.dtype.type(number)

    def choose(self, condition: Array, then: Array, otherwise: Array) -> Array:
        return np.where(condition, then, otherwise)

    def compare(self, relation: str, a: Any, b: Any, *, signed: bool) -> Array:
        if not signed and relation not in ("eq", "ne") and a.dtype.kind == "i":  # As addresses are held.
            a, b = (array.view(f"u{array.dtype.itemsize}") for array in (a, b))
        return COMPARISONS[relation](a, b)

    def shift(self, a: Any, b: Any, *, upward: bool, signed: bool) -> Array:
        return a << b if upward else a >> b

    def quotient(self, a: Any, b: Any, *, signed: bool) -> Array:
        return quotient(a, b)

    def remainder(self, a: Any, b: Any, *, signed: bool) -> Array:
        return remainder(a, b)

    def high_product(self, a: Any, b: Any, scalar: ScalarType) -> Array:
        return high_product(a, b)

    def resize(self, a: Any, source: ScalarType, target: ScalarType, *, signed: bool) -> Array:
        if target.bits == 1:
            return (a & a.dtype.type(1)).astype(np.bool_)
        if a.dtype == np.bool_:
            ones: Array = a.view(np.uint8).astype(target.dtype)
            negative: Array = -ones
            return negative if signed else ones
        return a.view(f"{'i' if signed else 'u'}{a.dtype.itemsize}").astype(target.dtype)

    def reinterpret(self, a: Any, source: ScalarType, target: ScalarType) -> Array:
        return np.ascontiguousarray(a).view(target.dtype)

    def floats(self, op: Op, *values: Any) -> Array:
        return FLOAT_MEANINGS[op](op, *values)


ARRAYS: Final = Arrays()

# By op class: the result of an op that takes or gives floats, on arrays of its operands' dtypes that broadcast.
FLOAT_MEANINGS = OpTable[Callable[..., Array]]("meaning on floats")


def int_binary(cls: type[Op], a: Array, b: Array) -> Array:
    """Two integers of a type combined."""
    scalar = i1 if a.dtype == np.bool_ else _unsigned(a)
    return ARRAYS.integers(partial(elementwise.INTEGERS[cls], ARRAYS), scalar, a, b)


@FLOAT_MEANINGS.of(arith.FloatBinary)
def _float(op: Op, a: Array, b: Array) -> Array:
    return float_binary(type(op), a, b, scalar_element(op.result.type))


@FLOAT_MEANINGS.of(maths.FloatUnary)
def _function(op: Op, array: Array) -> Array:
    return rounded(FUNCTIONS[type(op)](array.astype(np.float64)), scalar_element(op.result.type))


@FLOAT_MEANINGS.of(maths.Approximate)
def _approximated(op: maths.Approximate, array: Array) -> Array:
    return _function(op.accurate, array)


@FLOAT_MEANINGS.of(maths.Floor, maths.Ceil, maths.Trunc, maths.RoundEven)
def _whole(op: Op, array: Array) -> Array:
    """Exact: the result needs no rounding."""
    return FUNCTIONS[type(op)](widened(array)).astype(array.dtype)


@FLOAT_MEANINGS.of(arith.NegF, maths.AbsF)
def _signed(op: Op, array: Array) -> Array:
    bits = bits_of(array)
    sign = _sign_bit(bits)
    return (bits ^ sign if isinstance(op, arith.NegF) else bits & ~sign).view(array.dtype)


@FLOAT_MEANINGS.of(maths.Fma)
def _fused(op: Op, a: Array, b: Array, c: Array) -> Array:
    return fma(a, b, c, scalar_element(op.result.type))


FLOAT_MEANINGS.of(maths.Directed)(directed)


@FLOAT_MEANINGS.of(arith.CmpF)
def _compared(op: arith.CmpF, a: Array, b: Array) -> Array:
    return COMPARISONS[op.predicate.value[-2:]](widened(a), widened(b))


@FLOAT_MEANINGS.of(arith.ExtF, arith.TruncF)
def _float_to_float(op: arith.ExtF | arith.TruncF, array: Array) -> Array:
    toward_zero = isinstance(op, arith.TruncF) and op.rounding is Rounding.ZERO
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    return converted(array, source, target, toward_zero=toward_zero)


@FLOAT_MEANINGS.of(arith.SIToFP, arith.UIToFP)
def _int_to_float(op: Op, array: Array) -> Array:
    return int_to_float(array, scalar_element(op.result.type), signed=isinstance(op, arith.SIToFP))


@FLOAT_MEANINGS.of(arith.FPToSI, arith.FPToUI)
def _float_to_int(op: Op, array: Array) -> Array:
    return float_to_int(array, scalar_element(op.result.type))


# By op class: the result of the op on arrays of its operands' dtypes that broadcast. An op that is declared elsewhere
# may have a function of the op and the arrays here, or a meaning over domains in `elementwise.MEANINGS`.
MEANINGS = OpTable[Callable[..., Array]]("meaning on numbers")


@MEANINGS.of(*ELEMENTWISE)
def _on_arrays(op: Op, *arrays: Array) -> Array:
    return elementwise.MEANINGS[op](ARRAYS, op, *arrays)


# Numbers of Python.


def array_of(number: Number, scalar: ScalarType | None) -> Array:
    """An array of one number: of the type, rounded to it; or, for None, of an integer without a width."""
    if scalar is None:
        return np.array([number], object)
    if not scalar.is_float:
        return np.array([number], scalar.dtype)
    if isinstance(number, int) and -(1 << 63) <= number < 1 << 64:
        return int_to_float(np.array([number], np.int64 if number < 0 else np.uint64), scalar)
    with np.errstate(over="ignore"):  # What is too large becomes infinite, or the largest number.
        return rounded(np.array([number], np.float64), scalar)


def number_of(array: Array) -> Any:
    """The Python number that an array of one holds."""
    return array.astype(np.float64).item() if array.dtype.kind in "fV" else array.item()


def on_arrays(op: Op, numbers: Sequence[Number]) -> Any:
    """The value of an elementwise op on numbers, by its function of arrays."""
    types = [scalar_element(value.type) for value in op.operands]
    with np.errstate(all="ignore"):
        arrays = [array_of(number, type_) for number, type_ in zip(numbers, types, strict=True)]
        return number_of(MEANINGS[op](op, *arrays))
