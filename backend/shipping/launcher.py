"""The launcher of libraries: one module for launches on GPUs and on CPUs, the same for all libraries."""

from __future__ import annotations

import hashlib
import re
import sys
from functools import cache
from typing import Final

from ziggurat.backend.jit.loading import object_of
from ziggurat.backend.jit.symbols import SYMBOLS
from ziggurat.backend.llvm.functions import module
from ziggurat.backend.shipping.cpu_launcher import zg_run
from ziggurat.backend.shipping.gpu_launcher import zg_launch
from ziggurat.backend.shipping.launches import MESSAGE
from ziggurat.codemodel.errors import TargetError

_NAMES: Final = (zg_launch.symbol, zg_run.symbol, MESSAGE.symbol)


@cache
def launcher() -> tuple[str, dict[str, str]]:
    """The LLVM text, and the symbols of `zg_launch`, `zg_run` and `zg_message` in it: they tell its version, so that
    a program can have libraries of several."""
    text = module([zg_launch, zg_run, MESSAGE], SYMBOLS)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    symbols = {name: f"{name}_{digest}" for name in _NAMES}
    return re.sub(rf"@({'|'.join(_NAMES)})\b", lambda match: f"@{symbols[match[1]]}", text), symbols


def launcher_object() -> bytes:
    """The object, kept on disk. Raises `TargetError` on Windows, where there is no `dlopen`."""
    if sys.platform == "win32":
        raise TargetError("libraries of kernels are made for Linux and macOS", hint="build under WSL")
    text, symbols = launcher()
    return object_of(symbols[zg_launch.symbol], lambda: text)
