"""Pointers, loads and stores, atomics, and tensor descriptors."""

from __future__ import annotations

from ziggurat.backend.mlir.arithmetic import cast, choose, compare, is_boolean
from ziggurat.backend.mlir.emitter import Attributes, Emitter, Names, emits, mlir_type
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import AtomicKind, CacheModifier, EvictionPolicy, Padding
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import PtrType, Type, f32, f64, i1, i8, i32, i64, scalar_element, with_element


@emits(tt.AddPtr)
def add_pointer(e: Emitter, op: tt.AddPtr) -> Names:
    """An unsigned offset is widened first, as Triton's offsets are signed."""
    offset, type_ = e.name(op.offset), op.offset.type
    if not scalar_element(type_).signed:
        wide = with_element(type_, i64)
        offset, type_ = cast(e, "arith.extui", offset, type_, wide), wide
    return (e.value(f"{op.NAME} {e.name(op.ptr)}, {offset}", f" : {mlir_type(op.result.type)}, {mlir_type(type_)}"),)


def cache_policy(cache: CacheModifier, eviction: EvictionPolicy) -> Attributes:
    """The attribute of an access for a cache modifier or an eviction policy; none for the defaults."""
    if cache is CacheModifier.NONE and eviction is EvictionPolicy.NORMAL:
        return {}
    return {"cachePolicy": f"#tt.cache_policy<cache_modifier = {cache.value}, eviction_policy = {eviction.value}>"}


def _bytes(e: Emitter, ptr: Value) -> tuple[str, Type]:
    # A bool takes a byte in memory, and is loaded and stored as one, as Triton's front end does it: Triton's back end
    # fails on pointers to i1.
    name, type_ = e.name(ptr), ptr.type
    if type_ != with_element(type_, PtrType(i1)):
        return name, type_
    target = with_element(type_, PtrType(i8))
    return cast(e, "tt.bitcast", name, type_, target), target


def _optional(e: Emitter, value: Value | None) -> Names:
    """The name of an operand that an op may lack."""
    return () if value is None else (e.name(value),)


@emits(tt.Load)
def load(e: Emitter, op: tt.Load) -> Names:
    ptr, ptr_type = _bytes(e, op.ptr)
    boolean = is_boolean(op.result.type)
    wide = with_element(op.result.type, i8)
    operands = [ptr, *_optional(e, op.mask)]
    if op.other is not None:
        other = e.name(op.other)
        operands.append(cast(e, "arith.extui", other, op.other.type, wide) if boolean else other)
    attributes = cache_policy(op.cache, op.eviction)
    if op.volatile:
        attributes["isVolatile"] = "true"
    name = e.value(f"{op.NAME} {', '.join(operands)}", f" : {mlir_type(ptr_type)}", attributes=attributes)
    return (compare(e, "ne", name, e.constant(0, wide), wide) if boolean else name,)


@emits(tt.Store)
def store(e: Emitter, op: tt.Store) -> Names:
    ptr, ptr_type = _bytes(e, op.ptr)
    value, type_ = e.name(op.value), op.value.type
    if is_boolean(type_):
        value = cast(e, "arith.extui", value, type_, with_element(type_, i8))
    operands = [ptr, value, *_optional(e, op.mask)]
    attributes = cache_policy(op.cache, op.eviction)
    return e.line(f"{op.NAME} {', '.join(operands)}", f" : {mlir_type(ptr_type)}", attributes=attributes)


def _read_modify_write(
    e: Emitter, op: tt.AtomicRMW, kind: str, ptr: tuple[str, Type], value: tuple[str, Type], mask: str | None
) -> str:
    names = [ptr[0], value[0]]
    types = [mlir_type(ptr[1]), mlir_type(value[1])]
    if mask is not None:
        names.append(mask)
        types.append(mlir_type(with_element(value[1], i1)))
    order = f"{kind}, {op.sem.value}, {op.scope.value}"
    return e.value(f"{op.NAME} {order}, {', '.join(names)}", f" : ({', '.join(types)}) -> {mlir_type(value[1])}")


@emits(tt.AtomicRMW)
def read_modify_write(e: Emitter, op: tt.AtomicRMW) -> Names:
    mask = e.name(op.mask) if op.mask is not None else None
    if op.kind in (AtomicKind.FMAX, AtomicKind.FMIN):
        return (_extreme_of_floats(e, op, mask),)
    kind = "exch" if op.kind is AtomicKind.XCHG else op.kind.value
    ptr, value = (e.name(op.ptr), op.ptr.type), (e.name(op.value), op.value.type)
    return (_read_modify_write(e, op, kind, ptr, value, mask),)


def _extreme_of_floats(e: Emitter, op: tt.AtomicRMW, mask: str | None) -> str:
    """The larger or smaller of floats, by their bits, as in Triton's front end.

    The bits of positive floats are ordered as signed integers, those of negative floats in reverse as unsigned ones.
    """
    type_ = op.value.type
    scalar = scalar_element(type_)
    if scalar not in (f32, f64):
        raise TargetError(f"Triton has no atomic {op.kind.value} for {scalar}")
    integer = i32 if scalar == f32 else i64
    bits = with_element(type_, integer)
    ptr_type = with_element(op.ptr.type, PtrType(integer))
    ptr = cast(e, "tt.bitcast", e.name(op.ptr), op.ptr.type, ptr_type)
    value = cast(e, "tt.bitcast", e.name(op.value), type_, bits)
    zero = e.constant(0, bits)
    found: list[str] = []
    signs: list[str] = []
    of_positive, of_negative = ("max", "umin") if op.kind is AtomicKind.FMAX else ("min", "umax")
    for predicate, kind in (("sge", of_positive), ("slt", of_negative)):
        sign = compare(e, predicate, value, zero, bits)
        here = sign if mask is None else e.compute("arith.andi", with_element(type_, i1), mask, sign)
        found.append(_read_modify_write(e, op, kind, (ptr, ptr_type), (value, bits), here))
        signs.append(sign)
    return cast(e, "tt.bitcast", choose(e, signs[0], found[0], found[1], bits), bits, type_)


@emits(tt.AtomicCAS)
def compare_and_swap(e: Emitter, op: tt.AtomicCAS) -> Names:
    types = ", ".join(mlir_type(value.type) for value in op.operands)
    order = f"{op.sem.value}, {op.scope.value}"
    operands = ", ".join(e.names(op.operands))
    return (e.value(f"{op.NAME} {order}, {operands}", f" : ({types}) -> {mlir_type(op.result.type)}"),)


@emits(tt.MakeTensorDescriptor)
def make_descriptor(e: Emitter, op: tt.MakeTensorDescriptor) -> Names:
    attributes: Attributes = {"padding": "2 : i32"} if op.padding is Padding.NAN else {}
    shape, strides = ", ".join(e.names(op.shape)), ", ".join(e.names(op.strides))
    types = f" : {mlir_type(op.base.type)}, {mlir_type(op.type)}"
    return (e.value(f"{op.NAME} {e.name(op.base)}, [{shape}], [{strides}]", types, attributes=attributes),)


@emits(tt.DescriptorLoad)
def load_block(e: Emitter, op: tt.DescriptorLoad) -> Names:
    place = f"{e.name(op.descriptor)}[{', '.join(e.names(op.offsets))}]"
    types = f" : {mlir_type(op.descriptor.type)} -> {mlir_type(op.result.type)}"
    return (e.value(f"{op.NAME} {place}", types, cache_policy(op.cache, op.eviction)),)


# The names of `DescriptorReduceKind` in Triton; its sums of floats and of integers have one name.
_REDUCE_KINDS = {
    AtomicKind.ADD: "add", AtomicKind.FADD: "add", AtomicKind.MIN: "min", AtomicKind.UMIN: "min",
    AtomicKind.FMIN: "min", AtomicKind.MAX: "max", AtomicKind.UMAX: "max", AtomicKind.FMAX: "max",
    AtomicKind.AND: "and", AtomicKind.OR: "or", AtomicKind.XOR: "xor",
}  # fmt: skip


@emits(tt.DescriptorReduce)
def reduce_block(e: Emitter, op: tt.DescriptorReduce) -> Names:
    if op.kind not in _REDUCE_KINDS:
        raise TargetError(f"Triton has no {op.NAME} {op.kind.value}")
    place = f"{e.name(op.descriptor)}[{', '.join(e.names(op.offsets))}]"
    types = f" : {mlir_type(op.descriptor.type)}, {mlir_type(op.value.type)}"
    return e.line(f"{op.NAME} {_REDUCE_KINDS[op.kind]}, {place}, {e.name(op.value)}", types)


@emits(tt.DescriptorStore)
def store_block(e: Emitter, op: tt.DescriptorStore) -> Names:
    place = f"{e.name(op.descriptor)}[{', '.join(e.names(op.offsets))}]"
    types = f" : {mlir_type(op.descriptor.type)}, {mlir_type(op.value.type)}"
    return e.line(f"{op.NAME} {place}, {e.name(op.value)}", types)
