"""Rules of the Python builtins that kernels may call, and the properties of values."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import reduce
from typing import Any, cast

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.messages import call_text, say
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    ConstantType,
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    f32,
    i1,
    i32,
    i64,
    shape_of,
)
from ziggurat.frontends.language.classes import constexpr_type, tuple_type
from ziggurat.frontends.language.dtypes import block_type, pointer_type, type_of
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.language.phrases import CAST_TENSOR, PRINT_CONSTANTS, PROPERTIES
from ziggurat.frontends.language.spellings import of_attribute
from ziggurat.transforms.calls import arithmetic
from ziggurat.transforms.calls.constant_arguments import FunctionName, HostObject, describe, show
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, split_operand
from ziggurat.transforms.calls.lattice import (
    BlockPtrType,
    RecordType,
    components,
    items_of,
    known_value,
    outer_constant,
)
from ziggurat.transforms.calls.operands import operand_types, operand_values
from ziggurat.transforms.calls.programs import device_print, range_of
from ziggurat.transforms.calls.promotion import NONE, constant, is_number, is_pointer, run_time_type, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing

_DEFAULT = constant(None)  # Of `sep` and `end`: what they are in Python, too.
_NOT_PASSED = Operand(_DEFAULT, None)
# The classes that `isinstance` knows, by their names in the Python code model.
_CLASSES = {f"builtins.{cls.__name__}": cls for cls in (bool, int, float, str, tuple)}


def _absolute(call: Typing, x: Type) -> Type:
    if isinstance(x, ConstantType) and is_number(x):
        return constant(abs(x.value))
    return cast(Type, arithmetic.RULES["abs"].type(Typing("abs", call.context), x))


def _extreme(name: str, call: str) -> Rule:
    """A builtin that is Python's on constants, and a call of the language on run-time scalars."""
    rule = arithmetic.RULES[call]

    def type_of(builtin: Typing, *types: Type) -> Type:
        if len(types) == 1:
            types = components(types[0]) or types
        if len(types) < 2:
            raise KernelTypeError(
                f"{name}() takes two scalars or more", hint=say("use {} to reduce {a_tensor}", call_text(name))
            )
        if all(isinstance(type_, ConstantType) and is_number(type_) for type_ in types):
            values = [type_.value for type_ in types if isinstance(type_, ConstantType)]
            if builtin.language.strict_operands:
                _ordered(name, values)
            return constant(getattr(builtins, name)(*values))
        typing = Typing(call, builtin.context)
        return reduce(lambda a, b: cast(Type, rule.type(typing, *operand_types(call, typing.language, [a, b]))), types)

    def build(emit: Emitter, result: Type, *operands: Operand) -> Built:
        assert rule.build is not None
        first, *others = split_operand(operands[0]) if len(operands) == 1 else operands
        for operand in others:
            first = Operand(result, rule.build(emit, result, *operand_values(call, emit, [first, operand])))
        return first.value

    return Rule(type_of, build)


def _ordered(name: str, values: list[Any]) -> None:
    """Refuse NaN and -0.0, of which the C++ Triton does not say which is the smaller."""
    if any(value != value for value in values):
        raise KernelValueError(f"cannot compute {name}(): a NaN is among the operands")
    if any(isinstance(value, float) and str(value) == "-0.0" for value in values):
        raise KernelValueError(f"cannot compute {name}(): -0.0 is among the operands")


def _range(_: Typing, *bounds: Type) -> Type:
    return range_of("range", bounds)


def _len(_: Typing, x: Type) -> Type:
    parts = items_of(x)
    if parts is not None:
        return constant(len(parts))
    if isinstance(x, ConstantType) and isinstance(x.value, str):
        return constant(len(x.value))
    if isinstance(x, TensorType):
        return constant(x.shape[0])
    raise KernelTypeError(say("{} has no length", describe(x)))


def _convert(emit: Emitter, result: Type, x: Operand) -> Built:
    return emit.convert(x, result)


def _conversion(convert: Callable[[Any], Any], kind: str, otherwise: ScalarType) -> Rule:
    """`int`, `float` or `bool`: a scalar of the kind is kept, another one becomes `otherwise`."""
    name = convert.__name__

    def type_of(_: Typing, x: Type) -> Type:
        if isinstance(x, ConstantType):
            if convert is not bool and not isinstance(x.value, bool | int | float | str):
                raise KernelTypeError(say("{}(): the operand must be a number; got {}", name, describe(x)))
            try:
                return constant(convert(x.value))
            except (ValueError, OverflowError) as error:
                raise KernelValueError(say("cannot compute {}({}): {}", name, show(x.value), error)) from None
        if not is_number(x) or shape_of(x):
            raise KernelTypeError(
                say("{}(): the operand must be a scalar; got {}", name, describe(x)), hint=CAST_TENSOR(dtype=otherwise)
            )
        return x if scalar_type(x).kind == kind else otherwise

    return Rule(type_of, _convert)


def _isinstance(call: Typing, x: Type, cls: Type) -> Type:
    """Classes are the names of builtins (`builtins.int`), or in Triton's Python classes; or a tuple of these."""
    good, value = known_value(cls)
    if good:
        classes = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
        answers = [_is_of(x, c.value if isinstance(c, HostObject) else _CLASSES.get(c)) for c in classes]
        if None not in answers:
            return constant(any(answers))
    raise KernelTypeError("isinstance() is for constants in a kernel")


# The values that are of a class of Triton's language, by its name.
_TRITON_CLASSES: dict[str, Callable[[Type, Any], bool]] = {
    "tensor": lambda x, value: not isinstance(x, ConstantType) and (is_number(x) or is_pointer(x)),
    "constexpr": lambda x, value: False,  # Python's isinstance sees the value itself.
    "tuple": lambda x, value: items_of(x) is not None,
    "dtype": lambda x, value: isinstance(value, ScalarType | PtrType),
    "pointer_type": lambda x, value: isinstance(value, PtrType),
    "block_type": lambda x, value: isinstance(value, TensorType),
    "tensor_descriptor": lambda x, value: isinstance(x, DescriptorType),
    "tensor_descriptor_base": lambda x, value: isinstance(x, DescriptorType),
}


def _is_of(x: Type, cls: Any) -> bool | None:
    """Whether a value is of a class; None if that is no class. A run-time value is of no class of Python's."""
    value = x.value if isinstance(x, ConstantType) else None
    name = getattr(cls, "__name__", "")
    if getattr(cls, "__module__", "").startswith("ziggurat") and name in _TRITON_CLASSES:
        return _TRITON_CLASSES[name](x, value)
    if not isinstance(cls, type):
        return None
    if isinstance(x, RecordType):
        return issubclass(x.record.cls, cls)
    if isinstance(x, ConstantType):
        return isinstance(value.value if isinstance(value, HostObject) else value, cls)
    return isinstance(x, TupleType) and issubclass(tuple, cls)


def _text(convert: Callable[[Any], str]) -> Rule:
    """`str` or `repr` of a constant."""

    def type_of(_: Typing, x: Type) -> Type:
        good, value = known_value(x)
        if not good:
            raise KernelTypeError(say("{}() is for constants in a kernel; got {}", convert.__name__, describe(x)))
        return constant(convert(value.value if isinstance(value, HostObject) else value))

    return Rule(type_of)


def _tuple(_: Typing, *x: Type) -> Type:
    if x and items_of(x[0]) is None:
        raise KernelTypeError(say("a tuple must be made of a tuple; got {}", describe(x[0])))
    return x[0] if x else constant(())


def _same(emit: Emitter, result: Type, *x: Operand) -> Built:
    return x[0].value if x else None


def _slice(_: Typing, *ends: Type) -> Type:
    for end in ends:
        if not isinstance(end, ConstantType) or not isinstance(end.value, int | None):
            raise KernelTypeError(say("the ends of a slice must be constant integers; got {}", describe(end)))
    return constant(HostObject(slice(*(end.value for end in ends if isinstance(end, ConstantType)))))


def _print(_: Typing, *values: Type, sep: Type = _DEFAULT, end: Type = _DEFAULT) -> Type:
    for name, text in (("sep", sep), ("end", end)):
        if not isinstance(text, ConstantType) or not isinstance(text.value, str | None):
            raise KernelTypeError(say("print() must take a constant string as its '{}'; got {}", name, describe(text)))
    for value in values:
        _printable(value)
    return NONE


def _printable(value: Type) -> None:
    """Raise `KernelTypeError` for a value that `print` does not take."""
    items = items_of(value)
    if items is not None:
        for item in items:
            _printable(item)
        return
    if not is_number(value) and not is_pointer(value) and not _is_text(value):
        raise KernelTypeError(
            say("print() must take strings, numbers, pointers and tuples of them; got {}", describe(value)),
            hint=PRINT_CONSTANTS(),
        )
    run_time_type(value)


def _printed(
    emit: Emitter, result: Type, *values: Operand, sep: Operand = _NOT_PASSED, end: Operand = _NOT_PASSED
) -> Built:
    """`print("x", x, "y", y)` prints one text, as Python does; but for a GPU, where each element of a tensor is a line.
    `print("x", x)` in Triton's Python is `tl.device_print("x", x)`, as in Triton."""
    is_text = [_is_text(value.type) for value in values]
    is_plain = sep is end is _NOT_PASSED and all(items_of(value.type) is None for value in values)
    if emit.language.c_prints and is_plain and is_text[:1] == [True] and not any(is_text[1:]):
        device_print(emit, result, cast(ConstantType, values[0].type).value, values[1:])
        return None
    operands: list[Value] = []
    between, last = (
        _braced(default if (text := cast(ConstantType, operand.type).value) is None else text)
        for operand, default in ((sep, " "), (end, "\n"))
    )
    text = between.join(_format(value, operands, str) for value in values) + last
    emit.add(tt.Print(operands, text, whole=True))
    return None


def _format(operand: Operand, operands: list[Value], show_constant: Callable[[Any], str]) -> str:
    """The text of a value in a format of Python's, with a {} for each run-time value, which it adds to `operands`."""
    if items_of(operand.type) is not None:
        items = [_format(item, operands, repr) for item in split_operand(operand)]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(operand.type, ConstantType):
        return _braced(show_constant(operand.type.value))
    operands.append(cast(Value, operand.value))
    return "{}"


def _braced(text: str) -> str:
    """A text that a format of Python's writes as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def _nothing(_: Typing) -> Type:
    return NONE


def _is_text(type_: Type) -> bool:
    return isinstance(type_, ConstantType) and isinstance(type_.value, str)


BUILTINS: dict[str, Rule] = {
    "min": _extreme("min", "minimum"),
    "max": _extreme("max", "maximum"),
    "abs": Rule(_absolute, arithmetic.RULES["abs"].build),
    "range": Rule(_range),
    "len": Rule(_len),
    "int": _conversion(int, "int", i32),
    "float": _conversion(float, "float", f32),
    "bool": _conversion(bool, "bool", i1),
    "isinstance": Rule(_isinstance),
    "print": Rule(_print, _printed),
    "breakpoint": Rule(_nothing),  # A place to stop, which the mirror builds.
    "str": _text(str),
    "repr": _text(repr),
    "tuple": Rule(_tuple, _same),
    "list": Rule(_tuple, _same),
    "slice": Rule(_slice),
}


# The types of what a descriptor tells for each axis at run time.
_FACTS = {"shape": i32, "strides": i64}


def property_of(x: Type, name: str, language: Language = EXPLICIT) -> Type:
    """The type of `x.name`, a constant but for the sizes and strides of a descriptor."""
    value: Any = x.value if isinstance(x, ConstantType) else None
    member = _member_of_type(x, value, name, language)
    if member is not None:
        return member
    if name == "shape" and (isinstance(x, TensorType) or is_number(x)):
        return constant(shape_of(x))
    if name in _FACTS and isinstance(x, DescriptorType):
        return TupleType((_FACTS[name],) * len(x.block))
    if name == "element_ty" and isinstance(value, PtrType):
        return constant(value.pointee)
    if name == "dtype" and isinstance(x, ConstantType):
        return constant(scalar_type(x))
    if name == "dtype" and not isinstance(x, TupleType):
        element = x.element if isinstance(x, DescriptorType) else element_of(x)
        if isinstance(element, ScalarType | PtrType):
            return constant(element)
    if isinstance(value, ScalarType) and name in ("bits", "name", "is_float", "signed"):
        return constant(getattr(value, name))
    raise KernelTypeError(
        say("{} has no property '{}' in a kernel", describe(x), name),
        hint=of_attribute(name) or PROPERTIES(),
    )


def _known_type(x: Type) -> Any:
    """The type of a value, as Triton's Python gives it."""
    if isinstance(x, TupleType):
        return tuple_type(map(_known_type, x.components))
    return constexpr_type(x.value) if isinstance(x, ConstantType) else x


def _member_of_type(x: Type, value: Any, name: str, language: Language) -> Type | None:
    """The type of `x.name` for the members of dtypes, and of what tells the type of a value."""
    if isinstance(value, ScalarType) and name == "name":
        return constant(language.words.type(value))
    if isinstance(value, Type) and not isinstance(value, FunctionName):
        is_block = isinstance(value, BlockPtrType)
        dtype = pointer_type(block_type(type_of(value.element), value.block)) if is_block else type_of(value)
        return outer_constant(getattr(dtype, name)) if hasattr(dtype, name) else None
    if name == "value" and isinstance(x, ConstantType):
        return x
    if name == "numel" and (is_number(x) or is_pointer(x)):
        return constant(math.prod(shape_of(x)))
    if name == "block_shape" and isinstance(x, DescriptorType):
        return constant(x.block)
    if name == "block_type" and isinstance(x, DescriptorType):
        return outer_constant(block_type(type_of(x.element), x.block))
    if name == "dtype" and isinstance(x, BlockPtrType):
        return constant(x)
    if name == "type":
        return outer_constant(_known_type(x))
    return None
