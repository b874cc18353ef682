"""The types that spellings stand for: the inverse of `Type.syntax`.

A dialect adds a type by registering a reader for its name (`register_type`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ziggurat.codemodel.layout import Layout, parse_layout
from ziggurat.codemodel.types import (
    SCALARS,
    ConstantType,
    DescriptorType,
    FunctionType,
    PtrType,
    ScalarType,
    SharedType,
    TensorType,
    TupleType,
    Type,
    TypeSyntax,
    VarType,
    channel,
    constexpr_type,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    pyobject,
    read_value,
    void,
)

TypeReader = Callable[[TypeSyntax], Type]
_READERS: dict[str, TypeReader] = {}


class TypeSyntaxError(ValueError):
    """The spelling of a type is unknown or malformed."""


def register_type(name: str, reader: TypeReader) -> None:
    """Register the reader of the types whose identifier is `name`, for the parser and for `read_type`.

        register_type("poly", lambda syntax: Poly(read_type(syntax.arguments[0])))

    The reader gets the spelling of a type, which the type's `syntax` gives: a name and its arguments, spellings or
    values. It raises `TypeSyntaxError` for one that is malformed.
    """
    _READERS[name] = reader


def modules_of(text: str) -> set[str]:
    """The modules outside of the package whose types a model's text may have."""
    modules = {str(getattr(reader, "__module__", "")) for name, reader in _READERS.items() if name in text}
    return {module for module in modules if module and not module.startswith("ziggurat.")}


# The spellings of the article of 2024, and Java's names.
LEGACY_NAMES: dict[str, ScalarType] = {
    "boolean": i1, "byte": i8, "short": i16, "int": i32, "long": i64, "float": f32, "double": f64,
    "oracle.code.triton.Float16": f16, "Float16": f16,
    "java.lang.Integer": i32, "java.lang.Long": i64, "java.lang.Float": f32, "java.lang.Double": f64,
    "java.lang.Boolean": i1,
}  # fmt: skip
_NAMED: dict[str, Type] = {
    **{type_.name: type_ for type_ in (void, pyobject, constexpr_type, channel)}, **SCALARS, **LEGACY_NAMES,
}  # fmt: skip


def read_type(syntax: TypeSyntax) -> Type:
    """The type that a spelling stands for.

    Raises `TypeSyntaxError` for an unknown or malformed spelling.
    """
    name, arguments = syntax.name, syntax.arguments
    if syntax.quoted:
        raise TypeSyntaxError(f"expected a type, got the string {syntax}")
    if name in _NAMED:
        if arguments:
            raise TypeSyntaxError(f"'{name}' takes no arguments, in '{syntax}'")
        return _NAMED[name]
    if name in ("java.type", "java.type:") and len(arguments) == 1:
        return read_type(TypeSyntax(arguments[0].name))
    reader = _READERS.get(name)
    if reader is None:
        raise TypeSyntaxError(f"unknown type '{syntax}'")
    return reader(syntax)


def _exactly(count: int, syntax: TypeSyntax) -> tuple[TypeSyntax, ...]:
    if len(syntax.arguments) != count:
        raise TypeSyntaxError(f"'{syntax.name}' takes {count} argument(s), in '{syntax}'")
    return syntax.arguments


def _scalar(syntax: TypeSyntax) -> ScalarType:
    type_ = read_type(syntax)
    if not isinstance(type_, ScalarType):
        raise TypeSyntaxError(f"expected a scalar type, got '{syntax}'")
    return type_


def read_shape(syntax: TypeSyntax) -> tuple[tuple[int, ...], TypeSyntax]:
    """Split the arguments `x32, x64, rest` into the dimensions and the rest."""
    if not syntax.arguments:
        raise TypeSyntaxError(f"'{syntax.name}' needs an element type")
    *dims, element = syntax.arguments
    shape: list[int] = []
    for dim in dims:
        digits = dim.name[1:]
        # No tensor has a size of more than 18 digits; Python refuses to read one of thousands.
        good = not dim.arguments and not dim.quoted and dim.name.startswith("x") and digits.isdecimal()
        if not good or len(digits) > 18 or int(digits) < 1:
            raise TypeSyntaxError(f"expected a dimension such as 'x64', got '{dim}'")
        shape.append(int(digits))
    return tuple(shape), element


def _read_tensor(syntax: TypeSyntax) -> Type:
    layout: Layout | None = None
    if syntax.arguments and syntax.arguments[-1].quoted:
        try:
            layout = parse_layout(syntax.arguments[-1].name)
        except ValueError as error:
            raise TypeSyntaxError(str(error)) from None
        syntax = TypeSyntax(syntax.name, syntax.arguments[:-1])
    shape, element = read_shape(syntax)
    type_ = read_type(element)
    if layout is not None and not layout.covers(math.prod(shape)):
        raise TypeSyntaxError(f"the layout '{layout}' does not cover the shape {list(shape)}")
    if not isinstance(type_, ScalarType | PtrType):
        raise TypeSyntaxError(f"a tensor holds scalars or pointers, not '{element}'")
    return TensorType(shape, type_, layout)


def _read_pointer(syntax: TypeSyntax) -> Type:
    const = syntax.arguments[1:] == (TypeSyntax("const"),)
    (pointee,) = syntax.arguments[:1] if const else _exactly(1, syntax)
    return PtrType(_scalar(pointee), const)


def _counted(syntax: TypeSyntax) -> tuple[int, list[TypeSyntax]]:
    """The number that a type begins with, as in `n3`, or 1; and the other arguments."""
    arguments = list(syntax.arguments)
    if arguments and arguments[0].name.startswith("n") and arguments[0].name[1:].isdecimal():
        return int(arguments[0].name[1:]), arguments[1:]
    return 1, arguments


def _read_shared(syntax: TypeSyntax) -> Type:
    count, arguments = _counted(syntax)
    if not arguments or not arguments[-1].quoted:
        raise TypeSyntaxError(f"'shared' ends in the bases of its offsets, in quotes, in '{syntax}'")
    words = arguments.pop().name.split()
    shape, element = read_shape(TypeSyntax("shared", tuple(arguments)))
    if not all(word.isdecimal() for word in words) or 1 << len(words) != math.prod(shape):
        raise TypeSyntaxError(f"'shared' has one base for each bit of an offset, in '{syntax}'")
    return SharedType(shape, _scalar(element), tuple(map(int, words)), count)


def _read_descriptor(syntax: TypeSyntax) -> Type:
    padding, (parts, arguments) = "zero", _counted(syntax)
    if arguments and arguments[-1] in (TypeSyntax("nan"), TypeSyntax("either")):
        padding = arguments.pop().name
    shape, element = read_shape(TypeSyntax(syntax.name, tuple(arguments)))
    scalar = _scalar(element)
    if padding != "zero" and not scalar.is_float:
        raise TypeSyntaxError(f"only floats are padded with NaN; got '{element}'")
    return DescriptorType(shape, scalar, padding, parts)


def _read_function(syntax: TypeSyntax) -> Type:
    if not syntax.arguments:
        raise TypeSyntaxError("'func' needs a result type")
    result, *parameters = map(read_type, syntax.arguments)
    return FunctionType(result, tuple(parameters))


def _read_constant(syntax: TypeSyntax) -> Type:
    base, leaf = _exactly(2, syntax)
    type_ = read_type(base)
    if leaf.quoted:
        value = read_value(leaf.name)
    elif leaf.name.startswith("c") and leaf.name[1:].isdecimal() and len(leaf.name) < 1000:
        value = int(leaf.name[1:])
    else:
        value = read_type(leaf)
    return ConstantType(value, type_)


register_type("Var", lambda syntax: VarType(read_type(_exactly(1, syntax)[0])))
register_type("Tuple", lambda syntax: TupleType(tuple(map(read_type, syntax.arguments))))
register_type("ptr", _read_pointer)
register_type("tensor", _read_tensor)
register_type("shared", _read_shared)
register_type("descriptor", _read_descriptor)
register_type("func", _read_function)
register_type("constant", _read_constant)
