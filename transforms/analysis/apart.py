"""Whether two stores through pointers write different elements, in whatever iterations of the loops around both.

    for tile in range(program, programs, step):
        a, b = tile // 8, tile % 8
        store(x + a · n + b · 128 + range(0, 64), …, b · 128 + range(0, 64) < n)
        store(x + a · n + b · 128 + 64 + range(0, 64), …, b · 128 + 64 + range(0, 64) < n)

In one iteration the two blocks are a constant distance apart. In different iterations a and b are digits of the
address: 128 is no less than the elements of both blocks, and n is no less than the numbers that the masks let through.
So equal addresses have equal digits, and as a and b determine the tile, they are of one iteration.

Sizes and divisors are taken to be positive, and the rows of a matrix not to overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import shape_of
from ziggurat.transforms.analysis.affine import Form, Forms, Poly, product_of, sum_of
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.analysis.components import component_of
from ziggurat.transforms.analysis.queries import owners_of

_PARTS = (arith.DivSI, arith.RemSI)

# A value by the number of its atom, or a quotient or remainder: its op, the number of the dividend, and the divisor.
Part = int | tuple[type[Op], int, frozenset[tuple[tuple[int, ...], int]]]


def are_apart(forms: Forms, store: tt.Store, other: tt.Store, unordered: Collection[Op]) -> bool:
    """Whether two stores are known never to write one element: they write through different arguments, or to blocks of
    equal shapes and strides that are a constant distance apart along an axis, and equal addresses imply equal indices
    of the loops around both.

    Iterations of the loops in `unordered` have no order, and are not compared.
    """
    a, b = forms.form(store.ptr), forms.form(other.ptr)
    if a is None or b is None or a.origin is None or b.origin is None:
        return False
    if a.origin is not b.origin:
        return True
    between = sum_of(b.base, a.base, -1)
    alike = a.axes == b.axes and shape_of(store.ptr.type) == shape_of(other.ptr.type)
    if not alike or any(axis.wrap for axis in a.axes) or not between:
        return False
    shared = {*other.path()}
    loops = [op for op in store.path() if isinstance(op, scf.For) and op in shared and op not in unordered]
    # The distance is `steps` strides.
    for axis, (stride, size) in enumerate(zip((axis.stride for axis in a.axes), shape_of(store.ptr.type), strict=True)):
        for key in set(stride) & set(between):
            steps = between[key] // stride[key]
            if abs(steps) >= size and between == product_of(stride, {(): steps}):
                return not loops or _Iterations(forms, loops, (store, other), {axis: steps}).differ(a)
    return False


def iterations_are_apart(forms: Forms, store: tt.Store) -> bool:
    """Whether a store is known never to write one element in two iterations of the loops around it."""
    loops = [op for op in store.path() if isinstance(op, Loop)]
    counted = [op for op in loops if isinstance(op, scf.For)]
    form = forms.form(store.ptr)
    if form is None or form.origin is None or any(axis.wrap for axis in form.axes) or len(counted) < len(loops):
        return not loops
    return not loops or _Iterations(forms, counted, (store, store), {}).differ(form)


class _Iterations:
    """The blocks of two stores in different iterations of loops, inner before outer: the second one is `steps` further
    along an axis."""

    def __init__(self, forms: Forms, loops: Sequence[scf.For], stores: Sequence[tt.Store], steps: Mapping[int, int]):
        self.forms, self.loops, self.stores, self.steps = forms, loops, stores, steps
        self.infos = analyse(forms.func)

    def differ(self, form: Form) -> bool:
        """Whether no element is in blocks of two iterations, for the form of the first store's pointers."""
        all_parts: set[Part] = set()
        for axis, coordinate in enumerate(_coordinates(form.base, [axis.stride for axis in form.axes])):
            all_parts |= {self._part(number) for number in self._digits(axis, coordinate)}
        parts = [*map(self._part, range(len(self.forms.atoms)))]
        before = -1
        while before != len(all_parts):
            before = len(all_parts)
            for number, part in enumerate(parts):
                for kind, dividend, divisor in [part for part in all_parts if not isinstance(part, int)]:
                    # A remainder's remainder by a divisor of its divisor; a number from quotient and remainder.
                    inner = part if not isinstance(part, int) and part[:2] == (arith.RemSI, dividend) else None
                    if kind is arith.RemSI and inner is not None and _quotient(dict(inner[2]), dict(divisor)):
                        all_parts.add((kind, number, divisor))
                    if number == dividend and {(part, number, divisor) for part in _PARTS} <= all_parts:
                        all_parts.add(part)
        atoms = {self.forms.atoms[part] for part in all_parts if isinstance(part, int)}
        return atoms.issuperset(loop.body.parameters[0] for loop in self.loops)

    def _digits(self, axis: int, coordinate: Poly) -> Collection[int]:
        """The atoms that vary in a coordinate, if equal coordinates have equal ones: each has a multiple that is no
        less than all that those before it, and the blocks, add up to. Nothing otherwise."""
        fixed: Poly = {product: factor for product, factor in coordinate.items() if not any(map(self._varies, product))}
        rest: dict[int, Poly] = {}
        for product, factor in coordinate.items():
            if product not in fixed:
                number, *others = sorted(product, key=self._varies, reverse=True)
                if any(map(self._varies, others)):
                    return ()
                rest[number] = {**rest.get(number, {}), tuple(sorted(others)): factor}
        strides, total, least = [*rest], fixed, fixed
        width: Poly | None = {(): shape_of(self.stores[0].ptr.type)[axis] + abs(self.steps.get(axis, 0))}
        while rest:
            if width is None:
                return ()
            number = next((item for item, stride in rest.items() if _is_at_least(_absolute(stride), width)), None)
            if number is None:
                rows = self._rows(axis, total, least)
                if rows is None or rows == width:
                    return ()
                width = rows
                continue
            stride, limit = rest.pop(number), self._limit(number)
            total = sum_of(total, product_of(stride, {(number,): 1}))
            width = None if limit is None else product_of(_absolute(stride), limit)
            if limit is not None and stride != _absolute(stride):
                least = sum_of(least, product_of(stride, sum_of(limit, {(): -1})))
        return strides

    def _rows(self, axis: int, offset: Poly, least: Poly) -> Poly | None:
        """The size that the masks compare a coordinate with, if its digits so far are at least `least`."""
        rows: list[Poly] = []
        for store, steps in zip(self.stores, ({}, {(): self.steps.get(axis, 0)}), strict=True):
            limits, _ = self.forms.limits(store.mask, len(shape_of(store.ptr.type)))
            sizes = (sum_of(sum_of(offset, steps), number, -1) for at, number in limits if at == axis)
            if (size := next((size for size in sizes if not self._varying(size)), None)) is None or not _is_at_least(
                sum_of(least, steps), {}
            ):
                return None
            rows.append(size)
        return rows[0] if rows[0] == rows[1] else None

    def _varies(self, number: int) -> bool:
        return self.loops[-1] in owners_of(self.forms.atoms[number])

    def _varying(self, poly: Poly) -> bool:
        return any(self._varies(number) for product in poly for number in product)

    def _limit(self, number: int) -> Poly | None:
        """The number that an atom is below, if it is known not to be negative."""
        part = self._part(number)
        if isinstance(part, int):
            return None
        kind, dividend, divisor = part
        info = self.infos.get(component_of(self.forms.atoms[dividend]))
        if kind is arith.RemSI:
            return dict(divisor) if info is not None and info.nonnegative else None
        limit = self._limit(dividend)
        return None if limit is None else _quotient(limit, dict(divisor))

    def _part(self, number: int) -> Part:
        """The quotient or the remainder that an atom is; its number if it is another value."""
        value = self.forms.atoms[number]
        op = value.op
        if not isinstance(op, _PARTS):
            return number
        dividend, divisor = self.forms.form(op.lhs), self.forms.form(op.rhs)
        ((product, factor),) = dividend.base.items() if dividend is not None and len(dividend.base) == 1 else [((), 0)]
        if divisor is None or len(product) != 1 or factor != 1 or self._varying(divisor.base):
            return number
        return type(op), product[0], frozenset(divisor.base.items())


def _coordinates(base: Poly, strides: Sequence[Poly]) -> Sequence[Poly]:
    """The parts of a base that are multiples of each stride, by it; nothing if something is left."""
    coordinates: list[Poly] = [{} for _ in strides]
    order = sorted(range(len(strides)), key=lambda at: max(map(_size, strides[at].items()), default=()), reverse=True)
    for product, factor in base.items():
        for at in order:
            if (part := _quotient({product: factor}, strides[at])) is not None:
                coordinates[at] = sum_of(coordinates[at], part)
                break
        else:
            return ()
    return coordinates


def _size(term: tuple[tuple[int, ...], int]) -> tuple[int, int]:
    return len(term[0]), abs(term[1])


def _quotient(poly: Poly, by: Poly) -> Poly | None:
    """A polynomial by a product with a factor; None if that does not divide it."""
    if len(by) != 1:
        return None
    ((divisor, factor),) = by.items()
    quotient: dict[tuple[int, ...], int] = {}
    for product, coefficient in poly.items():
        factors = [*product]
        for number in divisor:
            if number not in factors:
                return None
            factors.remove(number)
        if coefficient % factor:
            return None
        quotient[tuple(factors)] = coefficient // factor
    return quotient


def _absolute(poly: Poly) -> Poly:
    return sum_of({}, poly, -1) if max(poly.values(), default=0) < 0 else poly


def _is_at_least(a: Poly, b: Poly) -> bool:
    """Whether a is known to be no less than b: they differ by a constant."""
    difference = sum_of(a, b, -1)
    return difference.get((), 0) >= 0 and difference.keys() <= {()}
