"""Emission of control flow: structured ops become blocks, and loop-carried values phis."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice

from ziggurat.backend.llvm.routines import Join, Number, llvm_type
from ziggurat.backend.ptx.emitter import Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.packed_words import pack, unpack
from ziggurat.backend.ptx.shuffles import in_uniform_registers
from ziggurat.codemodel.dialects import cf, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Body, Op, Successor, Value, constant_of
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import ScalarType, TensorType, Type, i64, scalar_element
from ziggurat.transforms.analysis.issue_slots import slots_of
from ziggurat.transforms.analysis.queries import registers_alike
from ziggurat.transforms.cost.budget import OF_LOAD, OF_UNROLLED, SLOTS_OF_LOAD, registers_of_thread
from ziggurat.transforms.cost.pressure import value_registers
from ziggurat.transforms.schedule.loop_plan import iterations_of
from ziggurat.transforms.simplify.effects import is_pure

MAX_UNROLLED = 4  # Iterations that are put together.
MAX_UNROLLED_VALUES = 2048  # Of a thread, in all of them: about as many instructions.
_FIRST_NODE = 1 << 20  # Metadata nodes from this number on are not those of line information.


def function_body(emitter: PtxEmitter, body: Body) -> None:
    """Emit a function's blocks."""
    joins = {block: ValueJoin(emitter, "block", [p.type for p in block.parameters]) for block in body.blocks[1:]}
    emitter.joins = joins
    for block in body.blocks:
        if block in joins:
            joins[block].begin_with(block.parameters)
        emitter.ops(block.ops)
    for block in reversed(body.blocks[1:]):
        joins[block].end()


class ValueJoin(Join):
    """A block that others branch to with values of these types of the model. Bytes are passed in words of four."""

    def __init__(self, emitter: PtxEmitter, hint: str, types: Sequence[Type]) -> None:
        self.emitter = emitter
        # Each type with the registers of its elements, and whether these are passed in words.
        layouts = [(type_, emitter.layout(type_).unique_registers) for type_ in types]
        self.types = [(type_, registers, _has_words(type_, registers)) for type_, registers in layouts]
        kinds: list[str] = []
        for type_, registers, in_words in self.types:
            kinds += ["i32"] * (len(registers) // 4) if in_words else [llvm_type(type_)] * len(registers)
        super().__init__(emitter, hint, kinds)

    def of(self, values: Sequence[Emitted]) -> str:
        """The target, in a branch from the current block, with these values."""
        names: list[str] = []
        for (_, registers, in_words), value in zip(self.types, values, strict=True):
            elements = [value if isinstance(value, str) else value[register] for register in registers]
            names += pack(self.emitter, elements, 1, 4) if in_words else elements
        return self.branch(names)

    def begin_with(self, parameters: Sequence[Value] = ()) -> list[Emitted]:
        """Begin the block; the values in it, those of these parameters first."""
        names, values = iter(self.begin()), list[Emitted]()
        for type_, registers, in_words in self.types:
            elements = [*islice(names, len(registers) // 4 if in_words else len(registers))]
            elements = unpack(self.emitter, elements, 1, 4) if in_words else elements
            values.append(self.emitter.value(type_, dict(zip(registers, elements, strict=True))))
        self.emitter.values.update(zip(parameters, values, strict=False))
        return values


def _has_words(type_: Type, registers: Sequence[int]) -> bool:
    """Whether the elements of a tensor that a thread holds fill words of bytes."""
    element = type_.element if isinstance(type_, TensorType) else None
    return isinstance(element, ScalarType) and element.bits == 8 and len(registers) % 4 == 0


def _region(emitter: PtxEmitter, body: Body) -> list[Emitted]:
    """Emit a body of one block in place; the operands of its terminator."""
    *ops, terminator = body.entry.ops
    emitter.ops(ops)
    return [emitter.values[value] for value in terminator.operands]


_CROSSES_LANES = re.compile(r"@llvm\.nvvm\.(?:shfl|redux)\.")  # Calls that LLVM knows to be convergent.


@emits(scf.For)
def _for(emitter: PtxEmitter, op: scf.For) -> Emitted:
    kind = llvm_type(op.start.type)
    start, stop, step = (emitter.scalar(value) for value in (op.start, op.stop, op.step))
    if op.holds(gpu.MatrixProduct):
        start, stop = (
            in_uniform_registers(emitter, kind, scalar) if _is_reduced(value) else scalar
            for value, scalar in ((op.start, start), (op.stop, stop))
        )
    inside, after = emitter.name("loop"), emitter.name("after")
    index, *parameters = op.body.parameters
    types, counter = [parameter.type for parameter in op.body.parameters], _counter(op)
    count = None if counter is None else _count(emitter, op, start, stop, counter)
    done = [] if count is None else ["0"]  # The number of iterations before this one.
    head = ValueJoin(emitter, "head", types if counter is None else [*types, counter])
    emitter.line(f"br {head.of([start, *(emitter.values[value] for value in op.initial), *done])}")
    *_, last = head.begin_with(op.body.parameters)
    number = emitter.scalar(index)
    if count is None:
        more = _continues(emitter, op, kind, number, stop, step)
    else:
        more = emitter.of(count.kind, last).test("ult", count).name
    emitter.line(f"br i1 {more}, label %{inside}, label %{after}")
    emitter.start(inside)
    before = len(emitter.lines)
    yielded = _region(emitter, op.body)
    if count is None:
        following = _following(emitter, op, kind, number, stop, step)
    else:
        # Steps of one end at the stop. LLVM then widens the index once, and lets addresses count.
        flag = " nsw" if constant_of(op.step) in (1, -1) and scalar_element(op.start.type).signed else ""
        following = emitter.emit(f"add{flag} {kind} {number}, {step}")
        done = [emitter.emit(f"add nuw {count.kind} {last}, 1")]
    hint = ""
    if _is_short(op):
        hint = _unrolled(emitter, iterations_of(op) or 1)
    elif constant_of(op.step) not in (1, -1) and count is not None and _only_reads(op):
        together = _overlapped(op, registers_of_thread(emitter.module.num_warps))
        # The rest of the iterations would be a branch around shuffles, which LLVM must not make of one loop.
        has_rest = (iterations_of(op) or 1) % together != 0
        crosses_lanes = any(_CROSSES_LANES.search(line) for line in emitter.lines[before:])
        hint = "" if has_rest and crosses_lanes else _unrolled(emitter, together)
    emitter.line(f"br {head.of([following, *yielded, *done])}{hint}")
    head.end()
    emitter.start(after)
    return packed_values([emitter.values[parameter] for parameter in parameters])


def _is_reduced(value: Value) -> bool:
    """Whether a number is computed of a reduction, after which ptxas does not know it to be the same in all lanes."""

    def scalars(value: Value) -> list[Value]:
        op = value.op
        if op is None or not is_pure(op) or op.bodies:
            return []
        return [operand for operand in op.operands if not isinstance(operand.type, TensorType)]

    return any(isinstance(source.op, tt.Reduce) for source in reached([value], scalars))


def _only_reads(op: scf.For) -> bool:
    """Whether iterations only load and compute, within warps, so that the loads of two can be in flight at once."""
    ops = op.body.entry.ops[:-1]
    tensors = any(isinstance(inner, tt.Load) and isinstance(inner.result.type, TensorType) for inner in op.body.walk())
    return tensors and all(
        isinstance(inner, tt.Load | tt.Reduce)
        or (isinstance(inner, scf.For) and _is_short(inner))
        or (is_pure(inner) and not inner.bodies and not isinstance(inner, tt.Dot))
        for inner in ops
    )


def _overlapped(op: scf.For, available: int) -> int:
    """How many iterations are put together: two, if so many registers have room for the loads of both, and four, if
    they load little and are short.

    ptxas does that to small loops alone. What is left of four iterations runs one by one, and in a loop that computes
    for longer than a load takes, loads of more iterations only need registers and room for instructions.
    """
    loads = _total(op.body, lambda inner: _registers(inner.result.type) * isinstance(inner, tt.Load))
    slots = _total(op.body, lambda inner: _registers(inner.result.type) * slots_of(inner)[0])
    room = available - sum(map(_carried_registers, op.body.entry.terminator.operands))
    if loads <= OF_LOAD and slots <= SLOTS_OF_LOAD and MAX_UNROLLED * loads <= room:
        return MAX_UNROLLED
    return 2 if 2 * loads <= room else 1


def _carried_registers(value: Value) -> int:
    """The registers of a value that an iteration hands on. Of equal ones there is one."""
    count = _registers(value.type)
    if isinstance(value.op, tt.MaxConstancy) and isinstance(value.type, TensorType):
        count >>= registers_alike(value.type, value.op.values).bit_count()
    return count


def _registers(type_: Type) -> int:
    return value_registers(type_, lambda element: True)


def _is_short(op: scf.For) -> bool:
    """Whether a loop loads, and has so few iterations that it is better unrolled.

    All loads of a loop that only reads are in flight at once then, and slots of rings are constants. And in a loop that
    loads ahead, ptxas loads into the registers of the value before, so that a load begins only after that one has
    arrived and was used.
    """
    count, ops = iterations_of(op), [*op.body.walk()]
    if count is None or count > MAX_UNROLLED:
        return False
    values = _total(op.body, lambda inner: _registers(inner.result.type))
    if _only_reads(op):
        return values * count <= MAX_UNROLLED_VALUES
    if any(isinstance(inner, Loop) for inner in ops):
        return False
    if any(isinstance(value.op, tt.Load) for value in op.body.entry.terminator.operands):
        return values * count <= MAX_UNROLLED_VALUES
    return any(isinstance(inner, gpu.AsyncCopy) for inner in ops) and values <= OF_UNROLLED


def _total(body: Body, weight: Callable[[Op], float]) -> float:
    """The sum of a number of each op of a body, those in short loops for each iteration."""
    total = 0.0
    for op in body.entry.ops[:-1]:
        if isinstance(op, scf.For):
            total += _total(op.body, weight) * ((_is_short(op) and iterations_of(op)) or 1)
        else:
            total += weight(op) + sum(_total(inner, weight) for inner in op.bodies)
    return total


def _unrolled(emitter: PtxEmitter, by: int) -> str:
    """Metadata of a loop's back edge that asks LLVM to unroll by a number of iterations."""
    number = _FIRST_NODE + 2 * len(emitter.metadata)
    count = f'!{{!"llvm.loop.unroll.count", i32 {by}}}'
    emitter.metadata += [f"!{number} = distinct !{{!{number}, !{number + 1}}}", f"!{number + 1} = {count}"]
    return f", !llvm.loop !{number}"


def _counter(op: scf.For) -> ScalarType | None:
    """The type of a loop's count of iterations; None where the loop compares its index instead.

    An index with a step beyond ±1 could wrap around before the comparison. ptxas overlaps the iterations only of loops
    that it sees to count, and a comparison that is safe against wrapping hides that. So does LLVM where addresses count
    as well: it ends the loop by the low half of one, but not in place of a counter that has 64 bits.
    """
    step = constant_of(op.step)
    if step is None:
        return None
    if abs(step) > 1:
        return scalar_element(op.start.type)
    return i64 if step and _only_reads(op) else None


def _count(emitter: PtxEmitter, op: scf.For, start: str, stop: str, counter: ScalarType) -> Number:
    """The number of iterations of a loop with a constant step, as `counter`."""
    step, signed = constant_of(op.step), scalar_element(op.start.type).signed
    assert step
    kind = llvm_type(op.start.type)
    first, last = (emitter.of(kind, value) for value in ((start, stop) if step > 0 else (stop, start)))
    some = first.test("slt" if signed else "ult", last)
    count = some.select((last - first + -1) / abs(step) + 1, 0)
    return count if llvm_type(counter) == kind else count.to("zext", llvm_type(counter))


def _continues(emitter: PtxEmitter, op: scf.For, kind: str, number: str, stop: str, step: str) -> str:
    """Whether the loop runs its body for this index: it counts up to `stop`, or down with a negative step."""
    signed = scalar_element(op.start.type).signed
    less, greater = ("slt", "sgt") if signed else ("ult", "ugt")
    constant_step, index, end = constant_of(op.step), emitter.of(kind, number), emitter.of(kind, stop)
    if constant_step is not None or not signed:
        return index.test(greater if constant_step is not None and constant_step < 0 else less, end).name
    up, down = index.test(less, end), index.test(greater, end)
    return emitter.of(kind, step).test("slt", 0).select(down, up).name


def _following(emitter: PtxEmitter, op: scf.For, kind: str, number: str, stop: str, step: str) -> str:
    """The next index. Where adding the step could wrap around, it is `stop` once less than a step is left."""
    index, end, by = (emitter.of(kind, value) for value in (number, stop, step))
    following = index + by
    if constant_of(op.step) in (1, -1):
        return following.name
    distance = end - index
    if scalar_element(op.start.type).signed:
        down, size, negative = index - end, -by, by.test("slt", 0)
        distance, by = negative.select(down, distance), negative.select(size, by)
    return distance.test("ugt", by).select(following, end).name


@emits(scf.If)
def _if(emitter: PtxEmitter, op: scf.If) -> Emitted:
    then, otherwise = emitter.name("then"), emitter.name("else")
    after = ValueJoin(emitter, "after", [value.type for value in op.then.entry.terminator.operands])
    emitter.line(f"br i1 {emitter.scalar(op.condition)}, label %{then}, label %{otherwise}")
    for label, body in ((then, op.then), (otherwise, op.otherwise)):
        emitter.start(label)
        emitter.line(f"br {after.of(_region(emitter, body))}")
    results = after.begin_with()
    after.end()
    return packed_values(results)


@emits(scf.While)
def _while(emitter: PtxEmitter, op: scf.While) -> Emitted:
    inside, after = emitter.name("loop"), emitter.name("after")
    head = ValueJoin(emitter, "head", [parameter.type for parameter in op.before.parameters])
    emitter.line(f"br {head.of([emitter.values[value] for value in op.initial])}")
    head.begin_with(op.before.parameters)
    condition, *operands = _region(emitter, op.before)
    emitter.line(f"br i1 {condition}, label %{inside}, label %{after}")
    emitter.start(inside)
    emitter.values.update(zip(op.after.parameters, operands, strict=True))
    emitter.line(f"br {head.of(_region(emitter, op.after))}")
    head.end()
    emitter.start(after)
    return packed_values(operands)


@emits(scf.Yield, scf.Condition)
def _handed_on(emitter: PtxEmitter, op: Op) -> Emitted:
    raise AssertionError(f"{op.NAME} is emitted with the op that owns its body")


def _target(emitter: PtxEmitter, successor: Successor) -> str:
    return emitter.joins[successor.block].of([emitter.values[value] for value in successor.arguments])


@emits(cf.Br)
def _br(emitter: PtxEmitter, op: cf.Br) -> Emitted:
    emitter.line(f"br {_target(emitter, op.target)}")


@emits(cf.CondBr)
def _cond_br(emitter: PtxEmitter, op: cf.CondBr) -> Emitted:
    then, otherwise = _target(emitter, op.then), _target(emitter, op.otherwise)
    emitter.line(f"br i1 {emitter.scalar(op.condition)}, {then}, {otherwise}")


@emits(tt.Return)
def _return(emitter: PtxEmitter, op: tt.Return) -> Emitted:
    emitter.line("ret void")


@emits(core.TupleLoad)
def _tuple_load(emitter: PtxEmitter, op: core.TupleLoad) -> Emitted:
    return emitter.values[op.tuple][op.index]


@emits(core.MakeTuple)
def _tuple(emitter: PtxEmitter, op: core.MakeTuple) -> Emitted:
    return tuple(emitter.values[value] for value in op.components)
