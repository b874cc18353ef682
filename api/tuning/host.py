"""Tuning on this machine's CPU, for arrays in memory: native code is measured, the interpreter is not."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ziggurat.backend.cpu.runtime.loading import host
from ziggurat.backend.cpu.runtime.native import get_num_threads
from ziggurat.backend.launch.arrays import as_array, elements, is_array
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.timing import host_times
from ziggurat.codemodel.errors import LaunchError, MemoryAccessError, ZigguratError
from ziggurat.tuning.tuner import Tuner

if TYPE_CHECKING:
    from ziggurat.tuning.autotune import Config


class HostTuner(Tuner):
    """The choice of a configuration for a launch on arrays in memory. One whose blocks go beyond the arrays is left
    out: an access outside of them does no harm here."""

    unfit = (*Tuner.unfit, MemoryAccessError)

    @contextmanager
    def _measuring(self, bound: Mapping[str, Any]) -> Generator[None]:
        yield

    def _types(self, bound: Mapping[str, Any]) -> dict[str, str]:
        return {name: _type(value, name) for name, value in bound.items() if _is_tensor(value)}

    def _device(self) -> str:
        return f"{host()[0]}, {get_num_threads()} thread(s)"

    def _compiled(self, configs: Sequence[Config]) -> list[Config]:
        """The configurations that run as native code."""
        kernel, kept = self.kernel, list[Any]()
        for config in configs:
            try:
                if kernel.native.prepare(kernel.bound(self.arguments, self.keywords, config), self.keywords):
                    kept.append(config)
                else:
                    self.left_out[str(config)] = LaunchError("it is interpreted")
            except ZigguratError as error:
                self.left_out[str(config)] = error
        return kept

    def _bench(self, run: Callable[[], None]) -> float:
        tuning = self.kernel.tuning
        return float(np.median(host_times(run, tuning.warmup, tuning.rep, least=5)))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorDescriptor) or (value is not None and is_array(value))


def _type(value: Any, name: str) -> str:
    return str(value.type) if isinstance(value, TensorDescriptor) else str(elements()[as_array(value, name).dtype])
