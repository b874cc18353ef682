"""Arguments of kernels: their types or values, and their divisibility."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import attrs

from ziggurat import compiler
from ziggurat.boundary import public
from ziggurat.codemodel.errors import KernelSyntaxError, KernelValueError, LaunchError, shown
from ziggurat.codemodel.gpu.options import LAUNCH_OPTIONS, SHARED_OPTIONS, checked_option, default_of
from ziggurat.codemodel.numbers import wrapped
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, find_scalar
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.constants import is_array, unwrapped
from ziggurat.frontends.language.signature import suggest
from ziggurat.kernels.models import Models


@attrs.frozen
class Divisible:
    """The type of an argument whose value is known to be divisible by a number.

    The value of a pointer is its address in bytes; that of a descriptor, the size of a row of the tensor in bytes.
    """

    type: Type
    by: int = 16


def _got(thing: Any) -> str:
    return str(thing) if isinstance(thing, Type) else shown(thing)


_MAX_DEPTH = 100
_EMPTY = inspect.Parameter.empty
_PLAIN = Models()
# Types as the command line has them, and as Triton, PyTorch and NumPy name them.
_TYPE_TEXT = re.compile(r"(ptr|descriptor|tensor)<.*>|\*.+|[iu]\d+|b?fp?\d+\w*|(u?int|float)\d+\w*")
_MOST_DIVISIBLE = 1 << 30  # LLVM has no alignments from 2^33 on.


def divisible(type_: Type, by: int = 16) -> Divisible:
    """`type_` for an argument that is known to be divisible: `zg.divisible(zg.ptr(zg.f32), 16)`.

    The value of a pointer is its address in bytes; that of a descriptor, the size of a row of the tensor in bytes: TMA
    stores only to rows of whole 16 bytes.
    """
    can_be_known = isinstance(type_, PtrType | DescriptorType) or (isinstance(type_, ScalarType) and type_.is_int)
    if not can_be_known:
        raise LaunchError(f"the type of zg.divisible must be an integer, a pointer or a descriptor; got {_got(type_)}")
    if type(by) is not int or by < 1 or by & (by - 1) or by > _MOST_DIVISIBLE:
        raise LaunchError(f"the number of zg.divisible must be a power of two, at most 2^30; got {by!r}")
    return Divisible(type_, by)


def ptr(pointee: ScalarType) -> PtrType:
    """The type of a pointer: `zg.ptr(zg.f32)`."""
    pointee = getattr(pointee, "value", pointee)  # In a kernel, a dtype is an object of its language.
    if not isinstance(pointee, ScalarType):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"zg.ptr: the argument must be a dtype such as zg.f32; got {_got(pointee)}")
    return PtrType(pointee)


@public
def descriptor(block: Sequence[int], dtype: ScalarType, padding: str = "zero") -> DescriptorType:
    """The type of a tensor descriptor that a kernel takes: `zg.descriptor((64, 64), zg.f16)`.

    `block` is the shape of one load or store, as for `zg.make_tensor_descriptor`: powers of two, in rows of 16 bytes or
    more.
    `padding` is "zero" or (of floats) "nan". At a launch, `zg.TensorDescriptor` makes the argument.
    """
    from ziggurat.backend.launch.descriptors import descriptor_type

    return descriptor_type(block, dtype, padding)


@attrs.frozen
class KernelSignature:
    """The types that a kernel is compiled for, one for each parameter, the divisibility of run-time values, and the
    numbers of those that are known to be small (`tt.func`).

    In a language whose models depend on the number of warps and on options of debugging, these are part of it:
    `assertions` is "device" for the model as it is written, "none", or "overflow" for assertions that the results of
    integer operators fit as well. With `stops`, the model has the places at which a debugger can stop.
    """

    types: tuple[Type, ...]
    divisibility: tuple[int, ...]
    small: tuple[int, ...] = ()
    num_warps: int | None = None
    assertions: Literal["device", "none", "overflow"] = "device"
    stops: bool = False

    def with_options(self, options: Mapping[str, Any]) -> KernelSignature:
        """The signature for the options of a launch; without any, that of the model as it is written."""
        debug, sanitizes = options.get("debug"), options.get("sanitize_overflow", True)
        assertions = "device" if debug is None else "none" if not debug else "overflow" if sanitizes else "device"
        return attrs.evolve(self, num_warps=options.get("num_warps"), assertions=assertions)


def signature_of(function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> KernelSignature:
    """The signature for types and values in the order of the parameters or by name.

    A constexpr parameter takes its value; another takes a type, a tuple with types in it, or a value that is then
    compiled in. Raises `LaunchError` that names the parameter.
    """
    bound = bind_types(function, arguments, keywords)
    constexprs = constexpr_names(function)
    declarations = models_of(function).declarations(function, bound)
    divisibility: list[int] = []

    def type_of(name: str, argument: Any) -> Type:
        if isinstance(argument, Divisible):
            divisibility.append(argument.by)
            return argument.type
        if name in constexprs:
            return constant_of(function, name, argument)
        components = components_of(argument)
        if components is not None and any(isinstance(leaf, Type | Divisible) for leaf in leaves(components)):
            parts = tuple(type_of(part, leaf) for part, leaf in parts_of(name, components))
            return compiler.type_of_tuple(components, parts)
        type_ = None if isinstance(argument, str) else argument if isinstance(argument, Type) else find_scalar(argument)
        if type_ is not None:
            divisibility.append(1)
            return _run_time(function, name, type_)
        return constant_of(function, name, argument)

    types = tuple(type_of(name, value) for name, value in bound.items())
    models_of(function).check_declared(function, dict(zip(bound, types, strict=True)), declarations)
    return KernelSignature(types, tuple(divisibility))


def bind_types(function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Types and values by parameter, as `bind` has them; a parameter that is left out has its declared type."""
    arguments_by_name = {**dict(zip(function.signature.parameters, arguments, strict=False)), **keywords}
    declarations = models_of(function).declarations(function, arguments_by_name)
    more = {name: type_ for name, type_ in declarations.items() if name not in arguments_by_name}
    _refuse_texts(function, {**arguments_by_name, **more})
    return bind(function, arguments, {**more, **keywords})


def _refuse_texts(function: Function, arguments: Mapping[str, Any]) -> None:
    """Raise `LaunchError` where the texts of types are given as types. It names these, and the arguments that lack."""
    constexprs, parameters = constexpr_names(function), function.signature.parameters
    faults = [
        f"'{name}' must be a type; got the string \"{arguments[name]}\""
        for name in parameters
        if name not in constexprs and isinstance(arguments.get(name), str) and _TYPE_TEXT.fullmatch(arguments[name])
    ]
    if faults:
        missing = [
            f"'{name}' is missing" for name, p in parameters.items() if name not in arguments and p.default is p.empty
        ]
        hint = "give zg.f32, zg.ptr(zg.f32) or zg.descriptor((64, 64), zg.f16): types as text are for the command line"
        raise LaunchError(f"{function.name}: {'; '.join([*faults, *missing])}", hint=hint)


def components_of(value: Any) -> Sequence[Any] | None:
    """The components of a tuple or a list; None for another value."""
    return cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else None


def parts_of(name: str, components: Sequence[Any]) -> list[tuple[str, Any]]:
    """The components of a tuple argument, with names for messages."""
    return [(f"{name}[{index}]", component) for index, component in enumerate(components)]


def is_tuple_of_arguments(argument: Any) -> bool:
    """Whether an argument of a launch is a tuple, or a list of arrays. A list of numbers is meant to be an array."""
    from ziggurat.backend.launch.arrays import is_array

    return isinstance(argument, tuple) or (
        isinstance(argument, list) and any(map(is_array, leaves(cast("list[Any]", argument))))
    )


def leaves(values: Iterable[Any], depth: int = 0) -> Iterator[Any]:
    """Arguments, with the components of tuples and lists in their places."""
    if depth > _MAX_DEPTH:
        raise LaunchError(f"lists and tuples must be nested at most {_MAX_DEPTH} deep; got one that may contain itself")
    for value in values:
        components = components_of(value)
        if components is None:
            yield value
        else:
            yield from leaves(components, depth + 1)


def _run_time(function: Function, name: str, type_: Type) -> Type:
    """The type of a run-time argument, which a kernel can have."""
    if isinstance(type_, DescriptorType):  # A type that was parsed is not checked yet.
        try:
            return descriptor(type_.block, type_.element, type_.padding)
        except LaunchError as error:
            raise LaunchError(f"'{name}' of '{function.name}': {error.summary}", hint=error.hint) from None
    if not isinstance(type_, ScalarType | PtrType):
        raise LaunchError(
            f"'{name}' of '{function.name}': a parameter must be a scalar, a pointer or a descriptor; got {type_}",
            hint="give zg.i32, zg.f32 …, zg.ptr(zg.f32), or zg.descriptor((64, 64), zg.f16)",
        )
    return type_


def is_compiled_in(function: Function, argument: Any) -> bool:
    """Whether an argument is compiled in whatever its parameter is: `tl.constexpr(…)`, a function, or a dtype."""
    return isinstance(argument, Function | Type) or unwrapped(argument) is not argument


def constant_of(function: Function, name: str, value: Any) -> Type:
    """The attributed type of an argument that is compiled in."""
    for _ in leaves([value]):
        pass  # Raises an error for a list that contains itself.
    value = _without_lists(value)
    if is_array(value):
        raise LaunchError(
            f"'{name}' of '{function.name}' is compiled in: it must be a number, a string, a dtype, None, a function "
            f"of the language or a tuple of these; got {type(value).__name__}",
            hint=f"take the annotation of '{name}' away: arrays are run-time arguments"
            if name in constexpr_names(function)
            else "give a type such as zg.i32 or zg.ptr(zg.f32) for a run-time argument",
        )
    if type(value) is int and name not in constexpr_names(function) and not -(1 << 63) <= value < 1 << 64:
        raise LaunchError(f"'{name}' of '{function.name}': the integer {shown(value)} does not fit in 64 bits")
    try:
        return compiler.outer_constant(value)
    except KernelValueError as error:
        raise LaunchError(f"'{name}' of '{function.name}': {error.summary}") from None


def _without_lists(value: Any) -> Any:
    """A value with tuples in place of lists, at every depth."""
    if isinstance(value, list) or type(value) is tuple:
        return tuple(map(_without_lists, cast(Sequence[Any], value)))
    return value


def constexpr_names(function: Function) -> frozenset[str]:
    """The names of the parameters that are known at compile time."""
    if function.is_variadic:
        raise KernelSyntaxError(
            f"a kernel cannot take any number of arguments, as {function.written} does",
            models_of(function).place(function),
            "name every parameter, or take a tuple; functions that kernels call can take any number",
        )
    return models_of(function).constexprs(function)


def shared_options(function: Function) -> frozenset[str]:
    """The names of the constexpr parameters that have the name of an option, and so are the option."""
    return constexpr_names(function).intersection(SHARED_OPTIONS)


def defaults_of(function: Function) -> dict[str, Any]:
    """The defaults of the parameters by name; that of an option for a parameter that is one."""
    defaults = {name: p.default for name, p in function.signature.parameters.items() if p.default is not _EMPTY}
    options = (name for name in shared_options(function) if defaults.get(name) is None)
    return {**defaults, **{name: default_of(name) for name in options}}


def models_of(function: Function) -> Models:
    """The object that makes the models of a kernel or a function."""
    return getattr(function, "models", _PLAIN)


def divided(function: Function, keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments: those of parameters, and the options."""
    names = function.signature.parameters
    own = {name: value for name, value in keywords.items() if name in names}
    return own, {name: value for name, value in keywords.items() if name not in names}


def bind(
    function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any], *, at_launch: bool = False
) -> dict[str, Any]:
    """Arguments by parameter, with defaults: a constexpr parameter that has the name of an option has its default.

    Raises `LaunchError` for arguments that do not fit the parameters; its hint is a launch, or the parameters alone.
    """
    try:
        return _bind(function, arguments, keywords)
    except LaunchError as error:
        if at_launch and error.hint == function.written:
            error.hint = function.written.replace("(", "[grid](", 1)
        raise


def _bind(function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    parameters = function.signature.parameters
    constexpr_names(function)  # The model's error comes first, such as that of * among the parameters.
    if len(arguments) > len(parameters):
        takes = f"{len(parameters)} argument{'s' if len(parameters) != 1 else ''}"
        raise LaunchError(f"'{function.name}' takes {takes}; got {len(arguments)}", hint=function.written)
    arguments_by_name = dict(zip(parameters, arguments, strict=False))
    for name, value in keywords.items():
        require_parameters(function, [name])
        if name in arguments_by_name:
            raise LaunchError(f"'{function.name}' got '{name}' twice")
        arguments_by_name[name] = value
    defaults = defaults_of(function)
    bound: dict[str, Any] = {name: arguments_by_name.get(name, defaults.get(name, _EMPTY)) for name in parameters}
    for name in sorted(shared_options(function)):
        # The parameter is the option: it has its default, and is checked as that.
        bound[name] = default_of(name) if bound[name] is None else checked_option(name, bound[name])
    missing = [name for name, value in bound.items() if value is _EMPTY]
    if missing:
        raise models_of(function).missing(function, missing, bound)
    return bound


def require_parameters(function: Function, names: Iterable[Any], where: str = "") -> None:
    """Raise `LaunchError` for a name that is no parameter. `where` is the argument that has the names."""
    parameters = function.signature.parameters
    for name in names:
        if name not in parameters:
            summary = f"'{function.name}' has no parameter {name!r}{where and f' (in {where})'}"
            raise LaunchError(summary, hint=suggest(str(name), parameters) or function.written)


def check_options(function: Function, options: Mapping[str, Any], names: Sequence[str] = LAUNCH_OPTIONS) -> None:
    """Raise `LaunchError` for a keyword that is neither a parameter nor one of the options `names`, and for a value
    that the option cannot have."""
    for name, value in options.items():
        if name not in names:
            from ziggurat.transforms.unsupported import kernel_model

            kernel_model(function)  # Its error comes first, such as that of ** among the parameters.
            raise LaunchError(
                f"'{function.name}' has no parameter '{name}', nor is there such an option",
                hint=suggest(name, [*function.signature.parameters, *names])
                or f"{function.written}; options: {', '.join(names)}",
            )
        if value is not None:
            checked_option(name, value)


def declared_number(
    function: Function, name: str, number: Any, type_: ScalarType, declaration: Type
) -> tuple[Any, ScalarType]:
    """A number of this type as one of the declared type, and that type.

    Raises `LaunchError` for a float where an integer is declared, an integer out of range, and a number where a pointer
    is declared.
    """
    what = f"'{name}' of '{function.name}' is declared as {models_of(function).words.type(declaration)}"
    if not isinstance(declaration, ScalarType):
        raise LaunchError(f"{what}; got the number {number}", hint="pass an array")
    if declaration.is_float:
        return declaration.dtype.type(number), declaration
    if type_.is_float:
        raise LaunchError(f"{what}; got the float {number}", hint=f"pass int({name})")
    low, high = declaration.limits
    if function.language.wrapped_numbers:  # Triton's launcher, which is C, takes the low bits.
        return declaration.dtype.type(wrapped(int(number), declaration)), declaration
    if not low <= int(number) <= high:
        raise LaunchError(f"{what}, which holds {low} … {high}; got {number}")
    return declaration.dtype.type(number), declaration
