"""Building control flow: what branches and loops carry is in the attribution's joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.dialects import arith, core, py, scf, tt
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.types import ConstantType, DescriptorType, TupleType, Type, i1
from ziggurat.transforms.attribution.attribution import Scope
from ziggurat.transforms.attribution.flow import index_type
from ziggurat.transforms.attribution.operators import COMPARISONS
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, flatten_types, packed_type, rebuild
from ziggurat.transforms.calls.lattice import ErrorType, Unusable
from ziggurat.transforms.calls.promotion import NONE
from ziggurat.transforms.mirror.walk import FunctionMirror, handles

_VOID = Operand(NONE, None)

# What remains to be run after an `if` in which a path returns: ops, and the `if` whose meeting they stand behind.
_Rest = tuple[tuple[Sequence[Op], Op], ...]

# As much as this may be there several times rather than under an `if` of its own.
_SHORT = 3


@attrs.frozen
class _Frame:
    """What the paths of an `if` in which one returns give: the function's results, or what goes before the rest.

    `returned` makes it of the results where a path has returned, and `fell` where control goes on.
    """

    types: Sequence[Type]
    returned: Callable[[list[Value]], list[Value]]
    fell: Callable[[], list[Value]]

    @property
    def packed(self) -> Type:
        return packed_type(TupleType(tuple(self.types)))


def run(walk: FunctionMirror, ops: Sequence[Op], rest: _Rest, frame: _Frame) -> list[Value]:
    """Run ops, and the rest after them; the values of the frame."""
    for index, op in enumerate(ops):
        if isinstance(op, core.Return):
            value = walk.operand(op.operands[0]) if op.operands else _VOID
            return frame.returned(walk.emit.repack(value, walk.instance.result))
        if isinstance(op, py.If) and _returns(op):
            return if_with_return(walk, op, ((ops[index + 1 :], op), *rest), frame)
        if not isinstance(op, core.Yield):
            walk.step(op)
    if rest:
        ops, met = rest[0]
        meet(walk, met)
        return run(walk, ops, rest[1:], frame)
    return frame.fell()


def function_frame(walk: FunctionMirror) -> _Frame:
    """The frame of the whole function: its results."""
    return _Frame(flatten_types(walk.instance.result), lambda values: values, list)


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
    taken: int | None = walk.finding("taken", op)
    if taken is not None:
        walk.suite(op.bodies[taken].entry.ops)
        return None
    condition = walk.emit.truth(walk.operand(op.condition))
    joins: dict[Value, Type] = walk.finding("joins", op) or {}

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


def if_with_return(walk: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
    """An `if` in which a path returns. What comes after it moves into the path that does not.

    Where there are several such paths, it would be there several times; then it goes into an `if` of its own.
    """
    taken: int | None = walk.finding("taken", op)
    if taken is not None:
        return run(walk, op.bodies[taken].entry.ops, rest, frame)
    if ways_on(walk, op) > 1 and not _is_short(rest) and can_be_flagged(walk, op):
        return if_and_rest(walk, op, rest, frame)
    return walk.emit.parts(both(walk, op, rest, frame), len(frame.types))


def both(walk: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> Value:
    """An `scf.if` of the two suites, each with the rest after it, that yields the values of the frame."""
    condition = walk.emit.truth(walk.operand(op.condition))
    walk.emit.builder.location = op.location
    parts = [lambda body=body: run(walk, body.entry.ops, rest, frame) for body in op.bodies]
    return branch(walk, condition, parts, frame.packed)


def if_and_rest(walk: FunctionMirror, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
    """The `if` yields whether it has returned, what, and the joined variables; the rest is under a second `if`."""
    joins: dict[Value, Type] = walk.finding("joins", op) or {}
    carried = _carried(joins)
    results = flatten_types(walk.instance.result)
    variables = _flat_types(joins)

    def returned(values: list[Value]) -> list[Value]:
        return [walk.emit.constant(True, i1), *values, *unread(walk, carried)]

    def fell() -> list[Value]:
        return [walk.emit.constant(False, i1), *map(walk.emit.placeholder, results), *flat(walk, joins)]

    inner = _Frame([i1, *results, *variables], returned, fell)
    flag, *parts = walk.emit.parts(both(walk, op, (), inner), len(inner.types))

    def done() -> list[Value]:
        return frame.returned(parts[: len(results)])

    def go_on() -> list[Value]:
        enter(walk, joins, parts[len(results) :])
        return run(walk, rest[0][0], rest[1:], frame)

    return walk.emit.parts(branch(walk, flag, [done, go_on], frame.packed), len(frame.types))


def unread(walk: FunctionMirror, carried: dict[Value, Type]) -> list[Value]:
    """Something for each joined variable, on a path that has returned: what it holds, where that is of its type."""
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
    taken: int | None = walk.finding("taken", op)
    return sum(_ways_through(walk, body) for body in (op.bodies if taken is None else [op.bodies[taken]]))


def _ways_through(walk: FunctionMirror, body: Body) -> int:
    count = 1
    for op in body.entry.ops:
        if isinstance(op, core.Return):
            return 0
        if isinstance(op, py.If) and _returns(op):
            count *= ways_on(walk, op)
    return count


def can_be_flagged(walk: FunctionMirror, op: Op) -> bool:
    """Whether there are placeholders for what the function returns, and for what `op` joins."""
    joins: dict[Value, Type] = walk.finding("joins", op) or {}
    types = flatten_types(TupleType((walk.instance.result, *_carried(joins).values())))
    return not any(isinstance(type_, DescriptorType) for type_ in types)


@handles(py.For)
def for_(walk: FunctionMirror, op: py.For) -> Built:
    unrolled = walk.finding("unrolled", op)
    if unrolled is not None:
        unroll(walk, op, unrolled)
        return None
    found = walk.finding("ranges", op)
    index = index_type(found)
    start, stop, step = bounds(walk, op, (found.start, found.stop, found.step), index)
    joins = walk.finding("joins", op)
    initial = flat(walk, joins)

    def suite(parameters: list[Value]) -> Op:
        walk.values[op.suite.parameters[0]] = parameters.pop(0)
        enter(walk, joins, parameters)
        walk.suite(op.suite.entry.ops)
        return scf.Yield(flat(walk, joins))

    body = body_of(walk, [index, *_flat_types(joins)], _packed(joins), suite)
    walk.emit.builder.location = op.location
    bind(walk, joins, walk.emit.add(scf.For(start, stop, step, initial, body, **dict(found.options))))
    return None


def bounds(walk: FunctionMirror, op: py.For, types: Sequence[Type], index: Type) -> list[Value]:
    """Start, stop and step of a loop; constants stand where they are written, in this order."""
    ops = op.iterable.entry.ops
    call = op.iterable.entry.terminator.operands[0]
    given = next(inner for inner in ops if inner.result is call)
    bound: list[Any] = list((walk.finding("bound", given) or dict(enumerate(given.operands))).values())[:3]
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
    for (_, scope), item in zip(iterations, items, strict=True):
        walk.scope = scope
        walk.values[op.suite.parameters[0]] = item
        walk.suite(op.suite.entry.ops)
    walk.scope = around


def iterated(walk: FunctionMirror, op: py.For, count: int) -> Sequence[Built]:
    """What an unrolled loop runs over: the components of a tuple; numbers need no value."""
    walk.suite(op.iterable.entry.ops)
    value = walk.values.get(op.iterable.entry.terminator.operands[0])
    return value if isinstance(value, tuple) else (None,) * count


@handles(py.While)
def while_(walk: FunctionMirror, op: py.While) -> Built:
    if walk.finding("taken", op) is not None:
        return None
    joins = walk.finding("joins", op)
    initial = flat(walk, joins)

    def condition(parameters: list[Value]) -> Op:
        enter(walk, joins, parameters)
        return scf.Condition(walk.emit.truth(expression(walk, op.condition)), flat(walk, joins))

    def suite(parameters: list[Value]) -> Op:
        enter(walk, joins, parameters)
        walk.suite(op.suite.entry.ops)
        return scf.Yield(flat(walk, joins))

    bodies = [body_of(walk, _flat_types(joins), _packed(joins), part) for part in (condition, suite)]
    bind(walk, joins, walk.emit.add(scf.While(initial, *bodies)))
    return None


def expression(walk: FunctionMirror, body: Body) -> Operand:
    """Run the body of an expression; its value."""
    walk.suite(body.entry.ops)
    return walk.operand(body.entry.terminator.operands[0])


@handles(py.CondExpression)
def conditional(walk: FunctionMirror, op: py.CondExpression) -> Built:
    taken: int | None = walk.finding("taken", op)
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
    last = walk.finding("taken", op)
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


def _returns(op: Op) -> bool:
    return any(isinstance(inner, core.Return) for inner in op.walk())


def _is_short(rest: _Rest) -> bool:
    """True of a rest that is little more than a return."""
    trivial = (core.ConstantOp, core.VarLoad, py.Pack, core.Return, core.Yield)
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
