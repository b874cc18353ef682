"""Subnormal numbers while models are read, attributed, compiled, run and simulated.

`torch.set_flush_denormal`, and libraries that are built with -ffast-math, let the processor take subnormal numbers for
zero. The constants and results of a kernel must not depend on that.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

_LEAST_NORMAL = sys.float_info.min
_SUBNORMAL: float = struct.unpack("<d", b"\1" + bytes(7))[0]


@contextmanager
def keep_subnormals() -> Generator[None]:
    """Let this thread keep subnormals until the end of the `with`, and then do as before."""
    if _LEAST_NORMAL * 0.5 and _SUBNORMAL * 2.0:  # The processor neither makes zeros of them nor takes them for zero.
        yield
        return
    get, set_, default = _environment()
    saved = ctypes.create_string_buffer(256)  # C's fenv_t, which is smaller.
    get(saved)
    set_(default)
    try:
        yield
    finally:
        set_(saved)


@functools.cache
def _environment() -> tuple[Callable[[Any], object], Callable[[Any], object], Any]:
    """C's fegetenv and fesetenv, and its default environment, which keeps subnormals."""
    try:
        library = ctypes.CDLL("libSystem.dylib" if sys.platform == "darwin" else "libm.so.6")
        darwin = sys.platform == "darwin"
        default = ctypes.byref(ctypes.c_char.in_dll(library, "_FE_DFL_ENV")) if darwin else ctypes.c_void_p(-1)
        return library.fegetenv, library.fesetenv, default
    except (OSError, AttributeError, ValueError):  # A system without them, such as Windows: nothing is changed.
        return (lambda saved: None), (lambda saved: None), None
