"""The matrix units of the simulation: mma.sync and wgmma as in the PTX manual, fragment by fragment.

Importing this module registers their instructions. It shares nothing with the emission: the places of fragment elements
and the fields of matrix descriptors are written here anew from the manual ("Matrix fragments for mma…", "Register
fragments", "Shared memory matrix layout", "Matrix descriptor").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ziggurat.backend.simulator.program import unit
from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.backend.simulator.values import distinct
from ziggurat.codemodel.scalars import rounded, tf32, truncated
from ziggurat.codemodel.types import SCALARS

_ELEMENTS: dict[str, Any] = {scalar.ptx: scalar.dtype for scalar in SCALARS.values() if scalar.ptx}
_LANES = np.arange(32)
_GROUP, _MEMBER = _LANES >> 2, _LANES & 3


def fragment_a(i: int, per: int, rows: int) -> tuple[Array, Array]:
    """(row, column) of element i of operand a, for each lane; `per` elements share a register."""
    if rows == 8:
        return _GROUP, _MEMBER
    register, part = divmod(i, per)
    return _GROUP + 8 * (register & 1), _MEMBER * per + part + 4 * per * (register >> 1)


def fragment_b(i: int, per: int) -> tuple[Array, Array]:
    """(row, column) of element i of operand b, for each lane."""
    register, part = divmod(i, per)
    return _MEMBER * per + part + 4 * per * register, _GROUP


def fragment_c(i: int) -> tuple[Array, Array]:
    """(row, column) of accumulator element i, for each lane; of wgmma, from the first row of the warp."""
    return _GROUP + 8 * (i >> 1 & 1), 8 * (i >> 2) + _MEMBER * 2 + (i & 1)


@cache
def _places(fragment: Callable[..., tuple[Array, Array]], count: int, *size: int) -> tuple[Array, Array]:
    """The rows and the columns of the first elements of a fragment: an array of `count` by lanes each."""
    places = [fragment(i, *size) for i in range(count)]
    return np.stack([rows for rows, _ in places]), np.stack([columns for _, columns in places])


def _unpacked(registers: list[Array], dtype: Any) -> list[Array]:
    """The elements in registers of 32 bits, or of 64 for f64, lowest first."""
    parts = (np.ascontiguousarray(register).view(dtype).reshape(len(register), -1) for register in registers)
    return [part[:, at] for part in parts for at in range(part.shape[1])]


def _exact(matrix: Array) -> Array:
    """A matrix in the type of accumulation here; tf32 without the bits that the unit ignores."""
    if matrix.dtype == np.float32:
        matrix = (matrix.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return matrix.astype(np.int64 if matrix.dtype.kind in "iu" else np.float64)


def _numbers(text: str) -> list[list[int]]:
    return [[int(number) for number in re.findall(r"\$(\d+)", part)] for part in re.findall(r"\{([^{}]*)\}", text)]


def _tile(shape: tuple[int, int], values: list[Array], places: tuple[Array, Array], own: slice) -> Array:
    """A matrix from the registers of a warp's threads, by the places of their elements."""
    tile = np.zeros(shape, values[0].dtype)
    tile[places] = np.stack([value[own] for value in values])
    return tile


def _accumulate(sums: list[Array], own: slice, a: Array, b: Array, keep: bool = True) -> None:
    """Add a product to the accumulators of a warp's threads in place, or to zeros."""
    places = _places(fragment_c, len(sums))
    c = _tile((len(a), b.shape[1]), sums, places, own)
    products = _exact(a) @ _exact(b)
    if c.dtype.kind == "u":
        results = (products + keep * c.view(np.int32).astype(np.int64)).astype(np.int32).view(c.dtype)
    else:
        results = (products + c.astype(np.float64) if keep else products).astype(c.dtype)
    for value, new in zip(sums, results[places], strict=True):
        value[own] = new


@unit(r"mma\.sync\.aligned\.m(\d+)n(\d+)k(\d+)\.row\.col\.\w+\.(\w+)\.(\w+)\.\w+ (.*)")
def _mma(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    m, n, k = int(match[1]), int(match[2]), int(match[3])
    dtypes = (_ELEMENTS[match[4]], _ELEMENTS[match[5]])
    per = max(1, 4 // np.dtype(dtypes[0]).itemsize)
    of_d, of_a, of_b, of_c = _numbers(match[6])
    a, b = (
        _unpacked([operands[number] for number in numbers], dtype)
        for numbers, dtype in zip((of_a, of_b), dtypes, strict=True)
    )
    sums = [operands[number].copy() for number in of_c]
    of_a, of_b = _places(fragment_a, len(a), per, m), _places(fragment_b, len(b), per)
    for first in range(0, program.threads, 32):
        own = slice(first, first + 32)
        _accumulate(sums, own, _tile((m, k), a, of_a, own), _tile((k, n), b, of_b, own))
    for number, value in zip(of_d, sums, strict=True):
        operands[number] = value


class _Matrix:
    """An operand of wgmma in shared memory, by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.start = (descriptor & 0x3FFF) << 4
        self.leading = (descriptor >> 16 & 0x3FFF) << 4
        self.stride = (descriptor >> 32 & 0x3FFF) << 4
        self.width = {1: 128, 2: 64, 3: 32}[descriptor >> 62]
        if descriptor >> 49 & 7:
            raise SimulationError("the descriptor of a wgmma must have no base offset")

    def addresses(self, line: Array, along: Array, k_major: bool, size: int) -> Array:
        """The addresses of elements: `line` counts along m or n, `along` along k."""
        if k_major:
            # Rows of `width` bytes in groups of 8; a wider operand has several descriptors.
            place = line % 8 * self.width + line // 8 * self.stride + along * size
        else:
            wide = self.width // size
            place = line % wide * size + line // wide * self.leading + along % 8 * self.width + along // 8 * self.stride
        address = self.start + place
        # The swizzle xors address bits from 4 on with those from 7 on.
        return address ^ (address >> 7 & self.width // 16 - 1) << 4

    def read(
        self, shared: Any, threads: Array, lines: int, depth: int, k_major: bool, dtype: Any
    ) -> tuple[Array, Array]:
        """The operand, lines × depth, read by these threads, and its places."""
        size = np.dtype(dtype).itemsize
        line, along = np.meshgrid(np.arange(lines), np.arange(depth), indexing="ij")
        places = shared.places(self.addresses(line, along, k_major, size).reshape(-1), size)
        if shared.foreign(distinct(shared.writer[places])[:, None], threads).any():
            raise SimulationError(
                "a wgmma reads what was written since the last barrier, or is on its "
                "way: a barrier or a wait is missing"
            )
        shared.check_fenced(places, "a wgmma reads")
        return np.ascontiguousarray(shared.bytes[places]).view(dtype).reshape(lines, depth), places.reshape(-1)


# Wgmmas in flight. Until a wait, accumulator registers hold marks: NaNs with a number, which a wait or a further wgmma
# replaces by the accumulator.

_MARK, _MARKED = 0x7FE00000, 0xFFE00000


class _Wgmmas:
    """The wgmmas of a program, and for each warp group the groups in flight, oldest first."""

    def __init__(self, program: Any) -> None:
        self.accumulators: dict[int, Array] = {}
        self.groups: dict[int, list[tuple[set[int], int]]] = {}
        self.pending: dict[int, set[int]] = {}

    def marked(self, value: Array) -> Array:
        """A register of marks in place of an accumulator register."""
        number = len(self.accumulators) + 1
        assert number < 1 << 21, "too many wgmmas for the marks"
        self.accumulators[number] = value
        return np.full(len(value), _MARK | number, np.uint32).view(value.dtype)

    def complete(self, value: Array, group: int | None = None) -> Array:
        """A register with its marks replaced, except those of wgmmas in flight in a warp group."""
        bits = value.view(np.uint32)
        marks = bits[(bits & _MARKED) == _MARK] & ~np.uint32(_MARKED)
        result = value.copy()
        for number in map(int, distinct(marks)):
            if number in self.accumulators and (group is None or number not in self.pending.get(group, ())):
                selection = bits == _MARK | number
                result[selection] = self.accumulators[number][selection]
        return result


@unit(r"\{.*wgmma\.mma_async.*\}")
def _wgmma(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Run the statements of a tile in order."""
    constants: dict[str, Any] = {"never": False, "always": True}
    wgmmas = program.unit(_Wgmmas)
    # The results are tied to the operands after them.
    outputs = program.results
    registers = [wgmmas.complete(value) for value in operands[outputs : 2 * outputs]]
    read: dict[int, list[Array]] = {group: [] for group in program.warp_groups("a wgmma")}
    states: list[str] = []
    for statement in (part.strip(" {}") if "mma_async" not in part else part.strip() for part in match[0].split(";")):
        opcode, _, rest = statement.partition(" ")
        if opcode == "add.s64":
            target, source, number = (part.strip() for part in rest.split(","))
            constants[target] = operands[int(source[1:])] + np.uint64(int(number))
        elif opcode.startswith("wgmma.mma_async"):
            assert states == ["wgmma.fence.sync.aligned"], "a wgmma before its fence or after its commit"
            _one(program, opcode, rest, operands, registers, constants, read)
        elif opcode.startswith("wgmma."):
            states.append(opcode)
    assert states[-1] == "wgmma.commit_group.sync.aligned"
    first = len(wgmmas.accumulators) + 1
    operands[:outputs] = [wgmmas.marked(value) for value in registers]
    numbers = set(range(first, first + outputs))
    for group, places in read.items():
        time = program.shared.begin_wgmma(group, np.concatenate(places))
        wgmmas.groups.setdefault(group, []).append((numbers, time))
        wgmmas.pending.setdefault(group, set()).update(numbers)


def _one(
    program: Any, opcode: str, rest: str, operands: list[Any], registers: list[Array], constants: dict[str, Any],
    read: dict[int, list[Array]],
) -> None:  # fmt: skip
    """Run one instruction; the places that it reads are added to `read` for each warp group."""
    match = re.search(r"\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)$", opcode)
    assert match is not None, opcode
    n, k = int(match[1]), int(match[2])
    of_first, of_second = _ELEMENTS[match[4]], _ELEMENTS[match[5]]
    size = np.dtype(of_second).itemsize
    assert k * size == 32, "a wgmma takes 32 bytes along k"
    form = re.fullmatch(r"(\{.*?\}), (\{.*?\}|da), (db), (never|always)((?:, [01])*)", rest)
    assert form is not None, rest
    of_c, *of_a = _numbers(f"{form[1]} {form[2]}")
    assert len(of_c) == n // 2
    first, second, scale = constants.get(form[2]), constants[form[3]], constants[form[4]]
    flags = [int(flag) for flag in form[5].split(", ")[1:]]
    if match[3] != "s32":
        assert flags[:2] == [1, 1]
        flags = flags[2:]
    assert len(flags) == ((1 if of_a else 2) if size == 2 else 0), rest
    transposed_b = bool(flags and flags[-1])
    transposed_a = bool(len(flags) == 2 and flags[0])
    fragments = _unpacked([operands[number] for numbers in of_a for number in numbers], of_first)
    for group, places in read.items():
        threads = np.arange(128 * group, 128 * group + 128)
        for value in (first, second):
            if value is not None and len(distinct(value[threads])) != 1:
                raise SimulationError("the descriptors of a wgmma must be the same in a warp group")
        b, there = _Matrix(int(second[128 * group])).read(program.shared, threads, n, k, not transposed_b, of_second)
        places.append(there)
        warps = [slice(start, start + 32) for start in range(128 * group, 128 * group + 128, 32)]
        if first is None:
            of_fragment = _places(fragment_a, len(fragments), 4 // size, 16)
            a = np.concatenate([_tile((16, k), fragments, of_fragment, own) for own in warps])
        else:
            matrix = _Matrix(int(first[128 * group]))
            a, there = matrix.read(program.shared, threads, 64, k, not transposed_a, of_first)
            places.append(there)
        for warp, own in enumerate(warps):
            _accumulate([registers[number] for number in of_c], own, a[16 * warp :][:16], b.T, keep=scale)


@unit(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16 .*\[\$\d+ \+ (\d+)\]")
def _ldmatrix(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Load matrices: lanes 8j to 8j + 7 address the rows of matrix j; lane l gets 32 bits of row l / 4, or column."""
    count = int(match[1])
    addresses = operands[-1].astype(np.int64) + int(match[3])
    result = [np.zeros(program.threads, np.uint32) for _ in range(count)]
    for warp in program.warps():
        for j in range(count):
            rows = addresses[warp + 8 * j : warp + 8 * j + 8]
            if (rows % 16).any():
                raise SimulationError("a row of ldmatrix must be aligned to 16 bytes")
            places = rows[:, None] + np.arange(16)
            lanes = _LANES + int(warp)
            writer: Array = program.shared.writer[places]
            if program.shared.foreign(writer[..., None], lanes).all(-1).any():
                raise SimulationError(f"ldmatrix reads shared memory {program.shared.written(places)}")
            program.shared.note_reads_of_warp(places, lanes)
            matrix = np.ascontiguousarray(program.shared.bytes[places]).view(np.uint16)
            pairs = np.ascontiguousarray(matrix.T if match[2] else matrix).view(np.uint32)
            result[j][warp : warp + 32] = pairs[_GROUP, _MEMBER]
    operands[:count] = result


@unit(r"stmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared\.b16 \[\$\d+ \+ (\d+)\], .*")
def _stmatrix(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Store matrices: each lane gives 32 bits of each, and the lanes address the rows as in ldmatrix."""
    program.together("a matrix store")
    program.use(program.active)
    addresses = (operands[0].astype(np.int64) + int(match[2])).reshape(-1, 4, 8)
    warps = program.active.reshape(-1, 32).any(1)
    count = len(operands) - 1
    rows, threads = (lanes[warps, :count].ravel() for lanes in (addresses, program.numbers.reshape(-1, 4, 8)))
    if (rows % 16).any():
        raise SimulationError("a row of stmatrix must be aligned to 16 bytes")
    words = np.stack([registers.reshape(-1, 8, 4)[warps] for registers in operands[1:]], axis=1)
    halves = np.ascontiguousarray(words).view(np.uint16)
    matrices = np.ascontiguousarray(halves.swapaxes(2, 3) if match[1] else halves)
    program.shared.store(rows, threads, matrices.view(np.uint8).reshape(-1, 16))


@unit(r"wgmma\.wait_group\.sync\.aligned (\d+)")
def _wait(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    wgmmas, shared = program.unit(_Wgmmas), program.shared
    results = [value.copy() for value in operands[len(operands) // 2 :]]
    for group in program.warp_groups("a wgmma"):
        groups = wgmmas.groups.get(group, [])
        while len(groups) > int(match[1]):
            numbers, time = groups.pop(0)
            wgmmas.pending[group] -= numbers
            shared.end_wgmma(group, time)
        threads = slice(128 * group, 128 * group + 128)
        for value in results:
            value[threads] = wgmmas.complete(value, group)[threads]
    operands[: len(results)] = results


@unit(r"cvt\.(rna?)\.tf32\.f32 \$0, \$1")
def _round_tf32(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    operands[0] = tf32(operands[1], ties_away=match[1] == "rna").view(np.uint32)


@unit(r"cvt\.rz\.(f16|f32)\.(?:f32|f64) \$0, \$1")
def _cut(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Round toward zero."""
    operands[0] = truncated(operands[1], SCALARS[match[1]]).view(operands[0].dtype)


@unit(r"cvt\.rn\.f16x2\.(e4m3|e5m2)x2 \$0, \$1")
def _from_fp8(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    pair = np.ascontiguousarray(operands[1].astype(np.uint16)).view(_ELEMENTS[match[1]]).reshape(-1, 2)
    operands[0] = np.ascontiguousarray(pair.astype(np.float16)).view(np.uint32)[:, 0]


@unit(r"cvt\.pack\.sat\.(s8|u8)\.s32\.b32 \$0, \$1, \$2, \$3")
def _pack_bytes(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Two saturated integers as the lower bytes, the first one above the other, and the lower bytes of a word above."""
    low, high = (-128, 127) if match[1] == "s8" else (0, 255)
    upper, lower = (
        operand.view(np.int32).clip(low, high).astype(np.uint32) & np.uint32(255) for operand in operands[1:3]
    )
    operands[0] = lower | upper << np.uint32(8) | operands[3].astype(np.uint32) << np.uint32(16)


@unit(r"cvt\.rn\.satfinite\.(e4m3|e5m2)x2\.(?:f32 \$0, \$1, \$2|f16x2 \$0, \$1)")
def _to_fp8(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Round to nearest, saturating; the first source is the upper half."""
    sources = operands[1:]
    if len(sources) == 1:
        pair = np.ascontiguousarray(sources[0]).view(np.float16).reshape(-1, 2).astype(np.float32)
        sources = [pair[:, 1], pair[:, 0]]
    high, low = (rounded(source, SCALARS[f"f8{match[1]}"]).view(np.uint8) for source in sources)
    operands[0] = high.astype(np.uint16) << np.uint16(8) | low
