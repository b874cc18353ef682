"""The hot path of a launch, as source text: functions for one combination of kinds of arguments.

The text holds fixed statements and the names of the parameters, which are identifiers of a Python function; nothing in
it comes from outside of the process. A loop over functions in its place takes three times as long for 19 arguments,
which would break the limit of 1.5 times a bare launch (docs/gpu.md). There are two steps, each of which passes unknown
arguments to the next.

* `launch` compares the arguments with those of the launch before. The same object has the same type, so this is quick.
  If addresses and numbers are equal too, the buffer that holds them is launched as it is; otherwise it is written anew.
* `seek` finds the kernel in a table. The key holds integers by value. A second key, in which integers that share a
  kernel are equal, finds the kernel for new values.

Names in the text that are no parameters begin with `_z_`, builtins included: a parameter may have the name `type`. If a
parameter's own name begins so, they begin with another prefix (`mark`).

Threads do not share buffers: each launch takes one from a list and puts it back, both in one atomic step of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count

from ziggurat.backend.cuda.arrays import OWN, Reader
from ziggurat.backend.cuda.binary import POINTER, TENSOR_MAP
from ziggurat.backend.cuda.packing import AS_BITS
from ziggurat.backend.cuda.specialize import INTEGERS, KernelParameter, Kind

MARK = "_z_"
# Types whose equal values lead to the same kernel.
_PLAIN = (int, bool, str, type(None))
# The type that holds an int, and its class of integers that share a kernel: `integer_class` as text.
_WIDTH = "(0 if -2147483648 <= {0} <= 2147483647 else 64 + ({0} >> 63))"
_INTEGER = "None if {0} == 1 else {0} & 15 == 0, " + _WIDTH
_TEXT = """\
def bound(_z_x, _z_y, _z_w, /):
    def launch({parameters}*_z_more, **_z_options):
        try:
            {expected}_z_device, _z_same, _z_function, _z_threads, _z_shared, _z_free, _z_fresh, _z_tiles = _z_last[0]
            {read}
            if not _z_more and {conditions}(_z_options == _z_same if _z_options or _z_same else True):
                if _z_y is None:
                    _z_gx, _z_gy, _z_gz = _z_three(_z_x({named}))
                else:
                    _z_gx = _z_x; _z_gy = _z_y; _z_gz = _z_w
                try:
                    _z_slot = _z_free.pop()
                except _z_IndexError:
                    _z_slot = _z_fresh()
                _z_buffer, _z_pointers, _z_was, {were}= _z_slot
                _z_now = ({whole})
                if not ({unchanged}):
                    if not ({placed}):
                        _z_free.append(_z_slot)
                        return _z_seek(_z_x, _z_y, _z_w, _z_more, _z_options, {values})
                    _z_pack(_z_buffer, 0, {moving})
                    _z_slot[2:] = [_z_now, {floats}]
                _z_status = _z_driver(
                    _z_function, _z_gx, _z_gy, _z_gz, _z_threads, 1, 1, _z_shared,
                    _z_streams[{stream}], _z_pointers, 0
                )[0]
                _z_free.append(_z_slot)
                if not _z_status:
                    return
        except (_z_struct_error, _z_AttributeError, _z_KeyError, _z_OverflowError, _z_TypeError, _z_ValueError):
            pass
        return _z_seek(_z_x, _z_y, _z_w, _z_more, _z_options, {values})
    return launch

def _z_seek(_z_x, _z_y, _z_w, _z_more, _z_options, {values}):
    _z_entry = _z_on = None
    try:
        if not _z_more{guard}:
            if _z_options:
                _z_on = _z_options.pop("stream", None)
            {read}; _z_device = {device}
            _z_key = ({exact})
            _z_entry = _z_find(_z_key)
            if _z_entry is None:
                _z_entry = _z_known(_z_key, ({loose}), ({known}_z_device, _z_dict(_z_options)))
    except (_z_AttributeError, _z_TypeError):
        _z_entry = None
    if _z_entry is not None:
        _z_expected, _z_function, _z_threads, _z_shared, _z_free, _z_fresh, _z_tiles = _z_entry
        _z_last[0] = _z_expected
        _z_gx = _z_x; _z_gy = _z_y; _z_gz = _z_w
        try:
            if {apart}:
                if _z_y is None:
                    _z_gx, _z_gy, _z_gz = _z_three(_z_x({named}))
                try:
                    _z_slot = _z_free.pop()
                except _z_IndexError:
                    _z_slot = _z_fresh()
                _z_slot[2] = None
                _z_pack(_z_slot[0], 0, {moving})
                _z_status = _z_driver(
                    _z_function, _z_gx, _z_gy, _z_gz, _z_threads, 1, 1, _z_shared,
                    _z_streams[{stream} if _z_on is None else _z_address(_z_on)], _z_slot[1], 0
                )[0]
                _z_free.append(_z_slot)
                if not _z_status:
                    return
        except (_z_struct_error, _z_KeyError, _z_OverflowError, _z_TypeError):
            pass
    _z_generic(_z_x, _z_y, _z_w, ({values}), _z_more, _z_options, _z_on, _z_route)

def keys(_z_options, {values}):
    {read}; _z_device = {device}
    return ({exact}), ({loose}), ({known}_z_device, _z_dict(_z_options))

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
        self.exact: list[str] = []  # the key that holds integers by value
        self.loose: list[str] = []  # the key that holds their classes
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
        self.reader: Reader | None = None  # of an array whose library has a current stream
        self.descriptors: list[str] = []

    def both(self, expression: str) -> None:
        self.exact.append(expression)
        self.loose.append(expression)

    def expect(self, known: str, condition: str) -> None:
        """Add a condition on the next launch. `{0}` in it is the value that `known` has now."""
        self.conditions.append(condition.format(f"_z_e{len(self.known)}"))
        self.known.append(known)

    def move(self, given: str, fit: str | None = None) -> None:
        self.given.append(given)
        self.moving.append(fit or given)

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
            self.expect(name, f"({name} is {{0}} or _z_type({name}) is {self.type_of(kind)} and {name} == {{0}})")
            self.exact.append(name)
            self.loose.append(_INTEGER.format(name) if kind.type in INTEGERS else f"_z_integer({name})")
            self.move(name)
            self.whole.append(name)
            self.fields.append(kind.field)
        elif kind.way == "number":
            self._number(name, kind)
        else:
            plain = kind.type in _PLAIN
            other = f" or _z_type({name}) is {self.type_of(kind)} and {name} == {{0}}" if plain else ""
            self.expect(name, f"({name} is {{0}}{other})")
            self.both(name if plain else f"_z_constant({name})")
        self.places.append((first, len(self.fields) - first))

    def _number(self, name: str, kind: Kind) -> None:
        """Add a number whose type alone selects the kernel."""
        self.conditions.append(f"_z_type({name}) is {self.type_of(kind)}")
        if kind.type in INTEGERS:
            self.both(_WIDTH.format(name))
            self.expect(_WIDTH.format(name), f"{_WIDTH.format(name)} == {{0}}")
        small = kind.field in AS_BITS
        self.move(name, f"_z_fitted({kind.field!r}, {name})" if small else name)
        (self.whole if kind.type in INTEGERS else self.identical).append(name)
        self.fields.append(kind.field)

    def _array(self, name: str, reader: Reader, parameter: KernelParameter) -> None:
        self._on_stream_of(reader)
        address = f"_z_{len(self.read)}"
        self.read.append(f"{address} = {reader.address.format(name)}")
        element = reader.element.format(name)
        self.both(element)
        self.expect(element, f"{element} is {{0}}")
        if reader is not OWN:  # The key of our own arrays has device and alignment in it.
            if parameter.specialize:
                self.aligned.append(address)
            if self.several or not reader.asks:
                self._device(reader.device.format(name))
        self.move(address)
        self.whole.append(address)
        self.fields.append(POINTER)

    def _on_stream_of(self, reader: Reader | None) -> None:
        if reader is not None and (self.reader is None or (reader.streams and not self.reader.streams)):
            self.reader = reader

    def _device(self, device: str) -> None:
        if self.devices:
            self.both(device)
        self.placed.append(f"{device} == _z_device")
        self.devices.append(device)

    def _descriptor(self, name: str, kind: Kind) -> None:
        self._on_stream_of(kind.reader)
        self._device(f"{name}.device")
        self.both(f"{name}.key")
        self.expect(f"{name}.key", f"{name}.key == {{0}}")
        self.move(f"{name}.maps[_z_tiles[{len(self.descriptors)}]]")
        self.move(f"*{name}.numbers")
        self.fields.extend((TENSOR_MAP, POINTER, *(["i64"] * (2 * kind.rank))))
        self.descriptors.append(name)

    def text(self, names: Sequence[str]) -> str:
        """The source text for parameters of these names, those that `argument` was given."""
        placed = list(self.placed)
        if self.aligned:
            each = "".join(f"{address} & 15 == 0, " for address in self.aligned)
            alignment = f"({' | '.join(self.aligned)}) & 15 and ({each})"
            self.both(alignment)
            placed.append(f"({alignment}) == _z_e{len(self.known)}")
            self.known.append(alignment)
        self.both("_z_device")
        self.both("_z_tuple(_z_options.items()) if _z_options else ()")
        apart = "True"
        if len(self.descriptors) > 1:
            apart = f"_z_tiles[-1] is None or _z_tiles[-1]({', '.join(self.descriptors)})"
            placed.append(f"({apart})")
        guard = ""
        for number, arguments in enumerate(self.types.values()):
            guard += f" and _z_type{number} is " + " is ".join(f"_z_type({name})" for name in arguments)
        unchanged = ["_z_now == _z_was", *(f"{name} is _z_w{i}" for i, name in enumerate(self.identical))]
        lists: dict[str, Iterable[str]] = {
            "parameters": (f"{name}=_z_default{i}" for i, name in enumerate(names)),
            "values": names,
            "expected": (f"_z_e{i}" for i in range(len(self.known))),
            "known": self.known,
            "exact": self.exact,
            "loose": self.loose,
            "moving": self.moving,
            "given": self.given,
            "whole": self.whole,
            "were": (f"_z_w{i}" for i in range(len(self.identical))),
            "floats": self.identical,
        }
        return _TEXT.format(
            **{name: "".join(f"{part}, " for part in parts) for name, parts in lists.items()},
            apart=apart,
            named=f"{{{', '.join(f'{name!r}: {name}' for name in names)}}}",
            conditions="".join(f"{condition} and " for condition in self.conditions),
            guard=guard,
            read="; ".join(self.read) or "pass",
            device=self.devices[0] if self.devices else "None",
            unchanged="False"
            if self.descriptors
            else " and ".join(unchanged),  # Fields of descriptors are not compared.
            placed=" and ".join(placed) or "True",
            stream="_z_own.address" if self.reader in (None, OWN) else "_z_stream(_z_device)",
        )
