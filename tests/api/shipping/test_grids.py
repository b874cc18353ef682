"""Functions of grids in C give what they give in Python."""

from __future__ import annotations

import math
import random
import subprocess
from collections import defaultdict
from math import floor

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


def calls_itself(a):
    return calls_itself(a)


@zg.function
def thrice(a):
    return a * FACTOR


def by_branches(meta):
    first, (rows, columns) = meta["n"], (meta["first"], 2)
    if 1 < first < 50 <= first * 3:
        rows += columns
    elif first == 7:
        rows //= 2
    else:
        rows = thrice(rows)
    if rows > 4:
        return [rows, thrice(first)]
    else:
        return rows, thrice(columns)


def by_loops(meta):
    total, pieces = 0, 1.0
    for i in range(1, meta["n"], 3):
        if i % 2 == 0:
            continue
        total += abs(i - meta["first"] * 20)
        pieces = pieces * 1.25 if pieces < 40 else pieces - i / 3
        if total > 900:
            break
    for size in (meta["B"], meta["n"], 3):
        for down in range(size, 0, -meta["B"]):
            total += down % 5
    while total > 100 and total != 128:
        total //= 2
    else_ = (total, 2) if meta["n"] % 2 else (3, total)
    return max(1, math.ceil(pieces)), total + 1, else_[0] + 2 * else_[1]


def for_else(meta):
    for i in range(4):
        if i == meta["n"]:
            break
    else:
        return (7,)
    return (1,)


def while_else(meta):
    n = 0
    while n < meta["n"]:
        n += 1
    else:
        n += 100
    return (n,)


def widths(number, by):
    waste = number / by
    return (waste, by) if abs(waste - round(waste)) < 0.3 else (-waste, 7.5)


def by_floats(meta):
    half, by = widths(meta["n"], meta["B"] * 2)
    best = min(half, by / 3, 4)
    if best:
        best += 0.5
    for scale in (0.5, meta["first"]):
        best = max(best, scale * 1.5 - half)
    return int(best) + 1, 1 + (best > 1.5) * floor(abs(half)), round(abs(best * 2)) + (1 if not half else 2)


def functions(size, x):
    return [
        lambda meta: (zg.cdiv(meta["n"], meta["B"]),), lambda META: triton.cdiv(META["n"], META["B"]) * META["first"],
        lambda meta: (triton.cdiv(size, meta["B"]) if meta["n"] % 3 else -(-size // 7), x.shape[1], x.size),
        lambda meta: [1 << (meta["n"] & 3), 1 if meta["n"] < size or size > 90 else 2, ~(-meta["first"]) + 1],
        by_statements, by_branches, by_loops, by_floats,
        lambda meta: (math.ceil(meta["n"] / meta["B"]), math.trunc(-meta["n"] / 7) + 50, round(meta["n"] / 2) + 1),
        lambda meta: (x.shape[1] + len(x.shape), x.shape[-1] + x.ndim * zg.minimum(meta["n"], size)),
    ]  # fmt: skip


SHAPES = {"x_shape_1": 5, "x_size": 10, "len_x_shape": 2, "x_shape_1_": 5, "x_ndim": 2}


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
            values = {"n": n, "first_": first, "size": size, "FACTOR": FACTOR, **SHAPES}
            arguments = ", ".join(str(values[name]) for name in parameters)
            calls.append(f'grid{number}(g, {arguments}); printf("%u %u %u\\n", g[0], g[1], g[2]);')
            sizes = functions(size, x)[number]({"n": n, "B": 32, "first": first})
            expected.append((*(sizes if isinstance(sizes, tuple | list) else (sizes,)), 1, 1)[:3])
    source.append("int main(void) { uint32_t g[3]; (void)ziggurat_next_power_of_2;" + " ".join(calls) + " return 0; }")
    program = compiled_c(tmp_path, "\n".join(source), "-Wno-unused-function")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert [tuple(map(int, line.split())) for line in done.stdout.splitlines()] == expected


def test_negative_constants_are_no_decrements():
    grid = grid_in_c(lambda meta: (meta["n"] - -meta["first"],), {"n": 1, "first": -5}, lambda name: name == "n")
    assert grid.body[0] == "grid[0] = (uint32_t)((n - (-(-5))));"


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
        (lambda meta: (meta["n"] / 2,), "one to three integers"),
        (lambda meta: (meta["n"] / 2 // 1,), "has a float where its form in C needs an integer"),
        (lambda meta: (int(meta["n"] ** 2),), "has pow, which has no form in C"),
        (lambda meta: (int(meta["n"] * 1e999),), "has the number inf, which has no form in C"),
        (lambda meta: (range(meta["n"])[1],), "has a subscript that has no form in C"),
        (lambda meta: (meta["n"], 2) if meta["n"] else 1, "neither numbers nor tuples of one length"),
        (lambda meta: (sum(meta),), "calls 'sum', which has no form in C"),
        (lambda meta: (1, 2, 3, 4), "one to three integers"),
        (lambda meta: ("n",), "one to three integers"),
        (lambda meta: (meta.get("n"),), "calls '.get', which has no form in C"),
        (lambda meta: (meta.n,), "has attribute, which has no form in C"),
        (lambda meta: (zg.cdiv(meta["n"]),), "calls '.cdiv', which has no form in C"),
        (lambda meta: (calls_itself(meta["n"]),), "calls 'calls_itself', which must return at its end alone"),
        (for_else, "has for.else, which has no form in C"),
        (while_else, "has while.else, which has no form in C"),
        (lambda *meta: (1,), "must have one parameter"),
        (max, "must be a function with a source"),
    ],
)
def test_functions_without_a_form_in_c(function, reason):
    grid, why = attempted(function, {"n": 5}, lambda name: True)
    assert grid is None
    assert reason in why
    with pytest.raises(BuildError):
        grid_in_c(function, {"n": 5}, lambda name: True)


class Watched:
    """An object whose code notes that it ran."""

    plain = 3

    def __init__(self):
        self.calls = []
        self.own = 4

    def __getattr__(self, name):
        self.__dict__["calls"].append(name)
        return 1

    @property
    def width(self):
        self.calls.append("width")
        return 1

    def __getitem__(self, index):
        self.calls.append(index)
        return 1

    def numel(self):
        self.calls.append("numel")
        return 1

    def __len__(self):
        self.calls.append("len")
        return 1


def effects(sizes, table, numbers, watched):
    """Functions that would change what they captured, by the text that says so."""
    return {
        ".pop(…)": lambda meta: (sizes.pop(),), "['n']": lambda meta: (table["n"],),
        "next": lambda meta: (next(numbers),),
        ".width": lambda meta: (watched.width,), ".absent": lambda meta: (watched.absent,),
        "[0]": lambda meta: (watched[0],), ".numel(…)": lambda meta: (watched.numel(),),
        ".__len__(…)": lambda meta: (len(watched),), ".append(…)": lambda meta: (watched.calls.append(1),),
    }  # fmt: skip


@pytest.mark.parametrize("what", effects(None, None, None, None))
def test_nothing_that_a_grid_captures_is_changed(what):
    sizes, table, numbers, watched = [3, 5], defaultdict(int), iter([1, 2]), Watched()
    grid, why = attempted(effects(sizes, table, numbers, watched)[what], {"n": 5}, lambda name: True)
    assert grid is None and what in why
    assert sizes == [3, 5] and not table and next(numbers) == 1 and not watched.calls


def test_a_captured_grid():
    sizes = np.zeros((3, 4)).shape
    assert grid_in_c(lambda meta: sizes, {}, lambda name: True).captures == {"sizes_0": 3, "sizes_1": 4}


def test_data_of_captured_objects_is_read():
    watched, sizes, table, v1 = Watched(), [3, 5], {"a": (7, 8)}, 6

    def grid(meta):
        total = watched.own + watched.plain
        total += sizes[-1] * v1
        return total, table["a"][1], len(sizes)

    result = grid_in_c(grid, {"n": 5}, lambda name: True)
    expected = {"watched_own": 4, "watched_plain": 3, "sizes_1": 5, "v1_": 6, "table_a_1": 8, "len_sizes": 2}
    assert result.captures == expected and not watched.calls
    assert result.source.startswith("grid of line ")


def test_names_of_c():
    assert [c_name(name) for name in ("a[0]", "while", "2x", "été", "n")] == ["a_0", "while_", "x2x", "_t", "n"]
