"""What is done to one of several buffers in turn: which waits and arrivals keep the copy engine and its readers apart.

    gpu.mbarrier_wait %full[%turn] %phase;            gpu.mbarrier_wait %empty[%turn] …;
    %d = gpu.wgmma %buffers[%turn] …;                 gpu.mbarrier_expect %full[%turn] …;
    %e = gpu.wgmma_wait %d @0;                        gpu.tma_load … %buffers[%turn] %full[%turn] …;
    gpu.mbarrier_arrive %empty[%turn] …;

A read comes behind a wait for the fetch of just this buffer. Where warps have parted ways, a fetch comes behind a wait
for those who have read what was there; they arrive when the products that read it are complete. Buffers and mbarriers
are those of one turn if their number is the same value. A product that is under way into the next iteration is spoken
for by an arrival of another number there, behind a wait that covers it, and by one behind the loop; that their numbers
are those of the turn before is not checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.types import SharedType, i32

_COMPARED: Mapping[arith.IntPredicate, Callable[..., bool]] = {
    arith.IntPredicate.EQ: operator.eq,
    arith.IntPredicate.SLT: operator.lt,
}
# What reads buffers in shared memory.
READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma, gpu.LocalLoad, gpu.LocalGather, gpu.TmaStore)


@attrs.frozen
class Hazard:
    """Two accesses that lack something between them on some path: a "barrier", a "fence", a "wait" or an "arrival"."""

    first: Op
    second: Op
    missing: str

    def __str__(self) -> str:
        return f"no {self.missing} between {self.first!r} and {self.second!r}"


def allocation(buffer: Value) -> Value:
    """The allocation that a buffer is part of."""
    while isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalView | gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer


def in_turn(module: Op) -> Iterator[Hazard]:
    """What lacks a wait or an arrival."""
    yield from _too_early(module)
    for op in module.walk():
        if isinstance(op, gpu.WarpSpecialize):
            computing, *fetching = op.roles
            for role in fetching:
                yield from _too_soon_again(computing, role)


def _too_early(module: Op) -> Iterator[Hazard]:
    """The reads of one of several buffers for which the engine's fetch of just this one has not been waited for."""
    fetches: dict[Value, list[gpu.TmaLoad]] = {}
    for op in module.walk():
        if isinstance(op, gpu.TmaLoad) and buffers_in_turn(op.buffer) > 1:
            fetches.setdefault(allocation(op.buffer), []).append(op)
    for op in module.walk() if fetches else ():
        if not isinstance(op, READERS):
            continue
        for buffer in op.operands:
            mine = fetches.get(allocation(buffer), [])
            if mine and not {allocation(fetch.barrier) for fetch in mine} & {*_waited(op, _number_of(buffer))}:
                yield Hazard(mine[0], op, "wait")


def _too_soon_again(computing: Body, fetching: Body) -> Iterator[Hazard]:
    """The fetches of a role into buffers that the other one may still read."""
    arrivals = [op for op in _walk(computing) if isinstance(op, gpu.MbarrierArrive)]
    readers: dict[Value, list[Op]] = {}
    for op in _walk(computing):
        for buffer in op.operands if isinstance(op, READERS) else ():
            readers.setdefault(allocation(buffer), []).append(op)
    for fetch in _walk(fetching):
        if not isinstance(fetch, gpu.TmaLoad):
            continue
        waited = _waited(fetch, _number_of(fetch.buffer))
        for reader in readers.get(allocation(fetch.buffer), ()):
            if not isinstance(reader, gpu.Wgmma):
                # Threads have read it, for all of which no one of them can speak.
                yield Hazard(reader, fetch, "barrier")
                continue
            missing: str | None = "wait"
            for mbarrier in waited:
                speaking = [op for op in arrivals if allocation(op.barrier) is mbarrier]
                missing = _unspoken(reader, allocation(fetch.buffer), speaking)
                if missing is None:
                    break
            if missing is not None:
                yield Hazard(reader, fetch, missing)


def _unspoken(reader: gpu.Wgmma, buffer: Value, arrivals: Sequence[gpu.MbarrierArrive]) -> str | None:
    """What is missing until a product that reads a buffer is known to be over: an "arrival", or a "wait" before it."""
    block = reader.parent
    assert block is not None
    loop = reader.parent_op
    mine = {_number_of(value) for value in (reader.a, reader.b) if allocation(value) is buffer}
    order = {op.result: at for at, op in enumerate(block.ops)}
    inside = [op for op in arrivals if op.parent is block]
    now = [op for op in inside if _number_of(op.barrier) in mine]
    if now:
        covered = all(completes(block.ops[order[reader.result] + 1 : order[op.result]]) for op in now)
        return None if covered else "wait"
    # In the next iteration, and behind the last one.
    speaking = {op.result for op in arrivals}
    after = loop.parent.ops[place_in(loop, loop.parent) + 1 :] if loop is not None and loop.parent is not None else ()
    behind = [at for at, op in enumerate(after) if op.result in speaking]
    if not inside or not behind:
        return "arrival"
    covered = all(completes(block.ops[: order[op.result]]) for op in inside)
    covered = covered and all(completes(after[:at]) for at in behind)
    return None if covered else "wait"


def completes(ops: Sequence[Op]) -> bool:
    """Whether a product is complete behind the ops that follow it: a wait is for all but those begun since."""
    begun = 0
    for op in ops:
        if isinstance(op, gpu.WgmmaWait) and op.pending <= begun:
            return True
        begun += isinstance(op, gpu.Wgmma)
    return False


def _walk(body: Body) -> Iterator[Op]:
    for block in body.blocks:
        for op in block.ops:
            yield from op.walk()


def _waited(op: Op, number: Value | None) -> list[Value]:
    """The mbarriers whose one of this number has been waited for before an op, in its block or in one around it; the
    last of them last."""
    found: list[Value] = []
    while op.parent is not None:
        here = op.parent.ops[: place_in(op, op.parent)]
        waits = [before for before in here if isinstance(before, gpu.MbarrierWait)]
        found = [*(allocation(wait.barrier) for wait in waits if _number_of(wait.barrier) is number), *found]
        owner = op.parent_op
        if owner is None:
            break
        op = owner
    return found


def op_in(op: Op, block: Block) -> Op:
    """The op of a block that an op is, or is inside of."""
    while op.parent is not block:
        owner = op.parent_op
        assert owner is not None
        op = owner
    return op


def place_in(op: Op, block: Block) -> int:
    """The number of the op of a block that an op is, or is inside of. Ops that look alike are not the same."""
    op = op_in(op, block)
    return next(at for at, other in enumerate(block.ops) if other is op)


def _number_of(buffer: Value) -> Value | None:
    """Which one of several buffers a view is."""
    while isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer.op.index if isinstance(buffer, OpResult) and isinstance(buffer.op, gpu.LocalView) else None


def behind(copy: gpu.AsyncCopy | gpu.TmaLoad, loop: scf.For) -> int | None:
    """How many iterations before its own the buffer was read that a copy in a loop fills, as its number says.

    That is followed where it is computed from a number that the loop carries, the reads', by the operators that count
    round in a ring; for each of these numbers it must be the same. None where it is not, or cannot be followed.
    """
    count = buffers_in_turn(copy.buffer)
    number = _number_of(copy.buffer)
    found: set[int | None] = set()
    for turn in loop.body.parameters[1:] if number is not None else ():
        if turn.type != i32 or not any(_number_of(v) is turn for op in loop.walk() for v in _read(op, copy.buffer)):
            continue
        for now in range(count):
            filled = _computed(number, turn, now)
            found.add(None if filled is None else (now - filled) % count)
    return found.pop() if len(found) == 1 and 0 not in found else None


def _read(op: Op, buffer: Value) -> list[Value]:
    """What an op reads of the allocation that a buffer is part of."""
    if not isinstance(op, READERS):
        return []
    return [value for value in op.operands if allocation(value) is allocation(buffer)]


def _computed(value: Value | None, turn: Value, now: int) -> int | None:
    """A number that is computed from the turn, when that is `now`; None where it is computed in another way."""
    if value is turn:
        return now
    if not isinstance(value, OpResult):
        return None
    op = value.op
    if isinstance(op, arith.ConstantOp):
        return int(op.value)
    numbers: list[int] = []
    for operand in op.operands:
        number = _computed(operand, turn, now)
        if number is None:
            return None
        numbers.append(number)
    if isinstance(op, arith.AddI):
        return numbers[0] + numbers[1]
    if isinstance(op, arith.SubI):
        return numbers[0] - numbers[1]
    if isinstance(op, arith.Select):
        return numbers[1] if numbers[0] else numbers[2]
    if isinstance(op, arith.CmpI) and op.predicate in _COMPARED:
        return int(_COMPARED[op.predicate](numbers[0], numbers[1]))
    return None


def buffers_in_turn(buffer: Value) -> int:
    """How many buffers an allocation has that a buffer is one of."""
    type_ = allocation(buffer).type
    return type_.count if isinstance(type_, SharedType) else 1
