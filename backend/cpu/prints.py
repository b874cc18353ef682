"""The lines of `device_print`, equal to the interpreter's, from the operands that native code leaves in memory."""

from __future__ import annotations

import ctypes
import math
import re

import numpy as np

from ziggurat.backend.cpu.code import CpuCode
from ziggurat.codemodel.printed import before_value, number_text, printed_line, show
from ziggurat.codemodel.scalars import bits_of
from ziggurat.codemodel.types import SCALARS

_TYPE = re.compile(r"(?:buffer<((?:x\d+, )*))?(ptr<)?(\w+)")


def printed(code: CpuCode, site_number: int, program: int, data: int, grid: tuple[int, int, int]) -> None:
    """Print the operands of a `tt.print`, which lie one after the other from `data` on."""
    site = code.sites[site_number]
    x, y, _ = grid
    pid = (program % x, program // x % y, program // (x * y))
    if not site.types:
        show(f"pid {pid} {site.message}")
    at = data
    for number, text in enumerate(site.types):
        found = _TYPE.match(text)
        assert found is not None
        shape = tuple(int(size[1:]) for size in (found[1] or "").split(", ") if size)
        element = None if found[2] else SCALARS[found[3]]
        dtype = np.dtype(np.int64) if element is None else element.dtype
        size = math.prod(shape) * dtype.itemsize
        raw = (ctypes.c_char * size).from_address(at)
        array = np.frombuffer(bytes(raw), dtype).reshape(shape)
        shown = bits_of(array).reshape(shape) if (site.hex or element is None) and dtype != np.bool_ else array
        before = before_value(site.message, number, len(site.types))
        for place in np.ndindex(*shape):
            value = number_text(shown[place], element, site.hex, site.c_form)
            show(printed_line(pid, place, shape, before, value))
        at += -(-max(size, 8) // 64) * 64
