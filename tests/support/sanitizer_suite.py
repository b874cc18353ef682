"""Kernels with one fault each, and right kernels, in Triton's Python: 160 of steps in structures, others as they are.

Each step is a few lines of a kernel, and each structure has a place for them: a loop, a helper function, a branch. All
kernels have the parameters of `HEAD`. Comments mark the lines of a fault: `# here` where the report is, `# there` its
other place. `program` gives the source of all kernels for Triton or for ziggurat.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

HEADER = {
    "triton": "import triton\nimport triton.language as tl\n",
    "ziggurat": "import ziggurat.triton as triton\nimport ziggurat.triton.language as tl\n",
}
HEAD = "(out, x, ids, n, B: tl.constexpr)"
N, BLOCK, PROGRAMS = 40, 16, 3
_LAST = range(N, BLOCK * PROGRAMS)  # The lanes of the last program that have no element of x.


@attrs.frozen
class Case:
    """A kernel: its source, and the fault that it has: the sanitizer, the argument, and the elements of which one is
    reported; no sanitizer for a right kernel. `grid` is that of its launch, and `shared` and `large` are about its
    arguments."""

    name: str
    source: str
    check: str = ""
    argument: str | None = None
    elements: range | None = None
    grid: tuple[int, ...] = (PROGRAMS,)
    shared: bool = False
    large: bool = False

    def arguments(self) -> list[np.ndarray | int]:
        """The arguments of a launch: arrays of 64, 40 and 64 elements, or, if `large`, of 256. If `shared`, the first
        is the second one from its second element on."""
        x = np.arange(1, (256 if self.large else N) + 1, dtype=np.float32)
        out = x[1:] if self.shared else np.zeros(256 if self.large else 64, np.float32)
        return [out, x, np.arange(64, dtype=np.int32) % N, N, BLOCK]


@attrs.frozen
class Step:
    """Lines of a kernel, with the fault. The variables are those of the structures."""

    name: str
    lines: str
    check: str = ""
    argument: str | None = None
    elements: range | None = None


# The variables: pid, lane (0 … B - 1), at = pid * B + lane, ok = at < n, v = x at these places, or 0.
STEPS = [
    # Races.
    Step("all_write", "tl.store(out + lane, v + pid)  # here there", "races", "out", range(16)),
    Step(
        "blocks_overlap",
        "tl.store(out + pid * (B - 1) + lane, v + pid)  # here there", "races", "out", range(15, 31, 15),
    ),
    Step(
        "reads_next",
        "w = tl.load(out + at + B, mask=at + B < n, other=0.0)  # there\n"
        "tl.store(out + at, w + 1.0, mask=ok)  # here",
        "races", "out", range(16, 40),
    ),
    Step(
        "reads_previous",
        "w = tl.load(out + at - B, mask=ok & (at >= B), other=0.0)  # here\n"
        "tl.store(out + at, v + w, mask=ok)  # there",
        "races", "out", range(32),
    ),
    Step(
        "reads_what_one_writes",
        "s = tl.load(out)  # there\nif pid == 1:\n    tl.store(out, s + 1.0)  # here",
        "races", "out", range(1),
    ),
    Step(
        "loads_a_counter",
        "tl.atomic_add(out + lane, 1.0)  # there\nw = tl.load(out + lane)  # here\n"
        "tl.store(ids + at, w.to(tl.int32))",
        "races", "out", range(16),
    ),
    Step(
        "resets_a_counter",
        "tl.store(out + lane, 0.0)  # here\ntl.atomic_add(out + lane, v)  # there",
        "races", "out", range(16),
    ),
    Step("two_lanes", "tl.store(out + at // 2, at * 1.0)  # here there", "races", "out", range(24)),
    Step("two_programs_one_element", "tl.store(out + pid // 2, pid * 1.0)  # here there", "races", "out", range(1)),
    Step(
        "exchanges_and_loads",
        "tl.atomic_xchg(ids + lane, at)  # there\nw = tl.load(ids + lane)  # here\ntl.store(out + at, w * 1.0)",
        "races", "ids", range(16),
    ),
    # Bounds.
    Step("load_without_mask", "w = tl.load(x + at)  # here\ntl.store(out + at, w)", "bounds", "x", _LAST),
    Step("store_without_mask", "tl.store(out + at + 2 * B, v)  # here", "bounds", "out", range(64, 80)),
    Step("load_before", "w = tl.load(x + at - 1, mask=ok, other=0.0)  # here\n"
    "tl.store(out + at, w)", "bounds", "x", range(-1, 0)),
    Step("store_before", "tl.store(out + at - 4, v, mask=ok)  # here", "bounds", "out", range(-4, 0)),
    Step("mask_off_by_one", "w = tl.load(x + at, mask=at <= n, other=0.0)  # here\n"
    "tl.store(out + at, w)", "bounds", "x", range(40, 41)),
    Step("reversed_off_by_one", "w = tl.load(x + n - at, mask=ok, other=0.0)  # here\n"
    "tl.store(out + at, w)", "bounds", "x", range(40, 41)),
    Step("stride_twice", "w = tl.load(x + at * 2, mask=ok, other=0.0)  # here\n"
    "tl.store(out + at, w)", "bounds", "x", range(40, 79, 2)),
    Step("atomic_outside", "tl.atomic_add(out + at * 2, v, mask=ok)  # here", "bounds", "out", range(64, 79, 2)),
    Step(
        "index_from_data",
        "i = tl.load(ids + at, mask=ok, other=0) + 10\nw = tl.load(x + i, mask=ok, other=0.0)  # here\n"
        "tl.store(out + at, w)",
        "bounds", "x", range(40, 50),
    ),
    # Overflow.
    Step("product", "big = (pid + 1) * 1073741824  # here\n"
    "tl.store(ids + pid, big)  # there", "overflow", "ids", range(1, 3)),
    Step("sum", "s = at + 2147483620  # here\n"
    "tl.store(ids + at, s, mask=ok)  # there", "overflow", "ids", range(28, 40)),
    Step("difference", "d = -2147483640 - at  # here\n"
    "tl.store(ids + at, d, mask=ok)  # there", "overflow", "ids", range(9, 40)),
    Step(
        "address",
        "o = at * 200000000  # here\nw = tl.load(x + (o & 31), mask=ok, other=0.0)  # there\ntl.store(out + at, w)",
        "overflow", "x",
    ),
    Step(
        "mask",
        "o = at * 100000000  # here\nw = tl.load(x + lane, mask=o < n, other=0.0)  # there\ntl.store(out + at, w)",
        "overflow", "x",
    ),
    Step("branch", "o = pid * 2000000000 + 1000000000  # here\nif o > 5:  # there\n"
    "    tl.store(out + at, v)", "overflow"),
    Step("bytes", "b = at.to(tl.int8) * 4  # here\n"
    "tl.store(ids + at, b.to(tl.int32), mask=ok)  # there", "overflow", "ids", range(32, 40)),
    Step("shorts", "b = at.to(tl.int16) + 32760  # here\n"
    "tl.store(ids + at, b.to(tl.int32), mask=ok)  # there", "overflow", "ids", range(8, 40)),
    Step(
        "wide_product",
        "b = at.to(tl.int64) * 4611686018427387904  # here\n"
        "tl.store(ids + at, (b >> 33).to(tl.int32), mask=ok)  # there",
        "overflow", "ids", range(2, 40),
    ),
    # Undefined elements.
    Step("stored", "w = tl.load(x + at, mask=ok)  # here\ntl.store(out + at, w)  # there", "undefined", "out", _LAST),
    Step("summed", "w = tl.load(x + at, mask=ok)  # here\n"
    "tl.store(out + pid, tl.sum(w))  # there", "undefined", "out", range(2, 3)),
    Step("largest", "w = tl.load(x + at, mask=ok)  # here\n"
    "tl.store(out + pid, tl.max(w * 2.0))  # there", "undefined", "out", range(2, 3)),
    Step(
        "as_index",
        "i = tl.load(ids + at, mask=ok)  # here\nw = tl.load(x + i % n)  # there\ntl.store(out + at, w)",
        "undefined", "x",
    ),
    Step("as_condition", "s = tl.load(x, mask=pid < 1)  # here\nif s > 0.0:  # there\n"
    "    tl.store(out + at, v)", "undefined", "x"),
    Step(
        "result_of_atomic",
        "o = tl.atomic_add(ids + at, 1, mask=ok)  # here\ntl.store(out + at, o * 1.0)  # there",
        "undefined", "out", _LAST,
    ),
    Step("as_mask", "w = tl.load(x + at, mask=ok)  # here\n"
    "tl.store(out + at, v, mask=w > 0.0)  # there", "undefined", "out"),
    Step(
        "chosen",
        "w = tl.load(x + at, mask=ok)  # here\ntl.store(out + at, tl.where(at < n - 4, 0.0, w))  # there",
        "undefined", "out", _LAST,
    ),
    Step(
        "choosing",
        "w = tl.load(x + at, mask=ok)  # here\ntl.store(out + at, tl.where(w > 0.0, 1.0, 2.0))  # there",
        "undefined", "out", _LAST,
    ),
    Step("added_by_atomic", "w = tl.load(x + at, mask=ok)  # here\n"
    "tl.atomic_add(out + at, w)  # there", "undefined", "out", _LAST),
    Step(
        "through_a_type",
        "w = tl.load(x + at, mask=ok)  # here\ntl.store(ids + at, (w + v).to(tl.int32) + 1)  # there",
        "undefined", "ids", _LAST,
    ),
    # NaN and infinities.
    Step("by_zero", "r = v / (v - v)  # here\ntl.store(out + at, r, mask=ok)  # there", "nan", "out", range(40)),
    Step("zero_by_zero", "z = v - v\nr = z / z  # here\n"
    "tl.store(out + at, r, mask=ok)  # there", "nan", "out", range(40)),
    Step("log_of_negative", "r = tl.log(v - 50.0)  # here\n"
    "tl.store(out + at, r, mask=ok)  # there", "nan", "out", range(40)),
    Step("log_of_zero", "r = tl.log(v - v)  # here\n"
    "tl.store(out + at, r, mask=ok)  # there", "nan", "out", range(40)),
    Step("root_of_negative", "r = tl.sqrt(0.0 - v)  # here\n"
    "tl.store(out + at, r, mask=ok)  # there", "nan", "out", range(40)),
    Step("large_exponent", "r = tl.exp(v * 10.0)  # here\n"
    "tl.store(out + at, r, mask=ok)  # there", "nan", "out", range(8, 40)),
    Step(
        "infinity_minus_infinity",
        'm = tl.where(at < 0, v, float("-inf"))\nd = m - tl.max(m)  # here\n'
        'tl.store(out + at, tl.exp(d), mask=ok)  # there',
        "nan", "out", range(40),
    ),
    Step(
        "half",
        "h = (v * 10000.0).to(tl.float16)  # here\ntl.store(out + at, h.to(tl.float32), mask=ok)  # there",
        "nan", "out", range(6, 40),
    ),
    Step(
        "product_of_halves",
        "h = v.to(tl.float16) + 30.0\nh = h * h * h  # here\ntl.store(out + at, h.to(tl.float32), mask=ok)  # there",
        "nan", "out", range(10, 40),
    ),
    Step(
        "sum_too_large",
        "w = v * 0.0 + 1e38\ns = tl.sum(w)  # here\ntl.store(out + pid, s)  # there",
        "nan", "out", range(3),
    ),
    Step(
        "powers",
        "r = v + 1.0\nfor j in range(0, 9):\n    r = r * r  # here\ntl.store(out + at, r, mask=ok)  # there",
        "nan", "out", range(40),
    ),
]  # fmt: skip

RIGHT = [
    Step("copy", "tl.store(out + at, v * 2.0 + 1.0, mask=ok)"),
    Step("counter", "tl.atomic_add(out + lane, v)\no = tl.atomic_add(ids + 50, 1)\ntl.store(ids + pid, o * 0 + 1)"),
    Step(
        "guarded",
        "w = tl.load(x + at, mask=ok)\nr = tl.where(ok, tl.log(tl.where(ok, w, 1.0)), 0.0)\n"
        "tl.store(out + pid, tl.sum(r))\ntl.store(out + 8 + at, 1.0 / v, mask=ok)",
    ),
]  # fmt: skip


def _kernel(name: str, body: Sequence[str], grid_axis: int = 0, lane: str = "tl.arange(0, B)") -> list[str]:
    """A kernel with the usual variables before its body."""
    return [
        "@triton.jit", f"def {name}{HEAD}:", f"    pid = tl.program_id({grid_axis})", f"    lane = {lane}",
        "    at = pid * B + lane", "    ok = at < n", "    v = tl.load(x + at, mask=ok, other=0.0)", *body,
    ]  # fmt: skip


def _indented(lines: Sequence[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


def _structured(structure: str, name: str, lines: Sequence[str]) -> list[str]:
    """The source of a kernel with a step in a structure."""
    plain = _indented(lines, 1)
    if structure == "straight":
        return _kernel(name, plain)
    if structure == "loop":
        return _kernel(name, ["    for i in range(0, n, n):", *_indented(lines, 2)])
    if structure == "while":
        return _kernel(name, ["    i = 0", "    while i < 1:", *_indented(lines, 2), "        i += 1"])
    if structure == "persistent":
        head = ["@triton.jit", f"def {name}{HEAD}:", "    for pid in range(tl.program_id(0), 3, tl.num_programs(0)):"]
        return [*head, *_indented([line[4:] for line in _kernel(name, plain)[3:]], 2)]
    if structure == "helper":
        helper = ["@triton.jit", f"def {name}_step(out, x, ids, n, pid, lane, at, ok, v, B: tl.constexpr):", *plain, ""]
        return [*helper, *_kernel(name, [f"    {name}_step(out, x, ids, n, pid, lane, at, ok, v, B)"])]
    if structure == "early_return":
        return _kernel(name, ["    if pid * B >= n:", "        return", *plain])
    if structure == "branch":
        return _kernel(
            name, ["    if n > 3:", *_indented(lines, 2), "    else:", "        tl.store(out + at, v, mask=ok)"]
        )
    if structure == "two_axes":
        return _kernel(name, plain, lane="tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]")
    if structure == "unrolled":
        return _kernel(name, ["    for i in tl.static_range(2):", "        if i == 1:", *_indented(lines, 3)])
    assert structure == "grid_of_two"
    return _kernel(name, plain, grid_axis=1)


STRUCTURES = (
    "straight", "loop", "while", "persistent", "helper", "early_return", "branch", "two_axes", "unrolled",
    "grid_of_two",
)  # fmt: skip


def _case(step: Step, structure: str) -> Case:
    name = f"{step.name}_{structure}"
    source = "\n".join(_structured(structure, name, step.lines.split("\n")))
    grid = (1, PROGRAMS) if structure == "grid_of_two" else (PROGRAMS,)
    return Case(name, source, step.check, step.argument, step.elements, grid)


def cases() -> Iterator[Case]:
    """The kernels of steps in structures: each step in three or two, so that each structure has steps of all kinds."""
    for number, step in enumerate(STEPS):
        for turn in range(2 if number % 3 else 3):
            yield _case(step, STRUCTURES[(number + 3 * turn) % len(STRUCTURES)])
    for step, structure in itertools.product(RIGHT, STRUCTURES):
        yield _case(step, structure)


def program(several: Sequence[Case], language: str) -> str:
    """The source of a module with these kernels."""
    return HEADER[language] + "\n" + "\n\n\n".join(case.source for case in several) + "\n"


def lines_of(case: Case, text: str) -> tuple[list[int], list[int]]:
    """The lines of a module at which a case reports its fault, and the other places."""
    first = text[: text.index(case.source)].count("\n") + 1
    numbered = list(enumerate(case.source.split("\n"), first))
    comments = [(number, line.partition("# ")[2]) for number, line in numbered]
    here = [number for number, comment in comments if "here" in comment.split()]
    return here, [number for number, comment in comments if "there" in comment.split()]
