"""Elements as words of memory and of registers: their bits, packed and unpacked, loaded and stored."""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.ptx.emitter import EFFECT, Argument, PtxEmitter
from ziggurat.codemodel.types import PtrType, ScalarType, i1

Element = ScalarType | PtrType

GLOBAL = "ptr addrspace(1)"
SHARED = "ptr addrspace(3)"


def word_bytes(size: int, count: int) -> int:
    """The size of the words in which `count` elements of `size` bytes are accessed: a power of two of bytes in all."""
    return 8 if size == 8 else min(4, size * count)


def to_memory(emitter: PtxEmitter, value: str, scalar: Element) -> str:
    """The bits that memory holds for a value; an i1 is a byte."""
    if scalar == i1:
        return emitter.emit(f"zext i1 {value} to i8")
    return emitter.bits(value, scalar)


def from_memory(emitter: PtxEmitter, value: str, scalar: Element) -> str:
    """The inverse of `to_memory`."""
    if scalar == i1:
        return emitter.emit(f"icmp ne i8 {value}, 0")
    return emitter.number(value, scalar)


def word_of(emitter: PtxEmitter, values: Sequence[str]) -> str | None:
    """The word of 32 bits whose pieces, in order, are the values; None where there is none."""
    word, _ = emitter.pieces.get(values[0], ("", 0))
    pieces = [emitter.pieces.get(value) for value in values]
    return word if len(values) > 1 and pieces == [(word, index) for index in range(len(values))] else None


def pack(emitter: PtxEmitter, values: Sequence[str], size: int, word: int) -> list[str]:
    """Bits of elements of `size` bytes as words of `word` bytes."""
    assert word >= size, "a word holds at least an element"
    if word == size:
        return list(values)
    per, kind = word // size, f"i{8 * word}"
    packed: list[str] = []
    for start in range(0, len(values), per):
        parts = values[start : start + per]
        whole = word_of(emitter, parts) if word == 4 and len(parts) == per else None
        if whole is not None:
            packed.append(whole)
            continue
        if size == 1 and word == 4 and all(value in emitter.pieces for value in parts):
            packed.append(_of_bytes(emitter, [emitter.pieces[value] for value in parts]))
            continue
        result = ""
        for index, value in enumerate(parts):
            part = emitter.emit(f"zext i{8 * size} {value} to {kind}")
            if index:
                part = emitter.emit(f"shl {kind} {part}, {8 * size * index}")
                part = emitter.emit(f"or disjoint {kind} {result}, {part}")
            result = part
        packed.append(result)
    return packed


def unpack(emitter: PtxEmitter, words: Sequence[str], size: int, word: int) -> list[str]:
    """The inverse of `pack`."""
    if word == size:
        return list(words)
    values: list[str] = []
    for item in words:
        for index in range(word // size):
            part = emitter.emit(f"lshr i{8 * word} {item}, {8 * size * index}") if index else item
            values.append(emitter.emit(f"trunc i{8 * word} {part} to i{8 * size}"))
            if word == 4:
                emitter.pieces[values[-1]] = item, index
    return values


def _of_bytes(emitter: PtxEmitter, parts: Sequence[tuple[str, int]]) -> str:
    """Four bytes of words as a word, by `prmt`. A tile of four words turned into the four of its columns takes eight:
    both columns of a half share the first step."""
    items, at = zip(*parts, strict=True)
    first, second, last = at[0] | at[1] + 4 << 4, at[2] | at[3] + 4 << 4, 0x5410
    if len(set(at)) == 1:
        half, odd = divmod(at[0], 2)
        first = second = 0x7362 if half else 0x5140
        last = 0x7632 if odd else 0x5410
    low, high = permuted(emitter, items[0], items[1], first), permuted(emitter, items[2], items[3], second)
    return permuted(emitter, low, high, last)


def permuted(emitter: PtxEmitter, low: str, high: str, selected: int | str) -> str:
    """The bytes of two words that the hexadecimal digits of a number, or of a value, name, the lowest first."""
    arguments = ("i32", low), ("i32", high), ("i32", str(selected))
    return emitter.call("i32", "llvm.nvvm.prmt", *arguments)


def to_words(emitter: PtxEmitter, values: Sequence[str], scalar: Element, word: int) -> list[str]:
    """Elements as words of `word` bytes."""
    return pack(emitter, [to_memory(emitter, value, scalar) for value in values], scalar.bytes, word)


def from_words(emitter: PtxEmitter, words: Sequence[str], scalar: Element, word: int) -> list[str]:
    """The inverse of `to_words`."""
    return [from_memory(emitter, value, scalar) for value in unpack(emitter, words, scalar.bytes, word)]


def in_registers(emitter: PtxEmitter, words: Sequence[str], word: int) -> list[Argument]:
    """Words as arguments of assembly, where 8-bit words use registers of 16 bits."""
    if word == 1:
        return [("i16", emitter.emit(f"zext i8 {item} to i16")) for item in words]
    return [(f"i{8 * word}", item) for item in words]


def group(first: int, count: int) -> str:
    """`count` operands of assembly from `$first` on, in braces."""
    return "{" + ", ".join(f"${first + index}" for index in range(count)) + "}"


def vector(first: int, count: int) -> tuple[str, str]:
    """The suffix of a vector instruction and its operands from `$first` on; a vector of one is a scalar."""
    return ("", f"${first}") if count == 1 else (f".v{count}", group(first, count))


def load_elements(emitter: PtxEmitter, pointer: Argument, scalar: ScalarType, count: int) -> list[str]:
    """Load neighbours by an instruction of LLVM."""
    word = word_bytes(scalar.bytes, count)
    number = scalar.bytes * count // word
    kind = f"i{8 * word}" if number == 1 else f"<{number} x i{8 * word}>"
    words = [emitter.emit(f"load {kind}, {' '.join(pointer)}, align {scalar.bytes * count}")]
    if number > 1:
        words = [emitter.emit(f"extractelement {kind} {words[0]}, i32 {index}") for index in range(number)]
    return from_words(emitter, words, scalar, word)


def store_elements(
    emitter: PtxEmitter, pointer: Argument, values: Sequence[str], scalar: ScalarType, mask: str | None = None,
    offset: int = 0, modifiers: str = "",
) -> None:  # fmt: skip
    """Store neighbours `offset` bytes from a pointer where the mask holds: by assembly for a mask or modifiers."""
    word = word_bytes(scalar.bytes, len(values))
    words = to_words(emitter, values, scalar, word)
    space, address = pointer
    if mask is None and not modifiers:
        if offset:
            address = emitter.emit(f"getelementptr i8, {space} {address}, i32 {offset}")
        kind, value = f"i{8 * word}", words[0]
        if len(words) > 1:
            kind, value = f"<{len(words)} x i{8 * word}>", "poison"
            for index, item in enumerate(words):
                value = emitter.emit(f"insertelement {kind} {value}, i{8 * word} {item}, i32 {index}")
        emitter.line(f"store {kind} {value}, {space} {address}, align {scalar.bytes * len(values)}")
        return
    name = "st.global"
    if space == SHARED:
        name, pointer = "st.shared", ("i32", emitter.emit(f"ptrtoint {SHARED} {address} to i32"))
    suffix, source = vector(1, len(words))
    text = f"@mask {name}{modifiers}{suffix}.b{8 * word} [ $0 + {offset} ], {source};"
    emitter.asm((), text, pointer, *in_registers(emitter, words, word), effect=EFFECT, mask=mask)
