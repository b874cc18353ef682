"""Emission of regions: loop nests over vectors.

The innermost loop is that of the reduced axis, or of the lanes. It runs in two parts: while all lanes of all affine
accesses are inside of their counts, and for the rest, with masks. A row that is read in place, or stored around the
caches, has a part of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from ziggurat.backend.cpu import memory
from ziggurat.backend.cpu.access import Head, Matrix, gives_zeros, is_masked, row_ahead
from ziggurat.backend.cpu.control import ASSERTION
from ziggurat.backend.cpu.emitter import Coord, CpuEmitter, Index, emits, indexed
from ziggurat.backend.cpu.reductions import Tree
from ziggurat.backend.cpu.streaming import Stream, stream_of
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import core, cpu, tt
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.structured import packed_values
from ziggurat.transforms.cpu.dot_blocks import packing_obstacle
from ziggurat.transforms.cpu.traffic import access_of, readers

_STATEMENTS = (
    cpu.Put, cpu.Store, tt.Store, cpu.Count, tt.Assert, cpu.Load, tt.Load, tt.AtomicRMW, tt.AtomicCAS, tt.InlineAsm,
    cpu.Prefetch, tt.Reduce,
)  # fmt: skip

_FILLS = (cpu.Load, cpu.Put, cpu.Prefetch)  # A region of no other statements need not run if it is read in place.


@emits(cpu.Alloc)
def _alloc(emitter: CpuEmitter, op: cpu.Alloc) -> Number:
    return emitter.scratch_address(op.offset)


@emits(cpu.Access)
def _access(emitter: CpuEmitter, op: cpu.Access, *values: Number) -> tuple[Number, ...]:
    return values


@emits(cpu.Copy)
def _copy(emitter: CpuEmitter, op: cpu.Copy, source: Number, target: Number) -> None:
    type_ = expect(op.source.type, cpu.BufferType)
    pointers = [emitter.emit(f"inttoptr i64 {value} to ptr") for value in (target, source)]
    arguments = [*(("ptr", f"align 64 {pointer}") for pointer in pointers), ("i64", str(type_.bytes)), ("i1", "false")]
    emitter.line(emitter.called("void", "llvm.memcpy.p0.p0.i64", *arguments))


@indexed(cpu.Region)
def _region(emitter: CpuEmitter, op: cpu.Region, index: Index) -> Any:
    nest = emitter.nest = Nest(emitter, op)
    nest.begin()
    direct = nest.in_place
    if direct is not None and all(isinstance(inner, _FILLS) for inner in nest.statements):
        nest.in_place = None
        if direct.name != "true":
            memory.guarded(emitter, direct ^ True, nest.loops)
    else:
        nest.loops()
    for head in nest.heads.values():
        head.end()
    results = [nest.results[value] for value in op.body.entry.terminator.operands]
    emitter.forget()
    emitter.release()
    emitter.lanes = 0
    return packed_values(results)


@indexed(cpu.Load)
def _load(emitter: CpuEmitter, op: cpu.Load, index: Index) -> Number:
    nest: Nest = emitter.nest
    return nest.heads[op.result].load(index)


def _reduction_of(value: Value) -> Value:
    """The reduction whose result, or a component of whose result, a value is."""
    while isinstance(value.op, core.TupleLoad):
        value = value.op.tuple
    return value


@attrs.frozen
class Part:
    """The form of a part of the innermost loop. Indices from the `limit` on, if there is one, are masked."""

    limit: Number | None = None
    streams: bool = False  # Stores go around the caches.
    in_place: bool = False  # Nothing is stored to a buffer whose users read what it was filled from.


_WHOLE = Part()


class Nest:
    """One region while it is emitted."""

    def __init__(self, emitter: CpuEmitter, op: cpu.Region) -> None:
        self.emitter = emitter
        self.op = op
        self.shape = op.shape
        self.axis = op.inner_axis
        emitter.lanes = op.lanes if op.lanes > 1 else 0
        self.step = op.shape[self.axis] // op.vectors  # Elements of a vector along the innermost axis.
        self.results: dict[Value, Any] = {}
        ops = op.body.entry.ops[:-1]
        self.reductions = [inner for inner in ops if isinstance(inner, tt.Reduce)]
        reduced = {inner.result for inner in self.reductions}
        self.after = [inner for inner in ops if isinstance(inner, cpu.Put) and _reduction_of(inner.value) in reduced]
        # The operands of a reduction are computed at its place: a later statement may overwrite what they read.
        self.statements = [inner for inner in ops if isinstance(inner, _STATEMENTS) and inner not in self.after]
        self.coords = [Coord(emitter.i64(0)) for _ in self.shape]
        self.heads: dict[Value, Head] = {
            inner.result: Head(emitter, inner) for inner in ops if isinstance(inner, cpu.Load | cpu.Store)
        }
        self.rows: dict[Value, Number] = {}  # The addresses of the rows that are prefetched.
        self.in_place: Number | None = None  # Whether users of the region's buffer read what it was filled from.

    def begin(self) -> None:
        """Emit the tests of the accesses."""
        stores = [head for head in self.heads.values() if isinstance(head.op, cpu.Store)]
        for head in self.heads.values():
            head.begin(stores)
        for op in self.statements:
            if isinstance(op, cpu.Prefetch):
                self.rows[op.result] = row_ahead(self.emitter, access_of(op))
            elif isinstance(op, cpu.Put) and op.in_place:
                self._begin_in_place(op)

    def _begin_in_place(self, put: cpu.Put) -> None:
        """Test whether no load of the region is masked, all elements are then read without masks, and the users of the
        buffer store nothing to what they read; and let these read it there."""
        emitter, head, used = self.emitter, self.heads[put.value], readers(put)
        assert used is not None
        _, users = used
        if all(isinstance(user, cpu.Dot) and self._packs(user, put.buffer, head) for user in users):
            emitter.loaded[put.buffer] = Matrix.bare_of(head)
            self.in_place = emitter.number("i1", "true")
            return
        direct = head.good
        for other in self.heads.values():
            for count, size in zip(other.counts, other.shape, strict=True):
                direct = direct & count.test("eq", size)
        for user in users:
            if isinstance(user, cpu.Region):
                for op in user.body.entry.ops:
                    if isinstance(op, cpu.Store):
                        direct = direct & head.apart(Head(emitter, op))
        buffer = emitter.values[put.buffer]
        if isinstance(users[0], cpu.Dot):
            emitter.loaded[put.buffer] = Matrix.of(head, buffer, direct)
        else:
            emitter.values[put.buffer] = direct.select(head.base, buffer)
        self.in_place = direct

    def _packs(self, dot: cpu.Dot, buffer: Value, head: Head) -> bool:
        """Whether a dot packs a matrix from where it is, with zeros for what is masked."""
        vector, masks = self.emitter.module.vector, head.size >= 4 or self.emitter.module.vector == 64
        first = dot.a is buffer or dot.b is not buffer
        plain = vector > 16 and masks and gives_zeros(expect(head.op, cpu.Load))
        return plain and not first and packing_obstacle(dot, head.access, vector) is None

    # Loops.

    def loops(self) -> None:
        """Emit the loops."""
        outer, lanes = self.op.outer_axes, self.emitter.lanes
        if self.op.rows > 1:
            self.emitter.loop(0, self.shape[outer[0]], lanes, lambda first: self._rows(outer[0], first))
        elif not outer:
            self._inner()
        else:
            # One loop for all outer axes: LLVM's strength reduction takes very long for deep nests.
            sizes = [self.shape[axis] for axis in outer]

            def body(number: Number) -> None:
                for axis, size, stride in zip(outer, sizes, row_major(sizes), strict=True):
                    part = number / stride if stride > 1 else number
                    self.coords[axis] = Coord(part if axis == outer[0] else part % size)
                self._inner()

            self.emitter.loop(0, math.prod(sizes), 1, body)

    def _rows(self, axis: int, first: Number) -> None:
        """Reduce as many rows as a vector has lanes to a vector each, and these together."""
        emitter, lanes = self.emitter, self.emitter.lanes
        all_rows = [Tree(emitter, op, lanes, 0, True, rows=True) for op in self.reductions]

        def row(number: Number) -> None:
            self.coords[axis] = Coord(first + number)
            for tree, rows in zip(self._innermost(), all_rows, strict=True):
                rows.keep(tree.combined(), number)
                rows.orders = tree.orders[-1:]

        emitter.loop(0, lanes, 1, row)
        self.coords[axis] = Coord(first, True)
        self._finish(all_rows)

    def _inner(self) -> None:
        lane_axis = self.op.lane_axis
        if self.axis == lane_axis:
            self._finish(self._innermost())
            return

        def body(number: Number) -> None:
            self.coords[lane_axis] = Coord(number, self.emitter.lanes > 0)
            self._finish(self._innermost())

        self.emitter.loop(0, self.shape[lane_axis], self.op.lanes, body)

    def _innermost(self) -> list[Tree]:
        """The loop along the innermost axis, unrolled; what it reduces."""
        emitter, size, step, unroll = self.emitter, self.shape[self.axis], self.step, self.op.unroll
        heads = list(self.heads.values())
        limited = [head for head in heads if head.limits]
        full = self._full(limited) if limited else emitter.i64(size)
        stream = stream_of(emitter, heads, full)
        across = self.axis == self.op.lane_axis
        trees = [Tree(emitter, op, self.op.vectors // unroll, unroll, across) for op in self.reductions]
        loop = _Loop(self, trees)
        whole = step * unroll
        start: Number | int = full - full % whole if limited else size
        if stream is not None:
            loop.run(0, stream.holds.select(0, start, "i64"), unroll, _WHOLE)
            start = self._streamed(loop, stream, full, start)
        elif self.in_place is not None:
            loop.run(0, self.in_place.select(emitter.i64(size), 0), unroll, Part(in_place=True))
            loop.run(0, self.in_place.select(0, emitter.number("i64", start)), unroll, _WHOLE)
        elif not limited and whole == size:
            loop.group(emitter.i64(0), unroll, _WHOLE)
        else:
            loop.run(0, start, unroll, _WHOLE)
        if not limited:
            return trees
        carried = all(tree.parts for tree in trees)
        if trees and unroll > 1 and carried:
            rest = full - full % step
            loop.run(start, rest, 1, _WHOLE)
            start = rest
        stop, limit = self._last(limited), emitter.i64(size)
        if stream is None:
            loop.run(start, stop, 1 if carried else unroll, Part(limit))
        else:  # The elements before the first whole line as well.
            edge = stream.first.test("ne", 0).select(emitter.i64(step), 0)

            def edges(number: Number) -> None:
                before = number.test("ult", start)
                loop.group(before.select(0, number), 1, Part(before.select(stream.first, limit)))

            emitter.loop(start - edge, stop, step, edges)
        return trees

    def _streamed(self, loop: _Loop, stream: Stream, full: Number, start: Number | int) -> Number:
        """The part of whole lines around the caches, if the row streams; the index after what is done then, or else
        `start`."""
        emitter, step = self.emitter, self.step
        past = stream.first + (full - stream.first) / step * step

        def lines() -> None:
            for head in self.heads.values():
                if isinstance(head.op, cpu.Store):  # The stores around the caches would wait for these lines.
                    emitter.prefetch(emitter.moved(head.base, past, head.size), step * head.size, level=1, writes=True)
            loop.run(stream.first, past, 1, Part(streams=True))

        memory.guarded(emitter, stream.holds, lines)
        return stream.holds.select(past, start)

    def _full(self, heads: Sequence[Head]) -> Number:
        """The number of elements along the innermost axis up to which all lanes of all accesses are inside."""
        full, *rest = [head.inside(self.coords, self.axis) for head in heads]
        for other in rest:
            full = full.call("llvm.umin", other)
        return full

    def _last(self, limited: Sequence[Head]) -> Number | int:
        """The number of elements along the innermost axis after which no statement does anything."""
        stores = [head for head in limited if isinstance(head.op, cpu.Store)]
        others = [op for op in self.statements if not isinstance(op, cpu.Load | cpu.Prefetch)]
        return stores[0].counts[self.axis] if len(stores) == len(others) == 1 else self.shape[self.axis]

    # Statements.

    def state(self, part: Part) -> None:
        """Run the statements at the present index."""
        emitter, index = self.emitter, tuple(self.coords)
        for op in self.statements:
            outer, emitter._place = emitter._place, emitter.place(op)  # pyright: ignore[reportPrivateUsage]
            match op:
                case cpu.Put():
                    if not (op.in_place and part.in_place):
                        memory.put(emitter, op, emitter.at(op.value, index), index)
                case cpu.Store():
                    self.heads[op.result].store(index, part.streams)
                case cpu.Prefetch():
                    self._prefetch(op, index)
                case tt.Store():
                    memory.store(emitter, op, index)
                case cpu.Count():
                    memory.count(emitter, op, index)
                case tt.Assert():
                    self._assert(op, index)
                case tt.Reduce():
                    for value in op.values:
                        emitter.at(value, index)
                case _:
                    emitter.at(op.result, index)
            emitter._place = outer  # pyright: ignore[reportPrivateUsage]

    def _prefetch(self, op: cpu.Prefetch, index: Index) -> None:
        emitter, size = self.emitter, expect(op.access.type, cpu.AccessType).element.bytes
        if not is_masked(index):
            place = emitter.moved(self.rows[op.result], index[self.op.lane_axis].base, size)
            emitter.prefetch(place, self.op.lanes * size, level=op.cache)

    def _assert(self, op: tt.Assert, index: Index) -> None:
        emitter = self.emitter
        number = emitter.i64(0)
        for coord, stride in zip(index, row_major(self.shape), strict=True):
            number = emitter.vector(coord) * stride + number
        site = emitter.site(op, "asserts", message=op.message, shape=self.shape)
        condition = emitter.at(op.condition, index) ^ True
        lanes = max(condition.lanes, number.lanes)
        emitter.fail(ASSERTION, condition.spread(lanes), site, number.spread(lanes))

    def _finish(self, trees: Sequence[Tree]) -> None:
        """Store the results of the region's reductions to buffers."""
        emitter = self.emitter
        for tree in trees:
            self.results[tree.op.result] = tree.finish()
        for op in self.op.body.entry.ops:
            if isinstance(op, core.TupleLoad) and op.tuple in self.results:
                self.results[op.result] = self.results[op.tuple][op.index]
        index = tuple(coord for axis, coord in enumerate(self.coords) if axis != self.axis)
        for op in self.after:
            memory.put(emitter, op, self.results[op.value], index)


@attrs.frozen
class _Loop:
    """The innermost loop of a region, which runs in parts, and what these reduce."""

    nest: Nest
    trees: list[Tree]

    def group(self, number: Number, vectors: int, part: Part) -> None:
        """An iteration: so many vectors from an index on."""
        nest, emitter = self.nest, self.nest.emitter
        for position in range(vectors):
            base = emitter.behind(number, position * nest.step)
            nest.coords[nest.axis] = Coord(base, nest.step > 1, part.limit)
            nest.state(part)
            for tree in self.trees:
                tree.add(position, [emitter.at(value, tuple(nest.coords)) for value in tree.op.values])
        for tree in self.trees:
            tree.end(number / (nest.step * vectors))

    def run(self, start: Number | int, stop: Number | int, vectors: int, part: Part) -> None:
        """A loop of such iterations."""

        def body(number: Number, values: list[Number]) -> list[Number]:
            self._resume(values)
            self.group(number, vectors, part)
            return self._carried()

        step = self.nest.step * vectors
        self._resume(self.nest.emitter.folding_loop(stop, body, self._carried(), start, step))

    def _carried(self) -> list[Number]:
        return [number for tree in self.trees for number in tree.parts]

    def _resume(self, values: Sequence[Number]) -> None:
        rest = iter(values)
        for tree in self.trees:
            tree.parts = [next(rest) for _ in tree.parts]
