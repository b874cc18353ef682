"""The simulation of text written by hand: results of instructions, divergence of threads, and errors."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.simulator.program import Blocked
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.codemodel.errors import TargetError

OUT = "%q = getelementptr i32, ptr addrspace(1) %p0, i32 %tid\n"
SHARED = "%s = getelementptr i32, ptr addrspace(3) @smem, i32 %tid\n"
BARRIER = 'call void asm sideeffect "bar.sync 0;", "~{memory}"() #1\n'


def stored(value: str = "%v") -> str:
    return f"{OUT}store i32 {value}, ptr addrspace(1) %q, align 4"


def given(by_hand, lines: str, *arguments, **more) -> list[int]:
    """The value `%v` of each thread, as signed numbers."""
    out = np.zeros(32 * more.get("num_warps", 1), np.int32)
    by_hand(lines + "\n" + stored(), out, *arguments, **more)
    return out.tolist()


def test_every_thread_of_every_program(by_hand) -> None:
    out = np.zeros((2, 3, 64), np.int32)
    by_hand(
        """%x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
        %y = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
        %n = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
        %a = mul i32 %y, %n
        %b = add i32 %a, %x
        %c = mul i32 %b, 64
        %d = add i32 %c, %tid
        %q = getelementptr i32, ptr addrspace(1) %p0, i32 %d
        store i32 %d, ptr addrspace(1) %q, align 4""",
        out,
        num_warps=2,
        grid=(3, 2),
    )
    assert out.ravel().tolist() == list(range(384))


def test_more_threads_where_the_text_says_so(by_hand) -> None:
    out = np.zeros(64, np.int32)
    by_hand(stored("1"), out, num_warps=1, attributes='"nvvm.reqntid"="64"')
    assert out.sum() == 64


@pytest.mark.parametrize("line, expected", [
    ("add nsw i32 -7, 2", -5), ("sdiv i32 -7, 2", -3), ("srem i32 -7, 2", -1), ("udiv i32 -8, 2", 0x7FFFFFFC),
    ("ashr i32 -7, 1", -4), ("lshr i32 -2, 31", 1), ("shl nuw i32 3, 4", 48), ("xor i32 6, 3", 5),
    ("select i1 true, i32 4, i32 5", 4), ("sext i8 200 to i32", -56), ("zext i8 200 to i32", 200),
    ("sitofp i32 -3 to float", np.float32(-3).view(np.int32)),
    ("uitofp i8 255 to float", np.float32(255).view(np.int32)),
    ("fptosi float 0xC004000000000000 to i32", -2), ("bitcast float 0x3FF0000000000000 to i32", 0x3F800000),
    ("call i32 @llvm.smax.i32(i32 -1, i32 1)", 1), ("call i32 @llvm.umax.i32(i32 -1, i32 1)", -1),
    ("call i32 @llvm.abs.i32(i32 -9, i1 false)", 9),
])  # fmt: skip
def test_results_of_instructions(line: str, expected: int, by_hand) -> None:
    value = f"%r = {line}\n"
    if line.startswith("sitofp") or line.startswith("uitofp"):
        value += "%v = bitcast float %r to i32"
    else:
        value += "%v = add i32 %r, 0"
    assert given(by_hand, value) == [expected] * 32


@pytest.mark.parametrize("predicate, expected", [
    ("oeq", 0), ("une", 1), ("ult", 1), ("olt", 0), ("ord", 0), ("uno", 1),
])  # fmt: skip
def test_comparisons_with_nan(predicate: str, expected: int, by_hand) -> None:
    text = f"%c = fcmp {predicate} float 1.0, %p1\n%v = zext i1 %c to i32".replace("1.0", "0x3FF0000000000000")
    assert given(by_hand, text, float("nan")) == [expected] * 32


@pytest.mark.parametrize("function, expected", [("maxnum", 1.0), ("minnum", 1.0), ("maximum", np.nan)])
def test_nan_and_the_larger_number(function: str, expected: float, by_hand) -> None:
    text = f"""%r = call float @llvm.{function}.f32(float %p1, float 0x3FF0000000000000)
        %v = bitcast float %r to i32"""
    actual = np.array(given(by_hand, text, float("nan")), np.int32).view(np.float32)
    np.testing.assert_array_equal(actual, np.full(32, expected))


def test_vectors_are_lists_of_values(by_hand) -> None:
    text = """%a = insertelement <2 x i16> poison, i16 1, i32 0
        %b = insertelement <2 x i16> %a, i16 2, i32 1
        %c = bitcast <2 x i16> %b to i32
        %d = bitcast i32 %c to <2 x i16>
        %e = extractelement <2 x i16> %d, i32 1
        %f = zext i16 %e to i32
        %v = add i32 %c, %f"""
    assert given(by_hand, text) == [0x20001 + 2] * 32


@pytest.mark.parametrize("line, expected", [
    ("%a = add <2 x i32> splat (i32 3), <i32 4, i32 5>\n%v = extractelement <2 x i32> %a, i64 1", 8),
    ("%a = shufflevector <2 x i32> <i32 4, i32 5>, <2 x i32> poison, <2 x i32> <i32 1, i32 0>\n"
     "%v = extractelement <2 x i32> %a, i64 0", 5),
    ("%a = shufflevector <2 x i32> <i32 4, i32 5>, <2 x i32> <i32 6, i32 7>, <2 x i32> splat (i32 3)\n"
     "%v = extractelement <2 x i32> %a, i64 1", 7),
    ("%v = add i32 7, ptrtoint (ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @smem, i64 16) to i32)", 23),
    ("%v = xor i32 1, xor (i32 ptrtoint (ptr addrspace(3) @smem to i32), i32 6)", 7), ("%v = freeze i32 9", 9),
    ("%a = insertvalue { i32, i32 } poison, i32 4, 1\n%v = extractvalue { i32, i32 } %a, 1", 4),
    ("%a = trunc i32 255 to i4\n%b = add i4 %a, 2\n%v = zext i4 %b to i32", 1),
    ("%a = add i33 4294967295, 4294967295\n%b = lshr i33 %a, 1\n%v = trunc i33 %b to i32", -1),
    ("%a = fadd float 1.500000e+00, 0x4000000000000000\n%v = fptoui float %a to i32", 3),
    ("%a = getelementptr [2 x [4 x i32]], ptr addrspace(3) @smem, i64 1, i64 1, i64 2\n"
     "%v = ptrtoint ptr addrspace(3) %a to i32", 56),
])  # fmt: skip
def test_constants_and_vectors_of_llvm(line: str, expected: int, by_hand) -> None:
    assert given(by_hand, line) == [expected] * 32


def test_a_switch_and_where_its_values_come_from(by_hand) -> None:
    text = """%x = and i32 %tid, 3
        switch i32 %x, label %other [
        i32 0, label %after
        i32 2, label %two
        ]
        two:
        %y = add i32 %tid, 100
        br label %after
        other:
        br label %after
        after:
        %v = phi i32 [ -7, %entry ], [ %y, %two ], [ 5, %other ]"""
    assert given(by_hand, text) == [[-7, 5, n + 100, 5][n % 4] for n in range(32)]


def test_blocks_in_any_order(by_hand) -> None:
    """Diverged paths meet again, whatever the order of the blocks in the text: all threads reach the barrier."""
    text = f"""%c = icmp ult i32 %tid, 40
        br i1 %c, label %one, label %two
        meet:
        {BARRIER}br label %end
        two:
        br label %meet
        one:
        br label %meet
        end:
        %v = add i32 %tid, 1"""
    assert given(by_hand, text, num_warps=2) == list(range(1, 65))


def test_unreachable_instructions(by_hand) -> None:
    text = """%c = icmp ult i32 %tid, LIMIT
        br i1 %c, label %after, label %never
        never:
        unreachable
        after:"""
    by_hand(text.replace("LIMIT", "32"))
    with pytest.raises(SimulationError, match="says is unreachable"):
        by_hand(text.replace("LIMIT", "31"))


@pytest.mark.parametrize("how, by, source", [
    ("bfly", 3, lambda lane: lane ^ 3), ("idx", 5, lambda lane: 5),
    ("up", 4, lambda lane: lane - 4 if lane > 3 else lane),
    ("down", 4, lambda lane: lane + 4 if lane < 28 else lane),
])  # fmt: skip
def test_shuffles_stay_in_their_warps(how: str, by: int, source, by_hand) -> None:
    text = f"%v = call i32 @llvm.nvvm.shfl.sync.{how}.i32(i32 -1, i32 %tid, i32 {by}, i32 31)"
    expected = [source(thread % 32) + thread // 32 * 32 for thread in range(64)]
    assert given(by_hand, text, num_warps=2) == expected


def test_threads_diverge_and_meet_again(by_hand) -> None:
    """A loop whose trip count is the thread's number, and its carried value."""
    text = """br label %head
        head:
        %i = phi i32 [ 0, %entry ], [ %j, %body ]
        %sum = phi i32 [ 0, %entry ], [ %more, %body ]
        %go = icmp slt i32 %i, %tid
        br i1 %go, label %body, label %after
        body:
        %more = add i32 %sum, %i
        %j = add i32 %i, 1
        br label %head
        after:
        %v = add i32 %sum, 0"""
    assert given(by_hand, text) == [n * (n - 1) // 2 for n in range(32)]


def test_guarded_assembly_is_done_where_the_guard_holds(by_hand) -> None:
    x, out = np.arange(32, dtype=np.int32), np.full(64, -1, np.int32)
    by_hand(
        f"""%even = and i32 %tid, 1
        %c = icmp eq i32 %even, 0
        %from = getelementptr i32, ptr addrspace(1) %p1, i32 %tid
        %v = call i32 asm sideeffect "mov.u32 $0, $2; @$3 ld.global.b32 $0, [ $1 + 0 ];", \
"=r,l,r,b"(ptr addrspace(1) %from, i32 -5, i1 %c) #1
        {OUT}
        call void asm sideeffect "@$2 st.global.b32 [ $0 + 0 ], $1;", "l,r,b"(ptr addrspace(1) %q, i32 %v, i1 %c) #1
        %far = getelementptr i32, ptr addrspace(1) %q, i32 32
        store i32 %v, ptr addrspace(1) %far, align 4""",
        out,
        x,
    )
    assert out[:32].tolist() == [n if n % 2 == 0 else -1 for n in range(32)]
    assert out[32:].tolist() == [n if n % 2 == 0 else -5 for n in range(32)]


def test_a_barrier_orders_stores_and_loads(by_hand) -> None:
    text = f"""{SHARED}store i32 %tid, ptr addrspace(3) %s, align 4
        {BARRIER}%other = xor i32 %tid, 63
        %t = getelementptr i32, ptr addrspace(3) @smem, i32 %other
        %v = load i32, ptr addrspace(3) %t, align 4"""
    assert given(by_hand, text, num_warps=2, shared=256) == list(range(63, -1, -1))
    with pytest.raises(SimulationError, match=r"another thread has written|in flight"):
        given(by_hand, text.replace(BARRIER, ""), num_warps=2, shared=256)


def test_shared_memory_begins_as_noise(by_hand) -> None:
    actual = given(by_hand, f"{SHARED}%v = load i32, ptr addrspace(3) %s, align 4", shared=128)
    assert len(set(actual)) > 16


@pytest.mark.parametrize("lines, expected", [
    ("%a = getelementptr i8, ptr addrspace(1) %p0, i32 1\n"
     "store i32 0, ptr addrspace(1) %a, align 4", "must be aligned"),
    ("%a = getelementptr i32, ptr addrspace(1) %p0, i32 32\n"
     "store i32 0, ptr addrspace(1) %a, align 4", "inside of"),
    ("%a = getelementptr i32, ptr addrspace(1) %p0, i32 -1\n"
     "%v = load i32, ptr addrspace(1) %a, align 4", "inside of"),
    ("%a = getelementptr i32, ptr addrspace(3) @smem, i32 9\n"
     "%v = load i32, ptr addrspace(3) %a, align 4", "inside of"),
    (SHARED.replace("%tid", "0") + "store i32 %tid, ptr addrspace(3) %s, align 4", "two threads|same"),
])  # fmt: skip
def test_accesses_that_no_program_may_do(lines: str, expected: str, by_hand) -> None:
    with pytest.raises(SimulationError, match=expected):
        by_hand(lines, np.zeros(32, np.int32), shared=32)


def some(lines: str) -> str:
    """Executed by the first half of the threads only."""
    return f"""%c = icmp ult i32 %tid, 32
        br i1 %c, label %one, label %after
        one:
        {lines}
        br label %after
        after:"""


def test_all_threads_come_to_a_barrier(by_hand) -> None:
    with pytest.raises(SimulationError, match="deadlock: a barrier is for"):
        by_hand(some(BARRIER.strip()), num_warps=2)
    by_hand(some(BARRIER.strip().replace("bar.sync 0", "bar.sync 1, 32")), num_warps=2)
    for count in (64, 16, 33):
        with pytest.raises(SimulationError, match="barrier"):
            by_hand(some(BARRIER.strip().replace("bar.sync 0", f"bar.sync 1, {count}")), num_warps=2)


def test_all_threads_come_to_a_shuffle(by_hand) -> None:
    with pytest.raises(SimulationError, match="all threads must come to a shuffle"):
        by_hand(some("%v = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %tid, i32 0, i32 31)"), num_warps=2)


def test_a_wrong_assumption_is_noticed(by_hand) -> None:
    by_hand("%c = icmp ult i32 %tid, 32\ncall void @llvm.assume(i1 %c)")
    with pytest.raises(SimulationError, match="assumes must hold"):
        by_hand("%c = icmp ult i32 %tid, 31\ncall void @llvm.assume(i1 %c)")


@pytest.mark.parametrize("line", [
    "%v = frobnicate i32 %tid", "%v = call i32 @llvm.frobnicate.i32(i32 %tid)",
    "%v = sdiv i24 5, 2", "%v = call i32 @mine(i32 %tid)",
    'call void asm sideeffect "nanosleep.u32 $0;", "r"(i32 %tid) #1',
])  # fmt: skip
def test_text_that_is_not_known_is_an_error(line: str, by_hand) -> None:
    with pytest.raises(TargetError):
        by_hand(line)


def test_blocked_threads_and_why() -> None:
    blocked = Blocked(np.array([True, False]), "they wait")
    assert str(blocked) == "they wait" and blocked.threads.tolist() == [True, False]


def test_the_timer_goes_on(by_hand) -> None:
    read = 'call i64 asm sideeffect "mov.u64 $0, %globaltimer;", "=l,~{memory}"() #4'
    out = np.zeros(1, np.int64)
    by_hand(f"%a = {read}\n%b = {read}\n%c = sub i64 %b, %a\nstore i64 %c, ptr addrspace(1) %p0, align 8", out)
    assert out[0] >= 0
    with pytest.raises(TargetError):
        by_hand('%a = call i32 asm sideeffect "mov.u32 $0, %warpid;", "=r,~{memory}"() #4', out)
