"""The plan of a layout assignment: which tensor is wanted in which layouts, and where it is computed in them."""

from __future__ import annotations

from collections.abc import Mapping

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.traits import BlockTerminator
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.place.accesses import Accesses
from ziggurat.transforms.place.axis_info import analyse
from ziggurat.transforms.place.homes import Anchor, Homes, flexible_slots
from ziggurat.transforms.place.inference import (
    is_elementwise,
    is_shaping,
    is_widening,
    operand_layouts,
    within_threads,
)
from ziggurat.transforms.place.slots import Group, Slot, groups_of, slot_of, tensor_operands, tensor_type

_HANDING_ON = (scf.For, scf.While, scf.If, scf.Yield, scf.Condition, BlockTerminator)


class Plan:
    """What is to be computed in which layouts."""

    def __init__(self, func: tt.Func, num_warps: int, anchor: Anchor) -> None:
        self.accesses = Accesses.of(func, analyse(func), num_warps)
        self.groups: Mapping[Slot, Group] = groups_of(func)
        self.flexible = flexible_slots(func, self.groups, num_warps)
        self.homes = Homes(func, self.groups, self.flexible, self.accesses, anchor)
        self.needs: dict[Value, list[tuple[Slot, Layout]]] = {}
        self._wanted: dict[Slot, dict[Layout, None]] = {}
        self._carried: dict[Group, dict[Layout, None]] = {}
        self._late: dict[tuple[Slot, Layout], bool] = {}
        work: list[tuple[Slot, Layout]] = []
        self._work = work
        for op in func.walk():
            if not self.is_lazy(op):
                operands = {position: slot for position, slot, _ in tensor_operands(op)}
                for position, layout in self.reads(op):
                    self._want(op, operands[position], layout)
        for group in dict.fromkeys(self.groups.values()):
            home = self.homes.home(group.members[0])
            if home is not None:
                for op, source in group.sources:
                    self._want(op, source, home)
        while work:
            self._follow(*work.pop())

    # What the rebuilding asks.

    def is_lazy(self, op: Op) -> bool:
        """Whether the op is computed in the layouts in which its result is wanted, not in its home."""
        slot = (op.result, 0)
        return (slot in self.flexible and slot not in self.groups) or self._is_transparent(op)

    def reads(self, op: Op, layout: Layout | None = None) -> list[tuple[int, Layout]]:
        """The layouts of the tensor operands of an op; of a lazy one, for its result in `layout`."""
        if layout is None:
            if isinstance(op, _HANDING_ON):
                return []  # The tensors are those of groups.
            home = self.homes.home((op.result, 0))
            return operand_layouts(op, home) if is_elementwise(op) and home is not None else self.homes.reads(op)
        if isinstance(op, tt.Load):
            return [(position, layout) for position, _, _ in tensor_operands(op)]
        operands = operand_layouts(op, layout)
        if isinstance(op, tt.Broadcast):
            # What is there already in the same threads, though in other registers, will do.
            slot = slot_of(op.value)
            home, type_ = self.homes.home(slot), tensor_type(slot)
            if home is not None and type_ is not None and within_threads(home, operands[0][1], type_.numel):
                return [(0, home)]
        return operands

    def wanted(self, slot: Slot) -> list[Layout]:
        """The layouts in which a slot is used, in the order in which that was found."""
        return list(self._wanted.get(slot, ()))

    def carried(self, slot: Slot) -> list[Layout | None]:
        """The layouts in which control flow hands on a slot of a group: [None] of a scalar."""
        group = self.groups[slot]
        if tensor_type(slot) is None:
            return [None]
        home = self.homes.home(group.members[0])
        return [home] if home is not None else list(self._carried.get(group, ()))

    def is_late(self, slot: Slot, layout: Layout) -> bool:
        """Whether a slot in a layout comes from a conversion, so that it is made only where it is needed."""
        key = (slot, layout)
        found = self._late.get(key)
        if found is None:
            found = self._late[key] = self._is_late(slot, layout)
        return found

    # Finding out.

    def _is_transparent(self, op: Op) -> bool:
        return is_shaping(op) or (is_widening(op) and isinstance(op.result.type, TensorType))

    def _want(self, user: Op, slot: Slot, layout: Layout) -> None:
        self.needs.setdefault(user.result, []).append((slot, layout))
        known = self._wanted.setdefault(slot, {})
        if layout not in known:
            known[layout] = None
            self._work.append((slot, layout))

    def _follow(self, slot: Slot, layout: Layout) -> None:
        group = self.groups.get(slot)
        if group is not None:
            if slot in self.flexible and layout not in self._carried.setdefault(group, {}):
                self._carried[group][layout] = None
                for op, source in group.sources:
                    self._want(op, source, layout)
            return
        value = slot[0]
        assert isinstance(value, OpResult)
        if self.is_lazy(value.op):
            for position, wanted in self.reads(value.op, layout):
                self._want(value.op, slot_of(value.op.operands[position]), wanted)

    def _is_late(self, slot: Slot, layout: Layout) -> bool:
        if slot in self.flexible:
            return False
        if slot not in self.groups:
            value = slot[0]
            assert isinstance(value, OpResult)
            if self.is_lazy(value.op):
                reads = self.reads(value.op, layout)
                return any(self.is_late(slot_of(value.op.operands[position]), wanted) for position, wanted in reads)
        return layout != self.homes.home(slot)
