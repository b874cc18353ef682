"""The values of calls: tables in `values/`, a file for each group of the language, against NumPy.

    == title: A, B in neighbours(INTS, 1); each n in (1, 2)

begins a kernel, and is a test function; its parameters come before the `;`, and the values of `each` are run in one
test. Then come lines of these forms:

    a, b = expression           arrays, a row for each program, and other names, in Python with NumPy and numpy_calls
    x := zg.call(a, b)          a statement of the kernel
    zg.call(a, x) -> a + b      a call of the kernel, and the result, or a tuple of them
    zg.{op}(a) -> FUNCTIONS[op](a) for each op in FUNCTIONS

Names in braces are written into calls. `ulp`, `tolerance` and `thorough` are options of the comparison (conftest.py).
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy_calls
import pytest

import ziggurat as zg
from ziggurat.frontends.language import SIGNATURES

FOLDER = Path(__file__).parent / "values"
OPTIONS = ("ulp", "tolerance", "thorough")
ONCE = "_ in (None,)"
_ROW = re.compile(r"(?P<call>.+?) -> (?P<result>.+?)(?: for each (?P<loop>.+))?")


@zg.function
def welford(mean, square, count, mean2, square2, count2):
    """Two means, sums of squared differences, and counts, as one."""
    delta = mean2 - mean
    total = count + count2
    ratio = count2 / total
    return mean + delta * ratio, square + square2 + delta * delta * count * ratio, total


@zg.function
def first(a, b):
    return a


@zg.function
def last(a, b):
    return b


@zg.function
def larger(a, b):
    return a if a > b else b


@zg.function
def steps(a, b, c, d):
    """Two steps x -> a * x + b, one after the other."""
    return a * c, b * c + d


@zg.function
def odd(a, b):
    return zg.xor(a, b)


@zg.function
def affine(x, a=2, *, b=1):
    return zg.add(zg.mul(x, a), b)


@zg.function
def swap(pair, flag):
    """Tuples in and out."""
    first, second = pair
    return (second, first) if flag else (first, second)


@zg.function
def combined(x, f: zg.constexpr, axis=0):
    """A function of its own as an argument."""
    return zg.reduce(x, axis, f)


@zg.function
def maximum_of(x):
    """An argument of any shape, a scalar included."""
    if x.shape == ():
        return x
    else:
        return zg.max(x)


KERNEL = {
    name: value for name, value in globals().items() if isinstance(value, zg.Function)
}  # The functions that calls may name.
PYTHON = {**vars(numpy_calls), "np": np, "Fraction": Fraction, "itertools": itertools, "operator": operator, **KERNEL}


@attrs.frozen
class Section:
    """A kernel of a table, with the lines that make its operands, its calls and their results."""

    title: str
    parameters: str
    each: str
    lines: tuple[str, ...]

    @property
    def calls(self) -> set[str]:
        """The calls of its kernel, with those that a loop names."""
        rows = [line for line in self.lines if _ROW.fullmatch(line) or ":=" in line or line.startswith("zg.")]
        names = {name for line in rows for name in re.findall(r"\bzg\.(\w+)\(", line)}
        for line in rows:
            if named := re.search(r"\bzg\.(\w*)\{.*for each (.*)", line):
                words = set(re.findall(r"\w+", named[2]))
                tables = (PYTHON[word] for word in words if isinstance(PYTHON.get(word), dict))
                names |= {named[1] + word for word in words.union(*tables)}
        return names


def sections() -> Iterator[Section]:
    for file in sorted(FOLDER.glob("*.txt")):
        _, *texts = re.split(r"^== ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for text in texts:
            header, *lines = (line for line in text.splitlines() if line and not line.startswith("#"))
            title, _, loops = header.partition(": ")
            parameters, _, each = loops.partition("; each ")
            yield Section(title, parameters or ONCE, each or ONCE, tuple(lines))


def cases(loop: str, space: dict[str, Any]) -> list[dict[str, Any]]:
    """The values that a loop, `names in expression`, gives to its names."""
    results: list[dict[str, Any]] = []
    names: dict[str, Any] = {}
    exec(f"for {loop}: _add()", {**space, "_add": lambda: results.append({**names})}, names)
    return results


def run(section: Section, space: dict[str, Any], compute: Callable[..., Any]) -> None:
    """Run the kernel of a section, with the names of one case."""
    space = {**space}
    constants = dict(space)
    body: list[str] = []
    expected: dict[str, Any] = {}

    def text(call: str, names: dict[str, Any]) -> str:
        return re.sub(r"\{(.+?)\}", lambda match: f"{eval(match[1], names)}", call)

    for line in section.lines:
        row = _ROW.fullmatch(line)
        if row is None and " := " in line:
            body.append(text(line.replace(" := ", " = "), space))
        elif row is None and line.startswith("zg."):
            body.append(text(line, space))
        elif row is None:
            exec(line, space)
        else:
            for names in cases(row["loop"] or ONCE, space):
                inside = {**space, **names}
                results = eval(row["result"], inside)
                results = results if isinstance(results, tuple) else (results,)
                targets = [f"r{len(expected) + number}" for number in range(len(results))]
                body.append(f"{', '.join(targets)} = {text(row['call'], inside)}")
                expected |= zip(targets, map(np.asarray, results), strict=True)
    used = set(re.findall(r"(?<![.\w])\w+", "\n".join(body)))
    inputs = {name: value for name, value in space.items() if name in used and isinstance(value, np.ndarray)}
    others = {
        name: value
        for name, value in space.items()
        if name in used and name not in inputs and name != "zg" and (name in KERNEL or name not in constants)
    }
    options = {name: space[name] for name in OPTIONS if name in space}
    compute("\n".join(body), inputs, expected, **options, **others)


def _test(section: Section) -> Callable[..., None]:
    parameters = cases(section.parameters, PYTHON)

    @pytest.mark.parametrize("case", parameters, ids=lambda case: "-".join(map(str, case.values())))
    def test(case: dict[str, Any], compute: Callable[..., Any]) -> None:
        space = {**PYTHON, **case}
        for names in cases(section.each, space):
            run(section, {**space, **names}, compute)

    return test


SECTIONS = list(sections())
for _section in SECTIONS:
    globals()[f"test_{re.sub(r'[^a-z0-9]+', '_', _section.title.lower())}"] = _test(_section)


def test_titles_differ() -> None:
    assert len({section.title for section in SECTIONS}) == len(SECTIONS)


def test_each_call_of_values_has_a_row() -> None:
    assert SIGNATURES.keys() - set().union(*(section.calls for section in SECTIONS)) == ELSEWHERE


# Calls that read and write memory, or talk to the host or the compiler: the other files here have kernels with them.
ELSEWHERE = set(
    """
    advance approximate assume atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor
    debug_barrier device_assert device_print directed fence gather_tensor_descriptor gdc_launch_dependents gdc_wait
    globaltimer inline_asm_elementwise load load_tensor_descriptor make_block_ptr make_tensor_descriptor
    map_elementwise max_constancy max_contiguous multiple_of num_programs peer rand4x randn randn4x range
    reduce_tensor_descriptor scatter_tensor_descriptor signal smid static_print static_range store
    store_tensor_descriptor swizzle2d wait
    """.split()
)
