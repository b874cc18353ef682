"""The registers of the values that a loop carries."""

from contextlib import nullcontext

import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.transforms.cost.pressure import (
    MAX_VALUE_REGISTERS,
    check_registers,
    pressure,
    registers_of_thread,
    warn_of_registers,
)
from ziggurat.transforms.gpu.gpu_passes import place


@zg.kernel
def sums(x_ptr, out_ptr, n, BLOCK: zg.constexpr, DTYPE: zg.constexpr):
    at = zg.arange(0, BLOCK)
    total = zg.zeros((BLOCK,), DTYPE)
    count = zg.zeros((BLOCK,), zg.i32)
    for i in range(0, n):
        total = zg.add(total, zg.load(zg.add(x_ptr, zg.add(at, i))))
        count = zg.add(count, 1)
    zg.store(zg.add(out_ptr, at), zg.add(total, zg.cast(count, DTYPE)))


def placed(block: int, dtype, warps: int) -> gpu.Module:
    model = sums.triton(zg.ptr(dtype), zg.ptr(dtype), zg.i32, block, dtype)
    return place(model, CompileOptions(num_warps=warps))


@pytest.mark.parametrize(
    ("block", "dtype", "warps", "registers"),
    [
        (1024, zg.f32, 4, 8),
        (1024, zg.f64, 4, 16),
        (1024, zg.f16, 4, 4),
        (1024, zg.f32, 8, 4),
        (64, zg.f32, 4, 1),  # copies are no further registers
    ],
)
def test_floats_that_are_carried_are_counted(block, dtype, warps, registers):
    assert pressure(placed(block, dtype, warps)).registers == registers


def test_too_many_registers_are_an_error_at_the_loop():
    check_registers(placed(16384, zg.f32, 4))
    check_registers(placed(65536, zg.f32, 32))  # 64 of 64.
    with pytest.raises(zg.ResourceError, match="carries 512 registers in each of 32 threads, which have 255") as error:
        check_registers(placed(16384, zg.f32, 1))
    assert "for i in range(0, n)" in str(error.value) and "more warps" in str(error.value)


def test_registers_are_shared_among_the_threads():
    assert [registers_of_thread(warps) for warps in (1, 4, 8, 16, 32)] == [255, 255, 255, 128, 64]


def test_spills_are_warned_of_and_too_large_values_refused():
    warn_of_registers(placed(8192, zg.f32, 2))
    with pytest.warns(
        zg.ZigguratWarning, match=r"carries 512 registers .* have 255: the rest is spilled to memory"
    ) as records:
        warn_of_registers(placed(16384, zg.f32, 1))
    (one,) = records
    assert one.filename == __file__ and "smaller blocks, or more warps would do better" in str(one.message)
    with pytest.raises(zg.ResourceError, match="a value of 131072 f32 takes 4096") as error:
        warn_of_registers(placed(131072, zg.f32, 1))
    assert "for i in range(0, n)" in str(error.value) and 4096 > MAX_VALUE_REGISTERS
    with pytest.raises(zg.ResourceError, match="a value of 65536 f32 takes 2048"):
        warn_of_registers(placed(65536, zg.f32, 1))


def test_the_largest_value_is_named():
    actual = pressure(placed(1024, zg.f64, 4))
    assert (actual.largest, actual.value) == (16, "a value of 1024 f64")


@zg.kernel
def product(a_ptr, b_ptr, out_ptr, N: zg.constexpr, K: zg.constexpr):
    rows, columns, steps = zg.arange(0, N), zg.arange(0, N), zg.arange(0, K)
    a = zg.load(zg.add(a_ptr, zg.add(zg.mul(zg.expand(rows, 1), K), zg.expand(steps, 0))))
    b = zg.load(zg.add(b_ptr, zg.add(zg.mul(zg.expand(steps, 1), N), zg.expand(columns, 0))))
    zg.store(zg.add(out_ptr, rows), zg.sum(zg.dot(a, b), axis=1))


@pytest.mark.parametrize(("size", "warps", "fits"), [(256, 16, False), (128, 16, True), (256, 8, True), (64, 4, True)])
def test_a_wgmma_needs_its_registers_at_once(size: int, warps: int, fits: bool):
    """An accumulator of 256 × 256 takes all registers of an SM; ptxas says C7602 for 16 warps."""
    pointer = zg.divisible(zg.ptr(zg.f16))
    module = place(
        product.triton(pointer, pointer, zg.ptr(zg.f32), size, 16), CompileOptions("sm_90a", num_warps=warps)
    )
    assert any(isinstance(op, gpu.Wgmma) for op in module.walk())
    for check in (check_registers, warn_of_registers):
        if fits:
            check(module)
        else:
            with pytest.raises(zg.ResourceError, match="takes 128 registers in each of 512 threads, which have 128"):
                check(module)


def test_integer_accumulators_need_registers_as_well():
    pointer = zg.divisible(zg.ptr(zg.i8))
    model = product.triton(pointer, pointer, zg.ptr(zg.i32), 256, 32)
    module = place(model, CompileOptions("sm_90a", num_warps=16))
    assert any(isinstance(op, gpu.Wgmma) for op in module.walk())
    with pytest.raises(zg.ResourceError, match="takes 128 registers in each of 512 threads, which have 128"):
        check_registers(module)


@zg.kernel
def copies(x_ptr, out_ptr, BLOCK: zg.constexpr):
    """Two stores through one argument, in different orders, keep the blocks whole (`divide_blocks`)."""
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out_ptr, at), zg.load(zg.add(x_ptr, at)))
    zg.store(zg.add(out_ptr, zg.sub(BLOCK - 1, at)), zg.load(zg.add(x_ptr, at)))


def test_tensors_with_very_many_elements_a_thread(recwarn: pytest.WarningsRecorder):
    """They count outside of loops as well."""
    pointer = zg.ptr(zg.i8)

    def made(block: int, warps: int) -> gpu.Module:
        return place(copies.triton(pointer, pointer, block), CompileOptions(num_warps=warps))

    warn_of_registers(made(1 << 15, 4))
    warn_of_registers(made(1 << 17, 16))
    assert not recwarn.list
    with pytest.warns(
        zg.ZigguratWarning, match="65536 has 512 elements in each of 128 threads, and compiling takes long"
    ):
        warn_of_registers(made(1 << 16, 4))
    with pytest.raises(zg.ResourceError, match="1048576 has 8192 elements in each of 128 threads") as error:
        warn_of_registers(made(1 << 20, 4))
    assert "more warps" in str(error.value) and "zg.arange(0, BLOCK)" in str(error.value)


@zg.kernel
def several(a_desc, b_desc, c_desc, d_desc, e_desc, out_ptr, k, ASKED: zg.constexpr):
    """A loop carries accumulators of 240 registers in each of 256 threads, and two sums of rows."""
    acc0, acc1 = zg.zeros((128, 256), zg.f32), zg.zeros((128, 128), zg.f32)
    acc2, acc3 = zg.zeros((128, 64), zg.f32), zg.zeros((128, 32), zg.f32)
    total = zg.zeros((128,), zg.f32)
    for start in zg.range(0, k, 32, warp_specialize=ASKED):
        a = a_desc.load((0, start))
        acc0 = zg.dot(a, b_desc.load((start, 0)), acc0)
        acc1 = zg.dot(a, c_desc.load((start, 0)), acc1)
        acc2 = zg.dot(a, d_desc.load((start, 0)), acc2)
        acc3 = zg.dot(a, e_desc.load((start, 0)), acc3)
        total = zg.add(total, zg.sum(acc3, 1))
    for acc in (acc0, acc1, acc2, acc3):
        total = zg.add(total, zg.sum(acc, 1))
    zg.store(zg.add(out_ptr, zg.arange(0, 128)), total)


def test_a_loop_that_carries_more_than_a_consumer_has_gets_no_roles():
    """With roles, a thread has 240 registers, and without 255: so the loop keeps them, and tuning the configuration."""
    blocks = [
        zg.divisible(zg.descriptor(block, zg.f16)) for block in ((128, 32), *((32, n) for n in (256, 128, 64, 32)))
    ]
    for requested in (False, True):
        model = several.triton(*blocks, zg.ptr(zg.f32), zg.divisible(zg.i32), requested)
        words = "a thread of a consumer has 240 registers, and the loop carries 242"
        with pytest.warns(zg.ZigguratWarning, match=words) if requested else nullcontext():
            module = place(model, CompileOptions("sm_90a", num_stages=3))
        assert module.num_warps == 8 and not any(isinstance(op, gpu.WarpSpecialize) for op in module.walk())
        assert pressure(module).registers == 242
        check_registers(module)
