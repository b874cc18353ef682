"""A kernel is one program, launched many times over a grid of up to three axes; each launch knows its place."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstInt, Value
from ziggurat.frontends.language.signature import call


@call("Programs")
def program_id(axis: ConstInt) -> Value:
    """Which program of the launch this is, along an axis of the grid.

    - `axis`: 0, 1 or 2.

    Result: an i32 scalar, 0 to `num_programs(axis)` - 1.
    Errors: another axis.
    """


@call("Programs")
def num_programs(axis: ConstInt) -> Value:
    """How many programs were launched along an axis of the grid.

    - `axis`: 0, 1 or 2.

    Result: an i32 scalar, at least 1.
    Errors: another axis.
    """
