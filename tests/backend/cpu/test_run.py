"""Native kernels against the interpreter, bit for bit, at the edges: masks, bounds, overlap, wrapping offsets."""

import functools
import re
from typing import Any

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu.compile import CpuOptions, compile_cpu, vector_bytes
from ziggurat.backend.jit.loading import host
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.cpu.cpu_passes import lower

K = zg.CompareKind
F32 = zg.ptr(zg.f32)
# A machine without AVX-512, and one without AVX.
MACHINES = {"host": CpuOptions(), "avx2": CpuOptions("haswell", "+avx2,+fma,+f16c")}


@functools.lru_cache(maxsize=None, typed=True)
def model_of(kernel: zg.Kernel, *types: Any) -> Any:
    """The model of a kernel, made once: `run_cpu` keeps what it compiles from a model."""
    return kernel.triton(*types)


@zg.kernel
def shifted(x_ptr, out_ptr, start, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    x = zg.load(zg.add(x_ptr, at), zg.compare(at, n, K.LESS_THAN), other=2.0)
    zg.store(zg.add(zg.add(out_ptr, at), start), zg.mul(x, 3.0), zg.compare(at, n, K.LESS_THAN))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("n", (0, 1, 15, 16, 63, 64, 65, 100, 128))
def test_every_end_of_a_prefix_mask(machine, n):
    x = np.arange(128, dtype=np.float32)
    mine, theirs = np.zeros(128, np.float32), np.zeros(128, np.float32)
    model = model_of(shifted, F32, F32, zg.i32, zg.i32, 64)
    run_cpu(model, (2,), [x, mine, 0, n], options=MACHINES[machine])
    run(model, None, (2,), [x, theirs, 0, n])
    np.testing.assert_array_equal(mine, theirs)


@zg.kernel
def one_address_a_row(x_ptr, out_ptr, start, n):
    rows, columns = zg.expand(zg.arange(0, 4), 1), zg.expand(zg.arange(0, 16), 0)
    at = zg.broadcast(zg.add(rows, start), (4, 16))
    mask = zg.broadcast(zg.compare(columns, n, K.LESS_THAN), (4, 16))
    x = zg.load(zg.add(x_ptr, at), mask, other=2.0)
    zg.store(zg.add(zg.add(out_ptr, at), 32), zg.add(x, columns), mask)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, 16), columns)), x)


@pytest.mark.parametrize("start", (0, 3, -(2**31)))
@pytest.mark.parametrize("n", (0, 1, 9, 16))
def test_lanes_with_one_address(start, n):
    """The offsets may also wrap around, so that the affine form does not hold."""
    x = np.arange(8, dtype=np.float32)
    mine, theirs = np.zeros(64, np.float32), np.zeros(64, np.float32)
    model = model_of(one_address_a_row, F32, F32, zg.i32, zg.i32)
    if start < 0:
        x, n = np.zeros(0, np.float32), 0
    run_cpu(model, (1,), [x, mine, start, n])
    run(model, None, (1,), [x, theirs, start, n])
    np.testing.assert_array_equal(mine, theirs)


@zg.kernel
def one_address_and_a_mask(x_ptr, out_ptr, start, n):
    rows, columns = zg.expand(zg.arange(0, 4), 1), zg.expand(zg.arange(0, 16), 0)
    at = zg.broadcast(rows, (4, 16))
    x = zg.load(zg.add(x_ptr, at), zg.broadcast(zg.less(zg.add(columns, start), n), (4, 16)), other=9.0)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, 16), columns)), x)


@pytest.mark.parametrize("start", (0, 2**31 - 1, 2**31 - 5, 2**31 - 16))
def test_lanes_with_one_address_and_a_mask_that_wraps_around(start):
    """The first lane of a row does not tell what the others load."""
    x = np.arange(4, dtype=np.float32)
    mine, theirs = np.zeros(64, np.float32), np.zeros(64, np.float32)
    model = model_of(one_address_and_a_mask, F32, F32, zg.i32, zg.i32)
    run_cpu(model, (1,), [x, mine, start, 8])
    run(model, None, (1,), [x, theirs, start, 8])
    np.testing.assert_array_equal(mine, theirs)


@zg.kernel
def chased(x_ptr, steps_ptr, out_ptr, n, SIZE: zg.constexpr, SWAPPED: zg.constexpr):
    """The sum of blocks or numbers, each as far after the one before as the array says."""
    at = zg.arange(0, 16)
    here, other, total = x_ptr, steps_ptr, zg.zeros((16,), zg.i32)
    if SIZE > 1:
        here, other = zg.add(here, zg.arange(0, SIZE)), zg.add(other, zg.arange(0, SIZE))
    for number in range(n):
        total = zg.add(total, zg.load(here))
        here = zg.add(here, zg.load(zg.add(steps_ptr, number)))
        if SWAPPED:
            here, other = other, here
    zg.store(zg.add(out_ptr, at), total)


@pytest.mark.parametrize("swapped", (False, True))
@pytest.mark.parametrize("size", (1, 16))
def test_pointers_that_a_loop_moves_by_what_it_loads(size, swapped):
    """A stray access is the interpreter's error, or has an address where the pointer is of two arrays."""
    I32 = zg.ptr(zg.i32)
    model = model_of(chased, I32, I32, I32, zg.i32, size, swapped)
    x, steps = np.arange(64, dtype=np.int32), np.tile(np.array([3, 2, 8, 0], np.int32), 16)
    mine, theirs = np.zeros(16, np.int32), np.zeros(16, np.int32)
    run_cpu(model, (1,), [x, steps, mine, 4])
    run(model, None, (1,), [x, steps, theirs, 4])
    np.testing.assert_array_equal(mine, theirs)
    messages = []
    for runs in (run_cpu, lambda m, grid, a: run(m, None, grid, a)):
        with pytest.raises(zg.MemoryAccessError) as error:
            runs(model, (1,), [x, steps, mine, 40])
        messages.append(str(error.value))
    if swapped:
        assert "reads address 0x" in messages[0] and "which is in no array of the launch" in messages[0]
    else:
        assert messages[0] == messages[1]


@zg.kernel
def partly_undefined(x_ptr, out_ptr):
    at = zg.arange(0, 16)
    first = zg.less(at, 8)
    x = zg.where(first, zg.load(zg.add(x_ptr, at)), zg.load(zg.add(x_ptr, at), False))
    zg.store(zg.add(out_ptr, at), x, first)


@pytest.mark.parametrize("dtype", (zg.f32, zg.f16, zg.i64, zg.i8), ids=str)
def test_values_that_are_not_defined_and_not_used(dtype):
    """Loads that a mask of False leaves out."""
    x, out = np.arange(16).astype(dtype.dtype), np.full(16, 77, dtype.dtype)
    run_cpu(model_of(partly_undefined, *[zg.ptr(dtype)] * 2), (1,), [x, out])
    np.testing.assert_array_equal(out, [*x[:8], *[dtype.dtype.type(77)] * 8])


@pytest.mark.parametrize("start", (-7, -1, 0, 1, 3, 16, 40))
def test_a_store_that_overlaps_the_load_of_its_region(start):
    """The load sees what was there before the region, whichever way the two overlap."""
    mine, theirs = (np.arange(256, dtype=np.float32) for _ in range(2))
    model = model_of(shifted, F32, F32, zg.i32, zg.i32, 64)
    run_cpu(model, (1,), [mine[64:], mine, 64 + start, 60])
    run(model, None, (1,), [theirs[64:], theirs, 64 + start, 60])
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("sizes", "n"), (((100, 128), 128), ((128, 100), 128), ((0, 128), 1), ((128, 128), 129)), ids=str
)
def test_a_stray_access_is_the_interpreters_error(sizes, n):
    model = model_of(shifted, F32, F32, zg.i32, zg.i32, 64)
    messages = []
    for runs in (run_cpu, lambda m, grid, a: run(m, None, grid, a)):
        with pytest.raises(zg.MemoryAccessError) as error:
            runs(model, (3,), [np.zeros(sizes[0], np.float32), np.zeros(sizes[1], np.float32), 0, n])
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_a_read_only_array_is_the_interpreters_error():
    model = model_of(shifted, F32, F32, zg.i32, zg.i32, 64)
    locked = np.zeros(64, np.float32)
    locked.flags.writeable = False
    with pytest.raises(zg.MemoryAccessError, match="arg1, but its array is read-only"):
        run_cpu(model, (1,), [np.zeros(64, np.float32), locked, 0, 64])


def test_offsets_that_wrap_around_go_where_the_interpreters_go():
    @zg.kernel
    def wrap(x_ptr, out_ptr, start, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        offsets = zg.add(zg.add(at, start), start)  # 2^31 less than a multiple of 2^32 …
        zg.store(zg.add(out_ptr, at), zg.load(zg.add(x_ptr, offsets)))

    x = np.arange(64, dtype=np.float32)
    mine, theirs = np.zeros(32, np.float32), np.zeros(32, np.float32)
    model = model_of(wrap, F32, F32, zg.i32, 32)
    run_cpu(model, (1,), [x, mine, -(1 << 31)])
    run(model, None, (1,), [x, theirs, -(1 << 31)])
    np.testing.assert_array_equal(mine, theirs)


@zg.kernel
def one_of_two(unused, uses):
    uses.store([0], zg.full((16,), 2.0, zg.f32))


def test_a_descriptor_that_nothing_uses():
    x, y = np.zeros(16, np.float32), np.zeros(16, np.float32)
    block = zg.descriptor((16,), zg.f32)
    run_cpu(model_of(one_of_two, block, block), (1,), [zg.TensorDescriptor(item, (16,)) for item in (x, y)])
    assert not x.any() and (y == 2).all()


def test_without_checks_bounds_only_tell_what_is_streamed():
    model = str(lower(model_of(shifted, F32, F32, zg.i32, zg.i32, 64), vector_bytes(host()[1])))
    model = zg.parse(re.sub(r" @stream=\d+", "", model))
    assert compile_cpu(model, CpuOptions(check=False)).bounds == ()
    assert compile_cpu(model).bounds == (0, 1)


def test_two_compilations_give_the_same_bytes():
    model = model_of(shifted, F32, F32, zg.i32, zg.i32, 64)
    assert compile_cpu(model).object == compile_cpu(model).object


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", (zg.f32, zg.f16, zg.bf16, zg.f64, zg.i8), ids=str)
def test_a_dot_is_one_chain_in_ascending_k(machine, dtype):
    out = zg.i32 if dtype == zg.i8 else zg.f64 if dtype == zg.f64 else zg.f32

    @zg.kernel
    def product(a_ptr, b_ptr, c_ptr, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
        m, n, k = zg.arange(0, M), zg.arange(0, N), zg.arange(0, D)
        a = zg.load(zg.add(a_ptr, zg.add(zg.mul(zg.expand(m, 1), D), zg.expand(k, 0))))
        b = zg.load(zg.add(b_ptr, zg.add(zg.mul(zg.expand(k, 1), N), zg.expand(n, 0))))
        at = zg.add(c_ptr, zg.add(zg.mul(zg.expand(m, 1), N), zg.expand(n, 0)))
        zg.store(at, zg.dot(a, b, zg.load(at)))

    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal(shape) * 8).astype(dtype.dtype) for shape in ((16, 32), (32, 64)))
    c = (rng.standard_normal((16, 64)) * 8).astype(out.dtype)
    expected = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    model = model_of(product, zg.ptr(dtype), zg.ptr(dtype), zg.ptr(out), 16, 64, 32)
    run_cpu(model, (1,), [a, b, c], options=MACHINES[machine])
    np.testing.assert_allclose(c.astype(np.float64), expected, rtol=0, atol=0 if dtype == zg.i8 else 4e-3)


@zg.kernel
def quotients(x_ptr, y_ptr, out_ptr):
    at, row = zg.arange(0, 1024), zg.program_id(0)
    divisor = zg.load(zg.add(y_ptr, row))
    zg.store(zg.add(out_ptr, zg.add(zg.mul(row, 1024), at)), zg.div(zg.load(zg.add(x_ptr, at)), divisor))


@pytest.mark.parametrize("machine", MACHINES)
def test_quotients_by_one_number_are_rounded_once(machine):
    rng = np.random.default_rng(5)
    model = model_of(quotients, F32, F32, F32)
    mantissas = (rng.integers(0, 2**23, 1024, dtype=np.uint32) | np.uint32(0x3F800000)).view(np.float32)
    anything = rng.integers(0, 2**32, 1024, dtype=np.uint32).view(np.float32)
    edges = np.float32([1.9999999, 1.0000001, 0.0, -0.0, np.inf, np.nan, 1e-45])
    divisors = np.concatenate((mantissas[:99], anything[:99], edges))
    for x in (mantissas, anything, mantissas * np.float32(2.0**-140)):
        out = np.empty((len(divisors), 1024), np.float32)
        run_cpu(model, (len(divisors),), [x, divisors, out], options=MACHINES[machine])
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out, x / divisors[:, None])


@zg.kernel
def blocks(a_ptr, b_ptr, c_ptr, strides, m, k, n, late: zg.constexpr):
    """c = a · b in two steps along k, where `strides` is that of a's rows · 1000 + that of b's columns. With `late`,
    a and b change between their loads and the dot."""
    rows, inner, columns = zg.arange(0, 32), zg.arange(0, 16), zg.arange(0, 128)
    rest, below = zg.expand(rows, 1), zg.expand(columns, 0)
    c = zg.zeros((32, 128), zg.f32)
    for start in range(0, 32, 16):
        depth = zg.add(inner, start)
        across, down = zg.expand(depth, 0), zg.expand(depth, 1)
        a_at = zg.add(a_ptr, zg.add(zg.mul(rest, strides // 1000), across))
        b_at = zg.add(b_ptr, zg.add(zg.mul(down, 128), zg.mul(below, strides % 1000)))
        a = zg.load(a_at, zg.and_(zg.compare(rest, m, K.LESS_THAN), zg.compare(across, k, K.LESS_THAN)), other=0.0)
        b = zg.load(b_at, zg.and_(zg.compare(down, k, K.LESS_THAN), zg.compare(below, n, K.LESS_THAN)), other=2.0)
        if late:
            zg.store(zg.add(a_ptr, inner), zg.cast(inner, zg.f32))
            zg.store(zg.add(b_ptr, inner), zg.cast(inner, zg.f32))
        c = zg.dot(a, b, c)
    zg.store(zg.add(c_ptr, zg.add(zg.mul(rest, 128), below)), c)


@pytest.mark.parametrize("late", (False, True))
@pytest.mark.parametrize("strides", (32001, 32000, 1, 5001, 48001))
@pytest.mark.parametrize("sizes", ((32, 32, 128), (31, 32, 128), (32, 20, 100), (0, 32, 128)), ids=str)
def test_a_dot_of_blocks_where_they_are_in_memory(strides, sizes, late):
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-9, 9, size).astype(np.float32) for size in (48 * 32, 128 * 32))
    results: list[np.ndarray] = []
    model = model_of(blocks, F32, F32, F32, *(zg.i32,) * 4, late)
    for natively in (True, False):
        x, y, c = a.copy(), b.copy(), np.zeros(32 * 128, np.float32)
        arguments = [x, y, c, strides, *sizes]
        run_cpu(model, (1,), arguments) if natively else run(model, None, (1,), arguments)
        results.append(np.concatenate((x, y, c)))
    np.testing.assert_array_equal(*results)


@zg.kernel
def masked_blocks(a_ptr, b_ptr, c_ptr, out_ptr, m, k, n, k_of_b):
    """c + a · b, whose masked rows, columns and numbers of k are 0."""
    rows, inner, columns = zg.arange(0, 16), zg.arange(0, 32), zg.arange(0, 128)
    rest, across, down, below = zg.expand(rows, 1), zg.expand(inner, 0), zg.expand(inner, 1), zg.expand(columns, 0)
    mask = zg.and_(zg.compare(rest, m, K.LESS_THAN), zg.compare(across, k, K.LESS_THAN))
    a = zg.load(zg.add(a_ptr, zg.add(zg.mul(rest, 32), across)), mask, other=0.0)
    mask = zg.and_(zg.compare(down, k_of_b, K.LESS_THAN), zg.compare(below, n, K.LESS_THAN))
    b = zg.load(zg.add(b_ptr, zg.add(zg.mul(down, 128), below)), mask, other=0.0)
    at = zg.add(zg.mul(rest, 128), below)
    zg.store(zg.add(out_ptr, at), zg.dot(a, b, zg.load(zg.add(c_ptr, at)), input_precision="ieee"))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("sizes", ((16, 20, 128, 20), (16, 20, 128, 32), (5, 32, 40, 32), (5, 7, 40, 7), (0, 0, 0, 0)))
@pytest.mark.parametrize("kind", ("zeros", "negative zeros", "numbers", "infinity in a", "NaN in b"))
def test_masked_parts_of_a_dot_keep_their_bits(machine, sizes, kind):
    """Products with masked elements are left out where they change no bit: -0 + 0 is 0, and inf · 0 is NaN."""
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((16, 32)).astype(np.float32), rng.standard_normal((32, 128)).astype(np.float32)
    c = np.zeros((16, 128), np.float32)
    if kind == "negative zeros":
        c[:] = -0.0
        a[:, ::2], b[::2] = 1e-30, -1e-30  # Their products round to -0.
        a[:, 1::2] = 0
    elif kind == "numbers":
        c[:] = rng.standard_normal(c.shape)
    elif kind == "infinity in a":
        a[3, 4] = np.inf
    elif kind == "NaN in b":
        b[3, 4] = np.nan
    model, m, k, n, k_of_b = model_of(masked_blocks, *(F32,) * 4, *(zg.i32,) * 4), *sizes
    rows, inner, columns = np.arange(16), np.arange(32), np.arange(128)
    x = np.where((rows[:, None] < m) & (inner < k), a, np.float32(0))
    y = np.where((inner[:, None] < k_of_b) & (columns < n), b, np.float32(0))
    results = [np.ones_like(c) for _ in range(2)]
    run_cpu(model, (1,), [a, b, c, results[0], *sizes], options=MACHINES[machine])
    run_cpu(model, (1,), [x, y, c, results[1], 16, 32, 128, 32], options=MACHINES[machine])
    nan = np.isnan(results[1])
    np.testing.assert_array_equal(np.isnan(results[0]), nan)
    np.testing.assert_array_equal(*(np.where(nan, 0, result).view(np.int32) for result in results))


def test_a_printing_kernel_prints_what_the_interpreter_prints(capsys):
    @zg.kernel
    def shows(x_ptr, BLOCK: zg.constexpr):
        zg.device_print("x", zg.load(zg.add(x_ptr, zg.arange(0, BLOCK))), zg.program_id(0))

    model = model_of(shows, zg.ptr(zg.f16), 4)
    x = np.array([0.5, -0.0, np.inf, 3e-7], np.float16)
    run_cpu(model, (2,), [x])
    mine = capsys.readouterr().out
    run(model, None, (2,), [x])
    assert mine == capsys.readouterr().out and "idx (2) x: (operand 0) inf" in mine


@zg.kernel
def sum_of_dots(x_ptr, out_ptr, stop, step):
    places = zg.add(zg.mul(zg.expand(zg.arange(0, 16), 1), 16), zg.expand(zg.arange(0, 16), 0))
    total = zg.zeros((16, 16), zg.f32)
    for k in zg.range(0, stop, step, loop_unroll_factor=2):
        tile = zg.load(zg.add(zg.add(x_ptr, k * 256), places))
        total = zg.dot(tile, tile, total)
    zg.store(zg.add(out_ptr, places), total)


def test_a_loop_of_dots_with_a_run_time_step(recwarn):
    """Without the changes that pipelining on GPUs needs, and the warnings of code for GPUs."""
    model = model_of(sum_of_dots, F32, F32, zg.i32, zg.i32)
    x, out = np.ones((4, 16, 16), np.float32), np.empty((16, 16), np.float32)
    for step, count in ((1, 4), (3, 2), (2**31 - 1, 1), (-1, 0)):
        run_cpu(model, (1,), [x, out, 4, step])
        np.testing.assert_array_equal(out, np.full((16, 16), 16 * count, np.float32))
    with pytest.raises(KernelRuntimeError, match="the step of a loop must not be zero"):
        run_cpu(model, (1,), [x, out, 4, 0])
    assert not recwarn.list


@zg.kernel
def turned_in_a_loop(x_ptr, places_ptr, out_ptr, count, N: zg.constexpr):
    at = zg.arange(0, N)
    flipped = zg.load(zg.add(x_ptr, at))
    gathered = flipped
    for number in range(count):
        flipped = zg.add(zg.flip(flipped), number)
        gathered = zg.gather(gathered, zg.load(zg.add(places_ptr, at)), 0)
    zg.store(zg.add(out_ptr, at), flipped)
    zg.store(zg.add(out_ptr, zg.add(at, N)), gathered)


@pytest.mark.parametrize("n", (16, 64))
def test_a_carried_tensor_is_read_elsewhere_before_it_is_replaced(n):
    x, places = np.arange(n, dtype=np.int32), np.random.default_rng(2).permutation(n).astype(np.int32)
    model = model_of(turned_in_a_loop, *[zg.ptr(zg.i32)] * 3, zg.i32, n)
    flipped, gathered = x, x
    for count in range(4):
        out = np.zeros(2 * n, np.int32)
        run_cpu(model, (1,), [x, places, out, count])
        np.testing.assert_array_equal(out, [*flipped, *gathered])
        flipped, gathered = flipped[::-1] + count, gathered[places]


@zg.kernel
def exchanges(x_ptr, n, KIND: zg.constexpr):
    """Four tensors that loops exchange: in pairs, all in a cycle, with an operation, as accumulators of dots."""
    at = zg.add(zg.mul(zg.expand(zg.arange(0, 16), 1), 16), zg.expand(zg.arange(0, 16), 0))
    a, b = zg.load(zg.add(x_ptr, at)), zg.load(zg.add(x_ptr, zg.add(at, 256)))
    c, d = zg.load(zg.add(x_ptr, zg.add(at, 512))), zg.load(zg.add(x_ptr, zg.add(at, 768)))
    for number in range(n):
        if KIND == "pairs":
            a, b, c, d = b, a, d, c
        elif KIND == "cycle":
            a, b, c, d = b, c, d, a
        elif KIND == "copies":
            a, b, c, d = d, a, a, b
        elif KIND == "sums":
            a, b, c, d = zg.add(a, b), a, zg.trans(d), c
        elif KIND == "dots":
            a, b = zg.dot(c, d, b), zg.dot(d, c, a)
            c, d = d, c
        elif number % 2 == 0:
            a, b, c, d = zg.flip(d, 0), c, a, zg.flip(b, 1)
    zg.store(zg.add(x_ptr, at), a)
    zg.store(zg.add(x_ptr, zg.add(at, 256)), b)
    zg.store(zg.add(x_ptr, zg.add(at, 512)), c)
    zg.store(zg.add(x_ptr, zg.add(at, 768)), d)


def assert_equal_for_counts(model, x):
    """Run a kernel that changes an array in a loop of 0 to 3 iterations, natively and by the interpreter."""
    for count in range(4):
        mine, theirs = x.copy(), x.copy()
        run_cpu(model, (1,), [mine, count])
        run(model, None, (1,), [theirs, count])
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", ("pairs", "cycle", "copies", "sums", "dots", "branches"))
def test_carried_tensors_that_are_exchanged(kind):
    model = model_of(exchanges, F32, zg.i32, kind)
    x = np.random.default_rng(3).integers(-2, 3, 1024).astype(np.float32)
    assert_equal_for_counts(model, x)


@zg.kernel
def reduced_and_replaced(x_ptr, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    at = zg.reshape(zg.arange(0, ROWS * COLUMNS), (ROWS, COLUMNS))
    a, b = zg.load(zg.add(x_ptr, at)), zg.load(zg.add(x_ptr, zg.add(at, ROWS * COLUMNS)))
    for _ in range(n):
        a, b = zg.flip(b, 0), zg.add(b, zg.broadcast(zg.sum(a, 0), (ROWS, COLUMNS)))
    zg.store(zg.add(x_ptr, at), a)
    zg.store(zg.add(x_ptr, zg.add(at, ROWS * COLUMNS)), b)


@pytest.mark.parametrize("shape", ((64, 2), (4, 32), (128, 1)), ids=str)
def test_a_carried_tensor_is_reduced_before_it_is_replaced(shape):
    model = model_of(reduced_and_replaced, F32, zg.i32, *shape)
    x = np.random.default_rng(5).integers(-3, 4, 256).astype(np.float32)
    assert_equal_for_counts(model, x)


@zg.kernel
def stored_where_small(x_ptr, out_ptr, n, stride, N: zg.constexpr):
    at = zg.arange(0, N)
    a = zg.load(zg.add(x_ptr, at))
    for i in range(n):
        zg.store(zg.add(zg.add(out_ptr, i * 2 * N), zg.mul(at, stride)), a, zg.less(a, i))
        a = zg.sub(a, 3)
    zg.store(zg.add(x_ptr, at), a)


@pytest.mark.parametrize("stride", (0, 1, 2))
def test_the_mask_of_a_store_is_of_the_carried_tensor_before_it_is_replaced(stride):
    """With a stride that is not the planned one, the elements are stored after the loop."""
    model = model_of(stored_where_small, *[zg.ptr(zg.i32)] * 2, zg.i32, zg.i32, 64)
    results: list[np.ndarray] = []
    for natively in (True, False):
        x, out = np.random.default_rng(6).integers(-5, 5, 64).astype(np.int32), np.zeros(512, np.int32)
        arguments = [x, out, 3, stride]
        run_cpu(model, (1,), arguments) if natively else run(model, None, (1,), arguments)
        results.append(np.concatenate((x, out)))
    np.testing.assert_array_equal(*results)


@zg.kernel
def half_scanned(x_ptr, out_ptr, N: zg.constexpr):
    a, b = zg.split(zg.reshape(zg.load(zg.add(x_ptr, zg.arange(0, N))), (N // 2, 2)))
    zg.store(zg.add(out_ptr, zg.arange(0, N // 2)), zg.add(zg.cumsum(a), b))


def test_one_half_of_a_tensor_is_scanned():
    x, out = np.arange(64, dtype=np.int32), np.zeros(32, np.int32)
    run_cpu(model_of(half_scanned, *[zg.ptr(zg.i32)] * 2, 64), (1,), [x, out])
    np.testing.assert_array_equal(out, np.cumsum(x[::2]) + x[1::2])


@zg.kernel
def row_results(x_ptr, sums_ptr, tops_ptr, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    rows, columns = zg.arange(0, ROWS), zg.arange(0, COLUMNS)
    x = zg.load(zg.add(x_ptr, zg.add(zg.mul(zg.expand(rows, 1), COLUMNS), zg.expand(columns, 0))))
    zg.store(zg.add(sums_ptr, rows), zg.sum(x, axis=1))
    zg.store(zg.add(tops_ptr, rows), zg.max(x, axis=1))


@pytest.mark.parametrize("rows, columns", [(64, 32), (64, 64), (128, 16), (32, 256), (16, 64), (64, 8)])
def test_rows_that_are_reduced_together(rows: int, columns: int):
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    x[3, 1], x[5, :] = np.nan, -0.0
    native, judged = (np.empty((2, rows), np.float32) for _ in range(2))
    model = model_of(row_results, F32, F32, F32, rows, columns)
    run_cpu(model, (1,), [x, *native])
    run(model, None, (1,), [x, *judged])
    assert np.array_equal(native, judged, equal_nan=True)
    assert (np.signbit(native) == np.signbit(judged))[~np.isnan(judged)].all()


@zg.kernel
def read_in_two_loops(x_ptr, out_ptr, n, SIZE: zg.constexpr):
    at = zg.add(zg.program_id(0) * SIZE, zg.arange(0, SIZE))
    total = zg.zeros((SIZE,), zg.f32)
    for _ in range(n):
        total = zg.add(total, zg.load(zg.add(x_ptr, at)))
    zg.store(zg.add(out_ptr, at), total)
    for _ in range(n):
        total = zg.add(zg.exp(total), zg.load(zg.add(x_ptr, at)))
    zg.store(zg.add(out_ptr, at), total)


def test_one_access_in_two_loops():
    """The distance of its rows, for prefetching, is not taken from the first loop to the second."""
    x = np.linspace(-1, 0, 64, dtype=np.float32)
    actual, expected = np.zeros((2, 64), np.float32)
    run_cpu(model_of(read_in_two_loops, F32, F32, zg.i32, 32), (2,), [x, actual, 2])
    read_in_two_loops[(2,)](x, expected, 2, 32, interpret=True)
    np.testing.assert_array_equal(actual, expected)


@zg.kernel
def weighted(x_ptr, out_ptr, n, ROW: zg.constexpr):
    """A row that three regions need, the last of which stores."""
    start, at = zg.program_id(0) * n, zg.arange(0, ROW)
    mask = zg.less(at, n)
    x = zg.load(zg.add(x_ptr, zg.add(at, start)), mask, 0)
    off = zg.where(mask, zg.sub(x, zg.sum(x)), 0)
    zg.store(zg.add(out_ptr, zg.add(at, start)), zg.mul(x, zg.sum(zg.mul(off, off))), mask)


@pytest.mark.parametrize("n", [256, 250])
@pytest.mark.parametrize("shift", [-256, -3, -1, 0, 1, 3, 16, 256])
def test_a_row_is_read_where_it_is_unless_a_store_overlaps_it(n: int, shift: int):
    model = model_of(weighted, F32, F32, zg.i32, 256)
    results: list[Any] = []
    for run_ in (run_cpu, lambda model, grid, arguments: run(model, None, grid, arguments)):
        room = np.random.default_rng(0).standard_normal(2048).astype(np.float32)
        x, out = room[512 : 512 + 2 * n], room[512 + shift : 512 + shift + 2 * n]
        for program in range(2):  # One after the other: the second may read what the first has stored.
            run_(model, (1,), [x[program * n :], out[program * n :], n])
        results.append(room)
    np.testing.assert_array_equal(results[0].view(np.int32), results[1].view(np.int32))


@zg.kernel
def times_a_reduction(x_ptr, y_ptr, out_ptr, n, N: zg.constexpr, KIND: zg.constexpr):
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    y = zg.load(zg.add(y_ptr, at), zg.less(at, n), other=0)
    product = zg.mul(x, y)
    zg.store(zg.add(out_ptr, at), zg.mul(x, zg.sum(product) if KIND == "sum" else zg.max(product)))


@pytest.mark.parametrize("dtype", (np.int32, np.float32), ids=str)
@pytest.mark.parametrize("kind", ("sum", "max"))
def test_a_row_is_read_in_place_only_where_no_load_of_its_region_is_masked(kind, dtype):
    element = zg.i32 if dtype is np.int32 else zg.f32
    model = model_of(times_a_reduction, *[zg.ptr(element)] * 3, zg.i32, 256, kind)
    for n in (0, 3, 128, 255, 256):
        x, y = (np.random.default_rng(seed).integers(-9, -1, 256).astype(dtype) for seed in range(2))
        x.setflags(write=False)
        y[n:] = 99
        mine, theirs = np.zeros(256, dtype), np.zeros(256, dtype)
        run_cpu(model, (1,), [x, y, mine, n])
        run(model, None, (1,), [x, y, theirs, n])
        np.testing.assert_array_equal(mine, theirs)


@zg.kernel
def masked_other(x_ptr, y_ptr, out_ptr, n, stride, N: zg.constexpr):
    at = zg.arange(0, N)
    y = zg.load(zg.add(y_ptr, at), zg.less(at, n), other=-1)
    x = zg.load(zg.add(x_ptr, zg.mul(at, stride)), zg.less(at, n), other=y)
    zg.store(zg.add(out_ptr, zg.mul(at, stride)), zg.add(x, y), zg.greater(y, 0))


@pytest.mark.parametrize("stride", (1, 2, 3))
def test_masks_and_others_of_single_elements_are_masked_loads(stride):
    """An access with a stride that is not the planned one takes its elements one by one."""
    model = model_of(masked_other, *[zg.ptr(zg.i32)] * 3, zg.i32, zg.i32, 64)
    x, y = np.arange(1, 257, dtype=np.int32), np.arange(1, 65, dtype=np.int32) * 100
    mine, theirs = np.zeros(256, np.int32), np.zeros(256, np.int32)
    run_cpu(model, (1,), [x, y, mine, 20, stride])
    run(model, None, (1,), [x, y, theirs, 20, stride])
    np.testing.assert_array_equal(mine, theirs)


@zg.function
def quotient(a, b):
    return a // b


@zg.kernel
def stray_then_zero(x_ptr, z_ptr, out_ptr, N: zg.constexpr, KIND: zg.constexpr):
    at = zg.arange(0, N)
    z = zg.load(zg.add(z_ptr, at))
    x = zg.load(zg.add(x_ptr, zg.add(at, 1_000_000)))
    s = zg.reduce(z, 0, quotient) if KIND == "reduction" else 5 // zg.sum(z)
    zg.store(zg.add(out_ptr, at), zg.add(x, s))


@pytest.mark.parametrize("kind", ("reduction", "scalar"))
def test_a_load_fails_before_what_follows_it_does(kind):
    model = model_of(stray_then_zero, *[zg.ptr(zg.i32)] * 3, 64, kind)
    arrays = [np.ones(64, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)]
    with pytest.raises(zg.KernelRuntimeError, match=r"reads x_ptr\[1000000\]|reads arg0\[1000000\]"):
        run_cpu(model, (1,), arrays)


LARGER = """module ()void -> { tt.func @"larger" (%x : ptr<ELEMENT>, %out : ptr<ELEMENT>)void -> {
    %at : tensor<x256, i32> = tt.make_range @start=0 @end=256;
    %a : tensor<x256, ptr<ELEMENT>> = tt.splat %x;
    %b : tensor<x256, ptr<ELEMENT>> = tt.addptr %a %at;
    %c : tensor<x256, ELEMENT> = tt.load %b;
    %d : tensor<x256, ptr<ELEMENT>> = tt.splat %out;
    %e : tensor<x256, ptr<ELEMENT>> = tt.addptr %d %at;
    %f : tensor<x256, ELEMENT> = tt.atomic_rmw %e %c @fmax;
    tt.return; }; unreachable; };"""


@pytest.mark.parametrize("scalar", [zg.f8e4m3, zg.f8e5m2])
def test_an_atomic_maximum_of_8_bit_floats_is_not_rounded(scalar):
    """An infinity stays one, as in `zg.maximum`."""
    x = np.arange(256, dtype=np.uint8).view(scalar.dtype)
    mine, theirs = (np.full(256, -1.0).astype(scalar.dtype) for _ in range(2))
    model = parse(LARGER.replace("ELEMENT", scalar.name))
    run_cpu(model, (1,), [x, mine])
    run(model, None, (1,), [x, theirs])
    wide = x.astype(np.float32)
    for actual in (mine, theirs):
        np.testing.assert_array_equal(actual.astype(np.float32), np.fmax(wide, np.float32(-1.0)))


@zg.kernel
def stored_by_assembly(x_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.inline_asm_elementwise(
        "st.global.f32 [$1], $2; mov.u32 $0, 0;",
        "=r,l,f",
        [zg.add(out_ptr, at), zg.load(zg.add(x_ptr, at))],
        dtype=zg.i32,
        is_pure=False,
        pack=1,
    )


def test_assembly_with_effects_is_refused_if_nothing_uses_its_result():
    with pytest.raises(zg.KernelTypeError, match="inline assembly is PTX, and cannot run on a CPU"):
        compile_cpu(model_of(stored_by_assembly, F32, F32, 32), CpuOptions())
