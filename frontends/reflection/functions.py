"""From a Python function to its Python code model: parameters, defaults, and the `func`."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelSyntaxError, ZigguratError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.recursion import MAX_FRAMES, deep_recursion, frames
from ziggurat.codemodel.subnormals import keep_subnormals
from ziggurat.codemodel.types import Type, constexpr_type, pyobject
from ziggurat.frontends.language.function import Function, Use, written_function
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.python.source import Source
from ziggurat.frontends.reflection.annotations import annotated_type
from ziggurat.frontends.reflection.definition import find_source, kernel_lines
from ziggurat.frontends.reflection.expressions import OuterObjects
from ziggurat.frontends.reflection.names import Names
from ziggurat.frontends.reflection.statements import Statements

_NOT_PLAIN = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def function(fn: Callable[..., Any]) -> Function:
    """Decorator: a helper that kernels may call, with positional, keyword and default arguments.

    It is compiled for each combination of argument types that it is called with.
    """
    return Function(fn, reader(fn))


def reader(fn: Callable[..., Any], language: Language = EXPLICIT) -> Callable[[Function], Op]:
    """Read the source of `fn` now, and return the function that makes its Python code model later.

    An edit of the file while the program runs does not change its kernels. Names are resolved when the model is made.
    Raises `KernelSyntaxError` when `fn` is not a plain function defined by `def`, with a name for each parameter; in a
    Triton program the function that is returned does, as modules define functions that are never called.
    """
    plain = cast(types.FunctionType, written_function(fn))
    lines, code = kernel_lines(plain), plain.__code__
    if language is EXPLICIT and code.co_flags & _NOT_PLAIN:
        _parameters(find_source(plain, lines))

    def model(target: Function) -> Op:
        with deep_recursion(), keep_subnormals():
            try:
                func, outer, target.uses, target.declares = _model(
                    target.fn, lines, target.language, target.initializes, code
                )
            except ZigguratError as error:
                target.plain = error.plain
                raise target.language.error(error) from None
        target.callees, target.objects = outer.callees, outer.objects
        return func

    return model


def reflect(function: Function | Callable[..., Any]) -> Op:
    """The Python code model of a function: a `func` named by its `__qualname__`, as docs/design/001 describes it.

    Names are resolved in the function's globals and closure as they are now. Raises `KernelSyntaxError`,
    `KernelNameError` or `KernelTypeError` at the place that is wrong; `KernelErrors` when there are several.
    """
    fn = written_function(function)
    with deep_recursion(), keep_subnormals():
        return _model(fn, kernel_lines(fn), getattr(function, "language", EXPLICIT))[0]


def _model(
    function: Callable[..., Any],
    lines: Sequence[str],
    language: Language,
    cls: type[Any] | None = None,
    code: types.CodeType | None = None,
) -> tuple[Op, OuterObjects, tuple[Use, ...], dict[str, Type]]:
    """The model of a function with its source in these lines, the objects that it refers to, its outer values, and the
    types that the annotations of parameters declare.

    `cls` is the class of the object that an `__init__` makes. `code` was the function's when the lines were read.
    """
    fn = cast(types.FunctionType, function)
    source = find_source(fn, lines or kernel_lines(fn), code)
    parameters = _parameters(source)[cls is not None :]
    names = Names(fn, source, language)
    outer = OuterObjects()
    notes = fn.__annotations__
    annotated = {p.arg: annotated_type(p.arg, notes.get(p.arg), p, names) for p in parameters}
    plain = (constexpr_type if type_ == constexpr_type else pyobject for type_ in annotated.values())
    builder = Builder.root(tuple(plain), pyobject)
    try:
        body = Statements(names, source, builder, outer).function_body(parameters, cls)
    except RecursionError:
        if frames() > MAX_FRAMES // 2:
            raise  # A long chain of functions led here; the statement is not to blame.
        raise KernelSyntaxError(
            f"a statement of '{fn.__name__}' is nested too deeply to be read",
            source.span(_deepest(source.node)),
            "take the expression apart by assigning its parts to variables",
        ) from None
    func = core.Func(fn.__qualname__, body)
    func.__dict__["location"] = source.span(source.node)
    declared_types = {name: type_ for name, type_ in annotated.items() if type_ not in (constexpr_type, pyobject)}
    return func, outer, tuple(names.uses.values()), declared_types


def _deepest(function: ast.FunctionDef) -> ast.stmt:
    """The innermost statement around the most deeply nested expression of a function."""
    deepest, most = cast(ast.stmt, function), 0
    work: list[tuple[ast.AST, ast.stmt, int]] = [(function, function, 0)]
    while work:
        node, statement, depth = work.pop()
        statement = node if isinstance(node, ast.stmt) else statement
        if depth > most:
            deepest, most = statement, depth
        work.extend((inner, statement, depth + 1) for inner in ast.iter_child_nodes(node))
    return deepest


def _parameters(source: Source) -> list[ast.arg]:
    """The parameters in their order. One with a `*` holds a tuple."""
    node = source.node
    arguments = node.args
    if arguments.kwarg is not None:
        raise _refused(
            "a parameter that takes any number of arguments", "name every parameter", arguments.kwarg, source
        )
    type_parameters: Sequence[ast.AST] = getattr(node, "type_params", ())
    if type_parameters:
        hint = "leave them out: types are found from the arguments"
        raise _refused("a function with type parameters", hint, type_parameters[0], source)
    variadic = [arguments.vararg] if arguments.vararg is not None else []
    return [*arguments.posonlyargs, *arguments.args, *variadic, *arguments.kwonlyargs]


def _refused(what: str, hint: str, node: ast.AST, source: Source) -> KernelSyntaxError:
    return KernelSyntaxError(f"a kernel cannot use {what}", source.span(node), hint)
