"""Results of one thread, given to all threads that hold copies of the element.

Lanes get them by a shuffle. Warps get them through `@zg_slot` in shared memory, with a barrier before it is read and
one before it may be written again.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import Emitter, canonical
from ziggurat.backend.ptx.reductions import shuffle, shuffled
from ziggurat.backend.ptx.words import from_memory, store_masked, to_memory
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.types import ScalarType


def shared_out(emitter: Emitter, layout: Layout, scalar: ScalarType, found: dict[int, str]) -> list[str]:
    """The owner's result for each register, in all threads that hold the element."""
    _, lanes, warps = layout.free
    if warps:
        found = _through_slot(emitter, layout, scalar, found)
    elif lanes:
        sender = emitter.emit(f"and i32 {emitter.thread()}, {31 & ~lanes}")
        columns = [[value] for value in found.values()]
        moved = shuffled(emitter, columns, [scalar], lambda word: shuffle(emitter, "idx", word, sender))
        found = {register: column[0] for register, column in zip(found, moved, strict=True)}
    return [found[canonical(layout, register)] for register in range(layout.num_registers)]


def _through_slot(emitter: Emitter, layout: Layout, scalar: ScalarType, found: dict[int, str]) -> dict[int, str]:
    size = scalar.bytes
    slot = emitter.slot(layout.numel * size)
    owner = emitter.owner(layout)
    assert owner is not None
    thread = emitter.linear(emitter.thread_bases(layout))
    pointers: dict[int, str] = {}
    for register, value in found.items():
        element = layout.element(register)
        number = emitter.emit(f"xor i32 {thread}, {element}") if element else thread
        pointers[register] = emitter.emit(f"getelementptr i{8 * size}, ptr addrspace(3) {slot}, i32 {number}")
        address = emitter.emit(f"ptrtoint ptr addrspace(3) {pointers[register]} to i32")
        bits = to_memory(emitter, value, scalar)
        store_masked(emitter, "st.shared", ("i32", address, "r"), 0, [bits], size, owner)
    emitter.barrier()
    loaded: dict[int, str] = {}
    for register, pointer in pointers.items():
        bits = emitter.emit(f"load i{8 * size}, ptr addrspace(3) {pointer}")
        loaded[register] = from_memory(emitter, bits, scalar)
    emitter.barrier()
    return loaded
