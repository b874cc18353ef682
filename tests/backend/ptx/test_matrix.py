"""Products of matrices from a kernel to emitted text: run thread by thread on simulated matrix units, and assembled.

The simulation reads fragments and matrix descriptors as the PTX manual has them, so a wrong layout, swizzle or
descriptor gives wrong sums here. Inputs are small integers, of which all sums are exact.
"""

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx import simulate_matrix  # noqa: F401  (teaches the simulation)
from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.ptx.simulate import simulate
from ziggurat.codemodel.dialects import gpu, scf
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place.barriers import hazards
from ziggurat.transforms.place.pipeline import PlaceOptions, place

DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@zg.kernel
def product(
    a_ptr, b_ptr, c_ptr, out_ptr, steps,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr,
    am: zg.constexpr, ak: zg.constexpr, bk: zg.constexpr, bn: zg.constexpr,
    precision: zg.constexpr = "tf32",
):  # fmt: skip
    """c plus the sum over the steps of a[:, step] · b[step, :]. An operand's strides may be those of its transpose."""
    rows = zg.expand(zg.arange(0, M), 1)
    columns = zg.expand(zg.arange(0, N), 0)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(rows, am), zg.mul(zg.expand(zg.arange(0, K), 0), ak)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(zg.arange(0, K), 1), bk), zg.mul(columns, bn)))
    at = zg.add(zg.mul(rows, N), columns)
    total = zg.load(zg.add(c_ptr, at))
    for step in range(0, steps):
        total = zg.dot(zg.load(a_ptrs), zg.load(b_ptrs), total, input_precision=precision)
        a_ptrs = zg.add(a_ptrs, M * K)
        b_ptrs = zg.add(b_ptrs, N * K)
    zg.store(zg.add(out_ptr, at), total)


def placed(
    m: int, n: int, k: int, dtype: str, target: str, num_warps: int, *, t_a: bool, t_b: bool, precision: str, of: str
) -> gpu.Module:
    pointer, total = (zg.divisible(zg.ptr(getattr(zg, name))) for name in (dtype, of))
    strides = ((1, m) if t_a else (k, 1)) + ((1, k) if t_b else (n, 1))
    model = product.triton(pointer, pointer, total, total, zg.i32, m, n, k, *strides, precision)
    return place(model, PlaceOptions(target, num_warps))


def sum_type(dtype: str) -> str:
    return {"f64": "f64", "i8": "i32", "u8": "i32"}.get(dtype, "f32")


# (m, n, k, dtype, target, num_warps), and what is different from the usual; what computes it.
CASES: list[tuple[Any, ...]] = [
    (16, 16, 16, "f16", "sm_80", 1, {}, "m16n8k16"),
    (16, 16, 16, "f16", "sm_90a", 4, {}, "m16n8k16"),
    (32, 64, 32, "bf16", "sm_80", 4, {"t_a": True}, "m16n8k16"),
    (64, 32, 64, "f16", "sm_80", 4, {"t_b": True}, "m16n8k16"),
    (32, 16, 16, "f32", "sm_80", 2, {}, "m16n8k8"),
    (16, 32, 32, "f32", "sm_80", 4, {"t_b": True, "precision": "tf32x3"}, "m16n8k8"),
    (32, 32, 64, "i8", "sm_80", 4, {}, "m16n8k32"),
    (32, 16, 32, "u8", "sm_80", 1, {"t_b": True}, "m16n8k32"),
    (32, 16, 32, "f8e4m3", "sm_89", 2, {}, "m16n8k32"),
    (32, 16, 32, "f8e5m2", "sm_80", 2, {}, "m16n8k16"),
    (16, 16, 16, "f8e4m3", "sm_90a", 4, {}, "m16n8k16"),
    (32, 16, 16, "f64", "sm_80", 4, {}, "m8n8k4"),
    (16, 16, 16, "f16", "sm_80", 4, {"of": "f16"}, "m16n8k16"),
    (8, 8, 8, "f16", "sm_80", 4, {}, "fma"),
    (32, 32, 64, "f32", "sm_80", 4, {"precision": "ieee"}, "fma"),
    (2, 4, 2, "f32", "sm_80", 1, {}, "fma"),
    (1, 64, 16, "f16", "sm_90a", 4, {}, "fma"),
    (16, 4, 16, "i8", "sm_80", 4, {"t_a": True}, "fma"),
    (4, 16, 2, "f64", "sm_80", 8, {}, "fma"),
    (64, 64, 32, "f16", "sm_90a", 4, {}, "wgmma m64n64k16"),
    (64, 32, 64, "bf16", "sm_90a", 4, {"t_b": True}, "wgmma m64n32k16"),
    (128, 32, 16, "f16", "sm_90a", 4, {"t_a": True}, "wgmma m64n32k16"),
    (128, 128, 64, "f16", "sm_90a", 8, {}, "wgmma m64n128k16"),
    (64, 128, 32, "f16", "sm_90a", 8, {"t_a": True}, "wgmma m64n64k16"),
    (64, 16, 128, "f16", "sm_90a", 4, {}, "wgmma m64n16k16"),
    (64, 8, 16, "f16", "sm_90a", 4, {}, "wgmma m64n8k16"),
    (64, 16, 32, "f32", "sm_90a", 4, {}, "wgmma m64n16k8"),
    (64, 16, 8, "f32", "sm_90a", 4, {"t_a": True, "t_b": True}, "wgmma m64n16k8"),
    (64, 32, 16, "f32", "sm_90a", 4, {"precision": "tf32x3"}, "wgmma m64n32k8"),
    (64, 32, 64, "i8", "sm_90a", 4, {}, "wgmma m64n32k32"),
    (64, 32, 32, "u8", "sm_90a", 8, {"t_b": True}, "wgmma m64n16k32"),
    (64, 16, 128, "f8e4m3", "sm_90a", 4, {}, "wgmma m64n16k32"),
    (64, 16, 32, "f8e5m2", "sm_90a", 4, {"t_a": True}, "wgmma m64n16k32"),
    (64, 16, 16, "f16", "sm_90a", 4, {"of": "f16"}, "wgmma m64n16k16"),
]


@pytest.mark.parametrize(("m", "n", "k", "dtype", "target", "num_warps", "more", "unit"), CASES)
def test_products(
    m: int, n: int, k: int, dtype: str, target: str, num_warps: int, more: dict[str, Any], unit: str
) -> None:
    """The chosen unit computes a · b + c twice over, from operands along k and across it."""
    t_a, t_b = more.get("t_a", False), more.get("t_b", False)
    precision, of = more.get("precision", "tf32"), more.get("of", sum_type(dtype))
    module = placed(m, n, k, dtype, target, num_warps, t_a=t_a, t_b=t_b, precision=precision, of=of)
    verify(module)
    assert not hazards(module)
    text = to_llvm(module)
    if unit == "fma":
        assert "mma" not in text
    else:
        assert ("wgmma.mma_async" if "wgmma" in unit else "mma.sync") + ".sync.aligned." * ("wgmma" in unit) in text
        assert unit.split()[-1] in text
    rng = np.random.default_rng(m * n * k)
    low, high = (0, 8) if dtype == "u8" else (-3, 4)
    a, b = rng.integers(low, high, (2, m, k)), rng.integers(low, high, (2, k, n))
    c = rng.integers(-3, 4, (m, n)).astype(DTYPES.get(of, np.int32))
    given = [
        np.ascontiguousarray(x.transpose(0, 2, 1) if across else x).astype(DTYPES[dtype])
        for x, across in ((a, t_a), (b, t_b))
    ]
    out = np.zeros_like(c)
    simulate(text, num_warps=num_warps, shared=module.shared, arguments=[*given, c, out, 2])
    expected = c.astype(np.float64) + sum(x @ y for x, y in zip(a, b, strict=True))
    np.testing.assert_array_equal(out.astype(np.float64), expected)


@zg.kernel
def chained(q_ptr, k_ptr, v_ptr, out_ptr, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    """(q · kᵀ) · v, the sums between the two rounded to f16: what attention does to registers."""
    rows, across = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, D), 0)
    keys = zg.expand(zg.arange(0, N), 1)
    q = zg.load(zg.add(q_ptr, zg.add(zg.mul(rows, D), across)))
    k = zg.load(zg.add(k_ptr, zg.add(zg.mul(keys, D), across)))
    v = zg.load(zg.add(v_ptr, zg.add(zg.mul(keys, D), across)))
    scores = zg.cast(zg.add(zg.dot(q, zg.trans(k)), 1.0), zg.f16)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, D), across)), zg.dot(scores, v))


@pytest.mark.parametrize(
    ("target", "m", "num_warps"), [("sm_90a", 64, 4), ("sm_90a", 128, 8), ("sm_80", 64, 4), ("sm_90a", 16, 4)]
)
def test_a_sum_goes_on_as_an_operand(target: str, m: int, num_warps: int) -> None:
    """The first product's sums are the second one's operand in the registers where they are, if warps have rows."""
    n, d = 32, 16
    half = zg.divisible(zg.ptr(zg.f16))
    module = place(
        chained.triton(half, half, half, zg.divisible(zg.ptr(zg.f32)), m, n, d), PlaceOptions(target, num_warps)
    )
    verify(module)
    assert not hazards(module)
    products = [op for op in module.walk() if isinstance(op, gpu.Wgmma | gpu.Mma)]
    assert len(products) == 2
    # Warps that share the columns of the first product need what others have of it.
    assert isinstance(products[1].a.type, TensorType) == (m >= 16 * num_warps)
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, d), (n, d), (n, d)))
    out = np.zeros((m, d), np.float32)
    simulate(to_llvm(module), num_warps=num_warps, shared=module.shared, arguments=[q, k, v, out])
    wide = [x.astype(np.float64) for x in (q, k, v)]
    np.testing.assert_array_equal(out, (wide[0] @ wide[1].T + 1) @ wide[2])


@zg.kernel
def repeated(q_ptr, k_ptr, out_ptr, steps, M: zg.constexpr, N: zg.constexpr, D: zg.constexpr):
    """The sum over steps of q · k[step]ᵀ, twice."""
    rows, across = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, D), 0)
    keys = zg.expand(zg.arange(0, N), 1)
    q = zg.load(zg.add(q_ptr, zg.add(zg.mul(rows, D), across)))
    total = zg.zeros((M, N), zg.f32)
    for _ in range(0, 2):
        for step in range(0, steps):
            k = zg.load(zg.add(k_ptr + step * N * D, zg.add(zg.mul(keys, D), across)))
            total = zg.dot(q, zg.trans(k), total)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, N), zg.expand(zg.arange(0, N), 0))), total)


@pytest.mark.parametrize(("target", "m"), [("sm_90a", 64), ("sm_80", 32)])
def test_what_a_loop_does_not_change_is_stored_before_it(target: str, m: int) -> None:
    n, d, steps = 16, 32, 3
    half = zg.divisible(zg.ptr(zg.f16))
    module = place(repeated.triton(half, half, zg.ptr(zg.f32), zg.i32, m, n, d), PlaceOptions(target, 4, 1))
    verify(module)
    assert not hazards(module)
    loops = [op for op in module.walk() if isinstance(op, scf.For)]
    assert all(sum(isinstance(op, gpu.LocalStore) for op in loop.body.walk()) == 1 for loop in loops)
    rng = np.random.default_rng(3)
    q, k = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, d), (steps, n, d)))
    out = np.zeros((m, n), np.float32)
    simulate(to_llvm(module), num_warps=4, shared=module.shared, arguments=[q, k, out, steps])
    np.testing.assert_array_equal(out, 2 * sum(q.astype(np.float64) @ x.astype(np.float64).T for x in k))


@zg.kernel
def batched(a_ptr, b_ptr, out_ptr, B: zg.constexpr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    batch = zg.reshape(zg.arange(0, B), (B, 1, 1))
    rows, columns = zg.reshape(zg.arange(0, M), (1, M, 1)), zg.reshape(zg.arange(0, N), (1, 1, N))
    at_a = zg.add(zg.mul(batch, M * K), zg.add(zg.mul(rows, K), zg.reshape(zg.arange(0, K), (1, 1, K))))
    at_b = zg.add(zg.mul(batch, K * N), zg.add(zg.mul(zg.reshape(zg.arange(0, K), (1, K, 1)), N), columns))
    made = zg.dot(zg.load(zg.add(a_ptr, at_a)), zg.load(zg.add(b_ptr, at_b)))
    zg.store(zg.add(out_ptr, zg.add(zg.mul(batch, M * N), zg.add(zg.mul(rows, N), columns))), made)


@pytest.mark.parametrize(("shape", "num_warps"), [((2, 16, 8, 16), 4), ((4, 2, 4, 8), 1), ((1, 32, 16, 64), 8)])
def test_batches(shape: tuple[int, int, int, int], num_warps: int) -> None:
    count, m, n, k = shape
    half = zg.ptr(zg.f16)
    module = place(batched.triton(half, half, zg.ptr(zg.f32), count, m, n, k), PlaceOptions("sm_90a", num_warps))
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((count, m, k), (count, k, n)))
    out = np.zeros((count, m, n), np.float32)
    simulate(to_llvm(module), num_warps=num_warps, shared=module.shared, arguments=[a, b, out])
    np.testing.assert_array_equal(out, a.astype(np.float64) @ b.astype(np.float64))


def test_precisions_of_f32() -> None:
    """tf32 has 10 bits of mantissa, three products of it have nearly 24, and an infinity stays one."""
    m, n, k = 64, 16, 32
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    b[0, 0] = np.inf
    true = a.astype(np.float64) @ b.astype(np.float64)
    finite = np.isfinite(true)
    errors: dict[str, float] = {}
    for precision in ("tf32", "tf32x3", "ieee"):
        module = placed(m, n, k, "f32", "sm_90a", 4, t_a=False, t_b=False, precision=precision, of="f32")
        out = np.zeros((m, n), np.float32)
        zeros = np.zeros_like(out)
        simulate(to_llvm(module), num_warps=4, shared=module.shared, arguments=[a, b, zeros, out, 1])
        np.testing.assert_array_equal(np.isfinite(out), finite)
        np.testing.assert_array_equal(out[~finite], true[~finite])
        errors[precision] = float(np.abs(out[finite] - true[finite]).max())
    assert 1e-4 < errors["tf32"] < 2e-2
    assert errors["tf32x3"] < 2e-5
    assert errors["ieee"] < 1e-5


def test_a_dot_that_was_not_placed() -> None:
    layout = '"1 2 | 4 8 16 32 64 | 128"'
    tile = f"tensor<x16, x16, f32, {layout}>"
    text = f"""gpu.module @target="sm_80" @num_warps=2 ()void -> {{
        tt.func @"k" ()void -> {{
            %0 : {tile} = arith.constant @0.0;
            %1 : {tile} = tt.dot %0 %0 %0;
            tt.return;
        }};
        unreachable;
    }};"""
    module = parse(text)
    assert isinstance(module, gpu.Module)
    with pytest.raises(InternalError, match="should have been placed"):
        to_llvm(module)


PTXAS = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/ptxas"
ASSEMBLED = [
    (128, 128, 64, "f16", "sm_90a", 4, "HGMMA"),
    (128, 256, 64, "f16", "sm_90a", 8, "HGMMA"),
    (64, 64, 32, "f32", "sm_90a", 4, "HGMMA"),
    (128, 128, 64, "i8", "sm_90a", 4, "IGMMA"),
    (128, 128, 64, "f8e4m3", "sm_90a", 4, "QGMMA"),
    (16, 16, 16, "f16", "sm_90a", 4, "HMMA"),
    (64, 64, 32, "f64", "sm_90a", 4, "DMMA"),
    (128, 128, 64, "f16", "sm_80", 4, "HMMA"),
    (128, 256, 64, "f16", "sm_80", 8, "HMMA"),
    (64, 64, 32, "f32", "sm_80", 4, "HMMA"),
    (128, 128, 64, "i8", "sm_80", 4, "IMMA"),
    (128, 128, 64, "f8e5m2", "sm_80", 4, "HMMA"),
]


@pytest.mark.parametrize(("m", "n", "k", "dtype", "target", "num_warps", "instruction"), ASSEMBLED)
def test_assembled(
    m: int, n: int, k: int, dtype: str, target: str, num_warps: int, instruction: str, tmp_path: Path
) -> None:
    """ptxas finds registers for all sums, does not serialise wgmma, and the machine code has the instruction."""
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    module = placed(m, n, k, dtype, target, num_warps, t_a=False, t_b=True, precision="tf32", of=sum_type(dtype))
    source, binary = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(assemble(module).ptx)
    command = [str(PTXAS), "-v", "-arch", target, str(source), "-o", str(binary)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    said = made.stdout + made.stderr
    assert made.returncode == 0, said
    assert " 0 bytes stack frame, 0 bytes spill stores" in said
    assert "C7510" not in said and "serialized" not in said
    disassembler = PTXAS.with_name("nvdisasm")
    if disassembler.exists():
        code = subprocess.run([str(disassembler), "-c", str(binary)], capture_output=True, text=True, check=True).stdout
        assert instruction in code
