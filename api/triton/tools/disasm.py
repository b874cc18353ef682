"""`triton.tools.disasm`: the machine code of compiled kernels as text."""

from __future__ import annotations

import re
from pathlib import Path

from ziggurat.backend.ptx.sass import disassembled


def get_sass(cubin_asm: bytes, fun: str | None = None) -> str:
    """The instructions of a cubin, or those of the function `fun` in it."""
    text = disassembled(cubin_asm)
    if fun is None:
        return text
    # A section for each function.
    return "".join(part for part in re.split(r"(?m)^(?=\s*\.section)", text) if f".text.{fun}," in part)


def extract(file_path: str, fun: str | None = None) -> str:
    """The instructions of the cubin in a file, or those of the function `fun` in it."""
    return get_sass(Path(file_path).read_bytes(), fun)
