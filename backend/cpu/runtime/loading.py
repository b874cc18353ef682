"""Object files in this process: llvmlite links them, and gives addresses."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from ziggurat.backend.llvm import llvm as bindings
from ziggurat.codemodel.errors import InternalError

_numbers = itertools.count()
# A fork waits for this lock: a child would find LLVM's own lock held for ever.
linking = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=linking.acquire, after_in_parent=linking.release, after_in_child=linking.release)


@cache
def llvm() -> Any:
    """llvmlite's binding, with this machine's code generator."""
    binding = bindings()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def host() -> tuple[str, str]:
    """LLVM's names for this machine's CPU and its features."""
    return llvm().get_host_cpu_name(), llvm().get_host_cpu_features().flatten()


@cache
def _jit() -> Any:
    made = llvm().create_lljit_compiler()
    # Workers of the pool sleep in its code: it stays until the process ends, longer than Python's objects.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


class Loaded:
    """The code of an object file in this process: `addresses` by symbol. It is unloaded with this object.

    Raises `InternalError` for an object that needs symbols which this process does not have.
    """

    def __init__(self, image: bytes, symbols: Sequence[str]) -> None:
        with linking:
            builder = llvm().JITLibraryBuilder().add_object_img(image).add_current_process()
            for symbol in symbols:
                builder.export_symbol(symbol)
            try:
                self._tracker: Any = builder.link(_jit(), f"ziggurat.{next(_numbers)}")
            except RuntimeError as error:
                raise InternalError(f"the object with '{symbols[0]}' cannot be linked: {error}") from None
        self.addresses: dict[str, int] = {symbol: self._tracker[symbol] for symbol in symbols}
