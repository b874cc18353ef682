"""Emission of control flow among scalars, of bodies that combine elements, and of the numbers of programs in a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cpu.code import HOST, MAX_WAITS
from ziggurat.backend.cpu.emitter import EMITTERS, INDEXED, CpuEmitter, emits, kind_of
from ziggurat.backend.llvm.routines import Join, Number
from ziggurat.codemodel.dialects import cf, core, cpu, scf, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, constant_of
from ziggurat.codemodel.structured import Structured, packed_values
from ziggurat.codemodel.types import scalar_element

ASSERTION, ZERO_STEP, UNREACHABLE, PRINT, ENDLESS = 4, 6, 7, 8, 9

MAX_ITERATIONS = 1 << 30  # Of a loop that does not count, after which it is an error.


class _Join(Join):
    """A block that others branch to with numbers; its code is that of the present level."""

    def begin_here(self, emitter: CpuEmitter) -> list[Number]:
        """Begin the block; the values in it."""
        emitter.level_of.update(dict.fromkeys(self.begin(), emitter.depth))
        return [emitter.number(kind, name) for name, kind in self._phis]


def function_body(emitter: CpuEmitter, body: Body) -> None:
    """Emit a function's blocks."""
    joins: dict[Block, _Join] = {}
    for block in body.blocks[1:]:
        joins[block] = _Join(emitter, "block", ["i64", *(kind_of(p.type) for p in block.parameters)])
    emitter.joins = joins
    for block in body.blocks:
        if block in joins:
            rounds, *values = joins[block].begin_here(emitter)
            emitter.values.update(zip(block.parameters, values, strict=True))
            _limit(emitter, block.terminator, rounds, block)
            emitter.rounds[block] = rounds
        ops(emitter, block.ops)
    for block in reversed(body.blocks[1:]):
        joins[block].end()


def ops(emitter: CpuEmitter, statements: Sequence[Op]) -> None:
    """Emit ops outside of regions, or of a body, on scalars."""
    for op in emitter.divisible(statements):
        outer, emitter._place = emitter._place, emitter.place(op)  # pyright: ignore[reportPrivateUsage]
        rule = INDEXED.get(type(op))
        if rule is not None:
            emitter.values[op.result] = rule(emitter, op, ())
        else:
            emitter.values[op.result] = EMITTERS[op](emitter, op, *(emitter.values[value] for value in op.operands))
        emitter._place = outer  # pyright: ignore[reportPrivateUsage]


def in_place(emitter: CpuEmitter, body: Body, arguments: Sequence[Any] = ()) -> list[Any]:
    """Emit a body of one block in place; the operands of its terminator."""
    if len(body.blocks) != 1:
        raise InternalError("a body of several blocks", str(body.parent))
    emitter.values.update(zip(body.parameters, arguments, strict=True))
    *inner, terminator = body.entry.ops
    ops(emitter, inner)
    return [emitter.values[value] for value in terminator.operands]


def apply(emitter: CpuEmitter, body: Body, arguments: Sequence[Number]) -> list[Number]:
    """The results of a body that combines elements."""
    if cpu.is_straight(body):
        return in_place(emitter, body, arguments)
    outer, emitter.pinned = emitter.pinned, True
    try:
        return in_place(emitter, body, arguments)
    finally:
        emitter.pinned = outer


def _kinds(values: Sequence[Value]) -> list[str]:
    return [kind_of(value.type) for value in values]


# Programs.


@emits(tt.GetProgramId)
def _program(emitter: CpuEmitter, op: tt.GetProgramId) -> Number:
    return emitter.number("i32", f"%pid{op.axis}")


@emits(tt.GetNumPrograms)
def _programs(emitter: CpuEmitter, op: tt.GetNumPrograms) -> Number:
    return emitter.number("i32", f"%grid{op.axis}")


@emits(tt.GlobalTimer)
def _timer(emitter: CpuEmitter, op: tt.GlobalTimer) -> Number:
    slot = emitter.emit("getelementptr i64, ptr %host, i64 3")
    clock = emitter.effect(f"load ptr, ptr {slot}")
    return emitter.number("i64", emitter.effect(f"call i64 {clock}()"))


# Structured control flow.


@emits(scf.For)
def _for(emitter: CpuEmitter, op: scf.For, start: Number, stop: Number, step: Number, *initial: Number) -> Any:
    """The number of iterations is known before the first one, so that no index can wrap around."""
    signed, constant_step = scalar_element(op.start.type).signed, constant_of(op.step)
    kind, below = start.kind, "slt" if signed else "ult"
    if constant_step is None:
        emitter.fail(ZERO_STEP, step.test("eq", 0), emitter.site(op, "loops"))
    down = step.test("slt", 0) if signed else emitter.number("i1", "false")
    size = down.select(0 - step, step)
    low, high = down.select(stop, start), down.select(start, stop)
    trips = low.test(below, high).select((high - low - 1) / size + 1, 0)
    head = _Join(emitter, "head", [kind, kind, *_kinds(op.initial)])
    inside, after = emitter.name("loop"), emitter.name("after")
    emitter.line(f"br {head.branch([start, start.like(0), *initial])}")
    index, done, *parameters = head.begin_here(emitter)
    emitter.line(f"br i1 {done.test('ult', trips)}, label %{inside}, label %{after}")
    emitter.start(inside)
    yielded = in_place(emitter, op.body, [index, *parameters])
    emitter.poll()
    emitter.line(f"br {head.branch([index + step, done + 1, *yielded])}")
    head.end()
    emitter.start(after)
    return packed_values(parameters)


@emits(scf.If)
def _if(emitter: CpuEmitter, op: scf.If, condition: Number) -> Any:
    then, otherwise = emitter.name("then"), emitter.name("else")
    after = _Join(emitter, "after", _kinds(op.then.entry.terminator.operands))
    emitter.line(f"br i1 {condition}, label %{then}, label %{otherwise}")
    for label, body in ((then, op.then), (otherwise, op.otherwise)):
        emitter.start(label)
        values = in_place(emitter, body)
        emitter.line(f"br {after.branch(values)}")
    results = after.begin_here(emitter)
    after.end()
    return packed_values(results)


@emits(scf.While)
def _while(emitter: CpuEmitter, op: scf.While, *initial: Number) -> Any:
    inside, after = emitter.name("loop"), emitter.name("after")
    head = _Join(emitter, "head", ["i64", *_kinds(op.initial)])
    emitter.line(f"br {head.branch([emitter.i64(0), *initial])}")
    rounds, *parameters = head.begin_here(emitter)
    condition, *operands = in_place(emitter, op.before, parameters)
    emitter.line(f"br i1 {condition}, label %{inside}, label %{after}")
    emitter.start(inside)
    _limit(emitter, op, rounds, op.before.entry)
    yielded = in_place(emitter, op.after, operands)
    emitter.poll()
    emitter.line(f"br {head.branch([rounds + 1, *yielded])}")
    head.end()
    emitter.start(after)
    return packed_values(operands)


def _limit(emitter: CpuEmitter, op: Op, rounds: Number, first: Block) -> None:
    """End the kernel with an error where a loop, which begins with a block, has gone on for too long."""
    waits = next((inner for inner in first.ops if isinstance(inner, cpu.Waits)), None)
    if waits is not None and waits.memory:
        function = emitter.emit(f"getelementptr i8, ptr %host, i64 {HOST.offsets['waits']}")
        function = emitter.effect(f"load ptr, ptr {function}")
        answer = emitter.effect(f"call i64 {function}(ptr %launch, i64 %program, {rounds.typed})")
        ends, message = emitter.number("i64", answer).test("ne", 0), ""
    elif waits is not None:
        ends, message = rounds.test("uge", MAX_WAITS), scf.NEVER_ENDS
    else:
        ends, message = rounds.test("uge", MAX_ITERATIONS), f"loop limit exceeded: {MAX_ITERATIONS} iterations"
    verb = "waits" if waits is not None and waits.memory else "loops"
    emitter.fail(ENDLESS, ends, emitter.site(op, verb, message=message))


@emits(scf.Yield, scf.Condition, Structured)
def _handed_on(emitter: CpuEmitter, op: Op, *values: Any) -> Any:
    raise AssertionError(f"{op.NAME} is emitted with the op that owns its body")


def _target(emitter: CpuEmitter, successor: Successor) -> str:
    """The target of a branch, with the number of branches back to it since it was entered."""
    rounds = emitter.rounds[successor.block] + 1 if successor.block in emitter.rounds else emitter.i64(0)
    arguments = [emitter.values[value] for value in successor.arguments]
    return emitter.joins[successor.block].branch([rounds, *arguments])


def _poll_if_back(emitter: CpuEmitter, op: cf.Br | cf.CondBr) -> None:
    """Poll where a branch may go back."""
    if any(successor.block in emitter.rounds for successor in op.successors):
        emitter.poll()


@emits(cf.Br)
def _br(emitter: CpuEmitter, op: cf.Br) -> None:
    _poll_if_back(emitter, op)
    emitter.line(f"br {_target(emitter, op.target)}")


@emits(cf.CondBr)
def _cond_br(emitter: CpuEmitter, op: cf.CondBr, condition: Number) -> None:
    _poll_if_back(emitter, op)
    then, otherwise = _target(emitter, op.then), _target(emitter, op.otherwise)
    emitter.line(f"br i1 {condition}, {then}, {otherwise}")


@emits(tt.Return)
def _return(emitter: CpuEmitter, op: tt.Return) -> None:
    emitter.line("br label %next")


@emits(core.Unreachable)
def _unreachable(emitter: CpuEmitter, op: core.Unreachable) -> None:
    emitter.fail(UNREACHABLE, emitter.number("i1", "true"), emitter.site(op, "reaches"))
    emitter.line("unreachable")


# Ops without effects on a CPU; assertions and prints.


@emits(tt.Barrier)
def _barrier(emitter: CpuEmitter, op: tt.Barrier) -> None:
    """A fence, where programs of other devices may run meanwhile."""
    if op.scope is not tt.MemScope.CTA:
        emitter.line("fence seq_cst")


@emits(cpu.Waits, tt.Assume, tt.GridDependencyWait, tt.GridDependencyLaunch)
def _nothing(emitter: CpuEmitter, op: Op, *values: Any) -> None:
    """Programs run one after the other on a thread, and each op ends before the next."""


@emits(cf.AssertOp, tt.Assert)
def _assert(emitter: CpuEmitter, op: cf.AssertOp | tt.Assert, condition: Number) -> None:
    emitter.fail(ASSERTION, condition ^ True, emitter.site(op, "asserts", message=op.message))


@emits(tt.Print)
def _print(emitter: CpuEmitter, op: tt.Print, *values: Number) -> None:
    """Copy the operands to scratch memory, and call the host, which prints them."""
    from ziggurat.backend.cpu.memory import to_memory

    emitter.ordered = True
    types: list[str] = []
    places: list[tuple[int, Value, Number]] = []
    offset = emitter.temporary(0)
    start = offset
    for value, number in zip(op.values, values, strict=True):
        type_ = value.type
        types.append(str(type_))
        size = type_.bytes if isinstance(type_, cpu.BufferType) else 8
        places.append((offset, value, number))
        offset = emitter.temporary(size) + -(-size // 64) * 64
    for at, value, number in places:
        target = emitter.emit(f"inttoptr i64 {emitter.scratch_address(at)} to ptr")
        if isinstance(value.type, cpu.BufferType):
            source = emitter.emit(f"inttoptr i64 {number} to ptr")
            arguments = ("ptr", target), ("ptr", source), ("i64", str(value.type.bytes)), ("i1", "false")
            emitter.line(emitter.called("void", "llvm.memcpy.p0.p0.i64", *arguments))
        else:
            emitter.line(f"store {to_memory(emitter, number, value.type).typed}, ptr {target}")
    emitter.release()
    form = {"hex": op.hex, "c_form": op.c_form, "whole": op.whole}
    site = emitter.site(op, "prints", message=op.prefix, types=tuple(types), **form)
    data = emitter.emit(f"inttoptr i64 {emitter.scratch_address(start)} to ptr")
    slot = emitter.emit("getelementptr i64, ptr %host, i64 2")
    function = emitter.effect(f"load ptr, ptr {slot}")
    arguments = f"ptr %launch, i64 {site}, i64 %program, ptr {data}"
    result = emitter.number("i64", emitter.effect(f"call i64 {function}({arguments})"))
    emitter.fail(PRINT, result.test("ne", 0), site, result)
