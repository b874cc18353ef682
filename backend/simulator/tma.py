"""TMA and mbarriers of the simulation, as in the PTX manual.

    matrix = TensorMap(array, box=(64, 64), swizzle=128)
    simulate(llvm, num_warps=4, shared=size, arguments=[matrix, …], seed=2)

Importing this module registers their instructions. By the seed, loads complete late, early or at any time between, and
stores reach memory in any order. A thread may not touch the bytes of a load before it has waited for the phase of its
mbarrier; no thread may write the source of a store before a wait for it. Waiting for a phase that never ends is a
`SimulationError`. A thread may use a tensor map that the program has made after a fence of its own, and no warp may
write over one that a copy in flight uses.

This module shares nothing with the emission: boxes, swizzles and phases are written here anew from the manual
("Tensors", "Swizzling modes", "mbarrier", "Async proxy", "tensormap.replace", "tensormap.cp_fenceproxy").
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch import arrays
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.races import READ, UPDATE, WRITE
from ziggurat.backend.simulator.program import Blocked, unit
from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.backend.simulator.tensor_maps import BYTES, Tensor, TensorMap, mark_of, place_of, tensor_of
from ziggurat.backend.simulator.text import unknown
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.fragments import GRID, MAP, SCRATCH, STORED, box_and_swizzle, is_of_launch
from ziggurat.codemodel.types import DescriptorType, Type

_UNORDERED = (
    "an mbarrier is initialised or invalidated where another thread was since the last barrier: a barrier is missing"
)
_OF_CTA = 1 << 20  # The addresses of another CTA of the cluster are those here, plus a multiple of this.
MAPS = 1 << 60  # The address of a tensor map of a launch is this plus the number of its array.


def in_parts(func: tt.Func, arguments: Sequence[Any], scratch: int = 0, grid: Sequence[int] = (1, 1, 1)) -> list[Any]:
    """The arguments of an emitted kernel, from those of a launch: `TensorDescriptor`s are split into their parts.

    `grid` is what the launch asks for, and `scratch` the number of bytes for the tensor maps that all programs make.
    """
    parts = func.parts or [str(number) for number in range(len(arguments))]
    types = [parameter.type for parameter in func.body.parameters]
    values = [
        _part(arguments[int(part.partition(".")[0])], part, type_)
        for part, type_ in zip(parts, types, strict=True)
        if not is_of_launch(part)
    ]
    maps = [
        _map(
            type_,
            [int(s[1:]) if s.startswith("=") else values[int(s)] for s in part.removesuffix(STORED).split()[1:]],
            part.endswith(STORED),
        )
        for part, type_ in zip(parts, types, strict=True)
        if part.startswith(MAP)
    ]
    sizes = [grid[int(part.split()[1])] for part in parts if part.startswith(GRID)]
    return [*values, *sizes, *maps, *([_aligned(scratch)] if SCRATCH in parts else [])]


def _map(type_: Type, sources: Sequence[Any], is_store: bool) -> TensorMap:
    """The tensor map that a launch makes."""
    assert isinstance(type_, DescriptorType)
    array, rows, columns, pitch = sources
    why: str | None = None
    if min(rows, columns) < 1 and is_store:
        why = f"blocks are stored by TMA to {rows} by {columns} elements: there is nothing to store to"
    elif min(rows, columns) < 1:  # See `tensormap.py`.
        pitch = 16 // array.itemsize
        array, rows, columns = np.zeros(pitch, array.dtype), 1, 1
    elif pitch < 1:
        why = f"blocks are loaded by TMA from rows {pitch} elements apart: the distance must be positive"
    if why is not None:
        raise LaunchError(why, hint="compile the kernel with raise_pointers=False")
    box, swizzle = box_and_swizzle(type_)
    return TensorMap(array, box, swizzle, (int(rows), int(columns)), strides=(int(pitch),))


def _aligned(size: int) -> Array:
    """Memory at a multiple of 128 bytes."""
    room = np.zeros(size + 128, np.int8)
    start = -arrays.address(room) % 128
    return room[start : start + size]


def _part(argument: Any, part: str, type_: Type) -> Any:
    if not isinstance(argument, TensorDescriptor):
        return argument
    host, field = argument.host, part.partition(".")[2]
    assert host is not None
    if field == "base":
        return host
    if field in ("", "map"):
        assert isinstance(type_, DescriptorType)
        box, swizzle = box_and_swizzle(type_)
        nan = argument.padding == "nan"
        return TensorMap(host, box, swizzle, tuple(argument.shape), nan, tuple(argument.strides[:-1]))
    numbers = argument.shape if field.startswith("shape") else argument.strides
    return numbers[int(field[-1])]


# Copies in flight.


@attrs.define(eq=False)
class _Mbarrier:
    """An mbarrier: the arrivals and bytes that its phase still waits for, and the number of phases that have ended."""

    arrivals: int
    missing: int
    made: int  # The stamp of its initialisation.
    users: Array  # The stamp of each thread's last use.
    # What threads knew when they arrived: in this phase, and in ended phases, which those who waited learn.
    coming: Sequence[Array]  # Of the shared memory of each CTA of the cluster.
    known: Sequence[Array]
    phase: int = 0
    bytes: int = 0
    fenced: bool = False  # Whether a fence has made it visible to the asynchronous proxy.

    def step(self) -> None:
        """End the phase if all have arrived and all bytes are there."""
        if self.missing == 0 and self.bytes == 0:
            self.phase += 1
            self.missing = self.arrivals
            self.known = self.coming


@attrs.define(eq=False)
class _Load:
    """A load of a box into shared memory."""

    places: Array
    data: Array
    barrier: _Mbarrier
    map: int  # The address of the tensor map.


@attrs.define(eq=False)
class _Store:
    """A store of a box from shared memory, with the targets of its bytes in an array's memory."""

    memory: Array
    targets: Array
    data: Array
    places: Array
    map: int
    adds: np.dtype[Any] | None  # The type of elements that are added to what is there.


class _Tma:
    """The TMA copies and mbarriers of one program."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.random = np.random.default_rng(program.seed)
        self.barriers: dict[int, _Mbarrier] = {}
        self.loads: list[_Load] = []  # Those in flight.
        # Stores of each thread by group, oldest first; the last is not committed.
        self.groups: dict[int, list[list[_Store]]] = {}
        self.stores: list[_Store] = []  # Stores whose source has been read, and that are not yet in global memory.
        self.published: dict[int, set[int]] = {}  # The maps made, with the threads that have had a fence since.
        program.at_end.append(self.end)

    def fence(self, threads: Array) -> None:
        """Make the writes of these threads, mbarriers included, visible to the asynchronous proxy."""
        shared = self.program.shared
        shared.fence(threads)
        for address, barrier in self.barriers.items():
            barrier.fenced |= bool((shared.unfenced[address : address + 8] == -1).all())

    # Time.

    def land(self, load: _Load) -> None:
        shared = self.program.shared
        self.loads.remove(load)
        shared.bytes[load.places] = load.data
        shared.unfenced[load.places] = -1
        load.barrier.bytes -= load.data.size
        load.barrier.step()

    def some_land(self) -> None:
        """Let loads land that may: none with the seed 0, all with 1, and some with others."""
        seed = self.program.seed
        for load in list(self.loads):
            if seed == 1 or (seed != 0 and self.random.integers(2)):
                self.land(load)

    def write(self) -> None:
        """Write the stores to global memory, in any order: without a wait between them they are unordered."""
        for at in map(int, self.random.permutation(len(self.stores))):
            store = self.stores[at]
            data = store.data
            if store.adds is not None:
                data = (store.memory[store.targets].view(store.adds) + data.view(store.adds)).view(np.uint8)
            store.memory[store.targets] = data
        self.stores = []

    def end(self) -> None:
        """Check that no copy is in flight when all threads have returned."""
        if self.loads:
            raise SimulationError("a program ends while a TMA load is in flight: a wait is missing")
        if any(group for groups in self.groups.values() for group in groups):
            raise SimulationError("a program ends while a TMA store still reads its shared memory: a wait is missing")
        self.write()

    # Mbarriers.

    def mbarrier(self, address: int, threads: Array) -> _Mbarrier:
        """The mbarrier at an address. Raises `SimulationError` if these threads must not use it."""
        shared, barrier = self.program.shared, self.barriers.get(address)
        if barrier is None:
            raise SimulationError("an mbarrier must be initialised before its use")
        if shared.foreign(barrier.made, threads).any():
            raise SimulationError(
                "a thread uses an mbarrier that another has initialised since the last barrier: a barrier is missing"
            )
        own = threads[threads < self.program.threads]
        barrier.users[own] = shared.stamp(own)
        return barrier

    def init(self, address: int, thread: int, arrivals: int) -> None:
        if address in self.barriers:
            raise SimulationError("an mbarrier must not be initialised twice")
        shared = self.program.shared
        places = shared.places(np.array([address]), 8)[0]
        if address % 8:
            raise SimulationError("an mbarrier must be aligned to 8 bytes")
        touched = shared.foreign(shared.reader[places], thread) | shared.foreign(shared.writer[places], thread)
        if touched.any() or shared.read_by_wgmma(places, thread):
            raise SimulationError(_UNORDERED)
        shared.write(places, thread, self.random.integers(0, 256, 8, dtype=np.uint8))
        shared.writer[places] = shared.stamp(shared.in_flight)
        users = np.zeros(self.program.threads, np.int64)
        clocks = [np.zeros(shared.known.shape[1], np.int64) for _ in self.program.cluster.programs]
        self.barriers[address] = _Mbarrier(arrivals, arrivals, shared.stamp(thread), users, clocks, clocks)

    def invalidate(self, address: int, thread: int) -> None:
        barrier = self.mbarrier(address, np.array([thread]))
        if barrier.bytes or barrier.missing != barrier.arrivals:
            raise SimulationError("an mbarrier must not be invalidated in the middle of a phase")
        shared, places = self.program.shared, np.arange(address, address + 8)
        if shared.foreign(barrier.users, thread).any():
            raise SimulationError(_UNORDERED)
        shared.write(places, thread, self.random.integers(0, 256, 8, dtype=np.uint8))
        del self.barriers[address]

    def arrive(self, address: int, thread: int, expected: int, source: int | None = None) -> None:
        """Arrive at an mbarrier, by a thread of the CTA of rank `source`; without it, of this CTA."""
        source = self.program.rank if source is None else source
        barrier = self.mbarrier(address, self.program.cluster.row(self.program.rank, source, np.array([thread])))
        if barrier.missing == 0:
            raise SimulationError("an mbarrier must have no more arrivals in a phase than it was initialised with")
        barrier.coming = list(map(np.maximum, barrier.coming, self.program.cluster.told(source, thread)))
        barrier.bytes += expected
        barrier.missing -= 1
        barrier.step()

    def wait(self, addresses: Array, parities: Array) -> None:
        """Block the active threads until the phases of these parities have ended."""
        program = self.program
        blocked = np.zeros(program.threads, bool)
        self.some_land()
        active = program.active
        for address, parity in {*zip(addresses[active].tolist(), parities[active].tolist(), strict=True)}:
            if parity not in (0, 1):
                raise SimulationError(f"a parity must be 0 or 1; got {parity}")
            threads = active & (addresses == address) & (parities == parity)
            barrier = self.mbarrier(address, np.flatnonzero(threads))
            while barrier.phase % 2 == parity and self.loads:
                self.land(self.loads[int(self.random.integers(len(self.loads)))])
            if barrier.phase % 2 == parity:
                blocked |= threads
            else:
                program.cluster.learn(program.rank, np.flatnonzero(threads), barrier.known)
        if blocked.any():
            raise Blocked(blocked, "deadlock: threads wait for the phase of an mbarrier that never ends")

    # Tensor maps.

    def replace(self, address: int, thread: int, field: str, ordinal: int, value: int) -> None:
        """Set a field of a map in shared memory."""
        for name, at, number in ((field, ordinal, value), ("given", 0, self._given(address, thread, field, ordinal))):
            first, size = place_of(name, at)
            data = np.frombuffer((number % (1 << 8 * size)).to_bytes(size, "little"), np.uint8)
            self.program.shared.store(np.array([address + first]), np.array([thread]), data[None])

    def _given(self, address: int, thread: int, field: str, ordinal: int) -> int:
        """The marks of the fields that a map has, with one more."""
        if address % BYTES:
            raise SimulationError(f"a tensor map must be aligned to {BYTES} bytes")
        first, size = place_of("given", 0)
        old = self.program.shared.load(np.array([address + first]), np.array([thread]), size)
        return int(old.view(np.uint64)[0, 0]) | mark_of(field, ordinal)

    def publish(self, memory: Array, source: Array, threads: Array) -> None:
        """Copy a map to global memory, a part by each lane of a warp."""
        program = self.program
        target = int(memory[0])
        if len(set(memory.tolist())) > 1 or len(set(source.tolist())) > 1 or target % BYTES:
            raise SimulationError(f"the lanes must copy one tensor map together, aligned to {BYTES} bytes")
        stores = [store for groups in self.groups.values() for group in groups for store in group]
        if any(copy.map == target for copy in (*self.loads, *stores)):
            raise SimulationError(
                "a tensor map is made anew while a copy in flight uses the old one: a wait is missing"
            )
        parts = 4 * (threads % 32)
        program.memory.store(target + parts, program.shared.load(source + parts, threads, 4), threads)
        self.published[target] = set()

    def acquire(self, map_: int, thread: int) -> None:
        self.published.get(map_, set()).add(thread)

    def tensor(self, map_: int, thread: int) -> Tensor:
        """The tensor of a map, for a copy by a thread."""
        program = self.program
        if map_ in program.maps:
            tensor_map: TensorMap = program.maps[map_]
            return tensor_map.at(program.memory.pointers[map_ - MAPS])
        if thread not in self.published.get(map_, ()):
            raise SimulationError(
                "a thread must use a tensor map that the program has made, after a fence.proxy.tensormap of its own"
            )
        return tensor_of(program.memory.bytes_at(map_)[:BYTES])

    # Copies.

    def _box(self, tensor: Tensor, at: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """For each byte of a box: its place in the buffer before the swizzle, its place in the tensor, and whether it
        is inside of it."""
        size, box = tensor.dtype.itemsize, tensor.box
        row = box[-1] * size
        if len(at) != len(box) or max(box) > 256 or row % 16 or (tensor.swizzle and row > tensor.swizzle):
            sides = " × ".join(map(str, box))
            raise SimulationError(f"TMA cannot move boxes of {sides} with a swizzle of {tensor.swizzle}")
        if at[-1] * size % 16:
            raise SimulationError("a box must begin at a column that is at a multiple of 16 bytes")
        index = np.indices(box).reshape(len(box), -1, 1) + np.array(at)[:, None, None]
        inside = np.all((index >= 0) & (index < np.array(tensor.extent)[:, None, None]), axis=0)
        byte: Array = np.arange(size)
        there = np.tensordot((*tensor.strides, 1), index, 1) * size + byte
        within = np.arange(math.prod(box) * size)
        return within, there.reshape(-1), np.broadcast_to(inside, there.shape).reshape(-1)

    def _places(self, tensor: Tensor, address: int, offsets: Array) -> Array:
        if address % 128:
            raise SimulationError("a box must be aligned to 128 bytes in shared memory")
        places = self.program.shared.places(address + offsets, 1)[:, 0]
        if tensor.swizzle:
            # The swizzle xors address bits from 4 on with those from 7 on.
            places = places ^ (places >> 7 & tensor.swizzle // 16 - 1) << 4
        return places

    def _memory(self, tensor: Tensor, there: Array, thread: int, kind: int = READ, data: Array | None = None) -> Array:
        """The memory from the first element on, in which a box has these places. `data` are the bytes of a store."""
        memory = self.program.memory
        for region, rows, places in memory.places(
            tensor.address + there, 1, np.full(len(there), thread), "has TMA access memory"
        ):
            memory.note(region, places, kind, *(() if data is None else (data[rows, None], region.bytes[places])))
        return memory.bytes_at(tensor.address)

    def start_load(
        self, map_: int, address: int, at: tuple[int, ...], barrier: int, thread: int, mask: int | None = None
    ) -> None:
        """Begin to load a box, into the shared memory of the CTAs of a mask; without one, of this CTA."""
        program, tensor = self.program, self.tensor(map_, thread)
        offsets, there, inside = self._box(tensor, at)
        outside = np.zeros(tensor.box, tensor.dtype)
        if tensor.nan:
            outside[:] = np.nan
        data = np.ascontiguousarray(outside).reshape(-1).view(np.uint8).copy()
        if inside.any():
            data[inside] = self._memory(tensor, there[inside], thread)[there[inside]]
        if mask is None:
            self._begin(tensor, address, offsets, data, barrier, map_, thread)
            return
        for rank in (rank for rank in range(mask.bit_length()) if mask >> rank & 1):
            program.cluster.reach(program.rank, rank, "loads to")
            row = program.cluster.row(rank, program.rank, thread)
            program.cluster.programs[rank].unit(_Tma)._begin(tensor, address, offsets, data, barrier, map_, row)

    def _begin(
        self, tensor: Tensor, address: int, offsets: Array, data: Array, barrier: int, map_: int, row: int
    ) -> None:
        """Begin to load the bytes of a box into the shared memory of this CTA, by the thread that it knows by `row`."""
        shared, places = self.program.shared, self._places(tensor, address, offsets)
        shared.check_free(places, row, "a TMA load writes")
        shared.check_fenced(places, "a TMA load overwrites")
        shared.check_reads_fenced(places, "a TMA load overwrites")
        mbarrier = self.mbarrier(barrier, np.array([row]))
        if not mbarrier.fenced:
            raise SimulationError(
                "a fence.proxy.async must be between the initialisation of an mbarrier "
                "and a TMA load that arrives at it"
            )
        self._load(places, data, mbarrier, barrier, map_)

    def receive(self, address: int, barrier: int, data: Array, clock: Array) -> None:
        """Begin a store by another CTA: no thread may touch the place before it has waited for the mbarrier. `clock` is
        the time of each of this CTA's threads up to which the other one has waited for it."""
        shared, mbarrier = self.program.shared, self.barriers.get(barrier)
        if mbarrier is None or not shared.precedes(mbarrier.made, clock):
            raise SimulationError("an mbarrier must be initialised before the barrier that another CTA has waited for")
        places = shared.places(np.array([address]), data.size)[0]
        if (shared.writer[places] | shared.reader[places]).any():
            raise SimulationError("a store of another CTA must be to memory that no thread has touched")
        self._load(places, data, mbarrier, barrier, -1)

    def _load(self, places: Array, data: Array, mbarrier: _Mbarrier, barrier: int, map_: int) -> None:
        shared = self.program.shared
        agent = shared.loads_of(barrier)
        shared.writer[places] = shared.stamp(agent)
        shared.time += 1
        rank: int = self.program.rank
        own = mbarrier.coming[rank].copy()
        own[agent] = shared.time  # Those who wait for the phase know that the load is complete.
        mbarrier.coming = [own if at == rank else coming for at, coming in enumerate(mbarrier.coming)]
        self.loads.append(_Load(places, data, mbarrier, map_))
        self.some_land()

    def start_store(self, map_: int, address: int, at: tuple[int, ...], thread: int, *, adds: bool) -> None:
        tensor, shared = self.tensor(map_, thread), self.program.shared
        if tensor.extent[-1] * tensor.dtype.itemsize % 16:
            raise SimulationError("a row of a tensor that TMA stores to must be a multiple of 16 bytes")
        offsets, there, inside = self._box(tensor, at)
        places = self._places(tensor, address, offsets)
        if shared.foreign(shared.writer[places], thread).any():
            raise SimulationError(
                "a box is stored that another thread has written since the last barrier: a barrier is missing"
            )
        shared.check_fenced(places, "a TMA store reads")
        shared.reading[places] += 1
        data, memory = shared.bytes[places][inside], np.zeros(0, np.uint8)
        if inside.any():
            kind, payload = (UPDATE, None) if adds else (WRITE, data)
            memory = self._memory(tensor, there[inside], thread, kind, payload)
        element = tensor.dtype if adds else None
        store = _Store(memory, there[inside], data, places, map_, element)
        self.groups.setdefault(thread, [[]])[-1].append(store)

    def commit(self, thread: int) -> None:
        self.groups.setdefault(thread, [[]]).append([])

    def wait_stores(self, thread: int, pending: int, *, read: bool) -> None:
        shared, groups = self.program.shared, self.groups.get(thread, [[]])
        while len(groups) - 1 > pending:
            for store in groups.pop(0):
                shared.reading[store.places] -= 1
                shared.note_reads(store.places, thread)
                self.stores.append(store)
        if not read and pending == 0:
            self.write()


def in_cta(address: Any, cta: Any) -> Any:
    """The address in the shared memory of a CTA of the cluster of what is at an address in that of this CTA."""
    return address % _OF_CTA + (cta + 1) * _OF_CTA


def receive(program: Any, address: int, barrier: int, data: Array, clock: Array) -> None:
    """Begin a store by another CTA of the cluster to the shared memory of a program, where an mbarrier counts it."""
    program.unit(_Tma).receive(address, barrier, data, clock)


# The instructions.


@unit(r"\{.* mbarrier\.try_wait\.parity\.shared::cta\.b64 over, \[\$0\], \$1; @!over bra .*\}")
def _try_wait(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    program.unit(_Tma).wait(operands[0].astype(np.int64), operands[1].astype(np.int64))


@unit(r"\{ \.reg \.pred go; setp\.ne\.b32 go, \$(\d+), 0; (?:@!go bra \S+; )?(.*?); (?:OVER_\S+: )?\}")
def _by_threads(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Run statements in the threads where the predicate `go` holds: each thread by thread, or warp by warp."""
    going = program.active & (operands[int(match[1])] != 0)
    program.use(going)
    by_thread = {int(thread): [int(operand[thread]) for operand in operands] for thread in np.flatnonzero(going)}
    for statement in match[2].split("; "):
        text = statement.removeprefix("@go ")
        if ".sync" in text:
            _statement_of_warps(program, text, operands, going)
            continue
        for thread, values in by_thread.items():
            _statement(program.unit(_Tma), text, values, thread)


@unit(r"bar\.warp\.sync -1")
def _meet(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    _statement_of_warps(program, match[0], operands, program.active)


def _statement_of_warps(program: Any, text: str, operands: list[Any], going: Array) -> None:
    lanes = going.reshape(-1, 32)
    if (lanes.any(1) != lanes.all(1)).any():
        raise SimulationError("all lanes of a warp must come to an instruction with .sync together")
    numbers = [int(number) for number in re.findall(r"\$(\d+)", text)]
    for warp in np.flatnonzero(lanes.all(1)):
        threads = np.arange(32 * warp, 32 * warp + 32)
        if text == "bar.warp.sync -1":
            for memory in (program.shared, program.memory):
                memory.barrier(np.isin(program.numbers, threads))
        elif text.startswith("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "):
            memory, source = (operands[number].astype(np.int64)[threads] for number in numbers)
            program.unit(_Tma).publish(memory, source, threads)
        else:
            raise unknown(text)


_LOADS = (
    r"cp\.async\.bulk\.tensor\.[2-5]d\.shared::(?:cta|cluster)\.global\.tile\.mbarrier::complete_tx::bytes"
    r"(\.multicast::cluster)?"
)
_STORES = r"cp\.(?:reduce\.)?async\.bulk\.tensor\.[2-5]d\.global\.shared::cta(\.add)?\.tile\.bulk_group"


def _statement(tma: _Tma, text: str, values: list[int], thread: int) -> None:
    opcode, _, rest = text.partition(" ")
    # Operands; an address is written as [$0+8].
    numbers = [values[int(number)] + int(more or 0) for number, more in re.findall(r"\$(\d+)(?:\+(\d+))?", rest)]
    constants = [int(number) for number in re.findall(r", (\d+)$", rest)]
    if opcode == "mbarrier.init.shared::cta.b64":
        tma.init(numbers[0], thread, constants[0])
    elif opcode == "mbarrier.inval.shared::cta.b64":
        tma.invalidate(numbers[0], thread)
    elif opcode in ("mbarrier.arrive.shared::cta.b64", "mbarrier.arrive.expect_tx.shared::cta.b64"):
        tma.arrive(numbers[0], thread, sum(constants))
    elif opcode == "fence.proxy.async.shared::cta":
        tma.fence(np.array([thread]))
    elif opcode == "mbarrier.arrive.shared::cluster.b64":
        address, cta = numbers[0] % _OF_CTA, numbers[0] // _OF_CTA - 1
        tma.program.cluster.reach(tma.program.rank, cta, "arrives at")
        tma.program.cluster.programs[cta].unit(_Tma).arrive(address, thread, 0, tma.program.rank)
    elif form := re.fullmatch(_LOADS, opcode):
        mask = numbers.pop() if form[1] else None
        address, map_, *at, barrier = numbers
        tma.start_load(map_, address, tuple(map(_signed, at[::-1])), barrier, thread, mask)
    elif form := re.fullmatch(_STORES, opcode):
        map_, *at, address = numbers
        tma.start_store(map_, address, tuple(map(_signed, at[::-1])), thread, adds=form[1] is not None)
    elif opcode == "cp.async.bulk.commit_group":
        tma.commit(thread)
    elif opcode == "cp.async.bulk.wait_group.read":
        tma.wait_stores(thread, int(rest), read=True)
    elif opcode == "st.shared.b32" and constants == [0]:
        tma.program.shared.store(np.array(numbers), np.array([thread]), np.zeros((1, 4), np.uint8))
    elif replaced := re.fullmatch(r"tensormap\.replace\.tile\.(\w+)\.shared::cta\.b1024\.b(?:32|64)", opcode):
        *ordinal, value = (values[int(part[1:])] if part[0] == "$" else int(part) for part in rest.split(", ")[1:])
        tma.replace(numbers[0], thread, replaced[1], sum(ordinal), value)
    elif opcode == "fence.proxy.tensormap::generic.acquire.gpu":
        tma.acquire(numbers[0], thread)
    else:
        raise unknown(text)


def _signed(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@unit(r"cp\.async\.bulk\.wait_group(\.read)? (\d+)")
def _wait_group(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    tma = program.unit(_Tma)
    for thread in tma.groups.keys() & set(np.flatnonzero(program.active).tolist()):
        tma.wait_stores(thread, int(match[2]), read=match[1] is not None)


@unit(r"fence\.proxy\.async\.global")
def _fence_global(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Loads of TMA read global memory when they begin here: `hazards` finds a missing fence."""


@unit(r"fence\.proxy\.async\.shared::cta")
def _fence(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    program.unit(_Tma).fence(np.flatnonzero(program.active))
