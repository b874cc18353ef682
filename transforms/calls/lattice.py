"""The lattice of attribution: types of variables at joins of control flow.

From below: a constant; a type; `Unusable`, of a variable that has no value on some path or unlike types on two. Reading
an unusable variable is an error; a kernel may use one name for unlike things on two paths.
"""

from __future__ import annotations

import attrs

from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, TupleType, Type, TypeSyntax, i64
from ziggurat.transforms.calls.promotion import constant, is_number, promote_types, scalar_type


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

    At run time it is its `components`: the pointer to the tensor, and an i64 for each size, stride and offset.
    """

    block: tuple[int, ...]
    element: ScalarType

    @property
    def components(self) -> tuple[Type, ...]:
        return (PtrType(self.element), *(i64,) * (3 * len(self.block)))

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("block_ptr", (*(TypeSyntax(f"x{size}") for size in self.block), self.element.syntax()))


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
    found = _join(a, b)
    return found if found is not None else Unusable((a, b), place, loop)


def _join(a: Type, b: Type) -> Type | None:
    if a == b:
        return a
    x, y = components(a), components(b)
    if x is not None or y is not None:
        if x is None or y is None or len(x) != len(y):
            return None
        joined = [_join(p, q) for p, q in zip(x, y, strict=True)]
        return None if None in joined else TupleType(tuple(type_ for type_ in joined if type_ is not None))
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
