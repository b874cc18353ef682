"""`torch.compile` with this package as its Triton: PyTorch's default settings, on a machine without a GPU.

Each program runs in a process of its own, whose compile workers are further ones: `wait_pool_ready` waits for them, as
PyTorch compiles in the program's process before. Triton's kernels are made for the CPU, or only compiled for a GPU.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat.triton as triton
import ziggurat.triton.language as tl

require("torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="PyTorch starts compile workers on Linux")

_HEAD = """\
import json
import sys
import warnings

import torch
import torch._inductor.config
import torch.nn.functional as F
import triton
import triton.language as tl
from torch._dynamo.utils import counters
from torch._inductor.async_compile import AsyncCompile
from triton.compiler import compiler
from ziggurat.codemodel.errors import ZigguratWarning

warnings.simplefilter("error", ZigguratWarning)
torch._inductor.config.cpu_backend = "triton"
torch._inductor.config.worker_start_method = sys.argv[1]
ours = compiler.compile


def compile(*given, **options):
    compiled_here.append(given)
    return ours(*given, **options)


compiled_here = []
triton.compile = compiler.compile = compile
"""
_PROGRAM = """

@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)


def with_kernel(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out.sin() * 2


def softmax(x):
    return torch.softmax(x, 1)


def norm(x, weight, bias):
    return F.gelu(F.layer_norm(x, (x.shape[1],), weight, bias))


def reductions(x):
    return x.sum(0), x.argmax(1), x.std(1), x.amin(), (x > 0).any(1), x.mean(), x.cumsum(1)


if __name__ == "__main__":
    AsyncCompile.wait_pool_ready()
    torch.manual_seed(0)
    x, y, weight, bias = torch.randn(24, 33), torch.randn(24, 33), torch.randn(33), torch.randn(33)
    trained = [one.clone().requires_grad_() for one in (x, weight, bias)]
    programs = [(softmax, (x,)), (reductions, (x,)), (with_kernel, (x, y)), (norm, trained)]
    if sys.argv[2] == "few":
        trained = [x.clone().requires_grad_()]
        programs = [(with_kernel, (x, y)), (softmax, trained)]
    for function, arguments in programs:
        found = torch.compile(function)(*arguments)
        expected = (x + y).sin() * 2 if function is with_kernel else function(*arguments)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    gradients = [torch.autograd.grad(one.square().sum(), trained) for one in (found, expected)]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
    if sys.argv[2] != "few":
        assert x.t()[1:].is_contiguous() is False
        found = torch.compile(softmax)(x.t()[1:])
        torch.testing.assert_close(found, softmax(x.t()[1:]))
    cached = counters["inductor"]["fxgraph_cache_hit"]
    print(json.dumps({"here": len(compiled_here), "cached": cached, "ours": triton.__name__}))
"""
# A kernel as Inductor writes it for an H100. The workers of a machine with one have it as the active driver.
_KERNEL = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.runtime.triton_helpers import libdevice

triton_helpers.set_driver_to_gpu = lambda: None

@triton_heuristics.pointwise(
    size_hints={'x': 4096},
    filename=__file__,
    triton_meta={
        'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'},
        'device': DeviceProperties(
            type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536,
            max_threads_per_multi_processor=2048, warp_size=32,
        ),
        'constants': {}, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}],
    },
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'exponentials', 'mutated_arg_names': []},
    min_elem_per_thread=0,
)
@triton.jit
def exponentials(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tl.store(out_ptr0 + xindex, libdevice.exp(tl.load(in_ptr0 + xindex, xmask)), xmask)
"""
_FOR_GPU = """
import copy
import pickle
from functools import partial
from pathlib import Path
from torch._inductor.codecache import _load_triton_kernel_from_source
from torch._inductor.runtime.compile_tasks import _worker_compile_triton

if __name__ == "__main__":
    load = partial(_load_triton_kernel_from_source, "exponentials", Path(sys.argv[2]).read_text())
    told = []
    for static in (True, False):
        options = {"use_static_triton_launcher": static}
        kernel, _ = AsyncCompile.process_pool().submit(_worker_compile_triton, load, {}, options).result()
        kernel.restore_after_unpickle(None)
        assert kernel.fn.fn is None and "def exponentials" in kernel.fn.src and kernel.fn.arg_names[0] == "in_ptr0"
        facts = kernel.prepare_for_pickle()  # As PyTorch keeps statically launched kernels in its caches.
        kept = pickle.loads(pickle.dumps(copy.deepcopy(kernel)))
        kernel.restore_after_unpickle(facts)
        assert kept.fn.src == kernel.fn.src and kept.fn.repr(kept.fn) == kernel.fn.repr(kernel.fn)
        for result in kernel.compile_results:
            made = result.kernel
            code = made.cubin_raw if static else made.asm["cubin"]
            told.append([type(result).__name__, code[:4].hex()])
            if not static:
                assert ".entry exponentials(" in made.asm["ptx"] and "tt.func" in made.asm["ttir"]
                assert made.asm["ttgir"].startswith("gpu.module") and made.metadata.name == "exponentials"
    print(json.dumps({"here": len(compiled_here), "results": told}))
"""


def told(folder: Path, text: str, *arguments: str, module: bool = False) -> list[dict[str, Any]]:
    """The records that a program prints. It is run by `python -m ziggurat.triton`, or installs the package itself."""
    program = folder / "program.py"
    program.write_text(text if module else f"import ziggurat.triton; ziggurat.triton.install()\n{text}")
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "TRITON", "PYTHONPATH"))
    }
    environment = {**plain, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    command = [sys.executable, *(["-m", "ziggurat.triton"] if module else []), str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_workers_compile_for_the_cpu_and_for_a_gpu(tmp_path: Path):
    """A kernel of the caches of another process is launched. For the GPU the pickles load, and PyTorch's static
    launcher finds the cubin; without it there is one too."""
    kernel = tmp_path / "kernel.txt"
    kernel.write_text(_KERNEL)
    first, gpu = told(tmp_path, _HEAD + _PROGRAM + _FOR_GPU, "subprocess", str(kernel), module=True)
    assert first == {"here": 0, "cached": 0, "ours": "ziggurat.triton"}
    assert gpu["here"] == 0 and {code for _, code in gpu["results"]} == {b"\x7fELF".hex()}
    assert [name for name, _ in gpu["results"]] == ["StaticTritonCompileResult"] * 2 + ["TritonCompileResult"] * 2
    assert len(list((tmp_path / "cache").glob("triton/*/*/exponentials.cubin"))) == 2
    (again,) = told(tmp_path, _HEAD + _PROGRAM, "subprocess", "few")
    assert again["here"] == 0 and again["cached"] >= 1


def test_forked_workers_compile(tmp_path: Path):
    (lines,) = told(tmp_path, _HEAD + _PROGRAM, "fork", "few")
    assert lines["here"] == 0


def test_a_configuration_keeps_what_pytorch_adds():
    config = triton.Config({"BLOCK": 4}, num_warps=8)
    config.found_by_coordesc, config.extra_options = True, None
    again = pickle.loads(pickle.dumps(config))
    assert again == config and again.found_by_coordesc is True and again.extra_options is None
    empty = triton.Config.__new__(triton.Config)
    empty.__setstate__({"num_warps": 2})
    assert empty.num_warps == 2 and empty.kwargs == {} and empty.num_stages == triton.Config({}).num_stages


@triton.jit
def at_the_top(x_ptr, n, BLOCK: tl.constexpr = 4):
    tl.store(x_ptr, n)


def test_a_kernel_is_pickled_by_its_name_or_as_facts():
    """PyTorch takes the function out, and puts it back."""
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top
    names = ("fn", "__globals__", "used_global_vals", "repr")
    before = {name: getattr(at_the_top, name) for name in names}
    specialization = before["repr"](at_the_top)
    at_the_top.fn = at_the_top.__globals__ = at_the_top.used_global_vals = None
    at_the_top.repr, at_the_top._hash_lock = str, None
    try:
        facts = pickle.loads(pickle.dumps(at_the_top))
    finally:
        for name, value in before.items():
            setattr(at_the_top, name, value)
    assert facts is not at_the_top and isinstance(facts, triton.JITFunction)
    assert (facts.__name__, facts.arg_names, facts.constexprs) == ("at_the_top", ["x_ptr", "n", "BLOCK"], [2])
    assert facts.src == at_the_top.src and facts.fn is None and [p.default for p in facts.params][2] == 4
    facts._hash_lock = threading.RLock()
    x = np.zeros(1, np.int32)
    at_the_top[(1,)](x, 7)
    assert x[0] == 7 and at_the_top.repr(at_the_top) == specialization


class Named:
    """A name for every specialization, as PyTorch sets it."""

    def __init__(self, name):
        self.name = name

    def __call__(self, specialization):
        return self.name


def prepare_for_pickle(fn):
    """PyTorch reads and sets attributes before it pickles or copies a kernel."""
    before = (fn.fn, fn.__globals__, fn.used_global_vals, fn.repr, getattr(fn, "_hash_lock", None))
    fn.fn = fn.__globals__ = fn.used_global_vals = None
    fn.repr, fn._hash_lock = Named(fn.repr(fn)), None
    return before


def restore(fn, before):
    fn.fn, fn.__globals__, fn.used_global_vals, fn.repr, fn._hash_lock = before


def test_a_kernel_from_a_pickle_is_pickled_and_copied_again():
    """A compile worker sends the facts of a kernel, and PyTorch keeps a copy of them in its caches."""
    before = prepare_for_pickle(at_the_top)
    try:
        revived = pickle.loads(pickle.dumps(at_the_top))
    finally:
        restore(at_the_top, before)
    with revived._hash_lock:
        pass
    for copied in (copy.copy, copy.deepcopy, lambda fn: pickle.loads(pickle.dumps(fn))):
        facts = prepare_for_pickle(revived)
        again = copied(revived)
        restore(revived, facts)
        for kernel in (again, revived, copied(revived)):
            assert kernel.fn is None and not kernel.used_global_vals and kernel.__globals__ is None
            assert kernel.repr(kernel) == at_the_top.repr(at_the_top) and kernel.src == at_the_top.src
            assert (kernel.arg_names, kernel.constexprs) == (at_the_top.arg_names, at_the_top.constexprs)
            assert [(p.name, p.default) for p in kernel.params] == [(p.name, p.default) for p in at_the_top.params]
            assert kernel.launch_metadata is None and kernel.__name__ == kernel.name == "at_the_top"
            with kernel._hash_lock:
                pass
            assert kernel.cache_key == revived.cache_key  # PyTorch names the choice of a multi-kernel by it.
    for use in (lambda: revived[(1,)], lambda: revived.model):
        with pytest.raises(AttributeError, match="'at_the_top' comes from a pickle without its function"):
            use()
    restore(revived, before)
    assert revived.fn is at_the_top.fn and revived.__globals__ is globals()


_ACCESSES = """
@triton.jit
def put(p, value):
    tl.store(p, value)


@triton.jit
def nothing(x, y, z):
    pass


@triton.jit
def once(x, y, z):
    at = tl.arange(0, 16)
    tl.store(y + tl.load(z + at), tl.load(x + at))


@triton.jit
def twice(x, y, z):
    put(x, 1)
    put(x, tl.load(y))


@triton.jit
def chosen(x, y, z, flag: tl.constexpr):
    if flag:
        tl.atomic_add(x, 1)
    else:
        tl.store(y + 1, 2)
        tl.store(x + 1, 2)


@triton.jit
def described(x, y, n):
    made = tl.make_tensor_descriptor(y, [n, n], [n, 1], [16, 16])
    made.store([0, 0], tl.zeros([16, 16], tl.float32))


@triton.jit
def assembly(x, y, z):
    tl.inline_asm_elementwise("st.global.u32 [$1], 1; mov.u32 $0, 0;", "=r,l", [y], tl.int32, is_pure=False, pack=1)


def program(x):
    out = torch.empty_like(x)
    put_all[(2,)](x, out, x.numel(), 64)
    return torch.sin(out) + x


@triton.jit
def put_all(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)


if __name__ == "__main__":
    from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors

    x, y, z = torch.zeros(64), torch.zeros(64), torch.zeros(64, dtype=torch.int64)
    three = {"x": x, "y": y, "z": z}
    for kernel, arguments in (
        (nothing, three), (once, three), (twice, three), (chosen, {**three, "flag": 1}),
        (chosen, {**three, "flag": 0}), (described, {"x": None, "y": y, "n": 16}), (assembly, three),
    ):
        found = identify_accessed_tensors(kernel, dict(arguments), {})
        both = found.read_writes.reads, found.read_writes.writes
        names = ["".join(sorted(one.name for one in accesses)) for accesses in both]
        print(json.dumps({"found": [kernel.__name__, *names, found.can_fuse_epilogue]}))
    x = torch.arange(100.0)
    torch.testing.assert_close(torch.compile(program)(x), torch.sin(x * 2) + x)
    print(json.dumps({"here": len(compiled_here)}))
"""


def test_pytorch_asks_which_tensors_a_kernel_reads_and_writes(tmp_path: Path):
    triton_kernel_wrap = require("torch._higher_order_ops.triton_kernel_wrap")
    if not hasattr(triton_kernel_wrap, "identify_accessed_tensors"):
        pytest.skip("this PyTorch asks otherwise")
    *lines, _ = told(tmp_path, _HEAD + _ACCESSES, "fork")
    assert [line["found"] for line in lines] == [
        ["nothing", "", "", False],
        ["once", "xz", "y", True],
        ["twice", "y", "x", False],
        ["chosen", "x", "x", False],
        ["chosen", "", "xy", False],
        ["described", "", "y", True],
        ["assembly", "y", "y", False],
    ]
