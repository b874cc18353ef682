"""The primary layout of each tensor that is computed once: the layout in which its op gives it.

Accesses to memory (coalesced) and dots are anchors: their layouts are given. From there, layouts spread forward through
elementwise ops, reductions and control flow. A layout that comes from a dot outranks one from memory, which outranks
that of a widened narrow tensor. Flexible tensors, such as indices, have no primary layout: they are computed in each
layout in which they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.layout import Layout, blocked
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import TensorType, shape_of
from ziggurat.transforms.place.accesses import Access, Accesses
from ziggurat.transforms.place.components import (
    Component,
    Group,
    component_of,
    components_of,
    propagate,
    tensor_operands,
    tensor_type,
)
from ziggurat.transforms.place.inference import is_computable, is_elementwise, is_shaping

Anchor = Callable[[Op], Layout | None]
Ranked = tuple[int, Layout]

_DOT, _MEMORY, _WEAK, _FORCED = 3, 2, 1, 0


def flexible_components(func: Op, groups: Mapping[Component, Group], num_warps: int) -> set[Component]:
    """The tensors that may be computed again in any layout: from constants, ranges and scalars, by pure ops alone.

    A load is flexible as well if it has no more elements than there are threads, or if it is only broadcast: another
    load costs less than a conversion.
    """
    found: set[Component] = set()
    ops = list(func.walk())
    for op in ops:
        if is_computable(op) or _is_loaded_again(op, 32 * num_warps):
            found.add((op.result, 0))
    found.update(component for component in groups if tensor_type(component) is not None)

    def visit(item: Op | Group) -> tuple[Component, ...]:
        if isinstance(item, Group):
            results, sources = item.members, [source for _, source in item.sources]
        else:
            results, sources = ((item.result, 0),), [source for _, source, _ in tensor_operands(item)]
            if results[0] in groups:
                return ()
        if results[0] not in found or all(source in found for source in sources):
            return ()
        found.difference_update(results)
        return results

    propagate([*ops, *dict.fromkeys(groups.values())], visit)
    return {component for component in found if tensor_type(component) is not None}


def _is_loaded_again(op: Op, threads: int) -> bool:
    if not isinstance(op, tt.Load) or not isinstance(op.ptr.type, TensorType) or op.volatile:
        return False
    return op.ptr.type.numel <= threads or _is_only_broadcast(op.result)


def _is_only_broadcast(value: Value) -> bool:
    """Whether only wider tensors are computed from a tensor."""
    seen = {value}
    work = [value]
    while work:
        for user in work.pop().uses:
            if isinstance(user, tt.Broadcast) or user.result in seen:
                continue
            if not is_computable(user):
                return False
            seen.add(user.result)
            work.append(user.result)
    return True


class PrimaryLayouts:
    """The primary layouts of a function's tensors, and the layouts in which ops that are not flexible read theirs."""

    def __init__(
        self, func: Op, groups: Mapping[Component, Group], flexible: set[Component], accesses: Accesses, anchor: Anchor
    ) -> None:
        self.groups = groups
        self.flexible = flexible
        self.accesses = accesses
        self.anchor = anchor
        self.ranked: dict[Component, Ranked] = {}
        self._reads: dict[Value, Layout] = {}
        items = [*func.walk(), *dict.fromkeys(groups.values())]
        # First from inside of loops, then from before them, then by default.
        for stage in range(3):
            propagate(items, partial(self._visit, stage))

    def of(self, component: Component) -> Layout | None:
        """The primary layout of a component; None for scalars and flexible tensors."""
        found = self.ranked.get(component)
        return None if found is None else found[1]

    def reads(self, op: Op) -> list[tuple[int, Layout]]:
        """The layouts in which an op that is computed once reads its tensor operands, by position."""
        operands = tensor_operands(op)
        if isinstance(op, tt.Dot | tt.Gather):
            # The accumulator, and the index, have the layout of the result.
            own = self.of((op.result, 0))
            alike = 2 if isinstance(op, tt.Dot) else 1
            return [
                (position, own if own is not None and position == alike else self._own(component, type_))
                for position, component, type_ in operands
            ]
        read = self._reads.get(op.result)
        if read is not None:
            return [(position, read) for position, _, _ in operands]
        return [(position, self._own(component, type_)) for position, component, type_ in operands]

    def _own(self, component: Component, type_: TensorType) -> Layout:
        return self.of(component) or self.accesses.default(type_.shape)

    def _set(self, components: Sequence[Component], ranked: Sequence[Ranked]) -> list[Component]:
        """Note layouts that outrank those known so far; the components for which they do."""
        changed: list[Component] = []
        for component, found in zip(components, ranked, strict=True):
            before = self.ranked.get(component)
            if before is None or before[0] < found[0]:
                self.ranked[component] = found
                changed.append(component)
        return changed

    def _best(self, components: Sequence[Component], preferred: Layout | None = None) -> Ranked | None:
        """The layout of the highest rank; of equal ones the preferred, or else the first."""
        best: Ranked | None = None
        for component in components:
            found = self.ranked.get(component)
            if found is None:
                continue
            if best is None or found[0] > best[0] or (found[0] == best[0] and found[1] == preferred):
                best = found
        return best

    def _visit(self, stage: int, item: Op | Group) -> Sequence[Component]:
        return self._join(item, stage) if isinstance(item, Group) else self._give(item, stage)

    def _join(self, group: Group, stage: int) -> Sequence[Component]:
        type_ = tensor_type(group.members[0])
        if type_ is None or group.members[0] in self.flexible:
            return ()
        sources = [component for op, component in group.sources if stage > 0 or op.result != group.members[-1][0]]
        best = self._best(sources)
        if best is None and stage == 2:
            best = (_FORCED, self.accesses.default(type_.shape))
        return () if best is None else self._set(group.members, [best] * len(group.members))

    def _give(self, op: Op, stage: int) -> Sequence[Component]:
        components = [component for component in components_of(op.result) if tensor_type(component) is not None]
        if op.bodies and not isinstance(op, tt.Reduce | tt.Scan):
            return ()
        if components and (components[0] in self.flexible or components[0] in self.groups):
            return ()
        ranked = self._derive(op, stage)
        return () if ranked is None else self._set(components, ranked)

    def _operand(self, op: Op, stage: int) -> Ranked | None:
        """The layout in which an op reads its operands: the best of theirs, or the default."""
        operands = tensor_operands(op)
        found = self._best([component for _, component, _ in operands])
        if (
            found is None
            and (stage == 2 or all(component in self.flexible for _, component, _ in operands))
            and operands
        ):
            found = (_FORCED if stage == 2 else _MEMORY, self.accesses.default(operands[0][2].shape))
        if found is not None:
            before = self.ranked.get(components_of(op.result)[0]) if components_of(op.result) else None
            if before is None or found[0] > before[0] or op.result not in self._reads:
                self._reads[op.result] = found[1]
        return found

    def _derive(self, op: Op, stage: int) -> Sequence[Ranked] | None:
        """The layouts of the results of an op, if they are known by now. Notes the layouts that it reads."""
        if isinstance(op, tt.Load | tt.Store | tt.AtomicRMW | tt.AtomicCAS):
            return self._access(op, stage)
        if isinstance(op, tt.Dot):
            return [(_DOT, self.anchor(op) or self.accesses.default(shape_of(op.result.type)))]
        operands = tensor_operands(op)
        if isinstance(op, tt.Histogram) and self._operand(op, stage) is None:
            return None
        own = self._given(op)
        if own is not None:
            return [(_MEMORY, own)]
        if not operands:
            return None
        if is_elementwise(op):
            found = self._best([component for _, component, _ in operands], self.accesses.default(operands[0][2].shape))
            return None if found is None and stage < 2 else [found or self._forced(op)]
        return self._moved(op, stage)

    def _forced(self, op: Op) -> Ranked:
        return _FORCED, self.accesses.default(shape_of(op.result.type))

    def _given(self, op: Op) -> Layout | None:
        """The layout of the result of an op that does not follow from its operands."""
        type_ = op.result.type
        alone = isinstance(op, tt.Join | tt.InlineAsm) and not tensor_operands(op)
        if isinstance(type_, TensorType) and (alone or isinstance(op, tt.Histogram | tt.DescriptorLoad)):
            return self.anchor(op) or self.accesses.default(type_.shape)
        return None

    def _moved(self, op: Op, stage: int) -> Sequence[Ranked] | None:
        """The layouts of the results of an op that moves or combines operands in one layout."""
        operands = tensor_operands(op)
        count = len(components_of(op.result))
        if isinstance(op, tt.Gather):
            found = self._best([operands[1][1]])
            if found is None and stage < 2 and operands[1][1] not in self.flexible:
                return None
            return [found or (_MEMORY, self.accesses.default(operands[1][2].shape))]
        first = operands[0][2]
        if is_shaping(op):
            found = self._best([operands[0][1]])
            if found is None:
                return [self._forced(op)] if stage == 2 else None
            rank, layout = found
            if isinstance(op, tt.Broadcast):
                return [(_WEAK, layout.widened(first.shape, shape_of(op.type)))]
            return [(rank, layout.transposed(first.shape, op.order) if isinstance(op, tt.Trans) else layout)]
        found = self._operand(op, stage)
        if found is None:
            return None
        rank, layout = found
        if isinstance(op, tt.Reduce):
            return [(rank, layout.dropped(first.shape, op.axis))] * count if first.rank > 1 else []
        if isinstance(op, tt.Join):
            return [(rank, layout.joined())]
        if isinstance(op, tt.Split):
            half = layout.split()
            if half is None:
                order = tuple(reversed(range(first.rank)))
                layout = self._reads[op.result] = blocked(first.shape, order, 2, self.accesses.num_warps)
                half = layout.split()
            assert half is not None
            return [(rank, half)] * count if first.rank > 1 else []
        if isinstance(op, tt.Cat):
            return [(rank, Layout((*layout.registers, first.numel), layout.lanes, layout.warps))]
        if isinstance(op, tt.Scan | tt.InlineAsm):
            return [(rank, layout)] * count
        return None

    def _access(self, op: Access, stage: int) -> Sequence[Ranked] | None:
        """The layout of an access: coalesced, unless the layout of its operand is as good."""
        type_ = op.ptr.type
        if not isinstance(type_, TensorType) or (op.result in self._reads and not isinstance(op, tt.Store)):
            return None
        component = component_of(op.ptr)
        layout = self.accesses.coalesced(op)
        if isinstance(op, tt.Load):
            if component not in self.flexible and self.accesses.vector(op) == 1:
                found = self._best([component])
                if found is None and stage < 2:
                    return None
                layout = found[1] if found is not None else layout
        else:
            moved = [s for position, s, _ in tensor_operands(op) if position > 0]
            moved = [s for s in moved if s not in self.flexible] or [s for s in [component] if s not in self.flexible]
            found = self._best(moved)
            if found is None and moved and stage < 2:
                return None
            if found is not None and self._is_as_good(op, found[1], layout):
                layout = found[1]
        self._reads[op.result] = layout
        return None if isinstance(op, tt.Store) else [(_MEMORY, layout)]

    def _is_as_good(self, op: Access, layout: Layout, coalesced: Layout) -> bool:
        if isinstance(op, tt.AtomicRMW | tt.AtomicCAS):
            return True
        if math.prod(shape_of(op.ptr.type)) <= 32 * self.accesses.num_warps:
            return True
        return self.accesses.traffic(op, layout) <= self.accesses.traffic(op, coalesced)
