"""Python's arguments against the tables of plans, as LLVM text: the common part of launchers on GPUs and on CPUs.

A launcher is a built-in function of Python that goes through a list of *plans* (`each_plan`). A plan is a tuple: a
table as bytes, the result of the launch, and more. An entry of a table says which object fits an argument, and where
its value goes (`check`). The structures of tables and entries, and the kinds from `OWN` on, are the launcher's own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

from ziggurat.backend.llvm.functions import Function, Loop, Place, Record, define
from ziggurat.backend.llvm.routines import Number

CONSTANT, INTEGER, F32, F64, BOOLEAN, OWN = range(6)
DIVISIBLE, NOT_DIVISIBLE, NOT_ONE = 1, 2, 4
TYPE: Final = 8  # The place of an object's type.
_EQUAL: Final = 2  # Py_EQ of Python's C interface.
_MAGNITUDE: Final = (1 << 63) - 1  # The bits of an f64 without its sign.
_LEAST_NORMAL: Final = 0x3810000000000000  # The bits of the least normal f32 as an f64.


@contextmanager
def each_plan(
    f: Function, plans: Number, fits: Callable[[Number], Number]
) -> Generator[tuple[Number, Number], None, None]:
    """Go through a list of plans: what follows runs for one whose table `fits`, with it and the table, and ends the
    function."""
    number = f.local("i64", 0)
    with f.loop() as loop:
        at = number.get()
        loop.stop(at.test("sge", f.call("PyList_Size", plans)))
        plan = f.call("PyList_GetItem", plans, at)
        f.call("Py_IncRef", plan)
        table = f.call("PyBytes_AsString", f.call("PyTuple_GetItem", plan, 0))
        with f.when(fits(table)):
            yield plan, table
        f.call("PyErr_Clear")
        f.call("Py_DecRef", plan)
        number.set(at + 1)


def give_result(f: Function, plan: Number) -> None:
    """End the launcher with the result of the plan that was launched."""
    result = f.call("PyTuple_GetItem", plan, 1)
    f.call("Py_IncRef", result)
    f.call("Py_DecRef", plan)
    f.give(result)


@define("i64", "ptr", symbol="number")
def number_of(f: Function, value: Number) -> None:
    """The number of an int, whose reference is given up; -1 for an error."""
    with f.when(value.test("eq", 0)):
        f.give(-1)
    number = f.call("PyLong_AsLongLong", value)
    f.call("Py_DecRef", value)
    f.give(number)


def refuse(f: Function, condition: Number) -> None:
    """End a function of tables with `false` if a condition is true: the arguments do not fit."""
    with f.when(condition):
        f.give(False)


def equal(f: Function, value: Number, other: Number) -> Number:
    """Whether Python's objects are equal."""
    return f.call("PyObject_RichCompareBool", value, other, _EQUAL).test("eq", 1)


def check(
    f: Function,
    loop: Loop,
    entry: Record,
    value: Number,
    slot: Number,
    own: Mapping[int, Callable[[], Number]],
    boolean: Callable[[], None],
    is_exact: Number | None = None,
) -> None:
    """Compare an object with an entry, in a loop over entries, and store its value at an address, `slot`.

    `entry` has the kind, the exact type, the constant (`expected`), the least and the largest integer (`low`, `high`),
    and `rules`. `own` gives the addresses of objects of further kinds, and `boolean` stores a bool. If `is_exact`, an
    integer or an address must be the one at `slot`.
    """
    kind, expected = entry["kind"], entry["expected"]
    has_type = f.load("ptr", value, TYPE).test("eq", entry["type"])
    with f.when(kind.test("eq", CONSTANT)):
        loop.next(value.test("eq", expected))
        refuse(f, ~has_type)
        refuse(f, ~equal(f, value, expected))
        loop.next()
    refuse(f, ~has_type)
    with f.when(kind.test("eq", F32)):
        number = f.call("PyFloat_AsDouble", value)
        # The process may flush subnormals: the slow way converts them.
        magnitude = number.bits() & _MAGNITUDE
        refuse(f, (magnitude - 1).test("ult", _LEAST_NORMAL - 1))
        Place(slot, "float", 1).set(number.to("fptrunc", "float"))
        loop.next()
    with f.when(kind.test("eq", F64)):
        Place(slot, "double", 1).set(f.call("PyFloat_AsDouble", value))
        loop.next()
    with f.when(kind.test("eq", BOOLEAN)):
        boolean()
        loop.next()
    tested = f.local("i64")
    with f.when(kind.test("eq", INTEGER)):
        overflow = f.local("i32")
        integer = f.call("PyLong_AsLongLongAndOverflow", value, overflow.pointer)
        refuse(f, overflow.get().test("ne", 0))
        refuse(f, integer.test("slt", entry["low"]) | integer.test("sgt", entry["high"]))
        tested.set(integer)
    for own_kind, address in own.items():
        with f.when(kind.test("eq", own_kind)):
            tested.set(address())
    _store(entry, tested.get(), Place(slot, "i64", 1), is_exact, f)


def _store(entry: Record, tested: Number, slot: Place, is_exact: Number | None, f: Function) -> None:
    """Store an integer or an address that must be or not be divisible by 16, or not be 1."""
    rules, is_divisible = entry["rules"], (tested & 15).test("eq", 0)

    def has(rule: int) -> Number:
        return (rules & rule).test("ne", 0)

    refuse(f, has(DIVISIBLE) & ~is_divisible | has(NOT_DIVISIBLE) & is_divisible)
    refuse(f, has(NOT_ONE) & tested.test("eq", 1))
    if is_exact is not None:
        refuse(f, is_exact & slot.get().test("ne", tested))
    slot.set(tested)
