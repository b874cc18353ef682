"""Control flow of programs that run together: the result is that of running them one by one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.text.parser import parse


def scalar_kernel(body: str, functions: str = ""):
    """A kernel of `y[pid] = f(x[pid])` in i32: the body makes %v from %u (and %pid), and may return early."""
    kernel = f"""
    tt.func @"k" (%x : ptr<i32>, %y : ptr<i32>)void -> {{
        %pid : i32 = tt.get_program_id @0;
        %0 : i32 = arith.constant @0;
        %1 : i32 = arith.constant @1;
        %2 : i32 = arith.constant @2;
        %3 : i32 = arith.constant @3;
        %xp : ptr<i32> = tt.addptr %x %pid;
        %yp : ptr<i32> = tt.addptr %y %pid;
        %u : i32 = tt.load %xp;
        {body}
        tt.store %yp %v;
        tt.return;
    }};"""
    return parse(f"module ()void -> {{ {functions} {kernel} unreachable; }};")


def outcome(model, x, **options):
    x = np.asarray(x, np.int32)
    y = np.full(len(x), -99, np.int32)
    run(model, "k", (len(x),), [x, y], **options)
    return y.tolist()


def check(model, function, x=range(-6, 14)):
    """The model computes the function for each program, however many programs run together."""
    x = list(x)
    expected = [function(pid, u) for pid, u in enumerate(x)]
    for batch in (1, 3, None):
        assert outcome(model, x, batch=batch) == expected


IF = """
        %c : i1 = arith.cmpi %u %3 @sgt;
        %t : Tuple<i32, tensor<x4, i32>> = scf.if %c ()Tuple<i32, tensor<x4, i32>> -> {
            %a : i32 = arith.muli %u %2;
            %s : tensor<x4, i32> = tt.splat %a;
            scf.yield %a %s;
        } ()Tuple<i32, tensor<x4, i32>> -> {
            %r : tensor<x4, i32> = tt.make_range @start=0 @end=4;
            scf.yield %u %r;
        };
        %p : i32 = tuple.load %t @0;
        %q : tensor<x4, i32> = tuple.load %t @1;
        %sum : i32 = tt.reduce %q @axis=0 (%l : i32, %m : i32)i32 -> {
            %o : i32 = arith.addi %l %m;
            tt.reduce.return %o;
        };
        %v : i32 = arith.addi %p %sum;"""


def test_if_with_values_of_different_shapes():
    check(scalar_kernel(IF), lambda pid, u: 10 * u if u > 3 else u + 6)


def test_if_without_values():
    body = """
        %c : i1 = arith.cmpi %u %3 @sgt;
        scf.if %c ()void -> { tt.store %yp %u; scf.yield; } ()void -> { scf.yield; };
        %w : i32 = tt.load %yp;
        %v : i32 = arith.addi %w %1;"""
    check(scalar_kernel(body), lambda pid, u: u + 1 if u > 3 else -98)


FOR = """
        %t : Tuple<i32, i32> = scf.for %START %STOP %STEP %0 %1 (%i : i32, %a : i32, %n : i32)Tuple<i32, i32> -> {
            %b : i32 = arith.muli %i %n;
            %c : i32 = arith.addi %a %b;
            %d : i32 = arith.addi %n %1;
            scf.yield %c %d;
        };
        %v : i32 = tuple.load %t @0;"""


def summed(start, stop, step):
    return sum(i * n for n, i in enumerate(range(start, stop, step), 1))


@pytest.mark.parametrize(
    ("start", "stop", "step", "function"),
    [
        ("0", "3", "1", lambda pid, u: summed(0, 3, 1)),
        ("0", "u", "1", lambda pid, u: summed(0, u, 1)),
        ("u", "3", "2", lambda pid, u: summed(u, 3, 2)),
        ("pid", "u", "down", lambda pid, u: summed(pid, u, -2)),
        ("3", "0", "1", lambda pid, u: 0),
    ],
)
def test_for(start, stop, step, function):
    body = "%down : i32 = arith.constant @-2;" + FOR
    body = body.replace("%START", f"%{start}").replace("%STOP", f"%{stop}").replace("%STEP", f"%{step}")
    check(scalar_kernel(body), function)


def test_for_of_a_narrow_index_and_of_a_wide_one():
    for type_, low, high in (("i8", -128, 127), ("u64", 2**64 - 4, 2**64 - 1), ("i64", -(2**63), -(2**63) + 3)):
        body = f"""
        %lo : {type_} = arith.constant @{low};
        %hi : {type_} = arith.constant @{high};
        %st : {type_} = arith.constant @{1 if type_ != "i8" else 100};
        %v : i32 = scf.for %lo %hi %st %0 (%i : {type_}, %a : i32)i32 -> {{
            %b : i32 = arith.addi %a %1;
            scf.yield %b;
        }};"""
        check(scalar_kernel(body), lambda pid, u: 3, range(3))


def test_a_step_of_zero():
    body = FOR.replace("%START", "%0").replace("%STOP", "%3").replace("%STEP", "%u")
    with pytest.raises(KernelRuntimeError, match=r"program \(2, 0, 0\): the step of a loop must not be zero"):
        outcome(scalar_kernel(body), [1, 2, 0, 1])


COLLATZ = """
        %t : Tuple<i32, i32> = scf.while %u %0 (%n : i32, %k : i32)Tuple<i32, i32> -> {
            %c : i1 = arith.cmpi %n %1 @sgt;
            scf.condition %c %n %k;
        } (%n : i32, %k : i32)Tuple<i32, i32> -> {
            %odd : i32 = arith.andi %n %1;
            %c : i1 = arith.cmpi %odd %1 @eq;
            %m : i32 = scf.if %c ()i32 -> {
                %a : i32 = arith.muli %n %3;
                %b : i32 = arith.addi %a %1;
                scf.yield %b;
            } ()i32 -> {
                %a : i32 = arith.divsi %n %2;
                scf.yield %a;
            };
            %j : i32 = arith.addi %k %1;
            scf.yield %m %j;
        };
        %v : i32 = tuple.load %t @1;"""


def collatz(n):
    steps = 0
    while n > 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


def test_while_with_branches_inside():
    check(scalar_kernel(COLLATZ), lambda pid, u: collatz(u), range(30))


EARLY = """
        %c : i1 = arith.cmpi %u %3 @sgt;
        scf.for %0 %3 %1 (%i : i32)void -> {
            %e : i1 = arith.cmpi %i %u @eq;
            scf.if %e ()void -> { tt.store %yp %i; tt.return; } ()void -> { scf.yield; };
            scf.yield;
        };
        scf.if %c ()void -> { tt.return; } ()void -> { scf.yield; };
        %v : i32 = arith.addi %u %pid;"""


def test_early_return_from_within():
    check(scalar_kernel(EARLY), lambda pid, u: u if 0 <= u < 3 else -99 if u > 3 else u + pid)


def test_a_function_that_returns_early():
    helper = """
    tt.func @"clip" (%n : i32)Tuple<i32, i32> -> {
        %0 : i32 = arith.constant @0;
        %7 : i32 = arith.constant @7;
        %c : i1 = arith.cmpi %n %0 @slt;
        cf.cond_br %c ^low ^rest;
      ^low:
        tt.return %0 %7;
      ^rest:
        %d : i1 = arith.cmpi %n %7 @sgt;
        scf.if %d ()void -> { tt.return %7 %0; } ()void -> { scf.yield; };
        tt.return %n %n;
    };"""
    body = """
        %t : Tuple<i32, i32> = tt.call %u @"clip";
        %a : i32 = tuple.load %t @0;
        %b : i32 = tuple.load %t @1;
        %h : i32 = arith.constant @100;
        %g : i32 = arith.muli %b %h;
        %v : i32 = arith.addi %a %g;"""
    check(scalar_kernel(body, helper), lambda pid, u: 700 if u < 0 else 7 if u > 7 else 101 * u)


BLOCKS = """
    tt.func @"gcd" (%a : i32, %b : i32)i32 -> {
        %0 : i32 = arith.constant @0;
        cf.br ^head(%a, %b);
      ^head(%m : i32, %n : i32):
        %done : i1 = arith.cmpi %n %0 @eq;
        cf.cond_br %done ^end ^step;
      ^step:
        %r : i32 = arith.remsi %m %n;
        cf.br ^head(%n, %r);
      ^end:
        %q : i32 = arith.addi %m %a;
        tt.return %q;
    };"""


def test_loops_of_blocks():
    model = scalar_kernel('%p : i32 = arith.addi %pid %1;\n %v : i32 = tt.call %p %u @"gcd";', BLOCKS)
    check(model, lambda pid, u: math.gcd(pid + 1, u) + pid + 1, range(40))


def test_values_reach_later_blocks():
    body = """
        tt.store %yp %3;
        cf.br ^a;
      ^a:
        %w : i32 = arith.addi %u %1;
        %c : i1 = arith.cmpi %u %3 @sgt;
        cf.cond_br %c ^b ^d;
      ^b:
        %z : i32 = arith.muli %w %2;
        cf.br ^e(%z);
      ^d:
        cf.br ^e(%w);
      ^e(%p : i32):
        %v : i32 = arith.addi %p %w;"""
    check(scalar_kernel(body), lambda pid, u: (u + 1) * (3 if u > 3 else 2))


def test_a_cycle_of_blocks_reaches_the_loop_limit():
    body = """
        cf.br ^a;
      ^a:
        %w : i1 = arith.cmpi %u %3 @eq;
        cf.cond_br %w ^b ^a;
      ^b:
        %v : i32 = arith.addi %u %1;"""
    with pytest.raises(KernelRuntimeError, match=r"program \(1, 0, 0\): loop limit exceeded: 100 blocks executed"):
        outcome(scalar_kernel(body), [3, 2], loop_limit=100)


def test_a_loop_that_never_ends():
    body = """
        %v : i32 = scf.while %u (%n : i32)i32 -> {
            %c : i1 = arith.cmpi %n %n @eq;
            scf.condition %c %n;
        } (%n : i32)i32 -> {
            %m : i32 = arith.addi %n %STEP;
            scf.yield %m;
        };"""
    with pytest.raises(KernelRuntimeError, match=r"program \(0, 0, 0\): loop limit exceeded: 50 iterations"):
        outcome(scalar_kernel(body.replace("STEP", "1")), [3], loop_limit=50)
    with pytest.raises(KernelRuntimeError, match="nothing in the loop's condition changes"):
        outcome(scalar_kernel(body.replace("STEP", "0")), [3])


# while n <= 3: s += 1; if DECIDING: n += 1
LATE = """
    %limit : i32 = arith.constant @200;
    %k : Tuple<i32, i32> = scf.while %u %pid (%n : i32, %s : i32)Tuple<i32, i32> -> {
        %c : i1 = arith.cmpi %n %3 @sle;
        scf.condition %c %n %s;
    } (%n : i32, %s : i32)Tuple<i32, i32> -> {
        %t : i32 = arith.addi %s %1;
        %d : i1 = arith.cmpi DECIDING @sge;
        %m : i32 = scf.if %d ()i32 -> { %a : i32 = arith.addi %n %1; scf.yield %a; } ()i32 -> { scf.yield %n; };
        scf.yield %m %t;
    };
    %v : i32 = tuple.load %k @0;"""


def test_a_loop_whose_condition_does_not_change_while_other_values_do():
    with pytest.raises(KernelRuntimeError, match=r"program \(1, 0, 0\): nothing in the loop's condition changes"):
        outcome(scalar_kernel(LATE.replace("DECIDING", "%n %3")), [3, 2], loop_limit=100)


def test_a_loop_whose_condition_changes_late():
    check(scalar_kernel(LATE.replace("DECIDING", "%s %limit")), lambda pid, u: max(u, 4))


def test_recursion_ends_with_an_error():
    helper = '    tt.func @"f" (%n : i32)i32 -> { %r : i32 = tt.call %n @"f"; tt.return %r; };'
    with pytest.raises(KernelRuntimeError, match="nested too deeply"):
        outcome(scalar_kernel('%v : i32 = tt.call %u @"f";', helper), [1])


statements = st.sampled_from(["add", "if", "for", "while", "store"])


def program(names, depth):
    """The text of random statements on the value %u, with the result %v."""
    lines, last, count = [], "%u", 0

    def fresh():
        nonlocal count
        count += 1
        return f"%n{count}"

    def emit(kinds, value, depth):
        for kind in kinds:
            result, other = fresh(), fresh()
            if kind == "add" or (depth == 0 and kind != "store"):
                lines.append(f"{other} : i32 = arith.addi {value} %pid;")
                lines.append(f"{result} : i32 = arith.xori {other} %3;")
            elif kind == "store":
                lines.append(f"tt.store %yp {value};")
                lines.append(f"{result} : i32 = tt.load %yp;")
            elif kind == "if":
                condition = fresh()
                lines.append(f"{other} : i32 = arith.andi {value} %1;")
                lines.append(f"{condition} : i1 = arith.cmpi {other} %0 @eq;")
                lines.append(f"{result} : i32 = scf.if {condition} ()i32 -> {{")
                lines.append(f"scf.yield {emit(kinds[1:3], value, depth - 1)}; }} ()i32 -> {{")
                lines.append(f"scf.yield {emit(['add'], value, depth - 1)}; }};")
            else:
                item, index, bound = fresh(), fresh(), fresh()
                lines.append(f"{bound} : i32 = arith.andi {value} %3;")
                if kind == "for":
                    lines.append(
                        f"{result} : i32 = scf.for %0 {bound} %1 {value} ({index} : i32, {item} : i32)i32 -> {{"
                    )
                    lines.append(f"scf.yield {emit(kinds[1:3], item, depth - 1)}; }};")
                else:
                    rest, go, after = fresh(), fresh(), fresh()
                    parameters, next_ = fresh(), fresh()
                    pair = "Tuple<i32, i32>"
                    lines.append(
                        f"{other} : {pair} = scf.while {bound} {value} ({rest} : i32, {item} : i32){pair} -> {{"
                    )
                    lines.append(f"{go} : i1 = arith.cmpi {rest} %0 @sgt;")
                    lines.append(
                        f"scf.condition {go} {rest} {item}; }} ({after} : i32, {parameters} : i32){pair} -> {{"
                    )
                    lines.append(f"{next_} : i32 = arith.subi {after} %1;")
                    lines.append(f"scf.yield {next_} {emit(kinds[1:3], parameters, depth - 1)}; }};")
                    lines.append(f"{result} : i32 = tuple.load {other} @1;")
            value = result
        return value

    last = emit(names, last, depth)
    return "\n".join([*lines, f"%v : i32 = arith.addi {last} %0;"])


@settings(max_examples=40)
@given(
    st.lists(statements, min_size=1, max_size=4),
    st.lists(st.integers(-20, 20), min_size=1, max_size=9),
    st.integers(2, 9),
)
def test_batches_of_any_size_agree(names, x, batch):
    model = scalar_kernel(program(names, 2))
    assert outcome(model, x, batch=batch) == outcome(model, x, batch=1)
