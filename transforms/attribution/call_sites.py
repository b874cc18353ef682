"""Attribution of calls: of the language, of builtins, of methods, and of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.messages import call_text, say
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import ConstantType, DescriptorType, PtrType, Type, constexpr_type
from ziggurat.frontends.language import CALLS, SIGNATURES
from ziggurat.frontends.language import METHODS as DESCRIPTOR_METHODS
from ziggurat.frontends.language.dtypes import type_of
from ziggurat.frontends.language.languages import LANGUAGES, Spelling
from ziggurat.frontends.language.phrases import CALL_FUNCTION, LOAD_POINTER, MAKE_CONSTANT
from ziggurat.frontends.language.signature import Call, Parameter, Signature, suggest
from ziggurat.frontends.language.spellings import of_attribute
from ziggurat.transforms.attribution.attribute import FunctionAttributor, handles
from ziggurat.transforms.attribution.expressions import attribute_of
from ziggurat.transforms.attribution.functions import argument_types, call_bound, note_callee
from ziggurat.transforms.attribution.objects import (
    call_object,
    call_values,
    constant_method,
    host_method,
    plain_constant,
)
from ziggurat.transforms.calls import RULES, Rule, Typing
from ziggurat.transforms.calls.builtins import BUILTINS
from ziggurat.transforms.calls.constant_arguments import FunctionName, HostObject, as_argument, describe
from ziggurat.transforms.calls.foreign_floats import check_supported
from ziggurat.transforms.calls.lattice import (
    ERROR,
    ErrorType,
    components,
    is_host_value,
    known_value,
    outer_constant,
)
from ziggurat.transforms.calls.operands import operand_types
from ziggurat.transforms.calls.promotion import NONE, constant, in_floats, rounded_type, run_time_type
from ziggurat.transforms.calls.rule import TABLES

NOTHING: Mapping[str, Any] = MappingProxyType({})


@handles(py.Invoke)
def invoke(context: FunctionAttributor, op: py.Invoke) -> Type:
    space, _, name = op.callee.rpartition(".")
    if space in LANGUAGES:
        return named_call(context, op, LANGUAGES[space].calls[name])
    if space in TABLES:
        table = TABLES[space]
        signature, typing = table.signatures[name], Typing(name, context, table.written[name], table.parameters)
        bound = signature.bind(*call_values(context, op))
        return call_by_rule(context, op, signature, table.rules[name], typing, bound)
    positional, keywords = call_values(context, op)
    types = [context.scope.type_of(operand) for operand in positional]
    if space != "builtins":
        return method(context, op, name, types)
    if name in ("getattr", "hasattr"):
        return named_attribute(context, op, name, *types)
    options = {keyword: context.scope.type_of(value) for keyword, value in keywords.items()}
    return expect(BUILTINS[name].type(Typing(name, context), *types, **options), Type)


def named_attribute(
    context: FunctionAttributor, op: py.Invoke, call: str, x: Type, name: Type, default: Type | None = None
) -> Type:
    """`getattr` or `hasattr`. The static branch of `getattr` is 1 where it gives the default."""
    if not isinstance(name, ConstantType) or not isinstance(name.value, str):
        raise KernelTypeError(say("{}(): the name must be a constant string; got {}", call, describe(name)))
    finding = context.finding(op)
    try:
        type_, finding.static_branch = attribute_of(context, x, name.value), None
    except KernelTypeError:
        if call == "getattr" and default is None:
            raise
        type_, finding.static_branch = default, 1
    return expect(type_, Type) if call == "getattr" else constant(type_ is not None)


def method(context: FunctionAttributor, op: py.Invoke, name: str, types: list[Type]) -> Type:
    receiver = types[0]
    if is_host_value(receiver):
        return host_method(context, op, name, receiver)
    value = plain_constant(receiver)
    if value is not None and name[:2] != "__" and hasattr(value, name):
        return constant_method(context, op, name, value)
    if isinstance(receiver, ConstantType) and isinstance(receiver.value, Type):
        return dtype_method(receiver.value, name, types[1:])
    load = op.operands[0].op
    written = f"{context.names.get(load.var, '') if isinstance(load, core.VarLoad) else ''}.{name}"
    if isinstance(receiver, DescriptorType) and name in DESCRIPTOR_METHODS:
        spelling = DESCRIPTOR_METHODS[name]
        return named_call(context, op, CALLS[spelling.call], written, spelling.constants)
    if isinstance(load, core.VarLoad) and context.names.get(load.var) == "zg" and name in SIGNATURES:
        hint = "'zg' is a variable of the kernel here; give the variable another name"
        raise KernelTypeError(say("{} has no method '{}'", describe(receiver), name), hint=hint)
    if name in context.language.methods:
        return named_call(context, op, context.language.methods[name], written)
    if value is not None and components(receiver) is None:
        hint = "compute it before the launch, and pass it as a constexpr"
        if not hasattr(value, name):
            hint = suggest(name, [member for member in dir(value) if member[0] != "_"])
        raise KernelTypeError(say("{} has no method '{}' in a kernel", describe(receiver), name), hint=hint)
    if name in SIGNATURES:
        hint = say("call {}(…) instead", call_text(name))
        if isinstance(receiver, PtrType) and name in ("load", "store"):
            hint = LOAD_POINTER(name=name)
        raise KernelTypeError(say("{} has no method '{}'", describe(receiver), name), hint=hint)
    hint = of_attribute(name)
    if components(receiver) is not None:
        hint = "make another one: tuples and lists in a kernel do not change"
    raise KernelTypeError(say("{} has no method '{}'", describe(receiver), name), hint=hint)


def dtype_method(dtype: Type, name: str, arguments: Sequence[Type]) -> Type:
    """A method of Triton's dtypes, which are known at compile time: `x.dtype.is_fp16()`."""
    constants = [argument.value for argument in arguments if isinstance(argument, ConstantType)]
    member = getattr(type_of(dtype), name, None)
    if not callable(member) or len(constants) < len(arguments):
        raise KernelTypeError(say("{} has no method '{}'", dtype, name))
    return outer_constant(member(*constants))


def named_call(
    context: FunctionAttributor,
    op: py.Invoke | py.Call,
    call: Call[..., Any] | Spelling,
    method: str = "",
    constants: Mapping[str, Any] = NOTHING,
) -> Type:
    """A call by a name of a language; `method` is its text where it is written as one, `x.sum`.

    `constants` has arguments besides those that are written.
    """
    positional, keywords = call_values(context, op)
    signature, keywords = call.signature, {**keywords, **constants}
    bound = signature.bind_method(method, positional, keywords) if method else signature.bind(positional, keywords)
    if isinstance(call, Spelling):
        return spelled_call(context, op, call, method or f"{signature.prefix}.{signature.name}", bound)
    typing = Typing(signature.name, context, method)
    return call_by_rule(context, op, signature, RULES[signature.name], typing, bound)


def spelled_call(
    context: FunctionAttributor, op: py.Invoke | py.Call, spelling: Spelling, written: str, bound: Mapping[str, Any]
) -> Type:
    """A call that is written with Triton's name and parameters."""
    if spelling.per_warp:
        return constant(spelling.per_warp * context.program.num_warps())
    if spelling.body is not None:  # As a function of the kernel's author.
        types = argument_types(context, op, bound)
        return note_callee(context, op, context.library_function(written, spelling.body, types))
    call = CALLS[spelling.call]
    typing = Typing(spelling.call, context, written)
    arguments, _ = arguments_of(context, spelling.signature, typing, bound)
    if spelling.call == "dot" and arguments["input_precision"] is None:
        arguments["input_precision"] = context.program.dot_precision()
    return call_by_rule(context, op, call.signature, RULES[spelling.call], typing, spelling.adapt(arguments))


def call_by_rule(
    context: FunctionAttributor,
    op: py.Invoke | py.Call,
    signature: Signature,
    rule: Rule,
    typing: Typing,
    values: Mapping[str, Any],
) -> Type:
    """A call with these arguments by parameter; one that is left out has its default."""
    context.finding(op).rule = typing.name, rule
    context.finding(op).arguments, arguments = arguments_of(context, signature, typing, values)
    if any(isinstance(argument, ErrorType) for argument in arguments):
        return ERROR
    arguments = operand_types(typing.name, typing.language, arguments)
    result = rule.type(typing, *arguments)
    return result if result is not None else library_call(context, op, rule, arguments)


def arguments_of(
    context: FunctionAttributor, signature: Signature, typing: Typing, values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    """The arguments of a call by parameter as the mirror gets them, and in order as the type rule does."""
    bound: dict[str, Any] = {}
    arguments: list[Any] = []
    for parameter in signature.parameters:
        value = values.get(parameter.name, parameter.default)
        if parameter.variadic:
            parts = [argument_of(context, signature, typing, parameter, item) for item in value]
            bound[parameter.name], argument = tuple(part for part, _ in parts), [type_ for _, type_ in parts]
        else:
            bound[parameter.name], argument = argument_of(context, signature, typing, parameter, value)
        arguments.append(argument)
    return bound, arguments


def argument_of(
    context: FunctionAttributor, signature: Signature, typing: Typing, parameter: Parameter, argument: Any
) -> tuple[Any, Any]:
    """An argument as the mirror gets it, a value or a constant, and as the type rule does, a type or a constant."""
    if not isinstance(argument, Value):
        return argument, argument if parameter.constexpr or argument is None else constant(argument)
    type_ = context.scope.type_of(argument)
    if parameter.constexpr:
        is_known, constant_value = known_value(type_)
        if not is_known and parameter.takes == "ConstTruth":
            return True, True
        if not is_known:
            raise KernelTypeError(
                say(
                    "{} must be known at compile time; got {}, a run-time value",
                    typing.argument(parameter.name),
                    describe(type_),
                ),
                hint=MAKE_CONSTANT(),
            )
        if parameter.takes in ("ConstInt", "ConstInts", "ConstShape"):
            for part in components(type_) or (type_,):
                run_time_type(part)
        value = as_argument(typing.argument, parameter, constant_value, not typing.language.is_triton)
        check_supported(value)
        return value, value
    if type_ != NONE or parameter.variadic:
        return argument, type_
    if not parameter.optional:
        raise KernelTypeError(f"{typing.argument(parameter.name)} must be a value; got None", hint=signature.written)
    return None, None


def library_call(context: FunctionAttributor, op: py.Invoke | py.Call, rule: Rule, arguments: list[Any]) -> Type:
    """A call that is itself written in the language."""
    assert rule.body is not None
    types = [
        argument if isinstance(argument, Type) and parameter.type != constexpr_type else constant(argument)
        for parameter, argument in zip(rule.body.model.bodies[0].parameters, arguments, strict=True)
    ]
    values = [argument for argument in arguments if isinstance(argument, Type)]
    if rule.in_floats:
        types[: len(values)] = in_floats(values)
    result = note_callee(context, op, context.library_function(f"zg.{rule.body.name}", rule.body, tuple(types)))
    return rounded_type(result, values) if rule.in_floats else result


@handles(py.Call)
def call_value(context: FunctionAttributor, op: py.Call) -> Type:
    """A call of the value of an expression: a function known at compile time, or an object of Python's."""
    callee = context.scope.type_of(op.callee)
    function = callee.value if isinstance(callee, ConstantType) else None
    target = function.value if isinstance(function, HostObject) else None
    if isinstance(target, Call | Spelling):
        return named_call(context, op, target)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(function, HostObject):
        return call_object(context, op, function.value, *call_values(context, op))
    if not isinstance(function, FunctionName):
        load = op.callee.op
        name = context.names.get(load.var) if isinstance(load, core.VarLoad) else None
        what = f"'{name}'" if name is not None else "this"
        hint: str = CALL_FUNCTION()
        if name is not None:
            hint += f"; rename the variable if another '{name}' is meant"
        raise KernelTypeError(
            say("{} must be a function to be called; got {}", what, describe(callee)), context.place_of(op.callee), hint
        )
    return call_bound(context, op, function, *call_values(context, op))
