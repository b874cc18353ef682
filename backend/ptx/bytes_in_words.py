"""8-bit integers in fours: the bytes of a word of 32 bits, with which one instruction computes, or a few.

Values that are loaded together, as packed weights are, are the pieces of a word, and so is what is computed from them:
no byte is taken from its word before a conversion takes two at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ziggurat.backend.llvm.routines import Number
from ziggurat.backend.ptx.emitter import PtxEmitter
from ziggurat.backend.ptx.packed_words import permuted, unpack, word_of
from ziggurat.backend.ptx.pairs import halves
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, f16

_ONES, _HIGH, _LOW = 0x01010101, 0x80808080, 0x7F7F7F7F


def _sum(a: Number, b: Number) -> Number:
    return (a & _LOW) + (b & _LOW) ^ (a ^ b) & _HIGH


def _difference(a: Number, b: Number) -> Number:
    return (a | _HIGH) - (b & _LOW) ^ (a ^ b ^ _HIGH) & _HIGH


_IN_FOURS: Final[dict[type[Op], Callable[[Number, Number], Number]]] = {
    arith.AndI: lambda a, b: a & b,
    arith.OrI: lambda a, b: a | b,
    arith.XOrI: lambda a, b: a ^ b,
    arith.AddI: _sum,
    arith.SubI: _difference,
}


def in_fours(
    emitter: PtxEmitter, op: Op, columns: Sequence[Sequence[str]], make: Callable[..., Iterable[str]]
) -> list[str]:
    """The results of an op on columns of bytes: of four rows at once, where they are the bytes of words; else `make`
    of the columns of four rows."""
    results: list[str] = []
    for at in range(0, len(columns[0]), 4):
        four = [column[at : at + 4] for column in columns]
        word = _word(emitter, op, four)
        results += make(*four) if word is None else unpack(emitter, [word.name], 1, 4)
    return results


def _word(emitter: PtxEmitter, op: Op, columns: Sequence[Sequence[str]]) -> Number | None:
    """The word of the results, if the op computes with bytes, one column is a word, and the other one, too, or equal
    constants."""
    words = [word_of(emitter, column) for column in columns]
    constants = [_constant(column) for column in columns]
    if len(columns[0]) != 4 or not any(words) or (None, None) in zip(words, constants, strict=True):
        return None
    a, b = (
        emitter.of("i32", word or str((number or 0) * _ONES)) for word, number in zip(words, constants, strict=True)
    )
    if isinstance(op, arith.ShrUI):
        by = constants[1]
        return None if by is None or by > 7 else a >> by & (0xFF >> by) * _ONES
    return _IN_FOURS[type(op)](a, b) if type(op) in _IN_FOURS else None


def _constant(column: Sequence[str]) -> int | None:
    """The bits of a constant byte that all values of a column are."""
    return int(column[0]) & 0xFF if len({*column}) == 1 and column[0].lstrip("-").isdecimal() else None


def as_halves(emitter: PtxEmitter, values: Sequence[str], target: ScalarType, *, signed: bool) -> list[str]:
    """Bytes as f16 or bf16, two at a time.

    An f16 with the bits 0x6400 + x is 1024 + x, for x below 1024. A bf16 with the bits 0x4300 + x is 128 + x, for x
    below 128, and 256 for x of 128: the highest bit of a byte is a number of its own.
    """
    results: list[str] = []
    kind = f"<2 x {target.llvm}>"
    for at in range(0, len(values) - 1, 2):
        pair = values[at : at + 2]
        if target == f16:
            word = _joined(emitter, pair, 0x64, _HIGH if signed else 0).to("bitcast", kind)
            total = emitter.emit(f"fsub {kind} {word.name}, {_both('0xH6480' if signed else '0xH6400', target)}")
        else:
            word = _joined(emitter, pair, 0x43)
            rest, highest = ((word & bits).to("bitcast", kind).name for bits in (0xFF7FFF7F, 0xFF80FF80))
            if signed:
                total = emitter.emit(f"fsub {kind} {rest}, {highest}")
            else:
                highest = emitter.emit(f"fsub {kind} {highest}, {_both('0xR4380', target)}")
                total = emitter.emit(f"fadd {kind} {rest}, {highest}")
        results += halves(emitter, total, target)
    name = "sitofp" if signed else "uitofp"
    return results + [emitter.emit(f"{name} i8 {value} to {target.llvm}") for value in values[len(results) :]]


def _both(number: str, scalar: ScalarType) -> str:
    """A vector of twice a constant."""
    return f"<{scalar.llvm} {number}, {scalar.llvm} {number}>"


def upper_halves(emitter: PtxEmitter, values: Sequence[str]) -> list[str]:
    """Pieces of words as the upper bytes of halves, two at a time."""
    results: list[str] = []
    for at in range(0, len(values), 2):
        (first, low), (second, high) = (emitter.pieces[value] for value in values[at : at + 2])
        if first != second:
            first, low, high = permuted(emitter, first, second, low | 4 + high << 8), 0, 2
        word = permuted(emitter, first, "0", 4 | low << 4 | 4 << 8 | high << 12)
        results += halves(emitter, emitter.emit(f"bitcast i32 {word} to <2 x half>"), f16)
    return results


def _joined(emitter: PtxEmitter, pair: Sequence[str], upper: int, flipped: int = 0) -> Number:
    """A word whose halves have a byte each of two, of which the bits of `flipped` are flipped, and `upper` above it."""
    (first, low), (second, high) = (emitter.pieces.get(value, ("", 0)) for value in pair)
    if not first or not second:
        word, above = (emitter.of("i8", value).to("zext", "i32") for value in pair)
        return (word | (above << 16)) ^ (upper * 0x01000100 | flipped & 0x00FF00FF)
    words = [emitter.of("i32", word) ^ flipped if flipped else emitter.of("i32", word) for word in (first, second)]
    word = words[0].name
    if first != second:
        word, low, high = permuted(emitter, word, words[1].name, low | 4 + high << 8), 0, 2
    return emitter.of("i32", permuted(emitter, word, str(upper * _ONES), low | 4 << 4 | high << 8 | 4 << 12))
