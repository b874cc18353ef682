"""Tracing gives what reflection gives, and builds control flow that runs."""

import numpy as np
import pytest

import ziggurat as zg

F32 = zg.ptr(zg.f32)


def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: zg.constexpr):
    pid = zg.program_id(0)
    block_start = pid * BLOCK_SIZE
    offsets = zg.add(block_start, zg.arange(0, BLOCK_SIZE))
    mask = zg.compare(offsets, n_elements, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask=mask, other=0.0)
    y = zg.load(zg.add(y_ptr, offsets), mask)
    zg.store(zg.add(output_ptr, offsets), zg.add(x, y), mask)


def mixed_kernel(x_ptr, scale, n, B: zg.constexpr, FLAG: zg.constexpr):
    half = B // 2
    rows = zg.arange(0, B)
    x = zg.load(zg.add(x_ptr, rows))
    y = zg.mul(zg.exp(x), scale)
    low, high = zg.split(zg.reshape(y, (half, 2)))
    best, at = zg.max(low, 0, return_indices=True)
    total = zg.sum(high, 0) * 2.0 + best - scale / (n + 1)
    z = zg.where(zg.compare(rows, half, zg.CompareKind.GREATER_THAN), y, total)
    w = zg.cast(zg.add(z, at), zg.f32)
    zg.store(zg.add(x_ptr, rows), zg.clamp(w, -1.0, FLAG), mask=zg.compare(rows, n, zg.CompareKind.LESS_THAN))


@zg.function
def scaled(x, by=2.0, offset=0.5):
    return zg.add(zg.mul(x, by), offset), x


def helper_kernel(x_ptr, n, B: zg.constexpr):
    at = zg.add(x_ptr, zg.arange(0, B))
    first, second = scaled(zg.load(at), offset=1.5)
    zg.store(at, zg.sub(first, zg.mul(second, zg.cdiv(n, 3))))


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (add_kernel, (F32, F32, F32, zg.i32, 64)),
        (mixed_kernel, (F32, zg.f32, zg.i32, 32, 3.5)),
        (helper_kernel, (F32, zg.i32, 16)),
    ],
    ids=lambda thing: getattr(thing, "__name__", ""),
)
def test_both_ways_print_the_same_triton_model(kernel, arguments):
    traced = zg.trace(kernel, *arguments)
    assert str(traced) == str(zg.kernel(kernel).triton(*arguments))
    zg.verify(traced)


def test_a_for_loop_carries_values():
    def power(x_ptr, n, B):
        at = zg.add(x_ptr, zg.arange(0, B))
        start = (zg.full((B,), 1.0, zg.f32), at)
        product, end = zg.for_(0, n, 1, start, lambda i, p, a: (zg.mul(p, zg.load(at)), zg.add(a, 0)), num_stages=2)
        zg.store(end, product)

    model = zg.trace(power, F32, zg.i32, 8)
    zg.verify(model)
    loop = next(op for op in model.walk() if op.NAME == "scf.for")
    assert loop.attributes["num_stages"] == 2
    x = np.array([1, 2, 0.5, 3, 1, 1, 2, 2], np.float32)
    expected = x**3
    zg.run(model, (1,), x, 3)
    np.testing.assert_allclose(x, expected)


def test_one_value_and_no_value_are_carried_in_their_form():
    def kernel(x_ptr, n):
        total = zg.for_(n, 0, -1, 0, lambda i, t: t + i)
        zg.store(x_ptr, total)
        zg.for_(0, n, 2, None, lambda i: zg.store(zg.add(x_ptr, i + 1), i))

    x = np.full(8, -1, np.int32)
    zg.run(zg.trace(kernel, zg.ptr(zg.i32), zg.i32), (1,), x, 5)
    assert x.tolist() == [15, 0, -1, 2, -1, 4, -1, -1]


def test_while_and_if():
    def collatz(x_ptr):
        def step(n, count):
            even = n % 2 == 0
            return zg.if_(even, lambda: n // 2, lambda: 3 * n + 1), count + 1

        _, count = zg.while_(lambda n, count: n != 1, step, (zg.load(x_ptr), 0))
        zg.store(x_ptr, count)

    x = np.array([27], np.int32)
    zg.run(zg.trace(collatz, zg.ptr(zg.i32)), (1,), x)
    assert x[0] == 111


def test_a_python_condition_chooses_while_tracing():
    def kernel(x_ptr, flag):
        zg.store(x_ptr, zg.if_(flag, lambda: 1, lambda: 2))

    model = zg.trace(kernel, zg.ptr(zg.i32), False)
    assert not any(op.NAME == "scf.if" for op in model.walk())
    x = np.zeros(1, np.int32)
    zg.run(model, (1,), x)
    assert x[0] == 2


def test_a_builder_takes_calls_one_by_one():
    with zg.build("double", F32, zg.divisible(zg.i32, 16), 8) as kernel:
        x, n, size = kernel.arguments
        assert size == 8
        at = zg.add(x, zg.arange(0, size))
        for _ in range(3):
            zg.store(at, zg.mul(zg.load(at), 2), mask=zg.compare(zg.arange(0, size), n, zg.CompareKind.LESS_THAN))
    assert kernel.triton.body.entry.ops[0].attributes["divisibility"] == (1, 16)
    assert kernel.python.attributes["sym_name"] == "double"
    x = np.ones(8, np.float32)
    zg.run(kernel.triton, (1,), x, 6)
    assert x.tolist() == [8] * 6 + [1, 1]


def test_the_models_of_an_unfinished_builder_are_not_there():
    with pytest.raises(zg.BuildError, match="'k' is not finished"), zg.build("k", zg.i32) as kernel:
        _ = kernel.triton


def test_a_symbol_has_no_truth_no_items_and_is_no_integer():
    def branches(x_ptr, n):
        if n > 3:
            zg.store(x_ptr, 1.0)

    def iterates(x_ptr, n):
        for _ in zg.load(x_ptr):
            pass

    def counts(x_ptr, n):
        for _ in range(n):
            pass

    for kernel, words in ((branches, "truth"), (iterates, "iterated over"), (counts, "not a Python integer")):
        with pytest.raises(zg.KernelTypeError, match=words) as caught:
            zg.trace(kernel, F32, zg.i32)
        assert caught.value.location is not None and caught.value.location.file == __file__


def test_errors_stand_at_the_call_that_was_traced():
    def kernel(x_ptr):
        good = zg.arange(0, 8)
        zg.store(x_ptr, good)  # eight integers to one address of floats

    with pytest.raises(zg.KernelTypeError) as caught:
        zg.trace(kernel, F32)
    assert "zg.store(x_ptr, good)" in str(caught.value)
    assert "^^^^^^^^^^^^^^^^^^^^^" in str(caught.value)


def test_a_loop_must_give_what_it_carries():
    def kernel(x_ptr):
        zg.for_(0, 4, 1, (1, 2), lambda i, a, b: a)

    with pytest.raises(zg.KernelTypeError, match="gives one value, expected a tuple of 2"):
        zg.trace(kernel, F32)


def test_control_flow_outside_of_a_trace_is_an_error():
    with pytest.raises(zg.KernelSyntaxError, match=r"zg\.for_ was called outside of a traced function"):
        zg.for_(0, 4, 1, 0, lambda i, a: a)


def test_a_value_of_another_trace_is_refused():
    kept = []

    def first(x_ptr):
        kept.append(zg.load(x_ptr))

    def second(x_ptr):
        zg.store(x_ptr, kept[0])

    zg.trace(first, F32)
    with pytest.raises(zg.KernelTypeError, match="another trace"):
        zg.trace(second, F32)


def test_a_kernel_of_any_dtype():
    def kernel(x_ptr, out_ptr):
        at = zg.arange(0, 16)
        block = zg.make_tensor_descriptor(out_ptr, (16,), (1,), (16,))
        x = zg.cast(zg.load(zg.add(x_ptr, at)), zg.add(out_ptr, at).dtype.element_ty)
        block.store((0,), zg.cast(x, block.dtype))
        zg.store(out_ptr, zg.cast(zg.sum(x), out_ptr.dtype.element_ty))

    types = (F32, zg.ptr(zg.bf16))
    assert zg.trace(kernel, *types) == zg.kernel(kernel).triton(*types)
