"""Launches of a compiled kernel on a GPU, with arguments checked against those it was compiled for."""

from __future__ import annotations

import functools
from typing import Any

from ziggurat.backend.cuda.arrays import reader_of, view
from ziggurat.backend.cuda.driver import Loaded
from ziggurat.backend.cuda.launch import Launcher, devices_of, one_device
from ziggurat.backend.launch.arrays import is_array
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.ptx.sass import Resources, assembled, tool
from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.gpu.options import checked_option
from ziggurat.codemodel.types import PtrType
from ziggurat.compiler.compiled import Argument, Compiled, binary_of
from ziggurat.kernels.arguments import leaves
from ziggurat.launches.checked import Checked


class Executable(Checked):
    """Launches a `Compiled`, and tells its resources. A GPU is needed only for these."""

    def __init__(self, compiled: Compiled) -> None:
        super().__init__(compiled, compiled.title)
        self._launcher = Launcher(binary_of(compiled, self.title))

    @public
    def launch(self, grid: Any, /, *arguments: Any, stream: Any = None, check: bool = False) -> None:
        """See `Compiled.__getitem__`."""
        check = checked_option("check", check)
        arguments = tuple(leaves(arguments))
        names = self.check(arguments)
        one_device(devices_of(zip(names, arguments, strict=True)), self.title)
        self._launcher(grid, *arguments, stream=stream, check=check)

    def is_array(self, given: Any) -> bool:
        """Whether an argument is an array of any library, in memory or on a GPU."""
        return is_array(given) or reader_of(given) is not None

    def fits_pointer(self, argument: Argument, type_: PtrType, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is such an array on a GPU."""
        if isinstance(given, TensorDescriptor) or reader_of(given) is None:
            if is_array(given):
                raise LaunchError(
                    f"'{name}' of '{self.title}' is not on a GPU", hint="zg.to_device(array), or .cuda() of torch"
                )
            raise self.other(name, f"an array of {type_.pointee}", type(given).__name__)
        seen = view(given, name)
        if seen.element != type_.pointee:
            raise self.other(name, f"an array of {type_.pointee}", f"an array of {seen.element}")
        if seen.address % argument.divisibility:
            raise self.divided(argument, name, f"an address divisible by {argument.divisibility}", hex(seen.address))

    def fits_descriptor(self, argument: Argument, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is such a descriptor of an array on a GPU."""
        if isinstance(given, TensorDescriptor) and given.host is not None:
            raise LaunchError(
                f"'{name}' of '{self.title}' describes an array that is not on a GPU",
                hint="describe an array there: zg.TensorDescriptor(zg.to_device(array), …)",
            )
        self.fits_described(argument, name, given)

    # Resources.

    @functools.cached_property
    def _resources(self) -> Loaded | Resources:
        """The resources of the kernel from the driver, or else from ptxas."""
        try:
            return self._launcher.loaded()
        except (LaunchError, TargetError) as error:
            if tool("ptxas") is None:
                raise LaunchError(
                    f"the resources of '{self.title}' on {self.compiled.target} must come from a driver with such "
                    f"a GPU, or from ptxas; neither is here: {error.summary}",
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
        # The code states its number of threads, and ptxas has found registers for them.
        return found.max_threads if isinstance(found, Loaded) else 32 * self.compiled.num_warps
