"""Loop-invariant code motion: ops whose operands a loop does not change move before the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.op import Op, Value, constant_of
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.transforms.simplify.effects import is_nonzero, is_pure, is_read, may_stop, may_trap, may_write

Invariants = Callable[[scf.For | scf.While], Sequence[Op]]


def hoist(op: Op, invariants: Invariants | None = None) -> Op:
    """Move ops out of `scf.for` and `scf.while` that use nothing the loop computes; out of all the loops they stand in.

        scf.for %a %b %c (%i : i32)void -> {          %4 : i32 = arith.muli %0 %1;
            %4 : i32 = arith.muli %0 %1;              scf.for %a %b %c (%i : i32)void -> {
            %5 : i32 = arith.addi %4 %i;                  %5 : i32 = arith.addi %4 %i;
            tt.print %5 @"";                              tt.print %5 @"";
            scf.yield;                                    scf.yield;
        };                                            };

    Pure ops move that are defined for all operands: a loop may run no iteration, and then they run all the same. A read
    moves only when nothing in the loop may write memory, and the read surely happens: the loop runs at least once, and
    nothing before the read may fail, leave the function, or not end. Ops inside an `scf.if` stay there, and loops with
    `disable_licm` keep theirs. `invariants` may name other ops of a loop to move. Gives `op` itself where there is
    nothing to move.
    """
    moving = invariants or _invariants
    while any(moving(inner) for inner in op.walk() if isinstance(inner, scf.For | scf.While)):
        op = transform(op, _Hoisting(moving))
    return op


class _Hoisting:
    """The transformer, for one level: it moves ops from a loop to just before it."""

    def __init__(self, invariants: Invariants) -> None:
        self.invariants = invariants
        self.hoisted: set[Op] = set()

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in self.hoisted:
            return DROP
        if isinstance(op, scf.For | scf.While):
            for inner in self.invariants(op):
                builder.rewrite(inner)
                self.hoisted.add(inner)
        return None


def _invariants(loop: scf.For | scf.While) -> list[Op]:
    """The ops directly in the bodies of a loop that can move before it, in order."""
    if isinstance(loop, scf.For) and loop.disable_licm:
        return []
    writes = any(may_write(inner) for body in loop.bodies for block in body.blocks for inner in block.ops)
    ops: list[Op] = []
    moving: set[Value] = set()
    for index, body in enumerate(loop.bodies):
        for block in body.blocks:
            certain = block is body.entry and index == 0 and (isinstance(loop, scf.While) or _surely_runs(loop))
            for op in block.ops:
                good = not may_trap(op) if is_pure(op) else is_read(op) and certain and not writes
                if good and all(value in moving or _is_outside(value, loop) for value in op.used_values()):
                    ops.append(op)
                    moving.add(op.result)
                certain = certain and not may_stop(op)
    return ops


def _is_outside(value: Value, loop: Op) -> bool:
    block = value.block
    return block is not None and block.parent not in loop.bodies


def _surely_runs(loop: scf.For) -> bool:
    """Whether a loop runs at least one iteration."""
    if not is_nonzero(loop.step):
        return False
    start, stop, step = map(constant_of, (loop.start, loop.stop, loop.step))
    if start is None or stop is None or step is None:
        return False
    return start < stop if step > 0 else start > stop
