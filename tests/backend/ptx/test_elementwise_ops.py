"""Arithmetic as it is emitted, run on this machine against the reference; and which instructions are taken."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.scalars import MEANINGS, float_binary
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SCALARS

# Overflows and NaN are compared as well.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def meaning(name: str, element: str, a: Any, b: Any, *predicate: str) -> Any:
    """An op of two numbers on arrays."""
    value = tt.Poison(SCALARS[element]).result
    op = OPS[f"arith.{name}"](value, value, *predicate)
    return MEANINGS[op](op, a, b)


@pytest.mark.parametrize("name", ["shli", "shrsi", "shrui"])
@pytest.mark.parametrize("bits", [8, 32, 64])
def test_wide_shifts_shift_everything_out(name: str, bits: int, emission_on_host) -> None:
    element = f"{'i' if name == 'shrsi' else 'u'}{bits}"
    dtype = SCALARS[element].dtype
    random = np.random.default_rng(8)
    x = random.integers(0, 1 << 63, 500).astype(f"u{bits // 8}").view(dtype)
    by = np.concatenate([random.integers(0, bits, 250), random.integers(bits, 127, 250)]).astype(dtype)
    actual = emission_on_host(f"arith.{name}", [element, element], element)(
        x.view(f"u{bits // 8}"), by.view(f"u{bits // 8}")
    )
    np.testing.assert_array_equal(actual.view(dtype), meaning(name, element, x, by))


@pytest.mark.parametrize("name, cls", [
    ("maximumf", arith.MaximumF), ("minimumf", arith.MinimumF), ("maxnumf", arith.MaxNumF), ("minnumf", arith.MinNumF),
    ("addf", arith.AddF), ("mulf", arith.MulF), ("divf", arith.DivF),
])  # fmt: skip
@pytest.mark.parametrize("element", ["f8e4m3", "f8e5m2"])
def test_arithmetic_of_8_bit_floats(name: str, cls, element: str, emission_on_host, same) -> None:
    codes = np.arange(256, dtype=np.uint8)
    a, b = (part.ravel() for part in np.meshgrid(codes, codes))
    dtype = SCALARS[element].dtype
    with np.errstate(all="ignore"):
        true = float_binary(cls, a.view(dtype), b.view(dtype), SCALARS[element])
    actual = emission_on_host(f"arith.{name}", [element, element], element)(a, b)
    if name in ("maxnumf", "minnumf"):  # The host may give either zero; PTX orders them.
        zero = true.astype(np.float32) == 0
        actual, true = actual[~zero], true[~zero]
    same(actual.view(dtype), true)


@pytest.mark.parametrize("name", ["maximumf", "minimumf"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_the_larger_and_the_smaller_propagate_nan_and_order_zeros(
    name: str, element: str, emission_on_host, same
) -> None:
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, -1], SCALARS[element].dtype)
    a, b = (part.ravel() for part in np.meshgrid(special, special))
    cls = {"maximumf": arith.MaximumF, "minimumf": arith.MinimumF}[name]
    same(emission_on_host(f"arith.{name}", [element] * 2, element)(a, b), float_binary(cls, a, b, SCALARS[element]))


def pairs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Integers of all sizes, and the smallest and the largest beside each other."""
    random = np.random.default_rng(9)
    limits = np.iinfo(dtype)
    edges = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype)
    any_ = random.integers(limits.min, limits.max, 500, dtype=dtype, endpoint=True) >> random.integers(
        0, 8 * dtype.itemsize, 500
    ).astype(dtype)
    x, y = np.meshgrid(edges, edges)
    return np.concatenate([any_, x.ravel()]), np.concatenate([any_[::-1], y.ravel()])


@pytest.mark.parametrize("element", ["i8", "u8", "i16", "i32", "u32", "i64", "u64"])
def test_integers_wrap_around_and_divide_toward_zero(element: str, emission_on_host) -> None:
    dtype = np.dtype(SCALARS[element].dtype)
    x, y = pairs(dtype)
    raw = f"u{dtype.itemsize}"
    signed = dtype.kind == "i"
    names = ["addi", "subi", "muli", "andi", "ori", "xori"]
    names += ["maxsi", "minsi", "divsi", "remsi"] if signed else ["maxui", "minui", "divui", "remui"]
    for name in names:
        is_defined = y != 0  # Division by 0 is undefined.
        a, b = (x[is_defined], y[is_defined]) if name[:3] in ("div", "rem") else (x, y)
        with np.errstate(all="ignore"):
            true = meaning(name, element, a, b)
        actual = emission_on_host(f"arith.{name}", [element, element], element)(a.view(raw), b.view(raw))
        np.testing.assert_array_equal(actual.view(dtype), true, err_msg=name)


@pytest.mark.parametrize("element", ["i8", "u8", "i64", "u64"])
def test_integers_are_compared_with_their_sign(element: str, emission_on_host) -> None:
    dtype = np.dtype(SCALARS[element].dtype)
    x, y = pairs(dtype)
    raw, sign = f"u{dtype.itemsize}", "s" if dtype.kind == "i" else "u"
    for predicate in ("eq", "ne", *(sign + order for order in ("lt", "le", "gt", "ge"))):
        actual = emission_on_host(f"arith.cmpi @{predicate}", [element, element], "i1")(x.view(raw), y.view(raw))
        np.testing.assert_array_equal(actual, meaning("cmpi", element, x, y, predicate), err_msg=predicate)


@pytest.mark.parametrize("element", ["f8e4m3", "f8e5m2", "f16", "f32", "f64"])
@pytest.mark.parametrize("predicate", ["oeq", "une", "olt", "ole", "ogt", "oge"])
def test_nothing_but_une_holds_of_nan(element: str, predicate: str, emission_on_host) -> None:
    dtype = np.dtype(SCALARS[element].dtype)
    special = np.array([0.0, -0.0, np.nan, 1, -1, 2.0**-9, -448], np.float32).astype(dtype)
    a, b = (np.ascontiguousarray(part).ravel() for part in np.meshgrid(special, special))
    arguments = [part.view(np.uint8) if dtype.itemsize == 1 else part for part in (a, b)]
    actual = emission_on_host(f"arith.cmpf @{predicate}", [element, element], "i1")(*arguments)
    np.testing.assert_array_equal(actual, meaning("cmpf", element, a, b, predicate))
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert (actual[np.isnan(a) | np.isnan(b)] == (predicate == "une")).all()


@pytest.mark.parametrize("element", ["f8e4m3", "f16", "f64"])
def test_a_negated_number_has_the_other_sign_bit(element: str, emission_on_host) -> None:
    bits = SCALARS[element].bits
    x = (np.arange(256, dtype=np.uint64) << np.uint64(bits - 8)).astype(f"u{bits // 8}")
    arguments = x if bits == 8 else x.view(SCALARS[element].dtype)
    actual = emission_on_host("arith.negf", [element], element)(arguments).view(x.dtype)
    np.testing.assert_array_equal(actual, x ^ x.dtype.type(1 << (bits - 1)))


def test_a_choice_between_two_numbers(emission_on_host) -> None:
    condition, a, b = np.array([True, False]), np.array([1, 2], np.uint32), np.array([3, 4], np.uint32)
    assert emission_on_host("arith.select", ["i1", "i32", "i32"], "i32")(condition, a, b).tolist() == [1, 4]


@pytest.mark.parametrize("bits", [32, 64])
def test_the_high_half_of_a_product(bits: int, emission_on_host) -> None:
    dtype = np.dtype(f"u{bits // 8}")
    x, y = pairs(dtype)
    true = [int(a) * int(b) >> bits for a, b in zip(x, y, strict=True)]
    assert emission_on_host("tt.mulhiui", [f"u{bits}"] * 2, f"u{bits}")(x, y).tolist() == true


def emitted(lines: str, parameters: str, options: CompileOptions = DEFAULT_OPTIONS) -> str:
    """The LLVM text of a kernel with these lines."""
    module = parse(f"""gpu.module @target="sm_90a" @num_warps=1 ()void -> {{
        tt.func @"k" ({parameters})void -> {{ {lines} tt.return; }}; unreachable; }};""")
    assert isinstance(module, gpu.Module)
    return to_llvm(module, options)


def test_f32_is_divided_fast_unless_exactness_is_asked_for() -> None:
    divide = "%x : f32 = arith.divf %a %b; tt.store %p %x;"
    fast, exact = (
        emitted(divide, "%p : ptr<f32>, %a : f32, %b : f32", CompileOptions(exact_math=e, line_info=False))
        for e in (False, True)
    )
    assert "div.full.f32" in fast and "fdiv float" not in fast
    assert "div.full.f32" not in exact and "fdiv float" in exact
    wide = emitted(divide.replace("f32", "f64"), "%p : ptr<f64>, %a : f64, %b : f64")
    assert "fdiv double" in wide and "div.full" not in wide


@pytest.mark.parametrize(("index", "extension"), [("i32", "sext i32"), ("u32", "zext i32"), ("i64", None)])
@pytest.mark.parametrize(("pointee", "memory"), [("f16", "i16"), ("f64", "i64"), ("i1", "i8")])
def test_pointers_move_by_elements(index: str, extension: str | None, pointee: str, memory: str) -> None:
    """The offset is widened as its type says."""
    text = emitted(
        f"%q : ptr<{pointee}> = tt.addptr %p %n; tt.store %q %x;", f"%p : ptr<{pointee}>, %n : {index}, %x : {pointee}"
    )
    assert f"getelementptr {memory}, ptr addrspace(1)" in text
    assert (extension in text) if extension else not re.search(r"[sz]ext .* to i64", text)


def test_a_shift_by_a_constant_needs_no_test() -> None:
    text = "%c : i32 = arith.constant @{}; %y : i32 = arith.shli %a %c; tt.store %p %y;"
    parameters = "%p : ptr<i32>, %a : i32"
    inside, beyond = (emitted(text.format(by), parameters) for by in (31, 32))
    assert "icmp ult" not in inside and "select" not in inside
    assert "icmp ult i32 32, 32" in beyond and "select i1" in beyond


def test_a_constant_tensor_is_the_number_in_every_register(emission) -> None:
    emitter, (code, unit) = emission(
        """%c : tensor<x128, f32, "32 64 | 1 2 4 8 16 | "> = arith.constant @1.5; %d : i1 = arith.constant @true;""", ""
    )
    assert code == ["0x3FF8000000000000"] * 4 and unit == "true" and not emitter.lines


def test_copies_are_computed_once(emission) -> None:
    tensor = 'tensor<x32, i32, "0 | 1 2 4 8 16 | ">'
    emitter, (code,) = emission(f"%c : {tensor} = arith.addi %a %b;", f"%a : {tensor}, %b : {tensor}")
    assert code == ["%v1", "%v1"] and emitter.lines == ["  %v1 = add i32 %p0.0, %p1.0"]


def integer_offsets(x_ptr, y_ptr, out_ptr, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    x, y = zg.load(x_ptr), zg.load(y_ptr)
    rows = zg.add(zg.cast(at, x.dtype), x)
    scaled = zg.add(zg.mul(zg.add(zg.mul(rows, 3), 5), y), zg.mul(y, zg.add(rows, rows)))
    zg.store(zg.add(out_ptr, at), scaled)


@pytest.mark.parametrize("element", ["i32", "u32"])
def test_sums_and_products_share_what_registers_have_in_common(element: str) -> None:
    """1024 elements in 128 threads: 8 registers. The numbers overflow."""
    scalar = SCALARS[element]
    pointer = zg.ptr(scalar)
    compiled = zg.kernel(integer_offsets).compile(pointer, pointer, pointer, 1024)
    limits = np.iinfo(scalar.dtype)
    for x, y in ((limits.max - 3, 77777), (limits.min + 5, limits.max), (3, 0)):
        arguments = [np.array([value], scalar.dtype) for value in (x, y)]
        actual, true = np.zeros(1024, scalar.dtype), np.zeros(1024, scalar.dtype)
        compiled.simulate[1](*arguments, actual)
        zg.kernel(integer_offsets)[1](*arguments, true, 1024)
        np.testing.assert_array_equal(actual, true)
    assert len(re.findall(r"= mul i32", compiled.stages["llvm"])) < 16


def test_sums_and_products_of_poison() -> None:
    module = parse("""gpu.module @target="sm_90a" @num_warps=4 ()void -> {
        tt.func @"k" (%0 : ptr<i32>, %1 : i32)void -> {
            %2 : i32 = tt.poison; %3 : i32 = arith.addi %2 %1; %4 : i32 = arith.muli %1 %3; %5 : i32 = arith.muli %2 %1;
            tt.store %0 %4; tt.store %0 %5; tt.return; }; unreachable; };""")
    assert isinstance(module, gpu.Module)
    text = to_llvm(module)
    assert "= add i32 poison, %p1" in text and "= mul i32 %p1, poison" in text
