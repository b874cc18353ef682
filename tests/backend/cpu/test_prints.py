"""The lines of a print, from the bytes that native code leaves for them."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from ziggurat.backend.cpu.code import CpuCode
from ziggurat.backend.cpu.prints import printed
from ziggurat.backend.cpu.sites import Site

CODE = CpuCode("", b"", "", "", (), (), 0, False, (), "", "")


def test_operands_lie_at_multiples_of_64_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """A pointer has 64 bits; a tensor of 17 numbers of 32 bits takes two places."""
    types = ("ptr<f32>", "buffer<x17, i32>", "buffer<x2, x1, ptr<i8>>", "u8")
    data = np.zeros(5 * 64, np.uint8)
    data[:8].view(np.int64)[:] = 0x123456789ABC
    data[64:132].view(np.int32)[:] = range(17)
    data[192:208].view(np.int64)[:] = 1 << 40, 5
    data[256] = 200
    code = attrs.evolve(CODE, sites=(Site("prints", None), Site("prints", None, message="all ", types=types)))
    printed(code, 1, 1 + 3 * (2 + 4 * 5), data.ctypes.data, (3, 4, 6))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 17 + 2 + 1 and all(line.startswith("pid (1, 2, 5)") for line in lines)
    numbers = [int(line.rpartition(" ")[2], 0) for line in lines]
    assert numbers == [0x123456789ABC, *range(17), 1 << 40, 5, 200]
