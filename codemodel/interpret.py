"""The engine that runs models. What an op means is not said here: each level registers its meanings in a table.

    integers = Meanings("integers")

    @integers.of(arith.AddI)
    def add(interpreter, op, operands):
        return operands[0] + operands[1]

A meaning is a function of the interpreter, the op and the values of its operands; it gives the value of the result.
What a terminator means is how control goes on: `Yielded`, `Returned` or `Jump`. Any other op may give one of these
too, and then leaves its block the same way: so a `return` inside an `if` leaves the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import attrs

from ziggurat.codemodel.errors import InternalError, ZigguratError
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value

# (interpreter, op, operands) -> result; the table guarantees the class of the op.
Meaning = Callable[..., Any]
M_ = TypeVar("M_", bound=Meaning)


class Exit:
    """How control leaves a block."""


@attrs.frozen
class Yielded(Exit):
    """The body is left; its op gets the values."""

    values: tuple[Any, ...] = ()


@attrs.frozen
class Returned(Exit):
    """The function is left, from any depth, with the values."""

    values: tuple[Any, ...] = ()


@attrs.frozen
class Jump(Exit):
    """Another block of the same body comes next."""

    successor: Successor


class Meanings:
    """What the ops mean at one level, by op class."""

    def __init__(self, level: str) -> None:
        self.level = level
        self._table: dict[type[Op], Meaning] = {}

    def of(self, *classes: type[Op]) -> Callable[[M_], M_]:
        """Decorator: the function is what these ops mean. Raises `ValueError` when one of them has a meaning."""

        def register(meaning: M_) -> M_:
            for cls in classes:
                if cls in self._table:
                    raise ValueError(f"'{cls.NAME}' has a meaning at the level {self.level} already")
                self._table[cls] = meaning
            return meaning

        return register

    def get(self, cls: type[Op]) -> Meaning | None:
        """The meaning of an op, or None."""
        return self._table.get(cls)

    def missing(self, classes: Iterable[type[Op]]) -> list[str]:
        """The names of those ops that have no meaning here, sorted."""
        return sorted(cls.NAME for cls in classes if cls not in self._table)


@attrs.frozen(eq=False)
class Step:
    """An op made ready to run: its meaning, and the values that are not needed once it has run."""

    op: Op
    meaning: Meaning
    operands: tuple[Value, ...]
    result: Value | None
    dead: tuple[Value, ...]


class Interpreter:
    """Runs bodies on values. `values` holds what the values of the model are now, in the function that is running.

    A subclass that keeps its values elsewhere overrides `lookup`, `bind` and `release`.
    """

    def __init__(self, meanings: Meanings) -> None:
        self.meanings = meanings
        self.values: dict[Value, Any] = {}
        self._plans: dict[Body, dict[Block, tuple[Step, ...]]] = {}

    def lookup(self, value: Value) -> Any:
        """What a value of the model is now."""
        return self.values[value]

    def bind(self, value: Value, held: Any) -> None:
        """From here on `value` is `held`."""
        self.values[value] = held

    def release(self, value: Value) -> None:
        """`value` is not used any more."""
        self.values.pop(value, None)

    def fail(self, op: Op, error: Exception) -> NoReturn:
        """Raise what a failure of an op's meaning becomes. A ZigguratError gets the op's location if it has none."""
        if isinstance(error, ZigguratError):
            if error.location is None:
                error.location = op.location
        elif op.location is not None:
            error.add_note(f"in {op.NAME}\n{op.location.excerpt()}")
        raise error

    def perform(self, step: Step) -> Any:
        """What the op of a step gives for its operands as they are now."""
        lookup = self.lookup
        try:
            return step.meaning(self, step.op, tuple([lookup(value) for value in step.operands]))
        except Exception as error:
            self.fail(step.op, error)

    def run_block(self, block: Block, arguments: Sequence[Any]) -> Exit:
        """Run the ops of a block, its parameters being `arguments`. Gives how control leaves it."""
        for parameter, argument in zip(block.parameters, arguments, strict=True):
            self.bind(parameter, argument)
        for step in self.plan(block.parent)[block]:
            outcome = self.perform(step)
            if isinstance(outcome, Exit):
                return outcome
            if step.result is not None:
                self.bind(step.result, outcome)
            for value in step.dead:
                self.release(value)
        raise InternalError("a block ends without a terminator")

    def run_body(self, body: Body, arguments: Sequence[Any] = ()) -> Exit:
        """Run a body from its entry until it is left: gives a `Yielded` or a `Returned`."""
        block = body.entry
        while True:
            outcome = self.run_block(block, arguments)
            if not isinstance(outcome, Jump):
                return outcome
            block = outcome.successor.block
            arguments = [self.lookup(value) for value in outcome.successor.arguments]

    def call(self, body: Body, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run the body of a function on values of its own; gives what it returns."""
        outer, self.values = self.values, {}
        try:
            outcome = self.run_body(body, arguments)
        finally:
            self.values = outer
        return outcome.values if isinstance(outcome, Returned | Yielded) else ()

    def plan(self, body: Body) -> dict[Block, tuple[Step, ...]]:
        """The steps of each block of a body. Raises `InternalError` at an op that has no meaning at this level."""
        plan = self._plans.get(body)
        if plan is None:
            plan = self._plans[body] = self._make_plan(body)
        return plan

    def _make_plan(self, body: Body) -> dict[Block, tuple[Step, ...]]:
        used = {block: [_used_by(op) for op in block.ops] for block in body.blocks}
        plan: dict[Block, tuple[Step, ...]] = {}
        for block in body.blocks:
            elsewhere: set[Value] = set()
            for other in body.blocks:
                if other is not block:
                    elsewhere.update(*used[other])
            last: dict[Value, int] = {}
            for index, values in enumerate(used[block]):
                last.update(dict.fromkeys(values, index))
            dying: list[list[Value]] = [[] for _ in block.ops]
            for value in (*block.parameters, *(op.result for op in block.ops)):
                if value in last and value not in elsewhere:
                    dying[last[value]].append(value)
            plan[block] = tuple(
                Step(
                    op,
                    self._meaning(op),
                    op.operands,
                    op.result if op.result in last or op.result in elsewhere else None,
                    tuple(dying[index]),
                )
                for index, op in enumerate(block.ops)
            )
        return plan

    def _meaning(self, op: Op) -> Meaning:
        meaning = self.meanings.get(type(op))
        if meaning is None:
            raise InternalError(f"'{op.NAME}' has no meaning at the level {self.meanings.level}", str(op))
        return meaning


def _used_by(op: Op) -> list[Value]:
    """All values that the op or an op inside it uses."""
    found = list(op.all_operands())
    for body in op.bodies:
        for inner in body.walk():
            found.extend(inner.all_operands())
    return found
