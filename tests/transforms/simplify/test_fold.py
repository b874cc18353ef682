from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify
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


# Numbers on both sides of where a function is exact on every target: it is computed at the former alone.
EXACT = {
    "exp": ([0.0], [1.0, -1.0]),
    "exp2": ([-126.0, 0.0, 3.0, 127.0], [-127.0, 128.0, 0.5, -0.5]),
    "log": ([1.0], [2.0, 0.5]),
    "log2": ([0.25, 0.5, 1.0, 8.0], [3.0, 0.75, 0.0, -1.0, math.inf]),
    "rsqrt": ([0.25, 1.0, 4.0], [0.5, 2.0, 3.0, 0.0, math.inf]),
    "cos": ([0.0], [1.0]),
    "sin": ([], [0.0, 1.0]),
    "tanh": ([], [0.0, 1.0]),
    "erf": ([], [0.0, 1.0]),
}


@pytest.mark.parametrize("name", EXACT)
def test_functions_are_computed_where_they_are_exact(name: str) -> None:
    for exact, numbers in zip((True, False), EXACT[name], strict=True):
        for number in numbers:
            model = parse(
                f'tt.func @"f" (%x : f32)f32 -> {{ %0 : f32 = arith.constant @{number};'
                f" %1 : f32 = math.{name} %0; tt.return %1; }};"
            )
            names = {op.NAME for op in fold(model).walk()}
            assert (f"math.{name}" not in names) == exact, number


@pytest.mark.parametrize(
    ("start", "stop", "step", "runs"),
    [
        (0, 1, 1, True), (1, 1, 1, False), (2, 1, 1, False), (0, 0, 2, False), (-1, 0, 2, True),
        (1, 0, -1, True), (1, 1, -1, False), (0, 1, -1, False), (3, 4, 0, True), (4, 4, 0, True),
    ],
)  # fmt: skip
def test_loops_that_run_no_iteration_go(start: int, stop: int, step: int, runs: bool) -> None:
    model = parse(f"""
        tt.func @"f" (%x : i32)i32 -> {{
            %a : i32 = arith.constant @{start};
            %b : i32 = arith.constant @{stop};
            %c : i32 = arith.constant @{step};
            %r : i32 = scf.for %a %b %c %x (%i : i32, %y : i32)i32 -> {{ %z : i32 = arith.addi %y %i; scf.yield %z; }};
            tt.return %r;
        }};""")
    assert any(isinstance(op, scf.For) for op in fold(model).walk()) == runs


@pytest.mark.parametrize("condition", ["true", "false"])
def test_a_branch_of_several_blocks_stays(condition: str) -> None:
    model = parse(f"""
        tt.func @"f" (%x : i32, %c : i1)i32 -> {{
            %t : i1 = arith.constant @{condition};
            %r : i32 = scf.if %t
                ()i32 -> {{
                    cf.cond_br %c ^a ^b;
                  ^a:
                    scf.yield %x;
                  ^b:
                    %y : i32 = arith.addi %x %x;
                    scf.yield %y;
                }}
                ()i32 -> {{ scf.yield %x; }};
            tt.return %r;
        }};""")
    folded = fold(model)
    assert any(isinstance(op, scf.If) for op in folded.walk()) == (condition == "true")
    verify(folded)


# Operands for which an op has one result on every target, and others.
DEFINED = [
    ("arith.divsi", "i32", [(7, 2), (-7, 2), (-(1 << 31), 1), (-(1 << 31) + 1, -1)], [(7, 0), (-(1 << 31), -1)]),
    ("arith.divui", "u32", [(7, 2), ((1 << 32) - 1, 1)], [(7, 0)]),
    ("arith.remsi", "i32", [(7, 2), (-7, 2)], [(7, 0)]),
    ("arith.remui", "u32", [(7, 2)], [(7, 0)]),
    *((f"arith.{op}", "i32", [(5, 0), (5, 31)], [(5, 32), (5, -1)]) for op in ("shli", "shrsi")),
    ("arith.shrui", "u32", [(5, 0), (5, 31)], [(5, 32)]),
]
CONVERTED = [
    ("arith.fptosi", "i8", [-128.0, -128.5, 127.0, 127.9, 0.0], [-129.0, 128.0, math.inf]),
    ("arith.fptosi", "i32", [-(2.0**31), 2.0**31 - 128], [2.0**31, -(2.0**31) - 256, -math.inf]),
    ("arith.fptoui", "u8", [0.0, -0.5, 255.0, 255.5], [-1.0, 256.0]),
]


@pytest.mark.parametrize(("name", "kind", "defined", "others"), [*DEFINED, *CONVERTED])
def test_ops_are_computed_where_they_are_defined(name: str, kind: str, defined: list[Any], others: list[Any]) -> None:
    for numbers in [*defined, *others]:
        values = numbers if isinstance(numbers, tuple) else (numbers,)
        source = kind if isinstance(numbers, tuple) else "f32"
        constants = " ".join(f"%{at} : {source} = arith.constant @{value};" for at, value in enumerate(values))
        operands = " ".join(f"%{at}" for at in range(len(values)))
        model = parse(f'tt.func @"f" (){kind} -> {{ {constants} %r : {kind} = {name} {operands}; tt.return %r; }};')
        assert any(op.NAME == name for op in fold(model).walk()) == (numbers in others), numbers


@pytest.mark.parametrize("kind", ["f32", "f16", "f8e5m2"])
def test_infinities_are_constants_and_nans_are_not(kind: str) -> None:
    for number, op in (("inf", "arith.negf"), ("-inf", "math.absf"), ("nan", "arith.negf")):
        text = f"%0 : f32 = arith.constant @{number}; %1 : {kind} = arith.truncf %0;"
        if kind == "f32":
            text = f"%1 : f32 = arith.constant @{number};"
        model = parse(f'tt.func @"f" (){kind} -> {{ {text} %r : {kind} = {op} %1; tt.return %r; }};')
        assert (op not in {op.NAME for op in fold(fold(model)).walk()}) == (number != "nan"), number
