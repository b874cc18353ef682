"""Dots that the CTAs of a cluster share: blocks that all of them need are loaded by each in part, for all."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from divided_kernels import products
from multicast_kernels import attended, integers, product_of, three_blocks
from persistent_products import arguments, matrices, product, types

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.ptx.sass import assembled, disassembled, tool
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.backend.simulator.tma import in_parts
from ziggurat.codemodel.errors import InternalError, SimulationError, ZigguratWarning
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.gpu.scope import scope_of
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.queries import function_of, role_split
from ziggurat.transforms.gpu.channels import proofs_of
from ziggurat.transforms.gpu.gpu_passes import PLACE, place
from ziggurat.transforms.gpu.hazards import hazards

STEPS = 20_000_000


def multicasts(model: Op) -> int:
    """The loads by which each CTA fills a part of the slots of all."""
    return sum(isinstance(op, gpu.TmaLoad) and op.ctas > 1 for op in model.walk())


def judged(
    compiled: Any, grid: int, argument: list[Any], out: int, expected: np.ndarray, seed: int, **more: Any
) -> None:
    compiled.simulate[grid](*argument, seed=seed, max_steps=STEPS, **more)
    np.testing.assert_array_equal(argument[out].array, expected)


# Results.


@pytest.mark.parametrize(("form", "name"), [("NN", "f16"), ("NT", "bf16"), ("TN", "bf16"), ("TT", "f16")])
def test_forms(form: str, name: str) -> None:
    """The CTAs divide the rows or the columns, the longer ones: the other operand is loaded together."""
    seed = len(form + name) + sum(map(ord, form))
    for tile in ((128, 64, 64), (64, 128, 64)):
        model, arguments, expected = product_of(136, 72, 136, tile, form, getattr(zg, name))
        binary = zg.compile(model, num_warps=4, num_ctas=2, verify=True)
        assert binary.num_ctas == 2 and multicasts(binary.stages["gpu"]) == 1
        judged(binary, 2, arguments, 2, expected, seed)


@pytest.mark.parametrize(
    ("tile", "ctas", "count"), [((128, 64, 16), 2, 1), ((256, 64, 16), 4, 0), ((256, 64, 32), 4, 1)]
)
def test_parts_of_a_block_have_eight_rows_at_least(tile: tuple[int, int, int], ctas: int, count: int) -> None:
    """The swizzle of shared memory repeats after as many rows. A CTA loads blocks of fewer for itself."""
    model, _, _ = product_of(264, 72, 136, tile, "NN")
    assert multicasts(zg.compile(model, num_warps=4, num_ctas=ctas, verify=True).stages["gpu"]) == count


def test_bytes_and_four_ctas() -> None:
    model, arguments, expected = product_of(300, 48, 160, (256, 64, 128), "NT", zg.f8e4m3)
    binary = zg.compile(model, num_warps=4, num_ctas=4, verify=True)
    assert binary.num_ctas == 4 and multicasts(binary.stages["gpu"]) == 1
    judged(binary, 1, arguments, 2, expected, 3)


@pytest.mark.parametrize("seed", range(6))
def test_random_products(seed: int) -> None:
    """Ragged sizes, no step at all, several tiles a program, other numbers of stages, both orders of loads."""
    rng = random.Random(seed)
    tile = rng.choice([(128, 64, 64), (64, 128, 64), (128, 32, 32), (128, 128, 64), (256, 64, 64), (64, 64, 64)])
    m, n, k = rng.randrange(1, 200), 8 * rng.randrange(1, 18), 8 * rng.randrange(0, 28)
    form, element = rng.choice(["NN", "NT", "TN", "TT"]), rng.choice([zg.f16, zg.bf16])
    if form[0] == "T":
        m = -(-m // 8) * 8
    model, arguments, expected = product_of(m, n, max(k, 8), tile, form, element)
    arguments[-1] = k
    expected = expected if k else np.zeros_like(expected)
    binary = zg.compile(model, num_warps=4, num_ctas=2, num_stages=rng.randrange(2, 5), verify=True)
    assert binary.num_ctas == 2
    judged(binary, rng.randrange(1, 4), arguments, 2, expected, seed, optimized=seed % 4 == 3)


@pytest.mark.parametrize("tile", [(256, 256, 64), (128, 128, 64), (64, 256, 64)])
def test_products_by_pointers(tile: tuple[int, int, int]) -> None:
    """Raised to TMA, and the first one persistent: a launch starts as many clusters as run at once."""
    model, large = product.triton(*types(tile=tile)), tile[0] * tile[1] == 65536
    binary = zg.compile(model, num_warps=8 if large else 4, num_ctas=2, verify=True)
    assert (binary.num_ctas, binary.persistent, multicasts(binary.stages["gpu"])) == (2, large, 1)
    m, n, k = (300, 256, 72) if large else (140, 144, 136)
    arrays = matrices(m, n, k)
    a, b, c = arrays
    expected = a.astype(np.float32) @ b.astype(np.float32)
    grid = -(-m // tile[0]), -(-n // tile[1])
    binary.simulate[grid](*arguments(m, n, k, arrays), seed=tile[0] % 5, ctas=1, max_steps=STEPS)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("count", [2, 3])
def test_two_and_three_consumers(count: int) -> None:
    """Each consumer of each CTA releases the slots of all CTAs."""
    kernel = products if count == 2 else three_blocks
    m, n, k, rows = 128, 64, 64, 128 * count * 2 - 40
    a, b, c = integers(rows, 3 * k), integers(3 * k, n), np.zeros((rows, n), np.float16)
    arguments = [zg.TensorDescriptor(item, shape) for item, shape in ((a, (m, k)), (b, (k, n)), (c, (m, n)))]
    counts = [2, 3 * k] if kernel is products else [rows, 3 * k]
    constants = [m, n, k, *([""] if kernel is products else [])]
    model = kernel.triton(*(zg.divisible(array.type) for array in arguments), zg.i32, zg.i32, *constants)
    binary = zg.compile(model, num_warps=4, num_ctas=2, verify=True)
    split = role_split(binary.stages["gpu"])
    assert split is not None and tuple(split.warps) == (*[4] * count, 4)
    assert multicasts(binary.stages["gpu"]) == 1
    for seed in (0, 1):
        c[...] = 0
        judged(binary, 1, [*arguments, *counts], 2, a @ b, seed)


def test_keys_and_values_of_attention() -> None:
    """The queries are divided, and loaded once into a channel of the CTA."""
    rows, n, d = 200, 160, 64
    q, k, v = (integers(count, d, seed=at) for at, count in enumerate((rows, n, n)))
    actual, expected = (zg.TensorDescriptor(np.zeros((rows, d), np.float16), (128, d)) for _ in range(2))
    arguments = [zg.TensorDescriptor(item, shape) for item, shape in ((q, (128, d)), (k, (32, d)), (v, (32, d)))]
    model = attended.triton(*(zg.divisible(array.type) for array in [*arguments, actual]), zg.i32, 128, 32, d)
    binary = zg.compile(model, num_warps=4, num_ctas=2, verify=True)
    assert binary.num_ctas == 2 and multicasts(binary.stages["gpu"]) == 2
    run(model, None, (2,), [*arguments, expected, n])
    binary.simulate[2](*arguments, actual, n, seed=2, max_steps=STEPS)
    np.testing.assert_allclose(*(item.array.astype(np.float32) for item in (actual, expected)), atol=0.01, rtol=0.01)


def test_the_model_after_each_pass(golden: Any) -> None:
    model, options = product_of(8, 8, 8, (128, 64, 64))[0], CompileOptions(num_ctas=2, num_warps=4, verify=True)
    snapshots: list[Snapshot] = []
    place(model, options, snapshots)
    by_name = {snapshot.name: snapshot.model for snapshot in snapshots}
    for name in ("prepare", "spread", "descriptors", "specialize", "lower_channels", "barriers"):
        golden(f"multicast.{name}", by_name[name])


@pytest.mark.skipif(tool("ptxas") is None or tool("nvdisasm") is None, reason="ptxas and nvdisasm are not installed")
def test_machine_code() -> None:
    """A tile of 128×256 for each CTA takes the registers that it takes alone, and releases need no fence."""
    binary = zg.compile(product.triton(*types(tile=(256, 256, 64))), num_warps=8, num_ctas=2)
    code, resources = assembled(binary.ptx, binary.target)
    text = disassembled(code)
    assert (resources.spills, resources.warnings) == (0, ())
    assert text.count("UTMALDG.2D.MULTICAST") == 2 and "MEMBAR.ALL.GPU" not in text


# Kernels and blocks that CTAs do not share.


def test_without_roles_each_cta_loads_for_itself() -> None:
    model, arguments, expected = product_of(200, 80, 136, (128, 64, 64), roles=False)
    binary = zg.compile(model, num_warps=4, num_ctas=2, warp_specialize=False, verify=True)
    assert binary.num_ctas == 2 and multicasts(binary.stages["gpu"]) == 0
    judged(binary, 2, arguments, 2, expected, 2)


def test_a_warning_says_why_there_are_no_roles() -> None:
    model, arguments, expected = product_of(200, 80, 160, (128, 64, 128), element=zg.f8e4m3, roles=False)
    with pytest.warns(ZigguratWarning, match="each CTA of a cluster loads all blocks of the loop, without roles"):
        binary = zg.compile(model, num_warps=4, num_ctas=2, verify=True)
    assert binary.num_ctas == 2 and multicasts(binary.stages["gpu"]) == 0
    judged(binary, 2, arguments, 2, expected, 1)


@zg.kernel
def squares(x_desc, y_desc, M: zg.constexpr, WHAT: zg.constexpr):
    """Products of a matrix with itself, which cannot be divided."""
    x = x_desc.load((0, 0))
    y = zg.dot(x, zg.trans(x))
    if WHAT == "sum":
        y = zg.add(y, zg.expand(zg.sum(y, axis=1), 1))
        y = zg.add(y, zg.expand(zg.sum(y, axis=0), 0))
    y_desc.store((0, 0), zg.cast(y, zg.f16))


@pytest.mark.parametrize(
    ("what", "m", "why"),
    [("", 128, "two axes of 128"), ("sum", 128, "two axes of 128"), ("", 32, "has only 32 elements")],
)
def test_what_cannot_be_divided(what: str, m: int, why: str) -> None:
    with pytest.warns(ZigguratWarning, match=f"is one CTA, not a cluster of num_ctas=2: .*{why}"):
        block = zg.divisible(zg.descriptor((m, m), zg.f16))
        assert zg.compile(squares.triton(block, block, m, what), num_ctas=2).num_ctas == 1


@zg.kernel
def in_place(a_desc, b_desc, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    acc = zg.zeros((M, N), zg.f32)
    for start in zg.range(0, k, K):
        acc = zg.dot(a_desc.load((0, start)), b_desc.load((start, 0)), acc)
    for row in range(0, M, K):
        b_desc.store((row, 0), zg.zeros((K, N), zg.f16))


def test_a_store_to_what_the_other_cta_loads_is_not_divided() -> None:
    blocks = [zg.divisible(zg.descriptor(shape, zg.f16)) for shape in ((128, 64), (64, 64))]
    with pytest.warns(ZigguratWarning, match="one CTA, not a cluster"):
        assert zg.compile(in_place.triton(*blocks, zg.i32, 128, 64, 64), num_ctas=2).num_ctas == 1


@zg.kernel
def with_barrier(a_desc, b_desc, c_ptr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    acc = zg.dot(a_desc.load((0, 0)), b_desc.load((0, 0)), zg.zeros((M, N), zg.f32))
    zg.debug_barrier()
    zg.store(zg.add(c_ptr, zg.add(zg.mul(zg.expand(zg.arange(0, M), 1), N), zg.expand(zg.arange(0, N), 0))), acc)


def test_barriers_are_of_one_cta() -> None:
    blocks = [zg.divisible(zg.descriptor(shape, zg.f16)) for shape in ((128, 64), (64, 64))]
    with pytest.warns(ZigguratWarning, match="roles have no barrier of all CTAs"):
        assert zg.compile(with_barrier.triton(*blocks, zg.ptr(zg.f32), 128, 64, 64), num_ctas=2).num_ctas == 1


@zg.kernel
def batched(c_ptr, value):
    actual = zg.dot(zg.full((2, 128, 64), value, zg.f16), zg.full((2, 64, 64), value, zg.f16))
    zg.store(zg.add(c_ptr, zg.reshape(zg.arange(0, 16384), (2, 128, 64))), actual)


def test_batched_dots_are_of_one_cta() -> None:
    with pytest.warns(ZigguratWarning, match="num_ctas=2: all of its dots are batched"):
        assert zg.compile(batched.triton(zg.ptr(zg.f32), zg.f32), num_ctas=2).num_ctas == 1


@zg.kernel
def described_here(a_ptr, b_ptr, c_ptr, k, pitch, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    a_desc = zg.make_tensor_descriptor(a_ptr, (M, k), (pitch, 1), (M, K))
    b_desc = zg.make_tensor_descriptor(b_ptr, (k, N), (N, 1), (K, N))
    acc = zg.zeros((M, N), zg.f32)
    for start in zg.range(0, k, K):
        acc = zg.dot(a_desc.load((0, start)), b_desc.load((start, 0)), acc)
    at = zg.add(zg.mul(zg.expand(zg.arange(0, M), 1), N), zg.expand(zg.arange(0, N), 0))
    zg.store(zg.add(c_ptr, at), zg.cast(acc, zg.f16))


def test_clusters_make_no_tensor_maps() -> None:
    a, b, c = integers(128, 136), integers(136, 64), np.zeros((128, 64), np.float16)
    pointer, number = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.i32)
    model = described_here.triton(pointer, pointer, pointer, zg.i32, number, 128, 64, 64)
    with pytest.warns(ZigguratWarning, match="the CTAs of a cluster make no tensor maps"):
        binary = zg.compile(model, num_warps=4, num_ctas=2, verify=True)
    room = np.zeros((128, 144), np.float16)
    room[:, :136] = a
    binary.simulate[1](room, b, c, 136, 144, max_steps=STEPS)
    np.testing.assert_array_equal(c, a @ b)


@zg.kernel
def stored_near(
    x_ptr, w_ptr, out_ptr, count, M: zg.constexpr, K: zg.constexpr, WHERE: zg.constexpr, STEP: zg.constexpr
):
    """x · w stored where x lies or near it, or else x · w for each w, each `STEP` rows below the one before."""
    rows, columns = zg.arange(0, M), zg.arange(0, K)
    x_at = zg.add(x_ptr, zg.add(zg.expand(zg.mul(rows, K), 1), zg.expand(columns, 0)))
    w_at = zg.add(w_ptr, zg.add(zg.expand(zg.mul(columns, K), 1), zg.expand(columns, 0)))
    x, at = zg.load(x_at), x_at
    if WHERE == "moved":
        at = zg.add(x_ptr, zg.add(zg.expand(zg.mul(zg.xor(rows, M // 2), K), 1), zg.expand(columns, 0)))
    if WHERE == "turned":
        at = zg.add(x_ptr, zg.add(zg.expand(rows, 1), zg.expand(zg.mul(columns, M), 0)))
    if WHERE == "below":
        for step in zg.range(0, count):
            actual = zg.dot(x, zg.load(zg.add(w_at, step * K * K)), zg.zeros((M, K), zg.f32))
            below = zg.expand(zg.mul(zg.add(rows, step * STEP), K), 1)
            zg.store(zg.add(out_ptr, zg.add(below, zg.expand(columns, 0))), zg.cast(actual, zg.f16))
    else:
        zg.store(at, zg.cast(zg.dot(x, zg.load(w_at), zg.zeros((M, K), zg.f32)), zg.f16))


@pytest.mark.parametrize(
    ("where", "step", "ctas"), [("same", 0, 2), ("moved", 0, 1), ("turned", 0, 1), ("below", 128, 2), ("below", 64, 1)]
)
@pytest.mark.filterwarnings("ignore:each CTA of a cluster loads all blocks")
def test_stores_where_another_cta_loads_or_stores(where: str, step: int, ctas: int) -> None:
    """A CTA may be late: no other one may store what it has yet to load, or what it stores an iteration before."""
    model = stored_near.triton(*[zg.ptr(zg.f16)] * 3, zg.i32, 128, 64, where, step)
    actual, expected = ([integers(128, 64), integers(192, 64), np.zeros((512, 64), np.float16)] for _ in range(2))
    if ctas == 1:
        with pytest.warns(ZigguratWarning, match="it may store where another CTA loads or stores, in any order"):
            binary = zg.compile(model, num_warps=4, num_ctas=2)
    else:
        binary = zg.compile(model, num_warps=4, num_ctas=2)
    assert binary.num_ctas == ctas
    run(model, None, (1,), [*expected, 3])
    binary.simulate[1](*actual, 3, seed=step % 3, max_steps=STEPS)
    for item, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(item, other)


@zg.kernel
def one_size(a_ptr, b_ptr, c_ptr, k, N: zg.constexpr):
    at, acc = zg.arange(0, N), zg.zeros((N, N), zg.f32)
    for start in zg.range(0, k, N):
        a_at = zg.add(zg.expand(zg.mul(at, k), 1), zg.add(start, zg.expand(at, 0)))
        b_at = zg.add(zg.expand(zg.mul(zg.add(at, start), N), 1), zg.expand(at, 0))
        acc = zg.dot(zg.load(zg.add(a_ptr, a_at)), zg.load(zg.add(b_ptr, b_at)), acc)
    zg.store(zg.add(c_ptr, zg.add(zg.expand(zg.mul(at, N), 1), zg.expand(at, 0))), acc)


def test_axes_of_one_size_are_apart() -> None:
    """Rows, columns and what is summed are the same range, also as a row or a column of a matrix."""
    pointer = zg.divisible(zg.ptr(zg.f16))
    model = one_size.triton(pointer, pointer, zg.ptr(zg.f32), zg.divisible(zg.i32), 128)
    binary = zg.compile(model, num_warps=4, num_ctas=2)
    assert binary.num_ctas == 2
    a, b, c = integers(128, 128), integers(128, 128, seed=1), np.zeros((128, 128), np.float32)
    binary.simulate[1](a, b, c, 128, max_steps=STEPS)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_nothing_changes_for_kernels_that_do_not_ask() -> None:
    model, _, _ = product_of(8, 8, 8, (128, 64, 64))
    one, other = (zg.compile(model, num_warps=4, **more) for more in ({}, {"num_ctas": 1}))
    assert one.num_ctas == 1 and one.ptx == other.ptx and "cluster" not in one.ptx


# The proof, and the checks of the finished model.


def after(name: str, warps: int = 4) -> gpu.Module:
    """The model of a product after a pass."""
    model, options = product_of(8, 8, 8, (128, 64, 64))[0], CompileOptions("sm_90a", warps, 3, num_ctas=2)
    for title, step in PLACE:
        model = step(model, options)
        if title == name:
            break
    verify(model)
    assert isinstance(model, gpu.Module)
    return model


def changed(model: Op, change: Any) -> Any:
    def rewrite(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return change(builder, op, operands)

    result = transform(model, rewrite)
    verify(result)
    return result


def test_the_proof_of_a_channel_of_a_cluster() -> None:
    model = after("hold_operands")
    (proof,) = proofs_of(model).values()
    assert proof.op.ctas == 2 and proof.hazards == []

    def other_block(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, gpu.TmaLoad) or op.ctas == 1:
            return None
        rank = builder.add(gpu.ClusterRank())
        return builder.copy(op, (*operands[:4], rank, *operands[5:]))

    def other_count(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, gpu.ChannelAcquire):
            return None
        from ziggurat.codemodel.dialects import arith

        rank = builder.add(gpu.ClusterRank())
        less = builder.add(arith.CmpI(rank, builder.add(arith.ConstantOp(1, rank.type)), arith.IntPredicate.SLT))
        return builder.copy(op, (operands[0], less))

    def of_one_cta(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return builder.add(gpu.Channel(operands)) if isinstance(op, gpu.Channel) else None

    for change, missing in (
        (other_block, "no same block in all CTAs"),
        (other_count, "no same number of slots in all CTAs"),
        (of_one_cta, "no acquire"),
    ):
        (proof,) = proofs_of(changed(model, change)).values()
        assert missing in " ".join(map(str, proof.hazards))
        with pytest.raises(InternalError, match=missing):
            dict(PLACE)["lower_channels"](changed(model, change), CompileOptions())


def first(op: Op) -> bool:
    return scope_of(op).first == 0


def only_here(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """A consumer that releases slots of its own CTA only."""
    return builder.add(op.evolve(barrier=operands[0], predicate=operands[1], ctas=1)) if _arrives(op) else None


def too_early(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """Mbarriers that count the arrivals of one CTA only: slots are filled that the other CTA reads."""
    if isinstance(op, gpu.MbarrierInit) and op.arrivals > 1:
        return builder.add(gpu.MbarrierInit(operands[0], arrivals=op.arrivals // 2))
    return only_here(builder, op, operands)


def no_start(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    return DROP if isinstance(op, gpu.ClusterArrive | gpu.ClusterWait) else None


def no_end(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """A producer that does not wait for the last releases."""
    last = isinstance(op, gpu.MbarrierWait) and op.parent_op is role_split(op.root())
    return DROP if last and not first(op) else None


def whole_blocks(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """A CTA that loads its own block, and gets the parts of the other one no more."""
    shared = isinstance(op, gpu.TmaLoad) and op.ctas > 1
    return builder.add(gpu.TmaLoad(*operands[:4], operands[4:])) if shared else None


def _arrives(op: Op) -> bool:
    return isinstance(op, gpu.MbarrierArrive) and op.ctas > 1


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("change", "missing", "actual"),
    [
        (only_here, "no count of 1 arrivals", "deadlock"),
        (
            too_early,
            "no wait for the releases of all CTAs",
            "a TMA load writes .* another has touched|a wgmma or a copy in flight reads|more arrivals",
        ),
        (no_start, "no wait for the other CTAs", "must wait until the others have started"),
        (no_end, "no wait for the last arrivals", "must not end before another one arrives at it"),
        (whole_blocks, None, None),
    ],
)
def test_faults_are_found(change: Any, missing: str | None, actual: str | None, seed: int) -> None:
    """By `hazards`, and by the simulation; loads of whole blocks by each CTA are right, if slower."""
    model = changed(after("barriers"), change)
    noted = " ".join(map(str, hazards(model)))
    assert missing in noted if missing else noted == ""
    _, arguments, expected = product_of(250, 56, 328, (128, 64, 64))
    text, parts = to_llvm(model), in_parts(function_of(model), arguments)
    sizes: dict[str, Any] = {"num_warps": model.num_warps, "shared": model.shared, "grid": (2,)}
    if actual is None:
        simulate(text, **sizes, arguments=parts, seed=seed, max_steps=STEPS)
        np.testing.assert_array_equal(arguments[2].array, expected)
        return
    with pytest.raises(SimulationError, match=actual):
        simulate(text, **sizes, arguments=parts, seed=seed, max_steps=STEPS)


def test_descriptors_of_parts_are_read_back() -> None:
    """The text of a type says in how many parts blocks are loaded."""
    from ziggurat.codemodel.text.parser import parse

    model = after("barriers")
    assert "descriptor<n2, x64, x64, f16>" in str(model)
    assert str(parse(str(model))) == str(model)
