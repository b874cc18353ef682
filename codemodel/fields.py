"""The fields of an op's declaration, by their roles: see `declare.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from ziggurat.codemodel.op import Op

KEY: Final = "ziggurat"  # The key of the `Field` in the metadata of an attrs field.
REQUIRED: Final = object()  # Marks an attribute without a default.


@attrs.frozen
class Field:
    """One declared field. `role` is operand, operands, attribute, successor, body, bodies or type."""

    role: str
    name: str = ""
    optional: bool = False
    kind: Any = None
    default: Any = REQUIRED
    unnamed: bool = False
    ends: type[Op] | None = None
    follows: str | None = None


def _field(field: Field, **arguments: Any) -> Any:
    return attrs.field(metadata={KEY: field}, **arguments)


def operand(*, default: Any = REQUIRED) -> Any:
    """A value. With `default=None` it may be absent, and is None then."""
    if default is REQUIRED:
        return _field(Field("operand"))
    return _field(Field("operand", optional=True), default=None)


def operands() -> Any:
    """Any number of values."""
    return _field(Field("operands"))


def attribute(kind: Any, default: Any = REQUIRED, *, unnamed: bool = False, kw_only: bool = False) -> Any:
    """A constant of the op. `kind` is int, float, bool, str, object, Type, an enum class, or a list of one: `[int]`.

    `object` admits any constant: numbers, strings, None, types, enums, and tuples of them. An attribute equal to its
    default is not printed, and such attributes, like those declared `kw_only`, are given by keyword to the constructor.
    `unnamed` prints as `@value` instead of `@name=value`; at most one field of an op is.
    """
    field = Field("attribute", kind=kind, default=default, unnamed=unnamed)
    if default is REQUIRED:
        return _field(field, kw_only=kw_only)
    return _field(field, default=default, kw_only=True)


def successor() -> Any:
    """A block of the same body to go to, with arguments."""
    return _field(Field("successor"))


def body(*, ends: type[Op] | None = None) -> Any:
    """A nested body. `ends` is the terminator that hands its values to the op; without it any terminator may."""
    return _field(Field("body", ends=ends))


def bodies(*, ends: type[Op] | None = None) -> Any:
    """Any number of nested bodies; see `body`."""
    return _field(Field("bodies", ends=ends))


def result_type(*, kw_only: bool = False, follows: str | None = None) -> Any:
    """The type of the result, for an op whose operands do not determine it.

    `follows` names an operand whose element type is that of the result: a transform that changes the one changes the
    other.
    """
    return _field(Field("type", follows=follows), kw_only=kw_only)
