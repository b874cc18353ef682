"""Printing, assertions and inline assembly, which only a GPU runs as compiled."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from isolated import Image, Isolated

import ziggurat as zg

pytestmark = pytest.mark.gpu

SPEAK = """
import numpy as np
import ziggurat as zg

@zg.kernel
def speak(x_ptr, n, N: zg.constexpr):
    x = zg.load(zg.add(x_ptr, zg.arange(0, N)))
    zg.device_print("hello")
    if zg.program_id(0) > 0:
        zg.device_print("x", x)
        zg.device_print("both", n, n * 2)
        zg.device_print("bits", n, hex=True)

speak[(2,)](zg.to_device(np.array([1.5, -2], np.float32)), -1, N=2, num_warps=4, check=True)
"""


def test_printing(tmp_path):
    """A process of its own: the driver writes to its standard output by itself."""
    file = tmp_path / "speak.py"
    file.write_text(SPEAK)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(
        [
            "pid (0, 0, 0) hello", "pid (1, 0, 0) hello", "pid (1, 0, 0) idx (0) x: 1.5", "pid (1, 0, 0) idx (1) x: -2",
            "pid (1, 0, 0) idx () both: (operand 0) -1", "pid (1, 0, 0) idx () both: (operand 1) -2",
            "pid (1, 0, 0) idx () bits: 0xffffffff",
        ]
    )  # fmt: skip


@zg.kernel
def check(x_ptr, N: zg.constexpr):
    x = zg.load(zg.add(x_ptr, zg.arange(0, N)))
    zg.device_assert(zg.compare(x, 100, zg.CompareKind.LESS_THAN), "too large")


def test_a_failing_assertion():
    device = Isolated()
    binary = check.compile(zg.ptr(zg.i32), 64).binary
    x = np.arange(64, dtype=np.int32)
    device.run(binary, (1,), [Image.of(x.view(np.uint8), 0)], [(0, 0)])
    with pytest.raises(zg.KernelRuntimeError, match="assert"):
        device.run(binary, (1,), [Image.of((x + 64).view(np.uint8), 0)], [(0, 0)])
    device.close()


@zg.kernel
def assembly(x_ptr, y_ptr, z_ptr, N: zg.constexpr):
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    code = "add.s32 $0, $2, $3; mov.b32 $1, $2;"
    y, z = zg.inline_asm_elementwise(code, "=&r,=r,r,r", (x, 1), (zg.i32, zg.u32), True, 1)
    zg.store(zg.add(y_ptr, at), y)
    zg.store(zg.add(z_ptr, at), z)


@zg.kernel
def packed_assembly(x_ptr, y_ptr, N: zg.constexpr):
    """Four bytes in a register."""
    at = zg.arange(0, N)
    x = zg.load(zg.add(x_ptr, at))
    y = zg.inline_asm_elementwise("xor.b32 $0, $1, 0x01010101;", "=r,r", (x,), zg.u8, True, 4)
    zg.store(zg.add(y_ptr, at), y)


@pytest.mark.parametrize("warps", [1, 4])
def test_inline_assembly(warps):
    x = np.arange(-100, 156, dtype=np.int32)
    y, z = zg.to_device(np.zeros_like(x)), zg.to_device(np.zeros(256, np.uint32))
    assembly[(1,)](zg.to_device(x), y, z, N=256, num_warps=warps)
    np.testing.assert_array_equal(zg.to_host(y), x + 1)
    np.testing.assert_array_equal(zg.to_host(z), x.view(np.uint32))
    small = np.arange(512, dtype=np.int32).astype(np.uint8)
    out = zg.to_device(np.zeros_like(small))
    packed_assembly[(1,)](zg.to_device(small), out, N=512, num_warps=warps)
    np.testing.assert_array_equal(zg.to_host(out), small ^ 1)
