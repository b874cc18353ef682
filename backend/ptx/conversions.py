"""Emission of conversions of layouts that stay within warps: registers renamed, or exchanged by shuffles.

`transforms/place/shuffles.py` plans the exchange. Elements of 8 and 16 bits travel in words of 32 bits: registers that
move together throughout are packed before the exchange and unpacked after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.numbers import llvm_type
from ziggurat.backend.ptx.shuffles import shuffle, shuffled
from ziggurat.backend.ptx.tensors import moved
from ziggurat.backend.ptx.words import from_words, to_words
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import LANE_BITS, combine
from ziggurat.codemodel.types import ScalarType, TensorType
from ziggurat.transforms.place.queries import layout_of, tensor_of
from ziggurat.transforms.place.shuffles import Exchange, Factor, exchange

Give = Callable[[int], str]  # The value of each register.


@emits(gpu.ConvertLayout)
def _convert(emitter: Emitter, op: gpu.ConvertLayout) -> Emitted:
    type_ = tensor_of(op.value)
    source, target = layout_of(type_), layout_of(op.type)
    values = emitter.tensor(op.value)
    made = moved(values, source, target, type_.numel)
    if made is not None:
        return made
    found = exchange(source, target, type_.numel)
    if found is None:
        raise InternalError("a conversion between warps is left; it should have been lowered", str(op.root()))
    numbered = _exchanged(emitter, found, values, type_)
    kept = [bit for bit, basis in enumerate(target.registers) if basis]
    numbers = [sum(1 << at for at, bit in enumerate(kept) if r >> bit & 1) for r in range(target.num_registers)]
    return [numbered[number] for number in numbers]


def _exchanged(emitter: Emitter, found: Exchange, values: Sequence[str], type_: TensorType) -> dict[int, str]:
    """The registers of the target, numbered without its copies."""
    element = type_.element
    packs: list[tuple[int, int]] = []
    if isinstance(element, ScalarType) and element.bytes < 4:
        packs = found.packs(2 if element.bytes == 1 else 1)
    if not packs:
        return _rounds(emitter, found, values.__getitem__, range(found.rounds), llvm_type(element))
    assert isinstance(element, ScalarType)
    word = element.bytes << len(packs)
    # The numbers of the packed rounds, and of their source registers.
    own, theirs = (
        [combine([1 << pair[side] for pair in packs], index) for index in range(1 << len(packs))] for side in (0, 1)
    )

    @cache
    def packed(register: int) -> str:
        return to_words(emitter, [values[register | more] for more in theirs], element, word)[0]

    rest = [bit for bit in range(found.rounds) if bit not in [bit for bit, _ in packs]]
    result: dict[int, str] = {}
    for number, value in _rounds(emitter, found, packed, rest, f"i{8 * word}").items():
        result |= zip((number | more for more in own), from_words(emitter, [value], element, word), strict=True)
    return result


def _rounds(emitter: Emitter, found: Exchange, given: Give, bits: Sequence[int], kind: str) -> dict[int, str]:
    """The results of the rounds whose numbers have only these bits set, by the number."""
    sent = _renumbered(emitter, given, found.turned, kind)
    arrived: dict[int, str] = {}
    for far, numbers in found.groups(bits).items():
        values = [sent(combine(found.sent, number)) for number in numbers]
        if far or not found.own:
            values = shuffled(emitter, values, kind, _move(emitter, found, far))
        arrived.update(zip(numbers, values, strict=True))
    placed = _renumbered(emitter, arrived.__getitem__, found.placed, kind)
    return {number: placed(number) for number in arrived}


def _move(emitter: Emitter, found: Exchange, far: int) -> Callable[[str], str]:
    """One shuffle of a word of 32 bits."""
    if found.own:
        return lambda word: shuffle(emitter, "bfly", word, str(far))
    lane = emitter.linear(found.lane)
    if far:
        lane = emitter.once(("lane", found.lane, far), lambda: emitter.emit(f"xor i32 {lane}, {far}"))
    return lambda word: shuffle(emitter, "idx", word, lane)


def _renumbered(emitter: Emitter, given: Give, factors: Sequence[Factor], kind: str) -> Give:
    """The values of registers that are renumbered by an xor with a number that depends on the thread."""
    for offset, mask in factors:
        given = cache(partial(_swapped, emitter, given, offset, mask, kind))
    return given


def _swapped(emitter: Emitter, given: Give, offset: int, mask: int, kind: str, register: int) -> str:
    here, there = given(register), given(register ^ offset)
    return emitter.emit(f"select i1 {_is_odd(emitter, mask)}, {kind} {there}, {kind} {here}")


def _is_odd(emitter: Emitter, mask: int) -> str:
    """Whether the thread's number has an odd number of the mask's bits set."""

    def make() -> str:
        if mask & (mask - 1) == 0:
            number = emitter.emit(f"and i32 {emitter.thread()}, {mask}")
        else:
            count = max(LANE_BITS, mask.bit_length())
            number = emitter.linear([mask >> bit & 1 for bit in range(count)])
        return emitter.emit(f"icmp ne i32 {number}, 0")

    return emitter.once(("odd", mask), make)
