"""The table is complete, documented, and quick to import."""

import inspect
import subprocess
import sys

import pytest

import ziggurat.frontends.language as language
from ziggurat.frontends.language import CALLS, METHODS, SIGNATURES, Call


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
    listed = [line for line in signature.doc.split("\n") if line.startswith("- `")]
    documented = [part.strip("-` ") for line in listed for part in line.split(":")[0].split(",")]
    assert documented == [p.name for p in signature.parameters]
    assert "\nResult: " in signature.doc
    summary = signature.doc.split("\n")[0]
    assert summary.endswith((".", "`")) or summary.endswith(")")


def test_methods_are_calls_that_take_the_value_first():
    for meant in METHODS.values():
        names = [parameter.name for parameter in SIGNATURES[meant.call].parameters]
        assert names[0] == "desc" and set(meant.constants) <= set(names)


def test_import_brings_nothing_heavy():
    program = "import ziggurat.frontends.language, sys; print('numpy' in sys.modules, 'difflib' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
