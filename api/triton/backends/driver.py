"""`triton.backends.driver`: the functions of a machine that programs ask for."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from ziggurat.triton.backends.compiler import GPUTarget

_CACHE_BYTES = 256 << 20


def torch_module() -> Any:
    """PyTorch, imported when the machine is first asked about."""
    return importlib.import_module("torch")


Benchmarker = Callable[..., Any]


class DriverBase:
    """The functions of a machine, which programs ask for. Those here are of a machine without a GPU."""

    @classmethod
    def is_active(cls) -> bool:
        """Whether this process can use such a machine."""
        raise NotImplementedError

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", 0, 32)

    def get_active_torch_device(self) -> Any:
        """The device of PyTorch that tensors are made on."""
        return torch_module().device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        """The address of the current stream of a device."""
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return 0, 0

    def get_device_interface(self) -> Any:
        """A module with `synchronize` and `Event`, such as `torch.cuda`."""
        raise NotImplementedError

    def get_benchmarker(self) -> Any:
        """The function that measures a call: `triton.testing.do_bench`."""
        from ziggurat.triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that is as large as the caches of a GPU; see `clear_cache`."""
        return torch_module().empty(
            _CACHE_BYTES // 4, dtype=torch_module().int32, device=self.get_active_torch_device()
        )

    def clear_cache(self, cache: Any) -> None:
        """Write the whole tensor, so that the caches hold nothing else."""
        cache.zero_()

    @functools.cached_property
    def utils(self) -> Any:
        """The functions `get_device_properties` and `load_binary`."""
        raise NotImplementedError


class GPUDriver(DriverBase):
    """The functions of a machine with a GPU."""
