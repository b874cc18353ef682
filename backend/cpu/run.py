"""Run a compiled kernel on NumPy arrays on the calling thread: what `backend/reference/run.py` does, natively."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np

from ziggurat.backend.cpu.compile import HOST, CpuCode, CpuOptions, Parameter, compile_cpu
from ziggurat.backend.cpu.errors import Argument, Array, error_of
from ziggurat.backend.cpu.prints import printed
from ziggurat.backend.launch import regions
from ziggurat.backend.launch.arrays import address
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.scalars import array_of
from ziggurat.codemodel.types import SCALARS

_names = itertools.count()
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class Loaded:
    """The code of a kernel in this process. It is unloaded with this object."""

    def __init__(self, code: CpuCode) -> None:
        llvm: Any = import_module("llvmlite.binding")
        self.code = code
        builder: Any = llvm.JITLibraryBuilder()
        builder.add_object_img(code.object).export_symbol(code.symbol).add_current_process()
        self._tracker: Any = builder.link(_jit(), f"{code.symbol}.{next(_names)}")
        arguments = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3]
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(self._tracker[code.symbol])


_made: list[Any] = []


def _jit() -> Any:
    llvm: Any = import_module("llvmlite.binding")
    if not _made:
        _made.append(llvm.create_lljit_compiler())
    return _made[0]


def run_cpu(
    model: core.Module,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    *,
    names: Sequence[str] | None = None,
    options: CpuOptions = HOST,
) -> CpuCode:
    """Compile the kernel of a Triton model, and run it once for each program of a grid, in order, on this thread.

    There is one argument for each parameter: a NumPy array, a `TensorDescriptor` of one, or a number. Raises the errors
    of `backend/reference/run.run`, whose result is the same.
    """
    code = compile_cpu(model, options)
    launch(Loaded(code), grid, arguments, names)
    return code


def launch(loaded: Loaded, grid: tuple[int, ...], arguments: Sequence[Any], names: Sequence[str] | None = None) -> None:
    """Run loaded code once for each program of a grid, in order, on this thread."""
    code = loaded.code
    names = names or [f"arg{number}" for number in range(len(arguments))]
    x, y, z = (*grid, 1, 1)[:3]
    hosts: dict[int, Array] = {}
    for number, value in enumerate(arguments):
        if isinstance(value, TensorDescriptor):
            assert value.host is not None
            hosts[number] = value.host
        elif isinstance(value, np.ndarray):
            hosts[number] = value
    found = [Argument(number, names[number], array) for number, array in hosts.items()]
    slots = np.zeros(max(len(code.parameters), 1), np.int64)
    for number, parameter in enumerate(code.parameters):
        raw = _slot(parameter, arguments[parameter.argument], hosts)
        slots[number : number + 1].view(np.uint8)[: len(raw)] = np.frombuffer(raw, np.uint8)
    header = np.zeros(3 + 3 * len(code.bounds), np.int64)
    header.view(np.int32)[:3] = (x, y, z)
    for number, argument in enumerate(code.bounds):
        header[3 + 3 * number : 6 + 3 * number] = _bounds(argument, hosts)

    def call(site: int, program: int, data: int) -> int:
        return printed(code, site, program, data, (x, y, z))

    kept = CALLBACK(call)
    header[2] = ctypes.cast(kept, ctypes.c_void_p).value or 0
    scratch = np.empty(code.scratch + 128, np.uint8)
    start = -(-scratch.ctypes.data // 64) * 64
    record = np.zeros(8, np.int64)
    status = loaded.entry(slots.ctypes.data, 0, x * y * z, header.ctypes.data, start, record.ctypes.data)
    if status:
        raise error_of(code, record.tolist(), (x, y, z), found)


def _slot(parameter: Parameter, value: Any, hosts: dict[int, Array]) -> bytes:
    if parameter.type.startswith("ptr"):
        return address(hosts[parameter.argument]).to_bytes(8, "little")
    if isinstance(value, TensorDescriptor):
        kind, axis = parameter.part[:-1], int(parameter.part[-1])
        part = value.shape[axis] if kind == "shape" else value.strides[axis]
        return int(part).to_bytes(4 if kind == "shape" else 8, "little", signed=True)
    scalar = SCALARS[parameter.type]
    is_plain = isinstance(value, np.number | np.bool_)
    if isinstance(value, np.generic):  # bf16 and the 8-bit floats are not plain.
        value = cast(Any, value).item() if is_plain else float(cast(Any, value))
    return array_of(value, scalar).tobytes()


def _bounds(number: int, hosts: dict[int, Array]) -> tuple[int, int, int]:
    """The span of all arrays that share memory with an array, and whether one of them may be written."""
    keys = list(hosts)
    groups = regions.grouped([hosts[key] for key in keys], views=True)
    group = next(group for group in groups if keys.index(number) in group)
    arrays = [hosts[keys[at]] for at in group]
    spans = [regions.span(array) for array in arrays]
    writable = any(array.flags.writeable for array in arrays)
    return min(low for low, _ in spans), max(high for _, high in spans), int(writable)
