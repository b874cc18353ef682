"""Object code for several processors, and its bits on those whose instructions this machine has."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu import compile as compiler
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import compile_cpu
from ziggurat.backend.jit.loading import host, llvm
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.errors import TargetError, ZigguratWarning
from ziggurat.transforms.cpu.cpu_passes import lower

WIDE = "+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
MACHINES = {
    "x86-64-v2": CpuOptions("x86-64-v2", "+sse4.2,+popcnt"),
    "haswell": CpuOptions("haswell", "+avx,+avx2,+fma,+f16c"),
    "skylake-avx512": CpuOptions("skylake-avx512", WIDE),
    "znver5": CpuOptions("znver5", WIDE),
}
is_x86 = platform.machine() in ("x86_64", "AMD64")


@zg.kernel
def rows(x_ptr, half_ptr, out_ptr, n, ROW: zg.constexpr):
    """Rows normalised by their exponentials; numbers rounded to f16 and back; quotients of integers."""
    start, at = zg.program_id(0) * n, zg.arange(0, ROW)
    mask = zg.less(at, n)
    x = zg.load(zg.add(x_ptr, zg.add(at, start)), mask, -1e30)
    e = zg.exp(zg.sub(x, zg.max(x)))
    h = zg.cast(zg.cast(zg.load(zg.add(half_ptr, zg.add(at, start)), mask), zg.f32), zg.bf16)
    actual = zg.add(zg.div(e, zg.sum(e)), zg.cast(zg.cast(zg.cast(h, zg.f32), zg.f16), zg.f32))
    whole = zg.cast(zg.floordiv(zg.mul(at, 1237), zg.add(at, 3)), zg.f32)
    zg.store(zg.add(out_ptr, zg.add(at, start)), zg.add(actual, whole), mask)


@zg.kernel
def product(x_ptr, half_ptr, out_ptr, n, ROW: zg.constexpr):
    """A dot of f32, whose sums are chains of fused multiply-adds."""
    at = zg.add(zg.expand(zg.mul(zg.arange(0, 16), 16), 1), zg.expand(zg.arange(0, 16), 0))
    x = zg.load(zg.add(x_ptr, at))
    zg.store(zg.add(out_ptr, at), zg.dot(x, x, input_precision="ieee"))


def model(kernel: zg.Kernel) -> Any:
    return kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f16), zg.ptr(zg.f32), zg.i32, 128)


def arrays() -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(400).astype(np.float32), random.standard_normal(400).astype(np.float16)]


@pytest.mark.skipif(not is_x86, reason="machines of x86-64")
@pytest.mark.filterwarnings("ignore:this processor has no fused")
@pytest.mark.parametrize("name", MACHINES)
def test_the_bits_of_each_machine(name: str):
    options = MACHINES[name]
    code = compile_cpu(model(rows), options)
    assert code.object[:4] == b"\x7fELF" or platform.system() != "Linux"
    if not set(options.features.split(",")) <= set(host()[1].split(",")):
        pytest.skip(f"this machine has not all of {options.features}")
    results = [np.zeros(400, np.float32) for _ in range(2)]
    run_cpu(model(rows), (4,), [*arrays(), results[0], 100], options=options)
    run(model(rows), None, (4,), [*arrays(), results[1], 100])
    np.testing.assert_array_equal(results[0].view(np.int32), results[1].view(np.int32))
    for out, uses in zip(results, (options, CpuOptions()), strict=True):
        run_cpu(model(product), (1,), [*arrays(), out, 100], options=uses)
    np.testing.assert_array_equal(results[0].view(np.int32), results[1].view(np.int32))


@zg.kernel
def widened(x_ptr, out_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out_ptr, at), zg.cast(zg.load(zg.add(x_ptr, at)), zg.f32))


@zg.kernel
def narrowed(x_ptr, out_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out_ptr, at), zg.cast(zg.load(zg.add(x_ptr, at)), zg.f16))


@pytest.mark.skipif(not is_x86, reason="machines of x86-64")
def test_f16_without_instructions_for_it():
    options = MACHINES["x86-64-v2"]
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = np.zeros(1 << 16, np.float32)
    run_cpu(widened.triton(zg.ptr(zg.f16), zg.ptr(zg.f32), 1 << 16), (1,), [halves, wide], options=options)
    np.testing.assert_array_equal(wide, halves.astype(np.float32))
    finite = wide[np.isfinite(wide)]
    between = [np.nextafter(finite, np.float32(end)) for end in (-np.inf, np.inf)]
    ties = finite * np.float32(1 + 2.0**-11)
    arguments = np.concatenate(
        [wide, *between, ties, np.nextafter(ties, np.float32(0)), np.float32([65519, 65520, 1e9, 1e-9])]
    )
    arguments = np.resize(arguments, 1 << 19)
    actual = np.zeros(len(arguments), np.float16)
    run_cpu(narrowed.triton(zg.ptr(zg.f32), zg.ptr(zg.f16), len(arguments)), (1,), [arguments, actual], options=options)
    with np.errstate(over="ignore"):
        expected = arguments.astype(np.float16)
    np.testing.assert_array_equal(
        actual.view(np.int16)[~np.isnan(arguments)], expected.view(np.int16)[~np.isnan(arguments)]
    )
    assert np.isnan(actual[np.isnan(arguments)]).all()


@pytest.mark.skipif(not is_x86, reason="machines of x86-64")
def test_a_machine_without_fused_multiply_add_is_told_of_once():
    compiler.warn_of_slow_fma.cache_clear()
    with pytest.warns(ZigguratWarning, match="this processor has no fused multiply-add") as warnings:
        for _ in range(2):
            compile_cpu(model(product), MACHINES["x86-64-v2"])
    assert len(warnings) == 1


@pytest.mark.parametrize("cpu_name", ["generic", "neoverse-n1", "neoverse-v1", "apple-m1"])
@pytest.mark.parametrize("kernel", [rows, product])
def test_object_code_for_aarch64(kernel: zg.Kernel, cpu_name: str):
    binding = llvm()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        target = binding.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM has no code generator for aarch64")
    options = CpuOptions(cpu_name, "+neon")
    _, text = compiler.to_llvm(lower(model(kernel), 16), options)
    machine = target.create_target_machine(cpu=cpu_name, features=options.features, opt=2, reloc="pic")
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    image = machine.emit_object(module)
    assert image[:4] == b"\x7fELF" and image[18] == 183, "the number of aarch64 in ELF"
    assert "fmla" in machine.emit_assembly(module), "vectors of fused multiply-adds"


def test_a_model_for_wider_vectors_is_refused():
    """It may have been printed on another machine, and has calls of instructions that this one lacks."""
    with pytest.raises(TargetError, match="the model is for vectors of 64 bytes; those of this processor have 32"):
        compile_cpu(lower(model(rows), 64), MACHINES["haswell"])
