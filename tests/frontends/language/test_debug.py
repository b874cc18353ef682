"""Checking and printing."""

from __future__ import annotations

import pytest

CASES = {
    "zg.static_assert(True)": 'constant<object, "None">',
    "zg.static_assert(t.shape == (16,), 'sixteen')": 'constant<object, "None">',
    "zg.static_assert(False, 'never')": "error: static assertion failed: never",
    "zg.static_assert(n > 0)": "error: must be known",
    "zg.static_assert((True, 'text'))": "error: must be True or False",
    "zg.static_print('shape', t.shape, n)": 'constant<object, "None">',
    "zg.device_print('t =', t, n, 1.5, p)": 'constant<object, "None">',
    "zg.device_print('t =', t, hex=True)": 'constant<object, "None">',
    "zg.device_print(t)": "error: 'prefix' must be known",
    "zg.device_print('x', 'y')": "error: prints numbers and pointers",
    "zg.device_assert(b, 'in range')": 'constant<object, "None">',
    "zg.device_assert(n)": 'constant<object, "None">',
    "zg.device_assert(x)": 'constant<object, "None">',
    "zg.device_assert(b, 3)": "error: 'msg' must be a string",
    "zg.debug_barrier()": 'constant<object, "None">',
    "zg.debug_barrier(1)": "error: at most 0 positional",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])


def test_what_is_printed_while_compiling(type_of, capsys):
    type_of("zg.static_print('shape', t.shape, n)")
    assert capsys.readouterr().out == "shape (16,) i32\n"
