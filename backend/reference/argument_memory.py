"""The memory of a launch: the caller's arrays at their real addresses, and the accesses that programs share.

Arrays that share memory, or are views of one array, make up one region. A pointer carries the number of its argument in
the bits above the address. Such a pointer may go to any element of an argument in the region of its own argument, and
nowhere else. A pointer made from an integer carries no number and may go to any element of any argument, and to the
memory of any tensor of PyTorch: programs pass tensors of addresses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch import races, regions
from ziggurat.backend.launch.arrays import address, tensor_at
from ziggurat.backend.launch.grids import program_at
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel.dialects.tt import AtomicCAS, AtomicRMW, IntToPtr, MemScope, MemSemantic, Wait
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, MemoryAccessError, warn
from ziggurat.codemodel.messages import Phrase, call_text, say
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.scalars import bits_of
from ziggurat.codemodel.types import MAX_ELEMENTS
from ziggurat.transforms.kit.dataflow import written_parameters

_ADDRESS_BITS = 56  # A process has addresses of at most 56 bits: x86-64 with five levels of pages, less elsewhere.
_MAX_NUMBER = (1 << 62 - _ADDRESS_BITS) - 1
_CHECK = "and check that the sizes and strides that the kernel was given are the array's"
MASK_HINT = Phrase(
    zg=f"mask what lies outside, as with mask=zg.less(offsets, n), {_CHECK}",
    tl=f"mask what lies outside, as with mask=offsets < n, {_CHECK}",
    c=f"mask the pointers outside of the array, as in *?(offsets < n) p, {_CHECK}",
)()


def real_addresses(pointers: Array) -> Array:
    """The addresses of pointers, without the numbers of their arguments."""
    return pointers - (pointers >> _ADDRESS_BITS << _ADDRESS_BITS)


def argument_numbers(pointers: Array) -> Array:
    """The numbers of arguments that pointers carry."""
    return pointers >> _ADDRESS_BITS + 1


def _origin(number: int) -> int:
    """The pointer of an argument to the address 0. The lowest bit of the tag is 1, so it may be borrowed from."""
    return (number << 1 | 1) << _ADDRESS_BITS if number else 0


@attrs.frozen(eq=False)
class ArrayArgument:
    """An array that was passed for the pointer or descriptor parameter number `index`.

    `memory` is an array over the memory that pointers to the argument may go to.
    """

    index: int
    name: str
    array: Array
    memory: Array = attrs.field(default=attrs.Factory(lambda self: self.array, takes_self=True))

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


class ArgumentRegion(regions.Region):
    """A stretch of memory that arguments share."""

    def __init__(self, arguments: Sequence[ArrayArgument]) -> None:
        # Elements of every size are at multiples of their size from the base.
        super().__init__([argument.memory for argument in arguments], aligned=8)
        self.arguments = tuple(arguments)
        self.names = [argument.name for argument in arguments]
        self.written = True  # Whether a program may write it.
        self._views: dict[np.dtype[Any], Array] = {}

    @property
    def units(self) -> int:
        """The number of units from the base."""
        return -(-(self.high - self.base) // self.unit)

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The region from its base as elements of a dtype."""
        view = self._views.get(dtype)
        if view is None:
            size = len(self.bytes) // dtype.itemsize * dtype.itemsize
            view = self._views[dtype] = self.bytes[:size].view(dtype)
        return view

    def owns(self, view: Array) -> bool:
        """Whether an array is one of the region's views."""
        return self._views.get(view.dtype) is view


@attrs.frozen(eq=False)
class RegionElements:
    """Elements of one region: their numbers from its base, and their lanes in the access (None: all of them)."""

    region: ArgumentRegion
    index: Array
    lanes: Array | None


@attrs.frozen(eq=False)
class ElementAccess:
    """An access as it happens, to elements of this dtype, in a tensor of this shape. `verb` is "reads", "writes" or
    "updates"."""

    op: Op
    verb: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    programs: Array  # linear ids, one for each program that runs


class Memory:
    """The regions of a launch, and the journal from which writes can be taken back.

    Where it is `tolerant`, an access outside of the array of its pointer gives a warning, and no error, and so does a
    division by zero.
    """

    def __init__(self, arguments: Sequence[ArrayArgument], grid: tuple[int, int, int], tolerant: bool = False) -> None:
        self.arguments = {argument.number: argument for argument in arguments if argument.number}
        self.grid = grid
        self.tolerant = tolerant
        self._warned: set[Op] = set()
        self.regions = [ArgumentRegion(group) for group in _groups(arguments)]
        self.region_of = {argument.number: region for region in self.regions for argument in region.arguments}
        self.detached = False
        self.changes = 0  # The number of writes that may have changed an element.
        self.turns: Any = None  # Of the programs that take turns, by which they wait for changes.
        self.races: races.Races | None = None  # In strict mode, the accesses of the programs up to now.
        self.journal: list[tuple[Array, Array, Array]] = []

    def leave_out_read(self, kernel: Op) -> None:
        """Note the regions that a kernel only reads."""
        if not kernel.root().holds(IntToPtr):
            parameters = written_parameters(kernel)
            for region in self.regions:
                region.written = any(argument.index in parameters for argument in region.arguments)

    def detach(self) -> None:
        """Go on with copies of the arrays, at the same addresses for programs, which reach no other memory."""
        self.detached = True
        for region in self.regions:
            region.bytes = region.bytes.copy()

    # Taking back.

    def record(self) -> None:
        """Begin a journal: writes from here on can be taken back."""
        self.journal = []
        if self.races is not None:
            self.races.begin()

    def take_back(self) -> None:
        """Restore what was there at `record`."""
        for view, index, old in reversed(self.journal):
            view[index] = old
        self.journal = []
        if self.races is not None:
            self.races.forget()

    def write(self, view: Array, index: Array, values: Array) -> None:
        """Set elements of a region's view; of an index that comes twice, the last value counts."""
        self.journal.append((view, index, view[index]))
        self.changes += 1
        if self.turns is not None:
            self.turns.changes += 1
        view[index] = values

    # Finding the elements at addresses.

    def argument_of(self, pointer: int) -> ArrayArgument | None:
        """The argument whose number a pointer carries."""
        return self.arguments.get(pointer >> _ADDRESS_BITS + 1)

    def locate(self, pointers: Array, mask: Array | None, access: ElementAccess) -> Iterator[RegionElements]:
        """The elements at these addresses, region by region. `mask` has the shape of `pointers`, or is None.

        Lanes outside of the arrays are left out where the memory is tolerant. Raises `MemoryAccessError` when one of
        them is no element of an argument otherwise, or may not be written.
        """
        size = access.dtype.itemsize
        rest = mask  # The lanes whose region is not found yet.
        while rest is None or rest.any():
            lane = 0 if rest is None else int(np.argmax(rest))
            argument = self.argument_of(int(pointers.flat[lane]))
            number = 0 if argument is None else argument.number
            place = int(pointers.flat[lane])
            likely = sorted(self.regions, key=lambda region: not region.low <= place < region.high)
            for region in likely if argument is None else [self.region_of[number]]:
                offset = pointers - (_origin(number) + region.base)
                index, outside = _index(region, offset, size, aligned=argument is not None)
                wrong = outside if rest is None else outside & rest
                hit = not wrong.any()
                if hit and access.verb == "reads":
                    yield RegionElements(region, index, rest)
                    return
                inside = ~outside if rest is None else ~outside & rest
                if inside.any():
                    owners = region.arguments if argument is None else (argument,)
                    if access.verb != "reads" and not any(owner.array.flags.writeable for owner in owners):
                        names = [owner.name for owner in owners]
                        reason = f"{access.verb} {' or '.join(names)}, but its array is read-only"
                        hint = f"pass an array that can be written; np.array({names[0]}) is a copy that can"
                        self._refuse(pointers, inside, access, reason, hint)
                    yield RegionElements(region, index, rest if hit else inside)
                if hit:
                    return
                rest = wrong
            if rest is None:
                rest = np.ones(pointers.shape, np.bool_)
            if rest.flat[lane] and not self._add_tensor_at(int(pointers.flat[lane])):
                stray = rest & (pointers >> _ADDRESS_BITS + 1 == number)
                self._refuse(pointers, stray, access)
                rest = rest & ~stray

    def _add_tensor_at(self, pointer: int) -> bool:
        """Add the memory of the tensor to which a pointer made from an integer goes. False where there is none."""
        tensor = tensor_at(pointer) if self.argument_of(pointer) is None and not self.detached else None
        if tensor is None:
            return False
        new_region = ArgumentRegion([ArrayArgument(_MAX_NUMBER, "a tensor", tensor)])
        if any(new_region.low < region.high and region.low < new_region.high for region in self.regions):
            return False  # The tensor has elements on both sides of an argument, which is a view of it.
        self.regions.append(new_region)
        return True

    def _refuse(
        self, pointers: Array, lanes: Array, access: ElementAccess, reason: str = "", hint: str = MASK_HINT
    ) -> None:
        """Raise the error for the first of these lanes: with a reason, or for an address that is in no array.

        Where the memory is tolerant, a pointer of an argument that goes outside of it only gives a warning, once for
        an op.
        """
        flat = int(np.argmax(lanes))
        program = flat // max(1, pointers.size // pointers.shape[0]) if pointers.shape[0] > 1 else 0
        pointer = int(pointers.flat[flat])
        stray = not reason and pointer % access.dtype.itemsize == 0 and self.argument_of(pointer) is not None
        if not reason:
            reason, hint = self._outside(pointer, access)
        message = f"{self.program(int(access.programs[program]))} {reason}"
        if not stray or not self.tolerant:
            raise MemoryAccessError(message, hint=hint)
        self.warn(f"{message}: {stray_outcome(access.verb)}", access.op)

    def warn(self, message: str, op: Op) -> None:
        """Issue a warning at an op's place in the source, once for the op."""
        if op not in self._warned:
            self._warned.add(op)
            warn(message, op.location)

    def program(self, linear: int) -> str:
        """The name of a program in messages: `program (3, 0, 0)`."""
        return f"program {self.coordinates(linear)}"

    def coordinates(self, linear: Any) -> tuple[Any, Any, Any]:
        """The place in the grid of the program with this linear id, or of an array of them; the first axis counts
        fastest."""
        return program_at(linear, self.grid)

    def _outside(self, pointer: int, access: ElementAccess) -> tuple[str, str]:
        """The reason why a pointer is wrong, and the hint."""
        argument = self.argument_of(pointer)
        if argument is None:
            return f"{access.verb} address {pointer:#x}, which is in no array of the launch", MASK_HINT
        return outside(argument, pointer - argument.pointer, access.dtype, access.verb)


def stray_outcome(verb: str) -> str:
    """The words for the outcome of an access outside of the arrays, in tolerant memory."""
    return f"{'0, or `other`, is read' if verb == 'reads' else 'nothing is written'}, where a GPU may do anything"


def outside(argument: ArrayArgument, offset: int, dtype: np.dtype[Any], verb: str) -> tuple[str, str]:
    """The reason why an element at an offset in bytes from an argument's first one cannot be accessed, and the hint."""
    array, name = argument.array, argument.name
    element, rest = divmod(offset, dtype.itemsize)
    if rest:
        what = f"{verb} {dtype.itemsize} bytes at byte {offset} of {name}: misaligned"
        return what, "make an offset count elements of the pointer's type, not bytes"
    low, high = regions.span(array)
    forward = high - low == array.nbytes and all(stride >= 0 for stride in array.strides)
    if forward and dtype.itemsize == array.itemsize:
        return f"{verb} {name}[{element}], but {name} has {array.size} elements", MASK_HINT
    details = f"shape {array.shape}, strides {tuple(s // array.itemsize for s in array.strides)}"
    what = f"{verb} {name}[{element}], but that is no element of {name} ({details})"
    return what, "pass the strides to the kernel and compute the offsets with them, or pass a contiguous copy"


def _index(region: ArgumentRegion, offset: Array, size: int, *, aligned: bool) -> tuple[Array, Array]:
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


def _groups(arguments: Sequence[ArrayArgument]) -> list[list[ArrayArgument]]:
    """The arguments of each region: their spans overlap, or their arrays are views of one array."""
    for argument in arguments:
        size = argument.array.itemsize
        if argument.address % min(size, 8) or any(stride % size for stride in argument.array.strides):
            raise LaunchError(f"the array for {argument.name} must be aligned to its elements of {size} bytes")
    groups = regions.grouped([argument.memory for argument in arguments], views=True)
    return [[arguments[number] for number in group] for group in groups]


# Checks of the memory that programs share.

READ, WRITE = "read", "write"
_MAX_UNITS = 1 << 28  # Units of a region whose elements are given owners; 4 bytes are needed for each.


def order_of(op: Op) -> MemSemantic:
    """The order of an atomic op with other accesses."""
    return op.order if isinstance(op, AtomicRMW | AtomicCAS | Wait) else MemSemantic.RELAXED


def scope_of(op: Op) -> MemScope | None:
    """The scope of a strong access; None for a weak one. A volatile one is relaxed, at system scope (PTX manual)."""
    scope = getattr(op, "scope", None)
    if isinstance(scope, MemScope):
        return scope
    return MemScope.SYSTEM if getattr(op, "volatile", False) else None


def _polls(op: Op) -> bool:
    """Whether an access reads what atomics of other programs write."""
    return isinstance(op, Wait) or bool(getattr(op, "volatile", False)) or (isinstance(op, AtomicRMW) and op.is_load)


class Conflict(Exception):
    """Programs of a batch share memory. With `again`, the batch is to be run again with owners of elements."""

    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.again = again


class WaitsForLater(Exception):
    """A program waits for a change of memory by a later one."""


class Sharing:
    """The accesses of a batch up to now, and the checks of the memory that programs share.

    A batch must have the result of running its programs one after the other. Each access handles its programs in order.
    So a region needs no check while a single access touches it, or all accesses are reads, or all are atomics that
    commute. After any other access the batch is run again with an owner for each element of the region: the first
    program of the batch that touches it. If a second program touches it, the remaining programs run one at a time.

    In strict mode a program must not read an element that it has written since its last barrier, nor write an element
    that another position of a tensor has read, or set to another value: on a GPU these may be two threads, which run in
    any order. Two tensors have the same positions if their shapes differ in axes of size 1 only. Two programs must not
    race (`races`).
    """

    def __init__(self, memory: Memory, strict: bool) -> None:
        self.memory = memory
        self.strict = strict
        self.together = False
        self._first = 0
        self._uses: dict[ArgumentRegion, str] = {}
        self._owners: dict[ArgumentRegion, Array] = {}
        # In strict mode, for each unit of a region, by the numbers of accesses: the last write, the first read since
        # the barrier, the position that reads, a read since then from another position, and the position that writes;
        # with the size of these units, as another program may have divided them.
        self._histories: dict[ArgumentRegion, tuple[int, Array]] = {}
        self._accesses: list[Op] = []
        self._synchronized = np.zeros(0, np.int64)  # For each program, the number of accesses before its last barrier.
        self._shapes: dict[tuple[int, ...], int] = {}  # Shapes by number, without axes of size 1.
        self._fenced: set[int] = set()  # The programs without a store since a fence: their atomics release.

    def begin(self, start: int, stop: int) -> None:
        """Begin a batch of the programs `start` … `stop` - 1."""
        self.together = stop - start > 1
        self._first = start
        self._uses = {}
        if self.strict:
            self._synchronized = np.full(stop - start, len(self._accesses), np.int64)

    def barrier(self, programs: Array, scope: MemScope = MemScope.CTA) -> None:
        """Note a barrier of these programs, which is a fence for others in its scope."""
        if self.strict:
            self._synchronized[programs - self._first] = len(self._accesses)
            if scope is not MemScope.CTA:
                self._fenced.update(programs.tolist())

    def touch(self, target: RegionElements, access: ElementAccess, use: str, values: Array | None = None) -> None:
        """Note an access to elements. `use` is READ, WRITE, or the kind of an atomic that commutes with its own kind.
        `values` are those that a store writes.

        Raises `Conflict` for memory that programs share, and in strict mode `KernelRuntimeError` for a missing barrier
        and for a race between programs.
        """
        region = target.region
        strict = self.strict and region.written and region.units <= _MAX_UNITS
        if apart := self.together and region not in self._owners:
            self._touch_region(region, use)
        if not strict and (apart or not self.together):
            return
        if strict and access.dtype.itemsize < region.unit:
            self._refine(region, access.dtype.itemsize)
        units, programs = self._units(target, access)
        if self.together and not apart:
            self._claim(self._owners[region], units, programs)
        if not strict:
            return

        def bits() -> Sequence[Array]:
            """The new and the old bits of the units of a store."""
            assert values is not None
            old = region.view(access.dtype).take(target.index, mode="clip")
            return self._units(target, access, *map(bits_of, (values, old)))[2:]

        self._check_races(region, access, units, programs, bits)
        if not apart:
            sides = tuple(side for side in access.shape if side != 1)
            number = self._shapes.setdefault(sides, len(self._shapes))
            places = np.arange(math.prod(sides)).reshape(access.shape) + number * MAX_ELEMENTS
            self._check_barriers(region, access, use, units, programs, self._units(target, access, places)[2], bits)

    def _touch_region(self, region: ArgumentRegion, use: str) -> None:
        uses = self._uses.get(region)
        if uses is None:
            self._uses[region] = use
        elif uses != use or use == WRITE:
            if region.units > _MAX_UNITS:
                raise Conflict
            self._owners[region] = np.full(region.units, -1, np.int32)
            raise Conflict(again=True)

    def _claim(self, owners: Array, units: Array, programs: Array) -> None:
        owner = owners[units]
        if ((owner >= self._first) & (owner != programs)).any():
            raise Conflict
        owners[units] = programs
        if (owners[units] != programs).any():  # Two programs touch one element at once.
            raise Conflict

    def _refine(self, region: ArgumentRegion, size: int) -> None:
        """Divide the units of a region into those of smaller elements."""
        tables_and_keys: list[tuple[dict[Any, Array], Any]] = [(self._owners, region)]
        if self.memory.races is not None:
            tables_and_keys.append((self.memory.races.tables, region.base))
        for tables, key in tables_and_keys:
            if key in tables:
                tables[key] = np.repeat(tables[key], region.unit // size, axis=-1)
        region.unit = size

    def _check_races(
        self, region: ArgumentRegion, access: ElementAccess, units: Array, programs: Array,
        bits: Callable[[], Sequence[Array]],
    ) -> None:  # fmt: skip
        """Note an access. Raise `KernelRuntimeError` for a race with another program."""
        op, order = access.op, order_of(access.op)
        if self.memory.races is None:
            return
        kinds = {"reads": races.READ, "writes": races.WRITE}
        kind = races.POLL if _polls(op) else kinds.get(access.verb, races.UPDATE)
        if kind == races.WRITE:
            self._fenced.difference_update(programs.flat)
        releases = order.releases or (kind == races.UPDATE and self._fenced.issuperset(programs.flat))
        self.memory.races.note(
            region, units, programs, kind, op, size=region.unit,
            bits=bits if access.verb == "writes" else None, releases=releases,
            # Many programs take a lock by a relaxed atomic: one whose result is used acquires.
            acquires=order.acquires or kind == races.POLL or (kind == races.UPDATE and bool(op.result.uses)),
        )  # fmt: skip

    def _check_barriers(
        self, region: ArgumentRegion, access: ElementAccess, use: str, units: Array, programs: Array, positions: Array,
        bits: Callable[[], Sequence[Array]],
    ) -> None:  # fmt: skip
        """Note an access. Raise `KernelRuntimeError` for a read of an element written since the last barrier, and for a
        store to an element that another position has read since, or has written another value to."""
        unit, table = self._histories.get(region) or (region.unit, np.zeros((5, region.units), np.int64))
        if unit != region.unit:
            table = np.repeat(table, unit // region.unit, axis=-1)
        self._histories[region] = region.unit, table
        history, read, position, elsewhere, writer = table
        since = self._synchronized[programs - self._first]
        last: Array = history[units]
        checks: list[tuple[Array, Array, str]] = []  # The numbers of accesses, where one clashes, and what it did.
        if use == READ:
            checks.append((last, last > since, "written"))
        elif access.verb not in ("updates", "waits for"):
            before = read[units]
            mine = position[units] == positions
            before[mine] = elsewhere[units][mine]
            checks.append((before, before > since, "read at another position"))
            clash = (last > since) & (writer[units] != positions)
            if clash.any():
                new, old = bits()
                clash &= new != old
            checks.append((last, clash, "written at another position"))
        for numbers, clash, done in checks:
            if clash.any():
                lane = np.unravel_index(int(np.argmax(clash)), clash.shape)
                names = " or ".join(argument.name for argument in region.arguments)
                what = f"{'reads' if use == READ else 'writes'} an element of {names} that it has {done}"
                raise self._unordered(int(programs[lane]), what, done, self._accesses[int(numbers[lane]) - 1])
        self._accesses.append(access.op)
        number = len(self._accesses)
        if use != READ:
            history[units], writer[units] = number, positions
            return
        first = read[units] <= since
        position[units[first]] = positions[first]
        read[units[first]] = number
        elsewhere[units[position[units] != positions]] = number

    def _unordered(self, program: int, what: str, done: str, earlier: Op) -> KernelRuntimeError:
        """The error of a program: `what` it does, with no barrier after the earlier access, which has `done` so."""
        error = KernelRuntimeError(
            f"{self.memory.program(program)} {what}, with no barrier between",
            hint=say(
                "call {}() between the two: on a GPU these may be two threads, which run in any order",
                call_text("debug_barrier"),
            ),
        )
        error.add(f"it is {done.split()[0]} here", earlier.location)
        return error

    def _units(self, target: RegionElements, access: ElementAccess, *more: Array) -> list[Array]:
        """The units that an access touches, the program that touches each, and the elements of further arrays there."""
        size, unit = access.dtype.itemsize, target.region.unit
        shape = access.shape if self.strict else target.index.shape[1:]
        indices = [target.index, access.programs.reshape(-1, *(1,) * len(shape)), *more]
        indices = [np.broadcast_to(array, (len(access.programs), *shape)) for array in indices]
        if target.lanes is not None:
            lanes = np.broadcast_to(target.lanes, indices[0].shape)
            indices = [array[lanes] for array in indices]
        if size < unit:
            indices[0] = indices[0] // (unit // size)
        elif size > unit:
            parts = size // unit
            indices = [np.repeat(array, parts) for array in indices]
            indices[0] = indices[0] * parts + np.tile(np.arange(parts), len(indices[0]) // parts)
        return indices
