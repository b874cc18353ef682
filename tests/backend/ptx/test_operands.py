"""Operands of mma.sync: packed from a tensor's registers, and by ldmatrix from shared memory, run thread by thread."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.emitter import EFFECT, PURE, PtxEmitter
from ziggurat.backend.ptx.matrix import PackedOperand, operand_of
from ziggurat.backend.ptx.tiles import Tiles, unit_of
from ziggurat.backend.simulator.matrix_units import fragment_a, fragment_b
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu.fragments import UNITS, Panels, WarpGrid, byte_of, operand_a, operand_b
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import SCALARS, SharedType, TensorType, f16
from ziggurat.transforms.analysis.queries import function_of

DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def parameter(emission, type_: object, num_warps: int = 1) -> tuple[PtxEmitter, Value]:
    """An emitter of a kernel with one parameter."""
    emitter, _ = emission("", f"%x : {type_}", num_warps=num_warps)
    return emitter, function_of(emitter.module).body.parameters[0]


def packed(emission, element: str) -> tuple[PtxEmitter, PackedOperand]:
    emitter, value = parameter(emission, f'tensor<x256, {element}, "1 2 4 | 8 16 32 64 128 | ">')
    return emitter, PackedOperand(emitter, value)


def test_halves_share_a_register(emission) -> None:
    emitter, result = packed(emission, "f16")
    first, second = result.registers([4, 0, 1, 2])
    assert [line.strip().split(" = ")[1] for line in emitter.lines[:3]] == [
        "insertelement <2 x half> poison, half %p0.4, i32 0",
        "insertelement <2 x half> %v1, half %p0.0, i32 1",
        "bitcast <2 x half> %v2 to i32",
    ]
    assert first == "%v3" and second == "%v6" and result.kind == "i32"


def test_registers_are_packed_once(emission) -> None:
    emitter, result = packed(emission, "f16")
    once = result.registers([0, 1])
    count = len(emitter.lines)
    assert result.registers([0, 1]) == once and len(emitter.lines) == count
    assert result.registers([1, 0]) != once


def test_four_bytes_one_float_or_a_double(emission) -> None:
    emitter, result = packed(emission, "i8")
    assert len(result.registers(range(8))) == 2 and result.pack == 4
    assert sum("insertelement <4 x i8>" in line for line in emitter.lines) == 8
    emitter, result = packed(emission, "f32")
    assert result.registers([3, 1]) == ["%v1", "%v2"]
    assert emitter.lines == ["  %v1 = bitcast float %p0.3 to i32", "  %v2 = bitcast float %p0.1 to i32"]
    emitter, result = packed(emission, "f64")
    assert result.registers([3, 1]) == ["%p0.3", "%p0.1"] and result.kind == "double" and not emitter.lines


@pytest.mark.parametrize("element", ["f16", "i8", "f32", "f64"])
@pytest.mark.parametrize("first", [True, False])
def test_operands_in_registers_are_found_by_their_places(element: str, first: bool, emission) -> None:
    """The registers of each part in thread 0 hold the manual's elements, in its order."""
    scalar = SCALARS[element]
    unit, warps = unit_of(scalar), WarpGrid(1, 1, 1)
    m, n, k = 32, 16, 2 * unit.k
    tiles = Tiles(unit, warps, m, n, k)
    shape = (m, k) if first else (k, n)
    layout = (operand_a if first else operand_b)(unit, shape, warps)
    type_ = TensorType(shape, scalar, layout)
    emitter, value = parameter(emission, type_)
    operand = operand_of(emitter, value, tiles, first=first)
    number = {name: at for at, name in enumerate(emitter.values[value])}
    for line in range(0, shape[0] if first else n, unit.m if first else unit.n):
        for at in tiles.depths:
            start = len(emitter.lines)
            registers = operand.part(line, at)
            arguments = [
                word.rstrip(",") for text in emitter.lines[start:] for word in text.split() if word.startswith("%p0.")
            ]
            if element == "f64":
                arguments = registers
            results = [divmod(layout.element(number[name]), shape[1]) for name in arguments]
            if first:
                places = [fragment_a(i, unit.pack, unit.m) for i in range(unit.m * unit.k // 32)]
                assert results == [(line + int(row[0]), at + int(deep[0])) for row, deep in places]
            else:
                places = [fragment_b(i, unit.pack) for i in range(unit.k * unit.n // 32)]
                assert results == [(at + int(deep[0]), line + int(column[0])) for deep, column in places]


def ran(emitter: PtxEmitter, image: np.ndarray, registers: list[str]) -> np.ndarray:
    """The emitted registers of each thread, with an image in shared memory."""
    threads, words = 32 * emitter.scope.warps, image.view(np.uint32)
    lines = ["%tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()"]
    for at in range(0, len(words), threads):
        lines += [
            f"%i{at} = add i32 %tid, {at}",
            f"%g{at} = getelementptr i32, ptr addrspace(1) %in, i32 %i{at}",
            f"%w{at} = load i32, ptr addrspace(1) %g{at}, align 4",
            f"%s{at} = getelementptr i32, ptr addrspace(3) @smem, i32 %i{at}",
            f"store i32 %w{at}, ptr addrspace(3) %s{at}, align 4",
        ]
    lines += ['call void asm sideeffect "bar.sync 0;", "~{memory}"() #1', *emitter.preamble, *emitter.lines]
    for number, register in enumerate(registers):
        lines += [
            f"%o{number} = add i32 %tid, {threads * number}",
            f"%q{number} = getelementptr i32, ptr addrspace(1) %out, i32 %o{number}",
            f"store i32 {register}, ptr addrspace(1) %q{number}, align 4",
        ]
    body = "\n".join(f"  {line.strip()}" for line in lines)
    text = (
        f"define ptx_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {{\nentry:\n{body}\n  ret void\n}}"
    )
    out = np.zeros((len(registers), threads), np.uint32)
    simulate(text, num_warps=emitter.scope.warps, shared=image.nbytes, arguments=[words, out])
    return out


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("element, shape, width, k_major", [
    ("f16", (32, 32), 64, True), ("f16", (32, 64), 128, True), ("f16", (32, 32), 64, False),
    ("f16", (64, 32), 64, False), ("i8", (32, 64), 64, True), ("f32", (32, 16), 64, True), ("f16", (32, 16), 32, True),
    ("f16", (8, 16), 32, True),
])  # fmt: skip
@pytest.mark.parametrize("warps", [
    WarpGrid(2, 1, 2), WarpGrid(1, 2, 2), WarpGrid(1, 1, 1), WarpGrid(1, 1, 2, 2), WarpGrid(2, 1, 4, 2),
    WarpGrid(1, 2, 4, 2),
], ids=["down", "across", "one", "batch", "batch-down", "batch-across"])  # fmt: skip
def test_operands_in_shared_memory(
    element: str, shape: tuple[int, int], width: int, k_major: bool, first: bool, warps: WarpGrid, emission
) -> None:
    """Every part in every thread. `shape` is that of a (m × k), or of b transposed; some cases are batches."""
    scalar = SCALARS[element]
    unit = unit_of(scalar)
    lines, k = shape
    if lines < (unit.m * warps.rows if first else unit.n * warps.columns):
        return  # No tile has that many warps.
    batch = 2 * warps.batches if warps.batches > 1 else 1
    whole = (*([batch] if batch > 1 else []), *(shape if first else (k, lines)))
    shared = SharedType(whole, scalar, Panels(width, k_major).offsets(whole, 1 if first else 0, scalar.bytes))
    tiles = Tiles(unit, warps, lines if first else 64, 64 if first else lines, k, batch)
    emitter, value = parameter(emission, shared, warps.count)
    emitter.values[value] = "@smem"
    operand = operand_of(emitter, value, tiles, first=first)
    dtype = DTYPES[scalar.bytes]
    matrix = np.random.default_rng(1).integers(0, 1 << scalar.bits, whole, dtype=np.uint64).astype(dtype)
    image = np.zeros(matrix.size, dtype)
    matrix = matrix.reshape(batch, *whole[-2:])
    for number, row, column in np.ndindex(matrix.shape):
        image[byte_of(shared, row, column, number) // scalar.bytes] = matrix[number, row, column]
    starts = tiles.rows if first else tiles.columns
    places = product(tiles.matrices, starts, tiles.depths)
    parts = {(line, at, number): operand.part(line, at, number) for number, line, at in places}
    count = 4 if first else 2
    assert all(len(part) == count for part in parts.values())
    assert operand.part(0, 0) is parts[0, 0, 0]  # Loaded once.
    actual = ran(emitter, image, [name for part in parts.values() for name in part])
    for number, (line, at, turn) in enumerate(parts):
        for register in range(count):
            arguments = actual[number * count + register].view(dtype).reshape(-1, unit.pack)
            for element_, warp in np.ndindex(unit.pack, warps.count):
                i, lanes = register * unit.pack + element_, slice(32 * warp, 32 * warp + 32)
                own_matrix = matrix[turn + warp // (warps.rows * warps.columns) % warps.batches]
                if first:
                    own = line + unit.m * (warp % warps.rows)
                    row, deep = fragment_a(i, unit.pack, unit.m)
                    expected = own_matrix[own + row, at + deep]
                else:
                    own = line + tiles.n // warps.columns * (warp // warps.rows % warps.columns)
                    deep, column = fragment_b(i, unit.pack)
                    expected = own_matrix[at + deep, own + column]
                np.testing.assert_array_equal(arguments[lanes, element_], expected)


def test_the_b_of_two_parts_is_loaded_at_once(emission) -> None:
    shared = SharedType((16, 32), f16, Panels(32, True).offsets((16, 32), 0, 2))
    emitter, value = parameter(emission, shared)
    emitter.values[value] = "@smem"
    operand = operand_of(emitter, value, Tiles(UNITS["m16n8k16"], WarpGrid(1, 1, 1), 16, 32, 16), first=False)
    for column in range(0, 32, 8):
        operand.part(column, 0)
    loads = [line for line in emitter.lines if "ldmatrix" in line]
    assert len(loads) == 2 and all("m8n8.x4.shared" in line for line in loads)


def test_reads_are_not_merged_across_writes() -> None:
    """Two dots, one after the other, through buffers at one address: LLVM must not merge their loads."""

    @zg.kernel
    def twice(x_ptr, out_ptr):
        at = zg.add(zg.mul(zg.expand(zg.arange(0, 32), 1), 32), zg.expand(zg.arange(0, 32), 0))
        x = zg.load(zg.add(x_ptr, at))
        first = zg.dot(zg.add(x, 1), zg.sub(x, 1))
        again = zg.cast(zg.compare(first, 0, zg.CompareKind.GREATER_THAN), zg.i8)
        total = zg.sum(zg.dot(zg.add(again, 1), zg.sub(again, 1)), axis=1)
        zg.store(zg.add(out_ptr, zg.arange(0, 32)), total)

    binary = twice.compile(zg.ptr(zg.i8), zg.ptr(zg.i32), target="sm_90a", num_warps=1)
    emission, copies = (binary.stages[stage].count("ldmatrix.sync") for stage in ("llvm", "ptx"))
    assert emission == copies > 0


@pytest.mark.parametrize(
    ("options", "assembly"),
    [
        ({"effect": PURE}, 'asm "op $0, $1;", "=r,l"'),
        ({"effect": PURE, "early": True}, 'asm "op $0, $1;", "=&r,l"'),
        ({"effect": PURE, "tied": True}, 'asm "op $0, $1;", "=r,0"'),
        ({"effect": PURE, "constraints": ["=r", "n"]}, 'asm "op $0, $1;", "=r,n"'),
        ({"effect": EFFECT}, 'asm sideeffect "op $0, $1;", "=r,l,~{memory}"'),
        ({"effect": EFFECT, "mask": "%m"}, 'asm sideeffect "@$2 op $0, $1;", "=r,l,b,~{memory}"'),
    ],
)
def test_constraints_of_assembly(options, assembly: str, emission) -> None:
    emitter, _ = parameter(emission, "i64")
    (result,) = emitter.asm(
        ["i32"], "@mask op $0, $1;" if "mask" in options else "op $0, $1;", ("i64", "%p0"), **options
    )
    mask = ", i1 %m" if "mask" in options else ""
    assert emitter.lines[-1].strip() == f"{result} = call i32 {assembly}(i64 %p0{mask}) {options['effect']}"
