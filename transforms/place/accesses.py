"""Accesses to global memory: the layout in which one is coalesced, and its width in a layout.

Both follow from the facts of `axis_info`. The layout decides the speed; the width decides the correctness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.layout import Layout, Span, bits_of, blocked
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import PtrType, TensorType, shape_of
from ziggurat.transforms.place.axis_info import AxisInfo, unknown_component
from ziggurat.transforms.place.components import Component, component_of
from ziggurat.transforms.place.queries import tensor_of

MAX_BYTES = 16
SECTOR = 32  # Bytes that global memory moves at once.

Access = tt.Load | tt.Store | tt.AtomicRMW | tt.AtomicCAS
Key = tuple[tuple[int, ...], tuple[int, ...]]


class Accesses:
    """The accesses of a function, from all of its loads and stores.

    `widest` has the widest vector of all accesses of the same shape and order. `scanned` are the shapes of tensors that
    are scanned along one of several axes. Each warp holds a contiguous part of these, which is as good for memory: so
    it has all of the axis, or a long run.
    """

    def __init__(self, func: Op, infos: Mapping[Component, AxisInfo], num_warps: int) -> None:
        self.infos, self.num_warps = infos, num_warps
        self.widest: dict[Key, int] = {}
        self.scanned: set[tuple[int, ...]] = set()
        for op in func.walk():
            if isinstance(op, tt.Scan) and len(shape := shape_of(op.values[0].type)) > 1:
                self.scanned.add(shape)
            if isinstance(op, tt.Load | tt.Store) and isinstance(op.ptr.type, TensorType):
                key = (op.ptr.type.shape, self.order(op))
                self.widest[key] = max(self.widest.get(key, 1), self.vector(op))

    def info(self, value: Value) -> AxisInfo:
        """The facts about a value."""
        component = component_of(value)
        return self.infos.get(component) or unknown_component(component)

    def order(self, op: Access) -> tuple[int, ...]:
        """The axes by the length of their runs of neighbours, the longest first; of equal ones the last first."""
        contiguity = self.info(op.ptr).contiguity
        return tuple(sorted(range(len(contiguity)), key=lambda axis: (-contiguity[axis], -axis)))

    def vector(self, op: Access) -> int:
        """The number of neighbours that one thread should hold, up to what this access can move together."""
        type_ = tensor_of(op.ptr)
        if isinstance(op, tt.AtomicRMW | tt.AtomicCAS) and not _adds_neighbours(op):
            return 1  # With neighbours in neighbouring lanes, the fewest sectors are touched.
        axis = self.order(op)[0]
        return min(self._together(op, axis), self._share(type_.numel), type_.shape[axis])

    def _share(self, numel: int) -> int:
        return max(1, numel // (32 * self.num_warps))

    def _together(self, op: Access, axis: int) -> int:
        """The number of elements along an axis that are neighbours, aligned, and masked together."""
        size = element_bytes(op.ptr)
        info = self.info(op.ptr)
        count = min(MAX_BYTES // size, info.contiguity[axis], max(1, info.divisibility[axis] // size))
        mask = getattr(op, "mask", None)
        return count if mask is None else min(count, self.info(mask).constancy[axis])

    def coalesced(self, op: Access) -> Layout:
        """The layout in which the access moves whole sectors in the fewest instructions."""
        type_ = tensor_of(op.ptr)
        order = self.order(op)
        vector = self.vector(op)
        if isinstance(op, tt.Load | tt.Store):
            vector = self.widest.get((type_.shape, order), vector)
        return self._blocked(type_.shape, order, vector)

    def default(self, shape: Sequence[int]) -> Layout:
        """The layout of a tensor that no access decides: that of accesses of this shape, if there are any."""
        order = tuple(reversed(range(len(shape))))
        vector = self.widest.get((tuple(shape), order), min(4, self._share(math.prod(shape))))
        return self._blocked(shape, order, vector)

    def _blocked(self, shape: Sequence[int], order: Sequence[int], vector: int) -> Layout:
        return blocked(shape, order, vector, self.num_warps, warps_last=tuple(shape) in self.scanned)

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

    def traffic(self, op: Access, layout: Layout) -> int:
        """The number of sectors that all warps move, as far as it is known which elements are neighbours."""
        type_ = tensor_of(op.ptr)
        size = element_bytes(op.ptr)
        info = self.info(op.ptr)
        axis = self.order(op)[0]
        run = min(info.contiguity[axis], max(1, SECTOR // size))
        same = (run - 1) * math.prod(type_.shape[axis + 1 :])
        step = bits_of(self.width(op, layout))
        # A layout is linear, so the lanes touch as many sectors in each instruction: two to the power of the rank.
        instructions = sum(1 for basis in layout.registers[step:] if basis)
        sectors = len(Span(basis & ~same for basis in layout.lanes))
        copies = sum(1 for basis in layout.warps if basis == 0)
        return 1 << (instructions + sectors + max(0, bits_of(self.num_warps) - copies))


def _adds_neighbours(op: tt.AtomicRMW | tt.AtomicCAS) -> bool:
    """Whether some targets have an instruction that adds to several elements."""
    return isinstance(op, tt.AtomicRMW) and op.kind is tt.AtomicKind.FADD and element_bytes(op.ptr) <= 4


def element_bytes(ptr: Value) -> int:
    """The size in bytes of the element that pointers point to."""
    type_ = ptr.type
    element = type_.element if isinstance(type_, TensorType) else type_
    assert isinstance(element, PtrType)
    return element.pointee.bytes
