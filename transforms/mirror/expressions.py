"""Building variables, operators, tuples and calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, Type, i1
from ziggurat.transforms.attribution.attribution import Attribution
from ziggurat.transforms.attribution.operators import COMPARISONS, OPERATORS
from ziggurat.transforms.attribution.promotion import NONE
from ziggurat.transforms.mirror.emit import Built, Operand, split_operand
from ziggurat.transforms.mirror.walk import FunctionMirror, handles


@handles(core.ConstantOp, core.FuncRef, py.Attribute)
def nothing(walk: FunctionMirror, op: Op) -> Built:
    return None


@handles(core.Var)
def var(walk: FunctionMirror, op: core.Var) -> Built:
    if op.initial is not None:
        walk.variables[op.result] = walk.operand(op.initial)
    else:
        walk.variables.pop(op.result, None)
    return None


@handles(core.VarLoad)
def var_load(walk: FunctionMirror, op: core.VarLoad) -> Built:
    return walk.variables[op.operands[0]].value


@handles(core.VarStore)
def var_store(walk: FunctionMirror, op: core.VarStore) -> Built:
    walk.variables[op.operands[0]] = walk.operand(op.operands[1])
    return None


@handles(*OPERATORS, *COMPARISONS, py.Is, py.IsNot, py.In, py.NotIn, py.Not, py.Pos)
def operator(walk: FunctionMirror, op: Op) -> Built:
    result = walk.scope.type_of(op.result)
    if isinstance(result, ConstantType):
        return None
    operands = [walk.operand(value) for value in op.operands]
    if isinstance(op, py.Not):
        return walk.calls.invert(i1, Operand(i1, walk.emit.truth(operands[0])))
    if isinstance(op, py.Pos):
        return operands[0].value
    comparison = COMPARISONS.get(type(op))
    if comparison is not None:
        return walk.calls.comparison(comparison, result, *operands)
    return getattr(walk.calls, OPERATORS[type(op)])(result, *operands)


@handles(py.Pack)
def pack(walk: FunctionMirror, op: py.Pack) -> Built:
    if isinstance(walk.scope.type_of(op.result), ConstantType):
        return None
    return tuple(walk.values.get(value) for value in op.operands)


@handles(py.Unpack)
def unpack(walk: FunctionMirror, op: py.Unpack) -> Built:
    return split_operand(walk.operand(op.value))[op.index].value


@handles(py.Subscript)
def subscript(walk: FunctionMirror, op: py.Subscript) -> Built:
    index = walk.scope.type_of(op.operands[1])
    assert isinstance(index, ConstantType)
    place: int = index.value
    return split_operand(walk.operand(op.operands[0]))[place].value


@handles(py.Invoke)
def invoke(walk: FunctionMirror, op: py.Invoke) -> Built:
    result = walk.scope.type_of(op.result)
    if isinstance(result, ConstantType) and result != NONE:
        return None
    space, _, name = op.callee.rpartition(".")
    if space == "builtins":
        return builtin(walk, op, name, result)
    if space != "zg":
        name = f"{name}_tensor_descriptor"
    method = getattr(walk.calls, name, None)
    if method is None:
        # What the language itself is written in; or nothing, as zg.static_assert, which is done with.
        return library_call(walk, op, walk.callee_of(op)) if walk.finding("callees", op) is not None else None
    return method(result, *arguments(walk, op))


def arguments(walk: FunctionMirror, op: Op) -> Iterator[Any]:
    """The arguments of a call of the language, in the order of its signature."""
    for given in walk.finding("bound", op).values():
        if isinstance(given, Value):
            yield walk.operand(given)
        elif isinstance(given, tuple) and given and all(isinstance(item, Value) for item in given):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield [walk.operand(item) for item in given]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        else:
            yield given


def builtin(walk: FunctionMirror, op: py.Invoke, name: str, result: Type) -> Built:
    operands = [walk.operand(value) for value in op.operands]
    if name in ("min", "max"):
        made = operands[0]
        rule = walk.calls.minimum if name == "min" else walk.calls.maximum
        for operand in operands[1:]:
            made = Operand(result, rule(result, made, operand))
        return made.value
    if name == "abs":
        return walk.calls.abs(result, operands[0])
    if name in ("int", "float", "bool"):
        return walk.emit.convert(operands[0], result)
    return None


def library_call(walk: FunctionMirror, op: Op, callee: Attribution) -> Built:
    given = list(walk.finding("bound", op).values())
    operands = [walk.operand(value) if isinstance(value, Value) else Operand(NONE, None) for value in given]
    return call(walk, callee, operands)


def call(walk: FunctionMirror, callee: Attribution, operands: Sequence[Operand]) -> Built:
    """Call a function of the model with the run-time parts of the operands."""
    values: list[Value] = []
    for operand, type_ in zip(operands, callee.parameter_types, strict=True):
        values.extend(walk.emit.repack(operand, type_))
    return walk.emit.call(callee.symbol, values, callee.result)


@handles(core.FuncCall)
def function_call(walk: FunctionMirror, op: core.FuncCall) -> Built:
    return call(walk, walk.callee_of(op), [walk.operand(value) for value in op.operands])


@handles(py.Call)
def call_value(walk: FunctionMirror, op: py.Call) -> Built:
    given = walk.finding("bound", op).values()
    operands = [walk.operand(item) if isinstance(item, Value) else Operand(item, None) for item in given]
    return call(walk, walk.callee_of(op), operands)
