"""Planted faults: each is reported by its sanitizer at its lines, with its argument and element; right kernels pass."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from sanitizer_kernels import right_cases, special_cases
from sanitizer_suite import Case, cases, lines_of, program

import ziggurat as zg
from ziggurat.codemodel.gpu.options import SANITIZERS

ALL = [*cases(), *special_cases(), *right_cases()]
FAULTS = [case for case in ALL if case.check]
# Of each step in structures, one or two are run natively as well: every second of a list that has two or three of each.
NATIVE = {case.name for case in (*[case for case in cases() if case.check][::2], *special_cases())}
# Faults that the simulator itself does not report, a few of each sanitizer.
SIMULATED = [case for case in FAULTS if case.check != "races"][::12]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: Any) -> Any:
    """The module of all kernels, and its text."""
    file = tmp_path_factory.mktemp("suite") / "suite.py"
    text = program(ALL, "ziggurat")
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("sanitizer_suite_kernels", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, text


def places(error: zg.SanitizerReport) -> list[int]:
    assert error.location is not None
    return [error.location.line, *(location.line for _, location in error.related)]


def is_expected(error: zg.SanitizerReport, case: Case, text: str) -> bool:
    """Whether a report is that of the fault of a case. Programs that race report in any order of the two."""
    here, there = lines_of(case, text)
    lines = [*here, *there] if case.check == "races" else here + (there if case.check != "bounds" else [])
    in_place = sorted(set(places(error))) == sorted(set(lines))
    if case.check != "races":
        in_place = in_place and places(error)[0] == here[0]
    if error.check != case.check or error.argument != case.argument or not in_place:
        return False
    return error.element in case.elements if case.elements is not None else error.element is None


def test_numbers_of_kernels():
    assert len(FAULTS) >= 150 and len(ALL) - len(FAULTS) >= 50
    assert {case.check for case in FAULTS} == set(SANITIZERS)
    assert len({case.source.partition("(")[2] for case in ALL}) == len(ALL), "all kernels differ"


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_fault_is_found(case, suite):
    """By the interpreter, and in native code each step in some structure."""
    module, text = suite
    for interpret in (True, False) if case.name in NATIVE else (True,):
        with pytest.raises(zg.SanitizerError) as failure:
            module.__dict__[case.name][case.grid](*case.arguments(), sanitize=case.check, interpret=interpret)
        reports = failure.value.errors
        assert any(is_expected(report, case, text) for report in reports), f"interpret={interpret}: {failure.value}"
        assert all(report.check == case.check for report in reports)
        if case.check == "races":
            assert all(report.other_program is not None for report in reports)
            if case.name.startswith("two_lanes"):
                assert reports[0].program == reports[0].other_program
            else:
                assert all(report.program != report.other_program for report in reports)


@pytest.mark.parametrize(
    ("number", "case"), enumerate(case for case in ALL if not case.check), ids=lambda case: getattr(case, "name", "")
)
def test_right_kernel_passes(number, case, suite):
    """All sanitizers by the interpreter; natively all for kernels in no structure, and one in turn for others."""
    module, _ = suite
    kernel = module.__dict__[case.name][case.grid]
    kernel(*case.arguments(), sanitize=SANITIZERS, interpret=True)
    is_special = case.name.startswith("right_")
    checks = SANITIZERS if is_special else SANITIZERS[number % 5]
    kernel(*case.arguments(), sanitize=checks, interpret=False)


@pytest.mark.parametrize("case", SIMULATED, ids=lambda case: case.name)
def test_fault_is_found_by_simulated_code(case, suite):
    module, text = suite
    kernel = module.__dict__[case.name]
    bound = dict(zip(kernel.signature.parameters, case.arguments(), strict=True))
    signature, names, values = kernel.specialized(bound)
    sanitized = zg.sanitized(kernel.model_for(signature), case.check, names=names)
    memory = sanitized.memory(case.grid, *values)
    zg.compile(sanitized.model, target="sm_90a").simulate[case.grid](*values, memory)
    reports = sanitized.reports(memory, case.grid, *values)
    assert any(is_expected(report, case, text) for report in reports), reports
