"""Affine forms (`analysis/affine`) and what `apart` concludes from them, for integers without an end.

Both take integers not to wrap around. So a form is the same polynomial of unknown integers as what the kernel computes:
z3 writes both as sums of products and compares these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
import z3
from generated_indices import generated
from planted import edit, must_find
from proving import Refuted, prove

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import BlockParameter, Op, Value
from ziggurat.codemodel.types import element_of
from ziggurat.transforms.analysis import affine, apart
from ziggurat.transforms.analysis.affine import Form, Forms, Poly, product_of, sum_of

COUNT = 60
PLACE = z3.Int("place")
REMAINDER = z3.Function("remainder", z3.IntSort(), z3.IntSort(), z3.IntSort())
LESS: dict[str, Callable[[Any, Any], Any]] = {
    "slt": lambda a, b: a < b, "sle": lambda a, b: a <= b, "sgt": lambda a, b: a > b, "sge": lambda a, b: a >= b,
}  # fmt: skip


def polynomial(term: Any) -> Any:
    """A term as a sum of products."""
    return z3.simplify(term, som=True)


def require(claim: Any) -> None:
    prove(polynomial(claim))


class Exact:
    """The numbers of a kernel as integers that do not wrap around: of tensors, those at `place`."""

    def __init__(self, forms: Forms) -> None:
        self.forms = forms

    def of(self, value: Value) -> Any:
        if isinstance(value, BlockParameter):
            return z3.Int(f"value {id(value)}")
        match value.op:
            case arith.ConstantOp() as op:
                return z3.IntVal(int(op.value))
            case tt.MakeRange() as op:
                return op.start + PLACE
            case tt.Splat() as op:
                return self.of(op.value)
            case arith.RemSI() as op:
                return REMAINDER(polynomial(self.of(op.lhs)), polynomial(self.of(op.rhs)))
            case op:
                sides = [self.of(operand) for operand in op.operands]
                match op:
                    case arith.SubI():
                        return sides[0] - sides[1]
                    case arith.MulI():
                        return sides[0] * sides[1]
                    case arith.AddI() | tt.AddPtr():
                        return sides[0] + sides[1]
                    case arith.CmpI():
                        return LESS[op.predicate.value](*sides)
        raise NotImplementedError(value.op.NAME)

    def poly(self, poly: Poly) -> Any:
        """A polynomial of a form."""
        total: Any = z3.IntVal(0)
        for product, factor in poly.items():
            term: Any = z3.IntVal(factor)
            for number in product:
                term = term * self.of(self.forms.atoms[number])
            total = total + term
        return total

    def element(self, form: Form, place: Any = PLACE) -> Any:
        """The element of a form at a place."""
        total = self.poly(form.base) + (0 if form.origin is None else self.of(form.origin))
        for axis in form.axes:
            index = place
            if axis.wrap is not None:
                first, size = axis.wrap
                index = REMAINDER(polynomial(self.poly(first) + place), polynomial(self.poly(size)))
            total = total + self.poly(axis.stride) * index
        return total


def check_forms(model: Op) -> int:
    """Check the form of each value of a kernel without loops, and the limits of its mask. Returns how many."""
    (func,) = (op for op in model.walk() if isinstance(op, tt.Func))
    forms, count = Forms(func), 0
    exact = Exact(forms)
    for op in func.walk():
        if isinstance(op, tt.Store):
            limits, whole = forms.limits(op.mask, 1)
            assert op.mask is not None
            mask, inside = exact.of(op.mask), z3.And(*(PLACE + exact.poly(number) < 0 for _, number in limits))
            require(mask == inside if whole else z3.Implies(mask, inside))
            count += whole
        elif element_of(op.result.type) != zg.i1 and (form := forms.form(op.result)) is not None:
            require(exact.element(form) == exact.of(op.result))
            count += len(form.axes)
    return count


def test_forms_and_limits() -> None:
    assert sum(check_forms(generated(seed)) for seed in range(COUNT)) > 3 * COUNT


@zg.kernel
def carried(x, out, n, m, start, form: zg.constexpr):
    pointer, at = out, m
    for i in range(start, n, 2):
        zg.store(pointer + at, 1)
        pointer = pointer + 4
        if form == 0:
            pointer = pointer + 2 * m
        at = at + 6 * n


def check_carried(form: int) -> None:
    """Check by induction the form of what a loop carries: what it is at first, and that it moves as the loop does."""
    model = zg.simplify(carried.triton(zg.ptr(zg.i32), zg.ptr(zg.i32), zg.i32, zg.i32, zg.i32, form))
    (loop,) = (op for op in model.walk() if isinstance(op, scf.For))
    forms = Forms(next(op for op in model.walk() if isinstance(op, tt.Func)))
    exact = Exact(forms)
    index, *parameters = loop.body.parameters
    count = 0
    for parameter, initial, after in zip(parameters, loop.initial, loop.body.entry.terminator.operands, strict=True):
        shape = forms.form(parameter)
        if shape is None:
            continue
        here, number = exact.element(shape), exact.of(index)
        require(z3.substitute(here, (number, exact.of(loop.start))) == exact.of(initial))
        rise = z3.substitute(here, (number, number + 2)) - here
        require(rise == exact.of(after) - exact.of(parameter))
        count += 1
    assert count == 2


@pytest.mark.parametrize("form", range(2))
def test_carried_values(form: int) -> None:
    check_carried(form)


# Polynomials, and the conclusions of `apart`.


def drawn(random: Random) -> Poly:
    terms = [(tuple(sorted(random.choices(range(3), k=random.randrange(3)))), random.randint(-6, 6)) for _ in range(3)]
    return {product: factor for product, factor in terms if factor}


def value_of(poly: Poly) -> Any:
    atoms = [z3.Int(f"atom {number}") for number in range(3)]
    return sum((factor * z3.Product([z3.IntVal(1), *(atoms[n] for n in product)]) for product, factor in poly.items()),
               start=z3.IntVal(0))  # fmt: skip


def check_polynomials(seed: int) -> int:
    """Check sums, products, quotients and comparisons of drawn polynomials. Returns how many quotients there are."""
    random = Random(seed)
    a, b, factor = drawn(random), drawn(random), random.randint(-3, 3)
    require(value_of(sum_of(a, b, factor)) == value_of(a) + factor * value_of(b))
    require(value_of(product_of(a, b)) == value_of(a) * value_of(b))
    further = sum_of(a, {(): random.randint(-2, 2)})
    if apart._is_at_least(a, further):
        require(value_of(a) >= value_of(further))
    absolute = apart._absolute(a)
    require(z3.Or(value_of(absolute) == value_of(a), value_of(absolute) == -value_of(a)))
    term = dict(list(b.items())[:1])
    quotient = apart._quotient(product_of(a, term), term) if term else None
    if quotient is not None:
        require(value_of(quotient) * value_of(term) == value_of(a) * value_of(term))
    return quotient is not None


def test_polynomials() -> None:
    assert sum(map(check_polynomials, range(COUNT))) > COUNT // 2


def digits(stride: Any, width: Any, numbers: Sequence[Any], rest: Sequence[Any]) -> Any:
    """Two digits, with a stride no less than the distance of all that is below them, are equal if the sums are."""
    (a, b), (x, y) = numbers, rest
    return z3.Implies(z3.And(x - y < width, y - x < width, stride * a + x == stride * b + y), z3.And(a == b, x == y))


def test_digits_of_an_address() -> None:
    """So `apart` takes the indices of loops from an address, from the last digit on."""
    stride, width, a, b, x, y, limit = z3.Ints("stride width a b x y limit")
    for wide in (width <= stride, width <= -stride):
        prove(z3.Implies(wide, digits(stride, width, (a, b), (x, y))))
    with pytest.raises(Refuted):
        prove(z3.Implies(width <= 4, digits(z3.IntVal(3), width, (a, b), (x, y))))
    # With a digit below a limit, the next stride must be no less than that many of these: `_digits`. A product is known
    # by the distance of the digits.
    distance, product, most = a - b, z3.Int("product"), z3.Int("most")
    inside = z3.And(a >= 0, b >= 0, a < limit, b < limit)
    for size in (stride, -stride):
        prove(z3.Implies(z3.And(size > 0, distance <= limit - 1), size * distance <= size * (limit - 1)))
    below = z3.And(product <= most - stride, -product <= most - stride, x - y < width, y - x < width, width <= stride)
    prove(z3.Implies(below, z3.And(product + x - y < most, y - x - product < most)))
    prove(z3.Implies(inside, z3.And(distance <= limit - 1, -distance <= limit - 1)))


def test_rows_of_a_mask() -> None:
    """`_rows`: coordinates that are at least 0, and that both masks let through, are less than the size apart."""
    a, b, size, least, rise = z3.Ints("a b size least rise")
    inside = z3.And(a >= 0, b + rise >= 0, a < size, b + rise < size)
    prove(z3.Implies(inside, z3.And(a - b - rise < size, b + rise - a < size)))
    # With a stride that is not positive, a digit is at its least at its limit.
    prove(z3.Implies(z3.And(least < 0, a >= 0, a <= size), least * a >= least * size))


def test_quotient_and_remainder_make_a_number() -> None:
    """A quotient and a remainder determine a number; a remainder those by divisors of its divisor; and a quotient of
    a number below a multiple of the divisor is below the factor. By all divisors: z3 is told what a quotient is."""
    a, b, divisor, factor = z3.Ints("a b divisor factor")
    first, second, rest, inner = z3.Ints("first second rest inner")

    def divided(number: Any, by: Any, quotient: Any, remainder: Any) -> Any:
        return z3.And(by > 0, number == by * quotient + remainder, remainder >= 0, remainder < by)

    prove(z3.Implies(z3.And(divided(a, divisor, first, rest), divided(b, divisor, first, rest)), a == b))
    unique = z3.And(divided(a, divisor, first, rest), divided(a, divisor, second, inner))
    prove(z3.Implies(unique, z3.And(first == second, rest == inner)))
    # If rest = divisor · second + inner, the quotient of divisor · factor · first + rest is factor · first + second.
    claim = polynomial(
        divisor * (factor * first + second) + inner == divisor * factor * first + divisor * second + inner
    )
    prove(claim)
    small = z3.And(divided(a, divisor, first, rest), a >= 0, a < divisor * factor)
    prove(z3.Implies(small, z3.And(first >= 0, first < factor)))


@pytest.mark.parametrize(("steps", "masked"), [(64, True), (128, True), (64, False)])
def test_blocks_of_two_iterations(steps: int, masked: bool) -> None:
    """The kernel of the module's text: tiles in rows of n numbers, of which each is two blocks."""
    n, tile, other, i, j = z3.Ints("n tile other i j")
    columns = [tile % 8 * 128 + i, other % 8 * 128 + j + steps - 64]
    inside = z3.And(tile >= 0, other >= 0, *(z3.And(within >= 0, within < 64) for within in (i, j)))
    masks = z3.And(*(column < n for column in columns if masked))
    first, second = (number / 8 * n + column for number, column in zip((tile, other), columns, strict=True))
    claim = z3.Implies(z3.And(inside, masks, n > 0, first == second), tile == other)
    rows = digits(n, n, (tile / 8, other / 8), columns)
    if masked:
        prove(claim, [rows])
    else:
        with pytest.raises(Refuted):
            prove(claim, [rows, n == 200, other == 8])


FAULTS: Sequence[tuple[Any, str, str]] = [
    (affine.added, "sum_of(a.base, b.base, factor)", "sum_of(a.base, b.base)"),
    (affine.sum_of, "+ factor * coefficient", "+ coefficient"),
    (affine.product_of, "x * y", "x + y"),
    (Forms._computed, "op.start", "0"),
    (Forms._remainder, "strides == [Axis(ONE)]", "True"),
    (Forms._parameter, "coefficient // step", "coefficient"),
    (Forms._parameter, "start.base, -1", "start.base"),
    (Forms.limits, "sum_of(difference.base, {(): slack})", "difference.base"),
    (apart._quotient, "factors.remove(number)", "pass"),
    (apart._is_at_least, ">= 0", ">= -1"),
]


def prove_forms() -> None:
    for form in range(2):
        check_carried(form)
    for seed in range(4 * COUNT):
        check_forms(generated(seed))
        check_polynomials(seed)


test_planted_faults = must_find(((edit(*fault), prove_forms) for fault in FAULTS), (AssertionError, ZeroDivisionError))
