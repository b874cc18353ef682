"""Traffic of rows and matrices between memory and regions: read in place, fetched ahead, stored around the caches.

Each function decides for one op; `vectorize` writes the decision into the model. A model may say otherwise: the same
functions tell why an op cannot do what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ziggurat.codemodel import traits
from ziggurat.codemodel.dialects import core, cpu, tt
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Block, BlockParameter, Op, OpResult, Value, constant_of, expect
from ziggurat.codemodel.types import PtrType, element_bytes, element_of
from ziggurat.transforms.analysis.components import Component, ComponentGroup, component_of, groups_of
from ziggurat.transforms.analysis.queries import function_around
from ziggurat.transforms.cpu.dot_blocks import packing_obstacle
from ziggurat.transforms.cpu.plan import EXPENSIVE, moved_operands

STREAMED = 1 << 26  # Bytes of an array. Eight cores of a Zen share a cache of half as many.
CACHE_LINE = 64  # Bytes.
# The ops of a region that stores around the caches, and those of them that it may not have.
_STREAMS = (cpu.Load, cpu.Store, cpu.Prefetch, traits.Pure, core.TupleLoad)
_HALTS = (traits.MayTrap, cpu.Get, tt.InlineAsm, tt.Reduce)
_FILLS = (cpu.Load, cpu.Put, cpu.Prefetch, cpu.End, traits.Pure)  # The ops of a region that loads a matrix.
_READS = (cpu.Load, tt.Load, tt.AtomicRMW, tt.AtomicCAS)


def demand_sound(module: cpu.Module) -> None:
    """Raise `TargetError` for an attribute that an op of the model cannot have where the op is."""
    for op in module.walk():
        region = op.parent_op
        lanes = region.lanes if isinstance(region, cpu.Region) else 1
        name, obstacle = "", None
        if isinstance(op, cpu.Put) and op.in_place:
            name, obstacle = " be read in place", in_place_obstacle(op)
        elif isinstance(op, cpu.Store) and op.stream:
            name, obstacle = " stream", stream_obstacle(op, lanes, module.vector)
        elif isinstance(op, cpu.Dot) and op.keep:
            name, obstacle = " keep b", keep_obstacle(op, module.vector)
        elif isinstance(op, cpu.Prefetch):
            name, obstacle = " fetch it", prefetch_obstacle(op)
        if obstacle is not None:
            raise TargetError(f"{op.NAME} cannot{name}: {obstacle}", op.location, hint="leave it out")


def root_of(value: Value) -> BlockParameter | None:
    """The parameter that a pointer was computed from, through control flow; None where it is not known, or may be
    another one."""
    inside = value.op if value.op is not None else expect(value, BlockParameter).owner
    func = next((op for op in inside.path() if isinstance(op, tt.Func)), None) if inside is not None else None
    if func is None:
        return None
    groups = _groups_of(func)

    def sources(component: Component) -> list[Component]:
        if component in groups:
            return [source for _, source in groups[component].sources]
        op = component[0].op
        if isinstance(op, cpu.Get):  # Blocks of pointers pass between regions in buffers.
            users = [user for user in op.buffer.uses if not isinstance(user, cpu.Get)]
            return [component_of(user.value) for user in users if isinstance(user, cpu.Put)] if _are_puts(users) else []
        operands = op.operands if isinstance(op, traits.Pure) else ()
        return [component_of(operand) for operand in operands if isinstance(element_of(operand.type), PtrType)]

    ends = [component for component in reached([component_of(value)], sources) if not sources(component)]
    root = ends[0][0] if len(ends) == 1 else None
    return root if isinstance(root, BlockParameter) and root.block is func.body.entry else None


def _are_puts(users: Sequence[Op]) -> bool:
    return bool(users) and all(isinstance(user, cpu.Put) for user in users)


@lru_cache(maxsize=4)  # Each access of a kernel asks.
def _groups_of(func: tt.Func) -> dict[Component, ComponentGroup]:
    return groups_of(func)


def access_of(op: cpu.Load | cpu.Store | cpu.Prefetch) -> cpu.Access:
    """The access of an op."""
    return expect(expect(op.access, OpResult).op, cpu.Access)


def _are_neighbours(access: cpu.Access) -> bool:
    """Whether the elements of a row of an access are neighbours, where it can be done as planned."""
    shape = expect(access.type, cpu.AccessType).shape
    stride = constant_of(access.strides[-1])
    return stride == 1 or (shape[-1] > 1 and stride != 0)


def _writes(op: Op) -> bool:
    return isinstance(op, traits.MemoryWrite) or any(_writes(inner) for inner in op.inner_ops())


# Read where they are.


def readers(put: cpu.Put) -> tuple[Block, Sequence[Op]] | None:
    """The block of the region of a put, and the regions, or the dots, in it that use its buffer. None if others do."""
    region = put.parent_op
    if not isinstance(region, cpu.Region) or region.parent is None:
        return None
    block = region.parent
    users = [use for use in put.buffer.uses if use is not put]
    if all(isinstance(use, cpu.Dot) and use.parent is block and use.c is not put.buffer for use in users):
        return block, users
    owners = [use.parent_op for use in users]
    regions = [owner for owner in owners if isinstance(owner, cpu.Region) and owner.parent is block]
    same = len(regions) == len(users) and region not in regions and all(isinstance(use, cpu.Get) for use in users)
    return (block, list(dict.fromkeys(regions))) if same else None


def in_place_obstacle(put: cpu.Put) -> str | None:
    """Why the users of a buffer cannot read the memory from which it is filled; None if they can.

    Dots read matrices so, and regions rows. What regions read may be overwritten by the last of them, which tests
    whether what it stores is apart from that.
    """
    region, load = put.parent_op, put.value.op
    if not isinstance(region, cpu.Region) or not isinstance(load, cpu.Load) or load.parent is not put.parent:
        return "only what an affine load of its region gives can be read in place"
    ops = region.body.entry.ops
    others = [op for op in ops if op is not put and isinstance(op, cpu.Put | traits.MemoryWrite)]
    if others or put.start or put.strides:
        return "a region that fills one whole buffer, and stores nothing else, can have it read in place"
    access, used = access_of(load), readers(put)
    if access.part or not _are_neighbours(access):
        return "the load has gaps between its elements"
    if used is None or not used[1]:
        return "only the dots, or the later regions, of one block can read in place"
    block, users = used
    order = {op: number for number, op in enumerate(block.ops)}
    first, last = order[region], max(order[op] for op in users)
    between = block.ops[first + 1 : last]
    if min(order[op] for op in users) < first or any(map(_writes, between)):
        return "what it reads may be overwritten before its last use"
    final = block.ops[last]
    if isinstance(final, cpu.Dot):
        alone = all(
            isinstance(op, cpu.Load | cpu.Put | cpu.End | traits.Pure) and not isinstance(op, tt.Reduce) for op in ops
        )
        return None if len(region.shape) == 2 and alone else "dots read matrices in place that a region only loads"
    if len(region.shape) != 1:
        return "regions read rows in place"
    inner = final.bodies[0].entry.ops
    stores = [access_of(op) for op in inner if isinstance(op, cpu.Store)]
    late = [access for access in stores if access.parent is block and order[access] > first]
    plain = not any(isinstance(op, traits.MemoryWrite) and not isinstance(op, cpu.Store) for op in inner)
    return None if plain and not late and not any(map(moved_operands, inner)) else "its last use stores anywhere"


# Kept for the next programs.


def keep_obstacle(dot: cpu.Dot, vector: int) -> str | None:
    """Why packed matrices of the second operand of a dot cannot serve later programs; None if they can.

    No program may write to the array that they are of. That no other array of the launch shares its memory is tested.
    """
    fill = next((use for use in dot.b.uses if isinstance(use, cpu.Put)), None)
    if fill is None or in_place_obstacle(fill) is not None:
        return "only a matrix that can be read in place can be kept"
    load = expect(expect(fill.value, OpResult).op, cpu.Load)
    root, writes = root_of(load.ptr), arrays_written(function_around(dot))
    if root is None or None in writes or root in writes:
        return "the kernel must not write to the array"
    return packing_obstacle(dot, access_of(load), vector)


def arrays_written(func: Op) -> dict[BlockParameter | None, None]:
    """The parameters of the arrays that a kernel writes; None among them for one that is not known."""
    arrays: dict[BlockParameter | None, None] = {}
    for op in func.walk():
        if isinstance(op, cpu.Store | tt.Store | tt.AtomicRMW | tt.AtomicCAS):
            arrays[root_of(op.ptr)] = None
        elif isinstance(op, traits.MemoryWrite | tt.InlineAsm | cpu.Waits):
            arrays[None] = None
    return arrays


# Fetched ahead: rows are too short, and pages too small, for the processor to do it.


def prefetch_obstacle(op: cpu.Prefetch) -> str | None:
    """Why a region cannot fetch the row of an access ahead; None if it can."""
    region, access = op.parent_op, access_of(op)
    if not isinstance(region, cpu.Region) or expect(access.type, cpu.AccessType).shape != region.shape:
        return "a region fetches rows of its own shape"
    block = access.parent
    if block is None or region.parent is not block or block.ops.index(access) > block.ops.index(region):
        return "the access must come before the region, in its block"
    return None


def rows_ahead(region: cpu.Region) -> list[tuple[cpu.Access, int]]:
    """The accesses whose rows a region fetches before its own statements, and to which cache.

    If a block has regions of a shape without accesses, the busiest of them, which waits for memory least, fetches the
    rows of the others: to the first cache if it takes long to compute."""
    if busiest_of(region) is not region:
        return []
    heavy = any(isinstance(op, EXPENSIVE) for op in region.body.entry.ops)
    return [(access, 1 if heavy else 2) for access in _shared_rows(region)]


def fetches_own_row(op: cpu.Load | cpu.Store) -> bool:
    """Whether the region of a load or a store fetches the next row of that."""
    region, access = op.parent_op, access_of(op)
    if not isinstance(region, cpu.Region) or not _is_row(access, region.parent):
        return False
    if constant_of(access.strides[region.lane_axis]) == 0:  # All elements are one.
        return False
    busiest = busiest_of(region)
    return busiest is None or access not in _shared_rows(busiest)


def busiest_of(region: cpu.Region) -> cpu.Region | None:
    """The longest region of the block and the shape of a region without affine accesses; None if there is none."""
    block = region.parent
    ops = () if block is None else block.ops
    quiet = [op for op in ops if isinstance(op, cpu.Region) and op.shape == region.shape and not _transfers(op)]
    return max(quiet, key=lambda op: len(op.body.entry.ops), default=None)


def _transfers(region: cpu.Region) -> list[cpu.Load | cpu.Store]:
    return [op for op in region.body.entry.ops if isinstance(op, cpu.Load | cpu.Store)]


def _shared_rows(busiest: cpu.Region) -> list[cpu.Access]:
    """The rows that regions of the block and shape load or store, and whose accesses come before one of these regions.
    A store reads its line first."""
    block = busiest.parent
    assert block is not None
    ops = block.ops
    same = [op for op in ops if isinstance(op, cpu.Region) and op.shape == busiest.shape]
    accesses = dict.fromkeys(access_of(op) for region in same for op in _transfers(region))
    before = set(ops[: ops.index(busiest)])
    return [access for access in accesses if access in before and _is_row(access, block)]


def _is_row(access: cpu.Access, block: Block | None) -> bool:
    """Whether an access of a block is one to a row, which may be another one in each program."""
    shape = expect(access.type, cpu.AccessType).shape
    return sum(size > 1 for size in shape) == 1 and access.parent is block and _varies(access.base, {})


def _varies(value: Value, varying: dict[Value, bool]) -> bool:
    """Whether a scalar may differ between programs. `varying` has the answers for other values, and gets new ones."""
    if isinstance(value, BlockParameter):
        return not isinstance(value.owner, tt.Func)
    answer = varying.get(value)
    if answer is None:
        op = expect(value, OpResult).op
        pure = isinstance(op, traits.Pure) and not isinstance(op, tt.GetProgramId) and not op.bodies
        answer = varying[value] = not pure or any(_varies(operand, varying) for operand in op.operands)
    return answer


# Stored around the caches: a store to a cache first reads the line from memory.


def arrays_read(func: Op) -> dict[BlockParameter | None, None]:
    """The parameters of the arrays that a kernel reads; None among them for one that is not known."""
    return dict.fromkeys(root_of(op.ptr) for op in func.walk() if isinstance(op, _READS))


def stream_obstacle(store: cpu.Store, lanes: int, vector: int) -> str | None:
    """Why a region cannot store its row around the caches; None if it can."""
    region = store.parent_op
    if not isinstance(region, cpu.Region) or len(region.shape) > 1:
        return "only a region over a row stores it around the caches"
    if vector <= 16 or lanes * element_bytes(store.value.type) % CACHE_LINE:
        return "its vectors must be whole cache lines, of a processor with AVX2"
    ops = region.body.entry.ops[:-1]
    if any(not isinstance(op, _STREAMS) or isinstance(op, _HALTS) or moved_operands(op) for op in ops):
        return "the region must compute each element from loads at its index alone"
    accesses = [access_of(op) for op in ops if isinstance(op, cpu.Load | cpu.Store)]
    if sum(isinstance(op, cpu.Store) for op in ops) > 1 or any(access.part for access in accesses):
        return "the region must have one store, and no access with gaps"
    if not _are_neighbours(access_of(store)):
        return "the elements of a row must be neighbours"
    root, read = root_of(store.ptr), arrays_read(function_around(region))
    return "the kernel must not read the array" if root is None or None in read or root in read else None
