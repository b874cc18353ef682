"""`interpret(model)`: a function that runs its model in the interpreter, on real objects."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from ziggurat.codemodel import interpret_objects as interpret_objects
from ziggurat.codemodel import interpret_patterns as interpret_patterns
from ziggurat.codemodel import interpret_suites as interpret_suites
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.interpret_functions import FunctionInterpreter, require_plain, signature_of
from ziggurat.codemodel.op import Op, expect


def interpret(model: Op, like: Callable[..., Any] | None = None, **names: Any) -> Callable[..., Any]:
    """A function that runs its model, made from a Python function by `reflect`, in the interpreter.

    The function has the globals, the closure and the defaults of `like`, by default no others than the builtins;
    `names` are further globals. Raises `TargetError` for a generator or a coroutine: `to_function` makes functions of
    those.
    """
    func = expect(model, core.Func, "interpret: the model must be a func")
    scope: dict[str, Any] = dict(names)
    cells: dict[str, types.CellType] = {name: types.CellType(names[name]) for name in func.free if name in names}
    if like is not None:
        function = expect(like, types.FunctionType, "interpret: `like` must be a Python function")
        scope = {**function.__globals__, **names} if names else function.__globals__
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    missing = [name for name in func.free if name not in cells]
    if missing:
        raise KernelTypeError(f"interpret: the model needs {', '.join(missing)} of a function around it")
    require_plain(func.kind, func)
    interpreter = FunctionInterpreter(scope, cells)
    signature = inspect.signature(like) if like is not None else signature_of(func.parameters, func, {})
    call = interpreter.function(func.body, signature, {}, None)
    call.__name__, call.__qualname__ = func.sym_name.rpartition(".")[2], func.sym_name
    if like is not None:
        call.__doc__, call.__module__ = like.__doc__, like.__module__
    return call
