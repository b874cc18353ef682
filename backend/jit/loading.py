"""Machine code in this process: llvmlite makes object files, links them, and gives addresses."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ziggurat.backend.cache.keys import compiler_version
from ziggurat.backend.jit.objects import Objects, StoredObject
from ziggurat.backend.llvm.binding import llvm as bindings
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
    binding.initialize_native_asmparser()  # For inline assembly: CPUID.
    return binding


@cache
def host() -> tuple[str, str]:
    """LLVM's names for this machine's CPU and its features, of which this process may use all."""
    features = llvm().get_host_cpu_features().flatten()
    return llvm().get_host_cpu_name(), features if _may_use_tiles() else without_tiles(features)


def without_tiles(features: str) -> str:
    """Features without the matrix units of x86 (AMX), for which a process of Linux asks its kernel."""
    return ",".join(feature for feature in features.split(",") if not feature.startswith("+amx"))


def _may_use_tiles() -> bool:
    """Ask Linux to let this process use the matrix units. Threads and forked processes may, too."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


def debug_folder() -> str:
    """The folder for what debuggers and profilers read, which `ZIGGURAT_DEBUG_DIR` names; "" without one."""
    return os.environ.get("ZIGGURAT_DEBUG_DIR", "")


@cache
def _jit() -> Any:
    # LLVM's older linker maps each section where there is room: in a process with gigabytes of arrays, code may be too
    # far from its constants, which aborts the process. JITLink maps an object as a whole, but does not tell gdb of it.
    jit = llvm().create_lljit_compiler(use_jit_link=not debug_folder())
    # Workers of the pool sleep in its code: it stays until the process ends, longer than Python's objects.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(jit))
    return jit


class LinkedObject:
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


def object_of(name: str, write: Callable[[], str]) -> bytes:
    """The object file of LLVM text of the runtime for this machine, kept on disk. `write` gives the text, which depends
    on the name, the machine and the package's sources alone."""
    binding = llvm()
    facts = f"{compiler_version()}\n{binding.get_host_cpu_name()}\n{name}"
    key = hashlib.sha256(facts.encode()).hexdigest()
    cache = Objects()
    stored_object = cache.get(key)
    if stored_object is None:
        machine = binding.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
        module = binding.parse_assembly(write())
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(module, builder)
        stored_object = StoredObject("runtime", binding.get_host_cpu_name(), machine.emit_object(module))
        cache.put(key, stored_object)
    return stored_object.image


def is_known_python() -> bool:
    """Whether this is a CPython whose objects begin with a reference count and a type."""
    with_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.implementation.name == "cpython" and object.__basicsize__ == 16 and with_lock()


class _Method(ctypes.Structure):
    """PyMethodDef of Python's C API."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class Builtin:
    """Code as built-in functions of Python (METH_FASTCALL). Each has an object of its own: its `self`. The code
    stays until the process ends, as any part of the program may hold such a function."""

    def __init__(self, name: bytes, code: LinkedObject, symbol: str, *, keywords: bool = False) -> None:
        self._method = _Method(name, code.addresses[symbol], 0x80 | 0x2 * keywords, None)
        for reference in (self._method, code):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(reference))
        self._make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )
        self._place = ctypes.addressof(self._method)

    def __call__(self, own: Any) -> Callable[..., Any]:
        """The function whose `self` is an object."""
        return self._make(self._place, own, None)

    def maker(self, other: Builtin) -> Callable[[Any], Callable[..., Any]]:
        """`other`, called in a fifth of the time: this code is `launcher.NEW`."""
        return self(other._place)
