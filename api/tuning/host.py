"""Tuning on this machine's CPU, for arrays in memory: native code is measured, the interpreter is not."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ziggurat.backend.cpu.runtime.loading import host
from ziggurat.backend.cpu.runtime.native import get_num_threads
from ziggurat.backend.launch.arrays import as_array, elements, is_array
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.errors import LaunchError, MemoryAccessError, ZigguratError
from ziggurat.tuning.keys import type_of_descriptor
from ziggurat.tuning.tuner import Tuner

if TYPE_CHECKING:
    from ziggurat.tuning.config import Config
    from ziggurat.tuning.tuned import Tuned


class HostTuner(Tuner):
    """The choice of a configuration for a launch on arrays in memory. One whose blocks go beyond the arrays is left
    out: an access outside of them does no harm here."""

    is_host = True

    def __init__(self, tuned: Tuned, *launch: Any) -> None:
        super().__init__(tuned, *launch)
        self.unfit = (*tuned.unfit, MemoryAccessError)

    @contextmanager
    def _measuring(self, bound: Mapping[str, Any]) -> Generator[None]:
        yield

    def _types(self, bound: Mapping[str, Any]) -> dict[str, str]:
        return {name: _type(value, name) for name, value in bound.items() if _is_tensor(value)}

    def _device(self) -> str:
        return f"{host()[0]}, {get_num_threads()} thread(s)"

    def _compiled(self, fitting: Mapping[str, Config]) -> dict[str, Config]:
        """The configurations that run as native code; one whose hook may change the arguments is not compiled yet."""
        for label, config in fitting.items():
            bound = self.bounds[label]
            options = {**self.keywords, **self.tuned.added(self.arguments, self.keywords, config)}
            try:
                if config.pre_hook is None and not self.kernel.native.prepare(bound, options):
                    self.left_out[label] = LaunchError("it is interpreted")
            except ZigguratError as error:
                self.left_out[label] = error
        return self._ready(fitting)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorDescriptor) or (value is not None and is_array(value))


def _type(value: Any, name: str) -> str:
    if isinstance(value, TensorDescriptor):
        return type_of_descriptor(value, name)
    return str(elements()[as_array(value, name).dtype])
