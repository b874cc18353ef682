"""Emission of reductions and scans: over the registers of a thread, then over the lanes of its warp by shuffles.

Lowering guarantees that the combined elements lie in registers and lanes, and that each basis of the layout is one bit
of the axis or none of its bits. The body is emitted once for each combination, on scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.ptx.emitter import Emitted, Emitter, canonical, emits, emitted_type, layout_of
from ziggurat.backend.ptx.tensors import unique_registers
from ziggurat.backend.ptx.words import pack, unpack
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.layout import Layout, bits_of
from ziggurat.codemodel.op import Body
from ziggurat.codemodel.traits import Commutative
from ziggurat.codemodel.types import TensorType, Type, element_of

Column = list[str]  # One value for each operand.
_ALL = "-1"  # All lanes take part in every shuffle: control is uniform in a CTA.


def inline_body(emitter: Emitter, body: Body, arguments: Sequence[str]) -> list[str]:
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
    ops = body.entry.ops
    if len(body.blocks) != 1 or len(ops) != 2 or len(body.parameters) != 2:
        return False
    op, end = ops
    return isinstance(op, Commutative) and end.operands == (op.result,) and set(op.operands) == set(body.parameters)


def picks(body: Body) -> int | None:
    """The operand, 0 or 1, that a body returns unchanged; None where it combines its operands."""
    given = tuple(body.entry.terminator.operands)
    half = len(body.parameters) // 2
    sides = (body.parameters[:half], body.parameters[half:])
    return next((at for at, side in enumerate(sides) if given == tuple(side)), None)


def shuffled(
    emitter: Emitter, columns: Sequence[Column], types: Sequence[Type], move: Callable[[str], str]
) -> list[Column]:
    """The columns of another lane. `move` shuffles an i32; several small values share one."""
    result: list[Column] = [[] for _ in columns]
    for index, type_ in enumerate(types):
        values = [column[index] for column in columns]
        for column, value in zip(
            result, shuffled_values(emitter, values, emitted_type(element_of(type_)), move), strict=True
        ):
            column.append(value)
    return result


def shuffled_values(emitter: Emitter, values: list[str], kind: str, move: Callable[[str], str]) -> list[str]:
    """The values of another lane, all of one LLVM type."""
    bits = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr addrspace(1)": 64}.get(kind) or int(kind[1:])
    whole = f"i{bits}"
    if kind == "ptr addrspace(1)":
        numbers = [emitter.emit(f"ptrtoint {kind} {value} to {whole}") for value in values]
    elif kind[0] != "i":
        numbers = [emitter.emit(f"bitcast {kind} {value} to {whole}") for value in values]
    else:
        numbers = values
    if bits == 64:
        moved: list[str] = []
        for number in numbers:
            words = [move(word) for word in unpack(emitter, [number], 4, 8)]
            moved += pack(emitter, words, 4, 8)
    elif bits in (8, 16):
        size, per = bits // 8, 32 // bits
        padded = [*numbers, *["0"] * (-len(numbers) % per)]
        words = [move(word) for word in pack(emitter, padded, size, 4)]
        moved = unpack(emitter, words, size, 4)[: len(numbers)]
    elif bits == 1:
        words = [move(emitter.emit(f"zext i1 {number} to i32")) for number in numbers]
        moved = [emitter.emit(f"trunc i32 {word} to i1") for word in words]
    else:
        moved = [move(number) for number in numbers]
    if kind == "ptr addrspace(1)":
        return [emitter.emit(f"inttoptr {whole} {number} to {kind}") for number in moved]
    return [emitter.emit(f"bitcast {whole} {number} to {kind}") for number in moved] if kind[0] != "i" else moved


def shuffle(emitter: Emitter, how: str, word: str, lane: str) -> str:
    """The i32 of another lane of the warp."""
    arguments = [("i32", _ALL), ("i32", word), ("i32", lane), ("i32", "31")]
    return emitter.call("i32", f"llvm.nvvm.shfl.sync.{how}.i32", *arguments)


def _lane_bits(bases: Sequence[int], mask: int) -> list[int]:
    """The lane bits on the axis, from the lowest of the axis."""
    return sorted((bit for bit, basis in enumerate(bases) if basis & mask), key=lambda bit: bases[bit])


def _axis_mask(type_: TensorType, axis: int) -> int:
    offset = sum(bits_of(size) for size in type_.shape[axis + 1 :])
    return (type_.shape[axis] - 1) << offset


@emits(tt.Reduce)
def _reduce(emitter: Emitter, op: tt.Reduce) -> Emitted:
    type_ = op.values[0].type
    assert isinstance(type_, TensorType)
    layout = layout_of(type_)
    mask = _axis_mask(type_, op.axis)
    if any(basis & mask for basis in layout.warps):
        raise InternalError("a reduction between warps is left; it should have been lowered", str(op.root()))
    tensors = [emitter.tensor(value) for value in op.values]
    types = [value.type for value in op.values]
    rows = {register: [tensor[register] for tensor in tensors] for register in unique_registers(layout)}
    # Registers first, by pairs of neighbours, pairs of pairs, and so on.
    along = sorted(
        (bit for bit, basis in enumerate(layout.registers) if basis & mask), key=lambda bit: layout.registers[bit]
    )
    lanes = _lane_bits(layout.lanes, mask)
    side = picks(op.combine)
    if side is not None:
        return _picked(emitter, op, rows, (along, lanes), side)
    for bit in along:
        rows = {
            register: inline_body(emitter, op.combine, [*row, *rows[register | 1 << bit]])
            for register, row in rows.items()
            if not register >> bit & 1
        }
    for bit in lanes:
        other = shuffled(
            emitter, list(rows.values()), types, lambda word, bit=bit: shuffle(emitter, "bfly", word, str(1 << bit))
        )
        rows = {
            register: inline_body(emitter, op.combine, [*row, *there])
            for (register, row), there in zip(rows.items(), other, strict=True)
        }
    if lanes and not is_commutative(op.combine):
        # The lanes have combined in different orders: all take the result of the first.
        first = emitter.once(
            ("first lane", tuple(lanes)),
            lambda: emitter.emit(f"and i32 {emitter.thread()}, {31 & ~sum(1 << bit for bit in lanes)}"),
        )
        found = shuffled(emitter, list(rows.values()), types, lambda word: shuffle(emitter, "idx", word, first))
        rows = dict(zip(rows, found, strict=True))
    return _reduced(layout, type_, rows, along)


def _picked(
    emitter: Emitter, op: tt.Reduce, rows: dict[int, Column], on_axis: tuple[list[int], list[int]], side: int
) -> Emitted:
    """The first (side 0) or last element along the axis: one register of one lane holds it."""
    type_ = op.values[0].type
    assert isinstance(type_, TensorType)
    along, lanes = on_axis
    registers = sum(1 << bit for bit in along)
    rows = {register: rows[register | registers if side else register] for register in rows if not register & registers}
    if lanes:
        bits = sum(1 << bit for bit in lanes)

        def chosen() -> str:
            lane = emitter.emit(f"and i32 {emitter.thread()}, {31 & ~bits}")
            return emitter.emit(f"or disjoint i32 {lane}, {bits}") if side else lane

        lane = emitter.once(("end lane", tuple(lanes), side), chosen)
        types = [value.type for value in op.values]
        found = shuffled(emitter, list(rows.values()), types, lambda word: shuffle(emitter, "idx", word, lane))
        rows = dict(zip(rows, found, strict=True))
    return _reduced(layout_of(type_), type_, rows, along)


def _reduced(layout: Layout, type_: TensorType, rows: dict[int, Column], along: list[int]) -> Emitted:
    """The results of a reduction from `rows`, which has the registers without the bits `along` the axis."""
    combined = sum(1 << bit for bit in along)
    results: list[Emitted] = []
    for index in range(len(rows[0])):
        if len(type_.shape) == 1:
            results.append(rows[0][index])
        else:
            results.append(
                [rows[canonical(layout, register) & ~combined][index] for register in range(layout.num_registers)]
            )
    return results[0] if len(results) == 1 else tuple(results)


class _Lanes:
    """The lanes along an axis in the order of a scan: the lane before this one, and the last one."""

    def __init__(self, emitter: Emitter, bits: list[int], reverse: bool) -> None:
        self.emitter = emitter
        self.bits = bits
        self.reverse = reverse
        self.mask = sum(1 << bit for bit in bits)
        self.key = (tuple(bits), reverse)

    def lane(self) -> str:
        emitter = self.emitter
        return emitter.once("lane", lambda: emitter.emit(f"and i32 {emitter.thread()}, 31"))

    def _once(self, what: object, *lines: str) -> str:
        """A number computed in the entry block by these lines. `$` stands for the lane in the first line, and for the
        result of the previous line in the others."""

        def make() -> str:
            result = self.lane()
            for line in lines:
                result = self.emitter.emit(line.replace("$", result))
            return result

        return self.emitter.once((what, self.key), make)

    def sender(self, step: int) -> str:
        """The last lane of the earlier half, for the lanes of the later half of this step."""
        bit = 1 << self.bits[step]
        lower = sum(1 << b for b in self.bits[:step])
        if self.reverse:
            return self._once(("sender", step), f"or i32 $, {bit}", f"and i32 $, {31 & ~lower}")
        return self._once(("sender", step), f"and i32 $, {31 & ~bit}", f"or i32 $, {lower}")

    def receives(self, step: int) -> str:
        """Whether this lane is in the later half of a step."""
        bit = 1 << self.bits[step]
        return self._once(("receives", step), f"and i32 $, {bit}", f"icmp {'eq' if self.reverse else 'ne'} i32 $, 0")

    def before(self) -> str:
        """The lane before this one."""
        rest = 31 & ~self.mask
        # Bits that are not of the axis are set, or cleared, so that a carry, or a borrow, runs through them.
        steps = (f"or i32 $, {rest}", "add i32 $, 1") if self.reverse else (f"and i32 $, {self.mask}", "add i32 $, -1")
        low = self._once("before", *steps, f"and i32 $, {self.mask}")
        return self._once("rest", f"and i32 $, {rest}", f"or i32 $, {low}") if rest else low

    def is_first(self) -> str:
        """Whether this lane is the first."""
        edge = self.mask if self.reverse else 0
        return self._once("first", f"and i32 $, {self.mask}", f"icmp eq i32 $, {edge}")

    def last(self) -> str:
        """The last lane."""
        if self.reverse:
            return self._once("last", f"and i32 $, {31 & ~self.mask}")
        return self._once("last", f"or i32 $, {self.mask}")


@emits(tt.Scan)
def _scan(emitter: Emitter, op: tt.Scan) -> Emitted:
    type_ = op.values[0].type
    assert isinstance(type_, TensorType)
    layout = layout_of(type_)
    mask = _axis_mask(type_, op.axis)
    types = [value.type for value in op.values]
    kinds = [emitted_type(element_of(t)) for t in types]
    tensors = [emitter.tensor(value) for value in op.values]
    lane_bits = _lane_bits(layout.lanes, mask)
    lowest_lane = min((layout.lanes[bit] for bit in lane_bits), default=mask + 1)
    along = sorted(
        (bit for bit, basis in enumerate(layout.registers) if basis & mask), key=lambda bit: layout.registers[bit]
    )
    serial = [bit for bit in along if layout.registers[bit] < lowest_lane]
    chunks = [bit for bit in along if bit not in serial]
    lanes = _Lanes(emitter, lane_bits, op.reverse)

    def combine(a: Column, b: Column) -> Column:
        return inline_body(emitter, op.combine, [*a, *b])

    def chosen(condition: str, a: Column, b: Column) -> Column:
        return [
            emitter.emit(f"select i1 {condition}, {kind} {x}, {kind} {y}")
            for kind, x, y in zip(kinds, a, b, strict=True)
        ]

    def from_lane(column: Column, lane: str) -> Column:
        return shuffled(emitter, [column], types, lambda word: shuffle(emitter, "idx", word, lane))[0]

    def numbered(bits: list[int]) -> list[int]:
        """The register numbers with these bits, counting up, or down for a reverse scan."""
        found = [sum(1 << bit for at, bit in enumerate(bits) if index >> at & 1) for index in range(1 << len(bits))]
        return found[::-1] if op.reverse else found

    on_axis = sum(1 << bit for bit in along)
    results: dict[int, Column] = {}
    for row in unique_registers(layout):
        if row & on_axis:
            continue
        carry: Column | None = None
        for chunk in numbered(chunks):
            registers = [row | chunk | register for register in numbered(serial)]
            sums = [[tensor[registers[0]] for tensor in tensors]]
            for register in registers[1:]:
                sums.append(combine(sums[-1], [tensor[register] for tensor in tensors]))
            total = sums[-1]
            for step in range(len(lane_bits)):
                there = from_lane(total, lanes.sender(step))
                total = chosen(lanes.receives(step), combine(there, total), total)
            prefix = carry
            if lane_bits:
                there = from_lane(total, lanes.before())
                if carry is not None:
                    prefix = chosen(lanes.is_first(), carry, combine(carry, there))
                else:
                    sums = [chosen(lanes.is_first(), own, combine(there, own)) for own in sums]
            if prefix is not None:
                sums = [combine(prefix, own) for own in sums]
            results.update(zip(registers, sums, strict=True))
            if chunks:
                whole = from_lane(total, lanes.last()) if lane_bits else total
                carry = whole if carry is None else combine(carry, whole)
    made = [
        [results[canonical(layout, register)][index] for register in range(layout.num_registers)]
        for index in range(len(types))
    ]
    return made[0] if len(made) == 1 else tuple(made)
