"""Records: classes of values with named fields, declared like those of `attrs` and of dataclasses.

    @frozen
    class Box:
        shape: tuple[int, ...]
        name: str = ""

gives `Box((2, 3), name="a")`, a `repr` with the fields, and `==` and `hash` by their values. The fields of a base that
is a record come first. Methods that a class defines itself stay. `__post_init__` runs after the fields are set.

A first launch declares more than a hundred classes. `attrs` writes and compiles the text of five methods for each,
which took a third of the time to the first launch of a vector add. Here the methods are functions for all records, but
for `__init__`, whose text is written and compiled when the first instance of a class is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

T_ = TypeVar("T_")
C_ = TypeVar("C_", bound=type[Any])

NOTHING: Final = object()  # Marks a field without a default.

fill: Callable[[object, str, object], None] = object.__setattr__


class Field(SimpleNamespace):
    """One field: its `name`, and what `field` was given."""


def field(
    *, default: Any = NOTHING, factory: Callable[[], Any] | None = None, converter: Callable[[Any], Any] | None = None,
    validator: Callable[[Any], None] | None = None, kw_only: bool = False, init: bool = True, repr: bool = True,
    eq: bool = True, hash: bool = True, metadata: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """A field with more than a name and a default.

    A call that does not give the field takes `default`, or the result of `factory()`. `converter` makes the value from
    what a call gives, and `validator` raises an error for a wrong value. `init` says whether the constructor takes the
    field, and `repr`, `eq` and `hash` whether these look at it. `metadata` holds further facts.
    """
    return Field(**locals())


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: C_) -> C_:
    """Class decorator: a record whose fields cannot be set, with `==` by value. Its hash is computed once."""
    return _declare(cls, eq=True, is_frozen=True)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def distinct(cls: C_) -> C_:
    """Class decorator: a record whose fields cannot be set, and that equals only itself."""
    return _declare(cls, eq=False, is_frozen=True)


@dataclass_transform(field_specifiers=(field,))
def define(cls: C_) -> C_:
    """Class decorator: a record whose fields can be set, and that equals only itself."""
    return _declare(cls, eq=False, is_frozen=False)


def fields(cls: Any) -> tuple[Field, ...]:
    """The fields of a record's class, in order."""
    return cls.__fields__


def evolve(record: T_, **changes: Any) -> T_:
    """A record with the values of another one, but for `changes`."""
    kept = {one.name: getattr(record, one.name) for one in fields(type(record)) if one.init}
    return type(record)(**kept | changes)


def asdict(record: Any) -> dict[str, Any]:
    """The values of a record by the names of its fields. Records among the values stay records."""
    return {one.name: getattr(record, one.name) for one in fields(type(record))}


def instance_of(kind: type) -> Callable[[Any], None]:
    """A validator that raises `TypeError` for a value of another type."""

    def validate(value: Any) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"a value must be of type {kind.__name__}; got {value!r}")

    return validate


def _declare(cls: Any, *, eq: bool, is_frozen: bool) -> Any:
    own = cls.__dict__
    known = {one.name: one for base in reversed(cls.__mro__[1:]) for one in base.__dict__.get("__fields__", ())}
    for name, kind in own.get("__annotations__", {}).items():
        if "ClassVar" in str(kind):
            continue
        one = own.get(name, NOTHING)
        if isinstance(one, Field):
            delattr(cls, name)
        else:
            one = field(default=one)
        one.name = name
        known.pop(name, None)
        known[name] = one
    made = tuple(known.values())
    methods: dict[str, Any] = {"__init__": _first_init(cls, is_frozen), "__repr__": _repr}
    if is_frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse, "__reduce__": _reduce}
    if eq and "__eq__" not in own:
        values, hashed = (_getter([o.name for o in made if o.eq and (o.hash or not by)]) for by in (False, True))
        methods |= {"__eq__": _equal(values), "__hash__": _kept(hashed)}
        cls._hash = None
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    cls.__fields__ = made
    cls.__match_args__ = tuple([one.name for one in made if one.init and not one.kw_only])
    return cls


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda record: ()


def _equal(values: Callable[[Any], Any]) -> Callable[[Any, Any], bool]:
    def equal(a: Any, b: Any) -> bool:
        return values(a) == values(b) if b.__class__ is a.__class__ else NotImplemented

    return equal


def _kept(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def hash_of(record: Any) -> int:
        kept: int | None = record._hash
        if kept is None:
            fill(record, "_hash", kept := hash(values(record)))
        return kept

    return hash_of


def _repr(record: Any) -> str:
    shown = ", ".join([f"{one.name}={getattr(record, one.name)!r}" for one in fields(type(record)) if one.repr])
    return f"{type(record).__qualname__.rpartition('>.')[2]}({shown})"


def _refuse(record: Any, name: str, value: object = None) -> NoReturn:
    raise AttributeError(f"cannot set or delete '{name}' of a {type(record).__name__}: it does not change")


def _reduce(record: Any) -> tuple[Any, ...]:
    return _restored, (type(record), asdict(record))


def _restored(cls: Any, values: Mapping[str, Any]) -> Any:
    record: Any = cls.__new__(cls)
    record.__dict__.update(values)
    return record


def _first_init(cls: Any, is_frozen: bool) -> Callable[..., None]:
    """The constructor of a class without instances, which writes and compiles the one that takes its place."""

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        names: dict[str, Any] = {"fill": fill, "NOTHING": NOTHING}
        exec(_init_text(cls, is_frozen, names), names)
        cls.__init__ = names["__init__"]
        cls.__init__(self, *arguments, **keywords)

    return __init__


def _init_text(cls: Any, is_frozen: bool, names: dict[str, Any]) -> str:
    """The text of a constructor. `names` gets the globals that it needs."""
    placed, keyword, lines = ["self"], list[str](), list[str]()
    for one in fields(cls):
        if one.init:
            name = value = one.name
            names |= {f"default_{name}": one.default, f"make_{name}": one.factory}
            names |= {f"convert_{name}": one.converter, f"validate_{name}": one.validator}
            has_default = one.factory or one.default is not NOTHING
            (keyword if one.kw_only else placed).append(f"{name}=default_{name}" if has_default else name)
            if one.factory:
                value = f"make_{name}() if {name} is NOTHING else {name}"
            if one.converter:
                value = f"convert_{name}({value})"
            lines.append(f"fill(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
            if one.validator:
                lines.append(f"validate_{name}(self.{name})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*placed, *(["*", *keyword] if keyword else [])])
    return "\n    ".join([f"def __init__({parameters}):", *(lines or ["pass"])])
