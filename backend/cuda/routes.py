"""Routes: launches of a kernel with arguments of given kinds. Each has its own functions, compiled from the text of
`route_text`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.backend.cuda.arrays import OWN, pointer_device, protocol_address, protocol_device, protocol_element
from ziggurat.backend.cuda.binary import TENSOR_MAP, Binary
from ziggurat.backend.cuda.driver import OWN_STREAM, STREAMS, Loaded, cuda, device_count, stream_address
from ziggurat.backend.cuda.packing import Packing, fitted, new_slot
from ziggurat.backend.cuda.route_text import MARK, Writer, mark
from ziggurat.backend.cuda.specialize import (
    KernelParameter,
    Kind,
    RunTime,
    Specialization,
    constant_class,
    integer_class,
)
from ziggurat.backend.launch.descriptors import NO_TILE, field_of, share_memory
from ziggurat.backend.launch.grids import three
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu.fragments import Tile

# A table with this many entries is emptied before the next one. With a larger table, launches whose integers are always
# new would spend their time on allocating entries.
_TABLE_LIMIT = 512
# The builtins in the text, whose names parameters may have.
_BUILTINS = (type, dict, tuple, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
# An entry of the table: values that the next launch is compared with; function, threads, bytes of shared memory, free
# buffers, the function that makes another, and the tiles of the descriptors, with `apart` as the last.
Found = tuple[tuple[Any, ...], Any, int, int, list[Any], Callable[[], Any], tuple[Any, ...]]


class Route:
    """The launches of a kernel with arguments of these kinds. `bound(x, y, z)` gives the hot path over a grid.

    The grid is three sizes, or a function and None and None. `seek(x, y, z, more, options, *values)` launches a kernel
    of the table. `generic(x, y, z, values, more, options, stream, route)` takes over if the arguments have other kinds
    or are new, or if the driver returns an error.
    """

    def __init__(
        self, parameters: Sequence[KernelParameter], kinds: Sequence[Kind], generic: Callable[..., None]
    ) -> None:
        writer = Writer(device_count() > 1)
        names = [parameter.name for parameter in parameters]
        own = mark(names)
        # A name that could be taken for one of ours stands in the text as a number until ours are renamed.
        shown = names if own == MARK else [f"§{number}§" for number in range(len(names))]
        for name, parameter, kind in zip(shown, parameters, kinds, strict=True):
            writer.argument(name, kind, parameter)
        self.text = writer.text(shown)
        if own != MARK:
            self.text = self.text.replace(MARK, own)
            for name, number in zip(names, shown, strict=True):
                self.text = self.text.replace(number, name)
        self.kinds = tuple(kinds)
        packing = Packing.of(writer.fields)
        self._fields = tuple(writer.fields)
        self._places = [packing.offsets[at : at + n] for at, n in writer.places]
        self._size = packing.size
        self._nothing: list[Any] = [None] * (1 + len(writer.identical))
        self._pack = struct.Struct(packing.format).pack_into
        self.stream: Callable[[Any], int] = (writer.reader or OWN).stream()
        self._table: dict[tuple[Any, ...], Found] = {}
        self._classes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._last: list[tuple[Any, ...]] = [()]
        scope: dict[str, Any] = {
            "_z_route": self,
            "_z_last": self._last,
            "_z_find": self._table.get,
            "_z_known": self._found,
            "_z_generic": generic,
            "_z_three": three,
            "_z_address": stream_address,
            "_z_stream": self.stream,
            "_z_streams": STREAMS,
            "_z_own": OWN_STREAM,
            "_z_pack": self._pack,
            "_z_driver": cuda().cuLaunchKernel,
            "_z_struct_error": struct.error,
            **{f"_z_{builtin.__name__}": builtin for builtin in _BUILTINS},
            "_z_integer": integer_class,
            "_z_constant": constant_class,
            "_z_fitted": fitted,
            "_z_protocol_address": protocol_address,
            "_z_protocol_element": protocol_element,
            "_z_protocol_device": protocol_device,
            "_z_pointer_device": pointer_device,
            **{f"_z_default{i}": parameter.default for i, parameter in enumerate(parameters)},
            **{f"_z_type{number}": type_ for number, type_ in enumerate(writer.types)},
        }
        scope = {name.replace(MARK, own): value for name, value in scope.items()}
        exec(compile(self.text, "<launch of a ziggurat kernel>", "exec"), scope)
        self.bound: Callable[[Any, Any, Any], Callable[..., None]] = scope["bound"]
        self.seek: Callable[..., None] = scope[f"{own}seek"]
        self._keys: Callable[..., Any] = scope["keys"]
        self._moving: Callable[..., Any] = scope["moving"]

    def learn(self, values: Sequence[Any], options: dict[str, Any], loaded: Loaded, spec: Specialization) -> Found:
        """Remember the kernel for these arguments, and for others that share it."""
        exact, loose, known = self._keys(options, *values)
        order, tiles = arranged(loaded.binary, spec, self._places)

        def fresh() -> list[Any]:
            return [*new_slot(self._size, order), *self._nothing]

        binary = loaded.binary
        entry = (loaded.function, binary.threads, binary.shared, [fresh()], fresh, (*tiles, apart(binary, spec)))
        self._classes[loose] = entry
        found = self._found(exact, loose, known)
        assert found is not None
        return found

    def slot(self, found: Found, values: Sequence[Any]) -> Any:
        """A buffer with these arguments. Floats out of range become infinities."""
        slot = found[5]()
        moving = self._moving(found[6], *values)
        fields = zip(self._fields, moving, strict=True)
        self._pack(slot[0], 0, *(fitted(field, value) for field, value in fields))
        return slot

    def _found(self, exact: tuple[Any, ...], loose: tuple[Any, ...], known: tuple[Any, ...]) -> Found | None:
        """The entry of the table for an exact key, if the other key is there. `known` is for the next launch."""
        shared = self._classes.get(loose)
        if shared is None:
            return None
        found: Any = ((*known, *shared), *shared)
        if len(self._table) >= _TABLE_LIMIT:
            self._table.clear()
        self._table[exact] = found
        return found


def arranged(
    binary: Binary, spec: Specialization, places: Sequence[Sequence[int]]
) -> tuple[list[int], tuple[Tile, ...]]:
    """For each parameter of the PTX kernel its offset in the buffer, and the box and swizzle of each descriptor.

    `places` has the offsets of each argument's fields. Raises `InternalError` if the parameters do not agree with the
    arguments.
    """
    passed = [(a, place) for a, place in zip(spec.arguments, places, strict=True) if isinstance(a, RunTime)]
    tiles = {number: NO_TILE for number, (argument, _) in enumerate(passed) if argument.field == TENSOR_MAP}
    order: list[int] = []
    if set(binary.arguments) != set(range(len(passed))):
        raise _disagree(binary, spec)
    for number, parameter in zip(binary.arguments, binary.parameters, strict=True):
        argument, place = passed[number]
        if parameter.part == "" and parameter.kind != argument.field:
            raise _disagree(binary, spec)
        if parameter.kind == TENSOR_MAP:
            tiles[number] = (parameter.box, parameter.swizzle)
        order.append(place[field_of(parameter.part, (len(place) - 2) // 2)])
    return order, tuple(tiles.values())


def apart(binary: Binary, spec: Specialization) -> Callable[..., bool] | None:
    """The check of a launch's descriptors: whether none shares memory that it must not. None without such pairs."""
    described = [number for number, argument in enumerate(spec.run_time) if argument.field == TENSOR_MAP]
    pairs = [(described.index(stored), described.index(loaded)) for stored, loaded in binary.pairs]
    if not pairs:
        return None
    return lambda *found: not any(share_memory(found[stored], found[loaded]) for stored, loaded in pairs)


def _disagree(binary: Binary, spec: Specialization) -> InternalError:
    wanted = ", ".join(f"{argument.name}: {argument.type}" for argument in spec.run_time)
    got = ", ".join(" ".join(filter(None, (parameter.kind, parameter.part))) for parameter in binary.parameters)
    return InternalError(f"the parameters of the PTX kernel of '{binary.title}' must be ({wanted}); got ({got})")
