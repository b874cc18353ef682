"""Attention over a sequence that is divided among ranks: the kernels on several devices, and the operator."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from libraries import require

torch = require("torch")
dist = require("torch.distributed")

from torch._subclasses.fake_tensor import FakeTensorMode

import ziggurat as zg
from tests.support.planted_faults import with_fault
from ziggurat import LaunchError
from ziggurat.distributed import attention, attention_kernels, kernels


def run(module: ModuleType, seed: int, world: int, causal: bool, n: int = 32, d: int = 16) -> None:
    """Two calls one after the other: two heads of queries on each device share one of n keys."""
    random = np.random.default_rng(seed)
    q = random.normal(size=(2, world, 2, n, d)).astype(np.float16)
    k, v = random.normal(size=(2, 2, world, n, d)).astype(np.float16)
    count, results = n * d, []
    with zg.devices(world, seed=seed) as devices:
        spaces = [device.zeros(4 * kernels.COUNTERS + 2 * count, zg.f16, "space") for device in devices]
        table = devices.addresses(spaces)
        for rank, device in enumerate(devices):
            team = kernels.Team(rank, world, zg.f16, 0, 0, 64)
            sources = attention._sources(rank, world, causal)
            copies = device.zeros((2, 2, count), zg.f16, "copies")
            for launch in range(2):
                queries, key, value = (device.array(x[launch, rank]) for x in (q, k, v))
                out, lse = device.zeros(queries.shape, zg.f16), device.zeros((2, n), zg.f32)
                state = device.zeros((2, n, d), zg.f32), device.zeros((2, n), zg.f32), device.zeros((2, n), zg.f32)
                with device:
                    module.publish[(2,)](key, value, count, table, 10**9, team)
                    for step, following in enumerate([*sources[1:], -1]):
                        module.ring_step[(2 + 2 * n // 16,)](
                            queries, key, value, out, lse, *state, 2, 2, n, d**-0.5, copies[step % 2],
                            max(following, 0), count, table, team, causal and step == 0, step == 0, following < 0,
                            COPIERS=2, BM=16, BN=16, D=d,
                        )  # fmt: skip
                        key, value = copies[step % 2]
                results.append((launch, rank, out, lse))
    for launch, rank, out, lse in results:
        keys, values = (x[launch].reshape(world * n, d).astype(np.float64) for x in (k, v))
        scores = q[launch, rank].astype(np.float64) @ keys.T * d**-0.5
        if causal:
            scores = np.where(np.arange(world * n) <= rank * n + np.arange(n)[:, None], scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        powers = np.exp(scores - top)
        total = powers.sum(-1, keepdims=True)
        assert np.allclose(out, powers / total @ values, atol=0.01)
        assert np.allclose(lse, (top + np.log(total))[..., 0], atol=1e-3)


@pytest.mark.parametrize(("world", "causal"), [(2, False), (3, True)])
def test_keys_of_all_devices_are_attended_to(world: int, causal: bool) -> None:
    run(attention_kernels, 1, world, causal)


FAULTS = {
    "signal before data": ("    end(team, meet(team, epoch, timeout_ns, TEAM))\n", "    end(team, epoch)\n"),
    "part of the data": ("number = zg.minimum(TEAM.block, 2 * count - first)", "number = TEAM.block - 8"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_errors_or_wrong_results(fault: str, tmp_path) -> None:
    module = with_fault(attention_kernels, *FAULTS[fault], tmp_path)
    with pytest.raises((zg.KernelRuntimeError, AssertionError)):
        for seed in range(4):
            run(module, seed, 2, False)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_results_gradients_fakes_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, heads, 6, 8).requires_grad_() for heads in (4, 2, 2))
        for causal in (False, True):
            y = attention.ring_attention(q, k, v, causal)
            expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
            torch.testing.assert_close(y, expected)
            right = torch.autograd.grad(expected.square().sum(), (q, k, v))
            torch.testing.assert_close(torch.autograd.grad(y.square().sum(), (q, k, v)), right)
        # The keys of three ranks, and the queries of the last of them.
        keys, values = (torch.randn(3, 2, 4, 6, 8) for _ in range(2))
        out, lse = attention._by_parts(q, keys, values, attention._sources(2, 3, True), True, 0.25)
        scores = (q.transpose(0, 1) @ torch.cat([*keys], 2).transpose(0, 1).mT).transpose(0, 1) * 0.25
        scores = scores.masked_fill(torch.ones(6, 18, dtype=torch.bool).triu(13), float("-inf"))
        torch.testing.assert_close(out, scores.softmax(-1) @ torch.cat([*values], 2))
        torch.testing.assert_close(lse, scores.logsumexp(-1))
        with FakeTensorMode() as mode:
            assert attention.ring_attention(*map(mode.from_tensor, (q, k, v))).shape == q.shape
        for arguments in ((q, k[:, :, :3], v), (k, q, q), (q, k.double(), v)):
            with pytest.raises(LaunchError, match=r"takes \(batch, heads, n, d\) of one dtype on one device, where"):
                attention.ring_attention(*arguments)
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        with pytest.raises(LaunchError, match=r"ring_attention takes bf16 and f16 on a GPU; got torch.float32"):
            attention.ring_attention(q, k, v)
    finally:
        dist.destroy_process_group()
