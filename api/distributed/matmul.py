"""Products of matrices whose rows are on several devices, as operators of PyTorch."""

from __future__ import annotations

import importlib
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError
from ziggurat.distributed.collectives import (
    Operator,
    all_gather,
    check_divided,
    group_of,
    reduce_scatter,
    require_tensors,
)

torch: Any = importlib.import_module("torch")


def _check(name: str, x: Any, w: Any) -> None:
    if (x.ndim, w.ndim) != (2, 2):
        raise LaunchError(f"{name} takes two matrices; got tensors with {x.ndim} and {w.ndim} axes")
    if x.shape[1] != w.shape[0] or x.dtype != w.dtype or x.device != w.device:
        raise LaunchError(
            f"{name} takes (m, k) and (k, n) of one dtype on one device; "
            f"got {tuple(x.shape)} {x.dtype} on {x.device} and {tuple(w.shape)} {w.dtype} on {w.device}"
        )


def _all_gather_matmul(x: Any, w: Any, name: str) -> Any:
    _check("all_gather_matmul", x, w)
    return all_gather(x, group_of(name)) @ w


def _matmul_reduce_scatter(x: Any, w: Any, name: str) -> Any:
    _check("matmul_reduce_scatter", x, w)
    group = group_of(name)
    check_divided("matmul_reduce_scatter", x, group)
    return reduce_scatter(x @ w, group)


def _product_of_gathered(x: Any, w: Any, group: str) -> Any:
    return x.new_empty((group_of(group).size() * x.shape[0], w.shape[1]))


def _scattered_product(x: Any, w: Any, group: str) -> Any:
    return x.new_empty((x.shape[0] // group_of(group).size(), w.shape[1]))


def _gradients_of_gathered(dy: Any, x: Any, w: Any, group: str) -> tuple[Any, Any, None]:
    dx = torch.ops.ziggurat.matmul_reduce_scatter(dy, w.T.contiguous(), group)
    return dx, torch.ops.ziggurat.all_gather(x, group).T @ dy, None


def _gradients_of_scattered(dy: Any, x: Any, w: Any, group: str) -> tuple[Any, Any, None]:
    whole = torch.ops.ziggurat.all_gather(dy, group)
    return whole @ w.T, x.T @ whole, None


_SCHEMA: Final = "(Tensor x, Tensor w, str group) -> Tensor"
_ALL_GATHER_MATMUL: Final = Operator.of(
    "all_gather_matmul", _SCHEMA, _all_gather_matmul, _product_of_gathered, _gradients_of_gathered, range(3)
)
_MATMUL_REDUCE_SCATTER: Final = Operator.of(
    "matmul_reduce_scatter", _SCHEMA, _matmul_reduce_scatter, _scattered_product, _gradients_of_scattered, range(3)
)


def all_gather_matmul(x: Any, w: Any, group: Any = None) -> Any:
    """The rows of all ranks times a matrix: (ranks · m, n) of `x` (m, k) and `w` (k, n).

    `all_gather` and PyTorch's product: on two H200, one kernel for both was slower.
    Raises `LaunchError` for arguments that are no matrices that can be multiplied, or without a process group.
    """
    require_tensors("all_gather_matmul", x, w)
    return _ALL_GATHER_MATMUL(group, x, w)


def matmul_reduce_scatter(x: Any, w: Any, group: Any = None) -> Any:
    """This rank's rows of the sum over all ranks of a product: (m / ranks, n) of `x` (m, k) and `w` (k, n).

    PyTorch's product, rounded to the dtype, and `reduce_scatter`.
    Raises `LaunchError` as `all_gather_matmul` does, and for rows that the ranks do not divide.
    """
    require_tensors("matmul_reduce_scatter", x, w)
    return _MATMUL_REDUCE_SCATTER(group, x, w)
