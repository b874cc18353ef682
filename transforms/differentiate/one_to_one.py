"""Reads whose gradients can be stored, because no element of the array is read twice.

The address must be affine, base + Σ coefficient · symbol. The symbols are the number of the program along one axis of
the grid and the indices of the lanes along the axes of the tensor. Sorted by size, each coefficient must exceed the sum
of all smaller ones, each times the largest index of its symbol. The coefficient of the program must be the largest,
because the number of the program has no known limit:

    x + pid · 64 + range(64)                         one to one: 64 exceeds 1 · 63
    x + pid · 64 + rows(8) · 8 + columns(8)          one to one: 8 exceeds 1 · 7, 64 exceeds 8 · 7 + 1 · 7
    x + pid · 64 + range(128), x + pid · n + …       not known

The kernel must read the number of the program along one axis only, the read must be outside of loops and branches, and
no other op may read the array.
"""

from __future__ import annotations

import attrs

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value, constant_of
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import shape_of
from ziggurat.transforms.differentiate.arrays import Arrays


@attrs.frozen
class _Affine:
    """Coefficients of the program's numbers by axis of the grid, and of the indices along the axes of the tensor. The
    rest is the same in all programs and lanes."""

    programs: tuple[int, int, int]
    lanes: tuple[int, ...]

    def plus(self, other: _Affine, sign: int = 1) -> _Affine:
        first, second, third = (a + sign * b for a, b in zip(self.programs, other.programs, strict=True))
        lanes = tuple(a + sign * b for a, b in zip(self.lanes, other.lanes, strict=True))
        return _Affine((first, second, third), lanes)

    def times(self, factor: int) -> _Affine:
        first, second, third = (factor * a for a in self.programs)
        return _Affine((first, second, third), tuple(factor * a for a in self.lanes))

    @property
    def is_uniform(self) -> bool:
        return not any(self.programs) and not any(self.lanes)


def _uniform(value: Value) -> _Affine:
    return _Affine((0, 0, 0), (0,) * len(shape_of(value.type)))


def _affine(value: Value, found: dict[Value, _Affine | None]) -> _Affine | None:
    """The form of an integer or a pointer; None where it is not known. `found` gets those of all values before."""
    if value not in found:
        found[value] = _form(value, found)
    return found[value]


def _form(value: Value, found: dict[Value, _Affine | None]) -> _Affine | None:
    if isinstance(value, BlockParameter):
        return _uniform(value)  # Of the kernel: bodies are not looked into.
    assert isinstance(value, OpResult)
    op = value.op
    if not isinstance(op, Pure) or isinstance(op, tt.SmId | tt.Poison) or op.bodies:
        return None
    forms: list[_Affine] = []
    for operand in op.operands:
        form = _affine(operand, found)
        if form is None:
            return None
        forms.append(form)
    form = _combined(op, forms)
    return _uniform(value) if form is None and all(one.is_uniform for one in forms) else form


def _combined(op: Op, forms: list[_Affine]) -> _Affine | None:
    """The form of an op's result by those of its operands; None for an op that does not keep it affine."""
    match op, forms:
        case tt.GetProgramId(), []:
            first, second, third = (int(axis == op.axis) for axis in range(3))
            return _Affine((first, second, third), ())
        case tt.MakeRange(), []:
            return _Affine((0, 0, 0), (1,))
        case tt.Splat(), [form]:
            return attrs.evolve(form, lanes=(0,) * len(shape_of(op.type)))
        case tt.ExpandDims(), [form]:
            return attrs.evolve(form, lanes=(*form.lanes[: op.axis], 0, *form.lanes[op.axis :]))
        case tt.Broadcast(), [form]:
            sizes = zip(form.lanes, shape_of(op.value.type), strict=True)
            return attrs.evolve(form, lanes=tuple(0 if size == 1 else lane for lane, size in sizes))
        case tt.Trans(), [form]:
            return attrs.evolve(form, lanes=tuple(form.lanes[axis] for axis in op.order))
        case tt.Hint() | arith.ExtSI() | arith.ExtUI(), [form]:
            return form
        case arith.AddI() | tt.AddPtr(), [a, b]:
            return a.plus(b)
        case arith.SubI(), [a, b]:
            return a.plus(b, -1)
        case arith.MulI(), [a, b]:
            for form, factor in ((a, op.rhs), (b, op.lhs)):
                number = constant_of(factor)
                if number is not None:
                    return form.times(int(number))
            return None
        case _:
            return None


def _is_one_to_one(pointer: Value, axes: set[int]) -> bool:
    """Whether the lanes of all programs have pointers of their own; `axes` are those along which programs differ."""
    form = _affine(pointer, {})
    if form is None or {axis for axis, coefficient in enumerate(form.programs) if coefficient} != axes or len(axes) > 1:
        return False
    steps = [(abs(lane), size - 1) for lane, size in zip(form.lanes, shape_of(pointer.type), strict=True) if size > 1]
    reach = 0
    for coefficient, largest in sorted(steps):
        if coefficient <= reach:
            return False
        reach += coefficient * largest
    return all(abs(form.programs[axis]) > reach for axis in axes)


def plain_stores(arrays: Arrays) -> frozenset[Value]:
    """The results of the reads whose gradients can be stored."""
    axes = {op.axis for op in arrays.kernel.walk() if isinstance(op, tt.GetProgramId)}
    numbers = [number for access in arrays.wrt.values() for number in access.arrays]
    return frozenset(
        result
        for result, access in arrays.wrt.items()
        if isinstance(access.op, tt.Load)
        and len(access.arrays) == sum(map(numbers.count, access.arrays)) == 1
        and access.op.parent_op is arrays.kernel
        and _is_one_to_one(access.op.ptr, axes)
    )
