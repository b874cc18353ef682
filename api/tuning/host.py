"""Tuning on this machine's CPU, for arrays in memory: native code is measured, the interpreter is not."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ziggurat.backend.cpu.runtime.native import get_num_threads
from ziggurat.backend.jit.loading import host
from ziggurat.codemodel.errors import LaunchError, MemoryAccessError, ZigguratError
from ziggurat.tuning.tuner import Tuner

if TYPE_CHECKING:
    from ziggurat.tuning.config import Config


def host_device() -> str:
    """The name of this machine's processor with its number of threads, for records."""
    return f"{host()[0]}, {get_num_threads()} thread(s)"


class HostTuner(Tuner):
    """The choice of a configuration for a launch on arrays in memory. One whose blocks go beyond the arrays is left
    out: an access outside of them does no harm here."""

    is_host = True
    also_unfit = (MemoryAccessError,)

    @contextmanager
    def _measuring(self, bound: Mapping[str, Any]) -> Generator[None]:
        yield

    def _device(self) -> str:
        return host_device()

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
