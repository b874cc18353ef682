"""Building variables, operators, tuples and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, Type, i1
from ziggurat.transforms.attribution.operators import OPERATORS
from ziggurat.transforms.calls import RULES, Rule
from ziggurat.transforms.calls.builtins import BUILTINS
from ziggurat.transforms.calls.c import C_RULES
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, split_operand
from ziggurat.transforms.calls.promotion import NONE
from ziggurat.transforms.mirror.mirror import FunctionMirror, handles


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


@handles(*OPERATORS)
def operator(walk: FunctionMirror, op: Op) -> Built:
    result = walk.scope.type_of(op.result)
    if isinstance(result, ConstantType):
        return None
    operands = [walk.operand(value) for value in op.operands]
    if isinstance(op, py.Pos):
        return operands[0].value
    if isinstance(op, py.Not):
        operands = [Operand(i1, walk.emit.truth(operands[0]))]
    call = OPERATORS[type(op)].call
    assert call is not None
    return built(RULES[call], walk.emit, result, *operands)


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
        return built(BUILTINS[name], walk.emit, result, *map(walk.operand, op.operands))
    rule = C_RULES[name] if space == "c" else RULES[name if space == "zg" else f"{name}_tensor_descriptor"]
    if rule.body is not None:
        made = call(walk, op)
        return walk.emit.convert(Operand(walk.callee().result, made), result) if isinstance(made, Value) else made
    return built(rule, walk.emit, result, *arguments(walk, op))


def built(rule: Rule, emit: Emitter, result: Type, *operands: Any) -> Built:
    """Build a call; nothing for one that is complete after attribution."""
    return None if rule.build is None else rule.build(emit, result, *operands)


def arguments(walk: FunctionMirror, op: Op) -> Iterator[Any]:
    """The arguments of a call of the language, in the order of its signature."""
    for given in walk.found(lambda scope: scope.arguments, op).values():
        if isinstance(given, Value):
            yield walk.operand(given)
        elif isinstance(given, tuple) and given and all(isinstance(item, Value) for item in given):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield [walk.operand(item) for item in given]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        else:
            yield given


@handles(core.FuncCall, py.Call)
def call(walk: FunctionMirror, op: Op) -> Built:
    """Call a function of the model with the run-time parts of the arguments. A constant has none."""
    bound = walk.finding(lambda scope: scope.arguments, op)
    callee = walk.callee()
    values: list[Value] = []
    for given, type_ in zip(op.operands if bound is None else bound.values(), callee.parameter_types, strict=True):
        if isinstance(given, Value):
            values += walk.emit.repack(walk.operand(given), type_)
    return walk.emit.call(callee.symbol, values, callee.result)
