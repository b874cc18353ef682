"""Functions that run while a kernel is compiled, and the classes whose objects kernels make."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ziggurat.frontends.language.aggregates import annotations_of, is_constant_field
from ziggurat.frontends.language.constants import constexpr, constexpr_value
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.reflection.functions import reader
from ziggurat.frontends.triton.function_sources import JITCallable, digest, require_stable, source_of
from ziggurat.frontends.triton.language import TRITON

T = TypeVar("T")


class ConstexprFunction(JITCallable):
    """A function of Python that kernels call with constants: `@triton.constexpr_function`. Its result is a constant."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)
        self.__globals__: dict[str, Any] = getattr(fn, "__globals__", {})

    @property
    def cache_key(self) -> str:
        """A text that is equal for functions with equal sources. Raises `RuntimeError` for a function whose result may
        depend on the machine."""
        require_stable(self.fn, self.src)
        return digest(self.src)

    @property
    def identity(self) -> str:
        """A text that is equal for functions with equal sources that read equal constants and call such functions."""
        functions, texts = [self.fn], list[str]()
        for function in functions:
            texts.append(_text_of(function))
            if isinstance(function, types.FunctionType):
                outer = inspect.getclosurevars(function)
                values = {name: getattr(v, "fn", v) for name, v in sorted({**outer.globals, **outer.nonlocals}.items())}
                texts += [f"{name}={v!r}" for name, v in values.items() if isinstance(v, int | float | str | tuple)]
                functions += [v for v in values.values() if isinstance(v, types.FunctionType) and v not in functions]
        return digest(" ".join(texts))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.fn(
            *map(constexpr_value, arguments), **{name: constexpr_value(value) for name, value in keywords.items()}
        )

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        return self if thing is None else types.MethodType(self, thing)


def _text_of(function: Any) -> str:
    """The source of a function; its name where it has none."""
    try:
        return source_of(function)
    except (OSError, TypeError):
        return str(getattr(function, "__qualname__", ""))


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction:
    """Decorator of a function of Python that kernels may call with constants."""
    return ConstexprFunction(fn)


def must_use_result(argument: Any, message: str | bool = True) -> Any:
    """Decorator of a function whose result a kernel must use. `argument` is the function, or a text for the error."""
    if isinstance(argument, str):
        return functools.partial(must_use_result, message=argument)
    argument.ziggurat_must_use = message
    return argument


class TritonFunction(Function):
    """A function of Triton's Python that is no kernel: a function in the class of an aggregate."""

    language = TRITON

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn, reader(fn, TRITON))


class Initializer(TritonFunction):
    """The `__init__` of an aggregate as a function that returns the fields, and does not take the object."""

    def __init__(self, fn: Callable[..., Any], cls: type[Any]) -> None:
        super().__init__(fn)
        self.initializes = cls

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        plain = inspect.signature(self.fn)
        return plain.replace(parameters=[*plain.parameters.values()][1:])


def aggregate(cls: type[T]) -> type[T]:
    """Decorator of a class whose objects kernels make: `tl.core._aggregate`.

    The annotations of the class are the fields: `tl.tensor`, `tl.constexpr`, or another aggregate. An aggregate that it
    derives from has its fields before them. Without an `__init__` of its own the class takes the fields in their order,
    and values in the class are their defaults. Methods are under `@triton.jit`; other functions in the class are read
    as such.
    """
    fields = annotations_of(cls)
    attributes = {name: getattr(cls, name) for name in fields if hasattr(cls, name)}
    defaults = {n: value for n, value in attributes.items() if not callable(value) or isinstance(value, constexpr)}
    initializer = cls.__dict__.get("__init__")

    def of_fields(self: Any, *arguments: Any, **keywords: Any) -> None:
        bound = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in fields]
        ).bind_partial(*arguments, **keywords)
        values = {**defaults, **bound.arguments}
        if missing := [name for name in fields if name not in values]:
            raise TypeError(f"{cls.__name__} takes {', '.join(fields)}; got no {missing[0]}")
        for name, value in values.items():
            setattr(self, name, value)

    def set_field(self: Any, name: str, value: Any) -> None:
        if name not in fields:
            raise AttributeError(f"{cls.__name__} has no attribute '{name}'")
        object.__setattr__(self, name, _field(value) if is_constant_field(cls, name) else value)

    record: Any = cls
    record.__triton_aggregate__ = True
    members = {name: getattr(value, "__func__", value) for name, value in vars(cls).items()}
    functions = {
        name: TritonFunction(value) for name, value in members.items() if isinstance(value, types.FunctionType)
    }
    record.ziggurat_functions = {**getattr(cls, "ziggurat_functions", {}), **functions}
    record._field_defaults = defaults
    init = getattr(initializer, "fn", initializer)  # It may be under @triton.jit or @triton.constexpr_function.
    record.ziggurat_init = None if init is None else Initializer(init, cls)
    record.__setattr__ = set_field
    if initializer is None:
        record.__init__ = of_fields
    return cls


def aggregate_replace(instance: T, **changes: Any) -> T:
    """A copy of an object of an aggregate with other values of some fields. In a kernel, make the object anew."""
    cls = type(instance)
    if not getattr(cls, "__triton_aggregate__", False):
        raise TypeError(f"aggregate_replace() expects an aggregate instance, got {cls}")
    fields = annotations_of(cls)
    for name in changes:
        if name not in fields:
            raise TypeError(f"{cls.__name__} has no field '{name}'")
    copy = object.__new__(cls)
    for name in fields:
        setattr(copy, name, changes.get(name, getattr(instance, name)))
    return copy


def _field(value: Any) -> Any:
    """A constant of an aggregate as a `tl.constexpr`, and the items of a tuple as such."""
    if not isinstance(value, tuple):
        return constexpr(value)
    items = map(_field, cast("tuple[Any, ...]", value))
    return type(value)(*items) if hasattr(type(value), "_fields") else tuple(items)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
