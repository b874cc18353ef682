"""Declaring ops. One declaration gives the constructor, the text, the parser's rules, the verifier's and the documentation.

    @operation("tt.make_range")
    class MakeRange(Op, Pure):
        '''The integers from `start` to `end` - 1.'''

        start: int = attribute(int)
        end: int = attribute(int)

        def infer_type(self) -> Type:
            return TensorType((self.end - self.start,), i32)

    MakeRange(0, 64)            # in the text: %1 : tensor<x64, i32> = tt.make_range @start=0 @end=64;

Fields are declared in the order of the constructor: operands, attributes, successors, bodies, the result type. Operands that
may be absent come after those that may not. When an op has several `operands()` fields, they have equal lengths.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, dataclass_transform

import attrs

from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import Body, Op, OpResult, Successor, Value
from ziggurat.codemodel.types import Type, TypeSyntax, TypeSyntaxError, read_type

_KEY = "ziggurat"
REQUIRED: Final = object()  # The default of an attribute that has none.


@attrs.frozen
class Field:
    """One declared field. `role` is operand, operands, attribute, successor, body, bodies or type."""

    role: str
    name: str = ""
    optional: bool = False
    kind: Any = None
    default: Any = REQUIRED
    unnamed: bool = False
    help: str = ""


def _field(field: Field, **arguments: Any) -> Any:
    return attrs.field(metadata={_KEY: field}, **arguments)


def operand(*, optional: bool = False) -> Any:
    """A value. An optional one is None where absent."""
    return _field(Field("operand", optional=optional), default=None if optional else attrs.NOTHING)


def operands() -> Any:
    """Any number of values."""
    return _field(Field("operands"), converter=tuple)


def attribute(kind: Any, default: Any = REQUIRED, *, unnamed: bool = False, keyword: bool = False) -> Any:
    """A constant of the op. `kind` is int, float, bool, str, object, Type, an enum class, or a list of one of them: `[int]`.

    `object` admits any constant: numbers, strings, None, types, enums, and tuples of them. An attribute equal to its default
    is not printed, and such attributes, like those declared `keyword`, are given by keyword to the constructor. `unnamed`
    prints as `@value` instead of `@name=value`; at most one field of an op is.
    """
    field = Field("attribute", kind=kind, default=default, unnamed=unnamed)
    if default is REQUIRED:
        return _field(field, kw_only=keyword)
    return _field(field, default=default, kw_only=True)


def successor() -> Any:
    """A block of the same body to go to, with arguments."""
    return _field(Field("successor"))


def body() -> Any:
    """A nested body."""
    return _field(Field("body"))


def bodies() -> Any:
    """Any number of nested bodies."""
    return _field(Field("bodies"), converter=tuple)


def result_type(*, keyword: bool = False) -> Any:
    """The type of the result, where it does not follow from the operands."""
    return _field(Field("type"), kw_only=keyword)


class OpSpec:
    """What a declaration says, as data. One for each op class, in `Op.SPEC`."""

    def __init__(self, cls: type[Op], fields: Sequence[Field]) -> None:
        self.cls = cls
        self.fields = tuple(fields)
        self.operands = tuple(f for f in fields if f.role in ("operand", "operands"))
        self.attributes = tuple(f for f in fields if f.role == "attribute")
        self.successors = tuple(f for f in fields if f.role == "successor")
        self.bodies = tuple(f for f in fields if f.role in ("body", "bodies"))
        types = [f.name for f in fields if f.role == "type"]
        self.result_type = types[0] if types else None
        self.required = sum(1 for f in self.operands if f.role == "operand" and not f.optional)
        self.optional = sum(1 for f in self.operands if f.optional)
        self.variadic = sum(1 for f in self.operands if f.role == "operands")
        unnamed = [f for f in self.attributes if f.unnamed]
        self.unnamed = unnamed[0] if unnamed else None
        self.by_name = {f.name: f for f in self.attributes}
        # Kinds whose values may be stored as given, with the class that shows it.
        self._plain = tuple((f, f.kind if isinstance(f.kind, type) else None) for f in self.attributes)

    def complete(self, op: Op) -> None:
        """Fill in the generic view of a freshly constructed op, and check it."""
        fields = op.__dict__
        operands: list[Value] = []
        absent = False
        for field in self.operands:
            value = fields[field.name]
            if field.role == "operands":
                operands.extend(value)
            elif value is None:
                if not field.optional:
                    raise BuildError(f"{op.NAME}: operand '{field.name}' is missing")
                absent = True
            elif absent:
                raise BuildError(f"{op.NAME}: operand '{field.name}' is given, but an earlier one is not")
            else:
                operands.append(value)
        for field, plain in self._plain:
            value = fields[field.name]
            if type(value) is not plain:
                fields[field.name] = convert_attribute(value, field.kind, f"{op.NAME}: attribute '{field.name}'")
        self._finish(op, tuple(operands))
        op.__dict__["result"] = OpResult(
            fields[self.result_type] if self.result_type is not None else op.infer_type(), op
        )
        op.check()

    def _finish(self, op: Op, operands: tuple[Value, ...]) -> None:
        fields = op.__dict__
        fields["operands"] = operands
        fields["successors"] = tuple(fields[f.name] for f in self.successors) if self.successors else ()
        if not self.bodies:
            fields["bodies"] = ()
        else:
            found: list[Body] = []
            for field in self.bodies:
                if field.role == "bodies":
                    found.extend(fields[field.name])
                else:
                    found.append(fields[field.name])
            fields["bodies"] = tuple(found)
            for item in found:
                item.parent = op
        fields["location"] = None
        fields["parent"] = None

    def arity_error(self, count: int) -> str | None:
        """Why an op cannot have this many operands, or None."""
        extra = count - self.required
        if extra >= 0:
            if self.variadic:
                if extra % self.variadic == 0:
                    return None
            elif extra <= self.optional:
                return None
        if self.variadic:
            expected = f"at least {self.required}" if self.variadic == 1 else f"{self.required} and equal groups"
        elif self.optional:
            expected = f"{self.required} to {self.required + self.optional}"
        else:
            expected = str(self.required)
        return f"{self.cls.NAME} takes {expected} operand(s), got {count}"

    def make(
        self,
        operands: Sequence[Value],
        successors: Sequence[Successor],
        attributes: dict[str, Any],
        bodies: Sequence[Body],
        type_: Type,
    ) -> Op:
        """An op from its generic parts, with no check of types. The counts must fit; absent attributes take defaults."""
        error = self.arity_error(len(operands))
        if error is None and len(successors) != len(self.successors):
            error = f"{self.cls.NAME} takes {len(self.successors)} successor(s), got {len(successors)}"
        if error is None and not any(f.role == "bodies" for f in self.bodies) and len(bodies) != len(self.bodies):
            error = f"{self.cls.NAME} takes {len(self.bodies)} body(s), got {len(bodies)}"
        if error is not None:
            raise BuildError(error)
        op = self.cls.__new__(self.cls)
        fields = op.__dict__
        rest = list(operands)
        group = (len(rest) - self.required) // self.variadic if self.variadic else 0
        for field in self.operands:
            if field.role == "operands":
                fields[field.name] = tuple(rest[:group])
                del rest[:group]
            elif field.optional and not rest:
                fields[field.name] = None
            else:
                fields[field.name] = rest.pop(0)
        for field in self.attributes:
            if field.name in attributes:
                fields[field.name] = attributes[field.name]
            elif field.default is not REQUIRED:
                fields[field.name] = field.default
            else:
                raise BuildError(f"{self.cls.NAME}: attribute '{field.name}' is missing")
        for field, item in zip(self.successors, successors, strict=True):
            fields[field.name] = item
        if len(self.bodies) == 1 and self.bodies[0].role == "bodies":
            fields[self.bodies[0].name] = tuple(bodies)
        else:
            for field, item in zip(self.bodies, bodies, strict=True):
                fields[field.name] = item
        if self.result_type is not None:
            fields[self.result_type] = type_
        self._finish(op, tuple(operands))
        fields["result"] = OpResult(type_, op)
        return op


def convert_attribute(value: Any, kind: Any, what: str) -> Any:
    """`value` as an attribute of this kind; reads what the parser and the article's spelling give (`"64"` for 64).

    Raises `BuildError` when it cannot be one.
    """
    if isinstance(kind, list):
        inner: Any = kind[0]
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise BuildError(f"{what} must be a sequence, got {value!r}")
        return tuple(convert_attribute(item, inner, what) for item in value)  # pyright: ignore[reportUnknownVariableType]
    if kind is object:
        return _any_constant(value)
    if kind is Type:
        if isinstance(value, Type):
            return value
        if isinstance(value, TypeSyntax):
            return _type_of(value, what)
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        if isinstance(value, kind):
            return value
        text = value.name if isinstance(value, TypeSyntax) else value
        for member in kind:
            if text == member.value:
                return member
        choices = ", ".join(str(member.value) for member in kind)
        raise BuildError(f"{what} must be one of {choices}; got {text!r}")
    elif kind is bool:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
    elif kind is int:
        if isinstance(value, int):
            return int(value)
        if isinstance(value, str) and value.lstrip("-").isdecimal():
            return int(value)
    elif kind is float:
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                pass
    elif kind is str and isinstance(value, str):
        return str(value)
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    raise BuildError(f"{what} must be of kind {name}, got {value!r}")


def _type_of(syntax: TypeSyntax, what: str) -> Type:
    try:
        return read_type(syntax)
    except TypeSyntaxError as error:
        raise BuildError(f"{what}: {error}") from None


def _any_constant(value: Any) -> Any:
    if isinstance(value, TypeSyntax):
        owner, _, member = value.name.partition(".")
        if member and owner in ENUMS:
            for item in ENUMS[owner]:
                if item.name == member:
                    return item
        return _type_of(value, "constant")
    if isinstance(value, (list, tuple)):
        return tuple(_any_constant(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return value


# Enums that a constant may be a member of, printed as `CompareKind.LESS_THAN`.
ENUMS: dict[str, type[enum.Enum]] = {}

E_ = TypeVar("E_", bound=enum.Enum)


def constant_enum(cls: type[E_]) -> type[E_]:
    """Class decorator: members of this enum may be constants of a model."""
    ENUMS[cls.__name__] = cls
    return cls


# Every declared op by its name in the text.
OPS: dict[str, type[Op]] = {}

T_ = TypeVar("T_", bound=Op)


@dataclass_transform(
    eq_default=False,
    frozen_default=True,
    field_specifiers=(operand, operands, attribute, successor, body, bodies, result_type),
)
def template(cls: type[T_]) -> type[T_]:
    """Class decorator for the fields that several ops share. The class is not an op itself; its subclasses are."""
    return attrs.define(cls, frozen=True, slots=False, eq=False, repr=False, str=False)


@dataclass_transform(
    eq_default=False,
    frozen_default=True,
    field_specifiers=(operand, operands, attribute, successor, body, bodies, result_type),
)
def operation(name: str) -> Callable[[type[T_]], type[T_]]:
    """Class decorator that turns a declaration into an op named `name` in the text."""

    def declare(cls: type[T_]) -> type[T_]:
        if name in OPS:
            raise ValueError(f"the op '{name}' is declared twice")
        made = attrs.define(cls, frozen=True, slots=False, eq=False, repr=False, str=False)
        fields = [attrs.evolve(a.metadata[_KEY], name=a.name) for a in attrs.fields(made) if _KEY in a.metadata]
        made.NAME = name
        made.SPEC = OpSpec(made, fields)
        OPS[name] = made
        return made

    return declare
