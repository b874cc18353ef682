"""Launches of known arguments by machine code: a built-in function of Python that checks, packs and launches.

Reading addresses, element types and devices of tensors of PyTorch in Python takes as long as the driver's launch. So a
route (`routes.py`) whose arrays are PyTorch's calls `zg_start` first, with grid, options and arguments. Python calls it
as a built-in function (`METH_FASTCALL`). It launches by the first *plan* that fits. Where none fits, or the driver
returns an error, nothing is launched, and it returns its `self`, the list of plans: the launch is then made in Python.

A plan is a tuple: a table as bytes, the result of the launch, and what must stay alive. The table says for each
argument which objects fit, and where their values go in the buffer of arguments, whose contents follow. Each launch has
a copy of it on the stack, so that threads do not share one. The tensor maps in the buffer of a kernel that has them are
right only for the addresses and integers there: other values do not fit.

Python's lock is held but for the call of the driver, which may wait until the device's queue has room.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, Final, cast

from ziggurat.backend.cuda import driver
from ziggurat.backend.cuda.specialize import KernelParameter, Kind
from ziggurat.backend.cuda.tensormap import Described

# The head of a table: the driver's function, the kernel, threads, bytes of shared memory and of the buffer, numbers of
# arguments and parameters, whether all addresses and integers must be those of the buffer, the options, the function
# that gives the current stream for a device, the device, and of tensors the name of the element type's attribute, and
# the functions that give address and device.
HEAD: Final = struct.Struct("=QQqqqqqqQQQ3Q")
_DTYPE: Final = sys.intern("dtype")
# An entry: the kind, the type, the constant or dtype, the least and the largest integer, the place in the buffer, rules
# for the value, the device, and the number of the argument. Tensors come last, as they take the longest. The entries
# are followed by the places of the parameters, and by the buffer.
ENTRY: Final = struct.Struct("=qQQqqqqqq")
CONSTANT, INTEGER, F32, F64, BOOLEAN, TENSOR = range(6)
DIVISIBLE, NOT_DIVISIBLE, NOT_ONE, SEVERAL_DEVICES = 1, 2, 4, 8
_FLOATS: Final = {"f32": F32, "f64": F64}
# A constant of these types may be another object with an equal value.
_COMPARED: Final = (int, str, bool)
_I32: Final = -(1 << 31), (1 << 31) - 1

# Launches by Python before the first plan is made, as machine code takes milliseconds to make or load; plans that are
# made, because a program whose addresses are always new gains nothing by them; and plans that are kept.
BEFORE: Final = 50
_MADE: Final = 32
_KEPT: Final = 4

TEXT: Final = """
%head = type { ptr, ptr, i64, i64, i64, i64, i64, i64, ptr, ptr, ptr, ptr, ptr, ptr }
%entry = type { i64, ptr, ptr, i64, i64, i64, i64, i64, i64 }

define ptr @zg_start(ptr %plans, ptr %given, i64 %count) {
  br label %each
each:
  %number = phi i64 [ 0, %0 ], [ %following, %next ]
  %size = call i64 @PyList_Size(ptr %plans)
  %more = icmp slt i64 %number, %size
  br i1 %more, label %try, label %none
try:
  %plan = call ptr @PyList_GetItem(ptr %plans, i64 %number)
  call void @Py_IncRef(ptr %plan)
  %table.object = call ptr @PyTuple_GetItem(ptr %plan, i64 0)
  %table = call ptr @PyBytes_AsString(ptr %table.object)
  %done = call i1 @start(ptr %table, ptr %given, i64 %count)
  br i1 %done, label %launched, label %next
next:
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %plan)
  %following = add i64 %number, 1
  br label %each
launched:
  %result = call ptr @PyTuple_GetItem(ptr %plan, i64 1)
  call void @Py_IncRef(ptr %result)
  call void @Py_DecRef(ptr %plan)
  ret ptr %result
none:
  call void @Py_IncRef(ptr %plans)
  ret ptr %plans
}

; Launch by a table: three sizes of the grid, the options, and the arguments. False if they do not fit, or an error.
define internal i1 @start(ptr %table, ptr %given, i64 %count) noinline {
  %overflow = alloca i32
  %receiver = alloca ptr
  %entries.at = getelementptr %head, ptr %table, i32 0, i32 5
  %entries = load i64, ptr %entries.at, align 1
  %expected.count = add i64 %entries, 4
  %right.count = icmp eq i64 %count, %expected.count
  br i1 %right.count, label %options, label %no
options:
  %options.given.at = getelementptr ptr, ptr %given, i64 3
  %options.given = load ptr, ptr %options.given.at
  %options.at = getelementptr %head, ptr %table, i32 0, i32 8
  %options.wanted = load ptr, ptr %options.at, align 1
  %options.same = call i32 @PyObject_RichCompareBool(ptr %options.given, ptr %options.wanted, i32 2)
  %options.fit = icmp eq i32 %options.same, 1
  br i1 %options.fit, label %grid, label %no
grid:
  %x = call i64 @size(ptr %given, i64 0)
  %y = call i64 @size(ptr %given, i64 1)
  %z = call i64 @size(ptr %given, i64 2)
  %xy = call i64 @llvm.smin.i64(i64 %x, i64 %y)
  %xyz = call i64 @llvm.smin.i64(i64 %xy, i64 %z)
  %is.grid = icmp sgt i64 %xyz, 0
  br i1 %is.grid, label %begin, label %no
begin:
  %bytes.at = getelementptr %head, ptr %table, i32 0, i32 4
  %bytes = load i64, ptr %bytes.at, align 1
  %parameters.at = getelementptr %head, ptr %table, i32 0, i32 6
  %parameters = load i64, ptr %parameters.at, align 1
  %exact.at = getelementptr %head, ptr %table, i32 0, i32 7
  %exact.number = load i64, ptr %exact.at, align 1
  %is.exact = icmp ne i64 %exact.number, 0
  %names = getelementptr %head, ptr %table, i32 0, i32 11
  %dtype.name = load ptr, ptr %names, align 1
  %address.at = getelementptr ptr, ptr %names, i64 1
  %address.of = load ptr, ptr %address.at, align 1
  %device.of.at = getelementptr ptr, ptr %names, i64 2
  %device.of = load ptr, ptr %device.of.at, align 1
  %first = getelementptr %head, ptr %table, i64 1
  %order = getelementptr %entry, ptr %first, i64 %entries
  %template = getelementptr i64, ptr %order, i64 %parameters
  %buffer = alloca i8, i64 %bytes, align 64
  %pointers = alloca ptr, i64 %parameters, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %buffer, ptr %template, i64 %bytes, i1 false)
  br label %each

each:
  %number = phi i64 [ 0, %begin ], [ %number.next, %next ]
  %left = icmp slt i64 %number, %entries
  br i1 %left, label %one, label %point
one:
  %e = getelementptr %entry, ptr %first, i64 %number
  %argument.at = getelementptr %entry, ptr %e, i32 0, i32 8
  %argument = load i64, ptr %argument.at, align 1
  %value.number = add i64 %argument, 4
  %value.at = getelementptr ptr, ptr %given, i64 %value.number
  %value = load ptr, ptr %value.at
  %kind = load i64, ptr %e, align 1
  %type.at = getelementptr %entry, ptr %e, i32 0, i32 1
  %type.wanted = load ptr, ptr %type.at, align 1
  %expected.at = getelementptr %entry, ptr %e, i32 0, i32 2
  %expected = load ptr, ptr %expected.at, align 1
  %slot.at = getelementptr %entry, ptr %e, i32 0, i32 5
  %place = load i64, ptr %slot.at, align 1
  %slot = getelementptr i8, ptr %buffer, i64 %place
  %rules.at = getelementptr %entry, ptr %e, i32 0, i32 6
  %rules = load i64, ptr %rules.at, align 1
  %own.type.at = getelementptr ptr, ptr %value, i64 1
  %type = load ptr, ptr %own.type.at
  %same.type = icmp eq ptr %type, %type.wanted
  %is.constant = icmp eq i64 %kind, 0
  br i1 %is.constant, label %constant, label %typed
constant:
  %same = icmp eq ptr %value, %expected
  br i1 %same, label %next, label %unlike
unlike:
  br i1 %same.type, label %compare, label %no
compare:
  %equal = call i32 @PyObject_RichCompareBool(ptr %value, ptr %expected, i32 2)
  %is.equal = icmp eq i32 %equal, 1
  br i1 %is.equal, label %next, label %no
typed:
  br i1 %same.type, label %by.kind, label %no
by.kind:
  switch i64 %kind, label %no [
    i64 1, label %as.integer
    i64 2, label %as.f32
    i64 3, label %as.f64
    i64 4, label %as.boolean
    i64 5, label %as.tensor
  ]
as.integer:
  %integer = call i64 @PyLong_AsLongLongAndOverflow(ptr %value, ptr %overflow)
  %over = load i32, ptr %overflow
  %is.over = icmp ne i32 %over, 0
  %low.at = getelementptr %entry, ptr %e, i32 0, i32 3
  %low = load i64, ptr %low.at, align 1
  %high.at = getelementptr %entry, ptr %e, i32 0, i32 4
  %high = load i64, ptr %high.at, align 1
  %below = icmp slt i64 %integer, %low
  %above = icmp sgt i64 %integer, %high
  %outside.1 = or i1 %below, %above
  %outside = or i1 %outside.1, %is.over
  br i1 %outside, label %no, label %rule
as.f32:
  %double = call double @PyFloat_AsDouble(ptr %value)
  %float = fptrunc double %double to float
  store float %float, ptr %slot, align 1
  br label %next
as.f64:
  %wide = call double @PyFloat_AsDouble(ptr %value)
  store double %wide, ptr %slot, align 1
  br label %next
as.boolean:
  %is.true = call i32 @PyObject_IsTrue(ptr %value)
  %bit = trunc i32 %is.true to i8
  store i8 %bit, ptr %slot, align 1
  br label %next
as.tensor:
  %dtype = call ptr @PyObject_GetAttr(ptr %value, ptr %dtype.name)
  %same.dtype = icmp eq ptr %dtype, %expected
  call void @Py_DecRef(ptr %dtype)
  br i1 %same.dtype, label %address, label %no
address:
  store ptr %value, ptr %receiver
  %address.object = call ptr @PyObject_Vectorcall(ptr %address.of, ptr %receiver, i64 1, ptr null)
  %address.number = call i64 @number(ptr %address.object)
  %is.address = icmp sge i64 %address.number, 0
  br i1 %is.address, label %moved, label %no
; With one device, an address that was on it before still is.
moved:
  %address.before = load i64, ptr %slot, align 1
  %is.elsewhere = icmp ne i64 %address.before, %address.number
  %several = and i64 %rules, 8
  %is.several = icmp ne i64 %several, 0
  %is.moved = or i1 %is.elsewhere, %is.several
  br i1 %is.moved, label %other, label %rule
other:
  %device.object = call ptr @PyObject_Vectorcall(ptr %device.of, ptr %receiver, i64 1, ptr null)
  %device = call i64 @number(ptr %device.object)
  %device.at = getelementptr %entry, ptr %e, i32 0, i32 7
  %device.wanted = load i64, ptr %device.at, align 1
  %same.device = icmp eq i64 %device, %device.wanted
  br i1 %same.device, label %rule, label %no

; An integer or an address that must be or not be divisible by 16, or not be 1, or be the one in the buffer.
rule:
  %tested = phi i64 [ %integer, %as.integer ], [ %address.number, %moved ], [ %address.number, %other ]
  %rest = and i64 %tested, 15
  %is.divisible = icmp eq i64 %rest, 0
  %wants = and i64 %rules, 1
  %wants.it = icmp ne i64 %wants, 0
  %is.not = xor i1 %is.divisible, true
  %wrong.1 = and i1 %wants.it, %is.not
  %denies = and i64 %rules, 2
  %denies.it = icmp ne i64 %denies, 0
  %wrong.2 = and i1 %denies.it, %is.divisible
  %no.one = and i64 %rules, 4
  %no.one.it = icmp ne i64 %no.one, 0
  %is.one = icmp eq i64 %tested, 1
  %wrong.3 = and i1 %no.one.it, %is.one
  %before = load i64, ptr %slot, align 1
  %is.other = icmp ne i64 %before, %tested
  %wrong.4 = and i1 %is.exact, %is.other
  %wrong.5 = or i1 %wrong.1, %wrong.2
  %wrong.6 = or i1 %wrong.3, %wrong.4
  %wrong = or i1 %wrong.5, %wrong.6
  br i1 %wrong, label %no, label %store
store:
  store i64 %tested, ptr %slot, align 1
  br label %next
next:
  %number.next = add i64 %number, 1
  br label %each

point:
  %p = phi i64 [ 0, %each ], [ %p.next, %pointing ]
  %p.left = icmp slt i64 %p, %parameters
  br i1 %p.left, label %pointing, label %on
pointing:
  %offset.at = getelementptr i64, ptr %order, i64 %p
  %offset = load i64, ptr %offset.at, align 1
  %points = getelementptr i8, ptr %buffer, i64 %offset
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %p
  store ptr %points, ptr %pointer.at
  %p.next = add i64 %p, 1
  br label %point
on:
  %current.at = getelementptr %head, ptr %table, i32 0, i32 9
  %current = load ptr, ptr %current.at, align 1
  %on.device.at = getelementptr %head, ptr %table, i32 0, i32 10
  %on.device = load ptr, ptr %on.device.at, align 1
  store ptr %on.device, ptr %receiver
  %stream.object = call ptr @PyObject_Vectorcall(ptr %current, ptr %receiver, i64 1, ptr null)
  %stream.number = call i64 @number(ptr %stream.object)
  %is.stream = icmp sge i64 %stream.number, 0
  br i1 %is.stream, label %launch, label %no
launch:
  %stream = inttoptr i64 %stream.number to ptr
  %start = load ptr, ptr %table, align 1
  %kernel.at = getelementptr %head, ptr %table, i32 0, i32 1
  %kernel = load ptr, ptr %kernel.at, align 1
  %threads.at = getelementptr %head, ptr %table, i32 0, i32 2
  %threads.64 = load i64, ptr %threads.at, align 1
  %threads = trunc i64 %threads.64 to i32
  %shared.at = getelementptr %head, ptr %table, i32 0, i32 3
  %shared.64 = load i64, ptr %shared.at, align 1
  %shared = trunc i64 %shared.64 to i32
  %x.32 = trunc i64 %x to i32
  %y.32 = trunc i64 %y to i32
  %z.32 = trunc i64 %z to i32
  %lock = call ptr @PyEval_SaveThread()
  %status = call i32 %start(
    ptr %kernel, i32 %x.32, i32 %y.32, i32 %z.32, i32 %threads, i32 1, i32 1, i32 %shared, ptr %stream, ptr %pointers,
    ptr null)
  call void @PyEval_RestoreThread(ptr %lock)
  %fine = icmp eq i32 %status, 0
  ret i1 %fine
no:
  ret i1 false
}

; A size of the grid; 0 for what is none.
define internal i64 @size(ptr %given, i64 %axis) {
  %at = getelementptr ptr, ptr %given, i64 %axis
  %object = load ptr, ptr %at
  %number = call i64 @PyLong_AsLongLong(ptr %object)
  %small = icmp sle i64 %number, 2147483647
  %size = select i1 %small, i64 %number, i64 0
  ret i64 %size
}

; The number of an int, whose reference is given up; -1 for an error.
define internal i64 @number(ptr %object) {
  %none = icmp eq ptr %object, null
  br i1 %none, label %error, label %read
read:
  %number = call i64 @PyLong_AsLongLong(ptr %object)
  call void @Py_DecRef(ptr %object)
  ret i64 %number
error:
  ret i64 -1
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
declare void @PyErr_Clear()
declare ptr @PyBytes_AsString(ptr)
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyEval_SaveThread()
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_IsTrue(ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
"""


class Plans:
    """The plans of a route. `function` has `zg_start` as soon as there is one; `due` is emptied when no further plan is
    to be made."""

    def __init__(
        self, parameters: Sequence[KernelParameter], kinds: Sequence[Kind], places: Sequence[Sequence[int]], stream: Any
    ) -> None:
        self.parameters, self.kinds, self.places = tuple(parameters), tuple(kinds), tuple(places)
        self.stream = stream
        self.known: list[Any] = []
        self.function: list[Any] = []
        self.due: list[Any] = [self.note] if all(map(_is_expressible, kinds)) else []
        self._launches = 0

    def note(
        self, launch: Any, kernel: Any, threads: int, shared: int, result: Any, slot: Any, options: Mapping[str, Any],
        device: Any, *values: Any,
    ) -> None:  # fmt: skip
        """Make a plan of a launch that Python made, unless there were too few or too many before. Its buffer, `slot`,
        still has its arguments. It raises nothing, as the launch is made."""
        self._launches += 1
        if self._launches <= BEFORE:
            return
        try:
            self._make(launch, kernel, threads, shared, result, slot, options, device, values)
            done = self._launches >= BEFORE + _MADE
        except Exception:  # Of a tensor's class, or of LLVM.
            done = True
        if done:
            self.due.clear()

    def _make(
        self, launch: Any, kernel: Any, threads: int, shared: int, result: Any, slot: Any, options: Mapping[str, Any],
        device: Any, values: tuple[Any, ...],
    ) -> None:  # fmt: skip
        exact = isinstance(launch, Described)
        plain = launch.launch if exact else launch
        if plain != driver.cuda().cuLaunchKernel or (exact and not launch.has_maps(slot[1])):
            return
        made = start()
        if made is None:
            self.due.clear()
            return
        given = zip(self.parameters, self.kinds, self.places, values, strict=True)
        rows = [(*row, number) for number, each in enumerate(given) if (row := _row(*each)) is not None]
        if len(rows) < len(values):
            return
        rows.sort(key=lambda row: row[0] == TENSOR)
        buffer, order = bytes(slot[0]), _order(slot)
        torch: Any = sys.modules.get("torch")
        methods = (None, None) if torch is None else (torch.Tensor.data_ptr, torch.Tensor.get_device)
        kept: list[Any] = [dict(options), device, methods, kernel, self.stream]
        for kind, value in zip(self.kinds, values, strict=True):  # A tensor itself is not kept.
            kept += [type(value), value.dtype if kind.way == "array" else value]
        head = HEAD.pack(
            made.address, int(kernel), threads, shared, len(buffer), len(rows), len(order), exact, id(kept[0]),
            id(self.stream), id(device), id(_DTYPE), *map(id, methods),
        )  # fmt: skip
        table = b"".join([head, *(ENTRY.pack(*row) for row in rows), struct.pack(f"={len(order)}q", *order), buffer])
        self.known.insert(0, (table, result, kept))
        del self.known[_KEPT:]
        if not self.function:
            self.function.append(made.bound(self.known))


def _row(parameter: KernelParameter, kind: Kind, places: Sequence[int], value: Any) -> tuple[int, ...] | None:
    """The entry for arguments like this one, but for its number; None where there is none."""
    own = cast(Any, type(value))
    place = places[0] if places else 0
    if kind.way == "constant" or (kind.way == "integer" and value == 1):
        return CONSTANT, id(own) if own in _COMPARED else 0, id(value), 0, 0, 0, 0, 0
    if kind.way == "array":
        torch: Any = sys.modules["torch"]
        if own not in (torch.Tensor, torch.nn.Parameter):
            return None
        rules = _divisible(value.data_ptr()) if parameter.specialize else 0
        rules |= SEVERAL_DEVICES if driver.device_count() > 1 else 0
        return TENSOR, id(own), id(value.dtype), 0, 0, place, rules, value.get_device()
    if own is float:
        return _FLOATS[kind.field], id(own), 0, 0, 0, place, 0, 0
    if own is bool:
        return BOOLEAN, id(own), 0, 0, 0, place, 0, 0
    low, high = _I32
    if not low <= value <= high:
        low, high = (high + 1, (1 << 63) - 1) if value > 0 else (-(1 << 63), low - 1)
    return INTEGER, id(own), 0, low, high, place, _divisible(value) | NOT_ONE if kind.way == "integer" else 0, 0


def _divisible(number: int) -> int:
    return DIVISIBLE if number % 16 == 0 else NOT_DIVISIBLE


def _is_expressible(kind: Kind) -> bool:
    """Whether entries can express arguments of a kind."""
    if kind.way == "array":
        return kind.reader is not None and kind.reader.name == "torch"
    return kind.way == "constant" or (kind.type, kind.field) in (
        (int, "i64"), (float, "f32"), (float, "f64"), (bool, "i1"),
    )  # fmt: skip


def _order(slot: Any) -> list[int]:
    """The places of a kernel's parameters in the buffer of a slot, whose array of pointers follows it."""
    pointers = ctypes.cast(slot[1], ctypes.POINTER(ctypes.c_uint64))
    return [address - slot[1] + len(slot[0]) for address in iter(map(pointers.__getitem__, count()).__next__, 0)]


class Start:
    """`zg_start` in this process, and the address of the driver's function that it calls."""

    def __init__(self, address: int) -> None:
        from ziggurat.backend.cpu.runtime.loading import Builtin, Loaded, linking, object_of

        with linking:
            code = Loaded(object_of(TEXT), ["zg_start"])
        self.address = address
        self.bound: Callable[[Any], Callable[..., Any]] = Builtin(b"start", code, "zg_start")


@cache
def start() -> Start | None:
    """None where machine code would not know Python's objects, and where cuda.bindings has other streams by default."""
    from ziggurat.backend.cpu.runtime.loading import is_known_python

    if not is_known_python() or os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0") != "0":
        return None
    ask = getattr(driver.cuda(), "cuGetProcAddress", None)
    status, address = (1, 0) if ask is None else ask(b"cuLaunchKernel", 12000, 0)[:2]
    return None if status or not address else Start(int(address))
