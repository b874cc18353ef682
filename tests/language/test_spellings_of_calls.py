"""Shorter spellings of calls, dtypes of other libraries, and the limits of what a kernel may hold."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError

FLOAT = np.float32
COMPARISONS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!="}


@zg.kernel
def compares(x_ptr, y_ptr, out_ptr, OPERATOR: zg.constexpr, call: zg.constexpr):
    at = zg.arange(0, 8)
    x, y = zg.load(zg.add(x_ptr, at)), zg.load(zg.add(y_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.and_(zg.compare(x, y, OPERATOR), call(x, y)))


@pytest.mark.parametrize("name", COMPARISONS)
def test_named_comparisons_and_signs(name: str):
    x = np.array([0, 1, 2, 3, np.nan, -0.0, np.inf, 1], np.float32)
    y = np.array([1, 1, 1, 1, np.nan, 0.0, np.inf, np.nan], np.float32)
    out = np.zeros(8, bool)
    compares[(1,)](x, y, out, COMPARISONS[name], HELPERS[name])
    np.testing.assert_array_equal(out, getattr(np, name)(x, y))
    assert getattr(zg, name)(1, 2) is getattr(np, name)(1, 2).item() is zg.compare(1, 2, COMPARISONS[name])


@zg.function
def less(a, b):
    return zg.less(a, b)


@zg.function
def less_equal(a, b):
    return zg.less_equal(a, b)


@zg.function
def greater(a, b):
    return zg.greater(a, b)


@zg.function
def greater_equal(a, b):
    return zg.greater_equal(a, b)


@zg.function
def equal(a, b):
    return zg.equal(a, b)


@zg.function
def not_equal(a, b):
    return zg.not_equal(a, b)


HELPERS = {helper.name: helper for helper in (less, less_equal, greater, greater_equal, equal, not_equal)}


@zg.kernel
def dtypes(out_ptr, dtype: zg.constexpr):
    at = zg.arange(0, 4)
    total = zg.add(zg.zeros((4,), np.float32), zg.full((4,), 1.5, "float32"))
    zg.static_assert(total.dtype == zg.f32)
    zg.static_assert(total.dtype == FLOAT)
    zg.store(zg.add(out_ptr, at), zg.cast(zg.cast(total, dtype), "f32"))


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), "float16", "f16", zg.f16])
def test_dtypes_of_numpy_and_names(dtype):
    out = np.zeros(4, np.float32)
    dtypes[(1,)](out, dtype)
    assert out.tolist() == [1.5] * 4


def test_torch_dtypes_without_torch():
    kind = type("dtype", (), {"__module__": "torch", "__str__": lambda self: "torch.bfloat16"})
    out = np.zeros(4, np.float32)
    dtypes[(1,)](out, kind())
    assert out.tolist() == [1.5] * 4


@zg.kernel
def best(x_ptr, value_ptr, index_ptr, LARGEST: zg.constexpr):
    x = zg.load(zg.add(x_ptr, zg.arange(0, 16)))
    values, at = zg.topk(x, 4, descending=LARGEST, return_indices=True)
    zg.store(zg.add(value_ptr, zg.arange(0, 4)), values)
    zg.store(zg.add(index_ptr, zg.arange(0, 4)), at)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_with_indices(largest: bool):
    x = np.array([3, 9, 9, 1, 0, -4, 8, 9, 2, 2, 5, 7, 1, 6, 0, 4], np.float32)
    values, at = np.zeros(4, np.float32), np.zeros(4, np.int32)
    best[(1,)](x, values, at, largest)
    order = np.argsort(-x if largest else x, kind="stable")[:4]
    assert at.tolist() == order.tolist() and values.tolist() == x[order].tolist()
    model = zg.simplify(best.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.i32), largest))
    again, places = np.zeros(4, np.float32), np.zeros(4, np.int32)
    zg.run(model, 1, x, again, places)
    assert (again == values).all() and (places == at).all()


@zg.kernel
def single(x_ptr, out_ptr, p_ptr):
    x = zg.load(zg.add(x_ptr, zg.arange(3, 4)))
    pointer = zg.reshape(zg.add(p_ptr, zg.arange(1, 2)), ())
    zg.store(out_ptr, zg.reshape(x, ()) + zg.reshape(zg.expand(x, 0), ()))
    zg.store(pointer, 7.0)


def test_the_only_element_of_a_tensor():
    x, out, p = np.arange(4, dtype=np.float32), np.zeros(1, np.float32), np.zeros(2, np.float32)
    single[(1,)](x, out, p)
    assert out[0] == 6 and p.tolist() == [0, 7]
    assert single.compile(*[zg.ptr(zg.f32)] * 3, target="sm_90a").ptx
    assert single.compile(*[zg.ptr(zg.f32)] * 3, target="cpu").asm


@zg.kernel
def squares(p, B: zg.constexpr):
    i = zg.arange(0, B)
    at = zg.add(p, zg.add(zg.expand(zg.mul(i, B), 1), zg.expand(i, 0)))
    zg.store(at, zg.load(at))


def test_broadcasting_keeps_the_limit_of_elements():
    with pytest.raises(KernelValueError, match=r"zg.add: .* shape \[2048, 2048\], which has more than 1048576"):
        squares.triton(zg.ptr(zg.f32), 2048)
    assert squares.triton(zg.ptr(zg.f32), 1024)


@zg.kernel
def doubled(p, text: zg.constexpr):
    for _ in zg.static_range(34):
        text = text + text
    zg.store(p, 1)


def test_constant_strings_have_a_limit():
    with pytest.raises(KernelValueError, match="more than 65536 characters"):
        doubled.triton(zg.ptr(zg.i32), "ab")


@zg.kernel
def narrow(p, o, n):
    x = zg.load(p)
    zg.store(o, zg.fma(x, n, 0.0))
    zg.store(zg.add(o, 1), zg.mul(x, n))
    zg.store(zg.add(o, 2), zg.fma(x, 1.3, 0.0))
    zg.store(zg.add(o, 3), zg.mul(x, 1.3))


@pytest.mark.parametrize(("x", "n"), [(0.5, 1000), (3, 1)])
def test_fma_of_8_bit_floats_casts_its_operands_first(x: float, n: int):
    out = np.zeros(4, ml_dtypes.float8_e4m3fn)
    narrow[(1,)](np.array([x], out.dtype), out, n)
    assert out[0] == out[1] and out[2] == out[3]


@zg.kernel
def counts(p):
    zg.store(p, zg.sum(zg.arange(0, 4), dtype=zg.i1))


def test_hints_name_the_call():
    with pytest.raises(KernelValueError, match=r"zg.sum: dtype must be an integer or a float; got i1") as error_info:
        counts.triton(zg.ptr(zg.i32))
    assert "zg.any" in error_info.value.hint
    with pytest.raises(KernelTypeError):
        zg.trace(lambda p: zg.store(p, zg.full((4,), 1, "float33")), zg.ptr(zg.i32)).triton(zg.ptr(zg.i32))
