"""Memory that launches provide for tensor maps, by a fake driver."""

from __future__ import annotations

import contextvars
import struct
import threading
from types import SimpleNamespace

import pytest
from launched import dispatcher_of as built_by

from ziggurat.backend.cuda import scratch
from ziggurat.backend.cuda.binary import Binary, PtxParameter
from ziggurat.backend.cuda.launch import Launcher
from ziggurat.backend.cuda.specialize import KernelParameter
from ziggurat.codemodel.errors import LaunchError

SIZE = 384  # Bytes of a program.


def binary(spec=None, launched=()):
    parameters = (PtxParameter("i32", argument=0),)
    return Binary("entry", "", 4, 0, parameters, "sm_90a", "kernel", launched=launched, scratch=SIZE)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch, fake):
    monkeypatch.setattr(scratch, "_memory", {})
    fake.sizes = [4, 8]


@pytest.fixture
def kernel(fake):
    return built_by("kernel", [KernelParameter("n", specialize=False)], binary)


def addresses(fake):
    """The last parameter of each launch."""
    return [struct.unpack("=Q", launch["values"][-1])[0] for launch in fake.launches]


def test_a_launch_passes_an_address_after_its_arguments(fake, kernel):
    for number in (7, 7, 8):
        kernel.at((4, 2))(number)
    assert [launch["values"][0] for launch in fake.launches] == [struct.pack("=i", n) for n in (7, 7, 8)]
    assert len(set(addresses(fake))) == 1 and fake.allocated == addresses(fake)[0]


def test_a_launcher_passes_one_too(fake):
    Launcher(binary())((4,), 7)
    assert fake.launches[0]["values"][0] == struct.pack("=i", 7) and addresses(fake) == [fake.allocated]


def test_memory_is_set_to_zero_where_that_is_asked_for(fake):
    scratch.allocated(48)
    assert fake.done == []
    address = scratch.allocated(48, zero=True)
    assert fake.done == [("set", address, 0, 48)]


def test_attributes_of_launches_stay(fake):
    Launcher(binary(launched=("pdl",)))((4,), 7)
    assert addresses(fake) == [fake.allocated]


def test_a_larger_grid_gets_other_memory_at_least_twice_as_large(fake, monkeypatch):
    sizes = []
    monkeypatch.setattr(scratch, "allocated", lambda size: sizes.append(size) or 1000 * len(sizes))
    results = [scratch.provided(1, 0, size) for size in (100, 50, 110, 200, 900)]
    assert results == [1000, 1000, 2000, 2000, 3000] and sizes == [100, 200, 900]


def test_each_stream_has_memory_of_its_own(fake, kernel):
    for stream in (0, 16, 0, 16):
        kernel.at((4,))(7, stream=stream)
    first, other, *again = addresses(fake)
    assert first != other and again == [first, other]


def test_the_stream_of_each_thread_has_memory_of_its_own(fake):
    results = [scratch.provided(1, 2, 128)]
    thread = threading.Thread(target=lambda: results.append(scratch.provided(1, 2, 128)))
    thread.start()
    thread.join()
    assert len(set(results)) == 2


def test_each_captured_launch_has_memory_of_its_own(fake, kernel):
    """And a launch that is not captured does not share it."""
    kernel.at((4,))(7, stream=16)
    fake.captured = {16}
    for _ in range(2):
        kernel.at((4,))(7, stream=16)
    assert fake.capture_mode == "CU_STREAM_CAPTURE_MODE_GLOBAL"
    fake.captured = set()
    kernel.at((4,))(7, stream=16)
    outside, first, second, after = addresses(fake)
    assert len({outside, first, second}) == 3 and after == outside


def test_a_program_can_provide_the_memory(fake, kernel):
    calls = []

    def provide(*argument):
        calls.append(argument)
        return SimpleNamespace(data_ptr=lambda: 0x4000) if len(calls) == 1 else 0x8000

    def launches():
        scratch.ALLOCATOR.set(provide)
        kernel.at((4, 2))(7)
        kernel.at((4, 2, 3))(7, stream=16)

    contextvars.copy_context().run(launches)
    assert calls == [(8 * SIZE, 128, 0), (24 * SIZE, 128, 16)] and addresses(fake) == [0x4000, 0x8000]


def test_no_memory_is_an_error_of_the_launch(fake, kernel, monkeypatch):
    monkeypatch.setattr(fake, "cuMemAlloc", lambda size: (fake.Failure("CUDA_ERROR_OUT_OF_MEMORY", 2), None))
    with pytest.raises(LaunchError, match="getting 1536 bytes for the tensor maps of a kernel"):
        kernel.at((4,))(7)


def test_an_empty_grid_needs_no_memory(fake, kernel):
    kernel.at((0,))(7)
    assert fake.allocated == 0x100000 and not fake.launches
