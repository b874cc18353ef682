"""Dataflow: the origins of values and the values computed from them, through loops, branches, blocks and calls.

    x = model.bodies[0].parameters[0]
    derived(x)        # every value computed from x
    origins(value)    # the parameters, constants and other values without operands that a value is computed from

The answers hold for all paths: a value counts when some execution computes it from the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from types import UnionType

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.graphs import inverse, reached
from ziggurat.codemodel.op import Block, BlockParameter, Op, OpResult, Value, require_argument
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite, Returns, Symbol, SymbolTable
from ziggurat.codemodel.types import DescriptorType, PtrType, TupleType, element_of, void

Through = Callable[[Op], bool]
Node = tuple[Value, int]  # A component of a value; 0 of a value that is no Tuple.


def derived(value: Value, through: Through = lambda op: True) -> tuple[Value, ...]:
    """The values computed from `value`, itself first, in the order of the model.

    `through` says which ops count: `lambda op: not isinstance(op, MemoryRead)` leaves out what is read from memory.
    """
    root = _root(value, through)
    edges = flow(root, through)
    followers = reached(nodes(value), lambda node: edges.get(node, ()))
    return tuple(
        v for v in dict.fromkeys((value, *_values(root))) if v is value or any(n in followers for n in nodes(v))
    )


def origins(value: Value, through: Through = lambda op: True) -> tuple[Value, ...]:
    """The values without origins of their own that `value` is computed from, in the order of the model.

    These are the parameters of functions that nothing calls, and the results of ops without operands or for which
    `through` does not hold.
    """
    root = _root(value, through)
    sources = inverse(flow(root, through))
    ends = {node[0] for node in reached(nodes(value), lambda node: sources.get(node, ())) if node not in sources}
    return tuple(v for v in _values(root) if v in ends)


def written_parameters(kernel: Op) -> tuple[int, ...]:
    """The numbers of the parameters of a `tt.func`, pointers and descriptors, through which it may write memory.

    These are the origins of what its stores and atomic ops, and those of the functions it calls, write through, and of
    the pointers that inline assembly with effects is given.
    """
    return tuple(sorted(addressing_parameters(kernel, MemoryWrite)))


def read_parameters(kernel: Op) -> tuple[int, ...]:
    """The numbers of the parameters of a `tt.func`, pointers and descriptors, through which it may read memory."""
    return tuple(sorted(addressing_parameters(kernel, MemoryRead)))


def addressing_parameters(kernel: Op, kind: type | UnionType = MemoryRead | MemoryWrite) -> Mapping[int, Set[int]]:
    """For each parameter of a `tt.func` through which it may access memory, by number: the numbers of the parameters
    that the addresses of these accesses depend on. `kind` says which accesses count."""
    numbers: dict[Node, int] = {(parameter, 0): parameter.index for parameter in kernel.bodies[0].parameters}
    sources = inverse(flow(kernel.root(), lambda op: not isinstance(op, MemoryRead)))
    addressing: dict[int, set[int]] = {}
    for op in kernel.root().walk():
        effect = isinstance(op, kind) or (isinstance(op, tt.InlineAsm) and not op.is_pure)
        for operand in op.operands if effect else ():
            if _is_address(operand):
                reaching = reached(nodes(operand), lambda node: sources.get(node, ()))
                parameters = [node for node in reaching if node in numbers]
                for pointer in parameters:
                    if _is_address(pointer[0]):
                        addressing.setdefault(numbers[pointer], set()).update(numbers[node] for node in parameters)
    return addressing


def _is_address(value: Value) -> bool:
    return isinstance(element_of(value.type), PtrType) or isinstance(value.type, DescriptorType)


def _root(value: Value, through: object) -> Op:
    hint = "give op.result, or one of body.parameters"
    require_argument(value, Value, "'value' must be a Value", hint)
    require_argument(through, callable(through), "'through' must be a function that says of an op whether it counts")
    if isinstance(value, OpResult):
        return value.op.root()
    block = value.block
    assert block is not None and block.parent.parent is not None
    return block.parent.parent.root()


def _values(root: Op) -> Iterator[Value]:
    for op in root.walk():
        if op is not root and op.result.type != void:
            yield op.result
        for body in op.bodies:
            for block in body.blocks:
                yield from block.parameters


def nodes(value: Value) -> list[Node]:
    """The components of a value."""
    count = len(value.type.components) if isinstance(value.type, TupleType) else 1
    return [(value, index) for index in range(count)]


def flow(root: Op, through: Through) -> dict[Node, list[Node]]:
    """The nodes that each node flows into directly."""
    edges: dict[Node, list[Node]] = {}
    functions = root.functions() if isinstance(root, SymbolTable) else {}
    for op in root.walk():
        for successor in op.successors:
            for source, target in zip(successor.arguments, successor.block.parameters, strict=True):
                _join(source, target, edges)
        if isinstance(op, Structured):
            _structured_flow(op, edges)
        elif isinstance(op, core.TupleLoad):
            edges.setdefault((op.tuple, op.index), []).extend(nodes(op.result))
        elif isinstance(op, core.MakeTuple):
            for index, component in enumerate(op.components):
                for node in nodes(component):
                    edges.setdefault(node, []).append((op.result, index))
        elif isinstance(op, tt.Call | core.FuncCall):
            callee = functions.get(op.callee)
            if callee is not None:
                for source, target in zip(op.arguments, callee.bodies[0].parameters, strict=False):
                    _join(source, target, edges)
                for returns in (inner for inner in callee.walk() if isinstance(inner, Returns)):
                    _hand(returns.operands, op.result, edges)
        elif not isinstance(op, Symbol) and through(op):
            targets = nodes(op.result) if op.result.type != void else []
            for body in op.bodies:  # The body of a reduction takes the elements of the operands.
                targets += [node for parameter in body.parameters for node in nodes(parameter)]
            for operand in op.operands:
                for node in nodes(operand):
                    edges.setdefault(node, []).extend(targets)
    return edges


def _join(source: Value, target: Value, edges: dict[Node, list[Node]]) -> None:
    """Let the components of a value flow into those of another."""
    for node, following in zip(nodes(source), nodes(target), strict=False):
        edges.setdefault(node, []).append(following)


def _hand(values: tuple[Value, ...], result: Value, edges: dict[Node, list[Node]]) -> None:
    """Let several values flow into a result that packs them."""
    if len(values) == 1:
        _join(values[0], result, edges)
        return
    for index, value in enumerate(values):
        for node in nodes(value):
            edges.setdefault(node, []).append((result, index))


def _structured_flow(op: Structured, edges: dict[Node, list[Node]]) -> None:
    for values in (op.inits, *(terminator.handed for terminator in op.terminators())):
        for body in op.bodies:
            for source, target in zip(values, op.entry_arguments(body), strict=False):
                _join(source, target, edges)
        _hand(values, op.result, edges)
    for body in op.bodies:
        for parameter in body.parameters[: op.LEADING]:
            for control in op.controls:
                edges.setdefault((control, 0), []).append((parameter, 0))


def parameter_number(value: Value) -> int | None:
    """The number of a function's parameter; None for any other value."""
    if not isinstance(value, BlockParameter):
        return None
    block: Block = value.block
    return value.index if isinstance(block.parent.parent, Symbol) and block is block.parent.entry else None
