"""An all-reduce with the bias, the residual and the norm that follow it in a layer, as an operator of PyTorch."""

from __future__ import annotations

import importlib
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError
from ziggurat.distributed import kernels
from ziggurat.distributed.collectives import (
    ROUND_BYTES,
    Operator,
    all_reduce,
    group_of,
    max_one_shot,
    require_tensors,
    slots_of,
    timeout_ns,
)

torch: Any = importlib.import_module("torch")

_MAX_HIDDEN: Final = 1 << 14  # Of more elements a thread's part of a row does not fit in its registers.


def _all_reduce_norm(x: Any, bias: Any, residual: Any, weight: Any, eps: float, name: str) -> tuple[Any, Any]:
    group = group_of(name)
    hidden, itemsize = x.shape[-1], x.element_size()
    parts = [part for part in (bias, residual, weight) if part is not None]
    is_taken = hidden <= _MAX_HIDDEN and x.numel() * itemsize <= max_one_shot(group.size())
    is_taken = is_taken and all(part.is_cuda and part.is_contiguous() for part in parts)
    space = slots_of(group, x) if is_taken else None
    if space is None:
        sums = all_reduce(x, group).float()
        for part in parts[:-1]:
            sums = sums + part
        scale = (sums.square().mean(-1, keepdim=True) + eps).rsqrt()
        return (sums * scale * weight).to(x.dtype), sums.to(x.dtype)
    out, sums, rows = torch.empty_like(x), torch.empty_like(x), x.numel() // hidden
    size = kernels.SLOT_BYTES // itemsize
    chunk = min(max(1, ROUND_BYTES // (hidden * itemsize)), -(-rows // kernels.PROGRAMS))
    block = 1 << (hidden - 1).bit_length()
    space.follow()
    kernels.all_reduce_norm[(min(kernels.PROGRAMS, -(-rows // chunk)),)](
        x, bias, residual, weight, out, sums, rows, hidden, eps, chunk, space.table, timeout_ns(),
        space.team(x.dtype, size, size, block), num_warps=min(16, max(1, block // 256)),
    )  # fmt: skip
    return out, sums


def _fake(x: Any, bias: Any, residual: Any, weight: Any, eps: float, name: str) -> tuple[Any, Any]:
    return torch.empty_like(x), torch.empty_like(x)


def _gradients(
    dy: Any, dsums: Any, bias: Any, residual: Any, weight: Any, eps: float, name: str, sums: Any
) -> tuple[Any, ...]:
    values, factors = sums.float(), dy.float() * weight.float()
    scale = (values.square().mean(-1, keepdim=True) + eps).rsqrt()
    norms = values * scale
    gradient = scale * (factors - norms * (factors * norms).mean(-1, keepdim=True)) + dsums.float()
    gradient, rows = gradient.to(sums.dtype), tuple(range(dy.ndim - 1))
    dbias = None if bias is None else gradient.float().sum(rows).to(bias.dtype)
    dresidual = None if residual is None else gradient.to(residual.dtype)
    dweight = (dy.float() * norms).sum(rows).to(weight.dtype)
    return torch.ops.ziggurat.all_reduce(gradient, name), dbias, dresidual, dweight, None, None


_ALL_REDUCE_NORM: Final = Operator.of(
    "all_reduce_norm",
    "(Tensor x, Tensor? bias, Tensor? residual, Tensor weight, float eps, str group) -> (Tensor, Tensor)",
    _all_reduce_norm, _fake, _gradients, [1, 2, 3, 4, 5, 7],
)  # fmt: skip


def all_reduce_norm(
    x: Any, weight: Any, bias: Any = None, residual: Any = None, eps: float = 1e-6, group: Any = None
) -> tuple[Any, Any]:
    """The RMS norm of a sum over the ranks plus a bias and a residual, and this sum: two tensors like `x` (…, hidden).

    `weight` and `bias` have the shape (hidden,), and `residual` that of `x`; all ranks have the same. One kernel, where
    `all_reduce` is one that adds the elements of all, and `hidden` is at most 16384. The norm is of the sum in f32.
    Raises `LaunchError` for other shapes, or without a process group.
    """
    require_tensors("all_reduce_norm", x, weight, *(part for part in (bias, residual) if part is not None))
    if not x.ndim or not x.shape[-1]:
        raise LaunchError(f"all_reduce_norm takes a tensor of rows; got one of shape {tuple(x.shape)}")
    for what, part, shape in (
        ("weight", weight, x.shape[-1:]),
        ("bias", bias, x.shape[-1:]),
        ("residual", residual, x.shape),
    ):
        if part is not None and part.shape != shape:
            raise LaunchError(f"the {what} of all_reduce_norm must be {tuple(shape)}; got {tuple(part.shape)}")
    return _ALL_REDUCE_NORM(group, x, bias, residual, weight, float(eps))


def matmul_all_reduce(
    x: Any, w: Any, bias: Any = None, residual: Any = None, norm_weight: Any = None, eps: float = 1e-6,
    group: Any = None,
) -> Any:  # fmt: skip
    """The sum over the ranks of a product, (…, n) of `x` (…, k) and `w` (k, n), plus a bias and a residual.

    With `norm_weight` the result is that of `all_reduce_norm`: the norm, and the sum. The product is PyTorch's.
    Raises `LaunchError` as `all_reduce_norm` does, and for arguments that cannot be multiplied.
    """
    require_tensors("matmul_all_reduce", x, w)
    if w.ndim != 2 or not x.ndim or x.shape[-1] != w.shape[0] or x.dtype != w.dtype or x.device != w.device:
        raise LaunchError(
            "matmul_all_reduce takes (…, k) and (k, n) of one dtype on one device; "
            f"got {tuple(x.shape)} {x.dtype} on {x.device} and {tuple(w.shape)} {w.dtype} on {w.device}"
        )
    if norm_weight is not None:
        return all_reduce_norm(x @ w, norm_weight, bias, residual, eps, group)
    total = all_reduce(x @ w, group)
    for part in (bias, residual):
        total = total if part is None else total + part
    return total
