"""The instructions of LLVM that models become, counted, without the names of values.

Results do not show what only makes code fast: the width and the alignment of an access, a hint, a cache, the likelier
branch. The models are those of the passes' tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from asynchronous_kernels import KERNELS

from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import to_llvm as cpu_llvm
from ziggurat.backend.ptx.assemble import to_llvm as gpu_llvm
from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.text.parser import parse
from ziggurat.passes import Case, cases
from ziggurat.transforms.cpu.cpu_passes import lower
from ziggurat.transforms.gpu.gpu_passes import place

HASWELL = CpuOptions("haswell", "+avx,+avx2,+fma,+f16c")
TESTS = Path(__file__).parents[1]
PLACED = sorted((TESTS / "transforms").glob("*/golden/**/*.txt"))
CPU = [case for file in sorted((TESTS / "models" / "cpu").glob("*.txt")) for case in cases(file.read_text("utf-8"))]
GPU = [
    case
    for case in cases((TESTS / "models" / "gpu" / "lower.txt").read_text("utf-8"))
    if case.passes[0][-1] == "barriers"
]


def counted(text: str) -> str:
    """Each instruction with how often it occurs, in the order of the text of the instruction; no metadata."""
    lines = (
        re.sub(r"^[\w.$-]+:$", "", re.sub(r"(?<![\w@])%[\w.$-]+", "%", line.strip()))
        for line in text.splitlines()
        if not line.startswith("!")
    )
    return "\n".join(f"{count:4} {line}" for line, count in sorted(Counter(filter(None, lines)).items()))


def slug(title: str) -> str:
    return "_".join(re.findall(r"\w+", title))


@pytest.mark.parametrize("case", CPU, ids=lambda case: slug(case.title))
def test_on_a_cpu(case: Case, golden: Callable[[str, object], None]) -> None:
    """On a machine with AVX2."""
    model = parse(case.after or "")
    if not isinstance(model, cpu.Module):
        model = lower(parse(case.before), 32)
    golden(f"instructions/cpu.{slug(case.title)}", counted(cpu_llvm(model, HASWELL)[1]))


@pytest.mark.parametrize("option", ["check", "tolerant", "fast_math"])
def test_options_for_a_cpu(option: str, golden: Callable[[str, object], None]) -> None:
    (case,) = (case for case in CPU if case.title.startswith("reductions of two tensors"))
    model = expect(parse(case.after or ""), cpu.Module)
    options = attrs.evolve(HASWELL, **{option: option != "check"})
    golden(f"instructions/cpu.{option}", counted(cpu_llvm(model, options)[1]))


def test_wide_vectors_of_a_cpu(golden: Callable[[str, object], None]) -> None:
    """With AVX-512, powers of f32 are computed in f32."""
    (case,) = (case for case in CPU if case.title.startswith("dots with sums in place"))
    options = CpuOptions("skylake-avx512", "+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512dq")
    golden("instructions/cpu.avx512", counted(cpu_llvm(lower(parse(case.before), 64), options)[1]))


MODELS = {slug(case.title): case.after or "" for case in GPU}
MODELS |= {
    file.stem: file.read_text("utf-8")
    for file in PLACED
    if file.parent.name == "placed" or file.stem.endswith(".barriers")
}


@pytest.mark.parametrize("name", MODELS)
def test_on_a_gpu(name: str, golden: Callable[[str, object], None]) -> None:
    golden(f"instructions/gpu.{name}", counted(gpu_llvm(expect(parse(MODELS[name]), gpu.Module))))


@pytest.mark.parametrize("name", ["attention", "gradients by roles", "pointers, turned"])
def test_kernels_on_a_gpu(name: str, golden: Callable[[str, object], None]) -> None:
    """Asynchronous copies and dots that the models above have not."""
    kernel, types, target, warps = KERNELS[name]
    golden(
        f"instructions/gpu.{slug(name)}",
        counted(gpu_llvm(place(kernel.triton(*types), CompileOptions(target, warps, 3)))),
    )
