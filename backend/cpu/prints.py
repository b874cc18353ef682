"""The texts of `tt.print`, equal to the interpreter's, from the operands that native code leaves in memory."""

from __future__ import annotations

import ctypes
import math
import re

import numpy as np

from ziggurat.backend.cpu.code import CpuCode
from ziggurat.backend.launch.grids import program_at
from ziggurat.codemodel.printed import Column, printed_text, show
from ziggurat.codemodel.types import SCALARS

_TYPE = re.compile(r"(?:buffer<((?:x\d+, )*))?(ptr<)?(\w+)")


def printed(code: CpuCode, site_number: int, program: int, data: int, grid: tuple[int, int, int]) -> None:
    """Print the operands of a `tt.print`, which lie one after the other from `data` on."""
    site = code.sites[site_number]
    at = data
    columns: list[Column] = []
    for text in site.types:
        match = _TYPE.match(text)
        assert match is not None
        shape = tuple(int(size[1:]) for size in (match[1] or "").split(", ") if size)
        element = None if match[2] else SCALARS[match[3]]
        dtype = np.dtype(np.int64) if element is None else element.dtype
        size = math.prod(shape) * dtype.itemsize
        raw = (ctypes.c_char * size).from_address(at)
        columns.append((np.frombuffer(bytes(raw), dtype).reshape(shape), element))
        at += -(-max(size, 8) // 64) * 64
    show(printed_text(program_at(program, grid), site.message, columns, site.hex, site.c_form, site.whole))
