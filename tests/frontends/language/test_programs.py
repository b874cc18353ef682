"""A program's place in the grid."""

from __future__ import annotations

import pytest

CASES = {
    "zg.program_id(0)": "i32",
    "zg.program_id(1)": "i32",
    "zg.program_id(2)": "i32",
    "zg.program_id(3)": "error: must be 0, 1 or 2",
    "zg.program_id(-1)": "error: must be 0, 1 or 2",
    "zg.num_programs(0)": "i32",
    "zg.num_programs(1)": "i32",
    "zg.num_programs(2)": "i32",
    "zg.num_programs(3)": "error: must be 0, 1 or 2",
    "zg.num_programs(-1)": "error: must be 0, 1 or 2",
    "zg.program_id(n)": "error: must be known at compile time",
    "zg.program_id('0')": "error: 'axis' must be an integer",
    "zg.smid()": "i32",
    "zg.globaltimer()": "i64",
    "zg.gdc_wait()": 'constant<object, "None">',
    "zg.gdc_launch_dependents()": 'constant<object, "None">',
    "zg.smid(0)": "error: takes at most 0",
    "zg.num_programs()": "error: needs its argument 'axis'",
}


@pytest.mark.parametrize("expression", CASES)
def test_calls(expression: str, check):
    check(expression, CASES[expression])
