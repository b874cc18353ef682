"""Results of one thread, given to all threads that hold copies of the element.

Lanes get them by a shuffle. Warps get them through `@zg_slot` in shared memory, with a barrier before it is read and
one before it may be written again.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import Emitter, canonical
from ziggurat.backend.ptx.reductions import shuffle, shuffled
from ziggurat.backend.ptx.words import from_memory, to_memory
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
    size, register_kind = scalar.bytes, {1: "h", 2: "h", 4: "r", 8: "l"}[scalar.bytes]
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
        kind = f"i{8 * size}"
        if size == 1:
            bits, kind = emitter.emit(f"zext i8 {bits} to i16"), "i16"
        text = f"@$2 st.shared.b{8 * size} [ $0 + 0 ], $1;"
        arguments = (("i32", address), (kind, bits), ("i1", owner))
        emitter.asm("void", text, f"r,{register_kind},b,~{{memory}}", *arguments, effect=True)
    emitter.barrier()
    loaded: dict[int, str] = {}
    for register, pointer in pointers.items():
        bits = emitter.emit(f"load i{8 * size}, ptr addrspace(3) {pointer}")
        loaded[register] = from_memory(emitter, bits, scalar)
    emitter.barrier()
    return loaded
