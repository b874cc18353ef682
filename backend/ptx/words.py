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
