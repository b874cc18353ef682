"""The hot path of a launch: functions for one combination of kinds of arguments, compiled from source text.

The text holds fixed statements and the names of the parameters, which are identifiers of a Python function; nothing in
it comes from outside of the process. A loop over functions in its place takes three times as long for 19 arguments,
which would break the limit of 1.5 times a bare launch (docs/results/gpu.md). There are two steps, each of which
passes unknown arguments to the next.

* `launch` lets machine code launch, where it knows such arguments (`native_launch.py`). Otherwise it compares the
  arguments with those of the launch before. The same object has the same type, so this is quick. An integer may differ
  if the kernel for it is the same. If addresses and numbers are equal, the buffer that holds them is launched as it is;
  otherwise it is written anew.
* `seek` finds the kernel in a table, whose keys have one value for all integers that share a kernel.

Names in the text that are no parameters begin with `_z_`, builtins included: a parameter may have the name `type`. If a
parameter's own name begins so, they begin with another prefix (`mark`).

Threads do not share buffers: each launch takes one from a list and puts it back, both in one atomic step of Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import Any

from ziggurat.backend.cuda.binary import POINTER, TENSOR_MAP, Binary
from ziggurat.backend.cuda.loaded import Loaded
from ziggurat.backend.cuda.native_launch import Plans
from ziggurat.backend.cuda.packing import AS_BITS, Packing, fitted, new_slot
from ziggurat.backend.cuda.specialize import (
    KernelParameter,
    Kind,
    RunTime,
    Specialization,
    constant_class,
    integer_class,
    takes_any_width,
)
from ziggurat.backend.devices.driver import OWN_STREAM, STREAMS, device_count, pointer_device, stream_address
from ziggurat.backend.launch import device_arrays
from ziggurat.backend.launch.descriptors import NO_TILE, field_of, share_memory
from ziggurat.backend.launch.grids import Meta, again, three
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu.fragments import Tile
from ziggurat.codemodel.types import SMALL, u64

MARK = "_z_"
# Types whose equal values lead to the same kernel.
_PLAIN = (int, bool, str, type(None))
# The type that holds an int, and its class of integers that share a kernel: `integer_class` as text.
_WIDTH = "(0 if -2147483648 <= {0} <= 2147483647 else 64 + ({0} >> 63))"
_INTEGER = f"None if {{0}} == 1 else {{0}} & 15 == 0, (1 if 0 <= {{0}} < {SMALL} else {_WIDTH})"
# Launch with the arguments of a slot, on a stream; return if the driver accepts the launch.
_DRIVER = """\
_z_status = _z_driver(
                    _z_function, _z_gx, _z_gy, _z_gz, _z_threads, 1, 1, _z_shared, _z_streams[{stream}], {pointers}, 0
                )[0]
                if _z_due and not _z_status:
                    _z_due[0](
                        _z_driver, _z_function, _z_threads, _z_shared, _z_result, _z_slot, _z_options, _z_device,
                        {values}
                    )
                _z_free.append(_z_slot)
                if not _z_status:
                    return _z_result"""
# The sizes of the grid, which are those of a function that is called once in a launch: `_z_made` is its outcome, of any
# kind, and `_z_route` before. If it is called wrongly (no frame follows), it has not run.
_GRID = """\
if _z_y is None:
    if _z_made is _z_route:
        try:
            _z_made = _z_x(_z_Meta({{{named}}}))
        except _z_Exception as _z_error:
            _z_made = _z_error if _z_error.__traceback__.tb_next else _z_route
            raise
    _z_gx, _z_gy, _z_gz = _z_three(_z_made)
else:
    _z_gx = _z_x; _z_gy = _z_y; _z_gz = _z_w"""
_AGAIN = "_z_x if _z_made is _z_route else _z_again(_z_made)"
_AGAIN_OPTIONS = '_z_options if _z_on is None else {**_z_options, "stream": _z_on}'
_TEXT = """\
def bound(_z_x, _z_y, _z_w, /):
    def launch({parameters}*_z_more, **_z_options):
        _z_made = _z_route
        _z_on = _z_options.pop("stream", None) if _z_options else None
        try:
            if _z_native and not _z_more:
                {grid}
                _z_now = _z_native[0](_z_gx, _z_gy, _z_gz, _z_options, _z_on, {values})
                if _z_now is not _z_plans:
                    return _z_now
            (
                {expected}_z_classes, _z_device, _z_same, _z_driver, _z_function, _z_threads, _z_shared, _z_free,
                _z_fresh, _z_tiles, _z_result,
            ) = _z_last[0]
            {read}
            if not _z_more and {conditions}(_z_options == _z_same if _z_options or _z_same else True):
                {grid}
                try:
                    _z_slot = _z_free.pop()
                except _z_IndexError:
                    _z_slot = _z_fresh()
                _z_buffer, _z_pointers, _z_was, {were}= _z_slot
                _z_now = ({whole})
                if not ({unchanged}):
                    if not ({placed}):
                        _z_free.append(_z_slot)
                        return _z_seek({again_grid}, _z_y, _z_w, _z_more, {again_options}, {values})
                    _z_pack(_z_buffer, 0, {moving})
                    _z_slot[2:] = [_z_now, {floats}]
                {again}
        except (_z_struct_error, _z_AttributeError, _z_KeyError, _z_OverflowError, _z_TypeError, _z_ValueError):
            pass
        return _z_seek({again_grid}, _z_y, _z_w, _z_more, {again_options}, {values})
    return launch

def _z_seek(_z_x, _z_y, _z_w, _z_more, _z_options, {values}):
    _z_made = _z_route
    _z_entry = _z_on = None
    try:
        if not _z_more{guard}:
            if _z_options:
                _z_on = _z_options.pop("stream", None)
            {read}; {classes}; _z_device = {device}
            _z_entry = _z_find(({key}))
    except (_z_AttributeError, _z_TypeError):
        _z_entry = None
    if _z_entry is not None:
        _z_driver, _z_function, _z_threads, _z_shared, _z_free, _z_fresh, _z_tiles, _z_result = _z_entry
        _z_last[0] = ({known}({made}), _z_device, _z_dict(_z_options), *_z_entry)
        try:
            if {apart}:
                {grid}
                try:
                    _z_slot = _z_free.pop()
                except _z_IndexError:
                    _z_slot = _z_fresh()
                _z_slot[2] = None
                _z_pack(_z_slot[0], 0, {moving})
                {found}
        except (_z_struct_error, _z_KeyError, _z_OverflowError, _z_TypeError):
            pass
    return _z_generic({again_grid}, _z_y, _z_w, ({values}), _z_more, _z_options, _z_on, _z_route)

def key(_z_options, {values}):
    {read}; {classes}; _z_device = {device}
    return ({key})

def moving(_z_tiles, {values}):
    {read}
    return [{given}]
"""


def mark(names: Sequence[str]) -> str:
    """The prefix of the other names in the text, which no parameter's name begins with."""
    return next(m for m in chain((MARK,), map("_z{}_".format, count())) if not any(n.startswith(m) for n in names))


class Writer:
    """Collects the parts of the source text, argument by argument; `text` joins them. If there are `several` devices,
    the text reads that of each array."""

    def __init__(self, several: bool = True) -> None:
        self.several = several
        self.read: list[str] = []  # statements that read addresses
        self.classes: list[str] = []  # statements that make the classes of integers
        self.key: list[str] = []  # the key of the table of kernels
        self.known: list[str] = []  # values that the next launch is compared with
        self.conditions: list[str] = []  # the comparisons; `_z_e0` is the first of these values
        self.placed: list[str] = []  # conditions on addresses: alignment, device
        self.moving: list[str] = []  # values that each launch writes anew
        self.given: list[str] = []  # the same, before they are fitted to their fields
        self.fields: list[str] = []  # the kinds of these fields
        self.whole: list[str] = []  # addresses and integers, compared by ==
        self.identical: list[str] = []  # other numbers, compared by `is`, because 0.0 == -0.0
        self.aligned: list[str] = []  # addresses whose divisibility matters
        self.types: dict[type, list[str]] = {}  # exact types, and the arguments that have them
        self.places: list[tuple[int, int]] = []  # the first field of each argument, and the number of its fields
        self.devices: list[str] = []  # the devices of arrays whose library tells them
        self.reader: device_arrays.ArrayReader | None = None  # of an array whose library has a current stream
        self.descriptors: list[str] = []

    def expect(self, value: str, condition: str) -> None:
        """Add a condition on the next launch. `{0}` in it is the value that `value` has now."""
        self.conditions.append(condition.format(f"_z_e{len(self.known)}"))
        self.known.append(value)

    def move(self, value: str, fit: str | None = None) -> None:
        self.given.append(value)
        self.moving.append(fit or value)

    def type_of(self, kind: Kind) -> str:
        """The name of an exact type in the text."""
        assert kind.type is not None
        return f"_z_type{list(self.types).index(kind.type)}"

    def argument(self, name: str, kind: Kind, parameter: KernelParameter) -> None:
        if kind.type is not None:
            self.types.setdefault(kind.type, []).append(name)
        first = len(self.fields)
        if kind.way == "array":
            assert kind.reader is not None
            self._array(name, kind.reader, parameter)
        elif kind.way == "descriptor":
            self._descriptor(name, kind)
        elif kind.way == "integer":
            is_int, class_name = takes_any_width(kind.type), f"_z_c{len(self.classes)}"
            shared = f"({_INTEGER.format(name)})" if is_int else f"_z_integer_class({name})"
            again = f"_z_type({name}) is {self.type_of(kind)} and {shared} == _z_classes[{len(self.classes)}]"
            self.expect(name, f"({name} is {{0}} or {again})")
            self.classes.append(f"{class_name} = {shared}")
            self.key.append(class_name)
            self.move(name)
            self.whole.append(name)
            self.fields.append(kind.field)
        elif kind.way == "number":
            self._number(name, kind)
        elif _may_change(kind.type):
            self.key.append(f"_z_constant_class({name})")  # The same object may have other contents.
            self.expect(self.key[-1], f"{self.key[-1]} == {{0}}")
        else:
            plain = kind.type in _PLAIN
            other = f" or _z_type({name}) is {self.type_of(kind)} and {name} == {{0}}" if plain else ""
            self.expect(name, f"({name} is {{0}}{other})")
            self.key.append(name if plain else f"_z_constant_class({name})")
        if parameter.limits and kind.way in ("integer", "number"):
            fits = f"({parameter.limits[0]} <= {name} <= {parameter.limits[1]})"
            self.conditions.append(fits)
            self.key.append(fits)
        self.places.append((first, len(self.fields) - first))

    def _number(self, name: str, kind: Kind) -> None:
        """Add a number whose type alone selects the kernel."""
        self.conditions.append(f"_z_type({name}) is {self.type_of(kind)}")
        if takes_any_width(kind.type):
            self.key.append(_WIDTH.format(name))
            self.expect(_WIDTH.format(name), f"{_WIDTH.format(name)} == {{0}}")
        small = kind.field in AS_BITS
        self.move(name, f"_z_fitted({kind.field!r}, {name})" if small else name)
        (self.whole if takes_any_width(kind.type) else self.identical).append(name)
        self.fields.append(kind.field)

    def _array(self, name: str, reader: device_arrays.ArrayReader, parameter: KernelParameter) -> None:
        self._on_stream_of(reader)
        address = f"_z_{len(self.read)}"
        self.read.append(f"{address} = {reader.address.format(name)}")
        element = reader.element.format(name)
        self.key.append(element)
        self.expect(element, f"{element} is {{0}}")
        if reader is not device_arrays.OWN:  # The key of our own arrays has device and alignment in it.
            if parameter.specialize:
                self.aligned.append(address)
            if self.several or not reader.asks:
                self._device(reader.device.format(name))
        self.move(address)
        self.whole.append(address)
        self.fields.append(POINTER)

    def _on_stream_of(self, reader: device_arrays.ArrayReader | None) -> None:
        if reader is not None and (self.reader is None or (reader.streams and not self.reader.streams)):
            self.reader = reader

    def _device(self, device: str) -> None:
        if self.devices:
            self.key.append(device)
        self.placed.append(f"{device} == _z_device")
        self.devices.append(device)

    def _descriptor(self, name: str, kind: Kind) -> None:
        self._on_stream_of(kind.reader)
        self._device(f"{name}.device")
        self.key.append(f"{name}.key")
        self.expect(f"{name}.key", f"{name}.key == {{0}}")
        self.move(f"{name}.maps[_z_tiles[{len(self.descriptors)}]]")
        self.move(f"*{name}.numbers")
        self.fields.extend((TENSOR_MAP, POINTER, *(["i64"] * (2 * kind.rank))))
        self.descriptors.append(name)

    def text(self, names: Sequence[str]) -> str:
        """The source text for parameters of these names, those that `argument` was given."""
        if self.reader is None and self.several:  # There are numbers alone: equal ones may be for another device.
            self.devices.append("_z_device_in_use()")
            self.conditions.append("_z_device_in_use() == _z_device")
        conditions = list(self.placed)
        if self.aligned:
            each = "".join(f"{address} & 15 == 0, " for address in self.aligned)
            alignment = f"({' | '.join(self.aligned)}) & 15 and ({each})"
            self.key.append(alignment)
            conditions.append(f"({alignment}) == _z_e{len(self.known)}")
            self.known.append(alignment)
        self.key.append("_z_device")
        self.key.append("_z_tuple(_z_options.items()) if _z_options else ()")
        apart = "True"
        if len(self.descriptors) > 1:
            apart = f"_z_tiles[-1] is None or _z_tiles[-1]({', '.join(self.descriptors)})"
            conditions.append(f"({apart})")
        guard = ""
        for number, arguments in enumerate(self.types.values()):
            guard += f" and _z_type{number} is " + " is ".join(f"_z_type({name})" for name in arguments)
        unchanged = ["_z_now == _z_was", *(f"{name} is _z_w{i}" for i, name in enumerate(self.identical))]
        lists: dict[str, Iterable[str]] = {
            "parameters": (f"{name}=_z_default{i}" for i, name in enumerate(names)),
            "values": names,
            "expected": (f"_z_e{i}" for i in range(len(self.known))),
            "known": self.known,
            "key": self.key,
            "made": (f"_z_c{i}" for i in range(len(self.classes))),
            "moving": self.moving,
            "given": self.given,
            "whole": self.whole,
            "were": (f"_z_w{i}" for i in range(len(self.identical))),
            "floats": self.identical,
        }
        stream = "_z_own.address" if self.reader is device_arrays.OWN else "_z_stream(_z_device)"
        values = ", ".join(names)
        stream = f"{stream} if _z_on is None else _z_stream_address(_z_on)"
        return _TEXT.format(
            **{name: "".join(f"{part}, " for part in parts) for name, parts in lists.items()},
            apart=apart,
            grid=_GRID.replace("\n", "\n" + " " * 16).format(named=", ".join(f"{name!r}: {name}" for name in names)),
            again_grid=_AGAIN,
            again_options=_AGAIN_OPTIONS,
            conditions="".join(f"{condition} and " for condition in self.conditions),
            guard=guard,
            read="; ".join(self.read) or "pass",
            classes="; ".join(self.classes) or "pass",
            device=self.devices[0] if self.devices else "None",
            unchanged="False"
            if self.descriptors
            else " and ".join(unchanged),  # Fields of descriptors are not compared.
            placed=" and ".join(conditions) or "True",
            again=_DRIVER.format(stream=stream, pointers="_z_pointers", values=values),
            found=_DRIVER.format(stream=stream, pointers="_z_slot[1]", values=values),
        )


def _may_change(type_: Any) -> bool:
    """Whether the objects of a type may have other contents later."""
    return type_ is not None and (type_.__hash__ is None or issubclass(type_, tuple))


# Functions and classes in the text, whose names parameters may have.
_GLOBALS = (
    type, dict, tuple, AttributeError, Exception, IndexError, KeyError, OverflowError, TypeError, ValueError, fitted,
    Meta, again, three, stream_address, integer_class, constant_class, device_arrays.protocol_address,
    device_arrays.protocol_element, device_arrays.protocol_device, device_arrays.device_in_use, pointer_device,
)  # fmt: skip
# An entry of the table: the driver's function that launches, the kernel, threads, bytes of shared memory, free buffers,
# the function that makes another, the tiles of the descriptors, with `apart` as the last, and the result of the launch.
Found = tuple[Callable[..., Any], Any, int, int, list[Any], Callable[[], Any], tuple[Any, ...], Any]


class Route:
    """The launches of a kernel with arguments of these kinds. `bound(x, y, z)` gives the hot path over a grid.

    The grid is three sizes, or a function and None and None. `seek(x, y, z, more, options, *values)` launches a kernel
    of the table. `generic(x, y, z, values, more, options, stream, route)` takes over if the arguments have other kinds
    or are new, or if the driver returns an error.
    """

    def __init__(
        self, parameters: Sequence[KernelParameter], kinds: Sequence[Kind], generic: Callable[..., Any]
    ) -> None:
        writer = Writer(device_count() > 1)
        names = [parameter.name for parameter in parameters]
        own = mark(names)
        # A name that could be taken for one of ours stands in the text as a number until ours are renamed.
        placeholders = names if own == MARK else [f"§{number}§" for number in range(len(names))]
        for name, parameter, kind in zip(placeholders, parameters, kinds, strict=True):
            writer.argument(name, kind, parameter)
        self.text = writer.text(placeholders)
        if own != MARK:
            self.text = self.text.replace(MARK, own)
            for name, number in zip(names, placeholders, strict=True):
                self.text = self.text.replace(number, name)
        self.kinds = tuple(kinds)
        self._packing = Packing.of(writer.fields)
        self._places = [self._packing.offsets[at : at + n] for at, n in writer.places]
        self._nothing: list[Any] = [None] * (1 + len(writer.identical))
        self.stream: Callable[[Any], int] = writer.reader.stream() if writer.reader else device_arrays.stream_in_use
        self._table: dict[tuple[Any, ...], Found] = {}
        self.plans = Plans(parameters, self.kinds, self._places, self.stream)
        scope: dict[str, Any] = {
            "_z_route": self,
            "_z_last": [()],
            "_z_find": self._table.get,
            "_z_generic": generic,
            "_z_stream": self.stream,
            "_z_streams": STREAMS,
            "_z_own": OWN_STREAM,
            "_z_native": self.plans.function,
            "_z_plans": self.plans.known,
            "_z_due": self.plans.due,
            "_z_pack": struct.Struct(self._packing.format).pack_into,
            "_z_struct_error": struct.error,
            **{f"_z_{function.__name__}": function for function in _GLOBALS},
            **{f"_z_default{i}": parameter.default for i, parameter in enumerate(parameters)},
            **{f"_z_type{number}": type_ for number, type_ in enumerate(writer.types)},
        }
        scope = {name.replace(MARK, own): value for name, value in scope.items()}
        exec(compile(self.text, "<launch of a ziggurat kernel>", "exec"), scope)
        self.bound: Callable[[Any, Any, Any], Callable[..., Any]] = scope["bound"]
        self.seek: Callable[..., Any] = scope[f"{own}seek"]
        self._key: Callable[..., Any] = scope["key"]
        self._moving: Callable[..., Any] = scope["moving"]

    def learn(
        self,
        values: Sequence[Any],
        options: dict[str, Any],
        loaded: Loaded,
        spec: Specialization,
        result: Any = None,
    ) -> Found:
        """Remember the kernel for these arguments, and for others that share it. `result` is that of its launches."""
        binary = loaded.binary
        order, tiles = arranged(binary, spec, self._places)

        def fresh() -> list[Any]:
            return [
                *new_slot(
                    self._packing.size, order, maps=len(binary.maps), scratch=binary.scratch > 0, grid=binary.persistent
                ),
                *self._nothing,
            ]

        checks = (*tiles, apart(binary, spec))
        entry = (loaded.launch, loaded.function, binary.threads, binary.shared, [fresh()], fresh, checks, result)
        self._table[self._key(options, *values)] = entry
        return entry

    def slot(self, entry: Found, values: Sequence[Any]) -> Any:
        """A buffer with these arguments. Floats out of range become infinities."""
        slot = entry[5]()
        self._packing.write(slot[0], self._moving(entry[6], *values))
        return slot


def arranged(
    binary: Binary, spec: Specialization, places: Sequence[Sequence[int]]
) -> tuple[list[int], tuple[Tile, ...]]:
    """For each parameter of the PTX kernel its offset in the buffer, and the box and swizzle of each descriptor.

    `places` has the offsets of each argument's fields. Raises `InternalError` if the parameters do not agree with the
    arguments.
    """
    run_time = [(a, place) for a, place in zip(spec.arguments, places, strict=True) if isinstance(a, RunTime)]
    tiles = {number: NO_TILE for number, (argument, _) in enumerate(run_time) if argument.field == TENSOR_MAP}
    order: list[int] = []
    if set(binary.arguments) != set(range(len(run_time))):
        raise _disagree(binary, spec)
    for number, parameter in zip(binary.arguments, binary.parameters, strict=True):
        argument, place = run_time[number]
        is_address = parameter.kind == POINTER and argument.type == u64
        if parameter.part == "" and parameter.kind != argument.field and not is_address:
            raise _disagree(binary, spec)
        if parameter.kind == TENSOR_MAP:
            tiles[number] = (parameter.box, parameter.swizzle)
        order.append(place[field_of(parameter.part, (len(place) - 2) // 2)])
    return order, tuple(tiles.values())


def apart(binary: Binary, spec: Specialization) -> Callable[..., bool] | None:
    """The check of a launch's descriptors: whether none shares memory that it must not. None without such pairs."""
    descriptors = [number for number, argument in enumerate(spec.run_time) if argument.field == TENSOR_MAP]
    pairs = [(descriptors.index(target), descriptors.index(loaded)) for target, loaded in binary.pairs]
    if not pairs:
        return None
    return lambda *found: not any(share_memory(found[target], found[loaded]) for target, loaded in pairs)


def _disagree(binary: Binary, spec: Specialization) -> InternalError:
    expected = ", ".join(f"{argument.name}: {argument.type}" for argument in spec.run_time)
    got = ", ".join(" ".join(filter(None, (parameter.kind, parameter.part))) for parameter in binary.parameters)
    return InternalError(f"the parameters of the PTX kernel of '{binary.title}' must be ({expected}); got ({got})")
