"""Control flow of programs that run together: scf, cf, calls, tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.backend.reference.access import load_elements
from ziggurat.backend.reference.machine import WAITS, AllLeft, Fork, Machine, triton
from ziggurat.backend.reference.values import Array, Frame, chosen, same_value, uniform
from ziggurat.codemodel.dialects import cf, core, cpu, scf, tt
from ziggurat.codemodel.errors import KernelNameError, KernelRuntimeError
from ziggurat.codemodel.execute import component, make_tuple, with_component
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.interpret import Exit, Jump, Yielded
from ziggurat.codemodel.numbers import COMPARISONS
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value, expect
from ziggurat.codemodel.structured import Structured, leaves_structure, packed_values
from ziggurat.codemodel.traits import BodyTerminator, MemoryRead, Pure
from ziggurat.codemodel.types import SharedType

Operands = tuple[Any, ...]
Parts = list[tuple[Frame, tuple[Any, ...]]]


def rejoin(machine: Machine, parts: Parts) -> Any:
    """Continue with the programs of all parts. Returns their values, packed."""
    if not parts:
        return AllLeft()
    machine.frame, values = machine.frame.merge(parts)
    return packed_values(values)


# Tuples.


triton.of(core.MakeTuple)(make_tuple)
triton.of(core.TupleLoad)(component)
triton.of(core.TupleWith)(with_component)


# Terminators.


@triton.of(core.Return, tt.Return)
def _return(machine: Machine, op: Op, operands: Operands) -> Exit:
    return machine.leave(operands)


@triton.of(core.Yield, scf.Yield, scf.Condition, tt.ReduceReturn, tt.ScanReturn, tt.MapReturn)
def _yield(machine: Machine, op: Op, operands: Operands) -> Exit:
    return Yielded(operands)


@triton.of(core.Unreachable)
def _unreachable(machine: Machine, op: Op, operands: Operands) -> Exit:
    raise KernelRuntimeError(f"{machine.program(0)} reached code that is marked unreachable")


@triton.of(cf.Br, core.Branch)
def _branch(machine: Machine, op: cf.Br | core.Branch, operands: Operands) -> Exit:
    return Jump(op.target)


@triton.of(cf.CondBr, core.CondBranch)
def _cond_branch(machine: Machine, op: cf.CondBr | core.CondBranch, operands: Operands) -> Exit:
    condition: Array = machine.known(op, operands[0], "branches on")
    return Fork(condition, op.then, op.otherwise)


@triton.of(tt.Call)
def _call(machine: Machine, op: tt.Call, operands: Operands) -> Any:
    function = machine.functions.get(op.callee)
    if function is None:
        raise KernelNameError(f"a call must name a function of the module; got '{op.callee}'")
    return packed_values(machine.call(function.bodies[0], operands))


# Branches and loops.


@triton.of(scf.If)
def _if(machine: Machine, op: scf.If, operands: Operands) -> Any:
    condition: Array = machine.known(op, operands[0], "branches on")
    parts: Parts = []
    for side, programs in machine.frame.split(condition):
        results, values = machine.run_in(op.then if side else op.otherwise, (), programs)
        if results is not None:
            parts.append((results, values))
    return rejoin(machine, parts)


@triton.of(scf.For)
def _for(machine: Machine, op: scf.For, operands: Operands) -> Any:
    bounds: list[Array] = [machine.known(op, value, "bounds a loop by") for value in operands[:3]]
    variables = tuple(operands[3:])
    start, stop, step = np.broadcast_arrays(*(bound[:1] if uniform(bound) else bound for bound in bounds))
    if not step.all():
        raise KernelRuntimeError(f"{machine.program(int((step != 0).argmin()))}: the step of a loop must not be zero")
    # Python's integers: the difference of two i64 may overflow.
    trips: Array = np.clip(-((start.astype(object) - stop) // step), 0, 1 << 62).astype(np.int64)
    frame = active = machine.frame
    parts: Parts = []
    round_ = 0
    while True:
        places = frame.places(active) if len(trips) > 1 else np.zeros(1, np.int64)
        going = trips[places] > round_
        if not going.any():
            parts.append((active, variables))
            break
        if not going.all():
            active, variables = _parted(frame, active, variables, going, parts)
            places = frame.places(active)
        index = start[places] + step[places] * np.asarray(round_).astype(step.dtype)
        survivors, variables = machine.run_in(op.body, (index, *variables), active)
        if survivors is None:
            break
        active = _within(frame, survivors)
        round_ += 1
    return rejoin(machine, parts)


@triton.of(tt.Wait)
def _wait(machine: Machine, op: tt.Wait, operands: Operands) -> Array:
    """Where other programs can change memory meanwhile, `stuck` returns after that."""
    pointer, value = operands[:2]
    access = machine.access("waits for", op, op.value.type, pointer)
    while True:
        number = load_elements(machine, pointer, None, 0, access)
        holds = np.broadcast_to(COMPARISONS[op.predicate.value[-2:]](number, value), len(machine.frame))
        if holds.all():
            machine.sharing.barrier(machine.frame.programs)
            return holds
        try:
            machine.stuck(WAITS)
        except KernelRuntimeError:
            if op.timeout is None:
                raise
            return holds


def _deciding(op: scf.While) -> list[int] | None:
    """The carried values that alone decide whether a loop goes on; None if memory or a `return` may decide as well."""
    first, second = op.before.entry, op.after.entry
    if leaves_structure(op):
        return None

    def sources(value: Value) -> Sequence[Value]:
        if value.block not in (first, second):
            return ()
        if isinstance(value, BlockParameter):
            before = (*second.terminator.operands, *first.terminator.operands[1:])
            return (before[value.index if value.block is first else value.index + len(first.parameters)],)
        return expect(value, OpResult).op.used_values()

    computing_ops = reached([first.terminator.operands[0]], sources)
    computing = (v.op for v in computing_ops if isinstance(v, OpResult) and v.block in (first, second))
    if all(isinstance(inner, Pure | Structured | BodyTerminator) for op_ in computing for inner in op_.walk()):
        return [value.index for value in computing_ops if isinstance(value, BlockParameter) and value.block is first]
    return None


def _buffers(machine: Machine, op: scf.While) -> list[bytes]:
    """The contents of the buffers that a loop uses, in which a pass may keep what the loop had carried."""
    values = (value for value in op.used_values() if isinstance(value.type, cpu.BufferType | SharedType))
    return [machine.lookup(value).array.tobytes() for value in values]


@triton.of(scf.While)
def _while(machine: Machine, op: scf.While, operands: Operands) -> Any:
    frame = active = machine.frame
    variables = tuple(operands)
    parts: Parts = []
    buffers: list[bytes] = []  # At the end of the last round that changed nothing else.
    rounds = 0
    while True:
        before: tuple[Any, ...] | None = variables
        changes = machine.memory.changes
        survivors, values = machine.run_in(op.before, variables, active)
        if survivors is None:
            break
        condition, variables = machine.known(op, values[0], "goes on with a loop on"), values[1:]
        if uniform(condition):
            if not condition[0]:
                parts.append((survivors, variables))
                break
            active = _within(frame, survivors)
        else:
            active, variables = _parted(frame, survivors, variables, condition, parts)
            before = None
        survivors, variables = machine.run_in(op.after, variables, active)
        if survivors is None:
            break
        idle = len(survivors) == len(active) and changes == machine.memory.changes
        active = _within(frame, survivors)
        rounds += 1
        if idle and before is not None and all(map(same_value, before, variables)):
            contents = _buffers(machine, op)
            if contents == buffers:
                waits = op.holds(MemoryRead | tt.Call)
                machine.stuck(WAITS if waits else scf.NEVER_ENDS)
            buffers = contents
        # At some rounds only, because finding what decides takes longer than a round.
        if rounds >= 64 and rounds & rounds - 1 == 0 and before is not None:
            deciding = _deciding(op)
            if deciding is not None and all(same_value(before[index], variables[index]) for index in deciding):
                machine.stuck(scf.NEVER_ENDS)
        if rounds > machine.limit:
            machine.stuck(f"loop limit exceeded: {machine.limit} iterations")
    return rejoin(machine, parts)


def _parted(frame: Frame, active: Frame, variables: Operands, going: Array, parts: Parts) -> tuple[Frame, Operands]:
    """The programs that go on with a loop, and their carried values. The others are added to `parts`."""
    ending, staying = np.flatnonzero(~going), np.flatnonzero(going)
    parts.append((active.part(ending), tuple(chosen(value, ending) for value in variables)))
    return frame.part(frame.places(active)[staying]), tuple(chosen(value, staying) for value in variables)


def _within(frame: Frame, survivors: Frame) -> Frame:
    """The programs of `survivors` as a part of `frame`."""
    return frame if len(survivors) == len(frame) else frame.part(frame.places(survivors))
