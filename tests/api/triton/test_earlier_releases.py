"""Programs of Triton 2.1 to 3.3: what they pass that later releases no longer take, and what they import."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import require

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import ZigguratError, ZigguratWarning
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler.sources import AttrsDescriptor
from ziggurat.triton.runtime import cache, jit, triton_options

H100 = GPUTarget("cuda", 90, 32)


@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), n)


def test_configurations_and_options():
    settings = {name: value for name, (value, _) in triton_options.OF_EARLIER_RELEASES.items()}
    tuned = triton.autotune([triton.Config({"BLOCK": 16}, **settings)], key=[])(fill)
    x = np.zeros(16, np.float32)
    tuned[(1,)](x, 3)
    fill[(1,)](x[8:], 4, 8, **settings)
    assert x.tolist() == [3.0] * 8 + [4.0] * 8


def test_options_that_would_do_something_give_a_warning(monkeypatch):
    monkeypatch.setattr(triton_options, "_warned", set())
    with pytest.warns(ZigguratWarning, match="num_consumer_groups=2 has no effect: the compiler decides which warps"):
        triton.Config({}, num_consumer_groups=2)
    with pytest.warns(ZigguratWarning, match="allow_fp8e4nv=True has no effect: the target decides"):
        fill[(1,)](np.zeros(16, np.float32), 3, 16, allow_fp8e4nv=True)
    with pytest.raises(TypeError, match=r"Config.__init__\(\) got an unexpected keyword argument 'num_warp'"):
        triton.Config({}, num_warp=2)
    with pytest.raises(KeyError, match="num_warp was specified but unrecognised"):
        fill[(1,)](np.zeros(16, np.float32), 3, 16, num_warp=4)


def test_measurements_and_plots():
    assert triton.testing.do_bench(lambda: None, warmup=1, rep=1, fast_flush=False, device_type="cuda") >= 0
    plot = {"x_names": ["n"], "x_vals": [1], "line_arg": "by", "line_vals": [1], "line_names": ["a"], "args": {}}
    benchmark = triton.testing.Benchmark(**plot, plot_name="p", color=None)
    measured = []
    triton.testing.perf_report(benchmark)(lambda n, by, more: measured.append((n, by, more)) or 1.0).run(more=5)
    assert measured == [(1, 1, 5)]


def test_a_tuner_of_a_program_s_own_runs_the_kernel():
    x = np.zeros(16, np.float32)
    fill.run(x, 3, 16, grid=(1,), num_warps=2)
    assert (x == 3).all()


def test_an_interpreted_kernel():
    kernel, x = triton.jit(fill.fn, interpret=True), np.zeros(16, np.float32)
    kernel[(1,)](x, 2, 16)
    assert kernel.is_interpreted and (x == 2).all() and not fill.is_interpreted


@pytest.mark.parametrize(
    ("signature", "constants", "attributes"),
    [
        ("*fp32, i32", {2: 16}, AttrsDescriptor(divisible_by_16=(0,))),
        ({0: "*fp32", 1: "i32"}, {"BLOCK": 16}, AttrsDescriptor.from_hints({0: 16})),
        ({"x_ptr": "*fp32", "n": "i32"}, {"BLOCK": 16}, {(0,): [["tt.divisibility", 16]]}),
    ],
)
def test_sources(signature, constants, attributes):
    source = triton.compiler.ASTSource(fn=fill, signature=signature, constants=constants, attrs=attributes)
    later = triton.compiler.ASTSource(
        fill, {"x_ptr": "*fp32", "n": "i32"}, {"BLOCK": 16}, {(0,): [["tt.divisibility", 16]]}
    )
    assert source.hash() == later.hash()
    assert "st.global" in triton.compile(source, target=H100).asm["ptx"]


def test_functions_are_compiled():
    configuration = AttrsDescriptor(divisible_by_16={0}, equal_to_1={1})
    compiled = triton.compile(fill, H100, signature="*fp32", constants={2: 16}, configs=[configuration], num_warps=2)
    assert compiled.metadata.num_warps == 2 and compiled.src.constants == {(1,): 1, (2,): 16}


def test_functions_of_the_machine():
    assert triton.runtime.driver.utils is triton.runtime.driver.active.utils
    assert jit.get_current_device() == triton.runtime.driver.active.get_current_device()
    assert len(jit.get_device_capability(0)) == 2 and jit.get_cuda_stream(0) >= 0
    jit.set_current_device(0)
    names = ("cache", "dump", "override")
    folders = [getattr(cache, f"default_{name}_dir")() for name in names]
    assert all(folder.endswith(f".triton/{name}") for folder, name in zip(folders, names, strict=True))


def test_names_of_the_language():
    assert tl.float8e4 == tl.float8e4nv and tl.core.TRITON_MAX_TENSOR_NUMEL == tl.TRITON_MAX_TENSOR_NUMEL

    @triton.jit
    def uniform(out_ptr):
        at = tl.arange(0, 4)
        tl.store(out_ptr + at, tl.random.uint32_to_uniform_float((at * 1000).to(tl.uint32)))

    out = np.zeros(4, np.float32)
    uniform[(1,)](out)
    np.testing.assert_allclose(out, np.arange(4) * 1000 * 2.0**-31, rtol=1e-3)


def test_functions_of_triton_ops():
    torch = require("torch")
    from ziggurat.triton.ops import attention, cross_entropy, flash_attention, matmul

    a, b = torch.randn(5, 8).half(), torch.randn(8, 3).half()
    torch.testing.assert_close(matmul(a, b), a @ b)
    assert matmul(a, b.float()).dtype == torch.float32 and matmul(a, b, output_dtype=torch.bfloat16).shape == (5, 3)
    counts = torch.arange(6, dtype=torch.int8).reshape(2, 3)
    assert matmul(counts, counts.T, output_dtype=torch.int32).tolist() == [[5, 14], [14, 50]]
    assert matmul(a.to(torch.float8_e5m2), b.to(torch.float8_e4m3fn)).dtype == torch.float16
    x, at = torch.randn(4, 7, requires_grad=True), torch.tensor([0, 6, 3, 2])
    cross_entropy(x, at).sum().backward()
    expected = torch.softmax(x, -1) - torch.nn.functional.one_hot(at, 7)
    torch.testing.assert_close(x.grad, expected)
    q = torch.randn(1, 2, 6, 8)
    scores = torch.softmax((q @ q.mT * 0.5).masked_fill(~torch.ones(6, 6).tril().bool(), -torch.inf), -1)
    torch.testing.assert_close(attention(q, q, q, True, 0.5, sequence_parallel=True), scores @ q)
    assert flash_attention.attention is attention


def test_blocksparse_says_what_to_do():
    for name in ("matmul", "softmax"):
        with pytest.raises(ZigguratError, match=f"blocksparse.{name} went with Triton 3.2") as info:
            getattr(triton.ops.blocksparse, name)(None, 16)
        assert "copy the folder python/triton/ops/blocksparse of Triton 3.0" in str(info.value)


def test_the_model_of_products():
    from ziggurat.triton.ops.matmul_perf_model import early_config_prune, estimate_matmul_time

    class Matrix:
        def element_size(self):
            return 2

    def config(block, num_stages):
        values = {"BLOCK_M": block, "BLOCK_N": block, "BLOCK_K": 64, "SPLIT_K": 1}
        return triton.Config(values, num_stages=num_stages)

    configs = [config(128, 4), config(256, 4), config(256, 2)]
    assert early_config_prune(configs, {"A": Matrix()}) == [configs[0], configs[2]]

    def time(block, **changes):
        sizes = {"M": 4096, "N": 4096, "K": 4096, "BLOCK_M": block, "BLOCK_N": block, "BLOCK_K": 64, "SPLIT_K": 1}
        return estimate_matmul_time(4, 3, *[Matrix()] * 3, **{**sizes, **changes})

    assert 0.05 < time(128) < time(16) and time(128) < time(128, SPLIT_K=4) and time(128, M=8192) > time(128)
