"""The lattice of attribution: types of variables at joins of control flow.

From below: a constant; a type; `Unusable`, of a variable that has no value on some path or unlike types on two. Reading
an unusable variable is an error; a kernel may use one name for unlike things on two paths.
"""

from __future__ import annotations

from typing import Any, cast

import attrs

from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import (
    ConstantType,
    DescriptorType,
    PtrType,
    ScalarType,
    TupleType,
    Type,
    TypeSyntax,
    i32,
    i64,
)
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.aggregates import annotations_of
from ziggurat.frontends.language.constants import as_constant, unwrapped
from ziggurat.frontends.language.languages import Language
from ziggurat.transforms.calls.constant_arguments import HostObject, function_name
from ziggurat.transforms.calls.promotion import constant, is_number, promote_types, run_time_type, scalar_type


@attrs.frozen(str=False)
class ErrorType(Type):
    """The type of a value whose op was in error; ops that depend on it are not reported again."""

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("error")


@attrs.frozen(str=False)
class RangeType(Type):
    """The range of a `for` loop: bounds as attributed types, `static` when it is unrolled, and the loop's options."""

    start: Type
    stop: Type
    step: Type
    static: bool = False
    options: tuple[tuple[str, object], ...] = ()

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("range", (self.start.syntax(), self.stop.syntax(), self.step.syntax()))


@attrs.frozen(str=False)
class BlockPtrType(Type):
    """`block_ptr<x64, x32, f16>`: a block of this shape in a tensor in global memory.

    At run time it is its `components`: the pointer to the tensor, an i64 for each size and stride, and an `offset`
    for each axis, i32 (as in Triton) or i64.
    """

    block: tuple[int, ...]
    element: ScalarType
    offset: ScalarType = i32

    @property
    def components(self) -> tuple[Type, ...]:
        rank = len(self.block)
        return (PtrType(self.element), *(i64,) * (2 * rank), *(self.offset,) * rank)

    def syntax(self) -> TypeSyntax:
        wide = () if self.offset == i32 else (self.offset.syntax(),)
        sizes = (TypeSyntax(f"x{size}") for size in self.block)
        return TypeSyntax("block_ptr", (*sizes, self.element.syntax(), *wide))


@attrs.frozen(str=False)
class Unusable(Type):
    """The type of a variable that must not be read: its `types` on two paths, or () if it has no value on one.

    `partly` is true if it has a value on another path.
    """

    types: tuple[Type, ...] = ()
    place: Location | None = attrs.field(default=None, eq=False)
    loop: bool = False
    partly: bool = False

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("unusable", tuple(type_.syntax() for type_ in self.types))


@attrs.frozen(str=False)
class Split(Type):
    """The type of a variable that depends on a flag: the type where the flag is false, and the one where it is true."""

    flag: Value = attrs.field(eq=id)
    components: tuple[Type, Type]

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("split", tuple(type_.syntax() for type_ in self.components))


def split(flag: Value, no: Type, yes: Type) -> Type:
    """The type of a variable that has the type `no` where a flag is false, and `yes` where it is true."""
    return no if no == yes else Split(flag, (no, yes))


@attrs.frozen
class Record:
    """A named tuple, or an aggregate, a class of a Triton program: the class, and its fields."""

    cls: type[Any]
    fields: tuple[str, ...]

    @property
    def is_aggregate(self) -> bool:
        return getattr(self.cls, "__triton_aggregate__", False)


@attrs.frozen(str=False, cache_hash=True)
class RecordType(TupleType):
    """The type of an object of a record: a tuple whose components have names."""

    record: Record = attrs.field(kw_only=True)

    def syntax(self) -> TypeSyntax:
        return TypeSyntax(self.record.cls.__name__, tuple(component.syntax() for component in self.components))

    def field(self, name: str) -> int | None:
        """The index of a component; None for a name that is no field."""
        return self.record.fields.index(name) if name in self.record.fields else None


UNASSIGNED = Unusable()
PARTLY_ASSIGNED = Unusable(partly=True)
ERROR = ErrorType()


def join(a: Type, b: Type, place: Location | None = None, loop: bool = False) -> Type:
    """The least type above both; `Unusable` where there is none."""
    if a == b:
        return a
    if isinstance(a, ErrorType) or isinstance(b, ErrorType):
        return ERROR
    if isinstance(a, Unusable) or isinstance(b, Unusable):
        unlike = [type_ for type_ in (a, b) if isinstance(type_, Unusable) and type_.types]
        return unlike[0] if unlike else PARTLY_ASSIGNED
    result = _join(a, b)
    return result if result is not None else Unusable((a, b), place, loop)


def _join(a: Type, b: Type) -> Type | None:
    if a == b:
        return a
    x, y = components(a), components(b)
    if x is not None or y is not None:
        if x is None or y is None or len(x) != len(y):
            return None
        if getattr(a, "record", None) != getattr(b, "record", None):
            return None
        parts = [_join(p, q) for p, q in zip(x, y, strict=True)]
        return None if None in parts else tuple_like(a, tuple(type_ for type_ in parts if type_ is not None))
    if isinstance(a, DescriptorType) and isinstance(b, DescriptorType):
        return a.of_either_padding if a.of_either_padding == b.of_either_padding else None
    if not is_number(a) or not is_number(b):
        return None
    if isinstance(a, ConstantType):
        return promote_types(scalar_type(a), scalar_type(b)) if isinstance(b, ConstantType) else _above(a, b)
    return _above(b, a) if isinstance(b, ConstantType) else None


def _above(literal: ConstantType, type_: Type) -> Type | None:
    """A scalar type that a literal may take: of its kind or a higher one, and wide enough."""
    if not isinstance(type_, ScalarType) or scalar_type(literal).rank > type_.rank:
        return None
    return type_ if type_.kind != "int" or type_.limits[0] <= literal.value <= type_.limits[1] else None


def components(type_: Type) -> tuple[Type, ...] | None:
    """The types of the components of a tuple, constant or not; None for anything else."""
    if isinstance(type_, ConstantType) and isinstance(type_.value, tuple):
        return tuple(constant(item) for item in type_.value)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return type_.components if isinstance(type_, TupleType) else None


def component_count(type_: Type) -> int | None:
    """The number of components of a tuple, constant or not; None for anything else."""
    if isinstance(type_, ConstantType) and isinstance(type_.value, tuple):
        return len(type_.value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return len(type_.components) if isinstance(type_, TupleType) else None


def component(type_: Type, index: int) -> Type:
    """The type of one component of a tuple, without those of the others: a loop may take all, one after the other."""
    if isinstance(type_, ConstantType):
        return constant(type_.value[index])
    return expect(type_, TupleType).components[index]


def items_of(type_: Type) -> tuple[Type, ...] | None:
    """The types of the items of a tuple, constant or not; None for anything else. An aggregate has fields only."""
    return None if is_aggregate(type_) else components(type_)


def is_aggregate(type_: Type) -> bool:
    """True of an object of an aggregate."""
    return isinstance(type_, RecordType) and type_.record.is_aggregate


def tuple_like(type_: Type, parts: tuple[Type, ...]) -> TupleType:
    """The type of a tuple with these components, of the record of `type_` if that has one."""
    return attrs.evolve(type_, components=parts) if isinstance(type_, RecordType) else TupleType(parts)


def at_run_time(type_: Type, language: Language) -> Type:
    """The type with the numbers that are known at compile time in it as scalars."""
    parts = components(type_)
    if is_aggregate(type_):
        return type_  # Its class says which fields are constants.
    if parts is not None:
        inner = tuple(at_run_time(part, language) for part in parts)
        return type_ if all(isinstance(part, ConstantType) for part in inner) else tuple_like(type_, inner)
    return run_time_type(type_, language) if isinstance(type_, ConstantType) and is_number(type_) else type_


def known_value(type_: Type) -> tuple[bool, Any]:
    """Whether a value is known at compile time, with all its components, and the value."""
    if isinstance(type_, ConstantType):
        return True, type_.value
    if not isinstance(type_, TupleType):
        return False, None
    parts = [known_value(component) for component in type_.components]
    return all(is_constant for is_constant, _ in parts), tuple(value for _, value in parts)


def outer_constant(value: Any) -> Type:
    """The type of an object from outside of a kernel: a constant, a function, a tuple of these, or another object."""
    value = unwrapped(value)
    if isinstance(value, Function):
        return constant(function_name(value))
    if isinstance(value, tuple | list):
        parts = tuple(map(outer_constant, value))  # pyright: ignore[reportUnknownArgumentType]
        if record_fields(type(value)) is not None:  # pyright: ignore[reportUnknownArgumentType]
            return type_of_tuple(value, parts)  # pyright: ignore[reportUnknownArgumentType]
        constants = [part.value for part in parts if isinstance(part, ConstantType)]
        return constant(tuple(constants)) if len(constants) == len(parts) else TupleType(parts)
    cls = cast("type[Any]", type(value))
    fields = record_fields(cls)
    if fields is not None:
        parts = tuple(outer_constant(getattr(value, name)) for name in fields)
        return RecordType(parts, record=Record(cls, fields))
    is_constant, number = as_constant(value)
    return constant(number if is_constant else HostObject(value))


def type_of_tuple(value: Any, parts: tuple[Type, ...]) -> TupleType:
    """The type of a tuple or a named tuple whose items have these types."""
    cls = cast("type[Any]", type(value))
    fields = record_fields(cls)
    return TupleType(parts) if fields is None else RecordType(parts, record=Record(cls, fields))


def record_fields(cls: type[Any]) -> tuple[str, ...] | None:
    """The fields of a class of named tuples or an aggregate; None of another class."""
    if getattr(cls, "__triton_aggregate__", False):
        return tuple(annotations_of(cls))
    fields = getattr(cls, "_fields", None)
    return fields if issubclass(cls, tuple) else None


def is_host_value(type_: Type) -> bool:
    """True of an object of a record, and of another object of Python's, whose methods are functions."""
    return isinstance(type_, RecordType) or (isinstance(type_, ConstantType) and isinstance(type_.value, HostObject))
