"""Constants of a kernel: functions as values, the words of messages for values, and arguments that are constants."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.messages import Part, Words, call_text, joined, say
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, TupleType, Type, TypeSyntax, f32, is_hashable
from ziggurat.frontends.language import CompareKind, Function
from ziggurat.frontends.language.phrases import NAME_FUNCTION
from ziggurat.frontends.language.signature import Parameter
from ziggurat.transforms.unsupported import kernel_model


@attrs.frozen(str=False, repr=False)
class FunctionName(Type):
    """The value of a constant that is a function: its name, its Python model, and where it comes from, if known."""

    symbol: str
    model: Op
    function: Function | None = attrs.field(default=None, eq=False)

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("function", (TypeSyntax(self.symbol, quoted=True),))

    __str__ = Type.__str__

    def __repr__(self) -> str:
        return self.symbol.rpartition(".")[2]


@attrs.frozen(str=False, repr=False)
class HostObject(Type):
    """The value of a constant that is an object of Python's: a class, a member of an enum, a dtype of torch."""

    value: Any = attrs.field(eq=False)
    key: tuple[Any, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "key", (type(self.value), _compared(self.value)))

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("object", (TypeSyntax(repr(self), quoted=True),))

    __str__ = Type.__str__

    def __repr__(self) -> str:
        return getattr(self.value, "__name__", None) or repr(self.value)


def _compared(value: Any) -> Any:
    """The key by which an object is compared: of an object that may change, the text of its present contents."""
    if not is_hashable(value):
        return repr(value)
    return id(value) if type(value).__eq__ is object.__eq__ else value


def function_name(function: Function) -> FunctionName:
    """A function as a constant. Raises what is wrong with its source."""
    return FunctionName(function.fn.__qualname__, kernel_model(function), function)


def symbol_part(type_: Type) -> str:
    """A type as a part of a function's name: a constant by its bare value."""
    if not isinstance(type_, ConstantType):
        return str(type_)
    return repr(type_.value) if isinstance(type_.value, FunctionName) else str(type_.value)


_LONGEST = 60


# The hint where the choice of a function depends on a run-time value.
CHOSEN_FUNCTION = "call each function in a branch of its own: the called function must be known at compile time"


def is_function(type_: Type) -> bool:
    """True of the type of a constant that is a function."""
    return isinstance(type_, ConstantType) and isinstance(type_.value, FunctionName)


def show(value: Any) -> Part:
    """A constant as it is written in a kernel: `zg.f32`, `zg.CompareKind.EQUAL`, `(1, None)`."""
    return Part(lambda words: _constant(value, words))


def listed(values: Iterable[Any]) -> Part:
    """Constants as they are written in a kernel, with commas between them."""
    return joined(", ", *map(show, values))


def one_of(types: Iterable[Type], separator: str = ", ") -> Part:
    """Types of run-time values with a separator between them."""
    return joined(separator, *(say("{}", type_) for type_ in types))


def describe_all(types: Iterable[Type]) -> Part:
    """Attributed types with "and" between them."""
    return joined(" and ", *map(describe, types))


def describe(type_: Type) -> Part:
    """An attributed type: what is known of a constant, or the type of a run-time value."""
    return Part(lambda words: _described(type_, words))


def _constant(value: Any, words: Words) -> str:
    if isinstance(value, FunctionName):
        return f"the function '{value.symbol}'"
    if isinstance(value, HostObject):
        return _shortened(repr(value))
    if isinstance(value, ScalarType | PtrType):
        return words.dtype(value)
    if isinstance(value, Type):
        return _described(value, words)
    if isinstance(value, enum.Enum):
        return words.call(f"{type(value).__name__}.{value.name}")
    if isinstance(value, tuple):
        return _in_a_row([_constant(item, words) for item in value])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _described(type_: Type, words: Words) -> str:
    if isinstance(type_, ConstantType):
        value = type_.value
        text = _constant(value, words)
        if value is None or isinstance(value, FunctionName):
            return text
        if isinstance(value, HostObject):
            return f"the object {text}"
        kind = "type" if isinstance(value, Type) else "tuple" if isinstance(value, tuple) else "constant"
        return f"the {kind} {text}"
    record = getattr(type_, "record", None)
    if record is not None and record.is_aggregate:
        return f"an object of {record.cls.__name__}"
    if isinstance(type_, TupleType):
        return words.nouns["the_tuple"] + _in_a_row([_component(component, words) for component in type_.components])
    return words.type(type_)


def _component(type_: Type, words: Words) -> str:
    if isinstance(type_, ConstantType):
        return _constant(type_.value, words)
    return _described(type_, words).removeprefix(words.nouns["the_tuple"])


def _in_a_row(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_ints(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, tuple) and all(map(_is_int, value)))  # pyright: ignore[reportUnknownArgumentType]


def _is_dtype(value: Any) -> bool:
    return isinstance(value, ScalarType | PtrType)


def _is_dtypes(value: Any) -> bool:
    return _is_dtype(value) or (isinstance(value, tuple) and value != () and all(map(_is_dtype, value)))  # pyright: ignore[reportUnknownArgumentType]


# Kinds of parameters by annotation: the words for what a value must be, a test, and a hint.
_KINDS: dict[str, tuple[str, Callable[[Any], bool], str | None]] = {
    "ConstInt": ("an integer", _is_int, None),
    "ConstInts": ("an integer or a tuple of integers", _is_ints, None),
    "ConstBool": ("True or False", lambda value: isinstance(value, bool), None),
    "ConstStr": ("a string", lambda value: isinstance(value, str), None),
    "ConstShape": ("a shape, a tuple of integers such as (16, 16)", _is_ints, None),
    "ConstDtype": (say("a dtype such as {}", show(f32)), _is_dtype, None),
    "ConstDtypes": (say("a dtype such as {}, or a tuple of dtypes", show(f32)), _is_dtypes, None),
    "ConstFunction": (
        "a function of the language",
        lambda value: isinstance(value, FunctionName),
        NAME_FUNCTION(),
    ),
    "ConstCompareKind": (
        say("a member of {}, or a sign such as '<'", call_text("CompareKind")),
        lambda value: isinstance(value, CompareKind),
        say("{} has {}", call_text("CompareKind"), ", ".join(kind.name for kind in CompareKind)),
    ),
}


def as_argument(argument: Callable[[str], str], parameter: Parameter, value: Any, dtype_texts: bool = True) -> Any:
    """A constant converted for the parameter. Raises `KernelTypeError` when it is not of the parameter's kind.

    `argument` gives the argument in messages, by the name of the parameter. `dtype_texts` makes "float32" a
    dtype, which Triton's Python refuses.
    """
    if dtype_texts or not isinstance(value, str):
        value = parameter.converted(value)
    kind = _KINDS.get(parameter.takes)
    if kind is None or (value is None and parameter.optional):
        return value
    words, fits, hint = kind
    if not fits(value):
        words = say("{}, or None", words) if parameter.optional else words
        raise KernelTypeError(say("{} must be {}; got {}", argument(parameter.name), words, show(value)), hint=hint)
    return value
