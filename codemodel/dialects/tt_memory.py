"""The ops of the Triton dialect on memory: pointers, loads and stores, atomics, tensor descriptors.

Programs take them from the module of the dialect, `tt.Load`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ziggurat.codemodel import traits
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import axis_of, require_of, scalar_of, tensor_of
from ziggurat.codemodel.fields import attribute, operand, operands, result_type
from ziggurat.codemodel.op import Op, Value, constant_of, expect, require
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

__all__ = [
    "ATOMIC_OPS", "AddPtr", "AtomicCAS", "AtomicKind", "AtomicRMW", "Bitcast", "CacheModifier", "DescriptorFact",
    "DescriptorGather", "DescriptorLoad", "DescriptorPadding", "DescriptorReduce", "DescriptorScatter",
    "DescriptorSize", "DescriptorStore", "DescriptorStride", "EvictionPolicy", "IntToPtr", "Load",
    "MakeTensorDescriptor", "MemScope", "MemSemantic", "Padding", "PtrToInt", "Store", "Wait", "pointee_of",
]  # fmt: skip


class CacheModifier(enum.Enum):
    """The caches that an access uses, as in PTX."""

    NONE = "none"
    CA = "ca"
    CG = "cg"
    CS = "cs"
    CV = "cv"
    WB = "wb"
    WT = "wt"


class EvictionPolicy(enum.Enum):
    """The eviction priority of a cache line, as in PTX."""

    NORMAL = "evict_normal"
    FIRST = "evict_first"
    LAST = "evict_last"


class MemSemantic(enum.Enum):
    """The order of an atomic access with others."""

    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"

    @property
    def acquires(self) -> bool:
        """Whether accesses after it see what a release of the same address has made visible."""
        return self in (MemSemantic.ACQUIRE, MemSemantic.ACQ_REL)

    @property
    def releases(self) -> bool:
        """Whether it makes earlier accesses of the program visible. A barrier of the program comes before it."""
        return self in (MemSemantic.RELEASE, MemSemantic.ACQ_REL)


class MemScope(enum.Enum):
    """The scope of an atomic access."""

    CTA = "cta"
    GPU = "gpu"
    SYSTEM = "sys"


class AtomicKind(enum.Enum):
    """The operation of an atomic read-modify-write."""

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


# The op that an atomic applies to memory and its operand.
ATOMIC_OPS: dict[AtomicKind, type[Op]] = {
    AtomicKind.ADD: arith.AddI, AtomicKind.AND: arith.AndI, AtomicKind.OR: arith.OrI, AtomicKind.XOR: arith.XOrI,
    AtomicKind.MAX: arith.MaxSI, AtomicKind.MIN: arith.MinSI, AtomicKind.UMAX: arith.MaxUI,
    AtomicKind.UMIN: arith.MinUI, AtomicKind.FADD: arith.AddF, AtomicKind.FMAX: arith.MaxNumF,
    AtomicKind.FMIN: arith.MinNumF,
}  # fmt: skip

# The kinds of numbers that an atomic takes; integers where it is not listed.
_ATOMIC_OPERANDS: dict[AtomicKind, str] = {
    AtomicKind.FADD: "float", AtomicKind.FMAX: "float", AtomicKind.FMIN: "float", AtomicKind.XCHG: "any",
    AtomicKind.MAX: "signed", AtomicKind.MIN: "signed", AtomicKind.UMAX: "unsigned", AtomicKind.UMIN: "unsigned",
}  # fmt: skip


def pointee_of(op: Op, value: Value) -> ScalarType:
    """The type that a pointer, or each pointer of a tensor, points to."""
    return expect(
        element_of(value.type), PtrType, f"{op.NAME}: the operands must be pointers; got {value.type}"
    ).pointee


def _pointed_to(op: Op, ptr: Value, value: Value, verb: str) -> None:
    """`value` has the type of what the pointers point to."""
    expected = with_element(ptr.type, pointee_of(op, ptr))
    require(value.type == expected, f"{op.NAME} {verb} {expected}; got {value.type}")


def _mask(op: Op, ptr: Value, mask: Value | None) -> None:
    if mask is not None:
        require(
            mask.type == with_element(ptr.type, i1),
            f"the mask of {op.NAME} must be {with_element(ptr.type, i1)}; got {mask.type}",
        )


class AddPtr(Op, traits.Pure, name="tt.addptr"):
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


class Load(Op, traits.MemoryRead, name="tt.load"):
    """Read what the pointers point to; where the mask is false nothing is read and the element is `other`.

    Without `other` such an element has no defined value. In a GPU model, `width` is the number of consecutive
    registers whose pointers are adjacent, aligned together, and masked together; if the access is `ragged`, their masks
    may differ: those that hold come first. Along each axis, aligned runs of `runs` elements have one pointer, one mask
    and one `other`: a thread reads once for those of a run.

    In a loop, the load begins `ahead` iterations before the one that uses it; None lets the compiler choose.
    """

    ptr: Value = operand()
    mask: Value | None = operand(default=None)
    other: Value | None = operand(default=None)
    cache: CacheModifier = attribute(CacheModifier, default=CacheModifier.NONE)
    eviction: EvictionPolicy = attribute(EvictionPolicy, default=EvictionPolicy.NORMAL)
    volatile: bool = attribute(bool, default=False)
    width: int = attribute(int, default=1)
    ragged: bool = attribute(bool, default=False)
    runs: tuple[int, ...] = attribute([int], default=())
    ahead: int | None = attribute(object, default=None)

    def infer_type(self) -> Type:
        return with_element(self.ptr.type, pointee_of(self, self.ptr))

    def check(self) -> None:
        _mask(self, self.ptr, self.mask)
        if self.other is not None:
            _pointed_to(self, self.ptr, self.other, "must have an other of")


class Store(Op, traits.MemoryWrite, name="tt.store"):
    """Write where the pointers point to; where the mask is false nothing is written. `width` and `ragged` are as in
    `tt.load`."""

    ptr: Value = operand()
    value: Value = operand()
    mask: Value | None = operand(default=None)
    cache: CacheModifier = attribute(CacheModifier, default=CacheModifier.NONE)
    eviction: EvictionPolicy = attribute(EvictionPolicy, default=EvictionPolicy.NORMAL)
    width: int = attribute(int, default=1)
    ragged: bool = attribute(bool, default=False)

    def check(self) -> None:
        _pointed_to(self, self.ptr, self.value, "writes")
        _mask(self, self.ptr, self.mask)


class AtomicRMW(Op, traits.MemoryRead, traits.MemoryWrite, name="tt.atomic_rmw"):
    """Read, combine with the value and write back, atomically. Gives the value read; undefined where the mask is false.
    `width` is as in `tt.load`."""

    ptr: Value = operand()
    value: Value = operand()
    mask: Value | None = operand(default=None)
    kind: AtomicKind = attribute(AtomicKind, unnamed=True, kw_only=True)
    sem: MemSemantic = attribute(MemSemantic, default=MemSemantic.ACQ_REL)
    scope: MemScope = attribute(MemScope, default=MemScope.GPU)
    width: int = attribute(int, default=1)

    @property
    def order(self) -> MemSemantic:
        """The order of accesses that a program can rely on: it acquires nothing by a value that it does not use. An
        exchange may be the end of a lock, and keeps its order."""
        weaker = {MemSemantic.ACQ_REL: MemSemantic.RELEASE, MemSemantic.ACQUIRE: MemSemantic.RELAXED}
        return self.sem if self.result.uses or self.kind is AtomicKind.XCHG else weaker.get(self.sem, self.sem)

    @property
    def is_load(self) -> bool:
        """Whether it leaves the memory as it is and releases nothing: an ordered load."""
        return self.kind is AtomicKind.OR and not self.sem.releases and constant_of(self.value) == 0

    @property
    def is_store(self) -> bool:
        """Whether nothing uses the value read and it acquires nothing: an ordered store."""
        return self.kind is AtomicKind.XCHG and not self.sem.acquires and not self.result.uses

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        _pointed_to(self, self.ptr, self.value, "combines with")
        _mask(self, self.ptr, self.mask)
        scalar_of(self, self.value, _ATOMIC_OPERANDS.get(self.kind, "int"), f"the operands of {self.kind.value}")


class AtomicCAS(Op, traits.MemoryRead, traits.MemoryWrite, name="tt.atomic_cas"):
    """Write `value` where memory holds `compare`, atomically. Gives the old content."""

    ptr: Value = operand()
    compare: Value = operand()
    value: Value = operand()
    sem: MemSemantic = attribute(MemSemantic, default=MemSemantic.ACQ_REL)
    scope: MemScope = attribute(MemScope, default=MemScope.GPU)

    @property
    def order(self) -> MemSemantic:
        """The order of accesses that a program can rely on."""
        return self.sem

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        for value in (self.compare, self.value):
            _pointed_to(self, self.ptr, value, "takes")


class Wait(Op, traits.MemoryRead, traits.MemoryWrite, name="tt.wait"):
    """Read a number in memory until it compares with the value as the predicate says; one thread reads, and the others
    wait for it. Gives true; or false once `timeout` nanoseconds (i64) have passed before.

    Another program or device writes the number. The op counts as a write, as accesses after it see what was released.
    """

    ptr: Value = operand()
    value: Value = operand()
    timeout: Value | None = operand(default=None, type=i64)
    predicate: arith.IntPredicate = attribute(arith.IntPredicate, unnamed=True, kw_only=True)
    sem: MemSemantic = attribute(MemSemantic, default=MemSemantic.ACQUIRE)
    scope: MemScope = attribute(MemScope, default=MemScope.SYSTEM)
    RESULT = i1

    @property
    def order(self) -> MemSemantic:
        """The order of accesses that a program can rely on."""
        return self.sem

    def check(self) -> None:
        _pointed_to(self, self.ptr, self.value, "compares with")
        require(not shape_of(self.ptr.type), f"{self.NAME} takes one pointer; got {self.ptr.type}")
        require(not self.sem.releases, f"the sem of {self.NAME} must be relaxed or acquire; got {self.sem.value}")
        arith.require_fitting(self, self.predicate, self.value)


class Padding(enum.Enum):
    """The value of the elements of a loaded block that lie outside of the descriptor's tensor."""

    ZERO = "zero"
    NAN = "nan"


class MakeTensorDescriptor(Op, traits.Pure, name="tt.make_tensor_descriptor"):
    """A descriptor of a tensor in global memory, by which blocks are loaded and stored. The shape is i32; the strides,
    in elements, are i64.

    `padding` must be that of the type. With `at_launch`, the operands are parameters of the kernel and constants, and
    a launch makes the tensor map.
    """

    base: Value = operand()
    shape: Sequence[Value] = operands(i32)
    strides: Sequence[Value] = operands(i64)
    type: Type = result_type()
    padding: Padding = attribute(Padding, default=Padding.ZERO)
    at_launch: bool = attribute(bool, default=False)

    def derive_type(self) -> Type:
        type_, base = self.type, self.base.type
        if isinstance(type_, DescriptorType) and isinstance(base, PtrType):
            return DescriptorType(type_.block, base.pointee, type_.padding, type_.parts)
        return type_

    def check(self) -> None:
        problem = f"tt.make_tensor_descriptor of {self.base.type} gives {self.type}"
        type_ = expect(self.type, DescriptorType, problem)
        require(self.base.type == PtrType(type_.element), problem)
        require(
            self.padding is not Padding.NAN or type_.element.is_float,
            f"only a descriptor of floats is padded with NaN; got {type_.element}",
        )
        require(
            self.padding.value == type_.padding,
            f"tt.make_tensor_descriptor with the padding {self.padding.value} gives {type_}, whose padding is "
            f"{type_.padding}",
        )
        require(
            len(self.shape) == len(type_.block), f"a descriptor of {type_} has {len(type_.block)} sizes and strides"
        )


def _described(op: Op, value: Value, indices: Sequence[Value]) -> DescriptorType:
    type_ = expect(value.type, DescriptorType, f"{op.NAME}: the operand must be a descriptor; got {value.type}")
    count = len(type_.block)
    require_of(op, len(indices) == count, "{} of {} takes {} offsets", type_, count)
    require_of(op, all(v.type == i32 for v in indices), "the offsets of {} must be {}", i32)
    return type_


class DescriptorPadding(Op, traits.Pure, name="tt.descriptor_padding"):
    """The descriptor with a padding that is chosen at run time: NaN if `nan`, and otherwise zero. The type of the
    result says "either"."""

    descriptor: Value = operand()
    nan: Value = operand()

    def infer_type(self) -> Type:
        problem = f"{self.NAME} takes a descriptor of floats and an i1; got {self.descriptor.type} and {self.nan.type}"
        type_ = expect(self.descriptor.type, DescriptorType, problem)
        require(type_.element.is_float and self.nan.type == i1, problem)
        return type_.of_either_padding


class DescriptorFact(Op, traits.Pure):
    """The base of the ops that give a fact about the tensor of a descriptor along an axis."""

    descriptor: Value = operand()
    axis: int = attribute(int, unnamed=True)

    def check(self) -> None:
        problem = f"{self.NAME}: the operand must be a descriptor; got {self.descriptor.type}"
        axis_of(self, self.axis, len(expect(self.descriptor.type, DescriptorType, problem).block))


class DescriptorSize(DescriptorFact, name="tt.descriptor_size"):
    """The size of the tensor of a descriptor along an axis, as i32."""

    RESULT = i32


class DescriptorStride(DescriptorFact, name="tt.descriptor_stride"):
    """The elements from one index of the tensor of a descriptor to the next along an axis, as i64."""

    RESULT = i64


class DescriptorLoad(Op, traits.MemoryRead, name="tt.descriptor_load"):
    """Read the block at these offsets; outside of the tensor it holds the descriptor's padding. `ahead` is as in
    `tt.load`. The result is a matrix with `by_rows`: all axes of the block but the last are joined."""

    descriptor: Value = operand()
    offsets: Sequence[Value] = operands()
    cache: CacheModifier = attribute(CacheModifier, default=CacheModifier.NONE)
    eviction: EvictionPolicy = attribute(EvictionPolicy, default=EvictionPolicy.NORMAL)
    ahead: int | None = attribute(object, default=None)
    by_rows: bool = attribute(bool, default=False)

    def infer_type(self) -> Type:
        type_ = _described(self, self.descriptor, self.offsets)
        return TensorType(type_.rows if self.by_rows else type_.block, type_.element)


class DescriptorStore(Op, traits.MemoryWrite, name="tt.descriptor_store"):
    """Write the block at these offsets; elements outside of the tensor are not written. The value may be a matrix: the
    block, all its axes but the last joined."""

    descriptor: Value = operand()
    value: Value = operand()
    offsets: Sequence[Value] = operands()

    def check(self) -> None:
        type_ = _described(self, self.descriptor, self.offsets)
        expected = TensorType(type_.block, type_.element)
        tensor = tensor_of(self, self.value).without_layout()
        good = tensor in (expected, TensorType(type_.rows, type_.element))
        require_of(self, good, "{} writes {}; got {}", expected, self.value.type)


class DescriptorReduce(Op, traits.MemoryRead, traits.MemoryWrite, name="tt.descriptor_reduce"):
    """Combine the block at these offsets with the value, each element atomically; elements outside of the tensor are
    not written. The order with other accesses is not defined (relaxed)."""

    descriptor: Value = operand()
    value: Value = operand()
    offsets: Sequence[Value] = operands()
    kind: AtomicKind = attribute(AtomicKind, unnamed=True, kw_only=True)

    def check(self) -> None:
        type_ = _described(self, self.descriptor, self.offsets)
        expected = TensorType(type_.block, type_.element)
        tensor = tensor_of(self, self.value).without_layout()
        require(tensor == expected, f"tt.descriptor_reduce combines with {expected}; got {self.value.type}")
        scalar_of(self, self.value, _ATOMIC_OPERANDS.get(self.kind, "int"), f"the operands of {self.kind.value}")


def _gathered(op: DescriptorGather | DescriptorScatter) -> TensorType:
    """The type of the rows that an access moves: a row of the block for each row number."""
    source = op.descriptor.type
    type_ = expect(source, DescriptorType, f"{op.NAME}: the operand must be a descriptor; got {source}")
    good = len(type_.block) == 2 and type_.block[0] == 1
    require_of(op, good, "{} takes a descriptor with blocks of one row, [1, columns]; got {}", type_)
    rows, column = op.rows.type, op.column.type
    is_row = isinstance(rows, TensorType) and rows.rank == 1 and rows.element == i32
    require_of(op, is_row, "the rows of {} must be {} along one axis; got {}", i32, rows)
    require_of(op, column == i32, "the column of {} must be {}; got {}", i32, column)
    assert isinstance(rows, TensorType)
    return TensorType((rows.shape[0], type_.block[1]), type_.element)


class DescriptorGather(Op, traits.MemoryRead, name="tt.descriptor_gather"):
    """Read rows of a tensor of two axes, from a column on: row `i` of the result is row `rows[i]` of the tensor. An
    element outside of the tensor is the descriptor's padding."""

    descriptor: Value = operand()
    rows: Value = operand()
    column: Value = operand()

    def infer_type(self) -> Type:
        return _gathered(self)


class DescriptorScatter(Op, traits.MemoryWrite, name="tt.descriptor_scatter"):
    """Write rows of a tensor of two axes, from a column on: row `i` of the value becomes row `rows[i]` of the tensor.
    Elements outside of the tensor are not written. Of several values for one row, any may be left."""

    descriptor: Value = operand()
    value: Value = operand()
    rows: Value = operand()
    column: Value = operand()

    def check(self) -> None:
        expected, type_ = _gathered(self), tensor_of(self, self.value).without_layout()
        require_of(self, type_ == expected, "{} writes {}; got {}", expected, self.value.type)


class Bitcast(Op, traits.Pure, name="tt.bitcast"):
    """Pointers as pointers to another type of the same size."""

    value: Value = operand()
    type: Type = result_type()

    def check(self) -> None:
        good = isinstance(element_of(self.type), PtrType) and shape_of(self.type) == shape_of(self.value.type)
        require(good, f"tt.bitcast of {self.value.type} to {self.type}")
        pointee_of(self, self.value)


class IntToPtr(Op, traits.Pure, name="tt.int_to_ptr"):
    """Addresses, as i64, as pointers."""

    value: Value = operand()
    type: Type = result_type()

    def check(self) -> None:
        good = isinstance(element_of(self.type), PtrType) and self.value.type == with_element(self.type, i64)
        require(good, f"tt.int_to_ptr of {self.value.type} to {self.type}")


class PtrToInt(Op, traits.Pure, name="tt.ptr_to_int"):
    """Pointers as addresses in i64."""

    value: Value = operand()

    def infer_type(self) -> Type:
        pointee_of(self, self.value)
        return with_element(self.value.type, i64)
