"""From which parameters of the kernel each pointer may come, and what that says about the order of programs.

Pointers are followed backward through arithmetic, tuples, loops, branches and calls, whatever the path taken: the
answer is a set of parameters. A pointer that was loaded from memory or made from a number has no known origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from ziggurat.backend.reference.memory import Memory, Origin, Region
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.codemodel.traits import Loop, MemoryRead, MemoryWrite
from ziggurat.codemodel.types import DescriptorType, PtrType, TupleType, Type, element_of

_UNKNOWN = -1
_Node = tuple[Value, int]  # A leaf of a value: values that are no tuples have one leaf, 0.


def _leaves(type_: Type) -> int:
    return sum(map(_leaves, type_.components)) if isinstance(type_, TupleType) else 1


def _nodes(value: Value) -> list[_Node]:
    return [(value, leaf) for leaf in range(_leaves(value.type))]


def _component(value: Value, index: int) -> list[_Node]:
    type_ = value.type
    assert isinstance(type_, TupleType)
    start = sum(map(_leaves, type_.components[:index]))
    return [(value, start + leaf) for leaf in range(_leaves(type_.components[index]))]


def _joined(values: Iterable[Value]) -> list[_Node]:
    return [node for value in values for node in _nodes(value)]


def _has_pointers(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return any(map(_has_pointers, type_.components))
    return isinstance(type_, DescriptorType) or isinstance(element_of(type_), PtrType)


def _terminated_by(body: Body, *classes: type[Op]) -> Iterator[Op]:
    """The terminators of these classes by which a body is left, from any depth for `tt.return`."""
    for op in body.walk():
        if isinstance(op, classes) and (isinstance(op, tt.Return) or op.parent in body.blocks):
            yield op


class Origins:
    """The origins of the pointers of a kernel and of the functions it calls."""

    def __init__(self, kernel: Op, functions: Mapping[str, Op]) -> None:
        self._functions = functions
        self._from: dict[_Node, set[_Node]] = {}
        self._known: dict[_Node, set[int]] = {}
        self.reached = _reached(kernel, functions)
        for index, parameter in enumerate(kernel.bodies[0].parameters):
            if isinstance(parameter.type, PtrType | DescriptorType):
                self._known[(parameter, 0)] = {index}
        for function in self.reached:
            for op in function.bodies[0].walk():
                self._follow(op)
        self._solve()

    def of(self, value: Value) -> Origin:
        """The parameters that a pointer or descriptor may come from."""
        found = self._known.get((value, 0), set())
        return Origin(None if _UNKNOWN in found or not found else tuple(sorted(found)))

    def _flow(self, sources: list[_Node], targets: list[_Node]) -> None:
        for source, target in zip(sources, targets, strict=False):
            self._from.setdefault(target, set()).add(source)

    def _follow(self, op: Op) -> None:
        result = _nodes(op.result)
        for successor in op.successors:
            self._flow(_joined(successor.arguments), _joined(successor.block.parameters))
        if isinstance(op, scf.For | scf.While):
            bodies = [op.body] if isinstance(op, scf.For) else [op.before, op.after]
            skip = 1 if isinstance(op, scf.For) else 0
            sources = [list(op.initial)]
            for body in bodies:
                sources += [list(t.operands) for t in _terminated_by(body, scf.Yield)]
                sources += [list(t.operands[1:]) for t in _terminated_by(body, scf.Condition)]
            for values in sources:
                self._flow(_joined(values), result)
                for body in bodies:
                    self._flow(_joined(values), _joined(body.parameters[skip:]))
        elif isinstance(op, scf.If):
            for body in op.bodies:
                for terminator in _terminated_by(body, scf.Yield):
                    self._flow(_joined(terminator.operands), result)
        elif isinstance(op, tt.Call):
            function = self._functions.get(op.callee)
            if function is not None:
                self._flow(_joined(op.operands), _joined(function.bodies[0].parameters))
                for terminator in _terminated_by(function.bodies[0], tt.Return):
                    self._flow(_joined(terminator.operands), result)
        elif isinstance(op, core.MakeTuple):
            self._flow(_joined(op.operands), result)
        elif isinstance(op, core.TupleLoad):
            self._flow(_component(op.tuple, op.index), result)
        elif isinstance(op, core.TupleWith):
            replaced = _component(op.tuple, op.index)
            self._flow([node for node in _nodes(op.tuple) if node not in replaced], result)
            offset = replaced[0][1] if replaced else 0
            self._flow(_nodes(op.value), [(op.result, offset + leaf) for leaf in range(len(replaced))])
            self._flow(_nodes(op.tuple), result)
        elif _has_pointers(op.result.type):
            if isinstance(op, tt.IntToPtr | MemoryRead) or op.bodies:
                for node in result:
                    self._known.setdefault(node, set()).add(_UNKNOWN)
            else:
                for value in op.operands:
                    for node in _nodes(value):
                        for target in result:
                            self._flow([node], [target])

    def _solve(self) -> None:
        users: dict[_Node, list[_Node]] = {}
        for target, sources in self._from.items():
            for source in sources:
                users.setdefault(source, []).append(target)
        work = list(self._known)
        while work:
            node = work.pop()
            for target in users.get(node, ()):
                known = self._known.setdefault(target, set())
                before = len(known)
                known |= self._known[node]
                if len(known) > before:
                    work.append(target)


def _reached(kernel: Op, functions: Mapping[str, Op]) -> list[Op]:
    """The kernel and the functions that it calls, directly or not."""
    found = [kernel]
    names = set[str]()
    for function in found:
        for op in function.bodies[0].walk():
            if isinstance(op, tt.Call) and op.callee in functions and op.callee not in names:
                names.add(op.callee)
                found.append(functions[op.callee])
    return found


@attrs.frozen
class _Use:
    """An op that accesses a region; `once` when each program runs it at most once."""

    op: Op
    once: bool


def _in_cycle(block: Block) -> bool:
    """True when a block of an unstructured body may run again."""
    blocks = block.parent.blocks
    return len(blocks) > 1 and any(target.index <= source.index for source in blocks for target in source.successors)


def _runs_once(op: Op, kernel: Op) -> bool:
    while True:
        if op.parent is None:
            return op is kernel
        if _in_cycle(op.parent):
            return False
        outer = op.parent_op
        if outer is None or outer is kernel:
            return outer is kernel
        if isinstance(outer, Loop | tt.Combining):
            return False
        op = outer


def needs_order(kernel: Op, origins: Origins, memory: Memory) -> list[Region]:
    """The regions where running programs together could differ from running them one after the other.

    Not those that are only read, and not those that a single op accesses, once a program: it keeps the programs' order.
    """
    uses: dict[int, list[_Use]] = {id(region): [] for region in memory.regions}
    for function in origins.reached:
        for op in function.bodies[0].walk():
            if isinstance(op, MemoryRead | MemoryWrite):
                once = function is kernel and _runs_once(op, kernel)
                for region in memory.regions_from(origins.of(op.operands[0])):
                    uses[id(region)].append(_Use(op, once))
    found: list[Region] = []
    for region in memory.regions:
        here = uses[id(region)]
        written = any(isinstance(use.op, MemoryWrite) for use in here)
        if written and not (len(here) == 1 and here[0].once):
            found.append(region)
    return found
