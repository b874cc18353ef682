"""Counts of a kernel's machine code: of its whole, and of each of its loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import attrs

from ziggurat.backend.ptx.sass import assembled, disassembled

_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_TMA = ("UTMALDG", "UBLKCP", "UTMASTG")


@attrs.frozen
class Code:
    """Counts of some instructions. Bytes and products are those of a thread and a warp."""

    instructions: int
    copies: int  # LDGSTS
    copy_bytes: int
    tma: int  # UTMALDG, UTMASTG, UBLKCP: each is a whole tile
    loads: int  # LDG
    load_bytes: int
    stores: int
    store_bytes: int
    barriers: int  # BAR.SYNC and BAR.RED
    waits: int  # SYNCS: operations on mbarriers
    products: int  # multiply-adds of a warp by matrix units
    names: dict[str, int]  # the twelve most frequent instructions

    @property
    def load_width(self) -> float:
        """Bytes of a load or copy from global memory, in the middle."""
        count = self.loads + self.copies
        return round((self.load_bytes + self.copy_bytes) / count, 1) if count else 0.0


@attrs.frozen
class Counts:
    registers: int
    spills: int
    shared: int
    seconds: float
    whole: Code
    loops: list[Code]
    warnings: list[str]

    @property
    def main_loop(self) -> Code:
        """The smallest loop that has most products, or else the largest; the whole kernel without a loop that has
        products or accesses global memory, as a loop that only divides has not."""
        return max(
            (code for code in self.loops if code.products or code.tma or code.load_bytes or code.store_bytes),
            key=lambda code: (code.products, -code.instructions if code.products else code.instructions),
            default=self.whole,
        )


def width(name: str) -> int:
    return next((_BYTES[part] for part in reversed(name.split(".")) if part in _BYTES), 4)


def products_of(name: str) -> int:
    """The multiply-adds of a warp that an instruction of a matrix unit makes."""
    if shape := re.match(r"[HIQB]GMMA\.(?:SP\.)?64x(\d+)x(\d+)", name):
        return 16 * int(shape[1]) * int(shape[2])
    if shape := re.match(r"[HIQD]MMA\.(?:SP\.)?168(\d+)", name):
        return 16 * 8 * int(shape[1])
    return 8 * 8 * 4 if name.startswith("DMMA") else 0


def code_of(names: Iterable[str]) -> Code:
    names = list(names)

    def those(*starts: str) -> list[str]:
        return [name for name in names if name.split(".")[0] in starts]

    copies, loads, stores = those("LDGSTS"), those("LDG"), those("STG")
    return Code(
        len(names), len(copies), sum(map(width, copies)), len(those(*_TMA)), len(loads), sum(map(width, loads)),
        len(stores), sum(map(width, stores)), sum(name.startswith(("BAR.SYNC", "BAR.RED")) for name in names),
        len(those("SYNCS")), sum(map(products_of, names)),
        dict(Counter(name.split(".")[0] for name in names).most_common(12)),
    )  # fmt: skip


def read(sass: str) -> tuple[Code, list[Code]]:
    """The counts of a disassembled kernel, and of its natural loops, inner loops included. Code that the assembler puts
    elsewhere, such as another try of an mbarrier that jumps back into a loop, is of the loop that it belongs to."""
    names: list[str] = []
    labels: dict[str, int] = {}
    jumps: dict[int, str] = {}
    ends: set[int] = set()  # Instructions after which control does not go on to the next one.
    for line in sass.splitlines():
        if label := re.match(r"\.(L_x_\d+):", line):
            labels[label[1]] = len(names)
        elif match := re.match(r"\s+/\*[0-9a-f]+\*/\s+(@!?U?P\w+ )?\s*(?!NOP)([A-Z][\w.]*)(.*)", line):
            names.append(match[2])
            jump = re.search(r"`\(\.(L_x_\d+)\)", match[3])
            if match[2].startswith("BRA") and jump is not None:
                jumps[len(names) - 1] = jump[1]
            if match[1] is None and match[2] in ("BRA", "EXIT", "RET"):
                ends.add(len(names) - 1)
    starts = sorted({0, *labels.values(), *(at + 1 for at in (*jumps, *ends))} - {len(names)})
    block_of = {start: number for number, start in enumerate(starts)}
    blocks = [range(start, end) for start, end in zip(starts, [*starts[1:], len(names)], strict=True)]
    successors: list[list[int]] = []
    for block in blocks:
        targets = [] if block[-1] in ends else [block[-1] + 1]
        targets += [labels[jumps[block[-1]]]] if block[-1] in jumps else []
        successors.append([block_of[at] for at in targets if at in block_of])
    bodies = [[names[at] for number in sorted(loop) for at in blocks[number]] for loop in _loops(successors)]
    return code_of(names), [code_of(body) for body in bodies if len(body) > 8]


def _loops(successors: list[list[int]]) -> list[set[int]]:
    """The natural loops of a flow graph whose entry is 0, one for each block to which blocks jump that it dominates."""
    before: list[set[int]] = [set() for _ in successors]
    for block, targets in enumerate(successors):
        for target in targets:
            before[target].add(block)
    every = set(range(len(successors)))
    dominators = [{0}, *(set(every) for _ in successors[1:])]
    changed = True
    while changed:
        changed = False
        for block in range(1, len(successors)):
            own = {block} | set.intersection(*(dominators[b] for b in before[block])) if before[block] else set(every)
            changed |= own != dominators[block]
            dominators[block] = own
    loops: dict[int, set[int]] = {}
    for block, targets in enumerate(successors):
        for head in targets:
            if not before[block] and block:  # It is not reached.
                continue
            if head in dominators[block]:
                loop, rest = loops.setdefault(head, {head}), [block]
                while rest:
                    if (inner := rest.pop()) not in loop:
                        loop.add(inner)
                        rest += before[inner]
    return list(loops.values())


def counts(ptx: str, shared: int, seconds: float, warnings: list[str], *, ours: bool) -> Counts:
    """The counts of a compiler's code. One assembler makes the machine code of both, ours as a launch does. Raises
    `TargetError`."""
    binary, resources = assembled(ptx, "sm_90a", shared=shared if ours else None)
    whole, loops = read(disassembled(binary))
    return Counts(resources.registers, resources.spills, shared, seconds, whole, loops, warnings)
