"""Launches of a compiled kernel on a GPU, with arguments checked against those it was compiled for."""

from __future__ import annotations

import functools
from typing import Any

from ziggurat.backend.cuda.arrays import reader_of, view
from ziggurat.backend.cuda.launch import Launcher, devices_of, one_device
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.gpu.options import checked_option
from ziggurat.codemodel.types import ScalarType
from ziggurat.compiler.compiled import Compiled, binary_of
from ziggurat.launches.checked import Checked


class Executable(Checked):
    """Launches a `Compiled`, and tells its resources. A GPU is needed only for these."""

    def __init__(self, compiled: Compiled) -> None:
        super().__init__(compiled)
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
            loaded = self._launcher.loaded()
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
