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
"""

from __future__ import annotations

import attrs

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.transforms.place.allocate import SPARE_BYTES, intervals_of, place
from ziggurat.transforms.place.queries import bytes_of


@attrs.frozen(eq=False)
class _Stored:
    """A block that goes through a buffer of its own: put there, stored by TMA, waited for. `loop` is the outermost one
    around it."""

    buffer: gpu.LocalAlloc
    put: gpu.LocalStore
    wait: gpu.TmaStoreWait
    loop: Op


def defer_stores(module: gpu.Module) -> Op:
    """The GPU model whose stores by TMA, in loops of roles, are waited for in the next iteration, if there is shared
    memory for their buffers."""
    stores = [found for op in module.walk() if isinstance(op, gpu.TmaStore) and (found := _stored(op)) is not None]
    if not stores:
        return module
    buffers = {one.buffer.result for one in stores}
    puts, waits = {one.put.result for one in stores}, {one.wait.result for one in stores}

    def deferred(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        mine = [one.buffer for one in stores if one.loop is op]
        if mine:
            for buffer in mine:
                builder[buffer.result] = builder.add(
                    gpu.LocalAlloc(buffer.type, alignment=buffer.alignment), buffer.location
                )
            made = builder.copy(op, operands)
            builder.add(gpu.TmaStoreWait(0))
            return made
        if op.result in buffers:
            return builder[op.result]
        if op.result in puts:
            builder.add(gpu.TmaStoreWait(0))
        return DROP if op.result in waits else None

    made = transform(module, deferred, pass_name="defer_stores")
    assert isinstance(made, gpu.Module)
    needed = place(intervals_of(made)) + _passing(module) + SPARE_BYTES
    return made if needed <= TARGETS[module.target].max_shared else module


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
    (put,) = puts
    # A map that the loop makes is made anew only after the stores that use it.
    made = store.descriptor if isinstance(store.descriptor, OpResult) else None
    inside = made is not None and any(op in loops for op in made.op.path())
    if (
        inside
        or not isinstance(put, gpu.LocalStore)
        or put.parent is not block
        or not isinstance(wait, gpu.TmaStoreWait)
    ):
        return None
    return _Stored(alloc, put, wait, loops[-1])


def _passing(module: gpu.Module) -> int:
    """The bytes of the largest tensor that passes through shared memory later."""
    return max((bytes_of(op.value) for op in module.walk() if isinstance(op, gpu.ConvertLayout)), default=0)
