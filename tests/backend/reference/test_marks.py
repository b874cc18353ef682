"""Strict mode finds uses of undefined elements and names the load; an overflow in an offset is named."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference.machine import triton
from ziggurat.backend.reference.marks import marks
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.op import Op

LESS = zg.CompareKind.LESS_THAN
N = 5  # Elements of the arrays; the kernels have blocks of 8.
FLOATS = -np.arange(1.0, N + 1, dtype=np.float32)
INTS = -np.arange(1, N + 1, dtype=np.int32)


def rows(kernel, x, out, **options):
    """Run a kernel that gets an array, its size and an output. The arrays hold one row."""
    kernel[(1,)](x, len(x), out, strict=True, **options)
    return out


def refused(kernel, x, out, match="stores an undefined element: the mask of this load of x leaves it out"):
    with pytest.raises(zg.KernelRuntimeError, match=match) as error:
        rows(kernel, x, out)
    return error.value


REDUCTIONS = {
    "max": lambda v: zg.max(v, axis=0),
    "min": lambda v: zg.min(v, axis=0),
    "sum": lambda v: zg.sum(v, axis=0),
    "argmax": lambda v: zg.argmax(v, axis=0),
    "argmin": lambda v: zg.argmin(v, axis=0),
    "xor": lambda v: zg.xor_sum(v, axis=0),
    "cumsum": lambda v: zg.sum(zg.cumsum(v, axis=0), axis=0),
    "sort": lambda v: zg.max(zg.sort(v), axis=0),
}


@pytest.mark.parametrize(
    ("name", "array"),
    [(name, array) for name in REDUCTIONS for array in (FLOATS, INTS) if name != "xor" or array is INTS],
)
def test_no_reduction_hides_a_forgotten_other(name, array):
    reduce_ = REDUCTIONS[name]
    element = zg.i32 if name.startswith("arg") or array is INTS else zg.f32

    def body(x, n, out, other):
        at = zg.arange(0, 8)
        mask = zg.compare(at, n, LESS)
        values = zg.load(zg.add(x, at), mask) if other is None else zg.load(zg.add(x, at), mask, other=other)
        zg.store(out, reduce_(values))

    types = (zg.ptr(zg.f32 if array is FLOATS else zg.i32), zg.i32, zg.ptr(element))
    out = np.zeros(1, np.int32 if element is zg.i32 else np.float32)
    forgotten = zg.trace(lambda x, n, out: body(x, n, out, None), *types)
    with pytest.raises(zg.KernelRuntimeError, match="stores an undefined element: the mask of this load"):
        zg.run(forgotten, 1, array, N, out, strict=True)
    zg.run(forgotten, 1, array, N, out)
    right = zg.trace(lambda x, n, out: body(x, n, out, 0), *types)
    zg.run(right, 1, array, N, out, strict=True)


@zg.kernel
def softmax(x, n, out):
    at = zg.arange(0, 8)
    mask = zg.compare(at, n, LESS)
    row = zg.load(zg.add(x, at), mask)
    numerator = zg.exp(zg.sub(row, zg.max(row, axis=0)))
    zg.store(zg.add(out, at), zg.div(numerator, zg.sum(numerator, axis=0)), mask)


def test_the_error_shows_the_load_and_the_use():
    error = refused(softmax, FLOATS, np.zeros(N, np.float32))
    text = str(error)
    assert "row = zg.load(zg.add(x, at), mask)" in text and text.index("zg.load(") < text.index("it is used here")
    assert "zg.store(zg.add(out, at)" in text[text.index("it is used here") :]
    assert "other=" in error.hint and text.startswith("program (0, 0, 0) stores an undefined element")


@zg.kernel
def right_softmax(x, n, out):
    at = zg.arange(0, 8)
    mask = zg.compare(at, n, LESS)
    row = zg.load(zg.add(x, at), mask, other=-float("inf"))
    numerator = zg.exp(zg.sub(row, zg.max(row, axis=0)))
    zg.store(zg.add(out, at), zg.div(numerator, zg.sum(numerator, axis=0)), mask)


@zg.kernel
def chosen(x, n, out):
    at = zg.arange(0, 8)
    mask = zg.compare(at, n, LESS)
    row = zg.load(zg.add(x, at), mask)
    zg.store(out, zg.max(zg.where(mask, row, -9.0), axis=0))


@zg.kernel
def masked_condition(x, n, out):
    at = zg.arange(0, 8)
    mask = zg.compare(at, n, LESS)
    row = zg.load(zg.add(x, at), mask)
    small = zg.and_(mask, zg.compare(row, -2.0, LESS))
    zg.store(out, zg.sum(zg.where(small, row, 0.0), axis=0))


@zg.kernel
def looked_up(x, n, out):
    at = zg.arange(0, 8)
    mask = zg.compare(at, n, LESS)
    index = zg.load(zg.add(x, at), mask)
    zg.store(zg.add(out, zg.sub(0, zg.add(index, 1))), index, mask)


@zg.kernel
def other_where_undefined(x, n, out):
    at = zg.arange(0, 8)
    row = zg.load(zg.add(x, at), zg.compare(at, n, LESS))
    first = zg.compare(at, 4, LESS)
    zg.store(zg.add(out, at), zg.load(zg.add(out, at), zg.compare(at, n, zg.CompareKind.GREATER_THAN_OR_EQUAL), row))
    zg.store(zg.add(out, at), zg.load(zg.add(x, at), first, row), zg.compare(at, n, LESS))


def test_other_is_undefined_only_where_the_mask_is_false():
    assert rows(other_where_undefined, FLOATS, np.full(8, 9, np.float32)).tolist() == [*FLOATS, 9, 9, 9]


def test_a_mask_clears_what_it_leaves_out():
    expected = np.exp(FLOATS + 1) / np.exp(FLOATS + 1).sum()
    np.testing.assert_allclose(rows(right_softmax, FLOATS, np.zeros(N, np.float32)), expected, rtol=1e-6)
    assert rows(chosen, FLOATS, np.zeros(1, np.float32))[0] == -1
    assert rows(masked_condition, FLOATS, np.zeros(1, np.float32))[0] == -12
    assert rows(looked_up, INTS, np.zeros(N, np.int32)).tolist() == INTS.tolist()


@zg.kernel
def unmasked_address(x, n, out):
    at = zg.arange(0, 8)
    index = zg.load(zg.add(x, at), zg.compare(at, n, LESS))
    zg.store(zg.add(out, at), zg.load(zg.add(x, index)))


@zg.kernel
def condition(x, n, out):
    value = zg.load(zg.add(x, n), zg.compare(n, 0, LESS))
    if zg.compare(value, 3, LESS):
        zg.store(out, 1)


@zg.kernel
def bound(x, n, out):
    total = 0
    for i in range(0, zg.load(zg.add(x, n), zg.compare(n, 0, LESS))):
        total += i
    zg.store(out, total)


@zg.kernel
def waiting(x, n, out):
    value = zg.load(zg.add(x, n), zg.compare(n, 0, LESS))
    while zg.compare(value, 3, LESS):
        value += 1
    zg.store(out, 1)


@zg.kernel
def atomic(x, n, out):
    at = zg.arange(0, 8)
    zg.atomic_add(out, zg.sum(zg.load(zg.add(x, at), zg.compare(at, n, LESS)), axis=0))


@zg.kernel
def asserted(x, n, out):
    at = zg.arange(0, 8)
    zg.device_assert(zg.compare(zg.load(zg.add(x, at), zg.compare(at, n, LESS)), 100, LESS))


@zg.kernel
def masked_by_data(x, n, out):
    at = zg.arange(0, 8)
    row = zg.load(zg.add(x, at), zg.compare(at, n, LESS))
    zg.store(zg.add(out, at), at, zg.compare(row, 0, LESS))


@zg.kernel
def gathered(x, n, out):
    at = zg.arange(0, 8)
    row = zg.load(zg.add(x, at), zg.compare(at, n, LESS))
    zg.store(out, zg.sum(zg.gather(at, row, axis=0), axis=0))


@zg.kernel
def counted(x, n, out):
    at = zg.arange(0, 8)
    row = zg.load(zg.add(x, at), zg.compare(at, n, LESS))
    zg.store(zg.add(out, at), zg.histogram(row, 8))


@pytest.mark.parametrize(
    ("kernel", "use"),
    [
        (unmasked_address, "reads at"), (condition, "branches on"), (bound, "bounds a loop by"),
        (waiting, "goes on with a loop on"), (atomic, "updates memory with"), (asserted, "asserts"),
        (masked_by_data, "masks a store by"), (gathered, "gathers at"), (counted, "stores"),
    ],
)  # fmt: skip
def test_each_use_is_named(kernel, use):
    refused(
        kernel, INTS, np.zeros(8, np.int32), f"{use} an undefined element: the mask of this load of x leaves it out"
    )


@zg.kernel
def product(x, n, out, other: zg.constexpr):
    at = zg.arange(0, 16)
    a_at = zg.add(zg.mul(zg.expand(at, 1), n), zg.expand(at, 0))
    inside = zg.compare(at, n, LESS)
    mask = zg.and_(zg.expand(inside, 1), zg.expand(inside, 0))
    a = zg.load(zg.add(x, a_at), mask) if other is None else zg.load(zg.add(x, a_at), mask, other=other)
    rows_mask = zg.broadcast(zg.expand(inside, 1), (16, 16))
    b = zg.load(zg.add(x, a_at), mask, other=0.0)
    zg.store(zg.add(out, a_at), zg.dot(a, b), mask)
    zg.store(zg.add(out, a_at), zg.dot(b, zg.where(rows_mask, b, 0.0)), mask)


def test_a_product_over_undefined_columns():
    x, out = np.ones((5, 5), np.float32), np.zeros((5, 5), np.float32)
    with pytest.raises(zg.KernelRuntimeError, match="stores an undefined element"):
        product[(1,)](x, 5, out, other=None, strict=True)
    product[(1,)](x, 5, out, other=0.0, strict=True)
    assert (out == 5).all()


@zg.kernel
def row_maximum(x, rows, columns, out):
    row, column = zg.expand(zg.arange(0, 4), 1), zg.expand(zg.arange(0, 8), 0)
    mask = zg.compare(row, rows, LESS)
    values = zg.load(zg.add(x, zg.add(zg.mul(row, columns), column)), zg.broadcast(mask, (4, 8)))
    at = zg.arange(0, 4)
    inside = zg.compare(at, rows, LESS)
    zg.store(zg.add(out, at), zg.max(values, axis=1), inside)
    zg.store(zg.add(out, at), zg.cast(zg.argmax(values, axis=1), zg.f32), inside)


def test_undefined_rows_that_are_not_stored():
    x, out = np.arange(24, dtype=np.float32).reshape(3, 8), np.zeros(3, np.float32)
    row_maximum[(1,)](x, 3, 8, out, strict=True)
    assert out.tolist() == [7, 7, 7]


@zg.kernel
def product_of_undefined(out, x, y, n, M: zg.constexpr, N: zg.constexpr):
    rows, steps, columns = zg.arange(0, M), zg.arange(0, 16), zg.arange(0, N)
    left = zg.load(x + (zg.expand(rows, 1) * 16 + zg.expand(steps, 0)), zg.less(zg.expand(steps, 0), n))
    right = zg.load(y + (zg.expand(steps, 1) * N + zg.expand(columns, 0)), zg.less(zg.expand(steps, 1), n))
    zg.store(out + (zg.expand(rows, 1) * N + zg.expand(columns, 0)), zg.dot(left, right))


def test_a_product_of_two_shapes_with_undefined_elements():
    x, y = np.ones((32, 16), np.float16), np.ones((16, 64), np.float16)
    with pytest.raises(zg.KernelRuntimeError, match="stores an undefined element"):
        product_of_undefined[(1,)](np.zeros((32, 64), np.float32), x, y, 9, 32, 64, strict=True)


@zg.kernel
def crowded(out, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(out + at % 2, at % n, at < 60)


def test_a_store_of_two_values_to_one_element():
    crowded[(1,)](np.zeros(2, np.int32), 2, 64, strict=True)  # Each element gets one value, many times.
    crowded[(1,)](np.zeros(2, np.int32), 3, 64)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(0, 0, 0\): a store writes two values to one place"):
        crowded[(1,)](np.zeros(2, np.int32), 3, 64, strict=True)


def test_the_first_program_is_named():
    @zg.kernel
    def shifted(x, n, out):
        at = zg.add(zg.mul(zg.program_id(0), 4), zg.arange(0, 4))
        zg.store(zg.add(out, at), zg.load(zg.add(x, at), zg.compare(at, n, LESS)))

    with pytest.raises(zg.KernelRuntimeError, match=r"^program \(2, 0, 0\) stores an undefined element"):
        shifted[(4,)](np.zeros(10, np.float32), 10, np.zeros(16, np.float32), strict=True)


@zg.kernel
def read_back(x, n, out, BARRIER: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), 8), zg.arange(0, 8))
    zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at)), 2.0))
    if BARRIER:
        zg.debug_barrier()
    zg.store(zg.add(x, at), zg.load(zg.add(out, at)))


def test_a_program_reads_what_it_has_written():
    x, out = np.ones(32, np.float32), np.zeros(32, np.float32)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(0, 0, 0\) reads an element of out that it has w") as c:
        read_back[(4,)](x, 32, out, BARRIER=False, strict=True)
    assert "it is written here" in str(c.value) and "zg.debug_barrier()" in c.value.hint
    read_back[(4,)](x, 32, out, BARRIER=False)
    read_back[(4,)](x, 32, out, BARRIER=True, strict=True)
    assert (x == 4).all()


@zg.kernel
def first_subtracted(x, BARRIER: zg.constexpr):
    first = zg.load(x)
    at = zg.arange(0, 256)
    if BARRIER:
        zg.debug_barrier()
    zg.store(zg.add(x, at), zg.sub(zg.load(zg.add(x, at)), first))


@zg.kernel
def moved(x, BY: zg.constexpr, BARRIER: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), 8), zg.arange(0, 8))
    values = zg.load(zg.add(x, at))
    if BARRIER:
        zg.debug_barrier()
    zg.store(zg.add(x, zg.xor(at, BY)), values)


def test_a_program_writes_what_another_position_has_read():
    """With two loads of one position each, the error names the load of the other position."""
    x = np.arange(256, dtype=np.float32)
    with pytest.raises(zg.KernelRuntimeError, match="writes an element of x that it has read at another pos") as error:
        first_subtracted[(1,)](x, BARRIER=False, strict=True)
    text = str(error.value)
    assert "zg.store(zg.add(x, at), zg.sub(zg.load(zg.add(x, at)), first))" in text[: text.index("it is read here")]
    assert "first = zg.load(x)" in text[text.index("it is read here") :] and "zg.debug_barrier()" in error.value.hint
    first_subtracted[(1,)](x, BARRIER=True, strict=True)
    y = np.arange(32, dtype=np.float32)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(0, 0, 0\) writes an element of x that it has read"):
        moved[(4,)](y, BY=1, BARRIER=False, strict=True)
    moved[(4,)](y, BY=1, BARRIER=True, strict=True)
    assert (y == np.arange(32) ^ 1).all()


def test_positions_of_elements_of_two_sizes():
    """The smaller elements are the units of memory: each half of an f64 has the position of the whole."""
    memory = np.arange(32, dtype=np.float64)

    @zg.kernel
    def both(x, halves, BY: zg.constexpr):
        at = zg.arange(0, 32)
        values = zg.load(zg.add(x, at))
        zg.store(zg.add(x, zg.xor(at, BY)), values)
        zg.debug_barrier()
        zg.store(zg.add(halves, at), 0.0)

    with pytest.raises(zg.KernelRuntimeError, match="writes an element of x or halves that it has read"):
        both[(1,)](memory, memory.view(np.float32), 1, strict=True)
    both[(1,)](memory, memory.view(np.float32), 0, strict=True)
    assert memory[:16].sum() == 0 and memory[16:].tolist() == list(range(16, 32))


@zg.kernel
def spread(x):
    zg.store(zg.add(x, zg.arange(0, 8)), zg.load(zg.add(x, zg.full((8,), 0, zg.i32))))


def test_one_element_that_all_positions_read():
    with pytest.raises(zg.KernelRuntimeError, match="writes an element of x that it has read"):
        spread[(1,)](np.ones(8, np.float32), strict=True)


@zg.kernel
def in_place(x, descriptor):
    at = zg.arange(0, 8)
    zg.store(x, zg.add(zg.load(x), 1.0))  # One position: a scalar.
    zg.debug_barrier()
    values = zg.load(zg.add(x, at), zg.compare(at, 5, LESS), 0.0)
    row, sums = zg.expand(at, 0), zg.add(values, zg.load(zg.add(x, at)))
    zg.store(zg.add(x, row), zg.expand(sums, 0), zg.compare(row, 5, LESS))
    descriptor.store([0, 0], zg.mul(descriptor.load([0, 0]), 2.0))


def test_each_element_is_stored_by_the_position_that_loads_it():
    x, y = np.ones(8, np.float32), np.ones((8, 8), np.float32)
    in_place[(1,)](x, zg.TensorDescriptor(y, (4, 8)), strict=True)
    assert x.tolist() == [4, 2, 2, 2, 2, 1, 1, 1] and y.sum() == 96
    moved[(4,)](np.ones(32, np.float32), BY=0, BARRIER=False, strict=True)


@zg.kernel
def stored_twice(x, at, BARRIER: zg.constexpr):
    offsets = zg.arange(0, 8)
    zg.store(zg.add(x, offsets), offsets)
    if BARRIER:
        zg.debug_barrier()
    zg.store(zg.add(x, zg.add(offsets, at)), zg.add(offsets, 1))


def test_an_element_is_stored_by_two_positions():
    x = np.zeros(16, np.int32)
    stored_twice[(1,)](x, 1, BARRIER=False, strict=True)  # The same values.
    stored_twice[(1,)](x, 0, BARRIER=False, strict=True)  # The same positions.
    stored_twice[(1,)](x, 2, BARRIER=True, strict=True)
    with pytest.raises(zg.KernelRuntimeError, match="writes an element of x that it has written at another position"):
        stored_twice[(1,)](x, 2, BARRIER=False, strict=True)


@zg.kernel
def power(c, a, w, n):
    for _ in range(0, n):
        block = zg.dot(a.load([0, 0]), w.load([0, 0]))
        c.store([0, 0], zg.cast(block, zg.f16))


def test_one_array_behind_two_descriptors():
    array, w = np.ones((16, 16), np.float16), np.eye(16, dtype=np.float16)
    c, a = (zg.TensorDescriptor(array, (16, 16)) for _ in range(2))
    power[(1,)](c, a, zg.TensorDescriptor(w, (16, 16)), 2)
    with pytest.raises(zg.KernelRuntimeError, match="reads an element of c or a that it has written"):
        power[(1,)](c, a, zg.TensorDescriptor(w, (16, 16)), 2, strict=True)


@zg.kernel
def strided(x, stride, out):
    row = zg.add(zg.program_id(0), 2)
    zg.store(zg.add(out, zg.mul(row, stride)), zg.load(x))


@pytest.mark.parametrize("size", [1, 8])
def test_an_offset_that_overflows_is_named(size):
    x, out = np.zeros(1, np.int32), np.zeros(size, np.int32)
    with pytest.raises(zg.MemoryAccessError, match="the product in its offset overflows i32") as error:
        strided[(4,)](x, 1 << 30, out, interpret=True)
    text = str(error.value)
    assert text.startswith("program (0, 0, 0) writes out[-2147483648], but out has") and "zg.i64" in error.value.hint
    assert "zg.mul(row, stride)" in text[text.index("it overflows here") :]
    with pytest.raises(zg.MemoryAccessError, match="but out has") as error:
        strided[(4,)](x, 7, out, interpret=True)
    assert "overflows" not in str(error.value)


@zg.kernel
def far(x, stride, out):
    row = zg.add(zg.cast(zg.program_id(0), zg.i64), 2)
    zg.store(zg.add(out, zg.mul(row, stride)), zg.load(x))


def test_an_offset_that_overflows_64_bits_has_no_hint_to_widen_it():
    x, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    with pytest.raises(zg.MemoryAccessError, match="the product in its offset overflows i64") as error:
        far[(4,)](x, (1 << 62) + 1, out, interpret=True)
    assert "zg.i64" not in str(error.value.hint)


@zg.kernel
def hinted(out, n, by: zg.constexpr):
    zg.store(out, zg.multiple_of(n, by))


@pytest.mark.parametrize(
    ("n", "by", "holds"),
    [(1 << 32, 16, True), ((1 << 32) + 8, 16, False), (-32, 16, True), (-8, 16, False), (0, 16, True)],
)
def test_a_hint_on_64_bits_is_checked_with_all_of_them(n, by, holds):
    out = np.zeros(1, np.int64)
    if holds:
        hinted[(1,)](out, np.int64(n), by, strict=True, interpret=True)
        assert out[0] == n
        return
    with pytest.raises(zg.KernelRuntimeError, match=f"a value is not a multiple of {by}"):
        hinted[(1,)](out, np.int64(n), by, strict=True, interpret=True)


def test_every_op_that_is_not_elementwise_has_a_rule():
    ours = {cls for cls in triton._registered if cls not in marks._registered}
    elementwise = {cls for cls in ours if cls.__module__ in (arith.__name__, math.__name__)}
    assert Op in marks._registered
    assert ours - elementwise == {
        tt.Bitcast, tt.IntToPtr, tt.PtrToInt,
        tt.GetProgramId, tt.GetNumPrograms, tt.SmId, tt.GlobalTimer, tt.MakeRange,  # They have no operands.
        tt.Barrier, tt.GridDependencyWait, tt.GridDependencyLaunch, tt.Print, tt.InlineAsm,  # They pass nothing on.
    }  # fmt: skip
