"""The CPU dialect: the ops of a Triton model in loop nests over memory of the thread. See docs/design/008-cpu.md.

A program runs on one thread. A tensor is computed element by element in a `cpu.region`, or lies in a buffer. The ops of
arith, math and tt keep their meaning, inside of regions on tensors and outside on scalars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from ziggurat.codemodel import traits
from ziggurat.codemodel.dialects.core import Unreachable
from ziggurat.codemodel.dialects.tt import InputPrecision, Reduce, ScanReturn
from ziggurat.codemodel.fields import attribute, body, operand, operands, result_type
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import Body, Op, Value, expect, require
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.type_reader import TypeSyntaxError, read_shape, read_type, register_type
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    Type,
    TypeSyntax,
    element_of,
    i1,
    i32,
    i64,
    is_power_of_two,
    shape_of,
    shaped,
    void,
    with_element,
)


@attrs.frozen(str=False, cache_hash=True)
class BufferType(Type):
    """`buffer<x64, x64, f32>`: memory of the thread for one such tensor, in row-major order."""

    shape: tuple[int, ...]
    element: ScalarType | PtrType

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in memory. An i1 takes a byte, a pointer 8."""
        return self.numel * self.element.bytes

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("buffer", (*(TypeSyntax(f"x{size}") for size in self.shape), self.element.syntax()))


@attrs.frozen(str=False, cache_hash=True)
class AccessType(Type):
    """`access<x64, x64, f32>`: the addresses and the mask of an affine access to a block of this shape."""

    shape: tuple[int, ...]
    element: ScalarType

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("access", (*(TypeSyntax(f"x{size}") for size in self.shape), self.element.syntax()))


def _read_buffer(syntax: TypeSyntax) -> Type:
    shape, element = read_shape(syntax)
    type_ = read_type(element)
    if not isinstance(type_, ScalarType | PtrType):
        raise TypeSyntaxError(f"a buffer holds scalars or pointers, not '{element}'")
    return BufferType(shape, type_)


def _read_access(syntax: TypeSyntax) -> Type:
    shape, element = read_shape(syntax)
    type_ = read_type(element)
    if not isinstance(type_, ScalarType):
        raise TypeSyntaxError(f"an access is to scalars, not '{element}'")
    return AccessType(shape, type_)


register_type("buffer", _read_buffer)
register_type("access", _read_access)


def buffer_of(op: Op, value: Value) -> BufferType:
    """The type of an operand that is a buffer."""
    return expect(value.type, BufferType, f"{op.NAME}: the operand must be a buffer; got {value.type}")


def is_straight(body: Body) -> bool:
    """Whether a body has no control flow, so that it may run on vectors."""
    return len(body.blocks) == 1 and not any(op.bodies for op in body.entry.ops)


class Module(Op, traits.Isolated, traits.SymbolTable, name="cpu.module"):
    """A kernel for one program, for a CPU with vectors of `vector` bytes. A thread has `scratch` bytes for buffers."""

    body: Body = body(ends=Unreachable)
    vector: int = attribute(int)
    scratch: int = attribute(int, default=0)

    def check(self) -> None:
        require(self.vector in (16, 32, 64), f"cpu.module: vectors have 16, 32 or 64 bytes; got {self.vector}")
        for op in self.walk():
            if isinstance(op, Region):
                most = self.vector // 2
                require(op.lanes <= most, f"cpu.region: a vector has {most} lanes at most here; got {op.lanes}")
            if isinstance(op, Alloc) and isinstance(op.type, BufferType):
                fits = op.offset == -1 or (op.offset % 64 == 0 and 0 <= op.offset <= self.scratch - op.type.bytes)
                require(
                    fits, f"cpu.alloc: {op.type} at {op.offset} is not in {self.scratch} bytes, or not 64-byte aligned"
                )


class Alloc(Op, name="cpu.alloc"):
    """Memory of the thread; `offset` is its place in the scratch memory in bytes, -1 until allocation."""

    type: Type = result_type()
    offset: int = attribute(int, default=-1)

    def check(self) -> None:
        require(isinstance(self.type, BufferType), f"cpu.alloc gives a buffer; got {self.type}")


class Waits(Op, name="cpu.waits"):
    """The loop around this op, or the loop whose first block has it, waits for memory to change.

    Only another program can write the content that ends the loop. Where `memory` is False, nothing ends it.
    """

    memory: bool = attribute(bool, default=True)


class End(Op, traits.BodyTerminator, name="cpu.end"):
    """The end of a region, and the scalars that it gives."""

    values: Sequence[Value] = operands()


class Region(Op, name="cpu.region"):
    """A loop nest over a shape. Statements in the body run for each index: accesses, `cpu.put`, `cpu.count`,
    reductions, assertions.

    Indices come in row-major order, or with `axis`, along which the region reduces, as the innermost one. A load that
    comes before a store has the elements from before the region. The results are the scalars that `cpu.end` names.

    Statements run on vectors of `lanes` neighbours along the last axis of more than one element, and an iteration of
    the innermost loop computes `unroll` vectors. With `rows`, which is then as many as the lanes, the reductions of so
    many rows share their last steps: the vectors of the rows are combined as one square.
    """

    shape: tuple[int, ...] = attribute([int])
    body: Body = body(ends=End)
    axis: int = attribute(int, default=-1)
    lanes: int = attribute(int, default=1)
    unroll: int = attribute(int, default=1)
    rows: int = attribute(int, default=1)

    @property
    def lane_axis(self) -> int:
        """The axis along which the lanes of a vector are neighbours."""
        return max((axis for axis, size in enumerate(self.shape) if size > 1), default=len(self.shape) - 1)

    @property
    def inner_axis(self) -> int:
        """The axis of the innermost loop."""
        return self.axis if self.axis >= 0 else self.lane_axis

    @property
    def outer_axes(self) -> list[int]:
        """The axes of the loops around those of the lanes and of the reductions."""
        inner = (self.lane_axis, self.inner_axis)
        return [axis for axis, size in enumerate(self.shape) if size > 1 and axis not in inner]

    @property
    def vectors(self) -> int:
        """The vectors, or numbers, along the innermost axis."""
        return self.shape[self.inner_axis] // (self.lanes if self.inner_axis == self.lane_axis else 1)

    def infer_type(self) -> Type:
        return packed([value.type for value in self.body.entry.terminator.operands])

    def check(self) -> None:
        require(not self.body.parameters, "the body of cpu.region takes no parameters")
        require(bool(self.shape) and min(self.shape) > 0, f"cpu.region takes a shape of sizes; got {self.shape}")
        rank = len(self.shape)
        require(-1 <= self.axis < rank, f"cpu.region: the axis must be one of {rank}, or -1; got {self.axis}")
        rest = (*self.shape[: self.axis], *self.shape[self.axis + 1 :]) if self.axis >= 0 else self.shape
        self._check_vectors()
        for op in self.body.entry.ops:
            if isinstance(op, Reduce):
                fits = shape_of(op.values[0].type) == self.shape and op.axis == self.axis
                require(fits, f"a reduction in cpu.region must be of {self.shape}, along its axis {self.axis}")
            elif isinstance(op, Load | Store | Put | Count):
                shape = shape_of(op.result.type if isinstance(op, Load) else op.value.type)
                allowed = (self.shape, rest) if isinstance(op, Put) else (self.shape,)
                require(shape in allowed, f"{op.NAME} in cpu.region must be of {self.shape}; got {shape}")

    def _check_vectors(self) -> None:
        ops = self.body.entry.ops
        for name, number, whole in (("lanes", self.lanes, self.shape[self.lane_axis]), ("unroll", self.unroll, 0)):
            whole = whole or self.vectors
            fits = is_power_of_two(number) and whole % number == 0
            require(fits, f"cpu.region: {name} must be a power of two that divides {whole}; got {number}")
        straight = all(is_straight(inner) for op in ops for inner in op.bodies)
        require(self.lanes == 1 or straight, "cpu.region: a body with control flow has no vectors; lanes must be 1")
        require(self.rows in (1, self.lanes), f"cpu.region: rows must be 1, or the {self.lanes} lanes; got {self.rows}")
        if self.rows > 1:
            reduces, outer = any(isinstance(op, Reduce) for op in ops), self.outer_axes
            square = reduces and self.axis == self.lane_axis and len(outer) == 1
            fits = square and self.shape[outer[0]] % self.rows == 0
            require(fits, f"cpu.region: {self.rows} rows of {self.shape} cannot be reduced at once")


class _View(Op):
    """The elements of a buffer at start + Σ index · stride, in elements. Without strides, in row-major order."""

    def _check_view(self, buffer: BufferType, tensor: Type, start: int, strides: Sequence[int]) -> None:
        shape, name = shape_of(tensor), type(self).NAME
        require(element_of(tensor) == buffer.element, f"{name}: {tensor} is not of the elements of {buffer}")
        require(len(strides) in (0, len(shape)), f"{name} takes a stride for each of the {len(shape)} axes")
        spans = [(size - 1) * step for size, step in zip(shape, strides or row_major(shape), strict=True)]
        first, last = (start + sum(pick(span, 0) for span in spans) for pick in (min, max))
        for reached in (first, last):
            require(0 <= reached < buffer.numel, f"{name}: {tensor} reaches element {reached} of {buffer}")


class Get(_View, name="cpu.get"):
    """The tensor that a buffer holds when the region runs; outside of a region, a scalar."""

    buffer: Value = operand()
    start: int = attribute(int, default=0)
    strides: tuple[int, ...] = attribute([int], default=())
    type: Type = result_type(kw_only=True)

    def check(self) -> None:
        self._check_view(buffer_of(self, self.buffer), self.type, self.start, self.strides)


class Put(_View, name="cpu.put"):
    """Store a tensor to a buffer. In a region that reduces, the tensor may lack the axis.

    With `in_place`, the tensor is an affine load, and nothing is stored if all of its elements are there, as they are
    until the last use of the buffer: what uses the buffer then reads the memory of the load.
    """

    buffer: Value = operand()
    value: Value = operand()
    start: int = attribute(int, default=0)
    strides: tuple[int, ...] = attribute([int], default=())
    in_place: bool = attribute(bool, default=False)

    def check(self) -> None:
        self._check_view(buffer_of(self, self.buffer), self.value.type, self.start, self.strides)


class Access(Op, traits.Pure, name="cpu.access"):
    """The addresses and the mask of a block. Where `guard` holds, the pointer to the element at an index is base +
    Σ index · stride, in elements, and the mask holds for exactly the elements whose index is below the count along each
    axis. With `part`, it holds for some of these.
    """

    base: Value = operand()
    guard: Value = operand(type=i1)
    strides: Sequence[Value] = operands(i64)
    counts: Sequence[Value] = operands(i64)
    type: Type = result_type()
    part: bool = attribute(bool, default=False)

    def check(self) -> None:
        type_ = expect(self.type, AccessType, f"cpu.access gives an access; got {self.type}")
        require(self.base.type == PtrType(type_.element), f"the base of {type_} cannot be {self.base.type}")
        require(len(self.strides) == len(type_.shape), f"{type_} has {len(type_.shape)} strides and counts")


def _block(op: Op, access: Value, ptr: Value, mask: Value | None) -> None:
    type_ = expect(access.type, AccessType, f"{op.NAME} takes an access; got {access.type}")
    is_access = isinstance(access.op, Access)
    require(is_access, f"{op.NAME}: the access must be the result of a cpu.access")
    require(
        ptr.type == shaped(type_.shape, PtrType(type_.element)), f"{op.NAME}: {ptr.type} are no pointers of {type_}"
    )
    require(mask is None or mask.type == with_element(ptr.type, i1), f"{op.NAME}: the mask has another shape")


class Load(Op, traits.MemoryRead, name="cpu.load"):
    """`tt.load` of pointers and a mask that are those of the access where its guard holds."""

    access: Value = operand()
    ptr: Value = operand()
    mask: Value | None = operand(default=None)
    other: Value | None = operand(default=None)

    def infer_type(self) -> Type:
        type_ = expect(self.access.type, AccessType, f"cpu.load takes an access; got {self.access.type}")
        return shaped(type_.shape, type_.element)

    def check(self) -> None:
        _block(self, self.access, self.ptr, self.mask)
        fits = self.other is None or self.other.type == self.infer_type()
        require(fits, f"cpu.load of {self.access.type}: other must be {self.infer_type()}")


class Store(Op, traits.MemoryWrite, name="cpu.store"):
    """`tt.store` of pointers and a mask that are those of the access where its guard holds.

    If the array has `stream` bytes or more, and `stream` is not 0, whole cache lines are stored around the caches.
    """

    access: Value = operand()
    ptr: Value = operand()
    value: Value = operand()
    mask: Value | None = operand(default=None)
    stream: int = attribute(int, default=0)

    def check(self) -> None:
        require(self.stream >= 0, f"cpu.store: stream must be a number of bytes, or 0; got {self.stream}")
        _block(self, self.access, self.ptr, self.mask)
        expected = shaped(shape_of(self.ptr.type), expect(self.access.type, AccessType, "").element)
        require(self.value.type == expected, f"cpu.store stores {expected}; got {self.value.type}")


class Prefetch(Op, name="cpu.prefetch"):
    """A statement of a region: fetch what the access will have at this index in the next program to the first or the
    second cache. It is taken to be as far from here as this is from the program before."""

    access: Value = operand()
    cache: int = attribute(int, default=2)

    def check(self) -> None:
        type_ = expect(self.access.type, AccessType, f"cpu.prefetch takes an access; got {self.access.type}")
        require(isinstance(self.access.op, Access), "cpu.prefetch: the access must be the result of a cpu.access")
        require(sum(size > 1 for size in type_.shape) == 1, f"cpu.prefetch takes the access of a row; got {type_}")
        require(self.cache in (1, 2), f"cpu.prefetch: the cache must be 1 or 2; got {self.cache}")


class Count(Op, name="cpu.count"):
    """A statement of a region: add 1 to the element of the buffer that the value numbers, if there is one, where the
    mask holds."""

    buffer: Value = operand()
    value: Value = operand()
    mask: Value | None = operand(default=None)

    def check(self) -> None:
        counts, element = buffer_of(self, self.buffer), element_of(self.value.type)
        require(counts.element == i32, f"cpu.count counts in i32; got {counts}")
        require(isinstance(element, ScalarType) and element.is_int, f"cpu.count takes integers; got {self.value.type}")
        fits = self.mask is None or self.mask.type == with_element(self.value.type, i1)
        require(fits, "cpu.count: the mask has another shape")


class Dot(Op, name="cpu.dot"):
    """c += a · b for matrices in buffers, or batches of them. Each sum is one chain of fused multiply-adds in ascending
    k that begins with c, with `zero` with 0. For an f16 c it begins with 0 in f32, and c is added at the end. With
    `transposed`, the buffer holds b with its axes exchanged. An iteration of the innermost loop takes `unroll` numbers
    of k.

    The first `keep` matrices b of a program stay in memory of the thread as they are packed: the next programs of the
    thread do not pack them again where they take the same ones, such as those of one column of a matmul.
    """

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()
    input_precision: InputPrecision = attribute(InputPrecision, default=InputPrecision.DEFAULT)
    transposed: bool = attribute(bool, default=False)
    zero: bool = attribute(bool, default=False)
    unroll: int = attribute(int, default=1)
    keep: int = attribute(int, default=0)

    def check(self) -> None:
        a, b, c = (buffer_of(self, value) for value in (self.a, self.b, self.c))
        rank = len(a.shape)
        require(rank > 1 and rank == len(b.shape) == len(c.shape), f"cpu.dot of {a} and {b} to {c}: matrices needed")
        *batch, depth, columns = b.shape if not self.transposed else b.shape[::-1]
        fits = a.shape[-1] == depth and c.shape == (*a.shape[:-1], columns) and tuple(batch) == a.shape[:-2]
        require(fits, f"cpu.dot of {a} and {b} to {c}: the shapes do not fit")
        whole = self.unroll > 0 and depth % self.unroll == 0
        require(whole, f"cpu.dot: unroll must be a number that divides {depth}; got {self.unroll}")
        require(self.keep >= 0, f"cpu.dot: keep must be a number of matrices, or 0; got {self.keep}")


class Scan(Op, name="cpu.scan"):
    """An inclusive scan of buffers along an axis, in place, as `tt.scan`."""

    buffers: Sequence[Value] = operands()
    axis: int = attribute(int)
    combine: Body = body(ends=ScanReturn)
    reverse: bool = attribute(bool, default=False)

    def check(self) -> None:
        types = [buffer_of(self, value) for value in self.buffers]
        shapes = {type_.shape for type_ in types}
        require(len(shapes) == 1, f"cpu.scan takes buffers of one shape; got {sorted(shapes)}")
        require(0 <= self.axis < len(types[0].shape), f"cpu.scan: there is no axis {self.axis} in {types[0]}")
        elements = [type_.element for type_ in types]
        parameter_types = [parameter.type for parameter in self.combine.parameters]
        require(parameter_types == 2 * elements, "the body of cpu.scan takes two of each element")
        yielded_types = [value.type for value in self.combine.entry.terminator.operands]
        require(yielded_types == elements, "the body of cpu.scan gives one of each element")


class Sort(Op, name="cpu.sort"):
    """The integers of each row, along the last axis, in ascending order: those of a tensor, or with a target those of a
    buffer, in another one of its type."""

    keys: Value = operand()
    target: Value | None = operand(default=None)

    def infer_type(self) -> Type:
        return self.keys.type if self.target is None else void

    def check(self) -> None:
        type_ = self.keys.type if self.target is None else buffer_of(self, self.keys)
        shape, element = (1,), None
        if isinstance(type_, BufferType | TensorType):
            shape, element = type_.shape, type_.element
        whole = isinstance(element, ScalarType) and element.is_int and element.bits >= 8
        require(whole, f"cpu.sort takes integers; got {type_}")
        require(is_power_of_two(shape[-1]), f"cpu.sort: the last axis must be a power of two; got {type_}")
        fits = self.target is None or (self.target.type == type_ and self.target is not self.keys)
        require(fits, f"cpu.sort of {type_} needs another buffer of its type")


class Copy(Op, name="cpu.copy"):
    """Copy the content of a buffer to another one of its type."""

    source: Value = operand()
    target: Value = operand()

    def check(self) -> None:
        buffer_of(self, self.source)
        require(self.source.type == self.target.type, f"cpu.copy of {self.source.type} to {self.target.type}")
