"""Emission of buffers in shared memory: vectors of up to 16 bytes, at addresses linear in the thread's number.

The place of an element in a buffer is the xor of the places of the bits of its register, lane and warp. So an address
is that of the buffer plus the xor of two parts: one from the thread's number, and a constant for each register. Bits of
the constant that no thread's part has are an offset of the instruction; the others cost one xor for all registers that
share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ziggurat.backend.ptx.emitter import EFFECT, READS, Argument, Emitted, PtxEmitter, emits, spread
from ziggurat.backend.ptx.packed_words import (
    GLOBAL,
    SHARED,
    from_words,
    group,
    load_elements,
    permuted,
    store_elements,
    to_words,
)  # fmt: skip
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout, bits_of, combine, inverted
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, SharedType, scalar_element
from ziggurat.transforms.analysis.queries import layout_of, shared_of, tensor_of
from ziggurat.transforms.layouts.swizzle import (
    VECTOR,
    MatrixView,
    matrix_view,
    stores_matrices,
    turned_bytes,
    vector_bits,
)


@emits(gpu.LocalAlloc)
def _alloc(emitter: PtxEmitter, op: gpu.LocalAlloc) -> Emitted:
    assert op.offset >= 0, "the buffer has no offset yet"
    return emitter.once(
        ("buffer", op.offset), lambda: emitter.emit(f"getelementptr i8, {SHARED} @smem, i32 {op.offset}")
    )


@emits(gpu.LocalView)
def _view(emitter: PtxEmitter, op: gpu.LocalView) -> Emitted:
    type_ = shared_of(op.buffer)
    size = type_.numel * type_.element.bytes
    offset = emitter.emit(f"mul i32 {emitter.scalar(op.index)}, {size}")
    return emitter.emit(f"getelementptr i8, {SHARED} {emitter.scalar(op.buffer)}, i32 {offset}")


@emits(gpu.LocalTrans)
def _trans(emitter: PtxEmitter, op: gpu.LocalTrans) -> Emitted:
    return emitter.scalar(op.buffer)


class VectorPlaces:
    """The places of a tensor's vectors in a buffer. `vector` has the register bits of one vector."""

    def __init__(self, emitter: PtxEmitter, buffer: Value, layout: Layout, vector: Sequence[int] | None = None) -> None:
        type_ = shared_of(buffer)
        self.emitter = emitter
        self.buffer = emitter.scalar(buffer)
        self.size = type_.element.bytes
        self.layout = layout
        self._inverse = inverted(type_.offsets)
        self.vector = vector_bits(layout, type_.offsets, self.size) if vector is None else vector
        bases = [combine(self._inverse, basis) * self.size for basis in layout.threads]
        self._spread = spread(bases)  # The bits of an address that depend on the thread's number.
        self._thread = emitter.linear(bases)
        self._pointers: dict[int, str] = {}

    def groups(self) -> Iterator[tuple[list[int], str, int]]:
        """For each vector: its registers, a pointer, and an offset in bytes from there."""
        steps = [1 << bit for bit in self.vector]
        for first in self.layout.unique_registers:
            if first & sum(steps):
                continue
            registers = [first | combine(steps, index) for index in range(1 << len(steps))]
            constant = combine(self._inverse, self.layout.element(first)) * self.size
            yield registers, self._pointer(constant & self._spread), constant & ~self._spread

    def _pointer(self, constant: int) -> str:
        if constant not in self._pointers:
            number = self.emitter.moved(self._thread, constant)
            place = f"getelementptr i8, {SHARED} {self.buffer}, i32 {number}"
            self._pointers[constant] = self.emitter.emit(place)
        return self._pointers[constant]

    def rows(self) -> Iterator[tuple[list[int], Argument, int]]:
        """For each vector: its registers, an address in shared memory as i32, and an offset in bytes from there."""
        for registers, pointer, offset in self.groups():
            yield registers, ("i32", self.emitter.emit(f"ptrtoint {SHARED} {pointer} to i32")), offset


class Rows:
    """Reads of a buffer in shared memory. A bit of the thread's number moves the place by one of `bases`, in bytes."""

    def __init__(self, emitter: PtxEmitter, buffer: Value, bases: Sequence[int]) -> None:
        self.emitter = emitter
        self.address = emitter.emit(f"ptrtoint {SHARED} {emitter.scalar(buffer)} to i32")
        self.thread = emitter.linear(bases)
        self.spread = spread(bases)
        self._starts: dict[int, str] = {}

    def load(self, name: str, place: int, count: int) -> list[str]:
        """The words that an instruction reads; thread 0 starts at this place in the buffer."""
        varying = place & self.spread
        if varying not in self._starts:
            own = self.emitter.moved(self.thread, varying)
            self._starts[varying] = self.emitter.emit(f"add i32 {self.address}, {own}")
        text = f"{name} {group(0, count)}, [${count} + {place ^ varying}];"
        return self.emitter.asm(["i32"] * count, text, ("i32", self._starts[varying]), effect=READS)


def byte_rows(emitter: PtxEmitter, rows: Rows, place: int, *, crossed: bool = False) -> list[str]:
    """The words of two rows at depths 0 to 3, and at 16 to 19, from a place on. `crossed` lanes l & 16 have the second
    row first."""
    words = rows.load("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", place, 4)

    def chosen(odd: int) -> str:
        thread = emitter.of("i32", emitter.thread())
        opposite, second = thread >> 1 & 1, (thread >> 4 & 1 ^ odd) if crossed else odd
        test = emitter.emit(f"icmp eq i32 {opposite}, 0")
        bytes_ = emitter.emit(f"select i1 {test}, i32 {0x6420}, i32 {0x2064}")
        other = emitter.emit(f"mul i32 {second}, {0x1111}")
        return emitter.emit(f"add i32 {bytes_}, {other}")

    selected = [emitter.once(("bytes", odd, crossed), lambda odd=odd: chosen(odd)) for odd in (0, 1)]
    return [permuted(emitter, words[at], words[at + 1], which) for at in (0, 2) for which in selected]


@emits(gpu.LocalLoad)
def _load(emitter: PtxEmitter, op: gpu.LocalLoad) -> Emitted:
    type_ = shared_of(op.buffer)
    layout, scalar = layout_of(op.type), type_.element
    values: dict[int, str] = {}
    byte_offsets = turned_bytes(layout, type_.offsets, scalar.bytes)
    if byte_offsets is not None:
        rows, into = Rows(emitter, op.buffer, byte_offsets), inverted(type_.offsets)
        for first in (register for register in layout.unique_registers if register % 16 == 0):
            words = byte_rows(emitter, rows, combine(into, layout.element(first)), crossed=True)
            values |= zip(range(first, first + 16), from_words(emitter, words, scalar, 4), strict=True)
        return emitter.value(op.type, values)
    view = matrix_view(layout, type_.offsets, scalar.bytes)
    if view is not None:
        for words, address, offset in _matrices(emitter, op.buffer, view):
            text = f"{_instruction('ldmatrix', view)} {group(0, view.count)}, [${view.count} + {offset}];"
            parts = emitter.asm(["i32"] * view.count, text, address, effect=EFFECT)
            for registers, part in zip(words, parts, strict=True):
                values |= zip(registers, from_words(emitter, [part], scalar, 4), strict=True)
        return emitter.value(op.type, values)
    for registers, pointer, offset in VectorPlaces(emitter, op.buffer, layout).groups():
        if offset:
            pointer = emitter.emit(f"getelementptr i8, {SHARED} {pointer}, i32 {offset}")
        values |= zip(registers, load_elements(emitter, (SHARED, pointer), scalar, len(registers)), strict=True)
    return emitter.value(op.type, values)


@emits(gpu.LocalStore)
def _store(emitter: PtxEmitter, op: gpu.LocalStore) -> Emitted:
    type_ = shared_of(op.buffer)
    layout, scalar = layout_of(op.value.type), type_.element
    values = emitter.tensor(op.value)
    view = matrix_view(layout, type_.offsets, scalar.bytes)
    if view is not None and emitter.target.has_stmatrix and stores_matrices(layout):
        for words, address, offset in _matrices(emitter, op.buffer, view):
            stored_words = [to_words(emitter, [values[register] for register in part], scalar, 4)[0] for part in words]
            text = f"{_instruction('stmatrix', view)} [$0 + {offset}], {group(1, view.count)};"
            emitter.asm((), text, address, *(("i32", word) for word in stored_words), effect=EFFECT)
        return
    owner = emitter.owner(op.value.type)
    for registers, pointer, offset in VectorPlaces(emitter, op.buffer, layout).groups():
        neighbours = [values[register] for register in registers]
        store_elements(emitter, (SHARED, pointer), neighbours, scalar, owner, offset=offset)


# Matrices of 8 rows of 16 bytes, moved by all lanes together.


def _matrices(emitter: PtxEmitter, buffer: Value, view: MatrixView) -> Iterator[tuple[list[list[int]], Argument, int]]:
    """For each instruction: the registers of each of its words, the address of the lane's row, and an offset."""
    row = bits_of(VECTOR // shared_of(buffer).element.bytes)
    rest, matrices, word = ([1 << bit for bit in bits] for bits in (view.rest, view.matrices, view.word))
    for registers, address, offset in VectorPlaces(emitter, buffer, view.layout, range(row)).rows():
        first = combine(rest, registers[0] >> row)
        words = [
            [first | combine(matrices, matrix) | combine(word, index) for index in range(1 << len(word))]
            for matrix in range(view.count)
        ]
        yield words, address, offset


def _instruction(name: str, view: MatrixView) -> str:
    return f"{name}.sync.aligned.m8n8.x{view.count}{'.trans' if view.trans else ''}.shared.b16"


# Asynchronous copies.


@emits(gpu.AsyncCopy)
def _copy(emitter: PtxEmitter, op: gpu.AsyncCopy) -> Emitted:
    size = shared_of(op.buffer).element.bytes * op.width
    owner = emitter.owner(op.ptr.type)
    # Copies of 16 bytes bypass L1, as nothing reads them again.
    cache = "cg" if size == 16 else "ca"
    for registers, address, offset in VectorPlaces(
        emitter, op.buffer, layout_of(op.ptr.type), range(bits_of(op.width))
    ).rows():
        text = f"@mask cp.async.{cache}.shared.global [ $0 + {offset} ], [ $1 + 0 ], {size}"
        arguments = [address, (GLOBAL, emitter.at(op.ptr, registers[0]))]
        mask = emitter.mask(op.mask, registers[0])
        if mask is not None:
            # Masked elements become zeros. (A number of bytes does the same, for more instructions.)
            arguments.append(("i1", emitter.emit(f"xor i1 {mask}, true")))
            text += ", $2"
        emitter.asm((), f"{text};", *arguments, effect=EFFECT, mask=owner)


@emits(gpu.AsyncCommit)
def _commit(emitter: PtxEmitter, op: gpu.AsyncCommit) -> Emitted:
    emitter.asm((), "cp.async.commit_group;", effect=EFFECT)


@emits(gpu.AsyncWait)
def _wait(emitter: PtxEmitter, op: gpu.AsyncWait) -> Emitted:
    emitter.asm((), f"cp.async.wait_group {op.pending};", effect=EFFECT)


# Accesses at computed indices.


def _index(emitter: PtxEmitter, value: str, scalar: ScalarType) -> str:
    """An integer as i32."""
    if scalar.bits == 32:
        return value
    opcode = "trunc" if scalar.bits > 32 else "sext" if scalar.signed else "zext"
    return emitter.emit(f"{opcode} i{scalar.bits} {value} to i32")


def _in_order(type_: SharedType) -> None:
    good = all(basis == 1 << bit for bit, basis in enumerate(type_.offsets))
    assert good, "a buffer that is indexed by computed numbers must be in row-major order"


@emits(gpu.LocalAtomicAdd)
def _atomic_add(emitter: PtxEmitter, op: gpu.LocalAtomicAdd) -> Emitted:
    type_ = shared_of(op.buffer)
    _in_order(type_)
    scalar, owner = scalar_element(op.index.type), emitter.owner(op.index.type)
    for register in layout_of(op.index.type).unique_registers:
        number = emitter.at(op.index, register)
        offset = number if scalar.bits > 32 else _index(emitter, number, scalar)
        inside = emitter.of(f"i{max(32, scalar.bits)}", offset).test("ult", type_.numel).name
        mask = emitter.both(owner, emitter.mask(op.mask, register), inside)
        offset = _index(emitter, number, scalar) if scalar.bits > 32 else offset
        pointer = emitter.emit(f"getelementptr i32, {SHARED} {emitter.scalar(op.buffer)}, i32 {offset}")
        address = emitter.emit(f"ptrtoint {SHARED} {pointer} to i32")
        emitter.asm((), "@mask red.shared.add.u32 [ $0 + 0 ], 1;", ("i32", address), effect=EFFECT, mask=mask)


@emits(gpu.LocalGather)
def _gather(emitter: PtxEmitter, op: gpu.LocalGather) -> Emitted:
    type_ = shared_of(op.buffer)
    _in_order(type_)
    layout, shape = layout_of(op.index.type), tensor_of(op.index).shape
    offset = sum(bits_of(size) for size in type_.shape[op.axis + 1 :])
    theirs, ours = bits_of(shape[op.axis]), bits_of(type_.shape[op.axis])

    def source(element: int) -> int:
        """The number of the source element without its coordinate along the axis, for an element of the index."""
        return element & ((1 << offset) - 1) | element >> (offset + theirs) << (offset + ours)

    thread = emitter.linear([source(basis) for basis in layout.threads])
    elements: dict[int, str] = {}
    for register in layout.unique_registers:
        number = emitter.moved(thread, source(layout.element(register)))
        along = _index(emitter, emitter.at(op.index, register), scalar_element(op.index.type))
        if offset:
            along = emitter.emit(f"shl i32 {along}, {offset}")
        number = emitter.emit(f"add i32 {number}, {along}")
        memory = f"[{type_.element.bytes} x i8]"
        pointer = emitter.emit(f"getelementptr {memory}, {SHARED} {emitter.scalar(op.buffer)}, i32 {number}")
        elements[register] = load_elements(emitter, (SHARED, pointer), type_.element, 1)[0]
    return emitter.value(op.index.type, elements)
