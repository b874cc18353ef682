"""Type rules of loads, stores, atomics and tensor descriptors."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects.tt import CacheModifier, EvictionPolicy, MemScope, MemSemantic, Padding
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    ConstantType,
    DescriptorType,
    PtrType,
    ScalarType,
    Type,
    bf16,
    element_of,
    f16,
    f32,
    f64,
    i16,
    i32,
    i64,
    shape_of,
    shaped,
    u16,
    u32,
    u64,
)
from ziggurat.transforms.attribution.lattice import components
from ziggurat.transforms.attribution.promotion import (
    NONE,
    is_number,
    require_fits,
    scalar_type,
)
from ziggurat.transforms.attribution.shapes import checked_shape
from ziggurat.transforms.attribution.wording import describe, show

CACHE = {"": CacheModifier.NONE, **{f".{m.value}": m for m in CacheModifier if m is not CacheModifier.NONE}}
EVICTION = {"": EvictionPolicy.NORMAL, **{policy.value: policy for policy in EvictionPolicy}}
SEMANTICS = {None: MemSemantic.ACQ_REL, **{sem.value: sem for sem in MemSemantic}}
SCOPES = {None: MemScope.GPU, **{scope.value: scope for scope in MemScope}}
_WORDS = (i32, i64, u32, u64)
# What the pointers of an atomic may point to.
ATOMIC: dict[str, tuple[ScalarType, ...]] = {
    "atomic_add": (*_WORDS, f16, bf16, f32, f64),
    **dict.fromkeys(("atomic_max", "atomic_min", "atomic_xchg"), (*_WORDS, f32, f64)),
    **dict.fromkeys(("atomic_and", "atomic_or", "atomic_xor"), _WORDS),
    "atomic_cas": (i16, u16, *_WORDS, f16, bf16, f32, f64),
}
PADDING = {None: Padding.ZERO, "": Padding.ZERO, **{padding.value: padding for padding in Padding}}


def _choice(name: str, value: Any, choices: dict[Any, Any]) -> None:
    if value not in choices:
        shown = ", ".join(repr(choice) for choice in choices)
        raise KernelValueError(f"{name} is one of {shown}; got {show(value)}")


class MemoryTypes:
    """Global memory."""

    def _pointee(self, name: str, ptr: Type) -> ScalarType:
        element = element_of(ptr)
        if not isinstance(element, PtrType):
            raise KernelTypeError(
                f"zg.{name} takes a pointer or a tensor of pointers, got {describe(ptr)}",
                hint=f"zg.{name}_tensor_descriptor moves blocks of a descriptor"
                if isinstance(ptr, DescriptorType) and name in ("load", "store")
                else "zg.add(pointer, offsets) gives the pointers to elements",
            )
        return element.pointee

    def _fits(self, name: str, what: str, ptr: Type, value: Type) -> None:
        """`value` broadcasts to the shape of the pointers."""
        shape, given = shape_of(ptr), shape_of(value)
        padded = (1,) * (len(shape) - len(given)) + given
        if len(padded) == len(shape) and all(a in (1, b) for a, b in zip(padded, shape, strict=True)):
            return
        if not shape:
            raise KernelTypeError(
                f"zg.{name}: {what} has the shape {list(given)}, and the pointer is a single one",
                hint="zg.add(pointer, offsets) gives a tensor of pointers",
            )
        raise KernelTypeError(
            f"zg.{name}: the shapes of {what} and the pointers do not match: {list(given)} and {list(shape)}",
            hint=f"{what} is broadcast to the shape of the pointers: its sizes are equal to theirs, or 1",
        )

    def _mask(self, name: str, ptr: Type, mask: Type | None) -> None:
        if mask is None:
            return
        if not is_number(mask) or scalar_type(mask).kind != "bool":
            raise KernelTypeError(
                f"zg.{name}: a mask holds i1 (true and false), got {describe(mask)}", hint="zg.compare gives a mask"
            )
        self._fits(name, "the mask", ptr, mask)

    def _written(self, name: str, what: str, ptr: Type, value: Type) -> None:
        """A value to be written has the pointee's type; a literal takes it."""
        pointee = self._pointee(name, ptr)
        if not is_number(value):
            raise KernelTypeError(f"zg.{name}: {what} is a number, got {describe(value)}")
        if isinstance(value, ConstantType):
            literal = scalar_type(value)
            if literal.rank > pointee.rank:
                raise KernelTypeError(f"zg.{name}: the pointers point to {pointee}, {what} is {describe(value)}")
            try:
                require_fits(value.value, pointee)
            except KernelValueError as error:
                raise KernelValueError(f"zg.{name}: {error.summary}") from None
        elif scalar_type(value) != pointee:
            raise KernelTypeError(
                f"zg.{name}: the pointers point to {pointee}, {what} is {value}",
                hint=f"zg.cast(value, zg.{pointee}) converts it",
            )
        self._fits(name, what, ptr, value)

    def load(self, ptr: Type, mask: Type | None, other: Type | None, cache: Any, eviction: Any, volatile: Any) -> Type:
        pointee = self._pointee("load", ptr)
        self._mask("load", ptr, mask)
        if other is not None:
            if mask is None:
                raise KernelTypeError("zg.load: `other` stands for what a mask leaves out, but there is no mask")
            self._written("load", "`other`", ptr, other)
        _choice("cache_modifier", cache, CACHE)
        _choice("eviction_policy", eviction, EVICTION)
        return shaped(shape_of(ptr), pointee)

    def store(self, ptr: Type, value: Type, mask: Type | None, cache: Any, eviction: Any) -> Type:
        self._written("store", "the value", ptr, value)
        self._mask("store", ptr, mask)
        _choice("cache_modifier", cache, CACHE)
        _choice("eviction_policy", eviction, EVICTION)
        return NONE

    def _atomic(self, name: str, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        pointee = self._pointee(name, ptr)
        if pointee not in ATOMIC[name]:
            raise KernelTypeError(
                f"zg.{name} takes pointers to {', '.join(map(str, ATOMIC[name]))}, not to {pointee}",
                hint="the hardware has no such operation on other types",
            )
        self._written(name, "the value", ptr, value)
        self._mask(name, ptr, mask)
        _choice("sem", sem, SEMANTICS)
        _choice("scope", scope, SCOPES)
        return shaped(shape_of(ptr), pointee)

    def atomic_add(self, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        return self._atomic("atomic_add", ptr, value, mask, sem, scope)

    def atomic_max(self, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        return self._atomic("atomic_max", ptr, value, mask, sem, scope)

    def atomic_min(self, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        return self._atomic("atomic_min", ptr, value, mask, sem, scope)

    def atomic_and(self, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        return self._atomic("atomic_and", ptr, value, mask, sem, scope)

    def atomic_or(self, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        return self._atomic("atomic_or", ptr, value, mask, sem, scope)

    def atomic_xor(self, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        return self._atomic("atomic_xor", ptr, value, mask, sem, scope)

    def atomic_xchg(self, ptr: Type, value: Type, mask: Type | None, sem: Any, scope: Any) -> Type:
        return self._atomic("atomic_xchg", ptr, value, mask, sem, scope)

    def atomic_cas(self, ptr: Type, compare: Type, value: Type, sem: Any, scope: Any) -> Type:
        self._written("atomic_cas", "the value compared with", ptr, compare)
        return self._atomic("atomic_cas", ptr, value, None, sem, scope)

    # Descriptors.

    def make_tensor_descriptor(self, base: Type, shape: Type, strides: Type, block: Any, padding: Any) -> Type:
        if not isinstance(base, PtrType):
            raise KernelTypeError(f"zg.make_tensor_descriptor takes the pointer to the tensor, got {describe(base)}")
        dims = checked_shape("make_tensor_descriptor", block)
        for what, given in (("shape", shape), ("strides", strides)):
            parts = components(given)
            if parts is None or len(parts) != len(dims):
                raise KernelTypeError(
                    f"zg.make_tensor_descriptor: {what} has {len(dims)} numbers, as the block has, "
                    f"got {describe(given)}"
                )
            for part in parts:
                if not is_number(part) or shape_of(part) or not scalar_type(part).is_int:
                    raise KernelTypeError(f"zg.make_tensor_descriptor: {what} holds integers, got {describe(part)}")
        last = (components(strides) or ())[-1:]
        if last and isinstance(last[0], ConstantType) and last[0].value != 1:
            raise KernelValueError(
                f"zg.make_tensor_descriptor: the last stride is 1, got {last[0].value}",
                hint="the last axis of a described tensor is contiguous in memory",
            )
        if dims[-1] * base.pointee.bytes < 16:
            raise KernelValueError(
                f"zg.make_tensor_descriptor: a row of the block has {dims[-1] * base.pointee.bytes} bytes; it needs 16"
            )
        _choice("padding_option", padding, PADDING)
        if PADDING[padding] is Padding.NAN and not base.pointee.is_float:
            raise KernelValueError(
                f"zg.make_tensor_descriptor: only floats are padded with NaN, not {base.pointee}",
                hint='padding_option="zero"',
            )
        return DescriptorType(dims, base.pointee, PADDING[padding].value)

    def _descriptor(self, name: str, descriptor: Type, offsets: Type) -> DescriptorType:
        if not isinstance(descriptor, DescriptorType):
            raise KernelTypeError(
                f"zg.{name} takes a tensor descriptor, got {describe(descriptor)}",
                hint="launch with zg.TensorDescriptor(array, block), or make one with zg.make_tensor_descriptor"
                if isinstance(descriptor, PtrType)
                else None,
            )
        parts = components(offsets)
        if parts is None or len(parts) != len(descriptor.block):
            raise KernelTypeError(
                f"zg.{name}: {descriptor} takes {len(descriptor.block)} offsets, got {describe(offsets)}"
            )
        for part in parts:
            if not is_number(part) or shape_of(part) or not scalar_type(part).is_int:
                raise KernelTypeError(f"zg.{name}: offsets are integers, got {describe(part)}")
        return descriptor

    def load_tensor_descriptor(self, descriptor: Type, offsets: Type, *_options: Any) -> Type:
        type_ = self._descriptor("load_tensor_descriptor", descriptor, offsets)
        return shaped(type_.block, type_.element)

    def store_tensor_descriptor(self, descriptor: Type, offsets: Type, value: Type) -> Type:
        type_ = self._descriptor("store_tensor_descriptor", descriptor, offsets)
        if shape_of(value) != type_.block or not is_number(value) or scalar_type(value) != type_.element:
            raise KernelTypeError(
                f"zg.store_tensor_descriptor: the block is {shaped(type_.block, type_.element)}, the value is "
                f"{describe(value)}"
            )
        return NONE
