"""Attention over a sequence that is divided among ranks, as an operator of PyTorch."""

from __future__ import annotations

import importlib
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError
from ziggurat.distributed import attention_kernels, kernels
from ziggurat.distributed.collectives import (
    FLOATS,
    Operator,
    Workspace,
    all_gather,
    group_of,
    reduce_scatter,
    require_tensors,
    timeout_ns,
    workspace,
)

torch: Any = importlib.import_module("torch")

_COPIERS: Final = 16  # Programs that copy keys and values beside the others: they fill a link.
_COPY_BLOCK: Final = 8192
_TILES: Final = {64: {"BM": 128, "BN": 128, "D": 64}, 128: {"BM": 128, "BN": 128, "D": 128}}
_OPTIONS: Final = {"num_warps": 8, "num_stages": 2, "warp_specialize": False}


def _sources(rank: int, world: int, causal: bool) -> list[int]:
    """The ranks whose keys and values a rank takes, in order: its own first, with `causal` none of later ranks."""
    return [(rank - step) % world for step in range(rank + 1 if causal else world)]


def _space(q: Any, k: Any, group: Any) -> Workspace | None:
    """The workspace for keys and values; None where there is no kernel for them."""
    n, d = q.shape[2:]
    is_taken = q.is_cuda and q.dtype in FLOATS and q.element_size() == 2 and d in _TILES and n % 128 == 0
    if not is_taken or q.numel() >= 1 << 31 or torch.cuda.get_device_capability(q.device)[0] != 9:
        return None
    return workspace("attention", group, k, 2 * k.numel() * k.element_size())


def _ring_attention(q: Any, k: Any, v: Any, causal: bool, scale: float, name: str) -> tuple[Any, Any]:
    group = group_of(name)
    space = _space(q, k, group)
    sources = _sources(group.rank(), group.size(), causal)
    if space is None:
        return _by_parts(q, _of_all(k, group), _of_all(v, group), sources, causal, scale)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    (batch, heads, n, _), count = q.shape, k.numel()
    team = space.team(q.dtype, block=_COPY_BLOCK)
    out, sums = torch.empty_like(q), torch.empty_like(q, dtype=torch.float32)
    lse, totals, tops = sums.new_empty((3, batch, heads, n)).unbind()
    copies = k.new_empty((2, 2, *k.shape))
    space.follow()
    programs = min(kernels.PROGRAMS, -(-count // _COPY_BLOCK))
    attention_kernels.publish[(programs,)](k, v, count, space.table, timeout_ns(), team)
    for step, following in enumerate([*sources[1:], -1]):
        attention_kernels.ring_step[(_COPIERS + batch * heads * (n // 128),)](
            q, k, v, out, lse, sums, totals, tops, batch * heads, heads // k.shape[1], n, scale, copies[step % 2],
            max(following, 0), count, space.table, team, causal and step == 0, step == 0, following < 0, _COPIERS,
            **_TILES[q.shape[3]], **_OPTIONS,
        )  # fmt: skip
        k, v = copies[step % 2]
    return out, lse


def _of_all(x: Any, group: Any) -> Any:
    """The keys or values of all ranks, (ranks, batch, heads, n, d)."""
    return all_gather(x.contiguous()[None], group)


def _shared(x: Any, q: Any) -> Any:
    """Keys or values with a head for each head of the queries."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _by_parts(q: Any, keys: Any, values: Any, sources: list[int], causal: bool, scale: float) -> tuple[Any, Any]:
    """The attention to each rank's keys and values by PyTorch, and their sums, weighted by the sums of the powers."""
    total: Any = None
    lse: Any = None
    for step, source in enumerate(sources):
        key, value, is_masked = _shared(keys[source], q), _shared(values[source], q), causal and step == 0
        if q.is_cuda:
            out, log, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
                q, key, value, 0.0, is_masked, scale=scale
            )  # fmt: skip
        else:
            attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
            out, log = attend(q, key, value, 0.0, is_masked, scale=scale)
        if total is None:
            total, lse = out.float(), log
            continue
        both = torch.logaddexp(lse, log)
        total = total * (lse - both).exp()[..., None] + out.float() * (log - both).exp()[..., None]
        lse = both
    return total.to(q.dtype).contiguous(), lse.float().contiguous()


def _backward(
    dy: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, causal: bool, scale: float, name: str
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients, by PyTorch's attention to the keys and values of each rank."""
    group = group_of(name)
    keys, values = (_of_all(x, group) for x in (k, v))
    dq = torch.zeros_like(q, dtype=torch.float32)
    dkeys, dvalues = (torch.zeros_like(x) for x in (keys, values))
    for step, source in enumerate(_sources(group.rank(), group.size(), causal)):
        key, value, is_masked = _shared(keys[source], q), _shared(values[source], q), causal and step == 0
        if q.is_cuda:
            n, seed = q.shape[2], torch.zeros(2, dtype=torch.uint64, device=q.device)
            parts = torch.ops.aten._scaled_dot_product_flash_attention_backward(
                dy, q, key, value, out, lse, None, None, n, n, 0.0, is_masked, seed, seed[0], scale=scale
            )  # fmt: skip
        else:
            attend_back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
            parts = attend_back(dy, q, key, value, out, lse, 0.0, is_masked, scale=scale)
        dq += parts[0]
        for gradients, part in ((dkeys, parts[1]), (dvalues, parts[2])):
            gradients[source] = part.unflatten(1, (k.shape[1], -1)).sum(2)
    return dq.to(q.dtype), *(reduce_scatter(x, group)[0] for x in (dkeys, dvalues))


def _fake(q: Any, k: Any, v: Any, causal: bool, scale: float, name: str) -> tuple[Any, Any]:
    return torch.empty_like(q).contiguous(), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_backward(dy: Any, q: Any, k: Any, v: Any, *more: Any) -> tuple[Any, Any, Any]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _gradients(
    dy: Any, dlse: Any, q: Any, k: Any, v: Any, causal: bool, scale: float, name: str, out: Any, lse: Any
) -> tuple[Any, ...]:  # fmt: skip
    back = torch.ops.ziggurat.ring_attention_backward
    return *back(dy, q, k, v, out, lse, causal, scale, name), None, None, None


def _no_second_gradients(*gradients: Any) -> tuple[Any, ...]:
    raise LaunchError("ring_attention has no second derivatives")


_RING_ATTENTION: Final = Operator.of(
    "ring_attention", "(Tensor q, Tensor k, Tensor v, bool causal, float scale, str group) -> (Tensor, Tensor)",
    _ring_attention, _fake, _gradients, range(8),
)  # fmt: skip
Operator.of(
    "ring_attention_backward",
    "(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool causal, float scale, str group)"
    " -> (Tensor, Tensor, Tensor)",
    _backward, _fake_backward, _no_second_gradients, [],
)  # fmt: skip


def ring_attention(
    q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None, group: Any = None
) -> Any:  # fmt: skip
    """softmax(q · kᵀ · scale) · v, where each rank has n queries, keys and values of a sequence: (batch, heads, n, d).

    Parts of the sequence are in the order of the ranks; with `causal` a query attends to no key after its own. A number
    of heads of `q` may share one of `k` and `v`. `scale` is 1 / √d by default. The keys and values of a rank are copied
    while those of the one before are worked on, by kernels for bf16 and f16 on an H100 or H200, d of 64 or 128 and n a
    multiple of 128; otherwise PyTorch attends to those of all ranks in turn, as it does for the gradients.
    Raises `LaunchError` for other shapes, or without a process group.
    """
    require_tensors("ring_attention", q, k, v)
    shapes = [tuple(x.shape) for x in (q, k, v)]
    is_good = q.ndim == k.ndim == 4 and k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[2:] == k.shape[2:]
    is_good = is_good and 0 not in (*q.shape, *k.shape) and q.shape[1] % k.shape[1] == 0
    if not is_good or len({(x.dtype, x.device) for x in (q, k, v)}) > 1:
        raise LaunchError(
            "ring_attention takes (batch, heads, n, d) of one dtype on one device, where heads of q are a multiple of "
            f"those of k and v; got {', '.join(map(str, shapes))}"
        )
    if q.is_cuda and q.element_size() != 2:
        raise LaunchError(f"ring_attention takes bf16 and f16 on a GPU; got {q.dtype}")
    return _RING_ATTENTION(group, q, k, v, bool(causal), float(q.shape[3] ** -0.5 if scale is None else scale))[0]
