"""The machine code of kernels with each optimisation left out in turn. No GPU is needed.

    python benchmarks/gpu_ablation.py [--write]

For each kernel and each pass that may be left out: the instructions of the loop that takes most of the time, or of the
whole kernel where it has no loop, registers and bytes of spills of a thread, and bytes of shared memory. `--write`
renews docs/benchmarks.md. ptxas and nvdisasm must be installed (`pip install '.[ptx]'`).
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import kernels_ours as kernels
from results import surroundings, table, write

import ziggurat as zg
from ziggurat.backend.ptx.sass import assembled, disassembled
from ziggurat.transforms.place import passes

TARGET = "sm_90a"
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
    "attention f16 D64, 4 warps": (kernels.attention, attention(64, False), {"num_warps": 4, "num_stages": 3}),
    "attention f16 D128, 8 warps": (kernels.attention, attention(128, False), {"num_warps": 8, "num_stages": 3}),
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
    "softmax of 8192 in bf16": (bf16_softmax, [BF16, BF16, N, N, 8192], {"num_warps": 8}),
}  # fmt: skip
# The passes that only make code faster.
LEFT_OUT = (
    "contract",
    "raise_pointers",
    "last_reads",
    "cse",
    "share_buffers",
    "specialize",
    "prefetch_loads",
    "pipeline_loads",
    "rescale",
    "hold_operands",
)


@attrs.frozen
class Figures:
    """The machine code of a kernel: instructions of its main loop, resources, and warnings of ptxas."""

    loop: Counter[str]
    registers: int
    spills: int
    shared: int
    warnings: tuple[str, ...]

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
    kernel, types, options = KERNELS[name]
    with left_out(without):
        made = kernel.compile(*types, target=TARGET, **options)
    code, resources = assembled(made.ptx, TARGET)
    loop = max(loops(disassembled(code)), key=weight)
    return Figures(loop, resources.registers, resources.spills, made.shared, resources.warnings)


@contextmanager
def left_out(name: str | None) -> Iterator[None]:
    """Compile without a pass meanwhile."""
    whole = passes.PLACE
    passes.PLACE = tuple(step for step in whole if step[0] != name)
    try:
        yield
    finally:
        passes.PLACE = whole


def rows() -> Iterator[Sequence[object]]:
    for name in KERNELS:
        whole = figures(name)
        yield name, *cells(whole)
        for step in LEFT_OUT:
            without = figures(name, step)
            if without != whole:
                yield f"… without `{step}`", *cells(without)


def cells(made: Figures) -> Sequence[object]:
    return made.instructions, made.registers, made.spills, made.shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    given = parser.parse_args()
    facts = surroundings("llvmlite", "nvidia-cuda-nvcc")
    text = table(("kernel", "instructions of the loop", "registers", "spilled bytes", "shared bytes"), [*rows()])
    print(text)
    if given.write:
        write("ablation", f"{facts}\n\n{text}")


if __name__ == "__main__":
    main()
