"""The checks of sanitized kernels, written in the language: `transforms/sanitize` adds calls of them to a kernel.

They work on one array of i64, the memory of a sanitized launch: two words (the number of releases up to now; the place
of the times), four words for each argument that is an array (`transforms/sanitize/records.py`), the reports of each
check, then the times of programs and the tables of accesses.

A table has one word for each element of the arrays that share memory. Row 0 has the last store: the program from bit 42
on, counted from 1; the number of the access from bit 30; and bits that are equal for equal values. A row of loads, or
of atomics, has the latest access of the highest program of those that made one: the program from bit 42 on, the time
from bit 12, the number of the access. A second row has that of the lowest program, counted down from `LAST`: two
programs that read an element are both known, so that the store of a third is seen in any order of the three.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.types import i1, i32, i64, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.reflection import function

FAR: Final = 1 << 62  # More than any distance.
RECORDS: Final = 4  # The reports that a check keeps; the others are counted.
WORDS: Final = 1 + 3 * RECORDS  # The words of the reports of a check: their number, then program, element, detail.
PROGRAM_BIT: Final = 42
ACCESS_BIT: Final = 30
TIME_BIT: Final = 12
ACCESSES: Final = (1 << TIME_BIT) - 1  # The largest number of an access.
LAST: Final = (1 << 21) - 1
_TIME: Final = (1 << (PROGRAM_BIT - TIME_BIT)) - 1
_VALUE: Final = (1 << ACCESS_BIT) - 1
_MIX: Final = -0x61C8864680B583EB  # 2^64 divided by the golden ratio.


@function
def sanitize_program() -> Any:
    """The number of this program in the grid, as i64."""
    row = zg.cast(zg.program_id(1), i64) + zg.cast(zg.program_id(2), i64) * zg.num_programs(1)
    return zg.cast(zg.program_id(0), i64) + row * zg.num_programs(0)


@function
def sanitize_report(memory: Any, place: Any, bad: Any, element: Any, detail: Any) -> None:
    """Report the lowest of the elements of an array that are `bad`, with the largest detail of its lanes."""
    if len(bad.shape) == 0:
        if bad:
            sanitize_record(memory + place, element, detail)
    else:
        if zg.any(bad):
            lowest = zg.min(zg.where(bad, element, FAR))
            sanitize_record(memory + place, lowest, zg.max(zg.where(bad & (element == lowest), detail, -1)))


@function
def sanitize_record(counter: Any, element: Any, detail: Any) -> None:
    """Add a report to those of a check."""
    count = zg.atomic_add(counter, zg.cast(1, i64), sem="relaxed")
    if count < RECORDS:
        record = counter + 1 + 3 * count
        zg.store(record, sanitize_program())
        zg.store(record + 1, element)
        zg.store(record + 2, detail)


@function
def sanitize_none(memory: Any, place: Any) -> Any:
    """Whether a check has no reports yet."""
    return zg.load(memory + place, volatile=True) == 0


@function
def sanitize_distance(pointers: Any, base: Any) -> Any:
    """The bytes from the start of an array to the elements."""
    return zg.cast(pointers, i64) - zg.cast(base, i64)


@function
def sanitize_inside(distance: Any, low: Any, high: Any, size: zg.constexpr) -> Any:
    """Whether each element of `size` bytes is between the lowest and the highest byte of an array."""
    return (distance >= low) & (distance <= high - size)


@function
def sanitize_gap(distance: Any, low: Any, high: Any, size: zg.constexpr) -> Any:
    """The bytes between each element of `size` bytes and an array."""
    return zg.maximum(low - distance, distance + size - high)


# Races. `cells` points to row 0 of the tables, `rows` is the number of words of a row.


@function
def sanitize_bits(value: Any, word: zg.constexpr) -> Any:
    """The bits of a number, as i64. `word` is the integer of its size."""
    if word == i1:
        return zg.cast(value, i64)
    return zg.cast(zg.bitcast(value, word), i64)


@function
def sanitize_unordered(memory: Any, program: Any, time: Any, mask: Any) -> Any:
    """Whether an access of another program at this time comes in no order with one of this program now."""
    released = zg.load(memory + 1)
    count = zg.cast(zg.num_programs(0), i64) * zg.num_programs(1) * zg.num_programs(2)
    acquired = zg.load(memory + released + count + sanitize_program(), volatile=True)
    return (time >= zg.load(memory + released + program, mask, 0, volatile=True)) | (time >= acquired)


@function
def sanitize_after_store(memory: Any, cells: Any, rows: Any, time_row: zg.constexpr, mask: Any, record: Any) -> Any:
    """The lanes whose element another program has written, and the accesses. `record` is that of row 0."""
    program = (record >> PROGRAM_BIT) - 1
    bad = mask & (record != 0) & (program != sanitize_program())
    if time_row > 0:
        time = zg.load(cells + rows * time_row, bad, 0, volatile=True)
        bad = bad & sanitize_unordered(memory, program, time, bad)
    return bad, program << TIME_BIT | record >> ACCESS_BIT & ACCESSES


@function
def sanitize_after(
    memory: Any, cells: Any, rows: Any, row: zg.constexpr, time_row: zg.constexpr, mask: Any, bad: Any, detail: Any
) -> Any:
    """The lanes that are `bad`, and those whose element another program has accessed, by the two rows from `row` on;
    and the accesses. A row of 0 is none."""
    if row > 0:
        me = sanitize_program()
        for lowest in zg.static_range(2):
            record = zg.load(cells + rows * (row + lowest), mask, 0, volatile=True)
            program = LAST - (record >> PROGRAM_BIT) if lowest == 1 else (record >> PROGRAM_BIT) - 1
            more = mask & (record != 0) & (program != me)
            if time_row > 0:
                more = more & sanitize_unordered(memory, program, record >> TIME_BIT & _TIME, more)
            detail = zg.where(bad, detail, program << TIME_BIT | record & ACCESSES)
            bad = bad | more
    return bad, detail


@function
def sanitize_note(
    memory: Any, cells: Any, rows: Any, row: zg.constexpr, access: Any, time_row: zg.constexpr, mask: Any
) -> None:
    """Note an access in the two rows from `row` on."""
    me = sanitize_program()
    record = access
    if time_row > 0:
        record = record | zg.load(memory, volatile=True) << TIME_BIT
    same = zg.zeros(mask.shape, i64)
    zg.atomic_max(cells + rows * row, ((me + 1) << PROGRAM_BIT | record) + same, mask, sem="relaxed")
    zg.atomic_max(cells + rows * (row + 1), ((LAST - me) << PROGRAM_BIT | record) + same, mask, sem="relaxed")


@function
def sanitize_read_or_update(
    memory: Any, cells: Any, rows: Any, own_row: zg.constexpr, other_row: zg.constexpr, time_row: zg.constexpr,
    access: Any, place: Any, mask: Any, distance: Any,
) -> None:  # fmt: skip
    """A load, which races with stores and atomics, or an atomic, which races with stores and loads.

    A row of 0 is none: there are no such accesses, or the load waits for an atomic.
    """
    if own_row > 0:
        sanitize_note(memory, cells, rows, own_row, access, time_row, mask)
    record = zg.load(cells, mask, 0, volatile=True)
    bad, detail = sanitize_after_store(memory, cells, rows, time_row, mask, record)
    bad, detail = sanitize_after(memory, cells, rows, other_row, time_row, mask, bad, detail)
    sanitize_report(memory, place, bad, distance, detail)


@function
def sanitize_write(
    memory: Any, cells: Any, rows: Any, read_row: zg.constexpr, update_row: zg.constexpr, time_row: zg.constexpr,
    access: Any, place: Any, mask: Any, distance: Any, bits: Any,
) -> None:  # fmt: skip
    """A store of values with these bits. Stores of the same value do not race."""
    me = sanitize_program()
    own = bits * _MIX >> 34 & _VALUE | ((me + 1) << PROGRAM_BIT | access << ACCESS_BIT)
    record = zg.atomic_xchg(cells, own, mask, sem="relaxed")
    other = mask & (record & _VALUE != own & _VALUE)
    bad, detail = sanitize_after_store(memory, cells, rows, time_row, other, record)
    bad, detail = sanitize_after(memory, cells, rows, read_row, time_row, mask, bad, detail)
    bad, detail = sanitize_after(memory, cells, rows, update_row, time_row, mask, bad, detail)
    sanitize_report(memory, place, bad, distance, detail)
    if time_row > 0:
        time = zg.load(memory, volatile=True) + zg.zeros(mask.shape, i64)
        zg.atomic_max(cells + rows * time_row, time, mask, sem="relaxed")


@function
def sanitize_lanes(
    memory: Any, pointers: Any, place: Any, access: Any, mask: Any, distance: Any, bits: Any,
    word: zg.constexpr,
) -> None:  # fmt: skip
    """Report the lanes of a store that do not find their value after it: another lane wrote there."""
    there = sanitize_bits(zg.load(pointers, mask, volatile=True), word)
    detail = sanitize_program() << TIME_BIT | access
    sanitize_report(memory, place, mask & (there != bits), distance, detail)


# Elements that nothing has written: a row has 1 for each that a store or an atomic of this launch has.


@function
def sanitize_defined(cells: Any, rows: Any, row: zg.constexpr, mask: Any) -> None:
    """A store or an atomic writes elements."""
    zg.atomic_max(cells + rows * row, zg.full(mask.shape, 1, i64), mask, sem="relaxed")


@function
def sanitize_unwritten(
    memory: Any, cells: Any, rows: Any, row: zg.constexpr, place: Any, mask: Any, distance: Any
) -> None:
    """Report the lanes that read what nothing has written."""
    word = zg.load(cells + rows * row, mask, 1, volatile=True)
    sanitize_report(memory, place, mask & (word == 0), distance, zg.zeros(mask.shape, i64))


# The order of programs: a program that acquires what another has released comes after it.


@function
def sanitize_release(memory: Any, cells: Any, rows: Any, time_row: zg.constexpr, mask: Any) -> None:
    """An atomic is to make the accesses before it visible."""
    time = zg.atomic_add(memory, zg.cast(1, i64), sem="relaxed") + 1
    zg.atomic_max(memory + zg.load(memory + 1) + sanitize_program(), time, sem="relaxed")
    zg.atomic_max(cells + rows * (time_row + 1), time + zg.zeros(mask.shape, i64), mask, sem="relaxed")


@function
def sanitize_acquire(memory: Any, cells: Any, rows: Any, time_row: zg.constexpr, mask: Any) -> None:
    """An access has seen what releases of its elements made visible."""
    times = zg.load(cells + rows * (time_row + 1), mask, 0, volatile=True)
    count = zg.cast(zg.num_programs(0), i64) * zg.num_programs(1) * zg.num_programs(2)
    own = memory + zg.load(memory + 1) + count + sanitize_program()
    zg.atomic_max(own + zg.zeros(mask.shape, i64), times, mask, sem="relaxed")


# Overflow.


@function
def sanitize_sum(a: Any, b: Any, result: Any) -> Any:
    """Whether sums of signed integers overflow: the result has another sign than both operands."""
    return ((a ^ result) & (b ^ result)) < 0


@function
def sanitize_difference(a: Any, b: Any, result: Any) -> Any:
    """Whether differences of signed integers overflow."""
    return ((a ^ b) & (a ^ result)) < 0


@function
def sanitize_product(a: Any, b: Any, result: Any) -> Any:
    """Whether products of signed integers of up to 32 bits overflow."""
    return zg.cast(a, i64) * zg.cast(b, i64) != zg.cast(result, i64)


@function
def sanitize_wide_product(a: Any, b: Any, result: Any) -> Any:
    """Whether products of i64 overflow: their upper half is not the sign of the lower."""
    high = zg.bitcast(zg.umulhi(zg.bitcast(a, u64), zg.bitcast(b, u64)), i64)
    return high - (a >> 63 & b) - (b >> 63 & a) != result >> 63


# Floats. The marks of lanes are numbers of sources, 0 for none.


@function
def sanitize_not_a_number(x: Any) -> Any:
    """Whether each float is NaN."""
    return x != x


@function
def sanitize_not_finite(x: Any, word: zg.constexpr, exponent: zg.constexpr) -> Any:
    """Whether each float is infinite or NaN: all bits of the exponent are set."""
    return zg.bitcast(x, word) & exponent == exponent


@function
def sanitize_marks(mask: Any, mark: Any) -> Any:
    """The mark where the mask holds."""
    return zg.where(mask, mark, zg.zeros(mask.shape, i32))
