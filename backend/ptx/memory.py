"""Emission of loads and stores of global memory: vectors of up to 128 bits, with a predicate where there is a mask.

`width` of an access is the number of consecutive registers that point to neighbours with one alignment and one mask.
Masked accesses are inline assembly with a predicate, as a branch around each would be slower. Others are LLVM's loads
and stores, which it may schedule.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.ptx import packed_words
from ziggurat.backend.ptx.emitter import EFFECT_OF_THREAD, Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.shuffles import shared_out
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import CacheModifier, EvictionPolicy
from ziggurat.codemodel.types import ScalarType, TensorType
from ziggurat.transforms.analysis.queries import registers_alike


def _modifiers(op: tt.Load | tt.Store) -> str:
    """The modifier of an access: PTX takes one of the two hints, and the cache matters more than the eviction."""
    if op.cache is not CacheModifier.NONE:
        return f".{op.cache.value}"
    return {EvictionPolicy.FIRST: ".L1::evict_first", EvictionPolicy.LAST: ".L1::evict_last"}.get(op.eviction, "")


def _load_masked(
    emitter: PtxEmitter, op: tt.Load, address: str, scalar: ScalarType, mask: str | None, others: Sequence[str] | None
) -> list[str]:
    """The loaded elements, or `others` where the mask is false."""
    word = packed_words.word_bytes(scalar.bytes, op.width)
    count = scalar.bytes * op.width // word
    initial = ["0"] * count if others is None else packed_words.to_words(emitter, others, scalar, word)
    arguments = packed_words.in_registers(emitter, initial, word)
    suffix, target = packed_words.vector(0, count)
    name = "ld.volatile.global" if op.volatile else f"ld.global{_modifiers(op)}"
    text = [f"mov.u{max(16, 8 * word)} ${index}, ${count + index};" for index in range(count)]
    text.append(f"@mask {name}{suffix}.b{8 * word} {target}, [ ${2 * count} + 0 ];")
    results = emitter.asm(
        [kind for kind, _ in arguments], " ".join(text), *arguments, (packed_words.GLOBAL, address),
        effect=EFFECT_OF_THREAD, mask=mask, early=True,
    )  # fmt: skip
    if word == 1:
        results = [emitter.emit(f"trunc i16 {item} to i8") for item in results]
    return packed_words.from_words(emitter, results, scalar, word)


@emits(tt.Load)
def _load(emitter: PtxEmitter, op: tt.Load) -> Emitted:
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
        group = range(first, first + op.width)
        address, mask = emitter.at(op.ptr, first), emitter.mask(op.mask, first)
        if by_one:
            mask = emitter.both(emitter.owner(type_), mask)
        if mask is None and not op.volatile and not _modifiers(op):
            elements = packed_words.load_elements(emitter, (packed_words.GLOBAL, address), scalar, op.width)
        else:
            others = None if op.other is None else [emitter.at(op.other, register) for register in group]
            elements = _load_masked(emitter, op, address, scalar, mask, others)
        values.update(zip(group, elements, strict=True))
    return shared_out(emitter, type_, scalar, values) if by_one else emitter.value(type_, values)


@emits(tt.Store)
def _store(emitter: PtxEmitter, op: tt.Store) -> Emitted:
    scalar, owner = tt.pointee_of(op, op.ptr), emitter.owner(op.ptr.type)
    done: set[int] = set()
    for first in emitter.layout(op.ptr.type).unique_registers:
        if first in done:
            continue
        group = range(first, first + op.width)
        done.update(group)
        mask = emitter.both(owner, emitter.mask(op.mask, first))
        values = [emitter.at(op.value, register) for register in group]
        pointer = (packed_words.GLOBAL, emitter.at(op.ptr, first))
        packed_words.store_elements(emitter, pointer, values, scalar, mask, modifiers=_modifiers(op))
