"""Emission of reductions and scans: over the registers of a thread, then over the lanes of its warp by shuffles; and of
functions that are mapped over elements.

Lowering guarantees that the combined elements lie in registers and lanes, and that each basis of the layout is one bit
of the axis or none of its bits. The body is emitted once for each combination, on scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from ziggurat.backend.llvm.elementwise import INSTRUCTIONS, RULES
from ziggurat.backend.llvm.routines import Number, instruction, llvm_type
from ziggurat.backend.ptx.emitter import Emitted, PtxEmitter, canonical, emits
from ziggurat.backend.ptx.pairs import applied, has_pairs
from ziggurat.backend.ptx.shuffles import shuffle, shuffled
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.layout import bits_of, combine
from ziggurat.codemodel.op import Body
from ziggurat.codemodel.traits import Commutative
from ziggurat.codemodel.types import ScalarType
from ziggurat.transforms.analysis.queries import layout_of, tensor_of, warp_reduction
from ziggurat.transforms.cost.budget import OF_PRODUCTS
from ziggurat.transforms.gpu.lower import is_in_lanes

Column = list[str]  # One value for each operand.
SUMS = 4  # The most sums to which a thread adds products: their instructions need not wait for each other.


def inline_body(emitter: PtxEmitter, body: Body, arguments: Sequence[str]) -> list[str]:
    """Emit a body of one block with its parameters bound; the operands of its terminator."""
    if len(body.blocks) != 1:
        raise InternalError("a combining body of several blocks", str(body.parent.root() if body.parent else ""))
    for parameter, argument in zip(body.parameters, arguments, strict=True):
        emitter.values[parameter] = argument
    *ops, terminator = body.entry.ops
    emitter.ops(ops)
    return [emitter.scalar(value) for value in terminator.operands]


def is_commutative(body: Body) -> bool:
    """Whether a body is known to be commutative."""
    op, *others = body.entry.ops
    return (
        isinstance(op, Commutative)
        and [other.operands for other in others] == [(op.result,)]
        and set(op.operands) == set(body.parameters)
    )


def picks(body: Body) -> int | None:
    """The operand, 0 or 1, that a body returns unchanged; None where it combines its operands."""
    operands = tuple(body.entry.terminator.operands)
    half = len(body.parameters) // 2
    sides = (body.parameters[:half], body.parameters[half:])
    return next((at for at, side in enumerate(sides) if operands == tuple(side)), None)


class _Axis:
    """The operands of a reduction or scan, and the register and lane bits along its axis, in the axis' order."""

    def __init__(self, emitter: PtxEmitter, op: tt.Reduce | tt.Scan) -> None:
        type_ = tensor_of(op.values[0])
        self.emitter = emitter
        self.op = op
        self.layout = layout_of(type_)
        self.is_whole = type_.rank == 1
        self.mask = (type_.shape[op.axis] - 1) << sum(bits_of(size) for size in type_.shape[op.axis + 1 :])
        self.along, self.lanes = self._on_axis(self.layout.registers), self._on_axis(self.layout.lanes)
        self.registers, self.lane_mask = (sum(1 << bit for bit in bits) for bits in (self.along, self.lanes))
        self.kinds = [llvm_type(value.type) for value in op.values]
        tensors = [emitter.tensor(value) for value in op.values]
        self.columns = {register: [part[register] for part in tensors] for register in self.layout.unique_registers}
        # The type and the op of a commutative reduction that computes with two floats of 16 bits at once.
        self.pairs: tuple[ScalarType, Callable[..., Number]] | None = None
        scalar, combined = type_.element, op.combine.entry.ops[0]
        is_plain = len(op.values) == 1 and isinstance(combined, arith.FloatBinary) and is_commutative(op.combine)
        self.adds = is_plain and isinstance(combined, arith.AddF)  # Then it adds products by fma.
        if is_plain and isinstance(scalar, ScalarType) and has_pairs(emitter, scalar):
            self.pairs = scalar, partial(RULES[combined], combined)

    def _on_axis(self, bases: Sequence[int]) -> list[int]:
        return sorted((bit for bit, basis in enumerate(bases) if basis & self.mask), key=lambda bit: bases[bit])

    def combine(self, a: Column, b: Column) -> Column:
        return inline_body(self.emitter, self.op.combine, [*a, *b])

    def added(self, a: Column, b: Column) -> Column:
        """`combine` of two columns of one thread: a product is added by fma. Not between lanes, each of which would
        round the product of the other one, so that their sums would differ."""
        if self.adds:
            for (product,), (addend,) in ((b, a), (a, b)):
                if product in self.emitter.products:
                    numbers = (*self.emitter.products[product], addend)
                    x, y, z = (self.emitter.of(self.kinds[0], number) for number in numbers)
                    return [instruction(INSTRUCTIONS[math.Fma], x, y, z).name]
        return self.combine(a, b)

    def combine_all(self, rows: Sequence[Column], others: Sequence[Column]) -> list[Column]:
        """`combine` of each row with the other one, with two rows at once where that is possible."""
        if self.pairs is None:
            return [self.combine(row, other) for row, other in zip(rows, others, strict=True)]
        columns = [[value for (value,) in column] for column in (rows, others)]
        return [[columns_] for columns_ in applied(self.emitter, columns, *self.pairs)]

    def in_thread(self, rows: Sequence[int], bits: Sequence[int]) -> dict[int, Column]:
        """The elements of a thread that differ in bits of the register's number, combined for each row: by pairs of
        neighbours, pairs of pairs, and so on, one half after the other, so that few are needed at once. Products are
        added to one sum after the other, or to `SUMS` of them, as only a sum and a product make an fma."""
        registers = [combine([1 << bit for bit in bits], index) for index in range(1 << len(bits))]
        results: dict[int, Column] = {}
        for group in [rows] if self.pairs is not None else [[row] for row in rows]:
            parts = [[self.columns[row | register] for row in group] for register in registers]
            if len(parts) <= OF_PRODUCTS and any(map(self._products, parts)):
                size = 2 if self.pairs is not None else max(8, len(parts) // SUMS)
                parts = [reduce(self.all_added, parts[at : at + size]) for at in range(0, len(parts), size)]
            results.update(zip(group, self._halved(parts), strict=True))
        return results

    def _halved(self, parts: Sequence[list[Column]]) -> list[Column]:
        half = len(parts) // 2
        return self.all_added(self._halved(parts[:half]), self._halved(parts[half:])) if half else parts[0]

    def _products(self, rows: Sequence[Column]) -> list[tuple[str, str]]:
        """The factors of the rows, if these are products that an fma may add."""
        factors = [self.emitter.products.get(value) for (value,) in rows] if self.adds else []
        return [pair for pair in factors if pair is not None] if None not in factors else []

    def all_added(self, rows: list[Column], others: list[Column]) -> list[Column]:
        """`added` of each row and the other one, with two rows at once where that is possible."""
        if self.pairs is None:
            return [self.added(row, other) for row, other in zip(rows, others, strict=True)]
        for products, addends in ((others, rows), (rows, others)):
            if factors := self._products(products):
                columns = [*zip(*factors, strict=True), [addend for (addend,) in addends]]
                fma = partial(instruction, INSTRUCTIONS[math.Fma])
                return [[value] for value in applied(self.emitter, columns, self.pairs[0], fma)]
        return self.combine_all(rows, others)

    def joined(self, rows: dict[int, Column], bit: int) -> dict[int, Column]:
        """The rows, those with and without a bit in the register's number combined."""
        targets = [register for register in rows if not register >> bit & 1]
        combinations = self.combine_all([rows[at] for at in targets], [rows[at | 1 << bit] for at in targets])
        return dict(zip(targets, combinations, strict=True))

    def shuffled(self, columns: Sequence[Column], how: str, lane: str) -> list[Column]:
        """The columns of another lane."""

        def move(word: str) -> str:
            return shuffle(self.emitter, how, word, lane)

        operands = zip(*columns, strict=True)
        neighbours = [
            shuffled(self.emitter, values, kind, move) for values, kind in zip(operands, self.kinds, strict=True)
        ]
        return [list(column) for column in zip(*neighbours, strict=True)]

    def results(self, result: Callable[[int], Emitted]) -> Emitted:
        """The value of the op, given the result for each operand."""
        columns = [result(index) for index in range(len(self.kinds))]
        return columns[0] if len(columns) == 1 else tuple(columns)


@emits(tt.Reduce)
def _reduce(emitter: PtxEmitter, op: tt.Reduce) -> Emitted:
    axis = _Axis(emitter, op)
    layout, along, lanes = axis.layout, axis.along, axis.lanes
    if any(basis & axis.mask for basis in layout.warps):
        raise InternalError("a reduction between warps is left; it should have been lowered", str(op.root()))
    side = picks(op.combine)
    last = side == 1
    rows = axis.columns
    if side is not None:
        end = axis.registers if last else 0
        rows = {register: rows[register | end] for register in rows if not register & axis.registers}
    else:
        # Registers first. The halves of a word are combined last.
        own = [bit for bit in along if bit or axis.pairs is None]
        rows = axis.in_thread([row for row in rows if not any(row >> bit & 1 for bit in own)], own)
        redux = warp_reduction(op)
        if redux is not None:
            name = f"llvm.nvvm.redux.sync.{redux}"
            words = {row: emitter.call("i32", name, ("i32", word), ("i32", "-1")) for row, (word,) in rows.items()}
            rows = {row: [word] for row, word in words.items()}
        for bit in lanes if redux is None else ():
            other = axis.shuffled([*rows.values()], "bfly", str(1 << bit))
            rows = dict(zip(rows, axis.combine_all([*rows.values()], other), strict=True))
        if len(own) < len(along):
            rows = axis.joined(rows, 0)
    if lanes and (side is not None or not is_commutative(op.combine)):
        # One lane has the picked element. Without commutativity, lanes have combined in different orders: all take
        # the result of the first.

        def end_lane() -> str:
            lane = emitter.emit(f"and i32 {emitter.thread()}, {31 & ~axis.lane_mask}")
            return emitter.emit(f"or disjoint i32 {lane}, {axis.lane_mask}") if last else lane

        lane = emitter.once(("end lane", axis.lane_mask, last), end_lane)
        rows = dict(zip(rows, axis.shuffled([*rows.values()], "idx", lane), strict=True))

    def result(index: int) -> Emitted:
        if axis.is_whole:
            return rows[0][index]
        registers = range(layout.num_registers)
        return [rows[canonical(layout, register) & ~axis.registers][index] for register in registers]

    return axis.results(result)


class _Lanes:
    """The lanes along an axis in the order of a scan: numbers of lanes and tests, computed in the entry block."""

    def __init__(self, emitter: PtxEmitter, bits: Sequence[int], reverse: bool) -> None:
        self.emitter = emitter
        self.bits = tuple(bits)
        self.reverse = reverse
        self.mask = sum(1 << bit for bit in bits)

    def _once(self, key: object, make: Callable[[], Number]) -> str:
        return self.emitter.once(("scan", self.bits, self.reverse, key), lambda: make().name)

    def _lane(self, remaining: int, inserted: int = 0) -> Number:
        """The number of this lane with only these bits kept, and others set."""
        lane = self.emitter.of("i32", self.emitter.thread()) & 31 & remaining
        return lane | inserted if inserted else lane

    def sender(self, step: int) -> str:
        """The last lane of the earlier half, for the lanes of the later half of this step."""
        bit, lower = 1 << self.bits[step], sum(1 << bit for bit in self.bits[:step])
        return self._once(("sender", step), lambda: self._lane(~(bit | lower), bit if self.reverse else lower))

    def receives(self, step: int) -> str:
        """Whether this lane is in the later half of a step."""
        test = "eq" if self.reverse else "ne"
        return self._once(("receives", step), lambda: self._lane(1 << self.bits[step]).test(test, 0))

    def before(self) -> str:
        """The lane before this one."""
        # Bits that are not of the axis are set, or cleared, so that a carry, or a borrow, runs through them.
        others, step = (~self.mask & 31, 1) if self.reverse else (0, -1)
        return self._once("before", lambda: self._lane(~self.mask) | self._lane(self.mask, others) + step & self.mask)

    def is_first(self) -> str:
        """Whether this lane is the first."""
        return self._once("first", lambda: self._lane(self.mask).test("eq", self.mask if self.reverse else 0))

    def last(self) -> str:
        """The last lane."""
        return self._once("last", lambda: self._lane(~self.mask, 0 if self.reverse else self.mask))


@emits(tt.Scan)
def _scan(emitter: PtxEmitter, op: tt.Scan) -> Emitted:
    axis = _Axis(emitter, op)
    layout = axis.layout
    lowest_lane = min((layout.lanes[bit] for bit in axis.lanes), default=axis.mask + 1)
    serial = [1 << bit for bit in axis.along if layout.registers[bit] < lowest_lane]
    chunks = [1 << bit for bit in axis.along if 1 << bit not in serial]
    lanes = _Lanes(emitter, axis.lanes, op.reverse)

    def chosen(condition: str, a: Column, b: Column) -> Column:
        columns = zip(axis.kinds, a, b, strict=True)
        return [emitter.emit(f"select i1 {condition}, {kind} {x}, {kind} {y}") for kind, x, y in columns]

    def from_lane(column: Column, lane: str) -> Column:
        return axis.shuffled([column], "idx", lane)[0]

    def numbered(bits: list[int]) -> list[int]:
        """The register numbers with these bits, counting up, or down for a reverse scan."""
        results = [combine(bits, index) for index in range(1 << len(bits))]
        return results[::-1] if op.reverse else results

    results: dict[int, Column] = {}
    for row in axis.columns:
        if row & axis.registers:
            continue
        carry: Column | None = None
        for chunk in numbered(chunks):
            registers = [row | chunk | register for register in numbered(serial)]
            sums = [axis.columns[registers[0]]]
            for register in registers[1:]:
                sums.append(axis.added(sums[-1], axis.columns[register]))
            total = sums[-1]
            for step in range(len(axis.lanes)):
                there = from_lane(total, lanes.sender(step))
                total = chosen(lanes.receives(step), axis.combine(there, total), total)
            prefix = carry
            if axis.lanes:
                there = from_lane(total, lanes.before())
                if carry is not None:
                    prefix = chosen(lanes.is_first(), carry, axis.combine(carry, there))
                else:
                    # The lane's total is its last sum.
                    sums = [*(chosen(lanes.is_first(), own, axis.combine(there, own)) for own in sums[:-1]), total]
            if prefix is not None:
                sums = [axis.combine(prefix, own) for own in sums]
            results.update(zip(registers, sums, strict=True))
            if chunks:
                whole = from_lane(total, lanes.last()) if axis.lanes else total
                carry = whole if carry is None else axis.combine(carry, whole)

    def result(index: int) -> Emitted:
        return emitter.value(op.values[index].type, {register: column[index] for register, column in results.items()})

    return axis.results(result)


@emits(tt.Gather)
def _gather(emitter: PtxEmitter, op: tt.Gather) -> Emitted:
    """A gather from lanes: lowering leaves it where the lanes of each warp hold the source."""
    if not is_in_lanes(op.source.type, op.axis):
        raise InternalError("a gather between warps is left; it should have been lowered", str(op.root()))
    kind, source = llvm_type(op.source.type), emitter.at(op.source, 0)

    def from_lane(register: int) -> str:
        lane = emitter.at(op.index, register)
        return shuffled(emitter, [source], kind, lambda word: shuffle(emitter, "idx", word, lane))[0]

    registers = layout_of(op.result.type).unique_registers
    return emitter.value(op.result.type, {register: from_lane(register) for register in registers})


@emits(tt.MapElementwise)
def _map(emitter: PtxEmitter, op: tt.MapElementwise) -> Emitted:
    """The body is emitted once for `pack` registers; the last one fills an incomplete group."""
    layout = layout_of(tensor_of(op.values[0]))
    registers = list(layout.unique_registers)
    count = len(op.returned()) // op.pack
    columns: list[dict[int, str]] = [{} for _ in range(count)]
    for first in range(0, len(registers), op.pack):
        group = [registers[min(first + at, len(registers) - 1)] for at in range(op.pack)]
        results_of_body = inline_body(
            emitter, op.apply, [emitter.at(value, register) for value in op.values for register in group]
        )
        for index, values in enumerate(columns):
            values.update(zip(group, results_of_body[index * op.pack : (index + 1) * op.pack], strict=True))
    results = [emitter.value(op.values[0].type, values) for values in columns]
    return results[0] if count == 1 else tuple(results)
