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
from ziggurat.codemodel.types import f16

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


def as_halves(emitter: PtxEmitter, values: Sequence[str], *, signed: bool) -> list[str]:
    """Bytes as f16, two at a time. A half with the bits 0x6400 + x is 1024 + x, for x below 1024."""
    results: list[str] = []
    bias = "half 0xH6480" if signed else "half 0xH6400"
    for at in range(0, len(values) - 1, 2):
        pair = _above_1024(emitter, values[at : at + 2], _HIGH if signed else 0).to("bitcast", "<2 x half>")
        results += halves(emitter, emitter.emit(f"fsub <2 x half> {pair.name}, <{bias}, {bias}>"), f16)
    name = "sitofp" if signed else "uitofp"
    return results + [emitter.emit(f"{name} i8 {value} to half") for value in values[len(results) :]]


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


def _above_1024(emitter: PtxEmitter, pair: Sequence[str], flipped: int) -> Number:
    """A word with the halves 0x6400 + x of two bytes x, of which the bits of `flipped` are flipped."""
    (first, low), (second, high) = (emitter.pieces.get(value, ("", 0)) for value in pair)
    if not first or not second:
        word, upper = (emitter.of("i8", value).to("zext", "i32") for value in pair)
        return (word | (upper << 16)) ^ (0x64006400 | flipped & 0x00FF00FF)
    words = [emitter.of("i32", word) ^ flipped if flipped else emitter.of("i32", word) for word in (first, second)]
    word = words[0].name
    if first != second:
        word, low, high = permuted(emitter, word, words[1].name, low | 4 + high << 8), 0, 2
    return emitter.of("i32", permuted(emitter, word, str(0x64646464), low | 4 << 4 | high << 8 | 4 << 12))
