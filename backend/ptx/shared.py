"""Emission of buffers in shared memory: vectors of up to 16 bytes, at addresses linear in the thread's number.

The place of an element in a buffer is the xor of the places of the bits of its register, lane and warp. So an address
is that of the buffer plus the xor of two parts: one from the thread's number, and a constant for each register. Bits of
the constant that no thread's part has are an offset of the instruction; the others cost one xor for all registers that
share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ziggurat.backend.ptx.emitter import Emitted, Emitter, canonical, emits, layout_of
from ziggurat.backend.ptx.memory import both
from ziggurat.backend.ptx.tensors import unique_registers
from ziggurat.backend.ptx.words import from_memory, load_words, pack, store_masked, store_words, to_memory, unpack
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout, bits_of, combine, inverted
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType
from ziggurat.transforms.place.ldmatrix import View, matrix_view, stores_matrices
from ziggurat.transforms.place.swizzle import VECTOR, vector_bits

POINTER = "ptr addrspace(3)"


def buffer_type(value: Value) -> SharedType:
    """The type of a buffer."""
    assert isinstance(value.type, SharedType)
    return value.type


@emits(gpu.LocalAlloc)
def _alloc(emitter: Emitter, op: gpu.LocalAlloc) -> Emitted:
    assert op.offset >= 0, "the buffer has no offset yet"
    return emitter.once(
        ("buffer", op.offset), lambda: emitter.emit(f"getelementptr i8, {POINTER} @smem, i32 {op.offset}")
    )


@emits(gpu.LocalView)
def _view(emitter: Emitter, op: gpu.LocalView) -> Emitted:
    type_ = buffer_type(op.buffer)
    size = type_.numel * type_.element.bytes
    offset = emitter.emit(f"mul i32 {emitter.scalar(op.index)}, {size}")
    return emitter.emit(f"getelementptr i8, {POINTER} {emitter.scalar(op.buffer)}, i32 {offset}")


@emits(gpu.LocalTrans)
def _trans(emitter: Emitter, op: gpu.LocalTrans) -> Emitted:
    return emitter.values[op.buffer]


class Places:
    """The places of a tensor's vectors in a buffer. `vector` has the register bits of one vector."""

    def __init__(
        self, emitter: Emitter, buffer: str, type_: SharedType, layout: Layout, vector: Sequence[int] | None = None
    ) -> None:
        self.emitter = emitter
        self.buffer = buffer
        self.size = type_.element.bytes
        self.layout = layout
        self._inverse = inverted(type_.offsets)
        self.vector = vector_bits(layout, type_.offsets, self.size) if vector is None else vector
        bases = [combine(self._inverse, basis) * self.size for basis in emitter.thread_bases(layout)]
        self._spread = 0  # The bits of an address that depend on the thread's number.
        for basis in bases:
            self._spread |= basis
        self._thread = emitter.linear(bases)
        self._pointers: dict[int, str] = {}

    def groups(self) -> Iterator[tuple[list[int], str, int]]:
        """For each vector: its registers, a pointer, and an offset in bytes from there."""
        inside = sum(1 << bit for bit in self.vector)
        for first in unique_registers(self.layout):
            if first & inside:
                continue
            steps = [1 << bit for bit in self.vector]
            group = [first | combine(steps, index) for index in range(1 << len(steps))]
            constant = combine(self._inverse, self.layout.element(first)) * self.size
            yield group, self._pointer(constant & self._spread), constant & ~self._spread

    def _pointer(self, constant: int) -> str:
        found = self._pointers.get(constant)
        if found is None:
            emitter = self.emitter
            number = emitter.emit(f"xor i32 {self._thread}, {constant}") if constant else self._thread
            found = emitter.emit(f"getelementptr i8, {POINTER} {self.buffer}, i32 {number}")
            self._pointers[constant] = found
        return found


def _words(size: int, count: int) -> tuple[int, int]:
    """The words in which `count` elements of `size` bytes move: the bytes of one, and their number (1, 2 or 4)."""
    total = size * count
    word = 8 if size == 8 else min(4, total)
    return word, total // word


@emits(gpu.LocalLoad)
def _load(emitter: Emitter, op: gpu.LocalLoad) -> Emitted:
    type_ = buffer_type(op.buffer)
    layout = layout_of(op.type)
    view = matrix_view(layout, type_.offsets, type_.element.bytes)
    if view is not None:
        return load_matrices(emitter, emitter.scalar(op.buffer), type_, layout, view)
    places = Places(emitter, emitter.scalar(op.buffer), type_, layout)
    values: dict[int, str] = {}
    for group, pointer, offset in places.groups():
        loaded = load_shared(emitter, pointer, offset, type_.element, len(group))
        values.update(zip(group, loaded, strict=True))
    return [values[canonical(layout, register)] for register in range(layout.num_registers)]


def load_shared(emitter: Emitter, pointer: str, offset: int, scalar: ScalarType, width: int) -> list[str]:
    """Load neighbours from shared memory."""
    size = scalar.bytes
    word, count = _words(size, width)
    if offset:
        pointer = emitter.emit(f"getelementptr i8, {POINTER} {pointer}, i32 {offset}")
    words = load_words(emitter, 3, pointer, word, count, size * width)
    return [from_memory(emitter, value, scalar) for value in unpack(emitter, words, size, word)]


@emits(gpu.LocalStore)
def _store(emitter: Emitter, op: gpu.LocalStore) -> Emitted:
    type_ = buffer_type(op.buffer)
    layout = layout_of(op.value.type)
    values = emitter.tensor(op.value)
    view = matrix_view(layout, type_.offsets, type_.element.bytes)
    if view is not None and emitter.capability >= 90 and stores_matrices(layout):
        store_matrices(emitter, emitter.scalar(op.buffer), type_, view, values)
        return
    owner = emitter.owner(layout)
    for group, pointer, offset in Places(emitter, emitter.scalar(op.buffer), type_, layout).groups():
        store_shared(emitter, pointer, offset, [values[register] for register in group], type_.element, owner)


def store_shared(
    emitter: Emitter, pointer: str, offset: int, values: Sequence[str], scalar: ScalarType, mask: str | None
) -> None:
    """Store neighbours to shared memory where the mask holds."""
    size = scalar.bytes
    word, _ = _words(size, len(values))
    words = pack(emitter, [to_memory(emitter, value, scalar) for value in values], size, word)
    if mask is None:
        if offset:
            pointer = emitter.emit(f"getelementptr i8, {POINTER} {pointer}, i32 {offset}")
        store_words(emitter, 3, pointer, words, word, size * len(values))
        return
    address = emitter.emit(f"ptrtoint {POINTER} {pointer} to i32")
    store_masked(emitter, "st.shared", ("i32", address, "r"), offset, words, word, mask)


# Matrices of 8 rows of 16 bytes, moved by all lanes together.


_Instruction = tuple[list[list[int]], str, int]


def _matrices(emitter: Emitter, buffer: str, type_: SharedType, view: View) -> Iterator[_Instruction]:
    """For each instruction: the registers of each of its words, the address of the lane's row, and an offset."""
    row = bits_of(VECTOR // type_.element.bytes)
    matrices, word = [1 << bit for bit in view.matrices], [1 << bit for bit in view.word]
    for group, pointer, offset in Places(emitter, buffer, type_, view.layout, range(row)).groups():
        first = combine([1 << bit for bit in view.rest], group[0] >> row)
        words = [
            [first | combine(matrices, matrix) | combine(word, index) for index in range(1 << len(word))]
            for matrix in range(view.count)
        ]
        yield words, emitter.emit(f"ptrtoint {POINTER} {pointer} to i32"), offset


def _instruction(name: str, view: View) -> str:
    return f"{name}.sync.aligned.m8n8.x{view.count}{'.trans' if view.trans else ''}.shared.b16"


def load_matrices(emitter: Emitter, buffer: str, type_: SharedType, layout: Layout, view: View) -> list[str]:
    """Load a tensor by ldmatrix."""
    scalar, count = type_.element, view.count
    struct = "i32" if count == 1 else emitter.struct("i32", count)
    results = ", ".join(f"${number}" for number in range(count))
    constraints = ",".join([*["=r"] * count, "r", "~{memory}"])
    values: dict[int, str] = {}
    for words, address, offset in _matrices(emitter, buffer, type_, view):
        text = f"{_instruction('ldmatrix', view)} {{{results}}}, [${count} + {offset}];"
        made = emitter.asm(struct, text, constraints, ("i32", address), effect=True)
        parts = emitter.parts(struct, made, count)
        for registers, part in zip(words, parts, strict=True):
            elements = unpack(emitter, [part], scalar.bytes, 4)
            values |= {r: from_memory(emitter, e, scalar) for r, e in zip(registers, elements, strict=True)}
    return [values[canonical(layout, register)] for register in range(layout.num_registers)]


def store_matrices(emitter: Emitter, buffer: str, type_: SharedType, view: View, values: Sequence[str]) -> None:
    """Store a tensor by stmatrix."""
    scalar, count = type_.element, view.count
    sources = ", ".join(f"${number + 1}" for number in range(count))
    constraints = ",".join(["r"] * (count + 1) + ["~{memory}"])
    for words, address, offset in _matrices(emitter, buffer, type_, view):
        given: list[tuple[str, str]] = []
        for registers in words:
            (word,) = pack(emitter, [to_memory(emitter, values[r], scalar) for r in registers], scalar.bytes, 4)
            given.append(("i32", word))
        text = f"{_instruction('stmatrix', view)} [$0 + {offset}], {{{sources}}};"
        emitter.asm("void", text, constraints, ("i32", address), *given, effect=True)


# Asynchronous copies.


@emits(gpu.AsyncCopy)
def _copy(emitter: Emitter, op: gpu.AsyncCopy) -> Emitted:
    type_ = buffer_type(op.buffer)
    layout = layout_of(op.ptr.type)
    pointers = emitter.tensor(op.ptr)
    masks = emitter.tensor(op.mask) if op.mask is not None else None
    owner = emitter.owner(layout)
    size = type_.element.bytes * op.width
    # Copies of 16 bytes bypass L1, as nothing reads them again.
    cache = "cg" if size == 16 else "ca"
    places = Places(emitter, emitter.scalar(op.buffer), type_, layout, range(bits_of(op.width)))
    for group, pointer, offset in places.groups():
        first = group[0]
        address = emitter.emit(f"ptrtoint {POINTER} {pointer} to i32")
        text = f"cp.async.{cache}.shared.global [ $0 + {offset} ], [ $1 + 0 ], {size}"
        arguments = [("i32", address), ("ptr addrspace(1)", pointers[first])]
        constraints = ["r", "l"]
        if masks is not None:
            # Masked elements become zeros.
            arguments.append(("i32", emitter.emit(f"select i1 {masks[first]}, i32 {size}, i32 0")))
            constraints.append("r")
            text += ", $2"
        if owner is not None:
            text = f"@${len(arguments)} {text}"
            arguments.append(("i1", owner))
            constraints.append("b")
        emitter.asm("void", f"{text};", ",".join([*constraints, "~{memory}"]), *arguments, effect=True)


@emits(gpu.AsyncCommit)
def _commit(emitter: Emitter, op: gpu.AsyncCommit) -> Emitted:
    emitter.asm("void", "cp.async.commit_group;", "~{memory}", effect=True)


@emits(gpu.AsyncWait)
def _wait(emitter: Emitter, op: gpu.AsyncWait) -> Emitted:
    emitter.asm("void", f"cp.async.wait_group {op.pending};", "~{memory}", effect=True)


# Accesses at computed indices.


def _index(emitter: Emitter, value: str, scalar: ScalarType) -> str:
    """An integer as i32."""
    if scalar.bits > 32:
        return emitter.emit(f"trunc i{scalar.bits} {value} to i32")
    if scalar.bits < 32:
        return emitter.emit(f"{'sext' if scalar.signed else 'zext'} i{scalar.bits} {value} to i32")
    return value


def _integer(type_: object) -> ScalarType:
    assert isinstance(type_, TensorType) and isinstance(type_.element, ScalarType)
    return type_.element


def _in_order(type_: SharedType) -> None:
    good = all(basis == 1 << bit for bit, basis in enumerate(type_.offsets))
    assert good, "a buffer that is indexed by computed numbers must be in row-major order"


@emits(gpu.LocalAtomicAdd)
def _atomic_add(emitter: Emitter, op: gpu.LocalAtomicAdd) -> Emitted:
    type_ = buffer_type(op.buffer)
    _in_order(type_)
    scalar = _integer(op.index.type)
    layout = layout_of(op.index.type)
    numbers = emitter.tensor(op.index)
    masks = emitter.tensor(op.mask) if op.mask is not None else None
    owner = emitter.owner(layout)
    kind = f"i{max(32, scalar.bits)}"
    for register in unique_registers(layout):
        number = numbers[register] if scalar.bits > 32 else _index(emitter, numbers[register], scalar)
        inside = emitter.emit(f"icmp ult {kind} {number}, {type_.numel}")
        mask = both(emitter, owner, masks[register] if masks is not None else None, inside)
        assert mask is not None
        offset = number if scalar.bits <= 32 else _index(emitter, number, scalar)
        pointer = emitter.emit(f"getelementptr i32, {POINTER} {emitter.scalar(op.buffer)}, i32 {offset}")
        address = emitter.emit(f"ptrtoint {POINTER} {pointer} to i32")
        text = "@$1 red.shared.add.u32 [ $0 + 0 ], 1;"
        emitter.asm("void", text, "r,b,~{memory}", ("i32", address), ("i1", mask), effect=True)


@emits(gpu.LocalGather)
def _gather(emitter: Emitter, op: gpu.LocalGather) -> Emitted:
    type_ = buffer_type(op.buffer)
    _in_order(type_)
    assert isinstance(op.index.type, TensorType)
    layout, shape = layout_of(op.index.type), op.index.type.shape
    scalar = _integer(op.index.type)
    offset = sum(bits_of(size) for size in type_.shape[op.axis + 1 :])
    theirs, ours = bits_of(shape[op.axis]), bits_of(type_.shape[op.axis])

    def source(element: int) -> int:
        """The number of the source element without its coordinate along the axis, for an element of the index."""
        return element & ((1 << offset) - 1) | element >> (offset + theirs) << (offset + ours)

    bases = [source(basis) for basis in emitter.thread_bases(layout)]
    spread = 0
    for basis in bases:
        spread |= basis
    thread = emitter.linear(bases)
    indices = emitter.tensor(op.index)
    found: dict[int, str] = {}
    for register in unique_registers(layout):
        constant = source(layout.element(register))
        number = emitter.emit(f"xor i32 {thread}, {constant}") if constant else thread
        along = _index(emitter, indices[register], scalar)
        if offset:
            along = emitter.emit(f"shl i32 {along}, {offset}")
        number = emitter.emit(f"add i32 {number}, {along}")
        pointer = emitter.emit(
            f"getelementptr [{type_.element.bytes} x i8], {POINTER} {emitter.scalar(op.buffer)}, i32 {number}"
        )
        found[register] = load_shared(emitter, pointer, 0, type_.element, 1)[0]
    return [found[canonical(layout, register)] for register in range(layout.num_registers)]
