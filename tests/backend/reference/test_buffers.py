"""CPU models run by the interpreter: what each op does, and launches by hand."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.transforms.cpu.cpu_passes import lower


def model(body: str, scratch: int = 0) -> Any:
    """A CPU model whose kernel has the pointers %0 and %1 and the number %2."""
    inside = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    model = zg.parse(
        f"cpu.module @vector=64 @scratch={scratch} ()void -> {{\n"
        f'    tt.func @"kernel" (%0 : ptr<i32>, %1 : ptr<i32>, %2 : i32)void -> {{\n{inside}\n'
        "        tt.return;\n    };\n    unreachable;\n};"
    )
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    return model


def given() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.arange(10, 74, dtype=np.int32), np.zeros(64, np.int32)


LOAD = """
    %10 : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %11 : tensor<x8, ptr<i32>> = tt.splat %0;
    %12 : tensor<x8, ptr<i32>> = tt.addptr %11 %10;
    %13 : tensor<x8, i32> = tt.load %12;
    %14 : tensor<x8, ptr<i32>> = tt.splat %1;
    %15 : tensor<x8, ptr<i32>> = tt.addptr %14 %10;
"""


def region(body: str, buffers: str = "") -> str:
    return f"{buffers}\ncpu.region @shape=[8] ()void -> {{\n{textwrap.dedent(LOAD)}\n{body}\ncpu.end;\n}};"


def test_a_view_of_a_buffer():
    """Every element of a row-major buffer in reverse; a part of it; and a scalar, outside of a region."""
    result = model(
        region(
            """
            cpu.put %3 %13 @start=7 @strides=[-1];
            %16 : tensor<x8, i32> = cpu.get %3;
            tt.store %15 %16;
            """,
            "%3 : buffer<x8, i32> = cpu.alloc;",
        )
        + """
        %4 : i32 = cpu.get %3 @start=2;
        %5 : i32 = arith.constant @8;
        %6 : ptr<i32> = tt.addptr %1 %5;
        tt.store %6 %4;
        """
    )
    x, out = given()
    zg.run(result, 1, x, out, 0)
    assert out[:9].tolist() == [*x[:8][::-1], x[5]]


def test_what_no_op_has_stored_is_no_number_of_the_kernel():
    """Memory of the thread holds a pattern at first, in each program."""
    result = model(
        region(
            "%16 : tensor<x8, i32> = cpu.get %3;\ntt.store %15 %16;\ncpu.put %3 %13;",
            "%3 : buffer<x8, i32> = cpu.alloc @offset=64;",
        ),
        scratch=128,
    )
    x, out = given()
    zg.run(result, 1, x, out, 0)
    assert set(out[:8].view(np.uint8)) == {0xA5}


def test_buffers_with_one_place_share_memory():
    result = model(
        region(
            "cpu.put %3 %13;\n%16 : tensor<x8, i32> = cpu.get %4;\ntt.store %15 %16;",
            "%3 : buffer<x8, i32> = cpu.alloc @offset=0;\n%4 : buffer<x8, i32> = cpu.alloc @offset=0;",
        ),
        scratch=64,
    )
    x, out = given()
    zg.run(result, 1, x, out, 0)
    assert out[:8].tolist() == x[:8].tolist()


ACCESS = """
    %3 : i64 = arith.extsi %2;
    %4 : i64 = arith.constant @{stride};
    %5 : i1 = arith.constant @{guard};
    %6 : access<x8, i32> = cpu.access %0 %5 %4 %3{part};
    cpu.region @shape=[8] ()void -> {{
        %10 : tensor<x8, i32> = tt.make_range @start=0 @end=8;
        %11 : tensor<x8, ptr<i32>> = tt.splat %0;
        %12 : tensor<x8, ptr<i32>> = tt.addptr %11 %10;
        %13 : tensor<x8, i32> = tt.splat %2;
        %20 : tensor<x8, i1> = arith.cmpi %10 %13 @slt;
        %21 : tensor<x8, i32> = arith.constant @2;
        %22 : tensor<x8, i1> = arith.cmpi %10 %21 @{kind};
        %23 : tensor<x8, i1> = arith.andi %20 %22;
        %14 : tensor<x8, i32> = cpu.load %6 %12 %23 %21;
        %15 : tensor<x8, ptr<i32>> = tt.splat %1;
        %16 : tensor<x8, ptr<i32>> = tt.addptr %15 %10;
        tt.store %16 %14;
        cpu.end;
    }};
"""


@pytest.mark.parametrize("count", (-1, 0, 3, 8, 9))
@pytest.mark.parametrize("guard", ("true", "false"))
def test_a_load_through_an_access(count, guard):
    result = model(ACCESS.format(stride=1, guard=guard, part="", kind="sge").replace("@2;", "@-9;"))
    x, out = given()
    zg.run(result, 1, x, out, count)
    inside = np.arange(8) < count
    assert out[:8].tolist() == np.where(inside, x[:8], -9).tolist()


def test_a_mask_of_which_an_access_knows_a_part():
    result = model(ACCESS.format(stride=1, guard="true", part=" @part=true", kind="sge"))
    x, out = given()
    zg.run(result, 1, x, out, 6)
    assert out[:8].tolist() == [2, 2, *x[2:6], 2, 2]


@pytest.mark.parametrize(("stride", "kind"), ((2, "sge"), (1, "slt"), (-1, "slt")))
def test_an_access_that_is_not_that_of_its_pointers_and_mask_is_an_error(stride, kind):
    text = ACCESS.format(stride=stride, guard="true", part="", kind=kind)
    with pytest.raises(zg.KernelRuntimeError, match="the access has other addresses, or another mask, than"):
        zg.run(model(text), 1, *given(), 6)
    zg.run(model(text.replace("@true", "@false")), 1, *given(), 6)  # The guard says that they may differ.


@zg.kernel
def everything(x_ptr, out_ptr, n):
    """A loop of dots, a scan, a histogram, a reduction, a split, a print and an assertion."""
    at = zg.add(zg.mul(zg.expand(zg.arange(0, 8), 1), 8), zg.expand(zg.arange(0, 8), 0))
    x = zg.load(zg.add(x_ptr, at))
    total = zg.zeros((8, 8), zg.i32)
    small = zg.cast(zg.and_(x, 7), zg.i8)
    for _ in range(0, n):
        total = zg.dot(small, zg.trans(small), total)
    scanned = zg.cumsum(total, 1, reverse=True)
    counts = zg.histogram(zg.ravel(zg.and_(x, 15)), 64, zg.less(zg.ravel(x), 60))
    first, second = zg.split(zg.reshape(zg.max(x, 1), (4, 2)))
    one, other = zg.split(zg.reshape(zg.sum(zg.reshape(x, (2, 32)), 1), (2,)))
    zg.device_assert(zg.less(x, 1000), "large")
    zg.device_print("first", first, zg.sum(second))
    zg.store(zg.add(out_ptr, at), zg.add(scanned, zg.reshape(counts, (8, 8))))
    zg.store(zg.add(out_ptr, n), one - other)


def test_a_model_with_every_op_gives_what_the_triton_model_gives(capsys):
    triton = everything.triton(*[zg.ptr(zg.i32)] * 2, zg.i32)
    result = lower(triton, 64)
    zg.verify(result)
    results = []
    for item in (triton, result):
        x, out = given()
        zg.run(item, (2,), x, out, 3)
        results.append((out.tolist(), capsys.readouterr().out))
    assert results[0] == results[1]
    x, out = given()
    zg.compile(lower(triton, 16))[2,](x, out, 3)  # A CPU model compiled, for vectors that every processor has.
    assert out.tolist() == results[0][0]


def test_errors_of_a_program_are_those_of_the_triton_model():
    triton = everything.triton(*[zg.ptr(zg.i32)] * 2, zg.i32)
    result = lower(triton, 64)
    for change, words in (
        (lambda x, out: x.fill(2000), "large"),
        (lambda x, out: out.resize(63, refcheck=False), "arg1"),
    ):
        messages = []
        for item in (triton, result):
            x, out = given()
            change(x, out)
            with pytest.raises(zg.KernelRuntimeError, match=words) as error:
                run(item, None, (1,), [x, out, 1])
            messages.append(str(error.value))
        assert messages[0] == messages[1]


def test_a_launch_of_a_model_for_another_target():
    result = lower(everything.triton(*[zg.ptr(zg.i32)] * 2, zg.i32), 64)
    with pytest.raises(zg.LaunchError, match="this CPU model is made for target='cpu'"):
        zg.compile(result, target="sm_90a")
