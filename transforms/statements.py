"""Marks of the statements of a source, where a debugger can stop: a transform of the Python model.

    var.store %27 %43;               debug.statement;        // with the place of the assignment
                                     var.store %27 %43;

A statement is a run of ops that ends in one whose result nothing uses, or in an assignment. As in Python, a line has
one mark in a suite, and a loop one at its head for each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ziggurat.codemodel.dialects import core, debug, py
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.location import LIBRARY, Location
from ziggurat.codemodel.op import BlockParameter, Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform


@attrs.frozen
class _Mark:
    """A mark before an op."""

    op: Op
    location: Location
    breaks: bool = False


def with_statements(function: Op) -> Op:
    """The Python model of a function with the marks of its statements; one of the language's library stays as it is."""
    location = function.location
    if not isinstance(function, core.Func) or location is None or location.file.startswith(LIBRARY):
        return function
    # The `return` at the end that the source does not have is at the function's place.
    own = (mark for mark in _marks(function.body.entry.ops, None, None) if mark.location != location)
    marks = by_key((mark.op, mark) for mark in own)

    def mark_before(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        for mark in marks.get(op, ()):
            builder.add(debug.Statement(breaks=mark.breaks), mark.location)
        return None

    return transform(function, mark_before)


def _marks(ops: Sequence[Op], around: Location | None, loop: py.For | None) -> Iterator[_Mark]:
    """The marks of a suite. `around` is the place of the statement that it belongs to, `loop` the loop around it."""
    first: Op | None = None
    last = around
    for op in ops:
        first = op if first is None else first
        ends = isinstance(op, core.Var | core.VarStore | core.Return | core.Yield)
        if not ends and op.result.uses:
            continue
        breaks = isinstance(op, py.Invoke) and op.callee == "builtins.breakpoint"
        is_new = op.location is not None and (last is None or op.location.line != last.line)
        if op.location is not None and not _is_silent(op) and (is_new or breaks):
            yield _Mark(first, op.location, breaks)
            last = op.location
        if isinstance(op, py.Continue) and loop is not None and loop.location is not None:
            yield _Mark(op, loop.location)
        first = None
        if isinstance(op, py.For | py.While):
            assert op.location is not None
            inner = op if isinstance(op, py.For) else None
            yield from _marks(op.suite.entry.ops, op.location, inner)
            head = op.condition.entry.ops[0] if isinstance(op, py.While) else op.suite.entry.terminator
            if not isinstance(head, py.Continue | py.Break):
                yield _Mark(head, op.location)
        elif isinstance(op, py.If):
            for body in op.bodies:
                yield from _marks(body.entry.ops, op.location, loop)
        last = last if not op.bodies else None


def _is_silent(op: Op) -> bool:
    """Whether an op that ends a statement is none of the source's, or has its mark elsewhere."""
    if isinstance(op, core.Var):
        return op.initial is None or isinstance(op.initial, BlockParameter)
    return isinstance(op, core.Yield | py.While)
