"""The collectives as operators of PyTorch in a group of one rank, which needs no GPU; how they divide elements."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from ziggurat import LaunchError, bf16, divisible, i32, i64, ptr
from ziggurat.distributed import collectives, kernels


@pytest.fixture(scope="module")
def group():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


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
    torch.library.opcheck(getattr(torch.ops.ziggurat, name), (x.detach(), group), test_utils="test_faketensor")
    assert torch.equal(call(x.detach().T), x.detach().T)


def test_errors_of_collectives(group) -> None:
    with pytest.raises(LaunchError, match="the argument of all_reduce must be a tensor of PyTorch; got 5"):
        collectives.all_reduce(5)
    with pytest.raises(LaunchError, match="all_gather divides the first axis of a tensor; got a tensor without axes"):
        collectives.all_gather(torch.ones(()))
    with pytest.raises(LaunchError, match="the timeout of collectives must be more than 0"):
        collectives.set_timeout(0)


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_divisions_cover_all_elements_and_fit_into_slots(itemsize, parts) -> None:
    for count in (1, 8, 4096, 4104, 1 << 20, (1 << 25) + 8):
        division = collectives.Division.of(count, itemsize, parts)
        assert division.chunk <= division.part and parts * division.part <= division.size
        assert division.part * itemsize % 16 == 0 and division.chunk % division.block == 0
        rounds = -(-count // (division.programs * division.chunk))
        assert rounds == 1 or division.chunk == division.part
        assert 1 <= division.programs <= kernels.PROGRAMS


def test_instructions_of_an_all_reduce() -> None:
    pointer, count, table = (divisible(type_, 16) for type_ in (ptr(bf16), i32, ptr(i64)))
    constants = {"RANK": 0, "WORLD": 2, "BLOCK": 4096, "DTYPE": bf16, "SIZE": 1 << 15}
    arguments = (pointer, pointer, count, count, table, table, i64)
    compiled = kernels.all_reduce_one_shot.compile(*arguments, **constants, target="sm_90a", num_warps=16)
    text = compiled.ptx
    assert text.count("ld.global.v4.b32") == 3 and text.count("st.global.v4.b32") == 2
    assert text.count("red.release.sys.global.add.u64") == 1 and text.count("ld.acquire.sys.global.b64") == 1
