"""The part of Triton's C++ library that programs call: cuBLAS, here by PyTorch, which their tensors come from.

Tutorial 09 compares its kernels with it. The compiler itself (`ir`, `passes`, `llvm`) is not here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ziggurat.triton.backends.driver import torch_module

__all__ = ["nvidia"]


class CublasLt:
    """Products of matrices by cuBLAS. `workspace` is not used: PyTorch has its own."""

    def __init__(self, workspace: Any) -> None:
        self.workspace = workspace

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """Write a·bᵀ to `c`: tensors of shapes (M, K), (N, K) and (M, N), of one dtype: f16, bf16, f32 or f8."""
        torch = torch_module()
        if a.element_size() == 1:
            one = torch.ones((), device=a.device)
            torch._scaled_mm(a, b.T, one, one, out_dtype=c.dtype, out=c)
        else:
            torch.mm(a, b.T, out=c)

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """Write alpha·a·bᵀ + beta·c to `d`, of the shapes of `matmul`."""
        torch_module().addmm(c, a, b.T, beta=beta, alpha=alpha, out=d)


nvidia = SimpleNamespace(cublas=SimpleNamespace(CublasLt=CublasLt))


def __getattr__(name: str) -> Any:
    raise AttributeError(f"ziggurat has no 'triton._C.libtriton.{name}': it is Triton's C++ compiler")
