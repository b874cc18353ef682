"""A kernel is one program, launched many times over a grid of up to three axes; each program knows its index."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstInt, Value
from ziggurat.frontends.language.signature import call

__all__ = ["globaltimer", "num_programs", "program_id", "smid"]


@call("Programs")
def program_id(axis: ConstInt) -> Value:
    """The index of the program along an axis of the grid.

    - `axis`: 0, 1 or 2.

    Result: an i32 scalar, 0 to `num_programs(axis)` - 1.
    Errors: another axis.
    """


@call("Programs")
def num_programs(axis: ConstInt) -> Value:
    """The number of programs that were launched along an axis of the grid.

    - `axis`: 0, 1 or 2.

    Result: an i32 scalar, at least 1.
    Errors: another axis.
    """


@call("Programs")
def smid() -> Value:
    """The number of the multiprocessor that runs the program, as it is when the program starts.

    Result: an i32 scalar; 0 in the interpreter.
    """


@call("Programs")
def globaltimer() -> Value:
    """The time in nanoseconds, by a clock that the whole device shares. The read is not moved across loads and stores.

    Its resolution depends on the machine, and may be a microsecond. Each thread reads it when it gets there, so threads
    may have different numbers: store it, or a difference of two, but do not branch on it.

    Result: an i64 scalar; in the interpreter the host's clock, which is greater at each call.
    """
