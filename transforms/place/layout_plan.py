"""The plan of a layout assignment: the layouts in which each tensor is used, and those in which it is computed."""

from __future__ import annotations

from collections.abc import Mapping

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.layout import Layout, moved
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BlockTerminator, BodyTerminator
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.place.accesses import Accesses
from ziggurat.transforms.place.axis_info import analyse
from ziggurat.transforms.place.components import Component, Group, component_of, groups_of, tensor_operands, tensor_type
from ziggurat.transforms.place.primary_layouts import Anchor, PrimaryLayouts, flexible_components
from ziggurat.transforms.place.queries import (
    is_elementwise,
    is_shaping,
    is_widening,
    operand_layouts,
    tensor_of,
)

_PASSING_ON = (Structured, BodyTerminator, BlockTerminator)


class LayoutPlan:
    """The layouts in which the components of a function are used and computed."""

    def __init__(self, func: tt.Func, num_warps: int, anchor: Anchor) -> None:
        self.accesses = Accesses(func, analyse(func), num_warps)
        self.groups: Mapping[Component, Group] = groups_of(func)
        self.flexible = flexible_components(func, self.groups, num_warps)
        self.primary = PrimaryLayouts(func, self.groups, self.flexible, self.accesses, anchor)
        self.needs: dict[Value, list[tuple[Component, Layout]]] = {}
        self._wanted: dict[Component, dict[Layout, None]] = {}
        self._carried: dict[Group, dict[Layout, None]] = {}
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
        return component in self.flexible and component not in self.groups

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
            if primary and moved(primary, operands[0][1], tensor_of(op.value).numel):
                return [(0, primary)]
        return operands

    def sources(self, component: Component, layout: Layout) -> list[tuple[Component, Layout]] | None:
        """The components, with layouts, from which a lazy op computes this one; None for results of other ops."""
        value, _ = component
        if component in self.groups or not isinstance(value, OpResult) or not self.is_lazy(value.op):
            return None
        return [(component_of(value.op.operands[at]), wanted) for at, wanted in self.reads(value.op, layout)]

    def wanted(self, component: Component) -> list[Layout]:
        """The layouts in which a component is used, in the order in which they were found."""
        return list(self._wanted.get(component, ()))

    def carried(self, component: Component) -> list[Layout | None]:
        """The layouts in which control flow carries a component of a group: [None] for a scalar."""
        group = self.groups[component]
        if tensor_type(component) is None:
            return [None]
        primary = self.primary.of(group.members[0])
        return [primary] if primary is not None else list(self._carried.get(group, ()))

    def is_late(self, component: Component, layout: Layout) -> bool:
        """Whether a component in a layout comes from a conversion, and so is made only where it is needed."""
        key = (component, layout)
        if key not in self._late:
            sources = self.sources(component, layout)
            if component in self.flexible:
                self._late[key] = False
            elif sources is not None:
                self._late[key] = any(self.is_late(source, wanted) for source, wanted in sources)
            else:
                self._late[key] = layout != self.primary.of(component)
        return self._late[key]

    # The search.

    def _want(self, user: Value, component: Component, layout: Layout) -> None:
        self.needs.setdefault(user, []).append((component, layout))
        known = self._wanted.setdefault(component, {})
        if layout not in known:
            known[layout] = None
            self._work.append((component, layout))

    def _follow(self, component: Component, layout: Layout) -> None:
        group = self.groups.get(component)
        if group is None:
            for source, wanted in self.sources(component, layout) or ():
                self._want(component[0], source, wanted)
        elif component in self.flexible and layout not in self._carried.setdefault(group, {}):
            self._carried[group][layout] = None
            for op, source in group.sources:
                self._want(op.result, source, layout)
