"""Gradients of accesses of memory.

A read of an array of `wrt` adds its adjoint to the gradient of the array. For a write to an array of `of`, the adjoint
of the value is read from the gradient of the array. Reads of other arrays count as constants, and writes to other
arrays are left out.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.dialects.tt import AtomicKind, MemSemantic
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import DescriptorType, scalar_element, shape_of
from ziggurat.transforms.differentiate.adjoint import Reverse, adjoint_type, gradients, no_gradient
from ziggurat.transforms.differentiate.recurrences import is_inside
from ziggurat.transforms.differentiate.shapes import summed_to


@gradients.of(tt.Load)
def _load(at: Reverse, op: tt.Load, adjoint: Value) -> None:
    mask = None if op.mask is None else at.value(op.mask)
    access = at.plan.wrt.get(op)
    if access is not None:
        pointer = at.value(access.gradient)
        if op in at.plan.plain:
            at.emit(tt.Store(pointer, at.as_type(adjoint, op.result.type), mask))
        else:
            _add(at, pointer, adjoint, mask, op)
    if op.other is not None and mask is not None:
        at.add(op.other, at.where(mask, 0.0, adjoint))


def _check_addable(op: tt.Load | tt.DescriptorLoad) -> None:
    if scalar_element(op.result.type).is_fp8:
        raise no_gradient(op, "there is no atomic addition of 8-bit floats", "load from an array of f16 or f32")


def _add(at: Reverse, pointer: Value, adjoint: Value, mask: Value | None, op: tt.Load) -> None:
    """Add to the gradient, after a sum over the lanes whose pointers are known to be the same."""
    _check_addable(op)
    producer = pointer.op
    if mask is None and isinstance(producer, tt.Splat):
        pointer, adjoint = producer.value, at.total_of_all(adjoint)
    elif mask is None and isinstance(producer, tt.Broadcast):
        pointer, adjoint = producer.value, summed_to(at, adjoint, shape_of(producer.value.type))
    value = at.as_type(adjoint, op.result.type)
    at.emit(tt.AtomicRMW(pointer, value, mask, kind=AtomicKind.FADD, sem=MemSemantic.RELAXED))


@gradients.of(tt.Store)
def _store(at: Reverse, op: tt.Store, adjoint: None) -> None:
    mask = None if op.mask is None else at.value(op.mask)
    for later in _overwriting(op):
        if later.mask is None:
            return
        condition = at.opposite(at.value(later.mask))
        mask = condition if mask is None else at.both(mask, condition)
    at.add(op.value, _given(at, at.plan.of[op].gradient, op.value, mask))


def _overwriting(op: tt.Store) -> list[tt.Store]:
    """The later stores to the same pointers in the same body. Such a store in the next iteration is an error."""
    for around in op.path():
        if isinstance(around, scf.For) and not is_inside(op.ptr, around.body):
            raise no_gradient(
                op,
                "each iteration of the loop overwrites the elements that it stores",
                "store after the loop, or add with zg.atomic_add",
            )
    return [later for later in op.later() if isinstance(later, tt.Store) and later.ptr is op.ptr]


def _given(at: Reverse, gradient: Value, value: Value, mask: Value | None) -> Value:
    """The adjoint of a value that is written to an array of `of`: that of the array, zero outside of the mask."""
    other = None if mask is None else at.as_type(at.zero(value.type), value.type)
    read = at.emit(tt.Load(at.value(gradient), mask, other))
    return at.as_type(read, adjoint_type(value.type))


@gradients.of(tt.AtomicRMW)
def _atomic(at: Reverse, op: tt.AtomicRMW, adjoint: Value | None) -> None:
    if adjoint is not None:
        raise no_gradient(op, "its result depends on the order of the programs", "use a store, or leave the result")
    if op.kind is not AtomicKind.FADD:
        raise no_gradient(op, f"'{op.kind.value}' keeps one of the values, which depends on all programs")
    mask = None if op.mask is None else at.value(op.mask)
    at.add(op.value, _given(at, at.plan.of[op].gradient, op.value, mask))


@gradients.of(tt.DescriptorStore)
def _descriptor_store(at: Reverse, op: tt.DescriptorStore | tt.DescriptorReduce, adjoint: None) -> None:
    descriptor = at.value(at.plan.of[op].gradient)
    if expect(descriptor.type, DescriptorType).padding != "zero":
        raise no_gradient(op, "its block is padded with NaN, and so is that of the gradient", 'pad with "zero"')
    read = at.emit(tt.DescriptorLoad(descriptor, [at.value(offset) for offset in op.offsets]))
    at.add(op.value, at.as_type(read, adjoint_type(op.value.type)))


@gradients.of(tt.DescriptorLoad)
def _descriptor_load(at: Reverse, op: tt.DescriptorLoad, adjoint: Value) -> None:
    access = at.plan.wrt.get(op)
    if access is not None:
        _check_addable(op)
        offsets = [at.value(offset) for offset in op.offsets]
        value = at.as_type(adjoint, op.result.type)
        at.emit(tt.DescriptorReduce(at.value(access.gradient), value, offsets, kind=AtomicKind.FADD))


@gradients.of(tt.DescriptorReduce)
def _descriptor_reduce(at: Reverse, op: tt.DescriptorReduce, adjoint: None) -> None:
    if op.kind is not AtomicKind.FADD:
        raise no_gradient(op, f"'{op.kind.value}' keeps one of the values, which depends on all programs")
    _descriptor_store(at, op, adjoint)


@gradients.of(tt.AtomicCAS)
def _compare_and_swap(at: Reverse, op: tt.AtomicCAS, adjoint: Value | None) -> None:
    raise no_gradient(op, "its result depends on the order of the programs")
