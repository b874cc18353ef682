"""The issue slots that an op takes for an element."""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as functions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import PtrType, ScalarType, Type, element_of
from ziggurat.transforms.analysis.queries import constant_of

# What an SM of any target does in a cycle (CUDA programming guide, "Arithmetic Instructions").
ISSUES = 4  # Instructions of warps: one for each scheduler.
FUNCTIONS = 16  # Elements in the units for exp2, log2, 1/x and so on (MUFU).

DIVISIONS = (arith.DivSI, arith.RemSI, arith.DivUI, arith.RemUI)
# Issue slots, and among them those of the MUFU, for each element of 32 bits.
_SLOTS: dict[type[Op], tuple[float, float]] = {
    arith.NegF: (0, 0), functions.AbsF: (0, 0), arith.Bitcast: (0, 0), tt.Bitcast: (0, 0), tt.IntToPtr: (0, 0),
    tt.PtrToInt: (0, 0), tt.Hint: (0, 0), functions.Exp: (2, 1), functions.Exp2: (1, 1), functions.Log: (5, 1),
    functions.Log2: (4, 1), functions.Sqrt: (4, 1), functions.Rsqrt: (4, 1), tt.PreciseSqrt: (9, 1), arith.DivF: (8, 1),
    tt.PreciseDivF: (9, 1), arith.RemF: (40, 1), functions.Sin: (30, 0), functions.Cos: (30, 0),
    functions.Approximate: (2, 1), functions.Tanh: (20, 2), functions.Erf: (30, 1),
    arith.MaximumF: (2, 0), arith.MinimumF: (2, 0),
    **dict.fromkeys(DIVISIONS, (16, 1)),
}  # fmt: skip


def slots_of(op: Op) -> tuple[float, float]:
    """The issue slots for an element, and among them those of the MUFU."""
    issued, mufu = next((_SLOTS[base] for base in type(op).__mro__ if base in _SLOTS), (1, 0))
    widths = [bits_of_element(value.type) for value in op.operands]
    element = element_of(op.result.type)
    if isinstance(op, DIVISIONS) and _is_power(op.rhs):
        return 2, 0
    if isinstance(op, arith.TruncF) and bits_of_element(op.result.type) < 32:
        return issued / 2, mufu  # A conversion makes a pair.
    if isinstance(element, ScalarType) and element.is_float and element.bits == 16 and set(widths) == {16} and not mufu:
        return issued / 2, mufu
    return (2 * issued if 64 in widths and not (isinstance(element, ScalarType) and element.is_float) else issued), mufu


def _is_power(value: Value) -> bool:
    number = constant_of(value)
    return isinstance(number, int) and number > 0 and number & (number - 1) == 0


def bits_of_element(type_: Type) -> int:
    """The bits of an element of a tensor, or of a scalar."""
    element = element_of(type_)
    return 64 if isinstance(element, PtrType) else element.bits if isinstance(element, ScalarType) else 32
