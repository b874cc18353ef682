"""`triton.runtime.driver.active`: the machine that kernels run on, a GPU or this one."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ziggurat.codemodel.errors import LaunchError
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.backends.driver import DriverBase, torch_module
from ziggurat.triton.runtime import descriptor_memory


def _cuda() -> Any:
    """CUDA's driver, imported where a GPU is asked about."""
    from ziggurat.backend.devices import driver

    return driver


class CudaDriver(DriverBase):
    """An NVIDIA GPU."""

    @classmethod
    def is_active(cls) -> bool:
        return _has_gpu()

    def get_current_target(self) -> GPUTarget:
        major, minor = self.get_device_capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_active_torch_device(self) -> Any:
        return torch_module().device("cuda", self.get_current_device())

    def get_current_device(self) -> int:
        torch = sys.modules.get("torch")
        return int(torch.cuda.current_device()) if torch is not None else _cuda().current_device().number

    def set_current_device(self, device: int) -> None:
        torch_module().cuda.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        torch = sys.modules.get("torch")
        return int(torch.cuda.current_stream(device).cuda_stream) if torch is not None else _cuda().own_stream()

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return _cuda().Device(self.get_current_device() if device is None else device).capability

    def get_device_interface(self) -> Any:
        return torch_module().cuda

    @functools.cached_property
    def utils(self) -> Any:
        return _utils(_device_properties)


class HostDriver(DriverBase):
    """A machine without a GPU: kernels run on its CPU."""

    @classmethod
    def is_active(cls) -> bool:
        return not _has_gpu()

    def get_device_interface(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None, Event=HostEvent, current_device=self.get_current_device)

    @functools.cached_property
    def utils(self) -> Any:
        return _utils(_host_properties)


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
    properties = _cuda().Device(device)
    return {name: properties.attribute(attribute) for name, attribute in _PROPERTIES.items()}


def _host_properties(device: int) -> dict[str, int]:
    return dict(_H100)


def _utils(device_properties: Callable[[int], dict[str, int]]) -> SimpleNamespace:
    """The functions of a machine: `driver.active.utils`."""
    return SimpleNamespace(
        get_device_properties=device_properties,
        fill_1d_tma_descriptor=descriptor_memory.fill_1d_tma_descriptor,
        fill_2d_tma_descriptor=descriptor_memory.fill_2d_tma_descriptor,
    )


def _has_gpu() -> bool:
    """Whether there is a GPU, for PyTorch if the program uses it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.cuda.is_available()
    try:
        return _cuda().device_count() > 0
    except LaunchError:
        return False


class DriverConfig:
    """The driver in use, chosen at the first use: that of a GPU if there is one."""

    @property
    def _default(self) -> DriverBase | None:
        """The default, None before its first use: Triton's name."""
        return self.__dict__.get("default")

    @property
    def _active(self) -> DriverBase | None:
        return self.__dict__.get("active")

    @functools.cached_property
    def default(self) -> DriverBase:
        return CudaDriver() if _has_gpu() else HostDriver()

    @functools.cached_property
    def active(self) -> DriverBase:
        return self.default

    @property
    def utils(self) -> Any:
        """The functions of the machine, under the name of Triton 2."""
        return self.active.utils

    def set_active(self, driver: DriverBase) -> None:
        self.active = driver

    def reset_active(self) -> None:
        self.active = self.default


driver = DriverConfig()
