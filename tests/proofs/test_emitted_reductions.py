"""The LLVM text of reductions and scans: of unknown functions, in any thread, for any elements.

The function that combines two elements is unknown. Each result of a reduction combines the elements of its row, each
once, in an order that is open, as the language wants it: the threads that have one result have it in one order, unless
the function is known to be commutative. A scan combines in the order of the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import z3
from emitted_threads import THREAD, combined, contents, leaves, prove_defined, run
from planted import Fault, edit, must_find
from proving import Refuted, prove
from random_layouts import random_layout

from ziggurat.backend.ptx import reductions
from ziggurat.codemodel.layout import Layout, parse_layout, row_major
from ziggurat.codemodel.types import SCALARS, ScalarType, TensorType
from ziggurat.transforms.gpu.lower import scan_layout

I32 = SCALARS["i32"]
SHAPES = [((64,), 0), ((4, 8), 1), ((8, 4), 0), ((2, 4, 4), 1)]


def layouts(shape: tuple[int, ...], axis: int, count: int, num_warps: int = 1) -> list[Layout]:
    """Random layouts in which no warp needs elements of another one."""
    numel = 1
    for size in shape:
        numel *= size
    mask, random, results = (shape[axis] - 1) * row_major(shape)[axis], Random(numel + axis), list[Layout]()
    while len(results) < count:
        layout = random_layout(random, numel, num_warps, mixed=False)
        if not any(basis & mask for basis in layout.warps):
            results.append(layout)
    return results


def body(op: str, scalar: ScalarType, end: str) -> str:
    return f"(%a : {scalar}, %b : {scalar}){scalar} -> {{ %c : {scalar} = {op} %a %b; {end} %c; }}"


CHUNKS = parse_layout("1 8 16 | 0 2 0 4 0 |")  # A thread has two neighbours in each quarter.
COMMUTATIVE = ("arith.addi", "arith.muli", "arith.addf")
OPCODES = {"arith.addi": "add", "arith.muli": "mul", "arith.subi": "sub", "arith.addf": "fadd", "arith.subf": "fsub"}


def prove_leaves(text: Any, layout: Layout | None, scalar: ScalarType, expected: Callable[[int], list[int]], *,
                 is_ordered: bool, agrees: bool, num_warps: int) -> None:  # fmt: skip
    """Prove that each result, in each thread, combines the elements that are expected for its number."""
    threads, element = 32 * num_warps, contents("parameter 0", scalar.bits)
    text.execution.undefined += [result.poison for result in text.results]
    prove_defined(text.execution, threads=threads)
    terms: dict[int, Any] = {}
    for thread in range(threads):
        for register, result in enumerate(text.results):
            number = 0 if layout is None else layout.element(register, thread & 31, thread >> 5)
            term = z3.simplify(z3.substitute(result.bits(), (THREAD, z3.BitVecVal(thread, 32))))
            own = [str(leaf) for leaf in leaves(term)]
            targets = [str(element(z3.BitVecVal(at, 32))) for at in expected(number)]
            if own != targets if is_ordered else sorted(own) != sorted(targets):
                raise Refuted(f"register {register} of thread {thread} combines {own}, not {targets}")
            if agrees and not terms.setdefault(number, term).eq(term):
                raise Refuted(f"register {register} of thread {thread} combines in another order than other threads")


def row_of(shape: tuple[int, ...], axis: int, number: int) -> list[int]:
    """The elements of the row that an element is in."""
    stride = row_major(shape)[axis]
    start = number - number // stride % shape[axis] * stride
    return [start + at * stride for at in range(shape[axis])]


def prove_reduction(
    op: str, scalar: ScalarType, shape: tuple[int, ...], axis: int, layout: Layout, target: str = "sm_90a"
) -> None:
    num_warps = layout.num_warps
    rest = tuple(size for at, size in enumerate(shape) if at != axis)
    reduced = layout.dropped(shape, axis)
    own = TensorType(rest, scalar, reduced) if rest else scalar
    line = f"%r : {own} = tt.reduce %0 @axis={axis} {body(op, scalar, 'tt.reduce.return')};"
    text = run(line, {"%0": TensorType(shape, scalar, layout)}, target, num_warps, {OPCODES[op]})
    stride = row_major(shape)[axis]

    def expected(number: int) -> list[int]:
        first = number // stride * stride * shape[axis] + number % stride
        return row_of(shape, axis, first)

    prove_leaves(
        text,
        reduced if rest else None,
        scalar,
        expected,
        is_ordered=False,
        agrees=op not in COMMUTATIVE,
        num_warps=num_warps,
    )


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize(
    ("op", "name"),
    [("arith.addi", "i32"), ("arith.addf", "f16"), ("arith.muli", "i64"), ("arith.muli", "i8")],
)
def test_reductions_that_commute(op: str, name: str, shape: tuple[int, ...], axis: int) -> None:
    """By registers, by pairs of 16 bits, by shuffles, and by redux."""
    for layout in layouts(shape, axis, 2):
        prove_reduction(op, SCALARS[name], shape, axis, layout)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_reductions_that_may_not_commute(shape: tuple[int, ...], axis: int) -> None:
    for layout, name in zip(layouts(shape, axis, 2), ("i32", "i64"), strict=True):
        prove_reduction("arith.subi", SCALARS[name], shape, axis, layout)


def prove_scan(scalar: ScalarType, shape: tuple[int, ...], axis: int, layout: Layout, *, reverse: bool) -> None:
    type_ = TensorType(shape, scalar, layout)
    more = " @reverse=true" if reverse else ""
    line = f"%r : {type_} = tt.scan %0 @axis={axis}{more} {body('arith.subi', scalar, 'tt.scan.return')};"
    text = run(line, {"%0": type_}, num_warps=layout.num_warps, combining={"sub"})

    def expected(number: int) -> list[int]:
        row = row_of(shape, axis, number)[:: -1 if reverse else 1]
        return row[: row.index(number) + 1]

    prove_leaves(text, layout, scalar, expected, is_ordered=True, agrees=True, num_warps=layout.num_warps)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    """In the layouts to which lowering converts."""
    (layout,) = layouts(shape, axis, 1)
    prove_scan(SCALARS["i32"], shape, axis, scan_layout(layout, shape, axis), reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_chunks(reverse: bool) -> None:
    prove_scan(SCALARS["i32"], (32,), 0, CHUNKS, reverse=reverse)


# The first or the last element, gathers, and functions of the author's for each element.


def prove_pick(layout: Layout, shape: tuple[int, ...], axis: int, *, last: bool) -> None:
    rest = tuple(size for at, size in enumerate(shape) if at != axis)
    own = TensorType(rest, I32, layout.dropped(shape, axis)) if rest else I32
    line = f"%r : {own} = tt.reduce %0 @axis={axis} (%a : i32, %b : i32)i32 -> {{ tt.reduce.return %{'ab'[last]}; }};"
    text, stride = run(line, {"%0": TensorType(shape, I32, layout)}), row_major(shape)[axis]

    def expected(number: int) -> list[int]:
        row = row_of(shape, axis, number // stride * stride * shape[axis] + number % stride)
        return [row[-1 if last else 0]]

    result_layout = layout.dropped(shape, axis) if rest else None
    prove_leaves(text, result_layout, I32, expected, is_ordered=True, agrees=True, num_warps=1)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("last", [False, True])
def test_one_element_of_a_row(shape: tuple[int, ...], axis: int, last: bool) -> None:
    for layout in layouts(shape, axis, 2):
        prove_pick(layout, shape, axis, last=last)


IN_LANES = parse_layout("| 1 2 4 8 16 |")


def prove_gather(scalar: ScalarType) -> None:
    type_, index = TensorType((32,), scalar, IN_LANES), TensorType((32,), I32, IN_LANES)
    text = run(f"%r : {type_} = tt.gather %0 %1 @axis=0;", {"%0": type_, "%1": index})
    ((number,),) = text.parameters[1:]
    facts = [z3.ULT(THREAD, 32), z3.ULT(number, 32)]
    prove_defined(text.execution, facts)
    (result,) = text.results
    prove(z3.And(z3.Not(result.poison), result.bits() == contents("parameter 0", scalar.bits)(number)), facts)


@pytest.mark.parametrize("name", ["i1", "i8", "f16", "i32", "f64"])
def test_gathers_from_lanes(name: str) -> None:
    prove_gather(SCALARS[name])


def prove_map(pack: int, layout: Layout) -> None:
    """A function of elements that lie in neighbouring registers."""
    type_, names = TensorType((layout.numel,), I32, layout), "abcdefgh"
    parameters = ", ".join(f"%{name} : i32" for name in names[: 2 * pack])
    lines = [f"%r{at} : i32 = arith.subi %{names[at]} %{names[pack + at]};" for at in range(pack)]
    results = " ".join(f"%r{at}" for at in reversed(range(pack)))
    kind = "i32" if pack == 1 else f"Tuple<{', '.join(['i32'] * pack)}>"
    body_ = f"({parameters}){kind} -> {{ {' '.join(lines)} tt.map_elementwise.return {results}; }}"
    text = run(f"%r : {type_} = tt.map_elementwise %0 %1 @pack={pack} {body_};", {"%0": type_, "%1": type_},
               combining={"sub"})  # fmt: skip
    prove_defined(text.execution)
    first, second = text.parameters
    for register, result in enumerate(text.results):
        at = register // pack * pack + (pack - 1 - register % pack)
        if not result.bits().eq(combined(first[at], second[at])) or not z3.is_false(z3.simplify(result.poison)):
            raise Refuted(f"register {register} is {result.bits()}")


def test_functions_of_elements() -> None:
    for pack in (1, 2, 4):
        prove_map(pack, parse_layout("1 2 | 4 8 16 32 64 |"))


# Faults, each of which a proof above finds.


def all_reductions() -> None:
    for shape, axis in SHAPES[:2]:
        for layout in layouts(shape, axis, 2):
            for op, name in (("arith.addi", "i32"), ("arith.addf", "f16"), ("arith.subi", "i64")):
                prove_reduction(op, SCALARS[name], shape, axis, layout)


def all_scans() -> None:
    for reverse in (False, True):
        prove_scan(SCALARS["i32"], (32,), 0, CHUNKS, reverse=reverse)
        for shape, axis in SHAPES[1:]:
            layout = scan_layout(layouts(shape, axis, 1)[0], shape, axis)
            prove_scan(SCALARS["i32"], shape, axis, layout, reverse=reverse)


FAULTS: list[tuple[Fault, Callable[[], object]]] = [
    (edit(reductions._reduce, "str(1 << bit)", "str(1)"), all_reductions),
    (edit(reductions._reduce, "not is_commutative(op.combine)", "False"), all_reductions),
    (edit(reductions._reduce, "31 & ~axis.lane_mask", "31"), all_reductions),
    (edit(reductions._reduce, "rows = axis.joined(rows, 0)", "rows = rows"), all_reductions),
    (edit(reductions._reduce, "in lanes if redux is None", "in lanes[1:] if redux is None"), all_reductions),
    (edit(reductions._Axis._halved, "parts[:half]", "parts[half:]"), all_reductions),
    (edit(reductions._Axis.in_thread, "1 << len(bits)", "1 << len(bits) - 1"), all_reductions),
    (edit(reductions._Lanes.sender, "bit if self.reverse else lower", "lower if self.reverse else bit"), all_scans),
    (edit(reductions._Lanes.receives, '"eq" if self.reverse else "ne"', '"ne"'), all_scans),
    (edit(reductions._Lanes.before, "(~self.mask & 31, 1)", "(0, 1)"), all_scans),
    (edit(reductions._Lanes.is_first, "self.mask if self.reverse else 0", "0"), all_scans),
    (edit(reductions._Lanes.last, "0 if self.reverse else self.mask", "self.mask"), all_scans),
    (edit(reductions._scan, "axis.combine(prefix, own)", "axis.combine(own, prefix)"), all_scans),
    (
        edit(reductions.picks, "at for at, side", "0 for at, side"),
        lambda: prove_pick(layouts((64,), 0, 1)[0], (64,), 0, last=True),
    ),
    (edit(reductions._gather, '"idx"', '"bfly"'), lambda: prove_gather(SCALARS["i32"])),
    (
        edit(reductions._map, "emitter.at(value, register)", "emitter.at(value, first)"),
        lambda: prove_map(2, parse_layout("1 2 | 4 8 16 32 64 |")),
    ),
    (edit(reductions._scan, "axis.combine(carry, whole)", "whole"), all_scans),
]

test_planted_faults = must_find(FAULTS)
