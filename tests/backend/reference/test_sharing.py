"""Programs that share memory have the result of running one after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ziggurat.backend.reference.run as running
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.text.parser import parse

START = """
tt.func @"k" (%x : ptr<i32>, %y : ptr<i32>)void -> {
    %pid : i32 = tt.get_program_id @0;
    %0 : i32 = arith.constant @0;
    %1 : i32 = arith.constant @1;
    %next : i32 = arith.addi %pid %1;
    %here : ptr<i32> = tt.addptr %x %pid;
    %there : ptr<i32> = tt.addptr %x %next;
    %out : ptr<i32> = tt.addptr %y %pid;
"""


def model(body):
    return parse(START + body + "\n    tt.return;\n};")


@pytest.fixture
def batches(monkeypatch):
    """The sizes of the batches tried: [8] for one that ran, [8, 8, 1, 1, …] where elements had two programs."""
    sizes = []
    plain = running.run_some

    def watched(machine, launch, start, stop):
        sizes.append(stop - start)
        return plain(machine, launch, start, stop)

    monkeypatch.setattr(running, "run_some", watched)
    return sizes


def both_ways(body, batches, count=8, size=16):
    """Run in one batch and one by one. Returns the arrays, which must agree, and the batches of the first run."""
    results = []
    for batch in (count, 1):
        batches.clear()
        x, y = np.arange(size, dtype=np.int32), np.zeros(size, np.int32)
        running.run(model(body), None, (count,), [x, y], batch=batch)
        results.append((x.tolist(), y.tolist()))
        if batch == count:
            sizes = list(batches)
    assert results[0] == results[1]
    return *results[0], sizes


TOGETHER = [8]
WITH_OWNERS = [8, 8]  # A second access to an array: once more, with an owner for each element.
ONE_BY_ONE = [8, 8] + [1] * 8

PASS_ON = "%v : i32 = tt.load %here; %w : i32 = arith.addi %v %1; tt.store %there %w;"
LOOK_AHEAD = "%v : i32 = tt.load %there; tt.store %here %v;"
SHARED_SUM = "%v : i32 = tt.load %x; %w : i32 = arith.addi %v %next; tt.store %x %w;"
IN_PLACE = "%v : i32 = tt.load %here; %w : i32 = arith.addi %v %1; tt.store %here %w;"
ALL_WRITE = "tt.store %x %pid; tt.store %out %pid;"
WRITE_TWICE = "tt.store %here %0; tt.store %there %next;"
WRITE_BACK = "tt.store %there %0; tt.store %here %next;"


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        (PASS_ON, ONE_BY_ONE),
        (LOOK_AHEAD, ONE_BY_ONE),
        (SHARED_SUM, ONE_BY_ONE),
        (IN_PLACE, WITH_OWNERS),
        (ALL_WRITE, TOGETHER),
        (WRITE_TWICE, ONE_BY_ONE),  # The second store of a program comes before the first of the next.
        (WRITE_BACK, ONE_BY_ONE),
        ("tt.store %x %pid; %v : i32 = tt.load %x; tt.store %out %v;", ONE_BY_ONE),
        ("%v : i32 = tt.load %x; tt.store %out %v;", TOGETHER),
        ("%o : i32 = tt.atomic_rmw %x %pid @add; %v : i32 = tt.load %x; tt.store %out %v;", ONE_BY_ONE),
        ("%o : i32 = tt.atomic_rmw %x %pid @add; %p : i32 = tt.atomic_rmw %x %1 @add;", TOGETHER),
        ("%o : i32 = tt.atomic_rmw %x %pid @add; %p : i32 = tt.atomic_rmw %x %1 @max;", ONE_BY_ONE),
        ("%o : i32 = tt.atomic_rmw %x %pid @add; tt.store %out %o;", TOGETHER),
        ("%o : i32 = tt.atomic_rmw %x %pid @add; %p : i32 = tt.atomic_rmw %x %1 @add; tt.store %out %p;", ONE_BY_ONE),
    ],
)
def test_dependences(batches, body, sizes):
    assert both_ways(body, batches)[2] == sizes


def test_a_chain_of_programs(batches):
    x, _, _ = both_ways(PASS_ON, batches)
    assert x[:9] == list(range(9))
    x, _, _ = both_ways(SHARED_SUM, batches)
    assert x[0] == 36


def test_commuting_atomics_in_a_loop_run_together(batches):
    loop = """
    %8 : i32 = arith.constant @8;
    scf.for %0 %8 %1 (%i : i32)void -> {
        %p : ptr<i32> = tt.addptr %x %i;
        %o : i32 = tt.atomic_rmw %p %next @add;
        scf.yield;
    };"""
    x, _, sizes = both_ways(loop, batches)
    assert x[:8] == [36 + i for i in range(8)]
    assert sizes == TOGETHER


def test_atomics_of_two_kinds_do_not_commute(batches):
    loop = """
    %2 : i32 = arith.constant @2;
    scf.for %0 %2 %1 (%i : i32)void -> {
        %o : i32 = tt.atomic_rmw %x %next @add;
        %c : i1 = arith.cmpi %pid %1 @eq;
        scf.if %c ()void -> { %q : i32 = tt.atomic_rmw %x %0 @and; scf.yield; } ()void -> { scf.yield; };
        scf.yield;
    };"""
    assert both_ways(loop, batches)[2] == ONE_BY_ONE


LOCK = """
    %lock : i32 = scf.while %1 (%held : i32)i32 -> {
        %old : i32 = tt.atomic_cas %LOCK %0 %1;
        %busy : i1 = arith.cmpi %old %0 @ne;
        scf.condition %busy %old;
    } (%held : i32)i32 -> {
        scf.yield %held;
    };
    %v : i32 = tt.load %COUNT;
    %w : i32 = arith.addi %v %next;
    tt.store %COUNT %w;
    %free : i32 = tt.atomic_rmw %LOCK %0 @xchg;"""


def lock(release):
    text = LOCK.replace("%LOCK", "%y").replace("%COUNT", "%x")
    return text if release else text[: text.rindex("%free")]


def test_a_lock(batches):
    x, y, sizes = both_ways(lock(True), batches)
    assert (x[0], y[0]) == (36, 0)
    assert sizes == ONE_BY_ONE


def test_a_lock_that_is_not_released_is_an_error():
    x, y = np.zeros(16, np.int32), np.zeros(16, np.int32)
    with pytest.raises(KernelRuntimeError, match=r"deadlock: program \(1, 0, 0\) waits .* so do 2 other programs"):
        running.run(model(lock(False)), None, (4,), [x, y])
    assert (x[0], y[0]) == (1, 1)


def test_waiting_for_a_later_program():
    wait = """
    %f : i32 = scf.while %0 (%a : i32)i32 -> {
        %v : i32 = tt.load %there;
        %c : i1 = arith.cmpi %v %0 @eq;
        scf.condition %c %v;
    } (%a : i32)i32 -> { scf.yield %a; };
    tt.store %here %1;"""
    x = np.zeros(4, np.int32)
    with pytest.raises(KernelRuntimeError, match=r"deadlock: program \(0, 0, 0\) waits .* so do 2 other programs"):
        running.run(model(wait), None, (3,), [x, np.zeros(4, np.int32)])
    x[3] = 1
    running.run(model(wait), None, (3,), [x, np.zeros(4, np.int32)])
    assert x.tolist() == [1, 1, 1, 1]


def test_overlapping_arrays_are_one_region(batches):
    buffer = np.arange(16, dtype=np.int32)
    running.run(model("%v : i32 = tt.load %here; tt.store %out %v;"), None, (8,), [buffer[:8], buffer[1:9]], batch=8)
    assert buffer[:9].tolist() == [0] * 9
    assert batches == ONE_BY_ONE


def test_a_failure_keeps_the_work_of_the_programs_before():
    body = """
    tt.store %here %next;
    %3 : i32 = arith.constant @3;
    %d : i32 = arith.subi %3 %pid;
    %q : i32 = arith.divsi %1 %d;
    tt.store %out %q;"""
    x, y = np.zeros(8, np.int32), np.full(8, -1, np.int32)
    with pytest.raises(KernelRuntimeError, match=r"program \(3, 0, 0\) divides by zero"):
        running.run(model(body), None, (8,), [x, y])
    assert x.tolist() == [1, 2, 3, 4, 0, 0, 0, 0]
    assert y.tolist() == [0, 0, 1, -1, -1, -1, -1, -1]


def random_accesses(steps):
    """The text of a kernel body with accesses to 8 elements, at places that depend on the program."""
    lines = ["%7 : i32 = arith.constant @7;", "%acc0 : i32 = arith.constant @5;"]
    for i, (kind, factor, offset) in enumerate(steps):
        lines += [
            f"%k{i} : i32 = arith.constant @{factor};",
            f"%o{i} : i32 = arith.constant @{offset};",
            f"%a{i} : i32 = arith.muli %pid %k{i};",
            f"%b{i} : i32 = arith.addi %a{i} %o{i};",
            f"%c{i} : i32 = arith.andi %b{i} %7;",
            f"%p{i} : ptr<i32> = tt.addptr %x %c{i};",
        ]
        acc, after = f"%acc{i}", f"%acc{i + 1}"
        mixed = f"%m{i} : i32 = arith.muli {acc} %7; %n{i} : i32 = arith.addi %m{i} %pid;"
        keep = f"{after} : i32 = arith.addi {acc} %o{i};"
        lines += {
            "load": [f"%v{i} : i32 = tt.load %p{i};", mixed, f"{after} : i32 = arith.xori %n{i} %v{i};"],
            "store": [mixed, f"tt.store %p{i} %n{i};", keep],
            "add": [f"%v{i} : i32 = tt.atomic_rmw %p{i} {acc} @add;", keep],
            "max": [f"%v{i} : i32 = tt.atomic_rmw %p{i} {acc} @max;", keep],
            "xchg": [f"{after} : i32 = tt.atomic_rmw %p{i} {acc} @xchg;"],
            "cas": [f"{after} : i32 = tt.atomic_cas %p{i} %o{i} {acc};"],
            "branch": [
                f"%v{i} : i32 = arith.andi %pid %1;",
                f"%w{i} : i1 = arith.cmpi %v{i} %0 @eq;",
                f"{after} : i32 = scf.if %w{i} ()i32 -> {{ tt.store %p{i} {acc}; scf.yield %o{i}; }} ()i32 -> {{",
                f"%u{i} : i32 = tt.load %p{i}; scf.yield %u{i}; }};",
            ],
            "loop": [
                f"{after} : i32 = scf.for %0 %k{i} %1 {acc} (%i{i} : i32, %s{i} : i32)i32 -> {{",
                f"%q{i} : i32 = arith.addi %i{i} %c{i}; %r{i} : i32 = arith.andi %q{i} %7;",
                f"%t{i} : ptr<i32> = tt.addptr %x %r{i}; %v{i} : i32 = tt.load %t{i};",
                f"%w{i} : i32 = arith.addi %v{i} %s{i}; tt.store %p{i} %w{i}; scf.yield %w{i}; }};",
            ],
        }[kind]
    return "\n".join([*lines, f"tt.store %out %acc{len(steps)};"])


kinds = st.sampled_from(["load", "store", "add", "max", "xchg", "cas", "branch", "loop"])
steps = st.lists(st.tuples(kinds, st.integers(0, 3), st.integers(0, 8)), min_size=1, max_size=5)


@given(steps, st.integers(2, 8))
def test_random_accesses_have_the_result_of_one_by_one(steps, batch):
    kernel = model(random_accesses(steps))
    results = []
    for size in (1, batch):
        x, y = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
        running.run(kernel, None, (7,), [x, y], batch=size)
        results.append((x.tolist(), y.tolist()))
    assert results[0] == results[1]
