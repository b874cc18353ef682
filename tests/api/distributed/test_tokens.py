"""Tokens that go to the ranks of their experts, and come back: the kernels on several devices, and the operators."""

from __future__ import annotations

import itertools
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
from ziggurat.distributed import kernels, token_kernels, tokens


def run(module: ModuleType, seed: int, world: int, count: int, hidden: int = 12, k: int = 2) -> None:
    """Two launches of each kernel: `count` tokens on each device, 2 in a round of a program, two experts a device."""
    random = np.random.default_rng(seed)
    experts = [random.permutation(2 * world + 1)[:k] - 1 for _ in range(world * count)]  # -1 is no expert.
    experts = np.array(experts, np.int32)
    x = random.integers(-9, 9, (2, world, count, hidden)).astype(np.float32)
    weights = random.integers(1, 4, experts.shape).astype(np.float32) * (experts >= 0)
    part, programs = 2 * hidden, 2
    size = 2 * kernels.COUNTERS + programs * 2 * world * part
    with zg.devices(world, seed=seed) as d:
        spaces = [device.zeros(size, zg.f32, "space") for device in d]
        results = []
        for rank, device in enumerate(d):
            team = kernels.Team(rank, world, zg.f32, world * part, part, 8)
            route, ends = device.zeros(experts.shape, zg.i32, "route"), device.zeros(2, zg.i32, "ends")
            rows, y = device.zeros((2, experts.size, hidden), zg.f32, "rows"), device.zeros(x[:, 0].shape, zg.f32)
            rest = count, hidden, d.addresses(spaces), 10**9, team, k, 2
            numbers = experts.size, 2 * world, experts.size, rank, world, 8
            with device:
                module.route_pairs[(2,)](device.array(experts), route, ends, *numbers)
                for launch in range(2):
                    module.spread[(programs,)](device.array(x[launch, rank]), route, rows[launch], *rest)
                    module.combine[(programs,)](rows[launch], device.array(weights), route, y[launch], *rest)
            results.append((route.reshape(-1), ends, rows, y))
    for rank, (route, ends, rows, y) in enumerate(results):
        pairs = [np.flatnonzero(experts == 2 * rank + expert) for expert in range(2)]
        assert ends.tolist() == [len(pairs[0]), len(pairs[0]) + len(pairs[1])]
        assert route[np.concatenate(pairs)].tolist() == [*range(ends[1])]
        own = slice(rank * count, (rank + 1) * count)
        for launch in range(2):
            whole = x[launch].reshape(-1, hidden)
            assert np.array_equal(rows[launch][: ends[1]], whole[np.concatenate(pairs) // k])
            assert np.array_equal(y[launch], whole[own] * weights[own].sum(1, keepdims=True))


def test_tokens_go_to_the_devices_of_their_experts_and_back() -> None:
    run(token_kernels, seed=1, world=3, count=3)


FAULTS = {
    "signal before data": (
        "        epoch = meet(team, epoch, timeout_ns, TEAM)\n        for rank",
        "        epoch = epoch + 1\n        for rank",
    ),
    "reuse too early": (
        "        epoch = meet(team, epoch, timeout_ns, TEAM)\n        for token",
        "        meet(team, epoch, timeout_ns, TEAM)\n        for token",
    ),
    "wrong slot": ("hidden)\n                source", "hidden * 0)\n                source"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_errors_or_wrong_results(fault: str, tmp_path) -> None:
    module = with_fault(token_kernels, *FAULTS[fault], tmp_path)
    with pytest.raises((zg.KernelRuntimeError, AssertionError)):
        for seed in range(4):
            run(module, seed, world=2, count=5)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_operators_have_results_gradients_fakes_and_errors() -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        torch.manual_seed(0)
        x, matrices = torch.randn(6, 8).requires_grad_(), torch.randn(4, 8, 8)
        experts = torch.stack([torch.randperm(4)[:2] for _ in range(6)])
        experts[0, 1] = -1
        weights = torch.rand(6, 2).requires_grad_()
        rows, ends, route = tokens.dispatch(x, experts, 4)
        starts = [0, *ends.tolist(), len(rows)]
        parts = [rows[start:end] for start, end in itertools.pairwise(starts)]
        rows = torch.cat([*(part @ matrix for part, matrix in zip(parts, matrices, strict=False)), parts[-1]])
        y = tokens.combine(rows, weights, route)
        factors = (weights * (experts >= 0))[..., None]
        expected = (torch.einsum("th,tkhj->tkj", x, matrices[experts.clamp(0)]) * factors).sum(1)
        torch.testing.assert_close(y, expected)
        right = torch.autograd.grad(expected.square().sum(), (x, weights))
        for gradient, other in zip(torch.autograd.grad(y.square().sum(), (x, weights)), right, strict=True):
            torch.testing.assert_close(gradient, other)

        with FakeTensorMode() as mode:
            fakes = map(mode.from_tensor, (x, experts, weights))
            rows_of_fakes, *rest = tokens.dispatch(next(fakes), next(fakes), 4, capacity=16)
            assert rows_of_fakes.shape == (16, 8) and [tuple(t.shape) for t in rest] == [(4,), (6, 2)]
            assert tokens.combine(rows_of_fakes, next(fakes), rest[1]).shape == x.shape
        for arguments, message in (
            ((x, experts[:3], 4), r"takes \(tokens, hidden\) and \(tokens, k\); got tensors of shapes \(6, 8\) and"),
            ((x, experts.float(), 4), "the experts of dispatch must be integers; got torch.float32"),
            ((x, experts, 0), "the number of experts must be a multiple of the 1 ranks; got 0"),
            ((x, experts, 4, None, 3), "must not be more than its capacity, 3"),
        ):
            with pytest.raises(LaunchError, match=message):
                tokens.dispatch(*arguments)
        with pytest.raises(LaunchError, match=r"got tensors of shapes \(12, 8\), \(5, 2\) and \(6, 2\)"):
            tokens.combine(rows, weights[:5], route)
    finally:
        dist.destroy_process_group()
