"""Sanitising as a transform: its text, what it leaves as it is, and models that it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.transforms.sanitize import sanitize


@zg.kernel
def doubled(out, x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(out + at, zg.load(x + at, zg.less(at, n)) * 2.0, zg.less(at, n))


def model(B: int = 16):
    return doubled.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, B)


def kernel_text(text: object) -> str:
    """The kernel of a module's text, without the functions that it calls."""
    return str(text).partition('    tt.func @"doubled')[2].partition("    unreachable")[0]


@pytest.mark.parametrize("checks", [("bounds",), ("undefined", "races")], ids="-".join)
def test_text(checks, golden):
    golden(f"doubled-{'-'.join(checks)}", kernel_text(sanitize(model(), checks).model))


def test_it_is_deterministic_and_reads_back():
    first, second = (sanitize(model(), zg.codemodel.gpu.options.SANITIZERS).model for _ in range(2))
    assert str(first) == str(second)
    zg.verify(first)
    assert zg.same_model(zg.parse(str(first)), first)


def test_values_without_sources_have_no_marks():
    counts = {name: str(sanitize(model(), (name,)).model).count("sanitize_marks_") for name in ("undefined", "races")}
    assert counts["undefined"] > 0 and counts["races"] == 0
    kernel = zg.kernel(
        source="def filled(out, x, n, B: zg.constexpr):\n    at = zg.arange(0, B)\n"
        "    zg.store(out + at, zg.load(x + at, zg.less(at, n), 0.0))\n"
    )
    filled = kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 16)
    assert "sanitize_" not in str(sanitize(filled, ("undefined",)).model).replace("sanitize_inside", "").replace(
        "sanitize_distance", ""
    )


def test_arrays_that_are_only_read_have_no_tables():
    arrays = sanitize(model(), ("races",)).arrays
    assert [(array.parameter, array.tables) for array in arrays] == [(0, 1), (1, 0)]
    shared = sanitize(model(), ("races",), [(0, 1)]).arrays
    assert [(array.group, array.tables) for array in shared] == [(0, 3), (0, 3)]
    assert [array.tables for array in sanitize(model(), ("bounds",)).arrays] == [0, 0]
    assert [array.tables for array in sanitize(model(), ("undefined",), (), (0,)).arrays] == [2, 0]


RECURSIVE = """
module ()void -> {
    tt.func @"again" (%0 : i32)i32 -> {
        %1 : i32 = tt.call %0 @"again";
        tt.return %1;
    };
    tt.func @"kernel" (%0 : ptr<i32>, %1 : i32)void -> {
        %2 : i32 = tt.call %1 @"again";
        tt.store %0 %2;
        tt.return;
    };
    unreachable;
};
"""


def test_a_recursive_function_is_an_error():
    with pytest.raises(zg.KernelTypeError, match="a kernel that calls 'again' cannot be sanitized"):
        sanitize(zg.parse(RECURSIVE))


BLOCKS = """
tt.func @"kernel" (%0 : ptr<f32>, %1 : i32, %2 : i1)void -> {
    %3 : f32 = tt.load %0 %2;
    %4 : i32 = arith.constant @0;
    cf.br ^step(%4, %3);
  ^step(%5 : i32, %6 : f32):
    %7 : i1 = arith.cmpi %5 %1 @slt;
    cf.cond_br %7 ^again ^end;
  ^again:
    %8 : i32 = arith.constant @1;
    %9 : i32 = arith.addi %5 %8;
    %10 : f32 = arith.addf %6 %6;
    cf.br ^step(%9, %10);
  ^end:
    tt.store %0 %6;
    tt.return;
};
"""


def test_blocks_carry_marks():
    source = zg.parse(BLOCKS)
    sanitized = zg.sanitized(source, ("undefined", "nan"))
    for mask, check in ((False, "undefined"), (True, "nan")):
        x = np.full(1, 1e38, np.float32)
        memory = sanitized.memory(1, x, 3, mask)
        zg.run(sanitized.model, 1, x, 3, mask, memory)
        (report,) = sanitized.reports(memory, 1, x, 3, mask)
        assert (report.check, report.argument, report.element) == (check, "arg0", 0)
