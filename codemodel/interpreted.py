"""`interpret(model)`: a function that runs its model in the interpreter, on real objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel import interpret_objects as interpret_objects
from ziggurat.codemodel import interpret_patterns as interpret_patterns
from ziggurat.codemodel import interpret_suites as interpret_suites
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.interpret_functions import FunctionInterpreter
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.python_functions import keep_origin, new_surroundings
from ziggurat.codemodel.python_parameters import defaults_of, definition_of, names_of, signature_of, type_parameters_of
from ziggurat.codemodel.python_texts import statement_of


def interpret(model: Op, like: Callable[..., Any] | None = None, **names: Any) -> Callable[..., Any]:
    """A function that runs its model, made from a Python function by `reflect`, in the interpreter.

    The function has the globals, the closure and the defaults of `like`; by default the builtins, and the defaults that
    the model has as literals. `names` are further globals, and variables of functions around. Of the model of a
    generator or a coroutine it is one too. Raises `KernelTypeError` for a variable of a function around, or a default,
    that neither has.
    """
    func = expect(model, core.Func, "interpret: the model must be a func")
    surroundings, original = new_surroundings("interpret", func.free, like, names)
    definition_of(func)  # Raises the error of parameters that are none.
    interpreter = FunctionInterpreter(surroundings.scope, surroundings.cells)
    for op in func.walk():
        text = type_parameters_of(op) if isinstance(op, core.Func) else op.attributes.get("type_parameters")
        if text:
            statement = statement_of(f"class _[{text}]: pass", op, "type parameters", text)
            interpreter.generics |= dict.fromkeys((parameter.name for parameter in statement.type_params), text)
    parameters = names_of(func)
    if original is None:
        defaults, keywords = defaults_of(func, parameters, "interpret", surroundings.scope)
    else:
        defaults, keywords = original.__defaults__ or (), original.__kwdefaults__ or {}
    signature = signature_of(func.parameters, parameters, defaults, keywords)
    call: Any = interpreter.function(func.body, signature, {}, None, func.kind)
    call.__name__, call.__qualname__, call.__signature__ = func.sym_name.rpartition(".")[2], func.sym_name, signature
    call.__defaults__, call.__kwdefaults__ = defaults, keywords
    if original is not None:
        call.__doc__, call.__module__ = original.__doc__, original.__module__
    if texts := type_parameters_of(func):
        call.__type_params__ = getattr(original, "__type_params__", None) or interpreter.type_parameters(texts)
    keep_origin(call, func, surroundings)
    return call
