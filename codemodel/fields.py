"""The fields of an op's declaration, by their roles: see `declare.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ziggurat.codemodel.op import Op
    from ziggurat.codemodel.types import Type

REQUIRED: Final = object()  # Marks an attribute without a default.


class Field:
    """One declared field. `role` is operand, operands, attribute, successor, body, bodies or type.

    A field is a class attribute of the op, which gives it its name; each op has its own value of that name.
    """

    __slots__ = ("default", "ends", "follows", "keyword", "kind", "name", "optional", "role", "type", "unnamed")

    def __init__(
        self,
        role: str,
        *,
        optional: bool = False,
        kind: Any = None,
        default: Any = REQUIRED,
        unnamed: bool = False,
        keyword: bool = False,
        ends: type[Op] | None = None,
        follows: str | None = None,
        type: Type | None = None,
    ) -> None:
        self.role, self.optional, self.kind, self.default = role, optional, kind, default
        self.unnamed, self.keyword, self.ends, self.follows = unnamed, keyword, ends, follows
        self.type = type
        self.name = ""

    def __set_name__(self, owner: type[Op], name: str) -> None:
        self.name = name


def operand(*, default: Any = REQUIRED, type: Type | None = None) -> Any:
    """A value, of this type if there is one. With `default=None` it may be absent, and is None then."""
    return Field("operand", optional=default is not REQUIRED, type=type)


def operands(type: Type | None = None) -> Any:
    """Any number of values, of this type if there is one."""
    return Field("operands", type=type)


def attribute(kind: Any, default: Any = REQUIRED, *, unnamed: bool = False, kw_only: bool = False) -> Any:
    """A constant of the op. `kind` is int, float, bool, str, object, Type, an enum class, or a list of one: `[int]`.

    `object` admits any constant: numbers, strings, None, types, enums, and tuples of them. An attribute equal to its
    default is not printed, and such attributes, like those declared `kw_only`, are given by keyword to the constructor.
    `unnamed` prints as `@value` instead of `@name=value`; at most one field of an op is.
    """
    keyword = kw_only or default is not REQUIRED
    return Field("attribute", kind=kind, default=default, unnamed=unnamed, keyword=keyword)


def successor() -> Any:
    """A block of the same body to go to, with arguments."""
    return Field("successor")


def body(*, ends: type[Op] | None = None, kw_only: bool = False) -> Any:
    """A nested body. `ends` is the terminator that hands its values to the op; without it any terminator may."""
    return Field("body", ends=ends, keyword=kw_only)


def bodies(*, ends: type[Op] | None = None) -> Any:
    """Any number of nested bodies; see `body`."""
    return Field("bodies", ends=ends)


def result_type(*, kw_only: bool = False, follows: str | None = None) -> Any:
    """The type of the result, for an op whose operands do not determine it.

    `follows` names an operand whose element type is that of the result: a transform that changes the one changes the
    other.
    """
    return Field("type", follows=follows, keyword=kw_only)
