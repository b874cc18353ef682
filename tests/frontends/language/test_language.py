"""The table is complete, documented, and quick to import."""

import inspect
import operator
import subprocess
import sys

import pytest

import ziggurat.frontends.language as language
from ziggurat.frontends.language import CALLS, METHODS, SIGNATURES, Call, CompareKind
from ziggurat.frontends.language.comparison import NAMED
from ziggurat.frontends.language.programs import max_constancy, max_contiguous, multiple_of
from ziggurat.transforms.calls.arithmetic import PREDICATES


def test_every_call_is_exported_under_its_name():
    assert CALLS.keys() == SIGNATURES.keys()
    for name, call in CALLS.items():
        assert name in language.__all__
        assert getattr(language, name) is call
        assert isinstance(call, Call) and call.signature is SIGNATURES[name]


def test_all_names_nothing_that_is_not_there():
    for name in language.__all__:
        assert not inspect.ismodule(getattr(language, name)), f"{name} is hidden by the file of that name"


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_parameter_is_documented(name: str):
    signature = SIGNATURES[name]
    bullets = [line for line in signature.doc.split("\n") if line.startswith("- `")]
    documented = [part.strip("-` ") for line in bullets for part in line.split(":")[0].split(",")]
    assert documented == [p.name for p in signature.parameters]
    assert "\nResult: " in signature.doc
    summary = signature.doc.split("\n")[0]
    assert summary.endswith((".", "`")) or summary.endswith(")")


def test_methods_are_calls_that_take_the_value_first():
    for spelling in METHODS.values():
        names = [parameter.name for parameter in SIGNATURES[spelling.call].parameters]
        assert names[0] == "desc" and set(spelling.constants) <= set(names)


def test_import_brings_nothing_heavy():
    program = "import ziggurat.frontends.language, sys; print('numpy' in sys.modules, 'difflib' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert output.stdout.split() == ["False", "False"]


def test_methods_are_calls_of_the_language():
    assert {SIGNATURES[spelling.call].group for spelling in METHODS.values()} == {"Tensor descriptors"}
    assert {"load", "store", "gather", "scatter", "atomic_add", "atomic_xor"} < {*METHODS}


def test_the_kinds_are_pythons_comparisons():
    assert PREDICATES.keys() == set(CompareKind) == set(NAMED.values())
    values = {kind.name: getattr(operator, kind.value)(1, 2) for kind in CompareKind}
    assert values == {
        "EQUAL": False,
        "NOT_EQUAL": True,
        "LESS_THAN": True,
        "LESS_THAN_OR_EQUAL": True,
        "GREATER_THAN": False,
        "GREATER_THAN_OR_EQUAL": False,
    }


def test_outside_of_kernels_a_hint_changes_nothing():
    assert [hint(48, 16) for hint in (multiple_of, max_contiguous, max_constancy)] == [48, 48, 48]


def test_static_print_prints_while_compiling(type_of, capsys):
    type_of("zg.static_print('shape', t.shape, n)")
    assert capsys.readouterr().out == "shape (16,) i32\n"
