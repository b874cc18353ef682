"""Pointers, loads and stores, atomics, and tensor descriptors."""

from __future__ import annotations

from ziggurat.backend.mlir.arithmetic import cast, cast_step, choose, compare, is_boolean
from ziggurat.backend.mlir.emitter import OP, Attributes, MlirEmitter, Names, emits, listed, mlir_type, own_type, quoted
from ziggurat.backend.mlir.reader import MlirReader, reads, signed
from ziggurat.backend.mlir.syntax import Raw, Statement
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import AtomicKind, CacheModifier, EvictionPolicy, MemScope, MemSemantic, Padding
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Value, constant_of, expect
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    TensorType,
    Type,
    element_of,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    pointee_of,
    scalar_element,
    shape_of,
    with_element,
)


@emits(tt.AddPtr)
def add_pointer(e: MlirEmitter, op: tt.AddPtr) -> Names:
    """An unsigned offset is widened first, as Triton's offsets are signed."""
    offset, type_ = e.name(op.offset), op.offset.type
    if not scalar_element(type_).signed:
        wide = with_element(type_, i64)
        offset, type_ = cast_step(e, "arith.extui", offset, type_, wide), wide
    return (e.value(f"{op.NAME} {e.name(op.ptr)}, {offset}", f" : {mlir_type(op.result.type)}, {mlir_type(type_)}"),)


def cache_policy(e: MlirEmitter, cache: CacheModifier, eviction: EvictionPolicy) -> tuple[str, Attributes]:
    """The words after the operands, and the attributes, for a cache modifier or an eviction policy of an access."""
    if cache is CacheModifier.NONE and eviction is EvictionPolicy.NORMAL:
        return "", {}
    if e.has("cache policies"):
        policy = f"#tt.cache_policy<cache_modifier = {cache.value}, eviction_policy = {eviction.value}>"
        return "", {"cachePolicy": policy}
    words = f" cacheModifier = {cache.value}" if cache is not CacheModifier.NONE else ""
    return words + (f" evictionPolicy = {eviction.value}" if eviction is not EvictionPolicy.NORMAL else ""), {}


def _bytes(e: MlirEmitter, ptr: Value) -> tuple[str, Type]:
    # A bool takes a byte in memory, and is loaded and stored as one, as Triton's front end does it: Triton's back end
    # fails on pointers to i1.
    name, type_ = e.name(ptr), ptr.type
    if type_ != with_element(type_, PtrType(i1)):
        return name, type_
    target = with_element(type_, PtrType(i8))
    return cast_step(e, "tt.bitcast", name, type_, target), target


def _optional(e: MlirEmitter, value: Value | None) -> Names:
    """The name of an operand that an op may lack."""
    return () if value is None else (e.name(value),)


@emits(tt.Load)
def load(e: MlirEmitter, op: tt.Load) -> Names:
    ptr, ptr_type = _bytes(e, op.ptr)
    boolean = is_boolean(op.result.type)
    wide = with_element(op.result.type, i8)
    operands = [ptr, *_optional(e, op.mask)]
    if op.other is not None:
        other = e.name(op.other)
        operands.append(cast_step(e, "arith.extui", other, op.other.type, wide) if boolean else other)
    words, attributes = cache_policy(e, op.cache, op.eviction)
    if op.volatile:
        attributes["isVolatile"] = "true"
    name = e.value(f"{op.NAME} {', '.join(operands)}{words}", f" : {mlir_type(ptr_type)}", attributes)
    if not boolean:
        return (name,)
    with e.steps():
        return (compare(e, "ne", name, e.constant(0, wide), wide),)


@emits(tt.Store)
def store(e: MlirEmitter, op: tt.Store) -> Names:
    ptr, ptr_type = _bytes(e, op.ptr)
    value, type_ = e.name(op.value), op.value.type
    if is_boolean(type_):
        value = cast_step(e, "arith.extui", value, type_, with_element(type_, i8))
    operands = [ptr, value, *_optional(e, op.mask)]
    words, attributes = cache_policy(e, op.cache, op.eviction)
    return e.line(f"{op.NAME} {', '.join(operands)}{words}", f" : {mlir_type(ptr_type)}", attributes=attributes)


def _read_modify_write(
    e: MlirEmitter, op: tt.AtomicRMW, kind: str, ptr: tuple[str, Type], value: tuple[str, Type], mask: str | None
) -> str:
    names = [ptr[0], value[0]]
    types = [mlir_type(ptr[1]), mlir_type(value[1])]
    if mask is not None:
        names.append(mask)
        types.append(mlir_type(with_element(value[1], i1)))
    order = f"{kind}, {op.sem.value}, {op.scope.value}"
    return e.value(f"{op.NAME} {order}, {', '.join(names)}", f" : ({', '.join(types)}) -> {mlir_type(value[1])}")


@emits(tt.AtomicRMW)
def read_modify_write(e: MlirEmitter, op: tt.AtomicRMW) -> Names:
    mask = e.name(op.mask) if op.mask is not None else None
    if op.kind in (AtomicKind.FMAX, AtomicKind.FMIN):
        return (_extreme_of_floats(e, op, mask),)
    kind = "exch" if op.kind is AtomicKind.XCHG else op.kind.value
    ptr, value = (e.name(op.ptr), op.ptr.type), (e.name(op.value), op.value.type)
    return (_read_modify_write(e, op, kind, ptr, value, mask),)


def _extreme_of_floats(e: MlirEmitter, op: tt.AtomicRMW, mask: str | None) -> str:
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
    with e.steps():
        bits_result = _of_bits(e, op, mask, bits, ptr_type)
    result = cast(e, "tt.bitcast", bits_result, bits, type_)
    e.hint(result, OP, quoted(op.NAME))
    return result


def _of_bits(e: MlirEmitter, op: tt.AtomicRMW, mask: str | None, bits: Type, ptr_type: Type) -> str:
    """The bits that were in memory, of two masked atomics on them."""
    type_ = op.value.type
    ptr = cast(e, "tt.bitcast", e.name(op.ptr), op.ptr.type, ptr_type)
    value = cast(e, "tt.bitcast", e.name(op.value), type_, bits)
    zero = e.constant(0, bits)
    parts: list[str] = []
    signs: list[str] = []
    of_positive, of_negative = ("max", "umin") if op.kind is AtomicKind.FMAX else ("min", "umax")
    for predicate, kind in (("sge", of_positive), ("slt", of_negative)):
        sign = compare(e, predicate, value, zero, bits)
        here = sign if mask is None else e.compute("arith.andi", with_element(type_, i1), mask, sign)
        parts.append(_read_modify_write(e, op, kind, (ptr, ptr_type), (value, bits), here))
        signs.append(sign)
    return choose(e, signs[0], parts[0], parts[1], bits)


@emits(tt.AtomicCAS)
def compare_and_swap(e: MlirEmitter, op: tt.AtomicCAS) -> Names:
    types = ", ".join(mlir_type(value.type) for value in op.operands)
    order = f"{op.sem.value}, {op.scope.value}"
    operands = ", ".join(e.names(op.operands))
    return (e.value(f"{op.NAME} {order}, {operands}", f" : ({types}) -> {mlir_type(op.result.type)}"),)


@emits(tt.MakeTensorDescriptor)
def make_descriptor(e: MlirEmitter, op: tt.MakeTensorDescriptor) -> Names:
    attributes: Attributes = {"padding": "2 : i32"} if op.padding is Padding.NAN else {}
    shape, strides = ", ".join(e.names(op.shape)), ", ".join(e.names(op.strides))
    types = f" : {mlir_type(op.base.type)}, {mlir_type(op.type)}"
    return (e.value(f"{op.NAME} {e.name(op.base)}, [{shape}], [{strides}]", types, attributes=attributes),)


@emits(tt.DescriptorLoad)
def load_block(e: MlirEmitter, op: tt.DescriptorLoad) -> Names:
    place = f"{e.name(op.descriptor)}[{', '.join(e.names(op.offsets))}]"
    types = f" : {mlir_type(op.descriptor.type)} -> {mlir_type(op.result.type)}"
    words, attributes = cache_policy(e, op.cache, op.eviction)
    return (e.value(f"{op.NAME} {place}{words}", types, attributes),)


@emits(tt.DescriptorReduce)
def reduce_block(e: MlirEmitter, op: tt.DescriptorReduce) -> Names:
    if op.kind is AtomicKind.XCHG:
        raise TargetError(f"Triton has no {op.NAME} {op.kind.value}")
    kind = op.kind.value.lstrip("fu")  # Of floats, signed and unsigned integers the kinds have one name.
    place = f"{e.name(op.descriptor)}[{', '.join(e.names(op.offsets))}]"
    types = f" : {mlir_type(op.descriptor.type)}, {mlir_type(op.value.type)}"
    return e.line(f"{op.NAME} {kind}, {place}, {e.name(op.value)}", types)


@emits(tt.DescriptorStore)
def store_block(e: MlirEmitter, op: tt.DescriptorStore) -> Names:
    place = f"{e.name(op.descriptor)}[{', '.join(e.names(op.offsets))}]"
    types = f" : {mlir_type(op.descriptor.type)}, {mlir_type(op.value.type)}"
    return e.line(f"{op.NAME} {place}, {e.name(op.value)}", types)


@emits(tt.DescriptorPadding)
def descriptor_padding(e: MlirEmitter, op: tt.DescriptorPadding) -> Names:
    """Triton's descriptors keep their padding where control flow chooses between them; here the choice between the
    operand and itself bears the type for `from_mlir`."""
    type_ = expect(op.descriptor.type, DescriptorType)
    if constant_of(op.nan) is not (type_.padding == "nan"):
        raise TargetError(f"{op.NAME} that changes the padding of a descriptor has no form in Triton's MLIR")
    nan, name = e.names(op.operands)[::-1]
    return (e.value(f"arith.select {nan}, {name}, {name}", f" : {mlir_type(type_)}", own_type(op.result.type)),)


@emits(tt.DescriptorGather)
def load_rows(e: MlirEmitter, op: tt.DescriptorGather) -> Names:
    place = f"{e.name(op.descriptor)}[{e.name(op.rows)}, {e.name(op.column)}]"
    return (e.value(f"{op.NAME} {place}", f" : ({listed(op.operands)}) -> {mlir_type(op.result.type)}"),)


@emits(tt.DescriptorScatter)
def store_rows(e: MlirEmitter, op: tt.DescriptorScatter) -> Names:
    place = f"{e.name(op.descriptor)}[{e.name(op.rows)}, {e.name(op.column)}]"
    return e.line(
        f"{op.NAME} {place}, {e.name(op.value)}", f" : {listed((op.descriptor, op.rows, op.column, op.value))}"
    )


@emits(tt.DescriptorSize, tt.DescriptorStride)
def descriptor_fact(e: MlirEmitter, op: tt.DescriptorFact) -> Names:
    """Triton has the sizes and strides beside a descriptor: where it is made, or as parameters of the kernel."""
    if op.descriptor in e.facts:
        return (e.facts[op.descriptor][type(op), op.axis],)
    maker = op.descriptor.op
    if not isinstance(maker, tt.MakeTensorDescriptor):
        raise TargetError(
            f"{op.NAME} of a descriptor that a loop, a branch or a function hands on has no form in Triton's MLIR",
            hint="use the numbers from which the descriptor is made",
        )
    return (e.name((maker.shape if isinstance(op, tt.DescriptorSize) else maker.strides)[op.axis]),)


# Reading.


# In Triton's order, by which the generic form counts them.
_CACHES = {name: CacheModifier(name) for name in ("none", "ca", "cg", "wb", "cs", "wt", "cv")}
_EVICTIONS = {
    "none": EvictionPolicy.NORMAL,
    **{f"evict_{name}": EvictionPolicy(f"evict_{name}") for name in ("normal", "first", "last")},
}


def _policy(r: MlirReader, s: Statement) -> tuple[CacheModifier, EvictionPolicy]:
    """The cache modifier and the eviction policy of an access, from two attributes or from one."""
    policy = s.attributes.get("cachePolicy")
    if isinstance(policy, Raw):
        s.attributes["cacheModifier"] = policy.after("cache_modifier") or "none"
        s.attributes["evictionPolicy"] = policy.after("eviction_policy") or "evict_normal"
    cache = "cacheModifier" if "cacheModifier" in s.attributes else "cache"
    eviction = "evictionPolicy" if "evictionPolicy" in s.attributes else "evict"
    return (
        r.choice(s, cache, _CACHES, default=CacheModifier.NONE),
        r.choice(s, eviction, _EVICTIONS, default=EvictionPolicy.NORMAL),
    )


def _pointees(ptr: Value) -> Type:
    element = element_of(ptr.type)
    return with_element(ptr.type, element.pointee) if isinstance(element, PtrType) else ptr.type


@reads("tt.load")
def read_load(r: MlirReader, s: Statement) -> Value:
    ptr, *rest = r.operands(s, 1, 2, 3)
    if s.attributes.get("boundaryCheck"):
        r.unsupported("a block pointer")
    mask = rest[0] if rest else None
    other = r.as_type(rest[1], _pointees(ptr)) if len(rest) > 1 else None
    cache, eviction = _policy(r, s)
    volatile = bool(s.attributes.get("isVolatile", False))
    return r.add(tt.Load(ptr, mask, other, cache=cache, eviction=eviction, volatile=volatile))


@reads("tt.store")
def read_store(r: MlirReader, s: Statement) -> None:
    ptr, value, *rest = r.operands(s, 2, 3)
    cache, eviction = _policy(r, s)
    mask = rest[0] if rest else None
    r.add(tt.Store(ptr, r.as_type(value, _pointees(ptr)), mask, cache=cache, eviction=eviction))


# In Triton's order, by which the generic form counts them; kinds from 1.
_KINDS = {
    "none": "", "and": "and", "or": "or", "xor": "xor", "add": "add", "fadd": "fadd", "max": "max", "min": "min",
    "umax": "umax", "umin": "umin", "exch": "xchg",
}  # fmt: skip
_SEMANTICS = {"none": MemSemantic.RELAXED} | {
    name: MemSemantic(name) for name in ("relaxed", "acquire", "release", "acq_rel")
}
_SCOPES = {"none": MemScope.GPU} | {name: MemScope(name) for name in ("gpu", "cta", "sys")}
_UNSIGNED = (AtomicKind.UMAX, AtomicKind.UMIN)


def _order(r: MlirReader, s: Statement, word: int) -> tuple[MemSemantic, MemScope]:
    return r.choice(s, "sem", _SEMANTICS, word=word), r.choice(s, "scope", _SCOPES, word=word + 1)


@reads("tt.atomic_rmw")
def read_atomic(r: MlirReader, s: Statement) -> Value:
    if OP in s.attributes:
        return _of_floats(r, s)
    ptr, value, *rest = r.operands(s, 2, 3)
    kind = AtomicKind(r.choice(s, "atomic_rmw_op", _KINDS, word=0))
    pointee = _pointees(ptr)
    if kind in (AtomicKind.MAX, AtomicKind.MIN, AtomicKind.UMAX, AtomicKind.UMIN):
        pointee = signed(pointee, kind not in _UNSIGNED)
        ptr = r.as_type(ptr, with_element(ptr.type, PtrType(scalar_element(pointee))))
    sem, scope = _order(r, s, 1)
    mask = rest[0] if rest else None
    return r.add(tt.AtomicRMW(ptr, r.as_type(value, pointee), mask, kind=kind, sem=sem, scope=scope))


def _of_floats(r: MlirReader, s: Statement) -> Value:
    """The atomic whose steps `_extreme_of_floats` has written."""
    of_positive = r.steps[r.steps[s.operands[0]].operands[1]]
    ptr, value, operands = r.values(of_positive.operands)
    # Without a mask, this is the comparison of the value with 0, which is a step too.
    mask = operands if element_of(operands.type) == i1 else None
    kind = AtomicKind.FMAX if of_positive.words[0] == "max" else AtomicKind.FMIN
    sem, scope = _order(r, of_positive, 1)
    return r.add(tt.AtomicRMW(ptr, value, mask, kind=kind, sem=sem, scope=scope))


@reads("tt.atomic_cas")
def read_swap(r: MlirReader, s: Statement) -> Value:
    ptr, *values = r.operands(s, 3)
    compared, value = (r.as_type(value, _pointees(ptr)) for value in values)
    sem, scope = _order(r, s, 0)
    return r.add(tt.AtomicCAS(ptr, compared, value, sem=sem, scope=scope))


# Triton counts them from 1.
_PADDINGS = {"none": "zero", "pad_zero": "zero", "pad_nan": "nan", "zero": "zero", "nan": "nan"}


@reads("tt.make_tensor_descriptor")
def read_make_descriptor(r: MlirReader, s: Statement) -> Value:
    (type_,) = s.result_types
    assert isinstance(type_, DescriptorType)
    rank = len(type_.block)
    base, *sizes = r.operands(s, 1 + 2 * rank)
    padding = r.choice(s, "padding", _PADDINGS, default="zero")
    descriptor_type = DescriptorType(type_.block, pointee_of(base.type), padding)
    shape = [r.as_type(value, i32) for value in sizes[:rank]]
    strides = [r.as_type(value, i64) for value in sizes[rank:]]
    return r.add(tt.MakeTensorDescriptor(base, shape, strides, type=descriptor_type, padding=Padding(padding)))


@reads("tt.descriptor_load")
def read_descriptor_load(r: MlirReader, s: Statement) -> Value:
    descriptor, *offsets = r.operands(s)
    offsets = [r.as_type(value, i32) for value in offsets]
    cache, eviction = _policy(r, s)
    load = r.add(tt.DescriptorLoad(descriptor, offsets, cache=cache, eviction=eviction))
    (type_,) = s.result_types  # Triton's block may lack axes of size 1.
    return load if shape_of(load.type) == shape_of(type_) else r.add(tt.Reshape(load, type=type_))


def _block(r: MlirReader, descriptor: Value, value: Value) -> Value:
    """A value as the block of a descriptor."""
    type_ = expect(descriptor.type, DescriptorType)
    if shape_of(value.type) != type_.block:
        value = r.add(tt.Reshape(value, type=TensorType(type_.block, scalar_element(value.type))))
    return r.as_type(value, TensorType(type_.block, type_.element))


@reads("tt.descriptor_store", "tt.descriptor_reduce")
def read_written_block(r: MlirReader, s: Statement) -> None:
    descriptor, *offsets, value = r.operands(s)
    offsets = [r.as_type(offset, i32) for offset in offsets]
    block = _block(r, descriptor, value)
    if s.name == "tt.descriptor_store":
        r.add(tt.DescriptorStore(descriptor, block, offsets))
        return
    kind = r.choice(s, "kind", _DESCRIPTOR_KINDS, word=0)
    scalar = scalar_element(block.type)
    if kind in ("add", "min", "max"):
        kind = ("f" if scalar.is_float else "" if kind == "add" or scalar.signed else "u") + kind
    r.add(tt.DescriptorReduce(descriptor, block, offsets, kind=AtomicKind(kind)))


@reads("tt.descriptor_gather")
def read_descriptor_gather(r: MlirReader, s: Statement) -> Value:
    descriptor, rows, column = r.operands(s, 3)
    return r.add(tt.DescriptorGather(descriptor, r.as_type(rows, with_element(rows.type, i32)), r.as_type(column, i32)))


@reads("tt.descriptor_scatter")
def read_descriptor_scatter(r: MlirReader, s: Statement) -> None:
    descriptor, rows, column, value = r.operands(s, 4)
    type_ = expect(descriptor.type, DescriptorType)
    value = r.as_type(value, with_element(value.type, type_.element))
    rows = r.as_type(rows, with_element(rows.type, i32))
    r.add(tt.DescriptorScatter(descriptor, value, rows, r.as_type(column, i32)))


_DESCRIPTOR_KINDS = {"none": "", **{name: name for name in ("add", "min", "max", "inc", "dec", "and", "or", "xor")}}
