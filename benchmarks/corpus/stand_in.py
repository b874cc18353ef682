"""A stand-in for an H200, so that programs for a GPU can be imported, and their launches recorded, without one.

PyTorch says that it has a GPU, and tensors that a program wants there lie in the CPU's memory. Triton's driver, real
or ours, names the target that everything is compiled for. Both compilers' processes use it: constants of modules that
depend on the GPU are the same in both.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

CAPABILITY = (9, 0)
PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6144,
}


def gpu_target() -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", CAPABILITY[0] * 10 + CAPABILITY[1], 32)


class Driver:
    """The driver of the stand-in, in the place of `triton.runtime.driver.active`."""

    utils = SimpleNamespace(get_device_properties=lambda device: PROPERTIES)

    def get_current_target(self) -> Any:
        return gpu_target()

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return CAPABILITY

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        return lambda function, **_: [1.0, 1.0, 1.0]

    def get_empty_cache_for_benchmark(self) -> None:
        return None

    def clear_cache(self, cache: Any) -> None:
        pass


def set_up() -> None:
    """Let Triton and PyTorch say that the process has a GPU."""
    from triton.runtime.driver import driver

    driver.set_active(Driver())
    with contextlib.suppress(ImportError):
        _set_up_torch()


def _set_up_torch() -> None:
    import torch
    from torch.overrides import TorchFunctionMode

    facts = SimpleNamespace(
        name="NVIDIA H200", major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=141 << 30, warp_size=32,
        multi_processor_count=132, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, L2_cache_size=50 << 20,
        shared_memory_per_block=49152, gcnArchName="", uuid="",
    )  # fmt: skip
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda other: None)
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": CAPABILITY,
        "get_device_properties": facts, "get_device_name": facts.name, "synchronize": None, "empty_cache": None,
        "current_stream": stream, "default_stream": stream, "set_device": None, "is_initialized": True,
        "is_bf16_supported": True, "get_rng_state": torch.get_rng_state(), "is_current_stream_capturing": False,
        "memory_allocated": 0, "max_memory_allocated": 0, "mem_get_info": (141 << 30, 141 << 30),
        "manual_seed": None, "manual_seed_all": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, _answer=answer, **__: _answer)
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.cuda.device = torch.cuda.stream = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    torch.Tensor.is_cuda = property(lambda tensor: True)  # type: ignore[assignment]
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[assignment]

    class InMemory(TorchFunctionMode):
        """Places on the GPU stand for the CPU's memory."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            keywords = dict(kwargs or {})
            if "cuda" in str(keywords.get("device", "")):
                keywords["device"] = "cpu"
            is_place = [isinstance(value, (str, torch.device)) and str(value).startswith("cuda") for value in args]
            args = tuple("cpu" if place else value for place, value in zip(is_place, args, strict=True))
            return function(*args, **keywords)

    InMemory().__enter__()
