"""`TRITON_F32_DEFAULT`, or `knobs.language.fp32_default`: the precision of a `tl.dot` that names none."""

import contextlib
import warnings

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import KernelValueError
from ziggurat.triton import knobs


@triton.jit
def plain(a, b, c):
    i = tl.arange(0, 32)
    o = i[:, None] * 32 + i[None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o)))


@triton.jit
def multiplied(x, y):
    return tl.dot(x, y)


@triton.jit
def by_helper(a, b, c):
    i = tl.arange(0, 32)
    o = i[:, None] * 32 + i[None, :]
    tl.store(c + o, multiplied(tl.load(a + o), tl.load(b + o)))


@triton.jit
def allowed(a, b, c):
    i = tl.arange(0, 32)
    o = i[:, None] * 32 + i[None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o), allow_tf32=True))


@triton.jit
def not_allowed(a, b, c):
    i = tl.arange(0, 32)
    o = i[:, None] * 32 + i[None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o), allow_tf32=False))


@triton.jit
def named(a, b, c):
    i = tl.arange(0, 32)
    o = i[:, None] * 32 + i[None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o), input_precision="tf32"))


@triton.jit
def allowed_at_run_time(a, b, c, allow_tf32):
    i = tl.arange(0, 32)
    o = i[:, None] * 32 + i[None, :]
    tl.store(c + o, tl.dot(tl.load(a + o), tl.load(b + o), allow_tf32=allow_tf32))


A, B = np.random.default_rng(0).standard_normal((2, 32, 32), np.float32)
C = np.empty_like(A)
EXACT = A.astype(np.float64) @ B


@contextlib.contextmanager
def environment(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_F32_DEFAULT", value)
        yield


@contextlib.contextmanager
def assigned(value):
    with knobs.language.scope():
        knobs.language.fp32_default = value
        yield


@contextlib.contextmanager
def assigned_for_this_process(value):
    with pytest.MonkeyPatch.context() as patch, assigned(value):
        patch.setattr(knobs, "propagate_env", False)
        yield


def is_exact(launch, **options) -> bool:
    C[...] = 0
    launch(A, B, C, **options)
    error = np.abs(C - EXACT).max()
    assert error < 1e-5 or 1e-3 < error < 1e-2
    return bool(error < 1e-5)


@pytest.mark.parametrize("options", [{}, {"interpret": True}, {"strict": True}], ids=str)
@pytest.mark.parametrize("setting", [environment, assigned, assigned_for_this_process])
@pytest.mark.parametrize("kernel", [plain, by_helper, allowed, not_allowed, named], ids=lambda kernel: kernel.__name__)
def test_launches_before_under_and_after_the_setting(kernel, setting, options):
    usually = kernel is not_allowed
    assert is_exact(kernel[(1,)], **options) == usually
    for value in ("ieee", "IEEE"):
        with setting(value), warnings.catch_warnings(action="error"):
            for grid in ((1,), [1], lambda meta: (1,)):
                assert is_exact(kernel[grid], **options) == (kernel is not named)
    with setting("tf32x3"):
        assert is_exact(kernel[(1,)], **options) == (kernel is not named)
    with setting("tf32"):  # It comes before `allow_tf32`, as in Triton.
        assert not is_exact(kernel[(1,)], **options)
    with setting(""):
        assert is_exact(kernel[(1,)], **options) == usually
    assert is_exact(kernel[(1,)], **options) == usually


@pytest.mark.parametrize("value", [True, False])
def test_a_run_time_value_allows_tf32(value):
    """Triton asks Python for the truth of the value, not for that of its number."""
    C[...] = 0
    allowed_at_run_time[(1,)](A, B, C, value)
    assert 1e-3 < np.abs(C - EXACT).max() < 1e-2


def precision_in(compiled) -> str:
    """The precision of the dot in a compiled kernel: MLIR's text leaves out "ieee"."""
    text = compiled.asm["ttir"]
    assert text.count("tt.dot ") == 1
    return text.partition("inputPrecision = ")[2].partition(" ")[0] or "ieee"


def test_a_launcher_that_is_kept():
    early = triton.jit(plain.fn)[(1,)]
    assert not is_exact(early)
    plain[(1,)](A, B, C)
    late = plain[(1,)]
    with environment("ieee"):
        assert is_exact(early) and is_exact(late)
    assert not is_exact(early) and not is_exact(late)


def test_the_setting_is_in_every_key(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    hashes = []
    for value in ("", "ieee", "bf16x3", "ieee", ""):
        with environment(value):
            compiled = plain.warmup(A, B, C, grid=(1,))
            assert precision_in(compiled) == (value or "tf32")
            hashes.append(compiled.hash)
    assert hashes[0] == hashes[4] != hashes[1] == hashes[3] != hashes[2]


def test_launches_on_a_gpu(gpu):
    arrays = [zg.empty((32, 32)) for _ in range(3)]
    for value in ("tf32x3", "ieee", "tf32x3"):
        with environment(value):
            for _ in range(2):
                compiled = plain[(1,)](*arrays)
                assert precision_in(compiled) == value
    assert len(gpu.launches) == 6


def test_a_simulated_kernel():
    types = [zg.ptr(zg.f32)] * 3
    for value, exact in (("ieee", True), ("tf32", False)):
        with environment(value):
            assert is_exact(plain.compile(*types, target="sm_90a").simulate[(1,)]) == exact


def test_a_value_that_is_none():
    for value in ("single", "default", 32):
        with assigned(value), pytest.raises(KernelValueError, match=r"must be one of tf32, .*, ieee; got") as info:
            plain[(1,)](A, B, C)
        assert "tl.dot(tl.load(a + o)" in str(info.value) and isinstance(info.value, triton.CompilationError)
    with assigned("single"):
        is_exact(named[(1,)])  # It does not ask.
    assert not is_exact(plain[(1,)])


def test_explicit_calls_do_not_ask():
    @zg.kernel
    def explicit(a, b, c):
        i = zg.arange(0, 32)
        o = zg.add(zg.mul(zg.expand(i, 1), 32), zg.expand(i, 0))
        zg.store(zg.add(c, o), zg.dot(zg.load(zg.add(a, o)), zg.load(zg.add(b, o)), input_precision="tf32"))

    with environment("ieee"):
        assert not is_exact(explicit[(1,)])
