"""The meanings of elementwise ops over the domains: on known numbers all give the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import z3

import ziggurat as zg
from ziggurat.backend.proof.elements import Bit, Sum
from ziggurat.backend.proof.fingerprints import Fingerprints
from ziggurat.backend.proof.prove import same_in_reals
from ziggurat.backend.proof.terms import Terms, number_of
from ziggurat.codemodel import elementwise
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.numbers import on_numbers
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import SCALARS, ScalarType, scalar_element

INTEGERS = [scalar for scalar in SCALARS.values() if scalar.is_int]
BITS = (maths.AbsI, maths.CtPop, maths.CtLz, maths.BitReverse)
DIVISIONS = (arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI)


def made(cls: type[Op], scalars: tuple[ScalarType, ...], *arguments: Any, **attributes: Any) -> list[Op]:
    """The op on values of these types; none where it does not take them."""
    try:
        op = cls(*(tt.Poison(scalar).result for scalar in scalars), *arguments, **attributes)
    except BuildError:
        return []
    return [op]


def ops() -> list[Op]:
    """Each elementwise op of integers on each type."""
    made_ops: list[Op] = []
    for scalar in INTEGERS:
        for cls in (*elementwise.INTEGERS, tt.MulHiUI):
            made_ops += made(cls, (scalar, scalar))
        for cls in BITS:
            made_ops += made(cls, (scalar,))
        for predicate in arith.IntPredicate:
            made_ops += made(arith.CmpI, (scalar, scalar), predicate)
        made_ops += made(arith.Select, (SCALARS["i1"], scalar, scalar))
        for cls, target in itertools.product((arith.ExtSI, arith.ExtUI, arith.TruncI, arith.Bitcast), INTEGERS):
            made_ops += made(cls, (scalar,), type=target)
    return made_ops


def numbers(scalar: ScalarType) -> list[int]:
    low, high = scalar.limits if scalar.bits > 1 else (0, 1)
    return sorted(n for n in {low, low + 1, 0, 1, 5, high // 3, high - 1, high} if low <= n <= high)


def element(domain: Terms, number: int, scalar: ScalarType, *, certain: bool) -> Any:
    """A number as an element: known, or a variable that z3 is assignment to be that number."""
    if certain:
        return domain.constant(number, scalar)
    return domain.unknown(f"x{number} {scalar}", scalar)


def value(result: Any, scalar: ScalarType, assignment: list[tuple[Any, Any]]) -> int:
    """The number that an element is, where the variables are what they are assignment to be."""
    if result.known is None:
        term = z3.simplify(z3.substitute(result.term, *assignment))
        result = Bit(term) if z3.is_bool(term) else Sum.of(term)
    return number_of(result, scalar)


@pytest.mark.parametrize("certain", [True, False])
def test_terms_mean_what_numbers_do(certain: bool) -> None:
    wrong: list[Any] = []
    for op in ops():
        types = [scalar_element(operand.type) for operand in op.operands]
        for arguments in itertools.product(*map(numbers, types)):
            if isinstance(op, DIVISIONS) and not arguments[1]:
                continue
            if isinstance(op, arith.ShlI | arith.ShrSI | arith.ShrUI) and not 0 <= arguments[1] < types[0].bits:
                continue
            domain = Terms()
            values = [element(domain, n, scalar, certain=certain) for n, scalar in zip(arguments, types, strict=True)]
            constants = [domain.constant(n, scalar) for n, scalar in zip(arguments, types, strict=True)]
            assignment = [(v.term, c.term) for v, c in zip(values, constants, strict=True) if v.known is None]
            result = elementwise.MEANINGS[op](domain, op, *values)
            actual, expected = value(result, scalar_element(op.result.type), assignment), on_numbers(op, arguments)
            if actual != expected:
                wrong.append((op.NAME, str(types[0]), arguments, actual, expected))
    assert not wrong


def _traced(body: Any) -> Any:
    def traced(x, y, out):
        at = zg.arange(0, 32)
        a, b = zg.load(zg.add(x, at)), zg.load(zg.add(y, at))
        zg.store(zg.add(out, at), body(a, b))

    pointer = zg.ptr(zg.f32)
    return zg.trace(traced, pointer, pointer, pointer)


ALIKE = {
    "a product of a sum": (lambda a, b: (a + b) * a, lambda a, b: a * a + b * a),
    "a fused product": (lambda a, b: a * b + a, lambda a, b: zg.fma(a, b, a)),
    "a sum in another order": (lambda a, b: a + (b + a), lambda a, b: (a + b) + a),
    "a quotient": (lambda a, b: a / b * b, lambda a, b: a),
    "the larger": (lambda a, b: zg.maximum(a, b), lambda a, b: zg.maximum(b, a)),
    "a root": (lambda a, b: 1.0 / zg.sqrt(a), lambda a, b: zg.rsqrt(a)),
}
UNLIKE = {
    "a difference": (lambda a, b: a - b, lambda a, b: b - a),
    "a constant": (lambda a, b: a * 2.0, lambda a, b: a * 2.5),
    "a function": (lambda a, b: zg.exp(a), lambda a, b: zg.log(a)),
    "an extreme": (lambda a, b: zg.maximum(a, b), lambda a, b: zg.minimum(a, b)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_models_of_the_same_real_numbers(name: str) -> None:
    assert same_in_reals(*map(_traced, ALIKE[name]))


@pytest.mark.parametrize("name", UNLIKE)
def test_models_of_other_real_numbers(name: str) -> None:
    assert not same_in_reals(*map(_traced, UNLIKE[name]))


def test_a_product_of_matrices_in_real_numbers() -> None:
    def product(split: bool) -> Any:
        def traced(x, y, out):
            rows, columns = zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 16), 0)
            at = zg.add(zg.mul(rows, 16), columns)
            a, b = zg.load(zg.add(x, at)), zg.load(zg.add(y, at))
            zero = zg.zeros((16, 16), zg.f32)
            total = zg.add(zg.dot(a, b, zero), zg.dot(a, b, zero)) if split else zg.dot(zg.add(a, a), b, zero)
            zg.store(zg.add(out, at), total)

        pointer = zg.ptr(zg.f32)
        return zg.trace(traced, pointer, pointer, pointer)

    assert same_in_reals(product(True), product(False))


def test_residues_are_of_the_numbers() -> None:
    domain = Fingerprints()
    f32 = SCALARS["f32"]
    add = arith.AddF(tt.Poison(f32).result, tt.Poison(f32).result)
    bits = [Sum.number(int(np.float32(number).view(np.uint32)), 32) for number in (0.5, 0.25, 0.75)]
    assert domain.floats(add, *bits[:2]).constant == domain.residue(bits[2], f32).constant
