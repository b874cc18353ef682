"""Rewrites of floats by `simplify` give the same bits, but for those of NaN: identities for all numbers, in z3's theory
of floats or one by one, and folded constants. The document has all other rewrites of floats.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import z3
from conversions import alike, is_converted, sort_of
from meanings import meaning
from planted import Fault, edit, entry, must_find
from proving import Refuted, prove

import ziggurat as zg
from ziggurat.backend.ptx import elementwise_ops
from ziggurat.codemodel import numbers
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.scalars import MEANINGS, array_of
from ziggurat.codemodel.types import ScalarType, bf16, f8e4m3, f8e5m2, f16, f32, f64, i32, i64, scalar_element, u8, u32

ROOT = Path(__file__).parents[2]
identities, folds = (import_module(f"ziggurat.transforms.simplify.{name}") for name in ("identities", "fold"))
FLOATS = (f8e4m3, f8e5m2, bf16, f16, f32, f64)
THEORY = FLOATS[2:]
NUMBERS = (-0.0, 0.0, 1.0, -1.0, 2.0, 0.5)  # Constants beside an unknown operand.
BINARY = (
    arith.AddF, arith.SubF, arith.MulF, arith.DivF, arith.RemF, arith.MaximumF, arith.MinimumF, arith.MaxNumF,
    arith.MinNumF,
)  # fmt: skip


# Identities.


def expressions(scalar: ScalarType) -> Iterator[str]:
    """Ops on an unknown float, %x, twice or with a constant, and ops that may undo others; each gives %r."""
    for cls in BINARY:
        yield f"%r : T = {cls.NAME} %x %x;"
        for number in NUMBERS:
            yield f"%c : T = arith.constant @{number}; %r : T = {cls.NAME} %x %c;"
            yield f"%c : T = arith.constant @{number}; %r : T = {cls.NAME} %c %x;"
    for inner, outer in itertools.product(("arith.negf", "math.absf"), repeat=2):
        yield f"%y : T = {inner} %x; %r : T = {outer} %y;"
    for wide in FLOATS:
        if wide.bits > scalar.bits:
            for rounding in arith.Rounding:
                yield f"%y : {wide} = arith.extf %x; %r : T = arith.truncf %y @rounding={rounding.value};"
    integer = {8: "u8", 16: "i16", 32: "i32", 64: "i64"}[scalar.bits]
    yield f"%y : {integer} = arith.bitcast %x; %r : T = arith.bitcast %y;"
    for condition in ("true", "false"):
        yield f"%b : i1 = arith.constant @{condition}; %n : T = arith.negf %x; %r : T = arith.select %b %x %n;"


def run(model: Op, compute: Callable[..., Any], constant: Callable[..., Any], x: Any) -> Any:
    """The value that a function of one number returns."""
    (func,) = model.functions().values()
    values: dict[Value, Any] = dict(zip(func.bodies[0].parameters, [x], strict=True))
    for op in func.bodies[0].entry.ops:
        match op:
            case tt.Return():
                return values[op.values[0]]
            case arith.ConstantOp():
                values[op.result] = constant(op.value, scalar_element(op.type))
            case _:
                values[op.result] = compute(op, *(values[operand] for operand in op.operands))
    raise AssertionError(model)


def in_theory(number: Any, scalar: ScalarType) -> Any:
    return z3.FPVal(number, sort_of(scalar)) if scalar.is_float else z3.BitVecVal(number, scalar.bits)


def in_terms(op: Op, *values: Any) -> Any:
    """The meaning of an op, with bits as floats of the theory."""
    if isinstance(op, arith.Bitcast):
        target = scalar_element(op.type)
        return z3.fpBVToFP(values[0], sort_of(target)) if target.is_float else z3.fpToIEEEBV(values[0])
    if isinstance(op, arith.RemF):  # The theory has another remainder, rounded to nearest.
        scalar = scalar_element(op.result.type)
        return z3.Function(f"fmod {scalar}", *[sort_of(scalar)] * 3)(*values)
    return meaning(op, *values)


def on_arrays(op: Op, *values: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(MEANINGS[op](op, *np.broadcast_arrays(*values)))


def prove_identities(scalar: ScalarType) -> int:
    """Prove all expressions that `simplify` rewrites. The number of them."""
    count = 0
    for text in expressions(scalar):
        lines = f"{text} tt.return %r;".replace(": T ", f": {scalar} ")
        func = f'tt.func @"f" (%x : {scalar}){scalar} -> {{ {lines} }};'
        model = zg.parse(f"module ()void -> {{ {func} unreachable; }};")
        changed = zg.simplify(model)
        if str(changed) == str(model):
            continue
        count += 1
        if scalar in THEORY:
            x = z3.Const("x", sort_of(scalar))
            prove(run(model, in_terms, in_theory, x) == run(changed, in_terms, in_theory, x))
        else:
            x = np.arange(256, dtype=np.uint8).view(scalar.dtype)
            before, after = (run(form, on_arrays, array_of, x) for form in (model, changed))
            before, after = (np.broadcast_to(value, x.shape).astype(np.float32) for value in (before, after))
            same = (before.view(np.uint32) == after.view(np.uint32)) | (np.isnan(before) & np.isnan(after))
            if not same.all():
                raise Refuted(f"{text} for {x[~same][0]}")
    return count


@pytest.mark.parametrize("scalar", FLOATS, ids=str)
def test_identities(scalar: ScalarType) -> None:
    assert prove_identities(scalar) >= (6 if scalar == f8e5m2 else 12)


def test_all_rules_of_floats_are_proved() -> None:
    """The tables of `identities` have no other op on floats than those above."""
    tables = {*identities._NEUTRAL, *identities._IDEMPOTENT, *identities._CANCELLING, *identities._ABSORBING}
    tables |= {*identities._LIMITS, *identities._ASSOCIATIVE}
    assert {cls for cls in tables if issubclass(cls, arith.FloatBinary)} <= {*BINARY}
    undone = {cls for cls in identities._INVERSES if cls.NAME.endswith("f") or cls is arith.Bitcast}
    assert undone == {arith.NegF, arith.TruncF, arith.Bitcast}


# Folded constants.

EXTREMES = (
    0.0, -0.0, 1.0, -1.0, 0.1, 3.0, -7.5, 1e30, -1e30, 65504.0, 3e-8, 1e-40, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
UNARY = (
    arith.NegF, maths.AbsF, maths.Sqrt, tt.PreciseSqrt, maths.Floor, maths.Ceil, maths.Trunc, maths.RoundEven,
)  # fmt: skip
# Ops that are folded where they are exact: at a number, with the result.
EXACT: dict[type[Op], tuple[tuple[float, float], ...]] = {
    maths.Exp: ((0.0, 1.0), (-0.0, 1.0)), maths.Log: ((1.0, 0.0),), maths.Cos: ((0.0, 1.0), (-0.0, 1.0)),
    maths.Exp2: tuple((float(n), 2.0**n) for n in range(-126, 128)),
    maths.Log2: tuple((2.0**n, float(n)) for n in range(-126, 128)),
    maths.Rsqrt: tuple((4.0**n, 2.0**-n) for n in range(-63, 64)),
}  # fmt: skip


def prove_folded(op: Op, *operands: Any) -> bool:
    """Prove that an op on constants is folded to what the theory gives. Whether it is folded."""
    result = folds.evaluate(op, operands)
    if result is None:
        return False
    types = [scalar_element(value.type) for value in op.operands]
    target = scalar_element(op.result.type)
    values = [in_theory(number, scalar) for number, scalar in zip(operands, types, strict=True)]
    if isinstance(op, arith.Cast) and not isinstance(op, arith.Bitcast):
        bits = bits_of_number(result, target) if target.is_float else int(result)
        claim = is_converted(op, values[0], z3.BitVecVal(bits, target.bits))
    elif target.is_float:
        claim = alike(in_terms(op, *values), in_theory(result, target), target)
    else:
        claim = in_terms(op, *values) == int(result)
    if not z3.is_true(z3.simplify(claim)):
        prove(claim)
    return True


def operations(scalar: ScalarType) -> Iterator[tuple[Op, int]]:
    """Ops on floats of a type, and how many operands each has."""
    a, b, c = Builder.root([scalar] * 3).parameters
    for cls in BINARY:
        if cls is not arith.RemF:
            yield cls(a, b), 2
    yield from ((cls(a), 1) for cls in UNARY)
    yield from ((arith.CmpF(a, b, predicate), 2) for predicate in arith.FloatPredicate)
    yield maths.Fma(a, b, c), 3
    for target in FLOATS:
        if target.bits > scalar.bits:
            yield arith.ExtF(a, type=target), 1
        elif target.bits < scalar.bits:
            yield from ((arith.TruncF(a, type=target, rounding=rounding), 1) for rounding in arith.Rounding)
    for target in (u8, i32, u32, i64):
        yield (arith.FPToSI if target.signed else arith.FPToUI)(a, type=target), 1


@pytest.mark.parametrize("scalar", THEORY, ids=str)
def test_folded_constants(scalar: ScalarType) -> None:
    count = 0
    for op, arity in operations(scalar):
        values = EXTREMES if arity < 3 else EXTREMES[2:8]
        count += sum(prove_folded(op, *operands) for operands in itertools.product(values, repeat=arity))
    assert count > 2000


@pytest.mark.parametrize("scalar", THEORY, ids=str)
def test_folded_integers(scalar: ScalarType) -> None:
    for source, cls in ((i32, arith.SIToFP), (i64, arith.SIToFP), (u8, arith.UIToFP), (u32, arith.UIToFP)):
        low, high = source.limits
        (x,) = Builder.root([source]).parameters
        for number in (low, high, high - 1, 0, 1, 7, (1 << 24) + 1, (1 << 53) + 1, (1 << 62) + (1 << 38) + 1):
            if low <= number <= high:
                assert prove_folded(cls(x, type=scalar), number)


def test_functions_are_folded_where_they_are_exact() -> None:
    (x,) = Builder.root([f32]).parameters
    assert {*folds._EXACT_AT} == {*EXACT, maths.Sin, maths.Tanh, maths.Erf, maths.Approximate}
    for cls, points in EXACT.items():
        op = cls(x)
        for number, result in points:
            assert folds.evaluate(op, (number,)) == result
        for number in (0.3, -2.0 if cls is not maths.Exp2 else 0.7, 5.0 if cls is not maths.Exp2 else -0.5):
            assert folds.evaluate(op, (number,)) is None


# The document of the rewrites that are not bit-exact.

# The files that ask for an option of floats, or use an approximate instruction, each with its row of the document.
ROWS = {
    "backend/ptx/elementwise_ops.py": "exp, exp2",
    "backend/llvm/accurate.py": "tanh and erf",
    "backend/cpu/elementwise_ops.py": "functions of f32",
    "backend/cpu/reductions.py": "the order of sums",
    "backend/cpu/memory.py": "the order of sums",
    "backend/cpu/tiles.py": "products of bf16 in pairs",
    "backend/cpu/factors.py": "products of bf16 in pairs",
    "transforms/gpu/gpu_passes.py": "rounded once",
    "transforms/tiles/contract.py": "rounded once",
    "transforms/gpu/dots.py": "operands of products in tf32",
    # These read options, have no rule of floats but a function that programs name, or use an instruction for integers
    # (proved in test_emitted_divisions).
    "backend/cpu/emitter.py": "", "backend/cpu/code.py": "", "codemodel/gpu/options.py": "",
    "backend/llvm/routines.py": "", "backend/ptx/divisions.py": "", "transforms/calls/linear_algebra.py": "",
    "backend/mlir/arithmetic.py": "", "codemodel/dialects/math.py": "", "transforms/calls/arithmetic.py": "",
    "transforms/lift/calls.py": "",
}  # fmt: skip
HINTS = re.compile(
    r"fast_math|exact_math|\.approx|approximate\(|options\.contract|def contract|is_tf32|gpu\.RoundTf32\("
)


def document() -> str:
    text = (ROOT / "docs/reference/proofs.md").read_text(encoding="utf-8")
    return text.split("## Float rewrites that are not bit-exact")[1].split("\n## ")[0]


def test_the_document_has_all_rewrites_that_are_not_exact() -> None:
    rows = document()
    sources = [path for folder in ("backend", "transforms", "codemodel") for path in (ROOT / folder).rglob("*.py")]
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        code = path.read_text(encoding="utf-8")
        if name.startswith(("backend/simulator", "backend/proof")) or not HINTS.search(code):
            continue
        assert name in ROWS, f"{name} has a rule of floats: is it exact? If not, it goes into docs/reference/proofs.md"
        assert ROWS[name] in rows, f"docs/reference/proofs.md has no row for {name}"
    for cls in elementwise_ops._FAST:
        assert re.search(rf"\b{cls.NAME.removeprefix('math.')}\b", rows), cls.NAME


# Faults, each of which a proof above finds.


def prove_sum(cls: type[arith.FloatBinary]) -> bool:
    op = cls(*Builder.root([f16, f16]).parameters)
    return all(prove_folded(op, *operands) for operands in itertools.product((3.0, 0.1, 0.7, 1025.0), repeat=2))


FAULTS: list[tuple[Fault, Callable[[], object]]] = [
    (entry(identities._NEUTRAL, arith.AddF, 0.0), lambda: prove_identities(f16)),
    (entry(identities._NEUTRAL, arith.SubF, -0.0), lambda: prove_identities(f32)),
    (entry(identities._NEUTRAL, arith.MulF, -1.0), lambda: prove_identities(f64)),
    (entry(identities._NEUTRAL, arith.DivF, 2.0), lambda: prove_identities(bf16)),
    (entry(identities._NEUTRAL, arith.MaxNumF, 0.0), lambda: prove_identities(f16)),
    (entry(identities._ABSORBING, arith.MulF, 0.0), lambda: prove_identities(f16)),
    (lambda m: m.setattr(identities, "_IDEMPOTENT", (arith.MulF,)), lambda: prove_identities(f16)),
    (entry(identities._INVERSES, maths.AbsF, (arith.NegF,)), lambda: prove_identities(f16)),
    (lambda m: m.setattr(identities, "_saturates_infinities", lambda type_: False), lambda: prove_identities(f8e5m2)),
    (edit(identities._select, "then if constant", "otherwise if constant"),
     lambda: prove_identities(f16)),
    (edit(identities.same_number, "constant_key(a) == constant_key(b)", "a == b"),
     lambda: prove_identities(f32)),
    (entry(numbers.FLOATS, arith.SubF, operator.add), lambda: prove_sum(arith.SubF)),
    (edit(numbers.bits_of_number, "round(", "int("), lambda: prove_sum(arith.AddF)),
]  # fmt: skip

test_planted_faults = must_find(FAULTS)
