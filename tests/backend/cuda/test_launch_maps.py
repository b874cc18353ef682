"""Tensor maps that launches make, by a fake driver: `tensormap.Described`."""

from __future__ import annotations

import struct

import attrs
import pytest
from launched import dispatcher_of as built_by

from ziggurat.backend.cuda import tensormap
from ziggurat.backend.cuda.binary import Binary, LaunchMap, PtxParameter
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.cuda.launch import Launcher
from ziggurat.backend.cuda.specialize import KernelParameter
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import f16

MAPS = (LaunchMap("f16", (64, 64), 128, ("0", "1", "2", "3")), LaunchMap("f16", (64, 32), 64, ("0", "=8", "1", "=64")))
PARAMETERS = (PtxParameter("ptr"), PtxParameter("i32"), PtxParameter("i32"), PtxParameter("i32"))


def binary(plan=True, **more):
    maps = MAPS if plan else ()
    return Binary("entry", "", 4 if plan else 8, 0, PARAMETERS, "sm_90a", "kernel", maps=maps, **more)


def array(pointer=0x1000):
    return DeviceArray(pointer, (64, 64), f16, 0)


@pytest.fixture(autouse=True)
def sizes(fake):
    fake.sizes = [8, 4, 4, 4, 128, 128]


@pytest.fixture
def kernel(fake):
    def build(spec):
        return binary(dict(spec.options).get("raise_pointers", True))

    return built_by("kernel", [KernelParameter(name) for name in ("x", "m", "n", "pitch")], build)


def test_binaries_with_maps_survive_the_cache():
    assert Binary.from_bytes(binary(scratch=128).to_bytes()) == binary(scratch=128)


@pytest.mark.parametrize("scratch", [0, 128])
def test_a_launcher_passes_the_maps(fake, scratch):
    fake.sizes = [*fake.sizes, 8][: 6 + (scratch > 0)]
    Launcher(binary(scratch=scratch))((1,), array(), 30, 20, 32)
    values = fake.launches[0]["values"]
    assert values[:4] == [struct.pack("=Q", 0x1000), *(struct.pack("=i", number) for number in (30, 20, 32))]
    assert values[4:6] == [bytes(range(128))] * 2
    kind, rank, address, shape, strides, box, _, _, swizzle, *_ = fake.encoded  # The second one.
    assert (rank, address, shape, strides, box) == (2, 0x1000, [30, 8], [128], [32, 64])
    assert (kind, swizzle) == ("CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "CU_TENSOR_MAP_SWIZZLE_64B")
    if scratch:
        assert values[6] == struct.pack("=Q", fake.allocated)


def test_maps_of_equal_arguments_are_made_once(fake, kernel):
    for pointer, again in ((0x1000, True), (0x1000, False), (0x2000, True), (0x1000, False), (0x2000, False)):
        fake.encoded = None
        kernel.at((1,))(array(pointer), 30, 20, 32)
        assert (fake.encoded is not None) == again and fake.launches[-1]["values"][5] == bytes(range(128))
    assert len(fake.loads) == 1


def test_arguments_without_maps_launch_the_other_kernel(fake, kernel):
    """A pitch that is not positive: found by new integers, by known ones, and at the first launch."""
    for pitch in (-48, 32, 0, 32, -48, 64, -16):
        numbers = (32, 16, pitch)
        kernel.at((1,))(array(), *numbers)
        launch, plan = fake.launches[-1], pitch > 0
        assert launch["values"][1:4] == [struct.pack("=i", number) for number in numbers]
        assert launch["threads"] == (128 if plan else 256)
    assert len(fake.loads) == 4  # With maps and without, for small numbers and for others.


@pytest.mark.parametrize("numbers", [(0, 20), (30, 0), (-5, 20), (30, -1)])
def test_a_matrix_without_elements_is_one_zero(fake, numbers, monkeypatch):
    encoded = []
    encode = fake.cuTensorMapEncodeTiled
    monkeypatch.setattr(fake, "cuTensorMapEncodeTiled", lambda *argument: encoded.append(argument) or encode(*argument))
    for pitch in (32, -32):  # That does not matter then.
        tensormap._zeros.cache_clear()
        Launcher(binary())((1,), array(), *numbers, pitch)
    (_, _, address, shape, strides, *_), (_, _, second, *_) = encoded[:2]
    assert (address, shape, strides) == (fake.done[0][1], [1, 1], [16]) and fake.done[0] == ("set", address, 0, 16)
    assert second == (address if numbers[0] < 1 else 0x1000)
    assert len(fake.launches) == 2


@pytest.fixture
def persistent(fake):
    """A kernel whose CTAs take programs in turn: 2 CTAs run at once on each of 3 SMs."""
    fake.sizes = [8, 4, 4, 4, 4, 4, 4, 128, 128]

    def build(spec):
        return binary(plan := dict(spec.options).get("raise_pointers", True), persistent=plan)

    return built_by("kernel", [KernelParameter(name) for name in ("x", "m", "n", "pitch")], build)


def test_a_persistent_kernel_gets_the_sizes_of_its_grid(fake, persistent):
    """As many CTAs as run at once, or as there are programs. Equal arguments may come with another grid."""
    for grid in ((2, 5), (1, 5), (2, 5), (7,), (1, 2, 3), lambda argument: (argument["m"], 2)):
        persistent.at(grid)(array(), 30, 20, 32)
        sizes = (*((30, 2) if callable(grid) else grid), 1, 1)[:3]
        launch = fake.launches[-1]
        assert launch["values"][4:7] == [struct.pack("=i", size) for size in sizes]
        assert launch["values"][7:] == [bytes(range(128))] * 2
        assert launch["grid"] == (min(6, sizes[0] * sizes[1] * sizes[2]), 1, 1)
    assert len(fake.loads) == 1


def test_nothing_is_stored_to_the_zero_that_stands_for_an_empty_matrix(fake):
    values = attrs.evolve(binary(), maps=(attrs.evolve(MAPS[0], stored=True), MAPS[1]))
    assert Binary.from_bytes(values.to_bytes()) == values
    with pytest.raises(LaunchError, match="nothing to store to"):
        Launcher(values)((1,), array(), 0, 20, 32)


def test_an_empty_grid_launches_nothing(fake, persistent):
    for grid in ((0, 2), (2, 0), (0,)):
        persistent.at(grid)(array(), 30, 20, 32)
    assert not fake.launches


def test_what_cannot_be_taken_in_turn_launches_the_other_kernel(fake, persistent):
    """A matrix without a map, and too many programs to count."""
    for grid, pitch in (((2, 5), -32), ((1 << 21, 1 << 10), 32)):
        persistent.at(grid)(array(), 30, 20, pitch)
        assert fake.launches[-1]["grid"] == (*grid, 1) and fake.launches[-1]["threads"] == 256
    with pytest.raises(LaunchError, match="persistent=False"):
        Launcher(binary(persistent=True))((1 << 21, 1 << 10), array(), 30, 20, 32)


def test_a_compiled_kernel_has_no_other(fake):
    with pytest.raises(LaunchError, match=r"from 30 by 20 elements, rows -32 apart: they must be a positive distance"):
        Launcher(binary())((1,), array(), 30, 20, -32)


def test_what_the_driver_refuses_has_no_map(fake, kernel, monkeypatch):
    monkeypatch.setattr(
        fake, "cuTensorMapEncodeTiled", lambda *argument: (fake.Failure("CUDA_ERROR_INVALID_VALUE"), None)
    )
    kernel.at((1,))(array(), 30, 20, 32)
    assert fake.launches[-1]["threads"] == 256
    with pytest.raises(LaunchError, match="raise_pointers=False"):
        Launcher(binary())((1,), array(), 30, 20, 32)
