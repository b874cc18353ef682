"""Conversions within warps: the lanes exchange registers, in rounds of one shuffle each.

The source and the target layout have the same elements in each warp. The element of register r of thread t in the
target layout is, in the source layout, in lane A·r + B·t and register C·r + D·t (over F2). In one round each lane sends
one register and reads one lane, so lanes that read the same lane must want the same register of it. In round n, thread
t gets the register n + X·t, from the lane

    A·(n + X·t) + B·t = A·n + (A·X + B)·t

X is chosen so that A·X + B is invertible: then each lane is read by one thread. Solved for t, this says which register
the sender sends: one that is linear in n and in the sender's number. So before the rounds, each thread permutes its
registers by the xor with a number that depends on the thread (a select for each bit of that number); and again after
them. If a thread reads its own lane, there is no shuffle.

Swapping k register bits with k lane bits takes 2^R (1 - 2^-k) shuffles of the 2^R registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import attrs

from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.layout import LANE_BITS, Layout, Span, combine, inverted, moved
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import element_bytes
from ziggurat.transforms.analysis.queries import layout_of, tensor_of
from ziggurat.transforms.layouts.swizzle import extended

BARRIERS = 24  # The cost of two barriers in cycles; a shuffle moves one word of a warp in a cycle.

# (number, mask): threads whose number has an odd number of bits in `mask` xor `number` to a register number.
Factor = tuple[int, int]


@attrs.frozen
class Exchange:
    """The exchange of registers, round by round. Rounds are numbered like the target's registers without copies.

    In round n, thread t reads lane `combine(lane, t) ^ combine(far, n)`. Thread s sends its register
    `combine(sent, n) ^ turned(s)`, where `turned(s)` is the xor of the numbers of the factors that apply to s.
    Thread t receives register `n ^ placed(t)` of the target.
    """

    rounds: int
    lane: tuple[int, ...]
    far: tuple[int, ...]
    sent: tuple[int, ...]
    turned: tuple[Factor, ...]
    placed: tuple[Factor, ...]

    @property
    def own(self) -> bool:
        """Whether threads read their own lane in a round without `far`."""
        return all(basis == (1 << bit if bit < LANE_BITS else 0) for bit, basis in enumerate(self.lane))

    def packs(self, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` pairs (round bit, source register bit) that no other bit maps to. Rounds that differ only in
        these bits read one lane, so their registers are packed into one word."""
        packs: list[tuple[int, int]] = []
        for bit, (far, lane) in enumerate(zip(self.far, self.sent, strict=True)):
            others = [*(other for at, other in enumerate(self.sent) if at != bit), *(basis for basis, _ in self.turned)]
            alone = lane and lane & (lane - 1) == 0 and not any(other & lane for other in others)
            if len(packs) < limit and not far and alone and not any(basis >> bit & 1 for basis, _ in self.placed):
                packs.append((bit, lane.bit_length() - 1))
        return packs

    def groups(self, bits: Sequence[int]) -> dict[int, list[int]]:
        """The rounds with only these bits set, by the xor distance to the lane that is read."""
        numbers = (sum(1 << b for at, b in enumerate(bits) if index >> at & 1) for index in range(1 << len(bits)))
        return by_key((combine(self.far, number), number) for number in numbers)

    def cost(self, size: int) -> float:
        """The cycles for a warp, for elements of `size` bytes: 1 for each shuffled word, 1/2 for each select."""
        packed = [bit for bit, _ in self.packs(max(0, 3 - size.bit_length()))]
        rest = [bit for bit in range(self.rounds) if bit not in packed]
        element = size << len(packed)
        words = 0
        for far, numbers in self.groups(rest).items():
            if far or not self.own:
                words += -(-len(numbers) * element // 4)
        selects = (1 << len(rest)) * max(1, element // 4) * (len(self.turned) + len(self.placed))
        return words + selects / 2


@lru_cache(maxsize=1024)
def exchange(source: Layout, target: Layout, numel: int) -> Exchange | None:
    """The conversion between layouts by shuffles; None if elements go to other warps."""
    _, free_lanes, free_warps = source.free
    registers = [source.locate(basis, numel) for basis in target.registers if basis]
    lanes = [source.locate(basis, numel) for basis in target.lanes]
    warps = [source.locate(basis, numel) for basis in target.warps]
    if any(warp for _, _, warp in (*registers, *lanes)):
        return None
    if any(warp != 1 << bit & ~free_warps for bit, (_, _, warp) in enumerate(warps)):
        return None
    maps = _maps_of_lanes(registers, lanes, free_lanes)
    if maps is None:
        return None
    reads, lane_maps = maps
    # The register that is wanted, as a linear map of the sender's number; it is given on the lanes that are read.
    lanes_by_bit = {bit: lane for bit, lane in enumerate(reads) if lane}
    numbers = [register for register, _, _ in registers]
    masks = [combine(numbers, lane_maps[bit]) ^ lanes[bit][0] for bit in lanes_by_bit]
    rest = extended(lanes_by_bit.values(), (1 << bit for bit in range(LANE_BITS)))
    masks += [0] * len(rest)
    source_masks = [combine(masks, mask) for mask in inverted((*lanes_by_bit.values(), *rest))]
    source_masks += [register ^ combine(source_masks, lane) for register, lane, _ in warps]
    return Exchange(
        len(registers),
        (*reads, *(lane for _, lane, _ in warps)),
        tuple(lane for _, lane, _ in registers),
        tuple(register ^ combine(source_masks, lane) for register, lane, _ in registers),
        factored(source_masks),
        factored(lane_maps),
    )


def by_shuffles(source: Layout, target: Layout, numel: int, size: int) -> bool:
    """Whether a conversion of elements of `size` bytes is cheaper by shuffles than through shared memory."""
    plan = exchange(source, target, numel)
    if plan is None:
        return False
    words = sum(1 << sum(map(bool, layout.registers)) for layout in (source, target)) * max(size, 1) / 4
    return plan.cost(size) <= words + BARRIERS


def is_within_warps(value: Value, layout: Layout) -> bool:
    """Whether a conversion moves elements only within the registers of a thread, or by shuffles."""
    type_ = tensor_of(value)
    source, size = layout_of(type_), element_bytes(type_)
    return moved(source, layout, type_.numel) is not None or by_shuffles(source, layout, type_.numel, size)


def _maps_of_lanes(
    registers: Sequence[tuple[int, int, int]], lanes: Sequence[tuple[int, int, int]], free: int
) -> tuple[list[int], list[int]] | None:
    """The two linear maps of an exchange, as the images of the bits of a lane's number.

    The first gives the number of the lane that a lane reads, the second the number that is xored to the register that
    the lane receives. None if several lanes would have to read different registers of the same lane.
    """
    reads, maps = [0] * LANE_BITS, [0] * LANE_BITS
    span = Span()
    # First the bits of lanes that read themselves, then those whose element the source has in another lane.
    order = sorted(range(LANE_BITS), key=lambda bit: lanes[bit][1] != 1 << bit)
    late: list[int] = []
    for bit in order:
        if lanes[bit][1] and span.add(lanes[bit][1]):
            reads[bit] = lanes[bit][1]
        elif lanes[bit][0] or lanes[bit][1]:
            late.append(bit)
    for bit in late:
        own = lanes[bit][1]
        choices = [(1 << other, 0) for other in range(LANE_BITS) if free >> other & 1]
        choices += [(lane, 1 << at) for at, (_, lane, _) in enumerate(registers) if lane]
        choices.sort(key=lambda choice: own ^ choice[0] != 1 << bit)
        choice = next((choice for choice in choices if span.add(own ^ choice[0])), None)
        if choice is None:
            return None
        reads[bit], maps[bit] = own ^ choice[0], choice[1]
    # If neither layout tells lanes apart, each may read itself.
    for bit in range(LANE_BITS):
        if not lanes[bit][0] and not lanes[bit][1] and free >> bit & 1 and span.add(1 << bit):
            reads[bit] = 1 << bit
    return reads, maps


def factored(columns: Sequence[int]) -> tuple[Factor, ...]:
    """A linear map from bits of a thread's number to register numbers, as the fewest factors.

    `columns` are the images of the bits. The image of a thread is the xor of the numbers of those factors in whose mask
    the thread has an odd number of bits. Each factor costs a select for each register.
    """
    basis = extended((), columns)
    span = Span(basis)
    # For each bit, the vectors of the basis whose xor is its image, as a mask.
    combinations = [span.reduced(column)[1] for column in columns]
    return tuple(
        (vector, sum(1 << bit for bit, combination in enumerate(combinations) if combination >> index & 1))
        for index, vector in enumerate(basis)
    )
