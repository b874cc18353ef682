"""Python's operators and the calls of the language that they stand for."""

from __future__ import annotations

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import TensorType

# The call that an operator on scalars means, by the op of the Python model.
OPERATORS: dict[type[Op], str] = {
    py.Add: "add",
    py.Sub: "sub",
    py.Mul: "mul",
    py.Div: "div",
    py.FloorDiv: "floordiv",
    py.Mod: "mod",
    py.Pow: "pow",
    py.And: "and_",
    py.Or: "or_",
    py.Xor: "xor",
    py.Shl: "shl",
    py.Shr: "shr",
    py.Neg: "neg",
    py.Invert: "invert",
}

COMPARISONS: dict[type[Op], str] = {py.Eq: "eq", py.Ne: "ne", py.Lt: "lt", py.Le: "le", py.Gt: "gt", py.Ge: "ge"}

_KINDS = {
    "eq": "EQUAL",
    "ne": "NOT_EQUAL",
    "lt": "LESS_THAN",
    "le": "LESS_THAN_OR_EQUAL",
    "gt": "GREATER_THAN",
    "ge": "GREATER_THAN_OR_EQUAL",
}

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "neg": "-", "pos": "+", "invert": "~", "not": "not", "is": "is", "is_not": "is not", "in": "in", "not_in": "not in",
}  # fmt: skip


def operator_error(op: Op, type_: TensorType) -> KernelTypeError:
    """The error of an operator on a tensor; its hint names the call to use."""
    symbol = _SYMBOLS[op.NAME]
    comparison = COMPARISONS.get(type(op))
    call = OPERATORS.get(type(op))
    if comparison is not None:
        hint = f"use zg.compare(a, b, zg.CompareKind.{_KINDS[comparison]})"
    elif isinstance(op, py.Not):
        hint = "use zg.invert(x)"
    elif call == "pow":
        hint = "use zg.mul, or zg.exp2(zg.mul(b, zg.log2(a)))"
    elif call is not None:
        hint = f"use zg.{call}({'x' if len(op.operands) == 1 else 'a, b'})"
    elif isinstance(op, py.Pos):
        hint = "leave it out"
    else:
        hint = "it is for what is known at compile time; use zg.compare"
    return KernelTypeError(f"the operator '{symbol}' does not work on tensors, here {type_}", hint=hint)
