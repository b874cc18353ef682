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

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import shape_of
from ziggurat.transforms.analysis.affine import ONE, Forms
from ziggurat.transforms.differentiate.arrays import Arrays


def _is_the_same_everywhere(value: Value) -> bool:
    """Whether all programs are known to have the same value: it is computed from the kernel's arguments alone."""
    # Values without an op are parameters of the kernel: bodies are not looked into.
    sources = reached([value], lambda source: () if source.op is None else source.op.operands)
    differing = tt.GetProgramId, tt.SmId, tt.Poison
    ops = [source.op for source in sources if source.op is not None]
    return all(isinstance(op, Pure) and not isinstance(op, differing) and not op.bodies for op in ops)


def _is_one_to_one(kernel: tt.Func, pointer: Value, axes: set[int]) -> bool:
    """Whether the lanes of all programs have pointers of their own; `axes` are those along which programs differ."""
    forms = Forms(kernel)
    form = forms.form(pointer)
    if form is None or form.origin is None or len(axes) > 1:
        return False
    steps: list[tuple[int, int]] = []
    for axis, size in zip(form.axes, shape_of(pointer.type), strict=True):
        if size > 1:
            if axis.wrap is not None or set(axis.stride) - set(ONE):
                return False
            steps.append((abs(axis.stride.get((), 0)), size - 1))
    programs = dict.fromkeys(axes, 0)
    for product, coefficient in form.base.items():
        atoms = [forms.atoms[number] for number in product]
        only = atoms[0].op if len(atoms) == 1 else None
        if isinstance(only, tt.GetProgramId):
            programs[only.axis] += coefficient
        elif not all(map(_is_the_same_everywhere, atoms)):
            return False
    reach = 0
    for coefficient, largest in sorted(steps):
        if coefficient <= reach:
            return False
        reach += coefficient * largest
    return all(abs(coefficient) > reach for coefficient in programs.values())


def plain_stores(arrays: Arrays) -> frozenset[Op]:
    """The reads whose gradients can be stored."""
    axes = {op.axis for op in arrays.kernel.walk() if isinstance(op, tt.GetProgramId)}
    numbers = [number for access in arrays.wrt.values() for number in access.arrays]
    return frozenset(
        op
        for op, access in arrays.wrt.items()
        if isinstance(op, tt.Load)
        and len(access.arrays) == sum(map(numbers.count, access.arrays)) == 1
        and op.parent_op is arrays.kernel
        and _is_one_to_one(arrays.kernel, op.ptr, axes)
    )
