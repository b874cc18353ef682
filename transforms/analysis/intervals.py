"""The live ranges of buffers in shared memory, and the bytes that they take together.

    %2 : shared<x64, f32, "1 2 4 8 16 32"> = gpu.local_alloc;        alive from here
    gpu.local_store %2 %1;
    %3 : tensor<…> = gpu.local_load %2;                               to here

Buffers that are alive at the same time lie apart, as do those of roles that run side by side. The larger ones are
placed first, each at the lowest free offset. A buffer that is alive at the beginning of a loop stays alive until its
end. One that other CTAs of a cluster write to is alive from the beginning to the end. A small buffer is kept longer,
until the next tensor has been through shared memory: its memory is then reused after a barrier that is needed anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import Asynchronous, GroupWait
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.transforms.analysis.memory_flow import allocation, users_of
from ziggurat.transforms.analysis.queries import shared_of

SMALL = 4096  # Bytes of a buffer that is kept longer to save a barrier.


@attrs.define(eq=False)
class Interval:
    """The live range of a buffer: from the op of number `start` to the op of number `end` of the model, in a scope."""

    op: gpu.LocalAlloc
    start: int
    end: int
    scope: WarpScope
    offset: int = -1

    @property
    def size(self) -> int:
        return shared_of(self.op.result).bytes

    def meets(self, other: Interval) -> bool:
        """Whether both are alive at the same time, or may be."""
        return self.scope != other.scope or (self.start <= other.end and other.start <= self.end)


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


def intervals_of(module: gpu.Module, small: int = SMALL) -> list[Interval]:
    """The live ranges of the buffers of a GPU model, in the order of the model. Those of up to `small` bytes are kept
    longer."""
    ops = list(module.walk())
    # For each op: its number, and that of the last op inside it.
    numbers: dict[Op, tuple[int, int]] = {
        op: (at, at + sum(1 for _ in op.walk()) - 1 if op.bodies else at) for at, op in enumerate(ops)
    }
    loops = sorted(_loops(module, numbers))
    complete = [op for op in ops if (isinstance(op, GroupWait) and not op.pending) or isinstance(op, gpu.MbarrierWait)]
    intervals: list[Interval] = []
    for op in ops:
        if isinstance(op, gpu.LocalAlloc):
            start = numbers[op][0]
            end = max([start, *_ends(op.result, numbers, ops[0], complete)])
            if any(isinstance(user, gpu.ClusterStore) for user in users_of(op.result)):
                start, end = 0, len(ops)  # Other CTAs, which may be ahead or behind, write to it.
            intervals.append(Interval(op, start, end, scope_of(op)))
    reads = [numbers[op][0] for op in ops if isinstance(op, gpu.LocalLoad | gpu.LocalGather | gpu.MatrixProduct)]
    stores = [numbers[op][0] for op in ops if isinstance(op, gpu.LocalStore)]
    for interval in intervals:
        _extend(interval, loops)
        if interval.size <= small:
            # Until the next read that has a barrier before it: of a tensor that is stored after this buffer's last use.
            store = min((s for s in stores if s > interval.end), default=interval.end)
            interval.end = max(interval.end, min((r for r in reads if r > store), default=interval.end))
            _extend(interval, loops)
    return intervals


def _loops(module: gpu.Module, numbers: dict[Op, tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """The numbers of the first and the last op of each loop."""
    for op in module.walk():
        if isinstance(op, scf.For | scf.While):
            yield numbers[op]
        for body in op.bodies:
            order: dict[Block, int] = {block: at for at, block in enumerate(body.blocks)}
            for block in body.blocks:
                for following in block.successors:
                    if order[following] <= order[block]:  # In reverse postorder, that is a back edge.
                        yield numbers[following.ops[0]][0], numbers[block.terminator][1]


def _extend(interval: Interval, loops: Sequence[tuple[int, int]]) -> None:
    """Extend a live range that begins before a loop and ends in it to the end of the loop."""
    while ends := [end for start, end in loops if interval.start < start <= interval.end < end]:
        interval.end = max(ends)


def _ends(buffer: Value, numbers: Mapping[Op, tuple[int, int]], root: Op, complete: Sequence[Op]) -> Iterable[int]:
    """The numbers of the ops after which uses of a buffer are over. `complete` has the ops that wait for all ops."""
    last = numbers[root][1]
    for user in users_of(buffer):
        if not user.NAME.startswith("gpu."):
            yield last  # Control flow passes it on, and it is not followed.
        else:
            number = numbers[user][0]
            if not isinstance(user, Asynchronous):
                yield number
                continue
            ends = [op for op in complete if isinstance(op, user.WAIT)]
            if user.mbarrier is not None:
                mine = allocation(user.mbarrier)
                ends = [op for op in ends if allocation(op.operands[0]) is mine]
            # An op that an mbarrier completes is waited for after it, or in the next iteration of its loop.
            never = last if user.mbarrier is None else number
            yield min((n for op in ends if (n := numbers[op][0]) > number), default=never)
