"""Atomics of global memory in the simulation: the threads access memory one after the other."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.codemodel.errors import TargetError


def adding(text: str, arguments: str, constraints: str = "l,r,~{memory}", result: str = "void", name: str = "") -> str:
    return f'{name}call {result} asm sideeffect "{text}", "{constraints}"(ptr addrspace(1) %p0, {arguments}) #1'


def test_all_threads_add_to_one_place(by_hand) -> None:
    out = np.array([5], np.int32)
    by_hand(adding("red.relaxed.gpu.global.add.u32 [ $0 + 0 ], $1;", "i32 %tid"), out, num_warps=2)
    assert out.tolist() == [5 + 63 * 32]


def test_each_thread_gets_what_was_there(by_hand) -> None:
    """One after the other, by number."""
    total, olds = np.array([7], np.int32), np.zeros(32, np.int32)
    text = adding("atom.acq_rel.gpu.global.add.u32 $0, [ $1 + 0 ], $2;", "i32 2", "=r,l,r,~{memory}", "i32", "%old = ")
    by_hand(
        text + "\n%q = getelementptr i32, ptr addrspace(1) %p1, i32 %tid\nstore i32 %old, ptr addrspace(1) %q, align 4",
        total,
        olds,
    )
    assert total.tolist() == [7 + 64] and olds.tolist() == [7 + 2 * thread for thread in range(32)]


def test_only_where_the_guard_holds(by_hand) -> None:
    out = np.zeros(1, np.int32)
    by_hand(
        "%c = icmp ult i32 %tid, 5\n"
        + adding("@$2 red.relaxed.gpu.global.add.u32 [ $0 + 0 ], $1;", "i32 1, i1 %c", "l,r,b,~{memory}"),
        out,
    )
    assert out.tolist() == [5]


@pytest.mark.parametrize("name, kind, dtype", [("f32", "float", np.float32), ("f64", "double", np.float64)])
def test_floats(name: str, kind: str, dtype, by_hand) -> None:
    out = np.zeros(1, dtype)
    text = f"%x = uitofp i32 %tid to {kind}\n"
    by_hand(text + adding(f"red.relaxed.gpu.global.add.{name} [ $0 + 0 ], $1;", f"{kind} %x"), out)
    assert out.tolist() == [496]


@pytest.mark.parametrize("name, dtype", [("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16)])
def test_a_pair_is_added_element_by_element(name: str, dtype, by_hand) -> None:
    out = np.array([1, 2], dtype)
    pair = int(np.array([1, 2], dtype).view(np.uint32)[0])
    by_hand(adding(f"red.relaxed.gpu.global.add.noftz.{name} [ $0 + 0 ], $1;", f"i32 {pair}"), out)
    assert out.astype(float).tolist() == [33, 66]


def test_neighbours_are_added_together(by_hand) -> None:
    out, unit = np.zeros(2, np.float32), int(np.float32(1).view(np.uint32))
    two = int(np.float32(2).view(np.uint32))
    text = "red.relaxed.gpu.global.add.v2.f32 [ $0 + 0 ], {$1, $2};"
    by_hand(adding(text, f"i32 {unit}, i32 {two}", "l,r,r,~{memory}"), out)
    assert out.tolist() == [32, 64]


def test_an_access_is_aligned_as_a_whole(by_hand) -> None:
    text = adding("red.relaxed.gpu.global.add.v2.f32 [ $0 + 0 ], {$1, $2};", "i32 0, i32 0", "l,r,r,~{memory}")
    result = "%at = getelementptr i32, ptr addrspace(1) %p0, i32 1\n" + text.replace(
        "addrspace(1) %p0", "addrspace(1) %at"
    )
    with pytest.raises(SimulationError, match="atomic access of 8 bytes must be aligned"):
        by_hand(result, np.zeros(4, np.float32))
    with pytest.raises(SimulationError, match="inside of its array"):
        by_hand(result.replace("i32 1\n", "i32 4\n"), np.zeros(4, np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "red.global.add.u32 [ $0 + 0 ], $1;",
        "red.relaxed.gpu.global.add.u32 [ $0 + 4 ], $1;",
        "red.relaxed.gpu.global.inc.u32 [ $0 + 0 ], $1;",
    ],
)
def test_other_forms_are_not_known(text: str, by_hand) -> None:
    with pytest.raises(TargetError):
        by_hand(adding(text, "i32 1"), np.zeros(4, np.int32))


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("max.s32", np.int32, 31), ("min.s32", np.int32, -5), ("max.u32", np.uint32, 2**32 - 5),
        ("or.b32", np.int32, -5 | 31), ("and.b32", np.int32, 0), ("xor.b32", np.int32, -5), ("exch.b32", np.int32, 31),
    ],
)  # fmt: skip
def test_other_operators(name: str, dtype, expected: int, by_hand) -> None:
    """The extreme of -5 and the threads' numbers."""
    out = np.array([-5], np.int32)
    by_hand(adding(f"red.relaxed.gpu.global.{name} [ $0 + 0 ], $1;", "i32 %tid"), out)
    assert out.view(dtype).tolist() == [expected]


def test_compare_and_swap(by_hand) -> None:
    """Each thread finds what the one before it has left."""
    out, olds = np.array([0], np.int32), np.zeros(32, np.int32)
    text = "%next = add i32 %tid, 1\n" + adding(
        "atom.acq_rel.gpu.global.cas.b32 $0, [ $1 + 0 ], $2, $3;",
        "i32 %tid, i32 %next", "=r,l,r,r,~{memory}", "i32", "%old = ",
    )  # fmt: skip
    by_hand(
        text + "\n%q = getelementptr i32, ptr addrspace(1) %p1, i32 %tid\nstore i32 %old, ptr addrspace(1) %q, align 4",
        out,
        olds,
    )
    assert out.tolist() == [32] and olds.tolist() == list(range(32))


def test_two_instructions_under_guards(by_hand) -> None:
    """The maximum of floats: a signed comparison of the bits, or an unsigned one."""
    out = np.array([3], np.int32)
    by_hand(
        "%c = icmp ult i32 %tid, 8\n%d = xor i1 %c, true\n"
        + adding(
            "@$2 red.relaxed.gpu.global.max.s32 [ $0 + 0 ], $1; @$3 red.relaxed.gpu.global.add.u32 [ $0 + 0 ], $1;",
            "i32 %tid, i1 %c, i1 %d",
            "l,r,b,b,~{memory}",
        ),
        out,
    )
    assert out.tolist() == [7 + sum(range(8, 32))]


@zg.kernel
def summed_by_the_last(buffer, counts, out, SIZE: zg.constexpr, SEM: zg.constexpr, STORES: zg.constexpr):
    at = zg.arange(0, SIZE)
    if STORES:
        _ = zg.atomic_add(counts + SIZE + at, 1)
    zg.store(buffer + zg.program_id(0) * SIZE + at, at)
    if zg.min(zg.atomic_add(counts + at, 1, sem=SEM), 0) == 2:
        total = zg.load(buffer + at) + zg.load(buffer + SIZE + at) + zg.load(buffer + 2 * SIZE + at)
        zg.store(out + at, total)


@pytest.mark.parametrize("size", [1, 16, 128])
@pytest.mark.parametrize("num_warps", [1, 2])
def test_a_fence_orders_programs_by_the_relaxed_atomics_after_it(size: int, num_warps: int) -> None:
    """Several accesses of a thread have one fence. One before the store does not order it."""
    pointer = zg.ptr(zg.i32)

    def run(sem: str, stores: bool) -> None:
        arrays = [np.zeros(length, np.int32) for length in (3 * size, 2 * size, size)]
        compiled = summed_by_the_last.compile(pointer, pointer, pointer, size, sem, stores, num_warps=num_warps)
        compiled.simulate[3](*arrays)
        np.testing.assert_array_equal(arrays[2], 3 * np.arange(size))

    run("acq_rel", False)
    run("acq_rel", True)
    for stores in (False, True):
        with pytest.raises(SimulationError, match=r"reads buffer\[0\], which program \(0, 0, 0\) has written"):
            run("relaxed", stores)


@zg.kernel
def added_to_few(x, out, SIZE: zg.constexpr):
    at = zg.arange(0, SIZE)
    _ = zg.atomic_add(out + at % 4, zg.load(x + at), at < SIZE - 3)


def test_loops_of_compare_and_swap_begin_with_a_relaxed_load() -> None:
    x, out = np.arange(64).astype(ml_dtypes.bfloat16) % 3, np.zeros(4, ml_dtypes.bfloat16)
    pointer = zg.ptr(zg.bf16)
    added_to_few.compile(pointer, pointer, 64, target="sm_80", num_warps=1).simulate[2](x, out)
    expected = [2 * x[:61][start::4].astype(np.float32).sum() for start in range(4)]
    np.testing.assert_array_equal(out.astype(np.float32), expected)
