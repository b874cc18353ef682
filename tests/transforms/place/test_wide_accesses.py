"""The widths that layout assignment finds reach the PTX, which the assembler takes."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import gpu
from ziggurat.transforms.place.assign import assign
from ziggurat.transforms.place.prepare import prepare


@zg.kernel
def add_kernel(x, y, out, n, BLOCK: zg.constexpr):
    index = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(index, n, zg.CompareKind.LESS_THAN)
    total = zg.add(zg.load(zg.add(x, index), mask), zg.load(zg.add(y, index), mask))
    zg.store(zg.add(out, index), total, mask)


@zg.kernel
def scale_rows_kernel(out, x, stride, n, top, BLOCK: zg.constexpr):
    index = zg.arange(0, BLOCK)
    mask = zg.compare(index, n, zg.CompareKind.LESS_THAN)
    row = zg.load(zg.add(x + zg.program_id(0) * stride, index), mask, other=-float("inf"))
    zg.store(zg.add(out + zg.program_id(0) * stride, index), zg.exp2(zg.sub(row, top)), mask)


def ptx_of(kernel: Any, types: list[Any], target: str) -> str:
    pytest.importorskip("llvmlite")
    from ziggurat.backend.ptx.assemble import assemble

    module = assign(prepare(kernel.triton(*types)), 4, target)
    assert isinstance(module, gpu.Module)
    return assemble(module).ptx


def ptxas() -> str | None:
    package = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    found = sorted(package.glob("*/bin/ptxas"))
    return str(found[0]) if found else shutil.which("ptxas")


POINTER, NUMBER = zg.ptr(zg.f32), zg.i32
WIDE, EVEN = zg.divisible(POINTER), zg.divisible(NUMBER)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("kernel", "types", "loads"), [
    (add_kernel, [WIDE, WIDE, WIDE, EVEN, 1024], 4),
    (scale_rows_kernel, [WIDE, WIDE, EVEN, EVEN, zg.f32, 1024], 2),
])  # fmt: skip
def test_aligned_accesses_are_of_128_bits(
    tmp_path: Path, target: str, kernel: Any, types: list[Any], loads: int
) -> None:
    ptx = ptx_of(kernel, types, target)
    assert ptx.count("ld.global.v4.b32") == loads
    assert ptx.count("st.global.v4.b32") == 2
    assembler = ptxas()
    if assembler is None:
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    file = tmp_path / "kernel.ptx"
    file.write_text(ptx)
    command = [assembler, f"-arch={target}", "-v", str(file), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert " 0 bytes spill" in done.stderr


def test_without_divisibility_accesses_are_of_one_element() -> None:
    ptx = ptx_of(add_kernel, [POINTER, POINTER, POINTER, NUMBER, 1024], "sm_80")
    assert ".v4.b32" not in ptx and ptx.count("ld.global.b32") == 16
