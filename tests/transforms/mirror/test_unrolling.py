"""An unrolled loop is mirrored once for each iteration; no value of one iteration is used in the next."""

from __future__ import annotations

import numpy as np

import ziggurat as zg


@zg.kernel
def constants_and_values(out, n):
    factors = (2, n, 5)
    total = 0
    for i in zg.static_range(3):
        total += factors[i] * n
    zg.store(out, total)


def test_an_item_is_a_constant_after_it_was_a_value():
    out = np.zeros(1, np.int32)
    constants_and_values[1](out, 3)
    assert out[0] == 2 * 3 + 3 * 3 + 5 * 3
