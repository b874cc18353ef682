"""Tokens of a mixture of experts that is divided among ranks, as operators of PyTorch."""

from __future__ import annotations

import importlib
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.distributed import kernels, token_kernels
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

_ROUTE_BLOCK: Final = 4096
_SPREAD_BLOCK: Final = 8192
_COMBINE_BLOCK: Final = 4096  # With twice as many, sums do not stay in registers.
_ROUND_BYTES: Final = 1 << 15  # Of the tokens of each device in a round of a program.


def _gathered(x: Any, group: Any) -> Any:
    """The numbers of 32 bits of all ranks."""
    return all_gather(x.contiguous().view(torch.float32), group).view(x.dtype)


def _route(experts: Any, count: int, capacity: int, name: str) -> tuple[Any, Any]:
    group = group_of(name)
    world, rank, here = group.size(), group.rank(), count // group.size()
    ids = _gathered(experts.to(torch.int32), group)
    if ids.is_cuda:
        route, ends = torch.empty_like(ids), ids.new_empty(here)
        token_kernels.route_pairs[(here,)](
            ids, route, ends, ids.numel(), count, capacity, RANK=rank, WORLD=world, BLOCK=_ROUTE_BLOCK, num_warps=8
        )  # fmt: skip
        return route, ends
    is_here = (ids >= rank * here) & (ids < (rank + 1) * here)
    keys = torch.where(is_here, ids - rank * here, here).flatten()
    order = keys.argsort(stable=True)
    rows = torch.empty_like(keys)
    rows[order] = torch.arange(len(keys), dtype=torch.int32)
    ends = torch.searchsorted(keys[order], torch.arange(here, dtype=torch.int32), right=True).to(torch.int32)
    if here and ends[-1] > capacity:
        raise LaunchError(f"the pairs of the experts of a rank must not be more than its capacity, {capacity}")
    device = torch.where((ids >= 0) & (ids < count), ids // max(here, 1), world)
    return torch.where(is_here, rows.view_as(ids), -1 - device), ends


def _slots(x: Any, tokens: int, group: Any, block: int) -> tuple[Workspace, int, kernels.Team] | None:
    """The workspace for tokens like the rows of `x`, the number of them in a round, and the constants of a kernel."""
    hidden, itemsize = x.shape[1], x.element_size()
    if not x.is_cuda or x.dtype not in FLOATS or not hidden * tokens:
        return None
    in_round = max(1, _ROUND_BYTES // (hidden * itemsize))
    part = -(-in_round * hidden // 8) * 8
    size = group.size() * part
    space = workspace("tokens", group, x, 2 * kernels.PROGRAMS * size * itemsize)
    if space is None:
        return None
    return space, in_round, space.team(x.dtype, size, part, min(block, 1 << (hidden - 1).bit_length()))


def _spread(x: Any, route: Any, capacity: int, name: str) -> Any:
    group = group_of(name)
    (tokens, hidden), k = x.shape, route.shape[1]
    slots, out = _slots(x, tokens, group, _SPREAD_BLOCK), x.new_empty((capacity, hidden))
    if slots is None:
        every = all_gather(x, group)
        pairs, numbers = _pairs(route)
        out[numbers] = every[pairs // k]
        return out
    space, in_round, team = slots
    space.follow()
    token_kernels.spread[(min(kernels.PROGRAMS, -(-tokens // in_round)),)](
        x.contiguous(), route, out, tokens, hidden, space.table, timeout_ns(), TEAM=team, K=k, TOKENS=in_round
    )  # fmt: skip
    return out


def _combine(rows: Any, weights: Any, route: Any, name: str) -> Any:
    group = group_of(name)
    (tokens, k), hidden = weights.shape, rows.shape[1]
    slots, every = _slots(rows, tokens, group, _COMBINE_BLOCK), _gathered(weights.float(), group)
    if slots is None:
        pairs, numbers = _pairs(route)
        values = rows[numbers].float() * every.flatten()[pairs, None]
        total = torch.zeros(len(route), hidden, device=rows.device).index_add_(0, pairs // k, values)
        return reduce_scatter(total.to(rows.dtype), group)
    space, in_round, team = slots
    out = rows.new_empty((tokens, hidden))
    space.follow()
    token_kernels.combine[(min(kernels.PROGRAMS, -(-tokens // in_round)),)](
        rows.contiguous(), every, route, out, tokens, hidden, space.table, timeout_ns(), TEAM=team, K=k,
        TOKENS=in_round,
    )  # fmt: skip
    return out


def _pairs(route: Any) -> tuple[Any, Any]:
    """The pairs whose experts are here, and their rows."""
    flat = route.flatten()
    pairs = (flat >= 0).nonzero().flatten()
    return pairs, flat[pairs].long()


def _gradient_of_spread(drows: Any, route: Any, name: str) -> tuple[Any, None, None, None]:
    ones = drows.new_ones((len(route) // group_of(name).size(), route.shape[1]), dtype=torch.float32)
    return torch.ops.ziggurat.combine(drows, ones, route, name), None, None, None


def _gradients_of_combine(dy: Any, rows: Any, weights: Any, route: Any, name: str) -> tuple[Any, Any, None, None]:
    """Each row gets the gradient of its token times its weight, and each weight the dot of both rows."""
    tokens = torch.ops.ziggurat.spread(dy, route, len(rows), name)
    every = torch.ops.ziggurat.all_gather(weights.float(), name)
    # Pairs of other ranks have the row after the last one, and rows without a pair a weight of 0.
    numbers = torch.where(route >= 0, route, len(rows)).flatten().long()
    factors = every.new_zeros(len(rows) + 1).scatter(0, numbers, every.flatten())[:-1, None]
    has_pair = torch.zeros(len(rows) + 1, dtype=torch.bool, device=rows.device).scatter(0, numbers, True)[:-1, None]
    drows = torch.where(has_pair, tokens.float() * factors, 0).to(rows.dtype)
    dots = torch.where(has_pair, tokens.float() * rows.float(), 0).sum(1)
    dweights = torch.cat([dots, dots.new_zeros(1)])[numbers].view(route.shape)
    return drows, torch.ops.ziggurat.reduce_scatter(dweights, name).to(weights.dtype), None, None


def _fake_route(experts: Any, count: int, capacity: int, name: str) -> tuple[Any, Any]:
    world = group_of(name).size()
    route = experts.new_empty((world * experts.shape[0], experts.shape[1]), dtype=torch.int32)
    return route, experts.new_empty(count // world, dtype=torch.int32)


def _fake_spread(x: Any, route: Any, capacity: int, name: str) -> Any:
    return x.new_empty((capacity, x.shape[1]))


def _fake_combine(rows: Any, weights: Any, route: Any, name: str) -> Any:
    return rows.new_empty((weights.shape[0], rows.shape[1]))


def _no_gradients(*gradients: Any) -> tuple[None, ...]:
    return (None,) * 4


_ROUTE: Final = Operator.of(
    "route", "(Tensor experts, int count, int capacity, str group) -> (Tensor, Tensor)", _route, _fake_route,
    _no_gradients, [],
)  # fmt: skip
_SPREAD: Final = Operator.of(
    "spread", "(Tensor x, Tensor route, int capacity, str group) -> Tensor", _spread, _fake_spread,
    _gradient_of_spread, [1, 3],
)  # fmt: skip
_COMBINE: Final = Operator.of(
    "combine", "(Tensor rows, Tensor weights, Tensor route, str group) -> Tensor", _combine, _fake_combine,
    _gradients_of_combine, range(4),
)  # fmt: skip


def dispatch(
    x: Any, experts: Any, count: int, group: Any = None, capacity: int | None = None
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Send tokens to the ranks of their experts: `x` (tokens, hidden), and `experts` (tokens, k), numbers of experts.

    `count` experts are divided among the ranks in order. The result is (rows, ends, route): `rows` (capacity, hidden)
    has the tokens of this rank's experts, those of one expert one after the other, as `torch._grouped_mm` takes them
    with `ends` (count / ranks), the number after the last row of each; and `route` is for `combine`. Rows after the
    last are not written. By default the capacity is enough for all tokens of all ranks. A number of no expert, such as
    -1, is for none. Each rank has as many tokens, with k different experts.

    A token goes to a rank once, however many of its experts are there. Its gradient is the sum of those of its rows.
    Raises `LaunchError` for other shapes, and experts that the ranks do not divide. More rows than the capacity fail by
    an assertion on the device.
    """
    require_tensors("dispatch", x, experts)
    if x.ndim != 2 or experts.ndim != 2 or x.shape[0] != experts.shape[0] or not experts.shape[1]:
        raise LaunchError(
            "dispatch takes (tokens, hidden) and (tokens, k); "
            f"got tensors of shapes {tuple(x.shape)} and {tuple(experts.shape)}"
        )
    if experts.is_floating_point() or experts.is_complex():
        raise LaunchError(f"the experts of dispatch must be integers; got {experts.dtype}")
    world = _ROUTE.group(group).size()
    if type(count) is not int or count < world or count % world:
        raise LaunchError(f"the number of experts must be a multiple of the {world} ranks; got {shown(count)}")
    if capacity is None:
        capacity = world * experts.shape[0] * min(experts.shape[1], count // world)
    if type(capacity) is not int or capacity < 1:
        raise LaunchError(f"the capacity of dispatch must be an integer from 1 on; got {shown(capacity)}")
    route, ends = _ROUTE(group, experts, count, capacity)
    return _SPREAD(group, x, route, capacity), ends, route


def combine(rows: Any, weights: Any, route: Any, group: Any = None) -> Any:
    """The results of the experts of each token, times their weights and added: (tokens, hidden).

    `rows` is as `dispatch` has it, `weights` (tokens, k) of this rank's tokens, and `route` that of `dispatch`. A rank
    adds the rows of a token in f32, and sends the sum in the dtype of `rows`. `rows` and `weights` have gradients.
    Raises `LaunchError` for other shapes.
    """
    require_tensors("combine", rows, weights, route)
    world = _COMBINE.group(group).size()
    if rows.ndim != 2 or weights.ndim != 2 or tuple(route.shape) != (world * weights.shape[0], weights.shape[1]):
        raise LaunchError(
            "combine takes (capacity, hidden), (tokens, k) and the route of dispatch, (ranks · tokens, k); got tensors "
            f"of shapes {tuple(rows.shape)}, {tuple(weights.shape)} and {tuple(route.shape)}"
        )
    return _COMBINE(group, rows, weights, route)
