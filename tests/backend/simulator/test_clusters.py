"""CTAs of a cluster that run at once: their barrier, stores to each other, and what must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ziggurat.codemodel.errors import SimulationError

CLUSTER = '"nvvm.cluster_dim"="2,1,1"'
RANK = "%rank = call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()"
ARRIVE = 'call void asm sideeffect "barrier.cluster.arrive.relaxed.aligned;", "~{memory}"()'
WAIT = 'call void asm sideeffect "barrier.cluster.wait.acquire.aligned;", "~{memory}"()'
INIT = """
    %is.first = icmp eq i32 %tid, 0
    %go = zext i1 %is.first to i32
    call void asm sideeffect "{ .reg .pred go; setp.ne.b32 go, $1, 0; @go mbarrier.init.shared::cta.b64 [$0+0], 1; @go \
fence.proxy.async.shared::cta; @go mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0+0], 8; }", "r,r,~{memory}"(i32 0, \
i32 %go)
"""
STORE = """
    %other = icmp ult i32 %tid, 2
    %bytes = mul i32 %rank, 4
    %place = add i32 %bytes, 16
    %value = add i32 %rank, 5
    call void asm sideeffect "{ .reg .b32 far, bar; mapa.shared::cluster.u32 far, $0, $2; mapa.shared::cluster.u32 \
bar, $1, $2; @$4 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [far], $3, [bar]; }", \
"r,r,r,r,b,~{memory}"(i32 %place, i32 0, i32 %tid, i32 %value, i1 %other)
"""
ARRIVED = """
    call void asm sideeffect "{ .reg .pred over; AGAIN_0: mbarrier.try_wait.parity.shared::cta.b64 over, [$0], $1; \
@!over bra AGAIN_0; }", "r,r,~{memory}"(i32 0, i32 0)
"""
READ = """
    %at = getelementptr i8, ptr addrspace(3) null, i32 16
    %pair = load <2 x i32>, ptr addrspace(3) %at, align 8
    %a = extractelement <2 x i32> %pair, i32 0
    %b = extractelement <2 x i32> %pair, i32 1
    %ten = mul i32 %a, 10
    %sum = add i32 %ten, %b
    %cta = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
    %of = getelementptr i32, ptr addrspace(1) %p0, i32 %cta
    call void asm sideeffect "@$2 st.global.b32 [ $0 + 0 ], $1;", "l,r,b,~{memory}"(ptr addrspace(1) %of, i32 %sum, i1 \
%is.first)
"""
WHOLE = (RANK, INIT, ARRIVE, WAIT, STORE, ARRIVED, READ)


def run(by_hand: Callable[..., None], *parts: str, seed: int = 0) -> list[int]:
    out: Any = np.zeros(4, np.int32)
    by_hand("\n".join(parts), out, shared=32, grid=(4,), seed=seed, attributes=CLUSTER)
    return out.tolist()


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_ctas_store_to_each_other(by_hand: Callable[..., None], seed: int) -> None:
    assert run(by_hand, *WHOLE, seed=seed) == [56] * 4


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((RANK, INIT, STORE, ARRIVED, READ), "must wait until the others have started"),
        ((RANK, INIT, ARRIVE, STORE, ARRIVED, READ), "must wait until the others have started"),
        ((RANK, INIT, ARRIVE, WAIT, STORE, READ), "has written since the last barrier|a wait is missing"),
        (
            (RANK, INIT, ARRIVE, WAIT, STORE),
            "must not end before another one stores to it|ends while a TMA load is in flight",
        ),
        ((RANK, ARRIVE, WAIT, STORE, ARRIVED), "an mbarrier must be initialised before"),
        ((RANK, ARRIVE, INIT, WAIT, STORE, ARRIVED, READ), "an mbarrier must be initialised before"),
        ((RANK, INIT, ARRIVE, WAIT, ARRIVED, STORE), "deadlock: threads wait for the phase of an mbarrier"),
        ((RANK, INIT, ARRIVE, WAIT, STORE.replace("i32 0, i32 %tid", "i32 0, i32 2")), "2 CTAs has no CTA 2"),
        ((RANK, WAIT), "must arrive at the barrier of the cluster before it waits"),
        ((RANK, ARRIVE, ARRIVE), "must wait for the barrier of the cluster before it arrives again"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_faults(by_hand: Callable[..., None], parts: tuple[str, ...], message: str, seed: int) -> None:
    with pytest.raises(SimulationError, match=message):
        run(by_hand, *parts, seed=seed)


RELEASE = ARRIVE.replace("relaxed", "release")
MEET = f"{RELEASE}\n{WAIT}"
PUT = 'call void asm sideeffect "@$2 st.global.b32 [ $0 + 0 ], $1;", "l,r,b,~{memory}"(ptr addrspace(1) %p0, i32 7, \
i1 %is.first)'
LOAD = "%loaded = load i32, ptr addrspace(1) %p0"
USE = PUT.replace("%p0", "%next").replace("i32 7", "i32 %loaded")


def run_two(by_hand: Callable[..., None], first: tuple[str, ...], other: tuple[str, ...], seed: int) -> list[int]:
    """The memory after two CTAs have run these lines."""
    lines = [
        RANK, "%is.first = icmp eq i32 %tid, 0", "%is.other = icmp eq i32 %rank, 1",
        "%next = getelementptr i32, ptr addrspace(1) %p0, i32 1", "br i1 %is.other, label %other, label %one",
        "one:", *first, "br label %over", "other:", *other, "br label %over", "over:",
    ]  # fmt: skip
    out: Any = np.zeros(2, np.int32)
    by_hand("\n".join(lines), out, grid=(2,), seed=seed, attributes=CLUSTER)
    return out.tolist()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("first", "other", "actual"),
    [
        ((PUT, MEET), (MEET, LOAD, USE), 7), ((PUT, MEET, MEET), (MEET, MEET, LOAD, USE), 7),
        ((MEET, PUT), (LOAD, USE, MEET), 0), ((MEET, PUT), (LOAD, MEET, USE), 0),
        ((RELEASE, WAIT, MEET, PUT), (RELEASE, LOAD, WAIT, USE, MEET), 0), ((PUT, RELEASE, WAIT), (MEET, PUT), 0),
        ((PUT,), (LOAD,), 0),
    ],
)  # fmt: skip
def test_the_barrier_orders_accesses_of_memory(
    by_hand: Callable[..., None], first: tuple[str, ...], other: tuple[str, ...], actual: int, seed: int
) -> None:
    """At last, a CTA loads what it does not use."""
    assert run_two(by_hand, first, other, seed) == [7, actual]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("first", "other"),
    [
        ((PUT,), (LOAD, USE)), ((PUT,), (PUT,)), ((PUT, MEET), (LOAD, MEET, USE)), ((PUT, MEET), (LOAD, USE, MEET)),
        ((PUT, ARRIVE, WAIT), (ARRIVE, WAIT, LOAD, USE)), ((RELEASE, PUT, WAIT), (RELEASE, WAIT, LOAD, USE)),
        ((RELEASE, WAIT, PUT), (RELEASE, LOAD, USE, WAIT)), ((MEET, PUT, MEET), (MEET, LOAD, MEET, USE)),
        ((MEET, MEET, PUT), (MEET, MEET, LOAD, USE)),
    ],
)  # fmt: skip
def test_races_of_ctas(by_hand: Callable[..., None], first: tuple[str, ...], other: tuple[str, ...], seed: int) -> None:
    """Whichever CTA runs first: without a barrier of the cluster between, or with one that does not release."""
    with pytest.raises(SimulationError, match="a barrier of the cluster must be between"):
        run_two(by_hand, first, other, seed)


def test_the_barrier_does_not_wait_for_ctas_that_have_ended(by_hand: Callable[..., None]) -> None:
    lines = f"""
        {RANK}
        %is.last = icmp eq i32 %rank, 1
        br i1 %is.last, label %over, label %meet
        meet:
        {ARRIVE}
        {WAIT}
        br label %over
        over:"""
    by_hand(lines, grid=(2,), attributes=CLUSTER)


def test_numbers_of_clusters(by_hand: Callable[..., None]) -> None:
    out: Any = np.zeros(8, np.int32)
    lines = f"""
        {RANK}
        %cluster = call i32 @llvm.nvvm.read.ptx.sreg.clusterid.x()
        %clusters = call i32 @llvm.nvvm.read.ptx.sreg.nclusterid.x()
        %row = call i32 @llvm.nvvm.read.ptx.sreg.clusterid.y()
        %before = mul i32 %row, %clusters
        %number = add i32 %before, %cluster
        %twice = mul i32 %number, 2
        %place = add i32 %twice, %rank
        %made = add i32 %place, %clusters
        %at = getelementptr i32, ptr addrspace(1) %p0, i32 %place
        %is.first = icmp eq i32 %tid, 0
        call void asm sideeffect "@$2 st.global.b32 [ $0 + 0 ], $1;", "l,r,b,~{{memory}}"(ptr addrspace(1) %at, \
i32 %made, i1 %is.first)"""
    by_hand(lines, out, grid=(4, 2), attributes=CLUSTER)
    assert out.tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
