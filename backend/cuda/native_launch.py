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

from ziggurat.backend.cuda.specialize import KernelParameter, Kind
from ziggurat.backend.cuda.tensormap import Described
from ziggurat.backend.devices import driver
from ziggurat.backend.launch import checks
from ziggurat.backend.launch.checks import BOOLEAN, CONSTANT, DIVISIBLE, F32, F64, INTEGER, NOT_DIVISIBLE, NOT_ONE
from ziggurat.codemodel.types import is_hashable

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
TENSOR: Final = checks.OWN
SEVERAL_DEVICES: Final = 8  # A rule besides those of `checks`.
_FLOATS: Final = {"f32": F32, "f64": F64}
# A constant of these types may be another object with an equal value.
_COMPARED: Final = (int, str, bool)
_I32: Final = -(1 << 31), (1 << 31) - 1

# Launches by Python before the first plan is made, as machine code takes milliseconds to make or load; plans that are
# made, because a program whose addresses are always new gains nothing by them; and plans that are kept.
BEFORE: Final = 50
_MADE: Final = 32
_KEPT: Final = 4

_CHECKED: Final = checks.value_checks(
    own="%as.tensor",
    limits=checks.loads("entry", "e", low=3, high=4),
    boolean="""
  %is.true = call i32 @PyObject_IsTrue(ptr %value)
  %bit = trunc i32 %is.true to i8
  store i8 %bit, ptr %slot, align 1""",
)

_TEXT: Final = f"""
%head = type {{ ptr, ptr, i64, i64, i64, i64, i64, i64, ptr, ptr, ptr, ptr, ptr, ptr }}
%entry = type {{ i64, ptr, ptr, i64, i64, i64, i64, i64, i64 }}

define ptr @zg_start(ptr %plans, ptr %given, i64 %count) {{
{checks.each_plan("@start(ptr %table, ptr %given, i64 %count)", "%none")}
run:
{checks.RESULT}
none:
  call void @Py_IncRef(ptr %plans)
  ret ptr %plans
}}

; Launch by a table: three sizes of the grid, the options, and the arguments. False if they do not fit, or an error.
define internal i1 @start(ptr %table, ptr %given, i64 %count) noinline {{
  %overflow = alloca i32
  %receiver = alloca ptr
{checks.loads("head", "table", entries=5)}
  %expected.count = add i64 %entries, 4
  %right.count = icmp eq i64 %count, %expected.count
  br i1 %right.count, label %options, label %no
options:
  %options.given.at = getelementptr ptr, ptr %given, i64 3
  %options.given = load ptr, ptr %options.given.at
{checks.loads("head", "table", wanted="ptr 8")}
  %options.same = call i32 @PyObject_RichCompareBool(ptr %options.given, ptr %wanted, i32 2)
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
{checks.loads("head", "table", bytes=4, parameters=6, exact=7, name="ptr 11", address_of="ptr 12", device_of="ptr 13")}
  %is.exact = icmp ne i64 %exact, 0
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
{checks.loads("entry", "e", argument=8)}
  %value.number = add i64 %argument, 4
  %value.at = getelementptr ptr, ptr %given, i64 %value.number
  %value = load ptr, ptr %value.at
{checks.loads("entry", "e", **{"kind": 0, "type.wanted": "ptr 1", "expected": "ptr 2", "place": 5, "rules": 6})}
  %slot = getelementptr i8, ptr %buffer, i64 %place
{_CHECKED}
as.tensor:
  %dtype = call ptr @PyObject_GetAttr(ptr %value, ptr %name)
  %same.dtype = icmp eq ptr %dtype, %expected
  call void @Py_DecRef(ptr %dtype)
  br i1 %same.dtype, label %address, label %no
address:
  store ptr %value, ptr %receiver
  %address.object = call ptr @PyObject_Vectorcall(ptr %address_of, ptr %receiver, i64 1, ptr null)
  %address.number = call i64 @number(ptr %address.object)
  %is.address = icmp sge i64 %address.number, 0
  br i1 %is.address, label %moved, label %no
; With one device, an address that was on it before still is.
moved:
  %address.before = load i64, ptr %slot, align 1
  %is.elsewhere = icmp ne i64 %address.before, %address.number
  %several = and i64 %rules, {SEVERAL_DEVICES}
  %is.several = icmp ne i64 %several, 0
  %is.moved = or i1 %is.elsewhere, %is.several
  br i1 %is.moved, label %other, label %rule
other:
  %device.object = call ptr @PyObject_Vectorcall(ptr %device_of, ptr %receiver, i64 1, ptr null)
  %device = call i64 @number(ptr %device.object)
{checks.loads("entry", "e", elsewhere=7)}
  %same.device = icmp eq i64 %device, %elsewhere
  br i1 %same.device, label %rule, label %no
{checks.rule("[ %address.number, %moved ], [ %address.number, %other ]", exact=True)}
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
{checks.loads("head", "table", **{"current": "ptr 9", "on.device": "ptr 10"})}
  store ptr %on.device, ptr %receiver
  %stream.object = call ptr @PyObject_Vectorcall(ptr %current, ptr %receiver, i64 1, ptr null)
  %stream.number = call i64 @number(ptr %stream.object)
  %is.stream = icmp sge i64 %stream.number, 0
  br i1 %is.stream, label %launch, label %no
launch:
  %stream = inttoptr i64 %stream.number to ptr
  %start = load ptr, ptr %table, align 1
{checks.loads("head", "table", **{"kernel": "ptr 1", "threads.64": 2, "shared.64": 3})}
  %threads = trunc i64 %threads.64 to i32
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
}}

; A size of the grid; 0 for what is none.
define internal i64 @size(ptr %given, i64 %axis) {{
  %at = getelementptr ptr, ptr %given, i64 %axis
  %object = load ptr, ptr %at
  %number = call i64 @PyLong_AsLongLong(ptr %object)
  %small = icmp sle i64 %number, 2147483647
  %size = select i1 %small, i64 %number, i64 0
  ret i64 %size
}}
{checks.NUMBER}
"""
TEXT: Final = checks.declared(_TEXT)


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
        # Entries of arrays have the device. Without them it is the one in use, which may be another each time.
        is_placed = driver.device_count() == 1 or any(kind.way == "array" for kind in kinds)
        self.due: list[Any] = [self.note] if is_placed and all(map(_is_expressible, kinds)) else []
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
        plan = start()
        if plan is None:
            self.due.clear()
            return
        arguments = zip(self.parameters, self.kinds, self.places, values, strict=True)
        rows = [(*row, number) for number, each in enumerate(arguments) if (row := _row(*each)) is not None]
        if len(rows) < len(values):
            return
        rows.sort(key=lambda row: row[0] == TENSOR)
        buffer, order = bytes(slot[0]), _order(slot)
        torch: Any = sys.modules.get("torch")
        methods = (None, None) if torch is None else (torch.Tensor.data_ptr, torch.Tensor.get_device)
        references: list[Any] = [dict(options), device, methods, kernel, self.stream]
        for kind, value in zip(self.kinds, values, strict=True):  # A tensor itself is not kept.
            references += [type(value), value.dtype if kind.way == "array" else value]
        head = HEAD.pack(
            plan.address, int(kernel), threads, shared, len(buffer), len(rows), len(order), exact, id(references[0]),
            id(self.stream), id(device), id(_DTYPE), *map(id, methods),
        )  # fmt: skip
        table = b"".join([head, *(ENTRY.pack(*row) for row in rows), struct.pack(f"={len(order)}q", *order), buffer])
        self.known.insert(0, (table, result, references))
        del self.known[_KEPT:]
        if not self.function:
            self.function.append(plan.bound(self.known))


def _row(parameter: KernelParameter, kind: Kind, places: Sequence[int], value: Any) -> tuple[int, ...] | None:
    """The entry for arguments like this one, but for its number; None where there is none."""
    own = cast(Any, type(value))
    place = places[0] if places else 0
    if kind.way == "constant" and not is_hashable(value):
        return None  # The same object may have other contents.
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
    least, most = parameter.limits or (low, high)
    low, high = max(low, least), min(high, most)
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
        from ziggurat.backend.jit.loading import Builtin, LinkedObject, linking, object_of

        with linking:
            code = LinkedObject(object_of(TEXT), ["zg_start"])
        self.address = address
        self.bound: Callable[[Any], Callable[..., Any]] = Builtin(b"start", code, "zg_start")


@cache
def start() -> Start | None:
    """None where machine code would not know Python's objects, and where cuda.bindings has other streams by default."""
    from ziggurat.backend.jit.loading import is_known_python

    if not is_known_python() or os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0") != "0":
        return None
    ask = getattr(driver.cuda(), "cuGetProcAddress", None)
    status, address = (1, 0) if ask is None else ask(b"cuLaunchKernel", 12000, 0)[:2]
    return None if status or not address else Start(int(address))
