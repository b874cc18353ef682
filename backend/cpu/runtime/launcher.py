"""Launches with known kinds of arguments, as LLVM text: a built-in function of Python that checks and packs arguments.

A call through ctypes, and reading the address of a NumPy array in Python, each take longer than a NumPy function on a
small array. `zg_launch` is called as Python calls built-in functions (`METH_FASTCALL | METH_KEYWORDS`). Its `self` is a
tuple: the grid as bytes, a list of plans, and the function that is called where no plan fits.

A *plan* is a tuple as well: a table as bytes, the result of the launch, and the function that is called with an error.
The table says for each parameter which objects fit, and where their values go; `fitting.py` has its layout. Launches
that a plan cannot express (of tensor descriptors, tuples, arrays of other libraries) are made by `kernels.py` in
Python.
"""

from __future__ import annotations

import struct
from typing import Final

from ziggurat.backend.cpu.code import BOUND, LAUNCH
from ziggurat.backend.cpu.runtime.fitting import MAX_ARRAYS, MAX_ENTRIES, TABLE, fit
from ziggurat.backend.cpu.runtime.pool import JOB, THREADS
from ziggurat.backend.cpu.runtime.ticker import zg_unlocked
from ziggurat.backend.launch.checks import each_plan, give_result
from ziggurat.backend.llvm.functions import Function, Place, Struct, define, moved
from ziggurat.backend.llvm.routines import Number

GRID: Final = struct.Struct("=iiiiq")  # Three sizes, 0, and the number of programs.
_SIZES, _TOTAL = 16, 16  # The bytes of the sizes and the 0, and the place of the number.
UNUSED: Final = MAX_ENTRIES  # The slot of values that the entry does not get.
_RECORD: Final = Struct(code="i64", a="i64", b="i64", c="i64", d="i64", notes="i64")  # That of the entry, and notes.


@define("ptr", "ptr ptr i64 ptr", linkage="external")
def zg_launch(f: Function, own: Number, arguments: Number, count: Number, names: Number) -> None:
    """Launch by the first plan that fits."""
    slots, launch_at = f.room(8 * (MAX_ENTRIES + 1)), f.room(LAUNCH.size + BOUND.size * MAX_ARRAYS)
    record, job_at = f.room(_RECORD.size), f.room(JOB.size)
    grid_object = f.call("PyTuple_GetItem", own, 0)
    grid, plans = f.call("PyBytes_AsString", grid_object), f.call("PyTuple_GetItem", own, 1)
    with each_plan(f, plans, lambda table: f.call(fit, table, arguments, count, names, slots, launch_at)) as (
        plan,
        table_at,
    ):
        f.copy(launch_at, grid, _SIZES)
        launch, table, job = LAUNCH.at(launch_at), TABLE.at(table_at, align=1), JOB.at(job_at)
        launch["printer"] = launch["notes"] = None
        job["entry"], job["arguments"], job["launch"] = table["entry"], slots, launch_at
        job["total"], job["scratch"] = Place(moved(grid, _TOTAL), "i64", 1).get(), table["scratch"]
        job["threads"] = table["ordered"].test("ne", 0).select(1, f.place(THREADS).load())
        job["record"] = record
        code = f.call(zg_unlocked, job_at)
        with f.when(f.call("PyErr_Occurred").test("ne", 0)):
            f.call("free", launch["notes"])
            f.call("Py_DecRef", plan)
            f.give(None)
        notes = launch["notes"].to("ptrtoint", "i64")
        with f.when((code | notes).test("eq", 0)):
            give_result(f, plan)
        failed = _RECORD.at(record)
        failed["code"], failed["notes"] = code, notes
        f.give(f.call(_failed, plan, record, grid_object, arguments, count, names))
    f.give(f.call("PyObject_Vectorcall", f.call("PyTuple_GetItem", own, 2), arguments, count, names))


@define("ptr", "ptr ptr ptr ptr i64 ptr", attributes="noinline cold")
def _failed(
    f: Function, plan: Number, record: Number, grid: Number, arguments: Number, count: Number, names: Number
) -> None:
    """Call the function of a plan for errors: with the record, the grid, the values of the call and its keywords."""
    failed, values = f.call("PyTuple_GetItem", plan, 2), f.call(_values, arguments, count, names)
    record_object, keywords = f.call("PyBytes_FromStringAndSize", record, _RECORD.size), f.local("ptr")
    keywords.set(names)
    f.call("Py_IncRef", names)
    with f.when(names.test("eq", 0)):
        keywords.set(f.call("PyTuple_New", 0))
    objects = record_object, grid, values, keywords.get()
    result = f.call("PyObject_CallFunctionObjArgs", failed, *objects, None)
    for reference in (keywords.get(), values, record_object, plan):
        f.call("Py_DecRef", reference)
    f.give(result)


@define("ptr", "ptr i64 ptr")
def _values(f: Function, arguments: Number, count: Number, names: Number) -> None:
    """All values of a call as a tuple, those of keywords last."""
    number = f.local("i64", count)
    with f.when(names.test("ne", 0)):
        number.set(count + f.call("PyTuple_Size", names))
    values = f.call("PyTuple_New", number.get())
    with f.count(number.get()) as loop:
        value = f.load("ptr", arguments, loop.index << 3)
        f.call("Py_IncRef", value)
        f.call("PyTuple_SetItem", values, loop.index, value)
    f.give(values)


@define("ptr", "ptr ptr i64", linkage="external")
def zg_new(f: Function, own: Number, arguments: Number, count: Number) -> None:
    """A function of Python that makes launchers: its own `self` is the address of their method definition."""
    definition = f.call("PyLong_AsVoidPtr", own)
    f.give(f.call("PyCFunction_NewEx", definition, f.load("ptr", arguments), None))
