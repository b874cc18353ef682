"""The part of Triton's C++ library that programs call: cuBLAS, here by PyTorch, which their tensors come from.

Tutorial 09 compares its kernels with it. The compiler itself (`passes`, `llvm`) is not here; of `ir` there is what
PyTorch calls before it looks for the accesses of a kernel.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from ziggurat.triton import knobs
from ziggurat.triton.backends.driver import torch_module

__all__ = ["get_cache_invalidating_env_vars", "ir", "nvidia"]


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """The environment variables that are set, of those that change what kernels are compiled to."""
    return {knob.key: os.environ[knob.key] for _, _, knob in knobs.settings() if knob.is_key and knob.key in os.environ}


class CublasLt:
    """Products of matrices by cuBLAS. `workspace` is not used: PyTorch has its own."""

    def __init__(self, workspace: Any) -> None:
        self.workspace = workspace

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """Write a·bᵀ to `c`: tensors of shapes (M, K), (N, K) and (M, N), of one dtype: f16, bf16, f32 or f8."""
        torch = torch_module()
        if a.element_size() == 1:
            unit = torch.ones((), device=a.device)
            torch._scaled_mm(a, b.T, unit, unit, out_dtype=c.dtype, out=c)
        else:
            torch.mm(a, b.T, out=c)

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """Write alpha·a·bᵀ + beta·c to `d`, of the shapes of `matmul`."""
        torch_module().addmm(c, a, b.T, beta=beta, alpha=alpha, out=d)


# There is no context of MLIR to load dialects into.
ir = SimpleNamespace(context=SimpleNamespace, load_dialects=id)
nvidia = SimpleNamespace(cublas=SimpleNamespace(CublasLt=CublasLt))


def __getattr__(name: str) -> Any:
    if name == "native_specialize_impl":
        from ziggurat.triton.runtime.jit import native_specialize_impl

        return native_specialize_impl
    raise AttributeError(f"ziggurat has no 'triton._C.libtriton.{name}': it is Triton's C++ compiler")
