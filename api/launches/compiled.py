"""Launches of a compiled kernel on a GPU or on this machine, whose arguments are checked first."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.cuda.arrays import reader_of, view
from ziggurat.backend.cuda.launch import Launcher, devices_of, one_device
from ziggurat.backend.launch.arrays import address, as_array, elements, is_array, number_type, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.grids import computed_grid, padded, sizes_of
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.gpu.options import checked_option
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, i1
from ziggurat.compiler.compiled import Argument, Compiled, binary_of
from ziggurat.compiler.native import CompiledCpu
from ziggurat.kernels.arguments import leaves


class Checked:
    """A compiled kernel, and the checks of its arguments. A subclass runs it, and says which arrays it can reach."""

    def __init__(self, compiled: Compiled | CompiledCpu) -> None:
        self.arguments = compiled.arguments
        self.title = compiled.title
        self.names = [argument.name or f"argument {number}" for number, argument in enumerate(self.arguments)]

    def view(self, name: str, array: Any) -> tuple[ScalarType, int]:
        """The element type and the address of an array. Raises `LaunchError` for one that the kernel cannot reach."""
        raise NotImplementedError

    def check_place(self, name: str, descriptor: TensorDescriptor) -> None:
        """Raise `LaunchError` for a descriptor of an array that the kernel cannot reach."""
        raise NotImplementedError

    def checked(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The arguments in order, with the components of tuples in their places.

        Raises `LaunchError` for an argument that the kernel was not compiled for.
        """
        given = list(leaves(arguments))
        bound, count = dict(zip(self.names, given, strict=False)), len(given)
        takes = ", ".join(map(str, self.arguments))
        for name, value in keywords.items():
            parts = [part for part in self.names if part.partition("[")[0] == name]
            if not parts:
                raise LaunchError(f"'{self.title}' has no run-time argument '{name}'", hint=f"it takes {takes}")
            if parts[0] in bound:
                raise LaunchError(f"'{self.title}' got '{name}' twice", hint=f"it takes {takes}")
            values = list(leaves([value]))
            bound.update(zip(parts, values, strict=False))
            count += len(values)
        if not count == len(bound) == len(self.names):
            raise LaunchError(
                f"'{self.title}' takes {len(self.names)} argument(s) ({takes}); got {count}",
                hint="leave out values that were compiled in",
            )
        for argument, name in zip(self.arguments, self.names, strict=True):
            self._check(argument, name, bound[name])
        return [bound[name] for name in self.names]

    def _check(self, argument: Argument, name: str, given: Any) -> None:
        """Raise `LaunchError` unless an argument has its type, and is divisible as the kernel relies on."""
        type_, by = argument.type, argument.divisibility
        if type_ is None or isinstance(type_, DescriptorType):
            if not isinstance(given, TensorDescriptor):
                of = f" of type {type_}" if type_ is not None else ""
                raise self._other(name, f"a zg.TensorDescriptor{of}", type(given).__name__)
            if type_ not in (None, given.type):
                raise self._other(name, f"a zg.TensorDescriptor of type {type_}", f"one of type {given.type}")
            self.check_place(name, given)
            number, expected, got = given.row_bytes, f"rows of whole {by} bytes", f"rows of {given.row_bytes} bytes"
        elif isinstance(type_, PtrType):
            if isinstance(given, TensorDescriptor) or not (is_array(given) or on_gpu(given)):
                raise self._other(name, f"an array of {type_.pointee}", type(given).__name__)
            element, number = self.view(name, given)
            if element != type_.pointee:
                raise self._other(name, f"an array of {type_.pointee}", f"an array of {element}")
            expected, got = f"an address divisible by {by}", hex(number)
        else:
            assert isinstance(type_, ScalarType)
            found = number_type(given)
            if found is None:
                raise self._other(name, f"a number of type {type_}", type(given).__name__)
            if type_.is_float:
                return
            if found.is_float or (type_ == i1) != (found == i1):
                raise self._other(name, f"a number of type {type_}", repr(given))
            (low, high), number = type_.limits, int(given)
            if not low <= number <= high:
                raise self._other(name, f"a number of type {type_} (from {low} to {high})", str(given))
            expected, got = f"a number divisible by {by}", str(given)
        if number % by:
            hint = f"compile it for {type_} without zg.divisible, or give it an argument that is"
            raise self._other(name, expected, got, hint)

    def _other(self, name: str, expected: str, got: str, hint: str | None = None) -> LaunchError:
        return LaunchError(f"'{name}' of '{self.title}' is compiled for {expected}; got {got}", hint=hint)


class OnHost(Checked):
    """The checks of a kernel that runs on arrays in memory."""

    def view(self, name: str, array: Any) -> tuple[ScalarType, int]:
        seen = as_array(array, name)
        return elements()[seen.dtype], address(seen)

    def check_place(self, name: str, descriptor: TensorDescriptor) -> None:
        if descriptor.host is None:
            raise LaunchError(
                f"'{name}' of '{self.title}' must describe an array in memory; got one on a GPU",
                hint="describe a copy of the array in memory",
            )


class HostExecutable(OnHost):
    """Launches a `CompiledCpu`."""

    def __init__(self, compiled: CompiledCpu) -> None:
        super().__init__(compiled)
        self._model = compiled.above.get("triton") or compiled.cpu
        self._kernel = NativeKernel(compiled.code, self.title, compiled.above.get("triton"))

    @public
    def launch(self, grid: Any, /, *arguments: Any, **keywords: Any) -> None:
        """See `CompiledCpu.__getitem__`."""
        given = [as_array(one, "array") if is_array(one) else one for one in self.checked(arguments, keywords)]
        sizes = padded(sizes_of(computed_grid(grid, self.title, {}) if callable(grid) else grid, self.title))
        if 0 not in sizes:
            with no_faults("running", lambda: self._model, self.title):
                self._kernel.launch(sizes, self.names, given)


class Executable(Checked):
    """Launches a `Compiled`, and tells its resources. A GPU is needed only for these."""

    def __init__(self, compiled: Compiled) -> None:
        super().__init__(compiled)
        self.compiled = compiled
        self._launcher = Launcher(binary_of(compiled, self.title))

    @public
    def launch(self, grid: Any, /, *arguments: Any, stream: Any = None, check: bool = False, **keywords: Any) -> None:
        """See `Compiled.__getitem__`."""
        check = checked_option("check", check)
        given = self.checked(arguments, keywords)
        one_device(devices_of(zip(self.names, given, strict=True)), self.title)
        self._launcher(grid, *given, stream=stream, check=check)

    def view(self, name: str, array: Any) -> tuple[ScalarType, int]:
        if reader_of(array) is None:
            raise LaunchError(
                f"'{name}' of '{self.title}' must be an array on a GPU",
                hint="copy it there: zg.to_device(array), or .cuda() of torch; or run the kernel without a GPU: "
                "compiled.simulate[grid](…)",
            )
        seen = view(array, name)
        return seen.element, seen.address

    def check_place(self, name: str, descriptor: TensorDescriptor) -> None:
        if descriptor.host is not None:
            raise LaunchError(
                f"'{name}' of '{self.title}' must describe an array on a GPU",
                hint="describe an array there: zg.TensorDescriptor(zg.to_device(array), …)",
            )

    @functools.cached_property
    def resources(self) -> tuple[int, int, int]:
        """Registers and bytes of local memory of a thread, and the largest number of threads of a CTA.

        They are from the driver, or else from ptxas.
        """
        try:
            loaded = self._launcher.in_context()
            return loaded.registers, loaded.local_bytes, loaded.max_threads
        except (LaunchError, TargetError) as error:
            if tool("ptxas") is None:
                raise LaunchError(
                    f"the resources of '{self.title}' on {self.compiled.target} must come from a driver with such "
                    f"a GPU, or from ptxas; neither is here: {error.summary}",
                    hint="pip install nvidia-cuda-nvcc",
                ) from None
            found = assembled(self.compiled.ptx, self.compiled.target)[1]
            # The code states its number of threads, and ptxas has found registers for them.
            return found.registers, found.stack, 32 * self.compiled.num_warps
