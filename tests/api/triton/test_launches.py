"""Launches of Triton's kernels on a GPU, of which a recorded driver takes the place."""

import sys
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, found before the recorded driver of a test takes its place."""
    return require("torch")


def increment(**options):
    @triton.jit(**options)
    def increment(x_ptr, out_ptr, n, BLOCK: tl.constexpr = 32):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

    return increment


def arrays():
    return zg.empty(1000), zg.empty(1000)


def test_a_launch_gives_the_kernel_that_was_loaded(gpu):
    kernel, (x, out) = increment(), arrays()
    compiled = kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000, BLOCK=64)
    assert kernel[(16,)](x, out, 1000, 64) is compiled
    assert [(launch["grid"], launch["threads"]) for launch in gpu.launches] == [((16, 1, 1), 128)] * 2
    assert compiled.n_regs == 40 and compiled.metadata.num_warps == 4 and len(gpu.loads) == 1
    assert [*kernel.device_caches[0][0].values()] == [compiled]
    kernel[(16,)](x, out, 1000, 64, num_warps=8)
    assert gpu.launches[-1]["threads"] == 256 and len(kernel.device_caches[0][0]) == 2


@pytest.mark.parametrize("grid", [(1,), lambda meta: (1,)])
def test_a_kernel_of_addresses_is_on_the_current_stream_of_pytorch(gpu, monkeypatch, grid):
    @triton.jit
    def put(address, value):
        tl.store(address.to(tl.pointer_type(tl.int32)), value)

    streams = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: library.stream)
    cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 0)
    library = SimpleNamespace(cuda=cuda, _C=streams, Tensor=int, stream=0)
    monkeypatch.setitem(sys.modules, "torch", library)
    gpu.sizes = [8, 4]
    for library.stream in (77, 77, 78, 0):
        put[grid](1 << 40, 3)
    assert [launch["stream"] for launch in gpu.launches] == [("stream", stream) for stream in (77, 77, 78, 0)]


def compiled_for(kernel, **types):
    constants = {name: value for name, value in types.items() if not isinstance(value, str)}
    signature = {name: "constexpr" if name in constants else type_ for name, type_ in types.items()}
    target = GPUTarget("cuda", 90, 32)
    return triton.compile(triton.compiler.ASTSource(kernel, signature, constants), target=target)


def test_a_compiled_kernel_is_run_as_pytorch_runs_it(gpu, monkeypatch):
    """Without the work of the first launch, and in less than 8 µs."""
    compiled = compiled_for(increment(), x_ptr="*fp32", out_ptr="*fp32", n="i32", BLOCK=64)
    compiled._init_handles()
    (x, out), metadata, calls = arrays(), compiled.packed_metadata, []

    def run(stream, n, enter=None):
        compiled.run(16, 1, 1, stream, compiled.function, metadata, "launch", enter, enter, x, out, n, 64)

    run(5, 1000)
    monkeypatch.setattr(type(compiled._launcher), "_learn", None)
    run(6, 1008)
    run(0, 1, calls.append)
    assert [launch["stream"][1] for launch in gpu.launches] == [5, 6, 0] and calls == ["launch", "launch"]
    assert [launch["grid"] for launch in gpu.launches] == [(16, 1, 1)] * 3 and len(gpu.loads) == 1
    assert compiled.n_regs == 40 and gpu.launches[0]["threads"] == 128
    ok = gpu.cuInit(0)
    quick = compiled_for(increment(), x_ptr="*fp32", out_ptr="*fp32", n="i32", BLOCK=64)
    monkeypatch.undo()
    monkeypatch.setattr(gpu, "cuLaunchKernel", lambda *arguments: ok)
    quick._init_handles()
    times = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(1000):
            quick.run(16, 1, 1, 5, None, metadata, None, None, None, x, out, 1000, 64)
        times.append((time.process_time() - start) / 1000)
    assert min(times) < 8e-6


def test_a_compiled_kernel_is_run_with_tuples_and_descriptors(gpu):
    @triton.jit
    def both(pair, descriptor, out_ptr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        block = descriptor.load([0, 0])
        tl.store(out_ptr + at, tl.load(pair[0] + at) * pair[1] + tl.sum(tl.sum(block, 0), 0))

    x, out = arrays()
    descriptor = TensorDescriptor(zg.empty((64, 64)), [64, 64], [64, 1], [16, 32])
    types = {
        "pair": ("*fp32", "fp32"),
        "descriptor": "tensordesc<fp32[16, 32]>",
        "out_ptr": "*fp32",
        "BLOCK": "constexpr",
    }
    source = triton.compiler.ASTSource(both, types, {"BLOCK": 16})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    compiled._init_handles()
    gpu.sizes = [
        128 if parameter.kind == "tensormap" else 4 if parameter.kind in ("f32", "i32") else 8
        for parameter in compiled.binary.parameters
    ]
    for _ in range(2):
        compiled.run(1, 1, 1, 3, None, None, None, None, None, (x, 0.5), descriptor, out, 16)
    assert len(gpu.launches) == 2 and gpu.launches[0]["values"] == gpu.launches[1]["values"]


def test_the_paths_of_libraries_are_an_option(gpu):
    kernel, (x, out) = increment(), arrays()
    for path in ("one.bc", "one.bc", "other.bc"):
        kernel[(16,)](x, out, 1000, extern_libs={"libdevice": path})
    assert len(gpu.launches) == 3 and 1 <= len(gpu.loads) <= 2


def test_hooks_are_told_once_of_each_kernel(gpu):
    calls: list[str] = []
    runtime = triton.knobs.runtime
    with runtime.scope():
        runtime.jit_cache_hook = lambda **arguments: calls.append(f"compile {arguments['compile']['is_warmup']}")
        runtime.kernel_load_start_hook.add(load := lambda *arguments: calls.append(f"load {arguments[2]}"))
        runtime.launch_enter_hook.add(enter := lambda metadata: calls.append(f"launch {metadata.get()['name']}"))
        try:
            kernel, (x, out) = increment(), arrays()
            for n in (1000, 1008, 1000):
                kernel[(16,)](x, out, n)
        finally:
            runtime.kernel_load_start_hook.remove(load)
            runtime.launch_enter_hook.remove(enter)
    compiled, events, launched = "compile False", "load increment", "launch increment"
    assert calls == [compiled, launched, events, compiled, launched, events, launched]  # 1008 is divisible by 16.
    assert len(gpu.launches) == 3 and len(kernel.device_caches[0][0]) == 2


def test_a_hook_may_refuse_a_compilation(gpu):
    kernel, (x, out) = increment(), arrays()
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.jit_cache_hook = lambda **arguments: True
        assert kernel[(16,)](x, out, 1000) is None
        assert kernel.warmup(x, out, 1000, grid=(16,)) is None
    assert not gpu.launches and not kernel.device_caches[0][0]
    assert kernel[(16,)](x, out, 1000) is not None and len(gpu.launches) == 1


def test_inductor_launches_a_compiled_kernel_with_all_arguments(gpu):
    kernel, (x, out) = increment(), arrays()
    compiled = kernel.warmup(x, out, 1000, 64, grid=(16,))
    assert compiled.function is None and compiled.n_spills == 0
    compiled._init_handles()
    assert compiled.n_regs == 40
    calls: list[str] = []
    compiled.run(
        16, 1, 1, 7, compiled.function, compiled.packed_metadata, "data", calls.append, calls.append, x, out, 1000, 64
    )
    assert compiled.function == 0x1234 and calls == ["data", "data"] and gpu.launches[-1]["stream"] == ("stream", 7)
    assert gpu.launches[-1]["values"][0] == x.pointer.to_bytes(8, "little")
    compiled[(8, 2)](x, out, 1000, 64)
    assert gpu.launches[-1]["grid"] == (8, 2, 1)


def test_debugging_is_asked_for_by_the_process_the_launch_or_the_kernel(gpu):
    (x, out), options = arrays(), {}
    for jit, launch in ((None, None), (True, None), (True, False), (None, True)):
        kernel = increment(debug=jit)
        options[jit, launch] = kernel[(16,)](
            x, out, 1000, **({} if launch is None else {"debug": launch})
        ).metadata.debug
    assert options == {(None, None): False, (True, None): True, (True, False): False, (None, True): True}
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.debug = True
        assert increment()[(16,)](x, out, 1000, debug=False).metadata.debug
    assert not triton.knobs.watched, "launches after the scope are as quick as before it"


def test_tensors_in_host_memory_are_refused_beside_a_gpu_unless_the_launch_runs_here(gpu, torch, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kernel, x, out = increment(), torch.arange(100.0), torch.zeros(100)

    def refused() -> None:
        with pytest.raises(ValueError, match=r"Pointer argument \(at 1\) cannot be accessed from Triton"):
            kernel[(4,)](x.numpy(), out, 100)

    refused()
    for option in ({"interpret": True}, {"interpret": False}, {"strict": True}):
        kernel[(4,)](x, out.zero_(), 100, **option)
        assert out.tolist() == list(range(1, 101))
    result = np.zeros(100, np.float32)
    kernel[(4,)](x.numpy(), result, 100)
    assert result.tolist() == out.tolist() and not gpu.launches
    kernel[(16,)](*arrays(), 1000)
    refused()
    assert len(gpu.launches) == 1


def test_the_process_may_run_its_kernels_on_tensors_in_host_memory_beside_a_gpu(gpu, torch, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel, x, out = increment(), torch.arange(100.0), torch.zeros(100)
    kernel[(4,)](x, out, 100)
    assert out.tolist() == list(range(1, 101)) and not gpu.launches


def test_interpreted_launches_copy_tensors_in_tuples_and_descriptors_and_views_of_one_storage(torch, monkeypatch):

    class OnGpu(torch.Tensor):
        is_cuda = True

    copied: list[tuple[Any, Any]] = []

    def cpu(storage: Any) -> Any:
        copied.append((storage, storage.clone()))
        return copied[-1][1]

    monkeypatch.setattr(torch.UntypedStorage, "cpu", cpu)
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    @triton.jit
    def move(pair, descriptor, wrapped_ptr):
        at = tl.arange(0, 16)
        tl.store(pair[1] + at, tl.load(pair[0] + at) + 1)
        descriptor.store([0, 0], descriptor.load([0, 0]) * 2)
        tl.store(wrapped_ptr, -1)

    whole = torch.arange(32.0).as_subclass(OnGpu)
    block, wrapped = torch.ones(4, 8).as_subclass(OnGpu), torch.zeros(1, dtype=torch.int8).as_subclass(OnGpu)
    move[(1,)](
        (whole[:16], whole[16:]), TensorDescriptor.from_tensor(block, [4, 8]), triton.reinterpret(wrapped, tl.int8)
    )
    assert whole.tolist() == [*range(16), *range(1, 17)] and block.tolist() == [[2.0] * 8] * 4
    assert wrapped.tolist() == [-1] and len(copied) == 3


@triton.jit
def lower_half(x, out):
    out.store([0, 0], x.load([8, 0]))


def test_descriptors_of_arrays_of_numpy():
    x, out = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((8, 16), np.float32)
    lower_half[(1,)](TensorDescriptor.from_tensor(x, [8, 16]), TensorDescriptor.from_tensor(out, [8, 16]))
    np.testing.assert_array_equal(out, x[8:])


def test_no_launch_keeps_its_arrays(gpu):
    kernel, compiled = increment(), compiled_for(increment(), x_ptr="*fp32", out_ptr="*fp32", n="i32", BLOCK=64)
    compiled._init_handles()

    def launch(x, out):
        kernel[16,](x, out, 1000, BLOCK=64)

    def run(x, out):
        compiled.run(16, 1, 1, 5, compiled.function, compiled.packed_metadata, None, None, None, x, out, 1000, 64)

    for function in (launch, run, launch, run):
        values = arrays()
        alive = [weakref.ref(value) for value in values]
        function(*values)
        del values
        assert [reference() for reference in alive] == [None, None]
