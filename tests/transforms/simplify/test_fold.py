from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.dce import dce
from ziggurat.transforms.simplify.fold import fold


def clean(op: Any) -> Any:
    """Fold and show only what is left."""
    return dce(fold(op))


IDENTITIES = [
    ("i32", "arith.addi %x %zero", "%x"),
    ("i32", "arith.addi %zero %x", "%x"),
    ("i32", "arith.subi %x %zero", "%x"),
    ("i32", "arith.muli %x %one", "%x"),
    ("i32", "arith.muli %x %zero", "0"),
    ("i32", "arith.muli %zero %x", "0"),
    ("i32", "arith.andi %x %ones", "%x"),
    ("i32", "arith.andi %x %zero", "0"),
    ("i32", "arith.ori %x %ones", "-1"),
    ("i32", "arith.ori %x %x", "%x"),
    ("i32", "arith.xori %x %x", "0"),
    ("i32", "arith.subi %x %x", "0"),
    ("i32", "arith.shli %x %zero", "%x"),
    ("i32", "arith.divsi %x %one", "%x"),
    ("i32", "arith.remsi %x %one", "0"),
    ("i32", "arith.maxsi %x %x", "%x"),
    ("i1", "arith.cmpi %x %x @sle", "true"),
    ("i1", "arith.cmpi %x %x @slt", "false"),
    ("i32", "arith.select %c %x %x", "%x"),
    ("f32", "arith.mulf %f %fone", "%f"),
    ("f32", "arith.divf %f %fone", "%f"),
    ("f32", "arith.subf %f %fzero", "%f"),
    ("f32", "arith.maximumf %f %f", "%f"),
    ("ptr<i32>", "tt.addptr %p %zero", "%p"),
    ("ptr<i32>", "tt.bitcast %p", "%p"),
]
SAME = [
    ("f32", "arith.addf %f %fzero"),  # -0.0 + 0.0 is 0.0
    ("f32", "arith.mulf %f %fzero"),  # NaN
    ("f32", "arith.subf %f %f"),  # infinity
    ("i1", "arith.cmpf %f %f @oeq"),
    ("i32", "arith.divsi %x %x"),
    ("i32", "arith.divsi %one %zero"),
    ("i32", "arith.remsi %one %zero"),
    ("i32", "arith.shli %one %thirtytwo"),
    ("i32", "arith.shrsi %one %ones"),
    ("i32", "arith.divsi %min %ones"),
    ("f32", "math.exp %fone"),
]
CONSTANTS = """
    %zero : i32 = arith.constant @0; %one : i32 = arith.constant @1; %ones : i32 = arith.constant @-1;
    %thirtytwo : i32 = arith.constant @32; %min : i32 = arith.constant @-2147483648;
    %fzero : f32 = arith.constant @0.0; %fone : f32 = arith.constant @1.0;
"""
PARAMETERS = "(%x : i32, %f : f32, %c : i1, %p : ptr<i32>)"


@pytest.mark.parametrize(("type_", "op", "expected"), IDENTITIES, ids=[case[1] for case in IDENTITIES])
def test_identities(type_: str, op: str, expected: str, becomes: Any) -> None:
    result = "" if expected.startswith("%") else f"%r : {type_} = arith.constant @{expected};"
    becomes(
        clean,
        f'tt.func @"f" {PARAMETERS}{type_} -> {{ {CONSTANTS} %r : {type_} = {op}; tt.return %r; }};',
        f'tt.func @"f" {PARAMETERS}{type_} -> {{ {result} tt.return {"%r" if result else expected}; }};',
    )


@pytest.mark.parametrize(("type_", "op"), SAME, ids=[case[1] for case in SAME])
def test_what_is_not_always_so_stays(type_: str, op: str) -> None:
    model = parse(f'tt.func @"f" {PARAMETERS}{type_} -> {{ {CONSTANTS} %r : {type_} = {op}; tt.return %r; }};')
    assert fold(model) is model


def test_ops_that_fold_makes_say_so() -> None:
    model = parse(
        """
        tt.func @"f" ()i32 -> {
            %1 : i32 = arith.constant @1 @loc="3:4:3:9:kernel.py";
            %2 : i32 = arith.addi %1 %1 @loc="4:4:4:9:kernel.py";
            tt.return %2;
        };"""
    )
    location = fold(model).bodies[0].entry.ops[1].location
    assert location is not None
    assert (location.line, location.by) == (4, "fold")


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(fold, seed)
