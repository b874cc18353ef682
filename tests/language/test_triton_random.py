"""Philox as Triton programs call it, against its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat.triton.language as tl
from ziggurat import triton

CONSTANTS = {
    32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}


def rounds(counter: list[int], key: list[int], bits: int, count: int) -> list[int]:
    a, b, step0, step1 = CONSTANTS[bits]
    mask = (1 << bits) - 1
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(count):
        c0, c1, c2, c3 = (b * c2 >> bits) ^ c1 ^ k0, b * c2 & mask, (a * c0 >> bits) ^ c3 ^ k1, a * c0 & mask
        k0, k1 = k0 + step0 & mask, k1 + step1 & mask
    return [c0, c1, c2, c3]


@triton.jit
def kernel(out, k0, k1, ROUNDS: tl.constexpr):
    at = tl.arange(0, 4)
    c = at.to(out.dtype.element_ty)
    zero = tl.zeros((1,), out.dtype.element_ty)
    w0, w1, w2, w3 = tl.philox_impl(c, zero, c + 7, zero, k0.to(c.dtype), k1.to(c.dtype), n_rounds=ROUNDS)
    tl.store(out + at, w0)
    tl.store(out + 4 + at, w1)
    tl.store(out + 8 + at, w2)
    tl.store(out + 12 + at, w3)


@pytest.mark.parametrize(("bits", "count"), [(32, 10), (32, 3), (64, 10)])
def test_rounds_of_given_words_and_keys(launch: Any, bits: int, count: int):
    out = np.zeros(16, f"uint{bits}")
    launch(kernel, 1, [out, 123, 2**31 - 5], ROUNDS=count)
    expected = [rounds([i, 0, i + 7, 0], [123, 2**31 - 5], bits, count) for i in range(4)]
    assert out.reshape(4, 4).T.tolist() == expected


def test_the_default_number_of_rounds():
    assert tl.random.N_ROUNDS_DEFAULT.value == 10


def test_words_are_unsigned():
    @triton.jit
    def signed(out):
        tl.store(out, tl.random.philox_impl(1, 2, 3, 4, 5, 6, tl.random.N_ROUNDS_DEFAULT)[0])

    with pytest.raises(triton.CompilationError, match="dtype not supported in philox_impl"):
        signed[(1,)](np.zeros(1, np.uint32))
