"""Emission of dots: mma.sync and wgmma as inline assembly, others as loops of fused multiply-adds.

A wgmma is asynchronous: no instruction may touch its accumulator registers before a wait. So the wgmmas of a tile are
one piece of inline assembly whose results are tied to its operands, and a wait takes and returns the accumulator:
neither LLVM nor ptxas then has a reason to move it in between.

Operands of mma.sync come from the registers of a tensor in fragments, or by ldmatrix from shared memory. ldmatrix moves
matrices of 8 rows of 16 bytes. One lane gives the address of each row, and every lane gets 32 bits of the fragment.
If the rows lie along k, elements may have any size. If they lie across k, `.trans` is needed and elements must have
16 bits (PTX manual, "ldmatrix").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product

from ziggurat.backend.llvm.routines import Join, Number, llvm_type, suffix
from ziggurat.backend.ptx.emitter import EFFECT, PURE, Argument, Emitted, PtxEmitter, emits, spread
from ziggurat.backend.ptx.packed_words import SHARED, group
from ziggurat.backend.ptx.shared import Rows, byte_rows
from ziggurat.backend.ptx.shuffles import uniform
from ziggurat.backend.ptx.tiles import (
    Tiles,
    WgmmaGroup,
    mma_tiles,
    places_a,
    places_b,
    places_c,
    registers_of,
    wgmma_group,
)
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.dialect import transposed
from ziggurat.codemodel.gpu.fragments import PAIRED_ROWS, Panels, byte_of, panels_of
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.layout import bits_of, combine, inverted
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType, Type, scalar_element
from ziggurat.transforms.analysis.queries import layout_of, shared_of, tensor_of
from ziggurat.transforms.layouts.swizzle import BYTE_DEPTHS

_SUM = {"f32": "f32", "f64": "f64", "i32": "s32"}  # PTX's types of accumulators.
_LINES = 512  # The limit on multiply-adds in the body of a loop along k, unless one step along k has more.


@emits(tt.Dot, gpu.Mma)
def _mma(emitter: PtxEmitter, op: tt.Dot | gpu.Mma) -> Emitted:
    """Emit one mma.sync for each tile and step along k; operands come from registers or by ldmatrix."""
    a_type, b_type, c_type = op.a.type, op.b.type, tensor_of(op.c)
    assert isinstance(a_type, TensorType | SharedType) and isinstance(b_type, TensorType | SharedType)
    tiles = mma_tiles(a_type, b_type, c_type, emitter.module.target)
    total = _SUM.get(scalar_element(c_type).name)
    if tiles is None or total is None:
        raise InternalError(f"a {op.NAME} whose operands are not fragments; it should have been placed", str(op.root()))
    first, second = (op.b, op.a) if tiles.warps.swapped else (op.a, op.b)
    a, b = operand_of(emitter, first, tiles, first=True), operand_of(emitter, second, tiles, first=False)
    places = registers_of(layout_of(_as_multiplied(c_type, tiles)))
    sums, latest = list(emitter.tensor(op.c)), dict[tuple[int, ...], list[str]]()
    kind, unit = llvm_type(c_type), tiles.unit
    assert isinstance(a_type.element, ScalarType) and isinstance(b_type.element, ScalarType)
    elements = (a_type.element, b_type.element)[:: -1 if tiles.warps.swapped else 1]
    factors = ".".join(element.ptx for element in elements)
    of_c = places_c(unit, unit.n, paired=tiles.warps.paired)
    # A batch goes matrix by matrix, which frees the registers of the operands.
    for batch, k, row, column in product(tiles.matrices, tiles.depths, tiles.rows, tiles.columns):
        start = (batch * tiles.m + row) * tiles.n + column
        own = [places[start + y % tiles.m * tiles.n + x % tiles.n] for y, x in of_c]
        # An instruction goes on with its own results: of a tile that is smaller, it has copies.
        of_sums = latest.get((batch, row, column)) or [sums[register] for register in own]
        parts = (a.part(row, k, batch), b.part(column, k, batch), of_sums)
        counts = [len(own), *map(len, parts)]
        groups = ", ".join(group(sum(counts[:at]), count) for at, count in enumerate(counts))
        arguments = [(of, value) for of, part in zip((a.kind, b.kind, kind), parts, strict=True) for value in part]
        text = f"mma.sync.aligned.{unit.name}.row.col.{total}.{factors}.{total} {groups};"
        results = latest[batch, row, column] = emitter.asm([kind] * len(own), text, *arguments, effect=PURE)
        for register, value in zip(own, results, strict=True):
            sums[register] = value
    return sums


def _as_multiplied(type_: Type, tiles: Tiles) -> TensorType | SharedType:
    """The type of an operand as the unit sees it: transposed, if it computes the transposed product."""
    assert isinstance(type_, TensorType | SharedType)
    if not tiles.warps.swapped:
        return type_
    if isinstance(type_, SharedType):
        return transposed(type_, (1, 0))
    return TensorType(type_.shape[::-1], type_.element, layout_of(type_).transposed(type_.shape, (1, 0)))


# wgmma.


def _bit_times(emitter: PtxEmitter, number: str, bit: int, factor: int) -> str:
    """A constant where a bit of an i32 is set, else 0."""
    return emitter.emit(f"mul nuw nsw i32 {emitter.of('i32', number) >> bit & 1}, {factor}")


def _descriptor(emitter: PtxEmitter, buffer: Value, k_axis: int, panels: Panels, bases: Sequence[int]) -> Argument:
    """The matrix descriptor of an operand for this warp group, as i64."""
    rows, columns = shared_of(buffer).shape
    constant = panels.descriptor((rows, columns), k_axis)
    address = emitter.of(SHARED, emitter.scalar(buffer)).to("ptrtoint", "i32")
    for bit, basis in enumerate(bases):
        if basis:
            warp_group = emitter.once("warp group", lambda: uniform(emitter, 7))
            address += emitter.of("i32", _bit_times(emitter, warp_group, bit, basis))
    wide = (address >> 4 & 16383).to("zext", "i64")
    # LLVM reads i64 constants as signed numbers.
    signed = constant - (1 << 64) if constant >> 63 else constant
    return "i64", emitter.emit(f"or disjoint i64 {wide}, {signed}")


@emits(gpu.Wgmma)
def _wgmma(emitter: PtxEmitter, op: gpu.Wgmma) -> Emitted:
    a, b, c = op.a.type, op.b.type, op.c.type
    assert isinstance(a, TensorType | SharedType) and isinstance(b, SharedType) and isinstance(c, TensorType)
    tile = wgmma_group(a, b, c, op.within)
    if tile is None:
        raise InternalError(f"a gpu.wgmma of {a} and {b} to {c}", str(op.root()))
    kind = llvm_type(c)
    sums = emitter.tensor(op.c) if op.accumulate else ["poison"] * layout_of(c).num_registers
    registers = list(dict.fromkeys(register for step in tile.steps for register in step.c))
    # Operands of the assembly: results, the same registers as arguments, descriptors, the registers of a.
    count = len(registers)
    arguments = [(kind, sums[register]) for register in registers]
    of_a: dict[tuple[int, ...] | int, str] = {}
    first, second = ((op.a, 1), (op.b, 0))[:: -1 if tile.warps.swapped else 1]
    if tile.a is not None and not tile.warps.paired:
        arguments.append(_descriptor(emitter, *first, tile.a, tile.a_bases))
    arguments.append(_descriptor(emitter, *second, tile.b, tile.b_bases))
    read: Callable[..., list[str]] | None = None
    if tile.warps.paired:
        # Of several groups in a loop, the last one may still read its registers: they are others.
        emitter.asm((), f"wgmma.wait_group.sync.aligned {int(bool(op.within))};", effect=EFFECT)
        read = _PairedRows(emitter, first[0], tile).part
    elif isinstance(a, TensorType):
        read = PackedOperand(emitter, op.a).registers
    for step in tile.steps if read is not None else ():
        if step.a not in of_a:
            assert read is not None
            values = read(step.a)
            of_a[step.a] = group(count + len(arguments), len(values))
            arguments += [("i32", value) for value in values]
    text = _wgmma_text(op, tile, {register: at for at, register in enumerate(registers)}, of_a)
    result = list(sums)
    results = emitter.asm([kind] * count, text, *arguments, effect=EFFECT, tied=True)
    for register, value in zip(registers, results, strict=True):
        result[register] = value
    return result


def _wgmma_text(op: gpu.Wgmma, tile: WgmmaGroup, places: dict[int, int], of_a: dict[tuple[int, ...] | int, str]) -> str:
    """The PTX of a tile: the fence, the wgmmas and the commit, without the wait. `places` has the asm operand of each
    register of c, and `of_a` those of each part of an operand a in registers."""
    of_first = shared_of(op.a).element if isinstance(op.a.type, SharedType) else scalar_element(op.a.type)
    element, total = shared_of(op.b).element, _SUM[scalar_element(op.c.type).name]
    if tile.warps.swapped:
        of_first, element = element, of_first
    start_a = 2 * len(places)
    start_b = start_a if of_a else start_a + 1
    lines = ["{", ".reg .pred never, always;", ".reg .b64 da, db;", "setp.ne.b32 never, 0, 0;"]
    lines += ["setp.ne.b32 always, 1, 0;", "wgmma.fence.sync.aligned;"]
    signs = "" if total == "s32" else ", 1, 1"
    if element.bits == 16:
        signs += "".join(f", {int(not panels.k_major)}" for panels in (tile.a, tile.b) if panels is not None)
    name = f"wgmma.mma_async.sync.aligned.m64n{tile.columns}k{tile.k}.{total}.{of_first.ptx}.{element.ptx}"
    for step in tile.steps:
        lines.append(f"add.s64 db, ${start_b}, {step.b >> 4};")
        if not of_a:
            assert isinstance(step.a, int)
            lines.append(f"add.s64 da, ${start_a}, {step.a >> 4};")
        first = of_a[step.a] if of_a else "da"
        sums = ", ".join(f"${places[register]}" for register in step.c)
        scale = "never" if step.first and not op.accumulate else "always"
        lines.append(f"{name} {{{sums}}}, {first}, db, {scale}{signs};")
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned;", "}"])


@emits(gpu.WgmmaWait)
def _wgmma_wait(emitter: PtxEmitter, op: gpu.WgmmaWait) -> Emitted:
    values, kind = emitter.tensor(op.value), llvm_type(op.value.type)
    text = f"wgmma.wait_group.sync.aligned {op.pending};"
    return emitter.asm([kind] * len(values), text, *((kind, value) for value in values), effect=EFFECT, tied=True)


@emits(gpu.FenceAsync)
def _fence(emitter: PtxEmitter, op: gpu.FenceAsync) -> Emitted:
    emitter.asm((), "fence.proxy.async.shared::cta;", effect=EFFECT)


@emits(gpu.FenceGlobal)
def _fence_global(emitter: PtxEmitter, op: gpu.FenceGlobal) -> Emitted:
    emitter.asm((), "fence.proxy.async.global;", effect=EFFECT)


@emits(gpu.Rescale)
def _rescale(emitter: PtxEmitter, op: gpu.Rescale) -> Emitted:
    values = list(emitter.tensor(op.value))
    rows = by_key((factor, register) for register, factor in enumerate(emitter.tensor(op.factor)))
    for factor, registers in rows.items():
        count = len(registers)
        text = "\n".join(f"@mask mul.f32 ${at}, ${count + at}, ${2 * count};" for at in range(count))
        arguments = [("float", values[register]) for register in registers]
        changes = emitter.emit(f"fcmp une float {factor}, 1.0")
        results = emitter.asm(
            ["float"] * count, text, *arguments, ("float", factor), effect=PURE, mask=changes, tied=True
        )
        for register, value in zip(registers, results, strict=True):
            values[register] = value
    return values


@emits(gpu.Keep)
def _keep(emitter: PtxEmitter, op: gpu.Keep) -> Emitted:
    # A fence, as good as never, that only reads of all registers can decide about.
    words = PackedOperand(emitter, op.value).registers(range(layout_of(op.value.type).num_registers))
    every = reduce(lambda register, other: emitter.emit(f"xor i32 {register}, {other}"), words)
    emitter.asm((), "@mask fence.proxy.async.shared::cta;", effect=EFFECT, mask=emitter.emit(f"icmp eq i32 {every}, 1"))


@emits(gpu.RoundTf32)
def _round_tf32(emitter: PtxEmitter, op: gpu.RoundTf32) -> Emitted:
    # ptxas makes one instruction of .rn, and three of .rna, which is all that the targets before sm_90 have.
    mode = "rn" if emitter.target.capability >= 90 else "rna"

    def rounded(value: Number) -> str:
        (bits,) = emitter.asm(("i32",), f"cvt.{mode}.tf32.f32 $0, $1;", ("float", value.name), effect=PURE)
        return emitter.emit(f"bitcast i32 {bits} to float")

    return emitter.each(op.result.type, [op.value], rounded)


# Without matrix units.


class _Factor:
    """An operand of `gpu.dot_fma` in shared memory, and the places of the elements that a thread needs.

    The place of an element is its offset in the buffer, in elements. It is the xor of three parts, which depend on the
    thread, on the register, and on the step along k.
    """

    def __init__(self, emitter: PtxEmitter, buffer: Value, thread: Sequence[int]) -> None:
        self.emitter = emitter
        self.type = shared_of(buffer)
        self.address = emitter.scalar(buffer)
        self.inverse = inverted(self.type.offsets)
        self.kind = llvm_type(self.type.element)
        bases = [self.place(element) for element in thread]
        self.thread = emitter.linear(bases)
        self.spread = spread(bases)
        self.xors: dict[tuple[str, int], str] = {}

    def place(self, element: int) -> int:
        """The place of the element with this row-major number in the operand."""
        return combine(self.inverse, element)

    def start(self, step: str | None, bases: Sequence[int]) -> tuple[str, int]:
        """The xor of the thread's part and of the part of a run-time step; and a mask of the bits that it may set.

        Bit i of `step` contributes `bases[i]`.
        """
        result, offset_bits = self.thread, self.spread
        if step is not None:
            for bit, basis in enumerate(bases):
                part = _bit_times(self.emitter, step, bit, basis)
                result = self.emitter.emit(f"xor i32 {result}, {part}")
                offset_bits |= basis
        return result, offset_bits

    def load(self, start: tuple[str, int], constant: int) -> str:
        """The element at the xor of a start and a constant."""
        emitter, (place, offset_bits) = self.emitter, start
        size = self.type.element.bytes
        if both := constant & offset_bits:
            key, constant = (place, both), constant ^ both
            if key not in self.xors:
                self.xors[key] = emitter.emit(f"xor i32 {place}, {both}")
            place = self.xors[key]
        pointer = emitter.emit(f"getelementptr {self.kind}, {SHARED} {self.address}, i32 {place}")
        if constant:
            pointer = emitter.emit(f"getelementptr i8, {SHARED} {pointer}, i32 {constant * size}")
        return emitter.emit(f"load {self.kind}, {SHARED} {pointer}, align {size}")


@emits(gpu.DotFma)
def _dot_fma(emitter: PtxEmitter, op: gpu.DotFma) -> Emitted:
    """Emit a loop along k that reads both operands from shared memory; each thread accumulates its elements."""
    type_ = tensor_of(op.c)
    layout = layout_of(type_)
    m, n = type_.shape[-2:]
    k = shared_of(op.a).shape[-1]

    def of_a(element: int) -> int:
        batch, row = element // (m * n), element // n % m
        return (batch * m + row) * k

    def of_b(element: int) -> int:
        batch, column = element // (m * n), element % n
        return batch * k * n + column

    bases = layout.threads
    a = _Factor(emitter, op.a, [of_a(basis) for basis in bases])
    b = _Factor(emitter, op.b, [of_b(basis) for basis in bases])
    own = layout.unique_registers
    elements = [layout.element(register) for register in own]
    places = [(a.place(of_a(element)), b.place(of_b(element))) for element in elements]
    kind = llvm_type(type_)
    accumulator = emitter.tensor(op.c)
    sums = [accumulator[register] for register in own]
    at_once = 1
    while at_once < min(k, 16) and 2 * at_once * len(own) <= _LINES:
        at_once *= 2

    def steps(number: str | None, sums: list[str]) -> list[str]:
        """`at_once` multiply-adds for each accumulator."""
        rest = [1 << bit for bit in range(at_once.bit_length() - 1, k.bit_length() - 1)]
        start_a = a.start(number, [a.place(step) for step in rest])
        start_b = b.start(number, [b.place(step * n) for step in rest])
        for step in range(at_once):
            part_a, part_b = a.place(step), b.place(step * n)
            read_a = {place: a.load(start_a, place ^ part_a) for place in dict.fromkeys(p for p, _ in places)}
            read_b = {place: b.load(start_b, place ^ part_b) for place in dict.fromkeys(p for _, p in places)}
            sums = [
                _multiply_add(emitter, kind, read_a[pa], read_b[pb], total)
                for (pa, pb), total in zip(places, sums, strict=True)
            ]
        return sums

    sums = steps(None, sums) if at_once == k else _loop(emitter, k // at_once, kind, sums, steps)
    return emitter.value(type_, dict(zip(own, sums, strict=True)))


def _multiply_add(emitter: PtxEmitter, kind: str, a: str, b: str, c: str) -> str:
    if kind in ("float", "double"):
        return emitter.call(kind, f"llvm.fma.{suffix(kind)}", (kind, a), (kind, b), (kind, c))
    product = emitter.emit(f"mul {kind} {a}, {b}")
    return emitter.emit(f"add {kind} {product}, {c}")


def _loop(emitter: PtxEmitter, count: int, kind: str, sums: list[str], body: Callable[..., list[str]]) -> list[str]:
    """Emit a loop of `count` iterations. The body maps the iteration and the accumulators to the next ones."""
    after = emitter.name("after")
    head = Join(emitter, "dots", ["i32", *(kind for _ in sums)])
    emitter.line(f"br {head.branch(['0', *sums])}")
    number, *variables = head.begin()
    results = body(number, variables)
    following = emitter.emit(f"add nuw nsw i32 {number}, 1")
    more = emitter.emit(f"icmp ult i32 {following}, {count}")
    emitter.line(f"br i1 {more}, {head.branch([following, *results])}, label %{after}")
    head.end()
    emitter.start(after)
    return results


class PackedOperand:
    """The registers of an operand for the matrix units: `pack` elements in 32 bits, or one f64."""

    def __init__(self, emitter: PtxEmitter, value: Value) -> None:
        assert isinstance(value.type, TensorType) and isinstance(value.type.element, ScalarType)
        self.emitter = emitter
        self.values = emitter.tensor(value)
        element = value.type.element
        self.element = llvm_type(element)
        self.pack = max(1, 32 // element.bits)
        self.kind = "double" if element.bits == 64 else "i32"
        self._pairs: dict[tuple[int, ...], str] = {}

    def registers(self, numbers: Sequence[int]) -> list[str]:
        """The values of an instruction's operand, given the register numbers of its elements."""
        return [self._one(tuple(numbers[at : at + self.pack])) for at in range(0, len(numbers), self.pack)]

    def _one(self, numbers: tuple[int, ...]) -> str:
        if numbers not in self._pairs:
            self._pairs[numbers] = self._make([self.values[number] for number in numbers])
        return self._pairs[numbers]

    def _make(self, elements: list[str]) -> str:
        if self.kind == "double":
            return elements[0]
        if len(elements) == 1:
            return self.emitter.emit(f"bitcast {self.element} {elements[0]} to i32")
        vector = f"<{len(elements)} x {self.element}>"
        result = "poison"
        for at, element in enumerate(elements):
            result = self.emitter.emit(f"insertelement {vector} {result}, {self.element} {element}, i32 {at}")
        return self.emitter.emit(f"bitcast {vector} {result} to i32")


class _InRegisters:
    """An operand in registers, in the layout of fragments."""

    def __init__(self, emitter: PtxEmitter, value: Value, tiles: Tiles, *, first: bool) -> None:
        type_ = _as_multiplied(value.type, tiles)
        self.packed = PackedOperand(emitter, value)
        self.kind = self.packed.kind
        self.places = registers_of(layout_of(type_))
        columns = type_.shape[-1]
        self.along = (columns, 1) if first else (1, columns)  # Steps across and along k.
        self.lines = type_.shape[-2 if first else -1]
        self.matrix = type_.shape[-2] * columns
        unit = tiles.unit
        self.elements = (
            places_a(unit, paired=tiles.warps.paired) if first else [(column, k) for k, column in places_b(unit)]
        )

    def part(self, line: int, k: int, batch: int = 0) -> list[str]:
        """The registers for the rows (or columns) from `line` on, at `k`, of a matrix of a batch."""
        step, step_k = self.along
        start = batch * self.matrix + line * step + k * step_k
        numbers = [self.places[start + across % self.lines * step + depth * step_k] for across, depth in self.elements]
        return self.packed.registers(numbers)


class _PairedRows:
    """Operand a of wgmma in shared memory with its neighbours along m: a thread reads the words of pairs of rows.

    It reads elements of 8 bits by `byte_rows`, and elements of 32 bits by vectors of two.
    """

    def __init__(self, emitter: PtxEmitter, buffer: Value, tile: WgmmaGroup) -> None:
        self.emitter = emitter
        type_, warps = shared_of(buffer), tile.warps
        self.type = transposed(type_, (1, 0)) if warps.swapped else type_
        self.of_bytes = type_.element.bytes == 1
        lines = [(line, 0) for line in PAIRED_ROWS[4 if self.of_bytes else 1]]
        lanes = [(0, depth) for depth in BYTE_DEPTHS] if self.of_bytes else [(0, 1), (0, 2), *lines[1:4]]
        rows = [*lanes, *lines[4:], *((64 << bit, 0) for bit in range(bits_of(warps.rows) - 2))]
        self.rows = Rows(emitter, buffer, [byte_of(self.type, *row) for row in rows])

    def part(self, place: int) -> list[str]:
        """The registers of an instruction whose part of the operand starts at this byte."""
        if not self.of_bytes:
            deeper = place ^ byte_of(self.type, 0, 4)
            return [word for at in (place, deeper) for word in self.rows.load("ld.shared.v2.b32", at, 2)]
        return byte_rows(self.emitter, self.rows, place)


class _InShared:
    """An operand in shared memory, loaded by ldmatrix: four matrices of 8 rows at a time, or two for a single part of
    b."""

    kind = "i32"

    def __init__(self, emitter: PtxEmitter, value: Value, tiles: Tiles, *, first: bool) -> None:
        type_ = _as_multiplied(value.type, tiles)
        assert isinstance(type_, SharedType)
        panels = panels_of(type_, 1 if first else 0)
        assert panels is not None
        self.emitter = emitter
        self.type = type_
        self.first = first
        self.unit = unit = tiles.unit
        self.trans = "" if panels.k_major else ".trans"
        self._parts: dict[tuple[int, int, int], list[str]] = {}
        half = unit.k // 2
        # Two parts of b are loaded at once: the next columns if there are any, else the next along k.
        self.next = (0, 0)
        if not first:
            self.next = (unit.n, 0) if len(tiles.columns) > 1 else (0, unit.k) if len(tiles.depths) > 1 else (0, 0)
        # The moves by the bits of the lane's number: the row within a matrix, and the number of the matrix.
        lines = type_.shape[-2 if first else -1]
        rows = [(1 << bit, 0) if panels.k_major else (0, 1 << bit) for bit in range(3)]
        matrices = [(8, 0), (0, half)] if first else [(0, half), self.next]
        # Where the operand has fewer lines than a matrix, or than two, lanes read copies.
        rows, matrices = ([(line % lines, k) for line, k in places] for places in (rows, matrices))
        count = tiles.warps.rows if first else tiles.warps.columns
        step = unit.m if first else tiles.n // tiles.warps.columns
        own = [self._byte(step << bit, 0) for bit in range(bits_of(count))]
        shared = [0] * bits_of(tiles.warps.columns if first else tiles.warps.rows)
        batches = [self._byte(0, 0, 1 << bit) for bit in range(bits_of(tiles.warps.batches))]
        warps = [*own, *shared, *batches] if first else [*shared, *own, *batches]
        self.rows = Rows(emitter, value, [*(self._byte(*place) for place in (*rows, *matrices)), *warps])

    def _byte(self, line: int, k: int, batch: int = 0) -> int:
        return byte_of(self.type, line, k, batch) if self.first else byte_of(self.type, k, line, batch)

    def part(self, line: int, k: int, batch: int = 0) -> list[str]:
        """The registers for the rows (or columns) from `line` on, at `k`, of a matrix of a batch."""
        if (line, k, batch) not in self._parts:
            word = self._load(self._byte(line, k, batch), 2 if not self.first and self.next == (0, 0) else 4)
            if self.first:
                self._parts[line, k, batch] = word
            else:
                self._parts[line, k, batch] = word[:2]
                self._parts[line + self.next[0], k + self.next[1], batch] = word[2:] or word[:2]
        return self._parts[line, k, batch]

    def _load(self, place: int, count: int) -> list[str]:
        """Load `count` matrices; thread 0 starts at this place in the buffer."""
        return self.rows.load(f"ldmatrix.sync.aligned.m8n8.x{count}{self.trans}.shared.b16", place, count)


Operand = _InRegisters | _InShared


def operand_of(emitter: PtxEmitter, value: Value, tiles: Tiles, *, first: bool) -> Operand:
    """Operand a (`first`) or b of a dot, in registers or in shared memory."""
    kind = _InShared if isinstance(value.type, SharedType) else _InRegisters
    return kind(emitter, value, tiles, first=first)
