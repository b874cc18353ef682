"""`triton.runtime`: kernels on the host, their tuning, and the machine that they run on."""

from typing import TYPE_CHECKING

from ziggurat.lazy import lazily
from ziggurat.triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.interface import KernelInterface
from ziggurat.triton.runtime.jit import JITFunction
from ziggurat.triton.runtime.tensors import MockTensor, TensorWrapper, reinterpret

if TYPE_CHECKING:
    from ziggurat.triton.runtime.cache import RemoteCacheBackend
    from ziggurat.triton.runtime.errors import InterpreterError, OutOfResources

__getattr__, __dir__ = lazily(
    __name__,
    ("cache", "errors", "interpreter"),
    {"cache": ("RemoteCacheBackend",), "errors": ("InterpreterError", "OutOfResources")},
)

__all__ = [
    "Autotuner", "Config", "Heuristics", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor",
    "OutOfResources", "RemoteCacheBackend", "TensorWrapper", "autotune", "driver", "heuristics", "reinterpret",
]  # fmt: skip
