"""Shared libraries of kernels for this machine's CPU, which PyTorch's `cpp_wrapper` and AOTInductor load.

A library exports a kernel under its name, and `run_from_nativert`, which launches it: see PyTorch's
`torch/csrc/inductor/aoti_runtime/cpu_triton_runtime_wrappers.h`. It needs neither Python nor this package.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ziggurat.backend.cpu.error_records import failure_text
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.types import SCALARS

if TYPE_CHECKING:
    from ziggurat.backend.cpu.code import ArgumentSlot, CpuCode
    from ziggurat.triton.compiler.compiled_kernel import CompiledKernel

# The structures are those of `backend/cpu/code.py` and `backend/cpu/runtime/host.py`. All arrays are without bounds, so
# that no store goes around the caches.
_SOURCE: Final = """\
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>

namespace {
using Entry = int64_t(void*, int64_t, int64_t, void*, void*, int64_t*);

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1000000000 * int64_t(time.tv_sec) + time.tv_nsec;
}

struct Host {
  int64_t word;
  void *poll, *printer;
  int64_t (*clock)();
};

struct Launch {
  uint32_t x, y, z, zero;
  const Host* host;
  void *printer, *notes;
  int64_t bounds[%(bounds)d][3];
};

const char* const messages[] = {%(messages)s, nullptr};
}  // namespace

extern "C" Entry %(entry)s;

extern "C" __attribute__((visibility("default"))) int64_t %(name)s(
    void* arguments, int64_t first, int64_t end, void* launch, void* memory, int64_t* record) {
  return %(entry)s(arguments, first, end, launch, memory, record);
}

extern "C" __attribute__((visibility("default"))) void run_from_nativert(
    uint32_t x, uint32_t y, uint32_t z, int, void** given, void* kernel) {
  const Host host{0, nullptr, nullptr, now};
  Launch launch{x, y, z, 0, &host, nullptr, nullptr, {}};
  int64_t arguments[%(slots)d] = {}, record[5] = {};
%(reads)s
  std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(64, %(scratch)d), &std::free);
  if (!memory) throw std::bad_alloc();
  const int64_t failure = reinterpret_cast<Entry*>(kernel)(
      arguments, 0, int64_t(x) * y * z, &launch, memory.get(), record);
  std::free(launch.notes);
  if (failure) {
    const int64_t program = record[1];
    throw std::runtime_error(
        "program (" + std::to_string(program %% x) + ", " + std::to_string(program / x %% y) + ", " +
        std::to_string(program / x / y) + ") of '%(name)s' " + messages[record[2]]);
  }
}
"""
_C_FLOATS: Final = {"f32": "float", "f64": "double"}


def shared_library(kernel: CompiledKernel) -> bytes:
    """The shared library of a kernel, linked by the C++ compiler that PyTorch uses.

    Raises `TargetError` for a kernel that prints, for numbers that PyTorch passes otherwise, and where PyTorch does not
    launch shared libraries; `LaunchError` where the compiler fails, and PyTorch's error where there is none.
    """
    from ziggurat.compiler.cpu_code import code_of

    _require_wrappers()
    name = kernel.metadata.name
    code = code_of(kernel.model_to_run, name, check=False, tolerant=True, fast_math=False)
    with tempfile.TemporaryDirectory() as folder:
        source, image, library = (Path(folder) / file for file in ("launch.cpp", "kernel.o", "kernel.so"))
        source.write_text(_source(kernel, code, name))
        image.write_bytes(code.object)
        compiler = importlib.import_module("torch._inductor.cpp_builder").get_cpp_compiler()
        options = ("-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden")
        command = [compiler, *options, "-o", str(library), str(source), str(image), "-lm"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise LaunchError(f"the C++ compiler {compiler} cannot link '{name}': {ended.stderr.strip()}")
        return library.read_bytes()


def _require_wrappers() -> None:
    """Raise `TargetError` if PyTorch is writing a program that does not launch Triton's kernels on CPUs. In PyTorch
    2.13 only those of AOTInductor do, and they have no grid for kernels that Inductor itself has written."""
    virtualized = importlib.import_module("torch._inductor.virtualized")
    if isinstance(virtualized.V.graph, virtualized.NullHandler):
        return  # PyTorch is compiling nothing.
    if not virtualized.V.graph.aot_mode:
        raise TargetError(
            "PyTorch's cpp_wrapper does not launch Triton's kernels on CPUs",
            hint="compile with cpp_wrapper=False, or ahead of time: torch._inductor.aoti_compile_and_package",
        )
    if importlib.import_module("torch._inductor.config").cpu_backend == "triton":
        raise TargetError(
            "AOTInductor does not launch the Triton kernels that Inductor writes for CPUs",
            hint='torch._inductor.config.cpu_backend = "cpp": then those are C++, and the program\'s own @triton.jit '
            "kernels are ziggurat's",
        )


def _source(kernel: CompiledKernel, code: CpuCode, name: str) -> str:
    """The launcher in C++. Its arguments are those of the function, without values for constants."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise TargetError(f"'{name}' must be a name of C, as a shared library exports it")
    if any(site.verb == "prints" for site in code.sites):
        raise TargetError(
            f"'{name}' prints, which a shared library cannot do",
            hint="remove tl.device_print, or compile without cpp_wrapper and AOTInductor",
        )
    places = kernel.run_time_places
    reads = (_read(slot, number, places[slot.argument]) for number, slot in enumerate(code.parameters))
    return _SOURCE % {
        "name": name,
        "entry": code.symbol,
        "messages": ", ".join(json.dumps(failure_text(site)) for site in code.sites) or "nullptr",
        "bounds": max(1, len(code.bounds)),
        "slots": max(1, len(code.parameters)),
        "reads": "\n".join(reads),
        "scratch": max(64, -(-code.scratch // 64) * 64),
    }


def _read(slot: ArgumentSlot, number: int, place: int) -> str:
    """The statement that reads an argument: a pointer's value, or a number at an address."""
    if slot.type.startswith("ptr"):
        return f"  arguments[{number}] = reinterpret_cast<int64_t>(given[{place}]);"
    scalar: Any = SCALARS.get(slot.type)
    if scalar is None or (scalar.is_float and scalar.name not in _C_FLOATS):
        raise TargetError(
            f"argument {place} is a {slot.type}, which PyTorch does not pass to kernels of shared libraries",
            hint="pass pointers, integers and numbers of 32 or 64 bits",
        )
    if not scalar.is_float:
        return f"  std::memcpy(&arguments[{number}], given[{place}], {scalar.bytes});"
    kind, name = _C_FLOATS[scalar.name], f"number{number}"
    return (
        f"  const {kind} {name} = *static_cast<const {_float_of_wrappers()}*>(given[{place}]);\n"
        f"  std::memcpy(&arguments[{number}], &{name}, sizeof {name});"
    )


def _float_of_wrappers() -> str:
    """The type in C++ of a float that PyTorch passes: "float" in 2.13, whatever the type of the parameter is."""
    wrappers = importlib.import_module("torch._inductor.codegen.cpp_wrapper_cpu")
    parameter: str = wrappers.DeferredCpuTritonCallWrapper._get_cpp_param_type(None, "x", float)
    return parameter.split()[0]
