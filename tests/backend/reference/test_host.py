"""Prints, assertions, assumptions and hints."""

import numpy as np
import pytest

from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.text.parser import parse


def kernel(body):
    return parse(f"""
tt.func @"k" (%n : i32)void -> {{
    %pid : i32 = tt.get_program_id @0;
    %r : tensor<x4, i32> = tt.make_range @start=0 @end=4;
    %p : tensor<x4, i32> = tt.splat %pid;
    %t : tensor<x4, i32> = arith.addi %r %p;
    {body}
    tt.return;
}};""")


def test_print_in_the_order_of_programs(capsys):
    run(
        kernel('tt.print %pid @"value"; tt.print %t @"x" @hex=true; tt.print @"done"; tt.print %pid %n @"two";'),
        None,
        (2,),
        [-1],
    )
    assert capsys.readouterr().out.splitlines() == [
        line
        for pid in (0, 1)
        for line in [
            f"pid ({pid}, 0, 0) idx () value: {pid}",
            *(f"pid ({pid}, 0, 0) idx ({i}) x: 0x{i + pid:08x}" for i in range(4)),
            f"pid ({pid}, 0, 0) done",
            f"pid ({pid}, 0, 0) idx () two: (operand 0) {pid}",
            f"pid ({pid}, 0, 0) idx () two: (operand 1) -1",
        ]
    ]


def test_print_of_a_failing_program_comes_once(capsys):
    body = 'tt.print %pid @"p"; %c : i1 = arith.cmpi %pid %n @slt; cf.assert %c @"small";'
    with pytest.raises(KernelRuntimeError, match=r"program \(2, 0, 0\): device-side assertion failed: small"):
        run(kernel(body), None, (4,), [2])
    assert capsys.readouterr().out.splitlines() == [f"pid ({i}, 0, 0) idx () p: {i}" for i in range(3)]


def test_assertions_name_the_element_and_the_line():
    body = """
    %s : tensor<x4, i32> = tt.splat %n;
    %c : tensor<x4, i1> = arith.cmpi %t %s @slt;
    tt.assert %c @"in range" @loc="3:4:3:9:kernel.py";"""
    run(kernel(body), None, (2,), [5])
    with pytest.raises(KernelRuntimeError, match=r"program \(1, 0, 0\): .*: in range at element \(3\)") as error:
        run(kernel(body), None, (2,), [4])
    assert error.value.location.line == 3


@pytest.mark.parametrize(
    ("body", "good", "bad", "message"),
    [
        (
            "%z : i32 = arith.constant @0; %c : i1 = arith.cmpi %n %z @sgt; tt.assume %c;",
            1, -1, "an assumption does not hold",
        ),
        ("%m : i32 = tt.multiple_of %n @[16];", 32, 33, "not a multiple of 16"),
        (
            "%s : tensor<x4, i32> = tt.splat %n; %u : tensor<x4, i32> = arith.muli %r %s;"
            "%v : tensor<x4, i32> = tt.max_contiguous %u @[4];",
            1, 2, "not consecutive in runs of 4",
        ),
        (
            "%s : tensor<x4, i32> = tt.splat %n; %u : tensor<x4, i32> = arith.divsi %r %s;"
            "%v : tensor<x4, i32> = tt.max_constancy %u @[2];",
            2, 3, "not equal in runs of 2",
        ),
        (
            "%s : tensor<x4, i32> = tt.splat %n; %u : tensor<x4, i32> = arith.addi %r %s;"
            "%v : tensor<x4, i32> = tt.multiple_of %u @[8];",
            16, 12, "not a multiple of 8",
        ),
    ],
)  # fmt: skip
def test_hints_are_checked_in_strict_mode_only(body, good, bad, message):
    run(kernel(body), None, (1,), [good], strict=True)
    run(kernel(body), None, (1,), [bad])
    with pytest.raises(KernelRuntimeError, match=message):
        run(kernel(body), None, (1,), [bad], strict=True)


def test_poison(apply):
    body = """
    %y0 : f32 = tt.poison;
    %y1 : tensor<x2, u8> = tt.poison;
    %t : Tuple<i32, f8e4m3> = tt.poison;
    %y2 : i32 = tuple.load %t @0;
    %y3 : f8e4m3 = tuple.load %t @1;"""
    outputs = [("f32", ()), ("u8", (2,)), ("i32", ()), ("f8e4m3", ())]
    with pytest.raises(KernelRuntimeError, match="undefined element: the variable has no value on this path"):
        apply(body, [], outputs, strict=True)
    for got, want in zip(apply(body, [], outputs), [0, [0, 0], 0, 0], strict=True):
        np.testing.assert_array_equal(got.astype(float), want)
