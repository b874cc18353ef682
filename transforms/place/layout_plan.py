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
from ziggurat.transforms.place.inference import (
    is_elementwise,
    is_shaping,
    is_widening,
    operand_layouts,
)
from ziggurat.transforms.place.primary_layouts import Anchor, PrimaryLayouts, flexible_components

_PASSING_ON = (Structured, BodyTerminator, BlockTerminator)


class LayoutPlan:
    """The layouts in which the components of a function are used and computed."""

    def __init__(self, func: tt.Func, num_warps: int, anchor: Anchor) -> None:
        self.accesses = Accesses.of(func, analyse(func), num_warps)
        self.groups: Mapping[Component, Group] = groups_of(func)
        self.flexible = flexible_components(func, self.groups, num_warps)
        self.primary = PrimaryLayouts(func, self.groups, self.flexible, self.accesses, anchor)
        self.needs: dict[Value, list[tuple[Component, Layout]]] = {}
        self._wanted: dict[Component, dict[Layout, None]] = {}
        self._carried: dict[Group, dict[Layout, None]] = {}
        self._late: dict[tuple[Component, Layout], bool] = {}
        work: list[tuple[Component, Layout]] = []
        self._work = work
        for op in func.walk():
            if not self.is_lazy(op):
                operands = {position: component for position, component, _ in tensor_operands(op)}
                for position, layout in self.reads(op):
                    self._want(op, operands[position], layout)
        for group in dict.fromkeys(self.groups.values()):
            primary = self.primary.of(group.members[0])
            if primary is not None:
                for op, source in group.sources:
                    self._want(op, source, primary)
        while work:
            self._follow(*work.pop())

    # Answers for the rebuilding.

    def is_lazy(self, op: Op) -> bool:
        """Whether the op is computed in the layouts in which its result is wanted, not in a primary one."""
        component = (op.result, 0)
        return (component in self.flexible and component not in self.groups) or self._is_transparent(op)

    def reads(self, op: Op, layout: Layout | None = None) -> list[tuple[int, Layout]]:
        """The layouts of the tensor operands of an op; for a lazy one, if its result is in `layout`."""
        if layout is None:
            if isinstance(op, _PASSING_ON):
                return []  # Groups say the layouts.
            primary = self.primary.of((op.result, 0))
            return (
                operand_layouts(op, primary) if is_elementwise(op) and primary is not None else self.primary.reads(op)
            )
        if isinstance(op, tt.Load):
            return [(position, layout) for position, _, _ in tensor_operands(op)]
        operands = operand_layouts(op, layout)
        if isinstance(op, tt.Broadcast):
            # The primary layout will do if it has the elements in the same threads, in whichever registers.
            component = component_of(op.value)
            primary, type_ = self.primary.of(component), tensor_type(component)
            if primary and type_ and moved(primary, operands[0][1], type_.numel):
                return [(0, primary)]
        return operands

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
        found = self._late.get(key)
        if found is None:
            found = self._late[key] = self._is_late(component, layout)
        return found

    # The search.

    def _is_transparent(self, op: Op) -> bool:
        return is_shaping(op) or (is_widening(op) and isinstance(op.result.type, TensorType))

    def _want(self, user: Op, component: Component, layout: Layout) -> None:
        self.needs.setdefault(user.result, []).append((component, layout))
        known = self._wanted.setdefault(component, {})
        if layout not in known:
            known[layout] = None
            self._work.append((component, layout))

    def _follow(self, component: Component, layout: Layout) -> None:
        group = self.groups.get(component)
        if group is not None:
            if component in self.flexible and layout not in self._carried.setdefault(group, {}):
                self._carried[group][layout] = None
                for op, source in group.sources:
                    self._want(op, source, layout)
            return
        value = component[0]
        assert isinstance(value, OpResult)
        if self.is_lazy(value.op):
            for position, wanted in self.reads(value.op, layout):
                self._want(value.op, component_of(value.op.operands[position]), wanted)

    def _is_late(self, component: Component, layout: Layout) -> bool:
        if component in self.flexible:
            return False
        if component not in self.groups:
            value = component[0]
            assert isinstance(value, OpResult)
            if self.is_lazy(value.op):
                reads = self.reads(value.op, layout)
                return any(
                    self.is_late(component_of(value.op.operands[position]), wanted) for position, wanted in reads
                )
        return layout != self.primary.of(component)
