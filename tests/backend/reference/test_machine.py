"""The machine: programs diverge and meet again in bodies and blocks; calls return for all programs."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.text.parser import parse

HEAD = """
    %pid : i32 = tt.get_program_id @0;
    %at : ptr<i32> = tt.addptr %p %pid;
    %zero : i32 = arith.constant @0;
    %one : i32 = arith.constant @1;
    %two : i32 = arith.constant @2;
"""


def outcome(body: str, helpers: str = "", programs: int = 6, batch: int | None = None) -> list[int]:
    """The numbers that the programs store, one each; `body` ends the function."""
    model = parse(
        f'module ()void -> {{ {helpers} tt.func @"k" (%p : ptr<i32>)void -> {{ {HEAD} {body} }}; unreachable; }};'
    )
    out = np.full(programs, -1, np.int32)
    run(model, "k", (programs,), [out], batch=batch)
    return out.tolist()


COLLATZ = """
    cf.br ^head(%pid, %zero);
    ^head(%n : i32, %count : i32):
        %small : i1 = arith.cmpi %n %one @"sle";
        cf.cond_br %small ^done(%count) ^step;
    ^step:
        %odd : i32 = arith.andi %n %one;
        %is_odd : i1 = arith.cmpi %odd %one @"eq";
        cf.cond_br %is_odd ^up ^down;
    ^up:
        %three : i32 = arith.constant @3;
        %tripled : i32 = arith.muli %n %three;
        %next : i32 = arith.addi %tripled %one;
        cf.br ^again(%next);
    ^down:
        %half : i32 = arith.divsi %n %two;
        cf.br ^again(%half);
    ^again(%m : i32):
        %more : i32 = arith.addi %count %one;
        cf.br ^head(%m, %more);
    ^done(%result : i32):
        tt.store %at %result;
        tt.return;
"""


def collatz(n: int) -> int:
    count = 0
    while n > 1:
        n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
    return count


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_programs_diverge_in_blocks_and_meet(batch):
    assert outcome(COLLATZ, programs=20, batch=batch) == [collatz(n) for n in range(20)]


@pytest.mark.parametrize("batch", [None, 1])
def test_some_programs_return_early(batch):
    body = """
        %few : i1 = arith.cmpi %pid %two @"slt";
        cf.cond_br %few ^gone ^on;
        ^gone:
            tt.return;
        ^on:
            tt.store %at %pid;
            tt.return;
    """
    assert outcome(body, batch=batch) == [-1, -1, 2, 3, 4, 5]


def test_values_of_one_block_are_used_in_others():
    body = """
        %few : i1 = arith.cmpi %pid %two @"slt";
        cf.cond_br %few ^a ^b;
        ^a:
            %ten : i32 = arith.constant @10;
            cf.br ^c(%ten);
        ^b:
            cf.br ^c(%pid);
        ^c(%v : i32):
            %sum : i32 = arith.addi %v %pid;
            tt.store %at %sum;
            tt.return;
    """
    assert outcome(body) == [10, 11, 4, 6, 8, 10]


HELPER = """
    tt.func @"sign" (%0 : i32)i32 -> {
        %1 : i32 = arith.constant @2;
        %2 : i1 = arith.cmpi %0 %1 @"slt";
        cf.cond_br %2 ^low ^high;
        ^low:
            %3 : i32 = arith.constant @-7;
            tt.return %3;
        ^high:
            tt.return %0;
    };
"""


def test_a_call_returns_for_all_programs_in_their_order():
    assert outcome('%r : i32 = tt.call %pid @"sign"; tt.store %at %r; tt.return;', HELPER) == [-7, -7, 2, 3, 4, 5]


def test_calls_without_end_are_an_error():
    endless = 'tt.func @"f" (%0 : i32)i32 -> { %1 : i32 = tt.call %0 @"f"; tt.return %1; };'
    with pytest.raises(KernelRuntimeError, match="nested too deeply"):
        outcome('%r : i32 = tt.call %pid @"f"; tt.store %at %r; tt.return;', endless)


def test_a_cycle_of_blocks_without_end_is_an_error():
    model = parse('tt.func @"f" (%0 : i32)void -> { cf.br ^a; ^a: cf.br ^b; ^b: cf.br ^a; };')
    with pytest.raises(KernelRuntimeError, match="loop limit exceeded: 20 blocks executed"):
        run(model, None, (3,), [1], loop_limit=20)
