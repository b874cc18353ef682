"""Rules of loads, stores, atomics and tensor descriptors."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import AtomicKind, CacheModifier, EvictionPolicy, MemScope, MemSemantic, Padding
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import (
    SCALARS,
    PtrType,
    ScalarType,
    Type,
    element_of,
    i1,
    pointee_of,
    shape_of,
    shaped,
    with_element,
)
from ziggurat.frontends.language.phrases import (
    ADD_OFFSETS,
    COMPARE_OFFSETS,
    NOT_A_POINTER,
    OTHER_WITHOUT_MASK,
    POINTER_TENSOR,
    UNLIKE_POINTER,
)
from ziggurat.transforms.calls.block_pointers import access, check_access
from ziggurat.transforms.calls.constant_arguments import describe, one_of
from ziggurat.transforms.calls.emit import Emitter, Operand
from ziggurat.transforms.calls.foreign_floats import check_conversion
from ziggurat.transforms.calls.lattice import BlockPtrType
from ziggurat.transforms.calls.promotion import NONE, common_shape, is_number, of_descriptor, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, choice

CACHE = {"": CacheModifier.NONE, **{f".{m.value}": m for m in CacheModifier if m is not CacheModifier.NONE}}
EVICTION = {"": EvictionPolicy.NORMAL, **{policy.value: policy for policy in EvictionPolicy}}
SEMANTICS = {None: MemSemantic.ACQ_REL, **{sem.value: sem for sem in MemSemantic}}
SCOPES = {None: MemScope.GPU, **{scope.value: scope for scope in MemScope}}
PADDING = {None: Padding.ZERO, "": Padding.ZERO, **{padding.value: padding for padding in Padding}}

_WORDS = ("i32", "i64", "u32", "u64")
_NUMBERS = (*_WORDS, "f32", "f64")
# Atomics by call: the kind for floats, signed and unsigned integers; the dtypes that hardware has an instruction for.
ATOMICS: dict[str, tuple[tuple[AtomicKind, ...], tuple[str, ...]]] = {
    "atomic_add": ((AtomicKind.FADD, AtomicKind.ADD, AtomicKind.ADD), (*_WORDS, "f16", "bf16", "f32", "f64")),
    "atomic_max": ((AtomicKind.FMAX, AtomicKind.MAX, AtomicKind.UMAX), _NUMBERS),
    "atomic_min": ((AtomicKind.FMIN, AtomicKind.MIN, AtomicKind.UMIN), _NUMBERS),
    "atomic_and": ((AtomicKind.AND,) * 3, _WORDS),
    "atomic_or": ((AtomicKind.OR,) * 3, _WORDS),
    "atomic_xor": ((AtomicKind.XOR,) * 3, _WORDS),
    "atomic_xchg": ((AtomicKind.XCHG,) * 3, _NUMBERS),
}
_SWAPPED = ("i16", "u16", *_WORDS, "f16", "bf16", "f32", "f64")


def atomic_dtypes(op: tt.AtomicRMW | tt.AtomicCAS) -> tuple[str, ...]:
    """The dtypes for which the hardware has an atomic op."""
    if isinstance(op, tt.AtomicCAS):
        return _SWAPPED
    return next(dtypes for kinds, dtypes in ATOMICS.values() if op.kind in kinds)


def _pointee(call: Typing, ptr: Type) -> ScalarType:
    element = element_of(ptr)
    if not isinstance(element, PtrType):
        hint = of_descriptor(ptr) or ADD_OFFSETS()
        raise KernelTypeError(NOT_A_POINTER(call=str(call), type=describe(ptr)), hint=hint)
    return element.pointee


def _writable(ptr: Type) -> None:
    element = element_of(ptr)
    if isinstance(element, PtrType) and element.const:
        raise KernelValueError(
            "Cannot store to a constant pointer", hint="leave out the annotation tl.const of the kernel's parameter"
        )


def _fits(call: Typing, what: str, ptr: Type, value: Type) -> None:
    """`value` broadcasts to the shape of the pointers."""
    sizes, shape = shape_of(ptr), shape_of(value)
    padded = (1,) * (len(sizes) - len(shape)) + shape
    if len(padded) == len(sizes) and all(a in (1, b) for a, b in zip(padded, sizes, strict=True)):
        return
    if not sizes:
        argument = what.removeprefix("the ").strip("`").capitalize()
        summary = UNLIKE_POINTER(call=str(call), what=what, argument=argument, shape=list(shape))
        raise KernelTypeError(summary, hint=POINTER_TENSOR())
    raise call.error(
        "the shapes of {} and the pointers do not match: {} and {}",
        what,
        list(shape),
        list(sizes),
        hint=f"make each size of {what} equal to that of the pointers, or 1, which is broadcast",
    )


def _broadcast(call: Typing, ptr: Type, *others: Type | None) -> Type:
    """The type of the pointers of a load, which Triton broadcasts with the mask and `other`."""
    if not shape_of(ptr):
        return ptr
    try:
        shape = common_shape("", ptr, *(other for other in others if other is not None))
        return shaped(shape, expect(element_of(ptr), PtrType))
    except KernelTypeError:  # The rules of the mask and of `other` say which does not match.
        return ptr


def _masked(call: Typing, ptr: Type, mask: Type | None) -> None:
    if mask is None:
        return
    if not is_number(mask) or scalar_type(mask).kind != "bool":
        raise call.error("the mask must be {} (true or false); got {}", i1, mask, hint=COMPARE_OFFSETS())
    _fits(call, "the mask", ptr, mask)


def _written(call: Typing, what: str, ptr: Type, value: Type) -> None:
    """A value to be written has the pointee's type; another number is converted to it."""
    pointee = _pointee(call, ptr)
    if not is_number(value):
        raise call.error("{} must be a number; got {}", what, value)
    check_conversion(value, pointee)
    _fits(call, what, ptr, value)


def _stored(emit: Emitter, ptr: Operand, value: Operand) -> Value:
    """A value as the elements that the pointers point to."""
    return emit.convert(value, with_element(ptr.type, pointee_of(ptr.type)), dense=True)


def _mask(emit: Emitter, ptr: Operand, mask: Operand | None) -> Value | None:
    return None if mask is None else emit.convert(mask, with_element(ptr.type, i1), dense=True)


def _loaded(
    call: Typing, ptr: Type, mask: Type | None, other: Type | None, cache: Any, eviction: Any, _: Any,
    boundary_check: Any = (), padding: Any = "",
) -> Type:  # fmt: skip
    check_access(call, ptr, boundary_check, padding, mask=mask, other=other)
    _policy(cache, eviction)
    if isinstance(ptr, BlockPtrType):
        return shaped(ptr.block, ptr.element)
    pointee = _pointee(call, ptr)
    ptr = _broadcast(call, ptr, mask, other)
    _masked(call, ptr, mask)
    if other is not None:
        if mask is None:
            raise KernelTypeError(OTHER_WITHOUT_MASK(call=str(call)))
        _written(call, "`other`", ptr, other)
    return shaped(shape_of(ptr), pointee)


def _policy(cache: Any, eviction: Any) -> None:
    choice("cache_modifier", cache, CACHE)
    choice("eviction_policy", eviction, EVICTION)


def _load(
    emit: Emitter, result: Type, ptr: Operand, mask: Operand | None, other: Operand | None, cache: Any, eviction: Any,
    volatile: Any, boundary_check: Any = (), padding: Any = "",
) -> Value:  # fmt: skip
    if isinstance(ptr.type, BlockPtrType):
        pointers, active, value = access(emit, ptr, boundary_check, padding)
    else:
        if shape_of(result) != shape_of(ptr.type):
            assert isinstance(ptr.value, Value)
            whole = emit.spread(ptr.value, shape_of(result))
            ptr = Operand(whole.type, whole)
        pointers, active = ptr.value, _mask(emit, ptr, mask)
        value = None if other is None else _stored(emit, ptr, other)
    return emit.add(
        tt.Load(pointers, active, value, cache=CACHE[cache], eviction=EVICTION[eviction], volatile=bool(volatile))
    )


def _storing(
    call: Typing, ptr: Type, value: Type, mask: Type | None, cache: Any, eviction: Any, boundary_check: Any = ()
) -> Type:
    check_access(call, ptr, boundary_check, "", mask=mask)
    _policy(cache, eviction)
    if isinstance(ptr, BlockPtrType):
        _written(call, "the value", shaped(ptr.block, PtrType(ptr.element)), value)
    else:
        _written(call, "the value", ptr, value)
        _masked(call, ptr, mask)
        _writable(ptr)
    return NONE


def _store(
    emit: Emitter, result: Type, ptr: Operand, value: Operand, mask: Operand | None, cache: Any, eviction: Any,
    boundary_check: Any = (),
) -> Value:  # fmt: skip
    if isinstance(ptr.type, BlockPtrType):
        pointers, active, _ = access(emit, ptr, boundary_check)
        operand = emit.convert(value, shaped(ptr.type.block, ptr.type.element), dense=True)
    else:
        pointers, operand, active = ptr.value, _stored(emit, ptr, value), _mask(emit, ptr, mask)
    return emit.add(tt.Store(pointers, operand, active, cache=CACHE[cache], eviction=EVICTION[eviction]))


# Atomics.


def _atomic(call: Typing, dtypes: tuple[str, ...], ptr: Type, sem: Any, scope: Any) -> Type:
    pointee = _pointee(call, ptr)
    if pointee.name not in dtypes:
        raise call.error(
            "'ptr' must point to {}; got {}",
            one_of(SCALARS[name] for name in dtypes),
            pointee,
            hint="use one of these types: the hardware has no such operation on others",
        )
    _writable(ptr)
    choice("sem", sem, SEMANTICS)
    choice("scope", scope, SCOPES)
    return shaped(shape_of(ptr), pointee)


def _combined(call: Typing, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
    result = _atomic(call, ATOMICS[call.name][1], ptr, sem, scope)
    _written(call, "the value", ptr, value)
    _masked(call, ptr, mask)
    return result


def kind_of(call: str, element: ScalarType) -> AtomicKind:
    """The kind of a call that combines elements of a type."""
    kinds, _ = ATOMICS[call]
    return kinds[0 if element.is_float else 1 if element.signed else 2]


def _atomic_rule(call: str) -> Rule:
    def build(
        emit: Emitter, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        kind = kind_of(call, scalar_type(result))
        operand, active = _stored(emit, ptr, value), _mask(emit, ptr, mask)
        return emit.add(tt.AtomicRMW(ptr.value, operand, active, kind=kind, sem=SEMANTICS[sem], scope=SCOPES[scope]))

    return Rule(_combined, build)


def _swapped(call: Typing, ptr: Type, compare: Type, value: Type, sem: Any, scope: Any) -> Type:
    result = _atomic(call, _SWAPPED, ptr, sem, scope)
    _written(call, "the value compared with", ptr, compare)
    _written(call, "the value", ptr, value)
    return result


def _swap(emit: Emitter, result: Type, ptr: Operand, compare: Operand, value: Operand, sem: Any, scope: Any) -> Value:
    expected, replacement = _stored(emit, ptr, compare), _stored(emit, ptr, value)
    return emit.add(tt.AtomicCAS(ptr.value, expected, replacement, sem=SEMANTICS[sem], scope=SCOPES[scope]))


RULES = {
    "load": Rule(_loaded, _load),
    "store": Rule(_storing, _store),
    **{name: _atomic_rule(name) for name in ATOMICS},
    "atomic_cas": Rule(_swapped, _swap),
}
