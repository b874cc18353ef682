"""Building variables, operators, tuples and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ziggurat.codemodel.dialects import core, py, tt
from ziggurat.codemodel.errors import warn
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.types import ConstantType, DescriptorType, TensorType, TupleType, Type, shape_of
from ziggurat.transforms.attribution.attribution import positional_values
from ziggurat.transforms.attribution.expressions import axes_of, becomes_run_time
from ziggurat.transforms.attribution.operators import CALLS, SPECIAL
from ziggurat.transforms.calls import RULES, Rule
from ziggurat.transforms.calls.builtins import BUILTINS
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, in_models, split_operand
from ziggurat.transforms.calls.lattice import RecordType, components, is_aggregate
from ziggurat.transforms.calls.lattice import at_run_time as run_time_type
from ziggurat.transforms.calls.operands import operand_values
from ziggurat.transforms.calls.promotion import NONE
from ziggurat.transforms.mirror.mirror import FunctionMirror, handles
from ziggurat.transforms.mirror.overflow import assert_fits


@handles(core.ConstantOp, core.FuncRef, py.Outer, py.Format)
def nothing(context: FunctionMirror, op: Op) -> Built:
    return None


@handles(py.Attribute)
def attribute(context: FunctionMirror, op: py.Attribute) -> Built:
    return build_attribute(context, op.value, op.name)


def build_attribute(context: FunctionMirror, value: Value, name: str) -> Built:
    """A component of a record; another attribute is a constant."""
    type_ = context.scope.type_of(value)
    index = type_.field(name) if isinstance(type_, RecordType) else None
    if index is not None:
        return split_operand(context.operand(value))[index].value
    result = context.scope.type_of(context.op.result)
    if isinstance(type_, DescriptorType) and isinstance(result, TupleType):
        fact = tt.DescriptorSize if name == "shape" else tt.DescriptorStride
        return tuple(
            context.emit.add(fact(context.operand(value).value, axis)) for axis in range(len(result.components))
        )
    if isinstance(result, ConstantType | TupleType):
        return None
    return build(RULES["trans"], context.emit, result, context.operand(value), ())  # `x.T`


@handles(core.Var)
def var(context: FunctionMirror, op: core.Var) -> Built:
    if op.initial is not None:
        context.variables[op.result] = assigned(context, op.result, op.initial)
    else:
        context.variables.pop(op.result, None)
    return None


@handles(core.VarLoad)
def var_load(context: FunctionMirror, op: core.VarLoad) -> Built:
    return context.variables[op.operands[0]].value


@handles(core.VarStore)
def var_store(context: FunctionMirror, op: core.VarStore) -> Built:
    context.variables[op.operands[0]] = assigned(context, *op.operands)
    return None


def assigned(context: FunctionMirror, var: Value, value: Value) -> Operand:
    """The operand that a variable holds after an assignment."""
    operand = context.operand(value)
    return at_run_time(context, operand) if becomes_run_time(context.emit.language, var, value) else operand


def at_run_time(context: FunctionMirror, operand: Operand) -> Operand:
    """The operand with the numbers in it that are known at compile time as values."""
    type_ = run_time_type(operand.type, context.emit.language)
    if type_ is operand.type:
        return operand
    if isinstance(type_, TupleType):
        return Operand(type_, tuple(at_run_time(context, part).value for part in split_operand(operand)))
    return Operand(type_, context.emit.convert(operand, type_))


@handles(*SPECIAL)
def operator(context: FunctionMirror, op: Op) -> Built:
    if is_aggregate(context.scope.type_of(op.operands[0])) and not isinstance(op, py.Is | py.IsNot):
        return call(context, op)
    result = context.scope.type_of(op.result)
    if isinstance(result, ConstantType):
        return None
    operands = [context.operand(value) for value in op.operands]
    if isinstance(op, py.Pos):
        return operands[0].value
    if isinstance(result, TupleType):  # Tuples that are joined, or repeated.
        if isinstance(op, py.Mul):
            count = expect(context.scope.type_of(op.rhs), ConstantType)
            operands = [operands[0]] * count.value
        return tuple(part.value for operand in operands for part in split_operand(operand))
    if isinstance(op, py.Not):
        is_scalar = not isinstance(result, TensorType)
        inner = context.emit.truth(operands[0]) if is_scalar else context.emit.nonzero(operands[0].value)
        operands = [Operand(result, inner)]
    name = CALLS[type(op)]
    if context.module.checks_overflow and context.emit.language.checks_overflow:
        assert_fits(context.emit, op, result, operands)
    return build(RULES[name], context.emit, result, *operand_values(name, context.emit, operands))


@handles(py.Pack)
def pack(context: FunctionMirror, op: py.Pack) -> Built:
    if isinstance(context.scope.type_of(op.result), ConstantType):
        return None
    return tuple(context.values.get(value) for value in op.operands)


@handles(py.Unpack)
def unpack(context: FunctionMirror, op: py.Unpack) -> Built:
    return split_operand(context.operand(op.value))[op.index].value


@handles(py.Subscript)
def subscript(context: FunctionMirror, op: py.Subscript) -> Built:
    if is_aggregate(context.scope.type_of(op.operands[0])):
        return call(context, op)
    index = expect(context.scope.type_of(op.operands[1]), ConstantType)
    if isinstance(context.scope.type_of(op.result), ConstantType):
        return None
    whole = slice(None) if index.value == (":",) else getattr(index.value, "value", None)
    if isinstance(whole, slice) and components(context.scope.type_of(op.operands[0])) is not None:
        return tuple(part.value for part in split_operand(context.operand(op.operands[0]))[whole])
    if components(context.scope.type_of(op.operands[0])) is None:
        return with_new_axes(context, op, index.value)
    place: int = index.value
    return split_operand(context.operand(op.operands[0]))[place].value


def with_new_axes(context: FunctionMirror, op: py.Subscript, index: Any) -> Value:
    value = context.emit.runtime(context.operand(op.operands[0]))
    for place, item in enumerate(axes_of(index)):
        if item == ":":
            continue
        value = (
            context.emit.add(tt.ExpandDims(value, place)) if shape_of(value.type) else context.emit.spread(value, (1,))
        )
    return value


@handles(py.Invoke)
def invoke(context: FunctionMirror, op: py.Invoke) -> Built:
    result = context.scope.type_of(op.result)
    if isinstance(result, ConstantType) and result != NONE:
        return None
    if op.callee == "builtins.breakpoint":
        if not context.instance.stops:
            warn("breakpoint() is passed over: only the interpreter stops there\n"
                 "  hint: launch with interpret=True, set TRITON_INTERPRET=1 for a Triton program, or use zg.debug",
                 op.location)  # fmt: skip
        return None
    if op.callee == "builtins.getattr":
        value, attribute_name, *default = positional_values(context.scope, op)
        if context.finding(op).static_branch == 1:
            return context.operand(default[0]).value
        return build_attribute(context, value, expect(context.scope.type_of(attribute_name), ConstantType).value)
    space, _, name = op.callee.rpartition(".")
    if space == "builtins":
        options = zip(op.keywords, op.arguments[len(op.arguments) - len(op.keywords) :], strict=True)
        keywords = {keyword: context.operand(value) for keyword, value in options}
        values = map(context.operand, positional_values(context.scope, op))
        return build(BUILTINS[name], context.emit, result, *values, **keywords)
    return call_by_rule(context, op)


@handles(py.Call)
def call_by_rule(context: FunctionMirror, op: Op) -> Built:
    """A call of the language by its rule, or a call of a function."""
    name, rule = context.finding(op).rule or ("", None)
    if rule is None:
        return call(context, op)
    result = context.scope.type_of(op.result)
    if isinstance(result, ConstantType) and result != NONE:
        return None
    if rule.body is not None:
        outcome = call(context, op)
        if not isinstance(outcome, Value):
            return outcome
        return context.emit.convert(Operand(context.callee().result, outcome), result)
    return build(rule, context.emit, result, *operand_values(name, context.emit, list(arguments(context, op))))


def build(rule: Rule, emit: Emitter, result: Type, *operands: Any, **keywords: Any) -> Built:
    """Build a call; nothing for one that is complete after attribution."""
    return None if rule.build is None else rule.build(emit, in_models(result), *operands, **keywords)


def arguments(context: FunctionMirror, op: Op) -> Iterator[Any]:
    """The arguments of a call of the language, in the order of its signature."""
    for argument in (context.finding(op).arguments or {}).values():
        if isinstance(argument, Value):
            yield context.operand(argument)
        elif isinstance(argument, tuple) and argument and all(isinstance(item, Value) for item in argument):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield [context.operand(item) for item in argument]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        else:
            yield argument


@handles(core.FuncCall)
def call(context: FunctionMirror, op: Op) -> Built:
    """Call a function of the model with the run-time parts of the arguments. A constant has none."""
    finding = context.finding(op)
    if finding.callee is None:
        return build_record(context, op, finding.arguments or {})
    callee = context.callee()
    arguments = op.operands if finding.arguments is None else finding.arguments.values()
    values: list[Value] = []
    for argument, type_ in zip(arguments, callee.parameter_types, strict=True):
        if isinstance(argument, Value):
            values += context.emit.repack(context.operand(argument), type_)
    return context.emit.call(callee.symbol, values, callee.result)


def build_record(context: FunctionMirror, op: Op, fields: dict[str, Any]) -> Built:
    """An object of a record, of the values of its fields. Nothing for what the host computed of constants."""
    if not fields:
        return None
    result = expect(context.scope.type_of(op.result), RecordType)
    values = (context.operand(item) if isinstance(item, Value) else Operand(item, None) for item in fields.values())
    typed = zip(values, result.components, strict=True)
    return tuple(
        (operand if operand.type == type_ else at_run_time(context, operand)).value for operand, type_ in typed
    )
