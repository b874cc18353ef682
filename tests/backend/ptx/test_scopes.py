"""Roles with scopes of their own: models of three roles and more, simulated, broken, and as ptxas takes them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from role_kernels import K, doubled, placed, products

import ziggurat as zg
from ziggurat.codemodel.errors import InternalError, VerifyError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.queries import role_split
from ziggurat.transforms.gpu.channels import proofs_of
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.gpu.lower_channels import lower_channels


def small(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, (rows, columns)).astype(np.float16)


def right_product(warps: Sequence[int], n: int, steps: int, module: gpu.Module, seeds: Sequence[int]) -> None:
    a, b = small(16 * sum(warps), max(K * steps, K), 1), small(max(K * steps, K), n, 2)
    expected = a[:, : K * steps].astype(np.float64) @ b[: K * steps].astype(np.float64)
    binary = zg.compile(module)
    for seed in seeds:
        c = np.full((len(a), n), 7, np.float16)
        blocks = [zg.TensorDescriptor(a, (16 * own, K)) for own in warps]
        results = [zg.TensorDescriptor(c, (16 * own, n)) for own in warps]
        binary.simulate[(1,)](*blocks, zg.TensorDescriptor(b, (K, n)), *results, K * steps, seed=seed)
        np.testing.assert_array_equal(c.astype(np.float64), expected)


def right_double(consumer: int, n: int, steps: int, module: gpu.Module, seeds: Sequence[int]) -> None:
    a, b = small(16 * consumer, K * steps, 1), small(K * steps, n, 2)
    binary = zg.compile(module)
    for seed in seeds:
        c = np.full((len(a), n), 7, np.float16)
        inputs = [(a, (len(a), K)), (b, (K, n)), (c, c.shape)]
        arguments = [zg.TensorDescriptor(array, block) for array, block in inputs]
        binary.simulate[(1,)](*arguments, K * steps, seed=seed)
        np.testing.assert_array_equal(c.astype(np.float64), 2 * a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize(("warps", "steps"), [((8, 4), 5), ((4, 8), 3), ((4, 4, 4), 4), ((4, 4), 0), ((8, 8), 1)])
def test_consumers_of_any_sizes(warps: tuple[int, ...], steps: int) -> None:
    module = placed(products(warps))
    split = role_split(module)
    assert split is not None and [scope.warps for scope in split.scopes] == [*warps, 1]
    # One arrival of each warp group that waits: of all consumers for b, and of one for its block of a.
    empty = sorted(op.arrivals for op in module.walk() if isinstance(op, gpu.MbarrierInit))
    assert empty == sorted([*[1] * (len(warps) + 1), sum(warps) // 4, *(own // 4 for own in warps)])
    right_product(warps, 64, steps, module, (0, 1))


@pytest.mark.parametrize(("consumer", "converter"), [(4, 4), (4, 8), (8, 4)])
def test_a_role_that_waits_for_one_channel_and_fills_another(consumer: int, converter: int) -> None:
    """Its warps arrive one by one: they read slots of TMA, and store to slots of the matrix units."""
    module = placed(doubled(consumer, converter))
    arrivals = {op.arrivals for op in module.walk() if isinstance(op, gpu.MbarrierInit)}
    assert arrivals == {1, converter, consumer // 4}
    right_double(consumer, 64, 4, module, (0, 1))


@pytest.mark.parametrize("seed", range(8))
def test_random_kernels(seed: int) -> None:
    rng = random.Random(seed)
    n, steps, stages = rng.choice([32, 64, 128]), rng.randrange(6), rng.randrange(2, 5)
    if rng.random() < 0.4:
        consumer = rng.choice([4, 8])
        module = placed(doubled(consumer, rng.choice([4, 8]), n, stages))
        right_double(consumer, n, max(steps, 1), module, (seed % 2, seed + 2))
        return
    warps = tuple(rng.choice([4, 4, 8]) for _ in range(rng.randrange(2, 4)))
    values = rng.random() < 0.6
    right_product(warps, n, steps, placed(products(warps, n, stages, values)), (seed % 2, seed + 2))


# Scopes.


def test_the_scope_of_an_op() -> None:
    module = parse(products((8, 4)))
    scopes = {type(op): scope_of(op) for op in module.walk() if isinstance(op, gpu.Channel | gpu.TmaLoad)}
    assert scopes == {gpu.Channel: WarpScope(0, 16), gpu.TmaLoad: WarpScope(12, 1, 24)}
    of_dots = [scope_of(op) for op in module.walk() if isinstance(op, gpu.Wgmma)]
    assert [(scope.first, scope.warps, scope.barrier) for scope in of_dots] == [(0, 8, 1), (8, 4, 2)]
    assert zg.same_model(parse(str(module)), module)


def test_threads_and_barriers_of_a_scope() -> None:
    """A thread's number begins at the first warp, and each role meets at its own barrier."""
    llvm = zg.compile(placed(products((8, 4)))).stages["llvm"]
    assert "sub nsw i32" in llvm and '"nvvm.reqntid"="512"' in llvm
    assert {*re.findall(r"bar\.sync[^;]*", llvm)} == {"bar.sync 0", "bar.sync 1, 256", "bar.sync 2, 128"}
    assert re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32 (\d+);", llvm) == [
        ("inc", "160"), ("inc", "160"), ("dec", "24"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@warps=[8, 4, 4]", "@warps=[8, 6, 2]", "whole groups of 4 warps"),
        ("@warps=[8, 4, 4]", "@warps=[8, 4]", "one number each"),
        ("@warps=[8, 4, 4]", "@warps=[8, 20, 8]", "together up to 32"),
        ("@registers=[160, 160, 24]", "@registers=[160, 150, 24]", "multiples of 8"),
        ("@registers=[160, 160, 24]", "@registers=[240, 240, 24]", "65536 registers together"),
        ("@barriers=[1, 2, 0]", "@barriers=[1, 1, 0]", "barriers of roles differ"),
        ("@barriers=[1, 2, 0]", "@barriers=[1, 16, 0]", "less than 16"),
    ],
)
def test_roles_that_a_cta_cannot_have(old: str, new: str, message: str) -> None:
    text = products((8, 4))
    assert old in text
    with pytest.raises(VerifyError, match=message):
        verify(parse(text.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@num_warps=16", "@num_warps=12", "with 12 warps together; got .16."),
        ("@warps=[8, 4, 4]", "@warps=[4, 8, 4]", "a layout of 8 warps, and 4 run the op"),
        ("@barriers=[1, 2, 0]", "@barriers=[1, 0, 0]", "a layout of 4 warps, and 1 run the op"),
        ("scf.for %zero %k %step (%i : i32)void -> {", "gpu.barrier; scf.for %zero %k %step (%i : i32)void -> {",
         "a role with barrier 0"),
    ],
)  # fmt: skip
def test_the_verifier_checks_scopes(old: str, new: str, message: str) -> None:
    text = products((8, 4))
    assert old in text
    with pytest.raises(VerifyError, match=message):
        verify(parse(text.replace(old, new)))


# Broken models.


def replaced(module: Op, op: Op, change: Any) -> Any:
    return transform(module, lambda builder, old, operands: change(builder, operands) if old is op else None)


def dropped(_: Rewriter, operands: tuple[Value, ...]) -> Outcome:
    return DROP


@pytest.mark.parametrize("text", [products((8, 4)), products((4, 4), values=False), doubled(4, 4)])
def test_each_role_must_release(text: str) -> None:
    module = parse(text)
    kinds = (gpu.ChannelRelease, gpu.ChannelCommit)
    ops = [op for op in module.walk() if isinstance(op, kinds)]
    assert len(ops) >= 7
    for op in ops:
        broken = replaced(module, op, dropped)
        assert any(proof.hazards for proof in proofs_of(broken).values()), f"{op!r} is not missed"
        with pytest.raises(InternalError):
            lower_channels(broken)


@pytest.mark.parametrize("text", [products((8, 4)), doubled(4, 4)])
def test_arrivals_are_counted(text: str) -> None:
    """`hazards` finds wrong counts of arrivals on the finished model: one more, one less, and warp groups for warps."""
    module = placed(text)
    for op in module.walk():
        if isinstance(op, gpu.MbarrierInit):
            for more in (-1, 1):
                other = replaced(
                    module, op, lambda b, v, op=op, more=more: b.add(gpu.MbarrierInit(*v, arrivals=op.arrivals + more))
                )
                assert [hazard.missing for hazard in hazards(other)] == [f"count of {op.arrivals} arrivals"]
        if isinstance(op, gpu.MbarrierArrive):
            other = replaced(module, op, lambda b, v, op=op: b.add(gpu.MbarrierArrive(*v, each_warp=not op.each_warp)))
            assert hazards(other)


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        # The role that waits fills a slot as well.
        ("gpu.channel_release %ch0;", "gpu.channel_release %ch0; {again} gpu.channel_commit %ch0;", "single role"),
        # The role that fills waits for its own slot.
        ("gpu.channel_commit %ch2;", "gpu.channel_commit %ch2; %o : i32 = gpu.channel_wait %ch2; "
         "gpu.channel_release %ch2;", "other role"),
    ],
)  # fmt: skip
def test_one_role_fills_a_channel(old: str, new: str, missing: str) -> None:
    text = doubled(4, 4)
    assert text.count(old) == 1
    (load,) = re.findall(r"%s0 : i32 = gpu\.channel_acquire.*?(?=gpu\.channel_commit %ch0;)", text, re.DOTALL)
    again = load.replace("%s0", "%q0").replace("%to_ra", "%again")
    module = parse(text.replace(old, new.replace("{again}", again)))
    results = {hazard.missing for proof in proofs_of(module).values() for hazard in proof.hazards}
    assert any(missing in item for item in results), results


# As far as the assembler.


@pytest.mark.parametrize("text", [products((8, 4), 128), products((4, 4, 4), 128), doubled(4, 4, 128, 3)])
def test_assembled(text: str, ptxas: Callable[..., str]) -> None:
    message = ptxas(zg.compile(placed(text)).ptx, "sm_90a")
    assert "0 bytes spill stores, 0 bytes spill loads" in message and "C75" not in message, message
