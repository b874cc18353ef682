"""Attribution of calls of functions: of the kernel's author, and of the language where it is written in itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelNameError, KernelTypeError, ZigguratError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, Type, pyobject
from ziggurat.frontends.language.function import Default
from ziggurat.transforms.attribution.attribute import FunctionAttributor, handles
from ziggurat.transforms.attribution.attribution import Attribution, Packed
from ziggurat.transforms.calls.constant_arguments import FunctionName
from ziggurat.transforms.calls.lattice import ERROR, outer_constant
from ziggurat.transforms.unsupported import kernel_model


@handles(core.FuncRef)
def function_ref(context: FunctionAttributor, op: core.FuncRef) -> Type:
    function = resolve(context, op.attributes["callee"])
    return ERROR if function is None else ConstantType(function, pyobject)


def resolve(context: FunctionAttributor, symbol: str) -> FunctionName | None:
    """The function that a symbol means here. Errors in its source are reported once, as called from here: None."""
    caller, functions, broken = context.function.function, context.program.functions, context.program.broken
    function = None if caller is None else caller.callees.get(symbol)
    if function is None:
        if symbol not in functions:
            raise KernelNameError(f"there is no function '{symbol}' in the module")
        return FunctionName(symbol, functions[symbol])
    if function in broken:
        for part in broken[function]:  # Again: a loop that is visited again drops the errors of the visit before.
            context.report(context.op, part)
        return None
    try:
        return FunctionName(symbol, kernel_model(function), function)
    except ZigguratError as error:
        broken[function] = tuple(error.parts)
        for part in error.parts:
            if part.location is not None:
                part.location = part.location.called_from(context.place())
            context.report(context.op, part)
        return None


@handles(core.FuncCall)
def function_call(context: FunctionAttributor, op: core.FuncCall) -> Type:
    function = resolve(context, op.attributes["callee"])
    if function is None:
        return ERROR
    return call_function(context, op, function, tuple(context.scope.type_of(operand) for operand in op.operands))


def call_function(context: FunctionAttributor, op: Op, function: FunctionName, types: tuple[Type, ...]) -> Type:
    """A call of a function, with the types of its arguments in the order of the parameters."""
    check_used(context, op, function.function, function.symbol.rpartition(".")[-1])
    return note_callee(context, op, context.program.function(function, types, context.place()))


def note_callee(context: FunctionAttributor, op: Op, callee: Attribution) -> Type:
    """Record the function that an op calls; the type of its result."""
    context.finding(op).callee = callee
    return callee.result


def check_used(context: FunctionAttributor, op: Op, target: Any, name: str) -> None:
    """Raise `KernelTypeError` where the result of a function under `triton.must_use_result` is not used."""
    must_use = getattr(target, "ziggurat_must_use", False)
    if not must_use or op.result.uses:
        return
    if isinstance(op, py.Invoke):  # A method: by the name of the variable that has the object.
        receiver = op.operands[0].op
        name = f"{context.names.get(receiver.var)}{op.callee}" if isinstance(receiver, core.VarLoad) else name
    more = f" {must_use}" if isinstance(must_use, str) else ""
    raise KernelTypeError(say("The result of {} is not being used.{}", name, more))


def call_bound(
    context: FunctionAttributor,
    op: Op,
    function: FunctionName,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
) -> Type:
    """A call of a function with these arguments."""
    types = argument_types(context, op, bind(context, function, positional, keywords))
    return call_function(context, op, function, types)


def argument_types(context: FunctionAttributor, op: Op, bound: Mapping[str, Any]) -> tuple[Type, ...]:
    """Record the arguments of a call of a function by parameter; their types. A constant is its own type."""
    arguments: dict[str, Any] = {}
    for name, value in bound.items():
        if isinstance(value, Value):
            arguments[name] = value
        elif isinstance(value, tuple) and all(isinstance(item, Value) for item in cast("tuple[Any, ...]", value)):
            arguments[name] = Packed(*value)
        else:
            arguments[name] = outer_constant(value.value if isinstance(value, Default) else value)
    context.finding(op).arguments = arguments
    return tuple(context.scope.type_of(item) if isinstance(item, Value) else item for item in arguments.values())


def bind(
    context: FunctionAttributor, function: FunctionName, positional: Sequence[Value], keywords: Mapping[str, Value]
) -> Mapping[str, Value | Default | tuple[Value, ...]]:
    """Arguments by parameter. A model without its `Function` has no defaults."""
    if function.function is not None:
        return function.function.bind(
            positional, keywords, lambda name: None if name is None else context.place_of(keywords[name])
        )
    names = [name or str(index) for index, name in enumerate(py.parameter_names(function.model))]
    bound = dict(zip(names, positional, strict=False)) | {**keywords}
    if set(bound) != set(names) or len(positional) + len(keywords) != len(names):
        raise KernelTypeError(say("'{}' takes {} arguments: {}", function.symbol, len(names), ", ".join(names)))
    return {name: bound[name] for name in names}
