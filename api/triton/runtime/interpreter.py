"""`triton.runtime.interpreter`: kernels of `TRITON_INTERPRET=1` are of the class of all kernels."""

from ziggurat.triton.runtime.jit import JITFunction


class InterpretedFunction(JITFunction):
    """The class that programs ask for; a kernel knows itself whether it is interpreted."""
