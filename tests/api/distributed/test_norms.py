"""The all-reduce with bias, residual and norm: the kernel on several devices, and the operator."""

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
from ziggurat.distributed import kernels, norms


def run(module: ModuleType, seed: int, world: int = 3, rows: int = 7, hidden: int = 12) -> None:
    """Two launches, the first of them without bias and residual; the last round of a program has fewer rows."""
    random = np.random.default_rng(seed)
    x = random.integers(-9, 9, (2, world, rows, hidden)).astype(np.float32)
    bias, weight, residual = (random.normal(size=s).astype(np.float32) for s in (hidden, hidden, (rows, hidden)))
    with zg.devices(world, seed=seed) as d:
        spaces = [device.zeros(2 * module.COUNTERS + 2 * 2 * 32, zg.f32, "space") for device in d]
        out, sums = ([device.zeros((2, rows, hidden), zg.f32) for device in d] for _ in range(2))
        for rank, device in enumerate(d):
            team = module.Team(rank, world, zg.f32, 32, 32, 16)
            for launch, extra in enumerate(((None, None), (device.array(bias), device.array(residual)))):
                with device:
                    module.all_reduce_norm[(2,)](
                        device.array(x[launch, rank]), *extra, device.array(weight), out[rank][launch],
                        sums[rank][launch], rows, hidden, 1e-6, 2, d.addresses(spaces), 10**9, team,
                    )  # fmt: skip
    for rank in range(world):
        for launch in range(2):
            total = x[launch].sum(0) + launch * (bias + residual)
            assert np.allclose(sums[rank][launch], total, rtol=1e-6, atol=1e-5)
            norm = total / np.sqrt((total**2).mean(1, keepdims=True) + 1e-6) * weight
            assert np.allclose(out[rank][launch], norm, rtol=1e-5, atol=1e-5)


def test_rows_are_added_and_normalised_on_several_devices() -> None:
    run(kernels, seed=1)


def test_a_signal_before_the_data_is_an_error(tmp_path) -> None:
    text = "        copy(own, zg.add(slots[TEAM.rank], offset), count * hidden, TEAM.block)\n"
    meeting = "        epoch = meet(team, epoch, timeout_ns, TEAM)\n"
    module = with_fault(kernels, text + meeting, meeting + text, tmp_path)
    with pytest.raises(zg.KernelRuntimeError, match="nothing orders the two"):
        run(module, seed=1, world=2)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_results_gradients_fakes_and_errors() -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        torch.manual_seed(0)
        shapes = (5, 6), (6, 8), (8,), (5, 8), (8,)
        x, w, bias, residual, weight = (torch.randn(shape).requires_grad_() for shape in shapes)
        y, total = norms.matmul_all_reduce(x, w, bias, residual, weight)
        expected_total = x @ w + bias + residual
        expected = torch.nn.functional.rms_norm(expected_total, (8,), weight, 1e-6)
        torch.testing.assert_close((y, total), (expected, expected_total))
        arguments = x, w, bias, residual, weight
        gradients = torch.autograd.grad(y.square().sum() + total.sin().sum(), arguments)
        right = torch.autograd.grad(expected.square().sum() + expected_total.sin().sum(), arguments)
        torch.testing.assert_close(gradients, right)
        torch.testing.assert_close(norms.matmul_all_reduce(x, w, bias), x @ w + bias)
        (gradient,) = torch.autograd.grad(norms.all_reduce_norm(residual, weight)[0].sin().sum(), residual)
        assert gradient.shape == residual.shape
        with FakeTensorMode() as mode:
            assert [t.shape for t in norms.all_reduce_norm(*map(mode.from_tensor, (residual, weight)))] == [(5, 8)] * 2
        with pytest.raises(LaunchError, match=r"the bias of all_reduce_norm must be \(8,\); got \(5, 8\)"):
            norms.all_reduce_norm(residual, weight, residual)
        with pytest.raises(LaunchError, match=r"takes \(…, k\) and \(k, n\) of one dtype on one device; got \(5, 6\)"):
            norms.matmul_all_reduce(x, x)
    finally:
        dist.destroy_process_group()
