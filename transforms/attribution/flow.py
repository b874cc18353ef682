"""Attribution of control flow: states split, meet, and are brought to a fixpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import (
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
)
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.types import (
    ConstantType,
    Type,
    i1,
    i32,
    i64,
    shape_of,
    u32,
    u64,
)
from ziggurat.transforms.attribution.attribution import Scope
from ziggurat.transforms.attribution.calls import Calls
from ziggurat.transforms.attribution.lattice import (
    ERROR,
    UNASSIGNED,
    ErrorType,
    RangeType,
    Unusable,
    components,
    join,
)
from ziggurat.transforms.attribution.promotion import (
    NONE,
    constant,
    is_number,
    promote,
    scalar_type,
)
from ziggurat.transforms.attribution.wording import CHOSEN_FUNCTION, describe, is_function

_MAX_VISITS = 12
_MAX_UNROLL = 4096

# What the handler of an `if` gives when no path goes on after it.
_GONE: Any = None


class Flow(Calls):
    """What chooses and repeats."""

    def suite(self, body: Body) -> bool:
        return self.ops(body.entry.ops)

    def expression(self, body: Body) -> Type:
        """Run the body of an expression; its type."""
        self.ops(body.entry.ops)
        values = body.entry.terminator.operands
        return self.scope.type_of(values[0]) if values else NONE

    def if_(self, op: Op) -> Type:
        assert isinstance(op, py.If)
        condition = self.scope.type_of(op.condition)
        self.scope.taken.pop(op.result, None)
        if isinstance(condition, ConstantType):
            chosen = 0 if condition.value else 1
            self.scope.taken[op.result] = chosen
            return NONE if self.suite(op.bodies[chosen]) else _GONE
        self.truth(condition, "if", op.condition)
        before = dict(self.state)
        outcomes: list[dict[Value, Type]] = []
        for body in op.bodies:
            self.state = dict(before)
            if self.suite(body):
                outcomes.append(self.state)
        if not outcomes:
            self.state = before
            self.scope.joins[op.result] = {}
            return _GONE
        after = outcomes[0]
        for other in outcomes[1:]:
            after = {var: join(after.get(var, UNASSIGNED), other.get(var, UNASSIGNED), op.location) for var in before}
        self.state = {var: after[var] for var in before}
        self.scope.joins[op.result] = {var: self.state[var] for var in stored_variables(op) if var in before}
        return NONE

    def for_(self, op: Op) -> Type | None:
        assert isinstance(op, py.For)
        iterable = self.expression(op.iterable)
        if isinstance(iterable, ErrorType):
            return self.in_error(op)
        if isinstance(iterable, RangeType):
            if not isinstance(op.iterable.entry.ops[-2], py.Invoke):
                raise KernelSyntaxError("a range is written in the 'for' itself", op.location, "for i in range(…):")
            self.scope.ranges[op.result] = iterable
            if not iterable.static:
                return self.loop(op, [op.suite], index_type(iterable))
            bounds = (iterable.start, iterable.stop, iterable.step)
            numbers = range(*(bound.value for bound in bounds if isinstance(bound, ConstantType)))
            items: Sequence[Type] = [constant(number) for number in numbers[: _MAX_UNROLL + 1]]
        else:
            parts = components(iterable)
            if parts is None:
                raise KernelTypeError(
                    f"'for' runs over a range or a tuple, got {describe(iterable)}",
                    self.place_of(op.iterable.entry.terminator.operands[0]),
                    "range(…), zg.range(…) or zg.static_range(…) to count; a tuple of constants to run over its items",
                )
            items = parts
        if len(items) > _MAX_UNROLL:
            raise KernelValueError(f"a loop of more than {_MAX_UNROLL} iterations is not unrolled", hint="use range")
        self.unroll(op, items)
        return NONE

    def unroll(self, op: py.For, items: Sequence[Type]) -> None:
        around = self.scope
        made: list[tuple[Type, Scope]] = []
        for item in items:
            self.scope = Scope(around)
            self.scope.types[op.suite.parameters[0]] = item
            self.suite(op.suite)
            made.append((item, self.scope))
        self.scope = around
        around.unrolled[op.result] = made

    def while_(self, op: Op) -> Type:
        assert isinstance(op, py.While)
        return self.loop(op, [op.condition, op.suite], None)

    def loop(self, op: Op, bodies: Sequence[Body], item: Type | None) -> Type:
        """Run a loop to a fixpoint: the state at its head is above the one before it and the one after an iteration."""
        stored = [var for var in stored_variables(op) if var in self.state]
        entry = dict(self.state)
        head = dict(entry)
        failed: dict[Value, ErrorType] = {}
        known_errors = len(self.program.errors)
        # Types rise a few steps each, and from one variable to the next in a visit.
        for _ in range(_MAX_VISITS * (1 + len(stored))):
            del self.program.errors[known_errors:]
            self.state = dict(head)
            if item is not None:
                self.scope.types[bodies[0].parameters[0]] = item
            condition = NONE
            if isinstance(op, py.While):
                condition = self.expression(op.condition)
                if isinstance(condition, ConstantType):
                    if not condition.value:
                        self.scope.joins[op.result] = {}
                        self.scope.taken[op.result] = 1
                        return NONE
                elif not isinstance(condition, ErrorType):
                    self.truth(condition, "while", op.condition.entry.terminator.operands[0])
            self.scope.taken.pop(op.result, None)
            self.suite(bodies[-1])
            # What is in error after an iteration keeps its type at the head: the next visit finds the error again.
            failed = {var: ERROR for var in stored if isinstance(self.state[var], ErrorType)}
            after = {
                var: head[var] if var in failed else join(head[var], self.state[var], op.location, loop=True)
                for var in stored
            }
            if all(after[var] == head[var] for var in stored):
                if isinstance(op, py.While) and isinstance(condition, ConstantType):
                    raise KernelSyntaxError(
                        "this loop never ends: its condition is always true",
                        self.place_of(op.condition.entry.terminator.operands[0]),
                        "let the condition depend on a variable that the loop changes",
                    )
                break
            head.update(after)
        else:
            raise AssertionError("the types of a loop's variables do not settle")
        self.scope.joins[op.result] = {var: head[var] for var in stored}
        self.state = {**head, **failed}
        return self.in_error(op) or ERROR if isinstance(condition, ErrorType) else NONE

    def conditional(self, op: Op) -> Type:
        assert isinstance(op, py.CondExpression)
        condition = self.scope.type_of(op.condition)
        self.scope.taken.pop(op.result, None)
        if isinstance(condition, ConstantType):
            chosen = 0 if condition.value else 1
            self.scope.taken[op.result] = chosen
            return self.expression(op.bodies[chosen])
        self.truth(condition, "if", op.condition)
        first, second = (self.expression(body) for body in op.bodies)
        scalars = is_number(first) and is_number(second) and not shape_of(first) and not shape_of(second)
        if scalars and isinstance(first, ConstantType) != isinstance(second, ConstantType):
            return promote(first, second)
        joined = join(first, second)
        if isinstance(joined, Unusable):
            raise KernelTypeError(
                f"the two values of 'if … else' differ: {describe(first)} and {describe(second)}",
                hint=CHOSEN_FUNCTION if is_function(first) or is_function(second) else None,
            )
        return joined

    def short_circuit(self, op: Op) -> Type:
        is_and = isinstance(op, py.CondAnd)
        result: Type = constant(is_and)
        runtime = False
        for index, body in enumerate(op.bodies):
            type_ = self.expression(body)
            if isinstance(type_, ErrorType):
                return ERROR
            if isinstance(type_, ConstantType):
                if bool(type_.value) != is_and:
                    # What comes before may run; what comes after does not.
                    self.scope.taken[op.result] = index
                    return i1 if runtime else type_
                result = type_
                continue
            self.truth(type_, "and" if is_and else "or", body.entry.terminator.operands[0])
            runtime = True
        return i1 if runtime else result

    def assertion(self, op: Op) -> Type:
        assert isinstance(op, py.Assert)
        condition = self.scope.type_of(op.condition)
        message = NONE if op.message is None else self.scope.type_of(op.message)
        if not isinstance(message, ConstantType):
            raise KernelTypeError("the message of an assert is a constant string")
        if isinstance(condition, ConstantType):
            return self.rules.static_assert(condition.value, message.value or "")
        return self.rules.device_assert(condition, message.value or "")

    def error(self, op: Op) -> Type:
        """What is wrong in the source; it is run, so it is reported."""
        assert isinstance(op, py.Error)
        error = op.error()
        error.location = None  # Where the op stands; whoever reports it adds the calls that led there.
        raise error

    def return_(self, op: Op) -> None:
        values = op.operands
        self.returned(op, self.scope.type_of(values[0]) if values else NONE)

    def yield_(self, op: Op) -> Type:
        return NONE


def index_type(range_: RangeType) -> Type:
    """The type of the index of a loop: the common type of its bounds."""
    bounds = (range_.start, range_.stop, range_.step)
    numbers = [bound.value for bound in bounds if isinstance(bound, ConstantType)]
    if len(numbers) == len(bounds):
        low, high = min(numbers), max(numbers)
        return next((t for t in (i32, u32, i64, u64) if t.limits[0] <= low and high <= t.limits[1]), i64)
    result: Type | None = None
    for bound in bounds:
        if not isinstance(bound, ConstantType):
            result = scalar_type(bound) if result is None else promote(result, bound)
    assert result is not None
    for bound in bounds:
        result = promote(result, bound)
    return result


def stored_variables(op: Op) -> list[Value]:
    """The variables that ops inside `op` store to, in the order of the first store."""
    found: dict[Value, None] = {}
    for inner in op.walk():
        if isinstance(inner, core.VarStore):
            found.setdefault(inner.var)
    return list(found)
