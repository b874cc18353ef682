"""Collectives of PyTorch's process groups as kernels, on its symmetric memory.

    from ziggurat import distributed

    y = distributed.all_reduce(x)           # Of the default process group, after torch.distributed.init_process_group.
    y = distributed.all_gather(x, group)
    y = distributed.reduce_scatter(x, group)
    y = distributed.all_gather_matmul(x, w)
    y = distributed.matmul_reduce_scatter(x, w)
    y, total = distributed.matmul_all_reduce(x, w, bias, residual, norm_weight)
    rows, ends, route = distributed.dispatch(x, experts, count)
    y = distributed.combine(rows, weights, route)
    y = distributed.ring_attention(q, k, v, causal=True)

They are operators of PyTorch (`torch.ops.ziggurat.all_reduce`, …), with gradients and with fake implementations for
`torch.compile`; they run on the current stream, and in CUDA graphs. docs/guides/distributed.md has the details.
"""

from ziggurat.distributed.attention import ring_attention
from ziggurat.distributed.collectives import all_gather, all_reduce, reduce_scatter, set_timeout
from ziggurat.distributed.matmul import all_gather_matmul, matmul_reduce_scatter
from ziggurat.distributed.norms import all_reduce_norm, matmul_all_reduce
from ziggurat.distributed.tokens import combine, dispatch

__all__ = [
    "all_gather", "all_gather_matmul", "all_reduce", "all_reduce_norm", "combine", "dispatch", "matmul_all_reduce",
    "matmul_reduce_scatter", "reduce_scatter", "ring_attention", "set_timeout",
]  # fmt: skip
