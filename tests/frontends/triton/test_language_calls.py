"""Triton's names, and the values that they give."""

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.frontends.triton.triton_library import METHODS, SPELLED
from ziggurat.triton.language.extra import libdevice

# The names of `triton.language.__all__` in release 3.6 that are calls.
NAMES = """
abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max atomic_min
atomic_or atomic_xchg atomic_xor bitonic_merge broadcast broadcast_to cast cat cdiv ceil clamp condition cos cumprod
cumsum debug_barrier device_assert device_print div_rn dot dot_scaled erf exp exp2 expand_dims fdiv flip floor fma full
gather histogram inline_asm_elementwise interleave join load load_tensor_descriptor log log2 make_block_ptr
make_tensor_descriptor map_elementwise max max_constancy max_contiguous maximum min minimum mul multiple_of
num_programs pair_uniform_to_normal permute philox program_id rand rand4x randint randint4x randn randn4x range ravel
reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn static_assert static_print static_range
store store_tensor_descriptor sub sum swizzle2d topk trans uint_to_uniform_float umulhi view where xor_sum zeros
zeros_like
""".split()
TENSOR_METHODS = """
abs advance argmax argmin associative_scan atomic_add atomic_cas broadcast_to cast cdiv ceil cos cumprod cumsum erf exp
exp2 expand_dims flip floor gather histogram item log log2 logical_and logical_or max min permute ravel reduce
reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn store sum to trans view xor_sum
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
    assert libdevice.tanh is tl.math.tanh is tl.extra.cuda.libdevice.tanh and len(dir(libdevice)) == 197
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
