"""Several devices on one machine: collectives, the faults of collectives, and what users do wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from tests.support import collective_kernels
from tests.support.collective_kernels import COLLECTIVES, FAULTS, Collective, Fault, launch

POINTER = zg.ptr(zg.i32)
BY_NAME = {collective.name: collective for collective in COLLECTIVES}


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda collective: collective.name)
def test_collectives_are_right(collective: Collective) -> None:
    launch(collective, getattr(collective_kernels, collective.name), 2, 2, seed=0)


# Some of them: tests of all take longer.
@pytest.mark.parametrize("fault", FAULTS[::8], ids=lambda fault: f"{fault.collective}: {fault.name}")
def test_faults_of_collectives_are_found(fault: Fault) -> None:
    kernel = fault.kernel()
    with pytest.raises((zg.KernelRuntimeError, AssertionError)):
        for seed in range(8):
            launch(BY_NAME[fault.collective], kernel, 3, 2, seed)


@zg.kernel
def handshake(flags, data, out, rank, ORDER: zg.constexpr, SCOPE: zg.constexpr):
    mine = zg.cast(zg.load(zg.add(flags, rank)), POINTER)
    theirs = zg.cast(zg.load(zg.add(flags, 1 - rank)), POINTER)
    zg.store(zg.add(zg.cast(zg.load(zg.add(data, 1 - rank)), POINTER), zg.arange(0, 8)), zg.arange(0, 8))  # data
    zg.atomic_xchg(theirs, 1, sem=ORDER, scope=SCOPE)
    while zg.atomic_add(mine, 0, sem="acquire", scope="sys") == 0:  # wait
        pass
    own = zg.add(zg.cast(zg.load(zg.add(data, rank)), POINTER), zg.arange(0, 8))
    zg.store(zg.add(out, zg.arange(0, 8)), zg.load(own))  # out


def run_handshake(seed: int, order: str = "release", scope: str = "sys", ranks: tuple[int, ...] = (0, 1)) -> list[Any]:
    with zg.devices(2, seed=seed) as d:
        flags = [device.zeros(1, zg.i32, "flag") for device in d]
        data = [device.zeros(8, zg.i32, "data") for device in d]
        out = [device.zeros(8, zg.i32) for device in d]
        for rank in ranks:
            with d[rank]:
                handshake[(1,)](d.addresses(flags), d.addresses(data), out[rank], rank, order, scope)
    return out


def lines_of(error: zg.ZigguratError) -> list[str]:
    """The comments of the lines that an error shows."""
    return [line.partition("# ")[2] for line in str(error).splitlines() if "# " in line]


def test_a_missing_release_names_both_accesses() -> None:
    assert all((out == np.arange(8)).all() for out in run_handshake(0))
    with pytest.raises(
        zg.KernelRuntimeError, match=r"device \d, program \(0, 0, 0\) reads device \d's data\[0\]"
    ) as info:
        run_handshake(0, order="relaxed")
    assert lines_of(info.value) == ["out", "data"]


def test_a_scope_of_one_gpu_does_not_reach_another_device() -> None:
    with pytest.raises(zg.KernelRuntimeError, match="the scope of one is too narrow") as info:
        run_handshake(0, scope="gpu")
    assert "flag[0]" in info.value.summary


def test_a_lost_signal_is_a_deadlock_with_the_line_of_the_wait() -> None:
    with pytest.raises(zg.KernelRuntimeError, match=r"deadlock: device 1, .* device 1's flag\[0\]") as info:
        run_handshake(0, ranks=(1,))
    assert lines_of(info.value) == ["wait"]
    assert info.value.summary.endswith("all others have ended")


def test_a_seed_gives_one_order_and_seeds_give_several() -> None:
    @zg.kernel
    def append(count, out, rank):
        place = zg.atomic_add(zg.cast(zg.load(count), POINTER), 1, scope="sys")
        zg.store(zg.add(zg.cast(zg.load(zg.add(count, 1)), POINTER), place), rank)

    def order(seed: int) -> tuple[int, ...]:
        with zg.devices(3, seed=seed) as d:
            count, out = d[0].zeros(1, zg.i32), d[0].zeros(6, zg.i32)
            for rank, device in enumerate(d):
                with device:
                    append[(2,)](d.addresses([count, out]), out, rank)
        return tuple(out.tolist())

    orders = [order(seed) for seed in range(6)]
    assert orders == [order(seed) for seed in range(6)]
    assert len(set(orders)) > 2


def test_launches_of_a_device_run_one_after_the_other() -> None:
    @zg.kernel
    def double(x):
        at = zg.add(x, zg.arange(0, 8))
        zg.store(at, zg.mul(zg.load(at), 2))

    with zg.devices(2) as d:
        x = [device.array(np.ones(8, np.int32)) for device in d]
        for device, array in zip(d, x, strict=True):
            with device:
                double[(1,)](array)
                double[(1,)](array)
        d.run()
        assert [array[0] for array in x] == [4, 4]
        with d[0]:
            double[(1,)](x[1])
            with pytest.raises(zg.LaunchError, match="'sanitize' must be left out"):
                double[(1,)](x[1], sanitize="races")
    assert [array[0] for array in x] == [4, 8]
    double[(1,)](x[0])  # After the block, a launch runs at once.
    assert x[0][0] == 8


def test_stray_accesses_and_bad_arguments() -> None:
    @zg.kernel
    def stray(place):
        zg.store(zg.add(zg.cast(zg.load(place), POINTER), 8), 1)

    with (
        pytest.raises(zg.MemoryAccessError, match=r"device 1, program .* in no array of the launch"),
        zg.devices(2) as d,
    ):
        x = d[0].zeros(8, zg.i32)
        with d[1]:
            stray[(1,)](d.addresses([x]))
    for count in (0, 65, 1.5):
        with pytest.raises(zg.LaunchError, match="the number of devices must be an integer from 1 to 64"):
            zg.devices(count)  # pyright: ignore[reportArgumentType]
    for shape, dtype, message in (
        ((-1,), zg.i32, "0 or more; got"),
        ("a", zg.i32, "0 or more"),
        (4, "none", "'dtype'"),
        (4, object, "an array of object, which kernels do not have"),
        (1 << 60, zg.f32, "of shape 1152921504606846976 must fit the memory; 4611686018427387904 bytes do not"),
        ((1 << 40, 1 << 40), zg.f32, "must fit the memory"),
    ):
        with pytest.raises(zg.LaunchError, match=message):
            zg.devices(1)[0].zeros(shape, dtype)  # pyright: ignore[reportArgumentType]
    for values, message in (
        (object(), "must be an array, a number, or lists of them; got <object"),
        (None, "got None"),
        ([1, [2]], r"got \[1, \[2\]\]"),
        (["a"], "an array of <U1, which kernels do not have"),
    ):
        with pytest.raises(zg.LaunchError, match=message):
            zg.devices(1)[0].array(values)
    with pytest.raises(zg.LaunchError, match="at most 4096 programs together"), zg.devices(1) as d, d[0]:
        stray[(5000,)](d.addresses([]))


# The same as code for a GPU, which the simulator runs.


@pytest.mark.parametrize("name", ["all_gather", "broadcast"])
def test_collectives_are_right_as_code_for_gpus(name: str) -> None:
    launch(BY_NAME[name], getattr(collective_kernels, name), 2, 1, seed=0, simulated=True)


@pytest.mark.parametrize("fault", ["all_gather: missing release", "dissemination: wrong slot"])
def test_faults_are_found_in_code_for_gpus(fault: str) -> None:
    planted = next(f for f in FAULTS if f"{f.collective}: {f.name}" == fault)
    kernel = planted.kernel()
    with pytest.raises((zg.SimulationError, AssertionError)):
        for seed in range(8):
            launch(BY_NAME[planted.collective], kernel, 3, 1, seed, simulated=True)


def test_a_lost_signal_is_a_deadlock_of_code_for_gpus() -> None:
    types = zg.ptr(zg.u64), zg.ptr(zg.u64), zg.ptr(zg.i32), zg.i32
    compiled = handshake.compile(*types, "release", "sys", target="sm_90a", num_warps=1)
    with pytest.raises(zg.SimulationError, match=r"deadlock: device 1, .* device 1's flag\[0\]") as info:
        with zg.devices(2) as d:
            flags = [device.zeros(1, zg.i32, "flag") for device in d]
            data = [device.zeros(8, zg.i32, "data") for device in d]
            with d[1]:
                compiled.simulate[(1,)](d.addresses(flags), d.addresses(data), d[1].zeros(8, zg.i32), 1)
    assert lines_of(info.value) == ["wait"]


def test_launches_are_all_simulated_or_none() -> None:
    compiled = handshake.compile(zg.ptr(zg.u64), zg.ptr(zg.u64), zg.ptr(zg.i32), zg.i32, "release", "sys", num_warps=1)
    with (
        pytest.raises(zg.LaunchError, match="of one kind"),
        zg.devices(1) as d,
        d[0],
    ):
        arrays = d.addresses([]), d.addresses([]), d[0].zeros(8, zg.i32)
        compiled.simulate[(1,)](*arrays, 0)
        handshake[(1,)](*arrays, 0, "release", "sys")


@zg.kernel
def patient(flags, out, rank, COUNTS: zg.constexpr):
    mine = zg.peer(flags, rank, zg.i32)
    if rank == 0:
        tries = 0
        while zg.atomic_add(mine, 0, sem="acquire", scope="sys") == 0:  # wait
            tries += COUNTS
        zg.store(out, tries)
    elif not zg.wait(mine, 1, timeout_ns=1000):
        zg.store(out, 7)
        zg.signal(zg.peer(flags, 0, zg.i32), 1)


def run_patient(ranks: tuple[int, ...], counts: int) -> int:
    with zg.devices(2) as d:
        flags = [device.zeros(1, zg.i32, "flag") for device in d]
        out = [device.zeros(1, zg.i32) for device in d]
        for rank in ranks:
            with d[rank]:
                patient[(1,)](d.addresses(flags), out[rank], rank, counts)
    return int(out[1][0])


def test_a_wait_with_a_time_limit_ends_where_all_others_wait() -> None:
    assert run_patient((0, 1), 0) == 7


def test_a_wait_that_counts_its_tries_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ziggurat.backend.reference.turns.MAX_IDLE", 100)
    with pytest.raises(zg.KernelRuntimeError, match=r"deadlock: device 0, .* device 0's flag\[0\]") as info:
        run_patient((0,), 1)
    assert lines_of(info.value) == ["wait"]
