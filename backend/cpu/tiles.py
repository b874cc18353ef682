"""Emission of ops on whole buffers: dots and scans.

A dot keeps a block of the accumulator in registers, for all of k: `rows` rows of `columns` vectors. For each k it loads
the vectors of a row of b, and for each row a number of a, which every lane gets. Operands that are not of the type of
the accumulation are converted to it first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.backend.cpu.casts import narrow, to_f64, widen
from ziggurat.backend.cpu.control import apply, is_straight
from ziggurat.backend.cpu.emitter import Emitter, emits
from ziggurat.backend.cpu.memory import read, write
from ziggurat.backend.ptx.routines import Number
from ziggurat.codemodel.dialects import arith, cpu
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, Type, bf16, f16, f32, f64, i32

BLOCKS = {64: (4, 4), 32: (4, 2), 16: (4, 2)}  # Rows and vectors of a block, by the bytes of a vector.


def _buffer(value: Value) -> cpu.BufferType:
    assert isinstance(value.type, cpu.BufferType)
    return value.type


def _power(limit: int, size: int) -> int:
    """The largest power of two up to `limit` that divides a size."""
    while size % limit:
        limit //= 2
    return limit


def _each(emitter: Emitter, count: int, size: int, body: Callable[[Number], None]) -> None:
    """Run code for all elements of a buffer, in vectors: it gets their places."""
    outer, emitter.lanes = emitter.lanes, _power(emitter.module.vector // max(size, 4), count)
    step = emitter.lanes
    emitter.lanes = step if step > 1 else 0
    emitter.loop(0, count, step, body)
    emitter.lanes = outer


@emits(cpu.Dot)
def _dot(emitter: Emitter, op: cpu.Dot, a: Number, b: Number, c: Number) -> None:
    result, source = _buffer(op.c), _buffer(op.a).element
    assert isinstance(result.element, ScalarType) and isinstance(source, ScalarType)
    accumulator = f32 if result.element == f16 else result.element
    products: Sequence[tuple[Number, Number]]
    precision = op.input_precision
    if source != f32 or precision in (InputPrecision.DEFAULT, InputPrecision.IEEE):
        products = [(_as(emitter, op.a, a, accumulator), _as(emitter, op.b, b, accumulator))]
    elif precision is InputPrecision.TF32:
        products = [(_parts(emitter, op.a, a, precision, 1)[0], _parts(emitter, op.b, b, precision, 1)[0])]
    else:
        count = 1 + max(max(pair) for pair in precision.products)
        of_a, of_b = _parts(emitter, op.a, a, precision, count), _parts(emitter, op.b, b, precision, count)
        products = [(of_a[i], of_b[j]) for i, j in precision.products]
    target = c
    if result.element != accumulator:
        target = emitter.scratch_address(emitter.temporary(4 * result.numel))
        start = target

        def clear(at: Number) -> None:
            zero = emitter.constant(0.0, f32).spread(emitter.lanes)
            write(emitter, start, at, emitter.lanes > 0, zero, f32)

        _each(emitter, result.numel, 4, clear)
    *batch, rows, depth = _buffer(op.a).shape
    columns = result.shape[-1]
    for first, second in products:
        for number in range(batch[0] if batch else 1):
            sizes = [rows * depth, depth * columns, rows * columns]
            bases = [
                base + emitter.i64(number * size * accumulator.bytes) if number else base
                for base, size in zip((first, second, target), sizes, strict=True)
            ]
            _matmul(emitter, bases, (rows, depth, columns), accumulator)
    if result.element != accumulator:

        def add(at: Number) -> None:
            run = emitter.lanes > 0
            total = read(emitter, target, at, run, f32) + widen(emitter, read(emitter, c, at, run, f16), f16)
            write(emitter, c, at, run, narrow(emitter, total, f32, f16), f16)

        _each(emitter, result.numel, 4, add)
    emitter.release()


def _as(emitter: Emitter, value: Value, base: Number, target: ScalarType) -> Number:
    """The address of a buffer's content in the type of the accumulation."""
    type_ = _buffer(value)
    source = type_.element
    assert isinstance(source, ScalarType)
    if source == target:
        return base
    copy = emitter.scratch_address(emitter.temporary(target.bytes * type_.numel))

    def convert(at: Number) -> None:
        found = read(emitter, base, at, emitter.lanes > 0, source)
        if target == i32:
            found = found.to("sext" if source.signed else "zext", "i32")
        else:
            found = to_f64(emitter, found, source) if target == f64 else widen(emitter, found, source)
        write(emitter, copy, at, emitter.lanes > 0, found, target)

    _each(emitter, type_.numel, target.bytes, convert)
    return copy


def _parts(emitter: Emitter, value: Value, base: Number, precision: InputPrecision, count: int) -> list[Number]:
    """The addresses of the parts that the matrix units would read: each is the rounded rest after those before it."""
    type_ = _buffer(value)
    copies = [emitter.scratch_address(emitter.temporary(4 * type_.numel)) for _ in range(count)]

    def split(at: Number) -> None:
        run = emitter.lanes > 0
        rest = read(emitter, base, at, run, f32)
        for copy in copies:
            if precision in (InputPrecision.TF32, InputPrecision.TF32X3):
                cut = (rest.bits() + 0x1000 & 0xFFFFE000).to("bitcast", "float")
                part = abs(rest).test("olt", float("inf")).select(cut, rest)
            else:
                part = widen(emitter, narrow(emitter, rest, f32, bf16), bf16)
            write(emitter, copy, at, run, part, f32)
            rest = rest - part

    _each(emitter, type_.numel, 4, split)
    return copies


def _matmul(emitter: Emitter, bases: Sequence[Number], sizes: tuple[int, int, int], type_: ScalarType) -> None:
    """c += a · b for row-major matrices of one type."""
    a, b, c = bases
    rows, depth, columns = sizes
    vector = emitter.module.vector
    lanes = _power(vector // type_.bytes, columns)
    most_rows, most_vectors = BLOCKS[vector]
    high, wide = _power(most_rows, rows), _power(most_vectors, columns // lanes)
    emitter.lanes = lanes if lanes > 1 else 0
    run = emitter.lanes > 0

    def block(row: Number, column: Number) -> None:
        places = [[(row + i) * columns + (column + j * lanes) for j in range(wide)] for i in range(high)]
        before = [read(emitter, c, place, run, type_) for line in places for place in line]

        def step(k: Number, sums: list[Number]) -> list[Number]:
            right = [read(emitter, b, k * columns + (column + j * lanes), run, type_) for j in range(wide)]
            made: list[Number] = []
            for i in range(high):
                left = read(emitter, a, (row + i) * depth + k, False, type_)
                for j in range(wide):
                    x, y, z = left, right[j], sums[i * wide + j]
                    if type_.is_float:
                        made.append(x.spread(emitter.lanes).call("llvm.fma", y, z))
                    else:
                        made.append(x * y + z)
            return made

        after = emitter.folding_loop(depth, step, before)
        for place, value in zip((place for line in places for place in line), after, strict=True):
            write(emitter, c, place, run, value, type_)

    def row_of_blocks(row: Number) -> None:
        def next_block(column: Number) -> None:
            block(row, column)

        emitter.loop(0, columns, wide * lanes, next_block)

    emitter.loop(0, rows, high, row_of_blocks)
    emitter.lanes = 0


# Scans.

_IN_ORDER = (
    arith.AddI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI, arith.MaxSI, arith.MaxUI, arith.MinSI, arith.MinUI,
)  # fmt: skip


def _sequential(op: cpu.Scan) -> bool:
    """Whether the interpreter scans in order: integers, and sums and products of f32 and f64."""
    ops, parameters = op.combine.entry.ops, op.combine.parameters
    if len(op.combine.blocks) != 1 or len(ops) != 2 or len(parameters) != 2 or ops[1].operands != (ops[0].result,):
        return False
    type_ = _buffer(op.buffers[0]).element
    assert isinstance(type_, ScalarType)
    plain = type_.bits >= 32 if type_.is_float else type_.bits > 1
    known = _IN_ORDER if not type_.is_float else (arith.AddF, arith.MulF)
    return plain and isinstance(ops[0], known) and set(ops[0].operands) == set(parameters)


@emits(cpu.Scan)
def _scan(emitter: Emitter, op: cpu.Scan, *bases: Number) -> None:
    shape = _buffer(op.buffers[0]).shape
    types = [_buffer(value).element for value in op.buffers]
    size, stride = shape[op.axis], cpu.row_major(shape)[op.axis]
    outer = cpu.row_major((1, *shape))[0] // (size * stride)
    straight = is_straight(op.combine)
    lanes = _power(emitter.module.vector // 4, stride) if straight else 1
    emitter.lanes = lanes if lanes > 1 else 0

    def at(line: Number, column: Number, number: Number) -> Number:
        if op.reverse:
            number = emitter.i64(size - 1) - number
        return (line * size + number) * stride + column

    def load(place: Number) -> list[Number]:
        return [_read(emitter, base, place, type_) for base, type_ in zip(bases, types, strict=True)]

    def store(place: Number, values: Sequence[Number]) -> None:
        for base, type_, value in zip(bases, types, values, strict=True):
            write(emitter, base, place, emitter.lanes > 0, value, type_)

    def in_order(line: Number, column: Number) -> None:
        def step(number: Number) -> None:
            before, here = at(line, column, number - 1), at(line, column, number)
            store(here, apply(emitter, op.combine, [*load(before), *load(here)]))

        emitter.loop(1, size, 1, step)

    def in_steps(line: Number, column: Number) -> None:
        """Each element with the one 1, 2, 4 … before it. From the last on: the one before is not changed yet."""
        distance = 1
        while distance < size:

            def step(number: Number, distance: int = distance) -> None:
                index = emitter.i64(size - 1) - number
                before, here = at(line, column, index - distance), at(line, column, index)
                store(here, apply(emitter, op.combine, [*load(before), *load(here)]))

            emitter.loop(0, size - distance, 1, step)
            distance *= 2

    body = in_order if _sequential(op) else in_steps

    def each_line(line: Number) -> None:
        def each_column(column: Number) -> None:
            body(line, column)

        emitter.loop(0, stride, lanes, each_column)

    if size > 1:
        emitter.loop(0, outer, 1, each_line)
    emitter.lanes = 0


def _read(emitter: Emitter, base: Number, place: Number, type_: Type) -> Number:
    return read(emitter, base, place, emitter.lanes > 0, type_)
