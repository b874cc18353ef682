"""Allocation of shared memory: an offset for every buffer, by liveness, and the limit checked.

    %2 : shared<x64, f32, "1 2 4 8 16 32"> = gpu.local_alloc;

becomes `gpu.local_alloc @offset=256`, and the module says how much there is in all: `gpu.module @shared=512`.

Buffers that are alive at the same time lie apart. The larger ones are placed first, each at the lowest free offset. A
buffer that is alive at the beginning of a loop stays alive until its end. A small buffer is kept longer, until the next
tensor has been through shared memory: its memory is then reused after a barrier that is needed anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.place.flow import WAITS, allocation
from ziggurat.transforms.place.queries import shared_of
from ziggurat.transforms.place.shared_memory_error import shared_memory_error

SMALL = 4096  # Bytes of a buffer that is kept longer to save a barrier.


@attrs.define(eq=False)
class Interval:
    """The live range of a buffer: from the op of number `start` to the op of number `end` of the model."""

    op: gpu.LocalAlloc
    start: int
    end: int
    offset: int = -1

    @property
    def size(self) -> int:
        return shared_of(self.op.result).bytes

    def meets(self, other: Interval) -> bool:
        """Whether both are alive at the same time."""
        return self.start <= other.end and other.start <= self.end


def allocate(module: gpu.Module) -> Op:
    """The GPU model whose buffers have offsets. Raises `ResourceError` if they need more than the target has."""
    intervals = intervals_of(module)
    total = place(intervals)
    limit = TARGETS[module.target].max_shared
    if total > limit:
        raise shared_memory_error(_at_worst(intervals), total, limit, module.target)
    offsets = {interval.op.result: interval.offset for interval in intervals}

    def with_offset(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.LocalAlloc):
            return builder.add(gpu.LocalAlloc(op.type, offset=offsets[op.result], alignment=op.alignment), op.location)
        if isinstance(op, gpu.Module):
            body = builder.rewrite_body(op.body, isolated=True)
            return builder.add(gpu.Module(op.target, op.num_warps, body, shared=total), op.location)
        return None

    return transform(module, with_offset)


def place(intervals: Sequence[Interval]) -> int:
    """Give every interval an offset; return the bytes that they take together."""
    done: list[Interval] = []
    for interval in sorted(intervals, key=lambda i: (-i.size, i.start)):
        alignment = interval.op.alignment
        offset = 0
        for other in sorted((o for o in done if o.meets(interval)), key=lambda o: o.offset):
            if offset + interval.size <= other.offset:
                break
            offset = max(offset, -(-(other.offset + other.size) // alignment) * alignment)
        interval.offset = offset
        done.append(interval)
    return max((interval.offset + interval.size for interval in done), default=0)


def intervals_of(module: gpu.Module) -> list[Interval]:
    """The live ranges of the buffers of a GPU model, in the order of the model."""
    ops = list(module.walk())
    # For each op: its number, and that of the last op inside it.
    numbers: dict[Value, tuple[int, int]] = {
        op.result: (at, at + sum(1 for _ in op.walk()) - 1) for at, op in enumerate(ops)
    }
    loops = sorted(_loops(module, numbers))
    intervals: list[Interval] = []
    for op in ops:
        if isinstance(op, gpu.LocalAlloc):
            start = numbers[op.result][0]
            intervals.append(Interval(op, start, max([start, *_ends(op.result, numbers, ops)])))
    reads = [numbers[op.result][0] for op in ops if isinstance(op, gpu.LocalLoad | gpu.LocalGather)]
    stores = [numbers[op.result][0] for op in ops if isinstance(op, gpu.LocalStore)]
    for interval in intervals:
        _extend(interval, loops)
        if interval.size <= SMALL:
            # Until the next read that has a barrier before it: of a tensor that is stored after this buffer's last use.
            store = min((s for s in stores if s > interval.end), default=interval.end)
            interval.end = max(interval.end, min((r for r in reads if r > store), default=interval.end))
            _extend(interval, loops)
    return intervals


def _loops(module: gpu.Module, numbers: dict[Value, tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """The numbers of the first and the last op of each loop."""
    for op in module.walk():
        if isinstance(op, scf.For | scf.While):
            yield numbers[op.result]
        for body in op.bodies:
            order: dict[Block, int] = {block: at for at, block in enumerate(body.blocks)}
            for block in body.blocks:
                for following in block.successors:
                    if order[following] <= order[block]:  # In reverse postorder, that is a back edge.
                        yield numbers[following.ops[0].result][0], numbers[block.terminator.result][1]


def _extend(interval: Interval, loops: Sequence[tuple[int, int]]) -> None:
    """Extend a live range that begins before a loop and ends in it to the end of the loop."""
    while ends := [end for start, end in loops if interval.start < start <= interval.end < end]:
        interval.end = max(ends)


def _ends(buffer: Value, numbers: Mapping[Value, tuple[int, int]], ops: Sequence[Op]) -> Iterable[int]:
    """The numbers of the ops after which uses of a buffer are over."""
    last = numbers[ops[0].result][1]
    for user in buffer.uses:
        if isinstance(user, gpu.LocalView):
            yield from _ends(user.result, numbers, ops)
        elif not user.NAME.startswith("gpu."):
            yield last  # Control flow passes it on, and it is not followed.
        else:
            number = numbers[user.result][0]
            waits = WAITS.get(type(user))
            if waits is None:
                yield number
                continue
            complete = (op for op in ops if isinstance(op, waits) and not getattr(op, "pending", 0))
            if isinstance(user, gpu.TmaLoad):
                mine = allocation(user.barrier)
                complete = (op for op in complete if allocation(op.operands[0]) is mine)
            # Every load of TMA is waited for: after it, or in the next iteration of its loop.
            never = number if isinstance(user, gpu.TmaLoad) else last
            yield min((n for op in complete if (n := numbers[op.result][0]) > number), default=never)


def _at_worst(intervals: Sequence[Interval]) -> list[gpu.LocalAlloc]:
    """The buffers that are alive when the most shared memory is needed."""
    alive = [[other for other in intervals if other.start <= each.start <= other.end] for each in intervals]
    return [interval.op for interval in max(alive, key=lambda together: sum(each.size for each in together))]
