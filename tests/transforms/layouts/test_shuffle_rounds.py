"""Exchanges between the lanes of a warp: their results on numbers, and the words that they move."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.layout import Layout, blocked, combine
from ziggurat.transforms.layouts.shuffle_rounds import Exchange, Factor, by_shuffles, exchange, factored


def parity_sum(factors: tuple[Factor, ...], thread: int) -> int:
    actual = 0
    for offset, mask in factors:
        if (thread & mask).bit_count() & 1:
            actual ^= offset
    return actual


def delivered(actual: Exchange, source: Layout, warp: int, lane: int) -> list[int]:
    """The elements that a thread has after all rounds, by the number of the register without copies."""
    thread = lane | warp << 5
    result = [-1] * (1 << actual.rounds)
    for number in range(1 << actual.rounds):
        sender = combine(actual.lane, thread) ^ combine(actual.far, number)
        register = combine(actual.sent, number) ^ parity_sum(actual.turned, sender | warp << 5)
        result[number ^ parity_sum(actual.placed, thread)] = source.element(register, sender, warp)
    return result


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Layout, Layout, int]:
    """Two random layouts of one tensor with the same elements in each warp."""
    warp_bits, bits = draw(st.sampled_from([0, 2, 3])), draw(st.integers(1, 9))
    count = min(warp_bits, bits)
    # The bits of the warps, with copies among the warps of one or both layouts.
    warps = draw(st.permutations([*(1 << bit for bit in range(count)), *[0] * (warp_bits - count)]))
    shared = draw(st.integers(0, 1))
    results: list[Layout] = []
    for side in range(2):
        own = [basis if shared or side else 0 for basis in warps]
        rest = [1 << bit for bit in range(bits) if 1 << bit not in own]
        lanes = draw(st.permutations([*rest, *[0] * 5]))[:5]
        registers = draw(st.permutations([basis for basis in rest if basis not in lanes]))
        if draw(st.booleans()):
            registers.insert(draw(st.integers(0, len(registers))), 0)
        changes = [(bit, other) for bit in rest for other in rest if bit != other]
        for _ in range(draw(st.integers(0, 3)) if changes else 0):
            a, b = draw(st.sampled_from(changes))
            registers, lanes = ([x ^ b if x & a else x for x in part] for part in (registers, lanes))
        results.append(Layout(tuple(registers), tuple(lanes), tuple(own)))
    return results[0], results[1], 1 << bits


@settings(max_examples=300)
@given(pairs())
def test_every_thread_gets_the_elements_of_its_layout(pair: tuple[Layout, Layout, int]) -> None:
    source, target, numel = pair
    actual = exchange(source, target, numel)
    # If warps hold copies of each other, too few lanes may have the elements that a warp needs.
    assert actual is not None or source.warps != target.warps
    if actual is None:
        return
    unique = Layout(tuple(filter(None, target.registers)), target.lanes, target.warps)
    for warp in range(source.num_warps):
        for lane in range(32):
            expected = [unique.element(register, lane, warp) for register in range(unique.num_registers)]
            assert delivered(actual, source, warp, lane) == expected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_exchange_of_bits_keeps_a_part_in_place(count: int) -> None:
    """For one bit half of 16 registers are sent, for two bits three quarters, for three bits seven eighths."""
    source = Layout((1, 2, 4, 8), (16, 32, 64, 128, 256), ())
    swapped = dict(zip(source.registers[:count], source.lanes[:count], strict=True))
    swapped |= {lane: register for register, lane in swapped.items()}
    actual = exchange(source, source.map(lambda basis: swapped.get(basis, basis)), 512)
    assert actual is not None and actual.own
    sent = sum(len(numbers) for far, numbers in actual.groups(range(4)).items() if far)
    assert sent == 16 - (16 >> count)
    assert len(actual.turned) == len(actual.placed) == count
    assert actual.cost(4) == sent + 16 * count


def test_a_permutation_of_lanes_needs_no_selects() -> None:
    source, target = (Layout((1, 2), lanes, (128,)) for lanes in ((4, 8, 16, 32, 64), (8, 64, 4, 16, 32)))
    actual = exchange(source, target, 256)
    assert actual is not None and not actual.turned and not actual.placed and actual.cost(4) == 4
    assert actual.cost(2) == 2  # Two of 16 bits go in one word,
    assert actual.cost(1) == 1  # four of 8 bits do,
    assert actual.cost(8) == 8  # and 64 bits go in two.


def test_an_element_that_a_lane_has_is_not_sent() -> None:
    """All lanes have copies, so each selects among its own registers."""
    actual = exchange(Layout((1, 2, 4, 8, 16), (0,) * 5, ()), Layout((), (1, 2, 4, 8, 16), ()), 32)
    assert actual is not None and actual.own and not any(actual.far) and len(actual.turned) == 5


def test_no_exchange_between_warps() -> None:
    one, other = blocked((1024,), (0,), 4, 4), blocked((1024,), (0,), 8, 4)
    assert exchange(one, other, 1024) is None and not by_shuffles(one, other, 1024, 4)


def test_large_exchanges_use_shared_memory() -> None:
    source = Layout(tuple(1 << bit for bit in range(6)), tuple(64 << bit for bit in range(5)), ())
    target = source.map(lambda basis: basis * 32 if basis < 64 else basis >> 6)
    assert exchange(source, target, 2048) is not None and not by_shuffles(source, target, 2048, 4)
    assert by_shuffles(source, source.map(lambda basis: {1: 64, 64: 1}.get(basis, basis)), 2048, 4)


def test_factors_of_a_map() -> None:
    columns = (3, 0, 5, 6, 3)
    actual = factored(columns)
    assert len(actual) == 2
    assert all(parity_sum(actual, thread) == combine(columns, thread) for thread in range(32))
