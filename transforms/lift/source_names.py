"""The names that the source of a model gives its values: of an assignment's target, of a parameter."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Mapping

from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op

Span = tuple[int, int, int, int]


def name_of(op: Op) -> str | None:
    """The variable to which the source assigns the expression that an op computes; None if it assigns it to none."""
    place = op.location
    return None if place is None else _read(place.file, _text(place))[0].get(_span(place))


def signature_of(function: Op) -> tuple[str, list[str]]:
    """The name of a function of the Triton model and those of its parameters in its source, without constants.

    A function without a source has its symbol for a name, and numbered parameters; so has one whose parameters are
    others than those of the source.
    """
    count = len(function.bodies[0].parameters)
    place = function.location
    name, parameters = function.attributes["sym_name"], list[str]()
    if place is not None:
        name, parameters = _read(place.file, _text(place))[1].get(place.line, (name, parameters))
    return name, parameters if len(parameters) == count else [f"x{index}" for index in range(count)]


def definition_of_source(function: Op) -> ast.FunctionDef | None:
    """The definition of a function of the Triton model in its source, where that can be read."""
    place = function.location
    return None if place is None else _read(place.file, _text(place))[2].get(place.line)


def constant_parameters(node: ast.FunctionDef) -> list[str]:
    """The names of the parameters that are declared as constexpr."""
    items = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [item.arg for item in items if _is_constant(item.annotation)]


def _span(place: Location) -> Span:
    return place.line, place.column, place.end_line, place.end_column


def _text(place: Location) -> str:
    return "".join(linecache.getlines(place.file))


@functools.lru_cache(maxsize=16)
def _read(
    _file: str, text: str
) -> tuple[Mapping[Span, str], Mapping[int, tuple[str, list[str]]], Mapping[int, ast.FunctionDef]]:
    """The names of values by their places; and by the line of the `def` those of functions and their parameters, and
    the definitions."""
    names: dict[Span, str] = {}
    functions: dict[int, tuple[str, list[str]]] = {}
    definitions: dict[int, ast.FunctionDef] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return names, functions, definitions
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[place_of(value)] = name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names[place_of(value)] = name
            case ast.AugAssign(target=ast.Name(id=name)) | ast.For(target=ast.Name(id=name)):
                names[place_of(node)] = name
            case ast.FunctionDef():
                items = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                parameters = [item.arg for item in items if not _is_constant(item.annotation)]
                functions[node.lineno] = node.name, parameters
                definitions[node.lineno] = node
            case _:
                pass
    return names, functions, definitions


def place_of(node: ast.stmt | ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def _is_constant(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).rpartition(".")[2].strip("'\"") == "constexpr"
