"""Fixtures for the tests of placement: straight-line models of indices, evaluated on concrete numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import PtrType, element_of, shape_of

_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _wrapped(values: Any, element: Any) -> Any:
    """Numbers wrapped to a type; int64 arrays suffice, because the test's numbers are small."""
    if isinstance(element, PtrType) or element.bits == 64:
        return values
    if element.bits == 1:
        return values.astype(bool)
    low = values & ((1 << element.bits) - 1)
    return np.where(low >> (element.bits - 1), low - (1 << element.bits), low) if element.signed else low


def _quotient(x: Any, y: Any) -> Any:
    q = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (y < 0), -q, q)


_BINARY: dict[type[Op], Callable[[Any, Any], Any]] = {
    arith.AddI: np.add,
    arith.SubI: np.subtract,
    arith.MulI: np.multiply,
    arith.AndI: np.bitwise_and,
    arith.OrI: np.bitwise_or,
    arith.XOrI: np.bitwise_xor,
    arith.MaxSI: np.maximum,
    arith.MinSI: np.minimum,
    arith.ShlI: np.left_shift,
    arith.ShrSI: np.right_shift,
    arith.DivSI: _quotient,
    arith.RemSI: lambda x, y: x - _quotient(x, y) * y,
}


class Overflowed(Exception):
    """A sum or product of nonnegative numbers wrapped around, which no index does."""


def apply(op: Op, operands: Sequence[Any]) -> Any:
    """The result of an op for arrays of numbers; pointers are addresses in bytes."""
    element = element_of(op.result.type)
    if isinstance(op, tt.MakeRange):
        return np.arange(op.start, op.end)
    if isinstance(op, arith.ConstantOp):
        return np.full(shape_of(op.type), op.value)
    if isinstance(op, tt.Splat):
        return np.full(shape_of(op.type), operands[0])
    if isinstance(op, tt.Broadcast):
        return np.broadcast_to(operands[0], shape_of(op.type))
    if isinstance(op, tt.ExpandDims | tt.Reshape):
        return operands[0].reshape(shape_of(op.result.type))
    if isinstance(op, tt.Trans):
        return operands[0].transpose(op.order)
    if isinstance(op, gpu.ConvertLayout | tt.Hint):
        return operands[0]
    if isinstance(op, tt.AddPtr):
        assert isinstance(element, PtrType)
        return operands[0] + operands[1] * element.pointee.bytes
    if isinstance(op, arith.CmpI):
        name = op.predicate.value
        return _COMPARE[name if op.predicate in (IntPredicate.EQ, IntPredicate.NE) else name[1:]](*operands)
    if isinstance(op, arith.Select):
        return np.where(*operands)
    if isinstance(op, arith.ExtSI | arith.TruncI):
        return _wrapped(operands[0], element)
    exact = _BINARY[type(op)](*operands)
    wrapped = _wrapped(exact, element)
    if isinstance(op, arith.AddI | arith.MulI | arith.ShlI) and np.any(wrapped != exact):
        positive = np.all([np.all(x >= 0) for x in operands])
        if positive:
            raise Overflowed
    return wrapped


def evaluate(func: tt.Func, arguments: Sequence[int]) -> dict[Value, Any]:
    """The numbers of each value of a function without control flow; loads give none."""
    values: dict[Value, Any] = {p: np.asarray(a) for p, a in zip(func.body.parameters, arguments, strict=True)}
    for op in func.body.entry.ops:
        constants = type(op) in _BINARY or isinstance(op, tt.MakeRange | arith.ConstantOp | tt.Splat | tt.Broadcast)
        shaping = isinstance(op, tt.ExpandDims | tt.Reshape | tt.Trans | gpu.ConvertLayout | tt.Hint | tt.AddPtr)
        if constants or shaping or isinstance(op, arith.CmpI | arith.Select | arith.ExtSI | arith.TruncI):
            values[op.result] = apply(op, [values[value] for value in op.operands])
    return values


@pytest.fixture(scope="session")
def numbers() -> Any:
    """`evaluate`, `apply` and `Overflowed`."""

    class Numbers:
        pass

    result: Any = Numbers()
    result.evaluate, result.apply, result.Overflowed = evaluate, apply, Overflowed
    return result
