"""Elements as words of memory and of registers: their bits, packed and unpacked."""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import Emitter
from ziggurat.codemodel.types import ScalarType, i1


def words_of(bytes_: int) -> tuple[int, int]:
    """The words of an access of 1 to 16 bytes: the size of one in bytes, and their number."""
    if bytes_ >= 16:
        return 4, bytes_ // 4
    return (bytes_, 1) if bytes_ in (1, 2, 4) else (4, 2) if bytes_ == 8 else (1, bytes_)


def to_memory(emitter: Emitter, value: str, scalar: ScalarType) -> str:
    """The bits that memory holds for a value; an i1 is a byte."""
    if scalar == i1:
        return emitter.emit(f"zext i1 {value} to i8")
    return emitter.bits(value, scalar)


def from_memory(emitter: Emitter, value: str, scalar: ScalarType) -> str:
    """The inverse of `to_memory`."""
    if scalar == i1:
        return emitter.emit(f"icmp ne i8 {value}, 0")
    return emitter.number(value, scalar)


def pack(emitter: Emitter, values: list[str], size: int, word: int) -> list[str]:
    """Bits of elements of `size` bytes as words of `word` bytes."""
    if word == size:
        return values
    if word < size:
        raise AssertionError("a word holds at least an element")
    per = word // size
    packed: list[str] = []
    for start in range(0, len(values), per):
        result = emitter.emit(f"zext i{8 * size} {values[start]} to i{8 * word}")
        for index in range(1, per):
            part = emitter.emit(f"zext i{8 * size} {values[start + index]} to i{8 * word}")
            part = emitter.emit(f"shl i{8 * word} {part}, {8 * size * index}")
            result = emitter.emit(f"or disjoint i{8 * word} {result}, {part}")
        packed.append(result)
    return packed


def unpack(emitter: Emitter, words: list[str], size: int, word: int) -> list[str]:
    """The inverse of `pack`."""
    if word == size:
        return words
    values: list[str] = []
    for item in words:
        for index in range(word // size):
            part = emitter.emit(f"lshr i{8 * word} {item}, {8 * size * index}") if index else item
            values.append(emitter.emit(f"trunc i{8 * word} {part} to i{8 * size}"))
    return values


def load_words(emitter: Emitter, space: int, pointer: str, word: int, count: int, align: int) -> list[str]:
    """Load words by an instruction of LLVM."""
    kind = f"i{8 * word}" if count == 1 else f"<{count} x i{8 * word}>"
    loaded = emitter.emit(f"load {kind}, ptr addrspace({space}) {pointer}, align {align}")
    return [loaded] if count == 1 else [emitter.emit(f"extractelement {kind} {loaded}, i32 {i}") for i in range(count)]


def store_words(emitter: Emitter, space: int, pointer: str, words: list[str], word: int, align: int) -> None:
    """Store words by an instruction of LLVM."""
    kind, stored = f"i{8 * word}", words[0]
    if len(words) > 1:
        kind, stored = f"<{len(words)} x i{8 * word}>", "poison"
        for index, item in enumerate(words):
            stored = emitter.emit(f"insertelement {kind} {stored}, i{8 * word} {item}, i32 {index}")
    emitter.line(f"store {kind} {stored}, ptr addrspace({space}) {pointer}, align {align}")


# The constraint of a register that holds a word; 8-bit words use registers of 16 bits.
REGISTERS = {1: "h", 2: "h", 4: "r", 8: "l"}


def in_registers(emitter: Emitter, words: list[str], word: int) -> tuple[str, list[str]]:
    """Words as operands of assembly, and their type."""
    if word == 1:
        return "i16", [emitter.emit(f"zext i8 {item} to i16") for item in words]
    return f"i{8 * word}", words


def store_masked(
    emitter: Emitter, instruction: str, address: tuple[str, str, str], offset: int, words: list[str], word: int,
    mask: str | None,
) -> None:  # fmt: skip
    """Store words by assembly where the mask holds. `address` is its type, its value and its constraint."""
    kind, words = in_registers(emitter, words, word)
    count = len(words)
    inputs = ", ".join(f"${index + 1}" for index in range(count))
    source, vector = (inputs, "") if count == 1 else (f"{{{inputs}}}", f".v{count}")
    guard = f"@${count + 1} " if mask is not None else ""
    text = f"{guard}{instruction}{vector}.b{8 * word} [ $0 + {offset} ], {source};"
    constraints = [address[2], *[REGISTERS[word]] * count, *(["b"] if mask is not None else []), "~{memory}"]
    arguments = [address[:2], *((kind, item) for item in words)]
    if mask is not None:
        arguments.append(("i1", mask))
    emitter.asm("void", text, ",".join(constraints), *arguments, effect=True)
