"""Tensors of integers and pointers as base + Σ index · stride, with scalars for base and strides.

The arithmetic of the model wraps around in 32 bits, and that of a form does not: it is in i64. A form stands for a
tensor only while no element leaves the range of its type. `conditions` are the tests of that, on scalars. A remainder
is its dividend while that is inside of the divisor.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of, i1, i64, scalar_element, shape_of, u64
from ziggurat.transforms.cpu.carried import widened

Term = Value | int  # A scalar i64 of the model, or a constant.


@attrs.frozen(eq=False)
class IndexForm:
    """An integer for each index: base + Σ index · stride."""

    base: Term
    strides: tuple[Term, ...]

    @property
    def uniform(self) -> bool:
        """Whether all elements are equal."""
        return all(stride == 0 for stride in self.strides if isinstance(stride, int)) and not any(
            isinstance(stride, Value) for stride in self.strides
        )


class Affine:
    """Forms of the values of a model that is being built; it adds the scalars that they need."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.conditions: list[Value] = []

    # Scalars.

    def value(self, term: Term) -> Value:
        """A term as a value."""
        return self.builder.add(arith.ConstantOp(term, i64)) if isinstance(term, int) else term

    def add(self, a: Term, b: Term) -> Term:
        """The sum."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(a, int) and a == 0:
            return b
        if isinstance(b, int) and b == 0:
            return a
        return self.builder.add(arith.AddI(self.value(a), self.value(b)))

    def sub(self, a: Term, b: Term) -> Term:
        """The difference."""
        if isinstance(b, int):
            return self.add(a, -b)
        return self.builder.add(arith.SubI(self.value(a), b))

    def mul(self, a: Term, b: Term) -> Term:
        """The product."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        for first, second in ((a, b), (b, a)):
            if isinstance(first, int) and first in (0, 1):
                return 0 if first == 0 else second
        return self.builder.add(arith.MulI(self.value(a), self.value(b)))

    def least(self, a: Term, b: Term) -> Term:
        """The smaller."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.builder.add(arith.MinSI(self.value(a), self.value(b)))

    def require(self, a: Term, predicate: IntPredicate, b: Term) -> None:
        """Add a condition."""
        if isinstance(a, int) and isinstance(b, int):
            holds = {"sge": a >= b, "sle": a <= b, "slt": a < b}[predicate.value]
            if holds:
                return
        condition = self.builder.add(arith.CmpI(self.value(a), self.value(b), predicate))
        self.conditions.append(condition)

    def guard(self) -> Value:
        """The conjunction of the conditions."""
        if not self.conditions:
            return self.builder.add(arith.ConstantOp(True, i1))
        result = self.conditions[0]
        for condition in self.conditions[1:]:
            result = self.builder.add(arith.AndI(result, condition))
        return result

    # Forms.

    def range(self, form: IndexForm, shape: Sequence[int]) -> tuple[Term, Term]:
        """The smallest and the largest element."""
        low = high = form.base
        for stride, size in zip(form.strides, shape, strict=True):
            extent = self.mul(stride, size - 1)
            if isinstance(extent, int):
                low, high = self.add(low, min(extent, 0)), self.add(high, max(extent, 0))
                continue
            zero = self.value(0)
            low = self.add(low, self.builder.add(arith.MinSI(extent, zero)))
            high = self.add(high, self.builder.add(arith.MaxSI(extent, zero)))
        return low, high

    def exact(self, value: Value) -> IndexForm | None:
        """The form of integers, with the conditions under which no element has wrapped around."""
        form = self.form(value)
        element = scalar_element(value.type)
        if form is None or element.bits == 64:
            return form
        scalar = isinstance(value.op, tt.Splat)
        if not scalar:
            self._require_range(form, shape_of(value.type))
            low, high = self.range(form, shape_of(value.type))
            smallest, largest = element.limits
            self.require(low, IntPredicate.SGE, smallest)
            self.require(high, IntPredicate.SLE, largest)
        return form

    def _require_range(self, form: IndexForm, shape: Sequence[int]) -> None:
        """Add the conditions under which the smallest and the largest element do not wrap around in 64 bits."""
        extents = (_largest(stride) * (size - 1) for stride, size in zip(form.strides, shape, strict=True))
        if _largest(form.base) + sum(extents) >= 1 << 63:
            self._require_small(form)

    def form(self, value: Value) -> IndexForm | None:
        """The form of integers as if they did not wrap around."""
        if not isinstance(value.type, TensorType):
            return None
        rank = len(value.type.shape)
        match op := value.op:
            case arith.ConstantOp():
                return IndexForm(int(op.value), (0,) * rank) if int(op.value) <= i64.limits[1] else None
            case tt.MakeRange():
                return IndexForm(op.start, (1,))
            case tt.Splat():
                if not isinstance(op.value.type, ScalarType):
                    return None
                number = op.value
                if number.type == u64:
                    number = self.builder.add(arith.Bitcast(number, i64))
                return IndexForm(widened(self.builder, number, i64), (0,) * rank)
            case tt.Broadcast() | tt.ExpandDims() | tt.Trans() | tt.Reshape():
                inner = self.form(op.operands[0])
                return None if inner is None else moved(op, inner)
            case arith.AddI() | arith.SubI():
                a, b = self.form(op.lhs), self.form(op.rhs)
                if a is None or b is None:
                    return None
                join = self.add if isinstance(op, arith.AddI) else self.sub
                return IndexForm(join(a.base, b.base), tuple(map(join, a.strides, b.strides)))
            case arith.MulI():
                a, b = self.form(op.lhs), self.form(op.rhs)
                if a is None or b is None or not (a.uniform or b.uniform):
                    return None
                if a.uniform:
                    a, b = b, a
                return IndexForm(self.mul(a.base, b.base), tuple(self.mul(stride, b.base) for stride in a.strides))
            case arith.ExtSI() | arith.ExtUI():
                source = scalar_element(op.operand.type)
                fits = source.bits > 1 and source.signed == isinstance(op, arith.ExtSI)
                return self.exact(op.operand) if fits else None
            case arith.Bitcast():
                form = self.exact(op.operand)
                if form is not None:
                    low, _ = self.range(form, shape_of(op.type))
                    self.require(low, IntPredicate.SGE, 0)
                return form
            case arith.RemSI():
                return self._remainder(op)
            case tt.Hint():
                return self.form(op.value)
            case _:
                return None

    def _remainder(self, op: arith.RemSI) -> IndexForm | None:
        form, divisor = self.exact(op.lhs), self.exact(op.rhs)
        if form is None or divisor is None or not divisor.uniform:
            return None
        self._demand_small(form, op.result.type)
        low, high = self.range(form, shape_of(op.result.type))
        self.require(low, IntPredicate.SGE, 0)
        self.require(high, IntPredicate.SLT, divisor.base)
        return form

    def pointers(self, value: Value) -> tuple[Value, IndexForm] | None:
        """Pointers as a scalar pointer and the elements from it on."""
        match op := value.op if isinstance(value.type, TensorType) else None:
            case tt.Splat():
                return op.value, IndexForm(0, (0,) * len(shape_of(op.type)))
            case tt.AddPtr():
                pointers, offset = self.pointers(op.ptr), self.exact(op.offset)
                if pointers is None or offset is None:
                    return None
                base, form = pointers
                return base, IndexForm(
                    self.add(form.base, offset.base), tuple(map(self.add, form.strides, offset.strides))
                )
            case tt.Broadcast() | tt.ExpandDims() | tt.Trans() | tt.Reshape():
                pointers = self.pointers(op.operands[0])
                inner = None if pointers is None else moved(op, pointers[1])
                return None if pointers is None or inner is None else (pointers[0], inner)
            case tt.Hint():
                return self.pointers(op.value)
            case _:
                return None

    def counts(self, mask: Value) -> tuple[list[Term], bool]:
        """For each axis the number of elements, from the first on, that a mask may leave; and whether it leaves exactly
        these."""
        shape = expect(mask.type, TensorType).shape
        whole: list[Term] = list(shape)
        match op := mask.op:
            case arith.ConstantOp():
                return (whole if op.value else [0, *whole[1:]]), True
            case arith.AndI():
                (first, exact), (second, other) = self.counts(op.lhs), self.counts(op.rhs)
                return [self.least(a, b) for a, b in zip(first, second, strict=True)], exact and other
            case tt.Splat():
                guarded_size = self.builder.add(arith.Select(op.value, self.value(shape[0]), self.value(0)))
                return [guarded_size, *whole[1:]], True
            case tt.ExpandDims():
                inner, exact = self.counts(op.value)
                return [*inner[: op.axis], 1, *inner[op.axis :]], exact
            case tt.Broadcast():
                inner, exact = self.counts(op.value)
                sizes = shape_of(op.value.type)
                wide: list[Term] = []
                for count, size, target in zip(inner, sizes, shape, strict=True):
                    wide.append(count if size == target else self.mul(count, target))
                return wide, exact
            case arith.CmpI():
                return self._compared(op, whole)
            case tt.Hint():
                return self.counts(op.value)
            case _:
                return whole, False

    def _compared(self, op: arith.CmpI, whole: list[Term]) -> tuple[list[Term], bool]:
        length = len(self.conditions)
        if isinstance(scalar_or_none(op.lhs), ScalarType) and op.predicate.value in _STRICT:
            a, b = self.exact(op.lhs), self.exact(op.rhs)
            if a is not None and b is not None:
                for operand, form in ((op.lhs, a), (op.rhs, b)):
                    self._demand_small(form, operand.type)
                less, slack = _STRICT[op.predicate.value]
                first, second = (a, b) if less else (b, a)
                # The comparison holds where `first - second` is below `slack`.
                strides = list(map(self.sub, first.strides, second.strides))
                limit = self.sub(slack, self.sub(first.base, second.base))
                axes = [axis for axis, stride in enumerate(strides) if not isinstance(stride, int) or stride != 0]
                if not axes:
                    holds = self.builder.add(arith.CmpI(self.value(limit), self.value(0), IntPredicate.SGT))
                    size = self.builder.add(arith.Select(holds, self.value(whole[0]), self.value(0)))
                    return [size, *whole[1:]], True
                if len(axes) == 1 and isinstance(strides[axes[0]], int) and strides[axes[0]] == 1:
                    counts = list(whole)
                    counts[axes[0]] = self.least(self.most(limit, 0), whole[axes[0]])
                    return counts, True
        del self.conditions[length:]
        return whole, False

    def _demand_small(self, form: IndexForm, type_: Type) -> None:
        """Add the conditions under which integers of 64 bits do not wrap around, nor do their differences."""
        element = scalar_element(type_)
        if element.bits < 64:
            return
        self._require_small(form)
        if not element.signed:
            self.require(self.range(form, shape_of(type_))[0], IntPredicate.SGE, 0)

    def _require_small(self, form: IndexForm) -> None:
        for term, limit in ((form.base, 1 << 61), *((stride, 1 << 40) for stride in form.strides)):
            self.require(term, IntPredicate.SGE, -limit)
            self.require(term, IntPredicate.SLE, limit)

    def most(self, a: Term, b: Term) -> Term:
        """The larger."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.builder.add(arith.MaxSI(self.value(a), self.value(b)))


def _largest(term: Term) -> int:
    """A number that a term does not exceed, whatever its sign, if nothing in it wraps around."""
    if isinstance(term, int):
        return abs(term)
    match term.op:
        case arith.ConstantOp() as op:
            return abs(int(op.value))
        case arith.ExtSI() | arith.ExtUI() as op:
            source = scalar_element(op.operand.type)
            return 1 << source.bits - source.signed
        case arith.AddI() | arith.SubI() as op:
            return _largest(op.lhs) + _largest(op.rhs)
        case arith.MulI() as op:
            return _largest(op.lhs) * _largest(op.rhs)
        case _:
            return 1 << 63


# By the predicate: whether the first operand is the smaller one, and the bound of the difference.
_STRICT = {
    "slt": (True, 0), "sle": (True, 1), "ult": (True, 0), "ule": (True, 1),
    "sgt": (False, 0), "sge": (False, 1), "ugt": (False, 0), "uge": (False, 1),
}  # fmt: skip


def scalar_or_none(value: Value) -> ScalarType | None:
    """The scalar type of a tensor's elements; None for pointers."""
    element = element_of(value.type)
    return element if isinstance(element, ScalarType) and element.is_int and element.bits > 1 else None


def moved(op: tt.Broadcast | tt.ExpandDims | tt.Trans | tt.Reshape, form: IndexForm) -> IndexForm | None:
    """The form of a tensor after a change of its shape."""
    strides = form.strides
    match op:
        case tt.ExpandDims():
            return IndexForm(form.base, (*strides[: op.axis], 0, *strides[op.axis :]))
        case tt.Broadcast():
            sizes = shape_of(op.value.type)
            return IndexForm(form.base, tuple(0 if size == 1 else s for size, s in zip(sizes, strides, strict=True)))
        case tt.Trans():
            return IndexForm(form.base, tuple(strides[axis] for axis in op.order))
        case tt.Reshape():
            source, target = shape_of(op.value.type), shape_of(op.type)
            strides_of_long = [stride for stride, size in zip(strides, source, strict=True) if size > 1]
            if [size for size in source if size > 1] != [size for size in target if size > 1]:
                return None
            rest = iter(strides_of_long)
            return IndexForm(form.base, tuple(next(rest) if size > 1 else 0 for size in target))
