"""The engine that runs models. Each level registers the meanings of its ops in a table.

    integers = OpTable[Meaning]("meaning in integers")

    @integers.of(arith.AddI)
    def add(interpreter, op, operands):
        return operands[0] + operands[1]

A meaning is a function of the interpreter, the op and the values of its operands; it gives the value of the result.
The meaning of a terminator gives an `Exit`: `Yielded`, `Returned` or `Jump`. Any other op may give one too, and then
control leaves its block in the same way: a `return` inside an `if` leaves the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import attrs

from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import InternalError, ZigguratError
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value

# (interpreter, op, operands) -> result; the table guarantees the class of the op.
Meaning = Callable[..., Any]


class Exit:
    """The way in which control leaves a block."""


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


@attrs.frozen(eq=False)
class Step:
    """An op ready to run: its meaning, and the values that are dead after it."""

    op: Op
    meaning: Meaning
    operands: tuple[Value, ...]
    result: Value | None
    dead: tuple[Value, ...]


class Interpreter:
    """Runs bodies. `values` maps values of the model to their present contents, in the function that is running.

    A subclass that keeps its values elsewhere overrides `lookup`, `bind` and `release`.
    """

    def __init__(self, meanings: OpTable[Meaning]) -> None:
        self.meanings = meanings
        self.values: dict[Value, Any] = {}
        self._plans: dict[Body, dict[Block, tuple[Step, ...]]] = {}

    def lookup(self, value: Value) -> Any:
        """The present content of a value of the model."""
        return self.values[value]

    def bind(self, value: Value, content: Any) -> None:
        """Set the content of a value."""
        self.values[value] = content

    def release(self, value: Value) -> None:
        """Forget a value that is not used any more."""
        self.values.pop(value, None)

    def fail(self, op: Op, error: Exception) -> NoReturn:
        """Raise the error of an op's meaning. A ZigguratError gets the op's location if it has none."""
        if isinstance(error, ZigguratError):
            if error.location is None:
                error.location = op.location
        elif op.location is not None:
            error.add_note(f"in {op.NAME}\n{op.location.excerpt()}")
        raise error

    def perform(self, step: Step) -> Any:
        """Run the op of a step on the present contents of its operands; give its result."""
        lookup = self.lookup
        try:
            return step.meaning(self, step.op, tuple([lookup(value) for value in step.operands]))
        except Exception as error:  # Meanings compute with the program's values, and call functions of the host.
            self.fail(step.op, error)

    def run_block(self, block: Block, arguments: Sequence[Any]) -> Exit:
        """Run the ops of a block with these arguments for its parameters. Gives the way control leaves the block."""
        for parameter, argument in zip(block.parameters, arguments, strict=True):
            self.bind(parameter, argument)
        for step in self.plan(block.parent)[block]:
            outcome = self.perform(step)
            if issubclass(type(outcome), Exit):  # `isinstance` would ask an object of the program for its class.
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
        """Run the body of a function with fresh values; gives the values it returns."""
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
        # The block and the number of the last op that uses a value; no block for one that several blocks use.
        last: dict[Value, tuple[Block | None, int]] = {}
        for block in body.blocks:
            for index, op in enumerate(block.ops):
                for value in op.used_values():
                    place, _ = last.get(value, (block, 0))
                    last[value] = block if place is block else None, index
        dead = by_key((end, value) for value, end in last.items() if value.block is end[0])

        def step(op: Op, place: tuple[Block, int]) -> Step:
            result = op.result if op.result in last else None
            return Step(op, self.meanings[op], op.operands, result, tuple(dead.get(place, ())))

        return {block: tuple(step(op, (block, index)) for index, op in enumerate(block.ops)) for block in body.blocks}
