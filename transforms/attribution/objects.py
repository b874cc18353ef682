"""Attribution of calls of Python's objects: methods and classes of records, and functions of the host on constants."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import Any, cast

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError, ZigguratError, pass_on_signals
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, DescriptorType, PtrType, ScalarType, TensorType, Type
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.aggregates import PartialObject, is_constant_field, member
from ziggurat.frontends.language.classes import tensor, tensor_descriptor
from ziggurat.frontends.language.constants import constexpr
from ziggurat.frontends.language.dtypes import block_type
from ziggurat.frontends.language.dtypes import type_of as dtype_of
from ziggurat.transforms.attribution.attribute import FunctionAttributor
from ziggurat.transforms.attribution.attribution import positional_values
from ziggurat.transforms.attribution.functions import call_bound, check_used
from ziggurat.transforms.attribution.operators import MAX_TEXT
from ziggurat.transforms.calls.constant_arguments import FunctionName, HostObject, describe
from ziggurat.transforms.calls.lattice import (
    ErrorType,
    Record,
    RecordType,
    at_run_time,
    components,
    outer_constant,
    record_fields,
)
from ziggurat.transforms.calls.promotion import constant
from ziggurat.transforms.unsupported import kernel_model


def call_values(context: FunctionAttributor, op: py.Invoke | py.Call) -> tuple[Sequence[Value], Mapping[str, Value]]:
    """The arguments of a call by position and by keyword."""
    count = len(op.arguments) - len(op.keywords)
    return positional_values(context.scope, op), dict(zip(op.keywords, op.arguments[count:], strict=True))


# For each class whose objects can change, a class with those of its methods that change nothing.
_FROZEN: dict[type[Any], type[Any]] = {dict: MappingProxyType, set: frozenset, list: tuple, bytearray: bytes}


# The methods whose result has the length of an argument.
_PADDING = ("ljust", "rjust", "center", "zfill", "expandtabs", "to_bytes")


def plain_constant(type_: Type) -> Any:
    """The number, string or tuple of Python's that is known at compile time; None for another value."""
    value = type_.value if isinstance(type_, ConstantType) else None
    return value if type(value) in (bool, int, float, str, tuple) else None


def constant_method(context: FunctionAttributor, op: py.Invoke, name: str, value: Any) -> Type:
    """A call of a method of a number, a string or a tuple."""
    positional, keywords = call_values(context, op)
    too_many = KernelValueError(f"'{name}' gives more than {MAX_TEXT} characters or items")
    sizes = [plain_constant(context.scope.type_of(argument)) for argument in positional[1:] if name in _PADDING]
    if any(isinstance(size, int) and size > MAX_TEXT for size in sizes):
        raise too_many
    result = call_object(context, op, getattr(value, name), positional[1:], keywords)
    text: Any = plain_constant(result)
    if isinstance(text, str | tuple) and len(text) > MAX_TEXT:  # pyright: ignore[reportUnknownArgumentType]
        raise too_many
    return result


def host_method(context: FunctionAttributor, op: py.Invoke, name: str, receiver: Type) -> Type:
    """A call of a method of an object of a record, or of another object of Python's."""
    positional, keywords = call_values(context, op)
    if not isinstance(receiver, RecordType):
        assert isinstance(receiver, ConstantType)
        for cls, frozen in _FROZEN.items():
            if isinstance(receiver.value.value, cls) and hasattr(cls, name) and not hasattr(frozen, name):
                raise KernelTypeError(
                    f"'{name}' would change a {cls.__name__} from outside of the kernel",
                    hint=f"change the {cls.__name__} before the launch",
                )
        return call_object(context, op, attribute_of_host(receiver.value.value, name, member), positional[1:], keywords)
    index = receiver.field(name)
    if index is not None:
        function = receiver.components[index]
        if isinstance(function, ConstantType) and isinstance(function.value, FunctionName):
            return call_bound(context, op, function.value, positional[1:], keywords)
        raise KernelTypeError(say("'{}' must be a function to be called; got {}", name, describe(function)))
    cls = receiver.record.cls
    # A static method and a class method, which the class binds, do not take the object.
    first = int(isinstance(inspect.getattr_static(cls, name, None), staticmethod | classmethod))
    return call_object(context, op, attribute_of_host(cls, name, member), positional[first:], keywords)


def special_method(context: FunctionAttributor, op: Op, name: str) -> Type:
    """A call of a method of an aggregate by an operator or a subscript."""
    receiver = context.scope.type_of(op.operands[0])
    assert isinstance(receiver, RecordType)
    cls = receiver.record.cls
    if not any(name in vars(base) for base in cls.__mro__[:-1]):  # `object` has some of these names too.
        raise KernelTypeError(f"'{cls.__name__}' has no method '{name}'")
    return call_object(context, op, attribute_of_host(cls, name, member), op.operands, {})


def attribute_of_host(thing: Any, name: str, get: Callable[[Any, str], Any] = getattr) -> Any:
    """An attribute of an object of Python's, as `get` finds it."""
    try:
        return get(thing, name)
    except AttributeError:
        text = getattr(thing, "__name__", None) or repr(thing)
        raise KernelTypeError(f"'{text}' has no attribute '{name}'") from None


def call_object(
    context: FunctionAttributor,
    op: Op,
    target: Any,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
) -> Type:
    """A call of an object of Python's: a function of the language, a class of records, or a function on constants."""
    if isinstance(target, Function):
        return call_bound(
            context, op, FunctionName(target.fn.__qualname__, kernel_model(target), target), positional, keywords
        )
    if isinstance(target, PartialObject):
        return make_record(context, op, target.cls, target.fields, positional, {}, init=None)
    fields = record_fields(target) if isinstance(target, type) else None
    if fields is not None:
        return make_record(context, op, target, fields, positional, keywords, getattr(target, "ziggurat_init", None))
    check_used(context, op, target, getattr(target, "__name__", ""))
    arguments = [host_argument(target, context.scope.type_of(value)) for value in positional]
    keyword_arguments = {name: host_argument(target, context.scope.type_of(value)) for name, value in keywords.items()}
    if target in (tuple, list):
        return context.scope.type_of(positional[0]) if positional else constant(())
    try:
        return outer_constant(target(*arguments, **keyword_arguments))
    except ZigguratError:
        raise
    except Exception as error:
        pass_on_signals(error)
        name = getattr(target, "__name__", None) or repr(target)
        types = [context.scope.type_of(value) for value in (*positional, *keywords.values())]
        value = next((type_ for type_ in types if not isinstance(type_, ConstantType)), None)
        if value is None:
            raise KernelValueError(f"'{name}' raised {type(error).__name__}: {error}") from error
        hint = "compute it before the launch, and pass it as a constexpr"
        if name in context.language.calls and not isinstance(getattr(target, "__self__", None), str):
            hint = f"write {context.language.prefix}.{name}"
        raise KernelTypeError(
            say("'{}' is a function of the host, which must be called with constants; got {}", name, describe(value)),
            hint=hint,
        ) from error


def named(function: Function) -> FunctionName:
    """A function of the language by its qualified name."""
    return FunctionName(function.fn.__qualname__, kernel_model(function), function)


def make_record(
    context: FunctionAttributor,
    op: Op,
    cls: type,
    fields: tuple[str, ...],
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    init: Function | None,
) -> Type:
    """An object of a named tuple or an aggregate: of its fields, or what its `__init__` assigns to them."""
    record = Record(cls, fields)
    if init is not None:
        result = call_bound(
            context, op, FunctionName(init.fn.__qualname__, kernel_model(init), init), positional, keywords
        )
        return result if isinstance(result, ErrorType) else RecordType(components(result) or (), record=record)
    defaults: Mapping[str, Any] = getattr(cls, "_field_defaults", {})
    bound: dict[str, Any] = {**dict(zip(fields, positional, strict=False)), **keywords}
    missing = [name for name in fields if name not in bound and name not in defaults]
    if missing or len(positional) > len(fields) or set(bound) - set(fields):
        raise KernelTypeError(
            say("'{}' takes {}; got {} arguments", cls.__name__, ", ".join(fields), len(positional) + len(keywords))
        )
    values = {name: bound[name] if name in bound else outer_constant(defaults[name]) for name in fields}
    context.finding(op).arguments = values
    parts = [context.scope.type_of(item) if isinstance(item, Value) else item for item in values.values()]
    if record.is_aggregate:
        # A number in a field that is no constant is a run-time value.
        pairs = zip(fields, parts, strict=True)
        parts = [part if is_constant_field(cls, name) else at_run_time(part, context.language) for name, part in pairs]
    return RecordType(tuple(parts), record=record)


def _without_boxes(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_without_boxes, cast("tuple[Any, ...]", value)))
    return value.value if isinstance(value, HostObject) else value


def host_argument(target: Any, type_: Type) -> Any:
    """An argument of a function of the host: a dtype is that of the function's library, and the constants of a plain
    function of a program are `tl.constexpr`, as in Triton."""
    value = type_.value if isinstance(type_, ConstantType) else None
    library = (getattr(target, "__module__", None) or "").partition(".")[0]
    if isinstance(value, ScalarType) and library in ("torch", "numpy"):
        return value.dtype if library == "numpy" else getattr(sys.modules[library], value.dtype.name)
    if isinstance(value, ScalarType | PtrType | TensorType):
        return dtype_of(value)
    is_plain = isinstance(type_, ConstantType) and isinstance(target, FunctionType) and library != "ziggurat"
    return constexpr(value) if is_plain and isinstance(value, int | float | str | None) else host_object(type_)


def host_object(type_: Type) -> Any:
    """A constant as the host has it; a run-time value is its type."""
    if isinstance(type_, ConstantType):
        value = type_.value
        if isinstance(value, FunctionName):
            return value.function
        return _without_boxes(value)
    parts = components(type_)
    if isinstance(type_, DescriptorType):
        return tensor_descriptor(block_type(dtype_of(type_.element), type_.block))
    if parts is None:
        return tensor(dtype_of(type_)) if isinstance(type_, ScalarType | PtrType | TensorType) else type_
    if not isinstance(type_, RecordType):
        return tuple(map(host_object, parts))
    cls: Any = type_.record.cls
    if not getattr(cls, "__triton_aggregate__", False):  # A named tuple.
        return cls(*map(host_object, parts))
    instance: object = object.__new__(cls)
    for name, part in zip(type_.record.fields, parts, strict=True):
        object.__setattr__(instance, name, host_object(part))
    return instance
