"""`interpret(model)`: a function that runs its model in the interpreter, on real objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ziggurat.codemodel import interpret_objects as interpret_objects
from ziggurat.codemodel import interpret_patterns as interpret_patterns
from ziggurat.codemodel import interpret_suites as interpret_suites
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.interpret_functions import FunctionInterpreter, require_plain, signature_of
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.python_functions import keep_origin, new_surroundings


def interpret(model: Op, like: Callable[..., Any] | None = None, **names: Any) -> Callable[..., Any]:
    """A function that runs its model, made from a Python function by `reflect`, in the interpreter.

    The function has the globals, the closure and the defaults of `like`, by default no others than the builtins;
    `names` are further globals, and variables of functions around. Raises `TargetError` for a generator or a
    coroutine: `to_function` makes functions of those.
    """
    func = expect(model, core.Func, "interpret: the model must be a func")
    surroundings, original = new_surroundings("interpret", func.free, like, names)
    require_plain(func.kind, func)
    interpreter = FunctionInterpreter(surroundings.scope, surroundings.cells)
    signature = inspect.signature(original) if original is not None else signature_of(func.parameters, func, {})
    call: Any = interpreter.function(func.body, signature, {}, None)
    call.__name__, call.__qualname__, call.__signature__ = func.sym_name.rpartition(".")[2], func.sym_name, signature
    if original is not None:
        call.__doc__, call.__module__ = original.__doc__, original.__module__
    keep_origin(call, func, surroundings)
    return call
