"""The bound on the registers of a thread that ptxas is told, so that it begins loads early.

Without one, ptxas saves registers that nothing else can use. Of the two loads of an iteration

    ld.global.v4.b32 {%r31, …}, [%rd4];      its values are used: 80 instructions
    ld.global.v4.b32 {%r36, …}, [%rd5];

it moves the second one behind the uses of the first, for 60 registers in place of 63, though 8 CTAs of 4 warps fit on
an SM with either: the loop takes 1.6 times as long. Told `.maxnreg 64`, it leaves them in their order (its option
`-maxrregcount` does not do that). So a kernel is assembled twice: without a bound, and with the registers that the
occupancy of that code leaves to a thread. The first code stays where the second one would spill more.

An SM gives registers in eights. Code is tight if it has all that its occupancy leaves, rounded up. Code without a loop
that is tight is not assembled again: on an H200, 59 such kernels took 1.001 times as long with a bound. Of kernels with
wgmma only tight ones are: 26 took 0.982 times as long (0.75 to 1.04), and 36 others, with looser bounds, 0.998. Their
occupancy is that by registers alone: ptxas does not know the shared memory, and saves nothing for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ziggurat.codemodel.gpu.options import MAX_REGISTERS
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.transforms.cost.budget import occupancy, registers_of_thread

Code = TypeVar("Code")
_BOUNDS = re.compile(r"^\.(maxnreg|minnctapersm) ", re.MULTILINE)
_THREADS = re.compile(r"^\.reqntid (\d+).*$", re.MULTILINE)
_LABEL = re.compile(r"^(\$L\w+):", re.MULTILINE)
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$L\w+);")


def with_bound(ptx: str, registers: int, shared: int, target: str) -> str | None:
    """The text of a kernel with a bound, for the registers of a thread that it has without one and the shared memory of
    a CTA in bytes; None where a bound changes nothing.

    That is where it has one already, or less than two loads, and by whether it has a loop, and wgmma (see above).
    """
    threads = _THREADS.search(ptx)
    if threads is None or registers == 0 or _BOUNDS.search(ptx) or ptx.count("ld.global") < 2:
        return None
    has_wgmma, warps = "wgmma" in ptx, -(-int(threads[1]) // 32)
    ctas = occupancy(TARGETS[target], warps, registers, 0 if has_wgmma else shared)
    most = max(registers_of_thread(warps, ctas), registers)
    is_tight = min(MAX_REGISTERS, -(-registers // 8) * 8) >= most
    if (has_wgmma and not is_tight) or (is_tight and not _has_loop(ptx)):
        return None
    return f"{ptx[: threads.end()]}\n.maxnreg {most}{ptx[threads.end() :]}"


def _has_loop(ptx: str) -> bool:
    """Whether a branch goes back to a label before it."""
    labels = {label[1]: label.start() for label in _LABEL.finditer(ptx)}
    return any(labels.get(branch[1], len(ptx)) < branch.start() for branch in _BRANCH.finditer(ptx))


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
