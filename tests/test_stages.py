"""The stages of the kernels of the examples, for sm_90a: golden, and the same in every process.

Six texts are golden: all stages of one kernel, and the GPU model of a reduction. What single passes do is in
tests/models. The models are compared as models; of LLVM's text and of PTX the line information is left out, which would
make them change with each line that is moved in an example (tests/backend/ptx/test_lines.py is about it). PTX is what
LLVM makes of its text: it is compared where the same LLVM makes it that made the golden file.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import ziggurat as zg

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
STAGES = ("python", "triton", "gpu", "llvm", "ptx")
TARGET = "sm_90a"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.object(sys, "path", [str(EXAMPLES), *sys.path]):  # An example may use another one.
        spec.loader.exec_module(module)
    return module


def aligned(element: Any) -> Any:
    """A pointer as allocations give it."""
    return zg.divisible(zg.ptr(element), 16)


N = zg.divisible(zg.i32, 16)
F16, F32 = aligned(zg.f16), aligned(zg.f32)
BLOCK, QUERIES, KEYS = (zg.divisible(zg.descriptor(shape, zg.f16)) for shape in ((64, 64), (64, 32), (32, 32)))

# The argument types and the number of warps of each kernel.
KERNELS: dict[tuple[str, str], tuple[list[Any], int]] = {
    ("attention", "attention_kernel"): ([QUERIES, KEYS, KEYS, QUERIES, N, zg.f32, True, 64, 32, 32], 4),
    ("descriptor_matmul", "matmul_kernel"): ([*[BLOCK] * 3, N, N, N, 64, 64, 64, 4], 4),
    ("fused_softmax", "softmax_kernel"): ([F32, F32, N, N, N, 512], 4),
    ("gradients", "loss_kernel"): ([*[F32] * 5, N, 16, 32, 64], 4),
    ("gradients", "gradient_kernel"): ([*[F32] * 8, N, 16, 32, 64], 4),
    ("grouped_matmul", "matmul_kernel"): ([F16] * 3 + [N, N, N, N, 1, N, 1, N, 1, 64, 32, 32, 8, "leaky_relu"], 4),
    ("layer_norm", "layer_norm_kernel"): ([F16, F16, F32, F32, F32, F32, N, N, zg.f32, 512], 4),
    ("kernel_passes", "polynomial"): ([F32, F32, N, 128], 4),
    ("own_transform", "polynomial_kernel"): ([F32, F32, N, 128], 4),
    ("vector_add", "add_kernel"): ([F32, F32, F32, N, 1024], 4),
}


def of_kernel(file: str, kernel: str) -> Mapping[str, Any]:
    types, warps = KERNELS[file, kernel]
    return getattr(example(file), kernel).compile(*types, target=TARGET, num_warps=warps).stages


def of_a_list_of_functions() -> Mapping[str, Any]:
    chain = [lambda v: zg.mul(v, 2.0), lambda v: zg.add(v, 1.0), zg.sigmoid, lambda v: zg.mul(v, v)]
    return zg.compile(example("traced_kernel").fused(chain), target=TARGET).stages


def of_a_power_series() -> Mapping[str, Any]:
    model = zg.trace(example("traced_kernel").power_series, zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32)
    return zg.compile(model, target=TARGET).stages


def of_an_own_transform() -> Mapping[str, Any]:
    own = example("own_transform")
    types, warps = KERNELS["own_transform", "polynomial_kernel"]
    fused = zg.transform(own.polynomial_kernel.triton(*types), own.fuse_multiply_add, pass_name="fuse_multiply_add")
    return zg.compile(fused, target=TARGET, num_warps=warps).stages


# The kernels by the names of the golden files. Models without a Python function begin as Triton models.
MADE: dict[str, Callable[[], Mapping[str, Any]]] = {
    **{
        (f"{file}_{kernel}" if file == "gradients" else file): functools.partial(of_kernel, file, kernel)
        for file, kernel in KERNELS
    },
    "traced_chain": of_a_list_of_functions,
    "traced_series": of_a_power_series,
    "own_transform_fused": of_an_own_transform,
}
TRACED = ("traced_chain", "traced_series", "own_transform_fused")


def stages_of(name: str) -> tuple[str, ...]:
    return STAGES[1:] if name in TRACED else STAGES


GOLDEN = [*(("vector_add", stage) for stage in STAGES), ("fused_softmax", "gpu")]


def without_lines(text: str) -> str:
    """LLVM's text, or PTX, without its line information."""
    kept: list[str] = []
    for line in text.splitlines():
        if re.match(r"!|\t?\.(loc|file)\s|\s*\.section\s+\.debug|//|\$L__(tmp|func_begin|func_end)\d+:", line):
            continue
        line = re.sub(r",? !dbg !\d+", "", line).rstrip()
        if line or (kept and kept[-1]):  # The blank lines around what is gone are one.
            kept.append(line)
    return "\n".join(kept).strip("\n") + "\n"


def made_by() -> str:
    """The version of LLVM that makes PTX here, as a comment of PTX."""
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return f"// made by LLVM {version} of llvmlite {importlib.metadata.version('llvmlite')}\n"


def text_of(stages: Mapping[str, Any], stage: str) -> str:
    """A stage as text that is the same on every machine."""
    text = str(stages[stage])
    return without_lines(text) if stage in ("llvm", "ptx") else text


def test_every_kernel_of_the_examples_is_here():
    found = {
        (file.stem, name)
        for file in EXAMPLES.glob("*.py")
        for name, value in vars(example(file.stem)).items()
        if isinstance(value, zg.Kernel) and file.stem != "shipping"  # It ships kernels of other examples.
    }
    assert found == set(KERNELS)
    without = {file.stem for file in EXAMPLES.glob("*.py")} - {file for file, _ in KERNELS}
    others = {"built_kernel", "traced_kernel", "one_operation_for_all", "shipping"}
    others |= {"derivatives", "loop_nest", "query_to_sql", "tracer"}  # Of models of any Python function.
    assert without == others, "an example without a kernel has to be in MADE"


@pytest.fixture(scope="module")
def stages() -> Callable[[str], Mapping[str, Any]]:
    """The stages of a kernel, made once."""
    known: dict[str, Mapping[str, Any]] = {}

    def of(name: str) -> Mapping[str, Any]:
        if name not in known:
            known[name] = MADE[name]()
        return known[name]

    return of


@pytest.mark.parametrize("name", MADE)
def test_the_stages_are_all_there_in_order(name, stages):
    assert list(stages(name)) == list(stages_of(name))


@pytest.mark.parametrize(("name", "stage"), GOLDEN)
def test_the_stage_is_golden(name, stage, stages, golden, request):
    found = stages(name)
    file = f"stages/{name}.{stage}"
    if stage in ("python", "triton", "gpu"):
        golden(file, found[stage])
        return
    text = text_of(found, stage)
    if stage == "llvm":
        golden(file, text)
        return
    here = made_by()
    written = HERE / "golden" / f"{file}.txt"
    if written.exists() and not request.config.getoption("--bless"):
        there = written.read_text(encoding="utf-8").partition("\n")[0] + "\n"
        if there != here:
            pytest.skip(f"another LLVM writes other PTX: the golden file is {there[3:-1]}, this is {here[3:-1]}")
    golden(file, here + text)


def digests() -> dict[str, dict[str, str]]:
    """A digest of each stage of each kernel."""
    return {
        name: {stage: hashlib.sha256(text_of(found, stage).encode()).hexdigest() for stage in found}
        for name, made in MADE.items()
        for found in (made(),)
    }


@pytest.mark.parametrize("seed", ["1", "20261121"])
def test_the_stages_do_not_depend_on_the_order_of_sets(seed, stages):
    """Another process, in which strings have other hashes and objects other addresses, makes the same texts."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve())],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here = {
        name: {stage: hashlib.sha256(text_of(stages(name), stage).encode()).hexdigest() for stage in stages(name)}
        for name in MADE
    }
    assert json.loads(done.stdout) == here


def test_line_information_is_left_out():
    text = "a, !dbg !3\n!0 = !{}\n\t.loc\t1 2 3\n\n\nb\n$L__tmp0:\n$L__BB0_1:\n"
    assert without_lines(text) == "a\n\nb\n$L__BB0_1:\n"


if __name__ == "__main__":
    print(json.dumps(digests()))
