"""Emission of conversions of layouts that stay within warps: registers renamed, or exchanged by shuffles.

`transforms/place/shuffles.py` plans the exchange. Elements of 8 and 16 bits travel in words of 32 bits: registers that
move together throughout are packed before the exchange and unpacked after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits, layout_of
from ziggurat.backend.ptx.numbers import llvm_type
from ziggurat.backend.ptx.shuffles import shuffle, shuffled
from ziggurat.backend.ptx.tensors import moved
from ziggurat.backend.ptx.words import from_words, to_words
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import LANE_BITS, combine
from ziggurat.codemodel.types import ScalarType, TensorType
from ziggurat.transforms.place.shuffles import Exchange, Factor, exchange


@emits(gpu.ConvertLayout)
def _convert(emitter: Emitter, op: gpu.ConvertLayout) -> Emitted:
    type_ = op.value.type
    assert isinstance(type_, TensorType)
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
    """The registers of the target by their number without copies."""
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
    words: dict[int, str] = {}

    def packed(register: int) -> str:
        if register not in words:
            (words[register],) = to_words(emitter, [values[register | more] for more in theirs], element, word)
        return words[register]

    rest = [bit for bit in range(found.rounds) if bit not in [bit for bit, _ in packs]]
    result: dict[int, str] = {}
    for number, value in _rounds(emitter, found, packed, rest, f"i{8 * word}").items():
        result |= zip((number | more for more in own), from_words(emitter, [value], element, word), strict=True)
    return result


def _rounds(
    emitter: Emitter, found: Exchange, given: Callable[[int], str], bits: Sequence[int], kind: str
) -> dict[int, str]:
    """The results by the number of the round, for the rounds whose numbers have only these bits set."""
    sent = _Renumbered(emitter, given, found.turned, kind)
    arrived: dict[int, str] = {}
    for far, numbers in found.groups(bits).items():
        values = [sent.get(combine(found.sent, number)) for number in numbers]
        if far or not found.own:
            values = shuffled(emitter, values, kind, _move(emitter, found, far))
        arrived.update(zip(numbers, values, strict=True))
    placed = _Renumbered(emitter, arrived.__getitem__, found.placed, kind)
    return {number: placed.get(number) for number in arrived}


def _move(emitter: Emitter, found: Exchange, far: int) -> Callable[[str], str]:
    """One shuffle of a word of 32 bits."""
    if found.own:
        return lambda word: shuffle(emitter, "bfly", word, str(far))
    lane = emitter.linear(found.lane)
    if far:
        lane = emitter.once(("lane", found.lane, far), lambda: emitter.emit(f"xor i32 {lane}, {far}"))
    return lambda word: shuffle(emitter, "idx", word, lane)


class _Renumbered:
    """Registers renumbered by an xor with a number that depends on the thread."""

    def __init__(self, emitter: Emitter, given: Callable[[int], str], factors: Sequence[Factor], kind: str) -> None:
        self.emitter = emitter
        self.given = given
        self.factors = factors
        self.kind = kind
        self._made: dict[tuple[int, int], str] = {}

    def get(self, register: int) -> str:
        """The value that gets this register number."""
        return self._get(len(self.factors), register)

    def _get(self, step: int, register: int) -> str:
        if step == 0:
            return self.given(register)
        found = self._made.get((step, register))
        if found is None:
            offset, mask = self.factors[step - 1]
            here, there = (self._get(step - 1, number) for number in (register, register ^ offset))
            test = _is_odd(self.emitter, mask)
            found = self.emitter.emit(f"select i1 {test}, {self.kind} {there}, {self.kind} {here}")
            self._made[step, register] = found
        return found


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
