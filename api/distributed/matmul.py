"""Products of matrices whose rows are on several devices, as operators of PyTorch."""

from __future__ import annotations

import importlib
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError
from ziggurat.distributed import matmul_kernels
from ziggurat.distributed.collectives import (
    FLOATS,
    Operator,
    Workspace,
    all_gather,
    check_divided,
    group_of,
    reduce_scatter,
    require_tensors,
    timeout_ns,
    workspace,
)

torch: Any = importlib.import_module("torch")

_TILE: Final = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}
_OPTIONS: Final = {"num_warps": 8, "num_stages": 4, "warp_specialize": False}
_COPIERS: Final = 16  # Programs that copy rows: they fill a link, and leave most SMs to the product.
_COPY_BLOCK: Final = 8192
_FUSED = [False]


def set_fused(fused: bool) -> None:
    """Set whether products with a collective are one kernel; they are not at first. On two H200 a collective's kernel
    before or after PyTorch's product is faster at most sizes."""
    _FUSED[0] = bool(fused)


def _space(purpose: str, group: Any, x: Any, w: Any, m: int, size: int) -> Workspace | None:
    """The workspace for a product with `m` rows of each device; None where there is no kernel for it, or none is asked
    for: tiles have rows of one device, offsets 32 bits, and rows are multiples of 16 bytes."""
    (_, k), n = x.shape, w.shape[1]
    world = group.size()
    good = _FUSED[0] and x.is_cuda and x.dtype in FLOATS and x.element_size() == 2
    good = good and x.is_contiguous() and w.is_contiguous() and m > 0 and m % _TILE["BM"] == 0
    good = good and k % 8 == 0 and n % 8 == 0 and world > 1 and world * m * max(k, n) < 1 << 31
    if not good or torch.cuda.get_device_capability(x.device)[0] != 9:
        return None
    return workspace(purpose, group, x, size)


def _programs(x: Any) -> int:
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)


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
    m, k = x.shape
    group = group_of(name)
    world, n = group.size(), w.shape[1]
    size = world * m * k * x.element_size()
    space = _space("all_gather_matmul", group, x, w, m, size)
    if space is None:
        return all_gather(x, group) @ w
    a = space.rows[:size].view(x.dtype).view(world * m, k)
    a[space.rank * m : (space.rank + 1) * m].copy_(x)
    chunk = next(rows for rows in (512, 256, 128) if m % rows == 0)
    ready = torch.zeros(world * m // chunk, dtype=torch.int64, device=x.device)
    out = x.new_empty((world * m, n))
    space.follow()
    matmul_kernels.all_gather_matmul[(_programs(x),)](
        a, w, out, ready, m, n, k, space.table, timeout_ns(),
        space.team(x.dtype, block=_COPY_BLOCK), COPIERS=_COPIERS, CHUNK=chunk, **_TILE, **_OPTIONS,
    )  # fmt: skip
    return out


def _matmul_reduce_scatter(x: Any, w: Any, name: str) -> Any:
    _check("matmul_reduce_scatter", x, w)
    group = group_of(name)
    check_divided("matmul_reduce_scatter", x, group)
    world, n = group.size(), w.shape[1]
    m, k = x.shape[0] // world, x.shape[1]
    counts, skip = -(-m // _TILE["BM"]) * -(-n // _TILE["BN"]), 8 * matmul_kernels.TILES
    space = None
    if counts <= matmul_kernels.TILES:
        space = _space("matmul_reduce_scatter", group, x, w, m, skip + world * m * n * x.element_size())
    if space is None:
        return reduce_scatter(x @ w, group)
    out = x.new_empty((m, n))
    space.follow()
    matmul_kernels.matmul_reduce_scatter[(_programs(x),)](
        x, w, out, m, n, k, space.table, timeout_ns(),
        space.team(x.dtype, skip=skip), **_TILE, **_OPTIONS,
    )  # fmt: skip
    return out


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

    `all_gather` and PyTorch's product; after `set_fused(True)` one kernel that copies the other ranks' rows and
    multiplies those that are there, for bf16 and f16 on an H100 or H200 where m is a multiple of 128, and k and n of 8.
    Raises `LaunchError` for arguments that are no matrices that can be multiplied, or without a process group.
    """
    require_tensors("all_gather_matmul", x, w)
    return _ALL_GATHER_MATMUL(group, x, w)


def matmul_reduce_scatter(x: Any, w: Any, group: Any = None) -> Any:
    """This rank's rows of the sum over all ranks of a product: (m / ranks, n) of `x` (m, k) and `w` (k, n).

    PyTorch's product and `reduce_scatter`; after `set_fused(True)` one kernel that sends each tile to its rank while it
    multiplies the next ones, under the conditions of `all_gather_matmul` for m / ranks, n and k. The products are
    rounded to the dtype before they are added.
    Raises `LaunchError` as `all_gather_matmul` does, and for rows that the ranks do not divide.
    """
    require_tensors("matmul_reduce_scatter", x, w)
    return _MATMUL_REDUCE_SCATTER(group, x, w)
