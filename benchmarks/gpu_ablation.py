"""The machine code of kernels with each optimisation left out in turn, and their times on a GPU.

    python benchmarks/gpu_ablation.py [--write]
    python benchmarks/gpu_ablation.py --times benchmarks/results/gpu-ablation.json [--only TEXT] [--limit SECONDS]
        [--commit ID] [--passes NAME …]

For each kernel and each pass that may be left out: the instructions of the loop that takes most of the time, or of the
whole kernel where it has no loop, and its barriers; registers and bytes of spills of a thread, and bytes of shared
memory; and the cycles of a launch by the cost model. `--write` renews docs/results/benchmarks.md. ptxas and nvdisasm
must be installed (`pip install '.[ptx]'`).

`--times` needs a GPU and PyTorch. It launches each kernel with and without the passes in turn, the L2 flushed before
each launch, and writes the medians in milliseconds, with the card and the commit, and keeps those of other kernels and
passes. The table has those of benchmarks/results/gpu-ablation.json. They decide which passes there are: a pass stays if
some kernel takes at least `GATE` times as long without it.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import re
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import gpu_report
import kernels_gradients as gradients
import kernels_ours as kernels
from gpu_ladder import in_turn
from kernels_by_ziggurat import KERNELS as triton_kernels
from kernels_by_ziggurat import loaded
from results import surroundings, table, write

import ziggurat as zg
from ziggurat.backend.ptx import pairs, reductions
from ziggurat.backend.ptx.sass import assembled, disassembled, tool
from ziggurat.codemodel.dialects import tt
from ziggurat.transforms.cost.cost import cost_of
from ziggurat.transforms.cost.grid_cost import Launch, work_of_grid
from ziggurat.transforms.gpu import gpu_passes
from ziggurat.transforms.gpu.tma import tma_accesses
from ziggurat.transforms.schedule import specialize
from ziggurat.transforms.schedule.divide import whole

TARGET = "sm_90a"
loop_kernels = loaded("kernels_loops")
TIMES = Path(__file__).resolve().parents[1] / "benchmarks/results/gpu-ablation.json"
N = zg.divisible(zg.i32, 16)
NO_TIME = "not measured"
GATE = 1.02
# The measurements of a kernel, the newest one first: the card, the commit, and "ms" by the pass that is left out.
Times = dict[str, list[dict[str, Any]]]
F16, BF16, F32, I32, F8 = (
    zg.divisible(zg.ptr(element), 16) for element in (zg.f16, zg.bf16, zg.f32, zg.i32, zg.f8e4m3)
)


@zg.kernel
def largest(values_ptr, places_ptr, x_ptr, COUNT: zg.constexpr, BLOCK: zg.constexpr):
    row, at = zg.program_id(0), zg.arange(0, BLOCK)
    x = zg.load(x_ptr + row * BLOCK + at)
    for k in zg.static_range(COUNT):
        value, place = zg.max(x, 0, return_indices=True)
        zg.store(values_ptr + row * COUNT + k, value)
        zg.store(places_ptr + row * COUNT + k, place)
        x = zg.where(at == place, -float("inf"), x)


@zg.kernel
def bf16_softmax(out_ptr, x_ptr, stride, n, BLOCK: zg.constexpr):
    """The softmax of rows in arithmetic of 16 bits, but for the powers and their sum."""
    start = zg.program_id(0) * stride
    at = zg.arange(0, BLOCK)
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr + start, at), mask, other=-float("inf"))
    powers = zg.exp(zg.cast(zg.sub(x, zg.max(x, axis=0)), zg.f32))
    y = zg.div(powers, zg.sum(powers, axis=0))
    zg.store(zg.add(out_ptr + start, at), zg.cast(y, zg.bf16), mask)


@zg.kernel
def rotate(x_ptr, cosines_ptr, sines_ptr, heads, HALF: zg.constexpr):
    """Rotate the halves of a token's heads in arithmetic of 16 bits."""
    token, at = zg.program_id(0), zg.arange(0, HALF)
    cosine = zg.load(zg.add(cosines_ptr + token * HALF, at))
    sine = zg.load(zg.add(sines_ptr + token * HALF, at))
    for head in range(heads):
        left_at = zg.add(x_ptr + (token * heads + head) * 2 * HALF, at)
        left, right = zg.load(left_at), zg.load(zg.add(left_at, HALF))
        zg.store(left_at, zg.sub(zg.mul(left, cosine), zg.mul(right, sine)))
        zg.store(zg.add(left_at, HALF), zg.add(zg.mul(right, cosine), zg.mul(left, sine)))


@zg.kernel
def scaled_matmul(a_desc, b_desc, c_desc, scale_ptr, m, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """Compute a · bᵀ, where each K columns of a row of `a` have a scale."""
    row, column = zg.program_id(0) * M, zg.program_id(1) * N
    rows = zg.add(row, zg.arange(0, M))
    acc = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        scale = zg.load(zg.add(scale_ptr + start // K * m, rows))
        product = zg.dot(a_desc.load((row, start)), zg.trans(b_desc.load((column, start))))
        acc = zg.add(acc, zg.mul(product, zg.expand(scale, 1)))
    c_desc.store((row, column), zg.cast(acc, zg.f16))


@attrs.frozen
class Case:
    """A kernel, the types that it is compiled for, and a launch: its grid, for each run-time argument the shape of an
    array or a number, and options with constants by name."""

    kernel: Any
    types: Sequence[Any]
    grid: tuple[int, ...]
    argument_forms: Sequence[Any]
    options: Mapping[str, Any]


def block(*shape: int) -> Any:
    """A descriptor of a matrix of f16 whose rows are whole 16 bytes."""
    return zg.divisible(zg.descriptor(shape, zg.f16), 16)


SIZE, HEADS, SMS = 4096, 64, 132  # Of matrices, and of sequences of 64 heads; and of the GPU.
SQUARE = (SIZE, SIZE)
Table = dict[str, Case]


def attention(d: int, causal: bool, n: int = 64, roles: bool = False, **options: int) -> Case:
    types = [block(128, d), block(n, d), block(n, d), block(128, d), F32, N, zg.f32, causal, 128, n, d, roles]
    arguments = [*[(HEADS * SIZE, d)] * 4, (HEADS * SIZE,), SIZE, d**-0.5]
    return Case(kernels.attention, types, (SIZE // 128, HEADS), arguments, {"num_warps": 8, "num_stages": 2} | options)


def keys(**options: Any) -> Case:
    """The gradients of attention's keys and values, with blocks of 64 by TMA."""
    types = [*(block(rows, 64) for rows in (64, 128, 128, 64, 128, 128)), F32, F32, N, zg.f32, 64, 128, 64]
    arguments = [*[(HEADS * SIZE, 64)] * 6, *[(HEADS * SIZE,)] * 2, SIZE, 64**-0.5]
    return Case(gradients.attention_keys, types, (SIZE // 128, HEADS), arguments, {"num_stages": 2} | options)


def tiles_of_attention(d: int, m: int, n: int, tiles: int, blocks: int = 1, **options: Any) -> Case:
    """Attention with roles by the ladder's kernels, whose programs take tiles of `blocks` times `m` queries: `tiles`
    programs for each SM, or one for each tile if this is 0."""
    kernel = triton_kernels.attention if blocks == 1 else triton_kernels.attention_blocks
    parts = options.get("PARTS", 1)
    types = [block(m, d), block(n, d), block(n, d), block(m, d // parts), F32, N, N, zg.f32]
    count = -(-SIZE // (m * blocks)) * HEADS
    more = {"ONCE": False, "PAIRS": False, "PARTS": parts} if blocks == 1 else {"BLOCKS": blocks}
    more |= {"CAUSAL": False, "SHARED": 1, "M": m, "N": n, "D": d, "ROLES": True, "TILES": tiles, "LANES": d < 256}
    arguments = [*[(HEADS * SIZE, d)] * 4, (HEADS * SIZE,), SIZE, HEADS, d**-0.5]
    return Case(
        kernel, types, (min(count, tiles * SMS or count),), arguments, {"GROUP": 4, "num_stages": 2} | more | options
    )


def matmul(
    strides: Sequence[Any],
    element: Any = F16,
    tile: Sequence[int] = (128, 128, 64),
    warps: int = 8,
    sizes: Sequence[int] = (SIZE, SIZE, SIZE),
) -> Case:
    m, n, k = sizes
    types = [element, element, F16, N, N, N, *strides, N, 1, *tile, 8]
    steps = (m if strides[0] == 1 else k, n if strides[3] == 1 else k)  # Between rows of a, and of b.
    arguments = [(m, k), (k, n), (m, n), m, n, k, *steps, n]
    grid = (m // tile[0] * (n // tile[1]),)
    return Case(kernels.matmul, types, grid, arguments, {"num_warps": warps, "num_stages": 3})


def delta_rule(d: int, chunk: int = 64, programs: int = 128, chunks: int = 64) -> Case:
    rows, states = (programs, chunks, chunk, d), (programs, chunks, d, d)
    types = [F16, F16, F16, F32, F16, F16, N, chunk, d, d, False]
    arguments = [rows, rows, rows, rows[:3], states, rows, chunks]
    return Case(loop_kernels.delta, types, (programs,), arguments, {"num_warps": 4, "num_stages": 3})


def gradients_by_pointers(d: int, heads: int = 32, stages: int = 3) -> Case:
    types = [*[F16] * 4, F32, F32, F16, F16, N, zg.f32, d, 128, 64]
    arguments = [*[(heads, SIZE, d)] * 4, *[(heads, SIZE)] * 2, *[(heads, SIZE, d)] * 2, SIZE, d**-0.5]
    return Case(loop_kernels.dkdv, types, (SIZE // 128, heads), arguments, {"num_warps": 8, "num_stages": stages})


def paged_decode(d: int, page: int, rows: int = 64, pages: int = 64, warps: int = 4, stages: int = 3) -> Case:
    programs = 128 * 64 // rows
    cache = (programs * pages, page, d)
    types = [F16, F16, F16, I32, F16, N, zg.f32, d, page, rows]
    arguments = [(programs, rows, d), cache, cache, (programs, pages), (programs, rows, d), pages, d**-0.5]
    return Case(loop_kernels.paged, types, (programs,), arguments, {"num_warps": warps, "num_stages": stages})


NN, NT, TN = (N, 1, N, 1), (N, 1, 1, N), (1, N, N, 1)
BYTES: dict[str, Any] = {"element": F8, "tile": (128, 256, 128)}
KERNELS: Table = {
    "matmul f16 NN 128×128×64, 4 warps": matmul(NN, warps=4),
    "matmul f16 NT 128×128×64, 4 warps": matmul(NT, warps=4),
    "matmul f16 NN 128×128×64, 8 warps": matmul(NN),
    "matmul f16 NT 128×128×64, 8 warps": matmul(NT),
    "matmul f16 NN 128×256×64, programs in turn": matmul(NN, tile=(128, 256, 64)),
    "matmul f16 NN 8192×8192×512, programs in turn": matmul(NN, tile=(128, 256, 64), sizes=(8192, 8192, 512)),
    "matmul f16 NN 8192×8192×256, programs in turn": matmul(NN, tile=(128, 256, 64), sizes=(8192, 8192, 256)),
    "matmul f8e4m3 NN 128×256×128": matmul(NN, **BYTES),
    "matmul f8e4m3 TN 128×256×128": matmul(TN, **BYTES),
    "matmul f16 by TMA 128×256×64, roles": Case(
        kernels.matmul_blocks,
        [block(128, 64), block(256, 64), block(128, 256), N, N, N, 128, 256, 64, 8, True],
        (SMS,),
        [*[SQUARE] * 3, *[SIZE] * 3],
        {"num_warps": 8, "num_stages": 3},
    ),
    "matmul f16 by TMA, two blocks of 64×256": Case(
        triton_kernels.matmul_rows,
        [block(64, 64), block(256, 64), block(64, 256), None, None, N, N, N, ""],
        (SMS,),
        [*[SQUARE] * 3, *[SIZE] * 3],
        {"M": 64, "N": 256, "K": 64, "GROUP": 8, "BLOCKS": 2, "ROLES": True, "num_warps": 4, "num_stages": 3},
    ),
    "matmul f16 by TMA 128×128×64, scales": Case(
        scaled_matmul,
        [block(128, 64), block(128, 64), block(128, 128), F32, N, N, 128, 128, 64],
        (SIZE // 128, SIZE // 128),
        [*[SQUARE] * 3, (SIZE // 64 * SIZE,), SIZE, SIZE],
        {"num_warps": 8, "num_stages": 3},
    ),
    "matmul f16 NT of 128 rows, clusters of two": Case(
        triton_kernels.matmul_few_rows,
        [block(128, 128), block(128, 128), F16, N, N, N],
        (8192 // 128,),
        [(128, 8192), (8192, 8192), (128, 8192), 128, 8192, 8192],
        {"M": 128, "N": 128, "K": 128, "APART": 3, "ROLES": True, "num_warps": 4, "num_stages": 4, "num_ctas": 2},
    ),
    "attention f16 D64, 4 warps": attention(64, False, num_warps=4, num_stages=3),
    "attention f16 D128, 8 warps": attention(128, False, num_stages=3),
    "attention f16 D128 causal, 4 warps": attention(128, True, num_warps=4),
    "attention f16 D128 causal, 8 warps": attention(128, True, num_stages=3),
    "attention f16 D128, roles": attention(128, False, 128, True),
    "attention f16 D256, roles": attention(256, False, 64, True),
    "attention f16 D64, three blocks": tiles_of_attention(64, 64, 128, 0, 3, num_warps=4),
    "attention f16 D128, two blocks": tiles_of_attention(128, 64, 128, 1, 2, num_warps=4),
    "attention f16 D64, three CTAs per SM": tiles_of_attention(64, 64, 64, 3, maxnreg=80, num_warps=4, num_stages=3),
    "attention f16 D256, tiles": tiles_of_attention(256, 128, 64, 1, GROUP=1, PARTS=4, num_warps=8),
    "attention backward f16 D64, keys": keys(num_warps=8),
    "attention backward f16 D64, keys, roles": keys(num_warps=8, warp_specialize=True),
    "attention backward f16 D64, keys by pointers": gradients_by_pointers(64),
    "attention backward f16 D128, keys by pointers": gradients_by_pointers(128),
    "attention backward f16 D64, keys by pointers, one stage": gradients_by_pointers(64, stages=1),
    "paged decode f16 D128, pages of 32": paged_decode(128, 32),
    "paged decode f16 D128, pages of 64, 16 rows, one stage": paged_decode(128, 64, 16, 16, 1, 1),
    "delta rule f16 D64, chunks of 64": delta_rule(64),
    "layer norm f16, blocks of 2048": Case(
        kernels.layer_norm,
        [*[F16] * 4, F32, F32, N, N, zg.f32, 2048],
        (SIZE,),
        [(SIZE, 8192), (SIZE, 8192), (8192,), (8192,), (SIZE,), (SIZE,), 8192, 8192, 1e-5],
        {"num_warps": 8},
    ),
    "softmax of 8192 in bf16": Case(
        bf16_softmax, [BF16, BF16, N, N, 8192], (SIZE,), [(SIZE, 8192), (SIZE, 8192), 8192, 8192], {"num_warps": 8}
    ),
    "rotary embedding in bf16": Case(
        rotate,
        [BF16, BF16, BF16, N, 64],
        (2 * SIZE,),
        [(2 * SIZE, 32, 128), (2 * SIZE, 64), (2 * SIZE, 64), 32],
        {"num_warps": 1},
    ),
    "softmax of 131072 in f32": Case(
        kernels.softmax, [F32, F32, N, N, 131072], (256,), [(256, 131072), (256, 131072), 131072, 131072], {}
    ),
    "top 8 of 1024 in f32": Case(
        largest, [F32, I32, F32, 8, 1024], (SIZE,), [(SIZE, 8), (SIZE, 8), (SIZE, 1024)], {"num_warps": 4}
    ),
    "add f32, blocks of 65536": Case(
        kernels.add, [F32, F32, F32, N, 65536], (SIZE * SIZE // 65536,), [*[SQUARE] * 3, SIZE * SIZE], {"num_warps": 8}
    ),
}


def no_accesses(*_: Any) -> dict[Any, bool]:
    return {}


def loads_alone(*arguments: Any) -> dict[Any, bool]:
    return {
        is_access: rows
        for is_access, rows in tma_accesses(*arguments).items()
        if isinstance(is_access.op, tt.DescriptorLoad)
    }


def one_part(module: Any) -> Any:
    return [whole(module)]


def no_pairs(*_: Any) -> bool:
    return False


# The passes that only make code faster, and the options that take part in that. After them what is done within passes
# that cannot be left out, by functions that are replaced then: what TMA loads and stores, and loads for all CTAs of a
# cluster, each store as the work of a consumer of its own, and arithmetic of 16 bits in pairs.
WITHIN: dict[str, Sequence[tuple[Any, str, Any]]] = {
    "tma": ((gpu_passes, "tma_accesses", no_accesses),),
    "stores by tma": ((gpu_passes, "tma_accesses", loads_alone),),
    "multicast": ((gpu_passes, "shared_blocks", no_accesses),),
    "divide": ((specialize, "parts_of", one_part),),
    "pairs": ((pairs, "has_pairs", no_pairs), (reductions, "has_pairs", no_pairs)),
}
OPTIONS = ("maxnreg",)
# Passes that others build on. `cse` and `dce` hardly change machine code, but the cost model counts what they remove:
# the 27 thousand cycles of "top 8 of 1024 in f32" are 29 without `cse`.
NEEDED = (
    "prepare", "descriptors", "assign", "dots", "cse", "dce", "copies", "expand", "tma", "tensor_maps",
    "lower_channels", "clusters", "lower", "allocate", "barriers",
)  # fmt: skip
LEFT_OUT = (*WITHIN, *OPTIONS, *(step for step, _ in gpu_passes.PLACE if step not in NEEDED))


@attrs.frozen(slots=False)
class Figures:
    """The machine code of a kernel: instructions of its main loop, resources, and warnings of ptxas.

    `code` is its text, without addresses. It is disassembled when it is first asked for.
    """

    registers: int
    spills: int
    shared: int
    warnings: tuple[str, ...]
    _cubin: bytes = attrs.field(repr=False)

    @functools.cached_property
    def _text(self) -> str:
        return disassembled(self._cubin)

    @property
    def code(self) -> str:
        return re.sub(r"/\*.*?\*/", "", self._text)

    @functools.cached_property
    def loop(self) -> Counter[str]:
        return max(loops(self._text), key=weight)

    @property
    def instructions(self) -> int:
        """The number of instructions of the main loop."""
        return self.loop.total()

    @property
    def barriers(self) -> int:
        """The barriers of the CTA in the main loop, and its operations on mbarriers."""
        return sum(count for name, count in self.loop.items() if name.startswith(("BAR", "SYNCS")))


def loops(sass: str) -> list[Counter[str]]:
    """The instructions of each loop of a disassembled kernel, by their names: from a label to a jump back to it.

    Those of the whole kernel where it has no loop. Padding is left out.
    """
    instructions: list[str] = []
    labels: dict[str, int] = {}
    counters: list[Counter[str]] = []
    for line in sass.splitlines():
        if label := re.match(r"\.(L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif match := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?\s*(?!NOP)(\S+)(.*)", line):
            instructions.append(match[1])
            jump = re.search(r"`\(\.(L_x_\d+)\)", match[2])
            if match[1] == "BRA" and jump is not None and jump[1] in labels and len(instructions) - labels[jump[1]] > 2:
                counters.append(Counter(instructions[labels[jump[1]] :]))
    return counters or [Counter(instructions)]


def weight(loop: Counter[str]) -> tuple[float, int]:
    """A measure that is highest for the main loop: most of its instructions are products, or it has the most."""
    products = sum(count for name, count in loop.items() if name.startswith(("HGMMA", "HMMA", "QGMMA")))
    return products / loop.total(), loop.total()


@functools.cache
def figures(name: str, without: str | None = None) -> Figures:
    """The machine code of a kernel, without a pass."""
    kernel = compiled(name, without)
    code, resources = assembled(kernel.ptx, TARGET)
    return Figures(resources.registers, resources.spills, kernel.shared, resources.warnings, code)


@functools.cache
def compiled(name: str, without: str | None = None) -> Any:
    """A kernel, compiled without a pass."""
    case = KERNELS[name]
    options = {option: value for option, value in case.options.items() if option != without}
    with left_out(without), warnings.catch_warnings():
        warnings.simplefilter("ignore", zg.ZigguratWarning)
        return case.kernel.compile(*case.types, target=TARGET, **options)


def cycles(name: str, without: str | None = None) -> int:
    """The cycles of a launch by the cost model: those that the busiest unit of each SM needs for its share of it."""
    case, cost = KERNELS[name], cost_of(compiled(name, without).stages["gpu"])
    numbers = {str(at): value for at, value in enumerate(case.argument_forms) if not isinstance(value, tuple)}
    grid = (*case.grid, 1, 1)[:3]
    work = work_of_grid(cost, Launch(grid, numbers))
    assert work is not None, f"the iterations of {name} are not known"
    return round(max(work.cycles.values()) * cost.func.num_ctas / SMS)


@functools.cache
def assembler() -> tuple[int, int]:
    """The version of ptxas."""
    output = subprocess.run([str(tool("ptxas")), "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"release (\d+)\.(\d+)", output)
    assert match is not None, output
    return int(match[1]), int(match[2])


def nothing(op: Any, _: Any) -> Any:
    """The pass that changes nothing."""
    return op


@contextmanager
def left_out(name: str | None) -> Iterator[None]:
    """Compile without a pass meanwhile."""
    # Its place stays, as `place` looks for some passes by name.
    fewer = gpu_passes.replaced(name or "", (name or "", nothing))
    with ExitStack() as stack:
        for module, function, other in WITHIN.get(name or "", ((gpu_passes, "PHASES", fewer),)):
            stack.enter_context(patch.object(module, function, other))
        yield


def slowdowns(measurements: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, str]]:
    """How many times as long a kernel takes without each pass, by the newest measurement of it, and its commit."""
    results = dict[str, tuple[float, str]]()
    for measurement in reversed(measurements):
        ms, commit = measurement["ms"], measurement["commit"][:8]
        results |= {step: (ms[step] / ms[""], commit) for step in ms if step}
    return results


def gains(times: Times) -> dict[str, tuple[float, str, str]]:
    """For each pass that may be left out and was measured: the largest slowdown without it, the kernel and commit."""
    results = dict[str, tuple[float, str, str]]()
    for name, measurements in times.items():
        for step, (slowdown, commit) in slowdowns(measurements).items():
            results[step] = max(results.get(step, (0.0, "", "")), (slowdown, name, commit))
    return {step: results[step] for step in LEFT_OUT if step in results}


def gains_table(times: Times) -> str:
    """The table of the gains of all passes that may be left out."""
    measured = gains(times)
    cells_of = {step: (f"{slowdown:.3f}", name, commit) for step, (slowdown, name, commit) in measured.items()}
    table_rows = [(f"`{step}`", *cells_of.get(step, (NO_TIME, "", ""))) for step in LEFT_OUT]
    return table(("without", "times as long at most", "kernel", "commit"), table_rows)


def rows(times: Times, name: str) -> list[Sequence[object]]:
    """The rows of a kernel, without each of the passes that change it."""
    measurements = times.get(name, [])
    slower = slowdowns(measurements)
    newest = NO_TIME
    if measurements:
        newest = "{ms} ({card}, {commit:.8})".format(**{**measurements[0], "ms": measurements[0]["ms"][""]})
    table: list[Sequence[object]] = [(name, *cells(name), newest)]
    for step in LEFT_OUT:
        if not is_changed(name, step):
            continue
        try:
            if figures(name, step) != figures(name):
                times_as_long = "{:.2f} ({})".format(*slower[step]) if step in slower else NO_TIME
                table.append((f"… without `{step}`", *cells(name, step), times_as_long))
        except zg.TargetError:
            table.append((f"… without `{step}`", "ptxas refuses it", *[""] * 6))
    return table


def is_changed(name: str, without: str) -> bool:
    """Whether a pass changes the PTX of a kernel."""
    kernel = compiled(name)
    if without != "pairs" and without not in OPTIONS:  # Most passes change no kernel, and LLVM takes the most time.
        with left_out(without), warnings.catch_warnings():
            warnings.simplefilter("ignore", zg.ZigguratWarning)
            if gpu_passes.place(kernel.stages["triton"], kernel.options) == kernel.stages["gpu"]:
                return False
    return compiled(name, without).ptx != kernel.ptx


def cells(name: str, without: str | None = None) -> Sequence[object]:
    values, spent = figures(name, without), cycles(name, without)
    return values.instructions, values.barriers, values.registers, values.spills, values.shared, round(spent / 1000)


# Times.


def launched(name: str) -> tuple[Any, list[Any]]:
    """The grid and the arguments of a kernel, of N(0,1) data on a GPU."""
    import torch

    dtypes = {
        zg.f16: torch.float16, zg.bf16: torch.bfloat16, zg.f32: torch.float32, zg.i32: torch.int32,
        zg.f8e4m3: torch.float8_e4m3fn,
    }  # fmt: skip
    case, arguments = KERNELS[name], list[Any]()
    types = [type_ for type_ in case.types if not isinstance(type_, int | str | None)]
    for type_, argument in zip(types, case.argument_forms, strict=True):
        if isinstance(argument, tuple):
            element = type_.type.element if hasattr(type_.type, "block") else type_.type.pointee
            array = torch.randn(*argument, device="cuda").to(dtypes[element])
            if element == zg.i32:  # Different places, such as those of pages.
                array = torch.randperm(array.numel(), device="cuda").to(torch.int32).view(argument)
            argument = zg.TensorDescriptor(array, [*type_.type.block]) if hasattr(type_.type, "block") else array
        arguments.append(argument)
    return case.grid, arguments


def prepared(passes: Sequence[str], name: str) -> tuple[str, dict[str, Any]]:
    """A kernel compiled without each of these passes that changes it, "" for none, to be assembled by the driver."""
    kernels: dict[str, Any] = {}
    for step in (None, *passes):
        if step is None or is_changed(name, step):
            kernel = compiled(name, step)
            try:
                print(f"{name}, {step}: {kernel.registers} registers", flush=True)
            except zg.TargetError as problem:  # ptxas refuses it.
                print(f"{name}, {step}: {problem}", flush=True)
            else:
                kernels[step or ""] = attrs.evolve(kernel, stages={"ptx": kernel.ptx})
    return name, kernels


def prepared_apart(passes: Sequence[str], name: str) -> tuple[str, dict[str, Any]]:
    """The same in a process of its own, whose end ends no other kernel."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(prepared, passes, name).result()
        except BrokenProcessPool:
            print(f"{name}: the process that compiled it ended", flush=True)
            return name, {}


def renewed(measurements: Sequence[dict[str, Any]], new: dict[str, Any], passes: Sequence[str]) -> list[dict[str, Any]]:
    """The measurements of a kernel with a new one of these passes: older ones keep those of other passes."""
    kept = {"", *LEFT_OUT}.difference(passes)
    older = [{**old, "ms": {step: ms for step, ms in old["ms"].items() if step in kept}} for old in measurements]
    return [new, *(old for old in older if len(old["ms"]) > 1)]


def measure(path: Path, limit: float, only: str, commit: str | None, passes: Sequence[str]) -> None:
    """Write the median milliseconds of kernels whose names hold a text, by the pass that is left out."""
    end = time.monotonic() + limit
    times: Times = json.loads(path.read_text("utf-8")) if path.exists() else {}
    machine = gpu_report.surroundings()
    where = {"card": machine["card"], "commit": commit or machine["commit"]}
    with ThreadPoolExecutor(14) as threads:
        for name, kernels in threads.map(
            functools.partial(prepared_apart, passes), [name for name in KERNELS if only in name]
        ):
            grid, arguments = launched(name) if kernels else ((), [])
            runs: dict[str, Any] = {}
            for step, kernel in kernels.items():
                try:
                    kernel[grid](*arguments)
                    runs[step] = functools.partial(kernel[grid], *arguments)
                except zg.ZigguratError as problem:
                    print(f"{name} without {step or 'nothing'}: {problem}"[:300], flush=True)
            if "" in runs:
                new = {**where, "ms": {step: round(ms, 4) for step, ms in in_turn(runs, 20).items()}}
                times[name] = renewed(times.get(name, []), new, passes)
                path.write_text(json.dumps(times, indent=1, ensure_ascii=False) + "\n", "utf-8")
            if time.monotonic() > end:
                threads.shutdown(cancel_futures=True)
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew docs/results/benchmarks.md")
    parser.add_argument("--times", type=Path, help="measure on a GPU, and write the file")
    parser.add_argument("--only", default="", help="kernels whose names hold this")
    parser.add_argument("--limit", type=float, default=400, help="seconds for measuring")
    parser.add_argument("--commit", help="what is measured, where that is a copy without git")
    parser.add_argument("--passes", nargs="*", default=LEFT_OUT, choices=LEFT_OUT, help="the passes that are left out")
    options = parser.parse_args()
    if options.times:
        measure(options.times, options.limit, options.only, options.commit, options.passes)
        return
    facts = f"ptxas {assembler()[0]}.{assembler()[1]}; {surroundings('llvmlite')}"
    times: Times = json.loads(TIMES.read_text("utf-8")) if TIMES.exists() else {}
    header = (
        "kernel", "instructions of the loop", "barriers in it", "registers", "spilled bytes", "shared bytes",
        "thousand cycles by the cost model", "ms; times as long",
    )  # fmt: skip
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        text = table(header, [*chain.from_iterable(pool.map(functools.partial(rows, times), KERNELS))])
    print(gains_table(times))
    print(text)
    if options.write:
        write("gains", gains_table(times))
        write("ablation", f"{facts}\n\n{text}")


if __name__ == "__main__":
    main()
