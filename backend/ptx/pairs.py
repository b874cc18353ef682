"""Floats of 16 bits in pairs: the halves of a word of 32 bits, with which one instruction computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.llvm.routines import Number
from ziggurat.backend.ptx.emitter import PtxEmitter
from ziggurat.backend.ptx.packed_words import word_of
from ziggurat.codemodel.types import ScalarType, bf16, f16


def has_pairs(emitter: PtxEmitter, scalar: ScalarType) -> bool:
    """Whether the target computes with two floats of a type at once."""
    return scalar == f16 or (scalar == bf16 and emitter.target.has_bf16_arithmetic)


def applied(
    emitter: PtxEmitter, columns: Sequence[Sequence[str]], scalar: ScalarType, make: Callable[..., Number]
) -> list[str]:
    """`make` of each row of the columns: of two rows at once, as vectors, where a column has the halves of a word."""
    rows, results, paired = [*zip(*columns, strict=True)], list[str](), has_pairs(emitter, scalar)
    while len(results) < len(rows):
        twice = [*zip(*rows[len(results) : len(results) + 2], strict=True)]
        if paired and any(word_of(emitter, values) for values in twice):
            pair = make(*(emitter.of(scalar.llvm, _joined(emitter, values, scalar), 2) for values in twice))
            results += halves(emitter, pair.name, scalar)
        else:
            results.append(make(*(emitter.of(scalar.llvm, value) for value in rows[len(results)])).name)
    return results


def chosen(
    emitter: PtxEmitter, conditions: Sequence[str], columns: Sequence[Sequence[str]], scalar: ScalarType
) -> list[str]:
    """Of two columns, the first value of each row where its condition holds, else the second: of two rows at once, as
    vectors, where they have one condition and a column has the halves of a word."""
    rows, results = [*zip(*columns, strict=True)], list[str]()
    while (at := len(results)) < len(rows):
        condition = emitter.of("i1", conditions[at])
        (first, *_), (second, *_) = twice = [*zip(*rows[at : at + 2], strict=True)]
        if conditions[at : at + 2] == [condition.name] * 2 and any(word_of(emitter, values) for values in twice):
            then, otherwise = (emitter.of(scalar.llvm, _joined(emitter, values, scalar), 2) for values in twice)
            results += halves(emitter, condition.select(then, otherwise).name, scalar)
        else:
            then, otherwise = emitter.of(scalar.llvm, first), emitter.of(scalar.llvm, second)
            results.append(condition.select(then, otherwise).name)
    return results


def _joined(emitter: PtxEmitter, values: Sequence[str], scalar: ScalarType) -> str:
    """A vector of two floats."""
    word, vector = word_of(emitter, values), f"<2 x {scalar.llvm}>"
    if word is not None:
        return emitter.emit(f"bitcast i32 {word} to {vector}")
    vector_value = "poison"
    for index, value in enumerate(values):
        vector_value = emitter.emit(f"insertelement {vector} {vector_value}, {scalar.llvm} {value}, i32 {index}")
    return vector_value


def halves(emitter: PtxEmitter, pair: str, scalar: ScalarType) -> list[str]:
    """The two floats of a vector."""
    vector = f"<2 x {scalar.llvm}>"
    word = emitter.emit(f"bitcast {vector} {pair} to i32")
    elements = [emitter.emit(f"extractelement {vector} {pair}, i32 {index}") for index in range(2)]
    emitter.pieces.update((value, (word, index)) for index, value in enumerate(elements))
    return elements
