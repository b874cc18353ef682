"""The list of all rules of emission: how each is held against the meaning of its op, or why it is not.

A rule that is not in the list fails here, and so does one that is no longer there, or that its proofs do not go
through. docs/reference/proofs.md has the list; `--bless` renews it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from walked_rules import TABLES, name_of

from ziggurat.backend.cpu import compile as _cpu  # Fills the tables.
from ziggurat.backend.ptx import assemble as _ptx
from ziggurat.codemodel.op import is_foreign

assert _cpu and _ptx

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/reference/proofs.md"


@attrs.frozen
class Evidence:
    """How rules are held against meanings: proved in tests/proofs, tested, or neither; where; and a reason."""

    kind: Literal["proved", "tested", "infeasible"]
    where: str
    reason: str = ""


def by_proof(file: str, reason: str = "") -> Evidence:
    return Evidence("proved", f"tests/proofs/{file}.py", reason)


def by_test(file: str, reason: str) -> Evidence:
    return Evidence("tested", f"tests/{file}.py", reason)


def not_feasible(file: str, reason: str) -> Evidence:
    return Evidence("infeasible", f"tests/{file}.py" if file else "", reason)


INTEGERS, DIVISIONS = by_proof("test_emitted_integers"), by_proof("test_emitted_divisions")
FLOATS, MOVES = by_proof("test_emitted_floats"), by_proof("test_emitted_moves")
CONVERSIONS = by_proof("test_conversions")
TWICE = by_test(
    "backend/ptx/test_elementwise_ops",
    "LLVM's own, which is IEEE's; 16 bits are rounded twice: Figueroa 1995; all of 8 bits",
)
ERRORS = not_feasible("backend/ptx/test_functions", "z3 has no exponentials: errors in ulp, of f16 for all inputs")
NAMES = by_test("backend/ptx/test_tensors", "no instruction: the registers are looked at by name")
ORDER = by_test("backend/ptx/test_roles", "what threads do for each other: the simulator, and strict runs of models")
BOXES = by_proof("test_emitted_copies", "what the unit does is the PTX ISA's; parts of a cluster are simulated")
COPIES = by_test("backend/ptx/test_tma", "a map is of 128 bytes of no documented form: the simulator")
CLUSTERS = by_test("backend/ptx/test_clusters", "what CTAs do for each other: the simulator")
CONTROL = by_test(
    "backend/ptx/test_control", "blocks and phis; `lower_structured`, which makes them, is proved in test_flow.py"
)
NATIVE = by_test("language/test_generated_kernels", "loops around the ops: native code against the interpreter")
REGISTER = not_feasible("", "a register of the machine, whose number nobody knows")
REPORTS = by_test("backend/ptx/test_debug", "calls of the runtime that print or trap")
AUTHOR = not_feasible("backend/ptx/test_inline_asm", "the author's text, which has no meaning in a model")
REDUCTIONS = by_proof("test_emitted_reductions")
ACCUMULATED = by_test(
    "backend/ptx/test_matrix", "linear in each operand: exact products, simulated, and assembled by ptxas"
)

LOOPS = by_test("backend/llvm/test_accurate", "a loop of unknown length: exact remainders of numbers of any bits")
ATOMICS = by_proof(
    "test_emitted_atomics",
    "one instruction a cell, or two; loops around compare-and-swap (8 and 16 bits) are simulated, "
    "and sums of floats are the machine's",
)
WAITS = by_test("backend/ptx/test_atomics", "a loop until another program writes: simulated")
INTERVALS = not_feasible("backend/cpu/test_vector_functions", "z3 has no exponentials: intervals and any bits")
CLAIMS = by_test("proofs/test_cpu_passes", "no instruction: what they claim is proved of models")
PRINTS = by_test("backend/cpu/test_prints", "calls of the runtime that print or report")

# By table, the ops of its rules.
LISTS: dict[str, dict[Evidence, str]] = {
    "LLVM text": {
            INTEGERS: "AddI SubI MulI AndI OrI XOrI DivUI RemUI MaxSI MinSI MaxUI MinUI CtPop BitReverse ExtSI ExtUI "
            "TruncI AbsI CtLz MulHiUI ShlI ShrSI ShrUI CmpI Select",
            DIVISIONS: "DivSI RemSI",
            FLOATS: "MaximumF MinimumF MaxNumF MinNumF Floor Ceil Trunc RoundEven CmpF NegF AbsF",
            TWICE: "AddF SubF MulF DivF PreciseDivF Sqrt PreciseSqrt Fma",
            ERRORS: "Rsqrt Exp Exp2 Log Log2 Sin Cos Tanh Erf",
            LOOPS: "RemF",
    },
    "PTX": {
            INTEGERS: "AddI MulI MakeRange Splat Elementwise CmpI Cast Select",
            DIVISIONS: "DivSI RemSI",
            FLOATS: "FloatBinary FloatUnary NegF CmpF",
            CONVERSIONS: "ExtF TruncF SIToFP UIToFP FPToSI FPToUI arith.Bitcast",
            MOVES: "Load Store ConvertLayout LocalLoad LocalStore LocalGather LocalAtomicAdd AsyncCopy Mma Wgmma Dot "
            "Reshape ExpandDims Trans Broadcast AddPtr PtrToInt IntToPtr LocalView LocalTrans LocalAlloc",
            NAMES: "Join Split Cat MultipleOf MaxContiguous tt_memory.Bitcast MaxConstancy Poison Assume MakeTuple "
            "TupleLoad",
            by_test("backend/ptx/test_numbers", "literals of LLVM"): "ConstantOp",
            TWICE: "MulF DivF Fma Directed",
            ERRORS: "Exp Exp2 Sqrt Rsqrt Approximate",
            REGISTER: "GetProgramId GetNumPrograms SmId GlobalTimer ClusterRank",
            CONTROL: "For If While Yield Condition Br CondBr Return",
            ORDER: "tt.Barrier dialect.Barrier WarpSpecialize MbarrierInit MbarrierInval MbarrierExpect MbarrierArrive "
            "MbarrierWait AsyncCommit AsyncWait FenceAsync FenceGlobal GridDependencyWait GridDependencyLaunch Keep",
            BOXES: "TmaLoad TmaStore",
            COPIES: "TmaStoreWait MakeTensorMap AcquireTensorMaps",
            CLUSTERS: "ClusterStore ClusterBarrier ClusterArrive ClusterWait",
            ATOMICS: "AtomicRMW AtomicCAS",
            WAITS: "Wait",
            REPORTS: "Print Assert AssertOp",
            AUTHOR: "InlineAsm",
            REDUCTIONS: "Reduce Scan Gather MapElementwise",
            ACCUMULATED: "WgmmaWait DotFma Rescale RoundTf32",
    },
    "CPU": {
            INTEGERS: "Elementwise CmpI Select Cast MulHiUI",
            DIVISIONS: "DivSI DivUI RemSI RemUI",
            FLOATS: "FloatBinary NegF CmpF AbsF Floor Ceil Trunc RoundEven MaxNumF MinNumF",
            CONVERSIONS: "ExtF TruncF SIToFP UIToFP FPToSI FPToUI arith.Bitcast",
            TWICE: "Sqrt PreciseSqrt Fma Directed",
            INTERVALS: "Exp Exp2 Log "
            "Log2 Sin Cos Tanh Erf Rsqrt Approximate",
            NATIVE: "For If While Yield Condition Structured Br CondBr Return Unreachable ConstantOp IntToPtr PtrToInt "
            "tt_memory.Bitcast AddPtr MakeTuple TupleLoad Poison Alloc Access Copy Dot Scan Sort",
            REGISTER: "GetProgramId GetNumPrograms GlobalTimer SmId",
            CLAIMS: "Waits Assume Barrier "
            "GridDependencyWait GridDependencyLaunch Hint",
            PRINTS: "AssertOp Assert Print",
            AUTHOR: "InlineAsm",
    },
    "CPU, at an index": {
            NATIVE: "Get tt_memory.Load cpu.Load Store AtomicRMW AtomicCAS Gather MakeRange Splat Broadcast "
            "ExpandDims Trans Reshape Join Split Cat TupleLoad MapElementwise Region",
    },
}  # fmt: skip


def names_of(table: Any) -> dict[str, type]:
    """The op classes that a table has rules for, by name, with the module where two have one name."""
    classes: list[type] = [cls for cls in table._registered if not is_foreign(cls)]  # Without those of other tests.
    names = [cls.__name__ for cls in classes]
    modules = [cls.__module__.rpartition(".")[2] for cls in classes]
    return {
        name if names.count(name) == 1 else f"{module}.{name}": cls
        for name, module, cls in zip(names, modules, classes, strict=True)
    }


def listed(lists: dict[Evidence, str]) -> list[str]:
    return [name for names in lists.values() for name in names.split()]


@pytest.mark.parametrize("table", LISTS)
def test_each_rule_is_listed_once(table: str) -> None:
    assert sorted(listed(LISTS[table])) == sorted(names_of(TABLES[table]))


def test_the_evidence_is_there() -> None:
    for evidence in (evidence for lists in LISTS.values() for evidence in lists):
        assert not evidence.where or (ROOT / evidence.where).is_file(), evidence.where
        assert evidence.reason or evidence.kind == "proved"


# By file, the tests to leave out: those of planted faults, and slow ones of rules that other tests go through.
LEFT_OUT = {
    MOVES: "planted or f16 or f32 or f64 or turned or products_of_operands",
    REDUCTIONS: "planted or shape0 or shape2 or shape3 or i64 or i8",
}


@pytest.mark.parametrize(
    "evidence",
    [INTEGERS, DIVISIONS, FLOATS, MOVES, CONVERSIONS, REDUCTIONS, ATOMICS, BOXES],
    ids=lambda e: Path(e.where).stem,
)
def test_proofs_go_through_their_rules(evidence: Evidence, tmp_path: Path) -> None:
    """A claim is made after each rule has written the text of an op."""
    file = tmp_path / "rules.json"
    options = ["-q", "-p", "no:benchmark", "-p", "no:cacheprovider", "-k", f"not ({LEFT_OUT.get(evidence, 'planted')})"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "walked_rules", "--walked-rules", file, ROOT / evidence.where],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "tests/support")}, check=True,
    )  # fmt: skip
    walked = {(table, name) for table, name in json.loads(file.read_text())}
    for table, lists in LISTS.items():
        classes = names_of(TABLES[table])
        rules = {(table, name_of(classes[name])) for name in lists.get(evidence, "").split()}
        assert rules <= walked, rules - walked


def test_the_document_has_the_list(request: pytest.FixtureRequest) -> None:
    lines = ["| code | rules | how | where, and why not more |", "| --- | --- | --- | --- |"]
    for table, lists in LISTS.items():
        for evidence, names in lists.items():
            where = "; ".join(filter(None, (evidence.where and f"`{evidence.where}`", evidence.reason)))
            lines.append(f"| {table} | {' '.join(sorted(names.split()))} | {evidence.kind} | {where} |")
    text, lines_of_list = DOCUMENT.read_text(encoding="utf-8"), "\n".join(lines)
    start, end = "<!-- rules of emission -->\n", "\n<!-- end -->"
    before, rest = text.split(start)
    printed, after = rest.split(end)
    if printed != lines_of_list and request.config.getoption("--bless"):
        DOCUMENT.write_text(f"{before}{start}{lines_of_list}{end}{after}", encoding="utf-8")
        printed = lines_of_list
    assert printed == lines_of_list, "not the list (--bless renews it)"
