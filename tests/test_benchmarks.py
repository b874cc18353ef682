"""The benchmarks, most of which need a GPU to run: what they import is there, and each pass has its recorded gain."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from libraries import require

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import gpu_ablation as ablation
import results

FILES = sorted(Path(ablation.__file__).parent.glob("*.py"))
TIMES = json.loads(ablation.TIMES.read_text("utf-8"))

# Passes that wait for a measurement, and why they may gain more than is recorded. None stays here once it is measured.
WAITING: dict[str, str] = {}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_benchmarks_import_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ziggurat"):
            try:
                module = importlib.import_module(str(node.module))
                for name in node.names:
                    if not hasattr(module, name.name):
                        importlib.import_module(f"{node.module}.{name.name}")
            except ModuleNotFoundError as error:
                if error.name == "torch":
                    require("torch")
                raise


def test_each_pass_that_may_be_left_out_gains_enough() -> None:
    """A pass that gains less than `GATE` on every recorded kernel is removed."""
    gains = ablation.gains(TIMES)
    small = {step for step in ablation.LEFT_OUT if step not in gains or gains[step][0] < ablation.GATE}
    without_reason = {step: gains.get(step, "not measured") for step in small if step not in WAITING}
    assert not without_reason, f"gains under {ablation.GATE}: remove the pass, or record a kernel that it makes faster"
    assert set(WAITING) <= small, "it gains enough now"


def test_kernels_and_passes_of_the_measurements_are_there() -> None:
    assert TIMES.keys() <= ablation.KERNELS.keys()
    for measurements in TIMES.values():
        assert measurements and all(measurement["ms"][""] > 0 for measurement in measurements)
        assert {step for measurement in measurements for step in measurement["ms"]} <= {"", *ablation.LEFT_OUT}


def test_the_document_has_the_gains() -> None:
    assert ablation.gains_table(TIMES) in results.FILE.read_text("utf-8"), "gpu_ablation.py --write renews it"


def test_a_measurement_keeps_the_older_ones_of_other_passes() -> None:
    def of(commit: str, **ms: float) -> dict[str, Any]:
        return {"commit": commit, "ms": {"": 2.0, **ms}}

    old = [of("c", rescale=2.2, tma=3.0), of("b", persist=3.0, a_pass_that_is_gone=1.0)]
    new = of("d", tma=2.5)
    renewed = ablation.renewed(old, new, ["tma", "persist"])
    assert renewed == [new, of("c", rescale=2.2)]
    assert ablation.slowdowns(renewed) == {"rescale": (1.1, "c"), "tma": (1.25, "d")}
    assert ablation.gains({"one": renewed, "other": [of("e", tma=4.0)]})["tma"] == (2.0, "other", "e")


def test_another_try_of_a_wait_is_no_loop_of_what_lies_between() -> None:
    """The assembler puts what follows a wait that fails behind the kernel, with a jump back into the main loop."""
    count = importlib.import_module("corpus.count")
    rows = [
        "MOV R0, R1", *["IADD R0, R0, 0x1"] * 9, ".L_x_1:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2",
        "@!P0 BRA `(.L_x_3)", ".L_x_2:", *["HGMMA.64x128x16.F32 R24, gdesc[UR4]"] * 8, "@P1 BRA `(.L_x_1)",
        *["STG.E R0, R1"] * 12, "EXIT", ".L_x_3:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2", "@!P0 BRA `(.L_x_3)",
        "BRA `(.L_x_2)", ".L_x_4:", "BRA `(.L_x_4)",
    ]  # fmt: skip
    whole, loops = count.read("\n".join(row if row[0] == "." else f"        /*0000*/  {row} ;" for row in rows))
    assert (whole.instructions, whole.stores) == (len(rows) - 4, 12)
    assert [(loop.instructions, loop.waits, loop.stores) for loop in loops] == [(14, 2, 0)]
