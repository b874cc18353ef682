"""The facts by which PyTorch's programs in C++ (`cpp_wrapper`, AOTInductor) load and launch cubins, without a GPU.

The kernels go through PyTorch's own code, from the tuner of a kernel to the lines of C++ that launch it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import require

from ziggurat.backend.ptx.sass import tool

require("torch._inductor.codegen.cpp_wrapper_gpu")
pytestmark = pytest.mark.skipif(tool("ptxas") is None, reason="NVIDIA's assembler is not installed")

_PROGRAM = r"""
import ziggurat.triton

ziggurat.triton.install()
import json
import pickle
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from torch._inductor.codecache import CudaKernelParamCache
from torch._inductor.codegen.common import get_device_op_overrides
from torch._inductor.codegen.cpp_wrapper_gpu import CppWrapperGpu, DeferredTritonCallWrapper
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

triton_helpers.set_driver_to_gpu = lambda: None
H100 = DeviceProperties(
    type="cuda", index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, warp_size=32,
)


def tuner(function, signature, config, divisible=()):
    configs = [{(place,): [["tt.divisibility", 16]] for place in divisible}]
    return triton_heuristics.user_autotune(
        configs=[config], filename=__file__,
        triton_meta={"signature": signature, "device": H100, "constants": {}, "configs": configs},
        inductor_meta={
            "grid_type": "FixedGrid", "fixed_grid": ["_grid_0", "_grid_1", "_grid_2"],
            "extra_launcher_args": ["_grid_0", "_grid_1", "_grid_2"], "kernel_name": function.__name__,
            "mutated_arg_names": [], "store_cubin": True,
        },
    )(triton.jit(function))


def scaled(x, out, scale, n, m, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, scale * tl.load(x + at, at < n) + m, at < n)


def product(a, b, out, K, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    rows, at = tl.arange(0, SIZE)[:, None], tl.arange(0, BLOCK)
    total = tl.zeros([SIZE, SIZE], tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + rows * K + k + at[None, :])
        total = tl.dot(left, tl.load(b + (k + at)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]), total)
    tl.store(out + rows * SIZE + tl.arange(0, SIZE)[None, :], total)


def copied(x, out, rows, columns, SIZE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [SIZE, SIZE])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [SIZE, SIZE])
    for column in range(0, columns, SIZE):
        at = [tl.program_id(0) * SIZE, column]
        target.store(at, source.load(at))


KERNELS = [
    (scaled, {"x": "*fp32", "out": "*fp32", "scale": "fp32", "n": "i32", "m": "i64", "BLOCK": "constexpr"},
     {"BLOCK": 256, "num_warps": 2, "num_stages": 1}, [torch.float32] * 2 + [float, int, int]),
    (product, {"a": "*fp16", "b": "*fp16", "out": "*fp32", "K": "i32", "SIZE": "constexpr", "BLOCK": "constexpr"},
     {"SIZE": 128, "BLOCK": 64, "num_warps": 4, "num_stages": 3}, [torch.float16] * 2 + [torch.float32, int]),
    (copied, {"x": "*fp32", "out": "*fp32", "rows": "i32", "columns": "i32", "SIZE": "constexpr"},
     {"SIZE": 32, "num_warps": 4, "num_stages": 1}, [torch.float32] * 2 + [int, int]),
]
for function, signature, config, types in KERNELS:
    name = function.__name__
    kernel = tuner(function, signature, config, range(4))
    result = kernel._precompile_config(kernel.configs[0])
    parts = kernel.prepare_for_pickle()  # As compile workers send kernels.
    result = pickle.loads(pickle.dumps(result))
    kernel.restore_after_unpickle(parts)
    launcher = result.make_launcher()
    kernel.save_gpu_kernel(0, launcher)
    facts = CudaKernelParamCache.get(name)
    types += [int] * 3
    graph = SimpleNamespace(aot_mode=True, device_type="cuda")
    with V.set_graph_handler(graph):
        wrapper = CppWrapperGpu.__new__(CppWrapperGpu)
        wrapper.arg_var_id, wrapper.device_codegen = count(), get_device_op_overrides("cuda")
        wrapper.codegen_dtype = str
        call = DeferredTritonCallWrapper(f"call_{name}", name, {name: ""}, types)
        lines = IndentedBuffer()
        call.generate_grid(lines, facts["inductor_meta"], facts)
        call.generate_load_kernel(lines, "kernel", facts)
        call.generate_launch_kernel(lines, wrapper, "kernel", facts)
    text, asm = lines.getvalue(), result.kernel.asm
    declared = re.findall(r"^(\w+) (\w+) = ", text, re.M)
    passed = re.search(r"kernel_args_\[\] = \{(.*?)\}", text)[1].replace("&", "").split(", ")
    kinds = dict((variable, kind) for kind, variable in declared)
    entry = re.search(rf"\.entry {name}\((.*?)\)", asm["ptx"], re.S)[1]
    code = Path(facts["cubin_path"]).read_bytes()
    print(json.dumps({
        "name": facts["mangled_name"], "is_cubin": code == asm["cubin"] and code[:4] == b"\x7fELF",
        "has_name": f".text.{name}\0".encode() in code, "launch": text.splitlines()[-1],
        "threads": int(re.search(r"\.(?:reqntid|maxntid) (\d+)", asm["ptx"])[1]), "warps": facts["num_warps"],
        "shared": [facts["shared_mem"], result.kernel.metadata.shared], "scratch": facts["global_scratch"],
        "parameters": re.findall(r"\.param \.(?:align \d+ \.)?(\w+)", entry), "passed": [kinds[one] for one in passed],
    }))
"""
_KINDS = {"CUdeviceptr": "u64", "float": "f32", "int32_t": "u32", "int64_t": "u64", "int": "u32"}


def test_pytorch_s_c_plus_plus_launches_the_cubins(tmp_path: Path):
    """The names, the shared memory, the threads and the parameters of the cubins are those that PyTorch's C++ has."""
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "TRITON", "PYTHONPATH"))
    }
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=600, check=False,
        env={**plain, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [record["name"] for record in records] == ["scaled", "product", "copied"]
    for record in records:
        assert record["is_cubin"] and record["has_name"], record
        assert record["shared"][0] == record["shared"][1] and record["threads"] == 32 * record["warps"], record
        assert f", {record['warps']}, {record['shared'][0]}, kernel_args_, stream_);" in record["launch"], record
        parameters = [_KINDS[kind] for kind in record["passed"]]
        # PyTorch passes the scratch memory after the arguments, and that of the profiler; a kernel may take neither.
        assert len(record["parameters"]) == len(parameters) - (1 if record["scratch"] else 2), record
        for parameter, kind in zip(record["parameters"], parameters, strict=False):
            assert parameter.replace("b", "u") == kind.replace("f", "u") or parameter == kind, record
    scaled, product, copied = records
    assert scaled["shared"][0] == 0 and product["shared"][0] >= 32768 and copied["scratch"] > 0
