"""The CPU models of small kernels: golden, what the passes find, and that each keeps the meaning of a kernel."""

import numpy as np
import pytest
from native_models import F32, MODELS
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import cpu, math, tt
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.cpu.allocate import allocate
from ziggurat.transforms.cpu.cpu_passes import LOWER, lower
from ziggurat.transforms.cpu.orient import turn


@pytest.mark.parametrize("name", MODELS)
def test_the_model_of_a_kernel(golden, name):
    model = lower(MODELS[name](), 64)
    verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    golden(name, model)


def regions(model):
    return [op for op in model.walk() if isinstance(op, cpu.Region)]


def test_an_elementwise_kernel_is_one_region_without_buffers():
    model = lower(MODELS["add"](), 64)
    assert len(regions(model)) == 1
    assert not any(isinstance(op, cpu.Alloc) for op in model.walk())


def test_a_reduction_ends_a_region():
    model = lower(MODELS["softmax"](), 64)
    assert [any(isinstance(op, tt.Reduce) for op in region.walk()) for region in regions(model)] == [True, True, False]


def test_a_reduction_is_where_its_operand_is_computed():
    """Not in the last region of its shape, which would need a buffer for it."""

    @zg.kernel
    def sums(out_ptr, x_ptr, SIZE: zg.constexpr):
        at = zg.arange(0, SIZE)
        x = zg.load(zg.add(x_ptr, at))
        powers = zg.exp(x)
        scaled = zg.exp(zg.sub(x, zg.max(x, axis=0)))
        zg.store(zg.add(out_ptr, at), scaled)
        zg.store(zg.add(out_ptr, SIZE), zg.sum(powers, axis=0))

    model = sums.triton(F32, F32, 256)
    first, *others = regions(lower(model, 64))
    assert [type(op) for op in first.walk() if isinstance(op, tt.Reduce | math.Exp)] == [math.Exp, tt.Reduce, tt.Reduce]
    assert len(others) == 1 and not any(isinstance(op, tt.Reduce) for op in others[0].walk())
    x = np.linspace(-1, 1, 256, dtype=np.float32)
    native, expected = np.zeros(257, np.float32), np.zeros(257, np.float32)
    run_cpu(model, (1,), [native, x])
    run(model, None, (1,), [expected, x])
    np.testing.assert_array_equal(native, expected)


@zg.kernel
def of_columns(out_ptr, x_ptr, y_ptr, n, DOT: zg.constexpr):
    """`x` has its neighbours along the second axis, `y` along the first one."""
    down, across = zg.expand(zg.arange(0, 32), 1), zg.expand(zg.arange(0, 32), 0)
    start = zg.mul(zg.program_id(0), 32)
    rows = zg.compare(down, zg.sub(n, start), zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, zg.add(zg.mul(zg.add(down, start), 32), across)), rows, other=1.0)
    y_mask = zg.compare(across, zg.sub(n, start), zg.CompareKind.LESS_THAN)
    y = zg.load(zg.add(y_ptr, zg.add(zg.mul(zg.add(across, start), 32), down)), y_mask, other=x if not DOT else 2.0)
    value = zg.dot(x, y) if DOT else zg.add(x, y)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(zg.add(down, start), 32), across)), value, rows)


@pytest.mark.parametrize("dot", [False, True])
@pytest.mark.parametrize("n", [64, 45])
def test_single_accesses_are_transposed(dot, n):
    model = of_columns.triton(F32, F32, F32, zg.i32, dot)
    cpu_model = lower(model, 64)
    assert not any(isinstance(op, tt.Load) for op in cpu_model.walk())
    assert not dot or [op.transposed for op in cpu_model.walk() if isinstance(op, cpu.Dot)] == [True]
    x, y = np.random.default_rng(0).integers(-8, 8, (2, 64, 32)).astype(np.float32)
    native, expected = np.zeros((2, 64, 32), np.float32)
    run_cpu(model, (2,), [native, x, y, n])
    run(model, None, (2,), [expected, x, y, n])
    np.testing.assert_array_equal(native, expected)


@pytest.mark.parametrize(("steps", "count"), [(62, 1), (63, 2), (130, 3)])
def test_a_long_chain_of_statements_is_several_regions(steps, count):
    """64 statements each: LLVM's time grows with the square of their number."""

    @zg.kernel
    def chain(x_ptr, STEPS: zg.constexpr):
        at = zg.arange(0, 64)
        x = zg.load(zg.add(x_ptr, at))
        for _ in zg.static_range(STEPS):
            x = zg.div(1.0, zg.add(x, 1.0))
        zg.store(zg.add(x_ptr, at), x)

    model = lower(chain.triton(F32, steps), 64)
    assert len(regions(model)) == count


@pytest.mark.parametrize("rows", [False, True])
def test_vectors_lie_along_neighbours_in_memory(rows):
    """A block of columns is transposed, with its masks, scans, sums and what a loop carries; of one of rows, the store
    alone that has columns."""

    @zg.kernel
    def sums(out_ptr, x_ptr, n, ROWS: zg.constexpr):
        down, across = zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 8), 0)
        total = zg.zeros((16, 8), zg.f32)
        for start in range(0, n, 8):
            column = zg.add(across, start)
            at = zg.add(zg.mul(down, n), column) if ROWS else zg.add(zg.mul(column, 16), down)
            mask = zg.compare(column, n, zg.CompareKind.LESS_THAN)
            x = zg.load(zg.add(x_ptr, zg.cast(at, zg.i64)), mask, other=0.0)
            total = zg.add(total, zg.where(zg.compare(column, 5, zg.CompareKind.LESS_THAN), x, zg.cast(x, zg.i32)))
        zg.store(zg.add(out_ptr, zg.arange(0, 16)), zg.sum(total, axis=1))
        zg.store(zg.add(zg.add(out_ptr, 16), zg.add(zg.mul(across, 16), down)), zg.cumsum(total, axis=1))

    model = sums.triton(F32, F32, zg.i32, rows)
    shapes = {region.shape for region in regions(lower(model, 64)) if len(region.shape) == 2}
    assert shapes == ({(16, 8), (8, 16)} if rows else {(8, 16)})
    x = np.random.default_rng(0).standard_normal(16 * 21).astype(np.float32)
    native, expected = np.zeros((2, 144), np.float32)
    run_cpu(model, (1,), [native, x, 21])
    run(model, None, (1,), [expected, x, 21])
    np.testing.assert_array_equal(native, expected)


def test_pointers_that_a_loop_moves_become_scalars_and_the_accumulator_stays_in_its_buffer():
    model = lower(MODELS["matmul"](), 64)
    assert not any(isinstance(op, tt.Load | cpu.Copy) for op in model.walk())
    (dot,) = (op for op in model.walk() if isinstance(op, cpu.Dot))
    assert dot.c.op.parent is not dot.parent


def test_a_carried_sum_that_is_scaled_before_a_dot_stays_in_its_buffer():
    @zg.kernel
    def scaled(x_ptr, n, BLOCK: zg.constexpr):
        row, column = zg.expand(zg.arange(0, BLOCK), 1), zg.expand(zg.arange(0, BLOCK), 0)
        at = zg.add(zg.mul(row, BLOCK), column)
        x = zg.load(zg.add(x_ptr, at))
        total = x
        for _ in range(0, n):
            square = zg.dot(x, x)
            total = zg.dot(x, square, zg.mul(total, 0.5))
        zg.store(zg.add(x_ptr, at), total)

    model = scaled.triton(F32, zg.i32, 16)
    first, second = (op for op in lower(model, 64).walk() if isinstance(op, cpu.Dot))
    assert first.zero and not second.zero
    assert not any(isinstance(op, cpu.Copy) for op in lower(model, 64).walk())
    x = np.random.default_rng(0).integers(-1, 2, (16, 16)).astype(np.float32)
    expected = x.copy()
    for _ in range(3):
        expected = x @ (x @ x) + expected / 2
    again = x.copy()
    run_cpu(model, (1,), [x, 3])
    assert (x == expected).all()
    run(lower(model, 64), None, (1,), [again, 3])
    assert (again == expected).all()


def test_buffers_that_are_not_needed_together_share_memory():
    @zg.kernel
    def two(x_ptr, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        x = zg.exp(zg.load(zg.add(x_ptr, at)))
        x = zg.exp(zg.sub(x, zg.sum(x, axis=0)))
        x = zg.exp(zg.sub(x, zg.sum(x, axis=0)))
        zg.store(zg.add(x_ptr, at), zg.sub(x, zg.sum(x, axis=0)))

    model = lower(two.triton(F32, 256), 64)
    assert sum(isinstance(op, cpu.Alloc) for op in model.walk()) == 3
    assert model.scratch == 2 * 4 * 256


def test_a_loop_that_swaps_its_tensors():
    @zg.kernel
    def swap(x_ptr, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        a = zg.load(zg.add(x_ptr, at))
        b = zg.load(zg.add(zg.add(x_ptr, BLOCK), at))
        for _ in range(0, n):
            c = zg.add(a, b)
            a = b
            b = c
        zg.store(zg.add(x_ptr, at), a)
        zg.store(zg.add(zg.add(x_ptr, BLOCK), at), b)

    x = np.ones(64, np.float32)
    run_cpu(swap.triton(F32, zg.i32, 32), (1,), [x, 10])
    assert set(x[:32]) == {89.0} and set(x[32:]) == {144.0}


def test_a_loop_hands_a_tensor_to_the_next_loop():
    @zg.kernel
    def two(x_ptr, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        total, x = 0, zg.load(zg.add(x_ptr, at))
        # Tensors that are computed again in each region, but for the loop as a whole that would be too much.
        y = zg.mul(zg.add(zg.mul(zg.add(zg.mul(zg.add(at, n), 3), n), 5), n), 7)
        z = zg.mul(zg.sub(zg.mul(zg.sub(zg.mul(zg.sub(at, n), 3), n), 5), n), 7)
        for a in range(0, n):
            total, x = total + a, zg.add(zg.xor(x, y), z)
        for b in range(0, total):
            x = zg.add(x, b)
        zg.store(zg.add(x_ptr, at), x)

    model = two.triton(zg.ptr(zg.i32), zg.i32, 64)
    mine, theirs = np.arange(64, dtype=np.int32), np.arange(64, dtype=np.int32)
    run_cpu(model, (1,), [mine, 2])
    run(model, None, (1,), [theirs, 2])
    np.testing.assert_array_equal(mine, theirs)


GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(3, 1100)).astype(np.float32)
SQUARE = GENERATOR.normal(size=(128, 128)).astype(np.float32)
# The grid and the arguments of each kernel; the last array is the result.
LAUNCHES = {
    "add": ((3,), [ROWS[0], ROWS[1], np.zeros(1100, np.float32), 1100]),
    "softmax": ((3,), [np.zeros((3, 1100), np.float32), ROWS, 1100, 1000]),
    "matmul": ((2, 2), [SQUARE, SQUARE.T.copy(), np.zeros((128, 128), np.float32), 128]),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("vector", (16, 64))
def test_every_pass_keeps_the_bits(name, vector):
    """As interpreted before the pass and after it."""
    model = MODELS[name]()
    grid, arguments = LAUNCHES[name]
    results = []
    for step in (None, *(step for _, step in LOWER)):
        model = model if step is None else step(model, vector)
        inputs = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        run(model, None, grid, inputs)
        results.append(np.concatenate([value.ravel() for value in inputs if isinstance(value, np.ndarray)]))
        np.testing.assert_array_equal(results[-1].view(np.uint32), results[0].view(np.uint32))
    assert len(results) == len(LOWER) + 1 and np.unique(results[0]).size > 1000


def test_a_buffer_that_nothing_uses_needs_no_memory():
    """As of a model whose text was changed."""
    compiled = lower(MODELS["matmul"](), 64)
    text, end = str(compiled), compiled.scratch
    unused = f"%999 : buffer<x16, f32> = cpu.alloc @offset={end};"
    text = text.replace(f"@scratch={end}", f"@scratch={end + 64}").replace("tt.return", f"{unused} tt.return")
    assert allocate(zg.parse(text)).scratch == end


def test_addresses_that_use_values_twice_are_followed_in_linear_time():
    """A walk without a memo would take 2^60 steps, through what is gathered and through what is transposed."""

    @zg.kernel
    def gather(x_ptr, out_ptr, n):
        at = zg.add(zg.expand(zg.mul(zg.arange(0, 8), 8), 1), zg.expand(zg.arange(0, 8), 0))
        columns_first = zg.add(zg.expand(zg.arange(0, 8), 1), zg.expand(zg.mul(zg.arange(0, 8), 8), 0))
        hashed, offset = at, zg.full((8, 8), n, zg.i32)
        for _ in zg.static_range(60):
            hashed = (hashed * 1664525) ^ (hashed >> 13)
            offset = offset ^ (offset >> 1)
        x = zg.load(zg.add(x_ptr, hashed & 63))
        y = zg.load(zg.add(x_ptr, columns_first + offset))
        zg.store(zg.add(out_ptr, at), x + y)

    assert str(turn(gather.triton(F32, F32, zg.i32))).count("tt.trans") == 1
