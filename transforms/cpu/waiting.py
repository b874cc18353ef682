"""Loops that wait until another program has written to memory, and loops that never end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ziggurat.codemodel.dialects import cpu, scf, tt
from ziggurat.codemodel.graphs import inverse, reached
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Value, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator, MemoryRead, MemoryWrite, Pure, Returns
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.analysis.queries import constant_of

# Atomics that leave the memory as it is, if they are done again.
_LASTING = (
    tt.AtomicKind.AND, tt.AtomicKind.OR, tt.AtomicKind.MAX, tt.AtomicKind.MIN, tt.AtomicKind.UMAX, tt.AtomicKind.UMIN,
    tt.AtomicKind.FMAX, tt.AtomicKind.FMIN, tt.AtomicKind.XCHG,
)  # fmt: skip
_STEADY = (Pure, Structured, BodyTerminator)  # They give the same for the same operands.
_NEUTRAL = (tt.AtomicKind.ADD, tt.AtomicKind.FADD, tt.AtomicKind.XOR)  # If their operand is 0.


def mark_waiting(module: Op) -> Op:
    """The module with `cpu.waits` at the beginning of each loop that only another program's write can end, or nothing.

    Such a loop tests memory that it does not write itself, or conditions that it never changes.

    Programs with such a loop run in their order on one thread: a program sees what earlier ones have written. It cannot
    wait for a later one, so that the loop is an error after some iterations, as it is in the interpreter.
    """
    bodies = [body for op in module.walk() for body in op.bodies if len(body.blocks) > 1]
    loops = {op.before.entry: _kind_of(op) for op in module.walk() if isinstance(op, scf.While)}
    loops |= {header: _kind_of_blocks(blocks) for body in bodies for header, blocks in _loops(body)}
    kinds = {header.ops[0]: kind for header, kind in loops.items() if kind is not None}
    if not kinds:
        return module

    def mark(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in kinds:
            builder.add(cpu.Waits(memory=kinds[op]), op.location)
        return None

    return transform(module, mark, pass_name="waiting")


def _kind_of(loop: scf.While) -> bool | None:
    """The kind of a structured loop, as `_kind` has it. Its loads may be before it."""
    if loop.jumps:
        return None
    first, second = loop.before.entry, loop.after.entry
    condition, *operands = first.terminator.operands
    yielded = second.terminator.operands
    same = [
        parameters
        for *parameters, operand, last in zip(first.parameters, second.parameters, operands, yielded, strict=True)
        if operand is parameters[0] and last is parameters[1]
    ]
    incoming: dict[Value, list[Value]] = {p: [value] for p, value in zip(second.parameters, operands, strict=True)}
    incoming |= {parameter: [value] for parameter, value in zip(first.parameters, yielded, strict=True)}
    incoming |= {parameter: [parameter] for parameters in same for parameter in parameters}
    return _kind([*first.ops, *second.ops], incoming, [condition])


def _loops(body: Body) -> Iterator[tuple[Block, list[Block]]]:
    """The loops among blocks: the block where each begins, and all its blocks, once for each branch back."""
    successors = {block: [successor.block for successor in block.terminator.successors] for block in body.blocks}
    before = inverse(successors)
    for last, targets in successors.items():
        for header in targets:
            forward = reached([header], successors.__getitem__)
            if last in forward:
                back = reached([last], lambda block, header=header: () if block is header else before.get(block, ()))
                inside = back & forward
                yield header, [block for block in body.blocks if block in inside]


def _kind_of_blocks(blocks: Sequence[Block]) -> bool | None:
    """The kind of a loop of blocks, as `_kind` has it."""
    inside = set(blocks)
    incoming: dict[Value, list[Value]] = {parameter: [] for block in blocks for parameter in block.parameters}
    conditions: list[Value] = []
    for block in blocks:
        conditions += block.terminator.operands
        for successor in block.terminator.successors:
            if successor.block in inside:
                for parameter, value in zip(successor.block.parameters, successor.arguments, strict=True):
                    incoming[parameter].append(value)
    return _kind([op for block in blocks for op in block.ops], incoming, conditions)


def _kind(ops: Sequence[Op], incoming: Mapping[Value, Sequence[Value]], conditions: Sequence[Value]) -> bool | None:
    """Whether another program's write ends a loop (True), or nothing does (False); None for any other loop."""
    waits = _stays(ops, incoming, conditions, memory=True)
    if _stays(ops, incoming, conditions, memory=False) and not (waits and _from_memory(conditions)):
        return False
    return waits or None


def _from_memory(values: Sequence[Value]) -> bool:
    """Whether values may depend on what was read from memory."""
    sources = reached(values, lambda value: _owner(value).used_values())
    owners = ((value, _owner(value)) for value in sources)
    # Arguments of the kernel do not.
    computing = {op for value, op in owners if not isinstance(op, tt.Func) or value.block is not op.body.entry}
    return any(isinstance(op, MemoryRead) for outer in computing for op in outer.walk())


def _owner(value: Value) -> Op:
    """The op whose result it is, or whose bodies have it as a parameter."""
    owner = value.op if isinstance(value, OpResult) else expect(value, BlockParameter).owner
    assert owner is not None
    return owner


def _stays(
    ops: Sequence[Op], incoming: Mapping[Value, Sequence[Value]], conditions: Sequence[Value], memory: bool
) -> bool:
    """Whether the conditions of a loop stay as they are from some iteration on: if `memory`, as long as memory does,
    which the loop does not change. `incoming` has the values that parameters get within the loop."""
    inner = [op for outer in ops for op in outer.walk()]
    if any(isinstance(op, MemoryWrite) and not _lasts(op) if memory else isinstance(op, Returns) for op in inner):
        return False
    changing: set[Value] = {*(op.result for op in ops), *incoming}
    free = {
        op.result
        for op in ops
        if any(isinstance(i, tt.GlobalTimer) if memory else not isinstance(i, _STEADY) for i in op.walk())
    }
    # Values that are computed from lasting ones are lasting, if memory is. An inner loop or branch is one op.
    while True:
        lasting = {op.result for op in ops if op.result in changing and changing.isdisjoint(op.used_values())} - free
        lasting |= {
            parameter
            for parameter, values in incoming.items()
            if parameter in changing and all(value is parameter or value not in changing for value in values)
        }
        if not lasting:
            return changing.isdisjoint(conditions)
        changing -= lasting


def _lasts(op: Op) -> bool:
    """Whether an op changes nothing if it is done again at once."""
    if isinstance(op, tt.AtomicRMW):
        return op.kind in _LASTING or (op.kind in _NEUTRAL and constant_of(op.value) == 0)
    return isinstance(op, tt.AtomicCAS)
