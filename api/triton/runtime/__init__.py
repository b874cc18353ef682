"""`triton.runtime`: kernels on the host, their tuning, and the machine that they run on."""

from ziggurat.triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from ziggurat.triton.runtime.cache import RemoteCacheBackend
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.errors import InterpreterError, OutOfResources
from ziggurat.triton.runtime.jit import JITFunction, KernelInterface
from ziggurat.triton.runtime.tensors import MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Autotuner", "Config", "Heuristics", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor",
    "OutOfResources", "RemoteCacheBackend", "TensorWrapper", "autotune", "driver", "heuristics", "reinterpret",
]  # fmt: skip
