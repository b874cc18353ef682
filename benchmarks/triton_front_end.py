"""Run by a Python that has the C++ Triton: times of its front half for the kernels of front_end.py, and of compiling.

    python triton_front_end.py REPETITIONS
    python triton_front_end.py --cold            # also: python -m ziggurat.triton triton_front_end.py --cold

Timed first is `ASTSource.make_ir`: from a decorated function to Triton's MLIR, verified, with no pass run. What Triton
does around it for each compilation is not in it: the key of its cache, and an MLIR context with the dialects, which has
a figure of its own. `--cold` gives CPU seconds of this process: until Triton is imported, until the first kernel is
PTX, and for each kernel from its source to PTX, when another was compiled before; assemblers are other processes. No
GPU is needed. Prints one JSON object.
"""

import json
import os
import sys
import tempfile
import time

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns where it is unset.

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

IMPORTED = time.process_time()
TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask)
    y = tl.load(y_ptr + offsets, mask)
    tl.store(output_ptr + offsets, x + y, mask)


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0.0, x, x * 0.01)


@triton.jit
def block_of(pid, rows, columns, GROUP_SIZE: tl.constexpr):
    in_group = GROUP_SIZE * columns
    first_row = pid // in_group * GROUP_SIZE
    size = min(rows - first_row, GROUP_SIZE)
    within = pid % in_group
    return first_row + within % size, within // size


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_SIZE: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    row, column = block_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_SIZE)
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_rows = (rows % M)[:, None]
    b_columns = (columns % N)[None, :]
    a_ptrs = a_ptr + (a_rows * stride_am + ks[None, :] * stride_ak)
    b_ptrs = b_ptr + (ks[:, None] * stride_bk + b_columns * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        rest = K - k * BLOCK_K
        a = tl.load(a_ptrs, ks[None, :] < rest, other=0.0)
        b = tl.load(b_ptrs, ks[:, None] < rest, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c_rows = rows[:, None]
    c_columns = columns[None, :]
    c_ptrs = c_ptr + (c_rows * stride_cm + c_columns * stride_cn)
    tl.store(c_ptrs, accumulator.to(tl.float16), (c_rows < M) & (c_columns < N))


def source(fn, types, constants):
    names = fn.arg_names
    kinds = dict(zip(names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
    return ASTSource(fn, {name: kinds[name] for name in names}, constants)


SOURCES = {
    "vector add": (add_kernel, ["*fp32"] * 3 + ["i32"], {"BLOCK_SIZE": 64}),
    "matmul": (
        matmul_kernel,
        ["*fp16"] * 3 + ["i32"] * 9,
        {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_SIZE": 4, "ACTIVATION": "leaky_relu"},
    ),
}


def cold():
    """CPU seconds of the import, of everything up to the first PTX, and of each kernel of kernels_triton.py."""
    import kernels_triton as kernels

    os.environ.update(TRITON_CACHE_DIR=tempfile.mkdtemp(), TRITON_ALWAYS_COMPILE="1")
    norm = ["*fp16"] * 4 + ["*fp32"] * 2 + ["i32"] * 2 + ["fp32"]
    tile = {"M": 128, "N": 256, "K": 64, "GROUP": 8, "ak": 1, "bn": 1, "cn": 1}
    work = {
        "vector add": (kernels.add, ["*fp32"] * 3 + ["i32"], {"BLOCK": 1024}, 4),
        "softmax": (kernels.softmax, ["*fp32"] * 2 + ["i32"] * 2, {"BLOCK": 4096}, 8),
        "layer norm": (kernels.layer_norm, norm, {"BLOCK": 1024}, 4),
        "matmul": (kernels.matmul, ["*fp16"] * 3 + ["i32"] * 9, tile, 8),
    }
    times = {"import": IMPORTED}
    for name, (fn, types, constants, warps) in [("start", work["vector add"]), *work.items()]:
        begun = time.process_time()
        kernel = triton.compile(aligned(fn, types, constants), target=TARGET, options={"num_warps": warps})
        assert ".entry" in kernel.asm["ptx"]
        times[name] = time.process_time() - (0 if name == "start" else begun)
    print(json.dumps(times))


def aligned(fn, types, constants):
    """The source of a kernel whose pointers and integers are multiples of 16."""
    ast_source = source(fn, types, constants)
    places = {name: (place,) for place, name in enumerate(fn.arg_names)}
    pointers = {name: kind for name, kind in ast_source.signature.items() if kind[0] == "*" or kind == "i32"}
    return ASTSource(
        fn, ast_source.signature, constants, {places[name]: [["tt.divisibility", 16]] for name in pointers}
    )


def main():
    from triton._C.libtriton import ir

    target = TARGET
    backend = make_backend(target)
    options = backend.parse_options({})
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    report = {"version": triton.__version__, "context": []}
    for name, (fn, types, constants) in SOURCES.items():
        report[name] = []
        for _ in range(int(sys.argv[1])):
            start = time.perf_counter()
            context = ir.context()
            ir.load_dialects(context)
            backend.load_dialects(context)
            ready = time.perf_counter()
            source(fn, types, constants).make_ir(target, options, functions, modules, context)
            done = time.perf_counter()
            report["context"].append(ready - start)
            report[name].append(done - ready)
    print(json.dumps(report))


if __name__ == "__main__":
    cold() if sys.argv[1:] == ["--cold"] else main()
