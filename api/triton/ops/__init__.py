"""`triton.ops` of Triton 2.1 to 3.1, whose functions are PyTorch's here."""

from __future__ import annotations

from typing import Any

from ziggurat.triton.backends.driver import torch_module
from ziggurat.triton.ops import blocksparse as blocksparse


def get_higher_dtype(a: Any, b: Any) -> Any:
    """The dtype of a product of tensors of two dtypes: the wider one, and bfloat16 or float16 of 8-bit floats."""
    torch = torch_module()
    a, b = (torch.float16 if dtype.itemsize == 1 and dtype.is_floating_point else dtype for dtype in (a, b))
    return torch.promote_types(a, b)


def matmul(
    a: Any, b: Any, acc_dtype: Any = None, input_precision: Any = None, fp8_fast_accum: bool = True,
    output_dtype: Any = None,
) -> Any:  # fmt: skip
    """The product of two matrices. It adds in f32, or in i32, whatever the other parameters say."""
    torch = torch_module()
    dtype = get_higher_dtype(a.dtype, b.dtype)
    wide = dtype if dtype.is_floating_point else torch.int32
    product = a.to(wide) @ b.to(wide)
    return product.to(dtype if output_dtype is None else output_dtype)


def cross_entropy(logits: Any, indices: Any) -> Any:
    """The cross entropy of each row of `logits`."""
    rows = logits.reshape(-1, logits.shape[-1])
    losses = torch_module().nn.functional.cross_entropy(rows, indices.reshape(-1), reduction="none")
    return losses.reshape(indices.shape)


def attention(q: Any, k: Any, v: Any, causal: bool, sm_scale: float, sequence_parallel: bool = False) -> Any:
    """Attention, with gradients. `sequence_parallel` has no effect: it chose how the programs divide the work."""
    return torch_module().nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=sm_scale)


__all__ = ["attention", "blocksparse", "cross_entropy", "get_higher_dtype", "matmul"]
