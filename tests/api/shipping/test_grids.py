"""Functions of grids in C give what they give in Python."""

from __future__ import annotations

import random
import subprocess

import numpy as np
import pytest
from shipped import compiled_c, needs_gcc

import ziggurat as zg
import ziggurat.triton as triton
from ziggurat.codemodel.errors import BuildError
from ziggurat.shipping.grids import attempted, c_name, grid_in_c
from ziggurat.shipping.header import COMMON

FACTOR = 3


def halves(a, b):
    rounded = a - a % b
    return rounded // 2


def by_statements(meta):
    tiles = zg.cdiv(meta["n"], meta["B"])
    before = tiles
    if tiles > 5 and meta["first"] != 2:
        tiles = min(tiles, FACTOR, 7)
    else:
        return (tiles, before)
    return max(1, tiles), before % 4 + 1, halves(meta["n"], 2) + 1


def functions(size, x):
    return [
        lambda meta: (zg.cdiv(meta["n"], meta["B"]),), lambda META: triton.cdiv(META["n"], META["B"]) * META["first"],
        lambda meta: (triton.cdiv(size, meta["B"]) if meta["n"] % 3 else -(-size // 7), x.shape[1], x.size),
        lambda meta: [1 << (meta["n"] & 3), 1 if meta["n"] < size or size > 90 else 2, ~(-meta["first"]) + 1],
        by_statements,
    ]  # fmt: skip


def read(number):
    grid = grid_in_c(functions(100, np.zeros((2, 5)))[number], {"n": 1, "B": 32, "first": 1}, lambda n: n != "B")
    return grid


@needs_gcc
def test_grids_in_c_are_those_of_python(tmp_path):
    rng, x = random.Random(0), np.zeros((2, 5))
    names = {"n": "n", "first": "first_"}
    source = ["#include <stdbool.h>", "#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>", COMMON]
    calls, expected = [], []
    for number in range(len(functions(1, x))):
        grid = read(number)
        parameters = [names.get(name, name) for name in (*grid.takes, *grid.captures)]
        body = "\n".join(grid.body)
        parameters_text = ", ".join(["uint32_t *grid", *(f"int64_t {name}" for name in parameters)])
        source.append(f"static void grid{number}({parameters_text}) {{\n{body}\n}}")
        for _ in range(40):
            n, first, size = rng.randint(1, 300), rng.randint(1, 4), rng.randint(1, 200)
            values = {"n": n, "first_": first, "size": size, "x_shape_1": 5, "x_size": 10, "FACTOR": FACTOR}
            arguments = ", ".join(str(values[name]) for name in parameters)
            calls.append(f'grid{number}(g, {arguments}); printf("%u %u %u\\n", g[0], g[1], g[2]);')
            sizes = functions(size, x)[number]({"n": n, "B": 32, "first": first})
            expected.append((*(sizes if isinstance(sizes, tuple | list) else (sizes,)), 1, 1)[:3])
    source.append("int main(void) { uint32_t g[3]; (void)ziggurat_next_power_of_2;" + " ".join(calls) + " return 0; }")
    program = compiled_c(tmp_path, "\n".join(source), "-Wno-unused-function")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert [tuple(map(int, line.split())) for line in done.stdout.splitlines()] == expected


def test_captured_numbers_are_parameters():
    assert read(2).captures == {"size": 100, "x_shape_1": 5, "x_size": 10} and read(2).takes == ("n",)
    assert read(0).captures == {} and read(0).source == "(zg.cdiv(meta['n'], meta['B']),)"


def test_a_captured_argument_is_that_argument():
    n = 77

    def grid(meta):
        return (zg.cdiv(n, meta["B"]),)

    assert grid_in_c(grid, {"n": 77, "B": 32}, lambda n: n != "B").takes == ("n",)
    other = grid_in_c(grid, {"n": 78, "B": 32}, lambda n: n != "B")
    assert other.takes == () and other.captures == {"n_": 77} and "n_" in other.body[0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda meta: (meta["m"],), "asks for 'm', which is no parameter"),
        (lambda meta: (meta["n"] / 2,), "div , which has no form in C"),
        (lambda meta: (1, 2, 3, 4), "one to three integers"),
        (max, "must be a function with a source"),
    ],
)
def test_functions_without_a_form_in_c(function, reason):
    grid, why = attempted(function, {"n": 5}, lambda name: True)
    assert grid is None
    assert reason in why
    with pytest.raises(BuildError):
        grid_in_c(function, {"n": 5}, lambda name: True)


def test_names_of_c():
    assert [c_name(name) for name in ("a[0]", "while", "2x", "été", "n")] == ["a_0", "while_", "2x_", "_t", "n"]
