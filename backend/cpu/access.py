"""Emission of affine accesses: the tests before the loops of a region, and vector loads and stores in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from ziggurat.backend.cpu import memory
from ziggurat.backend.cpu.emitter import Coord, CpuEmitter, Index, memory_kind
from ziggurat.backend.llvm.routines import Number, together
from ziggurat.codemodel.dialects import arith, cpu
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.types import element_bytes
from ziggurat.transforms.cpu.traffic import access_of, root_of


class Head:
    """One affine access of a region. Its fields hold what the loops use: if the access cannot be done as planned, they
    are those of a copy in scratch memory."""

    def __init__(self, emitter: CpuEmitter, op: cpu.Load | cpu.Store) -> None:
        self.emitter = emitter
        self.op = op
        self.access = access_of(op)
        type_ = expect(self.access.type, cpu.AccessType)
        self.shape = type_.shape
        self.element = type_.element
        self.size = element_bytes(type_.element)
        self.exact = not self.access.part  # Whether the counts are all of the mask.
        rank = len(self.shape)
        base, guard, *rest = emitter.values[op.access]
        self.base: Number = base
        self.guard: Number = guard
        self.strides: list[Number] = rest[:rank]
        self.counts = [
            count.call("llvm.smax", 0).call("llvm.smin", size)
            for count, size in zip(rest[rank:], self.shape, strict=True)
        ]
        self.good = self.guard
        self._tile = -1
        self._equal = False  # Whether the lanes have one address; those of the copy are neighbours.
        self._span: tuple[Number, Number] | None = None

    @property
    def limits(self) -> bool:
        """Whether the counts may end before the block does."""
        return self.exact and any(count.name != str(size) for count, size in zip(self.counts, self.shape, strict=True))

    # Before the loops.

    def span(self) -> tuple[Number, Number]:
        """The address of the lowest byte that the access may reach, and that after the highest."""
        if self._span is None:
            low = high = self.base
            for count, stride in zip(self.counts, self.strides, strict=True):
                extent = (count - 1) * stride * self.size
                low = low + extent.call("llvm.smin", 0)
                high = high + extent.call("llvm.smax", 0)
            self._span = low, high + self.size
        return self._span

    def _empty(self) -> Number:
        empty = self.emitter.number("i1", "false")
        for count in self.counts:
            empty = empty | count.test("eq", 0)
        return empty

    def _in_bounds(self) -> Number:
        emitter = self.emitter
        root = root_of(self.op.ptr)
        if root is None:
            return emitter.number("i1", "false")
        bounds = memory.bounds_of(emitter, root)
        low, high = self.span()
        good = low.test("uge", bounds.low) & high.test("ule", bounds.high) & low.test("ule", high)
        if isinstance(self.op, cpu.Store):
            good = good & bounds.writable.test("ne", 0)
        return good | self._empty()

    def apart(self, store: Head) -> Number:
        """Whether a load does not see what a store of its region writes before the load's turn."""
        (low, high), (other_low, other_high) = self.span(), store.span()
        apart = (high.test("ule", other_low) | other_high.test("ule", low)) & store.guard
        same = self.base.test("eq", store.base) & store.guard
        reach = self.emitter.i64(1)
        for mine, other, size in reversed(list(zip(self.strides, store.strides, self.shape, strict=True))):
            if size > 1:
                same = same & mine.test("eq", other) & mine.test("sge", reach)
                reach = reach + mine * (size - 1)
        return apart | same if self.size == store.size else apart

    def begin(self, stores: Sequence[Head]) -> None:
        """Test whether the access can be done as planned; if not, prepare the copy."""
        emitter = self.emitter
        good = self.guard
        if emitter.check:
            good = good & self._in_bounds()
        if isinstance(self.op, cpu.Load):
            for store in stores:
                good = good & self.apart(store)
        lane = max((axis for axis, size in enumerate(self.shape) if size > 1), default=0)
        self._equal = self.shape[lane] > 1 and self.strides[lane].name == "0"
        if self.shape[lane] > 1 and self.strides[lane].name not in ("0", "1"):
            good = good & self.strides[lane].test("eq", 1)
            self.strides[lane] = emitter.i64(1)
        self.good = good
        if good.name == "true":
            return
        self._tile = emitter.temporary(self.size * math.prod(self.shape))
        if isinstance(self.op, cpu.Load):
            self._unless_good(self._fetch)
        self.base = good.select(self.base, emitter.scratch_address(self._tile))
        self.strides = [
            stride if stride.name == str(flat) or (self._equal and axis == lane) else good.select(stride, flat)
            for axis, (stride, flat) in enumerate(zip(self.strides, row_major(self.shape), strict=True))
        ]
        self.counts = [
            count if count.name == str(size) else good.select(count, size)
            for count, size in zip(self.counts, self.shape, strict=True)
        ]

    def _unless_good(self, make: Callable[[Index], None]) -> None:
        """Run code for each element where the access cannot be done as planned."""
        self.emitter.aside(self.good, lambda: self._one_by_one(make), when=False, rare=True, name="slow")

    def _one_by_one(self, make: Callable[[Index], None]) -> None:
        """Run code for each element, in row-major order, without vectors."""
        emitter = self.emitter
        outer, emitter.lanes = emitter.lanes, 0
        coords = [Coord(emitter.i64(0)) for _ in self.shape]
        coords[-1] = Coord(emitter.i64(0), limit=emitter.i64(self.shape[-1]))

        def nest(axis: int) -> None:
            if axis == len(self.shape):
                make(tuple(coords))
            elif self.shape[axis] == 1:
                nest(axis + 1)
            else:

                def body(number: Number) -> None:
                    coords[axis] = attrs.evolve(coords[axis], base=number)
                    nest(axis + 1)

                emitter.loop(0, self.shape[axis], 1, body)

        nest(0)
        emitter.lanes = outer

    def _number(self, index: Index) -> Number:
        """The row-major number of the element of the first lane."""
        place = self.emitter.i64(0)
        for coord, stride in zip(index, row_major(self.shape), strict=True):
            place = coord.base * stride + place
        return place

    def _place(self, index: Index) -> Number:
        """The address of an element of the copy."""
        emitter = self.emitter
        return emitter.scratch_address(self._tile) + emitter.scaled(self._number(index), self.size)

    def _fetch(self, index: Index) -> None:
        emitter, op = self.emitter, self.op
        assert isinstance(op, cpu.Load)
        mask = emitter.at(op.mask, index) if op.mask is not None else None
        other = emitter.at(op.other, index) if op.other is not None else None
        value = memory.load_any(emitter, op, op.ptr, emitter.at(op.ptr, index), mask, other, op.result.type)
        value = memory.to_memory(emitter, value, op.result.type)
        place = emitter.emit(f"inttoptr i64 {self._place(index)} to ptr")
        emitter.line(f"store {value.typed}, ptr {place}, align {self.size}")

    def end(self) -> None:
        """After the loops: store the copy element by element, if there is one."""
        emitter, op = self.emitter, self.op
        if self._tile < 0 or not isinstance(op, cpu.Store):
            return

        def put(index: Index) -> None:
            place = emitter.emit(f"inttoptr i64 {self._place(index)} to ptr")
            kind = memory_kind(op.value.type)
            value = emitter.number(kind, emitter.effect(f"load {kind}, ptr {place}, align {self.size}"))
            value = memory.from_memory(emitter, value, op.value.type)
            mask = emitter.at(op.mask, index) if op.mask is not None else None
            memory.store_any(emitter, op, op.ptr, emitter.at(op.ptr, index), value, mask, op.value.type)

        self._unless_good(put)

    # In the loops.

    def inside(self, coords: Sequence[Coord], axis: int) -> Number:
        """The number of elements along an axis up to which all lanes at the present index are inside."""
        emitter = self.emitter
        full = self.counts[axis]
        for other, (coord, count, size) in enumerate(zip(coords, self.counts, self.shape, strict=True)):
            if other == axis or (size == 1 and count.name == "1") or count.name == str(size):
                continue
            last = coord.base + (emitter.lanes - 1) if coord.run else coord.base
            full = last.test("ult", count).select(full, 0)
        return full

    def _address(self, index: Index) -> tuple[Number, bool]:
        """The address of the first lane, and whether the lanes are neighbours there; if not, all have this address."""
        emitter = self.emitter
        address, run = self.base, False
        for coord, stride in zip(index, self.strides, strict=True):
            if stride.name == "0" or (coord.base.name == "0" and not coord.run):
                continue
            if coord.run:
                run = True
            part = coord.base if stride.name == "1" else coord.base * stride
            address = emitter.moved(address, part, self.size)
        return address, run

    def mask(self, index: Index) -> Number | None:
        """The lanes that are inside; None for all."""
        emitter, op = self.emitter, self.op
        if not self.exact:
            assert op.mask is not None
            return emitter.at(op.mask, index)
        if not is_masked(index):
            return None
        condition: Number | None = None
        for coord, count, size in zip(index, self.counts, self.shape, strict=True):
            if coord.limit is not None and coord.limit.name != str(size):
                count = count.call("llvm.umin", coord.limit)
            if count.name == str(size):
                continue
            if coord.run:
                within = emitter.vector(coord, 32).test("slt", count.to("trunc", "i32"))
            else:
                within = coord.base.test("ult", count)
            condition = within if condition is None else condition & within
        return condition

    def load(self, index: Index) -> Number:
        """The elements at an index."""
        emitter, op = self.emitter, self.op
        assert isinstance(op, cpu.Load)
        type_ = op.result.type
        mask = self.mask(index)
        other = None
        if op.other is not None and mask is not None:
            other = memory.to_memory(emitter, emitter.at(op.other, index), type_)
        address, run = self._address(index)
        with emitter.at_level(emitter.level(f"{address} {mask} {other}")):
            if run:
                pointer = emitter.emit(f"inttoptr i64 {address} to ptr")
                value = memory.load_run(emitter, pointer, type_, mask, other)
            elif mask is not None and mask.lanes:
                value = memory.gather(emitter, address.spread(mask.lanes), type_, mask, other)
            else:
                if mask is not None:
                    address = mask.select(address, emitter.number("i64", "%scratch"))
                pointer = emitter.emit(f"inttoptr i64 {address} to ptr")
                kind = memory_kind(type_)
                value = emitter.number(kind, emitter.effect(f"load {kind}, ptr {pointer}, align {self.size}"))
                if mask is not None:
                    value = mask.select(
                        value, other if other is not None else emitter.number(kind, memory.zero_of(kind))
                    )
            value = memory.from_memory(emitter, value, type_)
        if not self._equal or self._tile < 0:
            return value
        runs = any(coord.run for coord in index)
        copy = memory.read(emitter, emitter.scratch_address(self._tile), self._number(index), runs, type_)
        value, copy = together(value, copy)
        return self.good.select(value, copy)

    def store(self, index: Index, streams: bool = False) -> None:
        """Store the elements at an index, around the caches if it `streams`."""
        emitter, op = self.emitter, self.op
        assert isinstance(op, cpu.Store)
        value = memory.to_memory(emitter, emitter.at(op.value, index), op.value.type)
        mask = self.mask(index)
        address, run = self._address(index)
        if run:
            pointer = emitter.emit(f"inttoptr i64 {address} to ptr")
            memory.store_run(emitter, pointer, value, mask, self.size, streams=streams)
        else:
            assert not value.lanes, "a vector is stored to one place"

            def store() -> None:
                pointer = emitter.emit(f"inttoptr i64 {address} to ptr")
                emitter.line(f"store {value.typed}, ptr {pointer}, align {self.size}")

            memory.guarded(emitter, mask, store)


def is_masked(index: Index) -> bool:
    """Whether lanes at an index may be outside of an access."""
    return any(coord.limit is not None for coord in index)


def row_ahead(emitter: CpuEmitter, access: cpu.Access) -> Number:
    """The address of the row that the next program will need, if that is as far from this one as this is from the one
    before it."""
    base = emitter.values[access.result][0]
    if access.result not in emitter.steps:
        emitter.steps[access.result] = base - emitter.previous(base)
    return base + emitter.steps[access.result]


@attrs.frozen
class Matrix:
    """A matrix in memory: the address, and the bytes from a row to the next.

    For the matrix of an access, `direct` tells whether that is where the access has it, and not a buffer; `origin` is
    the matrix there, and `counts` are the numbers of rows and columns beyond which all elements are +0, if masked ones
    are. A `bare` matrix has no memory for these elements.
    """

    base: Number
    pitch: Number
    direct: Number | None = None
    origin: Matrix | None = None
    counts: tuple[Number, Number] | None = None
    bare: bool = False

    @classmethod
    def bare_of(cls, head: Head) -> Matrix:
        """The matrix of an access where the access has it, without what is masked."""
        rows, columns = head.counts
        origin = cls(head.base, head.strides[0] * head.size)
        return cls(origin.base, origin.pitch, head.good, origin, (rows, columns), bare=head.limits)

    @classmethod
    def of(cls, head: Head, buffer: Number, direct: Number) -> Matrix:
        """The matrix of an access: where it is if that is `direct`, and else in a buffer."""
        op, (rows, columns) = expect(head.op, cpu.Load), head.counts
        stride, width = head.strides[0], head.shape[1]
        origin = cls(head.base, stride * head.size)
        pitch = head.emitter.i64(width * head.size)
        if stride.name != str(width):
            pitch = direct.select(origin.pitch, pitch)
        counts = (rows, columns) if gives_zeros(op) else None
        return cls(direct.select(head.base, buffer), pitch, direct, origin, counts)


def gives_zeros(op: cpu.Load) -> bool:
    """Whether masked elements of a load are 0, but not -0.0."""
    other = None if op.other is None else op.other.op
    return op.other is None or (
        isinstance(other, arith.ConstantOp) and other.value == 0 and math.copysign(1, other.value) > 0
    )
