"""Building control flow: what branches and loops carry is in the attribution's joins."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.dialects import arith, core, py, scf, tt
from ziggurat.codemodel.errors import warn
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import LeavesIteration
from ziggurat.codemodel.types import ConstantType, DescriptorType, ScalarType, TensorType, TupleType, Type, i1, pyobject
from ziggurat.transforms.attribution.attribution import Scope
from ziggurat.transforms.attribution.flow import index_type, known_truth, operands_of, range_call
from ziggurat.transforms.attribution.operators import COMPARISONS
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, flatten_types, packed_type, rebuild, split_operand
from ziggurat.transforms.calls.lattice import BlockPtrType, ErrorType, RangeType, Unusable, components
from ziggurat.transforms.calls.promotion import NONE
from ziggurat.transforms.mirror.mirror import FunctionMirror, handles

# The ops that follow an `if` in which a path leaves early, with that `if`, whose joins they come after.
_Rest = tuple[tuple[Sequence[Op], Op], ...]

# The largest number of ops that is copied into several paths rather than put under an `if` of its own.
_SHORT = 3


class Joined:
    """The variables that control flow joins, by their joined types. `carried` are those with a run-time value."""

    def __init__(self, context: FunctionMirror, joins: Mapping[Value, Type] | None) -> None:
        self.context = context
        self.joins = joins or {}
        without = Unusable | ErrorType | ConstantType
        self.carried = {var: type_ for var, type_ in self.joins.items() if not isinstance(type_, without)}
        self.types = flatten_types(TupleType(tuple(self.carried.values())))

    def values(self) -> list[Value]:
        """The run-time values of the variables, brought to the joined types."""
        return [value for var in self.carried for value in self.value(var)]

    def value(self, var: Value) -> list[Value]:
        """The components of a variable. The index of a loop has no value before it."""
        known = var in self.context.variables
        return (
            self.context.emit.repack(self.context.variables[var], self.carried[var])
            if known
            else self.unread_value(var)
        )

    def unread(self) -> list[Value]:
        """Values of the types, for a path on which the variables are not read."""
        return [value for var in self.carried for value in self.unread_value(var)]

    def unread_value(self, var: Value) -> list[Value]:
        """A variable's own value, where it has the joined type, or a placeholder."""
        operand = self.context.variables.get(var)
        if operand is not None and operand.type == self.carried[var]:
            return self.value(var)
        return [self.context.emit.placeholder(type_) for type_ in flatten_types(self.carried[var])]

    def enter(self, values: Sequence[Value]) -> None:
        """Give the variables these values."""
        left = list(values)
        for var, type_ in self.carried.items():
            self.context.variables[var] = Operand(type_, rebuild(type_, left))
        self.forget()

    def forget(self) -> None:
        """Forget the values of the variables that have none: constants, and variables that must not be read."""
        for var, type_ in self.joins.items():
            if isinstance(type_, ConstantType):
                self.context.variables[var] = Operand(type_, None)
            elif var not in self.carried:
                self.context.variables.pop(var, None)


@attrs.frozen
class _Frame:
    """The values, of `types`, that each path through a sequence of ops gives.

    A path that leaves early has `leaving(op)`, of the types `results`, and gives `left(leaving(op))`. One that reaches
    the end gives `at_end()`.
    """

    results: Sequence[Type]
    leaving: Callable[[Op], list[Value]]
    types: Sequence[Type]
    left: Callable[[list[Value]], list[Value]]
    at_end: Callable[[], list[Value]]


def run(context: FunctionMirror, ops: Sequence[Op], rest: _Rest, frame: _Frame) -> list[Value]:
    """Run ops, and the rest after them; the values of the frame."""
    for index, op in enumerate(ops):
        if isinstance(op, core.Return | LeavesIteration):
            return frame.left(frame.leaving(op))
        if isinstance(op, py.If) and _leaves(op):
            return if_with_exit(context, op, ((ops[index + 1 :], op), *rest), frame)
        if not isinstance(op, core.Yield):
            context.step(op)
    if not rest:
        return frame.at_end()
    (ops, met), *more = rest
    # The values of the variables that the `if` joins, brought to the joined types.
    joined = Joined(context, context.scope.joins.get(met.result))
    joined.enter(joined.values())
    return run(context, ops, tuple(more), frame)


@handles(core.Func)
def function(context: FunctionMirror, op: core.Func) -> Built:
    """Build the function: its parameters, and the ops of its body."""
    given: list[Value] = list(context.emit.builder.parameters)
    for parameter, type_ in zip(op.body.parameters, context.instance.parameter_types, strict=True):
        if isinstance(type_, ConstantType):
            # A constant parameter is a constant at the entry; an unused one is removed later.
            has_form = type_.type != pyobject
            context.values[parameter] = context.emit.constant(type_.value, type_.type) if has_form else None
        else:
            context.values[parameter] = rebuild(type_, given)

    types = flatten_types(context.instance.result)

    def returned(op: Op) -> list[Value]:
        value = context.operand(op.operands[0]) if op.operands else Operand(NONE, None)
        if value.type == NONE:  # Nothing, or a value that is undefined on this path.
            return [context.emit.placeholder(type_) for type_ in types]
        return context.emit.repack(value, context.instance.result)

    context.emit.add(tt.Return(run(context, op.body.entry.ops, (), _Frame(types, returned, types, list, list))))
    return None


def run_iteration(
    context: FunctionMirror, body: Body, types: Sequence[Type], following: Callable[[bool], list[Value]]
) -> list[Value]:
    """Run the suite of a loop; the values, of these types, for what comes next: `following(False)` after a `break`."""

    def leaving(op: Op) -> list[Value]:
        return following(isinstance(op, py.Continue))

    return run(context, body.entry.ops, (), _Frame(types, leaving, types, list, lambda: following(True)))


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
    packed = _packed(types)
    bodies = (body_of(context, [], packed, lambda _, p=part: scf.Yield(p())) for part in parts)
    return context.emit.parts(context.emit.add(scf.If(condition, *bodies)), len(types))


@handles(py.If)
def if_(context: FunctionMirror, op: py.If) -> Built:
    taken = context.finding(lambda scope: scope.static_branches, op)
    if taken is not None:
        context.suite(op.bodies[taken].entry.ops)
        return None
    condition = context.emit.truth(context.operand(op.condition))
    joined = Joined(context, context.finding(lambda scope: scope.joins, op))

    def suite(body: Body) -> list[Value]:
        context.suite(body.entry.ops)
        return joined.values()

    joined.enter(branch(context, condition, [lambda body=body: suite(body) for body in op.bodies], joined.types))
    return None


def if_with_exit(context: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
    """An `if` in which a path leaves early. The ops after it move into the path that does not.

    Several such paths would need several copies. The `if` then yields whether a path has left, with what, and the
    joined variables; the ops go into a second `if`.
    """
    taken = context.finding(lambda scope: scope.static_branches, op)
    if taken is not None:
        return run(context, op.bodies[taken].entry.ops, rest, frame)
    joined = Joined(context, context.finding(lambda scope: scope.joins, op))
    has_placeholders = not any(isinstance(type_, DescriptorType) for type_ in (*frame.results, *joined.types))
    if _ways_on(context, op) <= 1 or _is_short(rest) or not has_placeholders:
        return _both(context, op, rest, frame)

    def left(values: list[Value]) -> list[Value]:
        return [context.emit.constant(True, i1), *values, *joined.unread()]

    def at_end() -> list[Value]:
        return [context.emit.constant(False, i1), *map(context.emit.placeholder, frame.results), *joined.values()]

    types = [i1, *frame.results, *joined.types]
    flag, *parts = _both(context, op, (), attrs.evolve(frame, types=types, left=left, at_end=at_end))
    count = len(frame.results)

    def go_on() -> list[Value]:
        joined.enter(parts[count:])
        return run(context, rest[0][0], rest[1:], frame)

    return branch(context, flag, [lambda: frame.left(parts[:count]), go_on], frame.types)


def _both(context: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
    """An `scf.if` of the two suites, each with the rest after it; the values of the frame."""
    condition = context.emit.truth(context.operand(op.condition))
    context.emit.builder.location = op.location
    parts = [lambda body=body: run(context, body.entry.ops, rest, frame) for body in op.bodies]
    return branch(context, condition, parts, frame.types)


def _ways_on(context: FunctionMirror, op: Op) -> int:
    """The number of paths through an `if` to the ops after it."""
    taken = context.finding(lambda scope: scope.static_branches, op)
    return sum(_ways_through(context, body) for body in (op.bodies if taken is None else [op.bodies[taken]]))


def _ways_through(context: FunctionMirror, body: Body) -> int:
    count = 1
    for op in body.entry.ops:
        if isinstance(op, core.Return | LeavesIteration):
            return 0
        if isinstance(op, py.If) and _leaves(op):
            count *= _ways_on(context, op)
    return count


@handles(py.For)
def for_(context: FunctionMirror, op: py.For) -> Built:
    unrolled = context.finding(lambda scope: scope.unrolled, op)
    if unrolled is not None:
        unroll(context, op, unrolled)
        return None
    found = context.found(lambda scope: scope.ranges, op)
    index = index_type(found)
    start, stop, step = bounds(context, op, found, index)
    if context.finding(lambda scope: scope.exits, op) is not None:
        ignored = [name for name, value in found.options if value]
        if ignored:
            warn(f"a loop with a break ignores the options of zg.range: {', '.join(ignored)}", op.location)
        counted_with_break(context, op, found.step, start, stop, step)
        return None
    joined = Joined(context, context.found(lambda scope: scope.joins, op))
    initial = joined.values()

    def suite(parameters: list[Value]) -> Op:
        context.values[op.suite.parameters[0]] = parameters.pop(0)
        joined.enter(parameters)
        return scf.Yield(run_iteration(context, op.suite, joined.types, lambda _: joined.values()))

    body = body_of(context, [index, *joined.types], _packed(joined.types), suite)
    context.emit.builder.location = op.location
    made = context.emit.add(scf.For(start, stop, step, initial, body, **dict[str, Any](found.options)))
    joined.enter(context.emit.parts(made, len(joined.types)))
    return None


def bounds(context: FunctionMirror, op: py.For, found: RangeType, index: Type) -> list[Value]:
    """Start, stop and step of a loop. A constant start stands before the ops that compute the others."""
    ops, given = range_call(op.iterable, lambda choice: context.finding(lambda scope: scope.static_branches, choice))
    arguments = context.finding(lambda scope: scope.arguments, given)
    written: list[Any] = list(given.operands if arguments is None else arguments.values())[:3]
    written += [None] * (3 - len(written))
    if written[1] is None:
        written = [None, written[0], written[2]]

    def bound(type_: Type, value: Value | None) -> Value:
        return context.emit.convert(Operand(type_, None if value is None else context.values.get(value)), index)

    known = bound(found.start, written[0]) if isinstance(found.start, ConstantType) else None
    context.suite(ops)
    start = bound(found.start, written[0]) if known is None else known
    return [start, bound(found.stop, written[1]), bound(found.step, written[2])]


def unroll(context: FunctionMirror, op: py.For, iterations: Sequence[tuple[Type, Scope]]) -> None:
    context.suite(op.iterable.entry.ops)
    value = context.values.get(op.iterable.entry.terminator.operands[0])
    # The components of a tuple; numbers need no value.
    items = value if isinstance(value, tuple) else (None,) * len(iterations)
    around = context.scope
    exits = Joined(context, around.exits.get(op.result))
    scopes = [(scope, item) for (_, scope), item in zip(iterations, items, strict=False)]
    exits.enter(iterate(context, op, scopes, exits))
    context.scope = around


def iterate(context: FunctionMirror, op: py.For, scopes: Sequence[tuple[Scope, Built]], exits: Joined) -> list[Value]:
    """Run iterations of an unrolled loop; the run-time values of the variables after the loop, `exits`.

    The iterations after one that a `break` may leave are under an `if`.
    """
    for index, (scope, item) in enumerate(scopes):
        context.scope = scope
        context.values[op.suite.parameters[0]] = item
        joins = scope.joins.get(op.result)
        if op.result in scope.exits and joins is None:
            return run_iteration(context, op.suite, exits.types, lambda _: exits.values())
        at_end = Joined(context, joins)
        if op.result in scope.exits:
            return iterate_with_break(context, op, at_end, scopes[index + 1 :], exits)
        if joins is not None:
            at_end.enter(run_iteration(context, op.suite, at_end.types, lambda _, j=at_end: j.values()))
    return exits.values()


def iterate_with_break(
    context: FunctionMirror, op: py.For, at_end: Joined, scopes: Sequence[tuple[Scope, Built]], exits: Joined
) -> list[Value]:
    """Run an iteration of an unrolled loop that a `break` may leave, and the iterations after it; see `iterate`."""

    def following(goes_on: bool) -> list[Value]:
        flag = context.emit.constant(goes_on, i1)
        if goes_on:
            return [flag, *exits.unread(), *at_end.values()]
        return [flag, *exits.values(), *at_end.unread()]

    flag, *parts = run_iteration(context, op.suite, [i1, *exits.types, *at_end.types], following)
    count = len(exits.types)

    def go_on() -> list[Value]:
        at_end.enter(parts[count:])
        return iterate(context, op, scopes, exits)

    return branch(context, flag, [go_on, lambda: parts[:count]], exits.types)


class _LoopVariables:
    """The variables of a loop. One whose type after the loop is not the one at the head is carried twice."""

    def __init__(self, context: FunctionMirror, op: Op) -> None:
        joins = context.found(lambda scope: scope.joins, op)
        exits = context.finding(lambda scope: scope.exits, op)
        self.head = Joined(context, joins)
        self.exits = Joined(context, joins if exits is None else exits)
        self.changed = Joined(context, {var: type_ for var, type_ in self.exits.carried.items() if joins[var] != type_})
        self.types = [*self.head.types, *self.changed.types]

    def values(self, goes_on: bool) -> list[Value]:
        """The values at the head of the next iteration, or those after a `break`."""
        values: list[Value] = []
        for var, type_ in self.head.carried.items():
            is_read = goes_on or self.exits.joins[var] == type_
            values += (self.head.value if is_read else self.head.unread_value)(var)
        for var in self.changed.carried:
            is_read = not goes_on or not isinstance(self.head.joins[var], Unusable)
            values += (self.changed.value if is_read else self.changed.unread_value)(var)
        return values

    def leave(self, values: Sequence[Value]) -> None:
        """Give the variables the values after the loop."""
        count = len(self.head.types)
        self.head.enter(values[:count])
        self.changed.enter(values[count:])
        self.exits.forget()


def while_loop(
    context: FunctionMirror,
    op: py.For | py.While,
    heads: Sequence[Value],
    more: Callable[[Value | None, Sequence[Value]], Value],
    advance: Callable[[Sequence[Value]], tuple[Value | None, Sequence[Value]]],
) -> None:
    """A loop as an `scf.while`. It carries whether it goes on, if it has a `break`, then `heads` and the variables.

    `more` is the condition, for the first two. `advance` is called at the start of an iteration: whether the loop goes
    on after it, None for True, and the heads of the next one.
    """
    has_break = context.finding(lambda scope: scope.exits, op) is not None
    variables = _LoopVariables(context, op)
    first = [*([context.emit.constant(True, i1)] if has_break else []), *heads]
    types = [*(value.type for value in first), *variables.types]

    def enter(parameters: list[Value]) -> tuple[Value | None, list[Value]]:
        variables.head.enter(parameters[len(first) :])
        return parameters[0] if has_break else None, parameters[len(first) - len(heads) : len(first)]

    def condition(parameters: list[Value]) -> Op:
        return scf.Condition(more(*enter(parameters)), parameters)

    def suite(parameters: list[Value]) -> Op:
        going, following = advance(enter(parameters)[1])

        def ends(goes_on: bool) -> list[Value]:
            flag = going if goes_on and going is not None else context.emit.constant(goes_on, i1) if has_break else None
            return [*([] if flag is None else [flag]), *following, *variables.values(goes_on)]

        return scf.Yield(run_iteration(context, op.suite, types, ends))

    initial = [*first, *variables.values(True)]
    bodies = [body_of(context, types, _packed(types), part) for part in (condition, suite)]
    made = context.emit.parts(context.emit.add(scf.While(initial, *bodies)), len(types))
    variables.leave(made[len(first) :])


@handles(py.While)
def while_(context: FunctionMirror, op: py.While) -> None:
    """The condition is not computed after a `break`."""
    if context.finding(lambda scope: scope.static_branches, op) is not None:
        return

    def test() -> list[Value]:
        return [context.emit.truth(expression(context, op.condition))]

    def more(going: Value | None, _: Sequence[Value]) -> Value:
        if going is None:
            return test()[0]
        if isinstance(context.scope.type_of(op.condition.entry.terminator.operands[0]), ConstantType):
            return going
        return branch(context, going, [test, lambda: [context.emit.constant(False, i1)]], [i1])[0]

    while_loop(context, op, (), more, lambda _: (None, ()))


def counted_with_break(
    context: FunctionMirror, op: py.For, step_type: Type, start: Value, stop: Value, step: Value
) -> None:
    """A `for` over numbers, as a `while` that carries the index."""
    index = start.type
    known = step_type.value if isinstance(step_type, ConstantType) else None
    signed = isinstance(index, ScalarType) and index.signed
    less, greater = arith.IntPredicate.SLT if signed else arith.IntPredicate.ULT, arith.IntPredicate.SGT
    context.emit.builder.location = op.location
    up = None
    if known is None:
        zero = context.emit.constant(0, index)
        is_nonzero = context.emit.add(arith.CmpI(step, zero, arith.IntPredicate.NE))
        context.emit.add(tt.Assert(is_nonzero, message="the step of a loop must not be zero"))
        up = context.emit.add(arith.CmpI(step, zero, greater)) if signed else None

    def precedes(first: Value, second: Value) -> Value:
        """Whether an index comes before another in the direction of the step."""
        if up is None:
            return context.emit.add(arith.CmpI(first, second, greater if known is not None and known < 0 else less))
        is_less = context.emit.add(arith.CmpI(first, second, less))
        return context.emit.add(arith.Select(up, is_less, context.emit.add(arith.CmpI(first, second, greater))))

    def more(going: Value | None, heads: Sequence[Value]) -> Value:
        assert going is not None
        is_inside = precedes(heads[0], stop)
        return context.emit.add(arith.AndI(going, is_inside))

    def advance(heads: Sequence[Value]) -> tuple[Value | None, Sequence[Value]]:
        context.values[op.suite.parameters[0]] = heads[0]
        following = context.emit.add(arith.AddI(heads[0], step))
        # An index that wraps around ends the loop.
        return None if known in (1, -1) else precedes(heads[0], following), [following]

    while_loop(context, op, [start], more, advance)


def expression(context: FunctionMirror, body: Body) -> Operand:
    """Run the body of an expression; its value."""
    context.suite(body.entry.ops)
    return context.operand(body.entry.terminator.operands[0])


@handles(py.CondExpression)
def conditional(context: FunctionMirror, op: py.CondExpression) -> Built:
    taken = context.finding(lambda scope: scope.static_branches, op)
    result = context.scope.type_of(op.result)
    if taken is not None:
        return expression(context, op.bodies[taken]).value
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
    found = [expression(context, body) for body in bodies]
    bools = [context.emit.convert(one, result) for one in found if known_truth(one.type, context.emit.language) is None]
    return functools.reduce(lambda a, b: context.emit.add((arith.AndI if is_and else arith.OrI)(a, b)), bools)


@handles(py.Comprehension)
def comprehension(context: FunctionMirror, op: py.Comprehension) -> Built:
    """The elements of a list comprehension, of which attribution has chosen the items."""
    iterable = expression(context, op.iterable)
    result = context.scope.type_of(op.result)
    around, values = context.scope, list[Built]()
    for index, scope in context.found(lambda scope: scope.chosen, op):
        context.scope = scope
        item = None if components(iterable.type) is None else split_operand(iterable)[index].value
        for body in (op.condition, op.element):
            context.values[body.parameters[0]] = item
        context.suite(op.condition.entry.ops)
        values.append(expression(context, op.element).value)
    context.scope = around
    return None if isinstance(result, ConstantType) else tuple(values)


def _chain(context: FunctionMirror, bodies: list[Body], is_and: bool) -> Value:
    operand = expression(context, bodies[0])
    known = known_truth(operand.type, context.emit.language)
    first = context.emit.truth(operand) if known is None else context.emit.constant(known, i1)
    if len(bodies) == 1:
        return first
    if all(_is_simple(body) for body in bodies[1:]):
        for body in bodies[1:]:
            other = context.emit.truth(expression(context, body))
            first = context.emit.add((arith.AndI if is_and else arith.OrI)(first, other))
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


def _leaves(op: Op) -> bool:
    """Whether a path through the op leaves the function, or the iteration of a loop around it."""
    return py.leaves_iteration(op) or any(isinstance(inner, core.Return) for inner in op.walk())


def _is_short(rest: _Rest) -> bool:
    """True of a sequence of ops that is little more than a return."""
    trivial = (core.ConstantOp, core.VarLoad, py.Pack, core.Return, core.Yield, LeavesIteration)
    ops = [op for part, _ in rest for op in part if not isinstance(op, core.Yield)]
    return len(ops) <= _SHORT and all(isinstance(op, trivial) for op in ops)


def _is_simple(body: Body) -> bool:
    """True of an expression that may be computed whether it is needed or not."""
    simple = (core.ConstantOp, core.VarLoad, core.Yield, py.Not, py.Pos, *COMPARISONS)
    safe = (py.Add, py.Sub, py.Mul, py.Neg, py.And, py.Or, py.Xor, py.Invert)
    return all(isinstance(op, (*simple, *safe)) for op in body.entry.ops)


def _packed(types: Sequence[Type]) -> Type:
    """The type of what yields values of these types."""
    return packed_type(TupleType(tuple(types)))
