"""Emission of loads and stores of global memory: vectors of up to 128 bits, with a predicate where there is a mask.

`width` of an access is the number of consecutive registers that point to neighbours with one alignment and one mask.
Masked accesses are inline assembly with a predicate, as a branch around each would be slower. Others are LLVM's loads
and stores, which it may schedule.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.ragged import groups_of, load_masked, load_ragged, store_group, store_ragged
from ziggurat.backend.ptx.shuffles import shared_out
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.analysis.queries import registers_alike


@emits(tt.Load)
def _load(emitter: PtxEmitter, op: tt.Load) -> Emitted:
    if op.ragged:
        return load_ragged(emitter, op)
    type_, scalar = op.ptr.type, tt.pointee_of(op, op.ptr)
    # Another program may write between two reads of a volatile scalar, and send two threads into different branches.
    by_one = op.volatile and not isinstance(type_, TensorType)
    alike = registers_alike(type_, op.runs) if isinstance(type_, TensorType) and op.runs else 0
    values: dict[int, str] = {}
    for first in emitter.layout(type_).unique_registers:
        if first in values:
            continue
        if first & alike:  # The address of the first element of its run.
            values[first] = values[first & ~alike]
            continue
        group, mask = range(first, first + op.width), emitter.mask(op.mask, first)
        if by_one:
            mask = emitter.both(emitter.owner(type_), mask)
        values.update(zip(group, load_masked(emitter, op, group, scalar, mask), strict=True))
    return shared_out(emitter, type_, scalar, values) if by_one else emitter.value(type_, values)


@emits(tt.Store)
def _store(emitter: PtxEmitter, op: tt.Store) -> Emitted:
    if op.ragged:
        store_ragged(emitter, op)
        return
    owner = emitter.owner(op.ptr.type)
    for group in groups_of(emitter, op):
        store_group(emitter, op, group, emitter.both(owner, emitter.mask(op.mask, group[0])))
