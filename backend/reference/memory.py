"""The memory of a launch: the caller's arrays, at their real addresses.

Arrays that share memory, or are views of one array, make up one region; a pointer that comes from a parameter may go
anywhere in the region of its array, where an element of some argument is, and nowhere else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.errors import LaunchError, MemoryAccessError


@attrs.frozen(eq=False)
class Argument:
    """An array that was passed for a pointer parameter."""

    index: int
    name: str
    array: Array

    @property
    def address(self) -> int:
        """Where the first element is."""
        return int(self.array.__array_interface__["data"][0])

    @property
    def span(self) -> tuple[int, int]:
        """The bytes from the lowest to the highest element, as addresses."""
        low = high = self.address
        for size, stride in zip(self.array.shape, self.array.strides, strict=True):
            if stride < 0:
                low += (size - 1) * stride
            else:
                high += (size - 1) * stride
        return (low, high + self.array.itemsize) if self.array.size else (low, low)


class Region:
    """A stretch of memory that arguments share. `unit` is the size of its smallest elements, in bytes."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.arguments = tuple(arguments)
        spans = [argument.span for argument in arguments]
        self.low = min(low for low, _ in spans)
        self.high = max(high for _, high in spans)
        self.base = self.low & -8  # So that elements of every size stand at multiples of their size from the base.
        self.unit = min(argument.array.itemsize for argument in arguments)
        self.writable = any(argument.array.flags.writeable for argument in arguments)
        size = self.high - self.base
        raw = (ctypes.c_uint8 * size).from_address(self.base) if size else (ctypes.c_uint8 * 0)()
        self._bytes: Array = np.ctypeslib.as_array(raw)
        self._views: dict[np.dtype[Any], Array] = {}
        self.gaps = self._find_gaps()

    def _find_gaps(self) -> Array | None:
        """For each unit from the base whether no argument has it, or None where there is no such unit."""
        if len(self.arguments) == 1 and self.arguments[0].array.flags.forc:
            return None
        free = np.ones(-(-(self.high - self.base) // self.unit), np.bool_)
        for argument in self.arguments:
            array = argument.array
            if not array.size:
                continue
            width = array.itemsize // self.unit
            start = (argument.address - self.base) // self.unit
            for part in range(width):
                strides = [stride // self.unit for stride in array.strides]
                # A view of the marks with the strides of the array, its first element at the array's first.
                marks = np.ndarray(array.shape, np.bool_, free, start + part, strides)
                marks[...] = False
        free[: (self.low - self.base) // self.unit] = False
        return free if free.any() else None

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The region from its base as elements of a dtype."""
        view = self._views.get(dtype)
        if view is None:
            size = len(self._bytes) // dtype.itemsize * dtype.itemsize
            view = self._views[dtype] = self._bytes[:size].view(dtype)
        return view


@attrs.frozen(eq=False)
class Origin:
    """Where a pointer operand may come from: the parameters, by their places; None where that is not known."""

    parameters: tuple[int, ...] | None


@attrs.frozen(eq=False)
class Target:
    """Elements of one region: their numbers from its base, and which lanes they are (None: all of the access)."""

    region: Region
    index: Array
    lanes: Array | None


@attrs.frozen(eq=False)
class Access:
    """An access as it happens, for the messages. `verb` is "reads", "writes" or "updates"."""

    verb: str
    dtype: np.dtype[Any]
    origin: Origin
    programs: Array  # linear ids; 1 for each program that runs


class Memory:
    """The regions of a launch, and the journal from which writes can be taken back."""

    def __init__(self, arguments: Sequence[Argument], grid: tuple[int, int, int]) -> None:
        self.arguments = {argument.index: argument for argument in arguments}
        self.grid = grid
        self.regions = [Region(group) for group in _groups(arguments)]
        self.region_of = {argument.index: region for region in self.regions for argument in region.arguments}
        self.changes = 0  # How often something was written that was not there before, or may be.
        self._journal: list[tuple[Array, Array, Array]] | None = None

    # Taking back.

    def record(self) -> None:
        """From here on writes can be taken back."""
        self._journal = []

    def keep(self) -> None:
        """What was written since `record` stays."""
        self._journal = None

    def take_back(self) -> None:
        """Restore what was there at `record`."""
        for view, index, old in reversed(self._journal or []):
            view[index] = old
        self._journal = None

    def write(self, view: Array, index: Array, values: Array) -> None:
        """Set elements of a region's view; where an index comes twice, the last one counts."""
        if self._journal is not None:
            self._journal.append((view, index, view[index]))
        self.changes += 1
        view[index] = values

    # Finding what addresses mean.

    def regions_from(self, origin: Origin) -> list[Region]:
        """The regions that a pointer of this origin may go to."""
        if origin.parameters is None:
            return self.regions
        found = {id(r): r for p in origin.parameters if (r := self.region_of.get(p)) is not None}
        return list(found.values())

    def locate(self, addresses: Array, mask: Array | None, access: Access) -> Iterator[Target]:
        """The elements at these addresses, region by region. `mask` has the shape of `addresses`, or is None.

        Raises `MemoryAccessError` when one of them is no element of an argument, or may not be written.
        """
        size = access.dtype.itemsize
        shift = size.bit_length() - 1
        regions = self.regions_from(access.origin)
        left: Array | None = mask  # The lanes whose region is not found yet.
        for region in regions:
            offset = addresses - region.base
            index = offset >> shift if shift else offset
            first = -(-(region.low - region.base) // size)
            count = max(0, (region.high - region.base) // size - first)
            outside = (index - first).view(np.uint64) >= np.uint64(count)
            if size > region.unit or access.origin.parameters is None:
                outside |= (offset & (size - 1)) != 0
            if region.gaps is not None and count:
                units = np.where(outside, 0, offset) // region.unit
                for part in range(max(1, size // region.unit)):
                    outside |= region.gaps[np.minimum(units + part, len(region.gaps) - 1)]
            wrong = outside if left is None else outside & left
            hit = not wrong.any()
            if access.verb != "reads" and not self._may_write(region, access.origin):
                inside = ~outside if left is None else ~outside & left
                if inside.any():
                    self._refuse(addresses, inside, access, *self._read_only(access, region))
            if hit:
                if left is None or left.any():
                    yield Target(region, index, None if left is None else left)
                return
            lanes = ~outside if left is None else ~outside & left
            if lanes.any():
                yield Target(region, index, lanes)
            left = wrong
        if left is None:
            left = np.ones(addresses.shape, np.bool_)
        if left.any():
            self._refuse(addresses, left, access)

    def _may_write(self, region: Region, origin: Origin) -> bool:
        if origin.parameters is None:
            return region.writable
        here = [a for a in region.arguments if a.index in origin.parameters]
        return any(a.array.flags.writeable for a in here)

    def _read_only(self, access: Access, region: Region) -> tuple[str, str]:
        wanted = access.origin.parameters
        names = [a.name for a in region.arguments if wanted is None or a.index in wanted]
        hint = f"pass an array that can be written; np.array({names[0]}) is a copy that can"
        return f"{access.verb} {' or '.join(names)}, but its array is read-only", hint

    def _refuse(
        self, addresses: Array, lanes: Array, access: Access, reason: str = "", hint: str | None = None
    ) -> None:
        """Raise the error for the first of these lanes: with a reason, or for an address that is in no array."""
        flat = int(np.argmax(lanes))
        address = int(addresses.reshape(-1)[flat])
        program = flat // max(1, addresses.size // addresses.shape[0]) if addresses.shape[0] > 1 else 0
        who = self.program(int(access.programs[program]))
        if not reason:
            reason, hint = self._outside(address, access)
        raise MemoryAccessError(f"{who} {reason}", hint=hint)

    def program(self, linear: int) -> str:
        """How messages call a program: `program (3, 0, 0)`."""
        return f"program {self.coordinates(linear)}"

    def coordinates(self, linear: int) -> tuple[int, int, int]:
        """The place in the grid of the program with this linear id; the first axis counts fastest."""
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def _outside(self, address: int, access: Access) -> tuple[str, str]:
        """Why an access is wrong, and what to do."""
        wanted = access.origin.parameters
        candidates = [a for a in self.arguments.values() if wanted is None or a.index in wanted]
        if wanted is None or not candidates:
            return f"{access.verb} address {address:#x}, which is in no array of the launch", _MASK
        if len(candidates) > 1:
            names = " or ".join(a.name for a in candidates)
            return f"{access.verb} outside of {names}: address {address:#x} is in neither", _MASK
        argument = candidates[0]
        array = argument.array
        element, rest = divmod(address - argument.address, access.dtype.itemsize)
        if rest:
            bytes_off = address - argument.address
            what = f"{access.verb} {access.dtype.itemsize} bytes at byte {bytes_off} of {argument.name}: misaligned"
            return what, "an offset counts elements of what the pointer points to, not bytes"
        low, high = argument.span
        total = (high - low) // array.itemsize
        if total == array.size and access.dtype.itemsize == array.itemsize:
            return f"{access.verb} {argument.name}[{element}], but {argument.name} has {array.size} elements", _MASK
        strides = tuple(s // array.itemsize for s in array.strides)
        shown = f"shape {array.shape}, strides {strides}"
        what = f"{access.verb} {argument.name}[{element}], but that is no element of {argument.name} ({shown})"
        return what, "pass the strides to the kernel and compute the offsets with them, or pass a contiguous copy"


_MASK = (
    "mask what lies outside, as with mask=zg.compare(offsets, n, zg.CompareKind.LESS_THAN), and check that the sizes "
    "and strides that the kernel was given are the array's"
)


def _groups(arguments: Sequence[Argument]) -> list[list[Argument]]:
    """The arguments that belong to one region: whose spans overlap, or whose arrays are views of one array."""
    for argument in arguments:
        size = argument.array.itemsize
        if argument.address % min(size, 8) or any(stride % size for stride in argument.array.strides):
            raise LaunchError(f"the array for {argument.name} is not aligned to its elements of {size} bytes")
    groups: list[tuple[int, int, set[int], list[Argument]]] = []
    for argument in sorted(arguments, key=lambda a: a.span):
        low, high = argument.span
        owners = {_owner(argument.array)}
        members = [argument]
        for group in list(groups):
            if owners & group[2] or (low < group[1] and group[0] < high):
                groups.remove(group)
                low, high = min(low, group[0]), max(high, group[1])
                owners, members = owners | group[2], [*group[3], *members]
        groups.append((low, high, owners, members))
    return [members for _, _, _, members in groups]


def _owner(array: Array) -> int:
    """Which object the memory of an array belongs to."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base  # pyright: ignore[reportUnknownMemberType]
    return id(owner)  # pyright: ignore[reportUnknownArgumentType]
