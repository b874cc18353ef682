"""Lanes of vectors in another order."""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.llvm.routines import Number


def shuffled(vector: Number, lanes: Sequence[int], other: Number | None = None) -> Number:
    """The lanes of a vector with these numbers; from the number of its lanes on, those of another vector."""
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    second = f"{vector.type} poison" if other is None else other.typed
    return vector.made(
        vector.kind, f"shufflevector {vector.typed}, {second}, <{len(lanes)} x i32> <{mask}>", len(lanes)
    )


def transposed(rows: Sequence[Number]) -> list[Number]:
    """The columns of a square of vectors: in each step, blocks on either side of the diagonal are exchanged."""
    count, vectors = len(rows), list(rows)
    distance = 1
    while distance < count:
        firsts = [lane + count - distance if lane & distance else lane for lane in range(count)]
        seconds = [lane + count if lane & distance else lane + distance for lane in range(count)]
        for at in range(count):
            if not at & distance:
                x, y = vectors[at], vectors[at + distance]
                vectors[at], vectors[at + distance] = shuffled(x, firsts, y), shuffled(x, seconds, y)
        distance *= 2
    return vectors
