"""Faults planted in functions in memory, which tests must find."""

from __future__ import annotations
import __future__

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import pytest
from proving import Refuted

from ziggurat.backend.proof.prove import Prover
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse


def plant(monkeypatch: pytest.MonkeyPatch, function: Any, old: str, new: str) -> None:
    """Replace a part of a function's source text, wherever the function is registered or imported."""
    function = inspect.unwrap(function)
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} is in {function.__name__} {source.count(old)} times"
    tree = ast.parse(source.replace(old, new))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    names: dict[str, Any] = {}
    code = compile(tree, inspect.getfile(function), "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    exec(code, function.__globals__, names)
    monkeypatch.setattr(function, "__code__", names[function.__name__].__code__)


Fault = Callable[[pytest.MonkeyPatch], None]


def edit(function: Any, old: str, new: str) -> Fault:
    """The fault in which a part of a function's source text is another one."""
    return lambda monkeypatch: plant(monkeypatch, function, old, new)


def entry(table: Any, key: Any, value: Any) -> Fault:
    """The fault in which a table has another value for a key."""
    return lambda monkeypatch: monkeypatch.setitem(table, key, value)


def must_find(
    faults: Iterable[tuple[Fault, Callable[[], object]]],
    errors: type[BaseException] | tuple[type[BaseException], ...] = Refuted,
) -> Callable[..., None]:
    """A test that plants each fault, and of which each proof then has to fail."""

    @pytest.mark.parametrize(("fault", "proof"), faults)
    def test(fault: Fault, proof: Callable[[], object]) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            fault(monkeypatch)
            with pytest.raises(errors):
                proof()

    return test


def must_refute(
    faults: Mapping[tuple[str, str, str], tuple[str, str]], models_of: Callable[[str], Sequence[tuple[str, Op]]],
    prover_of: Callable[[str], Prover], *, with_right: bool = False,
) -> Callable[..., None]:  # fmt: skip
    """A test that plants each fault in a model's text, which must not be proved to do what the model before does.

    Faults are by kernel, pass and what is wrong: a pattern of the text after the pass, and what stands there instead.
    The first such place is replaced, or the last where "last" is said. `with_right` proves the right model first.
    """

    @pytest.mark.parametrize("fault", faults, ids="-".join)
    def test(fault: tuple[str, str, str]) -> None:
        kernel, name, what = fault
        models = models_of(kernel)
        at = next(at for at, (after, _) in enumerate(models) if after == name)
        (_, before), (_, after) = models[at - 1 : at + 1]
        if with_right:
            assert prover_of(kernel).prove(before, after)
        text, (old, new) = str(after), faults[fault]
        places = list(re.finditer(old, text))
        assert places, f"{old} is not in\n{text}"
        place = places[-1 if what.endswith("last") else 0]
        wrong = parse(text[: place.start()] + place.expand(new) + text[place.end() :])
        assert not prover_of(kernel).prove(before, wrong)

    return test
