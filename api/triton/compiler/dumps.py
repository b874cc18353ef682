"""Stages of a kernel for people who ask for them: `MLIR_ENABLE_DUMP`, `NVPTX_ENABLE_DUMP`, and `TRITON_KERNEL_DUMP`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ziggurat.triton import knobs

if TYPE_CHECKING:
    from ziggurat.triton.compiler.compiled_kernel import CompiledKernel


def wanted(name: str) -> bool:
    """Whether the models of a kernel are to be printed: `MLIR_ENABLE_DUMP` is 1, or the name of the kernel."""
    return knobs.getenv("MLIR_ENABLE_DUMP") in ("1", name)


def write(kernel: CompiledKernel) -> None:
    """Print the model before each pass on the standard error, print the PTX, and write the stages to files, as far as
    asked for."""
    if wanted(kernel.src.name):
        before = kernel.asm["ttir"]
        for snapshot in kernel.stages.passes:
            head = f"// -----// IR Dump Before {snapshot.name} ({kernel.src.name}) //----- //"
            print(f"{head}\n{before}", file=sys.stderr)
            before = str(snapshot.model)
    if knobs.nvidia.dump_nvptx:
        print(f"// -----// NVPTX Dump //----- //\n{kernel.stages.ptx}")
    if knobs.compilation.dump_ir:
        folder = Path(knobs.cache.dump_dir) / kernel.base_hash
        folder.mkdir(parents=True, exist_ok=True)
        stages = kernel.stages.stages
        texts = {"ttir": kernel.asm["ttir"], "ttgir": stages["gpu"], "llir": stages["llvm"], "ptx": stages["ptx"]}
        for stage, text in texts.items():
            (folder / f"{kernel.src.name}.{stage}").write_text(str(text))
