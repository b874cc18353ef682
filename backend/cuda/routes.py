"""The hot path of a launch, as source text: one function for each combination of kinds of arguments, compiled when
first met.

A launch reads the arrays' addresses, looks the rest up in a table, writes what may have changed into a buffer, and
calls the driver. The key of the table holds integers by value, so a launch with the same integers as one before finds
them written already. A second key, in which integers count only by what kernels tell apart, finds the kernel for new
values.

Threads do not share buffers: each launch takes one from a list and puts it back, which Python does in one step each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.backend.cuda.arrays import OWN, Reader, protocol_address, protocol_element
from ziggurat.backend.cuda.binary import POINTER, TENSOR_MAP, Binary
from ziggurat.backend.cuda.driver import STREAMS, Loaded, cuda
from ziggurat.backend.cuda.packing import FIELDS, Packing, Slot, fitted
from ziggurat.backend.cuda.specialize import (
    KernelParameter,
    Kind,
    RunTime,
    Specialization,
    constant_class,
    integer_class,
)
from ziggurat.backend.cuda.tensormap import NO_TILE, Tile, field_of
from ziggurat.codemodel.errors import InternalError

# When a table has more argument values than these, they are forgotten all at once.
_TABLE_LIMIT = 4096
# Types whose equal values are the same to a kernel.
_PLAIN = (int, bool, str, type(None))
_TEXT = """\
def launch(_z_x, _z_y, _z_w, /{declared}, *_z_more, **_z_options):
    _z_entry = _z_on = None
    try:
        if not _z_more{guard}:
            if _z_options:
                _z_on = _z_options.pop("stream", None)
            {read}
            _z_key = ({exact},)
            _z_entry = _z_find(_z_key)
            if _z_entry is None:
                _z_entry = _z_known(_z_key, ({loose},))
    except (AttributeError, TypeError):
        _z_entry = None
    if _z_entry is None:
        return _z_generic(_z_x, _z_y, _z_w, ({values}), _z_more, _z_options, _z_on)
    _z_function, _z_threads, _z_shared, _z_free, _z_fresh, _z_tiles = _z_entry
    try:
        if _z_y is None:
            _z_x, _z_y, _z_w = _z_sizes(_z_x, ({values}))
        try:
            _z_slot = _z_free.pop()
        except IndexError:
            _z_slot = _z_fresh()
        _z_buffer, _z_pointers, _z_kept = _z_slot
        _z_pack(_z_buffer, 0{moving})
        _z_status = _z_driver(
            _z_function, _z_x, _z_y, _z_w, _z_threads, 1, 1, _z_shared,
            _z_streams[_z_stream(_z_device)] if _z_on is None else _z_given(_z_on), _z_pointers, 0
        )[0]
        _z_free.append(_z_slot)
        if not _z_status:
            return
    except (_z_struct_error, OverflowError, TypeError):
        pass
    _z_again(_z_x, _z_y, _z_w, ({values}), _z_options, _z_on)

def keys(_z_options{plain}):
    {read}
    return ({exact},), ({loose},)

def moving(_z_tiles{plain}):
    {read}
    return [{given}]
"""

# What the table gives to a launch: function, threads, bytes of shared memory, free buffers, how to make another, and
# the tiles of the descriptors.
Found = tuple[Any, int, int, list[Any], Callable[[], Any], tuple[Tile, ...]]


class _Writer:
    """Collects the parts of the source text, argument by argument."""

    def __init__(self) -> None:
        self.read: list[str] = []  # statements that read addresses
        self.exact: list[str] = []  # the key that holds integers by value
        self.loose: list[str] = []  # and the one that does not
        self.moving: list[str] = []  # what each launch writes anew
        self.given: list[str] = []  # the same, before it is made fit for writing
        self.fields: list[str] = []  # the kinds of that, field by field
        self.fixed: list[int] = []  # where in the exact key the integers are that are written once
        self.fixed_fields: list[str] = []
        self.aligned: list[str] = []  # addresses whose divisibility matters
        self.types: dict[type, list[str]] = {}  # exact types, and the arguments that have them
        self.places: list[
            tuple[str, int, int]
        ] = []  # of each argument: which list its fields are in, from where, how many
        self.device = "None"
        self.reader: Reader | None = None  # the first array's, whose library says on which stream
        self.descriptors = 0

    def both(self, expression: str) -> None:
        self.exact.append(expression)
        self.loose.append(expression)

    def move(self, given: str, fit: str | None = None) -> None:
        self.given.append(given)
        self.moving.append(fit or given)

    def argument(self, name: str, kind: Kind, parameter: KernelParameter) -> None:
        if kind.type is not None:
            self.types.setdefault(kind.type, []).append(name)
        count = len(self.fields)
        if kind.way == "array":
            assert kind.reader is not None
            self._array(name, kind.reader, parameter)
        elif kind.way == "descriptor":
            self._descriptor(name, kind)
        elif kind.way == "integer":
            self.places.append(("fixed", len(self.fixed), 1))
            self.fixed.append(len(self.exact))
            self.fixed_fields.append(kind.field)
            self.exact.append(name)
            self.loose.append(f"_z_integer({name})")
            return
        elif kind.way == "number":
            if kind.type is int:  # Only its width counts.
                self.both(f"-2147483648 <= {name} <= 2147483647")
            small = kind.field in ("bf16", "f8e4m3", "f8e5m2")
            self.move(name, f"_z_fitted({kind.field!r}, {name})" if small else name)
            self.fields.append(kind.field)
        else:
            self.both(name if kind.type in _PLAIN else f"_z_constant({name})")
        self.places.append(("moving", count, len(self.fields) - count))

    def _array(self, name: str, reader: Reader, parameter: KernelParameter) -> None:
        self.reader = self.reader or reader
        address = f"_z_{len(self.read)}"
        self.read.append(f"{address} = {reader.address.format(name)}")
        if parameter.specialize:
            self.aligned.append(address)
        if self.device == "None":
            self.device = reader.device.format(name)
        self.both(reader.element.format(name))
        self.move(address)
        self.fields.append(POINTER)

    def _descriptor(self, name: str, kind: Kind) -> None:
        self.reader = self.reader or kind.reader
        if self.device == "None":
            self.device = f"{name}.device"
        self.both(f"{name}.key")
        self.move(f"{name}.maps[_z_tiles[{self.descriptors}]]")
        self.move(f"*{name}.numbers")
        self.fields.extend((TENSOR_MAP, POINTER, *(["i64"] * (2 * kind.rank))))
        self.descriptors += 1

    def text(self, names: Sequence[str]) -> str:
        if self.aligned:
            each = "".join(f"{address} & 15 == 0, " for address in self.aligned)
            self.both(f"({' | '.join(self.aligned)}) & 15 and ({each})")
        self.both("_z_device")
        self.both("tuple(_z_options.items()) if _z_options else ()")
        guard = ""
        for number, arguments in enumerate(self.types.values()):
            guard += f" and _z_type{number} is " + " is ".join(f"type({name})" for name in arguments)
        return _TEXT.format(
            declared="".join(f", {name}=_z_default{i}" for i, name in enumerate(names)),
            plain="".join(f", {name}" for name in names),
            values="".join(f"{name}, " for name in names),
            guard=guard,
            read="; ".join((*self.read, f"_z_device = {self.device}")),
            exact=", ".join(self.exact),
            loose=", ".join(self.loose),
            moving="".join(f", {expression}" for expression in self.moving),
            given=", ".join(self.given),
        )


class Route:
    """How a kernel is launched with arguments of these kinds. `launch(x, y, z, …)` is the hot path.

    The grid is three sizes, or a function and None and None, which `sizes(function, values)` reads. `again(x, y, z,
    values, options, stream)` takes over when the hot path failed, and `generic(x, y, z, values, more, options,
    stream)` when the arguments are of other kinds or were never seen. `given(stream)` reads a stream that the caller
    named.
    """

    def __init__(
        self,
        parameters: Sequence[KernelParameter],
        kinds: Sequence[Kind],
        *,
        generic: Callable[..., None],
        again: Callable[..., None],
        sizes: Callable[..., tuple[int, int, int]],
        given: Callable[[Any], Any],
    ) -> None:
        writer = _Writer()
        names = [parameter.name for parameter in parameters]
        for parameter, kind in zip(parameters, kinds, strict=True):
            writer.argument(parameter.name, kind, parameter)
        self.text = writer.text(names)
        self.kinds = tuple(kinds)
        moving = Packing.of(writer.fields)
        whole = Packing.of((*writer.fields, *writer.fixed_fields))
        starts = {"moving": 0, "fixed": len(writer.fields)}
        self._fields = tuple(writer.fields)
        self._places = [whole.offsets[starts[which] + at : starts[which] + at + n] for which, at, n in writer.places]
        self._size, self._fixed_at = whole.size, moving.size
        self._fixed = tuple(writer.fixed)
        self._write_fixed = struct.Struct("=" + "".join(FIELDS[field] for field in writer.fixed_fields)).pack_into
        self._pack = struct.Struct(moving.format).pack_into
        self.stream: Callable[[Any], int] = (writer.reader or OWN).stream()
        self._table: dict[tuple[Any, ...], Found] = {}
        self._classes: dict[tuple[Any, ...], tuple[Loaded, list[int], tuple[Tile, ...]]] = {}
        scope: dict[str, Any] = {
            "_z_find": self._table.get,
            "_z_known": self._known,
            "_z_generic": generic,
            "_z_again": again,
            "_z_sizes": sizes,
            "_z_given": given,
            "_z_stream": self.stream,
            "_z_streams": STREAMS,
            "_z_pack": self._pack,
            "_z_driver": cuda().cuLaunchKernel,
            "_z_struct_error": struct.error,
            "_z_integer": integer_class,
            "_z_constant": constant_class,
            "_z_fitted": fitted,
            "_protocol_address": protocol_address,
            "_protocol_element": protocol_element,
            **{f"_z_default{i}": parameter.default for i, parameter in enumerate(parameters)},
            **{f"_z_type{number}": type_ for number, type_ in enumerate(writer.types)},
        }
        exec(compile(self.text, "<launch of a ziggurat kernel>", "exec"), scope)
        self.launch: Callable[..., None] = scope["launch"]
        self._keys: Callable[..., Any] = scope["keys"]
        self._moving: Callable[..., Any] = scope["moving"]

    def learn(self, values: Sequence[Any], options: dict[str, Any], loaded: Loaded, spec: Specialization) -> Found:
        """Remember the kernel for these arguments, and for what kernels do not tell from them."""
        exact, loose = self._keys(options, *values)
        order, tiles = arranged(loaded.binary, spec, self._places)
        self._classes[loose] = (loaded, order, tiles)
        return self._remember(exact, loaded, order, tiles)

    def slot(self, found: Found, values: Sequence[Any]) -> Any:
        """A buffer with these arguments, written carefully: floats out of range become infinities."""
        slot = found[4]()
        moving = self._moving(found[5], *values)
        fields = zip(self._fields, moving, strict=True)
        self._pack(slot[0], 0, *(fitted(field, value) for field, value in fields))
        return slot

    def _known(self, exact: tuple[Any, ...], loose: tuple[Any, ...]) -> Found | None:
        known = self._classes.get(loose)
        return None if known is None else self._remember(exact, *known)

    def _remember(self, exact: tuple[Any, ...], loaded: Loaded, order: list[int], tiles: tuple[Tile, ...]) -> Found:
        fixed = [exact[place] for place in self._fixed]

        def fresh() -> tuple[Any, int, Slot]:
            slot = Slot.make(self._size, order)
            self._write_fixed(slot.buffer, self._fixed_at, *fixed)
            return slot.buffer, slot.pointers, slot

        binary = loaded.binary
        found = (loaded.function, binary.threads, binary.shared, [fresh()], fresh, tiles)
        if len(self._table) >= _TABLE_LIMIT:
            self._table.clear()
        self._table[exact] = found
        return found


def arranged(
    binary: Binary, spec: Specialization, places: Sequence[Sequence[int]]
) -> tuple[list[int], tuple[Tile, ...]]:
    """For each parameter of the machine's kernel its place in the buffer, and the box and swizzle of each descriptor.

    `places` has those of each argument's fields. Raises `InternalError` when the parameters do not agree with the
    arguments.
    """
    passed = [(a, place) for a, place in zip(spec.arguments, places, strict=True) if isinstance(a, RunTime)]
    tiles = {number: NO_TILE for number, (argument, _) in enumerate(passed) if argument.field == TENSOR_MAP}
    order: list[int] = []
    for position, parameter in enumerate(binary.parameters):
        number = position if parameter.argument is None else parameter.argument
        if not 0 <= number < len(passed):
            raise _disagree(binary, spec)
        argument, place = passed[number]
        if parameter.part == "" and parameter.kind != argument.field:
            raise _disagree(binary, spec)
        if parameter.kind == TENSOR_MAP:
            tiles[number] = (parameter.box, parameter.swizzle)
        order.append(place[field_of(parameter.part, (len(place) - 2) // 2)])
    if {p if q.argument is None else q.argument for p, q in enumerate(binary.parameters)} != set(range(len(passed))):
        raise _disagree(binary, spec)
    return order, tuple(tiles.values())


def _disagree(binary: Binary, spec: Specialization) -> InternalError:
    wanted = ", ".join(f"{argument.name}: {argument.type}" for argument in spec.run_time)
    got = ", ".join(" ".join(filter(None, (parameter.kind, parameter.part))) for parameter in binary.parameters)
    return InternalError(f"the machine's kernel of '{binary.title}' takes ({got}), and the arguments are ({wanted})")
