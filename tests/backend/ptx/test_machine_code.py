"""The machine code of kernels that were made fast: what was won stays, as far as it shows without a GPU."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from asynchronous_kernels import SQUARE, gradients
from counted_kernels import KERNELS

import ziggurat as zg
from ziggurat.backend.ptx.sass import assembled, disassembled, tool
from ziggurat.codemodel.errors import TargetError
from ziggurat.transforms.analysis.queries import role_split
from ziggurat.transforms.cost.bounds import certain
from ziggurat.transforms.cost.cost import cost_of

pytestmark = pytest.mark.skipif(not tool("ptxas") or not tool("nvdisasm"), reason="needs NVIDIA's tools")
BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"

# The instructions of the main loop by ptxas 13.0 and 13.5, registers, barriers of the loop (those of the CTA, and
# operations on mbarriers), and bytes of shared memory. `python benchmarks/gpu_ablation.py` prints them.
FIGURES: dict[str, tuple[tuple[int, int], int, int, int]] = {
    "matmul f16 NN 128×128×64, 4 warps": ((80, 102), 154, 3, 98328),
    "matmul f16 NT 128×128×64, 4 warps": ((72, 97), 154, 3, 98328),
    "matmul f16 NN 128×128×64, 8 warps": ((68, 91), 90, 3, 98328),
    "matmul f16 NT 128×128×64, 8 warps": ((60, 80), 90, 3, 98328),
    "matmul f16 NN 128×256×64, programs in turn": ((42, 58), 168, 2, 213040),
    "matmul f16 NN 8192×8192×512, programs in turn": ((42, 58), 168, 2, 213040),
    "matmul f16 NN 8192×8192×256, programs in turn": ((42, 58), 168, 2, 213040),
    "matmul f8e4m3 NN 128×256×128": ((108, 111), 187, 3, 147480),
    "matmul f8e4m3 TN 128×256×128": ((157, 160), 198, 5, 196656),
    "matmul f16 by TMA 128×256×64, roles": ((42, 52), 168, 2, 213040),
    "matmul f16 by TMA, two blocks of 64×256": ((43, 53), 168, 2, 213088),
    "matmul f16 by TMA 128×128×64, scales": ((141, 160), 146, 3, 98328),
    "matmul f16 NT of 128 rows, clusters of two": ((56, 82), 128, 2, 213056),
    "attention f16 D64, 4 warps": ((510, 528), 188, 5, 65584),
    "attention f16 D128, 8 warps": ((343, 368), 138, 5, 131120),
    "attention f16 D128 causal, 4 warps": ((622, 630), 252, 5, 98336),
    "attention f16 D128 causal, 8 warps": ((342, 378), 142, 5, 131120),
    "attention f16 D128, roles": ((455, 485), 168, 4, 163912),
    "attention f16 D256, roles": ((426, 452), 168, 4, 196680),
    "attention f16 D64, three blocks": ((414, 433), 128, 4, 114800),
    "attention f16 D128, two blocks": ((443, 475), 168, 4, 196704),
    "attention f16 D64, three CTAs per SM": ((253, 269), 80, 4, 65648),
    "attention f16 D256, tiles": ((425, 454), 168, 4, 229456),
    "attention backward f16 D64, keys": ((314, 328), 154, 5, 65568),
    "attention backward f16 D64, keys, roles": ((280, 300), 168, 4, 49224),
    "attention backward f16 D64, keys by pointers": ((366, 366), 174, 1, 100352),
    "attention backward f16 D128, keys by pointers": ((400, 400), 238, 1, 198656),
    "attention backward f16 D64, keys by pointers, one stage": ((271, 271), 166, 3, 49152),
    "paged decode f16 D128, pages of 32": ((272, 272), 118, 2, 65536),
    "paged decode f16 D128, pages of 64, 16 rows, one stage": ((564, 564), 165, 0, 36864),
    "delta rule f16 D64, chunks of 64": ((295, 295), 116, 8, 81920),
    "layer norm f16, blocks of 2048": ((159, 159), 32, 0, 64),
    "softmax of 8192 in bf16": ((339, 339), 47, 2, 48),
    "rotary embedding in bf16": ((47, 47), 24, 0, 0),
    "softmax of 131072 in f32": ((271, 271), 48, 3, 208),
    "top 8 of 1024 in f32": ((705, 705), 37, 16, 32),
    "add f32, blocks of 65536": ((235, 235), 118, 0, 0),
}
SLACK = 1.04  # By which a figure may be exceeded.

# For each pass a kernel whose figures are missed without it; and, of a pass that hides latency,
# what only its code has: the order of instructions, or one of them.
WON: dict[str, tuple[str, str]] = {
    "tma": ("matmul f16 NN 128×128×64, 8 warps", ""),
    "stores by tma": ("attention f16 D128 causal, 8 warps", ""),
    "multicast": ("matmul f16 NT of 128 rows, clusters of two", "MULTICAST"),
    "divide": ("matmul f16 by TMA, two blocks of 64×256", ""),
    "pairs": ("softmax of 8192 in bf16", ""),
    "maxnreg": ("attention f16 D64, three CTAs per SM", ""),
    "contract": ("layer norm f16, blocks of 2048", ""),
    "divide_choices": ("top 8 of 1024 in f32", ""),
    "spread": ("softmax of 131072 in f32", ""),
    "raise_pointers": ("matmul f16 NN 128×128×64, 8 warps", ""),
    "persist": ("matmul f16 NN 128×256×64, programs in turn", ""),
    "divide_blocks": ("add f32, blocks of 65536", ""),
    # Two dots stay in flight.
    "sink_waits": ("attention backward f16 D64, keys, roles", r"DEPBAR\.LE gsb0, 0x2"),
    "share_buffers": ("attention f16 D128 causal, 8 warps", ""),
    "specialize": ("matmul f16 by TMA 128×256×64, roles", ""),
    "latency": ("matmul f16 NN 128×128×64, 8 warps", ""),
    # A branch around the scaling of each of two rows.
    "rescale": ("attention f16 D128, roles", r"(FSETP\.NEU\S* ){2}HGMMA"),
    # A copy is waited for.
    "early_copies": ("paged decode f16 D128, pages of 64, 16 rows, one stage", ""),
    # The queries are loaded to registers.
    "hold_operands": ("attention f16 D64, three CTAs per SM", "LDSM"),
    # One store is in flight while the next block is put there.
    "defer_stores": ("attention f16 D256, tiles", r"DEPBAR\.LE SB0, 0x1"),
}
EVENTS = r"HGMMA|SYNCS\.ARRIVE|DEPBAR\.LE \w+, 0x\d+|\bLDG\.\S+|FSETP\.NEU\S+|LDSM|MULTICAST"

# The number of the main loop among the model's, counted by their lines (None: the kernel has none), and the iterations
# in one of the machine code's, as ptxas unrolls short loops. It is the first loop elsewhere.
LOOPS: dict[str, tuple[int | None, int]] = {
    "matmul f16 by TMA 128×256×64, roles": (1, 1),
    "matmul f16 by TMA, two blocks of 64×256": (1, 1),
    "attention f16 D64, three blocks": (1, 1),
    "attention f16 D128, two blocks": (1, 1),
    "layer norm f16, blocks of 2048": (1, 4),
    "softmax of 8192 in bf16": (None, 1),
    "top 8 of 1024 in f32": (None, 1),
}


# Kernels whose estimate is further off: registers for masked loads are zeroed first, maxima of three are one
# instruction, and so are an index and the sign after it; four iterations share addresses.
OFF = (
    "add f32, blocks of 65536", "softmax of 131072 in f32", "top 8 of 1024 in f32", "rotary embedding in bf16",
    "paged decode f16 D128, pages of 64, 16 rows, one stage",
)  # fmt: skip

COUNTED = ("QGMMA", "LDSM", "WARPGROUP.DEPBAR", "STS", "BAR")


@cache
def ablation() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("gpu_ablation")
    finally:
        sys.path.remove(str(BENCHMARKS))


def figures(name: str, without: str | None = None) -> Any:
    return ablation().figures(name, without)


def check(name: str, make: Any) -> None:
    """Compare the machine code of a kernel with its figures, and with what passes have won in it."""
    instructions, registers, barriers, shared = FIGURES[name]
    assert make.shared == shared
    assert make.registers <= SLACK * registers
    assert make.spills == 0 and not any("C75" in warning for warning in make.warnings)
    # The rest is known after half a second more: nvdisasm takes that to start.
    assert make.instructions <= SLACK * instructions[ablation().assembler() > (13, 0)], make.loop
    assert make.barriers == barriers, make.loop
    events = " ".join(re.findall(EVENTS, make.code))
    for kernel, pattern in WON.values():
        assert kernel != name or re.search(pattern, events), events


def check_issue_slots(name: str) -> None:
    """Compare the issue slots that the cost model estimates for the main loop with its instructions."""
    model = ablation().compiled(name, None).stages["gpu"]
    number, iterations = LOOPS.get(name, (0, 1))
    entries = [entry for entry in cost_of(model).entries if entry.role == 0]
    lines = sorted({entry.loop.location.line for entry in entries if entry.loop is not None})
    line = None if number is None else lines[number]
    counted = [e for e in entries if (e.loop.location.line if e.loop is not None else None) == line]
    own = [entry.work for entry in counted]
    split = role_split(model)
    warps = model.num_warps if split is None else split.warps[0]
    estimated = iterations * sum(work.issued for work in own) / warps
    loop = figures(name).loop
    instructions = loop.total() - loop["UMOV"]  # ptxas 13.5 copies uniform registers, up to 35 times.
    assert estimated == pytest.approx(instructions, rel=0.25), (estimated, loop)
    functions = sum(count for opcode, count in loop.items() if opcode.startswith("MUFU"))
    assert iterations * sum(work.functions for work in own) / warps == pytest.approx(functions, abs=2)
    # No machine code leaves out the slots that bounds count as certain.
    least = [certain(entry, wide=False) for entry in counted]
    assert iterations * sum(work.issued for work in least) / warps <= loop.total()
    assert iterations * sum(work.functions for work in least) / warps <= functions


def test_all_kernels_and_passes_have_figures():
    assert set(FIGURES) == set(ablation().KERNELS)
    assert set(WON) == set(ablation().LEFT_OUT)


@pytest.mark.parametrize("name", FIGURES)
def test_the_main_loop_is_short_as_the_cost_model_says_and_nothing_spills(name: str):
    check(name, figures(name))
    if name not in OFF:
        check_issue_slots(name)


@pytest.mark.parametrize("without", WON)
def test_the_figures_are_missed_without_a_pass(without: str):
    name, _ = WON[without]
    # ptxas refuses code that has too few registers.
    with pytest.raises((AssertionError, TargetError)):
        check(name, figures(name, without))


@pytest.mark.parametrize("name", ["attention f16 D128, roles", "attention f16 D256, roles"])
def test_the_dot_with_the_values_is_in_flight_during_the_softmax(name: str):
    loop = figures(name).loop
    waits = [count for instruction, count in loop.items() if instruction.startswith("WARPGROUP.DEPBAR")]
    assert waits == [2] and loop["MUFU.EX2"] >= 32, loop
    # The accumulator is multiplied in a row whose maximum has changed: a comparison for each of two rows.
    assert loop["FSETP.NEU.AND"] == 2, loop


def test_nothing_overwrites_operands_in_registers():
    """Without `gpu.keep`, ptxas 13.0 gives the registers of the keys to numbers of the loop as well."""
    types = [*[SQUARE] * 6, zg.divisible(zg.i32), True]
    binary = gradients.compile(*types, target="sm_90a", num_warps=4, num_stages=2)
    text = disassembled(assembled(binary.ptx, "sm_90a")[0])
    lines = re.findall(r"^(?:\.(L_x_\d+):|\s+/\*[0-9a-f]+\*/\s+(.*) ;)", text, re.MULTILINE)
    values = {int(first) + at for first in re.findall(r"LDSM.16.M88.4 R(\d+),", text) for at in range(4)}
    begin = {label: at for at, (label, _) in enumerate(lines) if label}
    jumps = [(begin[to[1]], at) for at, (_, code) in enumerate(lines) if (to := re.search(r"BRA `\(\.(L_x_\d+)", code))]
    # The main loop is the shortest one with all dots.
    loops = [[code for _, code in lines[start:end]] for start, end in jumps if start < end]
    loop = min((loop for loop in loops if sum("HGMMA" in code for code in loop) == 16), key=len)
    read = [int(match[1]) for code in loop if (match := re.search(r"HGMMA\S+ R\d+, R(\d+),", code))]
    ops = {int(match[1]) for code in loop if (match := re.match(r"(?:@!?P\d+ )?(?!HGMMA)\S+ R(\d+),", code))}
    assert len(values.intersection(read)) == 8 and len(values) == 32 and not values & ops, loop


@pytest.mark.parametrize(("name", "stores", "further"), [("NN", 0, 0), ("TN", 4, 4)])
def test_operands_that_are_not_along_k(name: str, stores: int, further: int):
    """One operand goes from shared memory to registers in matrices, while the other half of k is multiplied. The other
    one is turned through registers."""
    actual = figures(f"matmul f8e4m3 {name} 128×256×128").loop
    loop = Counter({prefix: sum(actual[item] for item in actual if item.startswith(prefix)) for prefix in COUNTED})
    assert loop["QGMMA"] == 8 and loop["LDSM"] == 8 + further and loop["WARPGROUP.DEPBAR"] == 3, actual
    assert loop["STS"] == stores and loop["BAR"] == 1, actual


def test_wgmma_descriptors_are_in_uniform_registers():
    """A sum of 64 bits in a descriptor would take the vector registers, and R2UR for each."""
    loop = figures("matmul f16 NT 128×128×64, 8 warps", "raise_pointers").loop
    assert loop["R2UR"] == 0 and loop["HGMMA.64x128x16.F32"] == 4, loop
    loop = figures("matmul f16 by TMA 128×256×64, roles").loop
    assert loop["R2UR"] == 0 and loop["HGMMA.64x256x16.F32"] == 4, loop


def test_loops_between_numbers_of_reductions_are_uniform():
    """What lanes have exchanged is not known to be the same in all of them, nor what a loop up to it counts."""
    entry = KERNELS["dots of each group that a block has"]
    kernel = entry.kernel.compile(*entry.types, target=entry.target, **entry.options)
    text = disassembled(assembled(kernel.ptx, entry.target)[0])
    assert "HGMMA" in text and "WARPSYNC" not in text  # Which is where lanes might have parted.


def test_arithmetic_of_16_bits_is_in_pairs():
    loop = figures("softmax of 8192 in bf16").loop
    # Each of 256 threads has 32 numbers in 16 words. The maximum of these takes 5 further steps in a warp and 3 between
    # warps; VHMNMX takes the maximum of three.
    assert loop["HADD2.BF16_V2"] == 16 and loop["F2FP.BF16.F32.PACK_AB"] == 16, loop
    assert loop["HMNMX2.BF16_V2"] + loop["VHMNMX.BF16_V2"] <= 20 and loop["HMNMX2.BF16_V2"] <= 15, loop
    # The halves of a word are moved only where they become f32.
    assert loop["PRMT"] <= 2 and loop["SHF.L.U32"] + loop["LOP3.LUT"] <= 32 + 8, loop
