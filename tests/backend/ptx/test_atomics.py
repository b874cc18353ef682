"""Atomic accesses as instructions: which there are, in which order with others, and the loops around the rest."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.text.parser import parse

OWNED = '"1 | 2 4 8 16 32 | 64 128"'
LANES = '"| 1 2 4 0 0 |"'


def kernel(parameters: str, body: str, target: str = "sm_90a", num_warps: int = 4) -> gpu.Module:
    module = parse(f"""gpu.module @target="{target}" @num_warps={num_warps} ()void -> {{
        tt.func @"k" ({parameters})void -> {{ {body} tt.return; }}; unreachable; }};""")
    assert isinstance(module, gpu.Module)
    return module


def scalar(element: str, op: str, uses: str = "", target: str = "sm_90a") -> str:
    """The LLVM text of one access of a scalar, `%r`; `%p` points to what it changes."""
    parameters = f"%p : ptr<{element}>, %x : {element}, %y : {element}, %m : i1"
    return to_llvm(kernel(parameters, f"%r : {element} = {op}; {uses}", target))


def accesses(llvm: str) -> list[str]:
    """The instructions of atomic accesses, without their operands."""
    return re.findall(r"\b(?:atom|red|st\.re\w+)\.[\w.]+", llvm)


@pytest.mark.parametrize(("element", "kind", "expected"), [
    ("i32", "add", "red.relaxed.gpu.global.add.u32"), ("i64", "add", "red.relaxed.gpu.global.add.u64"),
    ("i32", "max", "red.relaxed.gpu.global.max.s32"), ("u32", "umax", "red.relaxed.gpu.global.max.u32"),
    ("i64", "min", "red.relaxed.gpu.global.min.s64"), ("u64", "umin", "red.relaxed.gpu.global.min.u64"),
    ("i32", "and", "red.relaxed.gpu.global.and.b32"), ("i64", "or", "red.relaxed.gpu.global.or.b64"),
    ("u32", "xor", "red.relaxed.gpu.global.xor.b32"), ("f16", "fadd", "red.relaxed.gpu.global.add.noftz.f16"),
    ("f32", "fadd", "red.relaxed.gpu.global.add.f32"), ("f64", "fadd", "red.relaxed.gpu.global.add.f64"),
    ("bf16", "fadd", "red.relaxed.gpu.global.add.noftz.bf16"), ("f32", "xchg", "st.relaxed.gpu.global.b32"),
])  # fmt: skip
def test_an_atomic_with_an_instruction_is_that_instruction(element: str, kind: str, expected: str) -> None:
    """PTX has no `red.exch`: an exchange whose result nothing uses is a store."""
    assert accesses(scalar(element, f"tt.atomic_rmw %p %x @{kind} @sem=relaxed")) == [expected]


@pytest.mark.parametrize(("element", "kind", "target", "word"), [
    ("i8", "add", "sm_90a", "b32"), ("i16", "max", "sm_90a", "b16"), ("f16", "fmax", "sm_90a", "b16"),
    ("bf16", "fadd", "sm_80", "b16"), ("f8e4m3", "fadd", "sm_90a", "b32"), ("i1", "xor", "sm_90a", "b32"),
    ("u16", "xchg", "sm_90a", "b16"),
])  # fmt: skip
def test_the_rest_is_a_loop_around_compare_and_swap(element: str, kind: str, target: str, word: str) -> None:
    llvm = scalar(element, f"tt.atomic_rmw %p %x @{kind} @sem=relaxed", target=target)
    assert accesses(llvm) == [f"atom.relaxed.gpu.global.cas.{word}"]
    # Memory is read once before the loop; each retry uses the word that the swap found.
    assert llvm.count(f"ld.relaxed.gpu.global.{word}") == 1
    match = re.search(r"(%phi\d+) = phi (i16|i32) \[ %v\d+, %swap\d+ \], \[ (%v\d+), %again\d+ \]", llvm)
    assert match is not None
    assert f"icmp eq {match[2]} {match[3]}, {match[1]}\n" in llvm


def test_a_byte_is_swapped_in_the_aligned_word_around_it() -> None:
    llvm = scalar("u8", "tt.atomic_rmw %p %x @add @sem=relaxed")
    assert re.search(r"and i64 %v\d+, -4", llvm) and re.search(r"and i64 %v\d+, 3", llvm)
    shift = re.search(r"(%v\d+) = shl i32 %v\d+, 3", llvm)
    assert shift is not None
    mask = re.search(rf"(%v\d+) = shl i32 255, {shift[1]}", llvm)
    assert mask is not None and f"xor i32 {mask[1]}, -1" in llvm


def test_a_compare_and_swap_of_a_byte_stops_where_another_value_is() -> None:
    llvm = scalar("u8", "tt.atomic_cas %p %x %y @sem=relaxed")
    stop = re.search(r"(%v\d+) = icmp ne i8 %v\d+, %p1", llvm)
    assert stop is not None
    assert re.search(rf"br i1 {stop[1]}, label %done\d+, label %again\d+", llvm)


@pytest.mark.parametrize(("element", "bits"), [("i16", 16), ("f16", 16), ("f32", 32), ("i64", 64), ("f64", 64)])
def test_a_wider_compare_and_swap_is_one_instruction(element: str, bits: int) -> None:
    llvm = scalar(element, "tt.atomic_cas %p %x %y @sem=acq_rel @scope=sys")
    assert accesses(llvm) == [f"atom.acq_rel.sys.global.cas.b{bits}"]
    assert "phi" not in llvm


@pytest.mark.parametrize(("sem", "uses", "unused", "barriers"), [
    ("relaxed", "relaxed", "relaxed", (2, 0)), ("acquire", "acquire", "relaxed", (2, 0)),
    ("release", "release", "release", (3, 1)), ("acq_rel", "acq_rel", "release", (3, 1)),
])  # fmt: skip
def test_an_unused_result_needs_no_acquire(sem: str, uses: str, unused: str, barriers: tuple[int, int]) -> None:
    """A release has one barrier before it; handing a result to all threads takes two more."""
    op = f"tt.atomic_rmw %p %x @add @sem={sem} @scope=cta"
    with_result, without = scalar("i32", op, "tt.store %p %r;"), scalar("i32", op)
    assert accesses(with_result) == [f"atom.{uses}.cta.global.add.u32"]
    assert accesses(without) == [f"red.{unused}.cta.global.add.u32"]
    assert (with_result.count("bar.sync"), without.count("bar.sync")) == barriers


def test_an_exchange_acquires_though_its_result_is_unused() -> None:
    """Programs release a lock by it that they take by a relaxed compare-and-swap."""
    assert accesses(scalar("i32", "tt.atomic_rmw %p %x @xchg @sem=acq_rel")) == ["atom.acq_rel.gpu.global.exch.b32"]


def test_a_mask_is_a_predicate_together_with_that_of_the_owner() -> None:
    llvm = scalar("i32", "tt.atomic_rmw %p %x %m @add @sem=relaxed")
    owner = re.search(r"(%v\d+) = icmp eq i32 %v\d+, 0", llvm)
    assert owner is not None
    both = re.search(rf"(%v\d+) = and i1 {owner[1]}, %p3", llvm)
    assert both is not None
    assert re.search(rf'"@\$2 red\.[^"]*", "[^"]*"\(ptr addrspace\(1\) %p0, i32 %p1, i1 {both[1]}\)', llvm)


def test_the_larger_float_is_found_by_its_bits() -> None:
    op = "tt.atomic_rmw %p %x @fmax @sem=relaxed @scope=cta"
    llvm = scalar("f32", op)
    assert accesses(llvm) == ["red.relaxed.cta.global.max.s32", "red.relaxed.cta.global.min.u32"]
    assert re.search(r"fcmp ord float %p1, %p1", llvm) and "0xFFF0000000000000" in llvm  # A NaN changes nothing.
    smaller = scalar("f64", op.replace("fmax", "fmin"))
    assert accesses(smaller) == ["red.relaxed.cta.global.min.s64", "red.relaxed.cta.global.max.u64"]
    assert "0x7FF0000000000000" in smaller


def test_a_scalar_is_given_to_all_threads() -> None:
    parameters = "%n : ptr<i32>, %i : i32"
    ptx = assemble(kernel(parameters, "%r : i32 = tt.atomic_rmw %n %i @add; tt.store %n %r;")).ptx
    before, after = ptx.split("atom.acq_rel.gpu.global.add.u32")
    assert before.count("bar.sync") == 1 and after.count("bar.sync") == 2
    assert after.index("st.shared") < after.index("bar.sync") < after.index("ld.shared")


def tensor_kernel(layout: str, numel: int, num_warps: int, uses: bool) -> str:
    """Each element of an i32 tensor is added to memory; the old values go to `%o`."""

    def of(element: str) -> str:
        return f"tensor<x{numel}, {element}, {layout}>"

    values = f"%6 : {of('ptr<i32>')} = tt.splat %o; %7 : {of('ptr<i32>')} = tt.addptr %6 %0; tt.store %7 %5;"
    body = f"""%0 : {of("i32")} = tt.make_range @start=0 @end={numel};
        %1 : {of("ptr<i32>")} = tt.splat %p; %2 : {of("ptr<i32>")} = tt.addptr %1 %0;
        %3 : {of("i32")} = tt.splat %n; %4 : {of("i32")} = arith.addi %0 %3;
        %5 : {of("i32")} = tt.atomic_rmw %2 %4 @add; {values if uses else ""}"""
    return to_llvm(kernel("%p : ptr<i32>, %o : ptr<i32>, %n : i32", body, num_warps=num_warps))


@pytest.mark.parametrize(("layout", "numel", "num_warps"), [(OWNED, 256, 4), (LANES, 8, 1)])
@pytest.mark.parametrize("uses", [False, True])
def test_each_element_is_added_once(layout: str, numel: int, num_warps: int, uses: bool) -> None:
    """One of the lanes with copies adds, and a shuffle gives the others the result."""
    llvm = tensor_kernel(layout, numel, num_warps, uses)
    assert ("shfl.sync.idx" in llvm) == (uses and numel == 8)
    memory, old = np.arange(numel, dtype=np.int32) * 3, np.full(numel, -1, np.int32)
    arguments = [memory.view(np.uint8), old.view(np.uint8), 5]
    simulate(llvm, num_warps=num_warps, shared=0, arguments=arguments)
    number = np.arange(numel)
    np.testing.assert_array_equal(memory, number * 4 + 5)
    np.testing.assert_array_equal(old, number * 3 if uses else np.full(numel, -1))


MASKED = [
    ("f32", "fmax", np.float32), ("f64", "fmin", np.float64), ("f32", "fadd", np.float32), ("i32", "max", np.int32),
    ("u64", "umin", np.uint64), ("i32", "xchg", np.int32), ("f16", "fadd", np.float16), ("f64", "fadd", np.float64),
    ("i64", "max", np.int64), ("u32", "umax", np.uint32), ("i64", "add", np.int64), ("i64", "xchg", np.int64),
]  # fmt: skip


@pytest.mark.parametrize(("element", "kind", "dtype"), MASKED)
def test_masked_lanes_leave_memory_as_it_is(element: str, kind: str, dtype: type[np.generic]) -> None:
    """Each lane updates an element of its own, and gets what was there, with negative numbers and zeros of floats."""
    layout = '"| 1 2 4 8 16 |"'
    numbers = f"tensor<x32, {element}, {layout}>"
    body = f"""
        %at : tensor<x32, i32, {layout}> = tt.make_range @start=0 @end=32;
        %p : tensor<x32, ptr<{element}>, {layout}> = tt.splat %x;
        %x.at : tensor<x32, ptr<{element}>, {layout}> = tt.addptr %p %at;
        %q : tensor<x32, ptr<{element}>, {layout}> = tt.splat %y;
        %y.at : tensor<x32, ptr<{element}>, {layout}> = tt.addptr %q %at;
        %o : tensor<x32, ptr<{element}>, {layout}> = tt.splat %out;
        %out.at : tensor<x32, ptr<{element}>, {layout}> = tt.addptr %o %at;
        %n : tensor<x32, i32, {layout}> = arith.constant @20;
        %mask : tensor<x32, i1, {layout}> = arith.cmpi %at %n @slt;
        %value : {numbers} = tt.load %y.at;
        %old : {numbers} = tt.atomic_rmw %x.at %value %mask @{kind};
        tt.store %out.at %old %mask;
    """
    module = kernel(f"%x : ptr<{element}>, %y : ptr<{element}>, %out : ptr<{element}>", body, num_warps=1)
    random = np.random.default_rng(5)
    low = 0 if element[0] == "u" else -5
    x, y = (random.integers(low, 6, 32).astype(dtype) for _ in range(2))
    before, out = x.copy(), np.full(32, 9, dtype)
    simulate(to_llvm(module), num_warps=1, shared=0, arguments=[x, y, out])
    function = {"max": np.maximum, "min": np.minimum, "add": np.add, "chg": lambda old, new: new}[kind[-3:]]
    expected = np.concatenate([function(before, y)[:20], before[20:]])
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(out, np.concatenate([before[:20], np.full(12, 9, dtype)]))


@pytest.mark.parametrize("uses", [False, True])
def test_several_accesses_of_a_thread_have_one_fence(uses: bool) -> None:
    """An access of its own order would wait for all accesses of the thread before it."""
    llvm = tensor_kernel(OWNED, 256, 4, uses)
    assert accesses(llvm) == 2 * [f"{'atom' if uses else 'red'}.relaxed.gpu.global.add.u32"]
    assert llvm.count("fence.acq_rel.gpu;") == 1 + uses
