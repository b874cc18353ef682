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
from ziggurat.transforms.attribution.lattice import ErrorType, Unusable
from ziggurat.transforms.attribution.operators import COMPARISONS
from ziggurat.transforms.attribution.promotion import NONE
from ziggurat.transforms.mirror.emit import Built, Operand, flatten_types, packed_type, rebuild
from ziggurat.transforms.mirror.expressions import Expressions

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


class Flow(Expressions):
    """What chooses and repeats."""

    def run(self, ops: Sequence[Op], rest: _Rest, frame: _Frame) -> list[Value]:
        """Run ops, and the rest after them; the values of the frame."""
        for index, op in enumerate(ops):
            if isinstance(op, core.Return):
                value = self.operand(op.operands[0]) if op.operands else _VOID
                return frame.returned(self.emit.repack(value, self.instance.result))
            if isinstance(op, py.If) and _returns(op):
                return self.if_with_return(op, ((ops[index + 1 :], op), *rest), frame)
            if not isinstance(op, core.Yield):
                self.step(op)
        if rest:
            ops, met = rest[0]
            self.meet(met)
            return self.run(ops, rest[1:], frame)
        return frame.fell()

    def function_frame(self) -> _Frame:
        """The frame of the whole function: its results."""
        return _Frame(flatten_types(self.instance.result), lambda values: values, list)

    def meet(self, op: Op) -> None:
        """Bring the variables that `op` joins to their joined types."""
        joins = self.scope.joins.get(op.result)
        for var, type_ in (joins or {}).items():
            self.variables[var] = self.brought(var, type_)

    def brought(self, var: Value, type_: Type) -> Operand:
        """A variable's value as one of `type_`."""
        operand = self.variables.get(var)
        if operand is None or isinstance(type_, Unusable | ErrorType | ConstantType):
            return Operand(type_, None)
        return Operand(type_, rebuild(type_, self.emit.repack(operand, type_)))

    def if_(self, op: Op) -> Built:
        assert isinstance(op, py.If)
        taken: int | None = self._finding("taken", op)
        if taken is not None:
            self.suite(op.bodies[taken].entry.ops)
            return None
        condition = self.emit.truth(self.operand(op.condition))
        joins: dict[Value, Type] = self._finding("joins", op) or {}
        before = dict(self.variables)
        result = packed_type(TupleType(tuple(_carried(joins).values())))
        bodies: list[Body] = []
        for body in op.bodies:
            self.variables = dict(before)
            inner = self.emit.builder.nested([], result)
            outer = self.nested(inner)
            self.suite(body.entry.ops)
            self.emit.add(scf.Yield(self.flat(joins)))
            self.leave(outer)
            bodies.append(inner.finish())
        self.variables = before
        self.emit.builder.location = op.location
        made = self.emit.add(scf.If(condition, *bodies))
        self.bind(joins, made)
        return None

    def flat(self, joins: dict[Value, Type]) -> list[Value]:
        """The run-time values of the joined variables, brought to the joined types."""
        return [
            value for var, type_ in _carried(joins).items() for value in self.emit.repack(self.variables[var], type_)
        ]

    def bind(self, joins: dict[Value, Type], made: Value) -> None:
        """Give the joined variables what an op yields."""
        carried = _carried(joins)
        packed = TupleType(tuple(carried.values()))
        parts: Any = self.emit.unpack(made, packed) if carried else ()
        for (var, type_), part in zip(carried.items(), parts, strict=True):
            self.variables[var] = Operand(type_, part)
        self.forget(joins)

    def forget(self, joins: dict[Value, Type]) -> None:
        """Joined variables without a run-time value: constants, and those that must not be read."""
        for var, type_ in joins.items():
            if isinstance(type_, ConstantType):
                self.variables[var] = Operand(type_, None)
            elif isinstance(type_, Unusable | ErrorType):
                self.variables.pop(var, None)

    def if_with_return(self, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
        """An `if` in which a path returns. What comes after it moves into the path that does not.

        Where there are several such paths, it would be there several times; then it goes into an `if` of its own.
        """
        taken: int | None = self._finding("taken", op)
        if taken is not None:
            return self.run(op.bodies[taken].entry.ops, rest, frame)
        if self.ways_on(op) > 1 and not _is_short(rest) and self.can_be_flagged(op):
            return self.if_and_rest(op, rest, frame)
        return self.emit.parts(self.both(op, rest, frame), len(frame.types))

    def both(self, op: py.If, rest: _Rest, frame: _Frame) -> Value:
        """An `scf.if` of the two suites, each with the rest after it, that yields the values of the frame."""
        condition = self.emit.truth(self.operand(op.condition))
        before = dict(self.variables)
        bodies: list[Body] = []
        for body in op.bodies:
            self.variables = dict(before)
            inner = self.emit.builder.nested([], frame.packed)
            outer = self.nested(inner)
            self.emit.add(scf.Yield(self.run(body.entry.ops, rest, frame)))
            self.leave(outer)
            bodies.append(inner.finish())
        self.variables = before
        self.emit.builder.location = op.location
        return self.emit.add(scf.If(condition, *bodies))

    def if_and_rest(self, op: py.If, rest: _Rest, frame: _Frame) -> list[Value]:
        """The `if` yields whether it has returned, what, and the joined variables; the rest is under a second `if`."""
        joins: dict[Value, Type] = self._finding("joins", op) or {}
        carried = _carried(joins)
        results = flatten_types(self.instance.result)
        variables = flatten_types(TupleType(tuple(carried.values())))

        def returned(values: list[Value]) -> list[Value]:
            return [self.emit.constant(True, i1), *values, *self.unread(carried)]

        def fell() -> list[Value]:
            return [self.emit.constant(False, i1), *map(self.emit.placeholder, results), *self.flat(joins)]

        inner = _Frame([i1, *results, *variables], returned, fell)
        flag, *parts = self.emit.parts(self.both(op, (), inner), len(inner.types))
        before = dict(self.variables)

        def done() -> list[Value]:
            return frame.returned(parts[: len(results)])

        def go_on() -> list[Value]:
            self.enter(joins, parts[len(results) :])
            return self.run(rest[0][0], rest[1:], frame)

        made = self.branch(flag, [done, go_on], frame.packed)
        self.variables = before
        return self.emit.parts(made, len(frame.types))

    def unread(self, carried: dict[Value, Type]) -> list[Value]:
        """Something for each joined variable, on a path that has returned: what it holds, where that is of its type."""
        values: list[Value] = []
        for var, type_ in carried.items():
            operand = self.variables.get(var)
            if operand is not None and operand.type == type_:
                values.extend(self.emit.repack(operand, type_))
            else:
                values.extend(map(self.emit.placeholder, flatten_types(type_)))
        return values

    def ways_on(self, op: Op) -> int:
        """In how many ways control comes to what stands behind an `if`."""
        taken: int | None = self._finding("taken", op)
        return sum(map(self._ways_through, op.bodies if taken is None else [op.bodies[taken]]))

    def _ways_through(self, body: Body) -> int:
        count = 1
        for op in body.entry.ops:
            if isinstance(op, core.Return):
                return 0
            if isinstance(op, py.If) and _returns(op):
                count *= self.ways_on(op)
        return count

    def can_be_flagged(self, op: Op) -> bool:
        """Whether there are placeholders for what the function returns, and for what `op` joins."""
        joins: dict[Value, Type] = self._finding("joins", op) or {}
        types = flatten_types(TupleType((self.instance.result, *_carried(joins).values())))
        return not any(isinstance(type_, DescriptorType) for type_ in types)

    def for_(self, op: Op) -> Built:
        assert isinstance(op, py.For)
        unrolled = self._finding("unrolled", op)
        if unrolled is not None:
            self.unroll(op, unrolled)
            return None
        found = self._finding("ranges", op)
        index = index_type(found)
        bounds = self.bounds(op, (found.start, found.stop, found.step), index)
        joins = self._finding("joins", op)
        types = list(_carried(joins).values())
        initial = self.flat(joins)
        inner = self.emit.builder.nested(
            [index, *flatten_types(TupleType(tuple(types)))], packed_type(TupleType(tuple(types)))
        )
        before = dict(self.variables)
        self.enter(joins, list(inner.parameters[1:]))
        item = op.suite.parameters[0]
        self.values[item] = inner.parameters[0]
        outer = self.nested(inner)
        self.suite(op.suite.entry.ops)
        self.emit.add(scf.Yield(self.flat(joins)))
        self.leave(outer)
        self.variables = before
        self.emit.builder.location = op.location
        start, stop, step = bounds
        made = self.emit.add(scf.For(start, stop, step, initial, inner.finish(), **dict(found.options)))
        self.bind(joins, made)
        return None

    def bounds(self, op: py.For, types: Sequence[Type], index: Type) -> list[Value]:
        """Start, stop and step of a loop; constants stand where they are written, in this order."""
        ops = op.iterable.entry.ops
        call = op.iterable.entry.terminator.operands[0]
        given = next(inner for inner in ops if inner.result is call)
        bound: list[Any] = list((self._finding("bound", given) or dict(enumerate(given.operands))).values())[:3]
        written: list[Value | None] = [value if isinstance(value, Value) else None for value in bound]
        written += [None] * (3 - len(written))
        if written[1] is None:
            written = [None, written[0], written[2]]
        made: dict[int, Value] = {}

        def fill(place: int) -> None:
            value = written[place]
            known = None if value is None else self.values.get(value)
            made[place] = self.emit.convert(Operand(types[place], known), index)

        if written[0] is None:
            fill(0)
        for inner in ops:
            if inner is given or isinstance(inner, core.Yield):
                continue
            self.step(inner)
            for place, value in enumerate(written):
                if value is inner.result and isinstance(types[place], ConstantType):
                    fill(place)
        for place in range(3):
            if place not in made:
                fill(place)
        return [made[place] for place in range(3)]

    def enter(self, joins: dict[Value, Type], parameters: list[Value]) -> None:
        """Give the loop-carried variables the parameters of the body."""
        for var, type_ in _carried(joins).items():
            self.variables[var] = Operand(type_, rebuild(type_, parameters))
        self.forget(joins)

    def unroll(self, op: py.For, iterations: Sequence[tuple[Type, Scope]]) -> None:
        items = self.iterated(op, len(iterations))
        around = self.scope
        for (_, scope), item in zip(iterations, items, strict=True):
            self.scope = scope
            self.values[op.suite.parameters[0]] = item
            self.suite(op.suite.entry.ops)
        self.scope = around

    def iterated(self, op: py.For, count: int) -> Sequence[Built]:
        """What an unrolled loop runs over: the components of a tuple; numbers need no value."""
        self.suite(op.iterable.entry.ops)
        value = self.values.get(op.iterable.entry.terminator.operands[0])
        return value if isinstance(value, tuple) else (None,) * count

    def while_(self, op: Op) -> Built:
        assert isinstance(op, py.While)
        if self._finding("taken", op) is not None:
            return None
        joins = self._finding("joins", op)
        types = flatten_types(TupleType(tuple(_carried(joins).values())))
        packed = packed_type(TupleType(tuple(_carried(joins).values())))
        initial = self.flat(joins)
        before = dict(self.variables)
        bodies: list[Body] = []
        for index, body in enumerate(op.bodies):
            inner = self.emit.builder.nested(types, packed)
            self.variables = dict(before)
            self.enter(joins, list(inner.parameters))
            outer = self.nested(inner)
            if index == 0:
                condition = self.emit.truth(self.expression(body))
                self.emit.add(scf.Condition(condition, self.flat(joins)))
            else:
                self.suite(body.entry.ops)
                self.emit.add(scf.Yield(self.flat(joins)))
            self.leave(outer)
            bodies.append(inner.finish())
        self.variables = before
        self.emit.builder.location = op.location
        made = self.emit.add(scf.While(initial, *bodies))
        self.bind(joins, made)
        return None

    def expression(self, body: Body) -> Operand:
        """Run the body of an expression; its value."""
        self.suite(body.entry.ops)
        return self.operand(body.entry.terminator.operands[0])

    def conditional(self, op: Op) -> Built:
        assert isinstance(op, py.CondExpression)
        taken: int | None = self._finding("taken", op)
        result = self.scope.type_of(op.result)
        if taken is not None:
            return self.expression(op.bodies[taken]).value
        if isinstance(result, ConstantType):
            return None
        condition = self.emit.truth(self.operand(op.condition))
        if all(_is_simple(body) for body in op.bodies) and not isinstance(result, TupleType):
            first, second = (self.emit.convert(self.expression(body), result) for body in op.bodies)
            return self.emit.add(arith.Select(condition, first, second))
        parts: list[Callable[[], list[Value]]] = [
            lambda body=body: self.emit.repack(self.expression(body), result) for body in op.bodies
        ]
        return self.emit.unpack(self.branch(condition, parts, packed_type(result)), result)

    def branch(self, condition: Value, parts: Sequence[Callable[[], list[Value]]], type_: Type) -> Value:
        """An `scf.if` whose bodies yield what the parts give."""
        bodies: list[Body] = []
        for part in parts:
            inner = self.emit.builder.nested([], type_)
            outer = self.nested(inner)
            self.emit.add(scf.Yield(part()))
            self.leave(outer)
            bodies.append(inner.finish())
        return self.emit.add(scf.If(condition, *bodies))

    def short_circuit(self, op: Op) -> Built:
        is_and = isinstance(op, py.CondAnd)
        if isinstance(self.scope.type_of(op.result), ConstantType):
            return None
        last = self._finding("taken", op)
        bodies = op.bodies if last is None else op.bodies[: last + 1]
        return self._chain(list(bodies), is_and)

    def _chain(self, bodies: list[Body], is_and: bool) -> Value:
        first = self.emit.truth(self.expression(bodies[0]))
        if len(bodies) == 1:
            return first
        if all(_is_simple(body) for body in bodies[1:]):
            for body in bodies[1:]:
                other = self.emit.truth(self.expression(body))
                first = self.emit.add((arith.AndI if is_and else arith.OrI)(first, other))
            return first

        def more() -> list[Value]:
            return [self._chain(bodies[1:], is_and)]

        def done() -> list[Value]:
            return [self.emit.constant(not is_and, i1)]

        return self.branch(first, [more, done] if is_and else [done, more], i1)

    def assertion(self, op: Op) -> Built:
        assert isinstance(op, py.Assert)
        condition = self.operand(op.condition)
        if not isinstance(condition.type, ConstantType):
            message = NONE if op.message is None else self.scope.type_of(op.message)
            text = message.value if isinstance(message, ConstantType) else None
            self.emit.add(tt.Assert(self.emit.truth(condition), message=text or ""))
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
