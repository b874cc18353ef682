"""Values of other threads: shuffles within a warp, and results of one thread for all that hold copies of an element.

Lanes get them by a shuffle. Warps get them through `@zg_slot` in shared memory, with a barrier before it is read and
one before it may be written again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ziggurat.backend.ptx.emitter import Emitted, Emitter
from ziggurat.backend.ptx.numbers import llvm_type
from ziggurat.backend.ptx.words import SHARED, load_elements, pack, store_elements, unpack
from ziggurat.codemodel.types import ScalarType, Type

_ALL = "-1"  # All lanes take part in every shuffle: control is uniform in a CTA.
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr addrspace(1)": 64}


def shuffle(emitter: Emitter, how: str, word: str, lane: str) -> str:
    """The i32 of another lane of the warp."""
    arguments = [("i32", _ALL), ("i32", word), ("i32", lane), ("i32", "31")]
    return emitter.call("i32", f"llvm.nvvm.shfl.sync.{how}.i32", *arguments)


def uniform(emitter: Emitter, shift: int) -> str:
    """The thread's number without its last `shift` bits, by a shuffle, so that ptxas sees a uniform register."""
    return shuffle(emitter, "idx", emitter.emit(f"lshr i32 {emitter.thread()}, {shift}"), "0")


def shuffled(emitter: Emitter, values: Sequence[str], kind: str, move: Callable[[str], str]) -> list[str]:
    """The values of another lane, all of one LLVM type. `move` shuffles an i32; several small values share one."""
    bits = _BITS.get(kind) or int(kind[1:])
    whole = f"i{bits}"
    if kind != whole:
        opcode = "ptrtoint" if kind.startswith("ptr") else "bitcast"
        numbers = [emitter.emit(f"{opcode} {kind} {value} to {whole}") for value in values]
        opcode = "inttoptr" if kind.startswith("ptr") else "bitcast"
        return [
            emitter.emit(f"{opcode} {whole} {value} to {kind}") for value in shuffled(emitter, numbers, whole, move)
        ]
    if bits == 1:
        words = [move(emitter.emit(f"zext i1 {value} to i32")) for value in values]
        return [emitter.emit(f"trunc i32 {word} to i1") for word in words]
    if bits == 64:
        halves = ([move(word) for word in unpack(emitter, [value], 4, 8)] for value in values)
        return [word for pair in halves for word in pack(emitter, pair, 4, 8)]
    size = bits // 8
    padded = [*values, *["0"] * (-len(values) % (4 // size))]
    return unpack(emitter, [move(word) for word in pack(emitter, padded, size, 4)], size, 4)[: len(values)]


def shared_out(emitter: Emitter, type_: Type, scalar: ScalarType, found: Mapping[int, str]) -> Emitted:
    """A value of a type in all threads, from the owner's result for each register that is no copy."""
    layout = emitter.layout(type_)
    _, lanes, warps = layout.free
    if warps:
        slot, owner = emitter.slot(layout.numel * scalar.bytes), emitter.owner(type_)
        pointers: dict[int, tuple[str, str]] = {}
        for register, value in found.items():
            number = emitter.element(layout, register)
            place = emitter.emit(f"getelementptr i{8 * scalar.bytes}, {SHARED} {slot}, i32 {number}")
            pointers[register] = SHARED, place
            store_elements(emitter, pointers[register], [value], scalar, owner)
        emitter.barrier()
        found = {register: load_elements(emitter, pointer, scalar, 1)[0] for register, pointer in pointers.items()}
        emitter.barrier()
    elif lanes:
        sender = emitter.emit(f"and i32 {emitter.thread()}, {31 & ~lanes}")
        values = list(found.values())
        moved = shuffled(emitter, values, llvm_type(scalar), lambda word: shuffle(emitter, "idx", word, sender))
        found = dict(zip(found, moved, strict=True))
    return emitter.value(type_, found)
