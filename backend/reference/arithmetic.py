"""Elementwise ops on the interpreter's arrays, computed by `codemodel/scalars.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.memory import real_addresses
from ziggurat.backend.reference.values import Array, is_array, over
from ziggurat.codemodel import scalars
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, TensorType, element_of, scalar_element


@triton.of(arith.ConstantOp)
def _constant(machine: Machine, op: arith.ConstantOp, operands: Sequence[Array]) -> Array:
    rank = op.type.rank if isinstance(op.type, TensorType) else 0
    return over(scalars.array_of(op.value, scalar_element(op.type)), rank)


@triton.of(arith.Elementwise, arith.CmpF, arith.Cast)
def _elementwise(machine: Machine, op: Op, operands: Sequence[Array]) -> Array:
    if isinstance(op, arith.DivSI | arith.DivUI | arith.RemSI | arith.RemUI) and not operands[1].all():
        divisor = operands[1]
        place = int(np.argwhere(divisor == 0)[0][0]) if divisor.shape[0] > 1 else 0
        raise KernelRuntimeError(f"{machine.program(place)} divides by zero")
    return scalars.MEANINGS[op](op, *operands)


@triton.of(arith.CmpI)
def _compare(machine: Machine, op: arith.CmpI, operands: Sequence[Array]) -> Array:
    if isinstance(element_of(op.lhs.type), PtrType):
        operands = [real_addresses(pointers) for pointers in operands]
    return scalars.MEANINGS[op](op, *operands)


@triton.of(arith.Select)
def _select(machine: Machine, op: arith.Select, operands: Sequence[Any]) -> Any:
    condition, then, otherwise = operands
    if condition.ndim == 1:
        if condition.shape[0] == 1:
            return then if condition[0] else otherwise
        if is_array(then):
            condition = over(condition, then.ndim - 1)
    return np.where(condition, then, otherwise)
