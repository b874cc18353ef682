"""Launches of kernels of the language on a GPU: of compiled and transformed models, on streams, and of tuned ones."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
from ziggurat.codemodel.dialects import arith
from ziggurat.compiler.compiled import Compiled

pytestmark = pytest.mark.gpu
LESS = zg.CompareKind.LESS_THAN
POINTER = zg.divisible(zg.ptr(zg.f32))
N = 5000


@zg.kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(at, n, LESS)
    x = zg.load(zg.add(x_ptr, at), mask)
    zg.store(zg.add(out_ptr, at), zg.add(x, zg.load(zg.add(y_ptr, at), mask)), mask)


def subtraction() -> zg.Op:
    """The kernel's model with each addition of floats made a subtraction."""
    return zg.transform(
        add.triton(POINTER, POINTER, POINTER, zg.i32, 1024),
        lambda builder, op, operands: builder.add(arith.SubF(*operands)) if isinstance(op, arith.AddF) else None,
    )


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(N).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("tier", ["triton", "gpu"])
def test_a_compiled_model_is_launched(tier: str) -> None:
    """One that was transformed, and one that is compiled from its GPU model."""
    binary = zg.compile(subtraction())
    if tier == "gpu":
        module = binary.stages["gpu"]
        assert isinstance(module, zg.Op)
        binary = zg.compile(module)
    assert isinstance(binary, Compiled)
    x, y = arrays()
    out = zg.to_device(np.zeros(N, np.float32))
    binary[(zg.cdiv(N, 1024),)](zg.to_device(x), zg.to_device(y), out, N)
    np.testing.assert_array_equal(out.numpy(), x - y)
    assert 8 <= binary.registers <= 255 and binary.local_bytes == 0 and binary.max_threads >= 128
    with pytest.raises(zg.LaunchError, match="divisible by 16"):
        odd = zg.to_device(np.zeros(N + 1, np.float32))
        binary[(1,)](type(odd)(odd.pointer + 4, (N,), zg.f32, 0, base=odd), out, out, N)


def test_a_compiled_model_takes_the_arrays_of_torch() -> None:
    torch = require("torch")

    x, y = (torch.from_numpy(array).cuda() for array in arrays())
    out = torch.zeros_like(x)
    zg.compile(subtraction())[(zg.cdiv(N, 1024),)](x, y, out, N)
    assert torch.equal(out, x - y)


def test_the_torch_stream_is_used_for_any_argument_order() -> None:
    """A launch comes after the work queued on torch's stream, also when the first array is ziggurat's."""
    torch = require("torch")

    ours, n = zg.to_device(np.ones(1 << 20, np.float32)), 1 << 20
    stream = torch.cuda.Stream()
    for _ in range(3):
        theirs = torch.zeros(n, device="cuda")
        out = torch.zeros(n, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            theirs.fill_(2.0)
            add[(zg.cdiv(n, 1024),)](ours, theirs, out, n, BLOCK=1024)
        stream.synchronize()
        assert (out == 3.0).all()


def test_grids_that_are_functions() -> None:
    x, y = arrays()
    arguments = [zg.to_device(array) for array in (x, y)]
    for grid in (
        lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),),
        lambda meta: zg.cdiv(meta["n"], meta["BLOCK"]),
        lambda meta: np.int64(zg.cdiv(N, meta["BLOCK"])),
        np.array([zg.cdiv(N, 512)]),
    ):
        for _ in range(3):
            out = zg.to_device(np.zeros(N, np.float32))
            add[grid](*arguments, out, N, BLOCK=512)
            np.testing.assert_array_equal(out.numpy(), x + y)
    for _ in range(2):
        with pytest.raises(zg.LaunchError, match="asks for 'BLOK', which is no parameter"):
            add[lambda meta: meta["BLOK"]](*arguments, arguments[0], N, BLOCK=512)


@zg.kernel
def signs(out_ptr, SIZE: zg.constexpr):
    at = zg.arange(-SIZE, SIZE)
    actual = zg.compare(at, 0, zg.CompareKind.GREATER_THAN_OR_EQUAL)
    zg.store(zg.add(out_ptr, zg.add(at, SIZE)), zg.cast(actual, zg.i32))


def test_a_range_that_begins_below_zero() -> None:
    """LLVM took it for one of negative numbers alone, once."""
    out = zg.to_device(np.full(32, 7, np.int32))
    signs[(1,)](out, SIZE=16)
    np.testing.assert_array_equal(out.numpy(), np.arange(-16, 16) >= 0)


@pytest.mark.parametrize("graph", [False, True])
def test_tuning_on_a_stream_of_its_own(graph: bool) -> None:
    torch = require("torch")

    tuned = zg.autotune(
        [zg.Config({"BLOCK": 256}), zg.Config({"BLOCK": 1024}, num_warps=8)],
        ["n"],
        use_cuda_graph=graph,
        cache_results=False,
        quiet=True,
    )(zg.kernel(add.fn))
    x, y = (torch.from_numpy(array).cuda() for array in arrays())
    out = torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        tuned[lambda meta: (zg.cdiv(N, meta["BLOCK"]),)](x, y, out, N)
        torch.cuda.current_stream().synchronize()
    assert torch.equal(out, x + y) and tuned.last is not None
