"""Descriptors become pointers, also those that control flow carries; the results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.backend.simulator.tma import in_parts
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.dialects.tt import Padding
from ziggurat.codemodel.errors import VerifyError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.types import DescriptorType, f32
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.queries import function_of
from ziggurat.transforms.gpu.gpu_passes import place
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.tiles.descriptors import lower_descriptors
from ziggurat.transforms.tiles.prepare import prepare


def both(kernel: Any, types: list[Any], *arrays: np.ndarray, grid: tuple[int, ...] = (1,)) -> core.Module:
    """The lowered model; both models give the same results."""
    model = prepare(kernel.triton(*types))
    result = lower_descriptors(model)
    verify(result)
    assert "descriptor" not in str(result)
    results: list[list[np.ndarray]] = []
    for each in (model, result):
        arguments = [array.copy() if isinstance(array, np.ndarray) else array for array in arrays]
        run(each, None, grid, arguments)
        results.append(arguments)
    for expected, actual in zip(*results, strict=True):
        np.testing.assert_array_equal(actual, expected)
    return result


@zg.kernel
def copying(x_ptr, y_ptr, rows, columns, r, c, PAD: zg.constexpr):
    source = zg.make_tensor_descriptor(x_ptr, (rows, columns), (columns, 1), (4, 8), PAD)
    target = zg.make_tensor_descriptor(y_ptr, (rows, columns), (columns, 1), (4, 8))
    block = zg.load_tensor_descriptor(source, (r, c))
    zg.store_tensor_descriptor(target, (r, c), zg.add(block, 1.0))
    zg.store_tensor_descriptor(target, (0, 0), block)


@pytest.mark.parametrize("at", [(0, 0), (2, 3), (-1, -5), (5, 10), (7, 7), (2**31 - 2, 0), (-(2**31), 2**31 - 1)])
@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_blocks_at_the_edges(at: tuple[int, int], pad: str) -> None:
    x = np.arange(7 * 13, dtype=np.float32).reshape(7, 13)
    types = [zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32, zg.i32, zg.i32, pad]
    both(copying, types, x, np.zeros_like(x), 7, 13, *at)


@zg.kernel
def carrying(x_ptr, y_ptr, n, steps):
    source = zg.make_tensor_descriptor(x_ptr, (n,), (1,), (8,))
    other = zg.make_tensor_descriptor(y_ptr, (n,), (1,), (8,))
    for i in range(0, steps):
        block = zg.load_tensor_descriptor(source, (i * 8,))
        zg.store_tensor_descriptor(other, (i * 4,), zg.add(block, 1))
        if zg.compare(i, 1, zg.CompareKind.EQUAL):
            keep = source
            source = other
            other = keep
    rest = steps
    while zg.compare(rest, 0, zg.CompareKind.GREATER_THAN):
        zg.store_tensor_descriptor(source, (rest,), zg.load_tensor_descriptor(other, (rest * 2,)))
        source, other = other, source
        rest = rest - 1


def test_loops_and_branches_carry_descriptors() -> None:
    x = np.arange(40, dtype=np.int32)
    result = both(carrying, [zg.ptr(zg.i32), zg.ptr(zg.i32), zg.i32, zg.i32], x, x[::-1].copy(), 40, 4)
    assert {"scf.for", "scf.if", "scf.while"} <= {op.NAME for op in result.walk()}


BLOCKS = """module ()void -> { tt.func @"f" (%p : ptr<i32>, %q : ptr<i32>, %n : i32, %c : i1)void -> {
    %s : i64 = arith.constant @1; %z : i32 = arith.constant @0;
    %a : descriptor<x4, i32> = tt.make_tensor_descriptor %p %n %s;
    %b : descriptor<x4, i32> = tt.make_tensor_descriptor %q %n %s @padding=PADDING;
    cf.cond_br %c ^block_1(%a, %b) ^block_1(%b, %a);
  ^block_1(%x : descriptor<x4, i32>, %y : descriptor<x4, i32>):
    %v : tensor<x4, i32> = tt.descriptor_load %x %z; tt.descriptor_store %y %v %z; tt.return; }; unreachable; };"""


@pytest.mark.parametrize("choice", [False, True])
def test_blocks_take_descriptors(choice: bool) -> None:
    result = lower_descriptors(zg.parse(BLOCKS.replace("PADDING", "zero")))
    verify(result)
    x, y = np.arange(4, dtype=np.int32), np.arange(10, 14, dtype=np.int32)
    run(result, None, (1,), [x, y, 3, choice])
    assert (y if choice else x).tolist() == ([0, 1, 2, 13] if choice else [10, 11, 12, 3])


def test_different_paddings_do_not_meet() -> None:
    """The padding is in the type."""
    text = BLOCKS.replace("i32>", "f32>").replace("%b : descriptor<x4, f32>", "%b : descriptor<x4, f32, nan>")
    with pytest.raises(VerifyError, match=r"it is given .descriptor<x4, f32>, descriptor<x4, f32, nan>"):
        verify(zg.parse(text.replace("PADDING", "nan")))


TAKING = """module ()void -> { tt.func @"f" @divisibility=[1, 16, 1]
    (%n : i32, %d : descriptor<x2, x4, f32>, %p : ptr<f32>)void -> {
    %v : tensor<x2, x4, f32> = tt.descriptor_load %d %n %n;
    %w : tensor<x8, f32> = tt.reshape %v;
    %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %s : tensor<x8, ptr<f32>> = tt.splat %p; %t : tensor<x8, ptr<f32>> = tt.addptr %s %r;
    tt.store %t %w; tt.return; }; unreachable; };"""


@pytest.mark.parametrize("padding", Padding)
def test_a_kernel_takes_the_parts_of_a_descriptor(padding: Padding) -> None:
    text = TAKING.replace("descriptor<x2, x4, f32>", str(DescriptorType((2, 4), f32, padding.value)))
    result = lower_descriptors(zg.parse(text))
    verify(result)
    (func,) = result.functions().values()
    assert isinstance(func, tt.Func)
    assert [str(p.type) for p in func.body.parameters] == ["i32", "ptr<f32>", "i32", "i32", "i64", "ptr<f32>"]
    assert func.divisibility == (1, 16, 1, 4, 4, 1)
    assert func.parts == ("0", "1.base", "1.shape0", "1.shape1", "1.stride0", "2")
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(8, np.float32)
    run(result, None, (1,), [2, zg.TensorDescriptor(x, (2, 4)), y])
    outside = np.nan if padding is Padding.NAN else 0
    np.testing.assert_array_equal(y, [10, 11, outside, outside, *[outside] * 4])


@pytest.mark.parametrize(("row", "elements"), [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4), (64, 16)])
def test_the_last_size_is_divided_as_the_bytes_of_a_row_are(row: int, elements: int) -> None:
    """The size counts elements, here of 4 bytes. The strides are multiples of 16 bytes in any case."""
    result = lower_descriptors(zg.parse(TAKING.replace("[1, 16, 1]", f"[1, {row}, 1]")))
    (func,) = result.functions().values()
    assert isinstance(func, tt.Func)
    constants = dict(zip(func.parts, func.divisibility, strict=True))
    assert constants == {"0": 1, "1.base": 16, "1.shape0": 1, "1.shape1": elements, "1.stride0": 4, "2": 1}


def test_an_access_that_is_kept_goes_through_the_tensor_map() -> None:
    model = zg.parse(TAKING)
    (load,) = (op for op in model.walk() if isinstance(op, tt.DescriptorLoad))
    result = lower_descriptors(model, {load.result: False})
    verify(result)
    (func,) = result.functions().values()
    assert isinstance(func, tt.Func)
    assert func.parts == ("0", "1.map", "2") and func.divisibility == ()
    (copies,) = (op for op in result.walk() if isinstance(op, tt.DescriptorLoad))
    assert copies.descriptor is func.body.parameters[1]


def test_a_block_is_combined_with_memory_by_atomics() -> None:
    total = TAKING.replace("tt.return", "tt.descriptor_reduce %d %v %n %n @fadd; tt.return")
    result = lower_descriptors(zg.parse(total))
    verify(result)
    (atomic,) = (op for op in result.walk() if isinstance(op, tt.AtomicRMW))
    assert (atomic.kind, atomic.sem) == (tt.AtomicKind.FADD, tt.MemSemantic.RELAXED) and atomic.mask is not None
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(8, np.float32)
    run(result, None, (1,), [2, zg.TensorDescriptor(x, (2, 4)), y])
    np.testing.assert_array_equal(x, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 20, 22]])


def test_a_descriptor_that_is_used_in_both_ways_is_passed_in_both() -> None:
    twice = TAKING.replace("tt.return", "tt.descriptor_store %d %v %n %n; tt.return")
    model = zg.parse(twice)
    (store,) = (op for op in model.walk() if isinstance(op, tt.DescriptorStore))
    result = lower_descriptors(model, {store.result: False})
    verify(result)
    (func,) = result.functions().values()
    assert isinstance(func, tt.Func)
    assert func.parts == ("0", "1.map", "1.base", "1.shape0", "1.shape1", "1.stride0", "2")
    assert func.divisibility == (1, 1, 16, 1, 4, 4, 1)


def test_a_model_without_descriptors_stays() -> None:
    model = zg.parse('module ()void -> { tt.func @"f" ()void -> { tt.return; }; unreachable; };')
    assert lower_descriptors(model) is model


# The divisibility of a parameter decides the width of its accesses.


@zg.kernel
def doubling(x_desc, y_desc, M: zg.constexpr, N: zg.constexpr):
    at = zg.program_id(0) * M, zg.program_id(1) * N
    y_desc.store(at, zg.mul(x_desc.load(at), 2))


def widths(module: gpu.Module) -> set[int]:
    return {op.width for op in module.walk() if isinstance(op, tt.Load | tt.Store)}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(("by", "element", "width"), [
    (1, zg.f16, 8), (4, zg.f16, 8), (16, zg.f16, 8), (16, zg.i8, 16), (16, zg.f32, 4), (16, zg.f64, 2), (32, zg.f64, 2),
])  # fmt: skip
def test_vectors_of_16_bytes_wherever_rows_end(target: str, by: int, element: Any, width: int) -> None:
    """No dot reads the blocks, so TMA does not load them. Each row begins at a multiple of 16 bytes."""
    type_ = zg.divisible(zg.descriptor((32, 64), element), by)
    module = place(doubling.triton(type_, type_, 32, 64), CompileOptions(target, 4, 3))
    loads = {op.width for op in module.walk() if isinstance(op, tt.Load)}
    assert loads == {width}
    if target == "sm_80":
        assert widths(module) == {width}


def described(array: np.ndarray, block: tuple[int, ...]) -> tuple[zg.TensorDescriptor, Any]:
    """A descriptor of an array, and the type that a launch compiles for."""
    result = zg.TensorDescriptor(array, block)
    return result, zg.divisible(result.type, 16 if result.row_bytes % 16 == 0 else 1)


def apart(shape: tuple[int, ...], dtype: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A tensor of small integers and the array around it; the distance of rows is a multiple of 16 bytes."""
    unit = 16 // np.dtype(dtype).itemsize
    sizes = (*shape[:-1], -(-shape[-1] // unit) * unit + unit)
    whole = np.random.default_rng(seed).integers(1, 9, sizes).astype(dtype)
    return whole[..., : shape[-1]], whole


def simulated(module: gpu.Module, arguments: list[Any], grid: tuple[int, ...]) -> None:
    simulate(
        to_llvm(module),
        num_warps=module.num_warps,
        shared=module.shared,
        grid=grid,
        arguments=in_parts(function_of(module), arguments),
    )


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.float32])
@pytest.mark.parametrize("shape", [(37, 48), (5, 16), (19, 80), (9, 41), (20, 3), (32, 12)])
@pytest.mark.parametrize("block", [(16, 32), (32, 64)])
def test_blocks_of_parameters_at_the_edges(target: str, dtype: Any, shape: Any, block: Any) -> None:
    """Rows that end within a block, of whole 16 bytes and others: nothing between the rows is touched."""
    (x, _), (_, whole) = apart(shape, dtype, 1), apart(shape, dtype, 2)
    before = whole.copy()
    (source, selection), (target_of, arguments) = described(x, block), described(whole[:, : shape[1]], block)
    grid = tuple(-(-size // side) for size, side in zip(shape, block, strict=True))
    module = place(doubling.triton(selection, arguments, *block), CompileOptions(target, 1, 3))
    assert hazards(module) == []
    simulated(module, [source, target_of], grid)
    np.testing.assert_array_equal(whole[:, : shape[1]], 2 * x)
    np.testing.assert_array_equal(whole[:, shape[1] :], before[:, shape[1] :])


def test_a_wrong_divisibility_of_rows_has_wrong_results() -> None:
    """The test above can fail: with vectors of 16 bytes, the bytes after a row of 82 bytes are read."""
    (x, _), (y, _) = apart((9, 41), np.float16, 1), apart((9, 41), np.float16, 2)
    type_ = zg.divisible(zg.descriptor((16, 32), zg.f16))
    module = place(doubling.triton(type_, type_, 16, 32), CompileOptions("sm_80", 1, 3))
    with pytest.raises(SimulationError, match=r"at byte 80 of .* with gaps"):
        simulated(module, [described(x, (16, 32))[0], described(y, (16, 32))[0]], (1, 2))


@zg.kernel
def convolution(x_desc, w_desc, y_desc, ROLES: zg.constexpr):
    """A convolution by 3×1 of 4 images, 4 rows of 4 pixels each, with 16 filters."""
    acc = zg.zeros((64, 16), zg.f32)
    for tap in zg.range(0, 3, warp_specialize=ROLES):
        pixels = zg.reshape(x_desc.load((1, tap + 1, -1, 0)), (64, 32))
        acc = zg.dot(pixels, zg.trans(w_desc.load((0, tap * 32))), acc)
    y_desc.store((1, 2, -1, 0), zg.reshape(zg.cast(acc, zg.f16), (4, 4, 4, 16)))


@pytest.mark.parametrize(("target", "roles"), [("sm_80", False), ("sm_90a", False), ("sm_90a", True)])
def test_blocks_of_four_axes_that_a_reshape_joins(target: str, roles: bool) -> None:
    """TMA moves them where the target has it, also over the borders of the tensor."""
    numbers = np.random.default_rng(0)
    x, w = (numbers.integers(-2, 3, shape).astype(np.float16) for shape in ((4, 5, 3, 32), (16, 96)))
    y = np.full((4, 5, 3, 16), -1, np.float16)
    blocks = [described(array, block) for array, block in ((x, (4, 4, 4, 32)), (w, (16, 32)), (y, (4, 4, 4, 16)))]
    module = place(convolution.triton(*(type_ for _, type_ in blocks), roles), CompileOptions(target, 4, 2))
    assert hazards(module) == []
    ranks = {(type(op), len(op.offsets)) for op in module.walk() if isinstance(op, gpu.TmaLoad | gpu.TmaStore)}
    assert ranks == ({(gpu.TmaLoad, 4), (gpu.TmaLoad, 2), (gpu.TmaStore, 4)} if target == "sm_90a" else set())
    below = np.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0)))
    expected = y.copy()
    expected[1:, 2:] = sum(below[1:, tap + 1 : tap + 4] @ w[:, 32 * tap : 32 * tap + 32].T for tap in range(3))
    simulated(module, [block for block, _ in blocks], (1,))
    np.testing.assert_array_equal(y, expected)


@zg.kernel
def multiplying(a_desc, b_desc, c_desc, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    row, column = zg.program_id(0) * M, zg.program_id(1) * N
    total = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        total = zg.dot(a_desc.load((row, start)), zg.trans(b_desc.load((column, start))), total)
    c_desc.store((row, column), zg.cast(total, zg.f16))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("sizes", [(40, 24, 72), (33, 40, 128), (40, 24, 75)])
def test_blocks_for_dots_are_loaded_ahead(target: str, sizes: tuple[int, int, int]) -> None:
    """TMA loads blocks of targets that have it, cp.async of 16 bytes rows of whole 16 bytes on sm_80.

    More stages take more shared memory.
    """
    rows, columns, depth = sizes
    by_tma = target != "sm_80"
    ahead = by_tma or depth % 8 == 0
    tile = (32, 16, 32)
    a, b, c = (apart(s, np.float16, at)[0] for at, s in enumerate(((rows, depth), (columns, depth), (rows, columns))))
    blocks = [described(x, block) for x, block in ((a, (32, 32)), (b, (16, 32)), (c, (32, 16)))]
    shared: list[int] = []
    for stages in (2, 4):
        model = multiplying.triton(*(type_ for _, type_ in blocks), zg.i32, *tile)
        module = place(model, CompileOptions(target, 2, stages))
        assert hazards(module) == []
        shared.append(module.shared)
        copies = [op for op in module.walk() if isinstance(op, gpu.AsyncCopy)]
        assert any(isinstance(op, gpu.TmaLoad) for op in module.walk()) == by_tma
        assert bool(copies) == (ahead and not by_tma)
        assert all(op.width * 2 == 16 for op in copies)
        c[...] = -1
        simulated(module, [*(item for item, _ in blocks), depth], (-(-rows // 32), -(-columns // 16)))
        np.testing.assert_array_equal(c, (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float16))
    assert (shared[0] < shared[1]) == ahead
