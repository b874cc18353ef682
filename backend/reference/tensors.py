"""Elementwise ops, making, shaping and multiplying tensors, prints, assertions, hints and barriers.

Inner axes may have size 1: see `values.py`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ziggurat.backend.reference.argument_memory import real_addresses
from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.marks import marks, where_marked
from ziggurat.backend.reference.values import Array, expand, is_array, marked, marks_of, over, plain
from ziggurat.codemodel import scalars
from ziggurat.codemodel.dialects import arith, cf, cpu, debug, tt
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.interpret import Meaning
from ziggurat.codemodel.messages import call_text, say
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.printed import Column, printed_text
from ziggurat.codemodel.scalars import rounded, tf32, widened
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, bf16, element_of, f32, scalar_element, shape_of

Operands = tuple[Any, ...]


@triton.of(tt.GetProgramId)
def _program_id(machine: Machine, op: tt.GetProgramId, operands: Operands) -> Array:
    if machine.memory.grid[op.axis] == 1:
        return np.zeros(1, np.int32)
    return machine.memory.coordinates(machine.frame.programs)[op.axis]


@triton.of(tt.GetNumPrograms)
def _num_programs(machine: Machine, op: tt.GetNumPrograms, operands: Operands) -> Array:
    return np.full(1, machine.memory.grid[op.axis], np.int32)


@triton.of(tt.SmId)
def _smid(machine: Machine, op: tt.SmId, operands: Operands) -> Array:
    return np.zeros(1, np.int32)


_last_time = 0


@triton.of(tt.GlobalTimer)
def _globaltimer(machine: Machine, op: tt.GlobalTimer, operands: Operands) -> Array:
    """The time that this process has computed for, at least 1 ns later at each call.

    A wait with a time limit must not end early because other processes have the machine.
    """
    global _last_time
    _last_time = max(_last_time + 1, time.process_time_ns())
    return np.full(1, _last_time, np.int64)


@triton.of(tt.MakeRange)
def _range(machine: Machine, op: tt.MakeRange, operands: Operands) -> Array:
    return np.arange(op.start, op.end, dtype=np.int32)[np.newaxis]


@triton.of(tt.Splat)
def _splat(machine: Machine, op: tt.Splat, operands: Operands) -> Array:
    return over(operands[0], len(shape_of(op.type)))


@triton.of(tt.Broadcast)
def _broadcast(machine: Machine, op: tt.Broadcast, operands: Operands) -> Array:
    return operands[0]


@triton.of(tt.ExpandDims)
def _expand_dims(machine: Machine, op: tt.ExpandDims, operands: Operands) -> Array:
    return np.expand_dims(operands[0], op.axis + 1)


def full(value: Value, array: Array) -> Array:
    """The array of a tensor with all inner axes at their sizes."""
    return expand(array, shape_of(value.type))


@triton.of(tt.Reshape)
def _reshape(machine: Machine, op: tt.Reshape, operands: Operands) -> Array:
    shape = shape_of(op.type)
    if operands[0].size == operands[0].shape[0]:
        return over(operands[0].reshape(-1), len(shape))
    array = full(op.value, operands[0])
    return array.reshape(array.shape[0], *shape)


@triton.of(tt.Trans)
def _trans(machine: Machine, op: tt.Trans, operands: Operands) -> Array:
    return operands[0].transpose(0, *(axis + 1 for axis in op.order))


@triton.of(tt.Join)
def _join(machine: Machine, op: tt.Join, operands: Operands) -> Array:
    return np.stack(np.broadcast_arrays(*operands), axis=-1)


@triton.of(tt.Split)
def _split(machine: Machine, op: tt.Split, operands: Operands) -> tuple[Array, Array]:
    return operands[0][..., 0], operands[0][..., -1]


@triton.of(tt.Cat)
def _cat(machine: Machine, op: tt.Cat, operands: Operands) -> Array:
    parts = [full(value, array) for value, array in zip(op.operands, operands, strict=True)]
    count = max(part.shape[0] for part in parts)
    return np.concatenate([np.broadcast_to(part, (count, *part.shape[1:])) for part in parts], axis=1)


@triton.of(tt.Gather)
def _gather(machine: Machine, op: tt.Gather, operands: Operands) -> Array:
    return gathered(machine, full(op.source, operands[0]), full(op.index, operands[1]), op.axis)


def gathered(machine: Machine, source: Array, index: Array, axis: int) -> Array:
    """For each index, the element of `source` there along an axis."""
    size = source.shape[axis + 1]
    wrong = (index < 0) | (index >= size)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        position = int(index[tuple(place)])
        raise KernelRuntimeError(
            f"{machine.program(int(place[0]))} gathers at index {position}; it must be from 0 to {size - 1}"
        )
    count = max(source.shape[0], index.shape[0])
    source, index = (np.broadcast_to(array, (count, *array.shape[1:])) for array in (source, index))
    return np.take_along_axis(source, index.astype(np.int64), axis=axis + 1)


@marks.of(tt.Gather)
def _marks_of_gather(meaning: Meaning, machine: Machine, op: tt.Gather, operands: Operands) -> Any:
    index = machine.known(op, operands[1], "gathers at")
    result = meaning(machine, op, (plain(operands[0]), index))
    return marked(result, meaning(machine, op, (marks_of(operands[0]), index)))


@triton.of(tt.Histogram)
def _histogram(machine: Machine, op: tt.Histogram, operands: Operands) -> Array:
    array = full(op.value, operands[0]).astype(np.int64)
    counts = (array >= 0) & (array < op.bins)
    if op.mask is not None:
        counts = counts & full(op.mask, operands[1])
    numbers = np.arange(counts.shape[0], dtype=np.int64)
    rows = np.broadcast_to(numbers.reshape(-1, 1), counts.shape)
    bins = np.broadcast_to(array, counts.shape)[counts] + rows[counts] * op.bins
    all_counts = np.bincount(bins, minlength=counts.shape[0] * op.bins)
    return all_counts.reshape(-1, op.bins).astype(np.int32)


@marks.of(tt.Histogram)
def _marks_of_histogram(meaning: Meaning, machine: Machine, op: tt.Histogram, operands: Operands) -> Any:
    """An undefined element may count anywhere."""
    masks = [machine.known(op, mask, "masks a histogram by") for mask in operands[1:]]
    result = meaning(machine, op, (plain(operands[0]), *masks))
    marks = marks_of(operands[0])
    return marked(result, (np.where(masks[0], marks, 0) if masks else marks).max(axis=1, keepdims=True))


@triton.of(tt.Dot)
def _dot(machine: Machine, op: tt.Dot, operands: Operands) -> Array:
    a, b, c = (full(value, array) for value, array in zip((op.a, op.b, op.c), operands, strict=True))
    return dot(a, b, c, scalar_element(op.a.type), scalar_element(op.c.type), op.input_precision)


def dot(a: Array, b: Array, c: Array, source: ScalarType, target: ScalarType, precision: InputPrecision) -> Array:
    """c + a · b for matrices, or batches of them: of elements of the type `source`, and for c `target`."""
    if not source.is_float:
        # A sum of products of 8-bit integers is exact in f64, and NumPy multiplies matrices of f64 fast.
        product = _product(a.astype(np.float64), b.astype(np.float64))
        return product.astype(np.int64).astype(target.dtype) + c
    a, b = widened(a), widened(b)
    if source != f32 or precision in (InputPrecision.DEFAULT, InputPrecision.IEEE):
        product = _product(a, b)
    elif precision is InputPrecision.TF32:
        product = _product(tf32(a), tf32(b))
    else:
        of_a, of_b = _parts(a, precision), _parts(b, precision)
        *smaller, product = (_product(of_a[i], of_b[j]) for i, j in precision.products)
        small = np.sum(smaller, axis=0)
        # What rounding leaves of an infinity is a NaN: then the product of the first parts alone is right.
        product = product + np.where(np.isnan(small), 0, small)
    return rounded(product + widened(c), target)


def _parts(x: Array, precision: InputPrecision) -> list[Array]:
    """An operand as parts that the matrix units read: each is what the ones before it leave, rounded."""
    parts: list[Array] = []
    for _ in range(1 + max(max(pair) for pair in precision.products)):
        parts.append(tf32(x) if precision is InputPrecision.TF32X3 else widened(rounded(x, bf16)))
        x = x - parts[-1]
    return parts


@where_marked(tt.Dot)
def _marks_of_dot(meaning: Meaning, machine: Machine, op: tt.Dot, operands: Operands, result: Any) -> Any:
    """An undefined element reaches a row or a column of the result."""
    a, b, c = map(marks_of, operands)
    return marked(result, np.maximum(np.maximum(a.max(axis=-1, keepdims=True), b.max(axis=-2, keepdims=True)), c))


def _product(a: Array, b: Array) -> Array:
    # Contiguous copies: NumPy's order of summation depends on the strides.
    return np.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))


@triton.of(tt.InlineAsm)
def _asm(machine: Machine, op: Op, operands: Operands) -> Any:
    raise KernelRuntimeError(
        "inline assembly cannot be interpreted", hint="run the kernel on a GPU, or write the operation in the language"
    )


# Elementwise ops, computed by `codemodel/scalars.py`.


@triton.of(arith.ConstantOp)
def _constant(machine: Machine, op: arith.ConstantOp, operands: Operands) -> Array:
    rank = op.type.rank if isinstance(op.type, TensorType) else 0
    return over(scalars.array_of(op.value, scalar_element(op.type)), rank)


@triton.of(arith.Elementwise, arith.CmpF, arith.Cast)
def _elementwise(machine: Machine, op: Op, operands: Operands) -> Array:
    if isinstance(op, arith.DivSI | arith.DivUI | arith.RemSI | arith.RemUI) and not operands[1].all():
        return _divided(machine, op, *operands)
    return scalars.MEANINGS[op](op, *operands)


def _divided(machine: Machine, op: Op, dividend: Array, divisor: Array) -> Array:
    """A quotient or a remainder of integers where a divisor is 0: an error, or what NVIDIA's GPUs give."""
    by_zero = divisor == 0
    message = f"{machine.program(int(np.argwhere(by_zero)[0][0]) if divisor.shape[0] > 1 else 0)} divides by zero"
    if not machine.memory.tolerant:
        raise KernelRuntimeError(message)
    machine.memory.warn(f"{message}: the result is taken to have all bits set", op)
    quotient = scalars.MEANINGS[op](op, dividend, np.where(by_zero, divisor.dtype.type(1), divisor))
    return np.where(by_zero, ~divisor.dtype.type(0), quotient)


@triton.of(arith.CmpI)
def _compare(machine: Machine, op: arith.CmpI, operands: Operands) -> Array:
    if isinstance(element_of(op.lhs.type), PtrType):
        operands = tuple(map(real_addresses, operands))
    return scalars.MEANINGS[op](op, *operands)


@triton.of(arith.Select)
def _select(machine: Machine, op: arith.Select, operands: Operands) -> Any:
    condition, then, otherwise = operands
    if condition.ndim == 1:
        if condition.shape[0] == 1:
            return then if condition[0] else otherwise
        if is_array(then):
            condition = over(condition, then.ndim - 1)
    return np.where(condition, then, otherwise)


# Prints, assertions, assumptions, hints and barriers.


def _index(place: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, place))})"


@triton.of(tt.Print)
def _print(machine: Machine, op: tt.Print, operands: Operands) -> None:
    programs = machine.frame.programs
    columns: list[Column] = []
    for value, array in zip(op.values, operands, strict=True):
        shape, element = shape_of(value.type), element_of(value.type)
        if isinstance(value.type, cpu.BufferType):
            shape, element, array = value.type.shape, value.type.element, array.array[None]
        scalar = element if isinstance(element, ScalarType) else None
        whole = np.broadcast_to(array, (len(programs), *shape))
        columns.append((whole if scalar else real_addresses(whole), scalar))
    for row, program in enumerate(map(int, programs)):
        pid, own = machine.memory.coordinates(program), [(array[row], scalar) for array, scalar in columns]
        machine.printed.append((program, printed_text(pid, op.prefix, own, op.hex, op.c_form, op.whole)))


@triton.of(debug.Stop)
def _stop(machine: Machine, op: debug.Stop, operands: Operands) -> None:
    machine.stop(op, operands)


def require(machine: Machine, condition: Array, message: str) -> None:
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
    require(
        machine,
        condition,
        f"device-side assertion failed: {op.message}" if op.message else "device-side assertion failed",
    )


@triton.of(tt.Barrier)
def _barrier(machine: Machine, op: tt.Barrier, operands: Operands) -> None:
    """Programs need no barrier here, as each op finishes before the next. Strict mode checks for missing ones."""
    machine.sharing.barrier(machine.frame.programs, op.scope)


@triton.of(tt.GridDependencyWait, tt.GridDependencyLaunch)
def _grid_dependency(machine: Machine, op: Op, operands: Operands) -> None:
    """A launch begins here when the one before it has ended."""


@triton.of(tt.Assume)
def _assume(machine: Machine, op: tt.Assume, operands: Operands) -> None:
    if machine.strict:
        require(machine, operands[0], "an assumption does not hold")


@triton.of(tt.MultipleOf)
def _multiple_of(machine: Machine, op: tt.MultipleOf, operands: Operands) -> Array:
    if machine.strict:
        array = full(op.value, operands[0])
        array = array.astype(np.int64) if array.dtype.kind in "iu" else widened(array)
        for axis, number in enumerate(op.values):
            # The first element of each run must be divisible. The first of an axis begins a run.
            first = array.take(0, axis=axis + 1) if array.ndim > 1 else array
            rest = np.fmod(first, number)
            require(
                machine, rest == 0, say("a value is not a multiple of {}, as {} says", number, call_text("multiple_of"))
            )
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
        view = np.moveaxis(whole, axis + 1, -1)
        begins: Array = np.equal(np.arange(1, view.shape[-1]) % length, 0)  # Whether the next element begins a run.
        good: Array = np.equal(np.diff(view, axis=-1), step) | begins
        require(machine, np.all(good.reshape(len(good), -1), axis=1), f"values are not {what} in runs of {length}")
    return operands[0]
