"""Contexts and devices, and the messages where there is no driver."""

import sys

import pytest

from ziggurat.backend.devices import driver
from ziggurat.backend.devices.driver import Device, current_context, current_device, on_device, synchronize
from ziggurat.codemodel.errors import LaunchError, MemoryAccessError


def test_the_primary_context_is_made_current_where_there_is_none(fake):
    assert fake.context == 0
    assert int(current_context()) == 100 and fake.context == 100
    with on_device(1) as context:
        assert int(context) == 101 == fake.context and current_device() == Device(1)
        with on_device(1):
            assert fake.stack == [100]  # It is current: nothing is pushed.
    assert fake.context == 100
    assert current_device().target == "sm_90a" and current_device().name == "FAKE GPU"


def test_waiting_shows_faults(fake, failed):
    fake.launch_status = [failed("CUDA_ERROR_MISALIGNED_ADDRESS")]
    with pytest.raises(MemoryAccessError, match="a kernel launched before accessed memory at a misaligned address"):
        synchronize()


def test_without_a_driver_or_its_bindings(fake, monkeypatch: pytest.MonkeyPatch):
    def absent(flags):
        raise RuntimeError("libcuda.so.1 is not there")

    monkeypatch.setattr(fake, "cuInit", absent)
    with pytest.raises(LaunchError, match=r"the NVIDIA driver cannot be loaded: libcuda.so.1"):
        driver.device_count()
    for name in ("cuda", "cuda.bindings", "cuda.bindings.driver"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LaunchError, match="pip install cuda-bindings"):
        driver.device_count()
