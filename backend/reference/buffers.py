"""The ops of the CPU model: buffers, regions, and affine accesses. Programs run one after the other, as on a thread.

A region runs its ops on whole tensors, in their order. An access whose guard holds uses its own addresses and mask, and
fails where the pointers and the mask of the load or the store are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.reference import access, reductions, tensors
from ziggurat.backend.reference.machine import UNWRITTEN, AllLeft, Machine, triton
from ziggurat.backend.reference.marks import marks
from ziggurat.backend.reference.values import Array, element_dtype, expand, plain
from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.interpret import Exit, Meaning, Yielded
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import ScalarType, shape_of

Operands = tuple[Any, ...]


@attrs.frozen(eq=False)
class Buffer:
    """Memory of the thread, as bytes, for a tensor of this shape."""

    memory: Array
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def view(self, shape: Sequence[int], start: int = 0, strides: Sequence[int] = ()) -> Array:
        """The elements at start + Σ index · stride; without strides, in row-major order."""
        size = self.dtype.itemsize
        steps = [step * size for step in strides or row_major(shape)]
        return np.ndarray(tuple(shape), self.dtype, self.memory.data, start * size, steps)

    @property
    def array(self) -> Array:
        """All elements."""
        return self.view(self.shape)


@triton.of(cpu.Alloc)
def _alloc(machine: Machine, op: cpu.Alloc, operands: Operands) -> Buffer:
    """A buffer without a place in the scratch memory has memory of its own."""
    type_ = cpu.buffer_of(op, op.result)
    own = op.offset < 0
    memory = np.full(type_.bytes, UNWRITTEN, np.uint8) if own else machine.scratch[op.offset : op.offset + type_.bytes]
    return Buffer(memory, type_.shape, element_dtype(type_.element))


@triton.of(cpu.Region)
def _region(machine: Machine, op: cpu.Region, operands: Operands) -> Any:
    results, values = machine.run_in(op.body, (), machine.frame)
    return AllLeft() if results is None else packed_values(values)


@triton.of(cpu.End)
def _end(machine: Machine, op: cpu.End, operands: Operands) -> Exit:
    return Yielded(operands)


@triton.of(cpu.Get)
def _get(machine: Machine, op: cpu.Get, operands: Operands) -> Array:
    view = operands[0].view(shape_of(op.type), op.start, op.strides)
    return (view.view(np.uint8) != 0 if view.dtype == np.bool_ else view.copy())[None]


@triton.of(cpu.Put)
def _put(machine: Machine, op: cpu.Put, operands: Operands) -> None:
    shape = shape_of(op.value.type)
    operands[0].view(shape, op.start, op.strides)[...] = expand(operands[1], shape)[0]


@triton.of(cpu.Copy)
def _copy(machine: Machine, op: cpu.Copy, operands: Operands) -> None:
    operands[1].array[...] = operands[0].array


@triton.of(cpu.Waits)
def _waits(machine: Machine, op: cpu.Waits, operands: Operands) -> None:
    """Programs run in order here."""


@triton.of(cpu.Prefetch)
def _prefetch(machine: Machine, op: cpu.Prefetch, operands: Operands) -> None:
    """Nothing is computed with a cache."""


@triton.of(cpu.Count)
def _count(machine: Machine, op: cpu.Count, operands: Operands) -> None:
    shape = shape_of(op.value.type)
    values = expand(operands[1], shape)[0]
    counts = operands[0].array
    inside = (values >= 0) & (values < counts.size)
    if op.mask is not None:
        inside &= expand(operands[2], shape)[0]
    counts += np.bincount(values[inside].astype(np.int64), minlength=counts.size).astype(counts.dtype)


@triton.of(cpu.Dot)
def _dot(machine: Machine, op: cpu.Dot, operands: Operands) -> None:
    a, b, c = (buffer.array[None] for buffer in operands)
    b = b.swapaxes(-1, -2) if op.transposed else b
    source, target = (cpu.buffer_of(op, value).element for value in (op.a, op.c))
    assert isinstance(source, ScalarType) and isinstance(target, ScalarType)
    c[...] = tensors.dot(a, b, np.zeros_like(c) if op.zero else c, source, target, op.input_precision)


@triton.of(cpu.Sort)
def _sort(machine: Machine, op: cpu.Sort, operands: Operands) -> Array | None:
    if op.target is None:
        return np.sort(expand(operands[0], shape_of(op.keys.type)), axis=-1)
    operands[1].array[...] = np.sort(operands[0].array, axis=-1)
    return None


@triton.of(cpu.Scan)
def _scan(machine: Machine, op: cpu.Scan, operands: Operands) -> None:
    # The columns are views of the buffers.
    columns = [np.moveaxis(buffer.array, op.axis, -1)[None, ..., :: -1 if op.reverse else 1] for buffer in operands]
    for column, scan in zip(columns, reductions.scanned(machine, op, columns), strict=True):
        column[...] = scan


@triton.of(cpu.Access)
def _access(machine: Machine, op: cpu.Access, operands: Operands) -> tuple[Array, Array, bool] | None:
    """The pointers and the mask of the access, and whether the mask may leave out more; None if the guard fails."""
    base, guard, *rest = operands
    if not guard[0]:
        return None
    type_ = op.type
    assert isinstance(type_, cpu.AccessType)
    shape, size = type_.shape, type_.element.bytes
    pointers, inside = np.full((1, *shape), base[0]), np.ones((1, *shape), np.bool_)
    for axis, (stride, count) in enumerate(zip(rest[: len(shape)], rest[len(shape) :], strict=True)):
        index = np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - 1 - axis))
        pointers += index * stride[0] * size
        inside &= index < count[0]
    return pointers, inside, op.part


def _checked(
    machine: Machine, op: cpu.Load | cpu.Store, access: tuple[Array, Array, bool] | None, ptr: Array, mask: Array | None
) -> tuple[Array, Array | None]:
    """The pointers and the mask of a load or a store: those of the access where its guard holds."""
    if access is None:
        return ptr, mask
    pointers, inside, part = access
    active = np.ones_like(inside) if mask is None else expand(mask, inside.shape[1:])
    if (active & ~inside).any() or ((pointers != ptr) & active).any() or (not part and (inside & ~active).any()):
        raise KernelRuntimeError(
            f"{machine.program(0)}: the access has other addresses, or another mask, than the pointers and the mask of "
            f"the {op.NAME}, though its guard holds"
        )
    return pointers, active


@triton.of(cpu.Load)
def _load(machine: Machine, op: cpu.Load, operands: Operands) -> Array:
    arguments, ptr, *rest = operands
    pointers, mask = _checked(machine, op, arguments, ptr, rest[0] if op.mask is not None else None)
    fallback = rest[-1] if op.other is not None else 0
    reading = machine.access("reads", op, op.result.type, pointers)
    return access.load_elements(machine, pointers, mask, fallback, reading)


@triton.of(cpu.Store)
def _store(machine: Machine, op: cpu.Store, operands: Operands) -> None:
    arguments, ptr, value, *rest = operands
    pointers, mask = _checked(machine, op, arguments, ptr, rest[0] if rest else None)
    access.store_elements(machine, pointers, value, mask, machine.access("writes", op, op.value.type, pointers))


@marks.of(
    cpu.Alloc, cpu.Region, cpu.End, cpu.Get, cpu.Put, cpu.Copy, cpu.Count, cpu.Dot, cpu.Scan, cpu.Sort, cpu.Access,
    cpu.Load, cpu.Store, cpu.Waits, cpu.Prefetch,
)  # fmt: skip
def _unmarked(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    """Buffers and accesses hold no marks: a Triton model is what strict mode is for."""
    return meaning(machine, op, tuple(map(plain, operands)))
