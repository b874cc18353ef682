"""Roles in the simulation: text by hand, in which warp groups hand over registers, meet, or wait in vain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate


def asm(text: str) -> str:
    return f'call void asm sideeffect "{text};", "~{{memory}}"() #1'


def kernel(first: Sequence[str], second: Sequence[str], limit: str = ' "nvvm.maxnreg"="128"') -> str:
    """Threads below 128 do the first lines, those above the second."""
    return "\n".join(
        [
            "define ptx_kernel void @k(ptr addrspace(1) %p0) #0 {",
            "entry:",
            "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
            "  %low = icmp ult i32 %t, 128",
            "  %place = getelementptr i32, ptr addrspace(3) @smem, i32 %t",
            "  %out = getelementptr i32, ptr addrspace(1) %p0, i32 %t",
            "  br i1 %low, label %one, label %two",
            "one:",
            *(f"  {line}" for line in first),
            "  br label %over",
            "two:",
            *(f"  {line}" for line in second),
            "  br label %over",
            "over:",
            "  ret void",
            "}",
            f'attributes #0 = {{ convergent nounwind "nvvm.reqntid"="256"{limit} }}',
        ]
    )


def ran(text: str, seed: int = 0) -> np.ndarray:
    out = np.zeros(256, np.int32)
    simulate(text, num_warps=4, shared=1024, arguments=[out], seed=seed)
    return out


MORE, LESS = asm("setmaxnreg.inc.sync.aligned.u32 232"), asm("setmaxnreg.dec.sync.aligned.u32 24")
STORE = "store i32 %t, ptr addrspace(3) %place, align 4"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_registers_are_handed_over(seed: int) -> None:
    """Whoever asks for more waits for the others; all threads of the text run, more than `num_warps` has."""
    done = "store i32 %t, ptr addrspace(1) %out, align 4"
    np.testing.assert_array_equal(ran(kernel([MORE, done], [LESS, done]), seed), np.arange(256))


@pytest.mark.parametrize(
    ("first", "second", "limit", "expected"),
    [
        ([MORE], [], "128", "registers that nobody gives back"),
        ([MORE], [LESS], "120", "registers that nobody gives back"),
        ([MORE], [LESS], "", "must say how many"),
        ([MORE], [MORE], "128", "registers that nobody gives back"),
        ([asm("setmaxnreg.inc.sync.aligned.u32 228")], [LESS], "128", "must be to a multiple of 8"),
        ([asm("setmaxnreg.inc.sync.aligned.u32 264")], [LESS], "128", "must be to a multiple of 8"),
        ([asm("setmaxnreg.dec.sync.aligned.u32 16")], [], "128", "must be to a multiple of 8"),
        ([asm("setmaxnreg.dec.sync.aligned.u32 136")], [], "128", "setmaxnreg.dec to 136 from"),
        ([asm("setmaxnreg.inc.sync.aligned.u32 120")], [], "128", "setmaxnreg.inc to 120 from"),
    ],
)  # fmt: skip
def test_wrong_requests_for_registers(first: list[str], second: list[str], limit: str, expected: str) -> None:
    attribute = f' "nvvm.maxnreg"="{limit}"' if limit else ""
    with pytest.raises(SimulationError, match=expected):
        ran(kernel(first, second, attribute))


def test_half_a_warp_group_may_not() -> None:
    text = kernel([LESS], []).replace("%t, 128", "%t, 64")
    with pytest.raises(SimulationError, match="all threads of a warp group must"):
        ran(text)


OTHER = [
    "%near = xor i32 %t, 64",
    "%there = getelementptr i32, ptr addrspace(3) @smem, i32 %near",
    "%read = load i32, ptr addrspace(3) %there, align 4",
    "store i32 %read, ptr addrspace(1) %out, align 4",
]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_barrier_of_a_role(seed: int) -> None:
    """It orders what the role's threads do, while the others are elsewhere."""
    out = ran(kernel([LESS, STORE, asm("bar.sync 1, 128"), *OTHER], [LESS]), seed)
    np.testing.assert_array_equal(out, np.concatenate([np.arange(128) ^ 64, np.zeros(128, int)]))


@pytest.mark.parametrize(
    ("barrier", "expected"),
    [
        ("", "which another thread has written|in flight"),
        ("bar.sync 0", "deadlock: a barrier is for"),
        ("bar.sync 1, 256", "deadlock: a barrier is for"),
        ("bar.sync 1, 96", "96 threads must come to a barrier together; 128 do"),
    ],
)
def test_barriers_that_are_not_the_role_s(barrier: str, expected: str) -> None:
    lines = [STORE, *([asm(barrier)] if barrier else []), *OTHER]
    with pytest.raises(SimulationError, match=expected):
        ran(kernel(lines, []))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_barrier_of_one_role_orders_nothing_in_others(seed: int) -> None:
    """One role reads what the other has written, each having met at its own barrier."""
    far = [line.replace("64", "128").replace("near", "far").replace("there", "where") for line in OTHER]
    text = kernel([LESS, STORE, asm("bar.sync 1, 128")], [LESS, asm("bar.sync 2, 128"), *far])
    with pytest.raises(SimulationError, match=r"another (thread )?has"):
        ran(text, seed)
