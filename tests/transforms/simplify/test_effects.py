"""Effects of ops on memory and control, by their kind and by the ops inside them."""

from __future__ import annotations

import re

import pytest

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.simplify.effects import is_nonzero, is_pure, is_read, may_stop, may_trap, may_write

MODEL = """
tt.func @"f" (%p : ptr<i32>, %n : i32, %b : i1)void -> {
    %zero : i32 = arith.constant @0;
    %two : i32 = arith.constant @2;
    %minus : i32 = arith.constant @-1;
    %add : i32 = arith.addi %n %n;
    %by2 : i32 = arith.divsi %n %two;
    %by0 : i32 = arith.divsi %n %zero;
    %bym : i32 = arith.remsi %n %minus;
    %byn : i32 = arith.divui %n %n;
    %load : i32 = tt.load %p;
    %volatile : i32 = tt.load %p @volatile=true;
    tt.store %p %n;
    %rmw : i32 = tt.atomic_rmw %p %n @kind="add";
    tt.print %n @prefix="x";
    tt.assert %b @message="m";
    tt.assume %b;
    %asm : i32 = tt.elementwise_inline_asm %n @asm="a" @constraints="=r,r" @is_pure=true;
    %impure : i32 = tt.elementwise_inline_asm %n @asm="a" @constraints="=r,r" @is_pure=false;
    %call : i32 = tt.call %n @"g";
    %counted : void = scf.for %zero %n %two (%i : i32)void -> { scf.yield; };
    %stepped : void = scf.for %zero %n %n (%i : i32)void -> { scf.yield; };
    %divides : void = scf.for %zero %n %two (%i : i32)void -> { %q : i32 = arith.divsi %n %i; scf.yield; };
    %stores : void = scf.if %b ()void -> { tt.store %p %n; scf.yield; } ()void -> { scf.yield; };
    %quiet : i32 = scf.if %b ()i32 -> { scf.yield %n; } ()i32 -> { scf.yield %two; };
    %waits : void = scf.while ()void -> { scf.condition %b; } ()void -> { scf.yield; };
    tt.return;
};
"""
NAMES = [line.split()[0] for line in MODEL.splitlines()[2:-2]]


def named() -> dict[str, Op]:
    """The ops of the function by the names of their results; those without a result by the name that stands there."""
    ops = parse(re.sub(r"%\w+ : void = ", "", MODEL)).bodies[0].entry.ops
    return {name.lstrip("%"): op for name, op in zip(NAMES, ops, strict=False)}


OPS = named()


def those(question) -> set[str]:
    return {name for name, op in OPS.items() if question(op)}


ARITHMETIC = {"zero", "two", "minus", "add", "by2", "by0", "bym", "byn"}


def test_pure_ops():
    assert those(is_pure) == ARITHMETIC | {"asm"}


def test_what_may_be_undefined():
    assert those(may_trap) >= {"by0", "bym", "byn", "divides"}
    assert not those(may_trap) & {"by2", "add", "counted", "quiet"}


def test_reads_and_writes():
    assert those(is_read) == {"load"}, "not a volatile one, and not an atomic"
    assert those(may_write) >= {"tt.store", "rmw", "impure", "call", "stores", "volatile"}
    assert not those(may_write) & (ARITHMETIC | {"load", "asm", "counted", "quiet", "tt.print", "tt.assert", "waits"})


def test_what_control_may_not_get_past():
    assert those(may_stop) >= {"stepped", "waits", "tt.assert", "call"}
    assert not those(may_stop) & (ARITHMETIC | {"load", "tt.store", "counted", "quiet", "stores", "tt.print"})


@pytest.mark.parametrize(("name", "constants"), [("zero", False), ("two", True), ("minus", True), ("add", False)])
def test_numbers_that_are_not_zero(name, constants):
    assert is_nonzero(OPS[name].result) is constants
