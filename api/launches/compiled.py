"""A compiled kernel on a GPU: launched with arguments that are checked against what it was compiled for."""

from __future__ import annotations

import functools
from typing import Any

from ziggurat.backend.cuda.arrays import device_of, reader_of, view
from ziggurat.backend.cuda.driver import Loaded
from ziggurat.backend.cuda.launch import Launcher, one_device
from ziggurat.backend.launch.arrays import is_array, number_type
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.ptx.sass import Resources, assembled, tool
from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.gpu.options import checked_option
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, i1
from ziggurat.compiler.compiled import Argument, Compiled, binary_of


class Executable:
    """Launches a `Compiled`, and says what it takes of the machine. A GPU is asked for when it is needed."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.title = compiled.title
        self._launcher = Launcher(binary_of(compiled, self.title))

    @public
    def launch(self, grid: Any, /, *arguments: Any, stream: Any = None, check: bool = False) -> None:
        """See `Compiled.__getitem__`."""
        check = checked_option("check", check)
        expected = self.compiled.arguments
        if len(arguments) != len(expected):
            listed = ", ".join(map(str, expected))
            raise LaunchError(
                f"'{self.title}' was compiled for {len(expected)} argument(s) ({listed}), got {len(arguments)}",
                hint="values that were compiled in are not given again",
            )
        devices: dict[int, str] = {}
        for number, (argument, given) in enumerate(zip(expected, arguments, strict=True)):
            name = argument.name or f"argument {number}"
            device = self._fits(argument, name, given)
            if device is not None:
                devices.setdefault(device, name)
        one_device(devices, self.title)
        self._launcher(grid, *arguments, stream=stream, check=check)

    def _fits(self, argument: Argument, name: str, given: Any) -> int | None:
        """The device of an argument, where it is an array that says so. Raises `LaunchError` for one that is not what
        the kernel was compiled for."""
        type_ = argument.type
        if type_ is None or isinstance(type_, DescriptorType):
            return self._fits_descriptor(argument, name, given)
        if isinstance(type_, PtrType):
            return self._fits_pointer(argument, type_, name, given)
        assert isinstance(type_, ScalarType)
        self._fits_number(argument, type_, name, given)
        return None

    def _fits_pointer(self, argument: Argument, type_: PtrType, name: str, given: Any) -> int | None:
        if isinstance(given, TensorDescriptor) or reader_of(given) is None:
            if is_array(given):
                raise LaunchError(
                    f"'{name}' of '{self.title}' is not on a GPU", hint="zg.to_device(array), or .cuda() of torch"
                )
            raise self._other(name, f"an array of {type_.pointee}", type(given).__name__)
        seen = view(given, name)
        if seen.element != type_.pointee:
            raise self._other(name, f"an array of {type_.pointee}", f"an array of {seen.element}")
        if seen.address % argument.divisibility:
            raise self._divided(argument, name, f"an address divisible by {argument.divisibility}", hex(seen.address))
        return device_of(seen)

    def _fits_descriptor(self, argument: Argument, name: str, given: Any) -> int | None:
        expected = "a zg.TensorDescriptor" + (f" of type {argument.type}" if argument.type is not None else "")
        if not isinstance(given, TensorDescriptor):
            raise self._other(name, expected, type(given).__name__)
        if given.host is not None:
            raise LaunchError(
                f"'{name}' of '{self.title}' describes an array that is not on a GPU",
                hint="describe an array there: zg.TensorDescriptor(zg.to_device(array), …)",
            )
        if argument.type is not None and given.type != argument.type:
            raise self._other(name, expected, f"one of type {given.type}")
        if given.row_bytes % argument.divisibility:
            raise self._divided(
                argument, name, f"rows of whole {argument.divisibility} bytes", f"rows of {given.row_bytes} bytes"
            )
        return given.device

    def _fits_number(self, argument: Argument, type_: ScalarType, name: str, given: Any) -> None:
        found = None if is_array(given) or reader_of(given) is not None else number_type(given)
        if found is None:
            raise self._other(name, f"a number of type {type_}", type(given).__name__)
        if not type_.is_float:
            if found.is_float or (type_ == i1) != (found == i1):
                raise self._other(name, f"a number of type {type_}", repr(given))
            low, high = type_.limits
            if not low <= int(given) <= high:
                raise self._other(name, f"a number of type {type_} (from {low} to {high})", str(given))
            if int(given) % argument.divisibility:
                raise self._divided(argument, name, f"a number divisible by {argument.divisibility}", str(given))

    def _other(self, name: str, expected: str, got: str) -> LaunchError:
        return LaunchError(f"'{name}' of '{self.title}' is compiled for {expected}; got {got}")

    def _divided(self, argument: Argument, name: str, expected: str, got: str) -> LaunchError:
        return LaunchError(
            f"'{name}' of '{self.title}' is compiled for {expected}; got {got}",
            hint=f"compile it for {argument.type} without zg.divisible, or give it an argument that is",
        )

    # What it takes of the machine.

    @functools.cached_property
    def _resources(self) -> Loaded | Resources:
        """The kernel as the driver has it, or else ptxas."""
        try:
            return self._launcher.loaded()
        except (LaunchError, TargetError) as error:
            if tool("ptxas") is None:
                raise LaunchError(
                    f"what '{self.title}' takes of {self.compiled.target} is said by a driver with such a GPU, or by "
                    f"ptxas, and here is neither: {error.summary}",
                    hint="pip install nvidia-cuda-nvcc",
                ) from None
            return assembled(self.compiled.ptx, self.compiled.target)[1]

    @property
    def registers(self) -> int:
        """See `Compiled.registers`."""
        return self._resources.registers

    @property
    def local_bytes(self) -> int:
        """See `Compiled.local_bytes`."""
        found = self._resources
        return found.local_bytes if isinstance(found, Loaded) else found.stack

    @property
    def max_threads(self) -> int:
        """See `Compiled.max_threads`."""
        found = self._resources
        # Code says for how many threads it is; an assembler that takes it has given them registers.
        return found.max_threads if isinstance(found, Loaded) else 32 * self.compiled.num_warps
