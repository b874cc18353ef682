"""Emitting the ops of a call: constants, conversions and broadcasts. Each use adds ops of its own; none is cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import (
    ConstantType,
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    f32,
    i1,
    i32,
    i64,
    scalar_element,
    shape_of,
    shaped,
    u8,
    value_element,
    with_element,
)
from ziggurat.frontends.language.dtypes import E4B15
from ziggurat.frontends.language.host import cast as cast_number
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.transforms import casts
from ziggurat.transforms.calls.foreign_floats import is_e4b15, narrowed, widened
from ziggurat.transforms.calls.lattice import BlockPtrType, ErrorType, Split, Unusable, components

# A value of the Python model in the Triton model: a value, a tuple of such, or None for a constant, which needs none.
Built = Value | tuple["Built", ...] | None
# The attributed types that have no value at run time.
VALUELESS = ConstantType | Unusable | ErrorType
# The building half of a call's rule: `(emit, result type, *arguments) -> the value of the result`.
Builds = Callable[..., Built]


@attrs.frozen
class Operand:
    """An argument of a call: its attributed type, and what was built for it."""

    type: Type
    value: Any


def number_as(value: Any, scalar: ScalarType) -> Any:
    """A Python number as the attribute of an `arith.constant` of this scalar type: cast, as at run time."""
    if isinstance(value, float) and scalar.is_float:
        return value  # The constant rounds it.
    return cast_number(value, scalar, None, bitcast=False)


class Callee(Protocol):
    """A function that a call calls: its symbol in the model, and the attributed type of its result."""

    symbol: str
    result: Type


class Functions(Protocol):
    """The functions of the model that is built."""

    def callee(self) -> Callee:
        """The function that the current op calls, or that it combines elements with; added to the model."""
        ...

    def helper(
        self,
        symbol: str,
        source: str,
        types: Sequence[Type],
        result: Type,
        build: Callable[[Builder, Sequence[Value]], list[Value]],
    ) -> str:
        """Add a function with this body, unless it is there; its symbol, numbered where another has that name."""
        ...


class Emitter:
    """A builder with the conversions that calls insert: the context in which the ops of a call are built.

    `functions` adds those that a call needs to the model. The emitter of such a function has none. `language` has the
    rules of the language of the function that is built.
    """

    def __init__(self, builder: Builder, functions: Functions | None = None, language: Language = EXPLICIT) -> None:
        self.builder = builder
        self.language = language
        self._functions = functions

    @property
    def functions(self) -> Functions:
        """The functions of the model, to which a call may add some."""
        assert self._functions is not None
        return self._functions

    def add(self, op: Op) -> Value:
        """Append an op; its result."""
        return self.builder.add(op)

    def constant(self, value: Any, type_: Type) -> Value:
        """A constant of a scalar or (every element of) a tensor type."""
        return self.add(arith.ConstantOp(number_as(value, scalar_element(type_)), type_))

    def placeholder(self, type_: Type) -> Value:
        """An arbitrary value of a type, for a yield whose value is never read."""
        element = element_of(type_)
        if isinstance(element, PtrType):
            null = self.add(tt.IntToPtr(self.add(arith.ConstantOp(0, i64)), element))
            return self.spread(null, shape_of(type_))
        if isinstance(type_, DescriptorType):
            padding = "zero" if type_.padding == "either" else type_.padding
            padded = attrs.evolve(type_, padding=padding)
            base, *outer = self.placeholder(PtrType(type_.element)), *type_.block[1:]
            sizes = [self.constant(1, i32) for _ in type_.block]
            strides = [self.constant(16, i64) for _ in outer] + [self.constant(1, i64)]
            null = self.add(tt.MakeTensorDescriptor(base, sizes, strides, padded, padding=tt.Padding(padding)))
            return self.convert(Operand(padded, null), type_)
        return self.constant(0, type_)

    def convert(self, operand: Operand, type_: Type, *, dense: bool = False) -> Value:
        """The operand as a value of exactly this type: its elements cast, then splatted or broadcast.

        A literal becomes a constant. For a tensor type, the constant is a scalar that is splatted, or with `dense` a
        constant of the tensor type.
        """
        element = element_of(type_)
        shape = shape_of(type_)
        if element == E4B15 or is_e4b15(operand.type):
            return self.spread(self._converted_e4b15(operand, element), shape)
        if isinstance(operand.type, ConstantType):
            scalar = operand.value
            if isinstance(element, ScalarType):
                if dense and shape:
                    return self.constant(operand.type.value, type_)
                if not isinstance(scalar, Value) or scalar.type != element:
                    scalar = self.constant(operand.type.value, element)
            return self.spread(scalar, shape)
        value = operand.value
        if isinstance(element, DescriptorType) and value.type != element:
            return self.add(tt.DescriptorPadding(value, self.constant(value.type.padding == "nan", i1)))
        if isinstance(element, ScalarType):
            value = self.cast(value, element)
        return self.spread(value, shape)

    def _converted_e4b15(self, operand: Operand, element: Type) -> Value:
        """The numbers of the operand from or to fp8e4b15, which is the type of them or the `element` wanted."""
        if is_e4b15(operand.type):
            keeps = element in (E4B15, u8)  # Nothing becomes u8 but what is fp8e4b15 in the attributed type.
            return operand.value if keeps else widened(self.builder, operand.value, cast(ScalarType, element))
        if isinstance(operand.type, ConstantType):
            return narrowed(self.builder, self.constant(operand.type.value, f32))
        return narrowed(self.builder, operand.value)

    def spread(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Splat a scalar, or broadcast a tensor (padded on the left with axes of size 1), to the shape."""
        source = shape_of(value.type)
        if source == shape:
            return value
        target = shaped(shape, value_element(value.type))
        if not source:
            return self.add(tt.Splat(value, target))
        for _ in range(len(shape) - len(source)):
            value = self.add(tt.ExpandDims(value, 0))
        return value if value.type == target else self.add(tt.Broadcast(value, target))

    def indices(self, shape: tuple[int, ...], axis: int) -> Value:
        """The index along an axis of a shape, as i32; the other axes have size 1."""
        numbers = self.add(tt.MakeRange(0, shape[axis]))
        for other in range(len(shape)):
            if other != axis:
                numbers = self.add(tt.ExpandDims(numbers, other))
        return numbers

    def reshape(self, value: Value, result: Type) -> Value:
        """The elements of a tensor in the shape of `result`. If `result` is a scalar, the only element of the
        tensor."""
        if value.type == result:
            return value
        if isinstance(result, TensorType):
            return self.add(tt.Reshape(value, result))
        element = value_element(value.type)
        if len(shape_of(value.type)) > 1:
            value = self.add(tt.Reshape(value, TensorType((1,), element)))
        first = self.builder.nested([element, element], element)
        first.add(tt.ReduceReturn([first.parameters[0]]))
        return self.add(tt.Reduce([value], 0, first.finish()))

    def runtime(self, operand: Operand) -> Value:
        """The operand as a run-time value; a literal in its own type."""
        return self.convert(operand, operand.type.type) if isinstance(operand.type, ConstantType) else operand.value

    def cast(self, value: Value, target: ScalarType, rounding: arith.Rounding = arith.Rounding.NEAREST) -> Value:
        """The value with its elements converted; itself where they have the type already."""
        if target == i1:
            return self.nonzero(value)
        return casts.cast(self.builder, value, target, rounding)

    def nonzero(self, value: Value) -> Value:
        """Whether each element is not zero; an i1 itself."""
        element = element_of(value.type)
        if element == i1:
            return value
        if isinstance(element, PtrType):
            value = self.add(tt.PtrToInt(value))
            element = i64
        assert isinstance(element, ScalarType)
        if element.is_fp8:
            value = self.cast(value, f32)
        zero = self.constant(0, value.type)
        if element.is_float:
            return self.add(arith.CmpF(value, zero, arith.FloatPredicate.UNE))
        return self.add(arith.CmpI(value, zero, arith.IntPredicate.NE))

    def truth(self, operand: Operand) -> Value:
        """The operand, a scalar or the only element of a tensor, as an i1: whether it is not zero."""
        if isinstance(operand.type, ConstantType):
            return self.constant(bool(operand.type.value), i1)
        value = self.nonzero(operand.value)
        return self.reshape(value, i1) if isinstance(value.type, TensorType) and value.type.numel == 1 else value

    def call(self, symbol: str, arguments: list[Value], result: Type) -> Built:
        """Call a function of the module; `result` is its attributed type."""
        return self.unpack(self.add(tt.Call(arguments, symbol, packed_type(result))), result)

    def parts(self, value: Value, count: int) -> list[Value]:
        """The `count` components of a packed value; a single one is not packed."""
        if count == 1:
            return [value]
        return [self.add(core.TupleLoad(value, index)) for index in range(count)]

    def unpack(self, value: Value, type_: Type) -> Built:
        """The components of a value of the packed form of `type_`, as the mirror keeps them."""
        return rebuild(type_, self.parts(value, len(flatten_types(type_))))

    def convert_parts(self, scalars: Operand, type_: Type) -> list[Value]:
        """The components of a tuple of scalars, each as a value of this type."""
        return [self.convert(part, type_) for part in split_operand(scalars)]

    def repack(self, operand: Operand, type_: Type) -> list[Value]:
        """The run-time values of the operand after conversion to `type_`: the components of a tuple in a row, no
        constants."""
        if isinstance(type_, TupleType | BlockPtrType):
            parts = split_operand(operand)
            return [v for part, to in zip(parts, type_.components, strict=True) for v in self.repack(part, to)]
        if isinstance(type_, ConstantType):
            return []
        return [self.convert(operand, type_)]


def as_given(cls: type[Any]) -> Builds:
    """The building half of a call that is an op of its arguments as they are."""

    def build(emit: Emitter, result: Type, *arguments: Any) -> Built:
        values = (argument.value if isinstance(argument, Operand) else argument for argument in arguments)
        return emit.unpack(emit.add(cls(*values)), result)

    return build


def split_operand(operand: Operand) -> list[Operand]:
    """The components of a tuple operand, constant or not, the parts of a block pointer, or the values that depend on a
    flag."""
    types = operand.type.components if isinstance(operand.type, BlockPtrType | Split) else components(operand.type)
    assert types is not None
    value: Any = operand.value
    values = cast(tuple[Built, ...], value if isinstance(value, tuple) else (None,) * len(types))
    return [Operand(type_, value) for type_, value in zip(types, values, strict=True)]


def flatten_types(type_: Type) -> list[Type]:
    """The run-time types that make up an attributed type: a tuple's components in a row; constants have none."""
    if isinstance(type_, TupleType | BlockPtrType | Split):
        return [inner for component in type_.components for inner in flatten_types(component)]
    return [] if isinstance(type_, VALUELESS) else [in_models(type_)]


def in_models(type_: Type) -> Type:
    """The type that an attributed type has in models, which know no constant pointers and hold fp8e4b15 in u8."""
    element = element_of(type_)
    if isinstance(element, PtrType) and (element.const or element.pointee == E4B15):
        return with_element(type_, PtrType(u8 if element.pointee == E4B15 else element.pointee))
    return with_element(type_, u8) if is_e4b15(type_) else type_


def packed_type(type_: Type) -> Type:
    """The type of one value that holds all of `flatten_types(type_)`: a Tuple if they are several, void if there are
    none."""
    return packed(flatten_types(type_))


def rebuild(type_: Type, values: list[Value]) -> Built:
    """The value of an attributed type from its flattened run-time values, which are removed from the front of
    `values`."""
    if isinstance(type_, TupleType | BlockPtrType | Split):
        return tuple(rebuild(component, values) for component in type_.components)
    return None if isinstance(type_, VALUELESS) else values.pop(0)
