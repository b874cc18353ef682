"""Emission of control flow: structured ops become blocks, and loop-carried values phis."""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits, unique_registers
from ziggurat.backend.ptx.numbers import llvm_type
from ziggurat.codemodel.dialects import cf, core, scf, tt
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, constant_of
from ziggurat.codemodel.types import TensorType, Type, scalar_element
from ziggurat.transforms.simplify.effects import is_pure

_FIRST_NODE = 1 << 20  # Metadata nodes from this number on are not those of line information.


def function_body(emitter: Emitter, body: Body) -> None:
    """Emit a function's blocks."""
    labels = emitter.labels = {block: emitter.name("block") for block in body.blocks[1:]}
    incoming = emitter.incoming = {block: [] for block in body.blocks[1:]}
    places: dict[Block, int] = {}
    for block in body.blocks:
        if block is not body.entry:
            emitter.start(labels[block])
            places[block] = len(emitter.lines)
            for parameter in block.parameters:
                emitter.values[parameter] = _fresh(emitter, parameter.type)
        emitter.ops(block.ops)
    for block in reversed(body.blocks[1:]):
        phis: list[str] = []
        for index, parameter in enumerate(block.parameters):
            sources = [(values[index], label) for values, label in incoming[block]]
            phis += _phis(emitter, parameter.type, emitter.values[parameter], sources)
        emitter.lines[places[block] : places[block]] = phis


def _fresh(emitter: Emitter, type_: Type) -> Emitted:
    """Names for the registers of a value that phis will define."""
    registers = unique_registers(emitter.layout(type_))
    return emitter.value(type_, {register: f"%{emitter.name('phi')}" for register in registers})


def _register(made: Emitted, register: int) -> str:
    return made if isinstance(made, str) else made[register]


def _phis(emitter: Emitter, type_: Type, names: Emitted, sources: Sequence[tuple[Emitted, str]]) -> list[str]:
    """The phis that define the names, given the value and the label of each predecessor."""
    lines: list[str] = []
    for register in unique_registers(emitter.layout(type_)):
        pairs = ", ".join(f"[ {_register(made, register)}, %{label} ]" for made, label in sources)
        lines.append(f"  {_register(names, register)} = phi {llvm_type(type_)} {pairs}")
    return lines


def _loop_phis(
    emitter: Emitter, parameters: Sequence[Value], initial: Sequence[Value], before: str, yielded: Sequence[Emitted]
) -> list[str]:
    """The phis of loop-carried values, at the end of a body."""
    phis: list[str] = []
    for parameter, first, value in zip(parameters, initial, yielded, strict=True):
        sources = [(emitter.values[first], before), (value, emitter.label)]
        phis += _phis(emitter, parameter.type, emitter.values[parameter], sources)
    return phis


def _packed(values: Sequence[Emitted]) -> Emitted:
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def _region(emitter: Emitter, body: Body) -> list[Emitted]:
    """Emit a body of one block in place; the operands of its terminator."""
    *ops, terminator = body.entry.ops
    emitter.ops(ops)
    return [emitter.values[value] for value in terminator.operands]


@emits(scf.For)
def _for(emitter: Emitter, op: scf.For) -> Emitted:
    kind = llvm_type(op.start.type)
    start, stop, step = (emitter.scalar(value) for value in (op.start, op.stop, op.step))
    head, inside, after = (emitter.name(hint) for hint in ("head", "loop", "after"))
    index, *carried = op.body.parameters
    count = _count(emitter, op, kind, start, stop)
    before = emitter.label
    emitter.line(f"br label %{head}")
    emitter.start(head)
    place = len(emitter.lines)
    for parameter in (index, *carried):
        emitter.values[parameter] = _fresh(emitter, parameter.type)
    number, done = emitter.scalar(index), f"%{emitter.name('phi')}"
    if count is None:
        more = _continues(emitter, op, kind, number, stop, step)
    else:
        more = emitter.emit(f"icmp ult {kind} {done}, {count}")
    emitter.line(f"br i1 {more}, label %{inside}, label %{after}")
    emitter.start(inside)
    yielded = _region(emitter, op.body)
    hint = ""
    counting: list[str] = []
    if count is None:
        following = _following(emitter, op, kind, number, stop, step)
    else:
        following = emitter.emit(f"add {kind} {number}, {step}")
        counted = emitter.emit(f"add nuw {kind} {done}, 1")
        counting = [f"  {done} = phi {kind} [ 0, %{before} ], [ {counted}, %{emitter.label} ]"]
        hint = _overlapped(emitter) if _only_reads(op) else ""
    phis = _loop_phis(emitter, (index, *carried), (op.start, *op.initial), before, (following, *yielded))
    emitter.line(f"br label %{head}{hint}")
    emitter.lines[place:place] = [phis[0], *counting, *phis[1:]]
    emitter.start(after)
    return _packed([emitter.values[parameter] for parameter in carried])


def _only_reads(op: scf.For) -> bool:
    """Whether iterations only load and compute, so that the loads of two can be in flight at once."""
    ops = op.body.entry.ops[:-1]
    tensors = any(isinstance(inner, tt.Load) and isinstance(inner.result.type, TensorType) for inner in ops)
    return tensors and all(
        isinstance(inner, tt.Load) or (is_pure(inner) and not inner.bodies and not isinstance(inner, tt.Dot))
        for inner in ops
    )


def _overlapped(emitter: Emitter) -> str:
    """Metadata of a loop's back edge that asks LLVM to unroll by 2."""
    number = _FIRST_NODE + 2 * len(emitter.metadata)
    emitter.metadata += [
        f"!{number} = distinct !{{!{number}, !{number + 1}}}", f'!{number + 1} = !{{!"llvm.loop.unroll.count", i32 2}}'
    ]  # fmt: skip
    return f", !llvm.loop !{number}"


def _count(emitter: Emitter, op: scf.For, kind: str, start: str, stop: str) -> str | None:
    """The number of iterations; None where the loop may compare its index instead.

    An index with a step beyond ±1 could wrap around before the comparison. ptxas overlaps the iterations only of loops
    that it sees to count, and a comparison that is safe against wrapping hides that.
    """
    step = constant_of(op.step)
    if step is None or -1 <= step <= 1:
        return None
    first, last = (emitter.of(kind, value) for value in ((start, stop) if step > 0 else (stop, start)))
    some = first.test("slt" if scalar_element(op.start.type).signed else "ult", last)
    return some.select((last - first + -1) / abs(step) + 1, 0).name


def _continues(emitter: Emitter, op: scf.For, kind: str, number: str, stop: str, step: str) -> str:
    """Whether the loop runs its body for this index: it counts up to `stop`, or down with a negative step."""
    signed = scalar_element(op.start.type).signed
    less, greater = ("slt", "sgt") if signed else ("ult", "ugt")
    known, index, end = constant_of(op.step), emitter.of(kind, number), emitter.of(kind, stop)
    if known is not None or not signed:
        return index.test(greater if known is not None and known < 0 else less, end).name
    up, down = index.test(less, end), index.test(greater, end)
    return emitter.of(kind, step).test("slt", 0).select(down, up).name


def _following(emitter: Emitter, op: scf.For, kind: str, number: str, stop: str, step: str) -> str:
    """The next index. Where adding the step could wrap around, it is `stop` once less than a step is left."""
    index, end, by = (emitter.of(kind, value) for value in (number, stop, step))
    following = index + by
    if constant_of(op.step) in (1, -1):
        return following.name
    left = end - index
    if scalar_element(op.start.type).signed:
        down, size, negative = index - end, -by, by.test("slt", 0)
        left, by = negative.select(down, left), negative.select(size, by)
    return left.test("ugt", by).select(following, end).name


@emits(scf.If)
def _if(emitter: Emitter, op: scf.If) -> Emitted:
    then, otherwise, after = (emitter.name(hint) for hint in ("then", "else", "after"))
    emitter.line(f"br i1 {emitter.scalar(op.condition)}, label %{then}, label %{otherwise}")
    ends: list[tuple[list[Emitted], str]] = []
    for label, body in ((then, op.then), (otherwise, op.otherwise)):
        emitter.start(label)
        values = _region(emitter, body)
        ends.append((values, emitter.label))
        emitter.line(f"br label %{after}")
    emitter.start(after)
    results: list[Emitted] = []
    for index, value in enumerate(op.then.entry.terminator.operands):
        results.append(_fresh(emitter, value.type))
        emitter.lines += _phis(emitter, value.type, results[-1], [(values[index], label) for values, label in ends])
    return _packed(results)


@emits(scf.While)
def _while(emitter: Emitter, op: scf.While) -> Emitted:
    head, inside, after = (emitter.name(hint) for hint in ("head", "loop", "after"))
    before = emitter.label
    emitter.line(f"br label %{head}")
    emitter.start(head)
    place = len(emitter.lines)
    for parameter in op.before.parameters:
        emitter.values[parameter] = _fresh(emitter, parameter.type)
    condition, *handed = _region(emitter, op.before)
    emitter.line(f"br i1 {condition}, label %{inside}, label %{after}")
    emitter.start(inside)
    for parameter, value in zip(op.after.parameters, handed, strict=True):
        emitter.values[parameter] = value
    yielded = _region(emitter, op.after)
    emitter.lines[place:place] = _loop_phis(emitter, op.before.parameters, op.initial, before, yielded)
    emitter.line(f"br label %{head}")
    emitter.start(after)
    return _packed(handed)


@emits(scf.Yield, scf.Condition)
def _handed_on(emitter: Emitter, op: Op) -> Emitted:
    raise AssertionError(f"{op.NAME} is emitted with the op that owns its body")


def _go(emitter: Emitter, successor: Successor) -> str:
    given = [emitter.values[value] for value in successor.arguments]
    emitter.incoming[successor.block].append((given, emitter.label))
    return emitter.labels[successor.block]


@emits(cf.Br)
def _br(emitter: Emitter, op: cf.Br) -> Emitted:
    emitter.line(f"br label %{_go(emitter, op.target)}")


@emits(cf.CondBr)
def _cond_br(emitter: Emitter, op: cf.CondBr) -> Emitted:
    condition = emitter.scalar(op.condition)
    then, otherwise = _go(emitter, op.then), _go(emitter, op.otherwise)
    emitter.line(f"br i1 {condition}, label %{then}, label %{otherwise}")


@emits(tt.Return)
def _return(emitter: Emitter, op: tt.Return) -> Emitted:
    emitter.line("ret void")


@emits(core.TupleLoad)
def _tuple_load(emitter: Emitter, op: core.TupleLoad) -> Emitted:
    return emitter.values[op.tuple][op.index]


@emits(core.MakeTuple)
def _tuple(emitter: Emitter, op: core.MakeTuple) -> Emitted:
    return tuple(emitter.values[value] for value in op.components)
