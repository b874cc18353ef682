"""A Python code model as a function."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from ziggurat.backend.python.to_python import tree_of
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.python_functions import keep_origin, new_surroundings
from ziggurat.codemodel.python_parameters import defaults_of
from ziggurat.codemodel.recursion import deep_recursion


def to_function(model: Op, like: Callable[..., Any] | None = None, **names: Any) -> Callable[..., Any]:
    """The function that a Python code model is. Its code comes from the syntax tree that the model makes, and has the
    model's places, which tracebacks show.

    The function has the globals, the closure and the defaults of `like`; by default the builtins, and the defaults that
    the model has as literals. `names` are further globals, and variables of functions around. `like` may be a method or
    a wrapper of a function, as for `reflect`. `reflect` of the function gives the model. Raises `KernelTypeError` for a
    variable of a function around, or a default, that neither has.
    """
    func = expect(model, core.Func, "to_function: the model must be a func")
    code = code_of(func)
    surroundings, original = new_surroundings("to_function", code.co_freevars, like, names)
    if original is not None:
        # `types.coroutine` marks the code of the generator that it is given.
        code = code.replace(co_flags=code.co_flags | original.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE)
    closure = tuple([surroundings.cells[name] for name in code.co_freevars])
    function = types.FunctionType(code, surroundings.scope, code.co_name, closure=closure)
    function.__qualname__ = code.co_qualname
    if original is not None:
        for field in _FIELDS:
            setattr(function, field, getattr(original, field))
        function.__dict__.update(original.__dict__)
    else:
        parameters = list(inspect.signature(function).parameters)
        defaults, keywords = defaults_of(func, parameters, "to_function", surroundings.scope)
        function.__defaults__, function.__kwdefaults__ = defaults or None, keywords or None
    keep_origin(function, func, surroundings)
    return function


def code_of(func: core.Func) -> types.CodeType:
    """The code of the function that a model is."""
    with deep_recursion():
        tree = tree_of(func)
        file = func.location.file if func.location is not None else "<model>"
        if not isinstance(tree, ast.Lambda):
            tree.name = _NAME  # Its own name may be that of a global that it uses.
        arguments = ast.arguments([], [ast.arg(name) for name in func.free], None, [], [], None, [])
        inner: list[ast.stmt] = [ast.Return(tree)] if isinstance(tree, ast.Lambda) else [tree]
        around: Any = ast.FunctionDef("around", arguments, inner, [])
        around.type_params = []
        module = ast.fix_missing_locations(ast.Module([around], []))
        code = compile(module, file, "exec", dont_inherit=True, optimize=-1)
    # Functions among the defaults come before the one that has them.
    for _ in range(2):
        code = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)][-1]
    code = code.replace(co_name=func.sym_name.rpartition(".")[2])
    return _renamed(code, len(code.co_qualname), func.sym_name)


_FIELDS = ["__defaults__", "__kwdefaults__", "__annotations__", "__doc__", "__module__"]
if sys.version_info >= (3, 12):
    _FIELDS.append("__type_params__")
# The name of the function while it is compiled.
_NAME = "__function__"


def _renamed(code: types.CodeType, length: int, name: str) -> types.CodeType:
    """The code, and the codes inside of it, with another name in the place of the first characters of theirs."""
    old_name, new_name = code.co_qualname, name + code.co_qualname[length:]
    constants: list[Any] = []
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            item = _renamed(item, length, name)
        elif item == old_name and not code.co_flags & inspect.CO_OPTIMIZED:
            item = new_name  # The suite of a class stores its name.
        constants.append(item)
    return code.replace(co_qualname=new_name, co_consts=tuple(constants))
