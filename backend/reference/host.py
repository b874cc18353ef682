"""Prints, assertions, assumptions, hints and barriers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.memory import real_addresses
from ziggurat.backend.reference.tensors import full
from ziggurat.backend.reference.values import Array, expand
from ziggurat.codemodel.dialects import cf, tt
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.scalars import bits_of, widened
from ziggurat.codemodel.types import PtrType, element_of, shape_of

Operands = tuple[Any, ...]


def _index(place: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, place))})"


@triton.of(tt.Print)
def _print(machine: Machine, op: tt.Print, operands: Operands) -> None:
    programs = machine.frame.programs
    lines: list[tuple[int, str]] = []
    if not operands:
        lines = [(int(p), f"pid {machine.memory.coordinates(int(p))} {op.prefix}") for p in programs]
    for number, (value, array) in enumerate(zip(op.values, operands, strict=True)):
        shape = shape_of(value.type)
        which = f" (operand {number})" if len(operands) > 1 else ""
        whole = np.broadcast_to(array, (len(programs), *shape))
        hexadecimal = op.hex or isinstance(element_of(value.type), PtrType)
        if isinstance(element_of(value.type), PtrType):
            whole = real_addresses(whole)
        shown = bits_of(whole) if hexadecimal and whole.dtype != np.bool_ else whole
        for row, program in enumerate(programs):
            pid = machine.memory.coordinates(int(program))
            for place in np.ndindex(*shape):
                item = shown[(row, *place)]
                text = f"{int(item):#x}" if hexadecimal else str(item)
                lines.append((int(program), f"pid {pid} idx {_index(place)} {op.prefix}{which}: {text}"))
    machine.printed.extend(lines)


def _require(machine: Machine, condition: Array, message: str) -> None:
    """Raise `KernelRuntimeError` for the first element whose condition is false."""
    if condition.all():
        return
    place, *rest = np.argwhere(~condition)[0]
    where = f" at element {_index(tuple(int(i) for i in rest))}" if rest else ""
    program = int(place) if condition.shape[0] > 1 else 0
    raise KernelRuntimeError(f"{machine.program(program)}: {message}{where}")


@triton.of(tt.Assert, cf.AssertOp)
def _assert(machine: Machine, op: tt.Assert | cf.AssertOp, operands: Operands) -> None:
    condition = expand(operands[0], shape_of(op.condition.type))
    _require(machine, condition, f"device assertion failed: {op.message}" if op.message else "device assertion failed")


@triton.of(tt.Barrier)
def _barrier(machine: Machine, op: tt.Barrier, operands: Operands) -> None:
    """Programs need no barrier here, as each op finishes before the next. Strict mode checks for missing ones."""
    machine.sharing.barrier(machine.frame.programs)


@triton.of(tt.Assume)
def _assume(machine: Machine, op: tt.Assume, operands: Operands) -> None:
    if machine.strict:
        _require(machine, operands[0], "an assumption does not hold")


@triton.of(tt.MultipleOf)
def _multiple_of(machine: Machine, op: tt.MultipleOf, operands: Operands) -> Array:
    if machine.strict:
        array = full(op.value, operands[0])
        array = array.astype(np.int64) if array.dtype.kind in "iu" else widened(array)
        for axis, number in enumerate(op.values):
            # The first element of each run must be divisible. The first of an axis begins a run.
            first = array.take(0, axis=axis + 1) if array.ndim > 1 else array
            rest = np.fmod(first, number)
            _require(machine, rest == 0, f"a value is not a multiple of {number}, as zg.multiple_of says")
    return operands[0]


@triton.of(tt.MaxContiguous, tt.MaxConstancy)
def _runs(machine: Machine, op: tt.MaxContiguous | tt.MaxConstancy, operands: Operands) -> Array:
    """The elements along each axis are in runs that increase by one, or for pointers by an element, or not at all."""
    if not machine.strict:
        return operands[0]
    step, what = 0, "equal"
    if isinstance(op, tt.MaxContiguous):
        element = element_of(op.value.type)
        step, what = element.pointee.bytes if isinstance(element, PtrType) else 1, "consecutive"
    whole = full(op.value, operands[0])
    for axis, length in enumerate(op.values):
        if whole.ndim == 1 or length <= 1:
            continue
        moved = np.moveaxis(whole, axis + 1, -1)
        begins: Array = np.equal(np.arange(1, moved.shape[-1]) % length, 0)  # Whether the next element begins a run.
        good: Array = np.equal(np.diff(moved, axis=-1), step) | begins
        _require(machine, np.all(good.reshape(len(good), -1), axis=1), f"values are not {what} in runs of {length}")
    return operands[0]
