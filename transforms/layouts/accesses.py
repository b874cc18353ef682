"""Accesses to global memory: the layout in which each is coalesced, and its width in a layout.

Both follow from the facts of `axis_info`. The layout decides the speed; the width decides the correctness.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import Layout, Span, axis_bases, bits_of, blocked, filled
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import PtrType, TensorType, element_of, shape_of
from ziggurat.transforms.analysis.axis_info import LIMIT, AxisInfo, unknown_component
from ziggurat.transforms.analysis.components import (
    Component,
    component_of,
    groups_of,
)
from ziggurat.transforms.analysis.neighbours import divisor_of_steps, steps_by_one, true_first
from ziggurat.transforms.analysis.queries import (
    depends_on_program,
    is_elementwise,
    tensor_of,
)
from ziggurat.transforms.analysis.sectors import SECTOR, Sectors
from ziggurat.transforms.layouts.swizzle import LINE, VECTOR

WORD = 4  # Bytes of a register, the least that a thread should load at once.
_FEW_BYTES = 64  # Bytes of a thread that are not worth a conversion for the sake of whole sectors.

Access = tt.Load | tt.Store | tt.AtomicRMW | tt.AtomicCAS | gpu.AsyncCopy
Key = tuple[tuple[int, ...], tuple[int, ...]]


class Accesses:
    """The accesses of a function, from all of its loads and stores.

    `widest` has the widest vector of all accesses of the same shape and order, and `store_widths` the narrowest one
    of the stores that a load is for: a store of fewer neighbours than a thread has writes parts of sectors, each of
    which the L2 cache takes like a whole one. Of sectors that are loaded in parts, the L1 cache has the rest.
    `scanned` has the axes along which tensors of several axes are scanned, by their shape. Each warp holds a
    contiguous part of these, which is as good for memory: so it has all of the axis, or a long run. Along other
    axes than that of the neighbours in memory, each thread holds a run as well: the sectors that an instruction
    moves are whole, and need not follow each other. `cubes` are the shapes of tensors that are reduced along
    several axes of two elements, as sorting networks do, the last axes most often. Each thread holds a contiguous
    part of these. `widened` has the axes, by the shape, along which a tensor has what a load of neighbours gives: a
    thread that holds a run of them loads it at once. Of tensors that dots compute, matrix units decide. `reduced` has
    the axes along which tensors are reduced, by their shape. `for_dots` are the loads of operands of dots, and
    `for_buffers` those of them that dots read from shared memory alone. `sum_bytes` are those that an atomic addition
    adds together.
    """

    def __init__(
        self, func: Op, infos: Mapping[Component, AxisInfo], num_warps: int, *, sum_bytes: int = VECTOR
    ) -> None:
        self.infos, self.num_warps, self.sum_bytes = infos, num_warps, sum_bytes
        self._func = func
        self._sectors: Sectors | None = None
        self.widest: dict[Key, int] = {}
        self.store_widths: dict[Op, int] = {}
        self.for_dots: set[tt.Load] = set()
        self.for_buffers: set[Op] = set()
        self.scanned: dict[tuple[int, ...], set[int]] = {}
        self.reduced: dict[tuple[int, ...], set[int]] = {}
        self.widened: dict[tuple[int, ...], set[int]] = {}
        pairs: set[tuple[tuple[int, ...], int]] = set()
        apart: set[tuple[int, ...]] = set()  # Of tensors computed from what a loop loads element by element.
        for op in func.walk():
            if isinstance(op, tt.Dot):
                loads = [load for value in (op.a, op.b) for load in _loads_of(op, value)]
                self.for_dots.update(loads)
                if shape_of(op.a.type)[-2] >= 64:  # For fewer rows, operands may be computed in fragments.
                    self.for_buffers.update(loads)
        products = {shape_of(op.result.type) for op in func.walk() if isinstance(op, tt.Dot)}
        for op in func.walk():
            if isinstance(op, tt.Reduce):
                self.reduced.setdefault(shape_of(op.values[0].type), set()).add(op.axis)
        for op in func.walk():
            if isinstance(op, tt.Scan) and len(shape := shape_of(op.values[0].type)) > 1:
                self.scanned.setdefault(shape, set()).add(op.axis)
            if isinstance(op, tt.Reduce) and (shape := shape_of(op.values[0].type))[op.axis] == 2:
                pairs.add((shape, op.axis))
            if isinstance(op, tt.Load | tt.Store) and isinstance(op.ptr.type, TensorType):
                key, vector = (op.ptr.type.shape, self.order(op)), self.vector(op)
                self.widest[key] = max(self.widest.get(key, 1), vector)
                for load in _loads_of(op, op.value) if isinstance(op, tt.Store) else ():
                    self.store_widths[load] = min(self.store_widths.get(load, vector), vector)
            if isinstance(op, tt.Broadcast) and (axis := _only_axis(op.value)) is not None:
                loads = [load for load in _loads_of(op, op.value) if len(shape_of(load.ptr.type)) == 1]
                if shape_of(op.result.type) not in products and any(self._together(load, 0) > 1 for load in loads):
                    self.widened.setdefault(shape_of(op.result.type), set()).add(axis)
                if _is_repeated(op) and any(self._together(load, 0) == 1 for load in loads):
                    apart.add(shape_of(op.result.type))
        self.exchanged = {shape: axes for shape, axes in _exchanged(func).items() if shape not in products | apart}
        self.cubes = {shape for shape, count in Counter(shape for shape, _ in pairs).items() if count > 1}

    def info(self, value: Value) -> AxisInfo:
        """The facts about a value."""
        return self._info(component_of(value))

    def _info(self, component: Component) -> AxisInfo:
        return self.infos.get(component) or unknown_component(component)

    def order(self, op: Access) -> tuple[int, ...]:
        """The axes by the length of their runs of neighbours, the longest first. Of equal ones, those come first along
        which the pointers mostly step by one element, then those of the least stride that is likely, then those that
        are not reduced where neighbours lie along another axis, and then the last.
        """
        contiguity = self.info(op.ptr).contiguity
        reduced = self.reduced.get(shape_of(op.ptr.type), set())

        def rank(axis: int) -> tuple[int, bool, int, bool, int]:
            if contiguity.count(contiguity[axis]) == 1:
                return -contiguity[axis], False, 0, False, 0
            step = divisor_of_steps(op.ptr, axis, lambda value: self.info(value).everywhere)
            # Lanes along an axis that is reduced exchange values.
            exchanges = axis in reduced and contiguity[axis] < max(contiguity)
            return -contiguity[axis], not steps_by_one(op.ptr, axis), step or LIMIT, exchanges, -axis

        return tuple(sorted(range(len(contiguity)), key=rank))

    def vector(self, op: Access) -> int:
        """The number of neighbours that one thread should hold, up to what this access can move together."""
        type_, axis = tensor_of(op.ptr), self.order(op)[0]
        return min(self._together(op, axis), self._share(type_.numel), type_.shape[axis])

    def is_scattered(self, op: Access) -> bool:
        """Whether no elements are known to be neighbours."""
        return self._together(op, self.order(op)[0]) == 1

    def is_wide(self, op: Access, run: int) -> bool:
        """Whether a thread moves as many neighbours together as are masked together, or as it could hold of any."""
        most = min(run, VECTOR // pointee_bytes(op.ptr), self._share(math.prod(shape_of(op.ptr.type))))
        return not isinstance(op.ptr.type, TensorType) or self.vector(op) >= most

    def _share(self, numel: int) -> int:
        return max(1, numel // (32 * self.num_warps))

    def _together(self, op: Access, axis: int) -> int:
        """The number of elements along an axis that are neighbours, aligned, and masked together."""
        if isinstance(op, tt.AtomicRMW | tt.AtomicCAS):
            if not _adds_neighbours(op):
                return 1  # With neighbours in neighbouring lanes, the fewest sectors are touched.
            return min(self._aligned(op, axis), max(1, self.sum_bytes // pointee_bytes(op.ptr)))
        return self._aligned(op, axis)

    def _aligned(self, op: Access, axis: int) -> int:
        aligned = max(1, self.info(op.ptr).divisibility[axis] // pointee_bytes(op.ptr))
        return min(self._alike(op, axis), aligned)

    def _alike(self, op: Access, axis: int) -> int:
        """The number of elements of a vector along an axis that are neighbours, and masked together."""
        count = min(VECTOR // pointee_bytes(op.ptr), self.info(op.ptr).contiguity[axis])
        if (mask := getattr(op, "mask", None)) is None:
            return count
        equal = self.info(mask).constancy[axis]
        may_be_ragged = isinstance(op, tt.Load | tt.Store) and op not in self.for_dots and not _is_repeated(op)
        return min(count, max(equal, true_first(mask, axis, self.info)) if may_be_ragged else equal)

    def is_ragged(self, op: Access, layout: Layout) -> bool:
        """Whether the masks of elements that a thread accesses together, in this layout, may differ."""
        width, mask = self.width(op, layout), getattr(op, "mask", None)
        if mask is None or width == 1:
            return False
        shape = tensor_of(op.ptr).shape
        same = sum((run - 1) * math.prod(shape[axis + 1 :]) for axis, run in enumerate(self.info(mask).constancy))
        return any(basis & ~same for basis in layout.registers[: bits_of(width)])

    def coalesced(self, op: Access) -> Layout:
        """The layout in which the access moves whole sectors in the fewest instructions."""
        shape, order = tensor_of(op.ptr).shape, self.order(op)
        vector = self.vector(op)
        if isinstance(op, tt.Load) and (shape, order) in self.widest:
            vector = self.widest[shape, order]
            if _is_copied(op) and self._share(math.prod(shape)) * pointee_bytes(op.ptr) > _FEW_BYTES:
                vector = min(vector, VECTOR // pointee_bytes(op.ptr))
            limit = self.store_widths.get(op, vector)
            if limit * pointee_bytes(op.ptr) >= WORD:  # Otherwise the stores convert.
                vector = min(vector, limit)
            if op in self.for_dots and vector * pointee_bytes(op.ptr) < WORD:
                # The threads store neighbours together to where matrix units read.
                vector = min(self._alike(op, order[0]), self._share(math.prod(shape)), shape[order[0]])
        layout = self._blocked(shape, order, vector)
        if op in self.for_buffers and isinstance(op, tt.Load) and shape[order[0]] >= SECTOR:
            # A thread loads once what runs of rows have in common, such as words of several numbers along k.
            for axis in (axis for axis, run in enumerate(self.runs(op)) if run > 1 and axis != order[0]):
                layout = layout.in_runs(shape, axis)
        return layout

    def default(self, shape: Sequence[int]) -> Layout:
        """The layout of a tensor that no access decides: that of accesses of this shape, if there are any."""
        order, share = tuple(reversed(range(len(shape)))), self._share(numel := math.prod(shape))
        if tuple(shape) in self.cubes:
            return blocked((numel,), (0,), share, self.num_warps)
        vector = self.widest.get((tuple(shape), order), min(4, share))
        return self._blocked(shape, order, vector)

    def _blocked(self, shape: Sequence[int], order: Sequence[int], vector: int) -> Layout:
        scanned = self.scanned.get(tuple(shape), set())
        layout = blocked(shape, order, vector, self.num_warps, warps_last=bool(scanned))
        if axes := self.exchanged.get(tuple(shape)):
            layouts = [layout, *_with_runs_of_axes(layout, shape, order)]
            layout = min(layouts, key=lambda each: sum(_exchanges(each, shape, axis) for axis in axes))
        if shape[order[0]] >= SECTOR:
            for axis in sorted(scanned.union(self.widened.get(tuple(shape), ())).difference(order[:1])):
                layout = layout.in_runs(shape, axis)
        return layout

    def width(self, op: Access, layout: Layout) -> int:
        """The number of successive registers that point to neighbours which are aligned, and masked, together."""
        type_ = tensor_of(op.ptr)
        best = 1
        for axis in range(type_.rank):
            stride = math.prod(type_.shape[axis + 1 :])
            count = min(layout.contiguous(type_.shape, axis), self._together(op, axis))
            while count > best:
                # The first element of each group must be at a multiple of the width: no other basis has those bits.
                others = (*layout.registers[bits_of(count) :], *layout.threads)
                if not any(basis & (count - 1) * stride for basis in others):
                    best = count
                count //= 2
        return best

    def runs(self, op: tt.Load) -> tuple[int, ...]:
        """The lengths of runs of elements that one read gives, along each axis; empty where none is longer than one."""
        infos = [self.info(value) for value in op.operands]
        runs = tuple(map(min, *(info.constancy for info in infos))) if len(infos) > 1 else infos[0].constancy
        return runs if max(runs) > 1 and not op.volatile else ()

    def traffic(self, op: Access, layout: Layout) -> int:
        """The number of sectors that all warps move, as far as it is known which elements are neighbours."""
        same = self._same(op)
        step = bits_of(self.width(op, layout))
        # A layout is linear, so the lanes touch as many sectors in each instruction: two to the power of the rank.
        instructions = sum(1 for basis in layout.registers[step:] if basis)
        sectors = len(Span(basis & ~same for basis in layout.lanes))
        warps = sum(1 for basis in layout.warps if basis)
        return 1 << (instructions + sectors + warps)

    def lines(self, op: Access, layout: Layout) -> int:
        """The number of cache lines that the instructions of all warps ask for."""
        if self._sectors is None:
            self._sectors = Sectors(self._info, groups_of(self._func))
        return self._sectors.lines(op.ptr, layout, self.width(op, layout))

    def lookups(self, op: Access, layout: Layout) -> tuple[int, int]:
        """The number of instructions of all warps, and of the cache lines that these ask for as far as it is known
        which elements are neighbours or the same. Warps that hold copies ask as well."""
        shape, same = tensor_of(op.ptr).shape, self._same(op, LINE)
        for axis, run in enumerate(self.info(op.ptr).constancy):
            same |= (min(run & -run, shape[axis]) - 1) * math.prod(shape[axis + 1 :])
        count = (distinct(layout) // self.width(op, layout)) << len(layout.warps)
        return count, count << len(Span(basis & ~same for basis in layout.lanes))

    def _same(self, op: Access, size: int = SECTOR) -> int:
        """The bits of an element's number that differ within so many bytes, as far as it is known."""
        axis, type_ = self.order(op)[0], tensor_of(op.ptr)
        run = min(self.info(op.ptr).contiguity[axis], max(1, size // pointee_bytes(op.ptr)))
        return (run - 1) * math.prod(type_.shape[axis + 1 :])


def _exchanged(func: Op) -> dict[tuple[int, ...], list[int]]:
    """The axes of reductions in loops, by the shape of what is reduced, of shapes that no loop loads or stores."""
    axes: dict[tuple[int, ...], list[int]] = {}
    repeated = [op for op in func.walk() if _is_repeated(op)]
    for op in repeated:
        if isinstance(op, tt.Reduce):
            axes.setdefault(shape_of(op.values[0].type), []).append(op.axis)
    for op in repeated:
        if isinstance(op, Access):
            axes.pop(shape_of(op.ptr.type), None)
    return axes


def _with_runs_of_axes(layout: Layout, shape: Sequence[int], order: Sequence[int]) -> Iterator[Layout]:
    """The layouts with the same vectors whose further registers hold runs along axes: as many bits of each axis as are
    chosen, in each way."""
    count = bits_of(layout.contiguous(shape, order[0]))
    vector, further = layout.registers[:count], len(layout.registers) - count
    free = [[basis for basis in axis_bases(shape, axis) if basis not in vector] for axis in order]
    for numbers in product(*(range(len(bases) + 1) for bases in free)):
        if sum(numbers) == further:
            runs = [basis for bases, number in zip(free, numbers, strict=True) for basis in bases[:number]]
            threads = [basis for bases in free for basis in bases if basis not in runs]
            yield filled([*vector, *runs], threads, 1 << len(layout.warps))


def _exchanges(layout: Layout, shape: Sequence[int], axis: int) -> int:
    """The values that a thread exchanges with others of its warp in a reduction along an axis; through shared memory
    that is counted as a whole warp."""
    along = set(axis_bases(shape, axis))
    own = sum(1 for basis in layout.registers if basis and basis not in along)
    lanes, warps = (len(along.intersection(bases)) for bases in (layout.lanes, layout.warps))
    return (lanes + (32 if warps else 0)) << own


def _is_copied(load: tt.Load) -> bool:
    """Whether a load is one of a loop with dots that become copies. These bypass the L1 cache: two copies of parts of a
    sector move all of it twice."""
    loop = load.parent_op
    has_dots = isinstance(loop, scf.For) and any(isinstance(op, tt.Dot) for op in loop.body.entry.ops)
    return has_dots and depends_on_program(load)


def _is_repeated(op: Op) -> bool:
    """Whether an op is in a loop."""
    return any(isinstance(owner, Loop) for owner in op.path())


def _adds_neighbours(op: tt.AtomicRMW | tt.AtomicCAS) -> bool:
    """Whether some targets have an instruction that adds to several elements."""
    return isinstance(op, tt.AtomicRMW) and op.kind is tt.AtomicKind.FADD and pointee_bytes(op.ptr) <= 4


def pointee_bytes(ptr: Value) -> int:
    """The size in bytes of the element that pointers point to."""
    element = element_of(ptr.type)
    assert isinstance(element, PtrType)
    return element.pointee.bytes


def _loads_of(user: Op, operand: Value) -> Iterator[tt.Load]:
    """The loads beside an op, or before the branches that it is in, whose elements become those of an operand."""

    def operands(op: Op) -> Iterable[Op]:
        passes_on = is_elementwise(op) or isinstance(op, tt.Trans | tt.ExpandDims)
        return (value.op for value in op.operands if isinstance(value, OpResult)) if passes_on else ()

    blocks = {user.parent}
    while isinstance(owner := user.parent_op, scf.If):
        user = owner
        blocks.add(user.parent)
    sources = reached([operand.op] if isinstance(operand, OpResult) else [], operands)
    return (op for op in sources if isinstance(op, tt.Load) and op.parent in blocks)


def _only_axis(value: Value) -> int | None:
    """The axis of a tensor that has several elements along one axis alone."""
    axes = [axis for axis, size in enumerate(shape_of(value.type)) if size > 1]
    return axes[0] if len(axes) == 1 else None


def distinct(layout: Layout) -> int:
    """The number of elements that a thread has."""
    return 1 << sum(map(bool, layout.registers))
