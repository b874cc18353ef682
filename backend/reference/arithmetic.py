"""What the arith dialect means in NumPy, to the bit.

Where an op is undefined the target's behaviour is taken: shifts by the width or more shift everything out; the smallest
number divided by -1 is itself; floats that do not fit an integer saturate. Division by zero is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ziggurat.backend.reference.machine import Machine
from ziggurat.backend.reference.meanings import triton
from ziggurat.backend.reference.rounding import (
    bits_of,
    converted,
    float_to_int,
    int_to_float,
    reinterpreted,
    rounded,
    widened,
)
from ziggurat.backend.reference.values import DTYPES, Array, element_dtype, is_array, over
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import FloatPredicate, IntPredicate, Rounding
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of

Operands = tuple[Any, ...]
Binary = Callable[[Array, Array], Array]


def scalar_type(type_: Type) -> ScalarType:
    """The scalar type of a number, or of the numbers of a tensor."""
    element = element_of(type_)
    assert isinstance(element, ScalarType)
    return element


@triton.of(arith.ConstantOp)
def _constant(machine: Machine, op: arith.ConstantOp, operands: Operands) -> Array:
    rank = op.type.rank if isinstance(op.type, TensorType) else 0
    scalar = scalar_type(op.type)
    if scalar.is_float:
        return rounded(np.full((1,) * (rank + 1), op.value, np.float64), scalar)
    return np.full((1,) * (rank + 1), op.value, DTYPES[scalar])


# Integers.


def _nonzero(divisor: Array, machine: Machine) -> None:
    if not divisor.all():
        place = int(np.argwhere(divisor == 0)[0][0]) if divisor.shape[0] > 1 else 0
        raise KernelRuntimeError(f"{machine.program(place)} divides by zero")


def truncated_quotient(a: Array, b: Array) -> Array:
    """C's quotient of integers."""
    rest = np.fmod(a, b)
    return ((a - rest) // b).astype(a.dtype, copy=False)


INTEGERS: dict[type[Op], Binary] = {
    arith.AddI: np.add, arith.SubI: np.subtract, arith.MulI: np.multiply,
    arith.AndI: np.bitwise_and, arith.OrI: np.bitwise_or, arith.XOrI: np.bitwise_xor,
    arith.ShlI: np.left_shift, arith.ShrSI: np.right_shift, arith.ShrUI: np.right_shift,
    arith.MaxSI: np.maximum, arith.MaxUI: np.maximum, arith.MinSI: np.minimum, arith.MinUI: np.minimum,
    arith.DivSI: truncated_quotient, arith.DivUI: np.floor_divide, arith.RemSI: np.fmod, arith.RemUI: np.fmod,
}  # fmt: skip


@triton.of(*INTEGERS)
def _integer(machine: Machine, op: Op, operands: Operands) -> Array:
    a, b = operands
    if isinstance(op, arith.DivSI | arith.DivUI | arith.RemSI | arith.RemUI):
        _nonzero(b, machine)
    if a.dtype == np.bool_:
        # One bit, wrapping around: computed in bytes, of which the lowest bit counts.
        wide = INTEGERS[type(op)](a.view(np.uint8), b.view(np.uint8))
        return (wide & np.uint8(1)).astype(np.bool_)
    return INTEGERS[type(op)](a, b)


COMPARISONS: dict[Any, Binary] = {
    IntPredicate.EQ: np.equal, IntPredicate.NE: np.not_equal,
    IntPredicate.SLT: np.less, IntPredicate.SLE: np.less_equal,
    IntPredicate.SGT: np.greater, IntPredicate.SGE: np.greater_equal,
    IntPredicate.ULT: np.less, IntPredicate.ULE: np.less_equal,
    IntPredicate.UGT: np.greater, IntPredicate.UGE: np.greater_equal,
    FloatPredicate.OEQ: np.equal, FloatPredicate.UNE: np.not_equal,
    FloatPredicate.OLT: np.less, FloatPredicate.OLE: np.less_equal,
    FloatPredicate.OGT: np.greater, FloatPredicate.OGE: np.greater_equal,
}  # fmt: skip


@triton.of(arith.CmpI)
def _compare_integers(machine: Machine, op: arith.CmpI, operands: Operands) -> Array:
    a, b = operands
    if op.predicate.value[0] == "u" and a.dtype.kind == "i":  # Pointers are held as i64.
        a, b = a.view(np.uint64), b.view(np.uint64)
    return COMPARISONS[op.predicate](a, b)


# Floats.


def _with_zeros_ordered(result: Array, a: Array, b: Array, larger: bool) -> Array:
    """NumPy does not say which zero the maximum of 0.0 and -0.0 is. Here -0.0 is less."""
    zeros = result == 0
    if zeros.any():
        signed = a + b if larger else -(-a + -b)
        result = np.where(zeros & (a == b), signed, result)
    return result


def maximum(a: Array, b: Array) -> Array:
    """The larger; NaN if either is; -0.0 < 0.0."""
    return _with_zeros_ordered(np.maximum(a, b), a, b, True)


def minimum(a: Array, b: Array) -> Array:
    """The smaller; NaN if either is; -0.0 < 0.0."""
    return _with_zeros_ordered(np.minimum(a, b), a, b, False)


def maxnum(a: Array, b: Array) -> Array:
    """The larger; the other where one is NaN; -0.0 < 0.0."""
    return _with_zeros_ordered(np.fmax(a, b), a, b, True)


def minnum(a: Array, b: Array) -> Array:
    """The smaller; the other where one is NaN; -0.0 < 0.0."""
    return _with_zeros_ordered(np.fmin(a, b), a, b, False)


FLOATS: dict[type[Op], Binary] = {
    arith.AddF: np.add, arith.SubF: np.subtract, arith.MulF: np.multiply, arith.DivF: np.divide, arith.RemF: np.fmod,
    arith.MaximumF: maximum, arith.MinimumF: minimum, arith.MaxNumF: maxnum, arith.MinNumF: minnum,
}  # fmt: skip
_SELECTING = (maximum, minimum, maxnum, minnum)


def float_binary(cls: type[Op], a: Array, b: Array, scalar: ScalarType) -> Array:
    """Two floats of a type combined and rounded to it."""
    if scalar.bits >= 32:
        return FLOATS[cls](a, b)
    result = FLOATS[cls](widened(a), widened(b))
    if FLOATS[cls] in _SELECTING:
        return result.astype(a.dtype)  # One of the operands: not rounded, so an infinite f8e5m2 stays infinite.
    return rounded(result, scalar)


@triton.of(tt.PreciseDivF)
def _quotient(machine: Machine, op: Op, operands: Operands) -> Array:
    return float_binary(arith.DivF, operands[0], operands[1], scalar_type(op.result.type))


@triton.of(*FLOATS)
def _float(machine: Machine, op: Op, operands: Operands) -> Array:
    return float_binary(type(op), operands[0], operands[1], scalar_type(op.result.type))


@triton.of(arith.NegF)
def _negate(machine: Machine, op: arith.NegF, operands: Operands) -> Array:
    bits = bits_of(operands[0])
    sign = bits.dtype.type(1 << (bits.dtype.itemsize * 8 - 1))
    return (bits ^ sign).view(operands[0].dtype)


@triton.of(arith.CmpF)
def _compare_floats(machine: Machine, op: arith.CmpF, operands: Operands) -> Array:
    return COMPARISONS[op.predicate](widened(operands[0]), widened(operands[1]))


@triton.of(arith.Select)
def _select(machine: Machine, op: arith.Select, operands: Operands) -> Any:
    condition, then, otherwise = operands
    if condition.ndim == 1:
        if condition.shape[0] == 1:
            return then if condition[0] else otherwise
        if is_array(then):
            condition = over(condition, then.ndim - 1)
    return np.where(condition, then, otherwise)


# Conversions.


@triton.of(arith.ExtF, arith.TruncF)
def _float_to_float(machine: Machine, op: arith.ExtF | arith.TruncF, operands: Operands) -> Array:
    toward_zero = isinstance(op, arith.TruncF) and op.rounding is Rounding.ZERO
    source, target = scalar_type(op.operand.type), scalar_type(op.type)
    return converted(operands[0], source, target, toward_zero=toward_zero)


@triton.of(arith.ExtSI, arith.ExtUI, arith.TruncI)
def _int_to_int(machine: Machine, op: arith.ExtSI | arith.ExtUI | arith.TruncI, operands: Operands) -> Array:
    (array,) = operands
    dtype = element_dtype(op.type)
    if dtype == np.bool_:
        return (array & array.dtype.type(1)).astype(np.bool_)
    bits = array.dtype.itemsize * 8
    if isinstance(op, arith.ExtUI):
        return array.view(f"u{bits // 8}").astype(dtype)
    if array.dtype == np.bool_:
        return np.where(array, dtype.type(-1) if dtype.kind == "i" else np.iinfo(dtype).max, dtype.type(0)).astype(
            dtype
        )
    if isinstance(op, arith.ExtSI):
        return array.view(f"i{bits // 8}").astype(dtype)
    return array.astype(dtype)


@triton.of(arith.SIToFP, arith.UIToFP)
def _to_float(machine: Machine, op: arith.SIToFP | arith.UIToFP, operands: Operands) -> Array:
    (array,) = operands
    size = array.dtype.itemsize
    if array.dtype == np.bool_:
        array = array.astype(np.int8) if isinstance(op, arith.UIToFP) else -array.astype(np.int8)
    else:
        array = array.view(f"{'i' if isinstance(op, arith.SIToFP) else 'u'}{size}")
    return int_to_float(array, scalar_type(op.type))


@triton.of(arith.FPToSI, arith.FPToUI)
def _to_int(machine: Machine, op: arith.FPToSI | arith.FPToUI, operands: Operands) -> Array:
    return float_to_int(operands[0], scalar_type(op.type))


@triton.of(arith.Bitcast)
def _bitcast(machine: Machine, op: arith.Bitcast, operands: Operands) -> Array:
    return reinterpreted(operands[0], scalar_type(op.type))
