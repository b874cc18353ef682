"""`triton.runtime`: kernels on the host, their tuning, and the machine that they run on."""

from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.errors import InterpreterError, OutOfResources
from ziggurat.triton.runtime.jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, reinterpret

__all__ = [
    "InterpreterError", "JITFunction", "KernelInterface", "MockTensor", "OutOfResources", "TensorWrapper", "driver",
    "reinterpret",
]  # fmt: skip
