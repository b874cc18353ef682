"""The budget of a CTA: the registers of its threads, its bytes of shared memory, and the occupancy that they allow.

Every pass that limits itself asks here, and every estimate of what a later pass needs stands here: how many registers a
loop needs beside those that are counted, and how much shared memory is left for tensors that pass between threads.
"""

from __future__ import annotations

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import MAX_REGISTERS
from ziggurat.codemodel.gpu.targets import DRIVER_BYTES, REGISTERS_OF_SM, Target

# Registers of a thread that a loop needs, by what is counted apart.
BESIDE_OPERANDS = 25  # The accumulators and the operands in registers.
BESIDE_ACCUMULATORS = 64  # The accumulators.
BESIDE_WGMMA = 26  # The accumulator of one wgmma: what ptxas needs.

# Registers of a thread that some values may take together.
OF_WGMMA = 128  # The accumulator of the widest wgmma.
OF_OPERANDS = 128  # Both operands of a dot, where it reads them from registers.
OF_EARLY_OPERAND = 64  # An operand that is loaded before another dot: loads of so many spill.
OF_PRODUCTS = 128  # The products that a thread adds by several sums at once.
OF_UNROLLED = 192  # The values of a loop that is unrolled and reads rings: a larger one saves little.

# Registers of a thread for loads in flight. (For 8 registers and two stages on an H200, registers were faster than
# copies by 1.3; for more of either, copies.)
OF_LOAD = 8  # One load.
SLOTS_OF_LOAD = 256  # Issue slots that pass while a load from memory is in flight, counted for each register.
OF_LOADS = 96  # All loads of a loop without dots.
OF_LOADS_BESIDE_DOTS = 16  # All loads of a loop with dots,
CARRIED_BESIDE_DOTS = 192  # which may carry so many, these included.

# Registers of a thread for accumulators.
ACCUMULATORS = 256  # As many as a thread has.
ACCUMULATORS_BESIDE_LOADS = 128  # The same, where its threads load the operands.
FEW_ACCUMULATORS = 32  # Those of 64×64 f32 by 4 warps: they are multiplied faster than the next blocks are loaded.
ACCUMULATORS_IN_TURN = range(128, 193)  # Those of a program that runs in turn with others to some gain.

# Bytes of shared memory that are left for tensors that pass between threads.
BESIDE_ROLES = 4096  # By the channels of roles, beside the largest tensor that is known to pass.
BESIDE_RINGS = 8192  # By the rings of a loop, beside the same.

SCHEDULERS = 4  # Of an SM: each has warps of its own.
WARPS = 16  # The warps that should share an SM, if they have registers.
CTAS = 2  # The CTAs that should share an SM, if they can: one computes while the other waits.


def registers_of_thread(warps: int, ctas: int = 1) -> int:
    """The registers that a thread can have if each of so many CTAs on an SM has so many warps: a multiple of eight."""
    return min(MAX_REGISTERS, REGISTERS_OF_SM // ctas // (32 * warps) // 8 * 8)


def limits(target: Target, warps: int, registers: int, shared: int) -> dict[str, int]:
    """The occupancy (CTAs per SM) that each resource allows, for CTAs of so many warps, registers a thread and bytes of
    shared memory. Each of an SM's four schedulers has a quarter of the registers, for as many warps as the others."""
    of_warp = 32 * max(8, -(-registers // 8) * 8)
    warps_with_registers = REGISTERS_OF_SM // SCHEDULERS // of_warp * SCHEDULERS
    return {
        "warps": target.max_warps // warps,
        "CTAs": target.max_ctas,
        "registers": warps_with_registers // warps,
        "shared memory": target.shared_of_sm // (shared + DRIVER_BYTES),
    }


def occupancy(target: Target, warps: int, registers: int, shared: int) -> int:
    """The occupancy (CTAs per SM) by all resources, of a CTA that fits."""
    return max(1, min(limits(target, warps, registers, shared).values()))


def shared_at(target: Target, ctas: int) -> int:
    """The bytes of shared memory of each CTA, if so many share an SM."""
    return target.shared_of_sm // ctas - DRIVER_BYTES


def ctas_of_roles(split: gpu.WarpSpecialize) -> int:
    """The CTAs whose roles have registers on an SM at once."""
    return REGISTERS_OF_SM // (32 * sum(map(int.__mul__, split.warps, split.registers)))
