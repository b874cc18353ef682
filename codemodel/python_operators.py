"""Python's operators: each op with its sign, its class in a syntax tree, and the function that computes it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

import attrs

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.dialects.py_objects import MatMul
from ziggurat.codemodel.op import Op


@attrs.frozen
class PythonOperator:
    """An operator of Python."""

    sign: str
    syntax: type[Any]
    function: Callable[..., Any]

    @property
    def stem(self) -> str:
        """The name of the method that the operator calls, without underscores: "add"."""
        return self.function.__name__.rstrip("_")


def _contains(item: Any, container: Any) -> bool:
    return item in container


def _lacks(item: Any, container: Any) -> bool:
    return item not in container


_PYTHON: Any = operator  # The stubs of `operator` leave types unknown.
_ROWS: Final[dict[type[Op], tuple[str, Any, Callable[..., Any]]]] = {
    py.Add: ("+", ast.Add, _PYTHON.add), py.Sub: ("-", ast.Sub, _PYTHON.sub), py.Mul: ("*", ast.Mult, _PYTHON.mul),
    py.Div: ("/", ast.Div, _PYTHON.truediv), py.FloorDiv: ("//", ast.FloorDiv, _PYTHON.floordiv),
    py.Mod: ("%", ast.Mod, _PYTHON.mod), py.Pow: ("**", ast.Pow, _PYTHON.pow), py.And: ("&", ast.BitAnd, _PYTHON.and_),
    py.Or: ("|", ast.BitOr, _PYTHON.or_), py.Xor: ("^", ast.BitXor, _PYTHON.xor),
    py.Shl: ("<<", ast.LShift, _PYTHON.lshift), py.Shr: (">>", ast.RShift, _PYTHON.rshift),
    MatMul: ("@", ast.MatMult, _PYTHON.matmul), py.Eq: ("==", ast.Eq, _PYTHON.eq), py.Ne: ("!=", ast.NotEq, _PYTHON.ne),
    py.Lt: ("<", ast.Lt, _PYTHON.lt), py.Le: ("<=", ast.LtE, _PYTHON.le), py.Gt: (">", ast.Gt, _PYTHON.gt),
    py.Ge: (">=", ast.GtE, _PYTHON.ge), py.Is: ("is", ast.Is, _PYTHON.is_),
    py.IsNot: ("is not", ast.IsNot, _PYTHON.is_not), py.In: ("in", ast.In, _contains),
    py.NotIn: ("not in", ast.NotIn, _lacks), py.Neg: ("-", ast.USub, _PYTHON.neg), py.Pos: ("+", ast.UAdd, _PYTHON.pos),
    py.Invert: ("~", ast.Invert, _PYTHON.invert),
    py.Not: ("not", ast.Not, _PYTHON.not_),
}  # fmt: skip
OPERATORS: Final = {cls: PythonOperator(*row) for cls, row in _ROWS.items()}
# Of two operands, by their signs.
BY_SIGN: Final = {row.sign: row for cls, row in OPERATORS.items() if issubclass(cls, py.BinaryExpression)}
