"""The collectives as operators of PyTorch in a group of one rank, which needs no GPU; how they divide elements."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import require

torch = require("torch")
dist = require("torch.distributed")

from torch._subclasses.fake_tensor import FakeTensorMode

import ziggurat as zg
from ziggurat import LaunchError, bf16, divisible, i32, i64, ptr
from ziggurat.distributed import collectives, kernels, matmul


@pytest.fixture(scope="module")
def group():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


def shape_of_fake(name, *tensors, group):
    """The shape of the result, as `torch.compile` computes it."""
    with FakeTensorMode() as mode:
        return getattr(torch.ops.ziggurat, name)(*map(mode.from_tensor, tensors), group).shape


CALLS = ["all_reduce", "all_gather", "reduce_scatter"]


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("name", CALLS)
def test_operators_have_results_gradients_and_fakes(name, group) -> None:
    call = getattr(collectives, name)
    x = torch.arange(6.0).reshape(3, 2).requires_grad_()
    y = call(x)
    assert torch.equal(y, x)
    y.square().sum().backward()
    assert torch.equal(x.grad, 2 * x)
    assert shape_of_fake(name, x, group=group) == y.shape
    assert torch.equal(call(x.detach().T), x.detach().T)


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("name", ["all_gather_matmul", "matmul_reduce_scatter"])
def test_products_have_results_gradients_and_fakes(name, group) -> None:
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(*size, dtype=torch.float64, generator=generator).requires_grad_() for size in ((4, 8), (8, 3)))
    y = getattr(matmul, name)(x, w)
    assert torch.equal(y, x @ w)
    expected = torch.autograd.grad((x @ w).square().sum(), (x, w))
    for gradient, right in zip(torch.autograd.grad(y.square().sum(), (x, w)), expected, strict=True):
        torch.testing.assert_close(gradient, right)
    assert shape_of_fake(name, x, w, group=group) == y.shape


def test_errors_of_collectives(group) -> None:
    with pytest.raises(LaunchError, match="the argument of all_reduce must be a tensor of PyTorch; got 5"):
        collectives.all_reduce(5)
    with pytest.raises(LaunchError, match="the group of all_reduce must be a process group or its name; got 5"):
        collectives.all_reduce(torch.ones(4), 5)
    with pytest.raises(LaunchError, match="all_gather divides the first axis of a tensor; got a tensor without axes"):
        collectives.all_gather(torch.ones(()))
    with pytest.raises(LaunchError, match="all_gather_matmul takes two matrices; got tensors with 1 and 2 axes"):
        matmul.all_gather_matmul(torch.ones(4), torch.ones(4, 4))
    for w in (torch.ones(3, 4), torch.ones(4, 4, dtype=torch.float16)):
        with pytest.raises(LaunchError, match=r"takes \(m, k\) and \(k, n\) of one dtype on one device; got \(4, 4\)"):
            matmul.matmul_reduce_scatter(torch.ones(4, 4), w)
    with pytest.raises(LaunchError, match="the timeout of collectives must be more than 0"):
        collectives.set_timeout(0)
    with pytest.raises(LaunchError, match="less than 1e9 s; got 'long'"):
        collectives.set_timeout("long")


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_divisions_cover_all_elements_and_fit_into_slots(itemsize, parts) -> None:
    for count in (1, 8, 4096, 4104, 1 << 20, (1 << 25) + 8):
        division = collectives.Division.of(count, itemsize, parts)
        assert division.chunk <= division.part and parts * division.part <= division.size
        assert division.part * itemsize % 16 == 0 and division.chunk % division.block == 0
        rounds = -(-count // (division.programs * division.chunk))
        assert rounds == 1 or division.chunk == min(division.part, collectives.ROUND_BYTES // itemsize)
        assert 1 <= division.programs <= kernels.PROGRAMS


def test_instructions_of_an_all_reduce() -> None:
    pointer, count, table = (divisible(type_, 16) for type_ in (ptr(bf16), i32, ptr(i64)))
    team = kernels.Team(0, 2, bf16, 1 << 15, 1 << 15, 4096)
    compiled = kernels.all_reduce_one_shot.compile(pointer, pointer, count, count, table, i64, team, target="sm_90a")
    text = compiled.ptx
    assert text.count("ld.global.v4.b32") == 3 and text.count("st.global.v4.b32") == 2
    assert text.count("red.release.sys.global.add.u64") == 1 and text.count("ld.acquire.sys.global.b64") == 1


@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "native"])
@pytest.mark.parametrize("name", ["all_reduce_one_shot", "all_reduce_two_shot", "reduce_scatter", "all_gather"])
def test_kernels_on_several_devices(name: str, native: bool, seed: int = 0, world: int = 3, programs: int = 2) -> None:
    """Two launches one after the other, each of several rounds, with the last part smaller than the others."""
    part, block, chunk = 32, 8, 16
    share = 36 if name in ("all_reduce_two_shot", "reduce_scatter") else 100
    count = share * world if share == 36 else share
    x = np.random.default_rng(seed).integers(-99, 99, (world, 2, count)).astype(np.float32)
    results = [x.sum(0)] * world
    if name == "reduce_scatter":
        results = [*x.sum(0).reshape(2, world, share).swapaxes(0, 1)]
    elif name == "all_gather":
        results = [x.swapaxes(0, 1).reshape(2, world * count)] * world
    with zg.devices(world, seed=seed, native=native) as d:
        spaces = [device.zeros(2 * kernels.COUNTERS + programs * 2 * world * part, zg.f32, "space") for device in d]
        out = [device.zeros(result.shape, zg.f32, "out") for device, result in zip(d, results, strict=True)]
        numbers = {"all_reduce_two_shot": (count, share, chunk), "reduce_scatter": (share, chunk)}
        for rank, device in enumerate(d):
            team = kernels.Team(rank, world, zg.f32, world * part, part, block)
            for launch in range(2):
                own = device.array(x[rank, launch])
                arguments = own, out[rank][launch], *numbers.get(name, (count, chunk)), d.addresses(spaces), 10**9
                with device:
                    getattr(kernels, name)[(programs,)](*arguments, team)
    for rank, result in enumerate(results):
        assert np.array_equal(out[rank], result)


def test_two_collectives_of_a_group_at_once_on_a_device_are_an_error() -> None:
    with pytest.raises(zg.KernelRuntimeError, match="two collectives of a group run at once"), zg.devices(2) as d:
        spaces = [device.zeros(kernels.COUNTERS + 8, zg.i64, "space") for device in d]
        spaces[1][kernels.COUNTERS - kernels.PROGRAMS] = -1  # As a launch that runs leaves it.
        for rank, device in enumerate(d):
            with device:
                team = kernels.Team(rank, 2, zg.f32, 8, 8, 8)
                x, out = device.zeros(8, zg.f32), device.zeros(16, zg.f32)
                kernels.all_gather[(1,)](x, out, 8, 8, d.addresses(spaces), 10**9, team)
