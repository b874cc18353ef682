"""Machine code that is loaded into this process."""

import subprocess
import sys

import pytest

from ziggurat.backend.jit import loading

SCRIPT = """
import ctypes
import numpy as np
import ziggurat as zg

@zg.kernel
def scaled(x, y):
    at = zg.arange(0, 64)
    zg.store(zg.add(y, at), zg.mul(zg.exp(zg.load(zg.add(x, at))), 1.25))

x = np.linspace(-2, 2, 64, dtype=np.float32)
compiled = scaled.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), target="cpu")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def mapped(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # Of no access: private, anonymous, without swap.

# Eight gigabytes of "arrays", and above them room for one page.
arrays = mapped(8 << 30)
page = arrays
while (further := mapped(4096)) > arrays:
    page = further
assert page > arrays
libc.munmap(page, 4096)

y = np.empty_like(x)
compiled[(1,)](x, y)
np.testing.assert_allclose(y, np.exp(x) * 1.25, rtol=1e-6)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fills the address space as Linux lays it out")
def test_code_reaches_its_constants_in_a_process_with_gigabytes_of_arrays():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("permitted", [True, False])
def test_matrix_units_are_a_feature_where_the_process_may_use_them(permitted: bool, monkeypatch: pytest.MonkeyPatch):
    class Features(dict[str, bool]):
        def flatten(self) -> str:
            return "+avx512f,+amx-tile,+amx-int8,-amx-fp16"

    monkeypatch.setattr(loading.llvm(), "get_host_cpu_features", Features)
    monkeypatch.setattr(loading, "_may_use_tiles", lambda: permitted)
    expected = "+avx512f,+amx-tile,+amx-int8,-amx-fp16" if permitted else "+avx512f,-amx-fp16"
    assert loading.host.__wrapped__()[1] == expected
