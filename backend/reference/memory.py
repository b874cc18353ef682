"""The memory of a launch: the caller's arrays, at their real addresses.

Arrays that share memory, or are views of one array, make up one region. A pointer carries the number of its argument in
the bits above the address. Such a pointer may go to any element of an argument in the region of its own argument, and
nowhere else. A pointer made from an integer carries no number and may go to any element of any argument.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.arrays import address
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.errors import LaunchError, MemoryAccessError
from ziggurat.codemodel.op import Op

_ADDRESS_BITS = 56  # A process has addresses of at most 56 bits: x86-64 with five levels of pages, less elsewhere.
_MAX_NUMBER = (1 << 62 - _ADDRESS_BITS) - 1
_MASK_HINT = (
    "mask what lies outside, as with mask=zg.compare(offsets, n, zg.CompareKind.LESS_THAN), and check that the sizes "
    "and strides that the kernel was given are the array's"
)


def real_addresses(pointers: Array) -> Array:
    """The addresses of pointers, without the numbers of their arguments."""
    return pointers - (pointers >> _ADDRESS_BITS << _ADDRESS_BITS)


def _origin(number: int) -> int:
    """The pointer of an argument to the address 0. The lowest bit of the tag is 1, so it may be borrowed from."""
    return (number << 1 | 1) << _ADDRESS_BITS if number else 0


@attrs.frozen(eq=False)
class Argument:
    """An array that was passed for the pointer or descriptor parameter number `index`."""

    index: int
    name: str
    array: Array

    @property
    def address(self) -> int:
        """The address of the first element."""
        return address(self.array)

    @property
    def number(self) -> int:
        """The number that pointers to the argument carry; 0 where there are too many arguments."""
        return self.index + 1 if self.index < _MAX_NUMBER else 0

    @property
    def pointer(self) -> int:
        """The pointer to the first element."""
        return _origin(self.number) + self.address

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

    def combs(self) -> list[tuple[int, int]]:
        """Strides and counts, the widest stride first, whose sums are the bytes of the elements within the span.

        An array whose axes overlap irregularly is taken to have every byte of its span.
        """
        low, high = self.span
        axes = zip(self.array.strides, self.array.shape, strict=True)
        found = [(1, self.array.itemsize if self.array.size else 0)]
        extent = found[0][1]
        for stride, size in sorted((abs(stride), size) for stride, size in axes if size > 1 and stride):
            width, count = found[0]
            if stride % width == 0 and stride <= width * count:
                found[0] = (width, stride // width * (size - 1) + count)
            elif stride >= extent:
                found.insert(0, (stride, size))
            else:
                return [(1, high - low)]
            extent += stride * (size - 1)
        return found


class Region:
    """A stretch of memory that arguments share. `unit` is the size of its smallest elements, in bytes."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.arguments = tuple(arguments)
        spans = [argument.span for argument in arguments]
        self.low = min(low for low, _ in spans)
        self.high = max(high for _, high in spans)
        self.base = self.low & -8  # Elements of every size are at multiples of their size from the base.
        self.unit = min(argument.array.itemsize for argument in arguments)
        size = self.high - self.base
        raw = (ctypes.c_uint8 * size).from_address(self.base) if size else (ctypes.c_uint8 * 0)()
        self._bytes: Array = np.ctypeslib.as_array(raw)
        self._views: dict[np.dtype[Any], Array] = {}
        self._elements = [(low, argument.combs()) for (low, _), argument in zip(spans, arguments, strict=True)]
        self.has_gaps = (self.low, [(1, self.high - self.low)]) not in self._elements

    @property
    def units(self) -> int:
        """The number of units from the base."""
        return -(-(self.high - self.base) // self.unit)

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The region from its base as elements of a dtype."""
        view = self._views.get(dtype)
        if view is None:
            size = len(self._bytes) // dtype.itemsize * dtype.itemsize
            view = self._views[dtype] = self._bytes[:size].view(dtype)
        return view

    def missing(self, offsets: Array, size: int) -> Array:
        """For each offset from the base, whether one of `size` bytes there is in no element of an argument."""
        missing = np.zeros(offsets.shape, np.bool_)
        for part in range(0, size, self.unit):
            held = np.zeros(offsets.shape, np.bool_)
            for low, combs in self._elements:
                inside = np.ones(offsets.shape, np.bool_)
                position = offsets + (self.base + part - low)
                for stride, count in combs:
                    step, position = np.divmod(position, stride)
                    inside &= (step >= 0) & (step < count)
                held |= inside
            missing |= ~held
        return missing


@attrs.frozen(eq=False)
class Target:
    """Elements of one region: their numbers from its base, and their lanes in the access (None: all of them)."""

    region: Region
    index: Array
    lanes: Array | None


@attrs.frozen(eq=False)
class Access:
    """An access as it happens, to elements of this dtype, in a tensor of this shape. `verb` is "reads", "writes" or
    "updates"."""

    op: Op
    verb: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    programs: Array  # linear ids, one for each program that runs


class Memory:
    """The regions of a launch, and the journal from which writes can be taken back."""

    def __init__(self, arguments: Sequence[Argument], grid: tuple[int, int, int]) -> None:
        self.arguments = {argument.number: argument for argument in arguments if argument.number}
        self.grid = grid
        self.regions = [Region(group) for group in _groups(arguments)]
        self.region_of = {argument.number: region for region in self.regions for argument in region.arguments}
        self.changes = 0  # The number of writes that may have changed an element.
        self._journal: list[tuple[Array, Array, Array]] = []

    # Taking back.

    def record(self) -> None:
        """Begin a journal: writes from here on can be taken back."""
        self._journal = []

    def take_back(self) -> None:
        """Restore what was there at `record`."""
        for view, index, old in reversed(self._journal):
            view[index] = old
        self._journal = []

    def write(self, view: Array, index: Array, values: Array) -> None:
        """Set elements of a region's view; of an index that comes twice, the last value counts."""
        self._journal.append((view, index, view[index]))
        self.changes += 1
        view[index] = values

    # Finding the elements at addresses.

    def argument_of(self, pointer: int) -> Argument | None:
        """The argument whose number a pointer carries."""
        return self.arguments.get(pointer >> _ADDRESS_BITS + 1)

    def locate(self, pointers: Array, mask: Array | None, access: Access) -> Iterator[Target]:
        """The elements at these addresses, region by region. `mask` has the shape of `pointers`, or is None.

        Raises `MemoryAccessError` when one of them is no element of an argument, or may not be written.
        """
        size = access.dtype.itemsize
        left = mask  # The lanes whose region is not found yet.
        while left is None or left.any():
            lane = 0 if left is None else int(np.argmax(left))
            argument = self.argument_of(int(pointers.flat[lane]))
            number = 0 if argument is None else argument.number
            for region in self.regions if argument is None else [self.region_of[number]]:
                offset = pointers - (_origin(number) + region.base)
                index, outside = _index(region, offset, size, aligned=argument is not None)
                wrong = outside if left is None else outside & left
                hit = not wrong.any()
                if hit and access.verb == "reads":
                    yield Target(region, index, left)
                    return
                inside = ~outside if left is None else ~outside & left
                if inside.any():
                    owners = region.arguments if argument is None else (argument,)
                    if access.verb != "reads" and not any(owner.array.flags.writeable for owner in owners):
                        names = [owner.name for owner in owners]
                        reason = f"{access.verb} {' or '.join(names)}, but its array is read-only"
                        hint = f"pass an array that can be written; np.array({names[0]}) is a copy that can"
                        self._refuse(pointers, inside, access, reason, hint)
                    yield Target(region, index, left if hit else inside)
                if hit:
                    return
                left = wrong
            if left is None or left.flat[lane]:
                self._refuse(pointers, np.ones(pointers.shape, np.bool_) if left is None else left, access)

    def _refuse(self, pointers: Array, lanes: Array, access: Access, reason: str = "", hint: str = _MASK_HINT) -> None:
        """Raise the error for the first of these lanes: with a reason, or for an address that is in no array."""
        flat = int(np.argmax(lanes))
        program = flat // max(1, pointers.size // pointers.shape[0]) if pointers.shape[0] > 1 else 0
        if not reason:
            reason, hint = self._outside(int(pointers.flat[flat]), access)
        raise MemoryAccessError(f"{self.program(int(access.programs[program]))} {reason}", hint=hint)

    def program(self, linear: int) -> str:
        """The name of a program in messages: `program (3, 0, 0)`."""
        return f"program {self.coordinates(linear)}"

    def coordinates(self, linear: int) -> tuple[int, int, int]:
        """The place in the grid of the program with this linear id; the first axis counts fastest."""
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def _outside(self, pointer: int, access: Access) -> tuple[str, str]:
        """The reason why a pointer is wrong, and the hint."""
        argument = self.argument_of(pointer)
        if argument is None:
            return f"{access.verb} address {pointer:#x}, which is in no array of the launch", _MASK_HINT
        array, name = argument.array, argument.name
        offset = pointer - argument.pointer
        element, rest = divmod(offset, access.dtype.itemsize)
        if rest:
            what = f"{access.verb} {access.dtype.itemsize} bytes at byte {offset} of {name}: misaligned"
            return what, "make an offset count elements of the pointer's type, not bytes"
        low, high = argument.span
        forward = high - low == array.nbytes and all(stride >= 0 for stride in array.strides)
        if forward and access.dtype.itemsize == array.itemsize:
            return f"{access.verb} {name}[{element}], but {name} has {array.size} elements", _MASK_HINT
        shown = f"shape {array.shape}, strides {tuple(s // array.itemsize for s in array.strides)}"
        what = f"{access.verb} {name}[{element}], but that is no element of {name} ({shown})"
        return what, "pass the strides to the kernel and compute the offsets with them, or pass a contiguous copy"


def _index(region: Region, offset: Array, size: int, *, aligned: bool) -> tuple[Array, Array]:
    """The numbers of elements of `size` bytes at offsets from a region's base, and whether each is outside of it.

    `aligned` says that the offsets are multiples of the region's unit.
    """
    shift = size.bit_length() - 1
    index = offset >> shift if shift else offset
    first = -(-(region.low - region.base) // size)
    count = max(0, (region.high - region.base) // size - first)
    outside = (index - first).view(np.uint64) >= np.uint64(count)
    if size > region.unit or not aligned:
        outside |= (offset & (size - 1)) != 0
    if region.has_gaps and count:
        outside |= region.missing(np.where(outside, 0, offset), size)
    return index, outside


def _groups(arguments: Sequence[Argument]) -> list[list[Argument]]:
    """The arguments of each region: their spans overlap, or their arrays are views of one array."""
    for argument in arguments:
        size = argument.array.itemsize
        if argument.address % min(size, 8) or any(stride % size for stride in argument.array.strides):
            raise LaunchError(f"the array for {argument.name} must be aligned to its elements of {size} bytes")
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
    """The identity of the object that owns the memory of an array."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base  # pyright: ignore[reportUnknownMemberType]
    return id(owner)  # pyright: ignore[reportUnknownArgumentType]
