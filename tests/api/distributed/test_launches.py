"""Launches of collectives by the recorded driver, on tensors that say they are on a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from libraries import require

torch = require("torch")
dist = require("torch.distributed")

from ziggurat.distributed import collectives, kernels

STREAMS = {address: SimpleNamespace(cuda_stream=address) for address in (64, 65, 66)}


@pytest.fixture
def gpu(gpu, monkeypatch):
    """The recorded driver, and a group of one rank whose workspace has room for two."""
    gpu.count, gpu.current, gpu.captures, gpu.waits = 1, STREAMS[64], set(), []
    gpu.sizes = [8, 8, 4, 4, 8, 8]
    kernels.all_reduce_one_shot.forget()  # Code for the driver of another test.
    for stream in STREAMS.values():
        stream.wait_stream = lambda other, own=stream: gpu.waits.append((own.cuda_stream, other.cuda_stream))
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda d: gpu.current.cuda_stream, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: gpu.current)

    class Within:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            self.outer, gpu.current = gpu.current, self.stream

        def __exit__(self, *error):
            gpu.current = self.outer

    monkeypatch.setattr(torch.cuda, "stream", Within)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: gpu.current.cuda_stream in gpu.captures)

    def workspace(group, device, size):
        return collectives.Workspace(0, 2, torch.zeros(64), torch.tensor([4096, 8192]))

    monkeypatch.setattr(collectives.Workspace, "of", workspace)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield gpu
    dist.destroy_process_group()
    collectives._forget_groups()


def test_launches_of_a_shape_are_prepared_once_for_a_group(gpu, monkeypatch):
    x = torch.zeros(8192, dtype=torch.bfloat16)
    results = [collectives.all_reduce(x) for _ in range(3)]
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        results.append(collectives.all_reduce(x))
    finally:
        sys.setprofile(None)
    driver = calls.index("cuLaunchKernel") if "cuLaunchKernel" in calls else len(calls)
    assert driver < 16, calls
    assert len(gpu.launches) == 4
    for result, launch in zip(results, gpu.launches, strict=True):
        assert result.shape == x.shape and launch["grid"] == (2, 1, 1) and launch["threads"] == 512
        addresses = [int.from_bytes(value, "little") for value in launch["values"][:2]]
        assert addresses == [x.data_ptr(), result.data_ptr()]
    monkeypatch.setattr(collectives, "_SECONDS", [600.0])
    collectives.set_timeout(1.5)
    collectives.all_reduce(x)
    times = [int.from_bytes(launch["values"][-1], "little") for launch in gpu.launches[-2:]]
    assert times == [600 * 10**9, 1500 * 10**6]
    dist.destroy_process_group()
    collectives._forget_groups()
    assert not collectives._prepared and not collectives._workspaces
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())


def test_collectives_on_another_stream_come_after_those_before(gpu):
    x = torch.zeros(8192, dtype=torch.bfloat16)
    for address in (64, 64, 65, 64):
        gpu.current = STREAMS[address]
        collectives.all_reduce(x)
    assert gpu.waits == [(65, 64), (64, 65)]
    gpu.waits.clear()
    gpu.captures.update((65, 66))
    for address in (65, 66):  # In a graph, which waits for no stream outside of it.
        gpu.current = STREAMS[address]
        collectives.all_reduce(x)
    assert gpu.waits == [(66, 65)]
    gpu.captures.clear()
    gpu.current = STREAMS[65]
    collectives.all_reduce(x)
    assert (65, 64) in gpu.waits
