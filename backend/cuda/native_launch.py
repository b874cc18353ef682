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
from ziggurat.backend.launch.checks import (
    BOOLEAN,
    CONSTANT,
    DIVISIBLE,
    F32,
    F64,
    INTEGER,
    NOT_DIVISIBLE,
    NOT_ONE,
    OWN,
    TYPE,
    check,
    each_plan,
    equal,
    give_result,
    number_of,
    refuse,
)
from ziggurat.backend.llvm.functions import Function, Place, Record, Struct, define, module, moved
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.types import SMALL, is_hashable

# The head of a table: the driver's function, the kernel, threads, bytes of shared memory and of the buffer, numbers of
# arguments and parameters, whether all addresses and integers must be those of the buffer, the options, None, the
# function that gives the current stream for a device, the device, and of tensors the name of the element type's
# attribute, and the functions that give address and device.
HEAD: Final = Struct(
    start="ptr", kernel="ptr", threads="i64", shared="i64", bytes="i64", entries="i64", parameters="i64", exact="i64",
    options="ptr", none="ptr", stream_of="ptr", device="ptr", dtype="ptr", address_of="ptr", device_of="ptr",
)  # fmt: skip
_DTYPE: Final = sys.intern("dtype")
# An entry: the kind, the type, the constant or dtype, the least and the largest integer, the place in the buffer, rules
# for the value, the device, and the number of the argument. Tensors come last, as they take the longest. The entries
# are followed by the places of the parameters, and by the buffer.
ENTRY: Final = Struct(
    kind="i64", type="ptr", expected="ptr", low="i64", high="i64", place="i64", rules="i64", device="i64",
    argument="i64",
)  # fmt: skip
TENSOR: Final = OWN
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

_GIVEN: Final = 5  # Three sizes of the grid, the options, and the stream or None are given before the arguments.
_MAX_SIZE: Final = (1 << 31) - 1


@define("ptr", "ptr ptr i64", linkage="external")
def zg_start(f: Function, plans: Number, given: Number, count: Number) -> None:
    """Launch by the first plan that fits: three sizes of the grid, options, a stream or None, and the arguments."""
    with each_plan(f, plans, lambda table: f.call(_start, table, given, count)) as (plan, _):
        give_result(f, plan)
    f.call("Py_IncRef", plans)
    f.give(plans)


@define("i1", "ptr ptr i64", attributes="noinline")
def _start(f: Function, table: Number, given: Number, count: Number) -> None:
    """Launch by a table. False if the arguments do not fit, or for an error."""
    head = HEAD.at(table, align=1)
    entries, parameters, size = head["entries"], head["parameters"], head["bytes"]
    refuse(f, count.test("ne", entries + _GIVEN))
    refuse(f, ~equal(f, f.load("ptr", given, 24), head["options"]))
    x, y, z = (_size(f, given, axis) for axis in range(3))
    refuse(f, x.call("llvm.smin", y).call("llvm.smin", z).test("sle", 0))
    first = moved(table, HEAD.size)
    order = moved(first, entries * ENTRY.size)
    buffer, pointers = f.room(size, 64), f.room(parameters << 3)
    f.copy(buffer, moved(order, parameters << 3), size)
    with f.count(entries) as loop:
        entry = ENTRY.at(moved(first, loop.index * ENTRY.size), align=1)
        value = f.load("ptr", given, entry["argument"] + _GIVEN << 3)
        slot = moved(buffer, entry["place"])

        def store_bool(value: Number = value, slot: Number = slot) -> None:
            Place(slot, "i8", 1).set(f.call("PyObject_IsTrue", value).to("trunc", "i8"))

        def address(entry: Record = entry, value: Number = value, slot: Number = slot) -> Number:
            return _address(f, head, entry, value, Place(slot, "i64", 1))

        check(f, loop, entry, value, slot, {TENSOR: address}, store_bool, head["exact"].test("ne", 0))
    with f.count(parameters) as loop:
        place = Place(moved(order, loop.index << 3), "i64", 1).get()
        Place(moved(pointers, loop.index << 3), "ptr", 8).set(moved(buffer, place))
    stream = f.call(_stream, table, f.load("ptr", given, 32))
    refuse(f, stream.test("slt", 0))
    numbers = [number.to("trunc", "i32") for number in (x, y, z, head["threads"], head["shared"])]
    one, null = f.value("i32", 1), f.value("ptr", None)
    lock = f.call("PyEval_SaveThread")
    status = f.call_at(
        "i32", head["start"], head["kernel"], *numbers[:4], one, one, numbers[4], stream.to("inttoptr", "ptr"),
        pointers, null,
    )  # fmt: skip
    f.call("PyEval_RestoreThread", lock)
    f.give(status.test("eq", 0))


@define("i64", "ptr ptr")
def _stream(f: Function, table: Number, stream: Number) -> None:
    """The address of the stream that a launch names, or of the current one; negative for another object than an int,
    which the device is."""
    head = HEAD.at(table, align=1)
    with f.when(stream.test("eq", head["none"])):
        receiver = f.local("ptr")
        receiver.set(head["device"])
        f.give(f.call(number_of, f.call("PyObject_Vectorcall", head["stream_of"], receiver.pointer, 1, None)))
    with f.when(f.load("ptr", stream, TYPE).test("ne", f.load("ptr", head["device"], TYPE))):
        f.give(-1)
    f.give(f.call("PyLong_AsLongLong", stream))


def _size(f: Function, given: Number, axis: int) -> Number:
    """A size of the grid; 0 for a number that is too large, and -1 for an object that is none."""
    number = f.call("PyLong_AsLongLong", f.load("ptr", given, 8 * axis))
    return number.test("sle", _MAX_SIZE).select(number, 0)


def _address(f: Function, head: Record, entry: Record, value: Number, slot: Place) -> Number:
    """The address of a tensor that fits an entry."""
    dtype = f.call("PyObject_GetAttr", value, head["dtype"])
    f.call("Py_DecRef", dtype)
    refuse(f, dtype.test("ne", entry["expected"]))
    receiver = f.local("ptr")
    receiver.set(value)
    address = f.call(number_of, f.call("PyObject_Vectorcall", head["address_of"], receiver.pointer, 1, None))
    refuse(f, address.test("slt", 0))
    # With one device, an address that was on it before still is.
    is_several = (entry["rules"] & SEVERAL_DEVICES).test("ne", 0)
    with f.when(slot.get().test("ne", address) | is_several):
        device = f.call(number_of, f.call("PyObject_Vectorcall", head["device_of"], receiver.pointer, 1, None))
        refuse(f, device.test("ne", entry["device"]))
    return address


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
        head = HEAD.packer.pack(
            plan.address, int(kernel), threads, shared, len(buffer), len(rows), len(order), exact, id(references[0]),
            id(None), id(self.stream), id(device), id(_DTYPE), *map(id, methods),
        )  # fmt: skip
        entries = [ENTRY.packer.pack(*row) for row in rows]
        table = b"".join([head, *entries, struct.pack(f"={len(order)}q", *order), buffer])
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
    elif kind.way == "integer":
        low, high = (low, -1) if value < 0 else (0, SMALL - 1) if value < SMALL else (SMALL, high)
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
        from ziggurat.backend.jit.symbols import SYMBOLS

        with linking:
            code = LinkedObject(object_of("zg_start", lambda: module([zg_start], SYMBOLS)), ["zg_start"])
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
