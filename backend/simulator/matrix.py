"""The matrix units of the simulation: mma.sync and wgmma as in the PTX manual, fragment by fragment.

Importing this module registers their instructions. It shares nothing with the emission: the places of fragment elements
and the fields of matrix descriptors are written here anew from the manual ("Matrix fragments for mma…", "Register
fragments", "Shared memory matrix layout", "Matrix descriptor").
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ziggurat.backend.simulator.program import UNITS
from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.codemodel.types import SCALARS

_ELEMENTS: dict[str, Any] = {scalar.ptx: scalar.dtype for scalar in SCALARS.values() if scalar.ptx}
_LANES = np.arange(32)
_GROUP, _MEMBER = _LANES >> 2, _LANES & 3


def fragment_a(per: int, i: int, rows: int) -> tuple[Array, Array]:
    """(row, column) of element i of operand a, for each lane; `per` elements share a register."""
    if rows == 8:
        return _GROUP, _MEMBER
    register, part = divmod(i, per)
    return _GROUP + 8 * (register & 1), _MEMBER * per + part + 4 * per * (register >> 1)


def fragment_b(per: int, i: int) -> tuple[Array, Array]:
    """(row, column) of element i of operand b, for each lane."""
    register, part = divmod(i, per)
    return _MEMBER * per + part + 4 * per * register, _GROUP


def fragment_c(i: int) -> tuple[Array, Array]:
    """(row, column) of accumulator element i, for each lane; of wgmma, from the first row of the warp."""
    return _GROUP + 8 * (i >> 1 & 1), 8 * (i >> 2) + _MEMBER * 2 + (i & 1)


def _unpacked(registers: list[Array], dtype: Any) -> list[Array]:
    """The elements in registers of 32 bits, or of 64 for f64, lowest first."""
    found: list[Array] = []
    for register in registers:
        parts = np.ascontiguousarray(register).view(dtype).reshape(len(register), -1)
        found += [parts[:, at] for at in range(parts.shape[1])]
    return found


def _exact(matrix: Array) -> Array:
    """A matrix in the type of accumulation here; tf32 without the bits that the unit ignores."""
    if matrix.dtype == np.float32:
        matrix = (matrix.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return matrix.astype(np.int64 if matrix.dtype.kind in "iu" else np.float64)


def _numbers(text: str) -> list[list[int]]:
    return [[int(number) for number in re.findall(r"\$(\d+)", part)] for part in re.findall(r"\{([^{}]*)\}", text)]


def _mma(program: Any, text: str, operands: list[Any]) -> list[Array]:
    match = re.match(r"mma\.sync\.aligned\.m(\d+)n(\d+)k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+) ", text)
    assert match is not None, text
    m, n, k = int(match[1]), int(match[2]), int(match[3])
    dtype = _ELEMENTS[match[5]]
    per = max(1, 4 // np.dtype(dtype).itemsize)
    of_d, of_a, of_b, of_c = _numbers(text)
    sums = [operands[number] for number in of_c]
    a = _unpacked([operands[number] for number in of_a], dtype)
    b = _unpacked([operands[number] for number in of_b], dtype)
    assert len(a) * 32 == m * k and len(b) * 32 == k * n and len(of_d) * 32 == m * n, text
    result = [value.copy() for value in sums]
    for warp in range(program.threads // 32):
        own = slice(32 * warp, 32 * warp + 32)
        tile_a, tile_b, tile_c = np.zeros((m, k), dtype), np.zeros((k, n), dtype), np.zeros((m, n), sums[0].dtype)
        for i, value in enumerate(a):
            tile_a[fragment_a(per, i, m)] = value[own]
        for i, value in enumerate(b):
            tile_b[fragment_b(per, i)] = value[own]
        for i, value in enumerate(sums):
            tile_c[fragment_c(i)] = value[own]
        made = _added(tile_a, tile_b, tile_c)
        for i, value in enumerate(result):
            value[own] = made[fragment_c(i)]
    return result


def _added(a: Array, b: Array, c: Array) -> Array:
    product = _exact(a) @ _exact(b)
    wide = c.view(np.int32).astype(np.int64) if c.dtype.kind == "u" else c.astype(np.float64)
    total = product + wide
    return total.astype(np.int32).view(c.dtype) if c.dtype.kind == "u" else total.astype(c.dtype)


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
        self, shared: Any, threads: slice, lines: int, depth: int, k_major: bool, dtype: Any
    ) -> tuple[Array, Array]:
        """The operand, lines × depth, read by these threads, and its places."""
        size = np.dtype(dtype).itemsize
        line, along = np.meshgrid(np.arange(lines), np.arange(depth), indexing="ij")
        places = self.addresses(line, along, k_major, size)[..., None] + np.arange(size)
        if places.max() >= len(shared.bytes):
            raise SimulationError("a wgmma must read inside of shared memory; it reads outside")
        for code in np.unique(shared.writer[places]):
            if code != -1 and not (code in shared.seen and shared.seen[code][threads].all()):
                raise SimulationError(
                    "a wgmma reads what was written since the last barrier, or is on its "
                    "way: a barrier or a wait is missing"
                )
        if (shared.unfenced[places] != -1).any():
            raise SimulationError(
                "a wgmma reads what a thread has written without a fence since: a fence.proxy.async is missing"
            )
        return np.ascontiguousarray(shared.bytes[places]).view(dtype)[..., 0], places.reshape(-1)


# Wgmmas in flight. Until a wait, accumulator registers hold marks: NaNs with a number, which a wait or a further wgmma
# replaces by the accumulator.

_MARK, _MARKED = 0x7FE00000, 0xFFE00000


class _Wgmmas:
    """The wgmmas of a program, and for each warp group the groups in flight, oldest first."""

    def __init__(self, program: Any) -> None:
        self.accumulators: dict[int, Array] = {}
        self.groups: dict[int, list[tuple[set[int], list[Array]]]] = {}
        self.pending: dict[int, set[int]] = {}

    def marked(self, value: Array) -> Array:
        """A register of marks that stands for an accumulator register."""
        number = len(self.accumulators) + 1
        assert number < 1 << 21, "too many wgmmas for the marks"
        self.accumulators[number] = value
        return np.full(len(value), _MARK | number, np.uint32).view(value.dtype)

    def complete(self, value: Array, group: int | None = None) -> Array:
        """A register with its marks replaced, except those of wgmmas in flight in a warp group."""
        bits = value.view(np.uint32)
        marks = bits[(bits & _MARKED) == _MARK] & ~np.uint32(_MARKED)
        result = value.copy()
        for number in map(int, np.unique(marks)):
            if number in self.accumulators and (group is None or number not in self.pending.get(group, ())):
                chosen = bits == _MARK | number
                result[chosen] = self.accumulators[number][chosen]
        return result


def _wgmmas(program: Any) -> _Wgmmas:
    return program.unit(_Wgmmas)


def _warp_groups(program: Any) -> list[int]:
    """The active warp groups. Raises `SimulationError` for a part of one."""
    active = program.active.reshape(-1, 128)
    if (active.any(1) != active.all(1)).any():
        raise SimulationError("all threads of a warp group must come to a wgmma together")
    return [int(group) for group in np.flatnonzero(active.all(1))]


def _wgmma(program: Any, text: str, operands: list[Any]) -> list[Array]:
    """Run the statements of a tile in order."""
    named: dict[str, Any] = {"never": False, "always": True}
    outputs = sum(operand is None for operand in operands)
    # The results are tied to the first operands.
    wgmmas = _wgmmas(program)
    registers = [wgmmas.complete(value) for value in operands[outputs : 2 * outputs]]
    read: dict[int, list[Array]] = {group: [] for group in _warp_groups(program)}
    states: list[str] = []
    for statement in (part.strip(" {}") if "mma_async" not in part else part.strip() for part in text.split(";")):
        opcode, _, rest = statement.partition(" ")
        if opcode == "add.s64":
            target, source, number = (part.strip() for part in rest.split(","))
            named[target] = operands[int(source[1:])] + np.uint64(int(number))
        elif opcode.startswith("wgmma.mma_async"):
            assert states == ["wgmma.fence.sync.aligned"], "a wgmma before its fence or after its commit"
            _one(program, opcode, rest, operands, registers, named, read)
        elif opcode.startswith("wgmma."):
            states.append(opcode)
    assert states[-1] == "wgmma.commit_group.sync.aligned"
    first = len(wgmmas.accumulators) + 1
    marked = [wgmmas.marked(value) for value in registers]
    numbers = set(range(first, first + len(marked)))
    for group, places in read.items():
        program.shared.begun[group] += 1
        for one in places:
            program.shared.reading[one] += 1
            program.shared.wgmmas[group][one] = program.shared.begun[group]
        wgmmas.groups.setdefault(group, []).append((numbers, places))
        wgmmas.pending.setdefault(group, set()).update(numbers)
    return marked


def _one(
    program: Any, opcode: str, rest: str, operands: list[Any], registers: list[Array], named: dict[str, Any],
    read: dict[int, list[Array]],
) -> None:  # fmt: skip
    """Run one instruction; the places that it reads are added to `read` for each warp group."""
    match = re.search(r"\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)$", opcode)
    assert match is not None, opcode
    n, k = int(match[1]), int(match[2])
    dtype = _ELEMENTS[match[4]]
    size = np.dtype(dtype).itemsize
    assert k * size == 32, "a wgmma takes 32 bytes along k"
    braced = _numbers(rest)
    of_c = braced[0]
    assert len(of_c) == n // 2
    tail = [part.strip() for part in re.sub(r"\{[^{}]*\}", "", rest).split(",") if part.strip()]
    from_registers = len(braced) == 2
    first = None if from_registers else named[tail.pop(0)]
    second = named[tail.pop(0)]
    scale = named[tail.pop(0)]
    flags = [int(flag) for flag in tail]
    if match[3] != "s32":
        assert flags[:2] == [1, 1]
        flags = flags[2:]
    assert len(flags) == ((1 if from_registers else 2) if size == 2 else 0), rest
    transposed_b = bool(flags and flags[-1])
    transposed_a = bool(len(flags) == 2 and flags[0])
    fragments = _unpacked([operands[number] for number in braced[1]], dtype) if from_registers else []
    for group, places in read.items():
        threads = slice(128 * group, 128 * group + 128)
        for value in (first, second):
            if value is not None and len(np.unique(value[threads])) != 1:
                raise SimulationError("the descriptors of a wgmma must be the same in a warp group")
        b, there = _Matrix(int(second[128 * group])).read(program.shared, threads, n, k, not transposed_b, dtype)
        b = b.T
        places.append(there)
        if first is None:
            a = np.zeros((64, k), dtype)
            for warp in range(4):
                for i, value in enumerate(fragments):
                    row, column = fragment_a(4 // size, i, 16)
                    a[16 * warp + row, column] = value[128 * group + 32 * warp :][:32]
        else:
            matrix = _Matrix(int(first[128 * group]))
            a, there = matrix.read(program.shared, threads, 64, k, not transposed_a, dtype)
            places.append(there)
        sums = np.zeros((64, n), registers[0].dtype)
        for warp in range(4):
            own = slice(128 * group + 32 * warp, 128 * group + 32 * warp + 32)
            for i, number in enumerate(of_c):
                row, column = fragment_c(i)
                sums[16 * warp + row, column] = registers[number][own] if scale else 0
        made = _added(a, b, sums)
        for warp in range(4):
            own = slice(128 * group + 32 * warp, 128 * group + 32 * warp + 32)
            for i, number in enumerate(of_c):
                row, column = fragment_c(i)
                registers[number][own] = made[16 * warp + row, column]


def _ldmatrix(program: Any, text: str, operands: list[Any]) -> list[Array]:
    """Load matrices: lanes 8j to 8j + 7 address the rows of matrix j; lane l gets 32 bits of row l / 4, or column."""
    match = re.match(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16 .*\[\$\d+ \+ (\d+)\]", text)
    assert match is not None, text
    count, trans = int(match[1]), bool(match[2])
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
            if (program.shared.foreign(writer, np.full(places.shape, warp)) & ~np.isin(writer, lanes)).any():
                raise SimulationError(f"ldmatrix reads shared memory {program.shared.written(places)}")
            program.shared.reader[places] = -2
            program.shared.several[warp : warp + 32] = True
            matrix = np.ascontiguousarray(program.shared.bytes[places]).view(np.uint16)
            if trans:
                matrix = matrix.T
            pairs = np.ascontiguousarray(matrix).view(np.uint32)
            result[j][warp : warp + 32] = pairs[_GROUP, _MEMBER]
    return result


def _stmatrix(program: Any, text: str, operands: list[Any]) -> list[Array]:
    """Store matrices: each lane gives 32 bits of each, and the lanes address the rows as in ldmatrix."""
    match = re.match(r"stmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16 \[\$\d+ \+ (\d+)\]", text)
    assert match is not None, text
    program.together("a matrix store")
    addresses = operands[0].astype(np.int64) + int(match[3])
    assert len(operands) == 1 + int(match[1]), text
    for j, words in enumerate(operands[1:]):
        for warp in program.warps():
            pairs = np.zeros((8, 4), np.uint32)
            pairs[_GROUP, _MEMBER] = words[warp : warp + 32]
            matrix = np.ascontiguousarray(pairs).view(np.uint16)
            if match[2]:
                matrix = np.ascontiguousarray(matrix.T)
            rows = addresses[warp + 8 * j : warp + 8 * j + 8]
            if (rows % 16).any():
                raise SimulationError("a row of stmatrix must be aligned to 16 bytes")
            program.shared.store(rows, np.arange(warp + 8 * j, warp + 8 * j + 8), matrix.view(np.uint8))
    return [np.zeros(0)]


def _wait(program: Any, text: str, operands: list[Any]) -> list[Array]:
    match = re.fullmatch(r"wgmma\.wait_group\.sync\.aligned (\d+);", text)
    assert match is not None, text
    wgmmas, shared = _wgmmas(program), program.shared
    given = [value.copy() for value in operands[len(operands) // 2 :]]
    for group in _warp_groups(program):
        groups = wgmmas.groups.get(group, [])
        while len(groups) > int(match[1]):
            numbers, places = groups.pop(0)
            wgmmas.pending[group] -= numbers
            shared.over[group] += 1
            for one in places:
                shared.reading[one] -= 1
        threads = slice(128 * group, 128 * group + 128)
        for value in given:
            value[threads] = wgmmas.complete(value, group)[threads]
    return given


def _round_tf32(program: Any, text: str, operands: list[Any]) -> list[Array]:
    bits = operands[1].view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return [np.where(np.isfinite(operands[1]), rounded, bits)]


def _from_fp8(program: Any, text: str, operands: list[Any]) -> list[Array]:
    match = re.match(r"cvt\.rn\.f16x2\.(\w+)x2 ", text)
    assert match is not None, text
    pair = np.ascontiguousarray(operands[1].astype(np.uint16)).view(_ELEMENTS[match[1]]).reshape(-1, 2)
    return [np.ascontiguousarray(pair.astype(np.float16)).view(np.uint32)[:, 0]]


def _to_fp8(program: Any, text: str, operands: list[Any]) -> list[Array]:
    """Round to nearest, saturating; the first source is the upper half."""
    match = re.fullmatch(r"cvt\.rn\.satfinite\.(e4m3|e5m2)x2\.f32 \$0, \$1, \$2;", text)
    assert match is not None, text
    dtype = _ELEMENTS[match[1]]
    largest = np.float32({"e4m3": 448, "e5m2": 57344}[match[1]])
    high, low = (np.clip(operand, -largest, largest).astype(dtype).view(np.uint8) for operand in operands[1:])
    return [high.astype(np.uint16) << np.uint16(8) | low]


_KNOWN = {
    "cvt.rn.f16x2.e": _from_fp8,
    "cvt.rn.satfinite.e": _to_fp8,
    "wgmma.mma_async": _wgmma,
    "mma.sync": _mma,
    "ldmatrix": _ldmatrix,
    "stmatrix": _stmatrix,
    "wgmma.wait_group": _wait,
    "cvt.rna.tf32": _round_tf32,
}
UNITS.update(_KNOWN)
