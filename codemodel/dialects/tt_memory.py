"""The Triton dialect's memory: pointers, loads and stores, atomics, tensor descriptors. Used as part of `tt`."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ziggurat.codemodel.declare import attribute, operand, operands, operation, result_type
from ziggurat.codemodel.dialects.arith import scalar_of, tensor_of
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite, Pure
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    i1,
    i32,
    i64,
    shape_of,
    with_element,
)


class CacheModifier(enum.Enum):
    """Where an access is cached, as in PTX."""

    NONE = "none"
    CA = "ca"
    CG = "cg"
    CS = "cs"
    CV = "cv"
    WB = "wb"
    WT = "wt"


class EvictionPolicy(enum.Enum):
    """How soon a cache may give the line up."""

    NORMAL = "evict_normal"
    FIRST = "evict_first"
    LAST = "evict_last"


class MemSemantic(enum.Enum):
    """The order of an atomic access with others."""

    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"


class MemScope(enum.Enum):
    """Among whom an atomic access is atomic."""

    CTA = "cta"
    GPU = "gpu"
    SYSTEM = "sys"


class AtomicKind(enum.Enum):
    """What an atomic read-modify-write does."""

    ADD = "add"
    FADD = "fadd"
    MAX = "max"
    MIN = "min"
    UMAX = "umax"
    UMIN = "umin"
    FMAX = "fmax"
    FMIN = "fmin"
    AND = "and"
    OR = "or"
    XOR = "xor"
    XCHG = "xchg"


def pointee_of(op: Op, value: Value) -> ScalarType:
    """What a pointer, or each of a tensor of pointers, points to."""
    element = element_of(value.type)
    require(isinstance(element, PtrType), f"{op.NAME} takes pointers, not {value.type}")
    assert isinstance(element, PtrType)
    return element.pointee


def _mask(op: Op, ptr: Value, mask: Value | None) -> None:
    if mask is not None:
        require(
            mask.type == with_element(ptr.type, i1),
            f"the mask of {op.NAME} is {with_element(ptr.type, i1)}, not {mask.type}",
        )


@operation("tt.addptr")
class AddPtr(Op, Pure):
    """Pointers moved by a number of elements."""

    ptr: Value = operand()
    offset: Value = operand()

    def infer_type(self) -> Type:
        pointee_of(self, self.ptr)
        scalar_of(self, self.offset, "int")
        require(
            shape_of(self.ptr.type) == shape_of(self.offset.type)
            and isinstance(self.ptr.type, TensorType) == isinstance(self.offset.type, TensorType),
            f"tt.addptr moves {self.ptr.type} by {self.offset.type}",
        )
        return self.ptr.type


@operation("tt.load")
class Load(Op, MemoryRead):
    """Read what the pointers point to; where the mask is false nothing is read and the element is `other`.

    Without `other` such an element has no defined value. In a GPU model, `width` is how many registers in a row point
    to neighbours that are aligned, and masked, together.
    """

    ptr: Value = operand()
    mask: Value | None = operand(default=None)
    other: Value | None = operand(default=None)
    cache: CacheModifier = attribute(CacheModifier, default=CacheModifier.NONE)
    eviction: EvictionPolicy = attribute(EvictionPolicy, default=EvictionPolicy.NORMAL)
    volatile: bool = attribute(bool, default=False)
    width: int = attribute(int, default=1)

    def infer_type(self) -> Type:
        return with_element(self.ptr.type, pointee_of(self, self.ptr))

    def check(self) -> None:
        _mask(self, self.ptr, self.mask)
        if self.other is not None:
            expected = with_element(self.ptr.type, pointee_of(self, self.ptr))
            require(self.other.type == expected, f"the other of tt.load is {expected}, not {self.other.type}")


@operation("tt.store")
class Store(Op, MemoryWrite):
    """Write where the pointers point to; where the mask is false nothing is written. `width` is as of `tt.load`."""

    ptr: Value = operand()
    value: Value = operand()
    mask: Value | None = operand(default=None)
    cache: CacheModifier = attribute(CacheModifier, default=CacheModifier.NONE)
    eviction: EvictionPolicy = attribute(EvictionPolicy, default=EvictionPolicy.NORMAL)
    width: int = attribute(int, default=1)

    def check(self) -> None:
        expected = with_element(self.ptr.type, pointee_of(self, self.ptr))
        require(self.value.type == expected, f"tt.store writes {expected}, not {self.value.type}")
        _mask(self, self.ptr, self.mask)


@operation("tt.atomic_rmw")
class AtomicRMW(Op, MemoryRead, MemoryWrite):
    """Read, combine with the value and write back, undivided. Gives what was read; undefined where masked off. `width`
    is as of `tt.load`."""

    ptr: Value = operand()
    value: Value = operand()
    mask: Value | None = operand(default=None)
    kind: AtomicKind = attribute(AtomicKind, unnamed=True, kw_only=True)
    sem: MemSemantic = attribute(MemSemantic, default=MemSemantic.ACQ_REL)
    scope: MemScope = attribute(MemScope, default=MemScope.GPU)
    width: int = attribute(int, default=1)

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        pointee = pointee_of(self, self.ptr)
        expected = with_element(self.ptr.type, pointee)
        require(self.value.type == expected, f"tt.atomic_rmw combines with {expected}, not {self.value.type}")
        _mask(self, self.ptr, self.mask)
        kind = self.kind
        if kind in (AtomicKind.FADD, AtomicKind.FMAX, AtomicKind.FMIN):
            require(pointee.is_float, f"atomic {kind.value} is for floats, not {pointee}")
        elif kind in (AtomicKind.UMAX, AtomicKind.UMIN):
            require(
                pointee.is_int and not pointee.signed, f"atomic {kind.value} is for unsigned integers, not {pointee}"
            )
        elif kind in (AtomicKind.MAX, AtomicKind.MIN):
            require(pointee.is_int and pointee.signed, f"atomic {kind.value} is for signed integers, not {pointee}")
        elif kind is not AtomicKind.XCHG:
            require(pointee.is_int, f"atomic {kind.value} is for integers, not {pointee}")


@operation("tt.atomic_cas")
class AtomicCAS(Op, MemoryRead, MemoryWrite):
    """Write `value` where memory holds `compare`, undivided. Gives what memory held."""

    ptr: Value = operand()
    compare: Value = operand()
    value: Value = operand()
    sem: MemSemantic = attribute(MemSemantic, default=MemSemantic.ACQ_REL)
    scope: MemScope = attribute(MemScope, default=MemScope.GPU)

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        expected = with_element(self.ptr.type, pointee_of(self, self.ptr))
        for value in (self.compare, self.value):
            require(value.type == expected, f"tt.atomic_cas takes {expected}, not {value.type}")


class Padding(enum.Enum):
    """What a descriptor gives outside of its tensor."""

    ZERO = "zero"
    NAN = "nan"


@operation("tt.make_tensor_descriptor")
class MakeTensorDescriptor(Op, Pure):
    """Describe a tensor in global memory: its shape in i32, its strides in elements in i64; moved in blocks.

    `padding` is that of the type.
    """

    base: Value = operand()
    shape: Sequence[Value] = operands()
    strides: Sequence[Value] = operands()
    type: Type = result_type()
    padding: Padding = attribute(Padding, default=Padding.ZERO)

    def check(self) -> None:
        type_ = self.type
        good = isinstance(type_, DescriptorType) and self.base.type == PtrType(type_.element)
        require(good, f"tt.make_tensor_descriptor of {self.base.type} gives {type_}")
        assert isinstance(type_, DescriptorType)
        require(
            self.padding.value == type_.padding,
            f"tt.make_tensor_descriptor with the padding {self.padding.value} gives {type_}, whose padding is "
            f"{type_.padding}",
        )
        require(
            len(self.shape) == len(type_.block), f"a descriptor of {type_} has {len(type_.block)} sizes and strides"
        )
        require(all(v.type == i32 for v in self.shape), "the sizes of a descriptor are i32")
        require(all(v.type == i64 for v in self.strides), "the strides of a descriptor are i64")


def _described(op: Op, value: Value, indices: Sequence[Value]) -> DescriptorType:
    type_ = value.type
    require(isinstance(type_, DescriptorType), f"{op.NAME} takes a descriptor, not {type_}")
    assert isinstance(type_, DescriptorType)
    require(len(indices) == len(type_.block), f"{op.NAME} of {type_} takes {len(type_.block)} offsets")
    require(all(v.type == i32 for v in indices), f"the offsets of {op.NAME} are i32")
    return type_


@operation("tt.descriptor_load")
class DescriptorLoad(Op, MemoryRead):
    """Read the block at these offsets; outside of the tensor it holds the descriptor's padding."""

    descriptor: Value = operand()
    offsets: Sequence[Value] = operands()
    cache: CacheModifier = attribute(CacheModifier, default=CacheModifier.NONE)
    eviction: EvictionPolicy = attribute(EvictionPolicy, default=EvictionPolicy.NORMAL)

    def infer_type(self) -> Type:
        type_ = _described(self, self.descriptor, self.offsets)
        return TensorType(type_.block, type_.element)


@operation("tt.descriptor_store")
class DescriptorStore(Op, MemoryWrite):
    """Write the block at these offsets; what is outside of the tensor is not written."""

    descriptor: Value = operand()
    value: Value = operand()
    offsets: Sequence[Value] = operands()

    def check(self) -> None:
        type_ = _described(self, self.descriptor, self.offsets)
        expected = TensorType(type_.block, type_.element)
        found = tensor_of(self, self.value).without_layout()
        require(found == expected, f"tt.descriptor_store writes {expected}, not {self.value.type}")


@operation("tt.bitcast")
class Bitcast(Op, Pure):
    """Pointers as pointers to another type of the same size."""

    value: Value = operand()
    type: Type = result_type()

    def check(self) -> None:
        good = isinstance(element_of(self.type), PtrType) and shape_of(self.type) == shape_of(self.value.type)
        require(good, f"tt.bitcast of {self.value.type} to {self.type}")
        pointee_of(self, self.value)


@operation("tt.int_to_ptr")
class IntToPtr(Op, Pure):
    """Addresses, as i64, as pointers."""

    value: Value = operand()
    type: Type = result_type()

    def check(self) -> None:
        good = isinstance(element_of(self.type), PtrType) and self.value.type == with_element(self.type, i64)
        require(good, f"tt.int_to_ptr of {self.value.type} to {self.type}")


@operation("tt.ptr_to_int")
class PtrToInt(Op, Pure):
    """Pointers as addresses in i64."""

    value: Value = operand()

    def infer_type(self) -> Type:
        pointee_of(self, self.value)
        return with_element(self.value.type, i64)
