"""Reductions and scans with any combining body, run on whole arrays.

A reduction combines neighbours, then neighbours of the results, and so on: the order of the elements is kept, and the
result does not depend on the batch. A scan combines each element with the one 1, 2, 4, … before it. NumPy's own
reductions are used if the order makes no difference. A scan of sums or products of f32 or f64 is sequential.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.marks import where_marked
from ziggurat.backend.reference.tensors import full
from ziggurat.backend.reference.values import Array, Frame, Marked, is_tuple, marked, marks_of, plain
from ziggurat.codemodel.dialects import arith, core, cpu, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.interpret import Meaning
from ziggurat.codemodel.op import Body, Op
from ziggurat.codemodel.scalars import float_binary
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.traits import Commutative
from ziggurat.codemodel.types import scalar_element, shape_of

Operands = tuple[Any, ...]
Columns = list[Array]  # One array of shape (P, *rest, n) for each operand; the last axis is combined.
Combine = Callable[[Columns, Columns], Columns]

_ORDERLESS: dict[type, np.ufunc] = {
    arith.AddI: np.add, arith.MulI: np.multiply, arith.AndI: np.bitwise_and, arith.OrI: np.bitwise_or,
    arith.XOrI: np.bitwise_xor, arith.MaxSI: np.maximum, arith.MaxUI: np.maximum, arith.MinSI: np.minimum,
    arith.MinUI: np.minimum,
}  # fmt: skip
_EXTREMES: dict[type, np.ufunc] = {
    arith.MaximumF: np.maximum, arith.MinimumF: np.minimum, arith.MaxNumF: np.fmax, arith.MinNumF: np.fmin,
}  # fmt: skip
_SUMS: dict[type, np.ufunc] = {arith.AddF: np.add, arith.MulF: np.multiply}


def single_op(machine: Machine, body: Body) -> Op | None:
    """The one op of a combining body, on its two parameters, or of a function it calls; None for any other body."""
    while True:
        ops = body.entry.ops
        if len(body.blocks) != 1 or len(ops) != 2 or len(body.parameters) != 2:
            return None
        op, end = ops
        if end.operands != (op.result,) or not isinstance(
            end, tt.ReduceReturn | tt.ScanReturn | tt.Return | core.Yield
        ):
            return None
        straight = op.operands == body.parameters
        if not straight and not (isinstance(op, Commutative) and op.operands == body.parameters[::-1]):
            return None
        if not isinstance(op, tt.Call):
            return op
        function = machine.functions.get(op.callee)
        if function is None:
            return None
        body = function.bodies[0]


def _elements(machine: Machine, programs: int, count: int) -> Frame:
    """A frame in which each of `count` elements of each program runs as a program of its own.

    `programs` is 1 for elements that are the same for all programs: they run for the first program only.
    """
    frame = machine.frame
    running = frame if programs == len(frame) else frame.part(np.zeros(1, np.int64))
    return running.elements(count)


def _combiner(machine: Machine, op: tt.Combining | cpu.Scan, *, with_marks: bool = False) -> Combine:
    """The combining body as a function of arrays of equal shapes; `with_marks`, of arrays followed by their marks."""
    single = single_op(machine, op.combine)
    if isinstance(single, arith.FloatBinary) and not with_marks:
        scalar = scalar_element(single.result.type)
        return lambda a, b: [float_binary(type(single), a[0], b[0], scalar)]
    frames: dict[int, Frame] = {}

    def combine(a: Columns, b: Columns) -> Columns:
        shape = a[0].shape
        count = a[0].size // shape[0]
        elements = frames.get(count)
        if elements is None:
            elements = frames[count] = _elements(machine, shape[0], count)
        arguments: list[Any] = []
        for columns in (a, b):
            flat = [column.reshape(-1) for column in columns]
            half = len(flat) // 2
            arguments += map(marked, flat[:half], flat[half:]) if with_marks else flat
        results, values = machine.run_in(op.combine, arguments, elements)
        if results is None:
            raise InternalError("the body of a reduction returns from the function", str(op))
        arrays = [*map(plain, values), *(map(marks_of, values) if with_marks else ())]
        return [np.broadcast_to(value, a[0].size).reshape(shape) for value in arrays]

    return combine


def _columns(op: tt.Combining, operands: Operands) -> Columns:
    arrays = [full(value, array) for value, array in zip(op.values, operands, strict=True)]
    count = max(array.shape[0] for array in arrays)
    arrays = [np.broadcast_to(array, (count, *array.shape[1:])) for array in arrays]
    columns = [np.moveaxis(array, op.axis + 1, -1) for array in arrays]
    return [column[..., ::-1] for column in columns] if isinstance(op, tt.Scan) and op.reverse else columns


def _reduced(columns: Columns, combine: Combine) -> Columns:
    """Neighbours combined, then neighbours of these, and so on."""
    while (size := columns[0].shape[-1]) > 1:
        even = size & ~1
        combined = combine([c[..., 0:even:2] for c in columns], [c[..., 1:even:2] for c in columns])
        if size != even:
            combined = [np.concatenate([a, c[..., -1:]], axis=-1) for a, c in zip(combined, columns, strict=True)]
        columns = combined
    return [column[..., 0] for column in columns]


def _scanned(columns: Columns, combine: Combine) -> Columns:
    """Each element combined with the one 1, 2, 4, … before it."""
    distance = 1
    while distance < columns[0].shape[-1]:
        combined = combine([c[..., :-distance] for c in columns], [c[..., distance:] for c in columns])
        columns = [np.concatenate([c[..., :distance], a], axis=-1) for c, a in zip(columns, combined, strict=True)]
        distance *= 2
    return columns


def _result(op: tt.Combining, columns: Columns) -> list[Array]:
    """The columns as the results of the op."""
    if isinstance(op, tt.Reduce):
        return columns
    if op.attributes["reverse"]:
        columns = [column[..., ::-1] for column in columns]
    return [np.moveaxis(column, -1, op.axis + 1) for column in columns]


@triton.of(tt.Reduce)
def _reduce(machine: Machine, op: tt.Reduce, operands: Operands) -> Any:
    columns = _columns(op, operands)
    single = single_op(machine, op.combine)
    function = _ORDERLESS.get(type(single))
    if function is not None and columns[0].dtype != np.bool_:
        return function.reduce(columns[0], axis=-1, dtype=columns[0].dtype)
    function = _EXTREMES.get(type(single))
    if function is not None and columns[0].dtype.itemsize >= 4:
        result = function.reduce(columns[0], axis=-1)
        if (result != 0).all():  # The sign of a zero depends on the order, which is the tree's.
            return result
    return packed_values(_result(op, _reduced(columns, _combiner(machine, op))))


@triton.of(tt.Scan)
def _scan(machine: Machine, op: tt.Scan, operands: Operands) -> Any:
    return packed_values(_result(op, scanned(machine, op, _columns(op, operands))))


def scanned(machine: Machine, op: tt.Scan | cpu.Scan, columns: Columns) -> Columns:
    """The columns of a scan, along their last axis."""
    single = single_op(machine, op.combine)
    function = (_ORDERLESS | _SUMS).get(type(single))
    dtype = columns[0].dtype
    plain_number = dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize >= 4)
    if function is not None and plain_number:
        return [function.accumulate(columns[0], axis=-1, dtype=dtype)]
    return _scanned(columns, _combiner(machine, op))


@where_marked(tt.Reduce, tt.Scan)
def _marks_of_combining(meaning: Meaning, machine: Machine, op: tt.Combining, operands: Operands, result: Any) -> Any:
    """A result depends on the undefined elements it is combined from, unless the combining body drops them."""
    columns = _columns(op, tuple(map(marks_of, operands)))
    single = single_op(machine, op.combine)
    reduces = isinstance(op, tt.Reduce)
    if single is not None and not isinstance(single, arith.AndI | arith.OrI | arith.MulI):
        results = [np.maximum.reduce(columns[0], -1) if reduces else np.maximum.accumulate(columns[0], -1)]
    else:
        columns = [*_columns(op, tuple(map(plain, operands))), *columns]
        combine = _combiner(machine, op, with_marks=True)
        results = (_reduced if reduces else _scanned)(columns, combine)[len(operands) :]
    results = _result(op, results)
    return packed_values(list(map(marked, result if is_tuple(result) else (result,), results)))


@triton.of(tt.MapElementwise)
def _map(machine: Machine, op: tt.MapElementwise, operands: Operands) -> Any:
    """The body runs for the elements in row-major order, `pack` at a time; the last one fills an incomplete group."""
    shape, pack = shape_of(op.values[0].type), op.pack
    size = math.prod(shape)
    count = -(-size // pack)
    programs = max(plain(value).shape[0] for value in operands)

    def columns(array: Array) -> list[Array]:
        rows = np.broadcast_to(array, (programs, *shape)).reshape(programs, size)
        places = np.minimum(np.arange(count * pack), size - 1).reshape(count, pack)
        return [np.ascontiguousarray(rows[:, places[:, at]]).reshape(-1) for at in range(pack)]

    arguments: list[Any] = []
    for value in operands:
        parts = columns(plain(value))
        arguments += map(marked, parts, columns(marks_of(value))) if isinstance(value, Marked) else parts
    yields, values = machine.run_in(op.apply, arguments, _elements(machine, programs, count))
    if yields is None:
        raise InternalError("the body of a map returns from the function", str(op))

    def joined_again(parts: Sequence[Array]) -> Array:
        rows = [np.broadcast_to(part, programs * count).reshape(programs, count) for part in parts]
        return np.stack(rows, axis=-1).reshape(programs, count * pack)[:, :size].reshape(programs, *shape)

    results: list[Any] = []
    for first in range(0, len(values), pack):
        group = values[first : first + pack]
        marks_there = joined_again(list(map(marks_of, group))) if any(isinstance(v, Marked) for v in group) else None
        results.append(marked(joined_again(list(map(plain, group))), marks_there))
    return packed_values(results)
