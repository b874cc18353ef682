"""Statements and expressions of Triton's Python, on the interpreter against what Python and NumPy compute."""

from __future__ import annotations

import inspect
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

N = 8
X = np.arange(-3, N - 3, dtype=np.int32)


def run(kernel: Any, *arguments: Any, size: int = N, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    """The array that a kernel stores to its first argument."""
    out = np.zeros(size, dtype)
    kernel[(1,)](out, *arguments)
    return out


class Mode(Enum):
    FAST = 1
    SLOW = 2


class View(NamedTuple):
    ptr: Any
    strides: tuple[int, ...]
    scale: Any = 2


@triton.aggregate
class Range:
    low: tl.tensor
    step: tl.constexpr

    @triton.jit
    def at(self, i):
        return self.low + self.step * i

    def last(self, n, _semantic=None):
        return self.at(n - 1)

    @staticmethod
    def of(low):
        return Range(low, 3)

    @triton.constexpr_function
    def double(self):
        return 2 * self.step


@triton.aggregate
class Squared:
    root: tl.constexpr
    square: tl.constexpr
    rest: tl.tensor

    def __init__(self, root, rest):
        self.root = root
        self.square = self.squared()
        self.rest = rest + 1

    @triton.constexpr_function
    def squared(self):
        return self.root * self.root


@triton.constexpr_function
def log2(n):
    return n.bit_length() - 1


FOUR = tl.constexpr(4)
MODE = tl.constexpr(Mode.SLOW)


@triton.jit
def add_all(*values):
    total = values[0]
    for value in values[1:]:
        total += value
    return total


@triton.jit
def apply(fn: tl.constexpr, *values):
    return fn(*values)


@triton.jit
def maximum_of(a, b):
    return tl.maximum(a, b)


@triton.jit
def calls_of_values(out, x_ptr, name: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = getattr(tl, name)(x, 1) + apply(tl.minimum, x, i) + apply(add_all, *(x, i))
    tl.static_assert(x[None, None:None].shape == [1, N])
    tl.store(out + i, y)


def test_calls_of_the_language_are_values():
    i = np.arange(N)
    np.testing.assert_array_equal(run(calls_of_values, X, "maximum", N), np.maximum(X, 1) + np.minimum(X, i) + X + i)


@triton.jit
def conditions(out, x_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.where((x > 0 and x < 3) or not x < 4, 1, 0)
    if tl.max(x, 0)[None] > 2:
        y += 10
    if n > 1 and not (n == 5):
        y += 100
    y += 1000 if n > 3 else 2000
    y += 0 if n is None else 5000
    if 1 < n < 4:
        y += 20000
    tl.store(out + i, y)


@pytest.mark.parametrize("n", [0, 3, 5])
def test_tensors_and_numbers_in_conditions(n):
    expected = np.where((X > 0) & (X < 3) | ~(X < 4), 1, 0) + 10 + 5000 + (1000 if n > 3 else 2000)
    expected += 100 * (n > 1 and n != 5) + 20000 * (1 < n < 4)
    np.testing.assert_array_equal(run(conditions, X, n, N), expected)


@triton.jit
def tuple_operators(out, x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    t = (x, x + 1, 3)
    a, b = t[1:]
    u = t + (4, 5)
    tl.static_assert(len(u) == 5 and len(t[:-1]) == 2 and (1, 2) == (1, 2) and (1,) != (1, 2))
    picked = [v * 2 for v in u[1:] if N > 4]
    nested = ((a, b), [i, 7])
    total = add_all(*u) + picked[-1] + nested[1][1] + apply(maximum_of, x, b)
    tl.store(out + i, total)


def test_tuples():
    expected = X + (X + 1) + 3 + 4 + 5 + 10 + 7 + np.maximum(X, 3)
    np.testing.assert_array_equal(run(tuple_operators, X, N), expected)


@triton.jit
def moved(view, n):
    return View(view.ptr + n, view.strides, scale=view.scale + 1)


@triton.jit
def named_tuples(out, view, N: tl.constexpr):
    i = tl.arange(0, N)
    for step in range(2):
        view = moved(view, step)
    out_view = View(out, (1,))
    x = tl.load(view.ptr + i * view.strides[0])
    tl.store(out_view.ptr + i, x * view.scale + out_view.scale)


def test_named_tuples_are_arguments_results_and_loop_carried_values():
    x = np.arange(2 * N + 1, dtype=np.int32)
    np.testing.assert_array_equal(run(named_tuples, View(x, (2,), 3), N), x[1::2][:N] * 5 + 2)


@triton.jit
def aggregates(out, start, N: tl.constexpr):
    i = tl.arange(0, N)
    r = Range.of(start)
    s = Squared(3, start)
    y = r.at(i) + r.last(N) + r.double() + r.step
    tl.static_assert(s.square == 9 and isinstance(r, Range) and not isinstance(r, Squared) and hasattr(r, "low"))
    tl.store(out + i, y + s.rest)


def test_aggregates():
    i = np.arange(N)
    np.testing.assert_array_equal(run(aggregates, 10, N), 10 + 3 * i + (10 + 3 * (N - 1)) + 6 + 3 + 11)


@triton.jit
def host_objects(out, mode: tl.constexpr, dtype: tl.constexpr):
    tl.static_assert(mode == Mode.FAST and mode is not MODE and mode.value == 1 and mode.name == "FAST")
    tl.static_assert(log2(FOUR * 8) == 5 and f"{mode.name:>6}|{FOUR!r}" == "  FAST|4" and str(FOUR) + "a" == "4a")
    tl.static_assert(isinstance(dtype, tl.dtype) and not isinstance(out, tl.dtype) and isinstance(out, tl.tensor))
    tl.static_assert(max(1, 2, 0) == 2 and int("3") == 3 and float("inf") > 1 and abs(-2) == 2)
    x: tl.constexpr = FOUR // 3 + (-5) // 2
    tl.store(out + tl.arange(0, FOUR * 2), x)


def test_objects_of_python_are_constants():
    np.testing.assert_array_equal(run(host_objects, Mode.FAST, tl.float16), np.full(N, 1 - 3))


@triton.jit
def assigned(out, N: tl.constexpr, WIDE: tl.constexpr):
    x = tl.arange(0, N)
    if WIDE:
        x = x[:, None] * N + x[None, :]
        x = tl.sum(x, 1)
    for k in tl.static_range(3, 0, -1):
        x += k
    else:
        x += 100
    if (y := tl.max(x, 0)) > 0:
        x -= y
    for _ in range(5, 0, -2):
        x += 1
    i = 0
    while i < 3 and y > 0:
        i += 1
        x += i
    tl.store(out + tl.arange(0, N), x)


@pytest.mark.parametrize("wide", [False, True])
def test_variables_loops_and_other_shapes(wide):
    x = np.arange(N)
    x = (x[:, None] * N + x).sum(1) if wide else x
    np.testing.assert_array_equal(run(assigned, N, wide), x - x.max() + 3 + 6)


@triton.jit
def sign(x, zero=None):
    if x < 0:
        return -1
    elif x == 0:
        if zero is not None:
            return zero
    return 1
    return 5


@triton.jit
def nothing(out):
    if tl.load(out) > 3:
        return
    tl.store(out, 4)


@triton.jit
def only_positive(x):
    if x > 0:
        return x + 1


@triton.jit
def early(out, n):
    tl.store(out, sign(n))
    tl.store(out + 1, sign(n, 7))
    tl.store(out + 2, sign(-5) * 2)
    nothing(out + 3) if n > 0 else nothing(out + 4)
    y = only_positive(n)
    if n > 0:
        tl.store(out + 7, y)
    if n == 2:
        return
    tl.store(out + 5, 1)
    if n > 5:
        if n > 7:
            return
        tl.store(out + 6, 1)


def test_the_index_of_a_loop_is_read_after_it():
    @triton.jit
    def kernel(out_ptr, n):
        for i in range(n):
            tl.store(out_ptr + i, i)
        tl.store(out_ptr + 6, i)
        for i in range(n - 1, -1, -1):
            tl.store(out_ptr + i, i * i)
        tl.store(out_ptr + 7, i)

    assert run(kernel, 5).tolist() == [0, 1, 4, 9, 16, 0, 4, 0]
    assert run(kernel, 0)[:6].tolist() == [0] * 6


def test_pointers_are_integers_of_64_bits():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        back = x_ptr.to(tl.uint64).to(tl.pointer_type(tl.int32))
        tl.store(out_ptr, tl.load(back + 2))
        tl.store(out_ptr + 1, (back.to(tl.int64) == x_ptr.to(tl.int64)) & x_ptr.to(tl.int1))

    assert run(kernel, X)[:2].tolist() == [-1, 1]


@triton.constexpr_function
def bits_of_half(dtype: Any) -> int:
    return dtype.primitive_bitwidth if dtype == tl.float16 else 0


@tl.constexpr
def next_width(width: Any, dtype: Any) -> Any:
    assert isinstance(width, tl.constexpr)
    return tl.core.get_int_dtype(2 * width.value, signed=dtype.is_int_signed())


def test_functions_under_constexpr_are_called():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        at = tl.arange(0, 8)
        x = tl.load(x_ptr + at)
        tl.store(out_ptr + at, x.to(next_width(32, x.dtype)) * 2**31 >> 31)

    assert run(kernel, X).tolist() == X.tolist()


def chosen(mask: Any, value: Any, *, _builder: object = None) -> Any:
    """As `torch._inductor.runtime.triton_helpers.if_mask`: it asks whether an argument is the constant None."""
    return tl.constexpr(None) if isinstance(mask, tl.constexpr) and mask.value is None else value


def test_none_is_a_constexpr_to_functions_of_a_module():
    helpers = SimpleNamespace(chosen=chosen)

    @triton.jit
    def kernel(out_ptr, x_ptr, MASKED: tl.constexpr):
        at = tl.arange(0, 8)
        if MASKED:
            mask = at < 5
        else:
            mask: tl.constexpr = None
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask, other=helpers.chosen(mask, 7)))

    assert run(kernel, X, False).tolist() == X.tolist()
    assert run(kernel, X, True).tolist() == [*X[:5], 7, 7, 7]


int_dtype = tl.core.get_int_dtype


def test_functions_of_the_language_and_its_combinations_are_known_by_name():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        at = tl.arange(0, 8)
        x = tl.load(x_ptr + at).to(int_dtype(bitwidth=64, signed=True))
        tl.store(out_ptr + at, tl.associative_scan(x, 0, tl.standard._sum_combine))
        best, place = tl.reduce((x % 3, at), 0, tl.standard._argmax_combine_tie_break_left)
        tl.store(out_ptr + 7, best * 10 + place)
        least, place = tl.reduce((x % 3, at), 0, tl.standard._argmin_combine_tie_break_left)
        tl.store(out_ptr + 6, least * 10 + place)
        tl.store(out_ptr + tl.arange(0, 4), tl.standard.sort_impl(x, 4, descending=True))

    # The remainders are 0, -2, -1, 0, 1, 2, 0, 1.
    assert run(kernel, X).tolist() == [4, 3, 2, 1, -5, -3, -19, 25]
    assert [*inspect.signature(tl.sort).parameters] == ["x", "dim", "descending"]


@pytest.mark.parametrize("debug", [False, True])
def test_an_assert_is_checked_at_run_time_if_debugging_is_asked_for(debug):
    @triton.jit
    def kernel(out_ptr, WIDTH: tl.constexpr):
        assert WIDTH, "never"
        assert WIDTH == 2, "two"
        tl.store(out_ptr, WIDTH)

    assert run(kernel, 2)[0] == 2
    with pytest.warns(zg.ZigguratWarning, match=r"has no effect without debug=True; see tl\.static_assert"):
        if debug:
            with pytest.raises(zg.KernelRuntimeError, match="device-side assertion failed: two"):
                kernel[(1,)](np.zeros(1, np.int32), 3, debug=True)
        else:
            assert run(kernel, 3)[0] == 3


@triton.constexpr_function
def element_of(x: Any) -> Any:
    assert isinstance(x, tl.tensor | tl.tensor_descriptor)
    if isinstance(x, tl.tensor_descriptor):
        return x.dtype if x.block_shape == (4, 8) == x.block_type.shape else tl.void
    return x.dtype.element_ty if x.dtype.is_ptr() and not x.shape else x.type.scalar if x.numel == 8 else tl.void


def test_functions_under_constexpr_know_the_types_of_run_time_values():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        at = tl.arange(0, 8)
        block = tl.make_tensor_descriptor(x_ptr, [4, 8], [8, 1], [4, 8])
        tl.static_assert(element_of(block) == element_of(x_ptr) and element_of(at) == tl.int32)
        tl.store(out_ptr + at, at, element_of(x_ptr + at).is_ptr())

    assert run(kernel, np.zeros(32, np.float16)).tolist() == list(range(8))


def test_functions_of_modules_take_dtypes_of_their_own():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        LARGEST: tl.constexpr = np.iinfo(np.int32).max
        tl.store(out_ptr, LARGEST)
        tl.store(out_ptr + 1, bits_of_half(tl.load(x_ptr).to(tl.float16).dtype) + bits_of_half(tl.float32))
        tl.store(out_ptr + 2, tl.standard._log2(16) + tl.core.CONSTEXPR_0)
        tl.store(out_ptr + 3, tl.core.get_int_dtype(16, True).primitive_bitwidth)

    assert run(kernel, X)[:4].tolist() == [2**31 - 1, 16, 4, 16]


def test_a_pointer_is_a_condition():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        if x_ptr:
            tl.store(out_ptr, 1)
        tl.store(out_ptr + 1, 2 if not x_ptr else 3)

    assert run(kernel, X)[:2].tolist() == [1, 3]
    assert run(kernel, None)[:2].tolist() == [0, 2]


def test_keywords_of_range_are_ignored():
    @triton.jit
    def kernel(out_ptr, n):
        for i in range(1, n, step=2):
            tl.store(out_ptr + i, i)

    with pytest.warns(zg.ZigguratWarning, match=r"range\(\) ignores 'step', as Triton does: tl.range takes it"):
        assert run(kernel, 6).tolist() == [0, 1, 2, 3, 4, 5, 0, 0]


@triton.jit
def loads_of_rows(out_ptr, x_ptr, n, OTHER: tl.constexpr):
    row, column = tl.arange(0, 4), tl.arange(0, 8)
    other = row[:, None] + 10 if OTHER else 0
    once = tl.load(x_ptr + column[None, :], mask=(row[:, None] < n) & (column[None, :] < 7), other=other)
    again = tl.load(x_ptr + column, mask=row[:, None] < n, other=0)
    tl.store(out_ptr + row[:, None] * 8 + column[None, :], once + 100 * again)


@pytest.mark.parametrize("other", [False, True])
def test_pointers_are_broadcast_with_the_mask_of_a_load(other):
    rows, columns = np.arange(4)[:, None], np.arange(8)[None]
    once = np.where((rows < 3) & (columns < 7), X[None], rows + 10 if other else 0)
    expected = once + 100 * np.where(rows < 3, X[None], 0)
    assert run(loads_of_rows, X, 3, other, size=32).tolist() == expected.ravel().tolist()


@triton.jit
def over_either_range(out_ptr, start, n, LAST: tl.constexpr):
    total = start
    for i in (tl.static_range if LAST < 4 else range)(1, LAST if LAST < 4 else n + 1):
        total = total * 2 + i
    for i in (range if LAST >= 4 else tl.static_range if LAST > 2 else tl.range)(3):
        total += i
    tl.store(out_ptr, total)


@pytest.mark.parametrize("last", [2, 3, 8])
def test_a_condition_chooses_the_range_of_a_loop(last):
    total = 5
    for i in range(1, last if last < 4 else 7 + 1):
        total = total * 2 + i
    assert run(over_either_range, 5, 7, last, size=1) == total + 3
    assert (
        str(over_either_range.triton(zg.ptr(zg.i32), zg.i32, zg.i32, last)).count("scf.for") == {2: 1, 3: 0, 8: 2}[last]
    )


@triton.jit
def over_a_run_time_choice(out_ptr, n):
    for i in (tl.static_range if n < 4 else range)(4):
        tl.store(out_ptr, i)


def test_only_a_constant_chooses_the_range_of_a_loop():
    with pytest.raises(triton.CompilationError, match="dynamic condition has inconsistent types range"):
        run(over_a_run_time_choice, 7)


def test_a_rounding_says_nothing_where_the_type_stays():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        at = tl.arange(0, 8)
        x = tl.load(x_ptr + at).to(tl.float32)
        tl.store(out_ptr + at, x.to(tl.float32, fp_downcast_rounding="rtne") + x.to(tl.float16, "rtz"))

    assert run(kernel, X, dtype=np.float32).tolist() == (2 * X).tolist()


def test_a_division_by_zero_gives_a_warning():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        at = tl.arange(0, 8)
        x = tl.load(x_ptr + at)
        tl.store(out_ptr + at, 6 // x, mask=x != 0)
        tl.store(out_ptr + 3, 5 % tl.load(x_ptr + 3))

    with pytest.warns(zg.ZigguratWarning, match=r"program \(0, 0, 0\) divides by zero: the result is taken to have"):
        assert run(kernel, X).tolist() == [-2, -3, -6, -1, 6, 3, 2, 1]
    with pytest.raises(zg.KernelRuntimeError, match="divides by zero"):
        kernel[(1,)](np.zeros(8, np.int32), X, strict=True)


def test_a_scalar_is_indexed_by_none():
    @triton.jit
    def kernel(out_ptr, n):
        at = tl.arange(0, 8)
        flag = n > 2
        tl.static_assert(flag[:, None].shape == (1,) and flag[None, None].shape == (1, 1))
        tl.store(out_ptr + at, 1, mask=(at < n) & flag[:, None])

    assert run(kernel, 2).tolist() == [0] * 8
    assert run(kernel, 5).tolist() == [1] * 5 + [0] * 3


def test_the_type_of_a_block_pointer_has_that_of_its_block():
    @triton.jit
    def kernel(out_ptr, x_ptr):
        at = tl.make_block_ptr(out_ptr, (8,), (1,), (0,), (8,), (0,))
        tl.static_assert(at.type.element_ty.shape == (8,) and at.dtype.element_ty.element_ty == tl.int32)
        x = tl.load(x_ptr + tl.arange(0, 8)).to(tl.float32)
        tl.store(at, (x + 0.5).to(at.type.element_ty), boundary_check=0)

    assert run(kernel, X).tolist() == (X + 0.5).astype(np.int32).tolist()


@pytest.mark.parametrize("n", [-4, 0, 2, 6, 8])
def test_early_returns_and_calls_for_their_effect(n):
    first = -1 if n < 0 else 1
    second = -1 if n < 0 else 7 if n == 0 else 1
    expected = [first, second, -2, 4 * (n > 0), 4 * (n <= 0), int(n != 2), int(n == 6), (n + 1) * (n > 0)]
    np.testing.assert_array_equal(run(early, n), expected)


@triton.jit
def halves(x):
    if x.shape[0] == 1:
        return tl.sum(x, 0)
    else:
        a, b = x.reshape((x.shape[0] // 2, 2)).split()
        return halves(a) * 2 + halves(b)


@triton.jit
def recursive(out, N: tl.constexpr):
    tl.store(out, halves(tl.arange(0, N)))


def test_a_function_may_call_itself_with_other_types():
    def expected(x: list[int]) -> int:
        return x[0] if len(x) == 1 else expected(x[::2]) * 2 + expected(x[1::2])

    assert run(recursive, N)[0] == expected(list(range(N)))


@triton.jit
def constexpr_helper(x, STEP: tl.constexpr, dtype: tl.constexpr = tl.int32):
    return (x + STEP).to(dtype)


@triton.jit
def run_time_for_constexpr(out, n):
    tl.store(out, constexpr_helper(n, n))
    tl.store(out + 1, constexpr_helper(n, STEP=2, dtype=tl.int32))


def test_a_constexpr_parameter_of_a_helper_takes_a_run_time_value():
    np.testing.assert_array_equal(run(run_time_for_constexpr, 5)[:2], [10, 7])


def test_types_of_tuples_and_constants():
    @triton.jit
    def both(x):
        if x < 0:
            return 1, x
        else:
            return 0, x

    @triton.jit
    def kernel(out, n, K: tl.constexpr):
        pair = both(n)
        tl.static_assert(pair.type == tl.tuple_type([tl.int32, tl.int32]))
        tl.static_assert((pair, 1.5 + n).type == tl.tuple_type((pair.type, tl.float32)))
        tl.static_assert(pair.type != tl.tuple_type([tl.int32, tl.int64]) and pair.type[1] == tl.int32)
        tl.static_assert(K.type == tl.constexpr_type(7))
        for i in tl.static_range(2):
            tl.store(out + i, pair[i])

    assert run(kernel, -5, 7)[:2].tolist() == [1, -5]
    assert str(tl.tuple_type([tl.int32, tl.float32], ["a", "b"])) == "[a:int32,b:fp32]"


def test_a_replaced_source_sees_the_variables_around_the_old_one():
    offset = tl.constexpr(40)

    @triton.jit
    def kernel(out):
        tl.store(out, offset)

    kernel._unsafe_update_src(kernel.src.replace("offset)", "offset + 2)"))
    assert run(kernel)[0] == 42


def test_a_scalar_has_new_axes_where_none_stands():
    @triton.jit
    def kernel(out, n):
        at = tl.arange(0, 8)
        small = n < 5
        tl.static_assert(small[:, None].shape == (1,) and n[None, None].shape == (1, 1) and n[None, :].shape == (1,))
        tl.static_assert(at[:].shape == (8,) and at[:, :].shape == (8,) and at[None, :, None].shape == (1, 8, 1))
        inside = (at < 6) & small[:, None]
        tl.store(out + at, at + (3 * n)[:, None], mask=inside)
        tl.store(out + 6 + tl.arange(0, 1), 7, mask=(n < 2)[:, None])

    assert run(kernel, 4).tolist() == [12, 13, 14, 15, 16, 17, 0, 0]
    assert run(kernel, 9).tolist() == [0] * 8
    with pytest.raises(triton.CompilationError, match="too few axes for 3 indices"):
        too_deep.triton(zg.ptr(zg.i32))


@triton.jit
def too_deep(out):
    tl.store(out, tl.arange(0, 1)[:, :, None])


@pytest.mark.parametrize("n", [20, 50, 200])
def test_a_tuple_among_conditions_is_true_if_it_has_elements(n):
    @triton.jit
    def kernel(out, n):
        both = (n, n)
        if n > 32 and both and n < 100:
            tl.store(out, 1)

    assert run(kernel, n)[0] == (32 < n < 100)


@triton.jit
def total(out, x, N: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, N)), 0))


@pytest.mark.parametrize(("dtype", "element"), [(zg.f16, "f16"), (zg.bf16, "bf16"), (zg.f8e5m2, "f32")])
def test_sums_of_16_bits_are_in_16_bits(dtype: Any, element: str) -> None:
    """As in Triton, where who wants f32 writes so; the explicit language adds in f32."""
    model = total.compile(zg.ptr(dtype), zg.ptr(dtype), 64, target="sm_90a").stages["triton"]
    assert f'@"sum_{element}_{element}_{element}"' in str(model)
