"""Narrow tensors that threads compute again: in the layout of a wide tensor, or once and then converted.

Factors of a block [y, x, r]:

    a : [y, 1, r] = exp(load …)        b : [y, x, r] = broadcast(a) * …

In the layout of b, all threads along x load the same elements of a, and compute the same powers. In the layout in which
the load of a is coalesced, a thread has fewer of them, but the result goes through shared memory. `Recomputation` takes
the cheaper one by an estimate of the cycles of an SM: those for cache lines that loads ask for, for issue slots and the
MUFU of what is computed from loads, and for the words and barriers of a conversion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import LANE_BITS, Layout, bits_of, moved
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import TensorType, shape_of
from ziggurat.transforms.analysis.issue_slots import FUNCTIONS, ISSUES, bits_of_element, slots_of
from ziggurat.transforms.analysis.queries import is_computable, is_shaping, is_widening, operand_layouts
from ziggurat.transforms.layouts.shuffle_rounds import BARRIERS, by_shuffles
from ziggurat.transforms.layouts.swizzle import LINE, VECTOR

_FEW_INDICES = 4  # Of a thread: so many have registers, iterations ahead of their use beside dots.
_LOAD_SLOTS = 3  # A load, and an address of 64 bits.


class Recomputation:
    """The layouts in which the tensors of a function that may be computed again are computed.

    `coalesced` gives the layout of a load alone, and `lookups` the numbers of its instructions in all warps and of the
    cache lines that these ask for.
    """

    def __init__(
        self,
        func: Op,
        num_warps: int,
        coalesced: Callable[[tt.Load], Layout],
        lookups: Callable[[tt.Load, Layout], tuple[int, int]],
        for_dots: Iterable[tt.Load] = (),
    ) -> None:
        self.num_warps, self.coalesced, self.lookups = num_warps, coalesced, lookups
        # The ops that compute addresses of operands of dots.
        self._addressing = reached((load.ptr.op for load in for_dots if load.ptr.op is not None), _makers)
        self._layouts: dict[tuple[Op, Layout], Layout] = {}
        self._reading: set[Op] = set()  # Loads of tensors, and ops that compute from some.
        for op in func.walk():
            is_load = isinstance(op, tt.Load) and isinstance(op.ptr.type, TensorType)
            if is_load or (is_computable(op) and any(value.op in self._reading for value in op.operands)):
                self._reading.add(op)

    def layout(self, op: Op, target: Layout) -> Layout:
        """The layout in which an op computes its result that is wanted in a layout, from which it is then converted."""
        if op not in self._reading or is_shaping(op) or is_widening(op):
            return target  # Shapes and wider types are computed from a converted tensor.
        if (op, target) not in self._layouts:
            self._layouts[op, target] = layout = self._cheapest(op, target)
            if layout == target:  # Part of the op would save less.
                for each in self._alike(op):
                    self._layouts.setdefault((each, target), target)
        return self._layouts[op, target]

    def _cheapest(self, op: Op, target: Layout) -> Layout:
        shape = shape_of(op.result.type)
        numel, size = math.prod(shape), bits_of_element(op.result.type) // 8
        if op.parent is not None and any(isinstance(other, tt.Dot) for other in op.parent.ops):
            # Beside dots, loads begin ahead, and what is converted through shared memory would not be.
            addresses = op in self._addressing and isinstance(op.parent_op, Loop)
            return self._in_each_warp(op, target, numel, size) if addresses else target

        def cost(layout: Layout) -> float:
            if moved(layout, target, numel) is not None:
                return self._cost(op, layout)
            return self._cost(op, layout) + conversion_cost(layout, target, size, self.num_warps)

        layouts = {self.coalesced(each) for each in self._alike(op) if isinstance(each, tt.Load)}
        return min([target, *sorted(layouts, key=str)], key=cost)

    def _in_each_warp(self, op: Op, target: Layout, numel: int, size: int) -> Layout:
        """The layout for indices that a loop with dots loads, and from which it computes addresses of operands.

        Where a thread needs many of them, they have no registers to begin ahead, and then no operand could begin so. So
        each warp loads all indices once, side by side in its lanes, and hands them on by shuffles.
        """
        if not any(isinstance(each, tt.Load) and each.parent is op.parent for each in self._alike(op)):
            return target
        bits = [1 << bit for bit in range(bits_of(numel))]
        lanes = (*bits[:LANE_BITS], *([0] * (LANE_BITS - len(bits))))
        layout = Layout(tuple(bits[LANE_BITS:]), lanes, (0,) * len(target.warps))
        many = max(_FEW_INDICES, len(layout.unique_registers))
        is_better = len(target.unique_registers) > many and by_shuffles(layout, target, numel, size)
        return layout if is_better else target

    def _alike(self, op: Op) -> set[Op]:
        """An op, and the ops from which it computes in its own layout, as far as they come from loads."""

        def sources(op: Op) -> Iterable[Op]:
            if isinstance(op, tt.Load) or is_shaping(op) or is_widening(op):
                return ()
            return [value.op for value in op.operands if value.op is not None and value.op in self._reading]

        return reached([op], sources)

    def _cost(self, op: Op, layout: Layout) -> float:
        """The cycles of an SM for the loads from which an op computes, and for what is computed from them."""

        def sources(item: tuple[Op, Layout]) -> Iterable[tuple[Op, Layout]]:
            op, layout = item
            layouts = enumerate([layout] * len(op.operands)) if isinstance(op, tt.Load) else operand_layouts(op, layout)
            operands = [(op.operands[position].op, required) for position, required in layouts]
            return [(each, required) for each, required in operands if each is not None and each in self._reading]

        return sum(self._own_cost(*item) for item in reached([(op, layout)], sources))

    def _own_cost(self, op: Op, layout: Layout) -> float:
        if isinstance(op, tt.Load):
            instructions, lines = self.lookups(op, layout)
            return lines + instructions * _LOAD_SLOTS / ISSUES
        issued, mufu = (0, 0) if is_shaping(op) else slots_of(op)
        return (issued / ISSUES + mufu * 32 / FUNCTIONS) * (self.num_warps << sum(map(bool, layout.registers)))


def _makers(op: Op) -> list[Op]:
    """The ops that compute the operands of an op, those of its block."""
    return [value.op for value in op.operands if value.op is not None and value.op.parent is op.parent]


def conversion_cost(layout: Layout, target: Layout, size: int, num_warps: int) -> float:
    """The cycles of a conversion through shared memory. All warps wait at the same time."""
    return BARRIERS + (_wavefronts(layout, size) + _wavefronts(target, size)) * num_warps


def _wavefronts(layout: Layout, size: int) -> float:
    """The cycles of shared memory in which a warp moves its elements, without bank conflicts."""
    lanes = 1 << sum(map(bool, layout.lanes))
    return max(1, size * max(1 / VECTOR, lanes / LINE) * (1 << sum(map(bool, layout.registers))))
