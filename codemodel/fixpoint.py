"""Transformers applied again and again, until none of them says anything about any op of the model.

A round is one `transform`, so that each model stays as it is. The first asks about all ops. A later one asks about the
ops that transformers added in the round before it, and about those that use what changes in this one; when these are
exhausted, all ops are asked about once more, as a transformer may look at the uses of a value or around a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import Op, Value, require_argument, require_model
from ziggurat.codemodel.transform import Outcome, Rewriter, Transformer, changes, transform

Select = Callable[[Op, tuple[Value, ...]], Sequence[Transformer]]
_OF_EACH_OP = 16  # The applications that a model may have by default, for each of its ops.


def fixpoint(model: Op, select: Select, *, limit: int | None = None, pass_name: str | None = None) -> Op:
    """The model about which no transformer says anything any more; `model` itself if none does now.

    `select` gives the transformers that are to be asked about an op, in order, for the op and its new operands. Raises
    `BuildError` where they say something more than `limit` times, by default 1000 times and 16 times for each op.
    """
    require_model(model, "fixpoint")
    fits = limit is None or (isinstance(limit, int) and limit > 0)  # pyright: ignore[reportUnnecessaryIsInstance]
    require_argument(limit, fits, "fixpoint: 'limit' must be a number of applications, one or more")
    count = 1000 + _OF_EACH_OP * sum(1 for _ in model.walk()) if limit is None else limit

    def ask(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        for transformer in select(op, operands):
            if (outcome := transformer(builder, op, operands)) is not None:
                return outcome
        return None

    applications = 0
    work: set[Value] | None = None
    while work is not None or changes(model, ask):
        step = _Round(select, work, count, applications)
        model = transform(model, step, pass_name=pass_name)
        work, applications = step.new_results or None, step.applications
    return model


class _Round:
    """The transformer of one round, which asks about the ops whose results are in `work`, or about all.

    `new_results` has the results of the ops that were added, and `dirty` the values that have changed.
    """

    def __init__(self, select: Select, work: set[Value] | None, limit: int, applications: int) -> None:
        self.select, self.work, self.limit, self.applications = select, work, limit, applications
        self.new_results: set[Value] = set()
        self.dirty: set[Value] = set()

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        work = self.work
        if work is not None and op.result not in work and self.dirty.isdisjoint(operands):
            return None
        block = builder.block
        count = len(block._ops)  # pyright: ignore[reportPrivateUsage]
        for transformer in self.select(op, operands):
            if (outcome := transformer(builder, op, operands)) is not None:
                self._note(op, transformer)
                blocks = (block,) if builder.block is block else (block, builder.block)
                for ops in (blocks[0]._ops[count:], *(other._ops for other in blocks[1:])):  # pyright: ignore[reportPrivateUsage]
                    self.new_results.update(inner.result for new in ops for inner in new.walk())
                if isinstance(outcome, Value):
                    self.dirty.add(outcome)
                return outcome
        if work is None or self.dirty.isdisjoint(operands):
            return None
        result = builder.copy(op, operands)
        self.dirty.add(result)
        return result

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
