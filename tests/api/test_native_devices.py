"""Several devices by native code: programs that wait for each other, and what ends them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from tests.support import collective_kernels
from tests.support.collective_kernels import COLLECTIVES, Collective, launch


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda collective: collective.name)
def test_collectives_are_right(collective: Collective) -> None:
    for seed in range(3):
        launch(collective, getattr(collective_kernels, collective.name), 3, 4, seed, native=True)


@zg.kernel
def meet(flags, out, rank, N: zg.constexpr, WAIT: zg.constexpr = True):
    """Programs of one number on two devices meet, and then all programs of a device."""
    pid = zg.program_id(0)
    zg.signal(zg.add(zg.peer(flags, 1 - rank, zg.i32), pid), 1, sem="release")
    zg.wait(zg.add(zg.peer(flags, rank, zg.i32), pid), 1)  # peer
    own = zg.add(zg.peer(flags, rank, zg.i32), N)
    zg.atomic_add(own, 1)
    if WAIT:
        while zg.atomic_add(own, 0) < N:  # own
            pass
        zg.store(zg.add(out, pid), zg.load(own))


def run_meeting(ranks: tuple[int, ...] = (0, 1), count: int = 64, launched: int = 64) -> list[Any]:
    with zg.devices(2, native=True) as d:
        flags = [device.zeros(count + 1, zg.i32, "flags") for device in d]
        out = [device.zeros(count, zg.i32) for device in d]
        for rank in ranks:
            with d[rank]:
                meet[(launched,)](d.addresses(flags), out[rank], rank, count)
    return out


def test_more_programs_than_processors_wait_for_each_other() -> None:
    assert all((out == 64).all() for out in run_meeting())


def test_a_deadlock_names_the_places_of_its_waits() -> None:
    words = r"deadlock: device 1, program \(0, 0, 0\) waits for a change of memory .*: so do 63 other programs"
    with pytest.raises(zg.KernelRuntimeError, match=words) as error:
        run_meeting(ranks=(1,))
    assert "# peer" in str(error.value) and "without native=True, which names the element" in str(error.value)
    with pytest.raises(zg.KernelRuntimeError, match="so do 5 other programs") as error:
        run_meeting(launched=3)
    assert "# own" in str(error.value)


@zg.kernel
def fails(flags, at, what: zg.constexpr):
    if zg.program_id(0) == 0:
        zg.wait(zg.peer(flags, 0, zg.i32), 1)
    elif what == "stray":
        zg.store(zg.add(zg.peer(flags, 1, zg.i32), at), 1)
    elif what == "read-only":
        zg.store(zg.peer(flags, 2, zg.i32), 1)
    else:
        zg.device_assert(at == 0, "not zero")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("stray", r"^device 0, program \(1, 0, 0\) writes address 0x[0-9a-f]+, which is in no array"),
        ("read-only", r"^device 0, program \(1, 0, 0\) writes an array, but its array is read-only"),
        ("assert", r"^device 0, program \(1, 0, 0\): .*not zero"),
    ],
)
def test_the_error_of_a_program_ends_those_that_wait(what: str, words: str) -> None:
    with pytest.raises(zg.ZigguratError, match=words), zg.devices(2, native=True) as d:
        arrays = [*(device.zeros(4, zg.i32) for device in d), d[0].array(np.arange(4, dtype=np.int32))]
        arrays[2].flags.writeable = False
        with d[0]:
            fails[(2,)](d.addresses(arrays), 4, what)


@zg.kernel
def across(addresses, out, N: zg.constexpr):
    """Lanes that go to the arrays of two devices by turns."""
    at = zg.arange(0, N)
    even, odd = zg.peer(addresses, 0, zg.f32), zg.peer(addresses, 1, zg.f32)
    pointers = zg.where(zg.equal(zg.mod(at, 2), 0), zg.add(even, at), zg.add(odd, at))
    zg.store(zg.add(out, at), zg.load(pointers))


def test_lanes_of_a_load_may_go_to_several_arrays() -> None:
    with zg.devices(2, native=True) as d:
        arrays = [device.array(np.arange(32) + 100 * rank, "x").astype(np.float32) for rank, device in enumerate(d)]
        arrays = [d[0].share(array) for array in arrays]
        out = d[1].zeros(32, zg.f32)
        with d[0]:
            across[(1,)](d.addresses(arrays), out, 32)
    assert out.tolist() == [at + 100 * (at % 2) for at in range(32)]


def test_what_cannot_be_run_natively() -> None:
    with pytest.raises(zg.LaunchError, match="native must be True or False"):
        zg.devices(2, native="yes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(zg.LaunchError, match="at most 1024 programs of all devices can run at once; there are 2000"):
        run_meeting(count=1000, launched=1000)
    with pytest.raises(zg.LaunchError, match="'meet' and 'meet' are not of one kind"), zg.devices(2, native=True) as d:
        flags, out = [device.zeros(2, zg.i32) for device in d], d[0].zeros(1, zg.i32)
        for rank, device in enumerate(d):
            with device:
                meet[(1,)](d.addresses(flags), out, rank, 1, interpret=bool(rank))
