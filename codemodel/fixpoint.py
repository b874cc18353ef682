"""Transformers applied again and again, until none of them says anything about any op of the model.

A round is one `transform`, so that each model stays as it is. It asks about all ops in order, and at once about the ops
that a transformer has added, and about those added for these: the users of a value come after it, so they are asked
when it is final. A later round asks about the ops that were added with bodies of their own, and about the users of what
changes there. When nothing is left to ask about, all ops are asked about once more, without a copy, as a transformer
may look at the uses of a value or around a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import Op, Value, require_argument, require_model
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, Transformer, changes, transform
from ziggurat.codemodel.types import void

Select = Callable[[Op, tuple[Value, ...]], Sequence[Transformer]]
Concerns = Callable[[type[Op]], bool]
_OF_EACH_OP = 16  # The applications that a model may have by default, for each of its ops.


def fixpoint(
    model: Op,
    select: Select,
    *,
    concerns: Concerns = lambda cls: True,
    limit: int | None = None,
    pass_name: str | None = None,
) -> Op:
    """The model about which no transformer says anything any more; `model` itself if none does now.

    `select` gives the transformers that are to be asked about an op, in order, for the op and its new operands, if
    `concerns` says that there are any for ops of its class. Raises `BuildError` where they say something more than
    `limit` times, by default 1000 times and 16 times for each op.
    """
    require_model(model, "fixpoint")
    fits = limit is None or (isinstance(limit, int) and limit > 0)  # pyright: ignore[reportUnnecessaryIsInstance]
    require_argument(limit, fits, "fixpoint: 'limit' must be a number of applications, one or more")
    count = 1000 + _OF_EACH_OP * sum(1 for _ in model.walk()) if limit is None else limit
    rules, applications, work = _Rules(select, concerns), 0, None
    while work is not None or changes(model, rules):
        step = _Round(rules, work, count, applications)
        new = transform(model, step, pass_name=pass_name)
        if new is model and work is None:
            break  # `changes` has taken a look at the builder for a change.
        model, work, applications = new, step.new_results or None, step.applications
    return model


class _Rules:
    """Transformers as one."""

    def __init__(self, select: Select, concerns: Concerns) -> None:
        self.select, self.concerns = select, concerns

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        for transformer in self.select(op, operands):
            if (outcome := transformer(builder, op, operands)) is not None:
                return outcome
        return None


class _Round:
    """The transformer of one round, which asks about the ops whose results are in `work`, or about all.

    `new_results` has the results of the ops that are to be asked about in the next round, and `dirty` the values that
    have changed.
    """

    def __init__(self, rules: _Rules, work: set[Value] | None, limit: int, applications: int) -> None:
        self.select, self.work, self.limit, self.applications = rules.select, work, limit, applications
        self.concerns: Concerns = rules.concerns if work is None else lambda cls: True
        self.new_results: set[Value] = set()
        self.dirty: set[Value] = set()

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        work = self.work
        if work is not None and op.result not in work and self.dirty.isdisjoint(operands):
            return None
        outcome, fresh = self._ask(builder, op, operands)
        if fresh:
            outcome = self._settle(builder, fresh, outcome)
        if work is not None:
            if outcome is None and not self.dirty.isdisjoint(operands):
                outcome = builder.copy(op, operands)
            if isinstance(outcome, Value):
                self.dirty.add(outcome)
        return outcome

    def _ask(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> tuple[Outcome, list[Op]]:
        """The outcome of the first rule that says something, and the ops that it has added, the last one first.

        These are taken out of the block again, to be asked about one by one. They stay in it until the next round where
        others may refer to them: the ops of a body, another block, the values that the rule has given old ones.
        """
        block, notes = builder.block, builder.notes
        ops: list[Op] = block._ops  # pyright: ignore[reportPrivateUsage, reportAssignmentType]
        count = len(ops)
        for transformer in self.select(op, operands):
            if (outcome := transformer(builder, op, operands)) is not None:
                self._note(op, transformer)
                fresh = ops[count:]
                if (
                    builder.block is block
                    and builder.notes == notes
                    and not any(n.bodies or n.successors for n in fresh)
                ):
                    del ops[count:]
                    return outcome, fresh[::-1]
                if builder.block is not block:
                    fresh += builder.block.ops
                self.new_results.update(inner.result for new in fresh for inner in new.walk())
                return outcome, []
        return None, []

    def _settle(self, builder: Rewriter, fresh: list[Op], outcome: Outcome) -> Outcome:
        """Append the ops that a rule has added, the last of them first, or what the rules make of them; the outcome."""
        values: dict[Value, Value] = {}

        def final(value: Value) -> Value:
            while (replacement := values.get(value)) is not None:
                value = replacement
            return value

        while fresh:
            op = fresh.pop()
            operands = tuple(map(final, op.operands))
            block = builder.block
            ops: list[Op] = block._ops  # pyright: ignore[reportPrivateUsage, reportAssignmentType]
            place = len(ops)
            if operands == op.operands and op.parent is block:
                ops.append(op)
                result = op.result
            else:
                result = values[op.result] = builder.add_copy(op, operands)
                op = result.op
            replacement, others = self._ask(builder, op, operands)
            if replacement is DROP and result.type is not void:
                # The uses of an op are not known before its body is finished.
                self.new_results.add(result)
            elif replacement is not None:
                if replacement is result or any(result in other.operands for other in others):
                    raise BuildError(
                        f"a rule for {op.NAME} uses the result that it replaces", hint="copy the op with Rewriter.copy"
                    )
                del ops[place]
                if isinstance(replacement, Value):
                    values[result] = replacement
                fresh += others
        return final(outcome) if isinstance(outcome, Value) else outcome

    def _note(self, op: Op, transformer: Transformer) -> None:
        self.applications += 1
        if self.applications > self.limit:
            name = getattr(transformer, "__name__", repr(transformer))
            raise BuildError(
                f"the rules were applied {self.limit} times, and apply still: '{name}' to {op.NAME}",
                op.location,
                "each rule must bring a model nearer to one that no rule applies to; a large model may need a higher "
                "limit",
            )
