"""Floats of 16 bits in pairs: the halves of a word of 32 bits, with which one instruction computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.ptx.emitter import Emitter
from ziggurat.backend.ptx.words import word_of
from ziggurat.codemodel.types import ScalarType, bf16, f16

# A function from an LLVM type, of one number or of a vector of two, and values of it to a value of it.
Make = Callable[..., str]


def has_pairs(emitter: Emitter, scalar: ScalarType) -> bool:
    """Whether the target computes with two floats of a type at once."""
    return scalar == f16 or (scalar == bf16 and emitter.target.has_bf16_arithmetic)


def applied(emitter: Emitter, columns: Sequence[Sequence[str]], scalar: ScalarType, make: Make) -> list[str]:
    """`make` of each row of the columns: of two rows at once where a column has the halves of a word."""
    rows, made, paired = [*zip(*columns, strict=True)], list[str](), has_pairs(emitter, scalar)
    while len(made) < len(rows):
        twice = [*zip(*rows[len(made) : len(made) + 2], strict=True)]
        if paired and any(word_of(emitter, values) for values in twice):
            vector = f"<2 x {scalar.llvm}>"
            made += halves(emitter, make(vector, *(_joined(emitter, values, vector) for values in twice)), scalar)
        else:
            made.append(make(scalar.llvm, *rows[len(made)]))
    return made


def _joined(emitter: Emitter, values: Sequence[str], vector: str) -> str:
    """A vector of two floats."""
    word = word_of(emitter, values)
    if word is not None:
        return emitter.emit(f"bitcast i32 {word} to {vector}")
    made = "poison"
    for index, value in enumerate(values):
        made = emitter.emit(f"insertelement {vector} {made}, {vector[5:-1]} {value}, i32 {index}")
    return made


def halves(emitter: Emitter, pair: str, scalar: ScalarType) -> list[str]:
    """The two floats of a vector."""
    vector = f"<2 x {scalar.llvm}>"
    word = emitter.emit(f"bitcast {vector} {pair} to i32")
    made = [emitter.emit(f"extractelement {vector} {pair}, i32 {index}") for index in range(2)]
    emitter.pieces.update((value, (word, index)) for index, value in enumerate(made))
    return made
