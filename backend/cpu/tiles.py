"""Emission of ops on whole buffers: dots and scans.

A dot keeps a block of the accumulator in registers, for all of k: `rows` rows of `columns` vectors. For each k it loads
the vectors of a row of b, and for each row a number of a, which every lane gets. Operands that are not of the type of
the accumulation are converted to it first. Integers of 8 bits are converted to i16, of which x86 multiplies pairs: a
number is then two neighbours along k. With `fast_math`, bf16 are not converted, if the machine has an instruction for
pairs of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from ziggurat.backend.cpu.access import Matrix
from ziggurat.backend.cpu.casts import narrow, to_f64, widen
from ziggurat.backend.cpu.control import apply
from ziggurat.backend.cpu.emitter import CpuEmitter, emits
from ziggurat.backend.cpu.memory import guarded, read, write
from ziggurat.backend.cpu.packing import Packed, packed_place
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import arith, cpu
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32, f64, i16, i32
from ziggurat.transforms.cpu.dot_blocks import DotBlock, lanes_of_block, power_of_two_in
from ziggurat.transforms.cpu.traffic import CACHE_LINE

SET_STRIDE = 1024  # Rows that lie a multiple of so many bytes apart share few sets of the first cache.
# Instructions for pairs of bf16, by lanes, and the feature that has them. To an f32 they add the product of the second
# numbers by a fused multiply-add, then that of the first ones; subnormal numbers count as zeros.
PAIRED = {lanes: f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}" for lanes in (4, 8, 16)}
PAIRED_FEATURE = "+avx512bf16"
# Those for pairs of i16, by lanes: the sums of two products, modulo 2^32.
WHOLE_PAIRED = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


def _buffer(value: Value) -> cpu.BufferType:
    return expect(value.type, cpu.BufferType)


def _scalar(value: Value) -> ScalarType:
    """The type of the numbers in a buffer."""
    return expect(_buffer(value).element, ScalarType)


def _each(emitter: CpuEmitter, count: int, size: int, body: Callable[[Number], None]) -> None:
    """Run code for all elements of a buffer, in vectors: it gets their places."""
    step = power_of_two_in(emitter.module.vector // max(size, 4), count)
    outer, emitter.lanes = emitter.lanes, step if step > 1 else 0
    emitter.loop(0, count, step, body)
    emitter.lanes = outer


@emits(cpu.Dot)
def _dot(emitter: CpuEmitter, op: cpu.Dot, a: Number, b: Number, c: Number) -> None:
    result, source = _buffer(op.c), _scalar(op.a)
    accumulator = f32 if _scalar(op.c) == f16 else _scalar(op.c)
    products: Sequence[tuple[Matrix, Matrix]]
    precision = op.input_precision
    first, second = (_matrix(emitter, *operand) for operand in ((op.a, a), (op.b, b)))
    *batch, rows, depth = _buffer(op.a).shape
    columns = result.shape[-1]
    pair = _pair_type(emitter, source, _scalar(op.b), accumulator) if depth % 2 == 0 else None
    unroll = op.unroll
    lanes = lanes_of_block(depth // 2, columns, f32.bytes, emitter.module.vector, transposed=op.transposed)
    if lanes not in PAIRED:
        pair = None
    if pair is not None:
        products = [(_as(emitter, op.a, first, pair), _as(emitter, op.b, second, pair))]
        depth, unroll = depth // 2, math.gcd(unroll, depth // 2)
    elif source != f32 or precision in (InputPrecision.DEFAULT, InputPrecision.IEEE):
        products = [(_as(emitter, op.a, first, accumulator), _as(emitter, op.b, second, accumulator))]
    else:
        numbers = [(0, 0)] if precision is InputPrecision.TF32 else precision.products
        count = 1 + max(map(max, numbers))
        of_a = _parts(emitter, op.a, first, precision, count)
        of_b = _parts(emitter, op.b, second, precision, count)
        products = [(of_a[i], of_b[j]) for i, j in numbers]
    target = c
    if result.element != accumulator:
        target = emitter.scratch_address(emitter.temporary(4 * result.numel))
    begins = op.zero or result.element != accumulator
    for position, (left, right) in enumerate(products):
        for number in range(batch[0] if batch else 1):
            x, y = (
                attrs.evolve(matrix, base=emitter.moved(matrix.base, number * size, accumulator.bytes))
                for matrix, size in ((left, rows * depth), (right, depth * columns))
            )
            part = emitter.moved(target, number * rows * columns, accumulator.bytes)
            zero, sizes = begins and position == 0, (rows, depth, columns)
            _matmul(
                emitter,
                x,
                y,
                part,
                sizes,
                accumulator,
                transposed=op.transposed,
                zero=zero,
                pair=pair,
                unroll=unroll,
                keeps=partial(packed_place, emitter, op, y) if op.keep and y.origin is not None else None,
            )
    if result.element != accumulator:

        def add(at: Number) -> None:
            run = emitter.lanes > 0
            total = read(emitter, target, at, run, f32)
            if not op.zero:
                total = total + widen(read(emitter, c, at, run, f16), f16)
            write(emitter, c, at, run, narrow(total, f32, f16), f16)

        _each(emitter, result.numel, 4, add)
    emitter.release()


def _pair_type(emitter: CpuEmitter, a: ScalarType, b: ScalarType, accumulator: ScalarType) -> ScalarType | None:
    """The type of numbers of which one instruction multiplies pairs along k, if these operands can have it. Processors
    with matrix units (AMX) take twice as long for pairs of bf16 as for f32."""
    features = emitter.features
    if accumulator == i32 and a.bits == b.bits == 8 and a.is_int and b.is_int:
        return i16 if emitter.module.vector > 16 or "+sse2" in features else None
    pairs = emitter.fast_math and PAIRED_FEATURE in features and "+amx-bf16" not in features
    return bf16 if pairs and a == b == bf16 and accumulator == f32 else None


def _matrix(emitter: CpuEmitter, value: Value, base: Number) -> Matrix:
    """An operand of a dot: a buffer, or the memory from which it was to be loaded."""
    type_ = _buffer(value)
    matrix = emitter.loaded.get(value)
    return matrix or Matrix(base, emitter.i64(type_.shape[-1] * type_.element.bytes))


def _copied(
    emitter: CpuEmitter,
    value: Value,
    matrix: Matrix,
    target: ScalarType,
    count: int,
    make: Callable[[Number], Sequence[Number]],
) -> list[Matrix]:
    """New matrices: `make` gives the elements of each, from those of a matrix."""
    type_ = _buffer(value)
    source = _scalar(value)
    columns = type_.shape[-1]
    copies = [emitter.scratch_address(emitter.temporary(target.bytes * type_.numel)) for _ in range(count)]

    def row(number: Number) -> None:
        start, to = matrix.base + number * matrix.pitch, [copy + number * (columns * target.bytes) for copy in copies]

        def convert(at: Number) -> None:
            run = emitter.lanes > 0
            for place, part in zip(to, make(read(emitter, start, at, run, source)), strict=True):
                write(emitter, place, at, run, part, target)

        _each(emitter, columns, target.bytes, convert)

    emitter.loop(0, type_.numel // columns, 1, row)
    return [Matrix(copy, emitter.i64(columns * target.bytes)) for copy in copies]


def _as(emitter: CpuEmitter, value: Value, matrix: Matrix, target: ScalarType) -> Matrix:
    """A matrix in another type, such as that of the accumulation."""
    source = _scalar(value)
    if source == target:
        return matrix

    def convert(number: Number) -> list[Number]:
        if target.is_int:
            return [number.to("sext" if source.signed else "zext", target.llvm)]
        return [to_f64(number, source) if target == f64 else widen(number, source)]

    return _copied(emitter, value, matrix, target, 1, convert)[0]


def _parts(emitter: CpuEmitter, value: Value, matrix: Matrix, precision: InputPrecision, count: int) -> list[Matrix]:
    """The parts that the matrix units would read: each is the rounded rest after those before it."""

    def split(rest: Number) -> list[Number]:
        parts: list[Number] = []
        for _ in range(count):
            if precision in (InputPrecision.TF32, InputPrecision.TF32X3):
                bits = rest.bits()
                cut = (bits + (bits >> 13 & 1) + 0xFFF & 0xFFFFE000).to("bitcast", "float")  # To nearest, ties to even.
                parts.append(abs(rest).test("olt", float("inf")).select(cut, rest))
            else:
                parts.append(widen(narrow(rest, f32, bf16), bf16))
            rest = rest - parts[-1]
        return parts

    return _copied(emitter, value, matrix, f32, count, split)


def _matmul(
    emitter: CpuEmitter,
    a: Matrix,
    b: Matrix,
    c: Number,
    sizes: tuple[int, int, int],
    type_: ScalarType,
    *,
    transposed: bool,
    zero: bool,
    pair: ScalarType | None,
    unroll: int,
    keeps: Callable[[Number, int], Packed] | None,
) -> None:
    """c += a · b, or with `zero` c = a · b, for matrices of one type, c row-major; b may be transposed in memory. With
    `pair`, a and b have pairs of this type, and `depth` counts these. `keeps` gives the place of the packed b, which
    may be there."""
    rows, depth, columns = sizes
    vector, size = emitter.module.vector, type_.bytes
    factor, align = (i32, pair.bytes) if pair is not None else (type_, size)
    rows_per_step = 2 if pair is not None and not transposed else 1  # Rows of b that become one.
    element = pair if pair is not None and rows_per_step > 1 else factor
    shape = DotBlock.of(sizes, size, vector, transposed=transposed)
    high, wide, lanes, panel = shape.rows, shape.vectors, shape.lanes, shape.columns
    rest = rows % high  # The last rows of a block whose height does not divide them, which are even.
    step = 2 if rest else high
    emitter.lanes = lanes if lanes > 1 else 0
    run = emitter.lanes > 0
    pack = transposed or rows_per_step > 1 or (rows > high and b.pitch.name != str(panel * size))
    # All panels are packed at once, by whole rows of b. A line between two keeps their rows from sharing a set.
    between = depth * panel * size + CACHE_LINE
    room = columns // panel * between
    packed = emitter.scratch_address(emitter.temporary(room)) if pack else b.base
    panels = keeps(packed, room) if pack and keeps is not None else None
    missing = None if panels is None else panels.missing
    if panels is not None:
        packed = panels.place
    pitch = emitter.i64(panel * size) if pack else b.pitch
    all_rows, all_columns, all_k = rows, columns, depth
    limited = type_.is_float and run and not (transposed or pair is not None or zero)
    if limited and a.counts and b.counts and (a.counts[1].name, b.counts[0].name) != (str(depth), str(depth)):
        # One product of masked numbers is enough: adding +0 makes +0 of -0, and adding it again changes nothing.
        after_masked = (a.counts[1] + 1).call("llvm.smin", depth)
        all_k = a.counts[1].test("eq", b.counts[0]).select(after_masked, depth)
    # Processors without AVX-512 have a first cache of 8 ways, in which such rows displace each other.
    spread = vector == 32 and a.origin is not None and columns > panel and run and depth % lanes == 0
    if spread:
        a = _spread_rows(emitter, a, rows, depth, lanes, factor, align)

    def vectors(base: Number, type_: ScalarType = factor) -> list[Number]:
        return [read(emitter, base, j * lanes, run, type_) for j in range(wide)]

    def fetch_following(b: Matrix, row: Number, column: Number, high: int) -> None:
        """Fetch what follows the rows of b: a part of it for each block of c."""
        start = b.base + column * (b.pitch if transposed else element.bytes)
        lines, all_lines, width = panel, columns, depth
        if not transposed:
            lines, all_lines, width = depth * rows_per_step, depth * rows_per_step, panel
        for part in range(-(-lines * high // rows)):
            number = row * lines / rows + (part + all_lines)
            emitter.prefetch(start + number * b.pitch, width * element.bytes, level=2)

    def block(row: Number, column: Number, high: int) -> None:
        """The sums of `high` rows and `wide` vectors."""
        target = c + (row * columns + column) * size
        left = [a.base + (row + i) * a.pitch for i in range(high)]
        for line in left if a.origin else ():  # The processor does not prefetch the next rows.
            emitter.prefetch(line + a.pitch * high, depth * size, level=1)
        if spread and a.origin:  # Nor the numbers that follow in these rows.
            for i in range(high):
                line = a.origin.base + (row + i) * a.origin.pitch + depth * size
                emitter.prefetch(line + column * depth / columns * size, 1, level=2)
        if b.origin is not None:  # Nor the rows of b that follow these.
            following = partial(fetch_following, b.origin, row, column, high)
            guarded(emitter, missing, following)
        right = packed + column / panel * between if pack else packed + column * size
        places = [i * columns + j * lanes for i in range(high) for j in range(wide)]
        nothing = emitter.constant(0.0 if type_.is_float else 0, type_).spread(emitter.lanes)
        before = [nothing if zero else read(emitter, target, place, run, type_) for place in places]

        def steps(k: Number, sums: list[Number], count: int) -> list[Number]:
            for number in range(count):
                y = vectors(right + k * pitch + (number * panel * size if pack else pitch * number))
                x = [read(emitter, line, emitter.behind(k, number), False, factor, align) for line in left]
                sums = [_multiplied(emitter, x[n // wide], y[n % wide], z, pair) for n, z in enumerate(sums)]
            return sums

        sums, start = before, 0
        if unroll > 1:
            start = all_k if isinstance(all_k, int) else all_k & -unroll
            sums = emitter.folding_loop(start, partial(steps, count=unroll), sums, 0, unroll)
        after = sums if start is all_k else emitter.folding_loop(all_k, partial(steps, count=1), sums, start)
        for place, value in zip(places, after, strict=True):
            write(emitter, target, place, run, value, type_)

    def copy_row(k: Number) -> None:
        """Copy a row of b to all panels."""
        for number in range(columns // panel):
            lines = [
                b.base + (k * rows_per_step + at) * b.pitch + number * panel * element.bytes
                for at in range(rows_per_step)
            ]
            target = packed + k * pitch + number * between
            for j, (value, *second) in enumerate(zip(*(vectors(line, element) for line in lines), strict=True)):
                for other in second:
                    value = value.to("zext", "i32") | other.to("zext", "i32") << 16
                write(emitter, target, j * lanes, run, value, factor)

    def copy_square(number: Number) -> None:
        """Copy a square of `lanes` rows of a transposed b to as many columns."""
        across = depth // lanes
        line, k = number / across * lanes, number % across * lanes
        starts = [b.base + (line + i) * b.pitch + k * size for i in range(lanes)]
        vectors_of_rows = [read(emitter, start, 0, run, factor, align) for start in starts]
        target = packed + line / panel * between
        for i, value in enumerate(_transposed(emitter, vectors_of_rows)):
            write(emitter, target + (k + i) * pitch, line % panel, run, value, factor)

    def pack_all() -> None:
        if transposed:
            emitter.loop(0, depth * columns // lanes**2, 1, copy_square)
        else:
            emitter.loop(0, all_k, 1, copy_row)
        if panels is not None:
            panels.mark(emitter)

    def panel_of(column: Number) -> None:
        last = all_rows - all_rows % high if rows % high else all_rows
        emitter.loop(0, last, high, lambda row: block(row, column, high))
        if rows % high:
            emitter.loop(last, all_rows, rest, lambda row: block(row, column, rest))

    def bits_of_b(bits: Number) -> Number:
        """Bits, or those of what is not finite in b, as it is packed."""

        def of_panel(number: Number, values: list[Number]) -> list[Number]:
            start = packed + number * between if pack else packed + number * (panel * size)
            return [_bits_of(emitter, Matrix(start, pitch), (0, all_k), (0, panel), type_, values[0], not_finite)]

        return emitter.folding_loop(columns // panel, of_panel, [bits])[0]

    if pack:
        guarded(emitter, missing, pack_all)
    if limited:
        all_rows, all_columns = _extent(emitter, a, b, c, sizes, (step, panel), type_, bits_of_b)
        rest = rest if isinstance(all_rows, int) else step
    emitter.loop(0, all_columns, panel, panel_of)
    emitter.lanes = 0


def _extent(
    emitter: CpuEmitter,
    a: Matrix,
    b: Matrix,
    c: Number,
    sizes: tuple[int, int, int],
    steps: tuple[int, int],
    type_: ScalarType,
    of_b: Callable[[Number], Number],
) -> tuple[Number | int, Number | int]:
    """The rows and columns to compute, in whole `steps`: the rest change no bit of c.

    Masked rows and columns of c that are +0 remain so unless b or a has an infinity or a NaN; that is tested. `of_b`
    gives bits, or those that tell so of b.
    """
    rows, depth, columns = sizes
    row, column = (
        (matrix.counts[axis] + (step - 1)) & -step if matrix.counts else emitter.i64(size)
        for axis, (matrix, step, size) in enumerate(zip((a, b), steps, (rows, columns), strict=True))
    )
    if (row.name, column.name) == (str(rows), str(columns)) or depth % emitter.lanes:
        return rows, columns
    sums = Matrix(c, emitter.i64(columns * type_.bytes))
    none = emitter.number("i64" if type_ == f64 else "i32", "zeroinitializer", emitter.lanes)

    def rows_change() -> Number:
        bits = _bits_of(emitter, sums, (row, rows), (0, columns), type_, none, lambda x: x)
        return of_b(bits).test("ne", 0).any()

    def columns_change() -> Number:
        bits = _bits_of(emitter, sums, (0, rows), (column, columns), type_, none, lambda x: x)
        return _bits_of(emitter, a, (0, rows), (0, depth), type_, bits, not_finite).test("ne", 0).any()

    limits = list[Number | int]()
    for limit, size, changes in ((row, rows, rows_change), (column, columns, columns_change)):
        before, changed, end = emitter.aside(limit.test("ult", size), changes)
        changed = emitter.number("i1", emitter.effect(f"phi i1 [ false, %{before} ], [ {changed}, %{end} ]"))
        limits.append(changed.select(size, limit))
    return limits[0], limits[1]


def not_finite(x: Number) -> Number:
    """NaN of infinities and NaN, and else 0."""
    return abs(x * 0.0)


def _bits_of(
    emitter: CpuEmitter,
    matrix: Matrix,
    rows: tuple[Number | int, Number | int],
    columns: tuple[Number | int, int],
    type_: ScalarType,
    bits: Number,
    function: Callable[[Number], Number],
) -> Number:
    """Bits, or those of a function of any element in ranges of rows and columns, by lanes."""

    def row(number: Number, bits_of_rows: list[Number]) -> list[Number]:
        start = matrix.base + number * matrix.pitch

        def step(at: Number, bits_of_row: list[Number]) -> list[Number]:
            return [bits_of_row[0] | function(read(emitter, start, at, True, type_)).bits()]

        return emitter.folding_loop(columns[1], step, bits_of_rows, columns[0], emitter.lanes)

    return emitter.folding_loop(rows[1], row, [bits], rows[0])[0]


def _spread_rows(
    emitter: CpuEmitter, matrix: Matrix, rows: int, columns: int, lanes: int, type_: ScalarType, align: int
) -> Matrix:
    """A copy of a matrix whose rows share few sets of the first cache where they are; else the matrix."""
    width = columns * type_.bytes
    pitch = width + (0 if width % SET_STRIDE else CACHE_LINE)
    copy = emitter.scratch_address(emitter.temporary(rows * pitch))
    shared = (matrix.pitch % SET_STRIDE).test("eq", 0)

    def row(number: Number) -> None:
        start, target = matrix.base + number * matrix.pitch, copy + number * pitch
        for at in range(0, columns, lanes):
            write(emitter, target, at, True, read(emitter, start, at, True, type_, align), type_)

    guarded(emitter, shared, lambda: emitter.loop(0, rows, 1, row))
    base, distance = shared.select(copy, matrix.base), shared.select(pitch, matrix.pitch)
    return attrs.evolve(matrix, base=base, pitch=distance)


def _transposed(emitter: CpuEmitter, rows: Sequence[Number]) -> list[Number]:
    """The columns of a square of vectors: in each step, blocks on either side of the diagonal are exchanged."""
    count, vectors_of_rows = len(rows), list(rows)
    distance = 1
    while distance < count:
        # Lanes from `count` on are those of the second vector.
        picks = [
            [lane + count - distance if lane & distance else lane for lane in range(count)],
            [lane + count if lane & distance else lane + distance for lane in range(count)],
        ]
        for at in range(count):
            if not at & distance:
                pair = vectors_of_rows[at], vectors_of_rows[at + distance]
                for place, lanes in zip((at, at + distance), picks, strict=True):
                    mask = ", ".join(f"i32 {lane}" for lane in lanes)
                    text = f"shufflevector {pair[0].typed}, {pair[1].typed}, <{count} x i32> <{mask}>"
                    vectors_of_rows[place] = emitter.made(pair[0].kind, text, count)
        distance *= 2
    return vectors_of_rows


def _multiplied(emitter: CpuEmitter, x: Number, y: Number, z: Number, pair: ScalarType | None) -> Number:
    """x · y + z, of floats rounded once; of pairs of bf16, after each product."""
    if pair is None:
        return x * y + z if x.kind[0] == "i" else x.spread(y.lanes).call("llvm.fma", y, z)
    pairs = f"<{2 * z.lanes} x {'bfloat' if pair == bf16 else 'i16'}>"
    operands = [(pairs, emitter.emit(f"bitcast {factor.spread(z.lanes).typed} to {pairs}")) for factor in (x, y)]
    if pair == bf16:
        return emitter.made(z.kind, emitter.called(z.type, PAIRED[z.lanes], z, *operands), z.lanes)
    return z + emitter.made(z.kind, emitter.called(z.type, WHOLE_PAIRED[z.lanes], *operands), z.lanes)


# Scans.

_IN_ORDER = (
    arith.AddI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI, arith.MaxSI, arith.MaxUI, arith.MinSI, arith.MinUI,
)  # fmt: skip


def _sequential(op: cpu.Scan) -> bool:
    """Whether the interpreter scans in order: integers, and sums and products of f32 and f64."""
    ops, parameters = op.combine.entry.ops, op.combine.parameters
    if len(op.combine.blocks) != 1 or len(ops) != 2 or len(parameters) != 2 or ops[1].operands != (ops[0].result,):
        return False
    type_ = _scalar(op.buffers[0])
    plain = type_.bits >= 32 if type_.is_float else type_.bits > 1
    ordered_ops = _IN_ORDER if not type_.is_float else (arith.AddF, arith.MulF)
    return plain and isinstance(ops[0], ordered_ops) and set(ops[0].operands) == set(parameters)


@emits(cpu.Scan)
def _scan(emitter: CpuEmitter, op: cpu.Scan, *bases: Number) -> None:
    shape = _buffer(op.buffers[0]).shape
    types = [_buffer(value).element for value in op.buffers]
    size, stride = shape[op.axis], row_major(shape)[op.axis]
    outer = math.prod(shape) // (size * stride)
    lanes = power_of_two_in(emitter.module.vector // 4, stride) if cpu.is_straight(op.combine) else 1
    emitter.lanes, run = lanes if lanes > 1 else 0, lanes > 1

    def at(line: Number, column: Number, number: Number) -> Number:
        if op.reverse:
            number = emitter.i64(size - 1) - number
        return (line * size + number) * stride + column

    def load(place: Number) -> list[Number]:
        return [read(emitter, base, place, run, type_) for base, type_ in zip(bases, types, strict=True)]

    def store(place: Number, values: Sequence[Number]) -> None:
        for base, type_, value in zip(bases, types, values, strict=True):
            write(emitter, base, place, run, value, type_)

    def scan_in_order(line: Number, column: Number) -> None:
        def step(number: Number, before: list[Number]) -> list[Number]:
            here = at(line, column, number)
            values = apply(emitter, op.combine, [*before, *load(here)])
            store(here, values)
            return values

        emitter.folding_loop(size, step, load(at(line, column, emitter.i64(0))), 1)

    def scan_in_steps(line: Number, column: Number) -> None:
        """Each element with the one 1, 2, 4 … before it: from the last one to the first, so that a step reads elements
        of the step before."""
        distance = 1
        while distance < size:

            def step(number: Number, distance: int = distance) -> None:
                index = emitter.i64(size - 1) - number
                before, here = at(line, column, index - distance), at(line, column, index)
                store(here, apply(emitter, op.combine, [*load(before), *load(here)]))

            emitter.loop(0, size - distance, 1, step)
            distance *= 2

    scan = scan_in_order if _sequential(op) else scan_in_steps
    if size > 1:
        emitter.loop(0, outer, 1, lambda line: emitter.loop(0, stride, lanes, lambda column: scan(line, column)))
    emitter.lanes = 0
