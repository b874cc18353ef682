"""Building control flow: what branches and loops carry is in the attribution's joins."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.dialects import arith, core, py, scf, tt
from ziggurat.codemodel.errors import ZigguratWarning
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import LeavesIteration
from ziggurat.codemodel.types import ConstantType, DescriptorType, ScalarType, TupleType, Type, i1
from ziggurat.transforms.attribution.attribution import Scope
from ziggurat.transforms.attribution.flow import index_type
from ziggurat.transforms.attribution.operators import COMPARISONS
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, flatten_types, packed_type, rebuild
from ziggurat.transforms.calls.lattice import ErrorType, Unusable
from ziggurat.transforms.calls.promotion import NONE
from ziggurat.transforms.mirror.walk import FunctionMirror, handles

_VOID = Operand(NONE, None)

# The ops that follow an `if` in which a path leaves early, with that `if`, whose joins they come after.
_Rest = tuple[tuple[Sequence[Op], Op], ...]

# The largest number of ops that is copied into several paths rather than put under an `if` of its own.
_SHORT = 3


@attrs.frozen
class _Leaving:
    """The values of a path that leaves a function by `return`, or an iteration by `break` or `continue`."""

    types: Sequence[Type]
    values: Callable[[Op], list[Value]]


@attrs.frozen
class _Frame:
    """The values that each path through a sequence of ops gives. They have these types.

    A path that leaves early gives `left(leaving.values(op))`, and one that reaches the end gives `at_end()`.
    """

    leaving: _Leaving
    types: Sequence[Type]
    left: Callable[[list[Value]], list[Value]]
    at_end: Callable[[], list[Value]]

    @property
    def packed(self) -> Type:
        return packed_type(TupleType(tuple(self.types)))


def run(walk: FunctionMirror, ops: Sequence[Op], rest: _Rest, frame: _Frame) -> list[Value]:
    """Run ops, and the rest after them; the values of the frame."""
    for index, op in enumerate(ops):
        if isinstance(op, core.Return | LeavesIteration):
            return frame.left(frame.leaving.values(op))
        if isinstance(op, py.If) and _leaves(op):
            return if_with_exit(walk, op, ((ops[index + 1 :], op), *rest), frame)
        if not isinstance(op, core.Yield):
            walk.step(op)
    if rest:
        ops, met = rest[0]
        meet(walk, met)
        return run(walk, ops, rest[1:], frame)
    return frame.at_end()


def function_frame(walk: FunctionMirror) -> _Frame:
    """The frame of the whole function: its results."""

    def returned(op: Op) -> list[Value]:
        value = walk.operand(op.operands[0]) if op.operands else _VOID
        return walk.emit.repack(value, walk.instance.result)

    leaving = _Leaving(flatten_types(walk.instance.result), returned)
    return _Frame(leaving, leaving.types, lambda values: values, list)


def run_iteration(
    walk: FunctionMirror, body: Body, types: Sequence[Type], following: Callable[[bool], list[Value]]
) -> list[Value]:
    """Run the suite of a loop; the values, of these types, for what comes next: `following(False)` after a `break`."""
    leaving = _Leaving(types, lambda op: following(isinstance(op, py.Continue)))
    return run(walk, body.entry.ops, (), _Frame(leaving, types, lambda values: values, lambda: following(True)))


def meet(walk: FunctionMirror, op: Op) -> None:
    """Bring the variables that `op` joins to their joined types."""
    joins = walk.scope.joins.get(op.result)
    for var, type_ in (joins or {}).items():
        walk.variables[var] = brought(walk, var, type_)


def brought(walk: FunctionMirror, var: Value, type_: Type) -> Operand:
    """A variable's value as one of `type_`."""
    operand = walk.variables.get(var)
    if operand is None or isinstance(type_, Unusable | ErrorType | ConstantType):
        return Operand(type_, None)
    return Operand(type_, rebuild(type_, walk.emit.repack(operand, type_)))


def body_of(walk: FunctionMirror, types: Sequence[Type], result: Type, part: Callable[[list[Value]], Op]) -> Body:
    """A body with parameters of these types. `part` builds into it and gives its terminator.

    Assignments to variables in it end with it.
    """
    inner = walk.emit.builder.nested(types, result)
    before = dict(walk.variables)
    inner.location = walk.emit.builder.location
    outer, walk.emit = walk.emit, Emitter(inner, walk)
    walk.emit.add(part(list(inner.parameters)))
    walk.emit, walk.variables = outer, before
    return inner.finish()


def branch(walk: FunctionMirror, condition: Value, parts: Sequence[Callable[[], list[Value]]], type_: Type) -> Value:
    """An `scf.if` whose bodies yield what the parts give."""
    return walk.emit.add(
        scf.If(condition, *(body_of(walk, [], type_, lambda _, p=part: scf.Yield(p())) for part in parts))
    )


@handles(py.If)
def if_(walk: FunctionMirror, op: py.If) -> Built:
    taken = walk.finding(lambda scope: scope.static_branches, op)
    if taken is not None:
        walk.suite(op.bodies[taken].entry.ops)
        return None
    condition = walk.emit.truth(walk.operand(op.condition))
    joins = walk.finding(lambda scope: scope.joins, op) or {}

    def suite(body: Body) -> list[Value]:
        walk.suite(body.entry.ops)
        return flat(walk, joins)

    parts = [lambda body=body: suite(body) for body in op.bodies]
    bind(walk, joins, branch(walk, condition, parts, _packed(joins)))
    return None


def flat(walk: FunctionMirror, joins: dict[Value, Type]) -> list[Value]:
    """The run-time values of the joined variables, brought to the joined types."""
    return [value for var, type_ in _carried(joins).items() for value in walk.emit.repack(walk.variables[var], type_)]


def bind(walk: FunctionMirror, joins: dict[Value, Type], made: Value) -> None:
    """Give the joined variables what an op yields."""
    carried = _carried(joins)
    packed = TupleType(tuple(carried.values()))
    parts: Any = walk.emit.unpack(made, packed) if carried else ()
    for (var, type_), part in zip(carried.items(), parts, strict=True):
        walk.variables[var] = Operand(type_, part)
    forget(walk, joins)


def forget(walk: FunctionMirror, joins: dict[Value, Type]) -> None:
    """Joined variables without a run-time value: constants, and those that must not be read."""
    for var, type_ in joins.items():
        if isinstance(type_, ConstantType):
            walk.variables[var] = Operand(type_, None)
        elif isinstance(type_, Unusable | ErrorType):
            walk.variables.pop(var, None)


def if_with_exit(walk: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
    """An `if` in which a path leaves early. The ops after it move into the path that does not.

    Several such paths would need several copies; then the ops go into an `if` of their own.
    """
    taken = walk.finding(lambda scope: scope.static_branches, op)
    if taken is not None:
        return run(walk, op.bodies[taken].entry.ops, rest, frame)
    if ways_on(walk, op) > 1 and not _is_short(rest) and can_be_flagged(walk, op, frame):
        return if_and_rest(walk, op, rest, frame)
    return walk.emit.parts(both(walk, op, rest, frame), len(frame.types))


def both(walk: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> Value:
    """An `scf.if` of the two suites, each with the rest after it, that yields the values of the frame."""
    condition = walk.emit.truth(walk.operand(op.condition))
    walk.emit.builder.location = op.location
    parts = [lambda body=body: run(walk, body.entry.ops, rest, frame) for body in op.bodies]
    return branch(walk, condition, parts, frame.packed)


def if_and_rest(walk: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
    """The `if` yields whether a path has left, with what, and the joined variables; the rest is under a second `if`."""
    joins = walk.finding(lambda scope: scope.joins, op) or {}
    carried = _carried(joins)
    results = frame.leaving.types
    variables = _flat_types(joins)

    def left(values: list[Value]) -> list[Value]:
        return [walk.emit.constant(True, i1), *values, *unread(walk, carried)]

    def at_end() -> list[Value]:
        return [walk.emit.constant(False, i1), *map(walk.emit.placeholder, results), *flat(walk, joins)]

    inner = _Frame(frame.leaving, [i1, *results, *variables], left, at_end)
    flag, *parts = walk.emit.parts(both(walk, op, (), inner), len(inner.types))

    def done() -> list[Value]:
        return frame.left(parts[: len(results)])

    def go_on() -> list[Value]:
        enter(walk, joins, parts[len(results) :])
        return run(walk, rest[0][0], rest[1:], frame)

    return walk.emit.parts(branch(walk, flag, [done, go_on], frame.packed), len(frame.types))


def unread(walk: FunctionMirror, carried: dict[Value, Type]) -> list[Value]:
    """Some value for each joined variable, on a path on which it is not read: its own, where that has the type."""
    values: list[Value] = []
    for var, type_ in carried.items():
        operand = walk.variables.get(var)
        if operand is not None and operand.type == type_:
            values.extend(walk.emit.repack(operand, type_))
        else:
            values.extend(map(walk.emit.placeholder, flatten_types(type_)))
    return values


def ways_on(walk: FunctionMirror, op: Op) -> int:
    """In how many ways control comes to what stands behind an `if`."""
    taken = walk.finding(lambda scope: scope.static_branches, op)
    return sum(_ways_through(walk, body) for body in (op.bodies if taken is None else [op.bodies[taken]]))


def _ways_through(walk: FunctionMirror, body: Body) -> int:
    count = 1
    for op in body.entry.ops:
        if isinstance(op, core.Return | LeavesIteration):
            return 0
        if isinstance(op, py.If) and _leaves(op):
            count *= ways_on(walk, op)
    return count


def can_be_flagged(walk: FunctionMirror, op: Op, frame: _Frame) -> bool:
    """Whether there are placeholders for what a path leaves with, and for what `op` joins."""
    joins = walk.finding(lambda scope: scope.joins, op) or {}
    types = (*frame.leaving.types, *_flat_types(joins))
    return not any(isinstance(type_, DescriptorType) for type_ in types)


@handles(py.For)
def for_(walk: FunctionMirror, op: py.For) -> Built:
    unrolled = walk.finding(lambda scope: scope.unrolled, op)
    if unrolled is not None:
        unroll(walk, op, unrolled)
        return None
    found = walk.found(lambda scope: scope.ranges, op)
    index = index_type(found)
    start, stop, step = bounds(walk, op, (found.start, found.stop, found.step), index)
    joins = walk.found(lambda scope: scope.joins, op)
    if walk.finding(lambda scope: scope.exits, op) is not None:
        _warn_of_options(op, [name for name, value in found.options if value])
        counted_with_break(walk, op, found.step, index, (start, stop, step))
        return None
    initial = flat(walk, joins)

    def suite(parameters: list[Value]) -> Op:
        walk.values[op.suite.parameters[0]] = parameters.pop(0)
        enter(walk, joins, parameters)
        return scf.Yield(run_iteration(walk, op.suite, _flat_types(joins), lambda _: flat(walk, joins)))

    body = body_of(walk, [index, *_flat_types(joins)], _packed(joins), suite)
    walk.emit.builder.location = op.location
    bind(walk, joins, walk.emit.add(scf.For(start, stop, step, initial, body, **dict[str, Any](found.options))))
    return None


def bounds(walk: FunctionMirror, op: py.For, types: Sequence[Type], index: Type) -> list[Value]:
    """Start, stop and step of a loop; constants stand where they are written, in this order."""
    ops = op.iterable.entry.ops
    call = op.iterable.entry.terminator.operands[0]
    given = next(inner for inner in ops if inner.result is call)
    arguments = walk.finding(lambda scope: scope.arguments, given)
    bound: list[Any] = list(given.operands if arguments is None else arguments.values())[:3]
    written: list[Value | None] = [value if isinstance(value, Value) else None for value in bound]
    written += [None] * (3 - len(written))
    if written[1] is None:
        written = [None, written[0], written[2]]
    made: dict[int, Value] = {}

    def fill(place: int) -> None:
        value = written[place]
        known = None if value is None else walk.values.get(value)
        made[place] = walk.emit.convert(Operand(types[place], known), index)

    if written[0] is None:
        fill(0)
    for inner in ops:
        if inner is given or isinstance(inner, core.Yield):
            continue
        walk.step(inner)
        for place, value in enumerate(written):
            if value is inner.result and isinstance(types[place], ConstantType):
                fill(place)
    for place in range(3):
        if place not in made:
            fill(place)
    return [made[place] for place in range(3)]


def enter(walk: FunctionMirror, joins: dict[Value, Type], parameters: list[Value]) -> None:
    """Give the loop-carried variables the parameters of the body."""
    for var, type_ in _carried(joins).items():
        walk.variables[var] = Operand(type_, rebuild(type_, parameters))
    forget(walk, joins)


def unroll(walk: FunctionMirror, op: py.For, iterations: Sequence[tuple[Type, Scope]]) -> None:
    items = iterated(walk, op, len(iterations))
    around = walk.scope
    exits = around.exits.get(op.result, {})
    scopes = [(scope, item) for (_, scope), item in zip(iterations, items, strict=False)]
    enter(walk, exits, iterate(walk, op, scopes, exits))
    walk.scope = around


def iterate(
    walk: FunctionMirror, op: py.For, scopes: Sequence[tuple[Scope, Built]], exits: dict[Value, Type]
) -> list[Value]:
    """Run iterations of an unrolled loop; the run-time values of the variables after the loop, of the types `exits`.

    The iterations after one that a `break` may leave are under an `if`.
    """
    for index, (scope, item) in enumerate(scopes):
        walk.scope = scope
        walk.values[op.suite.parameters[0]] = item
        joins = scope.joins.get(op.result)
        if op.result in scope.exits:
            return iterate_with_break(walk, op, joins, scopes[index + 1 :], exits)
        if not any(map(_leaves, op.suite.entry.ops)):
            walk.suite(op.suite.entry.ops)
        elif joins is not None:
            enter(walk, joins, run_iteration(walk, op.suite, _flat_types(joins), lambda _, j=joins: flat(walk, j)))
    return flat(walk, exits)


def iterate_with_break(
    walk: FunctionMirror,
    op: py.For,
    joins: dict[Value, Type] | None,
    following: Sequence[tuple[Scope, Built]],
    exits: dict[Value, Type],
) -> list[Value]:
    """Run an iteration of an unrolled loop that a `break` may leave, and the iterations after it; see `iterate`.

    `joins` has the types of the variables at the end of the iteration, if control may get there.
    """
    results = _flat_types(exits)
    if joins is None:
        return run_iteration(walk, op.suite, results, lambda _: flat(walk, exits))

    def ends(goes_on: bool) -> list[Value]:
        flag = walk.emit.constant(goes_on, i1)
        if goes_on:
            return [flag, *unread(walk, _carried(exits)), *flat(walk, joins)]
        return [flag, *flat(walk, exits), *unread(walk, _carried(joins))]

    flag, *parts = run_iteration(walk, op.suite, [i1, *results, *_flat_types(joins)], ends)
    left, at_end = parts[: len(results)], parts[len(results) :]

    def go_on() -> list[Value]:
        enter(walk, joins, at_end)
        return iterate(walk, op, following, exits)

    return walk.emit.parts(branch(walk, flag, [go_on, lambda: left], _packed(exits)), len(results))


def iterated(walk: FunctionMirror, op: py.For, count: int) -> Sequence[Built]:
    """The items of an unrolled loop: the components of a tuple; numbers need no value."""
    walk.suite(op.iterable.entry.ops)
    value = walk.values.get(op.iterable.entry.terminator.operands[0])
    return value if isinstance(value, tuple) else (None,) * count


@handles(py.While)
def while_(walk: FunctionMirror, op: py.While) -> Built:
    if walk.finding(lambda scope: scope.static_branches, op) is not None:
        return None
    if walk.finding(lambda scope: scope.exits, op) is not None:
        while_with_break(walk, op)
        return None
    joins = walk.found(lambda scope: scope.joins, op)
    initial = flat(walk, joins)

    def condition(parameters: list[Value]) -> Op:
        enter(walk, joins, parameters)
        return scf.Condition(walk.emit.truth(expression(walk, op.condition)), flat(walk, joins))

    def suite(parameters: list[Value]) -> Op:
        enter(walk, joins, parameters)
        return scf.Yield(run_iteration(walk, op.suite, _flat_types(joins), lambda _: flat(walk, joins)))

    bodies = [body_of(walk, _flat_types(joins), _packed(joins), part) for part in (condition, suite)]
    bind(walk, joins, walk.emit.add(scf.While(initial, *bodies)))
    return None


class _Carried:
    """The values that a loop with a `break` carries: whether it goes on, and its variables.

    A variable whose type after the loop is not the one at the head is carried twice.
    """

    def __init__(self, walk: FunctionMirror, op: Op) -> None:
        self.walk = walk
        self.joins = walk.found(lambda scope: scope.joins, op)
        self.exits = walk.found(lambda scope: scope.exits, op)
        self.at_exit = {var: type_ for var, type_ in _carried(self.exits).items() if self.joins[var] != type_}
        self.types = [*_flat_types(self.joins), *_flat_types(self.at_exit)]

    def initial(self) -> list[Value]:
        """The values at the head of the loop, before the first iteration and after one that goes on."""
        values = flat(self.walk, self.joins)
        for var, type_ in self.at_exit.items():
            known = not isinstance(self.joins[var], Unusable)
            values += flat(self.walk, {var: type_}) if known else unread(self.walk, {var: type_})
        return values

    def broken(self) -> list[Value]:
        """The values at a `break`."""
        values: list[Value] = []
        for var, type_ in _carried(self.joins).items():
            values += (flat if self.exits[var] == type_ else unread)(self.walk, {var: type_})
        return values + flat(self.walk, self.at_exit)

    def enter(self, parameters: Sequence[Value]) -> None:
        """Give the variables the values at the head."""
        enter(self.walk, self.joins, list(parameters))

    def leave(self, values: Sequence[Value]) -> None:
        """Give the variables the values after the loop."""
        count = len(_flat_types(self.joins))
        enter(self.walk, self.joins, list(values[:count]))
        enter(self.walk, self.at_exit, list(values[count:]))
        forget(self.walk, self.exits)


def _warn_of_options(op: py.For, names: Sequence[str]) -> None:
    if names:
        text = f"a loop with a break ignores the options of zg.range: {', '.join(names)}"
        place = op.location
        warnings.warn_explicit(text, ZigguratWarning, *((place.file, place.line) if place is not None else ("", 0)))


def while_with_break(walk: FunctionMirror, op: py.While) -> None:
    """A `while` that also carries whether it goes on. The condition is not computed after a `break`."""
    carried = _Carried(walk, op)
    types = [i1, *carried.types]
    initial = [walk.emit.constant(True, i1), *carried.initial()]

    def condition(parameters: list[Value]) -> Op:
        going, *values = parameters
        carried.enter(values)
        if isinstance(walk.scope.type_of(op.condition.entry.terminator.operands[0]), ConstantType):
            return scf.Condition(going, parameters)
        parts = [
            lambda: [walk.emit.truth(expression(walk, op.condition))],
            lambda: [walk.emit.constant(False, i1)],
        ]
        return scf.Condition(branch(walk, going, parts, i1), parameters)

    def following(goes_on: bool) -> list[Value]:
        return [walk.emit.constant(goes_on, i1), *(carried.initial() if goes_on else carried.broken())]

    def suite(parameters: list[Value]) -> Op:
        carried.enter(parameters[1:])
        return scf.Yield(run_iteration(walk, op.suite, types, following))

    bodies = [body_of(walk, types, packed_type(TupleType(tuple(types))), part) for part in (condition, suite)]
    made = walk.emit.add(scf.While(initial, *bodies))
    carried.leave(walk.emit.parts(made, len(types))[1:])


def counted_with_break(
    walk: FunctionMirror, op: py.For, step_type: Type, index: Type, bounds: tuple[Value, Value, Value]
) -> None:
    """A `for` over numbers, as a `while` that carries the index and whether it goes on."""
    start, stop, step = bounds
    carried = _Carried(walk, op)
    types = [i1, index, *carried.types]
    known = step_type.value if isinstance(step_type, ConstantType) else None
    signed = isinstance(index, ScalarType) and index.signed
    walk.emit.builder.location = op.location
    zero = walk.emit.constant(0, index)
    up = walk.emit.add(arith.CmpI(step, zero, arith.IntPredicate.SGT)) if known is None and signed else None

    def precedes(first: Value, second: Value) -> Value:
        """Whether an index comes before another in the direction of the step."""
        if up is not None:
            less = walk.emit.add(arith.CmpI(first, second, arith.IntPredicate.SLT))
            return walk.emit.add(
                arith.Select(up, less, walk.emit.add(arith.CmpI(first, second, arith.IntPredicate.SGT)))
            )
        if known is not None and known < 0:
            return walk.emit.add(arith.CmpI(first, second, arith.IntPredicate.SGT))
        return walk.emit.add(arith.CmpI(first, second, arith.IntPredicate.SLT if signed else arith.IntPredicate.ULT))

    initial = [walk.emit.constant(True, i1), start, *carried.initial()]

    def condition(parameters: list[Value]) -> Op:
        more = precedes(parameters[1], stop)
        return scf.Condition(walk.emit.add(arith.AndI(parameters[0], more)), parameters)

    def suite(parameters: list[Value]) -> Op:
        at = parameters[1]
        walk.values[op.suite.parameters[0]] = at
        carried.enter(parameters[2:])
        following = walk.emit.add(arith.AddI(at, step))
        # An index that wraps around ends the loop.
        more = walk.emit.constant(True, i1) if known in (1, -1) else precedes(at, following)

        def ends(goes_on: bool) -> list[Value]:
            if goes_on:
                return [more, following, *carried.initial()]
            return [walk.emit.constant(False, i1), following, *carried.broken()]

        return scf.Yield(run_iteration(walk, op.suite, types, ends))

    bodies = [body_of(walk, types, packed_type(TupleType(tuple(types))), part) for part in (condition, suite)]
    made = walk.emit.add(scf.While(initial, *bodies))
    carried.leave(walk.emit.parts(made, len(types))[2:])


def expression(walk: FunctionMirror, body: Body) -> Operand:
    """Run the body of an expression; its value."""
    walk.suite(body.entry.ops)
    return walk.operand(body.entry.terminator.operands[0])


@handles(py.CondExpression)
def conditional(walk: FunctionMirror, op: py.CondExpression) -> Built:
    taken = walk.finding(lambda scope: scope.static_branches, op)
    result = walk.scope.type_of(op.result)
    if taken is not None:
        return expression(walk, op.bodies[taken]).value
    if isinstance(result, ConstantType):
        return None
    condition = walk.emit.truth(walk.operand(op.condition))
    if all(_is_simple(body) for body in op.bodies) and not isinstance(result, TupleType):
        first, second = (walk.emit.convert(expression(walk, body), result) for body in op.bodies)
        return walk.emit.add(arith.Select(condition, first, second))
    parts: list[Callable[[], list[Value]]] = [
        lambda body=body: walk.emit.repack(expression(walk, body), result) for body in op.bodies
    ]
    return walk.emit.unpack(branch(walk, condition, parts, packed_type(result)), result)


@handles(py.CondAnd, py.CondOr)
def short_circuit(walk: FunctionMirror, op: Op) -> Built:
    is_and = isinstance(op, py.CondAnd)
    if isinstance(walk.scope.type_of(op.result), ConstantType):
        return None
    last = walk.finding(lambda scope: scope.static_branches, op)
    bodies = op.bodies if last is None else op.bodies[: last + 1]
    return _chain(walk, list(bodies), is_and)


def _chain(walk: FunctionMirror, bodies: list[Body], is_and: bool) -> Value:
    first = walk.emit.truth(expression(walk, bodies[0]))
    if len(bodies) == 1:
        return first
    if all(_is_simple(body) for body in bodies[1:]):
        for body in bodies[1:]:
            other = walk.emit.truth(expression(walk, body))
            first = walk.emit.add((arith.AndI if is_and else arith.OrI)(first, other))
        return first

    def more() -> list[Value]:
        return [_chain(walk, bodies[1:], is_and)]

    def done() -> list[Value]:
        return [walk.emit.constant(not is_and, i1)]

    return branch(walk, first, [more, done] if is_and else [done, more], i1)


@handles(py.Assert)
def assertion(walk: FunctionMirror, op: py.Assert) -> Built:
    condition = walk.operand(op.condition)
    if not isinstance(condition.type, ConstantType):
        message = NONE if op.message is None else walk.scope.type_of(op.message)
        text = message.value if isinstance(message, ConstantType) else None
        walk.emit.add(tt.Assert(walk.emit.truth(condition), message=text or ""))
    return None


def _leaves(op: Op) -> bool:
    """Whether a path through the op leaves the function, or the iteration of a loop around it."""
    return py.leaves_iteration(op) or any(isinstance(inner, core.Return) for inner in op.walk())


def _is_short(rest: _Rest) -> bool:
    """True of a rest that is little more than a return."""
    trivial = (core.ConstantOp, core.VarLoad, py.Pack, core.Return, core.Yield, LeavesIteration)
    ops = [op for part, _ in rest for op in part if not isinstance(op, core.Yield)]
    return len(ops) <= _SHORT and all(isinstance(op, trivial) for op in ops)


def _is_simple(body: Body) -> bool:
    """True of an expression that may be computed whether it is needed or not."""
    simple = (core.ConstantOp, core.VarLoad, core.Yield, py.Not, py.Pos, *COMPARISONS)
    safe = (py.Add, py.Sub, py.Mul, py.Neg, py.And, py.Or, py.Xor, py.Invert)
    return all(isinstance(op, (*simple, *safe)) for op in body.entry.ops)


def _carried(joins: dict[Value, Type]) -> dict[Value, Type]:
    """The joined variables that have a run-time value."""
    return {var: type_ for var, type_ in joins.items() if not isinstance(type_, Unusable | ErrorType | ConstantType)}


def _flat_types(joins: dict[Value, Type]) -> list[Type]:
    """The run-time types of the joined variables."""
    return flatten_types(TupleType(tuple(_carried(joins).values())))


def _packed(joins: dict[Value, Type]) -> Type:
    """The type of what yields the joined variables."""
    return packed_type(TupleType(tuple(_carried(joins).values())))
