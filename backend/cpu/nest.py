"""Emission of regions: loop nests over vectors.

The lanes are neighbours along the last axis that has more than one element. The innermost loop is that of the reduced
axis, or of the lanes. It runs in two parts: while all lanes of all affine accesses are inside of their counts, and for
the rest, with masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cpu import memory
from ziggurat.backend.cpu.access import Head, Matrix, step_of
from ziggurat.backend.cpu.control import ASSERTION, apply, is_straight
from ziggurat.backend.cpu.emitter import Coord, CpuEmitter, Index, emits, indexed
from ziggurat.backend.cpu.reductions import Tree
from ziggurat.backend.cpu.streaming import edges, stream_of
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import core, cpu, tt
from ziggurat.codemodel.op import Block, Op, OpResult, Value, expect
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.traits import MemoryWrite
from ziggurat.codemodel.types import TensorType, element_bytes, shape_of
from ziggurat.transforms.cpu.plan import EXPENSIVE, moved_operands

MAX_UNROLLED = 2  # Vectors of an iteration, where nothing is reduced.
MAX_REDUCED = 4  # Vectors of an iteration that reduces; half as many if it takes long to compute them.


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
    nest = Nest(emitter, op)
    nest.begin()
    buffer_and_head = nest.loaded()
    if buffer_and_head is None:
        nest.loops()
    else:
        buffer, head = buffer_and_head
        matrix = emitter.loaded[buffer] = Matrix.of(head, emitter.values[buffer])
        assert matrix.direct is not None
        memory.guarded(emitter, matrix.direct ^ True, nest.loops)
    nest.end()
    results = [nest.results[value] for value in op.body.entry.terminator.operands]
    emitter.forget()
    emitter.release()
    emitter.lanes = 0
    return packed_values(results)


def _reduction_of(value: Value) -> Value:
    """The reduction whose result, or a component of whose result, a value is."""
    while isinstance(value.op, core.TupleLoad):
        value = value.op.tuple
    return value


def _writes(op: Op) -> bool:
    return any(isinstance(inner, MemoryWrite) or _writes(inner) for inner in op.inner_ops())


def _shared_rows(block: Block, shape: tuple[int, ...]) -> tuple[cpu.Region, dict[Value, int], list[Value]] | None:
    """The busiest region of a shape without accesses, the places of the regions of that shape by their results, and the
    accesses that these load from. None if there is no such region."""
    same = [op for op in block.ops if isinstance(op, cpu.Region) and op.shape == shape]
    quiet = [op for op in same if not any(isinstance(inner, _AFFINE) for inner in op.body.entry.ops)]
    if not quiet:
        return None
    loads = (op.access for region in same for op in region.body.entry.ops if isinstance(op, cpu.Load))
    busiest = max(quiet, key=lambda op: len(op.body.entry.ops))
    return busiest, {op.result: at for at, op in enumerate(same)}, list(dict.fromkeys(loads))


class Nest:
    """One region while it is emitted."""

    def __init__(self, emitter: CpuEmitter, op: cpu.Region) -> None:
        self.emitter = emitter
        self.op = op
        self.shape = op.shape
        self.results: dict[Value, Any] = {}
        ops = op.body.entry.ops[:-1]
        self.reductions = [inner for inner in ops if isinstance(inner, tt.Reduce)]
        reduced = {inner.result for inner in self.reductions}
        after = [inner for inner in ops if isinstance(inner, cpu.Put) and _reduction_of(inner.value) in reduced]
        self.after = after
        # The operands of a reduction are computed at its place: a later statement may overwrite what they read.
        self.statements = [
            inner
            for inner in ops
            if isinstance(inner, (*_STATEMENTS, tt.Reduce)) and not any(inner is other for other in after)
        ]
        large = [axis for axis, size in enumerate(self.shape) if size > 1]
        self.lane_axis = large[-1] if large else len(self.shape) - 1
        self.axis = op.axis if op.axis >= 0 else self.lane_axis  # That of the innermost loop.
        emitter.lanes = self._lanes(ops)
        self.coords = [Coord(emitter.i64(0)) for _ in self.shape]
        self.heads = {inner.result: Head(emitter, inner) for inner in ops if isinstance(inner, cpu.Load | cpu.Store)}
        self.masked = False
        self.streams = False  # Whether stores go around the caches.
        self.direct: Number | None = None  # Whether later regions read the row where it is.
        self.puts = True  # Whether buffers are stored to.
        self.trees: list[Tree] = []  # Those of several rows together, and the number of the present row among them.
        self.row = emitter.i64(0)
        self.ahead: list[tuple[int, Number]] = []  # Rows to prefetch: bytes of an element, address.
        emitter.nest = self

    def _lanes(self, ops: Sequence[Op]) -> int:
        """The lanes of a vector; 0 where elements are computed one by one."""
        bodies = [body for op in ops for body in op.bodies]
        size = self.shape[self.lane_axis]
        if not all(map(is_straight, bodies)) or size == 1:
            return 0
        widths = [
            element_bytes(op.result.type if isinstance(op, tt.Load | cpu.Load | cpu.Get) else op.operands[1].type)
            for op in ops
            if isinstance(op, tt.Load | cpu.Load | cpu.Get | cpu.Put)
        ]
        # Two registers: their instructions alternate, which hides latency that the machine's reordering does not.
        lanes = 2 * self.emitter.module.vector // max([4, *widths])
        while size % lanes:
            lanes //= 2
        return lanes if lanes > 1 else 0

    def begin(self) -> None:
        """Emit the tests of the accesses."""
        for head in self.heads.values():
            head.begin([other for other in self.heads.values() if isinstance(other.op, cpu.Store)])
        self._share_rows()
        self.direct = self._in_place()

    def _share_rows(self) -> None:
        """If the block has a region of this shape without accesses, let that prefetch the rows of the others: it waits
        for memory least."""
        block = self.op.parent
        assert block is not None
        shared = self.emitter.once_for_all((block, self.shape), lambda: _shared_rows(block, self.shape))
        if shared is None:
            return
        busiest, order, accesses = shared
        if self.op is busiest:
            for value in accesses:
                assert isinstance(value.op, cpu.Access)
                step = step_of(self.emitter, value.op, block) if value in self.emitter.values else None
                if step is not None:
                    start = self.emitter.values[value][0] + step
                    assert isinstance(value.op.type, cpu.AccessType)
                    self.ahead.append((value.op.type.element.bytes, start))
            return
        comes_earlier = order[busiest.result] < order[self.op.result]
        for head in self.heads.values():
            if not comes_earlier or head.access.result in self.emitter.steps:
                head.step = None

    def loaded(self) -> tuple[Value, Head] | None:
        """The buffer and the access, if all that the region does is to load a matrix that only dots use, before any
        other op writes to memory."""
        puts = [op for op in self.statements if not isinstance(op, cpu.Load)]
        block = self.op.parent
        if block is None or len(puts) != 1 or not isinstance(puts[0], cpu.Put) or len(self.shape) != 2:
            return None
        store = puts[0]
        head = self.heads.get(store.value) if isinstance(store.value, OpResult) else None
        if head is None or not head.exact or head.strides[-1].name != "1" or store.strides or store.start:
            return None
        dots = [user for user in store.buffer.uses if user is not store]
        first, *rest = (at for at, op in enumerate(block.ops) if op is self.op or any(op is dot for dot in dots))
        inside = all(isinstance(dot, cpu.Dot) and dot.parent is block and dot.c is not store.buffer for dot in dots)
        if not inside or not rest or block.ops[first] is not self.op:
            return None
        if any(isinstance(op, MemoryWrite) or _writes(op) for op in block.ops[first + 1 : rest[-1]]):
            return None
        return store.buffer, head

    def _in_place(self) -> Number | None:
        """Whether later regions read a row where it is in memory, and not in the buffer that this region stores it to:
        if all of it is loaded, and nothing is stored to it before they do. None if they never do."""
        emitter, block = self.emitter, self.op.parent
        puts = [op for op in self.statements if isinstance(op, cpu.Put | MemoryWrite)]
        if block is None or len(puts) != 1 or len(self.shape) > 1 or not emitter.lanes:
            return None
        (target,) = puts
        head = (
            self.heads.get(target.value) if isinstance(target, cpu.Put) and isinstance(target.value, OpResult) else None
        )
        if not isinstance(target, cpu.Put) or head is None or not head.exact or head.strides[0].name != "1":
            return None
        users = [user for user in target.buffer.uses if user is not target]
        first = next(at for at, op in enumerate(block.ops) if op is self.op)
        regions = [op for op in block.ops[first + 1 :] if isinstance(op, cpu.Region)]
        later = [op for op in regions if any(user.parent_op is op for user in users)]
        plain = all(isinstance(user, cpu.Get) and any(user.parent_op is op for op in later) for user in users)
        if target.start or target.strides or not plain or not later:
            return None
        last = next(at for at, op in enumerate(block.ops) if op is later[-1])
        inner = later[-1].body.entry.ops
        stores = [op for op in inner if isinstance(op, cpu.Store)]
        unknown = any(store.access not in emitter.values for store in stores) or any(map(moved_operands, inner))
        writes = [op for op in inner if isinstance(op, MemoryWrite) and not isinstance(op, cpu.Store)]
        if unknown or writes or any(isinstance(op, MemoryWrite) or _writes(op) for op in block.ops[first:last]):
            return None
        direct = head.good  # No load of the region is masked: all of the row is then read without masks.
        for other in self.heads.values():
            direct = direct & other.counts[0].test("eq", other.shape[0])
        for store in stores:
            direct = direct & head.apart(Head(emitter, store))
        emitter.values[target.buffer] = direct.select(head.base, emitter.values[target.buffer])
        return direct

    def loops(self) -> None:
        """Emit the loops."""
        outer = [axis for axis, size in enumerate(self.shape) if size > 1 and axis not in (self.lane_axis, self.axis)]
        lanes = self.emitter.lanes
        along = self.reductions and self.axis == self.lane_axis and len(outer) == 1 and lanes
        if along and self.shape[outer[0]] % lanes == 0:
            self._rows(outer[0])
        else:
            self._outer(outer)

    def _rows(self, axis: int) -> None:
        """Reduce as many rows as a vector has lanes to a vector each, and these together: along the lanes of each of
        them, the steps would wait for each other."""
        emitter = self.emitter
        lanes = emitter.lanes

        def rows(first: Number) -> None:
            self.trees = [Tree(emitter, op, lanes, 0, True, rows=True) for op in self.reductions]

            def row(number: Number) -> None:
                self.coords[axis] = Coord(first + number)
                self.row = number
                self._inner()

            emitter.loop(0, lanes, 1, row)
            for tree in self.trees:
                self.results[tree.op.result] = tree.finish()
            self.coords[axis] = Coord(first, True)
            self._finish()

        emitter.loop(0, self.shape[axis], lanes, rows)

    def end(self) -> None:
        """Emit what follows the loops."""
        for head in self.heads.values():
            head.end()

    def _outer(self, axes: Sequence[int]) -> None:
        """One loop for all outer axes: LLVM's strength reduction takes very long for deep nests."""
        if not axes:
            self._inner()
            return
        sizes = [self.shape[axis] for axis in axes]

        def body(number: Number) -> None:
            for axis, size, stride in zip(axes, sizes, cpu.row_major(sizes), strict=True):
                part = number / stride if stride > 1 else number
                self.coords[axis] = Coord(part if axis == axes[0] else part % size)
            self._inner()

        self.emitter.loop(0, cpu.row_major((1, *sizes))[0], 1, body)

    def _inner(self) -> None:
        lanes = self.emitter.lanes
        if self.axis == self.lane_axis:
            self._innermost(max(lanes, 1))
            return
        run = lanes > 0

        def body(number: Number) -> None:
            self.coords[self.lane_axis] = Coord(number, run)
            self._innermost(1)

        self.emitter.loop(0, self.shape[self.lane_axis], max(lanes, 1), body)

    def _innermost(self, step: int) -> None:
        """The loop along the innermost axis, `step` elements at a time, unrolled."""
        emitter, size = self.emitter, self.shape[self.axis]
        count = size // step
        limited = [head for head in self.heads.values() if head.limits]
        full = self._full(limited) if limited else emitter.i64(size)
        stream = stream_of(self, full)
        small = len(self.op.body.entry.ops) <= 24
        heavy = any(isinstance(op, EXPENSIVE) for op in self.op.body.entry.ops)
        reduced = MAX_REDUCED // 2 if heavy else MAX_REDUCED
        most = reduced if self.reductions else MAX_UNROLLED if small and stream is None else 1
        unrolled = min(count & -count, most)
        across = self.axis == self.lane_axis
        trees = [Tree(emitter, op, count // unrolled, unrolled, across) for op in self.reductions]
        run = step > 1

        def group(number: Number, vectors: int) -> None:
            for position in range(vectors):
                base = emitter.behind(number, position * step)
                self.coords[self.axis] = Coord(base, run)
                if emitter.lanes:
                    for size, start in self.ahead:
                        emitter.prefetch(
                            emitter.moved(start, base, size), size * emitter.lanes, level=1 if heavy else 2
                        )
                self._state()
                for tree in trees:
                    tree.add(position, [emitter.at(value, tuple(self.coords)) for value in tree.op.values])
            for tree in trees:
                tree.end(number / (step * vectors))

        def resume(values: Sequence[Number]) -> None:
            rest = iter(values)
            for tree in trees:
                tree.carried = [next(rest) for _ in tree.carried]

        def loop(start: Number | int, stop: Number | int, vectors: int) -> None:
            def body(number: Number, values: list[Number]) -> list[Number]:
                resume(values)
                group(number, vectors)
                return [number for tree in trees for number in tree.carried]

            first = [number for tree in trees for number in tree.carried]
            resume(emitter.folding_loop(stop, body, first, start, step * vectors))

        whole = step * unrolled
        self.masked = False
        start = full - full % whole if limited else size
        if stream is not None:
            loop(0, stream.holds.select(0, start, "i64"), unrolled)
            past = stream.first + (full - stream.first) / step * step

            def lines() -> None:
                for head in self.heads.values():
                    if isinstance(head.op, cpu.Store):  # The stores around the caches would wait for these lines.
                        emitter.prefetch(
                            emitter.moved(head.base, past, head.size), step * head.size, level=1, writes=True
                        )
                loop(stream.first, past, 1)

            self.streams = True
            memory.guarded(emitter, stream.holds, lines)
            self.streams = False
            start = stream.holds.select(past, start)
        elif self.direct is not None:
            self.puts = False
            loop(0, self.direct.select(emitter.i64(size), 0), unrolled)
            self.puts = True
            loop(0, self.direct.select(0, emitter.number("i64", start)), unrolled)
        elif not limited and whole == size:
            group(emitter.i64(0), unrolled)
        else:
            loop(0, start, unrolled)
        if limited and trees and unrolled > 1 and all(tree.carried for tree in trees):
            rest = full - full % step
            loop(start, rest, 1)
            start = rest
        if limited:
            self.masked = True
            stop: Number | int = size
            if not trees and all(isinstance(op, cpu.Store | cpu.Load) for op in self.statements):
                stop = self._last([head for head in limited if isinstance(head.op, cpu.Store)], size)
            if stream is not None:
                edges(self, stream, start, stop, group)
            else:
                loop(start, stop, 1 if all(tree.carried for tree in trees) else unrolled)
            self.masked = False
        if self.trees:
            for tree, other_tree in zip(trees, self.trees, strict=True):
                other_tree.keep(tree.combined(), self.row)
                other_tree.orders = tree.orders[-1:]
            return
        for tree in trees:
            self.results[tree.op.result] = tree.finish()
        self._finish()

    def _full(self, heads: Sequence[Head]) -> Number:
        """The number of elements along the innermost axis up to which all lanes of all accesses are inside."""
        full: Number | None = None
        for head in heads:
            mine = head.inside(self.coords, self.axis)
            full = mine if full is None else full.call("llvm.umin", mine)
        assert full is not None
        return full

    def _last(self, stores: Sequence[Head], size: int) -> Number | int:
        """The number of elements along the innermost axis after which no store has any."""
        last: Number | None = None
        for head in stores:
            mine = head.counts[self.axis]
            last = mine if last is None else last.call("llvm.umax", mine)
        return last if last is not None and all(head.exact for head in stores) else size

    def _state(self) -> None:
        """Run the statements at the present index."""
        emitter, index = self.emitter, tuple(self.coords)
        for op in self.statements:
            outer, emitter._place = emitter._place, emitter.place(op)  # pyright: ignore[reportPrivateUsage]
            match op:
                case cpu.Put() if not self.puts:
                    pass
                case cpu.Put():
                    memory.put(emitter, op, emitter.at(op.value, index), index)
                case cpu.Store():
                    self.heads[op.result].store(index, self.masked)
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

    def _assert(self, op: tt.Assert, index: Index) -> None:
        emitter = self.emitter
        number = emitter.i64(0)
        for coord, stride in zip(index, cpu.row_major(self.shape), strict=True):
            number = emitter.vector(coord) * stride + number
        site = emitter.site(op, "asserts", message=op.message, shape=self.shape)
        condition = emitter.at(op.condition, index) ^ True
        lanes = max(condition.lanes, number.lanes)
        emitter.fail(ASSERTION, condition.spread(lanes), site, number.spread(lanes))

    def _finish(self) -> None:
        """Store the results of the region's reductions to buffers."""
        emitter = self.emitter
        for op in self.op.body.entry.ops:
            if isinstance(op, core.TupleLoad) and op.tuple in self.results:
                self.results[op.result] = self.results[op.tuple][op.index]
        index = tuple(coord for axis, coord in enumerate(self.coords) if axis != self.axis)
        for op in self.after:
            memory.put(emitter, op, self.results[op.value], index)


_AFFINE = (cpu.Load, cpu.Store)
_STATEMENTS = (
    cpu.Put, cpu.Store, tt.Store, cpu.Count, tt.Assert, cpu.Load, tt.Load, tt.AtomicRMW, tt.AtomicCAS, tt.InlineAsm,
)  # fmt: skip


@indexed(cpu.Load)
def _load(emitter: CpuEmitter, op: cpu.Load, index: Index) -> Number:
    nest: Nest = emitter.nest
    return nest.heads[op.result].load(index, nest.masked)


# Tensors at an index.


@indexed(tt.MakeRange)
def _range(emitter: CpuEmitter, op: tt.MakeRange, index: Index) -> Number:
    (coord,) = index
    number = emitter.vector(coord, 32)
    return number + op.start if op.start else number


@indexed(tt.Splat)
def _splat(emitter: CpuEmitter, op: tt.Splat, index: Index) -> Number:
    return emitter.at(op.value, ())


@indexed(tt.Broadcast)
def _broadcast(emitter: CpuEmitter, op: tt.Broadcast, index: Index) -> Number:
    zero = Coord(emitter.i64(0))
    sizes = shape_of(op.value.type)
    return emitter.at(op.value, tuple(zero if size == 1 else coord for size, coord in zip(sizes, index, strict=True)))


@indexed(tt.ExpandDims)
def _expand_dims(emitter: CpuEmitter, op: tt.ExpandDims, index: Index) -> Number:
    return emitter.at(op.value, (*index[: op.axis], *index[op.axis + 1 :]))


@indexed(tt.Trans)
def _trans(emitter: CpuEmitter, op: tt.Trans, index: Index) -> Number:
    return emitter.at(op.value, tuple(index[op.order.index(axis)] for axis in range(len(op.order))))


def linear(emitter: CpuEmitter, index: Index, shape: Sequence[int]) -> Coord:
    """The row-major number of an element: neighbours for lanes along the last axis."""
    place: Number | None = None
    run = False
    for coord, stride in zip(index, cpu.row_major(shape), strict=True):
        if coord.run and stride == 1 and (place is None or not place.lanes):
            run, part = True, coord.base
        else:
            part = emitter.vector(coord)
            part = part if stride == 1 else part * stride
        place = part if place is None else place + part
    if place is None:
        place = emitter.i64(0)
    if run and place.lanes:
        return Coord(place + emitter.vector(Coord(emitter.i64(0), True)))
    return Coord(place, run)


def unravelled(emitter: CpuEmitter, place: Coord, shape: Sequence[int]) -> Index:
    """The index of the element with a row-major number."""
    last = shape[-1] if shape else 1
    lanes = emitter.lanes
    if place.run and last % lanes == 0:  # A vector, which begins at a multiple of its length, lies in one row.
        number, runs = place.base, True
    else:
        number, runs = emitter.vector(place), False
    coords: list[Coord] = []
    for axis, stride in enumerate(cpu.row_major(shape)):
        size = shape[axis]
        if size == 1:
            coords.append(Coord(emitter.i64(0)))
            continue
        part = number / stride if stride > 1 else number
        if axis > 0 and any(other > 1 for other in shape[:axis]):
            part = part % size
        coords.append(Coord(part, runs and stride == 1))
    return tuple(coords)


@indexed(tt.Reshape)
def _reshape(emitter: CpuEmitter, op: tt.Reshape, index: Index) -> Number:
    source, target = shape_of(op.value.type), shape_of(op.type)
    coords = [coord for coord, size in zip(index, target, strict=True) if size > 1]
    if [size for size in source if size > 1] == [size for size in target if size > 1]:
        remaining = iter(coords)
        zero = Coord(emitter.i64(0))
        return emitter.at(op.value, tuple(next(remaining) if size > 1 else zero for size in source))
    return emitter.at(op.value, unravelled(emitter, linear(emitter, index, target), source))


@indexed(tt.Join)
def _join(emitter: CpuEmitter, op: tt.Join, index: Index) -> Number:
    *rest, last = index
    first, second = (emitter.at(value, tuple(rest)) for value in op.operands)
    return emitter.vector(last).test("eq", 0).select(first, second)


@indexed(tt.Split)
def _split(emitter: CpuEmitter, op: tt.Split, index: Index) -> tuple[Number, ...]:
    return tuple(emitter.at(op.value, (*index, Coord(emitter.i64(half)))) for half in range(2))


@indexed(tt.Cat)
def _cat(emitter: CpuEmitter, op: tt.Cat, index: Index) -> Number:
    first, *rest = index
    size = expect(op.lhs.type, TensorType).shape[0]
    number = emitter.vector(first)
    below = number.test("ult", size)
    if first.run and size % emitter.lanes == 0:  # All lanes are of one half.
        below = first.base.test("ult", size)
        inner = Coord(first.base % size, True)
    else:
        inner = Coord(number % size)
    values = [emitter.at(value, (inner, *rest)) for value in op.operands]
    return below.select(*values)


@indexed(core.TupleLoad)
def _component(emitter: CpuEmitter, op: core.TupleLoad, index: Index) -> Any:
    return emitter.at(op.tuple, index)[op.index]


@indexed(tt.MapElementwise)
def _map(emitter: CpuEmitter, op: tt.MapElementwise, index: Index) -> Any:
    if op.pack == 1:
        return packed_values(apply(emitter, op.apply, [emitter.at(value, index) for value in op.values]))
    shape = shape_of(op.values[0].type)
    size = cpu.row_major((1, *shape))[0]
    number = emitter.vector(linear(emitter, index, shape))
    position = number % op.pack
    arguments: list[Number] = []
    for value in op.values:
        for at in range(op.pack):
            place = (number - position + at).call("llvm.umin", size - 1)
            arguments.append(emitter.at(value, unravelled(emitter, Coord(place), shape)))
    results = apply(emitter, op.apply, arguments)
    columns: list[Number] = []
    for first in range(0, len(results), op.pack):
        result = results[first]
        for at in range(1, op.pack):
            result = position.test("eq", at).select(results[first + at], result)
        columns.append(result)
    return packed_values(columns)
