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

import ziggurat as zg
from ziggurat.backend.ptx.sass import assembled, disassembled, tool

pytestmark = pytest.mark.skipif(not tool("ptxas") or not tool("nvdisasm"), reason="needs NVIDIA's tools")
BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"

# The instructions of the main loop by ptxas 13.0 and 13.5, registers, and barriers of the loop: those of the CTA, and
# operations on mbarriers.
FIGURES: dict[str, tuple[tuple[int, int], int, int]] = {
    "matmul f16 NN 128×128×64, 4 warps": ((98, 102), 154, 3),
    "matmul f16 NT 128×128×64, 4 warps": ((83, 97), 154, 3),
    "matmul f16 NN 128×128×64, 8 warps": ((86, 91), 90, 3),
    "matmul f16 NT 128×128×64, 8 warps": ((71, 80), 90, 3),
    "matmul f8e4m3 NN 128×256×128": ((126, 129), 191, 3),
    "matmul f8e4m3 TN 128×256×128": ((176, 183), 204, 5),
    "matmul f16 by TMA 128×256×64, roles": ((42, 52), 168, 2),
    "matmul f16 by TMA 128×128×64, scales": ((141, 160), 146, 3),
    "attention f16 D64, 4 warps": ((510, 528), 188, 5),
    "attention f16 D128, 8 warps": ((343, 368), 138, 5),
    "attention f16 D128 causal, 4 warps": ((622, 630), 252, 5),
    "attention f16 D128 causal, 8 warps": ((342, 378), 142, 5),
    "attention f16 D128, roles": ((453, 481), 168, 4),
    "attention f16 D256, roles": ((426, 453), 168, 4),
    "layer norm f16, blocks of 2048": ((84, 84), 38, 0),
    "attention backward f16 D64, keys": ((314, 328), 186, 5),
    "softmax of 8192 in bf16": ((339, 339), 48, 2),
}
SLACK = 1.04  # By which a figure may be exceeded.


COUNTED = ("QGMMA", "LDSM", "WARPGROUP.DEPBAR", "STS", "BAR")


@cache
def ablation() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("gpu_ablation")
    finally:
        sys.path.remove(str(BENCHMARKS))


@cache
def figures(name: str, without: str | None = None) -> Any:
    return ablation().figures(name, without)


def test_all_kernels_have_a_limit():
    assert set(FIGURES) == set(ablation().KERNELS)


@pytest.mark.parametrize("name", FIGURES)
def test_the_main_loop_is_short_and_nothing_spills(name: str):
    made, (instructions, registers, barriers) = figures(name), FIGURES[name]
    assert made.instructions <= SLACK * instructions[ablation().assembler() > (13, 0)], made.loop
    assert made.registers <= SLACK * registers
    assert sum(count for one, count in made.loop.items() if one.startswith(("BAR", "SYNCS"))) == barriers, made.loop
    assert made.spills == 0 and not any("C75" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    "name, without, least",
    [
        ("attention f16 D64, 4 warps", "contract", 30),
        ("attention f16 D128, 8 warps", "contract", 15),
        ("layer norm f16, blocks of 2048", "contract", 10),
        ("matmul f16 by TMA 128×256×64, roles", "specialize", 20),
        ("matmul f16 NN 128×128×64, 4 warps", "raise_pointers", 40),
    ],
)
def test_passes_that_shorten_the_loop(name: str, without: str, least: int):
    assert figures(name, without).instructions >= figures(name).instructions + least


@pytest.mark.parametrize("name", ["attention f16 D128, roles", "attention f16 D256, roles"])
def test_the_dot_with_the_values_is_in_flight_during_the_softmax(name: str):
    loop = figures(name).loop
    waits = [count for instruction, count in loop.items() if instruction.startswith("WARPGROUP.DEPBAR")]
    assert waits == [2] and loop["MUFU.EX2"] >= 32, loop
    # The accumulator is multiplied in a row whose maximum has changed: a comparison for each of two rows.
    assert loop["FSETP.NEU.AND"] == 2, loop


def test_queries_are_in_registers_where_there_is_room():
    """Their descriptor in the loop took some 20 instructions, and wgmma read them from shared memory."""
    name = "attention f16 D128, roles"
    assert figures(name, "hold_operands").instructions >= figures(name).instructions + 15


def test_nothing_overwrites_operands_in_registers():
    """Without `gpu.keep`, ptxas 13.0 gives the registers of the keys to numbers of the loop as well."""
    types = [*[SQUARE] * 6, zg.divisible(zg.i32), True]
    made = gradients.compile(*types, target="sm_90a", num_warps=4, num_stages=2)
    text = disassembled(assembled(made.ptx, "sm_90a")[0])
    lines = re.findall(r"^(?:\.(L_x_\d+):|\s+/\*[0-9a-f]+\*/\s+(.*) ;)", text, re.MULTILINE)
    held = {int(first) + at for first in re.findall(r"LDSM.16.M88.4 R(\d+),", text) for at in range(4)}
    begin = {label: at for at, (label, _) in enumerate(lines) if label}
    jumps = [(begin[to[1]], at) for at, (_, code) in enumerate(lines) if (to := re.search(r"BRA `\(\.(L_x_\d+)", code))]
    # The main loop is the shortest one with all dots.
    loops = [[code for _, code in lines[start:end]] for start, end in jumps if start < end]
    loop = min((loop for loop in loops if sum("HGMMA" in code for code in loop) == 16), key=len)
    read = [int(found[1]) for code in loop if (found := re.search(r"HGMMA\S+ R\d+, R(\d+),", code))]
    written = {int(found[1]) for code in loop if (found := re.match(r"(?:@!?P\d+ )?(?!HGMMA)\S+ R(\d+),", code))}
    assert len(held.intersection(read)) == 8 and len(held) == 32 and not held & written, loop


@pytest.mark.parametrize(("name", "stores", "further"), [("NN", 0, 0), ("TN", 4, 4)])
def test_operands_that_are_not_along_k(name: str, stores: int, further: int):
    """One operand goes from shared memory to registers in matrices, while the other half of k is multiplied. The other
    one is turned through registers."""
    found = figures(f"matmul f8e4m3 {name} 128×256×128").loop
    loop = Counter({prefix: sum(found[one] for one in found if one.startswith(prefix)) for prefix in COUNTED})
    assert loop["QGMMA"] == 8 and loop["LDSM"] == 8 + further and loop["WARPGROUP.DEPBAR"] == 3, found
    assert loop["STS"] == stores and loop["BAR"] == 1, found


def test_buffers_with_one_value_are_one():
    """Causal attention reads Q in both of its loops, which took registers for a second address of each operand."""
    name = "attention f16 D128 causal, {} warps"
    assert figures(name.format(8), "share_buffers").registers >= figures(name.format(8)).registers + 20
    assert figures(name.format(4), "share_buffers").spills > 0 and figures(name.format(4)).spills == 0


def test_wgmma_descriptors_are_in_uniform_registers():
    """A sum of 64 bits in a descriptor would take the vector registers, and R2UR for each."""
    loop = figures("matmul f16 NT 128×128×64, 8 warps", "raise_pointers").loop
    assert loop["R2UR"] == 0 and loop["HGMMA.64x128x16.F32"] == 4, loop
    loop = figures("matmul f16 by TMA 128×256×64, roles").loop
    assert loop["R2UR"] == 0 and loop["HGMMA.64x256x16.F32"] == 4, loop


def test_arithmetic_of_16_bits_is_in_pairs():
    loop = figures("softmax of 8192 in bf16").loop
    # Each of 256 threads has 32 numbers in 16 words. The maximum of these takes 5 further steps in a warp and 3 between
    # warps; VHMNMX takes the maximum of three.
    assert loop["HADD2.BF16_V2"] == 16 and loop["F2FP.BF16.F32.PACK_AB"] == 16, loop
    assert loop["HMNMX2.BF16_V2"] + loop["VHMNMX.BF16_V2"] <= 20 and loop["HMNMX2.BF16_V2"] <= 15, loop
    # The halves of a word are moved only where they become f32.
    assert loop["PRMT"] <= 2 and loop["SHF.L.U32"] + loop["LOP3.LUT"] <= 32 + 8, loop
