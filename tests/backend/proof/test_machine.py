"""Runs on unknown inputs: control flow, memory, and each kind of op, by proofs of models that are equal or not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import small_kernels

import ziggurat as zg
from ziggurat.backend.proof.outlines import Outlines
from ziggurat.backend.proof.prove import Prover
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.simplify.lower_structured import lower_structured

FLOATS, WHOLE = zg.ptr(zg.f32), zg.ptr(zg.i32)


@zg.kernel
def early(x, out, n):
    i = zg.program_id(0)
    if i >= n:
        return
    value = zg.load(x + i)
    if value > 0:
        zg.store(out + i, value)
        return
    zg.store(out + i, 0 - value)


@zg.kernel
def collatz(x, out, n):
    value = zg.load(x + zg.program_id(0))
    steps = 0
    while value > 1:
        value = zg.where(value % 2 == 0, value // 2, value * 3 + 1)
        steps += 1
    zg.store(out + zg.program_id(0), steps)


@zg.kernel
def in_place(x, out, n):
    # Each element is read after its neighbour was written.
    for i in range(0, n):
        zg.store(x + i + 1, zg.load(x + i) + zg.load(x + i + 1))
    zg.store(out, zg.load(x + n))


@zg.kernel
def counted(x, out, n):
    at = zg.arange(0, 16)
    values = zg.load(x + at)
    zg.atomic_add(out + at, values)
    zg.store(out + at, zg.atomic_max(out + at, values))


@zg.kernel
def rearranged(x, out, n):
    at = zg.arange(0, 16)
    values = zg.load(x + at)
    left, right = zg.split(zg.reshape(values, (8, 2)))
    pairs = zg.reshape(zg.join(right, left), (16,))
    order = zg.load(out + at) & 15
    zg.store(out + at, zg.gather(pairs, order, axis=0) + zg.cumsum(values, axis=0))
    zg.store(out + 16 + zg.arange(0, 4), zg.histogram(values & 3, 4))


@zg.kernel
def sorted_out(x, out, n):
    at = zg.arange(0, 16)
    values = zg.load(x + at)
    highest, place = zg.max(values, axis=0), zg.argmax(values, axis=0)
    zg.device_assert(n > 0, "n")
    zg.store(out, highest + place)


@zg.kernel
def product(x, out, n):
    rows, columns = zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 16), 0)
    at = rows * 16 + columns
    a = zg.load(x + at)
    zg.store(out + at, zg.dot(a, zg.trans(a), zg.zeros((16, 16), zg.f32)))


KERNELS: dict[str, tuple[Any, Any]] = {
    "returns in branches": (early, FLOATS), "a while loop": (collatz, WHOLE), "atomics": (counted, WHOLE),
    "a store before a load": (in_place, WHOLE), "other elements": (rearranged, WHOLE), "an argmax": (sorted_out, WHOLE),
    "a product": (product, FLOATS),
}  # fmt: skip


def model_of(name: str) -> Op:
    kernel, pointer = KERNELS[name]
    return kernel.triton(pointer, pointer, zg.i32)


def proved(a: Op, b: Op) -> Any:
    """The proof without samples."""
    return Prover(bound=2).prove(a, b)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("change", [zg.simplify, lower_structured], ids=["simplify", "blocks"])
def test_a_model_is_what_it_is_after_a_pass(name: str, change: Callable[[Any], Op]) -> None:
    model = zg.simplify(model_of(name))
    proof = proved(model_of(name), change(model))
    assert proof, proof


EDITS = [
    ("returns in branches", "@sge", "@sgt"), ("returns in branches", "@ogt", "@oge"),
    ("a while loop", "arith.constant @0", "arith.constant @1"), ("atomics", "@add", "@or"),
    ("a store before a load", "arith.addi %8", "arith.subi %8"), ("an argmax", "@sgt", "@sge"),
    ("other elements", "arith.constant @15", "arith.constant @7"),
    ("a product", "arith.constant @0.0", "arith.constant @1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), EDITS, ids=[f"{name}: {new}" for name, _, new in EDITS])
def test_another_model_is_not(name: str, old: str, new: str) -> None:
    text = str(zg.simplify(model_of(name)))
    if old not in text:
        pytest.fail(f"{old} is not in\n{text}")
    assert not proved(zg.parse(text), zg.parse(text.replace(old, new, 1)))


def test_arrays_that_may_be_one_are_taken_to_be_two() -> None:
    def swapped(first: bool) -> Op:
        def traced(x: Any, y: Any) -> None:
            if first:
                zg.store(x, 1)
                zg.store(y, 2)
            else:
                zg.store(y, 2)
                zg.store(x, 1)

        return zg.trace(traced, WHOLE, WHOLE)

    proof = proved(swapped(True), swapped(False))
    assert proof and proof.assumptions == ("the arrays of two arguments do not overlap",)


def test_a_division_that_was_not_there_is_found() -> None:
    def divided(always: bool) -> Op:
        @zg.kernel
        def run(x, out, n):
            if always:
                value = zg.load(x) // n
                if n != 0:
                    zg.store(out, value)
            elif n != 0:
                zg.store(out, zg.load(x) // n)

        return run.triton(WHOLE, WHOLE, zg.i32)

    assert proved(divided(True), divided(False))
    assert not proved(divided(False), divided(True))


@zg.function
def signs(value):
    return zg.where(value > 0, 1, 2)


@zg.kernel
def counting(x, out, n, form: zg.constexpr):
    if form == 0:
        for i in range(n, zg.load(x), 1 << 30):
            zg.store(out, i)
    elif form == 1:
        for i in range(0, 4, n):
            zg.store(out, i)
    else:
        i = n if form == 2 else 0
        while i < (zg.load(x) if form == 2 else 4):
            zg.store(out, i)
            i += (1 << 30) if form == 2 else n


@pytest.mark.parametrize(
    ("form", "words"),
    [(0, "indices of loops do not go beyond their type"), (1, "steps of loops that are not known are positive")],
)
def test_a_loop_that_counts_is_one_that_adds_under_an_assumption(form: int, words: str) -> None:
    proof = proved(*(counting.triton(WHOLE, WHOLE, zg.i32, each) for each in (form, form + 2)))
    assert proof and words in proof.assumptions


@zg.kernel
def two_rounds(x, out, n, by_loop: zg.constexpr):
    if by_loop:
        for i in range(0, 2147483647, 1 << 30):
            zg.atomic_add(out, 1)
    else:
        zg.atomic_add(out, 2)


def test_an_index_that_goes_beyond_its_type_ends_a_loop() -> None:
    assert proved(*(two_rounds.triton(WHOLE, WHOLE, zg.i32, by_loop) for by_loop in (True, False)))


@zg.kernel
def rows(x, out, n, swapped: zg.constexpr):
    at = zg.arange(0, 32)
    for i in range(0, n):
        place = at + 32 * i if swapped else i * 32 + at
        zg.store(out + place, 1)


def test_the_most_iterations_are_an_assumption_in_every_look() -> None:
    proof = proved(*(rows.triton(WHOLE, WHOLE, zg.i32, swapped) for swapped in (False, True)))
    assert proof and proof.assumptions == ("loops of unknown length have at most 2 iterations",)


@zg.kernel
def eightfold(x, out, n, axis: zg.constexpr):  # `axis`, or a factor.
    values = zg.load(x + zg.arange(0, 32))
    if axis == 0:
        values = zg.sum(zg.broadcast(zg.reshape(values, (1, 32)), (8, 32)), axis=0)
    elif axis == 1:
        values = zg.sum(zg.broadcast(zg.reshape(values, (32, 1)), (32, 8)), axis=1)
    else:
        values = values * axis
    zg.store(out + zg.arange(0, 32), values)


def test_a_reduction_takes_an_element_that_is_broadcast_several_times() -> None:
    first, second, seven, eight = (eightfold.triton(WHOLE, WHOLE, zg.i32, axis) for axis in (0, 1, 7, 8))
    assert proved(first, second) and proved(first, eight)
    assert not proved(first, seven)


@zg.kernel
def printed(x, out, n, form: zg.constexpr):
    if form == 0:
        zg.device_print("v", n)
    elif form == 1:
        zg.device_print("v", n, n)
    elif form == 2:
        zg.device_print("v", zg.arange(0, 4) + n)
    else:
        zg.device_print("v", n.to(zg.i64))


@pytest.mark.parametrize("form", range(4))
def test_prints_of_other_values_are_not_the_same(form: int) -> None:
    proof = proved(*(printed.triton(WHOLE, WHOLE, zg.i32, each) for each in (0, form)))
    assert proof.verdict == ("unknown" if form else "proved")


@zg.kernel
def previous(x, out, n, by_load: zg.constexpr):
    before = zg.load(x)
    value = zg.atomic_add(x, 1, mask=n != 12345)
    zg.store(out, before if by_load else value)


def test_an_atomic_gives_nothing_where_its_mask_does_not_hold() -> None:
    assert not proved(*(previous.triton(WHOLE, WHOLE, zg.i32, by_load) for by_load in (True, False)))


@zg.kernel
def presumed(x, out, n, assume: zg.constexpr):
    if assume:
        zg.assume(n != 12345)
    zg.store(out, zg.where(n == 12345, 2, 1) if assume else 1)


def test_a_model_may_not_assume_what_the_one_before_it_does_not() -> None:
    first, second = (presumed.triton(WHOLE, WHOLE, zg.i32, assume) for assume in (False, True))
    assert not proved(first, second)
    assert proved(second, first)


@zg.kernel
def mapped(x, out, n, form: zg.constexpr):
    steps = 0
    while zg.load(x) > steps:
        steps += 500
    at = zg.arange(0, 32)
    values = zg.load(x + at)
    mapped = zg.where(values > 0, 1, 2) if form == 0 else zg.map_elementwise(signs, values)
    zg.store(out + at, zg.where(at == 0, 2, mapped) if form == 2 else mapped)


def test_what_a_body_gives_in_some_runs_is_not_what_it_gives_in_others() -> None:
    plain, by_body, other = (mapped.triton(WHOLE, WHOLE, zg.i32, form) for form in range(3))
    assert proved(plain, by_body)
    assert proved(by_body, other).verdict == "refuted"


@zg.kernel
def added(x, out, n, last: zg.constexpr):
    at = zg.arange(0, 32)
    values = zg.load(x + at)
    if last < 0:
        for i in range(0, 2):
            zg.store(out + i * 32 + at, zg.map_elementwise(signs, values))
    else:
        zg.store(out + at, values)
        zg.store(out + 32 + at, values + last)


def test_a_body_uses_values_from_outside_as_they_are_there() -> None:
    text = str(added.triton(WHOLE, WHOLE, zg.i32, -1))
    call, result, argument = expect_match(r'(%\d+) : i32 = tt\.call (%\d+) @"signs_i32_i32";', text)
    _, index = expect_match(r"scf\.for .*?\((%\d+) : i32\)", text)
    model = zg.parse(text.replace(call, f"{result} : i32 = arith.addi {argument} {index};"))
    assert proved(model, added.triton(WHOLE, WHOLE, zg.i32, 1))
    assert proved(model, added.triton(WHOLE, WHOLE, zg.i32, 0)).verdict == "refuted"


def expect_match(pattern: str, text: str) -> tuple[str, ...]:
    match = re.search(pattern, text)
    assert match is not None, text
    return match[0], *match.groups()


@zg.kernel
def extended(x, out, n, in_64: zg.constexpr):
    at = zg.load(x).to(zg.i64) * n.to(zg.i64) if in_64 else (zg.load(x) * n).to(zg.i64)
    zg.store(out + zg.program_id(0), at)


@zg.kernel
def moved(x, out, n, in_64: zg.constexpr):
    at = zg.program_id(0)
    zg.store(out + (at.to(zg.i64) * n.to(zg.i64) if in_64 else (at * n).to(zg.i64)), 1)


@pytest.mark.parametrize(("kernel", "verdict"), [(extended, "refuted"), (moved, "proved")])
def test_indices_of_pointers_alone_are_taken_not_to_wrap(kernel: Any, verdict: str) -> None:
    wide = zg.ptr(zg.i64)
    models = [kernel.triton(WHOLE, wide, zg.i32, in_64) for in_64 in (False, True)]
    assert Prover(wraps=False).prove(*models).verdict == verdict
    assert not Prover().prove(*models)


def test_a_barrier_that_is_missing_is_not_proved_right() -> None:
    models = dict(small_kernels.compiled("scaled"))
    right, text = models["barriers"], str(models["barriers"])
    assert "gpu.barrier;" in text
    assert zg.prove(right, right)
    proof = zg.prove(right, zg.parse(text.replace("gpu.barrier;", "", 1)))
    assert proof.verdict == "unknown" and "barrier" in proof.reasons[0], proof


# Models that differ, by what is unlike: ops after those of `_HEAD`, and others.
_HEAD = """
%3 : tensor<x32, i32> = tt.make_range @start=0 @end=32; %4 : tensor<x32, ptr<i32>> = tt.splat %0;
%5 : tensor<x32, ptr<i32>> = tt.addptr %4 %3; %6 : tensor<x32, i32> = tt.load %5; %7 : i32 = arith.constant @0;
"""
_MAP = "%10 : tensor<x32, i32> = tt.map_elementwise %6 @pack=1 (%11 : i32)i32 -> { OP tt.map_elementwise.return %11; };"
_MASKED = "%10 : tensor<x32, i32> = arith.constant @31; %11 : tensor<x32, i32> = arith.andi %6 %10;"
_BYTE = """
%10 : ptr<i8> = tt.bitcast %0; %11 : i32 = arith.constant @1; %12 : ptr<i8> = tt.addptr %10 %11;
%13 : ptr<i32> = tt.bitcast %12; %14 : i32 = tt.load %1; %15 : ptr<i32> = tt.addptr %13 %14;
"""
_TIMES = "%10 : i64 = tt.globaltimer; %11 : i64 = tt.globaltimer; %12 : i1 = arith.cmpi %10 %11 @slt;"
UNLIKE = {
    "the number of the SM": ("%10 : i32 = tt.smid; tt.store %1 %10;", "tt.store %1 %7;"),
    "the time": (f"{_TIMES} tt.store %1 %2;", f"{_TIMES} tt.store %1 %2 %12;"),
    "a division in a body": ("", _MAP.replace("OP", "%12 : i32 = arith.divsi %11 %2;")),
    "an assertion in a body": (
        "", _MAP.replace("OP", '%12 : i1 = arith.cmpi %2 %7 @ne; tt.assert %12 @message="";')
    ),
    "a store in a body": ("", _MAP.replace("OP", "tt.store %1 %11;")),
    "a load in a body after a store": (
        _MAP.replace("OP", "%12 : i32 = tt.load %0;") + "tt.store %0 %2; tt.store %5 %10;",
        "tt.store %0 %2;" + _MAP.replace("OP", "%12 : i32 = tt.load %0;") + "tt.store %5 %10;",
    ),
    "an index of a gather": (
        _MASKED + "%12 : tensor<x32, i32> = tt.gather %6 %11 @axis=0;",
        _MASKED.replace("31", "32") + "%12 : tensor<x32, i32> = tt.gather %6 %11 @axis=0;",
    ),
    "elements that overlap in part": (
        _BYTE + "%16 : i32 = tt.load %15; tt.store %0 %2; tt.store %1 %16;",
        _BYTE + "tt.store %0 %2; %16 : i32 = tt.load %15; tt.store %1 %16;",
    ),
    "how numbers are printed": ("tt.print %2 @\"n\";", "tt.print %2 @\"n\" @hex=true;"),
}  # fmt: skip


def _with_head(ops: str) -> Op:
    return zg.parse(
        'module ()void -> { tt.func @"f" (%0 : ptr<i32>, %1 : ptr<i32>, %2 : i32)void -> '
        f"{{ {_HEAD} {ops} tt.return; }}; unreachable; }};"
    )


@pytest.mark.parametrize("what", UNLIKE)
def test_models_that_differ_are_not_proved_equal(what: str) -> None:
    first, second = map(_with_head, UNLIKE[what])
    assert not proved(first, second)


# Ops after those of `_HEAD`, whether a proof reads in them what it reads in `_PLAIN`, and what is unlike.
_PLAIN = "%10 : tensor<x32, i32> = arith.addi %6 %6; tt.store %5 %10; tt.store %1 %2;"
OUTLINES = [
    (True, "%12 : i32 = arith.muli %2 %2;" + _PLAIN, "an op that nobody uses"),
    (True, _PLAIN + "tt.barrier;", "a barrier"),
    (True, "%11 : tensor<x32, i32> = tt.make_range @start=0 @end=32;" + _PLAIN.replace("%10", "%12"), "other names"),
    (False, "%12 : i32 = arith.divsi %2 %2;" + _PLAIN, "a division that nobody uses"),
    (False, _PLAIN.replace("addi", "subi"), "another op"),
    (False, _PLAIN.replace("tt.store %1 %2;", "") + "tt.store %1 %7;", "another number"),
    (False, "tt.store %1 %2;" + _PLAIN.replace("tt.store %1 %2;", ""), "stores in another order"),
    (False, "%12 : i32 = tt.load %1;" + _PLAIN, "a load"),
]


@pytest.mark.parametrize(("alike", "ops", "what"), OUTLINES)
def test_outlines_have_all_that_proofs_read(alike: bool, ops: str, what: str) -> None:
    outlines = Outlines()
    plain, other = (_with_head(text) for text in (_PLAIN, ops))
    assert (outlines.of(plain) == outlines.of(other)) == alike


def test_addresses_of_shared_memory_count_where_buffers_overlap() -> None:
    text, outlines = str(dict(small_kernels.compiled("product"))["allocate"]), Outlines()

    def outline(distance: int) -> Any:
        offsets = itertools.count(0, distance)
        return outlines.of(zg.parse(re.sub(r"@offset=\d+", lambda _: f"@offset={next(offsets)}", text)))

    assert outline(1 << 16) == outline(1 << 17)
    assert outline(1 << 16) != outline(0)


def test_the_clock_gives_no_counterexample() -> None:
    def traced(x: Any) -> None:
        zg.store(x, zg.globaltimer())

    model = zg.trace(traced, zg.ptr(zg.i64))
    assert zg.prove(model, model)


@zg.kernel
def rounded(a, b, c, d):
    at = zg.add(zg.mul(zg.expand(zg.arange(0, 16), 1), 16), zg.expand(zg.arange(0, 16), 0))
    doubled = zg.mul(zg.load(zg.add(a, at)), 2.0)
    zg.store(zg.add(c, at), zg.dot(doubled, zg.load(zg.add(b, at)), zg.zeros((16, 16), zg.f32), input_precision="tf32"))
    zg.store(zg.add(d, at), doubled)


def test_a_product_alone_may_take_floats_that_are_rounded() -> None:
    model, snapshots = rounded.triton(*[zg.divisible(FLOATS)] * 4), list[Snapshot]()
    place(model, CompileOptions("sm_80", 1), snapshots)
    (text,) = (str(snapshot.model) for snapshot in snapshots if snapshot.name == "dots")
    operand, source = expect_match(r"(%\d+) : [^;]*= gpu.round_tf32 (%\d+)", text)[1:]
    assert proved(model, zg.parse(text))
    wrong = re.sub(rf"(tt.store %\d+) {source} ", rf"\1 {operand} ", text)
    assert wrong != text and not proved(model, zg.parse(wrong))
