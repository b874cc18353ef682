"""Compiled kernels that this process can run: on arrays in memory, by the threads of `native.py`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import numpy as np

from ziggurat.backend.cpu.code import BOUND, HEAD, ArgumentSlot, CpuCode
from ziggurat.backend.cpu.runtime.native import native
from ziggurat.backend.cpu.sites import STRAY, Site
from ziggurat.backend.jit import jitdump
from ziggurat.backend.jit.loading import LinkedObject, debug_folder
from ziggurat.backend.jit.objects import StoredObject
from ziggurat.backend.launch import regions
from ziggurat.backend.launch.arrays import address, whole
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.grids import MAX_SIZE
from ziggurat.backend.reference.argument_memory import ArrayArgument
from ziggurat.codemodel.errors import ForeignError, KernelRuntimeError, LaunchError, ResourceError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.scalars import array_of
from ziggurat.codemodel.types import SCALARS

Array = np.ndarray[Any, np.dtype[Any]]


class NativeKernel:
    """A kernel whose code is loaded. `name` is the kernel's, for messages; by its Triton model errors are explained.
    All memory that an array is a view of is the argument's if the kernel is tolerant."""

    def __init__(self, code: CpuCode, name: str, model: Op | None = None) -> None:
        self.code, self.name, self.model = code, name, model
        self._loaded = LinkedObject(code.object, [code.symbol])
        (self.entry,) = self._loaded.addresses.values()
        if debug_folder():
            jitdump.write(code.object, code.symbol, self.entry)
        self.prints = any(site.verb == "prints" for site in code.sites)
        self.waits = any(site.verb == "waits" for site in code.sites)  # Programs may wait for others.

    def launch(
        self, grid: tuple[int, int, int], names: Sequence[str], values: Sequence[Any],
        run: Callable[..., Sequence[int]] | None = None,
    ) -> None:  # fmt: skip
        """Run the kernel once for each program of a grid, by `Native.run` or another such function. There is a NumPy
        array, a `TensorDescriptor` of one, or a number for each run-time argument.

        Raises `LaunchError` for arrays that are not aligned and for grids that are too large, the errors of programs,
        in the words of the interpreter, and `ForeignError` with that of a handler of a signal or of Python's output.
        """
        total = number_of_programs(grid, self.name)
        code = self.code
        arrays = {number: value for number, value in enumerate(map(_host, values)) if value is not None}
        for number, array in arrays.items():
            regions.check_aligned(array, names[number])
        memories = {number: whole(array) for number, array in arrays.items()} if self.code.tolerant else arrays
        slots = b"".join(_slot(parameter, values[parameter.argument], arrays) for parameter in code.parameters)
        printer = self._printer(grid) if self.prints else None
        bounds = b"".join(BOUND.packer.pack(*bound) for bound in _bounds(code.bounds, memories))
        head = HEAD.pack(*grid, 0, 0, id(printer) if printer is not None else 0, 0)
        launch = ctypes.create_string_buffer(head + bounds)
        place = ctypes.addressof(launch)
        try:
            run = run or native().run
            record = run(self.entry, _address(slots), total, place, code.scratch, ordered=code.ordered)
        except Exception as error:
            raise ForeignError(error) from error
        finally:
            strays = self.strays(HEAD.unpack_from(launch)[-1])
        self.warn(strays, grid, names, values)
        if record[0]:
            raise self.error(record, grid, names, values)

    def error(
        self, record: Sequence[int], grid: tuple[int, int, int], names: Sequence[str], values: Sequence[Any]
    ) -> ZigguratError:
        """The error of a launch that left this record."""
        if record[0] == -1:
            return KernelRuntimeError(f"a thread that ran programs of '{self.name}' has ended in the middle of them")
        if record[0] == -2:
            return ResourceError(f"'{self.name}' needs {self.code.scratch} bytes of memory for each of its threads")
        from ziggurat.backend.cpu.error_records import error_of
        from ziggurat.backend.reference.run import explained

        error = error_of(self.code, record, grid, _given(names, values))
        if record[0] != STRAY or self.code.tolerant or self.model is None:
            return error
        return explained(error, record[1], self.model, grid, values, names)

    def strays(self, notes: int) -> list[tuple[int, ...]]:
        """The records of what a tolerant launch has left out, from its notes, an address, which are freed; or 0."""
        if not notes:
            return []
        numbers = (ctypes.c_int64 * (3 * len(self.code.sites))).from_address(notes)[:]
        native().free(notes)
        rows = enumerate(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
        return [(0, after - 1, site, address, value) for site, (after, address, value) in rows if after]

    def warn(
        self, strays: Sequence[tuple[int, ...]], grid: tuple[int, int, int], names: Sequence[str], values: Sequence[Any]
    ) -> None:
        """Warn of what a tolerant launch has left out, once for each place in the kernel."""
        from ziggurat.backend.cpu.error_records import warn_of

        for record in strays:
            warn_of(self.code, record, grid, _given(names, values))

    def _printer(self, grid: tuple[int, int, int]) -> Callable[[int, int, int], None]:
        """The function that native code calls with what is to be printed."""
        from ziggurat.backend.cpu.prints import printed

        def call(site: int, program: int, data: int) -> None:
            printed(self.code, site, program, data, grid)

        return call


def _given(names: Sequence[str], values: Sequence[Any]) -> list[ArrayArgument]:
    """The arrays among run-time arguments."""
    arrays = enumerate(map(_host, values))
    return [ArrayArgument(number, names[number], array) for number, array in arrays if array is not None]


def number_of_programs(grid: tuple[int, int, int], name: str) -> int:
    """The number of programs of a grid. Raises `LaunchError` for one with 2^31 or more."""
    total = grid[0] * grid[1] * grid[2]
    if total > MAX_SIZE:
        raise LaunchError(f"the grid of '{name}' must have at most {MAX_SIZE} programs; {grid} has {total}")
    return total


def _host(value: Any) -> Array | None:
    """The array of a run-time argument; None for a number."""
    if isinstance(value, TensorDescriptor):
        return value.host
    return value if isinstance(value, np.ndarray) else None  # pyright: ignore[reportUnknownVariableType]


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def _slot(parameter: ArgumentSlot, value: Any, arrays: dict[int, Array]) -> bytes:
    """The 8 bytes of an argument, or of the part of a descriptor."""
    if parameter.type.startswith("ptr"):
        return address(arrays[parameter.argument]).to_bytes(8, "little")
    if parameter.type.startswith("descriptor"):  # Nothing uses it.
        return bytes(8)
    if isinstance(value, TensorDescriptor):
        part, axis = parameter.part[:-1], int(parameter.part[-1])
        return int((value.shape if part == "shape" else value.strides)[axis]).to_bytes(8, "little", signed=True)
    if isinstance(value, np.generic):
        is_plain = isinstance(value, np.number | np.bool_)  # bf16 and the 8-bit floats are not.
        value = cast(Any, value.item() if is_plain else float(cast(Any, value)))  # pyright: ignore[reportUnknownMemberType]
    return array_of(value, SCALARS[parameter.type]).tobytes().ljust(8, b"\0")


def _bounds(numbers: Sequence[int], arrays: dict[int, Array]) -> list[tuple[int, int, bool]]:
    """For each of these arguments the span of all arrays that share memory with it, and whether one may be written."""
    order = list(arrays)
    bounds: dict[int, tuple[int, int, bool]] = {}
    for group in regions.grouped([*arrays.values()], views=True):
        members = [arrays[order[place]] for place in group]
        spans = [regions.span(array) for array in members]
        span = min(low for low, _ in spans), max(high for _, high in spans), any(a.flags.writeable for a in members)
        bounds |= {order[place]: span for place in group}
    return [bounds[number] for number in numbers]


def stored(code: CpuCode, name: str) -> StoredObject:
    """A compiled kernel as the cache on disk keeps it: without the texts of its stages."""
    facts = attrs.asdict(code, filter=attrs.filters.exclude("object", "llvm", "model"))
    return StoredObject(name, code.cpu, code.object, facts)


def restored(stored_object: StoredObject) -> CpuCode:
    """The compiled kernel that `stored` gave. Raises `ValueError` for facts of another kind."""
    try:
        facts = dict(stored_object.facts)
        parameters = tuple(ArgumentSlot(**parameter) for parameter in facts.pop("parameters"))
        sites = tuple(map(_site, facts.pop("sites")))
        bounds = tuple(facts.pop("bounds"))
        return CpuCode(
            object=stored_object.image, llvm="", model="", parameters=parameters, sites=sites, bounds=bounds, **facts
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"these are not the facts of a kernel: {error}") from None


def _site(attributes: Any) -> Site:
    """A site whose tuples were read as lists."""
    fields: dict[str, Any] = {name: _tuple(value) for name, value in attributes.items()}
    fields["location"] = _location(attributes["location"])
    return Site(**fields)


def _tuple(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _location(attributes: Any) -> Location | None:
    if attributes is None:
        return None
    fields: dict[str, Any] = {**attributes, "caller": _location(attributes["caller"])}
    return Location(**fields)
