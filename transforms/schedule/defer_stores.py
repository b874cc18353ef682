"""Waits for stores by TMA, deferred to the next store from the same buffer.

    scf.for … {                                       %9 = gpu.local_alloc …;
        …                                             scf.for … {
        %9 = gpu.local_alloc …;                           …
        gpu.local_store %9 %8;              becomes       gpu.tma_store_wait @0;
        gpu.tma_store %0 %9 %3 %4;                        gpu.local_store %9 %8;
        gpu.tma_store_wait @0;                            gpu.tma_store %0 %9 %3 %4;
    }                                                 }
                                                      gpu.tma_store_wait @0;

So a persistent kernel computes its next tile while TMA reads the buffer of the last one. The buffer then lives as long
as the loop. Without roles that would be more shared memory, as the channels are filled anew in each iteration. So this
is done in roles, whose channels live as long as the kernel.

Stores of blocks of one type share a ring of buffers, as many as there is shared memory for. A block that is stored in
parts needs buffers for one or two parts; each wait leaves the stores from the other buffers in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.transforms.analysis.intervals import intervals_of, place
from ziggurat.transforms.cost.budget import ctas_of_roles, limits, shared_at


@attrs.frozen(eq=False)
class _Stored:
    """A block that goes through a buffer of its own: put there, stored by TMA, waited for. `loop` is the outermost one
    around it."""

    store: gpu.TmaStore
    buffer: gpu.LocalAlloc
    local_store: gpu.LocalStore
    wait: gpu.TmaStoreWait
    loop: Op


def defer_stores(module: gpu.Module) -> Op:
    """The GPU model whose stores by TMA, in loops of roles, are waited for before the next store from the same buffer,
    if there is shared memory for buffers that live as long as the loops, at the same occupancy."""
    tiles = [_stored(op) for op in module.walk() if isinstance(op, gpu.TmaStore)]
    alike = by_key(((tile.loop, tile.buffer.type), tile) for tile in tiles if tile is not None)
    for most in range(max(map(len, alike.values()), default=0), 0, -1):
        # For each store the one whose buffer it takes.
        owners = {store: ones[at % most] for ones in alike.values() for at, store in enumerate(ones)}
        rewritten = _deferred(module, owners)
        if place(intervals_of(rewritten)) <= _limit(module):
            return rewritten
    return module


def _limit(module: gpu.Module) -> int:
    """The bytes of shared memory that a CTA may have at the occupancy of this model."""
    target = TARGETS[module.target]
    (split,) = (op for op in module.walk() if isinstance(op, gpu.WarpSpecialize))
    by_memory = limits(target, sum(split.warps), 0, place(intervals_of(module)))["shared memory"]
    return shared_at(target, max(1, min(by_memory, ctas_of_roles(split))))


def _deferred(module: gpu.Module, owners: Mapping[_Stored, _Stored]) -> gpu.Module:
    """The model with waits before the stores, and with the buffers of these owners before their loops."""
    owned: dict[Op, Value] = {item.buffer: owner.buffer.result for item, owner in owners.items()}
    pending: dict[Op, int] = {store.local_store: _pending(store, owners) for store in owners}
    waits: set[Op] = {store.wait for store in owners}

    def deferred(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        mine = [owner.buffer for owner in dict.fromkeys(owners.values()) if owner.loop is op]
        if mine:
            for buffer in mine:
                builder[buffer.result] = builder.add(
                    gpu.LocalAlloc(buffer.type, alignment=buffer.alignment), buffer.location
                )
            copy = builder.copy(op, operands)
            builder.add(gpu.TmaStoreWait(0))
            return copy
        if op in owned:
            return builder[owned[op]]
        if op in pending:
            builder.add(gpu.TmaStoreWait(pending[op]))
        return DROP if op in waits else None

    rewritten = transform(module, deferred, pass_name="defer_stores")
    assert isinstance(rewritten, gpu.Module)
    return rewritten


def _pending(store: _Stored, owners: Mapping[_Stored, _Stored]) -> int:
    """The stores of a loop that begin after the last one from the same buffer, and before this one: they may be in
    flight when it is put there."""
    stores = [op for op in store.loop.walk() if isinstance(op, gpu.TmaStore)]
    if any(op.parent is not store.local_store.parent for op in stores):
        return 0  # It is not known how often the others run.
    same = {other.store for other, owner in owners.items() if owner is owners[store]}
    at = stores.index(store.store)
    before: Sequence[gpu.TmaStore] = [*stores[at:], *stores[:at]]  # The last one is just before it.
    return next(count for count, op in enumerate(reversed(before)) if op in same)


def _stored(store: gpu.TmaStore) -> _Stored | None:
    """A store whose wait can be deferred."""
    block, buffer = store.parent, store.buffer
    path = [*store.path()]
    loops = [op for op in path if isinstance(op, Loop)]
    in_role = any(isinstance(op, gpu.WarpSpecialize) for op in path)
    if block is None or not in_role or not loops or not isinstance(buffer, OpResult):
        return None
    alloc, ops = buffer.op, block.ops
    wait = ops[ops.index(store) + 1]
    puts = [op for op in buffer.uses if op is not store]
    if not isinstance(alloc, gpu.LocalAlloc) or alloc.parent is not block or len(puts) != 1:
        return None
    (local_store,) = puts
    # A map that the loop makes is made anew only after the stores that use it.
    maker = store.descriptor if isinstance(store.descriptor, OpResult) else None
    inside = maker is not None and any(op in loops for op in maker.op.path())
    if (
        inside
        or not isinstance(local_store, gpu.LocalStore)
        or local_store.parent is not block
        or not isinstance(wait, gpu.TmaStoreWait)
    ):
        return None
    return _Stored(store, alloc, local_store, wait, loops[-1])
