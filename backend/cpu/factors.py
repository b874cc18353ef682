"""Instructions of x86 that multiply neighbours along k: the factors that a dot gives them, by the processor's features.

Such an instruction takes two or four neighbours along k as one number of 32 bits. Those of vectors add to an
accumulator in each lane. The matrix units (AMX) have eight tiles, of 16 rows of 64 bytes: a tile of an operand has 16
numbers of 32 bits in a row.
"""

from __future__ import annotations

import attrs

from ziggurat.backend.cpu.emitter import CpuEmitter
from ziggurat.backend.llvm.routines import Number
from ziggurat.codemodel.types import ScalarType, bf16, f32, i8, i16, i32, u8
from ziggurat.transforms.cpu.dot_blocks import DotBlock, lanes_of_block, power_of_two_in

TILE = 16  # Rows of a tile, and numbers of 32 bits in a row.
RELEASE = "void @llvm.x86.tilerelease()"  # Ends the use of tiles. A kernel that has them returns after it.
# By the elements of rows and columns, and lanes. To an f32, those of bf16 add the product of the second numbers by a
# fused multiply-add, then that of the first ones; subnormal numbers count as zeros. The others add modulo 2^32.
_VECTORS = {
    (bf16, bf16): {lanes: f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}" for lanes in (4, 8, 16)},
    (u8, i8): {lanes: f"llvm.x86.avx512.vpdpbusd.{32 * lanes}" for lanes in (4, 8, 16)},
    (i16, i16): {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"},
}


@attrs.frozen
class Factors:
    """Each number of 32 bits has `count` neighbours along k, of these types in the rows of a and the columns of b.
    `tile` is the instruction for tiles; "" is one for vectors."""

    rows: ScalarType
    columns: ScalarType
    tile: str = ""

    @property
    def count(self) -> int:
        """The neighbours of a number."""
        return 4 // self.columns.bytes

    def block(self, sizes: tuple[int, int, int], vector: int, *, transposed: bool) -> DotBlock | None:
        """The block of a dot of these rows, columns, and elements along k; None if it cannot have these factors."""
        rows, depth, columns = sizes
        if self.tile:
            width = power_of_two_in(4 * TILE, depth * self.columns.bytes)
            if rows % TILE or columns % TILE or width < (64 if transposed else 32):
                return None
            return DotBlock(power_of_two_in(2 * TILE, rows), power_of_two_in(2, columns // TILE), TILE)
        lanes = lanes_of_block(depth // self.count, columns, i32.bytes, vector, transposed=transposed)
        if depth % self.count or lanes not in _VECTORS[self.rows, self.columns]:
            return None
        return DotBlock.of((rows, depth // self.count, columns), i32.bytes, vector, transposed=transposed)

    def multiplied(self, emitter: CpuEmitter, x: Number, y: Number, z: Number) -> Number:
        """x · y + z for vectors, of which `x` may be a number."""
        name = _VECTORS[self.rows, self.columns][z.lanes]
        kind = "bfloat" if self.columns == bf16 else self.columns.llvm
        vector = f"<{self.count * z.lanes} x {kind}>"
        operands = [(vector, emitter.emit(f"bitcast {factor.spread(z.lanes).typed} to {vector}")) for factor in (x, y)]
        if self.columns == i16:
            return z + emitter.made(z.kind, emitter.called(z.type, name, *operands), z.lanes)
        return emitter.made(z.kind, emitter.called(z.type, name, z, *operands), z.lanes)


def factors_of(emitter: CpuEmitter, a: ScalarType, b: ScalarType, accumulator: ScalarType) -> list[Factors]:
    """The factors for operands of these types that this processor has an instruction for, the fastest first."""
    features, factors = emitter.features, list[Factors]()
    if accumulator == i32 and a.bits == b.bits == 8 and a.is_int and b.is_int:
        if "+amx-int8" in features:
            signs = "".join("s" if type_.signed else "u" for type_ in (a, b))
            factors.append(Factors(a, b, f"llvm.x86.tdpb{signs}d"))
        if {"+avx512vnni", "+avx512vl"} <= {*features} and b.signed:
            factors.append(Factors(u8, b))
        if emitter.module.vector > 16 or "+sse2" in features:
            factors.append(Factors(i16, i16))
    if emitter.fast_math and a == b == bf16 and accumulator == f32:
        if "+amx-bf16" in features:  # Its processors take twice as long for pairs in vectors as for f32.
            factors.append(Factors(bf16, bf16, "llvm.x86.tdpbf16ps"))
        elif "+avx512bf16" in features:
            factors.append(Factors(bf16, bf16))
    return factors


class Tiles:
    """The tiles of a dot: accumulators from number 0 on, factors of the rows from 4 on and of the columns from 6 on."""

    def __init__(self, emitter: CpuEmitter, factors: Factors, depth: int) -> None:
        self._emitter = emitter
        self._name = factors.tile
        self.width = power_of_two_in(TILE, depth)  # Numbers of 32 bits along k that a tile has.
        widths = [4 * TILE] * 4 + [4 * self.width] * 2 + [4 * TILE] * 2
        heights = [TILE] * 6 + [self.width] * 2
        data = [1, *[0] * 15, *(byte for width in widths for byte in (width, 0)), *[0] * 16, *heights, *[0] * 8]
        symbol = f"@zg.tiles.{self.width}"
        text = "".join(f"\\{byte:02X}" for byte in data)
        emitter.variables[symbol] = f'{symbol} = internal constant [64 x i8] c"{text}", align 64'
        emitter.declarations[f"declare {RELEASE}"] = None
        self._call("ldtilecfg", ("ptr", symbol))

    def _call(self, name: str, *arguments: tuple[str, str]) -> None:
        self._emitter.line(self._emitter.called("void", f"llvm.x86.{name.removeprefix('llvm.x86.')}", *arguments))

    def _place(self, base: Number, offset: Number | int, pitch: Number) -> tuple[tuple[str, str], ...]:
        return ("ptr", self._emitter.address(base, offset, 1)), ("i64", pitch.name)

    def load(self, tile: int, base: Number, offset: Number | int, pitch: Number) -> None:
        """Load a tile whose rows lie `pitch` bytes apart."""
        self._call("tileloadd64", ("i8", str(tile)), *self._place(base, offset, pitch))

    def clear(self, tile: int) -> None:
        """Fill a tile with zeros."""
        self._call("tilezero", ("i8", str(tile)))

    def store(self, tile: int, base: Number, offset: Number | int, pitch: Number) -> None:
        """Store a tile to rows that lie `pitch` bytes apart."""
        self._call("tilestored64", ("i8", str(tile)), *self._place(base, offset, pitch))

    def multiply(self, target: int, row: int, column: int) -> None:
        """Add the product of two tiles to another one."""
        self._call(self._name, *(("i8", str(tile)) for tile in (target, row, column)))


def joined(rows: list[Number], bits: int) -> Number:
    """Numbers of 32 bits, each with the elements of several rows, of so many bits. The first is in the lowest bits."""
    value = rows[0].to("zext", "i32")
    for number, row in enumerate(rows[1:], 1):
        value = value | row.to("zext", "i32") << number * bits
    return value
