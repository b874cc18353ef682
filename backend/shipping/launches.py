"""The choice of a variant and the values of its parameters, as LLVM text; and messages of failures."""

from __future__ import annotations

from typing import Final

from ziggurat.backend.llvm.functions import Function, Global, Record, Struct, define, moved
from ziggurat.backend.llvm.routines import Number, escaped
from ziggurat.backend.shipping.structures import CONDITION, PARAMETER

# The message of the last failure of any thread: always a constant, so that whoever reads it can.
MESSAGE: Final = Global("zg_message", "ptr", exported=True)


def text(symbol: str, words: str) -> Global:
    """A constant string."""
    raw = words.encode() + b"\0"
    return Global(symbol, f"[{len(raw)} x i8]", f'c"{escaped(raw)}"', constant=True)


def fail(f: Function, status: Number | int, message: Number | Global) -> None:
    """Return a status, with a message."""
    f.place(MESSAGE).store(f.value("ptr", message))
    f.give(status)


def row(struct: Struct, table: Number, index: Number) -> Record:
    """A row of a table."""
    return struct.at(moved(table, index * struct.size))


@define("i64", "ptr i64 i64")
def value_of(f: Function, slots: Number, slot: Number, offset: Number) -> None:
    """The value in a slot, or at an offset in the tensor whose address is there."""
    place = moved(slots, slot << 3)
    with f.when(offset.test("slt", 0)):
        f.give(f.load("i64", place))
    f.give(f.load("i64", f.load("ptr", place), offset))


@define("ptr", "ptr i64 ptr")
def obstacle(f: Function, conditions: Number, count: Number, slots: Number) -> None:
    """The message of the first condition that does not hold; null if all hold."""
    with f.count(count) as loop:
        condition = row(CONDITION, conditions, loop.index)
        value = f.call(value_of, slots, condition["slot"], condition["offset"]) * condition["bytes"]
        divisor = condition["divisor"]
        is_one = divisor.test("eq", 0) & value.test("eq", 1)
        divides = divisor.test("ne", 0) & (value & (divisor - 1)).test("eq", 0)
        with f.unless(is_one | divides):
            f.give(condition["message"])
    f.give(None)


@define("void", "ptr i64 ptr ptr")
def fill(f: Function, parameters: Number, count: Number, slots: Number, values: Number) -> None:
    """Write the values of parameters, 8 bytes each. Those of tensor maps are left as they are."""
    with f.count(count) as loop:
        parameter = row(PARAMETER, parameters, loop.index)
        with f.when(parameter["map"].test("eq", 0)):
            value = f.call(value_of, slots, parameter["slot"], parameter["offset"])
            f.line(f"store {value.typed}, {moved(values, loop.index << 3).typed}, align 8")
