"""Emission of ops that give tensors, at an index: ranges, changes of shape, and parts of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cpu.control import apply
from ziggurat.backend.cpu.emitter import Coord, CpuEmitter, Index, indexed
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import TensorType, shape_of


@indexed(tt.MakeRange)
def _range(emitter: CpuEmitter, op: tt.MakeRange, index: Index) -> Number:
    (coord,) = index
    number = emitter.vector(coord, 32)
    return number + op.start if op.start else number


@indexed(tt.Splat)
def _splat(emitter: CpuEmitter, op: tt.Splat, index: Index) -> Number:
    return emitter.at(op.value, ())


@indexed(tt.Broadcast)
def _broadcast(emitter: CpuEmitter, op: tt.Broadcast, index: Index) -> Number:
    zero = Coord(emitter.i64(0))
    sizes = shape_of(op.value.type)
    return emitter.at(op.value, tuple(zero if size == 1 else coord for size, coord in zip(sizes, index, strict=True)))


@indexed(tt.ExpandDims)
def _expand_dims(emitter: CpuEmitter, op: tt.ExpandDims, index: Index) -> Number:
    return emitter.at(op.value, (*index[: op.axis], *index[op.axis + 1 :]))


@indexed(tt.Trans)
def _trans(emitter: CpuEmitter, op: tt.Trans, index: Index) -> Number:
    return emitter.at(op.value, tuple(index[op.order.index(axis)] for axis in range(len(op.order))))


def linear(emitter: CpuEmitter, index: Index, shape: Sequence[int]) -> Coord:
    """The row-major number of an element: neighbours for lanes along the last axis."""
    place: Number | None = None
    run = False
    for coord, stride in zip(index, row_major(shape), strict=True):
        if coord.run and stride == 1 and (place is None or not place.lanes):
            run, part = True, coord.base
        else:
            part = emitter.vector(coord)
            part = part if stride == 1 else part * stride
        place = part if place is None else place + part
    if place is None:
        place = emitter.i64(0)
    if run and place.lanes:
        return Coord(place + emitter.vector(Coord(emitter.i64(0), True)))
    return Coord(place, run)


def unravelled(emitter: CpuEmitter, place: Coord, shape: Sequence[int]) -> Index:
    """The index of the element with a row-major number."""
    last = shape[-1] if shape else 1
    lanes = emitter.lanes
    if place.run and last % lanes == 0:  # A vector, which begins at a multiple of its length, lies in one row.
        number, runs = place.base, True
    else:
        number, runs = emitter.vector(place), False
    coords: list[Coord] = []
    for axis, stride in enumerate(row_major(shape)):
        size = shape[axis]
        if size == 1:
            coords.append(Coord(emitter.i64(0)))
            continue
        part = number / stride if stride > 1 else number
        if axis > 0 and any(other > 1 for other in shape[:axis]):
            part = part % size
        coords.append(Coord(part, runs and stride == 1))
    return tuple(coords)


@indexed(tt.Reshape)
def _reshape(emitter: CpuEmitter, op: tt.Reshape, index: Index) -> Number:
    source, target = shape_of(op.value.type), shape_of(op.type)
    coords = [coord for coord, size in zip(index, target, strict=True) if size > 1]
    if [size for size in source if size > 1] == [size for size in target if size > 1]:
        remaining = iter(coords)
        zero = Coord(emitter.i64(0))
        return emitter.at(op.value, tuple(next(remaining) if size > 1 else zero for size in source))
    return emitter.at(op.value, unravelled(emitter, linear(emitter, index, target), source))


@indexed(tt.Join)
def _join(emitter: CpuEmitter, op: tt.Join, index: Index) -> Number:
    *rest, last = index
    first, second = (emitter.at(value, tuple(rest)) for value in op.operands)
    return emitter.vector(last).test("eq", 0).select(first, second)


@indexed(tt.Split)
def _split(emitter: CpuEmitter, op: tt.Split, index: Index) -> tuple[Number, ...]:
    return tuple(emitter.at(op.value, (*index, Coord(emitter.i64(half)))) for half in range(2))


@indexed(tt.Cat)
def _cat(emitter: CpuEmitter, op: tt.Cat, index: Index) -> Number:
    first, *rest = index
    size = expect(op.lhs.type, TensorType).shape[0]
    number = emitter.vector(first)
    below = number.test("ult", size)
    if first.run and size % emitter.lanes == 0:  # All lanes are of one half.
        below = first.base.test("ult", size)
        inner = Coord(first.base % size, True)
    else:
        inner = Coord(number % size)
    values = [emitter.at(value, (inner, *rest)) for value in op.operands]
    return below.select(*values)


@indexed(core.TupleLoad)
def _component(emitter: CpuEmitter, op: core.TupleLoad, index: Index) -> Any:
    return emitter.at(op.tuple, index)[op.index]


@indexed(tt.MapElementwise)
def _map(emitter: CpuEmitter, op: tt.MapElementwise, index: Index) -> Any:
    if op.pack == 1:
        return packed_values(apply(emitter, op.apply, [emitter.at(value, index) for value in op.values]))
    shape = shape_of(op.values[0].type)
    size = math.prod(shape)
    number = emitter.vector(linear(emitter, index, shape))
    position = number % op.pack
    arguments: list[Number] = []
    for value in op.values:
        for at in range(op.pack):
            place = (number - position + at).call("llvm.umin", size - 1)
            arguments.append(emitter.at(value, unravelled(emitter, Coord(place), shape)))
    results = apply(emitter, op.apply, arguments)
    columns: list[Number] = []
    for first in range(0, len(results), op.pack):
        result = results[first]
        for at in range(1, op.pack):
            result = position.test("eq", at).select(results[first + at], result)
        columns.append(result)
    return packed_values(columns)
