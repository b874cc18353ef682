"""Declarations of ops. One declaration gives the constructor, the text form, the rules of parser and verifier, and the
documentation.

    class MakeRange(Op, Pure, name="tt.make_range"):
        '''The integers from `start` to `end` - 1.'''

        start: int = attribute(int)
        end: int = attribute(int)

        def infer_type(self) -> Type:
            return TensorType((self.end - self.start,), i32)

    MakeRange(0, 64)            # in the text: %1 : tensor<x64, i32> = tt.make_range @start=0 @end=64;

A class without a name is no op: it holds what the ops that derive from it share. Fields are declared in the order of
the constructor: operands, attributes, successors, bodies, the result type; last the attributes with defaults, which are
given by name. Operands that may be absent come after those that may not. When an op has several `operands()` fields,
they have equal lengths.
"""

from __future__ import annotations

import enum
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, SupportsFloat, SupportsIndex, TypeVar

from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.fields import REQUIRED, Field
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Successor, Value, fill, set_op, set_owner, set_type
from ziggurat.codemodel.type_reader import TypeSyntaxError, read_type
from ziggurat.codemodel.types import Type, TypeSyntax, pyobject, size_error, void, with_element

# Fields that every op has; a declared field must have another name.
_GENERIC: Final = ("operands", "attributes", "successors", "bodies", "result", "location", "parent")

# Faster than `fill`: most of a transform's time is spent on copies of ops.
_new: Final[Callable[[type[Op]], Op]] = object.__new__
_PLAIN: Final = frozenset((type(None), bool, int, str))  # Constants that stay as they are.
_new_result: Final[Callable[[type[OpResult]], OpResult]] = object.__new__
_set_fields: Final[Callable[[Op, dict[str, Any]], None]] = Op.__dict__["__dict__"].__set__


class OpSpec:
    """A declaration as data. Each op class has one, in `Op.SPEC`."""

    def __init__(self, cls: type[Op], fields: Sequence[Field]) -> None:
        self.cls = cls
        self.fields = tuple(fields)
        self.operands = tuple(f for f in fields if f.role in ("operand", "operands"))
        self.attributes = tuple(f for f in fields if f.role == "attribute")
        self.successors = tuple(f for f in fields if f.role == "successor")
        self.bodies = tuple(f for f in fields if f.role in ("body", "bodies"))
        types = [f for f in fields if f.role == "type"]
        self.result_type = types[0].name if types else None
        self.follows = types[0].follows if types else None
        self.required = sum(1 for f in self.operands if f.role == "operand" and not f.optional)
        self.optional = sum(1 for f in self.operands if f.optional)
        self.variadic = sum(1 for f in self.operands if f.role == "operands")
        self._require_sound()
        unnamed = [f for f in self.attributes if f.unnamed]
        self.unnamed = unnamed[0] if unnamed else None
        self.by_name = {f.name: f for f in self.attributes}
        self._typed = tuple(f for f in self.operands if f.type is not None)
        # The names of the operands of an op whose number of operands is fixed.
        self._single = tuple(f.name for f in self.operands) if not self.optional and not self.variadic else None
        # The name of the operands of an op that has one group of them, and no other operands.
        self._group = self.operands[0].name if self.variadic == len(self.operands) == 1 else None
        # The name of the operand of an op that has one at most.
        self._lone = self.operands[0].name if self.optional == len(self.operands) == 1 else None
        # What most ops lack: parts with blocks, a type that is derived, a check.
        self._has_parts = bool(self.successors or self.bodies)
        self._fixed_type = cls.RESULT if self.result_type is None and cls.infer_type is Op.infer_type else None
        # Whether each result is of this one type, which needs no look at an op.
        self._is_fixed = self._fixed_type is pyobject or self._fixed_type is void
        self._is_checked = bool(self._typed) or cls.check is not Op.check
        # Whether an op has nothing but operands of a fixed number.
        self._is_bare = self._single is not None and len(fields) == len(self.operands)
        # The fields that the constructor takes by place, and the values of those that a call may leave out.
        self.positional = tuple(f.name for f in fields if not f.keyword)
        self._defaults = {
            f.name: None if f.optional else f.default for f in fields if f.optional or f.default is not REQUIRED
        }
        # The fields that a call may name that gives as many by place.
        names = frozenset(f.name for f in fields)
        self._by_keyword = [names.difference(self.positional[:count]) for count in range(len(self.positional) + 1)]
        self._count = len(fields) + len(_GENERIC) - 1  # Attributes are among the fields only.
        # Each attribute with the classes whose instances are stored unconverted; of strings, those in ASCII.
        self._plain = tuple(
            (f, _PLAIN if f.kind is object else frozenset([f.kind] if isinstance(f.kind, type) else []))
            for f in self.attributes
        )

    def ends(self, index: int) -> type[Op] | None:
        """The terminator that is declared for the body at this index."""
        return self.bodies[min(index, len(self.bodies) - 1)].ends if self.bodies else None

    def _require_sound(self) -> None:
        """Raise `ValueError` for a declaration whose parts cannot be told apart in the generic view."""
        order = [f.optional for f in self.operands]
        several = [f for f in self.bodies if f.role == "bodies"]
        names = [f.name for f in self.fields if f.name in _GENERIC]
        problems = (
            (order != sorted(order), "an operand that may be absent comes before one that may not"),
            (self.optional > 0 and self.variadic > 0, "operands that may be absent do not go with `operands()`"),
            (bool(several) and len(self.bodies) > 1, "`bodies()` does not go with other bodies"),
            (sum(f.unnamed for f in self.attributes) > 1, "more than one attribute is unnamed"),
            (sum(f.role == "type" for f in self.fields) > 1, "more than one field is the result type"),
            (bool(names), f"{', '.join(names)}: every op has a field of this name"),
        )
        for present, problem in problems:
            if present:
                raise ValueError(f"in the declaration of {self.cls.__name__}, {problem}")

    def construct(self, op: Op, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        """Fill in a new op from the arguments of its constructor. Raises `TypeError` where they do not fit."""
        fields = op.__dict__
        if self._is_bare and len(arguments) == len(self.operands) and not keywords:
            self._complete_bare(op, fields, arguments)
            return
        if self._defaults:
            fields.update(self._defaults)
        fields.update(zip(self.positional, arguments))  # noqa: B905  (`strict` takes time)
        count = len(arguments)
        if keywords:
            fields.update(keywords)
        if (
            count > len(self.positional)
            or len(fields) != len(self.fields)
            or (keywords and not self._by_keyword[count].issuperset(keywords))
        ):
            self.signature().bind(*arguments, **keywords)  # Its error says what is wrong.
        self.complete(op, fields)

    def signature(self) -> inspect.Signature:
        """The parameters of the constructor: fields by place, then those by keyword."""
        parameters = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY if field.keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=self._defaults.get(field.name, inspect.Parameter.empty),
            )
            for field in sorted(self.fields, key=lambda field: field.keyword)
        ]
        return inspect.Signature(parameters)

    def _complete_bare(self, op: Op, fields: dict[str, Any], operands: tuple[Any, ...]) -> None:
        """Fill in an op that has nothing but these operands."""
        for name, value in zip(self.positional, operands):  # noqa: B905  (there are as many; `strict` takes time)
            if not isinstance(value, Value):
                self._refuse(op, value)
            fields[name] = value
        fields["operands"] = operands
        fields["successors"] = fields["bodies"] = ()
        fields["location"] = fields["parent"] = None
        fields["result"] = result = _new_result(OpResult)
        set_type(result, self._fixed_type if self._is_fixed else self._sound_type(op))  # pyright: ignore[reportArgumentType]
        set_op(result, op)
        if self._is_checked:
            self.check(op)

    def _refuse(self, op: Op, value: Any) -> NoReturn:
        hint = "give its result" if isinstance(value, Op) else None
        raise BuildError(f"{op.NAME}: an operand must be a Value; got {value!r}", hint=hint)

    def _sound_type(self, op: Op) -> Type:
        """The type of the result of a new op, which has its other fields."""
        type_ = self._fixed_type
        if type_ is None:
            type_ = op.infer_type() if self.result_type is None else op.__dict__[self.result_type]
        if type_ is not pyobject and type_ is not void:
            if not isinstance(type_, Type):
                raise BuildError(f"{op.NAME}: the result type must be a Type; got {type_!r}")
            if (error := size_error(type_)) is not None:
                raise BuildError(f"{op.NAME}: {error}")
        return type_

    def complete(self, op: Op, fields: dict[str, Any]) -> None:
        """Fill in the generic view of a new op, which has these fields, and check it."""
        if self._single is not None:
            operands = tuple([fields[name] for name in self._single])
        elif self._lone is not None:
            operands = () if (value := fields[self._lone]) is None else (value,)
        elif self._group is not None and type(fields[self._group]) is tuple:
            operands = fields[self._group]
        else:
            operands = _flat(op, self.operands)
            self._require_groups(op)
        for value in operands:
            if not isinstance(value, Value):
                self._refuse(op, value)
        for field, plain in self._plain:
            value = fields[field.name]
            if value is field.default:
                continue
            cls: Any = value.__class__
            if cls not in plain or (cls is str and not value.isascii()):
                fields[field.name] = convert_attribute(value, field.kind, f"{op.NAME}: attribute '{field.name}'")
        successors, bodies = self._parts(op) if self._has_parts else ((), ())
        fields["operands"], fields["successors"], fields["bodies"] = operands, successors, bodies
        fields["location"] = fields["parent"] = None
        fields["result"] = result = _new_result(OpResult)
        set_type(result, self._fixed_type if self._is_fixed else self._sound_type(op))  # pyright: ignore[reportArgumentType]
        set_op(result, op)
        if self._is_checked:
            self.check(op)
        if bodies:
            _adopt(op, bodies)

    def _parts(self, op: Op) -> tuple[tuple[Successor, ...], tuple[Body, ...]]:
        """The successors and the bodies of a new op. Raises `BuildError` for what is none."""
        fields = op.__dict__
        for field in self.successors:
            if not isinstance(fields[field.name], Successor):
                raise BuildError(f"{op.NAME}: '{field.name}' must be a Successor; got {fields[field.name]!r}")
        bodies = _flat(op, self.bodies) if self.bodies else ()
        for item in bodies:
            if not isinstance(item, Body):
                raise BuildError(f"{op.NAME}: a body must be a Body; got {item!r}")
            if not item.blocks:
                raise BuildError(f"{op.NAME}: its body is not finished")
        return tuple([fields[field.name] for field in self.successors]), bodies

    def _require_groups(self, op: Op) -> None:
        """Raise `BuildError` when an operand follows an absent one, or groups of operands differ in length."""
        fields = op.__dict__
        if len({len(fields[field.name]) for field in self.operands if field.role == "operands"}) > 1:
            raise BuildError(f"{op.NAME}: its groups of operands differ in length")
        absent = False
        for field in self.operands:
            absent = absent or fields[field.name] is None
            if absent and fields[field.name] is not None:
                raise BuildError(f"{op.NAME}: operand '{field.name}' is given, but an earlier one is not")

    def count_errors(self, operands: int, successors: int, bodies: int) -> Iterator[str]:
        """The reasons why an op cannot have this many operands, successors and bodies."""
        extra = operands - self.required
        if extra < 0 or (extra % self.variadic if self.variadic else extra > self.optional):
            expected = str(self.required)
            if self.variadic:
                expected = f"at least {expected}" if self.variadic == 1 else f"{expected} and equal groups"
            elif self.optional:
                expected = f"{expected} to {self.required + self.optional}"
            yield f"{self.cls.NAME} takes {expected} operand(s), got {operands}"
        if successors != len(self.successors):
            yield f"{self.cls.NAME} takes {len(self.successors)} successor(s), got {successors}"
        if bodies != len(self.bodies) and not any(f.role == "bodies" for f in self.bodies):
            yield f"{self.cls.NAME} takes {len(self.bodies)} body(s), got {bodies}"

    def make(
        self,
        operands: Sequence[Value],
        successors: Sequence[Successor],
        attributes: dict[str, Any],
        bodies: Sequence[Body],
        type_: Type,
    ) -> Op:
        """Make an op from its generic parts, types unchecked. Counts must fit; absent attributes take defaults."""
        for error in self.count_errors(len(operands), len(successors), len(bodies)):
            raise BuildError(error)
        fields: dict[str, Any] = {"location": None}
        for field in self.attributes:
            if field.name in attributes:
                fields[field.name] = attributes[field.name]
            elif field.default is not REQUIRED:
                fields[field.name] = field.default
            else:
                raise BuildError(f"{self.cls.NAME}: attribute '{field.name}' is missing")
        return self._assembled(fields, tuple(operands), successors, bodies, type_)

    def copy(
        self, op: Op, operands: tuple[Value, ...], successors: Sequence[Successor], bodies: Sequence[Body], type_: Type
    ) -> Op:
        """Copy an op, with other operands, successors, bodies and result type; not placed, types unchecked.

        There must be as many operands, successors and bodies as `op` has. This is several times faster than `make`.
        """
        fields = op.__dict__.copy()
        if len(fields) > self._count:
            _forget(fields)
        return self._assembled(fields, operands, successors, bodies, type_)

    def copy_leaf(self, op: Op, operands: tuple[Value, ...], block: Block) -> tuple[Op, OpResult]:
        """Copy an op without successors and bodies, as `copy` does, with the same result type, as one of the ops of
        `block`; give its result, too."""
        fields = op.__dict__.copy()
        if len(fields) > self._count:
            _forget(fields)
        new, result = _new(self.cls), _new_result(OpResult)
        _set_fields(new, fields)
        set_type(result, fields["result"].type)
        set_op(result, new)
        if self._single is None:
            self._set_operands(fields, operands)
        else:
            for name, value in zip(self._single, operands):  # noqa: B905  (there are as many; `strict` takes time)
                fields[name] = value
        fields["operands"], fields["parent"], fields["result"] = operands, block, result
        return new, result

    def _assembled(
        self,
        fields: dict[str, Any],
        operands: tuple[Value, ...],
        successors: Sequence[Successor],
        bodies: Sequence[Body],
        type_: Type,
    ) -> Op:
        """The op that has these parts and, in `fields`, these attributes and this location."""
        op = _new(self.cls)
        _set_fields(op, fields)
        if self._single is not None:
            fields.update(zip(self._single, operands))  # noqa: B905  (there are as many; `strict` takes time)
        else:
            self._set_operands(fields, operands)
        fields["operands"] = operands
        fields["parent"] = None
        fields["successors"] = fields["bodies"] = ()
        if self.result_type is not None:
            fields[self.result_type] = type_
        fields["result"] = OpResult(type_, op)
        if successors or bodies:
            fields["successors"], fields["bodies"] = tuple(successors), tuple(bodies)
            self._set_parts(fields, successors, bodies)
            _adopt(op, bodies)
        return op

    def rederive(self, op: Op) -> None:
        """Set the result type that follows from the operands and bodies after their types changed; check the op."""
        if self.result_type is None:
            type_ = op.infer_type()
        else:
            fields = op.__dict__
            type_ = op.derive_type()
            if self.follows is not None:
                element = fields[self.follows].type
                type_ = with_element(type_, getattr(element, "element", element))
            fields[self.result_type] = type_
        fill(op.result, "type", type_)
        self.check(op)

    def check(self, op: Op) -> None:
        """Raise `BuildError` unless the operands have their declared types and the op's own check passes."""
        for field in self._typed:
            value = op.__dict__[field.name]
            for item in value if field.role == "operands" else () if value is None else (value,):
                if item.type != field.type:
                    raise BuildError(f"operand '{field.name}' of {op.NAME} must be {field.type}; got {item.type}")
        op.check()

    def _set_operands(self, fields: dict[str, Any], operands: Sequence[Value]) -> None:
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

    def _set_parts(self, fields: dict[str, Any], successors: Sequence[Successor], bodies: Sequence[Body]) -> None:
        for field, item in zip(self.successors, successors, strict=True):
            fields[field.name] = item
        if len(self.bodies) == 1 and self.bodies[0].role == "bodies":
            fields[self.bodies[0].name] = tuple(bodies)
        else:
            for field, item in zip(self.bodies, bodies, strict=True):
                fields[field.name] = item


def _forget(fields: dict[str, Any]) -> None:
    """Remove from the fields of a copy the facts that the original has cached about itself."""
    for cached in ("_ops", "_use_map", "structure", "_is_swept"):
        fields.pop(cached, None)


def _adopt(op: Op, bodies: Sequence[Body]) -> None:
    """Make the bodies parts of `op`. This comes last: the bodies of an op that is refused stay free."""
    for body in bodies:
        if body.parent is not None:
            raise BuildError(f"{op.NAME}: its body is part of an op already; copy it with a transform")
        set_owner(body, op)


def _flat(op: Op, roles_in_order: Sequence[Field]) -> tuple[Any, ...]:
    """The operands or bodies in these fields of an op, one by one; those that are absent are left out."""
    fields = op.__dict__
    values: list[Any] = []
    for field in roles_in_order:
        value: Any = fields[field.name]
        if field.role not in ("operands", "bodies"):
            values += [value] if value is not None or not field.optional else []
        elif isinstance(value, str) or not isinstance(value, Iterable):
            raise BuildError(f"{op.NAME}: '{field.name}' must be a sequence; got {value!r}")
        else:
            fields[field.name] = tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            values += fields[field.name]
    return tuple(values)


def convert_attribute(value: Any, kind: Any, what: str) -> Any:
    """Convert `value` to an attribute of this kind; also from the parser's and the article's spelling (`"64"` for 64).

    Raises `BuildError` when it cannot be converted.
    """
    if kind in (int, float) and type(value) is kind:
        return value  # Most values: the protocols below take 20 µs each.
    if isinstance(kind, list):
        inner: Any = kind[0]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise BuildError(f"{what} must be a sequence; got {value!r}")
        return tuple(convert_attribute(item, inner, what) for item in value)  # pyright: ignore[reportUnknownVariableType]
    if kind is object:
        return _any_constant(value, what)
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
            if text in (member.value, f"{kind.__name__}.{member.name}"):
                return member
        choices = ", ".join(str(member.value) for member in kind)
        raise BuildError(f"{what} must be one of {choices}; got {text!r}")
    elif kind is bool:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
    elif kind is int:
        if isinstance(value, SupportsIndex):
            return operator.index(value)
        if isinstance(value, str) and value.removeprefix("-").isdecimal():
            return int(value)
    elif kind is float:
        if isinstance(value, (str, SupportsFloat)):
            try:
                return float(value)
            except (ValueError, OverflowError):
                pass
    elif kind is str and isinstance(value, str):
        return _string(value, what)
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    raise BuildError(f"{what} must be of kind {name}; got {value!r}")


def _type_of(syntax: TypeSyntax, what: str) -> Type:
    try:
        return read_type(syntax)
    except TypeSyntaxError as error:
        raise BuildError(f"{what}: {error}") from None


def _any_constant(value: Any, what: str) -> Any:
    if value is None or value.__class__ in (int, bool, float) or isinstance(value, Type):
        return value
    if isinstance(value, enum.Enum):
        if ENUMS.get(type(value).__name__) is type(value):
            return value
        if not isinstance(value, (int, str)):
            raise BuildError(f"{what}: {type(value).__name__} is not declared with @constant_enum")
    if isinstance(value, str):
        return _string(value, what)
    for kind in (int, float):  # A value of a derived class is stored as a plain number.
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, SupportsIndex):
        return operator.index(value)
    if isinstance(value, TypeSyntax):
        owner, _, member = value.name.partition(".")
        if member and owner in ENUMS:
            for item in ENUMS[owner]:
                if item.name == member:
                    return item
        return _type_of(value, what)
    if isinstance(value, (list, tuple)):
        return tuple(_any_constant(item, what) for item in value)  # pyright: ignore[reportUnknownVariableType]
    raise BuildError(f"{what} must be a number, string, None, type, enum member or tuple of these; got {value!r}")


def _string(value: str, what: str) -> str:
    """Check that a string attribute is valid Unicode."""
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise BuildError(f"{what} must be valid Unicode; got a lone surrogate in {value!r}")
    return str(value)


# The enums whose members may be constants, printed as `CompareKind.LESS_THAN`.
ENUMS: dict[str, type[enum.Enum]] = {}

E_ = TypeVar("E_", bound=enum.Enum)


def constant_enum(cls: type[E_]) -> type[E_]:
    """Class decorator: members of this enum may be constants of a model."""
    ENUMS[cls.__name__] = cls
    return cls


# Every declared op by its name in the text.
OPS: dict[str, type[Op]] = {}


def declare(cls: type[Op], name: str) -> None:
    """Note the fields of a class; with a name, make it the op that has this name in the text."""
    own = {key: value for key, value in vars(cls).items() if isinstance(value, Field)}
    inherited = {field.name: field for base in reversed(cls.__mro__[1:]) for field in vars(base).get("FIELDS", ())}
    for key in own:
        inherited.pop(key, None)
    cls.FIELDS = (*inherited.values(), *own.values())
    if not name:
        return
    if name in OPS:
        raise ValueError(f"the op '{name}' is declared twice")
    annotations: Mapping[str, Any] = vars(cls).get("__annotations__", {})
    stray = [key for key, kind in annotations.items() if key not in own and not str(kind).startswith("ClassVar")]
    if stray:
        problem = f"fields must have a role (operand(), attribute() …); without one: {', '.join(stray)}"
        raise ValueError(f"in the declaration of {cls.__name__}, {problem}")
    cls.NAME = name
    cls.SPEC = OpSpec(cls, cls.FIELDS)
    OPS[name] = cls
