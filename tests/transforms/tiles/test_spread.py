"""Programs that clusters of CTAs share: the same results as by one CTA, and the reasons where they cannot."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from cluster_kernels import NAMES, arguments, extreme, types_of

import ziggurat as zg
from ziggurat.backend.launch.arrays import elements
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import LaunchError, SimulationError, ZigguratWarning
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import SCALARS, TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.tiles.prepare import prepare_for_gpu
from ziggurat.transforms.tiles.spread import spread

F32 = zg.divisible(zg.ptr(zg.f32))
LESS = zg.CompareKind.LESS_THAN


def shapes(model: Op) -> set[tuple[int, ...]]:
    return {op.result.type.shape for op in model.walk() if isinstance(op.result.type, TensorType)}


def prepared(kernel: Any, *types: Any) -> Any:
    return prepare_for_gpu(kernel.triton(*types))


@pytest.mark.parametrize("ctas", [2, 8])
@pytest.mark.parametrize("name", NAMES)
def test_clusters_give_the_results_of_the_interpreter(name: str, ctas: int) -> None:
    """For rows that no block fills: with parts without elements, or longer than a block."""
    for n in (70, 1000 if name == "centred" else 500):
        kernel, inputs, constants = arguments(name, 2, n, 512)
        model = kernel.triton(*types_of(inputs), *constants)
        results = [value.copy() if isinstance(value, np.ndarray) else value for value in inputs]
        run(model, None, (2,), inputs)
        binary = zg.compile(model, num_ctas=ctas, num_warps=1, verify=True)
        assert binary.num_ctas == ctas
        binary.simulate[2](*results, seed=ctas, optimized=ctas == 8)
        for value, other in zip(inputs, results, strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("name", [name for name, scalar in SCALARS.items() if scalar.dtype in elements()])
def test_numbers_of_all_types_are_exchanged(name: str) -> None:
    dtype: Any = SCALARS[name].dtype
    x = np.random.default_rng(3).integers(0, 2 if name == "i1" else 100, (3, 256)).astype(dtype)
    if SCALARS[name].signed or SCALARS[name].is_float:
        x = np.negative(x)
    actual = np.zeros(3, dtype)
    binary = zg.compile(extreme.triton(*types_of([x, actual]), 256), num_ctas=4, num_warps=1, verify=True)
    binary.simulate[3](x, actual)
    np.testing.assert_array_equal(actual, x.max(1))


def test_axes_of_the_size_are_divided_and_others_are_not() -> None:
    kernel, inputs, constants = arguments("rows", 1, 1024, 1024)
    model: Any = prepared(kernel, *types_of(inputs), *constants)
    result = spread(model, CompileOptions(num_ctas=8))
    verify(result)
    assert {1024} <= {size for shape in shapes(model) for size in shape}
    assert shapes(result) == {(4,), (4, 1), (4, 128), (1, 128), (128,), (4, 8)}
    (func,) = result.functions().values()  # type: ignore[attr-defined]
    assert isinstance(func, tt.Func) and func.num_ctas == 8


def test_the_compiler_chooses_clusters_for_long_rows() -> None:
    def chosen(block: int, **options: Any) -> tuple[int, int]:
        kernel, inputs, constants = arguments("normalised", 1, 8, block)
        binary = zg.compile(kernel.triton(*types_of(inputs), *constants), **options)
        return binary.num_ctas, binary.num_warps

    assert chosen(32768) == (1, 16)
    assert chosen(65536) == (8, 8)
    assert chosen(131072) == (16, 8)
    assert chosen(262144) == (16, 16)
    assert chosen(131072, target="sm_120") == (8, 16)
    assert chosen(131072, num_ctas=1) == chosen(131072, target="sm_89") == (1, 32)
    assert chosen(131072, launch_cooperative_grid=True) == (1, 32)


# Kernels that cannot be divided.


@zg.kernel
def counted(x, out, BLOCK: zg.constexpr):
    row = zg.load(zg.add(x, zg.arange(0, BLOCK)))
    zg.atomic_add(out, zg.sum(row, axis=0))


@zg.kernel
def summed_up(x, out, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out, at), zg.cumsum(zg.load(zg.add(x, at)), axis=0))


@zg.kernel
def shown(x, out, BLOCK: zg.constexpr):
    row = zg.load(zg.add(x, zg.arange(0, BLOCK)))
    zg.device_print("sum", zg.sum(row, axis=0))


@zg.kernel
def squared(x, out, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    both = zg.add(zg.mul(zg.expand(at, 1), BLOCK), zg.expand(at, 0))
    zg.store(zg.add(out, both), zg.load(zg.add(x, both)))


@zg.kernel
def reduced_in_a_loop(x, out, BLOCK: zg.constexpr):
    at, total = zg.arange(0, BLOCK), 0.0
    for row in range(0, 8):
        total = total + zg.max(zg.load(zg.add(x + row * BLOCK, at)), axis=0)
    zg.store(out, total)


@zg.kernel
def places_in_a_loop(x, out, BLOCK: zg.constexpr):
    at, total = zg.arange(0, BLOCK), 0.0
    for row in range(0, 8):
        highest, place = zg.max(zg.load(zg.add(x + row * BLOCK, at)), axis=0, return_indices=True)
        total = total + highest + zg.cast(place, zg.f32)
    zg.store(out, total)


@zg.kernel
def changed_by_one(x, out, BLOCK: zg.constexpr, BARRIER: zg.constexpr, ALONE: zg.constexpr):
    """All CTAs load `out`, and the first one stores to it: that would change the values that they store to x."""
    at, few = zg.arange(0, BLOCK), zg.arange(0, 32)
    row = zg.load(zg.add(x, at))
    total = zg.sum(row, axis=0)
    before = zg.load(zg.add(out, few))
    if BARRIER:
        zg.debug_barrier()
    zg.store(zg.add(out, few), zg.add(before, total))
    zg.store(zg.add(x, at), zg.sub(row, total if ALONE else zg.sum(before, axis=0)))


@zg.kernel
def changed(x, out, BLOCK: zg.constexpr):
    changed_by_one(x, out, BLOCK, False, False)


@pytest.mark.parametrize(("barrier", "alone"), [(True, False), (False, True)])
def test_what_the_first_cta_changes(barrier: bool, alone: bool) -> None:
    binary = zg.compile(changed_by_one.triton(F32, F32, 128, barrier, alone), num_ctas=2, num_warps=1, verify=True)
    assert binary.num_ctas == 2
    arguments = [np.arange(128, dtype=np.float32), np.full(32, 2, np.float32)]
    results = [value.copy() for value in arguments]
    run(changed_by_one.triton(F32, F32, 128, barrier, alone), None, (1,), arguments)
    binary.simulate[1](*results)
    for value, other in zip(arguments, results, strict=True):
        np.testing.assert_array_equal(value, other)


@zg.kernel
def turned(x, out, BLOCK: zg.constexpr, BARRIER: zg.constexpr):
    """Each CTA loads what the other one has stored."""
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at)))
    if BARRIER:
        zg.debug_barrier()
    zg.store(zg.add(x, at), zg.load(zg.add(out, zg.sub(BLOCK - 1, at))))


@pytest.mark.parametrize("seed", [0, 1])
def test_only_a_barrier_orders_the_accesses_of_ctas(seed: int) -> None:
    binary = [zg.compile(turned.triton(F32, F32, 128, barrier), num_ctas=2, num_warps=1) for barrier in (True, False)]
    assert [item.num_ctas for item in binary] == [2, 2]
    x = np.arange(128, dtype=np.float32)
    binary[0].simulate[1](x, np.zeros(128, np.float32), seed=seed)
    np.testing.assert_array_equal(x, np.arange(128)[::-1])
    with pytest.raises(
        SimulationError, match=r"a barrier of the cluster must be between a (store|load) and another CTA"
    ):
        binary[1].simulate[1](x, np.zeros(128, np.float32), seed=seed)


@zg.kernel
def scalar(x, out, BLOCK: zg.constexpr):
    zg.store(out, zg.load(x) + BLOCK)


@zg.kernel
def folded(x, out, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    row = zg.reshape(zg.load(zg.add(x, at)), (BLOCK // 4, 4))
    row = zg.mul(row, zg.cast(zg.expand(zg.arange(0, 4), 0), zg.f32))
    zg.store(zg.add(out, at), zg.reshape(row, (BLOCK,)))


@zg.kernel
def backwards(x, out, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(x, at), zg.load(zg.add(x, zg.sub(BLOCK - 1, at))))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (counted, r"tt\.atomic_rmw would be done by each CTA \(tt\.atomic_rmw at .*test_spread\.py:\d+"),
        (summed_up, r"tt\.scan moves elements between CTAs \(tt\.scan at .*test_spread\.py:\d+"),
        (shown, r"tt\.print is of one CTA"),
        (squared, r"a tensor has two axes of 128"),
        (reduced_in_a_loop, r"a loop reduces what the CTAs share"),
        (places_in_a_loop, r"a loop reduces what the CTAs share"),
        (changed, r"it may store where the other CTAs have yet to load"),
        (backwards, r"it may store where the other CTAs have yet to load"),
        (scalar, r"it has no tensors"),
        (folded, r"a reshape moves elements between CTAs"),
    ],
)
def test_a_warning_tells_why_a_program_is_one_cta(kernel: Any, reason: str) -> None:
    model = kernel.triton(F32, F32, 128)
    expected = f"a program of '.*' is one CTA, not a cluster of num_ctas=2: {reason}"
    with pytest.warns(ZigguratWarning, match=expected):
        binary = zg.compile(model, num_ctas=2, num_warps=2)
    assert binary.num_ctas == 1 and binary.num_warps == 4, "one CTA has the warps of all"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert zg.compile(model, num_warps=2).num_ctas == 1


def test_targets_without_clusters_and_short_rows() -> None:
    kernel, inputs, constants = arguments("normalised", 1, 8, 256)
    model = kernel.triton(*types_of(inputs), *constants)
    with pytest.warns(ZigguratWarning, match="num_ctas=2: sm_80 has no clusters"):
        assert zg.compile(model, num_ctas=2, target="sm_80").num_ctas == 1
    with pytest.warns(ZigguratWarning, match="num_ctas=16: sm_120 has clusters of at most 8 CTAs"):
        assert zg.compile(model, num_ctas=16, target="sm_120").num_ctas == 1
    with pytest.warns(ZigguratWarning, match="num_ctas=16: its longest axis has only 256 elements"):
        assert zg.compile(model, num_ctas=16).num_ctas == 1
    assert zg.compile(model, num_ctas=8).num_ctas == 8, "32 elements a CTA"


def test_a_model_of_a_cluster_is_text_and_compiles_again() -> None:
    kernel, inputs, constants = arguments("normalised", 1, 8, 256)
    binary = zg.compile(kernel.triton(*types_of(inputs), *constants), num_ctas=2, line_info=False)
    again = zg.compile(zg.parse(str(binary.stages["gpu"])), line_info=False)
    assert again.num_ctas == 2 and again.ptx == binary.ptx
    assert sum(isinstance(op, gpu.ClusterStore) for op in again.stages["gpu"].walk()) == 2
    with pytest.raises(LaunchError, match="made for num_ctas=2, and cannot be compiled for num_ctas=4"):
        zg.compile(binary.stages["gpu"], num_ctas=4)
