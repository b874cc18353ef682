"""From which parameters pointers come, through all that a kernel does with them; and which regions need an order."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.reference.memory import Argument, Memory
from ziggurat.backend.reference.origins import Origins, needs_order
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.text.parser import parse

PARAMETERS = "%p : ptr<i32>, %q : ptr<i32>, %n : i32, %b : i1"
HELPER = """
    tt.func @"moved" (%0 : ptr<i32>, %1 : i32)ptr<i32> -> { %2 : ptr<i32> = tt.addptr %0 %1; tt.return %2; };
    tt.func @"writes" (%0 : ptr<i32>, %1 : i32)void -> { tt.store %0 %1; tt.return; };
"""


def kernel(body: str):
    module = parse(
        f'module ()void -> {{ {HELPER} tt.func @"k" ({PARAMETERS})void -> {{ {body} tt.return; }}; unreachable; }};'
    )
    functions = module.functions()
    return functions["k"], functions


def origin_of_load(body: str):
    """The parameters that the pointer of the last load may come from, by name; None where that is not known."""
    function, functions = kernel(body)
    load = [op for op in function.walk() if isinstance(op, tt.Load)][-1]
    found = Origins(function, functions).of(load.ptr).parameters
    return None if found is None else "".join("pqnb"[index] for index in found)


@pytest.mark.parametrize(
    ("body", "origin"),
    [
        ("%x : i32 = tt.load %p;", "p"),
        ("%a : ptr<i32> = tt.addptr %q %n; %x : i32 = tt.load %a;", "q"),
        ("%a : tensor<x4, ptr<i32>> = tt.splat %p; %x : tensor<x4, i32> = tt.load %a;", "p"),
        ("%a : ptr<i32> = arith.select %b %p %q; %x : i32 = tt.load %a;", "pq"),
        ("%a : ptr<i32> = scf.if %b ()ptr<i32> -> { scf.yield %p; } ()ptr<i32> -> { scf.yield %q; };"
         "%x : i32 = tt.load %a;", "pq"),
        ("%a : ptr<i32> = scf.for %n %n %n %p (%i : i32, %c : ptr<i32>)ptr<i32> -> {"
         " %d : ptr<i32> = tt.addptr %c %i; scf.yield %d; }; %x : i32 = tt.load %a;", "p"),
        ("%a : ptr<i32> = scf.while %p (%c : ptr<i32>)ptr<i32> -> { scf.condition %b %c; }"
         " (%c : ptr<i32>)ptr<i32> -> { scf.yield %q; }; %x : i32 = tt.load %a;", "pq"),
        ('%a : ptr<i32> = tt.call %q %n @"moved"; %x : i32 = tt.load %a;', "q"),
        ("%t : Tuple<ptr<i32>, ptr<i32>> = tuple %p %q; %a : ptr<i32> = tuple.load %t @1; %x : i32 = tt.load %a;", "q"),
        ("%l : i64 = tt.ptr_to_int %p; %a : ptr<i32> = tt.int_to_ptr %l; %x : i32 = tt.load %a;", None),
    ],
)  # fmt: skip
def test_pointers_are_followed(body, origin):
    assert origin_of_load(body) == origin


def test_what_is_reached():
    function, functions = kernel('%a : ptr<i32> = tt.call %q %n @"moved"; %x : i32 = tt.load %a;')
    assert [op.attributes["sym_name"] for op in Origins(function, functions).reached] == ["k", "moved"]


def ordered(body: str) -> str:
    """The names of the arguments whose memory needs the programs' order."""
    function, functions = kernel(body)
    arrays = [np.zeros(64, np.int32), np.zeros(64, np.int32)]
    memory = Memory([Argument(0, "p", arrays[0]), Argument(1, "q", arrays[1])], (4, 1, 1))
    regions = needs_order(function, Origins(function, functions), memory)
    names = [memory.regions_from(Origins(function, functions).of(p)) for p in function.bodies[0].parameters[:2]]
    return "".join(name for name, of in zip("pq", names, strict=True) if any(r in regions for r in of))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("%x : i32 = tt.load %p; tt.store %q %x;", ""),
        ("%x : i32 = tt.load %p; tt.store %p %x;", "p"),
        ("tt.store %q %n; tt.store %q %n;", "q"),
        ("%c : i32 = arith.constant @1; scf.for %n %n %c (%i : i32)void -> { tt.store %q %n; scf.yield; };", "q"),
        ('tt.call %p %n @"writes";', "p"),
        ('%x : i32 = tt.atomic_rmw %q %n @kind="add";', ""),
        ("%a : ptr<i32> = arith.select %b %p %q; tt.store %a %n; %x : i32 = tt.load %p;", "p"),
    ],
)
def test_regions_whose_programs_depend_on_each_other(body, names):
    assert ordered(body) == names
