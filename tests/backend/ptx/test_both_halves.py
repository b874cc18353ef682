"""Kernels with both 16-bit float types: LLVM must not join the bits of one with the numbers of the other."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import optimized, to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.transforms.gpu.gpu_passes import place


@zg.kernel
def by_value(o, s):
    f = zg.bitcast(zg.cast(s, zg.f16), zg.bf16)
    zg.store(o, 1.0, zg.compare(f, 0, zg.CompareKind.NOT_EQUAL))


@zg.kernel
def through_an_integer(o, s):
    bits = zg.bitcast(zg.cast(s, zg.bf16), zg.i16)
    zg.store(o, 1.0, zg.compare(zg.bitcast(bits, zg.f16), 0, zg.CompareKind.NOT_EQUAL))


HALF, BRAIN = zg.ptr(zg.f16), zg.ptr(zg.bf16)


@zg.kernel
def through_memory(o, s):
    zg.store(zg.bitcast(o, HALF), zg.cast(s, zg.f16))
    f = zg.load(zg.bitcast(o, BRAIN))
    zg.store(o, 1.0, zg.compare(f, 0, zg.CompareKind.NOT_EQUAL))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("kernel", [by_value, through_an_integer])
def test_a_comparison_with_zero_of_the_bits_of_the_other_type(kernel, target: str, ptxas) -> None:
    """LLVM 22 aborted the process: its "fcmp oeq (bitcast X), 0" takes X for an integer."""
    compiled = kernel.compile(zg.ptr(zg.f32), zg.i32, target=target)
    ptxas(compiled.ptx, target)
    for text in (compiled.stages["llvm"], optimized(compiled.stages["llvm"], target)):
        for number in (0, 1):
            out = np.zeros(1, np.float32)
            simulate(text, num_warps=4, shared=0, arguments=[out, number])
            if number:
                assert out[0] == 1.0


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_bits_that_llvm_carries_from_a_store_to_a_load(target: str, ptxas) -> None:
    ptxas(through_memory.compile(zg.ptr(zg.f32), zg.i32, target=target).ptx, target)


def test_one_16_bit_type_alone_has_no_moves() -> None:
    source = by_value.triton(zg.ptr(zg.f32), zg.i32)
    assert "mov.b16" in to_llvm(place(source, CompileOptions("sm_80", 1)))

    @zg.kernel
    def alone(o, s):
        zg.store(o, zg.bitcast(zg.cast(s, zg.f16), zg.i16))

    assert "mov.b16" not in to_llvm(place(alone.triton(zg.ptr(zg.i16), zg.i32), CompileOptions("sm_80", 1)))
