"""cp.async in the simulation: its bytes are there after a wait, and some destinations are errors."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.simulator.shared import SimulationError

COMMIT = 'call void asm sideeffect "cp.async.commit_group;", "~{memory}"() #1\n'
BARRIER = 'call void asm sideeffect "bar.sync 0;", "~{memory}"() #1\n'


def places(to: str = "%tid", source: str = "%tid", name: str = "a") -> str:
    """The target and the source of a copy of 4 bytes."""
    return f"""%{name}s = getelementptr i32, ptr addrspace(3) @smem, i32 {to}
        %{name}t = ptrtoint ptr addrspace(3) %{name}s to i32
        %{name}g = getelementptr i32, ptr addrspace(1) %p0, i32 {source}\n"""


def copy(name: str = "a", size: int = 4, cache: str = "ca", guard: str = "", ignored: str = "") -> str:
    prefix = f"@${3 if ignored else 2} " if guard else ""
    more = "".join(f", i1 {value}" for value in (ignored, guard) if value)
    constraints = "r,l" + ",b" * (bool(ignored) + bool(guard))
    text = f"{prefix}cp.async.{cache}.shared.global [ $0 + 0 ], [ $1 + 0 ], {size}{', $2' if ignored else ''};"
    return (
        f'call void asm sideeffect "{text}", "{constraints},~{{memory}}"'
        f"(i32 %{name}t, ptr addrspace(1) %{name}g{more}) #1\n"
    )


def wait(pending: int = 0) -> str:
    return f'call void asm sideeffect "cp.async.wait_group {pending};", "~{{memory}}"() #1\n'


def read(name: str = "a", number: str = "%tid") -> str:
    """Store the bytes that a thread reads at the destination of a copy."""
    return f"""%{name}v = load i32, ptr addrspace(3) %{name}s, align 4
        %{name}q = getelementptr i32, ptr addrspace(1) %p1, i32 {number}
        store i32 %{name}v, ptr addrspace(1) %{name}q, align 4\n"""


def ran(by_hand, text: str, num_warps: int = 1) -> list[int]:
    x, out = np.arange(100, 100 + 2 * 32 * num_warps, dtype=np.int32), np.full(32 * num_warps, -1, np.int32)
    by_hand(text, x, out, num_warps=num_warps, shared=512)
    return out.tolist()


def test_the_copying_thread_reads_after_the_wait(by_hand) -> None:
    assert ran(by_hand, places() + copy() + COMMIT + wait() + read()) == list(range(100, 132))


@pytest.mark.parametrize("rest", ["", COMMIT, COMMIT + wait(1), wait()])
def test_nobody_reads_before(rest: str, by_hand) -> None:
    """A copy that was not committed cannot be waited for, and a barrier does not complete it."""
    with pytest.raises(SimulationError):
        ran(by_hand, places() + copy() + rest + BARRIER + read())


def test_others_read_after_a_barrier(by_hand) -> None:
    other = "%other = xor i32 %tid, 63\n" + places(to="%other", source="%other", name="b")
    begun = places() + copy() + COMMIT + wait()
    assert ran(by_hand, other + begun + BARRIER + read("b"), 2) == list(range(163, 99, -1))
    with pytest.raises(SimulationError, match=r"another thread has written|in flight"):
        ran(by_hand, other + begun + read("b"), 2)


def test_groups_end_in_order(by_hand) -> None:
    """With one group pending, the first group is complete, and the second is not."""
    begun = places() + copy() + COMMIT
    more = "%far = add i32 %tid, 32\n" + places("%far", "%far", "b") + copy("b") + COMMIT
    assert ran(by_hand, begun + more + wait(1) + read()) == list(range(100, 132))
    with pytest.raises(SimulationError):
        ran(by_hand, begun + more + wait(1) + read("b"))
    assert ran(by_hand, begun + more + wait(0) + read("b")) == list(range(132, 164))


def test_the_bytes_are_those_of_the_beginning(by_hand) -> None:
    change = "store i32 -9, ptr addrspace(1) %ag, align 4\n"
    assert ran(by_hand, places() + copy() + change + COMMIT + wait() + read()) == list(range(100, 132))


def test_a_source_that_is_ignored_gives_zeros(by_hand) -> None:
    text = "%c = icmp uge i32 %tid, 8\n" + places() + copy(ignored="%c")
    assert ran(by_hand, text + COMMIT + wait() + read()) == [*range(100, 108), *[0] * 24]


def test_only_where_the_guard_holds(by_hand) -> None:
    text = "%c = icmp ult i32 %tid, 8\n" + places() + "store i32 7, ptr addrspace(3) %as, align 4\n" + BARRIER
    actual = ran(by_hand, text + copy(guard="%c") + COMMIT + wait() + read())
    assert actual == [*range(100, 108), *[7] * 24]


@pytest.mark.parametrize("lines, expected", [
    (places("0") + copy(), "same place"),
    (places() + copy(size=16, cache="cg"), "must be aligned to its size"),
    (places("0", "1") + copy(size=16, cache="cg"), "source of a copy must be aligned"),
    (places("%tid", "1000") + copy(), "inside of its array"),
    ("%far = add i32 %tid, 120\n" + places("%far") + copy(), "inside of shared memory"),
    (places() + copy() + COMMIT + places(name="b") + copy("b"), "a copy writes byte .* which another has touched"),
    ("%other = xor i32 %tid, 1\n" + places() + "store i32 7, ptr addrspace(3) %as, align 4\n"
     + places("%other", name="b") + copy("b"), "a copy writes byte .* which another has touched"),
])  # fmt: skip
def test_wrong_targets_of_copies(lines: str, expected: str, by_hand) -> None:
    with pytest.raises(SimulationError, match=expected):
        ran(by_hand, lines)


def test_nobody_writes_where_a_copy_goes(by_hand) -> None:
    with pytest.raises(SimulationError):
        ran(by_hand, places() + copy() + "store i32 7, ptr addrspace(3) %as, align 4")


@pytest.mark.parametrize("line, what", [(copy(), "a copy"), (COMMIT, "a commit"), (wait(), "a wait")])
def test_all_threads_come(line: str, what: str, by_hand) -> None:
    lines = f"""{places()}%c = icmp ult i32 %tid, 16
        br i1 %c, label %one, label %after
        one:
        {line.strip()}
        br label %after
        after:"""
    with pytest.raises(SimulationError, match=f"all threads must come to {what}"):
        ran(by_hand, lines)
