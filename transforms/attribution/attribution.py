"""The findings of attribution: the types of a function's values at one list of argument types, and facts that depend on
them, such as callees and unrolled iterations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelTypeError, ZigguratError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.writer import to_text
from ziggurat.codemodel.types import ConstantType, TupleType, Type, VarType, void
from ziggurat.frontends.language.languages import Language
from ziggurat.transforms.calls.constant_arguments import describe
from ziggurat.transforms.calls.lattice import RangeType, Unusable, components, items_of
from ziggurat.transforms.calls.promotion import constant
from ziggurat.transforms.calls.rule import Rule


class Derived(Value):
    """An argument of a call that no op of the Python model gives. Equal ones are the same value."""

    __slots__ = ("parts",)

    parts: tuple[Any, ...]

    def __init__(self, *parts: Any) -> None:
        object.__setattr__(self, "parts", parts)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.parts == other.parts  # pyright: ignore

    def __hash__(self) -> int:
        return hash((type(self), self.parts))


class Component(Derived):
    """An item of a tuple that a call passes on, `f(*t)`: the value of the tuple, and the index."""


class Packed(Derived):
    """The tuple of the values of a parameter that takes any number of arguments."""


def positional_values(scope: Scope, op: py.Invoke | py.Call) -> Sequence[Value]:
    """The arguments of a call by position, with the items of those that are passed as `*t`."""
    arguments = op.arguments[: len(op.arguments) - len(op.keywords)]
    if not op.starred:
        return arguments
    values: list[Value] = []
    for index, value in enumerate(arguments):
        if index not in op.starred:
            values.append(value)
            continue
        parts = items_of(scope.type_of(value))
        if parts is None:
            raise KernelTypeError(say("the argument after * must be a tuple; got {}", describe(scope.type_of(value))))
        values += [Component(value, item) for item in range(len(parts))]
    return values


@attrs.define
class Finding:
    """The facts about an op besides the type of its result. An op has those of its kind."""

    arguments: dict[str, Any] | None = None
    """The arguments of a call by parameter: a Value of the Python model, or a constant."""
    rule: tuple[str, Rule] | None = None
    """The name and the rule of a call of the language."""
    callee: Attribution | None = None
    """The callee of a call, or the function that a call of the language applies to elements."""
    static_branch: int | None = None
    """The body that runs, 0 or 1, of an op whose condition is known at compile time; 1 of `getattr` is the default."""
    joins: dict[Value, Type] = attrs.field(factory=dict["Value", "Type"])
    """The types, where control flow joins, of the variables that are stored inside a loop or an `if`, in the order of
    the first store. Those of a loop that a `break` may leave depend on its flag: the types after the loop, and those at
    its head."""
    iterations: Sequence[tuple[Type, Scope]] | None = None
    """The iterations of an unrolled loop: the type of the item, and a scope."""
    items: Sequence[tuple[int, Scope]] = ()
    """The items, by index, that a comprehension takes, each with the scope of its element."""
    range: RangeType | None = None
    """The range of a loop that counts."""


class Scope:
    """Findings about a function, or about one iteration of an unrolled loop (`parent` is the scope around it)."""

    __slots__ = ("findings", "parent", "types")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        # The type of each value.
        self.types: dict[Value, Type] = {}
        self.findings: dict[Op, Finding] = {}

    def finding(self, op: Op) -> Finding:
        """The facts about an op, of the innermost scope that has any."""
        scope: Scope | None = self
        while scope is not None:
            if op in scope.findings:
                return scope.findings[op]
            scope = scope.parent
        return Finding()

    def type_of(self, value: Value) -> Type:
        """The attributed type of a value of the Python model."""
        scope: Scope | None = self
        while scope is not None:
            type_ = scope.types.get(value)
            if type_ is not None:
                return type_
            scope = scope.parent
        if isinstance(value, Component):
            index: int = value.parts[1]
            type_ = components(self.type_of(value.parts[0]))
            assert type_ is not None
            return type_[index]
        if isinstance(value, Packed):
            return packed_values([self.type_of(part) for part in value.parts])
        raise KeyError(value)


class Attribution:
    """The findings about a function at one list of argument types. `symbol` is its name in the Triton model."""

    def __init__(self, func: Op, parameter_types: tuple[Type, ...], language: Language) -> None:
        self.func = func
        # The rules of the language of the function.
        self.language = language
        self.parameter_types = parameter_types
        self.noinline = False
        self.stops = False  # Whether the model has the marks of statements.
        self.result: Type = void
        self.symbol = ""
        # The symbols of all functions that were attributed with this one.
        self.symbols: Collection[str] = ()
        self.scope = Scope()
        # The errors of the function, and of the functions that it calls, at these types.
        self.errors: tuple[ZigguratError, ...] = ()

    def __str__(self) -> str:
        """The Python model, with the attributed type of each value under its op. Iterations of unrolled loops are left
        out."""

        def remark(op: Op) -> Iterable[str]:
            type_ = self.scope.types.get(op.result)
            if type_ is None or isinstance(type_, Unusable | VarType) or op is self.func:
                return
            if isinstance(type_, ConstantType) and type_.value is None and not isinstance(op, core.ConstantOp):
                return  # A statement, or a call that gives nothing.
            yield f"-> {type_}"

        return to_text(self.func, remark=remark)


def packed_values(types: Sequence[Type]) -> Type:
    """The type of the tuple of values of these types."""
    constants = [type_.value for type_ in types if isinstance(type_, ConstantType)]
    return constant(tuple(constants)) if len(constants) == len(types) else TupleType(tuple(types))
