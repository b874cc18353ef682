"""The control flow of a kernel as a graph, and the parts of shared memory that its ops touch.

    %b : shared<n3, x64, x64, f16, "…"> = gpu.local_alloc;        a ring of three slots, which a loop uses in turn
    %v : shared<x64, x64, f16, "…"> = gpu.local_view %b %slot;    the slot of this index

`barriers` and `hazards` propagate states along the edges of the graph. `SlotNumbers` computes the indices of slots,
where a path decides them: a loop carries the index of the next slot from 0 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import Asynchronous
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import i32, scalar_element
from ziggurat.transforms.analysis.components import Component, component_of, components_of, groups_of
from ziggurat.transforms.analysis.queries import constant_of, owners_of, shared_of


def allocation(buffer: Value) -> Value:
    """The allocation that a buffer is part of."""
    while isinstance(buffer.op, gpu.LocalView | gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer


def slot_index(buffer: Value) -> Value | None:
    """The index of the slot that a buffer is; None for a buffer that is no slot of a ring."""
    while isinstance(buffer.op, gpu.LocalTrans):
        buffer = buffer.op.buffer
    return buffer.op.index if isinstance(buffer.op, gpu.LocalView) else None


def read_in_flight(op: Op) -> list[Value]:
    """The allocations that an asynchronous op reads until the wait for it."""
    return [allocation(buffer) for buffer in op.in_flight if buffer in op.reads] if isinstance(op, Asynchronous) else []


def users_of(buffer: Value) -> Iterator[Op]:
    """The ops that use a buffer, a part of it, or it with its axes in another order."""
    for user in buffer.uses:
        if isinstance(user, gpu.LocalView | gpu.LocalTrans):
            yield from users_of(user.result)
        else:
            yield user


def last_of(op: Op, readers: Iterable[Op]) -> Op:
    """The last op of the block of an op that is one of these readers, or has one inside."""
    block = op.parent
    assert block is not None
    inside = {op for reader in readers for op in (reader, *reader.path())}
    return next(inner for inner in reversed(block.ops) if inner in inside)


def interval(alloc: Value) -> tuple[int, int]:
    """The bytes of an allocation; all bytes if it is not known."""
    if not isinstance(alloc.op, gpu.LocalAlloc):
        return 0, 1 << 40
    return alloc.op.offset, alloc.op.offset + shared_of(alloc).bytes


@attrs.frozen
class SharedAccess:
    """The bytes of shared memory that an op touches."""

    op: Op
    start: int
    end: int

    def overlaps(self, other: SharedAccess) -> bool:
        """Whether both touch some byte."""
        return self.start < other.end and other.start < self.end


@attrs.frozen(eq=False)
class Node:
    """An op that matters, or a place where paths meet; `depth` is the number of loops around it, and `following` has
    the numbers of the nodes to which paths go on. `handed` are the values that the bodies of `owner` hand on here, each
    with the component that it becomes."""

    op: Op | None
    depth: int
    following: list[int] = attrs.field(factory=list[int])
    handed: tuple[tuple[Component, Value], ...] = ()
    owner: Op | None = None


class Graph:
    """The ops of some classes in a function, and the paths between them. Node 0 is the entry.

    Warp roles are alternative paths: they run side by side, and mbarriers order what they share. The paths meet in a
    node of the `gpu.warp_specialize`.
    """

    def __init__(self, body: Body, kinds: tuple[type, ...]) -> None:
        self.kinds = kinds
        self.nodes: list[Node] = []
        self._body(body, self._add(None, 0), 0)

    def _add(self, op: Op | None, depth: int, *sources: int) -> int:
        self.nodes.append(Node(op, depth))
        for source in sources:
            self.nodes[source].following.append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def _body(self, body: Body, start: int, depth: int) -> list[int]:
        """Add a body, entered from a node; the last node before each terminator by which it is left."""
        starts: dict[Block, int] = {block: self._add(None, depth) for block in body.blocks[1:]}
        starts[body.entry] = start
        exits: list[int] = []
        for block in body.blocks:
            at = starts[block]
            for op in block.ops:
                at = self._op(op, at, depth)
            self.nodes[at].following.extend(starts[successor] for successor in block.successors)
            if not block.terminator.successors:
                exits.append(at)
        return exits

    def _op(self, op: Op, at: int, depth: int) -> int:
        """Add an op after a node; the last node of it."""
        if isinstance(op, gpu.WarpSpecialize):
            return self._add(op, depth, *(end for body in op.roles for end in self._body(body, at, depth)))
        if not isinstance(op, Structured):
            return self._add(op, depth, at) if isinstance(op, self.kinds) else at
        depth += isinstance(op, Loop)
        starts: dict[Body, int] = {}
        ends: list[tuple[Body | None, int]] = [(None, at)]
        for body in op.bodies:
            starts[body] = self._add(None, depth)
            ends += [(body, end) for end in self._body(body, starts[body], depth)]
        after = self._add(None, depth)
        for before, node in ends:
            for body in op.following(before):
                if before is body is None and runs(op):
                    continue
                target = after if body is None else starts[body]
                if handed := _handed(op, before, body):
                    self.nodes.append(Node(None, depth, [target], handed, op))
                    target = len(self.nodes) - 1
                self.nodes[node].following.append(target)
        return after


def runs(loop: Op) -> bool:
    """Whether a loop is known to have an iteration: it stands in a branch that tests for it."""
    owner = loop.parent_op
    if not isinstance(loop, scf.For) or not isinstance(owner, scf.If) or loop.parent is not owner.then.entry:
        return False
    test, step = owner.condition.op, constant_of(loop.step)
    if not isinstance(test, arith.CmpI) or not isinstance(step, int) or test.operands != (loop.start, loop.stop):
        return False
    return test.predicate is (arith.IntPredicate.SLT if step > 0 else arith.IntPredicate.SGT)


def _handed(op: Structured, before: Body | None, after: Body | None) -> tuple[tuple[Component, Value], ...]:
    """The i32 values that a body, or the op itself, hands to a body or to the result."""
    values = op.inits
    if before is not None:
        terminators = op.terminators(before)
        if len(terminators) != 1:
            return ()
        values = terminators[0].handed
    components: Sequence[Component] = components_of(op.result)
    if after is not None:
        components = [(parameter, 0) for parameter in op.entry_arguments(after)] if op.inits else ()
    pairs = zip(components, values, strict=False)
    return tuple((component, value) for component, value in pairs if value.type == i32)


# The indices of slots.

Numbers = frozenset[tuple[Component, int]]  # The numbers that are known at a point of a path.
_MAX_NUMBER = 64  # No ring has more slots. A counter that grows is not followed further.


class SlotNumbers:
    """The numbers of the slots that the ops of a function touch, on the path that leads to an op."""

    def __init__(self, func: Op) -> None:
        self._groups = groups_of(func)
        indices = [op.index for op in func.walk() if isinstance(op, gpu.LocalView)]
        self._followed = set(reached(map(component_of, indices), self._sources))
        self._outer = {component: set(owners_of(component[0])) for component in self._followed}
        self._results: dict[tuple[Op, tuple[int, ...]], int] = {}
        self._slots: dict[tuple[Value, Numbers], int | None] = {}
        self._after: dict[tuple[int, Numbers], Numbers] = {}

    def _sources(self, component: Component) -> list[Component]:
        if component in self._groups:
            return [source for _, source in self._groups[component].sources]
        op = component[0].op
        return [component_of(value) for value in op.operands] if isinstance(op, _COMPUTED) else []

    def after(self, node: Node, numbers: Numbers) -> Numbers:
        """The numbers that are known after control flow has handed values on. Those of the bodies that it has left, or
        begins anew, are not."""
        handed = [(component, value) for component, value in node.handed if component in self._followed]
        if not handed:
            return numbers
        if (id(node), numbers) not in self._after:
            known = dict(numbers)
            new = [(component, self._number(component_of(value), known)) for component, value in handed]
            self._after[id(node), numbers] = frozenset(
                (component, number)
                for component, number in (*(item for item in numbers if node.owner not in self._outer[item[0]]), *new)
                if number is not None and 0 <= number < _MAX_NUMBER
            )
        return self._after[id(node), numbers]

    def slot(self, buffer: Value, numbers: Numbers) -> int | None:
        """The number of the slot that a buffer is; None if it is not known."""
        index = slot_index(buffer)
        if index is None:
            return 0 if shared_of(allocation(buffer)).count == 1 else None
        if (index, numbers) not in self._slots:
            self._slots[index, numbers] = self._number(component_of(index), dict(numbers))
        return self._slots[index, numbers]

    def _number(self, component: Component, known: Mapping[Component, int | None]) -> int | None:
        if component in known or component in self._groups:
            return known.get(component)
        op = component[0].op
        if isinstance(op, arith.ConstantOp):
            return int(op.value) if isinstance(op.value, int) else None
        if not isinstance(op, _COMPUTED) or component not in self._followed:
            return None
        operands = [self._number(component_of(value), known) for value in op.operands]
        if isinstance(op, arith.Select):
            return None if operands[0] is None else operands[1 if operands[0] else 2]
        if None in operands:
            return None
        key = op, tuple(number for number in operands if number is not None)
        if key not in self._results:
            from ziggurat.codemodel.scalars import MEANINGS, array_of  # It imports NumPy.

            arrays = [array_of(n, scalar_element(v.type)) for n, v in zip(key[1], op.operands, strict=True)]
            self._results[key] = int(MEANINGS[op](op, *arrays)[0])
        return self._results[key]


_COMPUTED = (arith.Select, arith.CmpI, arith.AddI, arith.SubI, arith.XOrI)
