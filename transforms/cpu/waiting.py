"""Loops that wait until another program has written to memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ziggurat.codemodel.dialects import arith, cpu, scf, tt
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite
from ziggurat.codemodel.transform import Outcome, Rewriter, transform

# Atomics that leave the memory as it is, if they are done again.
_LASTING = (
    tt.AtomicKind.AND, tt.AtomicKind.OR, tt.AtomicKind.MAX, tt.AtomicKind.MIN, tt.AtomicKind.UMAX, tt.AtomicKind.UMIN,
    tt.AtomicKind.FMAX, tt.AtomicKind.FMIN, tt.AtomicKind.XCHG,
)  # fmt: skip
_NEUTRAL = (tt.AtomicKind.ADD, tt.AtomicKind.FADD, tt.AtomicKind.XOR)  # If their operand is 0.


def mark_waiting(module: Op) -> Op:
    """The module with `cpu.waits` at the beginning of each loop that goes on until memory has another content, and does
    not change it meanwhile.

    Programs with such a loop run in their order on one thread: a program sees what earlier ones have written. It cannot
    wait for a later one, so that the loop is an error after some iterations, as it is in the interpreter.
    """
    if not any(isinstance(op, MemoryRead) for op in module.walk()):
        return module
    found = {op.before.entry.ops[0] for op in module.walk() if isinstance(op, scf.While) and _waits(op)}
    bodies = (body for op in module.walk() for body in op.bodies if len(body.blocks) > 1)
    found |= {header.ops[0] for body in bodies for header, blocks in _loops(body) if _blocks_wait(blocks)}
    if not found:
        return module

    def mark(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in found:
            builder.add(cpu.Waits(), op.location)
        return None

    return transform(module, mark, pass_name="waiting")


def _waits(loop: scf.While) -> bool:
    """Whether a structured loop goes on until memory has another content. Its loads may be before it."""
    if any(len(body.blocks) > 1 for body in loop.bodies):
        return False
    first, second = loop.before.entry, loop.after.entry
    condition, *handed = first.terminator.operands
    yielded = second.terminator.operands
    same = [
        parameters
        for *parameters, given, last in zip(first.parameters, second.parameters, handed, yielded, strict=True)
        if given is parameters[0] and last is parameters[1]
    ]
    incoming: dict[Value, list[Value]] = {p: [value] for p, value in zip(second.parameters, handed, strict=True)}
    incoming |= {parameter: [value] for parameter, value in zip(first.parameters, yielded, strict=True)}
    incoming |= {parameter: [parameter] for parameters in same for parameter in parameters}
    return _stays([*first.ops, *second.ops], incoming, [condition])


def _loops(body: Body) -> Iterator[tuple[Block, list[Block]]]:
    """The loops among blocks: the block where each begins, and all its blocks, once for each branch back."""
    successors = {block: [successor.block for successor in block.terminator.successors] for block in body.blocks}

    def reached(start: Block, following: Mapping[Block, Sequence[Block]], without: Block | None) -> set[Block]:
        seen, waiting = {start}, [start]
        while waiting:
            more = [block for block in following[waiting.pop()] if block not in seen and block is not without]
            seen.update(more)
            waiting += more
        return seen

    before: dict[Block, list[Block]] = {block: [] for block in body.blocks}
    for block, targets in successors.items():
        for target in targets:
            before[target].append(block)
    for last, targets in successors.items():
        for header in targets:
            forward = reached(header, successors, None)
            if last in forward:
                inside = {header} | (reached(last, before, header) if last is not header else set[Block]()) & forward
                yield header, [block for block in body.blocks if block in inside]


def _blocks_wait(blocks: Sequence[Block]) -> bool:
    """Whether a loop of blocks goes on until memory has another content."""
    inside = set(blocks)
    incoming: dict[Value, list[Value]] = {parameter: [] for block in blocks for parameter in block.parameters}
    conditions: list[Value] = []
    for block in blocks:
        conditions += block.terminator.operands
        for successor in block.terminator.successors:
            if successor.block in inside:
                for parameter, value in zip(successor.block.parameters, successor.arguments, strict=True):
                    incoming[parameter].append(value)
    return _stays([op for block in blocks for op in block.ops], incoming, conditions)


def _stays(ops: Sequence[Op], incoming: Mapping[Value, Sequence[Value]], conditions: Sequence[Value]) -> bool:
    """Whether the conditions of a loop stay as they are from some iteration on, if memory does, which the loop does not
    change. `incoming` has the values that parameters get within the loop."""
    if any(isinstance(op, MemoryWrite) and not _lasts(op) for outer in ops for op in outer.walk()):
        return False
    changing: set[Value] = {*(op.result for op in ops), *incoming}
    # Values that are computed from lasting ones are lasting, if memory is. An inner loop or branch is one op.
    while True:
        lasting = {op.result for op in ops if op.result in changing and changing.isdisjoint(op.used_values())}
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
        return op.kind in _LASTING or (op.kind in _NEUTRAL and _number(op.value) == 0)
    return isinstance(op, tt.AtomicCAS)


def _number(value: Value) -> object:
    """The value of a constant, or of a tensor of one."""
    while isinstance(value, OpResult) and isinstance(value.op, tt.Splat):
        value = value.op.value
    op = value.op if isinstance(value, OpResult) else None
    return op.value if isinstance(op, arith.ConstantOp) else None
