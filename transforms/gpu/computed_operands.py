"""Operands of mma.sync that threads compute from what they load, in the layout of the operand.

    %t : tensor<x128, x64, i8, L> = tt.load %p;
    %u : tensor<x128, x64, i8, F> = gpu.convert_layout %t;
    %v : tensor<x128, x64, bf16, F> = arith.sitofp %u;
    %d = tt.dot %a %v %c;

`L` is coalesced, and `F` is the fragment of the operand. `latency` makes the load a copy, and the conversion a read of
its slot. Otherwise threads would compute in `L`, store to shared memory, and read the operand by ldmatrix after a
barrier. Where several warps multiply an operand, each computes it: so the layouts of a dot are chosen by cost.

The order along k is free as long as both operands have the same one. A thread holds as long a run along k as makes the
reads of narrow elements wide (`Unit.run`): four bytes that become four numbers of 16 bits, for example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu.fragments import Panels, Unit, WarpGrid, fragment_of, with_runs
from ziggurat.codemodel.layout import Layout, moved
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ScalarType, element_bytes
from ziggurat.transforms.analysis.components import Component, component_of, tensor_operands
from ziggurat.transforms.analysis.issue_slots import FUNCTIONS, ISSUES, slots_of
from ziggurat.transforms.analysis.queries import is_elementwise, is_shaping, operand_layouts, tensor_of
from ziggurat.transforms.cost.budget import OF_OPERANDS
from ziggurat.transforms.layouts.layout_plan import OperandLayouts, PrimaryLayouts
from ziggurat.transforms.layouts.swizzle import VECTOR, Moves, copied_bases, moves, row_major

ROUND_TRIP = 40  # Cycles of a store, a barrier and a read that nothing hides, if one CTA is on an SM.
# For each register of the first operand that is not computed: two rows alternate in the registers of an instruction,
# and vectors have one row.
MOVES = 7 / 4
# Of the other way's cost, at most so much: fragments take registers, and it is not known what limits the loop.
GAIN = 0.75
# Cycles of a wavefront: four warps issue at once and share the banks, but half of it overlaps with other ops.
WARPS = 2


@attrs.frozen
class _Operand:
    """An operand of a dot: the steps that compute it, the last one first, and the loads that they need. Without loads
    it comes from elsewhere. The steps that are `again` are of tensors that are computed in each layout."""

    value: Value
    steps: tuple[Op, ...] = ()
    loads: tuple[tt.Load, ...] = ()
    again: frozenset[Op] = frozenset()

    @property
    def once(self) -> set[Component]:
        """The tensors that have one layout: all but those that are computed in each."""
        return {(op.result, 0) for op in (*self.steps, *self.loads) if op not in self.again}

    @property
    def is_computed(self) -> bool:
        """Whether threads do more than to load it."""
        return any(is_elementwise(op) and op not in self.again for op in self.steps)

    def layouts(self, layout: Layout) -> dict[Component, Layout] | None:
        """The layouts of all that the operand is computed from if it has this one; None if there are none, and for what
        TMA brings to where ldmatrix reads it."""
        value = self.value
        while isinstance(value.op, tt.Trans):
            value = value.op.value
        if isinstance(value.op, tt.DescriptorLoad):
            return None
        layouts = {component_of(self.value): layout}
        for op in self.steps:
            own = layouts[op.result, 0]
            half = own.split() if isinstance(op, tt.Join) else None
            if isinstance(op, tt.Join) and (half is None or half.joined() != own):
                return None
            sources = operand_layouts(op, own) if half is None else [(0, half), (1, half)]
            for at, source in sources:
                component = component_of(op.operands[at])
                if layouts.setdefault(component, source) != source and component in self.once:
                    return None
        return layouts


def operand_of(dot: tt.Dot, value: Value, flexible: set[Component]) -> _Operand:
    """An operand with what computes it for nothing else, in the block of its dot."""
    steps, loads, block = list[Op](), list[tt.Load](), dot.parent
    assert block is not None
    components, users, again = {component_of(value)}, set[Op]([dot]), set[Op]()
    for op in reversed(block.ops[: block.ops.index(dot)]):
        component = (op.result, 0)
        if component not in components:
            continue
        computes = is_elementwise(op) or is_shaping(op) or isinstance(op, tt.Join)
        if component in flexible:
            if computes and not isinstance(op, tt.Join):
                again.add(op)
                steps.append(op)
                components.update(source for _, source, _ in tensor_operands(op) if source in flexible)
        elif isinstance(op, tt.Load):
            loads.append(op)
        elif computes and users.issuperset(op.result.uses):
            steps.append(op)
            users.add(op)
            components.update(source for _, source, _ in tensor_operands(op))
        else:
            return _Operand(value)
    inside = {(op.result, 0) for op in (*steps, *loads)}
    own = _Operand(value, tuple(steps), tuple(loads), frozenset(again))
    return own if components <= inside | flexible else _Operand(value)


class OperandChoice:
    """The choice of the layouts of a dot's operands, which are multiplied as `elements`."""

    def __init__(self, dot: tt.Dot, elements: Sequence[ScalarType], warps: WarpGrid, plan: PrimaryLayouts) -> None:
        self.dot, self.warps, self.plan = dot, warps, plan
        self.sizes = [element.bytes for element in elements]
        self.operands = [operand_of(dot, value, plan.flexible) for value in (dot.a, dot.b)]

    def best(self, unit: Unit, *, by_rows: bool) -> OperandLayouts | None:
        """The layouts of the least cost; None if the operands are to go to shared memory, as `by_rows` allows, or if
        threads compute none of them."""
        if not any(operand.is_computed for operand in self.operands):
            return None
        # Rows in pairs are no rows of a buffer that ldmatrix reads.
        best, least = None, math.inf if self.warps.paired else GAIN * self._cost(self._fragments(unit), (False, False))
        for each in with_runs(unit, tensor_of(self.dot.a).shape[-1]):
            fragments = self._fragments(each)
            for in_registers in ((True, False), (True, True)) if each == unit and by_rows else ((True, True),):
                layouts = self._layouts(fragments, in_registers)
                if layouts is not None and (cost := self._cost(fragments, in_registers)) < least:
                    best, least = layouts, cost
        return best

    def _fragments(self, unit: Unit) -> tuple[Layout, Layout]:
        shapes = [tensor_of(value).shape for value in (self.dot.a, self.dot.b)]
        return fragment_of(unit, shapes[0], self.warps, 1), fragment_of(unit, shapes[1], self.warps, 0)

    def _layouts(self, fragments: Sequence[Layout], in_registers: Sequence[bool]) -> OperandLayouts | None:
        """The layouts if the operands that are to be `in_registers` are these fragments; None if one cannot be."""
        computed: dict[Component, Layout] = {}
        for operand, fragment, is_fragment in zip(self.operands, fragments, in_registers, strict=True):
            layouts = operand.layouts(fragment) if is_fragment else {}
            if layouts is None or any(computed.get(component, own) != own for component, own in layouts.items()):
                return None
            steps = operand.once.difference((load.result, 0) for load in operand.loads)
            computed.update((component, own) for component, own in layouts.items() if component in steps)
        a, b = (
            fragment if is_fragment else None for fragment, is_fragment in zip(fragments, in_registers, strict=True)
        )
        words = [size * layout.num_registers // 4 for size, layout in zip(self.sizes, fragments, strict=True)]
        return OperandLayouts((a, b), computed) if sum(words) <= OF_OPERANDS else None

    def _cost(self, fragments: Sequence[Layout], in_registers: Sequence[bool]) -> float:
        """The cycles of a warp for both operands, of which some are these fragments, `in_registers`."""
        cycles, passes = 0.0, False
        for number, operand in enumerate(self.operands):
            fragment, type_ = fragments[number], tensor_of(operand.value)
            words = fragment.num_registers * self.sizes[number] / 4
            run = fragment.contiguous(type_.shape, type_.rank - 1 - number) * self.sizes[number]
            own = self.plan.of(component_of(operand.value))
            if in_registers[number] and operand.loads:
                cycles += self._computed(operand, operand.layouts(fragment) or {})
            elif operand.loads or own is None or moved(own, fragment, type_.numel) is None:
                # By ldmatrix, or by vectors if the runs are longer than a register.
                cycles += words * (WARPS + 4 / (VECTOR if run <= 4 else min(run, VECTOR)))
                if not operand.loads:  # From the accumulator of another dot, for example.
                    passes = True
                elif operand.is_computed:
                    cycles, passes = cycles + self._stored(operand, number), True
            if number == self.warps.swapped and run > 4 and not operand.is_computed:
                cycles += MOVES * words
        return cycles + ROUND_TRIP * passes

    def _computed(self, operand: _Operand, layouts: Mapping[Component, Layout]) -> float:
        """Reads of the loads' slots in these layouts, and the steps in theirs."""
        cycles = 0.0
        for load in operand.loads:
            type_ = tensor_of(load.result)
            coalesced, own, size = self.plan.of((load.result, 0)), layouts[load.result, 0], element_bytes(type_)
            assert coalesced is not None
            offsets = copied_bases(coalesced, own, type_.numel, size, self.plan.accesses.width(load, coalesced))
            cycles += _cycles(moves(own, offsets, size, matrices=True))
        for op in operand.steps:
            if is_elementwise(op) and (layout := layouts.get((op.result, 0))) is not None:
                issued, functions = slots_of(op)
                slots = max(issued, functions * 32 * ISSUES / FUNCTIONS)
                cycles += slots * (1 << sum(map(bool, layout.registers)))
        return cycles

    def _stored(self, operand: _Operand, number: int) -> float:
        """Reads of the loads' slots as they were copied, the steps, and the store to where ldmatrix reads."""
        size, type_ = self.sizes[number], tensor_of(operand.value)
        layout = self.plan.ranked[component_of(operand.value)][1]
        layouts = operand.layouts(layout) or {}
        layouts |= {component: layout for component, (_, layout) in self.plan.ranked.items()}
        k_axis, line_axis = type_.rank - 1 - number, type_.rank - 2 + number
        k_major = size != 2 or layout.contiguous(type_.shape, k_axis) >= layout.contiguous(type_.shape, line_axis)
        panels = Panels.widest(type_.shape[k_axis if k_major else line_axis] * size, k_major=k_major)
        offsets = panels.offsets(type_.shape, 1 - number, size) if panels is not None else row_major(type_.numel)
        return self._computed(operand, layouts) + _cycles(moves(layout, offsets, size, matrices=True))


def _cycles(shared: Moves) -> float:
    return shared.instructions + WARPS * shared.wavefronts
