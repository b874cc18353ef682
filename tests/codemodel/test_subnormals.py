"""Kernels whose constants and results are subnormal, in a process that flushes subnormals to zero."""

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.subnormals import keep_subnormals

torch = require("torch")
X = np.array([1e-40, 2e-38, 1e-45, -3e-39], np.float32)
TINY = 1e-310


@triton.jit
def scaled(x, out, s, N: tl.constexpr):
    at = tl.arange(0, 4)
    tl.store(out + at, tl.load(x + at) * 0.5 + s + N)


@triton.jit
def converted(x, out, s, N: tl.constexpr):
    at = tl.arange(0, 4)
    tl.store(out + at, tl.load(x + at).to(tl.float64).to(tl.float32).to(tl.bfloat16).to(tl.float32))


@triton.jit
def folded(x, out, s, N: tl.constexpr):
    tl.store(out, 1e-30 * 1e-10)
    tl.store(out + 1, tl.full((), 3e-39, tl.float32))
    tl.store(out + 2, tl.full((), 1e-310, tl.float64) * 1e300 * 1e-30)
    tl.store(out + 3, tl.full((), 6e-8, tl.float16).to(tl.float32) * 1e-35)


@pytest.fixture
def flushing():
    """A switch that lets the processor flush."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    torch.set_flush_denormal(False)
    yield lambda: torch.set_flush_denormal(True)
    torch.set_flush_denormal(False)


def is_flushing():
    return float(np.array([1e-38], np.float32)[0] * np.float32(0.1)) == 0


def launched(kernel, **mode):
    out = np.zeros(4, np.float32)
    kernel[(1,)](X, out, 1e-41, N=1e-42, **mode)
    return out.tobytes()


@pytest.mark.parametrize("kernel", [scaled, converted, folded], ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("mode", [{}, {"interpret": True}, {"strict": True}], ids=str)
def test_launches(kernel, mode, flushing):
    expected = launched(kernel, interpret=True)
    assert np.frombuffer(expected, np.float32).any()
    launched(kernel, **mode)
    flushing()
    assert launched(kernel, **mode) == expected  # Warm.
    assert launched(triton.jit(kernel.fn), **mode) == expected  # Cold.
    assert is_flushing()


def test_texts_simulations_and_models(flushing):
    pointer = zg.ptr(zg.f32)

    def results():
        model = scaled.triton(pointer, pointer, zg.f32, 1e-42)
        compiled = scaled.compile(pointer, pointer, zg.f32, 1e-42, target="sm_80", num_warps=1)
        outs = [np.zeros(4, np.float32) for _ in range(3)]
        zg.run(zg.parse(str(model)), 1, X, outs[0], 1e-41)
        zg.run(zg.from_mlir(zg.to_mlir(zg.simplify(model))), 1, X, outs[1], 1e-41)
        compiled.simulate[(1,)](X, outs[2], 1e-41)
        return str(model), zg.to_mlir(model), compiled.stages["llvm"], *(out.tobytes() for out in outs)

    expected = results()
    assert len(set(expected[3:])) == 1
    flushing()
    assert results() == expected


@zg.function
def times(a, b):
    return a * b


def test_python_models(flushing):
    flushing()
    result = zg.execute(times, TINY, 0.5)
    torch.set_flush_denormal(False)
    assert result == TINY * 0.5 != 0


def test_the_mode_comes_back_after_an_error(flushing):
    flushing()
    with pytest.raises(zg.ParseError):
        zg.parse("no model")
    assert is_flushing()
    with keep_subnormals():
        assert not is_flushing()
        with keep_subnormals():
            assert not is_flushing()
        assert not is_flushing()
    assert is_flushing()
