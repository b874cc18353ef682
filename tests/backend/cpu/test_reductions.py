"""The lanes in which neighbours are combined."""

from __future__ import annotations

import pytest

from ziggurat.backend.cpu.reductions import pairing


@pytest.mark.parametrize("block", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_each_step_combines_neighbours(lanes: int, block: int):
    """Sixteen vectors become one by steps of pairs, and that one becomes an element, each of neighbours in order."""
    order = tuple(range(lanes))
    vectors = [[[at * lanes + lane] for lane in range(lanes)] for at in range(16)]
    while len(vectors) > 1:
        both = (*order, *(lanes + number for number in order))
        first, second, order = pairing(both, block)
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [[(a + b)[x] + (a + b)[y] for x, y in zip(first, second, strict=True)] for a, b in pairs]
    (rest,) = vectors
    while len(rest) > 1:
        first, second, order = pairing(order, block)
        rest = [rest[x] + rest[y] for x, y in zip(first, second, strict=True)]
    assert rest[0] == list(range(16 * lanes))


def test_results_stay_in_their_blocks():
    first, second, order = pairing(tuple(range(16)), 4)
    assert first == (0, 2, 8, 10, 4, 6, 12, 14)
    assert second == (1, 3, 9, 11, 5, 7, 13, 15)
    assert order == (0, 1, 4, 5, 2, 3, 6, 7)
