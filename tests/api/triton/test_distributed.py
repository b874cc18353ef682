"""`torch.compile` with this package as its Triton in two processes: DDP and FSDP train as eager PyTorch does.

The processes are on CPUs, with gloo, or on two GPUs, with NCCL.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import require

torch = require("torch")
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch has no torch.distributed")

_PROGRAM = """\
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

device = sys.argv[1]
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank = dist.get_rank()
if device == "cuda":
    torch.cuda.set_device(rank)
torch._inductor.config.cpu_backend = "triton"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(48), nn.Linear(48, 96), nn.Linear(96, 48)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (2,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def losses(way, compiled):
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(device)
    if way == "ddp":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank] if device == "cuda" else None)
    else:
        model = sharded(model)
    step = torch.compile(model, backend="ziggurat") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for number in range(4):
        inputs = torch.randn(16, 48, generator=torch.Generator().manual_seed(10 * number + rank)).to(device)
        loss = F.mse_loss(step(inputs), inputs.roll(1, 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average = loss.detach().clone()
        dist.all_reduce(average)
        found.append(average.item() / 2)
    return found


for way in ("ddp", "fsdp"):
    expected, actual = losses(way, False), losses(way, True)
    assert expected[-1] < expected[0], expected
    torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    from torch._dynamo.utils import counters
    import triton

    assert triton.__name__ == "ziggurat.triton" and counters["inductor"]["async_compile_cache_miss"] > 0, counters
    counters.clear()
    torch._dynamo.reset()
    sys.stdout.write(f"trained by {way}\\n")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_two_processes_train_as_eager_ones(device: str, tmp_path: Path):
    """Both ways in the same processes, which take long to start."""
    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("there are no two GPUs")
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", program, device]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    assert sorted(done.stdout.splitlines()) == ["trained by ddp"] * 2 + ["trained by fsdp"] * 2
