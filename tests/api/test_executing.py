"""The Python model means what its source means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ziggurat as zg


@zg.function
def gcd(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@zg.function
def steps(n, limit=10):
    total = 0
    for i in range(0, n, 3):
        if i % 2 == 0 and not i > limit:
            total += i
        elif i < 0 or i == 9:
            total -= 1
        else:
            total = total * 2 if total < 100 else total // 3
    if total > 1000:
        return gcd(total, 36)
    return total, -total


@zg.function
def tiles(n, size):
    return zg.cdiv(n, size) + zg.next_power_of_2(size) + zg.minimum(n, size)


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_loops_and_branches(a, b):
    assert zg.execute(gcd, a, b) == gcd(a, b)


@given(st.integers(0, 60), st.integers(-5, 40))
def test_calls_tuples_and_early_returns(n, limit):
    assert zg.execute(steps, n, limit) == steps(n, limit)


def test_calls_of_the_language_on_numbers():
    assert zg.execute(tiles, 100, 7) == tiles(100, 7) == 15 + 8 + 7


def test_a_model_runs_as_its_function():
    assert zg.execute(gcd.model, 12, 18) == 6
    assert zg.execute(zg.parse(str(gcd.model)), 12, 18) == 6


def test_what_python_raises():
    with pytest.raises(zg.KernelRuntimeError, match="ZeroDivisionError") as error:
        zg.execute(zg.function(_divide), 1, 0)
    assert "return a // b" in str(error.value)


def _divide(a, b):
    return a // b
