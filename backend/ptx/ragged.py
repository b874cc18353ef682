"""Emission of accesses with the masks of neighbours that differ: an array ends within the elements of a thread.

    %m = arith.cmpi %offsets %n @slt;              if all masks of the thread hold:
    %x = tt.load %p %m @width=8 @ragged=true;          one load of 128 bits
                                         becomes   else:
                                                       eight of 16 bits, each with its predicate

Few threads of a launch come to the second branch. Without the first one, ptxas has more predicates than registers for
them, and moves loads behind uses of earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.llvm.routines import Join
from ziggurat.backend.ptx import packed_words
from ziggurat.backend.ptx.emitter import EFFECT_OF_THREAD, Emitted, PtxEmitter
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import CacheModifier, EvictionPolicy
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType
from ziggurat.transforms.analysis.queries import layout_of
from ziggurat.transforms.simplify.effects import is_pure


def modifiers_of(op: tt.Load | tt.Store) -> str:
    """The modifier of an access: PTX takes one of the two hints, and the cache matters more than the eviction."""
    if op.cache is not CacheModifier.NONE:
        return f".{op.cache.value}"
    return {EvictionPolicy.FIRST: ".L1::evict_first", EvictionPolicy.LAST: ".L1::evict_last"}.get(op.eviction, "")


def load_masked(
    emitter: PtxEmitter, op: tt.Load, group: Sequence[int], scalar: ScalarType, mask: str | None
) -> list[str]:
    """The elements of neighbouring registers, loaded together, or the `other` ones where the mask is false."""
    pointer = (packed_words.GLOBAL, emitter.at(op.ptr, group[0]))
    if mask is None and not op.volatile and not modifiers_of(op):
        return packed_words.load_elements(emitter, pointer, scalar, len(group))
    others = None if op.other is None else [emitter.at(op.other, register) for register in group]
    word = packed_words.word_bytes(scalar.bytes, len(group))
    count = scalar.bytes * len(group) // word
    initial = ["0"] * count if others is None else packed_words.to_words(emitter, others, scalar, word)
    arguments = packed_words.in_registers(emitter, initial, word)
    suffix, target = packed_words.vector(0, count)
    name = "ld.volatile.global" if op.volatile else f"ld.global{modifiers_of(op)}"
    text = [f"mov.u{max(16, 8 * word)} ${index}, ${count + index};" for index in range(count)]
    text.append(f"@mask {name}{suffix}.b{8 * word} {target}, [ ${2 * count} + 0 ];")
    results = emitter.asm(
        [kind for kind, _ in arguments], " ".join(text), *arguments, pointer,
        effect=EFFECT_OF_THREAD, mask=mask, early=True,
    )  # fmt: skip
    if word == 1:
        results = [emitter.emit(f"trunc i16 {item} to i8") for item in results]
    return packed_words.from_words(emitter, results, scalar, word)


def groups_of(emitter: PtxEmitter, op: tt.Load | tt.Store) -> list[range]:
    """The registers of neighbours that a thread accesses together."""
    registers = emitter.layout(op.ptr.type).unique_registers
    return [range(first, first + op.width) for first in registers if not first & (op.width - 1)]


def load_ragged(emitter: PtxEmitter, op: tt.Load) -> Emitted:
    """The elements of a load.

    Later loads with the same mask begin with it, in the same branches: else ptxas moves the uses of the first load
    before the branch of the second one.
    """
    loads = [op, *_later(emitter, op)]
    scalars = [tt.pointee_of(load, load.ptr) for load in loads]
    sizes = [packed_words.word_bytes(scalar.bytes, load.width) for load, scalar in zip(loads, scalars, strict=True)]
    groups = [groups_of(emitter, load) for load in loads]
    forms = list(zip(loads, scalars, sizes, groups, strict=True))
    counts = [len(parts) * load.width * scalar.bytes // size for load, scalar, size, parts in forms]
    kinds = [f"i{8 * size}" for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
    join = Join(emitter, "loaded", kinds)
    apart = _begin_whole(emitter, loads, groups)
    words: list[str] = []
    for load, scalar, size, parts in forms:
        for group in parts:
            elements = load_masked(emitter, load, group, scalar, None)
            words += packed_words.to_words(emitter, elements, scalar, size)
    emitter.line(f"br {join.branch(words)}")
    emitter.start(apart)
    words = []
    for load, scalar, size, parts in forms:
        for group in parts:
            each = [load_masked(emitter, load, [at], scalar, emitter.mask(load.mask, at)) for at in group]
            words += packed_words.to_words(emitter, [element for (element,) in each], scalar, size)
    emitter.line(f"br {join.branch(words)}")
    names = iter(join.begin())
    join.end()
    for (load, scalar, size, parts), count in zip(forms, counts, strict=True):
        elements = packed_words.from_words(emitter, [next(names) for _ in range(count)], scalar, size)
        registers = [at for group in parts for at in group]
        emitter.values[load.result] = emitter.value(load.ptr.type, dict(zip(registers, elements, strict=True)))
    return emitter.values[op.result]


def _later(emitter: PtxEmitter, op: tt.Load) -> list[tt.Load]:
    """The later loads of a block with the same mask that may begin where `op` does. Emits their addresses."""
    block = op.parent
    assert block is not None
    following = block.ops[block.ops.index(op) :]
    order = {each: at for at, each in enumerate(following)}

    def makers(op: Op) -> list[Op]:
        return [value.op for value in op.operands if value.op in order]

    loads: list[tt.Load] = []
    for each in following[1:]:
        if each.bodies or not (isinstance(each, tt.Load) or is_pure(each)):
            break  # It may be a store, or a barrier that orders accesses of several threads.
        if not isinstance(each, tt.Load) or not each.ragged or each.mask is not op.mask or each in emitter.early:
            continue
        if layout_of(each.ptr.type) == layout_of(op.ptr.type) and all(map(is_pure, reached(makers(each), makers))):
            ops = sorted(reached(makers(each), makers) - emitter.early, key=order.__getitem__)
            emitter.ops(ops)
            emitter.early.update((*ops, each))
            loads.append(each)
    return loads


def _begin_whole(emitter: PtxEmitter, ops: Sequence[tt.Load | tt.Store], groups: Sequence[Sequence[range]]) -> str:
    """Branch on whether all masks of a thread hold, and begin the block where they do; the label of the other one.

    The masks of a group hold if the last one does.
    """
    whole, apart = emitter.name("whole"), emitter.name("apart")
    registers = dict.fromkeys(group[-1] for parts in groups for group in parts)
    owner = emitter.owner(ops[0].ptr.type) if isinstance(ops[0], tt.Store) else None
    condition = emitter.both(owner, *(emitter.mask(ops[0].mask, register) for register in registers))
    emitter.line(f"br i1 {condition}, label %{whole}, label %{apart}")
    emitter.start(whole)
    return apart


def store_ragged(emitter: PtxEmitter, op: tt.Store) -> None:
    """Store elements. Threads all of whose masks hold store neighbours together."""
    groups, end = groups_of(emitter, op), emitter.name("stored")
    apart = _begin_whole(emitter, [op], [groups])
    for group in groups:
        store_group(emitter, op, group, None)
    emitter.line(f"br label %{end}")
    emitter.start(apart)
    owner = emitter.owner(op.ptr.type)
    for at in (at for group in groups for at in group):
        store_group(emitter, op, [at], emitter.both(owner, emitter.mask(op.mask, at)))
    emitter.line(f"br label %{end}")
    emitter.start(end)


def store_group(emitter: PtxEmitter, op: tt.Store, group: Sequence[int], mask: str | None) -> None:
    """Store the elements of neighbouring registers together, where a mask holds."""
    values = [emitter.at(op.value, register) for register in group]
    pointer = (packed_words.GLOBAL, emitter.at(op.ptr, group[0]))
    scalar = tt.pointee_of(op, op.ptr)
    packed_words.store_elements(emitter, pointer, values, scalar, mask, modifiers=modifiers_of(op))
