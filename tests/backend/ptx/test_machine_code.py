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

# The most instructions of the main loop: some more than there are, as assemblers differ.
LOOPS = {
    "matmul f16 NN 128×128×64, 4 warps": 110,
    "matmul f16 NT 128×128×64, 4 warps": 95,
    "matmul f16 NN 128×128×64, 8 warps": 98,
    "matmul f16 NT 128×128×64, 8 warps": 82,
    "matmul f8e4m3 NN 128×256×128": 185,
    "matmul f8e4m3 TN 128×256×128": 235,
    "matmul f16 by TMA 128×256×64, roles": 56,
    "attention f16 D64, 4 warps": 530,
    "attention f16 D128, 8 warps": 358,
    "attention f16 D128 causal, 8 warps": 358,
    "attention f16 D128, roles": 465,
    "attention f16 D256, roles": 445,
    "layer norm f16, blocks of 2048": 89,
    "softmax of 8192 in bf16": 350,
}


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
    assert set(LOOPS) == set(ablation().KERNELS)


@pytest.mark.parametrize("name", LOOPS)
def test_the_main_loop_is_short_and_nothing_spills(name: str):
    made = figures(name)
    assert made.instructions <= LOOPS[name], made.loop
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
    name = "attention f16 D128 causal, 8 warps"
    assert figures(name, "share_buffers").registers >= figures(name).registers + 20


def test_wgmma_descriptors_are_in_uniform_registers():
    """A sum of 64 bits in a descriptor would take the vector registers, and R2UR for each."""
    loop = figures("matmul f16 NT 128×128×64, 8 warps", "raise_pointers").loop
    assert loop["R2UR"] == 0 and loop["HGMMA.64x128x16.F32"] == 4, loop


def test_arithmetic_of_16_bits_is_in_pairs():
    loop = figures("softmax of 8192 in bf16").loop
    # Each of 256 threads has 32 numbers in 16 words. The maximum of these takes 5 further steps in a warp and 3 between
    # warps; VHMNMX takes the maximum of three.
    assert loop["HADD2.BF16_V2"] == 16 and loop["F2FP.BF16.F32.PACK_AB"] == 16, loop
    assert loop["HMNMX2.BF16_V2"] + loop["VHMNMX.BF16_V2"] <= 20 and loop["HMNMX2.BF16_V2"] <= 15, loop
    # The halves of a word are moved only where they become f32.
    assert loop["PRMT"] <= 2 and loop["SHF.L.U32"] + loop["LOP3.LUT"] <= 32 + 8, loop
