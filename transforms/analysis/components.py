"""Components: the values that get a layout, and the groups that must share one because control flow joins them.

A component is a value, or one component of a value of a Tuple type; `tuple.load` gives the component itself. The
members of a group are the block parameters and results of one loop-carried variable, or of one result of a branch. Its
sources are the values passed to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.op import Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.types import TensorType, component_types

Component = tuple[Value, int]


def component_of(value: Value) -> Component:
    """The component that a value which is no Tuple stands for, through the ops that make Tuples and load from them."""
    while isinstance(value.op, core.TupleLoad):
        load = value.op
        whole = load.tuple
        if not isinstance(whole, OpResult) or isinstance(whole.op, core.TupleLoad | core.TupleWith):
            raise InternalError("a Tuple that is more than the results of one op", str(load.root()))
        if not isinstance(whole.op, core.MakeTuple):
            return whole, load.index
        value = whole.op.components[load.index]
    return value, 0


def components_of(value: Value) -> tuple[Component, ...]:
    """The components of the result of an op, or of a parameter."""
    return tuple((value, index) for index in range(len(component_types(value.type))))


def tensor_type(component: Component) -> TensorType | None:
    """The type of a component that is a tensor; None for others."""
    value, index = component
    type_ = component_types(value.type)[index]
    return type_ if isinstance(type_, TensorType) else None


def tensor_operands(op: Op) -> list[tuple[int, Component, TensorType]]:
    """The operands of an op that are tensors: position, component and type."""
    operands = enumerate(op.operands)
    return [(at, component_of(value), value.type) for at, value in operands if isinstance(value.type, TensorType)]


@attrs.frozen(eq=False)
class ComponentGroup:
    """Components that control flow joins. A source is an op and the component that it passes on, inner ops first."""

    members: tuple[Component, ...]
    sources: tuple[tuple[Op, Component], ...]


def groups_of(func: Op) -> dict[Component, ComponentGroup]:
    """The group of each component that has one, scalars included."""
    groups: dict[Component, ComponentGroup] = {}
    for op in func.walk():
        for group in _structured_groups(op) if isinstance(op, Structured) else ():
            for member in group.members:
                groups[member] = group
        for body in op.bodies:
            for group in _block_groups(body):
                groups[group.members[0]] = group
    return groups


class Propagation:
    """Ops and groups that are visited in rounds, until none changes any more."""

    def __init__(self, items: Sequence[Op | ComponentGroup]) -> None:
        self.items = items
        self._readers: dict[Component, list[int]] = {}
        for at, item in enumerate(items):
            if isinstance(item, ComponentGroup):
                read = [source for _, source in item.sources]
            else:
                read = [component_of(value) for value in item.operands if len(component_types(value.type)) == 1]
            for component in read:
                self._readers.setdefault(component, []).append(at)

    def run(self, visit: Callable[[Op | ComponentGroup], Iterable[Component]]) -> None:
        """Visit all items, and again those that are to be visited again.

        `visit` returns the components whose facts it changed. An item is visited again only when a component that it
        reads has changed: later in the same round if it comes later in `items`, else in the next round. So the number
        of visits grows with the number of changes, and not with the number of rounds.
        """
        work = [(0, at) for at in range(len(self.items))]  # Rounds and items.
        waiting = set(range(len(self.items)))
        while work:
            count, at = heappop(work)
            waiting.discard(at)
            for component in visit(self.items[at]):
                for reader in self._readers.get(component, ()):
                    if reader not in waiting:
                        waiting.add(reader)
                        heappush(work, (count + (reader <= at), reader))


def _structured_groups(op: Structured) -> Iterator[ComponentGroup]:
    """The group of each value that a loop or a branch carries. Sources from inside a loop come first."""
    # The last body of a loop leads back.
    ends = [end for body in (reversed(op.bodies) if op.inits else op.bodies) for end in op.terminators(body)]
    for index in range(len(components_of(op.result))):
        arguments = [(op.entry_arguments(body)[index], 0) for body in op.bodies if op.inits]
        inner = [(end, component_of(end.handed[index])) for end in ends if isinstance(end, Op)]
        outer = [(op, component_of(value)) for value in op.inits[index : index + 1]]
        yield ComponentGroup((*arguments, (op.result, index)), (*inner, *outer))


def _block_groups(body: Body) -> Iterator[ComponentGroup]:
    """The group of each parameter of a block. Sources from inside a loop come first."""
    for block in body.blocks[1:]:
        for index, parameter in enumerate(block.parameters):
            sources: list[tuple[Op, Component]] = []
            for other in reversed(body.blocks):
                end = other.terminator
                sources += [(end, component_of(s.arguments[index])) for s in end.successors if s.block is block]
            yield ComponentGroup(((parameter, 0),), tuple(sources))
