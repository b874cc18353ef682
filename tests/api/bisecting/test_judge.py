"""The judge of `zg.bisect` on a few faults and right kernels; `benchmarks/bisect_judge.py` runs all of it."""

import importlib.util
import json
import sys
from pathlib import Path

import attrs
import pytest

FILE = Path(__file__).resolve().parents[3] / "benchmarks" / "bisect_judge.py"
# A step of each kind: a pass of either pipeline, the emission of either, and LLVM's.
STEPS = ["prepare", "assign", "expand", "barriers", "emitted code", "LLVM's passes", "cpu prepare", "native code"]


@pytest.fixture(scope="module")
def judge():
    spec = importlib.util.spec_from_file_location("bisect_judge", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["bisect_judge"] = module  # attrs looks the types of fields up there.
    spec.loader.exec_module(module)
    yield module
    del sys.modules["bisect_judge"]


def test_a_sample(judge, tmp_path, monkeypatch):
    names = ("softmax by blocks, sm_90a", "in flight: pointers, mma", "fused softmax")
    monkeypatch.setattr(judge, "KERNELS", {name: judge.KERNELS[name] for name in names})
    options = ["--jobs", "1", "--reduce", "0.1", "--faults", str(len(STEPS)), "--right", "4", "--steps", *STEPS]
    assert judge.main([str(tmp_path), *options]) == 0
    result = json.loads((tmp_path / "bisect-judge.json").read_text())
    assert [outcome["step"] for outcome in result["faults"]] == STEPS
    assert {outcome["kind"] for outcome in result["faults"]} == {"named"}
    assert {outcome["kind"] for outcome in result["right"]} <= {"agrees", "refused"}
    assert "8 of 8 planted" in (tmp_path / "bisect-judge.md").read_text()


def test_a_miss_is_counted(judge):
    """Of a fault that is named elsewhere, and of a right kernel that is accused, the report tells."""
    fault = attrs.asdict(judge.Outcome("k", "lower", "w", "another step", "dots", "r"))
    right = attrs.asdict(judge.Outcome("f", "", "", "accused", "cse", "differs"))
    text = judge.report({"right": [right], "faults": [fault], "attempts": {"lower": {"another step": 1}}})
    assert "0 of 1 planted" in text and "another step dots" in text and "f: differs" in text
