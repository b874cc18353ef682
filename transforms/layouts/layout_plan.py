"""The plan of a layout assignment: the layouts in which each tensor is used, and those in which it is computed.

The primary layout of a tensor that is computed once is the layout in which its op gives it. Accesses to memory
(coalesced) and dots are anchors: their layouts are given. From there, layouts spread forward through elementwise ops,
reductions and control flow. A layout that comes from a dot outranks that of a sorting network, which outranks one from
memory, which outranks that of a widened narrow tensor. Flexible tensors, such as indices, have no primary layout: they
are computed in each layout in which they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import attrs

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import Layout, blocked, moved
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BlockTerminator, BodyTerminator
from ziggurat.codemodel.types import TensorType, TupleType, Type, component_types, shape_of
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.analysis.components import (
    Component,
    ComponentGroup,
    Propagation,
    component_of,
    components_of,
    groups_of,
    tensor_operands,
    tensor_type,
)
from ziggurat.transforms.analysis.queries import (
    is_computable,
    is_elementwise,
    is_shaping,
    is_widening,
    operand_layouts,
)
from ziggurat.transforms.layouts.accesses import Access, Accesses, distinct, pointee_bytes
from ziggurat.transforms.layouts.recomputation import Recomputation, conversion_cost
from ziggurat.transforms.layouts.swizzle import VECTOR

_PASSING = 64 << 10  # Bytes of a result of dots that are exchanged in the shared memory of their operands.

# The primary layouts.

Anchor = Callable[[Op, Accesses], Layout | None]
Ranked = tuple[int, Layout]


@attrs.frozen
class OperandLayouts:
    """The layouts in which a dot reads its operands a and b, None where it reads them in theirs; and the layouts of
    tensors that are computed for nothing else."""

    operands: tuple[Layout | None, Layout | None]
    computed: Mapping[Component, Layout]


_PASSING_ON = (Structured, BodyTerminator, BlockTerminator)
_TENSORS = (TensorType, TupleType)  # A Tuple may hold tensors.
_DOT, _CUBE, _MEMORY, _WEAK, _FORCED = 4, 3, 2, 1, 0


def flexible_components(func: Op, groups: Mapping[Component, ComponentGroup], num_warps: int) -> set[Component]:
    """The tensors that may be computed again in any layout: from constants, ranges and scalars, by pure ops alone.

    A load is flexible as well if it has no more elements than there are threads, or if it is only broadcast: a few more
    accesses cost less than a conversion.
    """
    ops = list(func.walk())
    components: set[Component] = {
        (op.result, 0) for op in ops if is_computable(op) or _is_loaded_again(op, 32 * num_warps)
    }
    components.update(component for component in groups if tensor_type(component) is not None)

    def visit(item: Op | ComponentGroup) -> tuple[Component, ...]:
        if isinstance(item, ComponentGroup):
            results, sources = item.members, [source for _, source in item.sources]
        else:
            results, sources = ((item.result, 0),), [source for _, source, _ in tensor_operands(item)]
            if results[0] in groups:
                return ()
        if results[0] not in components or all(source in components for source in sources):
            return ()
        components.difference_update(results)
        return results

    Propagation([*ops, *dict.fromkeys(groups.values())]).run(visit)
    return {component for component in components if tensor_type(component) is not None}


def _is_loaded_again(op: Op, threads: int) -> bool:
    if not isinstance(op, tt.Load) or not isinstance(op.ptr.type, TensorType) or op.volatile:
        return False
    return op.ptr.type.numel <= threads or _is_only_broadcast(op.result)


def _is_only_broadcast(value: Value) -> bool:
    """Whether only wider tensors are computed from a tensor."""

    def as_wide(value: Value) -> Iterable[Value]:
        return (user.result for user in value.uses if is_computable(user) and not isinstance(user, tt.Broadcast))

    return all(is_computable(user) for each in reached([value], as_wide) for user in each.uses)


Operands = Callable[[tt.Dot, "PrimaryLayouts"], OperandLayouts | None]


class PrimaryLayouts:
    """The primary layouts of a function's tensors, and the layouts in which ops that are not flexible read theirs."""

    def __init__(
        self,
        func: Op,
        groups: Mapping[Component, ComponentGroup],
        flexible: set[Component],
        accesses: Accesses,
        anchor: Anchor,
        operands: Operands = lambda dot, plan: None,
    ) -> None:
        self.groups = groups
        self.flexible = flexible
        self.accesses = accesses
        self.anchor = anchor
        self.ranked: dict[Component, Ranked] = {}
        self._reads: dict[Op, Layout] = {}
        self.has_dots = func.holds(tt.Dot)
        ops = (op for op in func.walk() if any(isinstance(v.type, _TENSORS) for v in (op.result, *op.operands)))
        items = Propagation([*ops, *dict.fromkeys(groups.values())])
        # First from inside of loops, then from before them, then by default.
        for stage in range(3):
            items.run(partial(self._visit, stage))
        self._operands: dict[Op, OperandLayouts] = {}
        for op in func.walk():
            if isinstance(op, tt.Dot) and (layouts := operands(op, self)) is not None:
                self._operands[op] = layouts
                self.ranked.update((component, (_DOT, layout)) for component, layout in layouts.computed.items())

    def of(self, component: Component) -> Layout | None:
        """The primary layout of a component; None for scalars and flexible tensors."""
        layout = self.ranked.get(component)
        return None if layout is None else layout[1]

    def is_weak(self, component: Component) -> bool:
        """Whether a component has only the layout of narrower tensors that were widened."""
        return component in self.ranked and self.ranked[component][0] == _WEAK

    def reads(self, op: Op) -> list[tuple[int, Layout]]:
        """The layouts in which an op that is computed once reads its tensor operands, by position."""
        # The accumulator of a dot, and the index of a gather, have the layout of the result.
        own, read = self.of((op.result, 0)), self._reads.get(op)
        layouts: dict[int, Layout | None] = {1: own} if isinstance(op, tt.Gather) else {}
        if isinstance(op, tt.Dot):
            a, b = self._operands[op].operands if op in self._operands else (None, None)
            layouts = {0: a, 1: b, 2: own}
        elif isinstance(op, tt.Join) and own is not None:
            read = own.split()
        return [
            (at, read or layouts.get(at) or self.of(component) or self.accesses.default(type_.shape))
            for at, component, type_ in tensor_operands(op)
        ]

    def _visit(self, stage: int, item: Op | ComponentGroup) -> Sequence[Component]:
        """Note the layout of a group or of an op's results, if it is known by now and outranks the one known so far.

        Returns the components for which it does.
        """
        whole = item.members if isinstance(item, ComponentGroup) else components_of(item.result)
        components = [component for component in whole if tensor_type(component) is not None]
        if components and components[0] in self.flexible:
            return ()
        if isinstance(item, ComponentGroup):
            ranked = self._joined(item, stage)
        elif item.bodies and not isinstance(item, tt.Reduce | tt.Scan | tt.MapElementwise):
            return ()
        else:
            ranked = self._derived(item, stage)
        if ranked is None:
            return ()
        changed = [c for c in components if c not in self.ranked or self.ranked[c][0] < ranked[0]]
        self.ranked.update(dict.fromkeys(changed, ranked))
        return changed

    def _best(self, components: Sequence[Component], preferred: Layout | None = None) -> Ranked | None:
        """The layout of the highest rank; of equal ones the preferred, or else the first."""
        ranked = [self.ranked[component] for component in components if component in self.ranked]
        return max(ranked, key=lambda ranked: (ranked[0], ranked[1] == preferred), default=None)

    def _default(self, type_: Type, rank: int = _FORCED) -> Ranked:
        return rank, self.accesses.default(shape_of(type_))

    def _joined(self, group: ComponentGroup, stage: int) -> Ranked | None:
        """The layout of the values that control flow joins: the best of its sources."""
        type_ = tensor_type(group.members[0])
        sources = [component for op, component in group.sources if stage > 0 or op.result != group.members[-1][0]]
        best = self._best(sources)
        return self._default(type_) if type_ is not None and best is None and stage == 2 else best

    def _derived(self, op: Op, stage: int) -> Ranked | None:
        """The layout of the results of an op, if it is known by now. Notes the layout that the op reads."""
        operands = tensor_operands(op)
        sources, own = [component for _, component, _ in operands], op.result.type
        if isinstance(op, tt.Load | tt.Store | tt.AtomicRMW | tt.AtomicCAS):
            return self._accessed(op, stage)
        if isinstance(op, tt.Dot):
            anchored = self.anchor(op, self.accesses)
            return self._default(own, _DOT) if anchored is None else (_DOT, anchored)
        if isinstance(op, tt.DescriptorLoad):
            return self._default(own, _MEMORY)
        if isinstance(op, gpu.ClusterGather):
            ranked = self._read(op, stage) if operands else True
            return None if ranked is None else self._default(component_types(own)[0], _MEMORY)
        if isinstance(op, tt.Histogram):
            return None if self._read(op, stage) is None else self._default(own, _MEMORY)
        if not operands:
            alone = isinstance(op, tt.Join | tt.InlineAsm) and isinstance(own, TensorType)
            return self._default(own, _MEMORY) if alone else None
        first = operands[0][2]
        if isinstance(op, tt.Reshape) and shape_of(own) in self.accesses.cubes:
            return self._default(own, _CUBE)
        if is_elementwise(op) or is_shaping(op):
            ranked = self._best(sources, self.accesses.default(first.shape))
            if ranked is None:
                return self._default(own) if stage == 2 else None
            if isinstance(op, tt.Broadcast):
                return _WEAK, ranked[1].widened(first.shape, shape_of(own))
            return (ranked[0], ranked[1].transposed(first.shape, op.order)) if isinstance(op, tt.Trans) else ranked
        if isinstance(op, tt.Gather):
            ranked = self._best(sources[1:])
            if ranked is None and stage < 2 and sources[1] not in self.flexible:
                return None
            return ranked or self._default(operands[1][2], _MEMORY)
        ranked = self._read(op, stage)
        if ranked is None or isinstance(op, tt.Scan | tt.InlineAsm | tt.MapElementwise):
            return ranked
        rank, layout = ranked
        if isinstance(op, tt.Reduce):
            return rank, layout.dropped(first.shape, op.axis)
        if isinstance(op, tt.Join):
            return rank, layout.joined()
        if isinstance(op, tt.Split):
            half = layout.split()
            if half is None:
                order = tuple(reversed(range(first.rank)))
                layout = self._reads[op] = blocked(first.shape, order, 2, self.accesses.num_warps)
                half = layout.split()
            assert half is not None
            return rank, half
        if isinstance(op, tt.Cat):
            return rank, Layout((*layout.registers, first.numel), layout.lanes, layout.warps)
        return None

    def _read(self, op: Op, stage: int) -> Ranked | None:
        """The layout in which an op reads its operands: the best of theirs, or the default."""
        operands = tensor_operands(op)
        sources = [component for _, component, _ in operands]
        layout = self._best(sources)
        if layout is None and operands and (stage == 2 or self.flexible.issuperset(sources)):
            layout = self._default(operands[0][2], _FORCED if stage == 2 else _MEMORY)
        if layout is not None:
            before = self._best(components_of(op.result)[:1])
            if before is None or layout[0] > before[0] or op not in self._reads:
                self._reads[op] = layout[1]
        return layout

    def _accessed(self, op: Access, stage: int) -> Ranked | None:
        """The layout of an access: coalesced, unless the layout of its operand is as good."""
        type_ = op.ptr.type
        if not isinstance(type_, TensorType) or (op in self._reads and not isinstance(op, tt.Store)):
            return None
        pointers = [component_of(op.ptr)] if component_of(op.ptr) not in self.flexible else []
        layout = self.accesses.coalesced(op)
        if isinstance(op, tt.Load):
            followed = pointers if self.accesses.is_scattered(op) else []
        else:
            components = [component for position, component, _ in tensor_operands(op) if position > 0]
            followed = [component for component in components if component not in self.flexible] or pointers
        ranked = self._best(followed)
        if ranked is None and followed and stage < 2:
            return None
        if isinstance(op, tt.Load) and not pointers and self.has_dots and self.accesses.is_scattered(op):
            if stage == 0:
                return None
            ranked = self._used_in(op.result)
            ranked = ranked if ranked is not None and self._is_as_good(op, ranked, layout) else None
        if ranked is not None and (isinstance(op, tt.Load) or self._is_as_good(op, ranked, layout)):
            layout = ranked[1]
        self._reads[op] = layout
        return _MEMORY, layout

    def _used_in(self, value: Value) -> Ranked | None:
        """The layout of a dot's result to which a tensor is added, or beside which it is used by elementwise ops."""

        def following(each: Value) -> list[Value]:
            return [u.result for u in each.uses if is_elementwise(u) or (isinstance(u, tt.Dot) and u.c is each)]

        results = reached([value], following)
        ranked = self._best([component_of(result) for result in results])
        return ranked if ranked is not None and ranked[0] == _DOT else None

    def _is_as_good(self, op: Access, ranked: Ranked, coalesced: Layout) -> bool:
        rank, layout = ranked
        if isinstance(op, tt.AtomicRMW | tt.AtomicCAS):
            # The L2 cache takes the sums of a line at once, so more lines take longer than a conversion.
            measures = [(distinct(each), self.accesses.lookups(op, each)[1]) for each in (layout, coalesced)]
            return all(map(int.__le__, *measures))
        if math.prod(shape_of(op.ptr.type)) <= 32 * self.accesses.num_warps:
            return True
        if self.accesses.traffic(op, layout) > self.accesses.traffic(op, coalesced):
            return False
        passing = math.prod(shape_of(op.ptr.type)) * pointee_bytes(op.ptr)
        if layout == coalesced or (isinstance(op, tt.Store) and rank > _MEMORY and passing > _PASSING):
            return True
        # An SM asks for a line a cycle. In a conversion, all warps wait at the same time.
        lines = self.accesses.lines(op, layout) - self.accesses.lines(op, coalesced)
        return lines <= conversion_cost(layout, coalesced, pointee_bytes(op.ptr), self.accesses.num_warps)


# The plan.


class LayoutPlan:
    """The layouts in which the components of a function are used and computed."""

    def __init__(
        self,
        func: tt.Func,
        num_warps: int,
        anchor: Anchor,
        operands: Operands = lambda dot, plan: None,
        *,
        sum_bytes: int = VECTOR,
    ) -> None:
        self.accesses = Accesses(func, analyse(func), num_warps, sum_bytes=sum_bytes)
        self.groups: Mapping[Component, ComponentGroup] = groups_of(func)
        self.flexible = flexible_components(func, self.groups, num_warps)
        self.primary = PrimaryLayouts(func, self.groups, self.flexible, self.accesses, anchor, operands)
        self.needs: dict[Value, list[tuple[Component, Layout]]] = {}
        self.recomputation = Recomputation(
            func, num_warps, self.accesses.coalesced, self.accesses.lookups, self.accesses.for_dots
        )
        self._requested: dict[Component, dict[Layout, None]] = {}
        self._layouts_of_groups: dict[ComponentGroup, dict[Layout, None]] = {}
        self._late: dict[tuple[Component, Layout], bool] = {}
        self._work: list[tuple[Component, Layout]] = []
        for op in func.walk():
            if not self.is_lazy(op):
                for position, layout in self.reads(op):
                    self._want(op.result, component_of(op.operands[position]), layout)
        for group in dict.fromkeys(self.groups.values()):
            primary = self.primary.of(group.members[0])
            if primary is not None:
                for op, source in group.sources:
                    self._want(op.result, source, primary)
        while self._work:
            self._follow(*self._work.pop())

    # Answers for the rebuilding.

    def is_lazy(self, op: Op) -> bool:
        """Whether the op is computed in the layouts in which its result is wanted, not in a primary one."""
        component = (op.result, 0)
        if is_shaping(op) or (is_widening(op) and isinstance(op.result.type, TensorType)):
            return True
        # What comes from narrow tensors alone is computed again: they are converted for less than a wide one is.
        again = component in self.flexible or (is_elementwise(op) and self.primary.is_weak(component))
        return again and component not in self.groups

    def reads(self, op: Op, layout: Layout | None = None) -> list[tuple[int, Layout]]:
        """The layouts of the tensor operands of an op; for a lazy one, if its result is in `layout`."""
        if layout is None:
            if isinstance(op, _PASSING_ON):
                return []  # Groups say the layouts.
            primary = self.primary.of((op.result, 0))
            return operand_layouts(op, primary) if is_elementwise(op) and primary else self.primary.reads(op)
        if isinstance(op, tt.Load):
            return [(position, layout) for position, _, _ in tensor_operands(op)]
        operands = operand_layouts(op, layout)
        if isinstance(op, tt.Broadcast):
            # The primary layout will do if it has the elements in the same threads, in whichever registers.
            primary = self.primary.of(component_of(op.value))
            if primary and moved(primary, operands[0][1], math.prod(shape_of(op.value.type))):
                return [(0, primary)]
        return operands

    def computed(self, op: Op, layout: Layout) -> Layout:
        """The layout in which a lazy op computes its result that is wanted in `layout`: another one, if the op reads
        loads, and fewer copies of its result and one conversion cost less."""
        return self.recomputation.layout(op, layout) if (op.result, 0) in self.flexible else layout

    def sources(self, component: Component, layout: Layout) -> list[tuple[Component, Layout]] | None:
        """The components, with layouts, from which a lazy op computes this one, or from which it is converted; None for
        results of other ops."""
        value, _ = component
        if component in self.groups or not isinstance(value, OpResult) or not self.is_lazy(value.op):
            return None
        if (own := self.computed(value.op, layout)) != layout:
            return [(component, own)]
        return [(component_of(value.op.operands[at]), layout_) for at, layout_ in self.reads(value.op, layout)]

    def wanted(self, component: Component) -> list[Layout]:
        """The layouts in which a component is used, in the order in which they were found."""
        return list(self._requested.get(component, ()))

    def carried(self, component: Component) -> list[Layout | None]:
        """The layouts in which control flow carries a component of a group: [None] for a scalar."""
        group = self.groups[component]
        if tensor_type(component) is None:
            return [None]
        primary = self.primary.of(group.members[0])
        return [primary] if primary is not None else list(self._layouts_of_groups.get(group, ()))

    def is_late(self, component: Component, layout: Layout) -> bool:
        """Whether a component in a layout comes from a conversion, and so is made only where it is needed. A load stays
        in its place among other accesses."""
        key = (component, layout)
        if key not in self._late:
            sources = self.sources(component, layout)
            if sources is None:
                self._late[key] = component not in self.flexible and layout != self.primary.of(component)
            elif sources and sources[0][0] == component:
                self._late[key] = True
            else:
                is_load = isinstance(component[0].op, tt.Load)
                self._late[key] = not is_load and any(self.is_late(*source) for source in sources)
        return self._late[key]

    # The search.

    def _want(self, user: Value, component: Component, layout: Layout) -> None:
        self.needs.setdefault(user, []).append((component, layout))
        layouts = self._requested.setdefault(component, {})
        if layout not in layouts:
            layouts[layout] = None
            self._work.append((component, layout))

    def _follow(self, component: Component, layout: Layout) -> None:
        group = self.groups.get(component)
        if group is None:
            for source, required in self.sources(component, layout) or ():
                self._want(component[0], source, required)
        elif component in self.flexible and layout not in self._layouts_of_groups.setdefault(group, {}):
            self._layouts_of_groups[group][layout] = None
            for op, source in group.sources:
                self._want(op.result, source, layout)
