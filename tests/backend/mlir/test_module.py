"""Modules: kernels are public, helpers private; models of other tiers are refused."""

from __future__ import annotations

import re

import pytest

import ziggurat as zg
from ziggurat.backend.mlir.module import to_mlir
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import BuildError, TargetError
from ziggurat.codemodel.text.parser import parse

MODEL = parse(
    """
module ()void -> {
    tt.func @"helper<i32>" (%0 : i32)i32 -> { tt.return %0; };
    tt.func @"k<1>" (%0 : ptr<i32>, %1 : i32)void -> {
        %2 : i32 = tt.call %1 @"helper<i32>";
        tt.store %0 %2;
        tt.return;
    };
    unreachable;
};
"""
)


def test_a_module():
    lines = [line.strip() for line in to_mlir(MODEL).splitlines()]
    assert lines[0] == "module {" and lines[-1] == "}"
    assert 'tt.func private @"helper<i32>"(%arg0: i32) -> i32 attributes {noinline = false} {' in lines
    head = "tt.func public @k_1(%arg0: !tt.ptr<i32>, %arg1: i32)"
    assert head + ' attributes {noinline = false, zg.symbol = "k<1>"} {' in lines


@zg.kernel
def placed(p):
    zg.store(p, zg.program_id(0))


def test_locations_are_written_when_asked_for():
    model = placed.triton(zg.ptr(zg.i32))
    assert "loc(" not in to_mlir(model)
    text = to_mlir(model, locations=True)
    line = placed.fn.__code__.co_firstlineno + 2
    assert re.search(rf'tt\.store .* loc\(".*test_module\.py":{line}:4\)', text)


@pytest.mark.parametrize(
    "text",
    [
        'func @"f" ()object -> { return; };',
        'module ()void -> { func @"f" ()object -> { return; }; unreachable; };',
    ],
)
def test_other_models_are_refused(text):
    with pytest.raises(TargetError, match="the model must be a Triton model"):
        to_mlir(parse(text))


def test_other_things_are_refused():
    with pytest.raises((BuildError, TypeError)):
        to_mlir("module")
