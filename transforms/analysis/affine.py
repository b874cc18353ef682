"""Integers and pointers as affine forms: a polynomial over scalars, plus index · stride along each axis.

    %33 = tt.addptr (tt.splat %0) (range · %6)         base %0, stride %6 along the axis

Scalars are polynomials over the values that are no sums or products; values that a loop moves by the same distance in
each iteration are polynomials of its index. As in `axis_info`, integers are taken not to wrap around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.types import PtrType, TensorType, element_of, i32, i64, shape_of
from ziggurat.transforms.analysis.components import component_of
from ziggurat.transforms.analysis.queries import constant_of, owners_of

_TERMS = 32  # Values of more terms are not followed: repeated squaring makes exponentially many.

# A sum of products: for each product of values, in the order of their numbers, its coefficient.
Poly = Mapping[tuple[int, ...], int]
ZERO: Poly = {}
ONE: Poly = {(): 1}


@attrs.frozen
class Axis:
    """The numbers along an axis: `stride` · index. The index counts from 0, or it is (`wrap`[0] + the count) modulo
    `wrap`[1]."""

    stride: Poly = ZERO
    wrap: tuple[Poly, Poly] | None = None


@attrs.frozen
class Form:
    """Integers or pointers, as the sum of `base` and the numbers along each axis. Pointers are so many elements after
    the parameter `origin`. `wide` is the part of `base` that an i32 may not hold, as 64 bits were computed with."""

    base: Poly
    axes: tuple[Axis, ...] = ()
    origin: Value | None = None
    wide: Poly = ZERO

    @property
    def uniform(self) -> bool:
        """Whether all elements are the same integer."""
        return self.origin is None and not any(axis.stride for axis in self.axes)


def sum_of(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """The sum of a and `factor` times b."""
    total = dict(a)
    for product, coefficient in b.items():
        total[product] = total.get(product, 0) + factor * coefficient
    return {product: coefficient for product, coefficient in total.items() if coefficient}


def product_of(a: Poly, b: Poly) -> Poly:
    """The product of two polynomials."""
    product: Poly = {}
    for monomial, x in a.items():
        for other, y in b.items():
            product = sum_of(product, {tuple(sorted((*monomial, *other))): x * y})
    return product


def added(a: Form | None, b: Form | None, factor: int = 1) -> Form | None:
    """The sum of a and `factor` times b."""
    if a is None or b is None or (b.origin is not None and (a.origin is not None or factor != 1)):
        return None
    axes: list[Axis] = []
    for x, y in zip(a.axes, b.axes, strict=True):
        if x.stride and y.stride and x.wrap != y.wrap:
            return None
        axes.append(Axis(sum_of(x.stride, y.stride, factor), x.wrap if x.stride else y.wrap))
    wide = sum_of(a.wide, b.wide, factor)
    return Form(sum_of(a.base, b.base, factor), tuple(axes), a.origin or b.origin, wide)


def _times(a: Form | None, b: Form | None) -> Form | None:
    if a is None or b is None or not (a.uniform or b.uniform):
        return None
    a, b = (b, a) if a.uniform else (a, b)
    if a.origin is not None:
        return None
    return Form(product_of(a.base, b.base), tuple(Axis(product_of(axis.stride, b.base), axis.wrap) for axis in a.axes))


class Forms:
    """The forms of the values of a function."""

    def __init__(self, func: tt.Func) -> None:
        self.func = func
        self.atoms: list[Value] = []
        self.forms: dict[Value, Form | None] = {}

    def form(self, value: Value) -> Form | None:
        """The form of an integer, a pointer, or a tensor of these; None if it is not known."""
        if value not in self.forms:
            self.forms[value] = None  # While it is computed from itself.
            form = self._computed(value)
            if form is not None and any(len(p) > _TERMS for p in (form.base, *(axis.stride for axis in form.axes))):
                form = None
            if form is None and value.type in (i32, i64):
                form = Form(self._atom(value))
            if form is not None and isinstance(value, OpResult) and self._is_wide(value.op):
                form = attrs.evolve(form, wide=form.base)
            self.forms[value] = form
        return self.forms[value]

    def _is_wide(self, op: Op) -> bool:
        """Whether an op multiplies in 64 bits, or adds scalars in 64 bits: two numbers, or a number to a moved pointer,
        both with a part that an i32 holds.

        A tensor's sum is taken to exceed an i32 no more than its terms: these move within the rows."""
        if isinstance(op, arith.AddI | arith.SubI | tt.AddPtr):
            forms = [self.form(operand) for operand in op.operands]
            narrow = all(form is not None and sum_of(form.base, form.wide, -1) for form in forms)
            return narrow and op.result.type != i32 and not isinstance(op.result.type, TensorType)
        return isinstance(op, arith.MulI) and element_of(op.result.type) == i64

    def _atom(self, value: Value) -> Poly:
        if value not in self.atoms:
            self.atoms.append(value)
        return {(self.atoms.index(value),): 1}

    def _computed(self, value: Value) -> Form | None:
        element = element_of(value.type)
        if element not in (i32, i64) and not isinstance(element, PtrType):
            return None
        source, _ = component_of(value)
        if isinstance(source, BlockParameter):
            return self._parameter(source)
        assert isinstance(source, OpResult)
        rank = len(shape_of(value.type))
        match source.op:
            case arith.ConstantOp() as op if isinstance(op.value, int):
                return Form(sum_of({}, {(): int(op.value)}), (Axis(),) * rank)
            case tt.MakeRange() as op:
                return Form(sum_of({}, {(): op.start}), (Axis(ONE),))
            case tt.Splat() as op:
                inner = self.form(op.value)
                return None if inner is None else attrs.evolve(inner, axes=(Axis(),) * rank)
            case tt.ExpandDims() | tt.Broadcast() | tt.Trans() as op:
                inner = self.form(op.value)
                return None if inner is None else attrs.evolve(inner, axes=_moved(op, inner.axes))
            case arith.AddI() | arith.SubI() as op:
                return added(self.form(op.lhs), self.form(op.rhs), 1 if isinstance(op, arith.AddI) else -1)
            case tt.AddPtr() as op:
                return added(self.form(op.ptr), self.form(op.offset))
            case arith.MulI() as op:
                return _times(self.form(op.lhs), self.form(op.rhs))
            case arith.RemSI() as op:
                return self._remainder(op)
            case arith.ExtSI() as op:
                return self.form(op.operand)
            case tt.Hint() | gpu.ConvertLayout() as op:
                return self.form(op.value)
            case _:
                return None

    def _remainder(self, op: arith.RemSI) -> Form | None:
        """A tensor of two or more consecutive numbers, modulo a scalar."""
        dividend, divisor = self.form(op.lhs), self.form(op.rhs)
        if dividend is None or divisor is None or not divisor.uniform or dividend.uniform:
            return None
        wrap = dividend.base, divisor.base
        axes = tuple(Axis(ONE, wrap) if axis == Axis(ONE) else axis for axis in dividend.axes)
        sizes = zip(dividend.axes, shape_of(op.result.type), strict=True)
        strides = [axis for axis, size in sizes if axis.stride and size > 1]
        return Form({}, axes) if strides == [Axis(ONE)] else None

    def _parameter(self, value: BlockParameter) -> Form | None:
        """A parameter of the function, or a value that a loop carries and moves by the same in each iteration."""
        owner = value.owner
        if owner is self.func:
            return Form({}, origin=value) if isinstance(value.type, PtrType) else None
        if not isinstance(owner, scf.For) or value.index == 0:
            return None
        step, start = constant_of(owner.step), self.form(owner.start)
        initial, stepped = self.form(owner.initial[value.index - 1]), Form({}, (Axis(),) * len(shape_of(value.type)))
        here: Value = owner.body.entry.terminator.operands[value.index - 1]
        while here is not value:
            op = here.op
            if isinstance(op, tt.AddPtr):
                here, by = op.ptr, op.offset
            elif isinstance(op, arith.AddI):
                here, by = (op.rhs, op.lhs) if op.rhs is value else (op.lhs, op.rhs)
            else:
                return None
            total = added(stepped, self.form(by))
            if total is None or not total.uniform:
                return None
            stepped = total
        if initial is None or start is None or not isinstance(step, int) or not step:
            return None
        inside = any(owner in owners_of(self.atoms[number]) for product in stepped.base for number in product)
        if inside or any(coefficient % step for coefficient in stepped.base.values()):
            return None
        each = {product: coefficient // step for product, coefficient in stepped.base.items()}
        count = sum_of(self._atom(owner.body.parameters[0]), start.base, -1)
        further = product_of(count, each)
        # Pointers advance in 64 bits: an i32 may not hold what all iterations add.
        is_wide = bool(stepped.wide) or isinstance(value.type, PtrType) or value.type == i64
        wide = sum_of(initial.wide, further) if is_wide else initial.wide
        return attrs.evolve(initial, base=sum_of(initial.base, further), wide=wide)

    def is_index(self, poly: Poly) -> bool:
        """Whether a polynomial is known to be an i32 of 0 or more."""
        return False

    def limits(self, mask: Value | None, rank: int) -> tuple[list[tuple[int, Poly]], bool]:
        """Conditions index + number < 0, by axis, that hold where a mask is true; and whether it is true where they
        hold."""
        if mask is None:
            return [], True
        op = mask.op
        match op:
            case arith.ConstantOp():
                return [], bool(op.value)
            case arith.AndI():
                (first, exact), (second, other) = (self.limits(value, rank) for value in (op.lhs, op.rhs))
                return [*first, *second], exact and other
            case gpu.ConvertLayout():
                return self.limits(op.value, rank)
            case tt.ExpandDims():
                inner, exact = self.limits(op.value, rank - 1)
                return [(axis + (axis >= op.axis), number) for axis, number in inner], exact
            case tt.Broadcast():
                inner, exact = self.limits(op.value, rank)
                inner_sizes = [(axis, number) for axis, number in inner if shape_of(op.value.type)[axis] > 1]
                return inner_sizes, exact and len(inner_sizes) == len(inner)
            case arith.CmpI() if op.predicate in _LESS:
                below, slack = _LESS[op.predicate]
                a, b = (self.form(value) for value in ((op.lhs, op.rhs) if below else (op.rhs, op.lhs)))
                difference = added(a, b, -1)
                axes = (
                    [] if difference is None else [(at, axis) for at, axis in enumerate(difference.axes) if axis.stride]
                )
                if difference is None or len(axes) != 1:
                    return [], False
                (at, axis), number = axes[0], sum_of(difference.base, {(): slack})
                if axis == Axis(ONE):
                    return [(at, number)], True
                # Of a number that is counted down from one below 0, all are.
                return [], axis == Axis({(): -1}) and self.is_index(sum_of({(): -1}, number, -1))
            case _:
                return [], False


def _moved(op: tt.ExpandDims | tt.Broadcast | tt.Trans, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes of a tensor after a change of its shape."""
    if isinstance(op, tt.ExpandDims):
        return (*axes[: op.axis], Axis(), *axes[op.axis :])
    if isinstance(op, tt.Trans):
        return tuple(axes[axis] for axis in op.order)
    sizes = shape_of(op.value.type)
    return tuple(Axis() if size == 1 else axis for axis, size in zip(axes, sizes, strict=True))


# By the predicate: whether the first operand is the smaller one, and what is added to the difference.
_LESS = {
    IntPredicate.SLT: (True, 0), IntPredicate.SLE: (True, -1),
    IntPredicate.SGT: (False, 0), IntPredicate.SGE: (False, -1),
}  # fmt: skip
