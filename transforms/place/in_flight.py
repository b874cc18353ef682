"""What is begun is waited for: products of wgmma, copies of cp.async, stores of the copy engine.

    %3 = scf.for … (%i, %turn, %sum) {
        gpu.async_wait @1;                          two more groups than this one: of three buffers
        gpu.barrier;
        %d = gpu.wgmma %a[%turn] %b[%turn] %sum;
        %e = gpu.wgmma_wait %d @1;                  the product of the iteration before is complete,
        gpu.barrier;
        gpu.async_copy … %a[%before]; …             whose buffers are filled again
        gpu.async_commit;
        scf.yield %e …;
    }
    %4 = gpu.wgmma_wait %3 @0;                      before anything else has the sum

`barriers` follows accesses to single buffers. Of buffers in turn it cannot tell which one is meant, so here the waits
are counted: groups of copies and products end in the order in which they were begun. Copies go into the buffer that was
read so many iterations before as their number says (`turns.behind`); where it says nothing, nothing may be under way.
"""

from __future__ import annotations

from collections.abc import Iterator

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.transforms.place.rings import READERS, Hazard, allocation, behind, buffers_in_turn, completes, place_in

_HANDED_ON = (scf.Yield, scf.For, core.MakeTuple)
_WRITERS = (gpu.LocalStore, gpu.AsyncCopy, gpu.TmaLoad)


def not_waited_for(module: Op) -> Iterator[Hazard]:
    """The ops that come too early behind what was begun, and the stores that nobody waits for."""
    yield from _products_in_use(module)
    for op in module.walk():
        if isinstance(op, scf.For):
            yield from _loop(op)
        if isinstance(op, gpu.TmaStore) and not any(
            isinstance(later, gpu.TmaStoreWait) and not later.pending for later in _behind(op)
        ):
            yield Hazard(op, op, "wait")


# Products, by the values that they give.


def _products_in_use(module: Op) -> Iterator[Hazard]:
    """The uses of sums that may be under way, but by waits and by the products that go on with them."""
    for op in module.walk():
        for value in op.operands:
            product = _under_way(value, set())
            if product is None or isinstance(op, (gpu.WgmmaWait, *_HANDED_ON)):
                continue
            if isinstance(op, core.TupleLoad) or (isinstance(op, gpu.Wgmma) and value is op.c is not op.a):
                continue
            yield Hazard(product, op, "wait")


def _under_way(value: Value, seen: set[Value], component: int | None = None) -> gpu.Wgmma | None:
    """A product that may be under way when there is a value, which it gives; of a Tuple, one of its components."""
    if isinstance(value, BlockParameter):
        loop = value.block.parent.parent
        if value in seen or not isinstance(loop, scf.For) or value is loop.body.parameters[0]:
            return None
        seen.add(value)
        at = loop.body.parameters.index(value) - 1
        return _first(seen, loop.initial[at], loop.body.entry.terminator.operands[at])
    assert isinstance(value, OpResult)
    op = value.op
    if isinstance(op, gpu.Wgmma):
        return op
    if isinstance(op, gpu.WgmmaWait):
        return _under_way(op.value, seen) if op.pending else None
    if isinstance(op, core.TupleLoad):
        return _under_way(op.tuple, seen, op.index)
    if isinstance(op, core.MakeTuple) and component is not None:
        return _under_way(op.components[component], seen)
    if isinstance(op, scf.For) and op.initial:
        # Without a component: the one value that it carries.
        return _under_way(op.body.parameters[1 + (component or 0)], seen)
    if isinstance(op, scf.If):
        ends = [body.entry.terminator.operands for body in op.bodies if body.blocks]
        return _first(seen, *(end[component or 0] for end in ends if end))
    return None


def _first(seen: set[Value], *values: Value) -> gpu.Wgmma | None:
    return next((found for value in values if (found := _under_way(value, seen)) is not None), None)


# Buffers in turn, by the number of groups.


def _loop(loop: scf.For) -> Iterator[Hazard]:
    """What a loop that fills buffers in turn lacks."""
    block = loop.body.entry
    ops = block.ops
    copies = [op for op in loop.walk() if isinstance(op, gpu.AsyncCopy | gpu.TmaLoad) and _is_in_turn(op)]
    rings = {allocation(copy.buffer) for copy in copies}
    commits = sum(isinstance(op, gpu.AsyncCommit) for op in ops)
    by_threads = {allocation(copy.buffer): copy for copy in copies if isinstance(copy, gpu.AsyncCopy)}
    for at, op in enumerate(ops):
        for ring in [allocation(value) for value in op.operands if isinstance(op, READERS)]:
            # As many groups are begun ahead as there are buffers but those behind; the oldest is this turn's.
            back = behind(by_threads[ring], loop) if ring in by_threads else 1
            most = (buffers_in_turn(ring) - back - 1) * max(1, commits) if back is not None else 0
            if ring in by_threads and not any(
                isinstance(before, gpu.AsyncWait) and before.pending <= most for before in ops[:at]
            ):
                yield Hazard(by_threads[ring], op, "wait")
    for copy in copies:
        ring = allocation(copy.buffer)
        for at, op in enumerate(ops):
            if not isinstance(op, gpu.Wgmma) or not _reads(op, ring):
                continue
            # The copy fills what the product of an iteration before has read: of the last one, or of one before that.
            between = [*ops] * ((behind(copy, loop) or 1) - 1)
            if not completes([*ops[at + 1 :], *between, *ops[: place_in(copy, block)]]):
                yield Hazard(op, copy, "wait")
    # A loop inside of this one may have waited for all that it began.
    last = max((place_in(copy, block) for copy in by_threads.values()), default=len(ops))
    if by_threads and not any(isinstance(op, gpu.AsyncWait) and not op.pending for op in ops[last + 1 :]):
        yield from _left_over(loop, rings, next(iter(by_threads.values())))


def _left_over(loop: scf.For, rings: set[Value], copy: gpu.AsyncCopy) -> Iterator[Hazard]:
    """The first write to other buffers behind a loop, while its last copies may still write: zeros, beyond the end."""
    for op in _behind(loop):
        if isinstance(op, gpu.AsyncWait) and not op.pending:
            return
        if any(isinstance(inner, _WRITERS) and allocation(inner.buffer) not in rings for inner in op.walk()):
            yield Hazard(copy, op, "wait")
            return


def _is_in_turn(copy: gpu.AsyncCopy | gpu.TmaLoad) -> bool:
    return buffers_in_turn(copy.buffer) > 1


def _reads(op: Op, ring: Value) -> bool:
    return any(allocation(value) is ring for value in op.operands)


def _behind(op: Op) -> Iterator[Op]:
    """The ops behind an op, in its block and in those around."""
    place: Op | None = op
    while place is not None and place.parent is not None:
        yield from place.parent.ops[place_in(place, place.parent) + 1 :]
        place = place.parent_op
        if isinstance(place, tt.Func):
            return
