"""Emission of sorts: a bitonic network in which most steps compare whole vectors.

The keys of a row lie in vectors one after the other, and the network takes the lane as the upper bits of a key's
place: key `i` is in vector `i % count`, lane `i / count`. So the steps of short distances, which are the most, compare
vectors, and only the last stages have steps between lanes. Keys come in any order, so that none has to be moved before;
at the end, lanes become rows.

The first step of a stage compares the keys of two sorted runs from the outer ends to the middle, and the other steps
compare at half the distance of the step before. So all runs are in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.cpu.emitter import CpuEmitter, emits
from ziggurat.backend.cpu.memory import read, write
from ziggurat.backend.cpu.shuffles import shuffled, transposed
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.types import ScalarType

IN_REGISTERS = {64: 16, 32: 8, 16: 8}  # Vectors that are sorted without memory, by the bytes of one.


@emits(cpu.Sort)
def _sort(emitter: CpuEmitter, op: cpu.Sort, source: Number, target: Number) -> None:
    type_ = cpu.buffer_of(op, op.keys)
    row = _Row(emitter, expect(type_.element, ScalarType), type_.shape[-1])
    size = row.size * row.type_.bytes
    emitter.loop(0, type_.numel // row.size, 1, lambda line: row.sort(source + line * size, target + line * size))
    emitter.release()
    emitter.lanes = 0


class _Row:
    """A row of keys that is sorted: `count` vectors of `lanes` lanes, in memory of its own."""

    def __init__(self, emitter: CpuEmitter, type_: ScalarType, size: int) -> None:
        self.emitter = emitter
        self.type_ = type_
        self.size = size
        lanes = emitter.module.vector // type_.bytes
        while lanes * lanes > size:  # At the end, squares of vectors are transposed.
            lanes //= 2
        self.lanes = lanes
        self.count = size // lanes
        self.block = min(IN_REGISTERS[emitter.module.vector], self.count)
        self.data = emitter.scratch_address(emitter.temporary(size * type_.bytes))
        emitter.lanes = lanes if lanes > 1 else 0

    def load(self, base: Number, vector: Number | int) -> Number:
        """A vector of those from an address on."""
        return read(self.emitter, base + vector * (self.lanes * self.type_.bytes), 0, self.lanes > 1, self.type_)

    def store(self, vector: Number | int, keys: Number) -> None:
        """Store a vector of the row."""
        write(self.emitter, self.data + vector * (self.lanes * self.type_.bytes), 0, self.lanes > 1, keys, self.type_)

    def ordered(self, x: Number, y: Number) -> tuple[Number, Number]:
        """The lesser and the greater keys of each lane."""
        sign = "s" if self.type_.signed else "u"
        return x.call(f"llvm.{sign}min", y), x.call(f"llvm.{sign}max", y)

    def sort(self, source: Number, target: Number) -> None:
        """Sort a row of an address to another one."""
        emitter, block = self.emitter, self.block
        steps = (self.count // block).bit_length() - 1  # Those of all vectors whose distance is a block or more.
        emitter.loop(0, self.count, block, lambda first: self._in_registers(source, first, _sorting(block)))

        def stage(number: Number) -> None:
            """Merge runs of 2^number blocks."""
            distance = emitter.i64(block) << number
            self._pairs(lambda place: self._step(place + (place & -distance), distance + distance - 1))
            self._merge(distance, number)

        if steps:
            emitter.loop(0, steps, 1, stage)
        for lanes in (1 << level for level in range(self.lanes.bit_length() - 1)):
            self._pairs(lambda place, lanes=lanes: self._across(place, lanes))
            self._merge(emitter.i64(self.count), steps)
        if self.lanes == 1:
            emitter.loop(
                0, self.count, 1, lambda at: write(emitter, target, at, False, self.load(self.data, at), self.type_)
            )
        else:
            emitter.loop(0, self.count, self.lanes, lambda first: self._turn(first, target))

    def _pairs(self, body: Callable[[Number], None]) -> None:
        """Run code for half as many places as there are vectors."""
        self.emitter.loop(0, self.count // 2, 1, body)

    def _step(self, first: Number, bits: Number) -> None:
        """Order a vector and the one whose number differs in these bits."""
        second = first ^ bits
        for vector, keys in zip(
            (first, second), self.ordered(self.load(self.data, first), self.load(self.data, second)), strict=True
        ):
            self.store(vector, keys)

    def _merge(self, run: Number, steps: Number | int) -> None:
        """The steps at halves of a run of vectors, so many of them of a block or more, and those in blocks."""

        def step(number: Number) -> None:
            distance = run >> (number + 1)
            self._pairs(lambda place: self._step(place + (place & -distance), distance))

        if not isinstance(steps, int) or steps:
            self.emitter.loop(0, steps, 1, step)
        pairs = _merging(self.block)
        self.emitter.loop(0, self.count, self.block, lambda first: self._in_registers(self.data, first, pairs))

    def _in_registers(self, base: Number, first: Number, pairs: Sequence[tuple[int, int]]) -> None:
        """Order pairs of the vectors of a block."""
        place = base + first * (self.lanes * self.type_.bytes)
        vectors = [self.load(place, number) for number in range(self.block)]
        for low, high in pairs:
            vectors[low], vectors[high] = self.ordered(vectors[low], vectors[high])
        for number, keys in enumerate(vectors):
            self.store(first + number, keys)

    def _across(self, place: Number, lanes: int) -> None:
        """Merge runs of so many lanes: all steps between lanes, of two vectors that are as far from either end."""
        other = self.count - 1 - place
        partners = [lane ^ (2 * lanes - 1) for lane in range(self.lanes)]
        low, high = self.ordered(self.load(self.data, place), shuffled(self.load(self.data, other), partners))
        pair = [self._mixed(low, high, lanes), shuffled(self._mixed(high, low, lanes), partners)]
        while lanes > 1:
            lanes //= 2
            for number, keys in enumerate(pair):
                partner = shuffled(keys, [lane ^ lanes for lane in range(self.lanes)])
                pair[number] = self._mixed(*self.ordered(keys, partner), lanes)
        self.store(place, pair[0])
        self.store(other, pair[1])

    def _mixed(self, low: Number, high: Number, bit: int) -> Number:
        """A vector with the lanes of the second one whose numbers have a bit, and else those of the first one."""
        return shuffled(low, [lane + self.lanes if lane & bit else lane for lane in range(self.lanes)], high)

    def _turn(self, first: Number, target: Number) -> None:
        """Store the lanes of as many vectors as rows of the target."""
        place = self.data + first * (self.lanes * self.type_.bytes)
        vectors = [self.load(place, number) for number in range(self.lanes)]
        for lane, keys in enumerate(transposed(vectors)):
            write(self.emitter, target, first + lane * self.count, True, keys, self.type_)


def _sorting(count: int) -> list[tuple[int, int]]:
    """The pairs of Batcher's odd-even merge sort, in their order."""
    pairs: list[tuple[int, int]] = []
    run = 1
    while run < count:
        distance = run
        while distance:
            for first in range(distance % run, count - distance, 2 * distance):
                for place in range(first, min(first + distance, count - distance)):
                    if place // (2 * run) == (place + distance) // (2 * run):
                        pairs.append((place, place + distance))
            distance //= 2
        run *= 2
    return pairs


def _merging(count: int) -> list[tuple[int, int]]:
    """The pairs at halves of a count, then of its halves, and so on."""
    pairs: list[tuple[int, int]] = []
    distance = count // 2
    while distance:
        pairs += [(place, place + distance) for place in range(count) if not place & distance]
        distance //= 2
    return pairs
