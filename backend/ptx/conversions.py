"""Emission of conversions of layouts that stay within warps: registers renamed, or exchanged by shuffles.

`transforms/place/shuffles.py` plans the exchange. Elements of 8 and 16 bits travel in words of 32 bits: registers that
move together throughout are packed before the exchange and unpacked after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits, emitted_type, layout_of
from ziggurat.backend.ptx.reductions import shuffle, shuffled_values
from ziggurat.backend.ptx.tensors import moved
from ziggurat.backend.ptx.words import from_memory, pack, to_memory, unpack
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import LANE_BITS
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
    result: list[str] = []
    for register in range(target.num_registers):
        kept = [bit for bit, basis in enumerate(target.registers) if basis]
        result.append(numbered[sum(1 << at for at, bit in enumerate(kept) if register >> bit & 1)])
    return result


def _exchanged(emitter: Emitter, found: Exchange, values: Sequence[str], type_: TensorType) -> list[str]:
    """The registers of the target without copies, in order."""
    element, kind = type_.element, emitted_type(type_.element)
    packs: list[tuple[int, int]] = []
    if isinstance(element, ScalarType) and element.bytes < 4:
        packs = found.packs(2 if element.bytes == 1 else 1)
    given: Callable[[int], str] = values.__getitem__
    size = 0
    if packs:
        assert isinstance(element, ScalarType)
        size, word = element.bytes, element.bytes << len(packs)
        kind = f"i{8 * word}"
        within = [_number([bit for _, bit in packs], index) for index in range(1 << len(packs))]
        words: dict[int, str] = {}

        def packed(register: int) -> str:
            if register not in words:
                parts = [to_memory(emitter, values[register | more], element) for more in within]
                (words[register],) = pack(emitter, parts, size, word)
            return words[register]

        given = packed
    rest = [bit for bit in range(found.rounds) if bit not in [bit for bit, _ in packs]]
    received = _rounds(emitter, found, given, rest, kind)
    result = [""] * (1 << found.rounds)
    for number, value in received.items():
        if not packs:
            result[number] = value
            continue
        assert isinstance(element, ScalarType)
        parts = unpack(emitter, [value], size, size << len(packs))
        for index, part in enumerate(parts):
            result[number | _number([bit for bit, _ in packs], index)] = from_memory(emitter, part, element)
    return result


def _number(bits: Sequence[int], index: int) -> int:
    return sum(1 << bit for at, bit in enumerate(bits) if index >> at & 1)


def _rounds(
    emitter: Emitter, found: Exchange, given: Callable[[int], str], bits: Sequence[int], kind: str
) -> dict[int, str]:
    """The results by the number of the round, for the rounds whose numbers have only these bits set."""
    sent = _Renumbered(emitter, given, found.turned, kind)
    arrived: dict[int, str] = {}
    for far, numbers in found.groups(bits).items():
        values = [sent.get(_combined(found.sent, number)) for number in numbers]
        if far or not found.own:
            values = shuffled_values(emitter, values, kind, _move(emitter, found, far))
        arrived.update(zip(numbers, values, strict=True))
    placed = _Renumbered(emitter, arrived.__getitem__, found.placed, kind)
    return {number: placed.get(number) for number in arrived}


def _combined(bases: Sequence[int], index: int) -> int:
    result = 0
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            result ^= basis
    return result


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
