"""The issue slots that the cost model estimates, compared with the instructions of machine code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ziggurat.backend.ptx.sass import tool
from ziggurat.transforms.place.bounds import certain
from ziggurat.transforms.place.cost import cost_of
from ziggurat.transforms.place.queries import role_split

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import gpu_ablation as ablation

pytestmark = pytest.mark.skipif(not tool("ptxas") or not tool("nvdisasm"), reason="needs NVIDIA's tools")

# The number of the main loop among the model's, counted by their lines (None: the kernel has none), and the iterations
# in one of the machine code's, as ptxas unrolls short loops. It is the first loop elsewhere.
LOOPS: dict[str, tuple[int | None, int]] = {
    "matmul f16 by TMA 128×256×64, roles": (1, 1),
    "matmul f16 by TMA, two blocks of 64×256": (1, 1),
    "attention f16 D64, three blocks": (1, 1),
    "attention f16 D128, two blocks": (1, 1),
    "layer norm f16, blocks of 2048": (1, 2),
    "softmax of 8192 in bf16": (None, 1),
}


# Kernels whose estimate is further off: registers for masked loads are zeroed first, and maxima of three are one
# instruction.
OFF = ("add f32, blocks of 65536", "softmax of 131072 in f32")


@pytest.mark.parametrize("name", [name for name in ablation.KERNELS if name not in OFF])
def test_issue_slots_are_about_the_instructions(name: str):
    model = ablation.compiled(name).stages["gpu"]
    number, iterations = LOOPS.get(name, (0, 1))
    entries = [entry for entry in cost_of(model).entries if entry.role == 0]
    lines = sorted({entry.loop.location.line for entry in entries if entry.loop is not None})
    line = None if number is None else lines[number]
    counted = [e for e in entries if (e.loop.location.line if e.loop is not None else None) == line]
    own = [entry.work for entry in counted]
    split = role_split(model)
    warps = model.num_warps if split is None else split.warps[0]
    estimated = iterations * sum(work.issued for work in own) / warps
    loop = ablation.figures(name).loop
    instructions = loop.total() - loop["UMOV"]  # ptxas 13.5 copies uniform registers, up to 35 times.
    assert estimated == pytest.approx(instructions, rel=0.25), (estimated, loop)
    functions = sum(count for opcode, count in loop.items() if opcode.startswith("MUFU"))
    assert iterations * sum(work.functions for work in own) / warps == pytest.approx(functions, abs=2)
    # No machine code leaves out the slots that bounds count as certain.
    least = [certain(entry, wide=False) for entry in counted]
    assert iterations * sum(work.issued for work in least) / warps <= loop.total()
    assert iterations * sum(work.functions for work in least) / warps <= functions
