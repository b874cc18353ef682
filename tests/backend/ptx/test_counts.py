"""Counts of the code of small kernels, one for each kind of loop: a pass that spoils one of them is seen here.

`counts.txt` has a line a kernel: asynchronous copies of the kernel, barriers and waits of its main loop, and PTX
instructions of that loop. Copies and barriers are exact; instructions may differ by `TOLERANCE`. `--bless` renews it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from counted_kernels import KERNELS

FILE = Path(__file__).with_name("counts.txt")
TOLERANCE = 0.05
COPY = re.compile(r"(?:@!?%?\w+ )?cp\.async\.(?:ca|cg|bulk)\.")
BARRIER = re.compile(r"(?:@!?%?\w+ )?(?:bar(?:rier)?(?:\.cta)?\.(?:sync|red)|mbarrier\.(?:try|test)_wait)")
PRODUCT = re.compile(r"(?:@!?%?\w+ )?(?:wgmma\.mma_async|mma\.sync)")


def main_loop(ptx: str) -> tuple[list[str], list[str]]:
    """The instructions of a kernel, and of its main loop: that with most products an instruction, or the longest."""
    lines = re.sub(r"//.*", "", ptx).partition(".entry")[2].splitlines()
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops: list[list[str]] = []
    for line in map(str.strip, lines):
        if label := re.fullmatch(r"(\$L\w+):", line):
            labels[label[1]] = len(instructions)
        elif re.match(r"(?:@!?%?\w+ )?[a-z]\w*[.\s;].*;|[a-z][\w.:]*\s*;", line.lstrip("{ \t")):
            instructions.append(line.lstrip("{ \t"))
            jump = re.search(r"\bbra(?:\.uni)?\s+(\$L\w+)", line)
            if jump and jump[1] in labels and len(instructions) - labels[jump[1]] > 8:
                loops.append(instructions[labels[jump[1]] :])

    def weight(loop: list[str]) -> tuple[float, int]:
        return sum(PRODUCT.match(line) is not None for line in loop) / len(loop), len(loop)

    return instructions, max(loops, key=weight, default=instructions)


def counts(name: str) -> tuple[int, int, int]:
    """The copies, the barriers and the instructions of a kernel."""
    case = KERNELS[name]
    instructions, loop = main_loop(case.kernel.compile(*case.types, target=case.target, **case.options).ptx)
    copies = sum(COPY.match(line) is not None for line in instructions)
    return copies, sum(BARRIER.match(line) is not None for line in loop), len(loop)


def recorded() -> dict[str, tuple[int, int, int]]:
    lines = FILE.read_text("utf-8").splitlines() if FILE.exists() else []
    rows = (re.split(r" {2,}", line.strip()) for line in lines if line and not line.startswith("#"))
    return {name: (int(copies), int(barriers), int(total)) for name, copies, barriers, total in rows}


def test_code_of_each_kind_of_loop_has_its_recorded_counts(request: pytest.FixtureRequest) -> None:
    rows = {name: counts(name) for name in KERNELS}
    if request.config.getoption("--bless"):
        header = f"{'# kernel':34}  {'copies':>6}  {'barriers':>8}  {'instructions':>12}\n"
        lines = (f"{name:34}  {row[0]:6}  {row[1]:8}  {row[2]:12}\n" for name, row in rows.items())
        FILE.write_text(header + "".join(lines), encoding="utf-8")
    expected = recorded()
    assert expected.keys() == rows.keys(), "--bless renews counts.txt"
    wrong = [
        f"{name}: copies, barriers and instructions are {row}, recorded {expected[name]}"
        for name, row in rows.items()
        if row[:2] != expected[name][:2] or abs(row[2] - expected[name][2]) > TOLERANCE * expected[name][2]
    ]
    assert not wrong, "\n".join([*wrong, "--bless renews counts.txt, where the new code is not worse"])
