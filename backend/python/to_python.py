"""Source text of a Python code model."""

from __future__ import annotations

import ast
from typing import Any, Literal

from ziggurat.backend.python import assignments as assignments
from ziggurat.backend.python import expressions as expressions
from ziggurat.backend.python.constants import restore_constants
from ziggurat.backend.python.definitions import arguments_of, definition, function_parts
from ziggurat.backend.python.names import FunctionNames
from ziggurat.backend.python.writer import dotted
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import KernelValueError, TargetError, shown
from ziggurat.codemodel.messages import Words
from ziggurat.codemodel.op import Op, expect, require_model
from ziggurat.codemodel.python_parameters import definition_of
from ziggurat.codemodel.recursion import deep_recursion
from ziggurat.codemodel.types import constexpr_type
from ziggurat.transforms.lift import TEXT_NAMES, lift, words_of


def to_python(model: Op, language: Literal["zg", "triton"] = "zg") -> str:
    """The source text of the function that a Python code model is, such as `reflect` gives; or of a Triton model.

    Names are kept; comments are lost. A value that the model uses where Python's text cannot is kept in a variable.

    The text of a Triton model defines its kernels and the functions that they call, in explicit calls, or with
    `language="triton"` in Triton's Python. Shapes are numbers in it, and the values of constexpr parameters where the
    source of the model does not say which number is one; such a parameter has its value by default. Compiled again for
    the types of the model's parameters it gives the same ops, but that constants stand where they are used.

    Raises `TargetError` for an op that Python, or the language, has no words for.
    """
    require_model(model, "to_python")
    with deep_recursion():
        if isinstance(model, tt.Func | core.Module):
            return program_text(model, language)
        tree, definition = tree_of(model), definition_of(expect(model, core.Func))
        if definition is not None:
            tree.type_params = getattr(definition, "type_params", [])
        return ast.unparse(tree)


def program_text(model: Op, language: str) -> str:
    """The text of a module of Python with the functions of a Triton model."""
    if language not in ("triton", "zg"):
        raise KernelValueError(f'to_python: \'language\' must be "triton" or "zg"; got {shown(language)}')
    lifted = lift(model, "tl" if language == "triton" else "zg")
    texts: list[str] = []
    for name, function in lifted.module.functions().items():
        tree = tree_of(function, lifted.words)
        if name in lifted.sources:
            restore_constants(tree, lifted.sources[name], lifted.words)
        texts.append(f"{lifted.decorators[name]}\n{ast.unparse(tree)}\n")
    text = "\n\n".join(["\n".join(lifted.imports) + "\n", *texts])
    try:
        compile(text, "<to_python>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError) as error:
        raise TargetError(
            f"to_python: Python does not take the source of this model: {error}", model.location
        ) from None
    return text


def tree_of(model: Op, words: Words | None = None) -> Any:
    """The syntax tree of the function: a definition, or a lambda. `words` are those of the language of a kernel; by
    default that of its calls."""
    require_model(model, "to_python")
    if not isinstance(model, core.Func):
        raise TargetError(f"to_python: the model must be a func; got {model.NAME}", model.location)
    text = model.sym_name.rpartition(".")[2]
    is_lifted = words is not None
    outer = TEXT_NAMES if is_lifted else ()
    names = FunctionNames(model.body, None, model.free, words or words_of(model), is_lifted, outer)
    definition_ = definition_of(model)
    parts = function_parts(model.body, names, None, model.kind, model.parameters)
    if definition_ is None:
        arguments, returns = arguments_of((), parts.parameters, iter(()), iter(()))
        for argument, parameter in zip(arguments.args, model.body.parameters, strict=True):
            if parameter.type == constexpr_type:
                argument.annotation = dotted(f"{names.words.language}.constexpr")
    else:
        arguments, returns = definition_.args, definition_.returns
        inner: list[Any] = [
            *arguments.posonlyargs,
            *arguments.args,
            arguments.vararg,
            *arguments.kwonlyargs,
            arguments.kwarg,
        ]
        for parameter, name in zip([item for item in inner if item], parts.parameters, strict=True):
            parameter.arg = name
    place = model.location
    if model.kind == "lambda" and parts.value is not None:
        node: Any = ast.Lambda(arguments, parts.value)
    else:
        valid = text if text.isidentifier() else "function"
        node = definition(valid, arguments, parts.statements, returns, model.kind)
    if place is not None:
        node.lineno, node.col_offset = place.line, place.column
        node.end_lineno, node.end_col_offset = place.end_line or place.line, place.end_column
    return ast.fix_missing_locations(node)
