"""The bound on the registers of a thread that ptxas is told, so that it begins loads early.

Without one, ptxas saves registers that nothing else can use. Of the two loads of an iteration

    ld.global.v4.b32 {%r31, …}, [%rd4];      its values are used: 80 instructions
    ld.global.v4.b32 {%r36, …}, [%rd5];

it moves the second one behind the uses of the first, for 60 registers in place of 63, though 8 CTAs of 4 warps fit on
an SM with either: the loop takes 1.6 times as long. Told `.maxnreg 64`, it leaves them in their order (its option
`-maxrregcount` does not do that). So a kernel is assembled twice: without a bound, and with the registers that the
occupancy of that code leaves to a thread. The first code stays where the second one would spill more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.transforms.cost.budget import occupancy, registers_of_thread

Code = TypeVar("Code")
_BOUNDS = re.compile(r"^\.(maxnreg|minnctapersm) ", re.MULTILINE)
_THREADS = re.compile(r"^\.reqntid (\d+).*$", re.MULTILINE)


def with_bound(ptx: str, registers: int, shared: int, target: str) -> str | None:
    """The text of a kernel with a bound, for the registers of a thread that it has without one and the shared memory of
    a CTA in bytes; None where a bound changes nothing.

    That is where it has one already, or less than two loads, or matrix units that work beside its threads: for the
    operands of wgmma, ptxas finds registers, or fails.
    """
    threads = _THREADS.search(ptx)
    if threads is None or registers == 0 or _BOUNDS.search(ptx) or "wgmma" in ptx or ptx.count("ld.global") < 2:
        return None
    warps = -(-int(threads[1]) // 32)
    most = registers_of_thread(warps, occupancy(TARGETS[target], warps, registers, shared))
    return f"{ptx[: threads.end()]}\n.maxnreg {max(most, registers)}{ptx[threads.end() :]}"


def bounded(
    first: Code,
    again: Callable[[str], Code | None],
    resources: Callable[[Code], tuple[int, int]],
    ptx: str,
    shared: int,
    target: str,
) -> Code:
    """The code of a text with a bound, or the first code, without one, where `again` refuses the text or gives a code
    with a larger stack. `resources` are the registers of a thread and the bytes of its stack, spills included."""
    registers, stack = resources(first)
    text = with_bound(ptx, registers, shared, target)
    code = again(text) if text is not None else None
    return first if code is None or resources(code)[1] > stack else code
