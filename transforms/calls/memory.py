"""Rules of loads, stores, atomics and tensor descriptors."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import arith, tt
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
    i64,
    pointee_of,
    shape_of,
    shaped,
    u64,
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
from ziggurat.transforms.calls.emit import Built, Emitter, Operand
from ziggurat.transforms.calls.foreign_floats import check_conversion
from ziggurat.transforms.calls.lattice import BlockPtrType
from ziggurat.transforms.calls.promotion import NONE, common_shape, is_number, scalar_type, to_load
from ziggurat.transforms.calls.rule import Rule, Typing, choice, integers, scalar_dtype

CACHE = {"": CacheModifier.NONE, **{f".{m.value}": m for m in CacheModifier if m is not CacheModifier.NONE}}
EVICTION = {"": EvictionPolicy.NORMAL, **{policy.value: policy for policy in EvictionPolicy}}
SEMANTICS = {None: MemSemantic.ACQ_REL, **{sem.value: sem for sem in MemSemantic}}
# Those of accesses that only read, and of those that only write.
READING, WRITING = (("relaxed", name) for name in ("acquire", "release"))
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
_COMPARED = dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"))
_SIGNALS = {"set": "atomic_xchg", "add": "atomic_add"}
_SWAPPED = ("i16", "u16", *_WORDS, "f16", "bf16", "f32", "f64")


def atomic_dtypes(op: tt.AtomicRMW | tt.AtomicCAS) -> tuple[str, ...]:
    """The dtypes for which the hardware has an atomic op."""
    if isinstance(op, tt.AtomicCAS):
        return _SWAPPED
    return next(dtypes for kinds, dtypes in ATOMICS.values() if op.kind in kinds)


def _pointee(call: Typing, ptr: Type) -> ScalarType:
    element = element_of(ptr)
    if not isinstance(element, PtrType):
        hint = to_load(ptr) or ADD_OFFSETS()
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
    call: Typing, ptr: Type, mask: Type | None, other: Type | None, cache: Any, eviction: Any, volatile: Any,
    boundary_check: Any = (), padding: Any = "", sem: Any = None, scope: Any = None,
) -> Type:  # fmt: skip
    check_access(call, ptr, boundary_check, padding, mask=mask, other=other)
    _policy(cache, eviction)
    _ordered(call, ptr, READING, sem, scope, cache or eviction or volatile)
    if isinstance(ptr, BlockPtrType):
        return shaped(ptr.block, ptr.element)
    pointee = _pointee(call, ptr)
    ptr = _broadcast(call, ptr, mask, other)
    _masked(call, ptr, mask)
    if other is not None:
        if mask is None:
            raise KernelTypeError(OTHER_WITHOUT_MASK(call=str(call)), hint="give a mask, or leave `other` out")
        _written(call, "`other`", ptr, other)
    return shaped(shape_of(ptr), pointee)


def _policy(cache: Any, eviction: Any) -> None:
    choice("cache_modifier", cache, CACHE)
    choice("eviction_policy", eviction, EVICTION)


def _ordered(call: Typing, ptr: Type, semantics: tuple[str, ...], sem: Any, scope: Any, policy: Any) -> None:
    """Check the order of a load or a store with accesses of other programs; without `sem` it has none."""
    choice("sem", sem, dict.fromkeys((None, *semantics)))
    choice("scope", scope, SCOPES)
    if sem is None:
        if scope is not None:
            raise call.error("'scope' is that of an ordered access, but there is no 'sem'", hint='add sem="relaxed"')
        return
    if policy:
        raise call.error("an access with 'sem' must not be volatile, or have a cache modifier or an eviction policy")
    if isinstance(ptr, BlockPtrType):
        raise call.error("'sem' must be left out for a block pointer", hint="use pointers to the elements")
    if (pointee := _pointee(call, ptr)).name not in _SWAPPED:
        raise call.error("'sem' is for elements of {}; got {}", one_of(SCALARS[name] for name in _SWAPPED), pointee)


def _load(
    emit: Emitter, result: Type, ptr: Operand, mask: Operand | None, other: Operand | None, cache: Any, eviction: Any,
    volatile: Any, boundary_check: Any = (), padding: Any = "", sem: Any = None, scope: Any = None,
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
    if sem is not None:
        content = _ordered_load(emit, result, ptr, active, sem, scope)
        return content if value is None or active is None else emit.add(arith.Select(active, content, value))
    return emit.add(
        tt.Load(pointers, active, value, cache=CACHE[cache], eviction=EVICTION[eviction], volatile=bool(volatile))
    )


def _ordered_load(emit: Emitter, result: Type, ptr: Operand, mask: Value | None, sem: Any, scope: Any) -> Value:
    """An ordered load: of the bits, by an atomic that leaves the memory as it is."""
    pointee = scalar_type(result)
    bits = SCALARS[f"u{pointee.bits}"]
    pointers = ptr.value
    if bits != pointee:
        pointers = emit.add(tt.Bitcast(pointers, with_element(ptr.type, PtrType(bits))))
    zero = emit.constant(0, with_element(result, bits))
    order, reach = SEMANTICS[sem], SCOPES[scope]
    value = emit.add(tt.AtomicRMW(pointers, zero, mask, kind=AtomicKind.OR, sem=order, scope=reach))
    return value if bits == pointee else emit.add(arith.Bitcast(value, result))


def _storing(
    call: Typing, ptr: Type, value: Type, mask: Type | None, cache: Any, eviction: Any, boundary_check: Any = (),
    sem: Any = None, scope: Any = None,
) -> Type:  # fmt: skip
    check_access(call, ptr, boundary_check, "", mask=mask)
    _policy(cache, eviction)
    _ordered(call, ptr, WRITING, sem, scope, cache or eviction)
    if isinstance(ptr, BlockPtrType):
        _written(call, "the value", shaped(ptr.block, PtrType(ptr.element)), value)
    else:
        _written(call, "the value", ptr, value)
        _masked(call, ptr, mask)
        _writable(ptr)
    return NONE


def _store(
    emit: Emitter, result: Type, ptr: Operand, value: Operand, mask: Operand | None, cache: Any, eviction: Any,
    boundary_check: Any = (), sem: Any = None, scope: Any = None,
) -> Built:  # fmt: skip
    if isinstance(ptr.type, BlockPtrType):
        pointers, active, _ = access(emit, ptr, boundary_check)
        operand = emit.convert(value, shaped(ptr.type.block, ptr.type.element), dense=True)
    else:
        pointers, operand, active = ptr.value, _stored(emit, ptr, value), _mask(emit, ptr, mask)
    if sem is not None:
        order, reach = SEMANTICS[sem], SCOPES[scope]
        emit.add(tt.AtomicRMW(pointers, operand, active, kind=AtomicKind.XCHG, sem=order, scope=reach))
        return None
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


# Signals and waits.


def _signalled(call: Typing, ptr: Type, value: Type, mask: Type | None, op: Any, sem: Any, scope: Any) -> Type:
    choice("op", op, _SIGNALS)
    choice("sem", sem, dict.fromkeys(WRITING))
    _atomic(call, _WORDS, ptr, sem, scope)
    _written(call, "the value", ptr, value)
    _masked(call, ptr, mask)
    return NONE


def _signal(
    emit: Emitter, result: Type, ptr: Operand, value: Operand, mask: Operand | None, op: Any, sem: Any, scope: Any
) -> None:
    kind = kind_of(_SIGNALS[op], pointee_of(ptr.type))
    operand, active = _stored(emit, ptr, value), _mask(emit, ptr, mask)
    emit.add(tt.AtomicRMW(ptr.value, operand, active, kind=kind, sem=SEMANTICS[sem], scope=SCOPES[scope]))


def _waiting(call: Typing, ptr: Type, value: Type, compare: Any, sem: Any, scope: Any, timeout: Type | None) -> Type:
    choice("compare", compare, _COMPARED)
    choice("sem", sem, dict.fromkeys(READING))
    choice("scope", scope, SCOPES)
    pointee = _pointee(call, ptr)
    if shape_of(ptr):
        raise call.error(
            "'ptr' must be one pointer; got {}", ptr, hint="wait for each in turn, or count signals in one"
        )
    if pointee.name not in _WORDS:
        raise call.error("'ptr' must point to {}; got {}", one_of(SCALARS[name] for name in _WORDS), pointee)
    _written(call, "the value", ptr, value)
    if timeout is not None:
        integers(call, timeout_ns=timeout)
        _fits(call, "`timeout_ns`", ptr, timeout)
    return i1


def _wait(
    emit: Emitter, result: Type, ptr: Operand, value: Operand, compare: Any, sem: Any, scope: Any,
    timeout: Operand | None,
) -> Value:  # fmt: skip
    sign = "" if compare in ("eq", "ne") else "s" if pointee_of(ptr.type).signed else "u"
    limit = None if timeout is None else emit.convert(timeout, i64)
    return emit.add(
        tt.Wait(
            ptr.value, _stored(emit, ptr, value), limit, predicate=arith.IntPredicate(sign + compare),
            sem=SEMANTICS[sem], scope=SCOPES[scope],
        )
    )  # fmt: skip


def _fenced(call: Typing, scope: Any) -> Type:
    choice("scope", scope, SCOPES)
    return NONE


def _fence(emit: Emitter, result: Type, scope: Any) -> Value:
    return emit.add(tt.Barrier(scope=SCOPES[scope]))


def _addressed(call: Typing, addresses: Type, rank: Type, dtype: Any) -> Type:
    element = element_of(addresses)
    element = element.pointee if isinstance(element, PtrType) else element
    if shape_of(addresses) or element not in (i64, u64):
        raise call.error("'addresses' must be a pointer to {}, or its address; got {}", u64, addresses)
    integers(call, rank=rank)
    return shaped(shape_of(rank), PtrType(scalar_dtype(call, dtype)))


def _peer(emit: Emitter, result: Type, addresses: Operand, rank: Operand, dtype: Any) -> Value:
    shape = shape_of(result)
    table = emit.runtime(addresses)
    if not isinstance(table.type, PtrType):
        table = emit.add(tt.IntToPtr(emit.cast(table, i64), PtrType(i64)))
    address = emit.cast(emit.add(tt.Load(emit.add(tt.AddPtr(emit.spread(table, shape), emit.runtime(rank))))), i64)
    return emit.add(tt.MultipleOf(emit.add(tt.IntToPtr(address, result)), (16,) * max(1, len(shape))))


RULES = {
    "peer": Rule(_addressed, _peer),
    "signal": Rule(_signalled, _signal),
    "wait": Rule(_waiting, _wait),
    "fence": Rule(_fenced, _fence),
    "load": Rule(_loaded, _load),
    "store": Rule(_storing, _store),
    **{name: _atomic_rule(name) for name in ATOMICS},
    "atomic_cas": Rule(_swapped, _swap),
}
