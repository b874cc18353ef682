"""Objects of aggregates in Triton programs: operators and subscripts call their methods, and they are no tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

P = zg.ptr(zg.i32)


@triton.aggregate
class Pair:
    x: tl.tensor
    y: tl.tensor

    @triton.jit
    def __add__(self, other):
        return Pair(self.x + other.x, self.y + other.y)

    @triton.jit
    def __mul__(self, scale):
        return Pair(self.x * scale, self.y * scale)

    @triton.jit
    def __neg__(self):
        return Pair(-self.x, -self.y)

    @triton.jit
    def __lt__(self, other):
        return self.x < other.x

    @triton.jit
    def __eq__(self, other):
        return self.x == other.x

    def __getitem__(self, i, _semantic=None):
        return 10 * self.y + i


@triton.jit
def operators(out, n):
    p = Pair(n, n + 1)
    q = p + Pair(tl.arange(0, 4), n)
    p += p * 2
    at = tl.arange(0, 4)
    tl.store(out + at, q.x)
    tl.store(out + 4, q.y)
    tl.store(out + 5, p.x)
    tl.store(out + 6, (-p).y)
    tl.store(out + 7, (Pair(n, n) < p).to(tl.int32) + 2 * (p == p).to(tl.int32))
    tl.store(out + 8, p[1])
    tl.store(out + 9, p[n])
    tl.store(out + 10, 1 if p is not None else 0)


def test_operators_and_subscripts_call_methods(launch: Any):
    out = np.zeros(16, np.int32)
    launch(operators, 1, [out, 3])
    assert out[:11].tolist() == [3, 4, 5, 6, 7, 9, -12, 3, 121, 123, 1]


@triton.jit
def unpacked(out, n):
    x, _ = Pair(n, n)
    tl.store(out, x)


@triton.jit
def counted(out, n):
    tl.store(out, len(Pair(n, n)))


@triton.jit
def iterated(out, n):
    for x in Pair(n, n):
        tl.store(out, x)


@triton.jit
def subtracted(out, n):
    tl.store(out, (Pair(n, n) - Pair(n, n)).x)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (unpacked, "an object of Pair is not a tuple"),
        (counted, "an object of Pair has no length"),
        (iterated, "'for' must run over a range or a tuple; got an object of Pair"),
        (subtracted, "'Pair' has no method '__sub__'"),
    ],
)
def test_an_object_is_no_tuple(kernel: Any, words: str):
    with pytest.raises(triton.CompilationError) as error_info:
        kernel.triton(P, zg.i32)
    assert words in str(error_info.value)


@triton.aggregate
class Scaled:
    x: tl.tensor
    scale: tl.constexpr = 4

    @triton.jit
    def value(self):
        return self.x * self.scale


@triton.aggregate
class Shifted(Scaled):
    by: tl.tensor
    times: tl.constexpr = tl.constexpr(10)

    @triton.jit
    def shifted(self):
        return self.value() + self.by * self.times


@triton.jit
def derived(out):
    at = tl.arange(0, 4)
    tl.store(out + at, Shifted(at, 3, by=at + 1).shifted() + Scaled(at).value() * 100)


def test_fields_and_defaults_of_the_class_that_another_derives_from(launch: Any):
    out = np.zeros(4, np.int32)
    launch(derived, 1, [out])
    assert out.tolist() == [10, 423, 836, 1249]
    shifted = Shifted(1, by=2)
    assert [shifted.x, shifted.scale.value, shifted.by, shifted.times.value] == [1, 4, 2, 10]
    with pytest.raises(TypeError, match="Shifted takes x, scale, by, times; got no by"):
        Shifted(1)


@triton.jit
def incomplete(out):
    tl.store(out, Shifted(1).value())


def test_a_field_without_a_value_is_missing():
    with pytest.raises(triton.CompilationError, match="'Shifted' takes x, scale, by, times; got 1 arguments"):
        incomplete.triton(P)


def test_a_copy_with_other_fields():
    from ziggurat.triton.language.core import aggregate_replace

    copy = aggregate_replace(Shifted(1, by=2), by=3)
    assert type(copy) is Shifted and [copy.x, copy.scale.value, copy.by, copy.times.value] == [1, 4, 3, 10]
    with pytest.raises(TypeError, match="Shifted has no field 'absent'"):
        aggregate_replace(copy, absent=3)
    with pytest.raises(TypeError, match="expects an aggregate instance"):
        aggregate_replace(3)
