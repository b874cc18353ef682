"""The arguments of a call against the table of a plan, as LLVM text.

NumPy's arrays are read by their C structure, whose layout is part of NumPy's ABI; `native.py` checks it once.
"""

from __future__ import annotations

from typing import Final

from ziggurat.backend.cpu.runtime.spans import SPAN, span_at, write_bounds
from ziggurat.backend.launch.checks import OWN, TYPE, check, number_of, refuse
from ziggurat.backend.llvm.functions import Function, Place, Record, Struct, define, moved
from ziggurat.backend.llvm.routines import Number

# The head of a table: the entry; bytes of scratch memory; whether programs run in order; numbers of parameters and
# entries; whether a program may reach all memory that an array is a view of; `True`; of torch's tensors the name of the
# element type's attribute, the methods of tensors and storages, and functions: those of attributes, and of the layout.
METHODS: Final = ("is_contiguous", "is_neg", "numel", "data_ptr", "untyped_storage")
STORAGE_METHODS: Final = ("nbytes", "data_ptr")
ATTRIBUTES: Final = ("is_cpu", "is_nested")
TABLE: Final = Struct(
    entry="ptr", scratch="i64", ordered="i64", parameters="i64", entries="i64", whole="i64", true="ptr", dtype="ptr",
    **dict.fromkeys(METHODS, "ptr"), **{f"storage_{name}": "ptr" for name in STORAGE_METHODS},
    **dict.fromkeys(ATTRIBUTES, "ptr"), layout="ptr",
)  # fmt: skip
# An entry: the name of the parameter or option, its value where the launch leaves it out (or 0), the kind, the type,
# the constant or dtype, the least and the largest integer (of an array, the size of its elements in bytes), the slot,
# the number among the bounds (or -1), and rules for the value. Of an array also the axis whose stride is a number
# of the launch, where the array is not contiguous (-1 if that is not asked, `NO_AXIS` if it must be), the entry of that
# number (or -1), and the number where the launch leaves it out.
ENTRY: Final = Struct(
    name="ptr", default="ptr", kind="i64", type="ptr", expected="ptr", low="i64", high="i64", slot="i64", bound="i64",
    rules="i64", axis="i64", stride_entry="i64", stride="i64",
)  # fmt: skip
NUMPY, TORCH = OWN, OWN + 1
# Launches with more parameters or arrays have no plan.
MAX_ENTRIES: Final = 64
MAX_ARRAYS: Final = 24

# NumPy's array, and two of its flags: its rows follow each other, and its elements are aligned.
_ARRAY: Final = Struct(
    references="i64", type="ptr", data="i64", axes="i32", gap="i32", sizes="ptr", strides="ptr", base="ptr",
    dtype="ptr", flags="i32",
)  # fmt: skip
_CONTIGUOUS, _ALIGNED, _WRITABLE = 1, 256, 1024


@define("i1", "ptr ptr i64 ptr ptr ptr")
def fit(
    f: Function, table_at: Number, arguments: Number, count: Number, names: Number, slots: Number, launch: Number
) -> None:
    """Whether the arguments of a call fit a table. If so, their values are in the slots, and the bounds in the
    description."""
    table = TABLE.at(table_at, align=1)
    values, spans, arrays = f.room(8 * MAX_ENTRIES), f.room(SPAN.size * MAX_ARRAYS), f.local("i64", 0)
    entries, is_whole = table["entries"], table["whole"].test("ne", 0)
    refuse(f, count.test("sgt", table["parameters"]))
    f.clear(values, entries << 3)
    f.copy(values, arguments, count << 3)
    with f.when(names.test("ne", 0)):
        _place_keywords(f, table_at, values, arguments, count, names)
    with f.count(entries) as loop:
        entry = _entry_at(table_at, loop.index)
        argument = f.load("ptr", values, loop.index << 3)
        value = argument.test("ne", 0).select(argument, entry["default"])
        refuse(f, value.test("eq", 0))
        slot = moved(slots, entry["slot"] << 3)
        array = _Array(f, table, entry, value, values, is_whole, spans, arrays)

        def store_bool(value: Number = value, slot: Number = slot) -> None:
            Place(slot, "i64", 8).set(value.test("eq", table["true"]).to("zext", "i64"))

        check(f, loop, entry, value, slot, {NUMPY: array.of_numpy, TORCH: array.of_torch}, store_bool)
    f.call(write_bounds, spans, arrays.get(), launch)
    f.give(True)


def _entry_at(table: Number, number: Number) -> Record:
    return ENTRY.at(moved(table, number * ENTRY.size + TABLE.size), align=1)


def _place_keywords(
    f: Function, table: Number, values: Number, arguments: Number, count: Number, names: Number
) -> None:
    """Place the value of each keyword by its entry. Names are interned, so that equal ones are the same object."""
    entries = TABLE.at(table, align=1)["entries"]
    with f.count(f.call("PyTuple_Size", names)) as loop:
        name, number = f.call("PyTuple_GetItem", names, loop.index), f.local("i64", 0)
        with f.loop() as search:
            refuse(f, number.get().test("sge", entries))
            search.stop(_entry_at(table, number.get())["name"].test("eq", name))
            number.set(number.get() + 1)
        place = Place(moved(values, number.get() << 3), "ptr", 8)
        refuse(f, place.get().test("ne", 0))
        place.set(f.load("ptr", arguments, count + loop.index << 3))


class _Array:
    """The check of an argument that is an array: its address, and its span among those of a launch."""

    def __init__(
        self, f: Function, table: Record, entry: Record, value: Number, values: Number, is_whole: Number, spans: Number,
        arrays: Place,
    ) -> None:  # fmt: skip
        self.f, self.table, self.entry, self.value = f, table, entry, value
        self.values, self.is_whole, self.spans, self.arrays = values, is_whole, spans, arrays

    def _refuse(self, condition: Number) -> None:
        refuse(self.f, condition)

    def _add_span(self, low: Number, high: Number, owner: Number, writable: Number | int) -> None:
        number = self.arrays.get()
        self.arrays.set(number + 1)
        span = span_at(self.spans, number)
        span["low"], span["high"], span["owner"], span["writable"] = low, high, owner, writable
        span["bound"] = self.entry["bound"]

    def _stride(self) -> Number:
        """The number of the launch that a stride must be."""
        return self.f.call(_passed, self.values, self.entry["stride_entry"], self.entry["stride"])

    def of_numpy(self) -> Number:
        """The address of a NumPy array."""
        f, entry, value = self.f, self.entry, self.value
        array, width = _ARRAY.at(value), entry["low"]
        flags, strides, axes = array["flags"], array["strides"], array["axes"].to("sext", "i64")
        self._refuse(array["dtype"].test("ne", entry["expected"]) | (flags & _ALIGNED).test("eq", 0))
        axis = entry["axis"]
        # A view that is not contiguous: the stride of an axis must be a number of the launch.
        with f.unless((flags & _CONTIGUOUS).test("ne", 0) | axis.test("slt", 0)):
            self._refuse(axis.test("sge", axes))
            self._refuse(f.load("i64", strides, axis << 3).test("ne", self._stride() * width))
        owner, owner_array = self._owner()
        measured = f.local("ptr")
        measured.set(value)
        with f.when(self.is_whole):  # The memory is that of the owner, which must be an array of the same dtype.
            self._refuse(owner.test("ne", owner_array))
            self._refuse(_ARRAY.at(owner_array)["dtype"].test("ne", entry["expected"]))
            measured.set(owner_array)
        with f.count(axes) as loop:
            self._refuse((f.load("i64", strides, loop.index << 3) & width - 1).test("ne", 0))
        low, high = self._extent(_ARRAY.at(measured.get()), width)
        self._add_span(low, high, owner, (flags & _WRITABLE).test("ne", 0).to("zext", "i64"))
        return array["data"]

    def _owner(self) -> tuple[Number, Number]:
        """The object that owns the memory of a NumPy array, and the last array on the way to it."""
        f = self.f
        owner, array = f.local("ptr"), f.local("ptr")
        array.set(self.value)
        with f.loop() as loop:
            owner.set(array.get())
            base = _ARRAY.at(array.get())["base"]
            loop.stop(base.test("eq", 0))
            owner.set(base)
            loop.stop(f.load("ptr", base, TYPE).test("ne", self.entry["type"]))
            array.set(base)
        return owner.get(), array.get()

    def _extent(self, array: Record, width: Number) -> tuple[Number, Number]:
        """The addresses of the lowest byte of an array's elements, and of the one after the highest."""
        f, start = self.f, array["data"]
        low, high, extent = f.local("i64", start), f.local("i64", start), f.local("i64", width)
        sizes, strides = array["sizes"], array["strides"]
        with f.count(array["axes"].to("sext", "i64")) as loop:
            size = f.load("i64", sizes, loop.index << 3)
            reach = (size - 1) * f.load("i64", strides, loop.index << 3)
            low.set(low.get() + reach.call("llvm.smin", 0))
            high.set(high.get() + reach.call("llvm.smax", 0))
            extent.set(size.test("eq", 0).select(0, extent.get()))
        is_empty = extent.get().test("eq", 0)
        return is_empty.select(start, low.get()), is_empty.select(start, high.get() + extent.get())

    def of_torch(self) -> Number:
        """The address of a tensor of torch, in memory, with its own elements. A storage may have been made smaller, or
        be gone."""
        f, table, entry, value = self.f, self.table, self.entry, self.value

        def ask(name: str, receiver: Number) -> Number:
            """The integer or bool that a method of an object gives, and -1 for an error."""
            return f.call(number_of, f.call(_answer, table[name], receiver))

        dtype = f.call("PyObject_GetAttr", value, table["dtype"])
        f.call("Py_DecRef", dtype)
        self._refuse(dtype.test("ne", entry["expected"]))
        width, axis = entry["low"], entry["axis"]
        names = ("is_contiguous", "is_neg", "numel", "data_ptr", "is_cpu", "is_nested")
        is_plain, is_negative, count, data, is_here, is_nested = (ask(name, value) for name in names)
        self._refuse((is_nested | is_negative | data & width - 1 | is_here ^ 1).test("ne", 0))
        self._refuse((count | data - 1).test("slt", 0))
        elements = f.local("i64", count)
        with f.unless(is_plain.test("eq", 1)):
            layout = f.call(_answer, table["layout"], value)
            self._refuse(layout.test("eq", 0))
            elements.set(f.call(_item, layout, 0))
            stride = f.call(_item, layout, axis + 1)
            f.call("Py_DecRef", layout)
            self._refuse(stride.test("ne", self._stride()) & axis.test("sge", 0))
        storage = f.call(_answer, table["untyped_storage"], value)
        self._refuse(storage.test("eq", 0))
        size, begin = ask("storage_nbytes", storage), ask("storage_data_ptr", storage)
        f.call("Py_DecRef", storage)
        high, end = data + elements.get() * width, begin + size
        self._refuse(data.test("slt", begin) | high.test("sgt", end))
        self._add_span(self.is_whole.select(begin, data), self.is_whole.select(end, high), value, 1)
        return data


@define("i64", "ptr i64 i64")
def _passed(f: Function, values: Number, entry: Number, constant: Number) -> None:
    """The number of a launch: that of an entry, or a constant where there is none, or the launch leaves it out."""
    with f.when(entry.test("sge", 0)):
        number = f.load("ptr", values, entry << 3)
        with f.when(number.test("ne", 0)):
            f.give(f.call("PyLong_AsLongLong", number))
    f.give(constant)


@define("i64", "ptr i64")
def _item(f: Function, values: Number, place: Number) -> None:
    """An integer in a tuple; -1 for an error."""
    item = f.call("PyTuple_GetItem", values, place)
    f.call("Py_IncRef", item)
    f.give(f.call(number_of, item))


@define("ptr", "ptr ptr")
def _answer(f: Function, method: Number, value: Number) -> None:
    """The result of a method of an object without arguments."""
    receiver = f.local("ptr")
    receiver.set(value)
    f.give(f.call("PyObject_Vectorcall", method, receiver.pointer, 1, None))
