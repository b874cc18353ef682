"""Processors for which tests compile native code: this one, and this one with AVX2 alone."""

from __future__ import annotations

import platform

import pytest

from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.jit.loading import host

AVX2 = CpuOptions("haswell", "+avx,+avx2,+fma,+f16c")
HAS_AVX2 = platform.machine() in ("x86_64", "AMD64") and {*AVX2.features.split(",")} <= {*host()[1].split(",")}


def host_without(*features: str) -> CpuOptions:
    """This processor without the features whose names begin so."""
    cpu, all_features = host()
    return CpuOptions(cpu, ",".join(name for name in all_features.split(",") if not name[1:].startswith(features)))


MACHINES = [
    pytest.param(CpuOptions(), id="host"),
    pytest.param(AVX2, id="avx2", marks=pytest.mark.skipif(not HAS_AVX2, reason="needs AVX2")),
]
