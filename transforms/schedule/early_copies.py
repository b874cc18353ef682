"""Operands that are loaded while another dot is to come go to shared memory by copies, which take no registers.

    %k = tt.load …; gpu.local_store %a %k;         %k = tt.load …;
    %d = gpu.wgmma %q %a %zero;                    %b = gpu.local_alloc;
    %s = gpu.wgmma_wait %d @0;                     gpu.async_copy %p %b @width=8; gpu.async_commit;
    … %s …                                         gpu.local_store %a %k;
    %v = tt.load %p @width=8;           becomes    %d = gpu.wgmma %q %a %zero;
    %b = gpu.local_alloc;                          %s = gpu.wgmma_wait %d @0;
    gpu.local_store %b %v;                         … %s …
    %e = gpu.wgmma %t %b %acc;                     gpu.async_wait @0;
                                                   %e = gpu.wgmma %t %b %acc;

So do operands of `OF_EARLY_OPERAND` registers and more.

This is for kernels without other copies by threads, such as those of one stage. A load whose address does not depend on
the dots before it moves to the other loads of its block. No op that may write to global memory or orders accesses may
stand between. The buffer is alive from the copy on: loads stay where that would lower the occupancy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.graphs import by_key, reached
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.transforms.analysis.intervals import intervals_of, place
from ziggurat.transforms.cost.budget import CTAS, OF_EARLY_OPERAND, limits
from ziggurat.transforms.cost.pressure import value_registers
from ziggurat.transforms.schedule.loop_plan import Copy, copies_in, orders_memory
from ziggurat.transforms.simplify.effects import is_pure


@attrs.frozen(eq=False)
class _Early:
    """A copy that begins before `anchor`, an op of its block, and what computes its address there, in order."""

    copy: Copy
    anchor: Op
    address: Sequence[Op]


def copy_early(module: gpu.Module) -> gpu.Module:
    """The GPU model whose operands of later dots are copied to shared memory during the dots before."""
    if module.holds(gpu.AsyncCopy | gpu.ChannelOp | gpu.WarpSpecialize):
        return module
    blocks = [block for op in module.walk() for body in op.bodies for block in body.blocks]
    copies = [early for block in blocks for early in _early_of(block)]
    if not copies:
        return module
    target, warps = TARGETS[module.target], module.num_warps
    ctas = limits(target, warps, 0, place(intervals_of(module)))["shared memory"]
    result = _with_copies(module, copies)
    total = place(intervals_of(result))
    fits = total <= target.max_shared and limits(target, warps, 0, total)["shared memory"] >= min(ctas, CTAS)
    return result if fits else module


def _early_of(block: Block) -> Iterator[_Early]:
    """The copies of a block that can begin before a dot and are read after it."""
    order = {op: at for at, op in enumerate(block.ops)}
    dots = [at for op, at in order.items() if op.holds(gpu.MatrixProduct)]
    loads = [at for op, at in order.items() if isinstance(op, tt.Load) and dots and at < dots[0]]
    for copy in copies_in(block) if dots else ():
        load, end = order[copy.load], order[copy.store]
        if copy.by_tma or (end < dots[0] and value_registers(copy.load.result.type) < OF_EARLY_OPERAND):
            continue
        start = load if load < dots[0] else max(loads, default=-1) + 1
        address = _address(copy.load, order, start) if start < load else ()
        if address is not None and not any(orders_memory(inner) for op in block.ops[start:end] for inner in op.walk()):
            yield _Early(copy, block.ops[start], address)


def _address(load: Op, order: dict[Op, int], start: int) -> Sequence[Op] | None:
    """The ops of a block from the number `start` on that compute the operands of a load; None if they are not pure."""

    def makers(op: Op) -> list[Op]:
        makers_of_all = (value.op for value in op.operands)
        return [maker for maker in makers_of_all if maker is not None and order.get(maker, -1) >= start]

    ops = reached(makers(load), makers)
    return sorted(ops, key=order.__getitem__) if all(is_pure(op) and not op.bodies for op in ops) else None


def _with_copies(module: gpu.Module, copies: Sequence[_Early]) -> gpu.Module:
    at = by_key((early.anchor, early) for early in copies)
    loads = {early.copy.load for early in copies}
    stores = {early.copy.store for early in copies}
    buffers = {early.copy.buffer for early in copies}
    addresses = {op for early in copies for op in early.address}

    def begun(builder: Rewriter, early: _Early) -> None:
        copy = early.copy
        for op in early.address:
            if builder.mapping.get(op.result) is None:
                builder.rewrite_ops([op])
        load, buffer = copy.load, copy.buffer
        assert isinstance(load, tt.Load)
        ring = builder.add(gpu.LocalAlloc(buffer.type, alignment=buffer.alignment), buffer.location)
        builder[buffer.result] = ring
        pointers: Value = builder[load.ptr]
        mask = None if load.mask is None else builder[load.mask]
        for step in copy.transposed:
            pointers = builder.add(tt.Trans(pointers, step.order))
            mask = None if mask is None else builder.add(tt.Trans(mask, step.order))
        builder.add(gpu.AsyncCopy(pointers, ring, mask, width=copy.width), load.location)
        builder.add(gpu.AsyncCommit(), load.location)

    def rewritten(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        for early in at.pop(op, ()):
            begun(builder, early)
        if op in loads:
            return builder.add(tt.Poison(type=op.result.type))  # The store is its only use.
        if op in stores:
            builder.add(gpu.AsyncWait(0), op.location)
            return DROP
        return builder.mapping.get(op.result) if op in buffers or op in addresses else None

    result = transform(module, rewritten, pass_name="early_copies")
    assert isinstance(result, gpu.Module)
    return result
