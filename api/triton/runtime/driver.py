"""`triton.runtime.driver.active`: the machine that kernels run on, a GPU or this one."""

from __future__ import annotations

import functools
import importlib
import time
from types import SimpleNamespace
from typing import Any

from ziggurat.triton.backends.compiler import GPUTarget

_CACHE_BYTES = 256 << 20


class DriverBase:
    """The functions of a machine. The current device and its stream are those of PyTorch."""

    def get_current_target(self) -> GPUTarget:
        raise NotImplementedError

    def get_active_torch_device(self) -> Any:
        """The device of PyTorch that tensors are made on."""
        raise NotImplementedError

    def get_current_device(self) -> int:
        raise NotImplementedError

    def set_current_device(self, device: int) -> None:
        raise NotImplementedError

    def get_current_stream(self, device: int | None = None) -> int:
        """The address of the current stream of a device."""
        raise NotImplementedError

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        raise NotImplementedError

    def get_device_interface(self) -> Any:
        """A module with `synchronize` and `Event`, such as `torch.cuda`."""
        raise NotImplementedError

    def get_benchmarker(self) -> Any:
        """The function that measures a call: `triton.testing.do_bench`."""
        from ziggurat.triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that is as large as the caches of a GPU; see `clear_cache`."""
        return _torch().empty(_CACHE_BYTES // 4, dtype=_torch().int32, device=self.get_active_torch_device())

    def clear_cache(self, cache: Any) -> None:
        """Write the whole tensor, so that the caches hold nothing else."""
        cache.zero_()

    @functools.cached_property
    def utils(self) -> Any:
        """The functions `get_device_properties` and `load_binary`."""
        raise NotImplementedError


class CudaDriver(DriverBase):
    """An NVIDIA GPU."""

    def get_current_target(self) -> GPUTarget:
        major, minor = self.get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_active_torch_device(self) -> Any:
        return _torch().device("cuda", self.get_current_device())

    def get_current_device(self) -> int:
        return int(_torch().cuda.current_device())

    def set_current_device(self, device: int) -> None:
        _torch().cuda.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        return int(_torch().cuda.current_stream(device).cuda_stream)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return _torch().cuda.get_device_capability(device)

    def get_device_interface(self) -> Any:
        return _torch().cuda

    @functools.cached_property
    def utils(self) -> Any:
        return SimpleNamespace(get_device_properties=_device_properties)


class HostDriver(DriverBase):
    """A machine without a GPU: kernels run on the reference interpreter."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        return _torch().device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return 0, 0

    def get_device_interface(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None, Event=HostEvent, current_device=self.get_current_device)

    @functools.cached_property
    def utils(self) -> Any:
        return SimpleNamespace(get_device_properties=_host_properties)


class HostEvent:
    """A point in time on this machine, as `torch.cuda.Event` is one on a GPU."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: HostEvent) -> float:
        """The milliseconds to another event."""
        return 1e3 * (end.time - self.time)


# The properties that programs ask for, with the attributes of the driver that have them. Clock rates are in kHz.
_PROPERTIES = {
    "max_shared_mem": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "max_num_regs": "MAX_REGISTERS_PER_BLOCK",
    "multiprocessor_count": "MULTIPROCESSOR_COUNT",
    "warpSize": "WARP_SIZE",
    "sm_clock_rate": "CLOCK_RATE",
    "mem_clock_rate": "MEMORY_CLOCK_RATE",
    "mem_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
}
# Those of an H100, for programs that plan with them on a machine without a GPU.
_H100 = dict(zip(_PROPERTIES, (232448, 65536, 132, 32, 1980000, 2619000, 5120), strict=True))


def _device_properties(device: int) -> dict[str, int]:
    """The properties of a GPU by the names that Triton gives them."""
    from ziggurat.backend.cuda import driver

    with driver.on_device(device):
        found = driver.current_device()
        return {name: int(found.attribute(attribute)) for name, attribute in _PROPERTIES.items()}


def _host_properties(device: int) -> dict[str, int]:
    return dict(_H100)


def _torch() -> Any:
    return importlib.import_module("torch")


class DriverConfig:
    """The driver in use. It is chosen at the first use: that of a GPU if PyTorch finds one."""

    def __init__(self) -> None:
        self._active: DriverBase | None = None

    @functools.cached_property
    def default(self) -> DriverBase:
        return CudaDriver() if _torch().cuda.is_available() else HostDriver()

    @property
    def active(self) -> DriverBase:
        if self._active is None:
            self._active = self.default
        return self._active

    def set_active(self, driver: DriverBase) -> None:
        self._active = driver

    def reset_active(self) -> None:
        self._active = None


driver = DriverConfig()
