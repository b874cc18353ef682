"""Contraction of products and sums: where, and with which results."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.tiles.contract import contract


def contracted(text: str) -> str:
    model = zg.parse(text)
    result = contract(model)
    verify(result)
    assert contract(result) is result
    return str(result)


def function(body: str) -> str:
    return f'tt.func @"f" (%a : f32, %b : f32, %c : f32, %i : i32, %n : i32)void -> {{ {body} tt.return; }};'


def test_products_become_part_of_sums_and_differences() -> None:
    text = """
        %p : f32 = arith.mulf %a %b; %x : f32 = arith.addf %p %c; tt.print %x @"";
        %q : f32 = arith.mulf %b %c; %y : f32 = arith.subf %q %a; tt.print %y @"";
        %r : f32 = arith.mulf %a %c; %z : f32 = arith.subf %b %r; tt.print %z @"";
    """
    expected = """
        %x : f32 = math.fma %a %b %c; tt.print %x @"";
        %m : f32 = arith.negf %a; %y : f32 = math.fma %b %c %m; tt.print %y @"";
        %k : f32 = arith.negf %a; %z : f32 = math.fma %k %c %b; tt.print %z @"";
    """
    assert contracted(function(text)) == str(zg.parse(function(expected)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%x : f32 = arith.addf %p %c;", "%x : f32 = math.fma %a %b %c;"),
        ("%x : f32 = arith.addf %c %p;", "%x : f32 = math.fma %a %b %c;"),
        ("%x : f32 = arith.subf %p %c;", "%m1 : f32 = arith.negf %c; %x : f32 = math.fma %a %b %m1;"),
        ("%x : f32 = arith.subf %c %p;", "%m1 : f32 = arith.negf %a; %x : f32 = math.fma %m1 %b %c;"),
        ("%x : f32 = arith.addf %p %p;", "%x : f32 = math.fma %a %b %p;"),
    ],
)
def test_a_product_with_other_uses_stays_for_them(text: str, expected: str) -> None:
    product, uses = "%p : f32 = arith.mulf %a %b;", 'tt.print %x %p @"";'
    assert contracted(function(product + text + uses)) == str(zg.parse(function(product + expected + uses)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%x : f32 = arith.addf %m %c;", "%m1 : f32 = arith.negf %a; %x : f32 = math.fma %m1 %b %c;"),
        ("%x : f32 = arith.addf %c %m;", "%m1 : f32 = arith.negf %a; %x : f32 = math.fma %m1 %b %c;"),
        ("%x : f32 = arith.subf %c %m;", "%x : f32 = math.fma %a %b %c;"),
        (
            "%x : f32 = arith.subf %m %c;",
            "%k : f32 = arith.negf %c; %m1 : f32 = arith.negf %a; %x : f32 = math.fma %m1 %b %k;",
        ),
    ],
)
def test_a_negated_product_is_contracted(text: str, expected: str) -> None:
    negated, use = "%p : f32 = arith.mulf %a %b; %m : f32 = arith.negf %p;", 'tt.print %x @"";'
    assert contracted(function(negated + text + use)) == str(zg.parse(function(expected + use)))


@pytest.mark.parametrize("sum_of", ["arith.addf %s %t", "arith.addf %t %s"])
def test_a_product_of_scalars_is_contracted_into_a_sum_of_tensors(sum_of: str) -> None:
    tensor, use = "%t : tensor<x4, f32> = tt.splat %c;", 'tt.print %x @"";'
    product = "%p : f32 = arith.mulf %a %b; %s : tensor<x4, f32> = tt.splat %p;"
    fma = "%k : tensor<x4, f32> = tt.splat %a; %l : tensor<x4, f32> = tt.splat %b;"
    result = contracted(function(f"{tensor} {product} %x : tensor<x4, f32> = {sum_of}; {use}"))
    expected = f"{tensor} {fma} %x : tensor<x4, f32> = math.fma %k %l %t; {use}"
    assert result == str(zg.parse(function(expected)))


@pytest.mark.parametrize("first", [False, True])
def test_of_two_products_the_one_with_fewer_uses_is_contracted(first: bool) -> None:
    products = "%p : f32 = arith.mulf %a %b; %q : f32 = arith.mulf %b %c;"
    uses, factors = ("%q", "%a %b") if first else ("%p", "%b %c")
    result = contracted(function(f'{products} %x : f32 = arith.addf %p %q; tt.print %x {uses} @"";'))
    rest = products.split("; ")[first].rstrip(";")
    assert result == str(zg.parse(function(f'{rest}; %x : f32 = math.fma {factors} {uses}; tt.print %x {uses} @"";')))


@pytest.mark.parametrize(
    "text",
    [
        '%p : i32 = arith.muli %i %n; %x : i32 = arith.addi %p %n; tt.print %x @"";',
        "%p : f32 = arith.mulf %a %b; %1 : i32 = arith.constant @1;"
        ' scf.for %i %n %1 (%j : i32)void -> { %x : f32 = arith.addf %p %c; tt.print %x @""; scf.yield; };',
    ],
    ids=["integers", "before the loop"],
)
def test_other_products_stay(text: str) -> None:
    model = zg.parse(function(text))
    assert contract(model) is model


@zg.kernel
def mixed(x, y, z, out):
    at = zg.program_id(0)
    a, b, c = zg.load(x + at), zg.load(y + at), zg.load(z + at)
    zg.store(out + at, (a * b - c) * a + (b - a * c))


@zg.kernel
def shared(x, y, out, n):
    """x - p and p, where p = x · y is rounded for the second one only."""
    at = zg.program_id(0)
    a, b = zg.load(x + at), zg.load(y + at)
    product = a * b
    zg.store(out + at, a - product)
    zg.store(out + n + at, product)


@pytest.mark.parametrize(("dtype", "word"), [(zg.f16, "f16"), (zg.bf16, "bf16"), (zg.f32, "f32"), (zg.f64, "f64")])
def test_a_shared_product_is_rounded_only_where_it_is_used_itself(dtype: zg.ScalarType, word: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(64).astype(dtype.dtype) for _ in range(2))
    types = [zg.divisible(zg.ptr(dtype))] * 3
    fused, simulated = np.zeros(128, dtype.dtype), np.zeros(128, dtype.dtype)
    zg.run(contract(shared.triton(*types, zg.i32)), (64,), x, y, fused, 64)
    compiled = shared.compile(*types, zg.i32, num_warps=1)
    compiled.simulate[(64,)](x, y, simulated, 64)
    np.testing.assert_array_equal(simulated, fused)
    wide = x.astype(np.float64) - x.astype(np.float64) * y.astype(np.float64)
    assert dtype == zg.f64 or (fused[:64] == wide.astype(dtype.dtype)).all()
    np.testing.assert_array_equal(fused[64:], x * y)
    assert (fused[:64] != x - x * y).any()
    assert f"fma.rn.{word}" in compiled.ptx and "mul" in compiled.ptx


@pytest.mark.parametrize("dtype", [zg.f16, zg.f32, zg.f64])
def test_results_are_those_of_fma(dtype: zg.ScalarType) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(64).astype(dtype.dtype) for _ in range(3)]
    types = [zg.divisible(zg.ptr(dtype))] * 4
    plain, fused, simulated = (np.zeros(64, dtype.dtype) for _ in range(3))
    mixed[(64,)](*arrays, plain)
    zg.run(contract(mixed.triton(*types)), (64,), *arrays, fused)
    compiled = mixed.compile(*types, num_warps=1)
    compiled.simulate[(64,)](*arrays, simulated)
    np.testing.assert_array_equal(simulated, fused)
    a, b, c = (array.astype(np.float64) for array in arrays)
    products = np.abs(a * b * a) + np.abs(c * a) + np.abs(b) + np.abs(a * b) + np.abs(c)
    assert (np.abs(plain.astype(np.float64) - fused) <= 4 * np.finfo(dtype.dtype).eps * products).all()
    assert dtype != zg.f32 or (plain != fused).any()
    assert "fma.rn" in compiled.ptx and "arith.mulf" not in str(compiled.stages["gpu"])


def test_the_pass_is_seen_and_can_be_switched_off() -> None:
    types = [zg.divisible(zg.ptr(zg.f32))] * 4
    plain, exact = (mixed.compile(*types, **argument) for argument in ({"contract": False}, {"exact_math": True}))
    assert "fma" not in plain.ptx and "fma" not in exact.ptx
    models = {snapshot.name: str(snapshot.model) for snapshot in mixed.compile(*types).passes}
    assert "math.fma" not in models["prepare"] and models["contract"].count("math.fma") == 3


def test_functions_of_the_library_stay() -> None:
    from ziggurat.frontends.library.libdevice import FUNCTIONS

    tan = FUNCTIONS["tan"]

    @zg.kernel
    def keep(x, out):
        zg.store(out, tan(zg.load(x)))

    types = [zg.ptr(zg.f32)] * 2
    texts = [keep.compile(*types, contract=requested, line_info=False).ptx for requested in (False, True)]
    assert texts[0] == texts[1]
