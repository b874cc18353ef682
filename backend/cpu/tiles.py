"""Emission of ops on whole buffers: dots and scans.

A dot keeps a block of the accumulator in registers, for all of k: `rows` rows of `columns` vectors. For each k it loads
the vectors of a row of b, and for each row a number of a, which every lane gets. Operands that are not of the type of
the accumulation are converted to it: the first one before, the second one as it is packed. Where the machine multiplies
neighbours along k, a number is several of them (`factors.py`), and a block may be one of tiles.
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
from ziggurat.backend.cpu.factors import TILE, Factors, Tiles, factors_of, joined
from ziggurat.backend.cpu.memory import guarded, load_run, read, write
from ziggurat.backend.cpu.packing import Packed, packed_place
from ziggurat.backend.cpu.shuffles import transposed as transposed_square
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.dialects import arith, cpu
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32, f64, i32
from ziggurat.transforms.cpu.dot_blocks import DotBlock, power_of_two_in
from ziggurat.transforms.cpu.traffic import CACHE_LINE

SET_STRIDE = 1024  # Rows that lie a multiple of so many bytes apart share few sets of the first cache.


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
    columns, vector = result.shape[-1], emitter.module.vector
    sizes = rows, depth, columns
    block, factors = DotBlock.of(sizes, accumulator.bytes, vector, transposed=op.transposed), None
    for candidate in factors_of(emitter, source, _scalar(op.b), accumulator):
        fitting = candidate.block(sizes, vector, transposed=op.transposed)
        if fitting is not None:
            block, factors = fitting, candidate
            break
    element, of_b = accumulator if factors is None else factors.rows, _scalar(op.b)
    if source != f32 or precision in (InputPrecision.DEFAULT, InputPrecision.IEEE):
        products = [(_as(emitter, op.a, first, element), second)]
    else:
        numbers = [(0, 0)] if precision is InputPrecision.TF32 else precision.products
        count = 1 + max(map(max, numbers))
        of_a = _parts(emitter, op.a, first, precision, count)
        parts = _parts(emitter, op.b, second, precision, count)
        products = [(of_a[i], parts[j]) for i, j in numbers]
    target = c
    if result.element != accumulator:
        target = emitter.scratch_address(emitter.temporary(4 * result.numel))
    begins = op.zero or result.element != accumulator
    for position, (left, right) in enumerate(products):
        for number in range(batch[0] if batch else 1):
            x, y = (
                attrs.evolve(matrix, base=emitter.moved(matrix.base, number * size, bytes_))
                for matrix, size, bytes_ in (
                    (left, rows * depth, element.bytes),
                    (right, depth * columns, of_b.bytes),
                )
            )
            part = emitter.moved(target, number * rows * columns, accumulator.bytes)
            _matmul(
                emitter,
                x,
                y,
                part,
                sizes,
                accumulator,
                transposed=op.transposed,
                zero=begins and position == 0,
                shape=block,
                factors=factors,
                a_type=source,
                b_type=of_b,
                unroll=op.unroll,
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
    copy = _copied(emitter, value, matrix, target, 1, lambda number: [_converted(number, source, target)])[0]
    return attrs.evolve(copy, counts=matrix.counts)


def _converted(number: Number, source: ScalarType, target: ScalarType) -> Number:
    """A number in a type that has all numbers of its own; of a signed byte, 128 more as an unsigned one."""
    if source.bits == target.bits:
        return number if source == target else number ^ 128
    if target.is_int:
        return number.to("sext" if source.signed else "zext", target.llvm)
    return to_f64(number, source) if target == f64 else widen(number, source)


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
    shape: DotBlock,
    factors: Factors | None,
    a_type: ScalarType,
    b_type: ScalarType,
    unroll: int,
    keeps: Callable[[Number, int], Packed] | None,
) -> None:
    """c += a · b, or with `zero` c = a · b, for c row-major in blocks of this shape; b may be transposed in memory. The
    numbers of a and those that b is packed as are of the type of c, or have `factors`; before, they were of other
    types. `keeps` gives the place of the packed b, which may be there."""
    rows, depth, columns = sizes
    vector, size = emitter.module.vector, type_.bytes
    count, element = (1, type_) if factors is None else (factors.count, factors.columns)
    factor, align = type_ if factors is None else i32, element.bytes
    depth, unroll = depth // count, math.gcd(unroll, depth // count)
    rows_per_step = 1 if transposed else count  # Rows of b that become one.
    high, wide, lanes, panel = shape.rows, shape.vectors, shape.lanes, shape.columns
    rest = rows % high  # The last rows of a block whose height does not divide them, which are even.
    step = 2 if rest else high
    emitter.lanes = lanes if lanes > 1 else 0
    run = emitter.lanes > 0
    converts = b_type != element
    shifts = factors is not None and a_type.bits == factors.rows.bits and a_type != factors.rows  # By 128.
    pack = transposed or converts or count > 1 or (rows > high and b.pitch.name != str(panel * size))
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
    limited = type_.is_float and run and not (transposed or factors is not None or zero)
    if limited and a.counts and b.counts and (a.counts[1].name, b.counts[0].name) != (str(depth), str(depth)):
        # One product of masked numbers is enough: adding +0 makes +0 of -0, and adding it again changes nothing.
        after_masked = (a.counts[1] + 1).call("llvm.smin", depth)
        all_k = a.counts[1].test("eq", b.counts[0]).select(after_masked, depth)
    tiles = Tiles(emitter, factors, depth) if factors is not None and factors.tile else None
    # Processors without AVX-512 have a first cache of 8 ways, in which such rows displace each other.
    spread = vector == 32 and a.origin is not None and columns > panel and run and depth % lanes == 0
    if spread:
        a = _spread_rows(emitter, a, rows, depth, lanes, factor, align)

    def vectors(base: Number, type_: ScalarType = factor) -> list[Number]:
        return [read(emitter, base, j * lanes, run, type_) for j in range(wide)]

    def converted(number: Number) -> Number:
        return _converted(number, b_type, element) if converts else number

    def read_b(row: Number, column: Number | int) -> Number:
        """Neighbours in a row of b in memory, or zeros for what it lacks."""
        base = b.base + row * b.pitch
        if not b.bare or b.counts is None:
            return read(emitter, base, column, run, b_type)
        width = row.test("ult", b.counts[0]).select(b.counts[1], 0) - column
        zero = emitter.constant(0.0 if b_type.is_float else 0, b_type)
        if not run:
            inside = width.test("sgt", 0)
            place = inside.select(emitter.moved(base, column, b_type.bytes), emitter.number("i64", "%scratch"))
            return inside.select(read(emitter, place, 0, False, b_type), zero)
        places = ", ".join(f"i32 {lane}" for lane in range(emitter.lanes))
        mask = emitter.number("i32", f"<{places}>", emitter.lanes).test("slt", width.to("trunc", "i32"))
        return load_run(emitter, emitter.address(base, column, b_type.bytes), b_type, mask, zero)

    def neighbours(row: Number, column: Number) -> Number:
        """As many numbers of the packed b as a vector has from neighbours in memory."""
        emitter.lanes *= count
        value = converted(read_b(row, column))
        emitter.lanes = lanes if run else 0
        return value if factors is None else emitter.made("i32", f"bitcast {value.typed} to <{lanes} x i32>", lanes)

    def fetch_following(b: Matrix, row: Number, column: Number, high: int) -> None:
        """Fetch what follows the rows of b: a part of it for each block of c."""
        start = b.base + column * (b.pitch if transposed else b_type.bytes)
        lines, all_lines, width = panel, columns, depth * count
        if not transposed:
            lines, all_lines, width = depth * rows_per_step, depth * rows_per_step, panel
        for part in range(-(-lines * high // rows)):
            number = row * lines / rows + (part + all_lines)
            emitter.prefetch(start + number * b.pitch, width * b_type.bytes, level=2)

    def excess(column: Number) -> list[Number]:
        """The excess of the sums of a panel, as each element of a is 128 too large."""
        assert factors is not None
        bytes_, right = emitter.number("i32", str(0x80808080)), packed + column / panel * between

        def step(k: Number, sums: list[Number]) -> list[Number]:
            pairs = zip(vectors(right + k * pitch), sums, strict=True)
            return [_multiplied(emitter, bytes_, y, z, factors) for y, z in pairs]

        return emitter.folding_loop(depth, step, [emitter.constant(0, i32).spread(lanes)] * wide)

    def block(row: Number, column: Number, high: int, less: Sequence[Number]) -> None:
        """The sums of `high` rows and `wide` vectors, and less of each vector."""
        target = c + (row * columns + column) * size
        left = [a.base + (row + i) * a.pitch for i in range(high)]
        for line in left if a.origin and tiles is None else ():  # The processor does not prefetch the next rows.
            emitter.prefetch(line + a.pitch * high, depth * size, level=1)
        if spread and a.origin:  # Nor the numbers that follow in these rows.
            for i in range(high):
                line = a.origin.base + (row + i) * a.origin.pitch + depth * size
                emitter.prefetch(line + column * depth / columns * size, 1, level=2)
        if b.origin is not None:  # Nor the rows of b that follow these.
            following = partial(fetch_following, b.origin, row, column, high)
            guarded(emitter, missing, following)
        right = packed + column / panel * between if pack else packed + column * size
        if tiles is not None:
            block_of_tiles(tiles, target, left, right)
            return
        places = [i * columns + j * lanes for i in range(high) for j in range(wide)]
        nothing = emitter.constant(0.0 if type_.is_float else 0, type_).spread(emitter.lanes)
        before = [nothing if zero else read(emitter, target, place, run, type_) for place in places]
        before = [sums - less[n % wide] for n, sums in enumerate(before)] if less else before

        def steps(k: Number, sums: list[Number], count: int) -> list[Number]:
            for number in range(count):
                y = vectors(right + k * pitch + (number * panel * size if pack else pitch * number))
                x = [read(emitter, line, emitter.behind(k, number), False, factor, align) for line in left]
                sums = [_multiplied(emitter, x[n // wide], y[n % wide], z, factors) for n, z in enumerate(sums)]
            return sums

        sums, start = before, 0
        if unroll > 1:
            start = all_k if isinstance(all_k, int) else all_k & -unroll
            sums = emitter.folding_loop(start, partial(steps, count=unroll), sums, 0, unroll)
        after = sums if start is all_k else emitter.folding_loop(all_k, partial(steps, count=1), sums, start)
        for place, value in zip(places, after, strict=True):
            write(emitter, target, place, run, value, type_)

    def block_of_tiles(tiles: Tiles, target: Number, left: Sequence[Number], right: Number) -> None:
        """The sums of two rows of two tiles, or fewer."""
        places = {2 * i + j: (i * TILE * columns + j * TILE) * size for i in range(high // TILE) for j in range(wide)}
        for tile, place in places.items():
            if zero:
                tiles.clear(tile)
            else:
                tiles.load(tile, target, place, emitter.i64(columns * size))

        def step(k: Number) -> None:
            for i in range(high // TILE):
                tiles.load(4 + i, left[TILE * i] + k * 4, 0, a.pitch)
            for j in range(wide):
                tiles.load(6 + j, right + k * pitch, j * 4 * TILE, pitch)
            for tile in places:
                tiles.multiply(tile, 4 + tile // 2, 6 + tile % 2)

        emitter.loop(0, depth, tiles.width, step)
        for tile, place in places.items():
            tiles.store(tile, target, place, emitter.i64(columns * size))

    def copy_row(k: Number) -> None:
        """Copy a row of b to all panels."""
        for number in range(columns // panel):
            rows_of_b = [k * rows_per_step + at for at in range(rows_per_step)]
            target = packed + k * pitch + number * between
            for j in range(wide):
                parts = [converted(read_b(row, number * panel + j * lanes)) for row in rows_of_b]
                value = parts[0] if factors is None else joined(parts, element.bits)
                write(emitter, target, j * lanes, run, value, factor)

    def copy_square(number: Number) -> None:
        """Copy a square of `lanes` rows of a transposed b to as many columns."""
        across = depth // lanes
        line, k = number / across * lanes, number % across * lanes
        vectors_of_rows = [neighbours(line + i, k * count) for i in range(lanes)]
        target = packed + line / panel * between
        for i, value in enumerate(transposed_square(vectors_of_rows)):
            write(emitter, target + (k + i) * pitch, line % panel, run, value, factor)

    def pack_all() -> None:
        if transposed:
            emitter.loop(0, depth * columns // lanes**2, 1, copy_square)
        else:
            emitter.loop(0, depth if b.bare else all_k, 1, copy_row)
        if panels is not None:
            panels.mark(emitter)

    def panel_of(column: Number) -> None:
        last = all_rows - all_rows % high if rows % high else all_rows
        less = excess(column) if shifts else ()
        emitter.loop(0, last, high, lambda row: block(row, column, high, less))
        if rows % high:
            emitter.loop(last, all_rows, rest, lambda row: block(row, column, rest, less))

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


def _multiplied(emitter: CpuEmitter, x: Number, y: Number, z: Number, factors: Factors | None) -> Number:
    """x · y + z, of floats rounded once."""
    if factors is not None:
        return factors.multiplied(emitter, x, y, z)
    return x * y + z if x.kind[0] == "i" else x.spread(y.lanes).call("llvm.fma", y, z)


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
