"""The cost of GPU models: figures that are derived by hand, and the reasons why an access is not better."""

from __future__ import annotations

import sys
from collections import Counter
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from random_layouts import random_layout

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout, combine, inverted
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.cost.bounds import least_cycles
from ziggurat.transforms.cost.cost import Cost, CostEntry, Work, cost_of
from ziggurat.transforms.cost.grid_cost import Launch
from ziggurat.transforms.layouts.swizzle import Moves, conversion_buffer, row_major, vector_bits, vector_moves

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import gpu_ablation as ablation
import kernels_ours as kernels

LESS = zg.CompareKind.LESS_THAN
F16, F32 = (zg.divisible(zg.ptr(element), 16) for element in (zg.f16, zg.f32))
N = zg.divisible(zg.i32, 16)


def block(*shape: int) -> Any:
    return zg.divisible(zg.descriptor(shape, zg.f16), 16)


def cost(kernel: Any, types: list[Any], **options: Any) -> Cost:
    binary = kernel.compile(*types, **options)
    return cost_of(binary.stages["gpu"], tuple(argument.name for argument in binary.arguments))


def total(entries: list[CostEntry]) -> Work:
    return reduce(Work.__add__, (entry.work for entry in entries), Work())


def in_loop(actual: Cost, number: int) -> list[CostEntry]:
    """The entries of the loop of this number, of all roles; they are counted by their lines, outermost first."""
    lines = sorted({entry.loop.location.line for entry in actual.entries if entry.loop is not None})
    return [e for e in actual.entries if e.loop is not None and e.loop.location.line == lines[number]]


def of(actual: Cost | list[CostEntry], kind: type[Op]) -> list[CostEntry]:
    entries = actual.entries if isinstance(actual, Cost) else actual
    return [entry for entry in entries if isinstance(entry.op, kind)]


@zg.kernel
def each_function(x, y, n, out):
    at = zg.arange(0, 128)
    a, b, i = zg.load(zg.add(x, at)), zg.load(zg.add(y, at)), zg.add(zg.load(zg.add(n, at)), 3)
    a = zg.exp(zg.exp2(zg.log(zg.log2(zg.sqrt(zg.rsqrt(zg.sqrt_rn(a)))))))
    a = zg.sin(zg.cos(zg.tanh(zg.erf(zg.abs(zg.neg(zg.div_rn(zg.div(a, b), zg.add(b, 1.0))))))))
    a = zg.maximum(zg.minimum(zg.mod(a, b), b), zg.cast(zg.div(zg.mod(i, 7), zg.load(n)), zg.f32))
    zg.store(zg.add(out, at), zg.div(a, zg.load(y)))


HERE = Path(__file__).parent


def worded(work: Work) -> str:
    return " ".join(f"{name}={value:g}" for name, value in attrs.asdict(work).items() if value) or "nothing"


@pytest.mark.parametrize("name", ["functions", *(file.stem for file in sorted((HERE / "golden" / "placed").glob("*")))])
def test_the_cost_of_each_op(name: str, golden: Any) -> None:
    """The cost of each op alone, and how many have this cost."""
    if name == "functions":
        kernel = each_function.compile(F32, F32, zg.divisible(zg.ptr(zg.i32), 16), F32, num_warps=1)
        module = kernel.stages["gpu"]
    else:
        module = parse((HERE / "golden" / "placed" / f"{name}.txt").read_text("utf-8"))
    assert isinstance(module, gpu.Module)
    actual = cost_of(module)
    least = {entry.op: entry.work for entry in cost_of(module, at_least=True).entries}
    lines = Counter(
        f"{entry.op.NAME} {worded(entry.work)}"
        f"{'' if entry.bits is None else f' of {entry.bits} bits'}"
        f"{'' if entry.work == least.get(entry.op) else f' at least {worded(least.get(entry.op, Work()))}'}"
        for entry in actual.entries
    )
    numbers = dict.fromkeys(actual.func.parts or map(str, range(len(actual.func.body.parameters))), 256)
    bounds = [least_cycles(module, Launch((6, 1, 1), known), 2) for known in ({}, numbers)]
    resources = f"{actual.warps} warps, {actual.shared} bytes, {actual.carried} registers"
    rest = f"at least {bounds} cycles; {resources}; CTAs {actual.ctas(64)}"
    golden(f"costs/{name}", "\n".join([rest, *(f"{count:3} {line}" for line, count in sorted(lines.items()))]))


# Figures.


def test_vector_add():
    actual = cost(kernels.add, [F32, F32, F32, N, 1024], num_warps=4)
    # 1024 f32 are 4096 bytes, 128 sectors. Each of 128 threads has 8, which are two instructions of 128 bits.
    for entry in (*of(actual, tt.Load), *of(actual, tt.Store)):
        work = entry.work
        assert (work.read + work.written, work.moved, work.issued, entry.bits) == (4096, 4096, 2 * 4, 128)
        assert entry.loop is None and not entry.reasons
    whole = total([*actual.entries])
    assert (whole.read, whole.written, whole.flops, whole.wavefronts) == (8192, 4096, 0, 0)
    assert whole.cycles["L2 cache"] == 12288 / 64
    assert [entry.work.issued for entry in actual.entries if entry.op.NAME == "arith.addf"] == [8 * 4]
    # Two masks a thread, of the first of each four elements; the indices are one sum, with constants added.
    assert [entry.work.issued for entry in actual.entries if entry.op.NAME == "arith.cmpi"] == [2 * 4]
    assert [entry.work.issued for entry in actual.entries if entry.op.NAME == "arith.addi"] == [1 * 4]


def test_strided_rows_waste_their_sectors():
    actual = cost(strided, [F32, F32, zg.i32, 256], num_warps=4)
    (load,), (store,) = of(actual, tt.Load), of(actual, tt.Store)
    # 256 elements of 4 bytes, each in a sector of 32 bytes of its own.
    assert (load.work.read, load.work.moved, load.work.asked, load.bits) == (1024, 256 * 32, 256 * 32, 32)
    # Threads hold four neighbours for the store, whose layout the load has.
    assert (store.work.written, store.work.moved, store.work.asked, store.bits) == (1024, 1024, 1024, 64)


@zg.kernel
def spread(x, out, STEP: zg.constexpr, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out, at), zg.load(zg.add(x, zg.mul(at, STEP))))


@pytest.mark.parametrize(("step", "sectors"), [(1, 128), (2, 256), (4, 512), (8, 1024), (16, 1024), (0, 1)])
def test_constant_strides_are_counted_exactly(step: int, sectors: int):
    actual = cost(spread, [F32, F32, step, 1024], num_warps=4)
    (load,) = of(actual, tt.Load)
    assert load.work.moved == 32 * sectors


@zg.kernel
def rows_of_pairs(x, out, stride, n, ROWS: zg.constexpr):
    """Sums of every second column, by steps of 16."""
    row, column = zg.expand(zg.arange(0, ROWS), 1), zg.expand(zg.arange(0, 16), 0)
    at, total = zg.add(x, zg.add(zg.mul(row, stride), zg.mul(column, 2))), zg.zeros((ROWS, 16), zg.f32)
    for _ in range(0, n, 32):
        total = zg.add(total, zg.load(at))
        at = zg.add(at, 32)
    zg.store(zg.add(out, zg.add(zg.mul(row, 16), column)), total)


def test_strides_of_pointers_that_a_loop_moves():
    actual = cost(rows_of_pairs, [F32, F32, zg.i32, zg.i32, 64], num_warps=4)
    (load,) = of(actual, tt.Load)
    # A row is 16 words, every second one of 128 bytes; the rows are anywhere.
    assert load.loop is not None and load.work.moved == 64 * 128


def test_sectors_that_several_instructions_ask_for():
    """A load by 32 bits in the layout of a store by 128: each instruction has a word of each of 16 sectors."""
    actual = cost(copied, [F32, zg.ptr(zg.f32), 1024], num_warps=4)
    (load,), (store,) = of(actual, tt.Load), of(actual, tt.Store)
    assert (load.work.read, load.work.moved, load.work.asked, load.bits) == (4096, 4096, 4 * 4096, 32)
    assert (store.work.written, store.work.moved, store.work.asked, store.bits) == (4096, 4096, 4096, 128)


def test_softmax():
    actual = cost(kernels.softmax, [F32, F32, N, N, 1024], num_warps=4)
    whole = total([*actual.entries])
    assert (whole.read, whole.written, whole.moved) == (4096, 4096, 8192)
    # 8 powers in each of 4 warps, and 1 / sum once in each.
    assert whole.functions == 4 * (8 + 1)
    # Each reduction stores 4 partial results by one vector in each warp, and loads them.
    assert whole.wavefronts == whole.least == 2 * 4 * 2 and whole.barriers == 2


def test_matmul_by_pointers():
    types = [F16, F16, F16, N, N, N, N, 1, N, 1, N, 1, 128, 128, 64, 8]
    actual = cost(kernels.matmul, types, num_warps=4, num_stages=3, raise_pointers=False)
    loop = in_loop(actual, 0)
    work = total(loop)
    assert work.read == work.moved == 2 * 128 * 64 * 2
    assert work.flops == 2 * 128 * 128 * 64 and work.tensor == work.flops / 4096
    # 8 wgmmas of 64×128×16: each reads 64 rows of a and 128 of b, of 32 bytes; and what was read is written before.
    assert work.wavefronts == work.least == 8 * (64 + 128) * 32 / 128 + 32768 / 128
    copies = of(loop, gpu.AsyncCopy)
    assert [entry.bits for entry in copies] == [128, 128]
    assert all("not TMA" in reason for entry in copies for reason in entry.reasons)
    # The accumulator goes through shared memory without conflicts, and to global memory by 128 bits.
    (store,) = of(actual, tt.Store)
    assert (store.work.written, store.work.moved, store.bits) == (32768, 32768, 128)
    assert total([*of(actual, gpu.LocalStore), *of(actual, gpu.LocalLoad)]).wavefronts == 2 * 32768 / 128


def test_matmul_by_tma_in_roles():
    types = [block(128, 64), block(256, 64), block(128, 256), N, N, N, 128, 256, 64, 8, True]
    actual = cost(kernels.matmul_blocks, types, num_warps=8, num_stages=3)
    loop = in_loop(actual, 1)
    work = total(loop)
    assert actual.warps == 12 and {entry.role for entry in loop} == {0, 1}
    assert work.read == (128 + 256) * 64 * 2 and work.flops == 2 * 128 * 256 * 64 and work.tensor == 1024
    assert [entry.work.read for entry in of(loop, gpu.TmaLoad)] == [128 * 64 * 2, 256 * 64 * 2]
    # 4 wgmmas of 64×256×16 in each of two warp groups, after TMA has written 48 KiB.
    assert work.wavefronts == 8 * (64 + 256) * 32 / 128 + 49152 / 128
    assert total(in_loop(actual, 0)).written == 128 * 256 * 2
    assert actual.ctas(168) == {"warps": 5, "CTAs": 32, "registers": 1, "shared memory": 1}


def test_attention():
    types = [block(128, 64), block(64, 64), block(64, 64), block(128, 64), F32, N, zg.f32, False, 128, 64, 64, False]
    work = total(in_loop(cost(kernels.attention, types, num_warps=4, num_stages=3), 0))
    assert work.read == 2 * 64 * 64 * 2 and work.flops == 2 * 2 * 128 * 64 * 64
    # A thread has 128 × 64 / 128 powers, and one for each of its 4 rows.
    assert work.functions == 4 * (64 + 4)
    # Scores: 8 wgmmas of 64×64×16 read a and b. Then a is in registers. TMA writes 16 KiB.
    assert work.wavefronts == (8 * (64 + 64) + 8 * 64) * 32 / 128 + 16384 / 128
    assert max(work.cycles, key=work.cycles.__getitem__) == "MUFU"


# The cycles of an SM for an iteration of the main loop, by its number among the loops, or for all of a kernel without
# loops: those of the matrix units, of
# shared memory, of the L2 cache and of the MUFU, which are exact, and the most of the issue slots.
CYCLES: dict[str, tuple[int | None, tuple[int, ...], int]] = {
    "matmul f16 NN 128×128×64, 4 warps": (0, (512, 640, 512, 0), 95),
    "matmul f16 NT 128×128×64, 4 warps": (0, (512, 640, 512, 0), 85),
    "matmul f16 NN 128×128×64, 8 warps": (0, (512, 640, 512, 0), 150),
    "matmul f16 NT 128×128×64, 8 warps": (0, (512, 640, 512, 0), 145),
    "matmul f16 by TMA 128×256×64, roles": (1, (1024, 1024, 768, 0), 85),
    "attention f16 D64, 4 warps": (0, (512, 512, 256, 544), 500),
    "attention f16 D128, 8 warps": (0, (1024, 1024, 512, 544), 690),
    "attention f16 D128 causal, 8 warps": (1, (1024, 1024, 512, 544), 880),
    "attention f16 D128 causal, 4 warps": (1, (1024, 1024, 512, 544), 800),
    "attention f16 D128, roles": (0, (2048, 1536, 1024, 1056), 910),
    "attention f16 D256, roles": (0, (2048, 2048, 1024, 544), 805),
    "attention backward f16 D64, keys": (0, (1024, 896, 264, 512), 580),
    "layer norm f16, blocks of 2048": (2, (0, 0, 256, 0), 145),
    "matmul f16 by TMA 128×128×64, scales": (0, (512, 640, 520, 0), 275),
    "matmul f8e4m3 NN 128×256×128": (0, (1024, 1152, 768, 0), 230),
    "matmul f8e4m3 TN 128×256×128": (0, (1024, 1408, 768, 0), 305),
    "softmax of 8192 in bf16": (None, (0, 32, 512, 528), 740),
}


@pytest.mark.parametrize("name", CYCLES)
def test_the_cycles_of_main_loops_stay(name: str):
    number, exact, most = CYCLES[name]
    actual = cost_of(ablation.compiled(name).stages["gpu"])
    cycles = total(actual.entries if number is None else in_loop(actual, number)).cycles
    issued = cycles.pop("issue slots")
    assert tuple(cycles.values()) == exact and issued <= most


# Thousand cycles of a launch.
LAUNCHES: dict[str, int] = {
    "matmul f16 NN 128×128×64, 4 warps": 326,
    "matmul f16 NT 128×128×64, 4 warps": 326,
    "matmul f16 NN 128×128×64, 8 warps": 326,
    "matmul f16 NT 128×128×64, 8 warps": 326,
    "matmul f16 NN 128×256×64, programs in turn": 258,
    "matmul f16 NN 8192×8192×512, programs in turn": 143,
    "matmul f16 NN 8192×8192×256, programs in turn": 79,
    "matmul f8e4m3 NN 128×256×128": 150,
    "matmul f8e4m3 TN 128×256×128": 183,
    "matmul f16 by TMA 128×256×64, roles": 258,
    "matmul f16 by TMA, two blocks of 64×256": 258,
    "matmul f16 by TMA 128×128×64, scales": 326,
    "matmul f16 NT of 128 rows, clusters of two": 48,
    "attention f16 D64, 4 warps": 541,
    "attention f16 D128, 8 warps": 1037,
    "attention f16 D128 causal, 4 warps": 544,
    "attention f16 D128 causal, 8 warps": 552,
    "attention f16 D128, roles": 1017,
    "attention f16 D256, roles": 2057,
    "attention f16 D64, three blocks": 543,
    "attention f16 D128, two blocks": 1017,
    "attention f16 D64, three CTAs per SM": 542,
    "attention f16 D256, tiles": 2057,
    "attention backward f16 D64, keys": 1017,
    "attention backward f16 D64, keys, roles": 1017,
    "attention backward f16 D64, keys by pointers": 711,
    "attention backward f16 D128, keys by pointers": 1164,
    "attention backward f16 D64, keys by pointers, one stage": 508,
    "paged decode f16 D128, pages of 32": 24,
    "paged decode f16 D128, pages of 64, 16 rows, one stage": 34,
    "delta rule f16 D64, chunks of 64": 56,
    "layer norm f16, blocks of 2048": 48,
    "softmax of 8192 in bf16": 23,
    "rotary embedding in bf16": 16,
    "softmax of 131072 in f32": 32,
    "top 8 of 1024 in f32": 27,
    "add f32, blocks of 65536": 24,
}


@pytest.mark.parametrize("name", ablation.KERNELS)
def test_the_cycles_of_launches_stay(name: str):
    assert round(ablation.cycles(name) / 1000) == LAUNCHES[name]


@pytest.mark.parametrize(("element", "rate"), [(zg.f8e4m3, 2), (zg.f32, 0.5)])
def test_operands_that_threads_read_for_wgmma(element: Any, rate: float):
    """An operand b of 8 or 32 bits along n comes through registers, as the first operand of the transposed product."""
    pointer = zg.divisible(zg.ptr(element), 16)
    actual = cost(dots, [pointer, pointer, F32, 128, 128, 64], num_warps=4)
    work = total(of(actual, gpu.Wgmma))  # Two, so that threads read while the first one is in flight.
    assert (work.flops, work.tensor) == (2 * 128 * 128 * 64, 512 / rate)
    # Each wgmma of 64×128 reads 128 rows of 32 bytes, and threads read its other 64.
    assert work.wavefronts == 2 * 64 * element.bytes // 32 * (128 + 64) * 32 / 128


@pytest.mark.parametrize(("element", "cycles"), [(zg.f16, 512 * 2), (zg.f32, 512 * 4)])
def test_dots_of_ampere(element: Any, cycles: int):
    """mma.sync on sm_80, at half of Hopper's rate; f32 as tf32 at half of that."""
    pointer = zg.divisible(zg.ptr(element), 16)
    actual = cost(dots, [pointer, pointer, F32, 128, 128, 64], num_warps=4, target="sm_80")
    (dot,) = of(actual, gpu.Mma)
    assert (dot.work.flops, dot.work.tensor) == (2 * 128 * 128 * 64, cycles)
    # Each operand is read by as many warps as there are beside, or above, each other: two.
    assert dot.work.wavefronts == 2 * 2 * 128 * 64 * element.bytes / 128


def test_dots_without_matrix_units():
    actual = cost(dots, [F32, F32, F32, 32, 32, 16, "ieee"], num_warps=1)
    (dot,) = of(actual, gpu.DotFma)
    # 32 accumulators of each thread in 16 steps.
    assert dot.work.flops == 0 and dot.work.issued > 32 * 16


# Bank conflicts.


def brute(layout: Layout, offsets: tuple[int, ...], size: int, width: int) -> int:
    """The wavefronts of a warp: words of 4 bytes, in the worst bank, of lanes that access at once."""
    into = inverted(offsets)
    together = min(32, 128 // max(4, size << width))
    vector = [r for r in range(len(layout.registers))][:width]
    waves = 0
    choice = vector_bits(layout, offsets, size)[:width] if vector else ()
    steps = sum(1 << bit for bit in choice)
    for register in layout.unique_registers:
        if register & steps:
            continue
        for first in range(0, 32, together):
            words: dict[int, set[int]] = {}
            for lane in range(first, first + together):
                start = combine(into, layout.element(register, lane)) * size
                for byte in range(start, start + (size << width), 4):
                    words.setdefault(byte // 4 % 32, set()).add(byte // 4)
            waves += max(map(len, words.values()))
    return waves


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("seed", range(20))
def test_wavefronts_are_counted_exactly(size: int, seed: int):
    random = Random(seed)
    source, target = (random_layout(random, 1 << random.randrange(5, 11), 2) for _ in range(2))
    target = source if target.numel != source.numel else target
    for offsets in (row_major(source.numel), conversion_buffer(source, target, source.numel, size, False)):
        result = vector_moves(source, offsets, size)
        assert result.wavefronts == brute(source, offsets, size, (result.bytes // size).bit_length() - 1)


def test_columns_of_rows_of_32_words_conflict():
    column = Layout((), (32, 64, 128, 256, 512), (1, 2, 4, 8, 16))
    assert vector_moves(column, row_major(1024), 4) == Moves(1, 4, 32)
    assert vector_moves(column, row_major(1024), 4).least == 1
    halves = Layout((), (64, 128, 256, 512, 1), (2, 4, 8, 16, 32))
    assert vector_moves(halves, row_major(1024), 2).wavefronts == 16  # Two lanes have neighbours in one word.


# Reasons.


@zg.kernel
def strided(out, x, stride, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.store(zg.add(out, at), zg.load(zg.add(x, zg.mul(at, stride))))


@zg.kernel
def copied(out, x, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at)))


@zg.kernel
def gathered(out, x, index, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.store(zg.add(out, at), zg.load(zg.add(x, zg.load(zg.add(index, at)))))


@zg.kernel
def wrapped(out, x, n, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.store(zg.add(out, at), zg.load(zg.add(x, zg.mod(at, n))))


@zg.kernel
def rows(out, x, stride, n, B: zg.constexpr):
    at = zg.arange(0, B)
    start = zg.program_id(0) * stride
    zg.store(zg.add(out, at), zg.load(zg.add(x + start, at), zg.compare(at, n, LESS)))


@zg.kernel
def part(out, x, n, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at), at >= n), at >= n)


@zg.kernel
def dots(a, b, c, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, P: zg.constexpr = "tf32"):
    m, n, k = zg.arange(0, M), zg.arange(0, N), zg.arange(0, K)
    x = zg.load(zg.add(a, zg.add(zg.mul(zg.expand(m, 1), K), zg.expand(k, 0))))
    y = zg.load(zg.add(b, zg.add(zg.mul(zg.expand(k, 1), N), zg.expand(n, 0))))
    zg.store(zg.add(c, zg.add(zg.mul(zg.expand(m, 1), N), zg.expand(n, 0))), zg.dot(x, y, input_precision=P))


@pytest.mark.parametrize(
    ("kernel", "types", "reason"),
    [
        (
            strided, [F32, F32, zg.i32, 1024],
            "32 bits a thread, not 128: 1 of the addresses in a row are known to be neighbours, because of "
            "`zg.mul(at, stride)`",
        ),
        (
            gathered, [F32, F32, zg.divisible(zg.ptr(zg.i32), 16), 1024],
            "32 bits a thread, not 128: 1 of the addresses in a row are known to be neighbours, because of "
            "`zg.load(zg.add(index, at))`",
        ),
        (
            wrapped, [F32, F32, zg.i32, 1024],
            "32 bits a thread, not 128: 1 of the addresses in a row are known to be neighbours, because of "
            "`zg.mod(at, n)`; `n` is not known to be a multiple of 4",
        ),
        (
            rows, [F32, F32, zg.i32, N, 1024],
            "32 bits a thread, not 128: the addresses are known to be multiples of 4 bytes only; `stride` is not known "
            "to be a multiple of 4",
        ),
        (
            rows, [F32, zg.ptr(zg.f32), N, N, 1024],
            "32 bits a thread, not 128: the addresses are known to be multiples of 4 bytes only; `x` is not known to "
            "be a multiple of 16 bytes",
        ),
        (
            part, [F32, F32, zg.divisible(zg.i32, 2), 1024],
            "64 bits a thread, not 128: the mask is known to be equal for 2 in a row only; `n` is not known to be a "
            "multiple of 4",
        ),
        (rows, [F32, F32, N, N, 256], "64 bits a thread, not 128: 128 threads share 256 elements"),
    ],
)  # fmt: skip
def test_reasons_for_narrow_accesses(kernel: Any, types: list[Any], reason: str):
    loads = of(cost(kernel, types, num_warps=4), tt.Load)
    assert reason in [entry.reasons[0] for entry in loads if entry.reasons]


def test_arguments_without_names_have_numbers():
    binary = rows.compile(F32, F32, zg.i32, N, 1024)
    (load,) = of(cost_of(binary.stages["gpu"]), tt.Load)
    assert load.reasons[0].endswith("argument 2 is not known to be a multiple of 4")


TRANSPOSED = """
gpu.module @target="sm_90a" @num_warps=1 ()void -> {
    tt.func @"f" ()void -> {
        %0 : tensor<x32, x32, f32, "32 64 128 256 512 | 1 2 4 8 16 | "> = arith.constant @0.0;
        %1 : shared<x32, x32, f32, "1 2 4 8 16 32 64 128 256 512"> = gpu.local_alloc @offset=0;
        gpu.local_store %1 %0;
        gpu.barrier;
        %2 : tensor<x32, x32, f32, "1 2 4 8 16 | 32 64 128 256 512 | "> = gpu.local_load %1;
        tt.return;
    };
    unreachable;
};
"""


def test_bank_conflicts_are_said():
    module = parse(TRANSPOSED)
    assert isinstance(module, gpu.Module)
    actual = cost_of(module)
    (store,), (load,) = of(actual, gpu.LocalStore), of(actual, gpu.LocalLoad)
    assert (store.work.wavefronts, store.reasons) == (32, ())
    # Vectors of 4 words by 8 lanes at once, all in the same banks.
    assert (load.bits, load.work.issued, load.work.wavefronts, load.work.least) == (128, 8, 8 * 32, 8 * 4)
    assert load.reasons == ("8-way bank conflicts: 256 wavefronts a warp, not 32",)
