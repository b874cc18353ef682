"""Triton's tutorials, as the C++ Triton prints them, read, interpreted against NumPy, and assembled.

`ZIGGURAT_TRITON_TUTORIALS` names the folder of the tutorials of that release of Triton, which are not ours; the Python
of `ZIGGURAT_TRITON_PYTHON` has that Triton, and the PyTorch that the tutorials import. No GPU is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.codemodel.op import Op

HERE = Path(__file__).parent
FOLDER = os.environ.get("ZIGGURAT_TRITON_TUTORIALS", "")
PYTHON = os.environ.get("ZIGGURAT_TRITON_PYTHON", "")

pytestmark = pytest.mark.skipif(
    not FOLDER or not PYTHON,
    reason="ZIGGURAT_TRITON_TUTORIALS names no folder of tutorials, or ZIGGURAT_TRITON_PYTHON no Python with Triton",
)
Check = Callable[[Op], None]


@attrs.frozen
class Tutorial:
    """A kernel of a tutorial, for these types and constants."""

    file: str
    kernel: str
    signature: str
    constexprs: Mapping[str, Any]
    check: Check | None
    """Runs the kernel and compares its results; None where the interpreter cannot run it."""

    def request(self) -> dict[str, Any]:
        (file,) = Path(FOLDER).glob(f"{self.file}-*.py")
        types = dict(part.split(":") for part in self.signature.split())
        divisible = [name for name, type_ in types.items() if type_.endswith("!")]
        signature = {name: type_.rstrip("!") for name, type_ in types.items()}
        return {
            "file": str(file), "kernel": self.kernel, "signature": signature, "constexprs": self.constexprs,
            "divisible": divisible,
        }  # fmt: skip


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


# 01 and 11: vector addition; 07: a function of libdevice.


def adds(model: Op) -> None:
    x, y, out = drawn(3000), drawn(3000)[::-1].copy(), np.zeros(3000, np.float32)
    zg.run(model, 3, x, y, out, 3000)
    close(out, x + y)


def arcsine(model: Op) -> None:
    x, out = np.linspace(-1, 1, 500, dtype=np.float32), np.zeros(500, np.float32)
    zg.run(model, 2, x, out, 500)
    close(out, np.arcsin(x.astype(np.float64)), 1e-6)


# 02: softmax of rows.


def softmax(model: Op) -> None:
    x, out = drawn(20, 700), np.zeros((20, 700), np.float32)
    zg.run(model, 8, out, x, 700, 700, 20, 700)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    close(out, e / e.sum(1, keepdims=True))


# 03 and 09: products of matrices.

BLOCKS = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
LAST = {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
MATRICES = "a_ptr:*fp16! b_ptr:*fp16! c_ptr:*fp16! M:i32 N:i32 K:i32 stride_am:i32! stride_bk:i32! stride_cm:i32!"
DESCRIPTORS = "a_desc:tensordesc<fp16[64,32]> b_desc:tensordesc<fp16[64,32]> c_desc:tensordesc<fp16[64,{}]>"
OPTIONS = {"FP8_OUTPUT": False, "WARP_SPECIALIZE": False}


def product(grid: int, activation: Callable[[np.ndarray], np.ndarray] = np.asarray) -> Check:
    def check(model: Op) -> None:
        a, b, c = drawn(96, 80, dtype=np.float16), drawn(80, 112, dtype=np.float16), np.zeros((96, 112), np.float16)
        zg.run(model, grid, a, b, c, 96, 112, 80, 80, 112, 112)
        close(c, activation(a.astype(np.float64) @ b.astype(np.float64)), 3e-3)

    return check


def described(grid: int, columns: int) -> Check:
    """Triton hands over each descriptor with its sizes and strides, b by its columns."""

    def check(model: Op) -> None:
        a, b, c = drawn(128, 64, dtype=np.float16), drawn(128, 64, dtype=np.float16), np.zeros((128, 128), np.float16)
        arguments: list[Any] = []
        for array, block in ((a, (64, 32)), (b, (64, 32)), (c, (64, columns))):
            arguments += [zg.TensorDescriptor(array, block), *array.shape, array.shape[1], 1]
        zg.run(model, grid, *arguments, 128, 128, 64)
        close(c, a.astype(np.float64) @ b.T.astype(np.float64), 3e-3)

    return check


def transposed(model: Op) -> None:
    a, b, c = drawn(128, 64, dtype=np.float16), drawn(128, 64, dtype=np.float16), np.zeros((128, 128), np.float16)
    zg.run(model, 4, a, b, c, 128, 128, 64)
    close(c, a.astype(np.float64) @ b.T.astype(np.float64), 3e-3)


# 04: dropout.


def dropout(model: Op) -> None:
    x, keep, out = drawn(400), (drawn(400) > 0).astype(np.int32), np.zeros(400, np.float32)
    zg.run(model, 2, x, keep, out, 400, 0.25)
    close(out, np.where(keep != 0, x / 0.75, 0))


@zg.kernel
def random_numbers(out_ptr, seed, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out_ptr, at), zg.rand(seed, at))


def seeded_dropout(model: Op) -> None:
    x, out, chance = drawn(512), np.zeros(512, np.float32), np.zeros(512, np.float32)
    zg.run(model, 2, x, out, 512, 0.25, 123)
    random_numbers[1](chance, 123, 512)
    assert 300 < np.count_nonzero(out) < 450
    close(out, np.where(chance > 0.25, x / 0.75, 0))


# 05: layer normalisation.


def normalised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = x.astype(np.float64)
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    return (x - mean[:, None]) * rstd[:, None], mean, rstd


def layer_norm(model: Op) -> None:
    x, w, b, y = (drawn(*shape, dtype=np.float16) for shape in ((9, 200), (200,), (200,), (9, 200)))
    mean, rstd = np.zeros(9, np.float32), np.zeros(9, np.float32)
    zg.run(model, 9, x, y, w, b, mean, rstd, 200, 200, 1e-5)
    xhat, *expected = normalised(x)
    close(y, xhat * w + b, 1e-2)
    close(mean, expected[0])
    close(rstd, expected[1], 1e-4)


def layer_norm_dx(model: Op) -> None:
    x, dy, w = (drawn(*shape, dtype=np.float16) for shape in ((8, 200), (200, 8), (200,)))
    dy, dx = dy.reshape(8, 200), np.zeros((8, 200), np.float16)
    dw, db, lock = np.zeros((4, 200), np.float16), np.zeros((4, 200), np.float16), np.zeros(8, np.int32)
    xhat, mean, rstd = normalised(x)
    zg.run(model, 8, dx, dy, dw, db, x, w, mean.astype(np.float32), rstd.astype(np.float32), lock, 200, 200)
    wdy = dy.astype(np.float64) * w
    expected = (wdy - xhat * (xhat * wdy).mean(1)[:, None] - wdy.mean(1)[:, None]) * rstd[:, None]
    close(dx, expected, 1e-2)
    close(dw.sum(0, dtype=np.float64), (xhat * dy).sum(0), 3e-2)
    close(db.sum(0, dtype=np.float64), dy.sum(0, dtype=np.float64), 3e-2)


def layer_norm_dwdb(model: Op) -> None:
    dw, db = drawn(40, 100, dtype=np.float16), drawn(100, 40, dtype=np.float16).reshape(40, 100)
    all_dw, all_db = np.zeros(100, np.float16), np.zeros(100, np.float16)
    zg.run(model, 2, dw, db, all_dw, all_db, 40, 100)
    close(all_dw, dw.sum(0, dtype=np.float64), 2e-2)
    close(all_db, db.sum(0, dtype=np.float64), 2e-2)


# 06: attention.

HEADS, LENGTH, WIDTH = 2, 128, 64
SCALE = 0.3
LOG2 = np.log(2.0)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> tuple[np.ndarray, ...]:
    scores = SCALE * np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64))
    if causal:
        scores = np.where(np.tri(LENGTH, dtype=bool), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ v.astype(np.float64), weights / total, (largest + np.log(total))[..., 0] / LOG2


def heads(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((HEADS, LENGTH, WIDTH)) / 2).astype(np.float16)


def attends(causal: bool, describes: bool) -> Check:
    def check(model: Op) -> None:
        q, k, v, out = heads(0), heads(1), heads(2), np.zeros((HEADS, LENGTH, WIDTH), np.float16)
        logs, arguments = np.zeros((HEADS, LENGTH), np.float32), list[Any]()
        for array in (q, k, v, out):
            flat = array.reshape(-1, WIDTH)
            descriptor = [zg.TensorDescriptor(flat, (64, 64)), *flat.shape, WIDTH, 1]
            arguments += descriptor if describes else [array]
        zg.run(model, (LENGTH // 64, HEADS), SCALE, logs, 1, HEADS, *arguments, LENGTH)
        expected, _, log2 = attention(q, k, v, causal)
        close(out, expected, 5e-3)
        close(logs, log2, 5e-3)

    return check


def attention_rows(model: Op) -> None:
    out, dout, delta = heads(0), heads(1), np.zeros((HEADS, LENGTH), np.float32)
    zg.run(model, (LENGTH // 64, HEADS), out, dout, delta, 1, HEADS, LENGTH)
    close(delta, (out.astype(np.float64) * dout).sum(-1), 1e-3)


def attention_gradients(causal: bool) -> Check:
    def check(model: Op) -> None:
        q, k, v, dout = heads(0), heads(1), heads(2), heads(3)
        out, weights, log2 = attention(q, k, v, causal)
        delta = (out * dout).sum(-1).astype(np.float32)
        grads = [np.zeros((HEADS, LENGTH, WIDTH), np.float16) for _ in range(3)]
        scaled = (k * (SCALE / LOG2)).astype(np.float16)  # as the tutorial hands k over
        strides = (HEADS * LENGTH * WIDTH, LENGTH * WIDTH, WIDTH)
        zg.run(
            model, (LENGTH // 64, 1, HEADS), q, scaled, v, SCALE, dout, *grads, log2.astype(np.float32), delta,
            *strides, HEADS, LENGTH,
        )  # fmt: skip
        dv = np.einsum("hij,hid->hjd", weights, dout.astype(np.float64))
        dp = np.einsum("hid,hjd->hij", dout.astype(np.float64), v.astype(np.float64))
        ds = weights * (dp - delta[..., None]) * SCALE
        close(grads[0], ds @ k.astype(np.float64), 2e-2)
        close(grads[1], np.einsum("hij,hid->hjd", ds, q.astype(np.float64)), 2e-2)
        close(grads[2], dv, 2e-2)

    return check


# 10: products of matrices in a microscaling format.


def packed_scales(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Exponents for 32 numbers each as the kernel reads them, and their factors by row and column."""
    exponents = np.random.default_rng(rows).integers(124, 131, (1, rows // 128, 2, 2, 256)).astype(np.uint8)
    blocks = exponents.reshape(rows // 128, 2, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    return exponents, np.repeat(2.0 ** (blocks.reshape(rows, 8).astype(np.float64) - 127), 32, axis=1)


def block_scaled(model: Op) -> None:
    f8 = ml_dtypes.float8_e4m3fn
    a, b, c = drawn(256, 256).astype(f8), drawn(128, 256).astype(f8), np.zeros((256, 128), np.float16)
    (scale_a, factors_a), (scale_b, factors_b) = packed_scales(256), packed_scales(128)
    arguments: list[Any] = []
    for array in (a, scale_a, b, scale_b, c):
        block = (1, 1, 1, 2, 256) if array.ndim == 5 else (128, 128)
        strides = [size // array.itemsize for size in array.strides]
        arguments += [zg.TensorDescriptor(array, block), *array.shape, *strides]
    zg.run(model, 2, *arguments)
    expected = (a.astype(np.float64) * factors_a) @ (b.astype(np.float64) * factors_b).T
    close(c, expected, 1e-2)


FORWARD = {
    "HEAD_DIM": 64, "BLOCK_M": 64, "BLOCK_N": 64, "FP8_OUTPUT": False, "warp_specialize": False, "IS_HOPPER": True,
}  # fmt: skip
BACKWARD = {
    "stride_d": 1, "BLOCK_M1": 32, "BLOCK_N1": 64, "BLOCK_M2": 64, "BLOCK_N2": 32, "BLK_SLICE_FACTOR": 2,
    "HEAD_DIM": 64,
}  # fmt: skip
GRADIENTS = (
    "Q:*fp16! K:*fp16! V:*fp16! sm_scale:fp32 DO:*fp16! DQ:*fp16! DK:*fp16! DV:*fp16! M:*fp32! D:*fp32! "
    "stride_z:i32! stride_h:i32! stride_tok:i32! H:i32 N_CTX:i32!"
)


def forward(type_: str) -> str:
    tensors = " ".join(f"desc_{name}:{type_}" for name in "qkvo")
    return f"sm_scale:fp32 M:*fp32! Z:i32 H:i32 {tensors} N_CTX:i32!"


POINTERS, BLOCK = forward("*fp16!"), forward("tensordesc<fp16[64,64]>")
GROUPS = "group_a_ptrs:*i64 group_b_ptrs:*i64 group_c_ptrs:*i64 group_gemm_sizes:*i32 g_lds:*i32 group_size:i32"
TILES = {"NUM_SM": 4, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
ADDED = "x_ptr:*fp32! y_ptr:*fp32! output_ptr:*fp32! n_elements:i32"
SIZES = " M:i32 N:i32 K:i32"

TUTORIALS = {
    "add": Tutorial("01", "add_kernel", ADDED, {"BLOCK_SIZE": 1024}, adds),
    "softmax": Tutorial(
        "02", "softmax_kernel", "output_ptr:*fp32 input_ptr:*fp32 input_row_stride:i32 output_row_stride:i32 "
        "n_rows:i32 n_cols:i32", {"BLOCK_SIZE": 1024, "num_stages": 2}, softmax,
    ),
    "matmul": Tutorial("03", "matmul_kernel", MATRICES, {**LAST, **BLOCKS, "ACTIVATION": ""}, product(4)),
    "leaky": Tutorial(
        "03", "matmul_kernel", MATRICES, {**LAST, **BLOCKS, "ACTIVATION": "leaky_relu"},
        product(4, lambda x: np.where(x >= 0, x, 0.01 * x)),
    ),
    "dropout": Tutorial(
        "04", "_dropout", "x_ptr:*fp32 x_keep_ptr:*i32 output_ptr:*fp32 n_elements:i32 p:fp32", {"BLOCK_SIZE": 256},
        dropout,
    ),
    "seeded_dropout": Tutorial(
        "04", "_seeded_dropout", "x_ptr:*fp32 output_ptr:*fp32 n_elements:i32 p:fp32 seed:i32", {"BLOCK_SIZE": 256},
        seeded_dropout,
    ),
    "layer_norm": Tutorial(
        "05", "_layer_norm_fwd_fused", "X:*fp16 Y:*fp16 W:*fp16 B:*fp16 Mean:*fp32 Rstd:*fp32 stride:i32 N:i32 "
        "eps:fp32", {"BLOCK_SIZE": 256}, layer_norm,
    ),
    "layer_norm_dx": Tutorial(
        "05", "_layer_norm_bwd_dx_fused", "DX:*fp16 DY:*fp16 DW:*fp16 DB:*fp16 X:*fp16 W:*fp16 Mean:*fp32 Rstd:*fp32 "
        "Lock:*i32 stride:i32 N:i32", {"GROUP_SIZE_M": 4, "BLOCK_SIZE_N": 256}, layer_norm_dx,
    ),
    "layer_norm_dwdb": Tutorial(
        "05", "_layer_norm_bwd_dwdb", "DW:*fp16 DB:*fp16 FINAL_DW:*fp16 FINAL_DB:*fp16 M:i32 N:i32",
        {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64}, layer_norm_dwdb,
    ),
    "attention": Tutorial("06", "_attn_fwd", POINTERS, {**FORWARD, "STAGE": 1}, attends(False, False)),
    "causal_attention": Tutorial("06", "_attn_fwd", POINTERS, {**FORWARD, "STAGE": 3}, attends(True, False)),
    "described_attention": Tutorial("06", "_attn_fwd", BLOCK, {**FORWARD, "STAGE": 3}, attends(True, True)),
    "attention_rows": Tutorial(
        "06", "_attn_bwd_preprocess", "O:*fp16 DO:*fp16 Delta:*fp32 Z:i32 H:i32 N_CTX:i32",
        {"BLOCK_M": 64, "HEAD_DIM": 64}, attention_rows,
    ),
    "attention_gradients": Tutorial(
        "06", "_attn_bwd", GRADIENTS, {**BACKWARD, "CAUSAL": False}, attention_gradients(False)
    ),
    "causal_gradients": Tutorial("06", "_attn_bwd", GRADIENTS, {**BACKWARD, "CAUSAL": True}, attention_gradients(True)),
    "arcsine": Tutorial("07", "asin_kernel", "x_ptr:*fp32 y_ptr:*fp32 n_elements:i32", {"BLOCK_SIZE": 256}, arcsine),
    "grouped": Tutorial("08", "grouped_matmul_kernel", GROUPS, TILES, None),
    "grouped_tma": Tutorial("08", "grouped_matmul_tma_kernel", GROUPS, {**TILES, "FP8": False}, None),
    "naive": Tutorial("09", "matmul_kernel", MATRICES, {**LAST, **BLOCKS}, product(4)),
    "persistent": Tutorial(
        "09", "matmul_kernel_persistent", MATRICES, {**LAST, **BLOCKS, "NUM_SMS": 4}, product(4)
    ),
    "tma": Tutorial("09", "matmul_kernel_tma", DESCRIPTORS.format(64) + SIZES, {**BLOCKS, **OPTIONS}, described(4, 64)),
    "tma_persistent": Tutorial(
        "09", "matmul_kernel_tma_persistent", DESCRIPTORS.format(32) + SIZES,
        {**BLOCKS, **OPTIONS, "EPILOGUE_SUBTILE": True, "NUM_SMS": 4}, described(4, 32),
    ),
    "descriptors": Tutorial(
        "09", "matmul_kernel_descriptor_persistent", "a_ptr:*fp16! b_ptr:*fp16! c_ptr:*fp16!" + SIZES,
        {**BLOCKS, "WARP_SPECIALIZE": False, "EPILOGUE_SUBTILE": False, "NUM_SMS": 4, "FLATTEN": False}, transposed,
    ),
    "block_scaled": Tutorial(
        "10", "block_scaled_matmul_kernel",
        "a_desc:tensordesc<fp8e4nv[128,128]> a_scale_desc:tensordesc<u8[1,1,1,2,256]> "
        "b_desc:tensordesc<fp8e4nv[128,128]> b_scale_desc:tensordesc<u8[1,1,1,2,256]> c_desc:tensordesc<fp16[128,128]>",
        {
            "M": 256, "N": 128, "K": 256, "output_type": 1, "ELEM_PER_BYTE_A": 1, "ELEM_PER_BYTE_B": 1, "VEC_SIZE": 32,
            "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "rep_m": 1, "rep_n": 1, "rep_k": 1, "NUM_STAGES": 2,
        },
        block_scaled,
    ),
    "dependent_add": Tutorial("11", "add_kernel", ADDED, {"BLOCK_SIZE": 1024, "USE_GDC": True}, adds),
}  # fmt: skip


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The MLIR of each tutorial."""
    file = tmp_path_factory.mktemp("requests") / "requests.json"
    file.write_text(json.dumps([tutorial.request() for tutorial in TUTORIALS.values()]))
    command = [PYTHON, str(HERE / "print_with_triton.py"), str(file)]
    process = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    results = {name: json.loads(line) for name, line in zip(TUTORIALS, process, strict=True)}
    assert not [argument["error"] for argument in results.values() if "error" in argument]
    return {name: argument["text"] for name, argument in results.items()}


@pytest.mark.parametrize("name", TUTORIALS)
def test_results(name: str, texts: dict[str, str]):
    model = zg.from_mlir(texts[name], f"{name}.ttir")
    zg.verify(model)
    check = TUTORIALS[name].check
    if check is None:
        pytest.skip("the kernel reads addresses of arrays, which the interpreter does not have")
    check(model)


@pytest.mark.parametrize("name", TUTORIALS)
def test_ptx_is_assembled(name: str, texts: dict[str, str]):
    if tool("ptxas") is None:
        pytest.skip("ptxas is not installed")
    compiled = zg.compile(zg.from_mlir(texts[name]), target="sm_90a")
    cubin, _ = assembled(compiled.ptx, "sm_90a")
    assert cubin
