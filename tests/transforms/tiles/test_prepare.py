"""Preparation leaves one kernel without calls, and starts dots from the term that they are added to."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.errors import KernelTypeError, LaunchError, VerifyError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import SCALARS
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.tiles.prepare import fuse_dots, prepare, prepare_for_gpu


def prepared(text: str) -> core.Module:
    result = prepare(zg.parse(text))
    verify(result)
    return result


def names(op: Op) -> list[str]:
    return [inner.NAME for inner in op.walk()]


@zg.function
def sign(x):
    if x > 3:
        return x * 2
    return x + 1


@zg.kernel
def calling_kernel(out, n):
    i = 0
    while i < n:
        i = sign(i)
    zg.store(out, i)


def test_calls_are_inlined_and_loops_stay() -> None:
    result = prepare(calling_kernel.triton(zg.ptr(zg.i32), zg.i32))
    verify(result)
    assert len(result.functions()) == 1
    assert "tt.call" not in names(result) and "scf.while" in names(result)


CALLEE = """tt.func @"g" @noinline=true (%0 : i32)i32 -> {
    %1 : i32 = arith.constant @3; %2 : i1 = arith.cmpi %0 %1 @slt;
    cf.cond_br %2 ^block_1 ^block_2;
  ^block_1: tt.return %1;
  ^block_2: tt.return %0; };"""
KERNEL = """tt.func @"f" (%p : ptr<i32>, %n : i32, %s : i32)void -> {
    scf.for %s %n %s (%i : i32)void -> {
        %7 : i32 = tt.call %i @"g"; tt.store %p %7; scf.yield; };
    scf.for %s %n %s (%j : i32)void -> { tt.store %p %j; scf.yield; };
    tt.return; };"""


def test_a_callee_with_blocks_makes_only_the_loop_around_it_blocks() -> None:
    result = prepared(f"module ()void -> {{ {CALLEE} {KERNEL} unreachable; }};")
    assert names(result).count("scf.for") == 1
    assert "tt.call" not in names(result) and "cf.cond_br" in names(result)


def test_a_recursive_callee_is_named() -> None:
    callee = 'tt.func @"g" (%0 : i32)i32 -> { %1 : i32 = tt.call %0 @"g"; tt.return %1; };'
    with pytest.raises(VerifyError, match="recursion: 'g' calls 'g', which leads back to it"):
        prepared(f"module ()void -> {{ {callee} {KERNEL} unreachable; }};")


def test_a_loop_that_holds_blocks_becomes_blocks() -> None:
    inner = """%one : i32 = arith.constant @1; %zero : i32 = arith.constant @0; %c : i1 = arith.cmpi %n %one @slt;
    scf.for %zero %n %one (%i : i32)void -> {
        cf.cond_br %c ^a ^b;
      ^a:
        tt.store %p %i;
        cf.br ^b;
      ^b:
        scf.yield;
    };
    scf.if %c ()void -> { tt.store %p %n; scf.yield; } ()void -> { scf.yield; };"""
    kernel = f'tt.func @"f" (%p : ptr<i32>, %n : i32)void -> {{ {inner} tt.return; }};'
    result = prepared(f"module ()void -> {{ {kernel} unreachable; }};")
    assert "scf.for" not in names(result) and "scf.if" in names(result)
    for target in ("cpu", "sm_90a"):
        zg.compile(result, target=target)


@pytest.mark.parametrize(
    ("signature", "end", "message"),
    [
        ("(%p : ptr<i32>, %n : i32)i32", "tt.return %n;", "the kernel 'f' returns i32: a kernel returns nothing"),
        ("(%p : ptr<i32>, %n : tensor<x4, i32>)void", "tt.return;", "parameter 1 of the kernel 'f' is of type tensor"),
        ("(%p : Tuple<i32, i32>)void", "tt.return;", "parameter 0 of the kernel 'f' is of type Tuple<i32, i32>"),
    ],
)
def test_a_function_that_no_launch_can_call_is_an_error(signature: str, end: str, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        prepared(f'module ()void -> {{ tt.func @"f" {signature} -> {{ {end} }}; unreachable; }};')


def test_a_module_of_two_kernels_is_an_error() -> None:
    kernels = "".join(
        f'tt.func @"{name}" (%p : ptr<i32>, %n : i32)void -> {{ tt.store %p %n; tt.return; }};' for name in "fg"
    )
    with pytest.raises(LaunchError, match="must have one kernel; got 2: f, g"):
        prepared(f"module ()void -> {{ {kernels} unreachable; }};")


@pytest.mark.parametrize(
    "lines",
    [
        """%u : Tuple<i32, i32> = scf.for %zero %n %one %t (%i : i32, %c : Tuple<i32, i32>)Tuple<i32, i32> -> {
            %w : Tuple<i32, i32> = tuple.with %c %i @0; scf.yield %w; };
        %x : i32 = tuple.load %u @0;""",
        """%c : i1 = arith.cmpi %n %one @slt;
        %w : Tuple<i32, i32> = tuple %n %n;
        %u : Tuple<i32, i32> = scf.if %c ()Tuple<i32, i32> -> { scf.yield %t; } ()Tuple<i32, i32> -> { scf.yield %w; };
        %x : i32 = tuple.load %u @0;""",
    ],
)
def test_a_tuple_is_carried_by_its_components(lines: str) -> None:
    """The interpreter runs such models, which no kernel gives."""
    text = f"""module ()void -> {{ tt.func @"k" (%p : ptr<i32>, %n : i32)void -> {{
        %one : i32 = arith.constant @1;
        %zero : i32 = arith.constant @0;
        %t : Tuple<i32, i32> = tuple %one %zero;
        {lines}
        tt.store %p %x; tt.return; }}; unreachable; }};"""
    zg.verify(zg.parse(text))
    with pytest.raises(KernelTypeError, match=r"scf\.\w+ must carry the components of a Tuple one by one") as error:
        zg.compile(zg.parse(text))
    assert error.value.hint == "carry its components"


M, A = "tensor<x16, x16, f32>", "tensor<x16, x16, f16>"


def dots(sum_: str, uses: str = "", element: str = "f32") -> Op:
    text = f"""tt.func @"f" (%a : {A}, %b : {A}, %c : {M}, %p : ptr<f32>)void -> {{
        %0 : {M} = arith.constant @0.0;
        %1 : {M} = tt.dot %a %b %0;
        %2 : {M} = arith.addf {sum_};
        %3 : f32 = arith.constant @0.0;
        {uses}
        tt.print %2 @"";
        tt.return; }};"""
    return fuse_dots(zg.parse(text.replace("f32", element)))


@pytest.mark.parametrize("sum_", ["%1 %c", "%c %1"])
def test_a_sum_with_a_dot_becomes_its_start(sum_: str) -> None:
    result = dots(sum_)
    verify(result)
    (_, fused) = [op for op in result.walk() if isinstance(op, tt.Dot)]  # The first has no use any more.
    assert fused.c is result.bodies[0].parameters[2]


def test_a_dot_that_is_used_twice_stays() -> None:
    assert "arith.addf" in names(dots("%1 %c", 'tt.print %1 @"";'))
    assert "arith.addf" in names(dots("%1 %1"))


def test_an_f16_sum_is_rounded_as_it_was() -> None:
    assert "arith.addf" in names(dots("%1 %c", element="f16"))


@zg.kernel
def accumulating_kernel(out, x, n):
    places = zg.add(zg.mul(zg.expand(zg.arange(0, 16), 1), 16), zg.expand(zg.arange(0, 16), 0))
    total = zg.zeros((16, 16), zg.f32)
    for _ in range(0, n):
        tile = zg.load(zg.add(x, places))
        total = zg.add(total, zg.dot(tile, tile))
    zg.store(zg.add(out, places), total)


def test_a_loop_carried_accumulator_is_the_start_of_its_dot() -> None:
    result = prepare(accumulating_kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f16), zg.i32))
    verify(result)
    assert "arith.addf" not in names(result)
    (loop,) = [op for op in result.walk() if isinstance(op, scf.For)]
    (dot,) = [op for op in result.walk() if isinstance(op, tt.Dot)]
    assert dot.c is loop.body.parameters[1]


@zg.kernel
def unrolled(out, n):
    for i in zg.range(0, n, loop_unroll_factor=4, flatten=True, disallow_acc_multi_buffer=True):
        zg.store(zg.add(out, i), i)


@zg.kernel
def not_unrolled(out, n):
    for i in zg.range(0, n, loop_unroll_factor=1):
        zg.store(zg.add(out, i), i)


def test_options_of_loops_that_are_ignored_are_named(recwarn: pytest.WarningsRecorder) -> None:
    prepare_for_gpu(unrolled.triton(zg.ptr(zg.i32), zg.i32))
    results = [str(warning.message) for warning in recwarn]
    assert results == [
        f"the option {name} of range is ignored: code for GPUs is made without it"
        for name in ("loop_unroll_factor", "disallow_acc_multi_buffer")
    ]
    assert recwarn.list[0].filename == __file__
    recwarn.clear()
    prepare_for_gpu(not_unrolled.triton(zg.ptr(zg.i32), zg.i32))
    assert not recwarn.list


@zg.kernel
def stepping_kernel(x, out, start, stop, step):
    places = zg.add(zg.mul(zg.expand(zg.arange(0, 16), 1), 16), zg.expand(zg.arange(0, 16), 0))
    total = zg.zeros((16, 16), zg.f32)
    count = 0
    for k in zg.range(start, stop, step, num_stages=2):
        tile = zg.load(zg.add(zg.add(x, k * 256), places))
        total = zg.dot(tile, tile, total)
        count += k
    zg.store(zg.add(out, places), zg.add(total, count))


def test_loops_of_dots_with_a_run_time_step_are_pipelined(recwarn) -> None:
    model = stepping_kernel.triton(zg.divisible(zg.ptr(zg.f16)), zg.ptr(zg.f32), *[zg.i32] * 3)
    result = prepare_for_gpu(model)
    verify(result)
    x = np.random.default_rng(0).standard_normal((8, 16, 16)).astype(np.float16)
    expected, actual = np.empty((2, 16, 16), np.float32)
    for numbers in (
        *((0, 8, 3), (1, 2, 5), (7, -1, -2), (6, 0, -6), (3, 3, 1), (3, 3, 5), (4, 0, 1), (0, 4, -1), (0, 8, 4)),
        *((0, 3, 2**31 - 1), (7, 2, -(2**31))),  # The step that follows the last index overflows.
    ):
        zg.run(model, 1, x, expected, *numbers)
        zg.run(result, 1, x, actual, *numbers)
        np.testing.assert_array_equal(actual, expected)
    assert "cp.async" in zg.compile(model).ptx and not recwarn.list


@zg.kernel
def widened_product(x, y, out, PRECISION: zg.constexpr, TURNED: zg.constexpr, DEPTH: zg.constexpr):
    at, k = zg.arange(0, 16), zg.arange(0, DEPTH)
    a = zg.cast(zg.load(x + zg.expand(at, 1) * DEPTH + zg.expand(k, 0)), zg.f32)
    rows, columns = (at, k) if TURNED else (k, at)
    b = zg.cast(zg.load(y + zg.expand(rows, 1) * columns.shape[0] + zg.expand(columns, 0)), zg.f32)
    product = zg.dot(a, zg.trans(b) if TURNED else b, input_precision=PRECISION)
    zg.store(out + zg.expand(at, 1) * 16 + zg.expand(at, 0), product)


@pytest.mark.parametrize(("types", "precision", "transposes", "depth", "narrow"), [
    (("bf16", "bf16"), "tf32", False, 16, True), (("f16", "f16"), "tf32", True, 32, True),
    (("bf16", "bf16"), "bf16x3", True, 16, True), (("f16", "f16"), "ieee", False, 16, False),
    (("f16", "bf16"), "tf32", False, 16, False), (("bf16", "f32"), "tf32", False, 16, False),
    (("bf16", "bf16"), "tf32", False, 8, False),
])  # fmt: skip
def test_dots_of_widened_operands_multiply_what_these_were(
    types: tuple[str, str], precision: str, transposes: bool, depth: int, narrow: bool
) -> None:
    pointers = [zg.ptr(getattr(zg, name)) for name in (*types, "f32")]
    model = widened_product.triton(*pointers, precision, transposes, depth)
    ready = prepare_for_gpu(model)
    (dot,) = (op for op in ready.walk() if isinstance(op, tt.Dot))
    assert (str(dot.a.type.element) != "f32") == narrow
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(16 * depth).astype(SCALARS[name].dtype) for name in types)
    results = [np.zeros(256, np.float32) for _ in range(2)]
    for kernel, out in zip((model, ready), results, strict=True):
        zg.run(kernel, (1,), x, y, out)
    np.testing.assert_allclose(results[1], results[0], rtol=2e-6, atol=1e-6)
