"""Triton's names, and the values that they give."""

import itertools
import linecache
from typing import Any

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.frontends.triton.triton_library import METHODS, SPELLED
from ziggurat.triton.language.extra import libdevice

M = np.array([[3, -1, 4, 1], [-5, 9, 2, -6]], np.float32)
_numbers = itertools.count()

# The names of `triton.language.__all__` in releases 3.4 to 3.9 that are calls.
NAMES = """
abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_load atomic_max
atomic_min atomic_or atomic_poll atomic_store atomic_xchg atomic_xor bitonic_merge broadcast broadcast_to cast cat
cdiv ceil clamp condition cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled erf exp
exp2 expand_dims expect_zero fdiv flip floor fma full gather histogram inline_asm_elementwise interleave join load
load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor map_elementwise max max_constancy max_contiguous
maximum min minimum mul multiple_of num_programs pair_uniform_to_normal permute philox program_id rand rand4x randint
randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn
static_assert static_print static_range store store_tensor_descriptor sub sum swizzle2d to_tensor topk trans
uint_to_uniform_float umulhi view where xor_sum zeros zeros_like
""".split()
TENSOR_METHODS = """
abs advance argmax argmin associative_scan atomic_add atomic_cas atomic_load atomic_poll atomic_store broadcast_to
cast cdiv ceil cos cumprod cumsum erf exp exp2 expand_dims flip floor gather histogram item log log2 logical_and
logical_or max min permute ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn store sum
to trans view xor_sum
""".split()
PARAMETERS = {
    "load": "pointer mask other boundary_check padding_option cache_modifier eviction_policy volatile",
    "store": "pointer value mask boundary_check cache_modifier eviction_policy",
    "dot": "input other acc input_precision allow_tf32 max_num_imprecise_acc out_dtype",
    "max": "input axis return_indices return_indices_tie_break_left keep_dims",
    "sum": "input axis keep_dims dtype",
    "cast": "input dtype fp_downcast_rounding bitcast",
    "atomic_cas": "pointer cmp val sem scope",
    "softmax": "x dim keep_dims ieee_rounding",
}


def test_names() -> None:
    assert [name for name in NAMES if not hasattr(tl, name)] == []
    assert [name for name in TENSOR_METHODS if name not in METHODS] == []
    assert {name: " ".join(SPELLED[name].signature.by_name) for name in PARAMETERS} == PARAMETERS


def test_libdevice() -> None:
    assert libdevice.tanh is tl.math.tanh is tl.extra.cuda.libdevice.tanh and len(dir(libdevice)) == 198
    with pytest.raises(AttributeError, match="has no function 'tanhh'"):
        libdevice.tanhh


@triton.jit
def spelled(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    a, b = tl.broadcast(x[:, None], x[None, :])
    rows = tl.softmax(x) + a.sum(1) + (a.T - b).max(0)
    tl.store(out_ptr + tl.arange(0, N), rows + libdevice.tanh(x) + tl.reshape(tl.trans(x.reshape(2, N // 2)), N))


def test_functions_and_methods() -> None:
    x, out = np.linspace(-1, 1, 8, dtype=np.float32), np.zeros(8, np.float32)
    spelled[(1,)](x, out, 8)
    powers = np.exp(x - x.max())
    expected = powers / powers.sum() + 8 * x + 0 + np.tanh(x) + x.reshape(2, 4).T.ravel()
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@triton.jit
def narrow(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    odd = (x > 0) + (x > 2)  # Modulo 2.
    shifted = (at - 8) >> (at.to(tl.uint32) & 1)
    halves = tl.cat(tl.zeros_like(x)[None, :], x[None, :], dim=1)
    tl.store(out_ptr + at, odd + shifted.to(tl.int32) + halves.ravel().sum() + (x > 0).sum())


def test_values() -> None:
    x, out = np.linspace(-3, 4, 8, dtype=np.float32), np.zeros(8, np.int32)
    narrow[(1,)](x, out, 8)
    at = np.arange(8)
    expected = ((x > 0) ^ (x > 2)) + ((at - 8) >> (at & 1)) + np.floor(x.sum() + (x > 0).sum())
    np.testing.assert_array_equal(out, expected)


def applied(expression: str) -> Any:
    """The value of an expression in Triton's Python, of a tensor m with the elements of M."""
    text = f"""def kernel(m_ptr, out_ptr):
    m = tl.load(m_ptr + tl.arange(0, 8)).reshape(2, 4)
    result = ({expression}) + tl.zeros((1,), tl.float32)
    tl.store(out_ptr + tl.arange(0, result.numel), result.reshape(result.numel))
"""
    file = f"<triton {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = {"tl": tl, "triton": triton}
    exec(compile(text, file, "exec"), space)
    out = np.full(16, 77, np.float64)
    triton.jit(space["kernel"])[(1,)](M, out)
    return out


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.cat(m, m + 1, can_reorder=True)", np.concatenate([M, M + 1])),
        ("tl.cat(m, m + 1)", np.vstack([M, M + 1])),
        ("tl.cat(m, m + 1, dim=1)", np.hstack([M, M + 1])),
        ("tl.cat(m, m + 1, dim=-1)", np.hstack([M, M + 1])),
        ("tl.flip(m)", M[:, ::-1]),
        ("tl.flip(m, 0)", M[::-1]),
        ("m.flip(1)", M[:, ::-1]),
        ("tl.trans(m)", M.T),
        ("tl.permute(m, 1, 0)", M.T),
        ("tl.permute(m, (1, 0))", M.T),
        ("m.trans(0, 1)", M),
        ("m.permute((0, 1))", M),
        ("tl.broadcast_to(tl.max(m, 1, keep_dims=True), 2, 4)", np.broadcast_to(M.max(1, keepdims=True), (2, 4))),
        ("tl.broadcast_to(tl.max(m, 1, keep_dims=True), (2, 4))", np.broadcast_to(M.max(1, keepdims=True), (2, 4))),
        ("tl.view(m, 4, 2)", M),
        ("tl.view(m, (4, 2))", M),
        ("m.view(8)", M),
        ("tl.reshape(m, (4, 2)).trans()", M.reshape(4, 2).T),
        ("tl.ravel(m)", M),
        ("m.ravel()", M),
        ("tl.sum(m, keep_dims=True).item()", M.sum()),
        ("tl.sum(m).item()", M.sum()),
        ("m.cumprod(1, dtype=tl.float64)", M.cumprod(1)),
        ("tl.fdiv(m, 4.0, approx=True)", M / 4),
        ("tl.sum(m)", M.sum()),
        ("tl.sum(m, 0)", M.sum(0)),
        ("m.sum(axis=1)", M.sum(1)),
        ("m.max()", 9),
        ("m.min(1)", [-1, -6]),
        ("m.argmax(1)", [2, 1]),
        ("m.argmin(0)", [1, 0, 1, 1]),
        ("tl.sort(m)", np.sort(M)),
        ("tl.topk(m, 2)", [[4, 3], [9, 2]]),
        ("tl.sort(m, descending=True)", np.sort(M)[:, ::-1]),
        ("tl.topk(m, 2, descending=False)", [[-1, 1], [-6, -5]]),
        ("tl.standard.sort_impl(m)", np.sort(M)),
        ("tl.standard.sort_impl(m, 1)", [[-1], [-6]]),
        ("tl.standard.sort_impl(m, 1, 1, True)", [[4], [9]]),
        ("tl.standard.sort_impl(m, None, 1, True)", np.sort(M)[:, ::-1]),
        ("tl.bitonic_merge(m, None, True)", np.sort(M)[:, ::-1]),
        ("tl.softmax(m)", np.exp(M) / np.exp(M).sum(0)),
        ("tl.softmax(m, dim=1)", np.exp(M) / np.exp(M).sum(1, keepdims=True)),
        ("m.softmax(1, True, True)", np.exp(M) / np.exp(M).sum(1, keepdims=True)),
        ("tl.zeros_like(m) + 1", np.ones((2, 4))),
        ("tl.broadcast(m, tl.max(m, 1, keep_dims=True))[1]", np.repeat(M.max(1), 4)),
        ("tl.broadcast(tl.max(m, 0, keep_dims=True), m)[0]", np.tile(M.max(0), 2)),
        ("(m > 0).logical_and(m < 4)", (M > 0) & (M < 4)),
        ("(m > 3).logical_or(m < -1)", (M > 3) | (M < -1)),
        ("tl.add(m, 1, sanitize_overflow=False)", M + 1),
        ("tl.sub(m, 2)", M - 2),
        ("tl.mul(3, m)", 3 * M),
        ("tl.cast(m, tl.int32) // 2", np.trunc(M / 2)),
        ("m.to(tl.int8)", M),
        ("m.to(tl.int32, bitcast=True) == m.to(tl.int32)", M == 0),
        ("tl.minimum(m, 2.0)", np.minimum(M, 2)),
        ("tl.maximum(x=m, y=0.0)", np.maximum(M, 0)),
        ("tl.fma(m, m, m)", M * M + M),
        ("tl.expand_dims(m, 0)", M),
        ("tl.where(m > 0, m, -m)", np.abs(M)),
        ("tl.cumsum(m, 1)", np.cumsum(M, 1)),
        ("tl.cumsum(m, 0, reverse=True)", np.cumsum(M[::-1], 0)[::-1]),
        ("tl.cdiv(7, 2)", 4),
        ("triton.next_power_of_2(9)", 16),
        ("tl.reduce_or(m.to(tl.int32), 1)", [3 | -1 | 4 | 1, -5 | 9 | 2 | -6]),
        ("tl.xor_sum(m.to(tl.int32), 1)", [3 ^ -1 ^ 4 ^ 1, -5 ^ 9 ^ 2 ^ -6]),
        ("tl.reduce_or(m.to(tl.int32), 1, keep_dims=True).sum(0)", [-1 + (-5 | 9 | 2 | -6)]),
        ("tl.condition(m)", M),
    ],
)
def test_values_of_calls(expression: str, expected: Any) -> None:
    expected = np.asarray(expected, np.float64).ravel()
    actual = applied(expression)
    np.testing.assert_allclose(actual[: expected.size], expected, rtol=1e-6)
    assert (actual[expected.size :] == 77).all()


@triton.jit
def flags(x_ptr, out_ptr, flag_ptr, seen_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_store(out_ptr + i, (x_ptr + i).atomic_load(i < 3), i < 3)
    tl.atomic_store(flag_ptr + i, tl.to_tensor(7), sem="relaxed", scope="sys")
    equal = tl.atomic_poll(flag_ptr + i, 7) & tl.atomic_poll(flag_ptr, 7, sem="relaxed")
    late = tl.atomic_poll(flag_ptr + i, i + 7, timeout_ns=1000)
    tl.store(seen_ptr + i, equal + 2 * late)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64, np.uint64])
@pytest.mark.parametrize("interpret", [True, False])
def test_atomic_loads_and_stores(dtype, interpret) -> None:
    x, out = np.array([1.5, 0, 3, 4], dtype), np.full(4, 9, dtype)
    flag, equal = np.zeros(4, np.int32), np.zeros(4, np.int32)
    flags[(1,)](x, out, flag, equal, 4, interpret=interpret)
    assert [*out] == [*x[:3], 9] and [*flag] == [7] * 4 and [*equal] == [3, 1, 1, 1]


def test_atomic_loads_keep_the_bits() -> None:
    x = np.array([-0.0, np.nan, -np.nan, np.inf], np.float32)
    out = np.zeros(4, np.float32)
    flags[(1,)](x, out, np.zeros(4, np.int32), np.zeros(4, np.int32), 4)
    assert [*out.view(np.uint32)[:3]] == [*x.view(np.uint32)[:3]]


def test_atomic_loads_and_stores_of_a_gpu() -> None:
    import ziggurat as zg

    pointer = zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.i32), zg.ptr(zg.i32)
    ptx = flags.compile(*pointer, 4, target="sm_90a").ptx
    assert ptx.count("ld.acquire.gpu.global.b32") >= 3 and "st.relaxed.sys.global.b32" in ptx
    assert "st.release.gpu.global.b32" in ptx and "nanosleep" in ptx and "atom." not in ptx


@triton.jit
def expected(x_ptr):
    i = tl.arange(0, 4)
    tl.store(x_ptr + i, tl.expect_zero(tl.load(x_ptr + i), i > 1))


def test_values_that_are_expected_to_be_zero() -> None:
    expected[(1,)](np.array([1, 1, 0, 0]), debug=True)
    expected[(1,)](np.array([1, 1, 1, 0]))
    with pytest.raises(triton.runtime.errors.InterpreterError, match="expected x == 0 where mask is true"):
        expected[(1,)](np.array([1, 1, 1, 0]), debug=True)


@triton.jit
def wrong_order(x_ptr, SEM: tl.constexpr):
    tl.atomic_store(x_ptr, tl.atomic_load(x_ptr, sem="acquire"), sem=SEM)


def test_orders_that_atomic_stores_do_not_have() -> None:
    with pytest.raises(triton.CompilationError, match="atomic_store only supports release and relaxed semantics"):
        wrong_order[(1,)](np.zeros(1, np.int32), "acquire")
