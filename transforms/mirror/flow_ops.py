"""Building control flow. The attribution's joins have the variables that branches and loops carry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ziggurat.codemodel.dialects import arith, core, py, scf, tt
from ziggurat.codemodel.errors import warn
from ziggurat.codemodel.messages import call_text, say
from ziggurat.codemodel.op import Body, Op, Value, expect
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import ConstantType, DescriptorType, ScalarType, TensorType, TupleType, Type, i1, pyobject
from ziggurat.transforms.attribution.attribute import is_flag, is_result
from ziggurat.transforms.attribution.attribution import Scope
from ziggurat.transforms.attribution.flow import flag_of, index_type, known_truth, operands_of, range_call
from ziggurat.transforms.attribution.operators import COMPARISONS
from ziggurat.transforms.calls.emit import (
    VALUELESS,
    Built,
    Emitter,
    Operand,
    flatten_types,
    rebuild,
    split_operand,
)
from ziggurat.transforms.calls.lattice import BlockPtrType, ErrorType, RangeType, Split, Unusable, components
from ziggurat.transforms.calls.promotion import NONE, constant
from ziggurat.transforms.mirror.mirror import FunctionMirror, handles

# The values of flags that a place in the model implies, beside those that attribution knows.
Flags = Mapping[Value, bool]


class JoinedVariables:
    """The variables that control flow joins, by their joined types."""

    def __init__(self, context: FunctionMirror, joins: Mapping[Value, Type]) -> None:
        self.context = context
        result = context.instance.result
        self.joins = {var: result if is_result(var) else type_ for var, type_ in joins.items()}
        # A flag is an i1, whatever it depends on.
        depends = [var for var, type_ in self.joins.items() if is_flag(var) and isinstance(type_, Split)]
        self.inner = {**self.joins, **dict.fromkeys(depends, i1)}
        self.types = [part for type_ in self.inner.values() for part in flatten_types(type_)]

    def values(self) -> list[Value]:
        """The run-time values of the variables, brought to the joined types."""
        variables = self.context.variables
        return [v for var, type_ in self.inner.items() for v in values_as(self.context, variables.get(var), type_, {})]

    def enter(self, values: Sequence[Value]) -> None:
        """Give the variables these values. Those that must not be read lose theirs."""
        rest = list(values)
        for var, type_ in self.joins.items():
            if isinstance(type_, Unusable | ErrorType):
                self.context.variables.pop(var, None)
            else:
                self.context.variables[var] = Operand(type_, rebuild(self.inner[var], rest))


def possible(context: FunctionMirror, flags: Flags) -> bool:
    """Whether flags may have these values here."""
    for flag, value in flags.items():
        type_ = context.variables[flag].type
        while isinstance(type_, Split) and type_.flag in flags:
            type_ = type_.components[flags[type_.flag]]
        if isinstance(type_, ConstantType) and type_.value != value:
            return False
    return True


def values_as(context: FunctionMirror, operand: Operand | None, type_: Type, flags: Flags) -> list[Value]:
    """The components of a variable, brought to a type; placeholders where it has no value."""
    if isinstance(type_, VALUELESS):
        return []
    if isinstance(type_, Split):
        values: list[Value] = []
        for value, part in enumerate(type_.components):
            case = {**flags, type_.flag: bool(value)}
            is_read = possible(context, case) or (operand is not None and operand.type == part)
            values += values_as(context, operand if is_read else None, part, case)
        return values
    if operand is not None and isinstance(operand.type, Split) and isinstance(operand.value, tuple):
        flag, parts = operand.type.flag, list[Callable[[], list[Value]]]()
        for value, part in enumerate(split_operand(operand)):
            case = {**flags, flag: bool(value)}
            is_read = not isinstance(part.type, Unusable | ErrorType) and flags.get(flag, value) == value
            if is_read and possible(context, case):
                parts.insert(0, lambda part=part, case=case: values_as(context, part, type_, case))
        if parts:
            is_one = len(parts) == 1
            return parts[0]() if is_one else select(context, context.variables[flag].value, parts, flatten_types(type_))
        operand = None
    if operand is None or isinstance(operand.type, Unusable | ErrorType) or (operand.type == NONE != type_):
        return [context.emit.placeholder(part) for part in flatten_types(type_)]
    return context.emit.repack(operand, type_)


def select(
    context: FunctionMirror, condition: Value, parts: Sequence[Callable[[], list[Value]]], types: Sequence[Type]
) -> list[Value]:
    """The values of the first part where the condition holds, and of the second where not. They may be computed."""
    if any(isinstance(type_, DescriptorType) for type_ in types):
        return branch(context, condition, parts, types)
    pairs = zip(*(part() for part in parts), strict=True)
    return [yes if yes is no else context.emit.add(arith.Select(condition, yes, no)) for yes, no in pairs]


def assume(context: FunctionMirror, flag: Value | None, value: bool) -> None:
    """Let the variables that depend on a flag have the values that they have where the flag has this value."""
    for var, operand in list(context.variables.items()):
        if isinstance(operand.type, Split) and operand.type.flag is flag:
            component = operand.value if is_flag(var) else operand.value[value]
            context.variables[var] = Operand(operand.type.components[value], component)
    if flag is not None:
        context.variables[flag] = Operand(constant(value), None)


@handles(core.Func)
def function(context: FunctionMirror, op: core.Func) -> Built:
    """Build the function: its parameters, and the ops of its body."""
    parameters: list[Value] = list(context.emit.builder.parameters)
    for parameter, type_ in zip(op.body.parameters, context.instance.parameter_types, strict=True):
        if isinstance(type_, ConstantType):
            # A constant parameter is a constant at the entry; an unused one is removed later.
            has_form = type_.type != pyobject
            context.values[parameter] = context.emit.constant(type_.value, type_.type) if has_form else None
        else:
            context.values[parameter] = rebuild(type_, parameters)
    *ops, end = op.body.entry.ops
    context.suite(ops)
    value = end.operands[0] if end.operands else None
    load = None if value is None else value.op
    if isinstance(load, core.VarLoad) and is_result(load.var):
        operand = context.variables.get(load.var)
    else:
        operand = None if value is None else context.operand(value)
    context.emit.builder.location = end.location
    context.emit.add(tt.Return(values_as(context, operand, context.instance.result, {})))
    return None


def body_of(context: FunctionMirror, types: Sequence[Type], result: Type, part: Callable[[list[Value]], Op]) -> Body:
    """A body with parameters of these types. `part` builds into it and gives its terminator.

    Assignments to variables in it end with it.
    """
    inner = context.emit.builder.nested(types, result)
    before = dict(context.variables)
    inner.location = context.emit.builder.location
    outer, context.emit = context.emit, Emitter(inner, context, context.emit.language)
    context.emit.add(part(list(inner.parameters)))
    context.emit, context.variables = outer, before
    return inner.finish()


def branch(
    context: FunctionMirror, condition: Value, parts: Sequence[Callable[[], list[Value]]], types: Sequence[Type]
) -> list[Value]:
    """The results of an `scf.if` whose bodies yield what the parts give, of these types."""
    bodies = (body_of(context, [], packed(types), lambda _, p=part: scf.Yield(p())) for part in parts)
    return context.emit.parts(context.emit.add(scf.If(condition, *bodies)), len(types))


@handles(py.If)
def if_(context: FunctionMirror, op: py.If) -> Built:
    index = context.finding(op).static_branch
    if index is not None:
        context.suite(op.bodies[index].entry.ops)
        return None
    condition, flag = context.emit.truth(context.operand(op.condition)), flag_of(op.condition)
    variables = JoinedVariables(context, context.finding(op).joins)

    def suite(body: Body, value: bool) -> list[Value]:
        assume(context, flag, value)
        context.suite(body.entry.ops)
        return variables.values()

    parts = [
        lambda body=body, value=value: suite(body, value) for body, value in zip(op.bodies, (True, False), strict=True)
    ]
    variables.enter(branch(context, condition, parts, variables.types))
    return None


@handles(py.For)
def for_(context: FunctionMirror, op: py.For) -> Built:
    unrolled = context.finding(op).iterations
    if unrolled is not None:
        unroll(context, op, unrolled)
        return None
    range_ = expect(context.finding(op).range, RangeType)
    index = index_type(range_)
    start, stop, step = bounds(context, op, range_, index)
    joins = context.finding(op).joins
    if op.flag in joins:
        ignored = [name for name, value in range_.options if value]
        if ignored:
            text = say("a loop with a break ignores the options of {}: {}", call_text("range"), ", ".join(ignored))
            warn(text.in_words(context.emit.language.words), op.location)
        counted_with_break(context, op, range_.step, start, stop, step)
        return None
    variables = JoinedVariables(context, joins)
    initial = variables.values()

    def suite(parameters: list[Value]) -> Op:
        context.values[op.suite.parameters[0]] = parameters.pop(0)
        variables.enter(parameters)
        context.suite(op.suite.entry.ops)
        return scf.Yield(variables.values())

    body = body_of(context, [index, *variables.types], packed(variables.types), suite)
    context.emit.builder.location = op.location
    scf_loop = context.emit.add(scf.For(start, stop, step, initial, body, **dict[str, Any](range_.options)))
    variables.enter(context.emit.parts(scf_loop, len(variables.types)))
    return None


def bounds(context: FunctionMirror, op: py.For, range_: RangeType, index: Type) -> list[Value]:
    """Start, stop and step of a loop. A constant start stands before the ops that compute the others."""
    ops, call = range_call(op.iterable, context.finding)
    arguments = context.finding(call).arguments
    values: list[Any] = list(call.operands if arguments is None else arguments.values())[:3]
    values += [None] * (3 - len(values))
    if values[1] is None:
        values = [None, values[0], values[2]]

    def bound(type_: Type, value: Value | None) -> Value:
        return context.emit.convert(Operand(type_, None if value is None else context.values.get(value)), index)

    constant_start = bound(range_.start, values[0]) if isinstance(range_.start, ConstantType) else None
    context.suite(ops)
    start = bound(range_.start, values[0]) if constant_start is None else constant_start
    return [start, bound(range_.stop, values[1]), bound(range_.step, values[2])]


def unroll(context: FunctionMirror, op: py.For, iterations: Sequence[tuple[Type, Scope]]) -> None:
    context.suite(op.iterable.entry.ops)
    value = context.values.get(op.iterable.entry.terminator.operands[0])
    # The components of a tuple; numbers need no value.
    items = value if isinstance(value, tuple) else (None,) * len(iterations)
    around = context.scope
    for (_, scope), item in zip(iterations, items, strict=False):
        context.scope = scope
        context.values[op.suite.parameters[0]] = item
        context.suite(op.suite.entry.ops)
    context.scope = around
    after = JoinedVariables(context, context.finding(op).joins)
    after.enter(after.values())


def while_loop(
    context: FunctionMirror,
    op: py.For | py.While,
    heads: Sequence[Value],
    more: Callable[[Sequence[Value]], Value],
    advance: Callable[[Sequence[Value]], Sequence[Value]],
) -> None:
    """A loop as an `scf.while`, which carries `heads` and the variables.

    `more` gives the condition. `advance` is called at the start of an iteration for the heads of the next one.
    """
    joins = context.finding(op).joins
    variables, count = JoinedVariables(context, joins), len(heads)

    def condition(parameters: list[Value]) -> Op:
        variables.enter(parameters[count:])
        return scf.Condition(more(parameters[:count]), parameters)

    def suite(parameters: list[Value]) -> Op:
        variables.enter(parameters[count:])
        assume(context, op.flag, True)
        following = advance(parameters[:count])
        context.suite(op.suite.entry.ops)
        return scf.Yield([*following, *variables.values()])

    initial = [*heads, *variables.values()]
    types = [value.type for value in initial]
    bodies = [body_of(context, types, packed(types), part) for part in (condition, suite)]
    results = context.emit.parts(context.emit.add(scf.While(initial, *bodies)), len(types))
    variables.enter(results[count:])
    # The variables now have the types that they have after a `break`.
    changed = {
        var: type_.components[0] for var, type_ in joins.items() if isinstance(type_, Split) and type_.flag is op.flag
    }
    after = JoinedVariables(context, changed)
    after.enter(after.values())


@handles(py.While)
def while_(context: FunctionMirror, op: py.While) -> None:
    """The condition is not computed after a `break`."""
    if context.finding(op).static_branch is not None:
        return

    def test() -> list[Value]:
        assume(context, op.flag, True)
        return [context.emit.truth(expression(context, op.condition))]

    def more(_: Sequence[Value]) -> Value:
        going = None if op.flag is None else context.variables[op.flag].value
        if going is None:
            return test()[0]
        if isinstance(context.scope.type_of(op.condition.entry.terminator.operands[0]), ConstantType):
            return going
        return branch(context, going, [test, lambda: [context.emit.constant(False, i1)]], [i1])[0]

    while_loop(context, op, (), more, lambda _: ())


def counted_with_break(
    context: FunctionMirror, op: py.For, step_type: Type, start: Value, stop: Value, step: Value
) -> None:
    """A `for` over numbers, as a `while` that carries the index."""
    index = start.type
    number = step_type.value if isinstance(step_type, ConstantType) else None
    signed = isinstance(index, ScalarType) and index.signed
    less, greater = arith.IntPredicate.SLT if signed else arith.IntPredicate.ULT, arith.IntPredicate.SGT
    context.emit.builder.location = op.location
    up = None
    if number is None:
        zero = context.emit.constant(0, index)
        is_nonzero = context.emit.add(arith.CmpI(step, zero, arith.IntPredicate.NE))
        context.emit.add(tt.Assert(is_nonzero, message="the step of a loop must not be zero"))
        up = context.emit.add(arith.CmpI(step, zero, greater)) if signed else None

    def precedes(first: Value, second: Value) -> Value:
        """Whether an index comes before another in the direction of the step."""
        if up is None:
            return context.emit.add(arith.CmpI(first, second, greater if number is not None and number < 0 else less))
        is_less = context.emit.add(arith.CmpI(first, second, less))
        return context.emit.add(arith.Select(up, is_less, context.emit.add(arith.CmpI(first, second, greater))))

    def more(heads: Sequence[Value]) -> Value:
        assert op.flag is not None
        is_inside = precedes(heads[0], stop)
        return context.emit.add(arith.AndI(context.variables[op.flag].value, is_inside))

    def advance(heads: Sequence[Value]) -> Sequence[Value]:
        context.values[op.suite.parameters[0]] = heads[0]
        following = context.emit.add(arith.AddI(heads[0], step))
        if number in (1, -1):
            return [following]
        # An index that wraps around ends the loop.
        return [context.emit.add(arith.Select(precedes(heads[0], following), following, stop))]

    while_loop(context, op, [start], more, advance)


def expression(context: FunctionMirror, body: Body) -> Operand:
    """Run the body of an expression; its value."""
    context.suite(body.entry.ops)
    return context.operand(body.entry.terminator.operands[0])


@handles(py.CondExpression)
def conditional(context: FunctionMirror, op: py.CondExpression) -> Built:
    index = context.finding(op).static_branch
    result = context.scope.type_of(op.result)
    if index is not None:
        return expression(context, op.bodies[index]).value
    if isinstance(result, ConstantType) and all(map(_is_simple, op.bodies)):
        return None
    condition = context.emit.truth(context.operand(op.condition))
    in_parts = isinstance(result, TupleType | BlockPtrType | DescriptorType)
    if all(_is_simple(body) for body in op.bodies) and not in_parts:
        first, second = (context.emit.convert(expression(context, body), result) for body in op.bodies)
        return context.emit.add(arith.Select(condition, first, second))
    parts: list[Callable[[], list[Value]]] = [
        lambda body=body: context.emit.repack(expression(context, body), result) for body in op.bodies
    ]
    return rebuild(result, branch(context, condition, parts, flatten_types(result)))


@handles(py.CondAnd, py.CondOr)
def short_circuit(context: FunctionMirror, op: Op) -> Built:
    is_and = isinstance(op, py.CondAnd)

    def type_of(body: Body) -> Type:
        return context.scope.type_of(body.entry.terminator.operands[0])

    parts = operands_of(op, map(type_of, op.bodies), context.emit.language)
    bodies, result = op.bodies[: parts.last + 1], context.scope.type_of(op.result)
    tested = bodies[: parts.tested[-1] + 1 if parts.tested else 0]
    value = Operand(i1, None)
    if parts.gives_tested and isinstance(result, TensorType) and len(parts.tested) > 1:
        value = Operand(result, _element_by_element(context, tested, is_and, result))
    elif len(parts.tested) > 1 and not any(isinstance(type_of(bodies[index]), TensorType) for index in parts.tested):
        value = Operand(i1, _chain(context, list(tested), is_and))
    else:
        for body in tested:
            value = expression(context, body)
    if not parts.gives_last:
        return value.value
    last = expression(context, bodies[-1])
    if not parts.gives_tested:
        return last.value
    condition = context.emit.truth(value)
    first, second = (context.emit.convert(part, result) for part in ((last, value) if is_and else (value, last)))
    return context.emit.add(arith.Select(condition, first, second))


def _element_by_element(context: FunctionMirror, bodies: Sequence[Body], is_and: bool, result: TensorType) -> Value:
    """`and` or `or` of tensors: all operands are computed."""
    operands = [expression(context, body) for body in bodies]
    bools = [context.emit.convert(x, result) for x in operands if known_truth(x.type, context.emit.language) is None]
    return functools.reduce(lambda a, b: context.emit.add((arith.AndI if is_and else arith.OrI)(a, b)), bools)


@handles(py.Comprehension)
def comprehension(context: FunctionMirror, op: py.Comprehension) -> Built:
    """The elements of a list comprehension, of which attribution has chosen the items."""
    iterable = expression(context, op.iterable)
    result = context.scope.type_of(op.result)
    around, values = context.scope, list[Built]()
    for index, scope in context.finding(op).items:
        context.scope = scope
        item = None if components(iterable.type) is None else split_operand(iterable)[index].value
        for body in (op.condition, op.element):
            context.values[body.parameters[0]] = item
        context.suite(op.condition.entry.ops)
        values.append(expression(context, op.element).value)
    context.scope = around
    return None if isinstance(result, ConstantType) else tuple(values)


def _chain(context: FunctionMirror, bodies: list[Body], is_and: bool) -> Value:
    """`and` or `or` of scalars as an i1: the others are computed only where they decide, unless they are simple."""

    def truth(body: Body) -> Value:
        operand = expression(context, body)
        constant_truth = known_truth(operand.type, context.emit.language)
        return context.emit.truth(operand) if constant_truth is None else context.emit.constant(constant_truth, i1)

    first = truth(bodies[0])
    if len(bodies) == 1:
        return first
    if all(_is_simple(body) for body in bodies[1:]):
        for body in bodies[1:]:
            first = context.emit.add((arith.AndI if is_and else arith.OrI)(first, truth(body)))
        return first

    def more() -> list[Value]:
        return [_chain(context, bodies[1:], is_and)]

    def done() -> list[Value]:
        return [context.emit.constant(not is_and, i1)]

    return branch(context, first, [more, done] if is_and else [done, more], [i1])[0]


@handles(py.Assert)
def assertion(context: FunctionMirror, op: py.Assert) -> Built:
    condition = context.operand(op.condition)
    if not isinstance(condition.type, ConstantType) or not condition.type.value:
        message = NONE if op.message is None else context.scope.type_of(op.message)
        text = message.value if isinstance(message, ConstantType) else None
        context.emit.add(tt.Assert(context.emit.truth(condition), message=text or ""))
    return None


# The ops of expressions that may be computed whether they are needed or not.
SIMPLE = (
    core.ConstantOp, core.VarLoad, core.Yield, py.Not, py.Pos, *COMPARISONS,
    py.Add, py.Sub, py.Mul, py.Neg, py.And, py.Or, py.Xor, py.Invert,
)  # fmt: skip


def _is_simple(body: Body) -> bool:
    return all(isinstance(op, SIMPLE) for op in body.entry.ops)
