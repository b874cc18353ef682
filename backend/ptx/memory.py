"""Emission of loads and stores of global memory: vectors of up to 128 bits, with a predicate where there is a mask.

`width` of an access is the number of consecutive registers that point to neighbours with one alignment and one mask.
Masked accesses are inline assembly with a predicate, as a branch around each would be slower. Others are LLVM's loads
and stores, which it may schedule.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import Emitted, Emitter, canonical, emits, is_tensor, layout_of
from ziggurat.backend.ptx.tensors import unique_registers
from ziggurat.backend.ptx.uniform import shared_out
from ziggurat.backend.ptx.words import (
    REGISTERS,
    from_memory,
    in_registers,
    load_words,
    pack,
    store_masked,
    store_words,
    to_memory,
    unpack,
    words_of,
)
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import CacheModifier, EvictionPolicy
from ziggurat.codemodel.layout import replicated
from ziggurat.codemodel.types import ScalarType

_WORD = {1: ("b8", "i8", "c"), 2: ("b16", "i16", "h"), 4: ("b32", "i32", "r"), 8: ("b64", "i64", "l")}


def _modifiers(cache: CacheModifier, eviction: EvictionPolicy) -> str:
    """The modifier of an access: PTX takes one of the two hints, and the cache matters more than the eviction."""
    if cache is not CacheModifier.NONE:
        return f".{cache.value}"
    return {EvictionPolicy.FIRST: ".L1::evict_first", EvictionPolicy.LAST: ".L1::evict_last"}.get(eviction, "")


def _word(size: int, width: int) -> int:
    """The word size of an access of `width` elements: 8 for elements of 8 bytes, otherwise that of `words_of`."""
    return 8 if size == 8 else max(size, words_of(size * width)[0])


def load_vector(
    emitter: Emitter,
    address: str,
    scalar: ScalarType,
    width: int,
    mask: str | None,
    others: list[str] | None,
    op: tt.Load,
) -> list[str]:
    """`width` neighbours from an address."""
    size = scalar.bytes
    word = _word(size, width)
    count = size * width // word
    special = op.cache is not CacheModifier.NONE or op.eviction is not EvictionPolicy.NORMAL or op.volatile
    if mask is None and not special:
        words = load_words(emitter, 1, address, word, count, size * width)
    else:
        words = _masked_load(
            emitter, address, word, count, mask, _other_words(emitter, others, scalar, word, count), op
        )
    return [from_memory(emitter, value, scalar) for value in unpack(emitter, words, size, word)]


def _other_words(emitter: Emitter, others: list[str] | None, scalar: ScalarType, word: int, count: int) -> list[str]:
    if others is None:
        return ["0"] * count
    return pack(emitter, [to_memory(emitter, other, scalar) for other in others], scalar.bytes, word)


def _masked_load(
    emitter: Emitter, address: str, word: int, count: int, mask: str | None, others: list[str], op: tt.Load
) -> list[str]:
    """The loaded words, or `others` where the mask is false. 8-bit words use registers of 16 bits."""
    register, move = REGISTERS[word], f"u{max(16, 8 * word)}"
    kind, others = in_registers(emitter, others, word)
    outputs = [f"${index}" for index in range(count)]
    first = count  # The operand numbers of the inputs follow those of the outputs.
    text = [f"mov.{move} {output}, ${first + index};" for index, output in enumerate(outputs)]
    target = outputs[0] if count == 1 else "{" + ", ".join(outputs) + "}"
    vector = "" if count == 1 else f".v{count}"
    volatile = ".volatile" if op.volatile else ""
    guard = f"@${first + count + 1} " if mask is not None else ""
    modifiers = "" if op.volatile else _modifiers(op.cache, op.eviction)
    text.append(f"{guard}ld{volatile}.global{modifiers}{vector}.b{8 * word} {target}, [ ${first + count} + 0 ];")
    constraints = [f"=&{register}"] * count + [register] * count + ["l"] + (["b"] if mask is not None else [])
    result = kind if count == 1 else emitter.struct(kind, count)
    arguments = [(kind, other) for other in others] + [("ptr addrspace(1)", address)]
    if mask is not None:
        arguments.append(("i1", mask))
    made = emitter.asm(
        result, " ".join(text), ",".join([*constraints, "~{memory}"]), *arguments, effect=True, convergent=False
    )
    words = emitter.parts(result, made, count)
    return [emitter.emit(f"trunc i16 {item} to i8") for item in words] if word == 1 else words


def store_vector(
    emitter: Emitter, address: str, values: list[str], scalar: ScalarType, mask: str | None, op: tt.Store
) -> None:
    """Store neighbours to an address where the mask holds."""
    size = scalar.bytes
    word = _word(size, len(values))
    words = pack(emitter, [to_memory(emitter, value, scalar) for value in values], size, word)
    special = op.cache is not CacheModifier.NONE or op.eviction is not EvictionPolicy.NORMAL
    if mask is None and not special:
        store_words(emitter, 1, address, words, word, size * len(values))
        return
    pointer = ("ptr addrspace(1)", address, "l")
    store_masked(emitter, f"st.global{_modifiers(op.cache, op.eviction)}", pointer, 0, words, word, mask)


@emits(tt.Load)
def _load(emitter: Emitter, op: tt.Load) -> Emitted:
    scalar = tt.pointee_of(op, op.ptr)
    if not is_tensor(op.ptr.type):
        mask = emitter.scalar(op.mask) if op.mask is not None else None
        if op.volatile:
            mask = both(emitter, emitter.owner(None), mask)
        others = [emitter.scalar(op.other)] if op.other is not None else None
        loaded = load_vector(emitter, emitter.scalar(op.ptr), scalar, 1, mask, others, op)[0]
        if not op.volatile:
            return loaded
        # Another program may write in between: two reads could differ, and with them the branches of two threads.
        return shared_out(emitter, replicated(1, emitter.num_warps), scalar, {0: loaded})[0]
    layout = layout_of(op.ptr.type)
    pointers = emitter.tensor(op.ptr)
    masks = emitter.tensor(op.mask) if op.mask is not None else None
    others = emitter.tensor(op.other) if op.other is not None else None
    values: dict[int, str] = {}
    for first in unique_registers(layout):
        if first in values:
            continue
        group = range(first, first + op.width)
        mask = masks[first] if masks is not None else None
        given = [others[register] for register in group] if others is not None else None
        loaded = load_vector(emitter, pointers[first], scalar, op.width, mask, given, op)
        values.update(zip(group, loaded, strict=True))
    return [values[canonical(layout, register)] for register in range(layout.num_registers)]


def both(emitter: Emitter, *conditions: str | None) -> str | None:
    """The conjunction of the conditions that are not None; None for none."""
    given = [condition for condition in conditions if condition is not None]
    if not given:
        return None
    result = given[0]
    for condition in given[1:]:
        result = emitter.emit(f"and i1 {result}, {condition}")
    return result


@emits(tt.Store)
def _store(emitter: Emitter, op: tt.Store) -> Emitted:
    scalar = tt.pointee_of(op, op.ptr)
    if not is_tensor(op.ptr.type):
        mask = both(emitter, emitter.owner(None), emitter.scalar(op.mask) if op.mask is not None else None)
        store_vector(emitter, emitter.scalar(op.ptr), [emitter.scalar(op.value)], scalar, mask, op)
        return
    layout = layout_of(op.ptr.type)
    pointers, values = emitter.tensor(op.ptr), emitter.tensor(op.value)
    masks = emitter.tensor(op.mask) if op.mask is not None else None
    owner = emitter.owner(layout)
    done: set[int] = set()
    for first in unique_registers(layout):
        if first in done:
            continue
        group = range(first, first + op.width)
        done.update(group)
        mask = both(emitter, owner, masks[first] if masks is not None else None)
        store_vector(emitter, pointers[first], [values[register] for register in group], scalar, mask, op)
