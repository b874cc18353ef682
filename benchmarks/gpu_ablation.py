"""The machine code of kernels with each optimisation left out in turn, and their times on a GPU.

    python benchmarks/gpu_ablation.py [--write]
    python benchmarks/gpu_ablation.py --times docs/gpu-ablation.json [--only TEXT] [--limit SECONDS]

For each kernel and each pass that may be left out: the instructions of the loop that takes most of the time, or of the
whole kernel where it has no loop, registers and bytes of spills of a thread, and bytes of shared memory. `--write`
renews docs/benchmarks.md. ptxas and nvdisasm must be installed (`pip install '.[ptx]'`).

`--times` needs a GPU and PyTorch. It launches each kernel with and without the passes in turn, the L2 flushed before
each launch, and writes the medians in milliseconds, and keeps those of other kernels. The table has those of
docs/gpu-ablation.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import re
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kernels_gradients as gradients
import kernels_ours as kernels
from gpu_ladder import in_turn
from results import surroundings, table, write

import ziggurat as zg
from ziggurat.backend.ptx.sass import assembled, disassembled, tool
from ziggurat.codemodel import records
from ziggurat.codemodel.dialects import tt
from ziggurat.transforms.place import passes

TARGET = "sm_90a"
TIMES = Path(__file__).resolve().parents[1] / "docs/gpu-ablation.json"
N = zg.divisible(zg.i32, 16)
F16, BF16, F32, F8 = (zg.divisible(zg.ptr(element), 16) for element in (zg.f16, zg.bf16, zg.f32, zg.f8e4m3))


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


def block(*shape: int) -> Any:
    """A descriptor of a matrix of f16 whose rows are whole 16 bytes."""
    return zg.divisible(zg.descriptor(shape, zg.f16), 16)


def attention(d: int, causal: bool, n: int = 64, roles: bool = False) -> list[Any]:
    return [block(128, d), block(n, d), block(n, d), block(128, d), F32, N, zg.f32, causal, 128, n, d, roles]


def matmul(*strides: Any, element: Any = F16, tile: Sequence[int] = (128, 128, 64)) -> list[Any]:
    return [element, element, F16, N, N, N, *strides, N, 1, *tile, 8]


NN, NT, TN = (N, 1, N, 1), (N, 1, 1, N), (1, N, N, 1)
BYTES: dict[str, Any] = {"element": F8, "tile": (128, 256, 128)}
# Kernel, what it is compiled for, and options.
KERNELS: dict[str, tuple[Any, list[Any], dict[str, int]]] = {
    "matmul f16 NN 128×128×64, 4 warps": (kernels.matmul, matmul(*NN), {"num_warps": 4, "num_stages": 3}),
    "matmul f16 NT 128×128×64, 4 warps": (kernels.matmul, matmul(*NT), {"num_warps": 4, "num_stages": 3}),
    "matmul f16 NN 128×128×64, 8 warps": (kernels.matmul, matmul(*NN), {"num_warps": 8, "num_stages": 3}),
    "matmul f16 NT 128×128×64, 8 warps": (kernels.matmul, matmul(*NT), {"num_warps": 8, "num_stages": 3}),
    "matmul f8e4m3 NN 128×256×128": (kernels.matmul, matmul(*NN, **BYTES), {"num_warps": 8, "num_stages": 3}),
    "matmul f8e4m3 TN 128×256×128": (kernels.matmul, matmul(*TN, **BYTES), {"num_warps": 8, "num_stages": 3}),
    "matmul f16 by TMA 128×256×64, roles": (
        kernels.matmul_blocks,
        [block(128, 64), block(256, 64), block(128, 256), N, N, N, 128, 256, 64, 8, True],
        {"num_warps": 8, "num_stages": 3},
    ),
    "matmul f16 by TMA 128×128×64, scales": (
        scaled_matmul,
        [block(128, 64), block(128, 64), block(128, 128), F32, N, N, 128, 128, 64],
        {"num_warps": 8, "num_stages": 3},
    ),
    "attention f16 D64, 4 warps": (kernels.attention, attention(64, False), {"num_warps": 4, "num_stages": 3}),
    "attention f16 D128, 8 warps": (kernels.attention, attention(128, False), {"num_warps": 8, "num_stages": 3}),
    "attention f16 D128 causal, 4 warps": (kernels.attention, attention(128, True), {"num_warps": 4, "num_stages": 2}),
    "attention f16 D128 causal, 8 warps": (kernels.attention, attention(128, True), {"num_warps": 8, "num_stages": 3}),
    "attention f16 D128, roles": (
        kernels.attention, attention(128, False, 128, True), {"num_warps": 8, "num_stages": 2},
    ),
    "attention f16 D256, roles": (
        kernels.attention, attention(256, False, 64, True), {"num_warps": 8, "num_stages": 2},
    ),
    "layer norm f16, blocks of 2048": (
        kernels.layer_norm, [*[F16] * 4, F32, F32, N, N, zg.f32, 2048], {"num_warps": 8},
    ),
    "attention backward f16 D64, keys": (
        gradients.attention_keys,
        [*(block(rows, 64) for rows in (64, 128, 128, 64, 128, 128)), F32, F32, N, zg.f32, 64, 128, 64],
        {"num_warps": 8, "num_stages": 2},
    ),
    "softmax of 8192 in bf16": (bf16_softmax, [BF16, BF16, N, N, 8192], {"num_warps": 8}),
}  # fmt: skip
# The passes that only make code faster, and those whose work pointers and threads do otherwise: what TMA loads and
# stores.
LEFT_OUT = (
    "tma",
    "stores by tma",
    "contract",
    "raise_pointers",
    "persist",
    "last_reads",
    "cse",
    "share_buffers",
    "specialize",
    "sink_waits",
    "prefetch_loads",
    "pipeline_loads",
    "rescale",
    "hold_operands",
    "defer_stores",
)


@records.frozen
class Figures:
    """The machine code of a kernel: instructions of its main loop, resources, and warnings of ptxas.

    `code` is its text, without addresses.
    """

    loop: Counter[str]
    registers: int
    spills: int
    shared: int
    warnings: tuple[str, ...]
    code: str = records.field(repr=False)

    @property
    def instructions(self) -> int:
        """The number of instructions of the main loop."""
        return self.loop.total()


def loops(sass: str) -> list[Counter[str]]:
    """The instructions of each loop of a disassembled kernel, by their names: from a label to a jump back to it.

    Those of the whole kernel where it has no loop. Padding is left out.
    """
    instructions: list[str] = []
    labels: dict[str, int] = {}
    found: list[Counter[str]] = []
    for line in sass.splitlines():
        if label := re.match(r"\.(L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif made := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?\s*(?!NOP)(\S+)(.*)", line):
            instructions.append(made[1])
            jump = re.search(r"`\(\.(L_x_\d+)\)", made[2])
            if made[1] == "BRA" and jump is not None and jump[1] in labels and len(instructions) - labels[jump[1]] > 2:
                found.append(Counter(instructions[labels[jump[1]] :]))
    return found or [Counter(instructions)]


def weight(loop: Counter[str]) -> tuple[float, int]:
    """A measure that is highest for the main loop: most of its instructions are products, or it has the most."""
    products = sum(count for name, count in loop.items() if name.startswith(("HGMMA", "HMMA", "QGMMA")))
    return products / loop.total(), loop.total()


def figures(name: str, without: str | None = None) -> Figures:
    """The machine code of a kernel, without a pass."""
    made = compiled(name, without)
    code, resources = assembled(made.ptx, TARGET)
    text = disassembled(code)
    loop = max(loops(text), key=weight)
    plain = re.sub(r"/\*.*?\*/", "", text)
    return Figures(loop, resources.registers, resources.spills, made.shared, resources.warnings, plain)


def compiled(name: str, without: str | None = None) -> Any:
    """A kernel, compiled without a pass."""
    kernel, types, options = KERNELS[name]
    with left_out(without), warnings.catch_warnings():
        warnings.simplefilter("ignore", zg.ZigguratWarning)
        return kernel.compile(*types, target=TARGET, **options)


@functools.cache
def assembler() -> tuple[int, int]:
    """The version of ptxas."""
    said = subprocess.run([str(tool("ptxas")), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+)\.(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def nothing(op: Any, _: Any) -> Any:
    """The pass that changes nothing."""
    return op


@contextmanager
def left_out(name: str | None) -> Iterator[None]:
    """Compile without a pass meanwhile."""
    whole, accesses = passes.PLACE, passes.tma_accesses

    def fewer(*arguments: Any) -> dict[Any, bool]:
        loads = {made: rows for made, rows in accesses(*arguments).items() if isinstance(made.op, tt.DescriptorLoad)}
        return loads if name == "stores by tma" else {}

    if name in ("tma", "stores by tma"):
        passes.tma_accesses = fewer
    else:
        # Its place in the tuple stays, as `place` looks for some passes by name.
        passes.PLACE = tuple((step, nothing) if step == name else (step, run) for step, run in whole)
    try:
        yield
    finally:
        passes.PLACE, passes.tma_accesses = whole, accesses


def rows(times: dict[str, dict[str, float]]) -> Iterator[Sequence[object]]:
    for name in KERNELS:
        ptx, whole, measured = compiled(name).ptx, figures(name), times.get(name, {})
        yield name, *cells(whole), measured.get("", "")
        for step in LEFT_OUT:
            if compiled(name, step).ptx != ptx and (without := figures(name, step)) != whole:
                slower = f"{measured[step] / measured['']:.2f}" if step in measured else ""
                yield f"… without `{step}`", *cells(without), slower


def cells(made: Figures) -> Sequence[object]:
    return made.instructions, made.registers, made.spills, made.shared


# Times.


def launched(name: str) -> tuple[Any, list[Any]]:
    """The grid and the arguments of a kernel, of N(0,1) data on a GPU."""
    import torch

    kernel, types, _ = KERNELS[name]

    def random(*shape: int, dtype: Any = torch.float16) -> Any:
        return torch.randn(*shape, device="cuda").to(dtype)

    def blocks(*matrices: Any) -> list[Any]:
        return [zg.TensorDescriptor(one, [*type_.type.block]) for one, type_ in zip(matrices, types, strict=False)]

    size = 4096
    if kernel is kernels.matmul:
        element = torch.float8_e4m3fn if types[0] is F8 else torch.float16
        a, b = (random(size, size).to(element) for _ in range(2))
        variable = [size for type_ in types[3:11] if type_ is N]
        tiles = size // types[-4] * (size // types[-3])
        return (tiles,), [a, b, random(size, size), *variable]
    if kernel is kernels.matmul_blocks:
        return (132,), [*blocks(*(random(size, size) for _ in range(3))), size, size, size]
    if kernel is scaled_matmul:
        scales = random(size // 64 * size, dtype=torch.float32)
        return (size // 128, size // 128), [*blocks(*(random(size, size) for _ in range(3))), scales, size, size]
    if kernel is kernels.layer_norm:
        x, y, w, b = random(size, 8192), random(size, 8192), random(8192), random(8192)
        sums = [random(size, dtype=torch.float32) for _ in range(2)]
        return (size,), [x, y, w, b, *sums, 8192, 8192, 1e-5]
    if kernel is bf16_softmax:
        x, y = (random(size, 8192, dtype=torch.bfloat16) for _ in range(2))
        return (size,), [y, x, 8192, 8192]
    # Attention with 64 heads.
    d = types[0].type.block[-1]
    sums = [random(64 * size, dtype=torch.float32) for _ in range(2)]
    if kernel is kernels.attention:
        return (size // 128, 64), [*blocks(*(random(64 * size, d) for _ in range(4))), sums[0], size, d**-0.5]
    return (size // 128, 64), [*blocks(*(random(64 * size, d) for _ in range(6))), *sums, size, d**-0.5]


def prepared(name: str) -> tuple[str, dict[str, Any]]:
    """A kernel compiled without each of the passes that change it, "" for none, and assembled by the driver."""
    made: dict[str, Any] = {}
    for step in (None, *LEFT_OUT):
        found = records.evolve(one := compiled(name, step), stages={"ptx": one.ptx})
        if step is None or found.ptx != made[""].ptx:
            made[step or ""] = found
            print(f"{name}, {step}: {found.registers} registers", flush=True)
    return name, made


def measure(path: Path, limit: float, only: str) -> None:
    """Write the median milliseconds of kernels whose names hold a text, by the pass that is left out."""
    end = time.monotonic() + limit
    times: dict[str, dict[str, float]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    with ProcessPoolExecutor(14, multiprocessing.get_context("spawn")) as pool:
        for name, made in pool.map(prepared, [name for name in KERNELS if only in name]):
            grid, arguments = launched(name)
            runs = {step: functools.partial(one[grid], *arguments) for step, one in made.items()}
            for run in runs.values():
                run()
            times[name] = {step: round(ms, 4) for step, ms in in_turn(runs, 20).items()}
            path.write_text(json.dumps(times, indent=1, ensure_ascii=False) + "\n", "utf-8")
            if time.monotonic() > end:
                pool.shutdown(cancel_futures=True)
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    parser.add_argument("--times", type=Path, help="measure on a GPU, and write the file")
    parser.add_argument("--only", default="", help="kernels whose names hold this")
    parser.add_argument("--limit", type=float, default=80, help="seconds for measuring")
    given = parser.parse_args()
    if given.times:
        measure(given.times, given.limit, given.only)
        return
    facts = f"ptxas {assembler()[0]}.{assembler()[1]}; {surroundings('llvmlite')}"
    times = json.loads(TIMES.read_text("utf-8")) if TIMES.exists() else {}
    header = (
        "kernel",
        "instructions of the loop",
        "registers",
        "spilled bytes",
        "shared bytes",
        "ms; times as long",
    )
    text = table(header, [*rows(times)])
    print(text)
    if given.write:
        write("ablation", f"{facts}\n\n{text}")


if __name__ == "__main__":
    main()
