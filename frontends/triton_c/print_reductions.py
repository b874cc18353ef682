"""Triton-C text of reductions, scans, calls of functions, and Tuples.

A function of the model that only reduces its parameter has a form of its own, such as `x[:, +]`, and is not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.op import Body, Op, OpResult, Value
from ziggurat.codemodel.types import TupleType, Type, scalar_element, shape_of, void
from ziggurat.frontends.triton_c.function_printer import Printer, inexpressible, prints

# Reductions by the op that combines two elements.
_REDUCTIONS: Final[dict[type[Op], str]] = {
    arith.AddF: "+", arith.AddI: "+", arith.MaxNumF: "max", arith.MaxSI: "max", arith.MaxUI: "max",
    arith.MinNumF: "min", arith.MinSI: "min", arith.MinUI: "min",
}  # fmt: skip
_SCANS: Final[dict[type[Op], str]] = {
    arith.AddF: "cumsum", arith.AddI: "cumsum", arith.MulF: "cumprod", arith.MulI: "cumprod",
    arith.MaxNumF: "cummax", arith.MaxSI: "cummax", arith.MaxUI: "cummax", arith.MinNumF: "cummin",
    arith.MinSI: "cummin", arith.MinUI: "cummin",
}  # fmt: skip
# Reductions to a value and its index, by the name of the function that combines them.
_EXTREMES: Final = {
    "argmax": "max({}, {}, true)", "argmin": "min({}, {}, true)",
    "argmax_any": "max({}, {}, true, false)", "argmin_any": "min({}, {}, true, false)",
}  # fmt: skip
_WIDENED_BELOW = 32  # Sums of narrower integers give wider ones.


# The symbol of a function is its name, the types of its arguments and its result.
_TYPES = re.compile(
    r"_(?:ptr<|tensor<|Tuple<|descriptor<|[iuf]\d+(?![0-9A-Za-z])|bf16|f8e|void$|-?\d|\(|None|True|False).*", re.DOTALL
)


def bare_name(symbol: str) -> str:
    """The name in a symbol."""
    return re.sub(r"\W", "_", _TYPES.sub("", symbol)) or "f"


# Tuples.


@prints(core.TupleLoad)
def _component(p: Printer, op: core.TupleLoad) -> None:
    names = p.values[op.tuple]
    assert isinstance(names, list)
    p.values[op.result] = names[op.index]


@prints(core.MakeTuple)
def _tuple(p: Printer, op: core.MakeTuple) -> None:
    p.values[op.result] = [p[value] for value in op.components]


# Reductions.


def _combined(body: Body, functions: Mapping[str, Any]) -> type[Op] | None:
    """The op that a combining body is, itself or by one call; None for any other body."""
    ops = body.entry.ops
    while len(ops) == 2 and isinstance(ops[0], tt.Call) and ops[0].callee in functions:
        if [*ops[0].operands] != [*body.parameters]:
            return None
        body = functions[ops[0].callee].body
        ops = body.entry.ops
    return type(ops[0]) if len(ops) == 2 and [*ops[0].operands] == [*body.parameters] else None


def special(function: tt.Func, functions: Mapping[str, Any]) -> Callable[[str], str] | None:
    """The form of a function that only reduces or scans its parameter; None for any other function."""
    ops = function.body.entry.ops
    if len(ops) != 2 or not isinstance(ops[0], tt.Reduce | tt.Scan) or len(ops[0].values) != 1:
        return None
    return form_of(ops[0], functions) if [*ops[1].operands] == [ops[0].result] else None


def form_of(op: tt.Reduce | tt.Scan, functions: Mapping[str, Any]) -> Callable[[str], str] | None:
    """The form of a reduction or a scan that C expresses without a function; None for any other one."""
    combined = _combined(op.combine, functions)
    if len(op.values) != 1 or combined is None:
        return None
    element, rank = scalar_element(op.values[0].type), len(shape_of(op.values[0].type))
    if element.bits < _WIDENED_BELOW and combined in (arith.AddF, arith.AddI, arith.MulF, arith.MulI):
        return None
    if isinstance(op, tt.Scan):
        name = _SCANS.get(combined)
        reverse = ", true" if op.reverse else ""
        return None if name is None else lambda x: f"{name}({x}, {op.axis}{reverse})"
    sign = _REDUCTIONS.get(combined)
    if sign is None:
        return None
    indices = ", ".join(sign if axis == op.axis else ":" for axis in range(rank))
    return lambda x: f"{x}[{indices}]"


def extreme(function: tt.Func) -> tuple[str, int] | None:
    """The call and the axis of a function that only finds the greatest or least element and its index."""
    ops = function.body.entry.ops
    reduce = ops[0]
    if not isinstance(reduce, tt.Reduce) or [*reduce.values] != [*function.body.parameters] or len(reduce.values) != 2:
        return None
    combined = reduce.combine.entry.ops[0]
    name = bare_name(combined.callee) if isinstance(combined, tt.Call) else ""
    return (_EXTREMES[name], reduce.axis) if name in _EXTREMES else None


def _is_index(value: Value, axis: int) -> bool:
    """Whether a tensor has the index along an axis as its elements."""
    size = shape_of(value.type)[axis]
    while isinstance(value, OpResult) and isinstance(value.op, tt.Broadcast | tt.ExpandDims):
        value = value.op.operands[0]
    op = value.op if isinstance(value, OpResult) else None
    return isinstance(op, tt.MakeRange) and (op.start, op.end) == (0, size)


@prints(tt.Call)
def _called(p: Printer, op: tt.Call) -> str | None:
    functions = p.module.functions
    function = functions[op.callee]
    found = extreme(function)
    if found is not None:
        call, axis = found
        if not _is_index(op.arguments[1], axis):
            raise inexpressible(op, "a reduction of several tensors together")
        call = call.format(p[op.arguments[0]], axis)
        types = types_of(op.result.type)
        p.values[op.result] = [p.declare(type_, f"{call}[{index}]", op) for index, type_ in enumerate(types)]
        return None
    form = special(function, functions)
    if form is not None:
        return form(p[op.arguments[0]])
    if isinstance(op.result.type, TupleType):  # Its statements stand here, because C gives one result.
        for parameter, argument in zip(function.body.parameters, op.arguments, strict=True):
            p.values[parameter] = p.values[argument]
        p.values[op.result] = [p[value] for value in p.statements(function.body)]
        return None
    return f"{p.module.names[op.callee]}({p.arguments(*op.arguments)})"


@prints(tt.Reduce, tt.Scan)
def _reduced(p: Printer, op: tt.Reduce | tt.Scan) -> str:
    form = form_of(op, p.module.functions)
    if form is not None:
        return form(p[op.values[0]])
    if len(op.values) != 1:
        raise inexpressible(op, "several tensors together")
    name = p.module.fresh("combine")
    p.module.written.append(Printer(p.module).function(op, op.combine, name))
    if isinstance(op, tt.Scan):
        return f"associative_scan({p[op.values[0]]}, {op.axis}, {name}{', true' if op.reverse else ''})"
    return f"reduce({p[op.values[0]]}, {op.axis}, {name})"


def types_of(type_: Type) -> Sequence[Type]:
    """The types of the results of an op whose result has this type."""
    return () if type_ == void else type_.components if isinstance(type_, TupleType) else (type_,)
