"""Waits for wgmma move to where their results are used, so that dots that do not need each other overlap.

    %d = gpu.wgmma %k %q %zero;                      %d = gpu.wgmma %k %q %zero;
    %s = gpu.wgmma_wait %d @0;                       %e = gpu.wgmma %v %o %zero;
    %e = gpu.wgmma %v %o %zero;          becomes     %s = gpu.wgmma_wait %d @1;
    %t = gpu.wgmma_wait %e @0;                       %p = math.exp2 %s;
    %p = math.exp2 %s;                               %t = gpu.wgmma_wait %e @0;
    … %t …                                           … %t …

A wgmma completes after those that have begun before it, so a wait leaves in flight those that have begun since. The
backward pass of attention has such dots. This is done for loops that ask for roles: where the same threads also load,
the registers of two results in flight cost more than the overlap gains (note 003). The steps of a dot that is summed
in f32 (`within`) stay one after the other, as each has an accumulator of its own.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform


def sink_waits(module: Op, every: bool) -> Op:
    """The GPU model whose waits for wgmma stand after other dots, and after what uses their results: in the loops that
    ask for roles, or in `every` loop."""
    follow: dict[Op, list[ResultWait]] = {}  # The waits that come after an op.
    pending: dict[Op, int] = {}
    for loop in module.walk():
        if isinstance(loop, scf.For) and (every or loop.warp_specialize):
            for block in loop.body.blocks:
                _plan(block, follow, pending)
    if not pending:
        return module

    def sunk(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        copy = DROP if op in pending else builder.copy(op, operands) if op in follow else None
        for wait in follow.get(op, ()):
            sunk_wait = wait.evolve(value=builder[wait.value], pending=pending[wait])
            builder[wait.result] = builder.add(sunk_wait, wait.location)
        return copy

    return transform(module, sunk, pass_name="sink_waits")


def _plan(block: Block, follow: dict[Op, list[ResultWait]], pending: dict[Op, int]) -> None:
    """Find the new places of a block's waits.

    A wait moves after the last wgmma before the first use of its result, or after the last op before it that uses the
    result of a wgmma that has begun earlier. It does not move after other ops: what they compute would take registers
    beside those of the accumulator.
    """
    order = {op: at for at, op in enumerate(block.ops)}
    earlier = set[Value]()  # The results of wgmma, after their waits.
    for wait in block.ops:
        first = wait.value.op if isinstance(wait, ResultWait) else None
        if not isinstance(wait, ResultWait) or not isinstance(first, ResultInFlight) or first.is_part:
            continue
        at = order[wait]
        # A use in a block after this one, behind an early return, leaves the wait in its place.
        users = [op for user in wait.result.uses for op in (user, *user.path()) if op.parent is block]
        use = min((order[op] for op in users), default=at)
        between = block.ops[at + 1 : use]
        ops = [op for op in between if isinstance(op, ResultInFlight) or earlier.intersection(op.operands)]
        if ops:
            follow.setdefault(ops[-1], []).append(wait)
            pending[wait] = wait.begun(block.ops[at : order[ops[-1]] + 1])
        earlier.add(wait.result)
