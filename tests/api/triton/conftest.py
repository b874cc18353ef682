"""The machine that Triton programs run on in these tests, whatever this one has: no GPU, or the recorded driver."""

import sys

import pytest

from ziggurat.triton.runtime.driver import CudaDriver, HostDriver, driver


@pytest.fixture(autouse=True)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded driver as the active one for a test that has the fixture `fake` or `gpu`, and else no GPU."""
    recorded = {"fake", "gpu"} & {*request.fixturenames}
    if recorded:  # PyTorch, which tests before may have imported, would be asked for the current device.
        monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(driver, "active", CudaDriver() if recorded else HostDriver())
